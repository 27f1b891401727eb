"""Orders of sources: what one costs, the best of all, and rules to compare with."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from jaxlab.core.checks import check_count, check_key
from jaxlab.core.roots import safe_sqrt
from jaxlab.core.trees import tree_dot

__all__ = [
    "best_order",
    "cosines",
    "gradient_norm_order",
    "hodge_residual",
    "linear_ordering_cost",
    "random_orders",
    "recency_alignment_order",
    "sampled_percentile",
]

_MOST = 16


def linear_ordering_cost(
    edges: Float[Array, "sources sources"], order: Int[Array, " sources"]
) -> Float[Array, ""]:
    """Half the sum of ``sigma_ij`` over all i before j: the order's loss over ``eta^2``.

    For one step on each source, two orders' target losses differ by ``eta^2`` times the difference
    of their costs, and terms of order ``eta^3``.

    Example:
        >>> edges = jnp.array([[0.0, 2.0], [-2.0, 0.0]])
        >>> float(linear_ordering_cost(edges, jnp.array([1, 0])))
        -1.0
    """
    placed = edges[order][:, order]
    return jnp.triu(placed, 1).sum() / 2


def best_order(edges: Float[Array, "sources sources"]) -> Int[Array, " sources"]:
    """The order of least cost of all, by dynamic programming over subsets.

    Time and memory are of order ``sources * 2^sources``.

    Raises:
        ValueError: More than 16 sources.

    Example:
        >>> edges = jnp.array([[0.0, 1.0, -3.0], [-1.0, 0.0, 2.0], [3.0, -2.0, 0.0]])
        >>> best_order(edges).tolist()
        [0, 2, 1]
    """
    count = edges.shape[0]
    if count > _MOST:
        raise ValueError(f"edges must be of at most {_MOST} sources, got {count}; see borda_order")
    # Adding i after the set s costs the edges from s to i; subsets come before their supersets.
    places = jnp.arange(count)
    members = (jnp.arange(2**count)[:, None] >> places[None]) & 1
    entering = members.astype(edges.dtype) @ edges

    def fill(best: tuple[Array, Array], subset: Array) -> tuple[tuple[Array, Array], None]:
        costs, last = best
        without = subset & ~(1 << places)
        candidates = costs[without] + entering[without, places]
        candidates = jnp.where(members[subset] == 1, candidates, jnp.inf)
        chosen = jnp.argmin(candidates)
        return (
            costs.at[subset].set(candidates[chosen]),
            last.at[subset].set(chosen.astype(jnp.int32)),
        ), None

    start = jnp.zeros(2**count, edges.dtype), jnp.zeros(2**count, jnp.int32)
    (_, last), _ = jax.lax.scan(fill, start, jnp.arange(1, 2**count))

    def unwind(subset: Array, _: None) -> tuple[Array, Array]:
        i = last[subset]
        return subset & ~(1 << i), i

    _, backwards = jax.lax.scan(unwind, jnp.asarray(2**count - 1), length=count)
    return backwards[::-1].astype(jnp.int32)


def hodge_residual(edges: Float[Array, "sources sources"]) -> Float[Array, ""]:
    """The share of ``edges`` that no score explains, in [0, 1]; 0 makes the sort the best order.

    Row means are the least-squares potential of the complete graph; what they leave is curl.

    Example:
        >>> s = jnp.array([1.0, 3.0, -4.0])
        >>> float(hodge_residual(s[:, None] - s[None, :]))
        0.0
    """
    potential = edges.mean(axis=1)
    left = edges - (potential[:, None] - potential[None, :])
    total = jnp.sum(edges**2)
    return jnp.where(total > 0, jnp.sum(left**2) / jnp.where(total > 0, total, 1), 0)


def gradient_norm_order(grads: PyTree) -> Int[Array, " sources"]:
    """Largest gradient first.

    Args:
        grads: Gradients with a leading axis of sources.

    Example:
        >>> gradient_norm_order(jnp.array([[1.0], [-3.0], [2.0]])).tolist()
        [1, 2, 0]
    """
    squares = jax.vmap(lambda g: tree_dot(g, g))(grads)
    return jnp.argsort(-squares, stable=True).astype(jnp.int32)


def cosines(grads: PyTree, target_grad: PyTree) -> Float[Array, " sources"]:
    """How far every source's gradient is along the target's, in [-1, 1]; 0 for a gradient of 0.

    Example:
        >>> cosines(jnp.array([[2.0, 0.0], [0.0, 1.0]]), jnp.array([3.0, 0.0])).tolist()
        [1.0, 0.0]
    """
    length = safe_sqrt(tree_dot(target_grad, target_grad))

    def cosine(grad: PyTree) -> Array:
        norm = length * safe_sqrt(tree_dot(grad, grad))
        return jnp.where(norm > 0, tree_dot(grad, target_grad) / jnp.where(norm > 0, norm, 1), 0)

    return jax.vmap(cosine)(grads)


def recency_alignment_order(grads: PyTree, target_grad: PyTree) -> Int[Array, " sources"]:
    """The source whose gradient is most along the target's comes last, by their cosine.

    The rule of first order that the bracket becomes where all Hessians are one multiple of the
    identity and all gradients have one norm.

    Example:
        >>> grads = jnp.array([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
        >>> recency_alignment_order(grads, jnp.array([1.0, 0.0])).tolist()
        [2, 1, 0]
    """
    return jnp.argsort(cosines(grads, target_grad), stable=True).astype(jnp.int32)


def random_orders(key: Array, count: int, *, num: int) -> Int[Array, "num sources"]:
    """Independent uniform permutations.

    Example:
        >>> random_orders(jax.random.key(0), 4, num=3).shape
        (3, 4)
    """
    check_key("key", key)
    check_count("count", count)
    check_count("num", num)
    keys = jax.random.split(key, num)
    return jax.vmap(lambda k: jax.random.permutation(k, count))(keys).astype(jnp.int32)


def sampled_percentile(
    key: Array,
    schedule_loss: Callable[[Any], Array],
    order: Int[Array, " sources"],
    *,
    num: int = 300,
) -> Float[Array, ""]:
    """The percentage of random orders whose final loss is higher than that of ``order``.

    Args:
        key: A typed key.
        schedule_loss: The target loss after training in an order.
        order: The order that is judged.
        num: How many random orders.

    Example:
        >>> loss = lambda order: order[0].astype(float)
        >>> float(sampled_percentile(jax.random.key(0), loss, jnp.array([4, 0, 1, 2, 3]), num=20))
        0.0
    """
    others = jax.lax.map(schedule_loss, random_orders(key, order.shape[0], num=num))
    return 100 * jnp.mean(others > schedule_loss(order))

r"""Robust means of vectors of which some were sent by liars.

Every rule is a pure function of ``vectors`` of shape ``[clients, dim]`` and of a mask of those that
take part, so that a changing number of senders needs no other shapes. ``over_trees`` takes a rule
to trees. Rules that look at distances between vectors are in ``byzantine_selection``, attacks in
``byzantine_attacks``, guarantees in ``byzantine_theory``.

A server must refuse NaN before it aggregates: sorting puts it last, but means keep it.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int, PyTree

from jaxlab.core.checks import check_count, check_leading_axis, check_value
from jaxlab.core.roots import safe_sqrt
from jaxlab.core.types import Scalar
from jaxlab.stats.sorting import sort_columns

__all__ = [
    "Mask",
    "centered_clipping",
    "check_byzantine",
    "check_participants",
    "coordinate_median",
    "geometric_median",
    "mean",
    "over_trees",
    "trimmed_mean",
    "weighted_sum",
]

Mask: TypeAlias = Bool[Array, " clients"]
"""Who takes part; at least one client must, or the result means nothing."""


def mean(
    vectors: Float[Array, "clients dim"], participants: Mask | None = None
) -> Float[Array, " dim"]:
    """The mean, which a single liar moves anywhere.

    Raises:
        ValueError: ``participants`` is for another number of clients.

    Example:
        >>> mean(jnp.array([[1.0], [3.0], [100.0]]), jnp.array([True, True, False])).tolist()
        [2.0]
    """
    mask, count = check_participants(vectors, participants)
    return weighted_sum(mask.astype(vectors.dtype), vectors, participants) / count


def coordinate_median(
    vectors: Float[Array, "clients dim"], participants: Mask | None = None
) -> Float[Array, " dim"]:
    """The median of every coordinate; of an even number, the mean of the middle two.

    Source: Yin et al. 2018, arXiv:1803.01498.

    Raises:
        ValueError: ``participants`` is for another number of clients.

    Example:
        >>> coordinate_median(jnp.array([[1.0], [2.0], [9.0]])).tolist()
        [2.0]
    """
    mask, count = check_participants(vectors, participants)
    ordered = _sorted(vectors, mask)
    return (ordered[(count - 1) // 2] + ordered[count // 2]) / 2


def trimmed_mean(
    vectors: Float[Array, "clients dim"],
    participants: Mask | None = None,
    *,
    num_byzantine: int | Int[Array, ""],
) -> Float[Array, " dim"]:
    """The mean of every coordinate without its ``num_byzantine`` largest and smallest values.

    Source: Yin et al. 2018, arXiv:1803.01498.

    Args:
        vectors: One per client.
        participants: Who takes part; all by default.
        num_byzantine: Fewer than half of the participants; may be traced.

    Raises:
        ValueError: ``num_byzantine`` is negative or half of the participants or more.

    Example:
        >>> trimmed_mean(jnp.array([[-9.0], [1.0], [3.0], [9.0]]), num_byzantine=1).tolist()
        [2.0]
    """
    mask, count = check_participants(vectors, participants)
    check_byzantine(num_byzantine, count)
    rank = jnp.arange(len(vectors))
    kept = (rank >= num_byzantine) & (rank < count - num_byzantine)
    ordered = _sorted(vectors, mask)
    if participants is not None:  # the others are infinite
        ordered = jnp.where(kept[:, None], ordered, 0)
    return kept.astype(vectors.dtype) @ ordered / (count - 2 * num_byzantine)


def geometric_median(
    vectors: Float[Array, "clients dim"],
    participants: Mask | None = None,
    *,
    start: Float[Array, " dim"] | None = None,
    num_iters: int = 8,
    smoothing: Scalar = 0.1,
) -> Float[Array, " dim"]:
    """The point of least total distance, by Weiszfeld's iteration; RFA.

    A step is the mean with weights ``1 / max(distance, smoothing)``. Near a vector the iteration is
    slow: for the exact point take some hundred steps and a small ``smoothing``.

    Source: Pillutla, Kakade, Harchaoui 2022, arXiv:1912.13445.

    Args:
        vectors: One per client.
        participants: Who takes part; all by default.
        start: Where to begin; by default at the coordinates' median, so that shifted vectors give
            a shifted result. Implementations that begin at 0 do not have this symmetry.
        num_iters: Steps of the iteration, static.
        smoothing: The least distance that is told apart, positive.

    Raises:
        ValueError: ``num_iters`` is less than 1, or ``smoothing`` is not positive.

    Example:
        >>> square = jnp.array([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0], [2.0, 2.0]])
        >>> geometric_median(square).round(4).tolist()
        [1.0, 1.0]
    """
    mask, _ = check_participants(vectors, participants)
    check_count("num_iters", num_iters)
    check_value("smoothing", smoothing, lambda s: s > 0, "positive")
    begin = coordinate_median(vectors, participants) if start is None else start
    used = jnp.where(mask[:, None], vectors, 0)

    def improve(point: Array, _: None) -> tuple[Array, None]:
        distances = safe_sqrt(jnp.sum((used - point[None]) ** 2, axis=1))
        weights = jnp.where(mask, 1 / jnp.maximum(distances, smoothing), 0)
        return (weights @ used / weights.sum()).astype(vectors.dtype), None

    return jax.lax.scan(improve, begin.astype(vectors.dtype), length=num_iters)[0]


def centered_clipping(
    vectors: Float[Array, "clients dim"],
    center: Float[Array, " dim"],
    participants: Mask | None = None,
    *,
    radius: Scalar,
    num_iters: int = 1,
) -> Float[Array, " dim"]:
    """The centre moved by the mean of offsets that are clipped to ``radius``.

    The centre is the last round's result: without history, start at 0.

    Source: Karimireddy, He, Jaggi 2021, arXiv:2012.10333.

    Args:
        vectors: One per client.
        center: The last result.
        participants: Who takes part; all by default.
        radius: The largest offset of a client, in the unit of the vectors; positive.
        num_iters: Steps, static.

    Raises:
        ValueError: ``radius`` is not positive, ``num_iters`` is less than 1, or ``center`` has
            another length than the vectors.

    Example:
        >>> centered_clipping(jnp.array([[0.5], [100.0]]), jnp.zeros(1), radius=1.0).tolist()
        [0.75]
    """
    _, count = check_participants(vectors, participants)
    check_count("num_iters", num_iters)
    check_value("radius", radius, lambda r: r > 0, "positive")
    if center.shape != vectors.shape[1:]:
        raise ValueError(f"center must have shape {vectors.shape[1:]}, got {center.shape}")

    def move(center: Array, _: None) -> tuple[Array, None]:
        offsets = vectors - center[None]
        distances = safe_sqrt(jnp.sum(offsets**2, axis=1))
        shrink = jnp.minimum(1, radius / jnp.where(distances > 0, distances, radius))
        moved = center + weighted_sum(shrink, offsets, participants) / count
        return moved.astype(vectors.dtype), None

    return jax.lax.scan(move, center.astype(vectors.dtype), length=num_iters)[0]


def over_trees(rule: Callable[..., Array]) -> Callable[..., Any]:
    """The same rule on trees whose leaves have a leading clients axis.

    Distances are those of all leaves together, as of one long vector.

    Raises:
        ValueError: Leaves have different numbers of clients.

    Example:
        >>> tree = {"a": jnp.array([1.0, 2.0, 9.0]), "b": jnp.array([[0.0], [5.0], [6.0]])}
        >>> jax.tree.map(lambda leaf: leaf.tolist(), over_trees(coordinate_median)(tree))
        {'a': 2.0, 'b': [5.0]}
    """

    def on_tree(tree: PyTree, *args: Any, **kwargs: Any) -> PyTree:
        check_leading_axis("tree", tree, len(jax.tree.leaves(tree)[0]), "clients")
        _, unravel = ravel_pytree(jax.tree.map(lambda leaf: leaf[0], tree))
        vectors = jax.vmap(lambda one: ravel_pytree(one)[0])(tree)
        return unravel(rule(vectors, *args, **kwargs))

    return on_tree


def weighted_sum(
    weights: Float[Array, " clients"],
    vectors: Float[Array, "clients dim"],
    participants: Mask | None = None,
) -> Float[Array, " dim"]:
    """The sum over participants, whatever the others sent, infinities too.

    A product: on a CPU a sum along the first axis takes many times as long.

    Example:
        >>> heard = jnp.array([True, False])
        >>> weighted_sum(jnp.ones(2), jnp.array([[1.0], [jnp.inf]]), heard).tolist()
        [1.0]
    """
    if participants is None:
        return weights @ vectors
    heard = participants[:, None]
    return jnp.where(participants, weights, 0) @ jnp.where(heard, vectors, 0)


def check_participants(
    vectors: Float[Array, "clients dim"], participants: Mask | None
) -> tuple[Mask, int | Int[Array, ""]]:
    """The mask of participants and their number, which is static if all take part.

    Raises:
        ValueError: ``vectors`` is not ``[clients, dim]``, or ``participants`` is for another number
            of clients.
    """
    if vectors.ndim != 2 or not len(vectors):
        raise ValueError(
            f"vectors must be [clients, dim] with at least one client, got shape {vectors.shape}"
        )
    if participants is None:
        return jnp.ones(len(vectors), dtype=bool), len(vectors)
    if participants.shape != vectors.shape[:1]:
        raise ValueError(
            f"participants must have shape {vectors.shape[:1]} like the clients of vectors, got "
            f"{participants.shape}"
        )
    return participants, participants.sum()


def check_byzantine(num_byzantine: int | Array, count: int | Array) -> None:
    """Raise ``ValueError`` unless ``num_byzantine`` is a minority of ``count``."""
    if isinstance(count, int):
        expected = f"in [0, {count}/2), fewer than half of the participants"
    else:
        expected = "at least 0 and fewer than half of the participants"
    check_value("num_byzantine", num_byzantine, lambda f: (f >= 0) & (2 * f < count), expected)


def _sorted(vectors: Array, mask: Array) -> Array:
    """Every coordinate in increasing order; who does not take part comes last."""
    return sort_columns(jnp.where(mask[:, None], vectors, jnp.inf))

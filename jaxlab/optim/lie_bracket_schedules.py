"""Training in an order: runs, what an order's loss is, corrections, and how large a step may be."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PyTree

from jaxlab.core import run
from jaxlab.core.checks import check_count, check_key, check_value
from jaxlab.core.trees import is_inexact, tree_combine, tree_dot
from jaxlab.core.types import Scalar
from jaxlab.optim.lie_bracket import (
    Loss,
    OrderedHyper,
    bracket,
    ordered,
    ordered_sgd,
)

__all__ = [
    "StepSizeReport",
    "bracket_only_step",
    "calibrate_step_size",
    "order_statistic",
    "ordering_gap",
    "run_schedule",
    "run_schedule_optax",
]


class StepSizeReport(NamedTuple):
    """How far brackets may be trusted, for every step size of a grid.

    Attributes:
        step_size: The largest whose remainder is allowed; NaN if there is none.
        remainder: Median of ``||theta_AB - theta_BA - eta^2 b|| / (eta^2 ||b||)`` over pairs with
            a bracket.
        signal: Median of ``eta^2 |sigma|``, the gap that is at stake.
        noise: What the target loss changes by when it is rounded.
        above_floor: Whether the signal is at least five times the noise.
    """

    step_size: Float[Array, ""]
    remainder: Float[Array, " grid"]
    signal: Float[Array, " grid"]
    noise: Float[Array, ""]
    above_floor: Any


def run_schedule(
    loss: Loss,
    params: PyTree,
    sources: Any,
    order: Int[Array, " sources"],
    step_size: Scalar,
    *,
    steps: int = 1,
) -> PyTree:
    """The parameters after ``steps`` steps of SGD on each source, in an order.

    Args:
        loss: Of parameters and a batch.
        params: Before training.
        sources: Batches with a leading axis.
        order: Indices along that axis; a shorter list trains on some only.
        step_size: ``eta``.
        steps: Steps on each source before the next.

    Raises:
        ValueError: No steps, a negative step size, sources of different numbers, or an index that
            none of them has.

    Example:
        >>> loss = lambda x, b: jnp.sum((x - b) ** 2) / 2
        >>> sources = jnp.array([[1.0], [3.0]])
        >>> run_schedule(loss, jnp.zeros(1), sources, jnp.array([0, 1]), 0.5).tolist()
        [1.75]
    """
    problem = ordered(loss, params, sources, order, steps=steps)
    # Nothing is random; the protocol asks for a key.
    done = run(
        ordered_sgd(), problem, OrderedHyper(jnp.asarray(step_size)), jax.random.key(0),
        num_steps=len(problem.order),
    )  # fmt: skip
    return done.state.params


def run_schedule_optax(
    loss: Loss,
    params: PyTree,
    sources: Any,
    order: Int[Array, " sources"],
    tx: optax.GradientTransformation,
    *,
    steps: int = 1,
    reset: bool = False,
    allow_memory: bool = False,
) -> PyTree:
    """The same with an optimizer of Optax, whose memory changes what an order does.

    Brackets predict plain SGD. With averaged gradients, ``m <- beta m + (1 - beta) g``, the orders
    differ in first order already, by ``-eta beta (1 - beta) (g_A - g_B)``, so that an optimizer
    which remembers gradients has to be asked for.

    Args:
        loss: Of parameters and a batch.
        params: Before training.
        sources: Batches with a leading axis.
        order: Indices along that axis.
        tx: The optimizer.
        steps: Steps on each source before the next.
        reset: Forget the optimizer's state between sources.
        allow_memory: Take an optimizer that remembers gradients.

    Raises:
        ValueError: An optimizer whose state has arrays of real numbers, without ``allow_memory``;
            or as of ``run_schedule``.

    Example:
        >>> loss = lambda x, b: jnp.sum((x - b) ** 2) / 2
        >>> sources, order = jnp.array([[1.0], [3.0]]), jnp.array([0, 1])
        >>> run_schedule_optax(loss, jnp.zeros(1), sources, order, optax.sgd(0.5)).tolist()
        [1.75]
    """
    problem = ordered(loss, params, sources, order, steps=steps)
    fresh = tx.init(params)
    if not allow_memory and any(map(is_inexact, jax.tree.leaves(fresh))):
        raise ValueError(
            "tx must not remember gradients, since brackets do not describe what an order does "
            "then; pass allow_memory=True to run it all the same"
        )
    first = jnp.arange(len(problem.order)) % steps == 0

    def step(carry: tuple[PyTree, Any], now: Any) -> tuple[tuple[PyTree, Any], None]:
        (params, state), (i, begins) = carry, now
        if reset:
            state = jax.tree.map(lambda old, new: jnp.where(begins, new, old), state, fresh)
        batch = jax.tree.map(lambda leaf: leaf[i], sources)
        updates, state = tx.update(jax.grad(loss)(params, batch), state, params)
        return (optax.apply_updates(params, updates), state), None

    return jax.lax.scan(step, (params, fresh), (problem.order, first))[0][0]


def ordering_gap(
    loss: Loss,
    params: PyTree,
    batch_a: Any,
    batch_b: Any,
    target: Any,
    step_size: Scalar,
    *,
    steps: int = 1,
) -> Float[Array, ""]:
    """The target loss of A first less that of B first, by running both.

    Example:
        >>> loss = lambda x, b: jnp.sum((x - b) ** 2) / 2
        >>> one, two = jnp.array([1.0]), jnp.array([3.0])
        >>> float(ordering_gap(loss, jnp.zeros(1), one, two, two, 0.5))
        -0.75
    """
    sources = jax.tree.map(lambda a, b: jnp.stack([a, b]), batch_a, batch_b)

    def final(order: Array) -> Array:
        return loss(run_schedule(loss, params, sources, order, step_size, steps=steps), target)

    return final(jnp.array([0, 1])) - final(jnp.array([1, 0]))


def bracket_only_step(
    loss: Loss, params: PyTree, batch_a: Any, batch_b: Any, target: Any, step_size: Scalar
) -> PyTree:
    r"""Both steps at once, corrected by half the bracket in the direction of the better order.

    .. math:: \theta = \theta_{ref} - \tfrac{1}{2} \mathrm{sign}(\sigma) \eta^2 b_{AB}, \qquad
        \theta_{ref} = \theta_0 - \eta (g_A + g_B)

    Its target loss is below that of both orders by ``eta^2 mu`` and terms of third order, with
    ``mu = <g_E, H_B g_A + H_A g_B> / 2``, where that is positive. Source: arXiv:2606.24993,
    equations 28 and 29.

    Raises:
        ValueError: A negative step size.

    Example:
        >>> loss = lambda x, b: jnp.sum(b[0] * (x - b[1]) ** 2) / 2
        >>> a, b, target = (1.0, 1.0), (2.0, 3.0), (1.0, 5.0)
        >>> bracket_only_step(loss, jnp.zeros(1), a, b, target, 0.1)  # A first 0.68, B first 0.64
        Array([0.72], dtype=float32)
    """
    check_value("step_size", step_size, lambda x: x >= 0, "at least 0")
    grad_a, grad_b = jax.grad(loss)(params, batch_a), jax.grad(loss)(params, batch_b)
    reference = tree_combine((1, -step_size, -step_size), params, grad_a, grad_b)
    difference = bracket(loss, params, batch_a, batch_b)
    score = tree_dot(jax.grad(loss)(reference, target), difference)
    return tree_combine((1, -jnp.sign(score) * step_size**2 / 2), reference, difference)


def order_statistic(first: PyTree, second: PyTree, difference: PyTree) -> Float[Array, ""]:
    """``<theta_1 - theta_2, b_AB>``: positive if endpoint 1 saw A before B and endpoint 2 not.

    Its leading value is ``eta^2 ||b_AB||^2``.
    """
    return tree_dot(tree_combine((1, -1), first, second), difference)


def calibrate_step_size(
    key: Array,
    loss: Loss,
    params: PyTree,
    sources: Any,
    target: Any,
    grid: Float[Array, " grid"],
    *,
    num_pairs: int = 6,
    max_remainder: Scalar = 0.25,
) -> StepSizeReport:
    """The largest step size at which brackets still describe both orders of a few pilot pairs.

    Args:
        key: A typed key, for the pairs.
        loss: Of parameters and a batch.
        params: Before training.
        sources: Batches with a leading axis of at least two.
        target: The target's batch.
        grid: Positive step sizes, in any order.
        num_pairs: How many pairs are tried.
        max_remainder: The largest share of the bracket that higher orders may have.

    Raises:
        ValueError: Fewer than two sources, or a step size that is not positive.

    Example:
        >>> loss = lambda x, b: jnp.sum(b[0] * (x - b[1]) ** 2) / 2
        >>> sources = (jnp.array([1.0, 2.0]), jnp.array([1.0, 3.0]))
        >>> report = calibrate_step_size(jax.random.key(0), loss, jnp.zeros(1), sources,
        ...                              (1.0, 5.0), jnp.array([0.01, 0.1, 1.0]))
        >>> float(report.step_size)  # quadratic losses have no remainder
        1.0
    """
    check_key("key", key)
    check_count("num_pairs", num_pairs)
    check_value("grid", grid, lambda x: x > 0, "positive")
    count = jax.tree.leaves(sources)[0].shape[0]
    if count < 2:
        raise ValueError(f"sources must be at least 2, got {count}")

    def pair(key: Array) -> tuple[Array, Array]:
        i, j = jax.random.choice(key, count, (2,), replace=False)
        a, b = (jax.tree.map(lambda leaf, k=k: leaf[k], sources) for k in (i, j))
        difference = bracket(loss, params, a, b)
        norm = jnp.sqrt(tree_dot(difference, difference))
        score = tree_dot(jax.grad(loss)(params, target), difference)

        def at(step_size: Array) -> tuple[Array, Array]:
            ends = [
                run_schedule(loss, params, sources, jnp.stack(order), step_size)
                for order in ((i, j), (j, i))
            ]
            left = tree_combine((1, -1, -(step_size**2)), *ends, difference)
            size = jnp.sqrt(tree_dot(left, left))
            # Equal sources have no bracket, and say nothing.
            ratio = jnp.where(
                norm > 0, size / (step_size**2 * jnp.where(norm > 0, norm, 1)), jnp.nan
            )
            return ratio, step_size**2 * jnp.abs(score)

        return jax.lax.map(at, grid)

    remainders, signals = jax.lax.map(pair, jax.random.split(key, num_pairs))
    remainder, signal = jnp.nanmedian(remainders, axis=0), jnp.median(signals, axis=0)
    allowed = remainder <= max_remainder
    chosen = jnp.max(jnp.where(allowed, grid, -jnp.inf))
    step_size = jnp.where(allowed.any(), chosen, jnp.nan)
    value = loss(params, target)
    noise = jnp.abs(value) * jnp.finfo(value.dtype).eps
    at_chosen = jnp.max(jnp.where(allowed & (grid == chosen), signal, 0))
    return StepSizeReport(step_size, remainder, signal, noise, at_chosen >= 5 * noise)

"""Counting what a method needs to reach a known answer."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree

from jaxlab.core.types import Method
from jaxlab.problems.consensus import Consensus

__all__ = ["Measured", "Solved", "cost_to_accuracy", "first_below", "sweep", "with_error"]


class Solved(NamedTuple):
    """A problem whose answer is known. Attributes: problem; solution: like its ``start``."""

    problem: Consensus
    solution: PyTree


class Measured(NamedTuple):
    """Diagnostics of a step towards a known answer.

    Attributes:
        error: The mean over agents of the squared distance to the solution.
        num_gradients: As in ``ConsensusInfo``.
        num_communications: As in ``ConsensusInfo``.
    """

    error: Float[Array, ""]
    num_gradients: Float[Array, ""]
    num_communications: Float[Array, ""]


def with_error(method: Method) -> Method:
    """The same method on ``Solved`` problems, with ``Measured`` infos.

    The state must have a field ``params`` of leaves ``[agents, ...]``.
    """

    def init(problem: Solved, hyper: Any, key: Array) -> Any:
        return method.init(problem.problem, hyper, key)

    def step(problem: Solved, hyper: Any, state: Any, key: Array) -> tuple[Any, Measured]:
        state, info = method.step(problem.problem, hyper, state, key)

        def distances(params: Array, solution: Array) -> Array:
            return jnp.sum((params - solution) ** 2, axis=tuple(range(1, params.ndim)))

        by_leaf = jax.tree.leaves(jax.tree.map(distances, state.params, problem.solution))
        error = jnp.mean(sum(by_leaf[1:], start=by_leaf[0]))
        return state, Measured(error, info.num_gradients, info.num_communications)

    return Method(init, step)


def first_below(
    errors: Float[np.ndarray, "*batch steps"], accuracy: float
) -> tuple[Float[np.ndarray, "*batch"], Bool[np.ndarray, "*batch"]]:
    """The first step (from 0) whose error is below ``accuracy``, and whether there is one.

    Where there is none the last step is returned. NaN is not below anything.

    Example:
        >>> steps, reached = first_below(np.array([[1.0, 0.1, 0.01], [1.0, np.nan, 1.0]]), 0.5)
        >>> steps.tolist(), reached.tolist()
        ([1.0, 2.0], [True, False])
    """
    below = np.asarray(errors < accuracy)
    reached = np.asarray(below.any(axis=-1))
    first = np.where(reached, below.argmax(axis=-1), errors.shape[-1] - 1)
    return first.astype(np.float64), reached


def cost_to_accuracy(trace: Measured, accuracy: float) -> tuple[np.ndarray, np.ndarray]:
    """Communications and gradients until the error falls below ``accuracy``; infinite if never.

    Args:
        trace: Recorded at every step, on the host; leaves ``[..., steps]``.
        accuracy: On the scale of ``Measured.error``.

    Returns:
        Two float64 arrays of the batch's shape.
    """
    first, reached = first_below(np.asarray(trace.error, dtype=np.float64), accuracy)
    index = first.astype(int)[..., None]

    def total(counts: Any) -> np.ndarray:
        sums = np.cumsum(np.asarray(counts, dtype=np.float64), axis=-1)
        return np.where(reached, np.take_along_axis(sums, index, axis=-1)[..., 0], np.inf)

    return total(trace.num_communications), total(trace.num_gradients)


def sweep(function: Callable[[Any, Any], Any]) -> Method:
    """Evaluate a function at one input per step, so that a sweep has checkpoints like a run.

    The problem is ``(context, inputs)`` with leaves of ``inputs`` of shape ``[steps, ...]``; the
    info of step ``i`` is ``function(context, inputs[i])``. The hyper-parameters are not used.

    Example:
        >>> from jaxlab.core import run
        >>> squares = sweep(lambda context, x: context + x**2)
        >>> run(squares, (1.0, jnp.arange(3.0)), (), jax.random.key(0), num_steps=3).trace.tolist()
        [1.0, 2.0, 5.0]
    """

    def init(problem: Any, hyper: Any, key: Array) -> Array:
        del problem, hyper, key
        return jnp.zeros((), jnp.int32)

    def step(problem: Any, hyper: Any, state: Array, key: Array) -> tuple[Array, Any]:
        del hyper, key
        context, inputs = problem
        now = jax.tree.map(lambda leaf: leaf[state], inputs)
        return state + 1, function(context, now)

    return Method(init, step)

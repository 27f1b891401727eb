"""The protocol that every iterative algorithm follows."""

import enum
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Array, Int, PyTree

__all__ = ["Method", "Run", "Scalar", "Status", "status_name"]


Scalar: TypeAlias = Array | np.ndarray | np.number | float | int
"""A real number: Python's, NumPy's, or an array without axes that may be traced."""


class Method(NamedTuple):
    """An iterative algorithm as a pair of pure functions.

    Hyper-parameters are an argument, not a closure: one compilation serves every value of them and
    ``jax.vmap`` over ``hyper`` is a grid search. Sizes and choices that change the program (the
    number of local steps, an aggregator) are arguments of the factory that returns the method.

    Attributes:
        init: ``(problem, hyper, key) -> state``.
        step: ``(problem, hyper, state, key) -> (state, info)``; ``state`` keeps its structure,
            shapes and dtypes, ``info`` holds diagnostics that the next step does not need.
    """

    init: Callable[[Any, Any, Any], Any]
    step: Callable[[Any, Any, Any, Any], tuple[Any, Any]]


class Status(enum.IntEnum):
    """How a run ended. Statuses are data, so that they pass through ``jit`` and ``vmap``."""

    OK = 0
    """All steps were taken (``run``) or the stopping rule was met (``run_until``)."""
    MAX_STEPS = 1
    """``run_until`` used up its steps before the stopping rule was met."""
    INPUT_NONFINITE = 2
    """The problem, the hyper-parameters or the first state already held NaN or infinity."""
    NONFINITE = 3
    """The state became NaN or infinite during the run."""
    DIVERGED = 4
    """The state stayed finite, but left the box of ``divergence_threshold``."""


class Run(NamedTuple):
    """What a runner returns.

    Attributes:
        state: The last state.
        trace: What ``trace_fn`` returned, stacked over the recorded steps.
        status: A ``Status`` as an int32 scalar.
        first_bad_step: The first step (from 0) whose state was not finite or beyond the divergence
            threshold; -1 if there was none. 0 if the input was not finite.
        num_steps: The number of steps taken, an int32 scalar.
    """

    state: PyTree
    trace: PyTree
    status: Int[Array, ""]
    first_bad_step: Int[Array, ""]
    num_steps: Int[Array, ""]


def status_name(status: int | Array) -> str:
    """Name a status for a message.

    Example:
        >>> status_name(3)
        'NONFINITE'
    """
    return Status(int(status)).name

"""The runners: one place that owns the loop, the keys, the trace and the status."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PyTree

from jaxlab.core.checks import check_count, check_key
from jaxlab.core.trees import all_finite, largest_magnitude
from jaxlab.core.types import Method, Run, Status

__all__ = ["init_key", "run", "run_until", "step_key", "trace_info"]

_NO_BAD_STEP = -1


def init_key(key: Array) -> Array:
    """The key that the runners hand to ``Method.init``."""
    return jax.random.fold_in(jax.random.fold_in(key, 0), 0)


def step_key(key: Array, step: int | Array) -> Array:
    """The key that the runners hand to ``Method.step`` at ``step`` (from 0).

    It depends on the step alone, so that a prefix of a long run equals a short run.
    """
    return jax.random.fold_in(jax.random.fold_in(key, 1), step)


def trace_info(state: PyTree, info: PyTree) -> PyTree:
    """The default trace: the step's diagnostics, which are scalars in every method here."""
    del state
    return info


def run(
    method: Method,
    problem: Any,
    hyper: Any,
    key: Array,
    *,
    num_steps: int,
    trace_fn: Callable[[Any, Any], Any] = trace_info,
    every: int = 1,
    state: Any = None,
    first_step: int | Int[Array, ""] = 0,
    divergence_threshold: float | None = None,
) -> Run:
    """Take a fixed number of steps.

    The function is pure and is not compiled: wrap it, with everything around it, in ``jax.jit``.
    It is differentiable in both modes, and what it returns costs nothing if it is not used (under
    ``jit`` the status checks vanish when nobody reads them).

    Args:
        method: The algorithm.
        problem: What is solved, a pytree that ``method`` understands.
        hyper: The hyper-parameters, a pytree of numbers.
        key: A typed PRNG key. The key of every step is folded from it.
        num_steps: The number of steps, static.
        trace_fn: ``(state, info) -> pytree`` to record; scalars by default, since a trace of
            states takes ``num_steps`` times their memory.
        every: Record the last of every ``every`` steps; must divide ``num_steps``.
        state: Where to start; ``method.init`` by default.
        first_step: The number of the first step, for runs that continue from ``state``.
        divergence_threshold: Report ``DIVERGED`` once an entry of the state exceeds this in
            magnitude. The run goes on all the same.

    Raises:
        TypeError: ``key`` is not a typed key.
        ValueError: ``num_steps`` is negative or ``every`` does not divide it.

    Example:
        >>> halve = Method(
        ...     init=lambda problem, hyper, key: problem,
        ...     step=lambda problem, hyper, x, key: (hyper * x, {"value": hyper * x}),
        ... )
        >>> done = run(halve, jnp.array(8.0), 0.5, jax.random.key(0), num_steps=3)
        >>> float(done.state), done.trace["value"].tolist(), Status(int(done.status)).name
        (1.0, [4.0, 2.0, 1.0], 'OK')
    """
    check_key("key", key)
    check_count("num_steps", num_steps, least=0)
    check_count("every", every)
    if num_steps % every:
        raise ValueError(f"every must divide num_steps = {num_steps}, got {every}")
    if state is None:
        state = method.init(problem, hyper, init_key(key))
    input_finite = all_finite((problem, hyper, state))

    def one_step(state: Any, step: Array) -> tuple[Any, tuple[Any, Any]]:
        state, info = method.step(problem, hyper, state, step_key(key, step))
        return state, (info, _health(state, divergence_threshold))

    def recorded_steps(state: Any, steps: Array) -> tuple[Any, Any]:
        if every == 1:
            state, (info, health) = one_step(state, steps[0])
        else:
            state, (infos, health) = jax.lax.scan(one_step, state, steps)
            info = jax.tree.map(lambda leaf: leaf[-1], infos)
        return state, (trace_fn(state, info), health)

    start = jnp.asarray(first_step, dtype=jnp.int32)
    steps = start + jnp.arange(num_steps, dtype=jnp.int32)
    state, (trace, health) = jax.lax.scan(recorded_steps, state, steps.reshape(-1, every))
    status, bad = _status_of_scan(input_finite, health, steps)
    return Run(state, trace, status, bad, jnp.asarray(num_steps, dtype=jnp.int32))


def run_until(
    method: Method,
    problem: Any,
    hyper: Any,
    key: Array,
    *,
    stop_fn: Callable[[Any, Any], Any],
    max_steps: int,
    state: Any = None,
    first_step: int | Int[Array, ""] = 0,
    divergence_threshold: float | None = None,
) -> Run:
    """Step until ``stop_fn(state, info)`` is true, ``max_steps`` are used or the state goes bad.

    It is not reverse-differentiable, since the number of steps is not known; use ``run`` for that.
    ``Run.trace`` is the last step's info. Under ``vmap`` every run of the batch waits for the
    slowest one, and keeps the state at which it stopped itself.

    Args:
        method: The algorithm.
        problem: What is solved.
        hyper: The hyper-parameters.
        key: A typed PRNG key.
        stop_fn: ``(state, info) -> bool``, asked after every step.
        max_steps: The largest number of steps, static, at least 1.
        state: Where to start; ``method.init`` by default.
        first_step: The number of the first step, for runs that continue from ``state``.
        divergence_threshold: Stop with ``DIVERGED`` once an entry of the state exceeds this.

    Raises:
        TypeError: ``key`` is not a typed key.
        ValueError: ``max_steps`` is less than 1.

    Example:
        >>> halve = Method(
        ...     init=lambda problem, hyper, key: problem,
        ...     step=lambda problem, hyper, x, key: (hyper * x, hyper * x),
        ... )
        >>> done = run_until(
        ...     halve, jnp.array(8.0), 0.5, jax.random.key(0),
        ...     stop_fn=lambda x, info: x < 1.5, max_steps=100,
        ... )
        >>> int(done.num_steps), Status(int(done.status)).name
        (3, 'OK')
    """
    check_key("key", key)
    check_count("max_steps", max_steps)
    if state is None:
        state = method.init(problem, hyper, init_key(key))
    input_finite = all_finite((problem, hyper, state))
    start = jnp.asarray(first_step, dtype=jnp.int32)
    info_shape = jax.eval_shape(method.step, problem, hyper, state, key)[1]
    blank = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), info_shape)

    def keep_going(carry: tuple) -> Bool[Array, ""]:
        _, _, taken, stopped, finite, bounded = carry
        return ~stopped & finite & bounded & (taken < max_steps)

    def body(carry: tuple) -> tuple:
        state, _, taken, *_ = carry
        state, info = method.step(problem, hyper, state, step_key(key, start + taken))
        finite, bounded = _health(state, divergence_threshold)
        stopped = jnp.asarray(stop_fn(state, info), dtype=bool).reshape(())
        return state, info, taken + 1, stopped, finite, bounded

    no, yes = jnp.array(False), jnp.array(True)
    carry = (state, blank, jnp.zeros((), jnp.int32), no, input_finite, yes)
    state, info, taken, stopped, finite, bounded = jax.lax.while_loop(keep_going, body, carry)
    status = jnp.select(
        [~input_finite, ~finite, ~bounded, ~stopped],
        [Status.INPUT_NONFINITE, Status.NONFINITE, Status.DIVERGED, Status.MAX_STEPS],
        Status.OK,
    )
    last = jnp.maximum(start + taken - 1, start)
    bad = jnp.where(finite & bounded, _NO_BAD_STEP, last)
    return Run(state, info, status.astype(jnp.int32), bad.astype(jnp.int32), taken)


def _health(state: Any, threshold: float | None) -> tuple[Bool[Array, ""], Bool[Array, ""]]:
    """Whether the state is finite, and whether it is inside the box."""
    bounded = jnp.array(True) if threshold is None else largest_magnitude(state) <= threshold
    return all_finite(state), bounded


def _status_of_scan(
    input_finite: Array, health: tuple[Array, Array], steps: Array
) -> tuple[Int[Array, ""], Int[Array, ""]]:
    finite, bounded = (flags.reshape(-1) for flags in health)
    good = finite & bounded
    if not steps.size:
        status = jnp.where(input_finite, Status.OK, Status.INPUT_NONFINITE)
        bad = jnp.where(input_finite, _NO_BAD_STEP, 0)
        return status.astype(jnp.int32), bad.astype(jnp.int32)
    first = jnp.argmin(good)
    bad = jnp.where(good.all(), _NO_BAD_STEP, steps[first])
    status = jnp.select(
        [~input_finite, ~finite.all(), ~bounded.all()],
        [Status.INPUT_NONFINITE, Status.NONFINITE, Status.DIVERGED],
        Status.OK,
    )
    bad = jnp.where(input_finite, bad, 0)
    return status.astype(jnp.int32), bad.astype(jnp.int32)

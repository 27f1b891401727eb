"""How agents minimise their own functions between exchanges: by a few SGD steps, or exactly.

A ``LocalSolver`` is what ``dual_sgd.dual_sgd`` takes in place of a number of local steps.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
import optimistix
from jaxtyping import Array, PyTree

from jaxlab.core.checks import check_count
from jaxlab.core.trees import tree_combine
from jaxlab.problems.consensus import Consensus

__all__ = ["LocalSolver", "exact_minimizer", "exact_solver", "sgd_solver"]


class LocalSolver(NamedTuple):
    """How agents minimise ``f_m(x) + <shift_m, x>`` between exchanges.

    Attributes:
        solve: ``(problem, step_size, shift, params, key) -> params`` for all agents at once,
            warm-started at ``params``.
        num_gradients: What a solve costs, in gradients per agent.
    """

    solve: Callable[[Consensus, Any, Any, Any, Any], Any]
    num_gradients: int


def sgd_solver(num_local_steps: int) -> LocalSolver:
    """``K`` stochastic gradient steps, each from a key of its own.

    Raises:
        TypeError: ``num_local_steps`` is not an integer.
        ValueError: It is less than 1.
    """
    check_count("num_local_steps", num_local_steps)

    def solve(
        problem: Consensus, step_size: Array, shift: PyTree, params: PyTree, key: Array
    ) -> PyTree:
        def local_step(params: PyTree, index: Array) -> tuple[PyTree, None]:
            gradients = problem.gradients(params, jax.random.fold_in(key, index))
            return tree_combine((1.0, -step_size, -step_size), params, gradients, shift), None

        return jax.lax.scan(local_step, params, jnp.arange(num_local_steps))[0]

    return LocalSolver(solve, num_local_steps)


def exact_solver(*, max_steps: int = 256, tolerance: float | None = None) -> LocalSolver:
    """The minimiser itself, by ``exact_minimizer``; for smooth losses and full gradients.

    ``num_gradients`` counts ``max_steps``, an upper bound.
    """
    check_count("max_steps", max_steps)

    def solve(
        problem: Consensus, step_size: Array, shift: PyTree, params: PyTree, key: Array
    ) -> PyTree:
        del step_size
        return exact_minimizer(
            problem, shift, params, key, max_steps=max_steps, tolerance=tolerance
        )

    return LocalSolver(solve, max_steps)


def exact_minimizer(
    problem: Consensus,
    shift: PyTree,
    guess: PyTree,
    key: Array,
    *,
    max_steps: int = 256,
    tolerance: float | None = None,
) -> PyTree:
    """``argmin_x f_m(x) + <shift_m, x>`` of every agent, by Newton's method in a trust region.

    Plain Newton steps cycle on logistic losses with a large linear term; Powell's dogleg does not.

    Args:
        problem: Its ``gradient_fn`` must be deterministic.
        shift: The linear terms, leaves ``[agents, ...]``.
        guess: Where to start, leaves ``[agents, ...]``.
        key: Handed to ``gradient_fn``, which ignores it.
        max_steps: The largest number of Newton steps.
        tolerance: Relative and absolute; 32 times the machine epsilon by default.
    """
    dtype = jnp.result_type(*jax.tree.leaves(guess))
    tolerance = 32 * float(jnp.finfo(dtype).eps) if tolerance is None else tolerance
    dogleg = optimistix.Dogleg(rtol=tolerance, atol=tolerance)

    default = jnp.promote_types(dtype, jnp.zeros(()).dtype)

    def widest(tree: PyTree) -> PyTree:
        # The dogleg's own numbers have the default type; in 64-bit mode it refuses float32.
        return jax.tree.map(lambda leaf: leaf.astype(default), tree)

    def one_agent(shift: PyTree, guess: PyTree, data: PyTree) -> PyTree:
        def residual(x: PyTree, args: tuple) -> PyTree:
            shift, data = args
            return optax.tree.add(problem.gradient_fn(x, data, key), shift)

        found = optimistix.root_find(
            residual,
            dogleg,
            widest(guess),
            args=(widest(shift), data),
            max_steps=max_steps,
            throw=False,
        ).value
        return jax.tree.map(lambda new, old: new.astype(old.dtype), found, guess)

    return jax.vmap(one_agent)(shift, guess, problem.data)

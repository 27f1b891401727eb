"""Instances that show how ``dual_sgd`` and ``inexact_agd`` scale, with all constants known.

Each builder returns one instance; stack several by ``consensus.stack_agents`` and ``jax.vmap`` over
them, so that a whole sweep is one compilation.
"""

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxlab.core.types import Method, Scalar
from jaxlab.optim.dual_sgd import (
    DualSGDHyper,
    InsufficientLocalWorkWarning,
    dual_sgd,
    dual_sgd_hyper,
)
from jaxlab.optim.inexact_agd import AGDHyper, Oracle, inexact_agd, reproducible_agd
from jaxlab.optim.quadratic_solver import diagonal_gradient, diagonalize, quadratic_solver
from jaxlab.problems.consensus import Consensus, make_consensus
from jaxlab.problems.graphs import GossipSpectrum
from jaxlab.problems.quadratic import (
    Quadratic,
    iteration_matrix,
    quadratic_optimum,
    random_quadratics,
    spectral_radius,
)

__all__ = [
    "BiasInfo",
    "biased_oracle",
    "quadratic_cases",
    "quadratic_method",
    "quadratic_problem",
    "round_radius",
    "unguarded_hyper",
    "with_bias_info",
    "worst_case_descent",
    "worst_case_reproducible",
]


def quadratic_cases(key: Array, conditions: Sequence[float], num_agents: int) -> Quadratic:
    """Independent random quadratics with curvatures in ``[1, condition]``, one case per condition.

    They are drawn in blocks of one shape, so that one compilation serves every call.

    Args:
        key: A typed PRNG key.
        conditions: One per case.
        num_agents: At most 24.

    Returns:
        Quadratics in 6 dimensions with leaves ``[cases, agents, ...]``.

    Raises:
        ValueError: There are too many agents.
    """
    if num_agents > _MOST_AGENTS:
        raise ValueError(f"num_agents must be at most {_MOST_AGENTS}, got {num_agents}")
    num_blocks = -(-len(conditions) // _BLOCK)
    padded = np.ones(num_blocks * _BLOCK)
    padded[: len(conditions)] = conditions
    blocks = [
        _draw_block(jax.random.fold_in(key, i), jnp.asarray(block))
        for i, block in enumerate(padded.reshape(num_blocks, _BLOCK))
    ]

    def joined(*leaves: Array) -> Array:
        return jnp.concatenate(leaves)[: len(conditions), :num_agents]

    return jax.tree.map(joined, *blocks)


_BLOCK, _MOST_AGENTS = 64, 24


@jax.jit
def _draw_block(key: Array, conditions: Float[Array, " cases"]) -> Quadratic:
    def draw(key: Array, condition: Array) -> Quadratic:
        return random_quadratics(
            key, num_agents=_MOST_AGENTS, dim=6, strong_convexity=1.0, smoothness=condition
        )

    return jax.vmap(draw)(jax.random.split(key, _BLOCK), conditions)


def quadratic_problem(
    quadratics: Quadratic,
    gossip: Float[Array, "agents agents"],
    num_local_steps: Scalar,
) -> tuple[Consensus, Float[Array, " dim"]]:
    """One case for ``quadratic_method``, scaled to an optimum of norm 1 so that errors compare.

    Returns:
        The problem and its optimum.
    """
    optimum = quadratic_optimum(quadratics)
    norm = jnp.linalg.norm(optimum)
    quadratics = Quadratic(quadratics.hessian, quadratics.linear / norm)
    data = diagonalize(quadratics, num_local_steps)
    problem = make_consensus(diagonal_gradient, data, jnp.zeros_like(optimum), gossip)
    return problem, optimum / norm


def unguarded_hyper(
    strong_convexity: float, smoothness: float, spectrum: GossipSpectrum, **options: Any
) -> DualSGDHyper:
    """``dual_sgd_hyper`` without its warning, to show what the warning is about."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InsufficientLocalWorkWarning)
        return dual_sgd_hyper(strong_convexity, smoothness, spectrum, **options)


def quadratic_method() -> Method:
    """``dual_sgd`` with the number of local steps taken from the problem's data."""
    return dual_sgd(local_solver=quadratic_solver())


def round_radius(problem: Consensus, hyper: DualSGDHyper) -> Float[Array, ""]:
    """The spectral radius of one round of ``quadratic_method``; above 1 the method diverges.

    The dual variables are confined to a zero sum over agents, as the method keeps them: outside
    their sum itself is an eigenvector of eigenvalue 1. On CPU only.
    """
    matrix = iteration_matrix(quadratic_method(), problem, hyper, jax.random.key(0))
    num_agents, dim = problem.num_agents, problem.start.size
    centring = np.eye(num_agents) - 1 / num_agents
    dual = np.kron(centring, np.eye(dim))
    zero = np.zeros_like(dual)
    projector = np.block([[dual, zero, zero], [zero, dual, zero], [zero, zero, np.eye(len(dual))]])
    return spectral_radius(matrix @ jnp.asarray(projector, dtype=matrix.dtype))


class BiasInfo(NamedTuple):
    """Diagnostics of two runs under opposite biases, each the worst over all coordinates.

    Attributes:
        gap: The larger gap in function value.
        deviation: The distance between the two runs.
    """

    gap: Float[Array, ""]
    deviation: Float[Array, ""]


def biased_oracle(key: Array, *, dim: int, error_norm: Scalar, ridge: Scalar) -> Oracle:
    """``dim`` one-dimensional quadratics, each of its own curvature, and two opposite biases.

    Curvatures are log-uniform in ``[1e-6, 1]`` and include 1; every start is at distance 1 from the
    minimum, at 0. The leading axis of the parameters is the sign of the bias. The worst over the
    coordinates is close to the worst over all convex quadratics of smoothness 1.
    """
    curvature = 10.0 ** jax.random.uniform(key, (dim,), minval=-6.0, maxval=0.0)
    curvature = curvature.at[0].set(1.0)
    bias = jnp.array([[1.0], [-1.0]]) * error_norm
    start = jnp.ones((2, dim), dtype=curvature.dtype)
    return Oracle(start, (jnp.asarray(ridge, dtype=curvature.dtype), (curvature, bias)))


def _biased_gradient(point: Array, data: tuple[Array, Array], key: Array) -> Array:
    del key
    curvature, bias = data
    return curvature[None] * point + bias


def worst_case_reproducible() -> Method:
    """``reproducible_agd`` on ``biased_oracle``, with ``BiasInfo``."""
    return with_bias_info(reproducible_agd(_biased_gradient))


def worst_case_descent() -> Method:
    """Plain gradient descent without a ridge on ``biased_oracle``, with ``BiasInfo``.

    The hyper-parameters are an ``AGDHyper``, whose rate is ignored.
    """
    method = inexact_agd(lambda point, data, key: _biased_gradient(point, data[1], key))

    def step(problem: Oracle, hyper: AGDHyper, state: Any, key: Array) -> tuple[Any, Any]:
        return method.step(problem, hyper._replace(rate=jnp.ones_like(hyper.rate)), state, key)

    return with_bias_info(Method(method.init, step))


def with_bias_info(method: Method) -> Method:
    """The same method with ``BiasInfo`` as its diagnostics."""

    def step(problem: Oracle, hyper: AGDHyper, state: Any, key: Array) -> tuple[Any, BiasInfo]:
        state, _ = method.step(problem, hyper, state, key)
        curvature = problem.data[1][0]
        gap = (0.5 * curvature[None] * state.x**2).max()
        return state, BiasInfo(gap, jnp.abs(state.x[0] - state.x[1]).max())

    return Method(method.init, step)

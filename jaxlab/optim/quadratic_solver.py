"""Local gradient steps on quadratics in closed form: any number of steps at the price of one.

``K`` steps of size ``eta`` on ``<x, H x>/2 - <b - s, x>`` move every eigen-direction of ``H``
towards its minimum by the factor ``(1 - eta h)^K``. ``K`` is data here, so that one compilation
serves all numbers of local steps, and real numbers in between.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxlab.core.types import Scalar
from jaxlab.optim.local_solvers import LocalSolver
from jaxlab.problems.consensus import Consensus
from jaxlab.problems.quadratic import Quadratic

__all__ = [
    "DiagonalQuadratic",
    "diagonal_gradient",
    "diagonalize",
    "quadratic_solver",
]


class DiagonalQuadratic(NamedTuple):
    """Quadratics of all agents by their eigenvectors, and how many local steps to take.

    Attributes:
        vectors: Eigenvectors of ``H`` as columns.
        values: Eigenvalues of ``H``.
        linear: ``b``.
        num_local_steps: ``K``, any real number of at least 0.
    """

    vectors: Float[Array, "*agents dim dim"]
    values: Float[Array, "*agents dim"]
    linear: Float[Array, "*agents dim"]
    num_local_steps: Float[Array, "*agents"]


def diagonalize(quadratics: Quadratic, num_local_steps: Scalar) -> DiagonalQuadratic:
    """The data for ``quadratic_solver``.

    Args:
        quadratics: Of all agents.
        num_local_steps: ``K``, the same for all agents.

    Example:
        >>> data = diagonalize(Quadratic(jnp.eye(2)[None], jnp.zeros((1, 2))), 3)
        >>> data.values.tolist(), data.num_local_steps.tolist()
        ([[1.0, 1.0]], [3.0])
    """
    values, vectors = jnp.linalg.eigh(quadratics.hessian)
    steps = jnp.full(quadratics.linear.shape[:-1], num_local_steps, dtype=values.dtype)
    return DiagonalQuadratic(vectors, values, quadratics.linear, steps)


def diagonal_gradient(
    x: Float[Array, " dim"], data: DiagonalQuadratic, key: Array
) -> Float[Array, " dim"]:
    """The exact gradient of one agent, as a consensus problem's ``gradient_fn``."""
    del key
    return data.vectors @ (data.values * (x @ data.vectors)) - data.linear


def quadratic_solver() -> LocalSolver:
    """What ``sgd_solver`` does with full gradients, for problems with data from ``diagonalize``.

    The eigenvalues must be positive and the step size at most one over the largest. The steps are
    in the data, so ``num_gradients`` is 0 here: count ``num_local_steps`` per round instead.
    """

    def solve(
        problem: Consensus, step_size: Array, shift: Any, params: Any, key: Array
    ) -> Float[Array, "agents dim"]:
        del key

        def one_agent(data: DiagonalQuadratic, shift: Array, x: Array) -> Array:
            target = ((data.linear - shift) @ data.vectors) / data.values
            # Rounding must not make the base negative: K need not be an integer.
            left = jnp.maximum(1 - step_size * data.values, 0.0) ** data.num_local_steps
            return data.vectors @ (target + left * (x @ data.vectors - target))

        return jax.vmap(one_agent)(problem.data, shift, params)

    return LocalSolver(solve, 0)

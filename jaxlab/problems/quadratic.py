"""Quadratic losses: every constant is known exactly, and every method is an affine map."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from jaxlab.core.checks import check_count
from jaxlab.core.types import Method, Scalar

__all__ = [
    "Quadratic",
    "iteration_matrix",
    "quadratic_gradient",
    "quadratic_loss",
    "quadratic_optimum",
    "random_quadratics",
    "rotation",
    "spectral_radius",
]


class Quadratic(NamedTuple):
    """``x -> <x, H x>/2 - <b, x>``, or a stack of them with a leading agents axis.

    Attributes:
        hessian: ``H``, symmetric.
        linear: ``b``.
    """

    hessian: Float[Array, "*agents dim dim"]
    linear: Float[Array, "*agents dim"]


def quadratic_loss(x: Float[Array, " dim"], quadratic: Quadratic) -> Float[Array, ""]:
    """The value of one quadratic.

    Example:
        >>> float(quadratic_loss(jnp.ones(2), Quadratic(jnp.eye(2), jnp.zeros(2))))
        1.0
    """
    return 0.5 * x @ quadratic.hessian @ x - quadratic.linear @ x


def quadratic_gradient(
    x: Float[Array, " dim"], quadratic: Quadratic, key: Array
) -> Float[Array, " dim"]:
    """The exact gradient, in the form of a consensus problem's ``gradient_fn``."""
    del key
    return quadratic.hessian @ x - quadratic.linear


def quadratic_optimum(quadratics: Quadratic) -> Float[Array, " dim"]:
    """The minimiser of the sum of a stack of quadratics."""
    return jnp.linalg.solve(quadratics.hessian.sum(axis=0), quadratics.linear.sum(axis=0))


def rotation(entries: Float[Array, "dim dim"]) -> Float[Array, "dim dim"]:
    """An orthogonal matrix from any square one: uniform if the entries are standard normal.

    The QR factor with positive diagonal; it is smooth in the entries wherever they have full rank.
    """
    q, r = jnp.linalg.qr(entries)
    return q * jnp.sign(jnp.diagonal(r))[None, :]


def random_quadratics(
    key: Array,
    *,
    num_agents: int,
    dim: int,
    strong_convexity: Scalar,
    smoothness: Scalar,
) -> Quadratic:
    """Quadratics in random directions whose spectra all reach both constants.

    The eigenvalues between the extremes are log-uniform, so that agents disagree on directions and
    on curvature; the linear terms are normal with standard deviation ``sqrt(mu L)``.

    Raises:
        ValueError: ``num_agents`` is less than 1 or ``dim`` less than 2.
    """
    check_count("num_agents", num_agents)
    check_count("dim", dim, least=2)
    key_rotation, key_spectrum, key_linear = jax.random.split(key, 3)
    frames = jax.vmap(rotation)(jax.random.normal(key_rotation, (num_agents, dim, dim)))
    inner = jax.random.uniform(key_spectrum, (num_agents, dim - 2))
    position = jnp.concatenate(
        [jnp.zeros((num_agents, 1)), inner, jnp.ones((num_agents, 1))], axis=1
    )
    eigenvalues = strong_convexity * (smoothness / strong_convexity) ** position
    hessian = jnp.einsum("mij,mj,mkj->mik", frames, eigenvalues, frames)
    scale = jnp.sqrt(jnp.asarray(strong_convexity * smoothness, dtype=float))
    return Quadratic(hessian, scale * jax.random.normal(key_linear, (num_agents, dim)))


def iteration_matrix(
    method: Method, problem: Any, hyper: Any, key: Array
) -> Float[Array, "state state"]:
    """The linear part of one step of ``method``, which must be affine in its state.

    Every first-order method is on quadratics. The eigenvalue 0 or 1 of conserved quantities (zero
    sums of dual variables) stays in the matrix.
    """
    flat, unravel = ravel_pytree(method.init(problem, hyper, key))

    def flat_step(flat: Array) -> Array:
        return ravel_pytree(method.step(problem, hyper, unravel(flat), key)[0])[0]

    return jax.jacfwd(flat_step)(flat)


def spectral_radius(matrix: Float[Array, "size size"]) -> Float[Array, ""]:
    """The largest absolute eigenvalue; on CPU only, and not differentiable."""
    return jnp.abs(jnp.linalg.eigvals(matrix)).max()

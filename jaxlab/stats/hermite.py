"""The probabilists' Hermite polynomials, ``E[He_j He_k] = k! delta_jk`` under ``N(0, 1)``."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxlab.core.checks import check_count
from jaxlab.stats.quadrature import Quadrature

__all__ = ["hermite_coefficients", "hermite_polynomials"]


def hermite_polynomials(z: Float[Array, "*shape"], *, degree: int) -> Float[Array, "orders *shape"]:
    """``He_0(z), ..., He_degree(z)``, by ``He_{k+1} = z He_k - k He_{k-1}``.

    Raises:
        TypeError: ``degree`` is not an integer.
        ValueError: It is negative.

    Example:
        >>> hermite_polynomials(jnp.array(2.0), degree=3).tolist()
        [1.0, 2.0, 3.0, 2.0]
    """
    check_count("degree", degree, least=0)

    def step(pair: tuple[Array, Array], order: Array) -> tuple[tuple[Array, Array], Array]:
        previous, current = pair
        return (current, z * current - order * previous), current

    orders = jnp.arange(degree + 1, dtype=z.dtype)
    return jax.lax.scan(step, (jnp.zeros_like(z), jnp.ones_like(z)), orders)[1]


def hermite_coefficients(
    function: Callable[[Array], Array], quadrature: Quadrature, *, degree: int
) -> Float[Array, " orders"]:
    """``E[f(z) He_k(z)]`` for ``k = 0, ..., degree``.

    Args:
        function: Applied to all nodes at once.
        quadrature: Under ``N(0, 1)``.
        degree: The last order.

    Raises:
        TypeError: ``degree`` is not an integer.
        ValueError: It is negative.

    Example:
        >>> from jaxlab.stats.quadrature import gauss_hermite
        >>> hermite_coefficients(lambda z: z**2, gauss_hermite(10), degree=2).round(3).tolist()
        [1.0, 0.0, 2.0]
    """
    weighted = quadrature.weights * function(quadrature.nodes)
    return hermite_polynomials(quadrature.nodes, degree=degree) @ weighted

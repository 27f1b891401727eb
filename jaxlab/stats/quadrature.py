"""Expectations under a standard normal as weighted sums, and integrals over an interval."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import scipy.special
from jaxtyping import Array, Float

from jaxlab.core.checks import check_count, check_value

__all__ = ["Quadrature", "gauss_hermite", "gauss_legendre", "normal_grid"]


class Quadrature(NamedTuple):
    """A rule ``E f = sum_i weights_i f(nodes_i)``; the weights sum to 1.

    Attributes:
        nodes: Where the function is evaluated, increasing.
        weights: Not negative.
    """

    nodes: Float[Array, " nodes"]
    weights: Float[Array, " nodes"]

    def mean(self, function: Callable[[Any], Array]) -> Float[Array, ""]:
        """``E f``, of a function of one number that is applied to all nodes at once."""
        return self.weights @ function(self.nodes)


def gauss_hermite(num_nodes: int) -> Quadrature:
    """Gauss's rule under ``N(0, 1)``: exact for polynomials of degree below ``2 num_nodes``.

    At kinks and jumps it is slow: its error falls like ``1 / num_nodes`` at a kink.

    Raises:
        TypeError: ``num_nodes`` is not an integer.
        ValueError: It is less than 1.

    Example:
        >>> rule = gauss_hermite(20)
        >>> round(float(rule.mean(lambda z: z**4)), 4)
        3.0
    """
    check_count("num_nodes", num_nodes)
    nodes, weights = scipy.special.roots_hermitenorm(num_nodes)
    return Quadrature(_array(nodes), _array(weights / weights.sum()))


def gauss_legendre(num_nodes: int) -> Quadrature:
    """Gauss's rule for the mean over ``[-1, 1]``.

    Raises:
        TypeError: ``num_nodes`` is not an integer.
        ValueError: It is less than 1.

    Example:
        >>> round(float(gauss_legendre(3).mean(lambda x: x**4)), 4)
        0.2
    """
    check_count("num_nodes", num_nodes)
    nodes, weights = np.polynomial.legendre.leggauss(num_nodes)
    return Quadrature(_array(nodes), _array(weights / weights.sum()))


def normal_grid(num_nodes: int, *, reach: float = 8.0, half: bool = False) -> Quadrature:
    """An even grid under ``N(0, 1)``, for functions that change fast somewhere.

    The trapezoid rule with Gaussian weights converges faster than any power of the spacing for
    analytic functions, and no faster than the spacing at a jump.

    Args:
        num_nodes: At least 2.
        reach: The largest node in absolute value.
        half: Only ``[0, reach]``, for even functions.

    Raises:
        TypeError: ``num_nodes`` is not an integer.
        ValueError: It is less than 2, or ``reach`` is not positive.

    Example:
        >>> round(float(normal_grid(101).mean(lambda z: z**2)), 4)
        1.0
    """
    check_count("num_nodes", num_nodes, least=2)
    check_value("reach", reach, lambda r: r > 0, "positive")
    nodes = np.linspace(0.0 if half else -reach, reach, num_nodes)
    weights = np.exp(-(nodes**2) / 2)
    weights[[0, -1]] /= 2
    return Quadrature(_array(nodes), _array(weights / weights.sum()))


def _array(values: np.ndarray) -> Array:
    return jnp.asarray(values, dtype=float)

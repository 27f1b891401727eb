r"""Gaussian shells: where noise around a point lies, and how likely another point reaches it.

Noise :math:`\sigma Z` in ``dim`` dimensions has a length close to :math:`\sigma \sqrt d`. The shell
around a point holds all but a share of :math:`2 e^{-c}` of its noise: with

.. math::
    r_{\text{in}}^2 = d - 2\sqrt{cd}, \qquad r_{\text{out}}^2 = d + 2\sqrt{cd} + 2c,

each of :math:`|Z| < r_{\text{in}}` and :math:`|Z| > r_{\text{out}}` has a probability of at most
:math:`e^{-c}`. Around a point at distance :math:`\delta` from the noise's centre,
:math:`|Z + \delta/\sigma|^2` is noncentral chi-squared, a Poisson mixture of central ones.

Source: arXiv:2602.17846, Lemma 4.5 and equation 6; Laurent and Massart 2000, Lemma 1.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxlab.core.checks import check_count, check_value, is_concrete
from jaxlab.core.types import Scalar

__all__ = ["ShellRadii", "shell_probability", "shell_radii"]

# Where the Poisson sum ends, what is left has at most the probability exp(-_TAIL).
_TAIL = 40.0


class ShellRadii(NamedTuple):
    """A shell's radii in units of the noise's standard deviation.

    Attributes:
        inner: ``r_in``.
        outer: ``r_out``.
    """

    inner: Float[Array, ""]
    outer: Float[Array, ""]


def shell_radii(dim: int, c: Scalar = 5.0) -> ShellRadii:
    """The radii of a shell in units of ``sigma``.

    Args:
        dim: The length of a signal.
        c: In (0, dim / 4]; both tails together have a probability of at most ``2 exp(-c)``. Beyond
            ``dim / 4`` the shell would be a ball, which means something else.

    Raises:
        TypeError: ``dim`` is not an integer.
        ValueError: ``dim`` is less than 1, or ``c`` is outside of (0, dim / 4].

    Example:
        >>> [round(float(r), 1) for r in shell_radii(64, 3.0)]
        [6.0, 9.9]
    """
    _check(dim, c)
    c = jnp.asarray(c, dtype=jnp.result_type(c, float))
    middle = 2 * jnp.sqrt(c * dim)
    # At c = dim / 4 the difference is 0, but for rounding.
    return ShellRadii(jnp.sqrt(jnp.maximum(dim - middle, 0.0)), jnp.sqrt(dim + middle + 2 * c))


def shell_probability(
    noncentrality: Float[Array, "*points"], dim: int, c: Scalar = 5.0
) -> Float[Array, "*points"]:
    r"""The probability that noise around one point lies in the shell around another.

    :math:`q_d(\lambda) = P(r_{\text{in}}^2 \le \chi^2_d(\lambda) \le r_{\text{out}}^2)`, exact to
    about ``1e-13`` in float64 (1e-5 in float32). At 0 it is the shell's own mass.

    Args:
        noncentrality: The squared distance of the points over ``sigma^2``, not negative.
        dim: The length of a signal.
        c: In (0, dim / 4]; as a Python number it makes the sum shorter.

    Raises:
        TypeError: ``dim`` is not an integer.
        ValueError: ``c`` is out of range, or ``noncentrality`` is negative or NaN.

    Example:
        >>> reached = shell_probability(jnp.array([0.0, 32.0, 1e4]), 64, 3.0)
        >>> [round(float(q), 4) for q in reached]
        [0.9937, 0.563, 0.0]
    """
    noncentrality = jnp.asarray(noncentrality, dtype=jnp.result_type(noncentrality, float))
    check_value("noncentrality", noncentrality, lambda v: v >= 0, "non-negative")
    radii = shell_radii(dim, c)
    degrees = dim + 2 * jnp.arange(_num_terms(dim, c))
    inner, outer = (
        jax.scipy.special.gammainc(degrees / 2, jnp.square(radius) / 2) for radius in radii
    )
    # Infinitely far is as far as a number can say: infinity minus infinity would be NaN.
    half = jnp.minimum(noncentrality, jnp.finfo(noncentrality.dtype).max) / 2

    def add(total: Array, term: tuple[Array, Array]) -> tuple[Array, None]:
        index, mass = term
        log_weight = jax.scipy.special.xlogy(index, half) - half - jax.lax.lgamma(index + 1)
        return total + jnp.exp(log_weight) * mass, None

    indices = jnp.arange(len(degrees), dtype=half.dtype)
    masses = (outer - inner).astype(half.dtype)
    # A scan, so that no term but one is stored for every point.
    return jax.lax.scan(add, jnp.zeros_like(half), (indices, masses))[0]


def _num_terms(dim: int, c: Scalar) -> int:
    """So many that the next chi-squared is inside of ``r_out`` with probability exp(-_TAIL)."""
    # A traced c may be as large as it is allowed to be.
    c = float(c) if is_concrete(c) else dim / 4
    square = dim + 2 * math.sqrt(c * dim) + 2 * c
    # The lemma's lower tail: P(chi2_k <= k - 2 sqrt(k t)) <= exp(-t).
    degrees = (math.sqrt(_TAIL) + math.sqrt(_TAIL + square)) ** 2
    return math.ceil((degrees - dim) / 2) + 1


def _check(dim: int, c: Scalar) -> None:
    check_count("dim", dim)
    check_value("c", c, lambda c: (c > 0) & (c <= dim / 4), f"in (0, dim / 4 = {dim / 4}]")

r"""Noise levels: one convention for variance-exploding and variance-preserving processes.

A noisy signal is :math:`x = \alpha x_0 + \sigma \epsilon` with :math:`\epsilon \sim N(0, I)`. The
variance-exploding (VE) process has :math:`\alpha = 1` everywhere. Every other process is the same
one in other units, since :math:`x/\alpha` is a VE signal of level :math:`\sigma/\alpha`. So all
functions here take ``alpha=1.0`` by default, and samplers work on VE signals.

Source: Karras et al. 2022 (arXiv:2206.00364), table 1 and equation 5; Song et al. 2021
(arXiv:2011.13456), equation 33.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxlab.core.checks import check_count, check_key, check_value
from jaxlab.core.types import Scalar

__all__ = [
    "NoiseLevel",
    "check_level",
    "check_sigmas",
    "edm_sigmas",
    "perturb",
    "to_ve",
    "unit_variance_level",
    "vp_level",
]


class NoiseLevel(NamedTuple):
    """What the process does to a signal at one time.

    Attributes:
        alpha: The factor of the signal, positive.
        sigma: The standard deviation of the noise.
    """

    alpha: Float[Array, ""]
    sigma: Float[Array, ""]


def check_level(sigma: Scalar, alpha: Scalar = 1.0) -> None:
    """Raise ``ValueError`` unless both are positive and finite; under a trace, leave a check.

    Example:
        >>> check_level(0.0)
        Traceback (most recent call last):
        ValueError: sigma must be positive and finite, got 0.0
    """
    for name, value in (("sigma", sigma), ("alpha", alpha)):
        check_value(name, value, lambda v: (v > 0) & (v < jnp.inf), "positive and finite")


def check_sigmas(sigmas: Float[Array, " levels"]) -> None:
    """Raise ``ValueError`` unless the levels decrease strictly and only the last may be 0.

    Example:
        >>> check_sigmas(jnp.array([1.0, 2.0]))
        Traceback (most recent call last):
        ValueError: sigmas must be finite, strictly decreasing and not negative, got [1.0, 2.0]
    """
    if jnp.ndim(sigmas) != 1 or len(sigmas) < 2:
        raise ValueError(
            f"sigmas must be a vector of at least 2 levels, got shape {jnp.shape(sigmas)}"
        )
    check_value(
        "sigmas",
        sigmas,
        lambda s: (s[:-1] > s[1:]).all() & (s[0] < jnp.inf) & (s[-1] >= 0),
        "finite, strictly decreasing and not negative",
    )


def to_ve(
    x: Float[Array, "*shape"], sigma: Scalar, alpha: Scalar
) -> tuple[Float[Array, "*shape"], Scalar]:
    """The VE signal and its level: both divided by ``alpha``.

    Example:
        >>> x, sigma = to_ve(jnp.array([1.0, 2.0]), 1.0, 0.5)
        >>> x.tolist(), sigma
        ([2.0, 4.0], 2.0)
    """
    return x / alpha, sigma / alpha


def perturb(
    key: Array, x0: Float[Array, "*shape"], sigma: Scalar, alpha: Scalar = 1.0
) -> Float[Array, "*shape"]:
    """A noisy signal ``alpha x0 + sigma eps``.

    Raises:
        TypeError: ``key`` is not a typed key.
        ValueError: ``sigma`` or ``alpha`` is not positive.

    Example:
        >>> perturb(jax.random.key(0), jnp.zeros(3), 2.0).shape
        (3,)
    """
    check_key("key", key)
    check_level(sigma, alpha)
    return jnp.asarray(alpha) * x0 + jnp.asarray(sigma) * jax.random.normal(key, x0.shape, x0.dtype)


def edm_sigmas(
    num_levels: int,
    *,
    smallest: Scalar,
    largest: Scalar,
    exponent: Scalar = 7.0,
    end_at_zero: bool = False,
) -> Float[Array, " levels"]:
    r"""Decreasing levels, equally spaced in :math:`\sigma^{1/7}` (arXiv:2206.00364, equation 5).

    Args:
        num_levels: How many positive levels, at least 2.
        smallest: The last positive level.
        largest: The first level.
        exponent: 7 in the source; 1 spaces levels equally, a large one nearly by ratios.
        end_at_zero: Append 0, for a last step that returns the denoised signal.

    Raises:
        TypeError: ``num_levels`` is not an integer.
        ValueError: ``num_levels`` is less than 2, a level or ``exponent`` is not positive, or
            ``largest`` is not above ``smallest``.

    Example:
        >>> edm_sigmas(3, smallest=1.0, largest=4.0, exponent=2.0, end_at_zero=True).tolist()
        [4.0, 2.25, 1.0, 0.0]
    """
    check_count("num_levels", num_levels, least=2)
    check_value("smallest", smallest, lambda s: (s > 0) & (s < jnp.inf), "positive and finite")
    check_value("exponent", exponent, lambda r: (r > 0) & (r < jnp.inf), "positive and finite")
    check_value("largest", largest - smallest, lambda gap: gap > 0, "above smallest (difference)")
    fraction = jnp.linspace(0.0, 1.0, num_levels)
    first = jnp.asarray(largest, dtype=fraction.dtype)
    last = jnp.asarray(smallest, dtype=fraction.dtype)
    low, high = last ** (1 / exponent), first ** (1 / exponent)
    inner = (high + fraction[1:-1] * (low - high)) ** exponent
    # The ends exactly, without the round trip through the root.
    end = [jnp.zeros(1, fraction.dtype)] if end_at_zero else []
    return jnp.concatenate([first[None], inner, last[None], *end])


def vp_level(time: Scalar, *, least_rate: Scalar = 0.1, largest_rate: Scalar = 20.0) -> NoiseLevel:
    r"""The variance-preserving process whose noise rate grows linearly (arXiv:2011.13456, eq. 33).

    :math:`\alpha = \exp(-\frac12 \int_0^t \beta)`, :math:`\beta(s) = \beta_0 + s(\beta_1 -
    \beta_0)`, and :math:`\alpha^2 + \sigma^2 = 1`.

    Args:
        time: In (0, 1].
        least_rate: The rate at time 0.
        largest_rate: The rate at time 1.

    Raises:
        ValueError: ``time`` is outside of (0, 1].

    Example:
        >>> alpha, sigma = vp_level(0.5)
        >>> round(float(alpha), 4), round(float(alpha**2 + sigma**2), 4)
        (0.2812, 1.0)
    """
    check_value("time", time, lambda t: (t > 0) & (t <= 1), "in (0, 1]")
    time = jnp.asarray(time, dtype=float)
    total = time * least_rate + time**2 / 2 * (largest_rate - least_rate)
    # expm1 keeps small noise exact.
    return NoiseLevel(jnp.exp(-total / 2), jnp.sqrt(-jnp.expm1(-total)))


def unit_variance_level(ratio: Scalar) -> NoiseLevel:
    """The variance-preserving level with ``sigma / alpha = ratio``, that is, VE level ``ratio``.

    Raises:
        ValueError: ``ratio`` is not positive.

    Example:
        >>> [round(float(part), 4) for part in unit_variance_level(0.75)]
        [0.8, 0.6]
    """
    check_value("ratio", ratio, lambda r: (r > 0) & (r < jnp.inf), "positive and finite")
    ratio = jnp.asarray(ratio, dtype=float)
    alpha = jax.lax.rsqrt(1 + ratio**2)
    return NoiseLevel(alpha, ratio * alpha)

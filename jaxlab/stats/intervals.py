"""Confidence intervals whose error probability is a stated number."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import scipy.stats
from jaxtyping import Array, Float

from jaxlab.core.checks import check_finite, check_value
from jaxlab.core.types import Scalar

__all__ = [
    "ExponentFit",
    "clopper_pearson",
    "empirical_bernstein",
    "fit_exponent",
    "slope_interval",
]


class ExponentFit(NamedTuple):
    """A fitted power law.

    Attributes:
        slope: The exponent.
        low: The lower end of its confidence interval.
        high: The upper end.
    """

    slope: float
    low: float
    high: float


def empirical_bernstein(
    values: Float[Array, " samples"], value_range: Scalar, error: Scalar
) -> Float[Array, ""]:
    """How far the mean of independent bounded samples can be above their expectation.

    Exceeded with probability at most ``error`` (Maurer and Pontil 2009, arXiv:0907.3740, Theorem
    4); by symmetry it also bounds how far the mean can be below.

    Args:
        values: At least two independent samples.
        value_range: The difference between the largest and the smallest possible value.
        error: In (0, 1).

    Example:
        >>> width = empirical_bernstein(jnp.tile(jnp.array([0.0, 1.0]), 5000), 1.0, 1e-6)
        >>> bool(0.02 < width < 0.04)
        True
    """
    num_samples = values.shape[0]
    log_term = jnp.log(2 / jnp.asarray(error))
    spread = jnp.sqrt(2 * values.var(ddof=1) * log_term / num_samples)
    return spread + 7 * value_range * log_term / (3 * (num_samples - 1))


def clopper_pearson(successes: int, trials: int, error: float) -> tuple[float, float]:
    """An exact interval for a probability; each side misses it with at most ``error / 2``.

    Example:
        >>> low, high = clopper_pearson(0, 10, 0.05)
        >>> low, round(high, 4)
        (0.0, 0.3085)
    """
    check_value("successes", successes, lambda k: (k >= 0) & (k <= trials), f"in [0, {trials}]")
    check_value("error", error, lambda e: (e > 0) & (e < 1), "in (0, 1)")
    low, high = 0.0, 1.0
    if successes > 0:
        low = float(scipy.stats.beta.ppf(error / 2, successes, trials - successes + 1))
    if successes < trials:
        high = float(scipy.stats.beta.ppf(1 - error / 2, successes + 1, trials - successes))
    return low, high


def fit_exponent(
    sizes: Float[Array, " sizes"] | Float[np.ndarray, " sizes"],
    values: Float[Array, "seeds sizes"] | Float[np.ndarray, "seeds sizes"],
    error: float = 0.05,
) -> ExponentFit:
    """The exponent of ``values ~ sizes ** slope``, with Student's interval over the seeds.

    Each seed gives a slope by least squares in logarithms; seeds must be independent, and so must
    the sizes within a seed, or the interval is wrong.

    Args:
        sizes: At least four, positive and not all equal.
        values: Positive, from at least two seeds.
        error: The probability that the interval misses.

    Raises:
        ValueError: Too few sizes or seeds, or something is not positive.

    Example:
        >>> sizes = np.array([1.0, 2.0, 4.0, 8.0])
        >>> fit = fit_exponent(sizes, np.stack([sizes**0.5, 3 * sizes**0.5]))
        >>> round(fit.slope, 6)
        0.5
    """
    sizes, values = np.asarray(sizes, dtype=float), np.asarray(values, dtype=float)
    if len(sizes) < 4:
        raise ValueError(f"sizes must hold at least 4 sizes, got {len(sizes)}")
    if len(values) < 2:
        raise ValueError(f"values must come from at least 2 seeds, got {len(values)}")
    check_finite("values", values)
    check_value("sizes", sizes, lambda s: s > 0, "positive")
    check_value("values", values, lambda v: v > 0, "positive")
    middle, half = slope_interval(sizes, values, error, xp=np)
    slope, half = float(middle), float(half)
    return ExponentFit(slope, slope - half, slope + half)


def slope_interval(
    sizes: Any, values: Any, error: float = 0.05, *, xp: Any = jnp
) -> tuple[Any, Any]:
    """The middle and the half-width of Student's interval for the exponent of a power law.

    The arithmetic of ``fit_exponent`` without its checks, for use under ``jit``.

    Args:
        sizes: ``[sizes]``.
        values: ``[..., seeds, sizes]``.
        error: The probability that the interval misses.
        xp: ``jax.numpy`` or ``numpy``.

    Example:
        >>> sizes = np.array([1.0, 2.0, 4.0, 8.0])
        >>> middle, half = slope_interval(sizes, np.stack([sizes**2, 5 * sizes**2]), xp=np)
        >>> round(float(middle), 6), round(float(half), 6)
        (2.0, 0.0)
    """
    x = xp.log(sizes) - xp.log(sizes).mean()
    slopes = xp.log(values) @ x / (x @ x)
    count = slopes.shape[-1]
    quantile = float(scipy.stats.t.ppf(1 - error / 2, count - 1))
    return slopes.mean(axis=-1), quantile * slopes.std(axis=-1, ddof=1) / np.sqrt(count)

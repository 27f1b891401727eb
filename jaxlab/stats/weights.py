"""Estimates and diagnostics that are functions of log weights alone.

Every function takes unnormalised log weights ``log_w``, in which minus infinity is a weight of 0,
and stays in the logarithm until the end: weights whose logarithms are in the thousands are fine.
"""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxlab.core.checks import check_value
from jaxlab.core.types import Scalar

__all__ = [
    "effective_sample_size",
    "log_evidence",
    "normalized_log_weights",
    "pareto_khat",
    "self_normalized_mean",
    "truncate_log_weights",
]


def log_evidence(log_w: Float[Array, " points"]) -> Float[Array, ""]:
    """The logarithm of the mean weight, which estimates the evidence (normalising constant).

    Raises:
        ValueError: There is no weight.

    Example:
        >>> round(float(log_evidence(jnp.log(jnp.array([1.0, 3.0])))), 6) == round(math.log(2), 6)
        True
    """
    _check_some(log_w)
    return jax.nn.logsumexp(log_w) - math.log(log_w.shape[0])


def normalized_log_weights(log_w: Float[Array, " points"]) -> Float[Array, " points"]:
    """Log weights shifted so that the weights sum to 1.

    Raises:
        ValueError: There is no weight.

    Example:
        >>> jnp.exp(normalized_log_weights(jnp.array([-5000.0, -5000.0]))).round(3).tolist()
        [0.5, 0.5]
    """
    _check_some(log_w)
    return log_w - jax.nn.logsumexp(log_w)


def self_normalized_mean(
    values: Float[Array, "points *shape"], log_w: Float[Array, " points"]
) -> Float[Array, "*shape"]:
    """The weighted mean of ``values``, whatever the scale of the weights.

    Its squared error for functions bounded by 1 has an expectation of at most ``4 rho / N``, where
    ``rho`` is ``N`` over the effective sample size in the limit (Agapiou et al. 2017,
    arXiv:1511.06196, Theorem 2.1).

    Args:
        values: One row per point.
        log_w: One log weight per point.

    Raises:
        ValueError: There is no weight, or another number of values.

    Example:
        >>> float(self_normalized_mean(jnp.array([0.0, 4.0]), jnp.log(jnp.array([3.0, 1.0]))))
        1.0
    """
    if values.shape[:1] != log_w.shape:
        raise ValueError(
            f"values must have a leading axis of {log_w.shape[0]} points, got shape {values.shape}"
        )
    return jnp.tensordot(jnp.exp(normalized_log_weights(log_w)), values, axes=1)


def effective_sample_size(log_w: Float[Array, " points"]) -> Float[Array, ""]:
    """``(sum w)^2 / sum w^2``, from 1 to the number of points (Kong 1992).

    It cannot see what no point has reached: a mode without points costs it nothing.

    Raises:
        ValueError: There is no weight.

    Example:
        >>> log_w = jnp.log(jnp.array([1.0, 1.0, 0.0]))
        >>> round(float(effective_sample_size(log_w)), 5)
        2.0
    """
    return jnp.exp(-jax.nn.logsumexp(2 * normalized_log_weights(log_w)))


def truncate_log_weights(
    log_w: Float[Array, " points"], largest_share: Scalar
) -> Float[Array, " points"]:
    r"""Cut the largest weights so that none has more than ``largest_share`` of their sum.

    The cut :math:`c` solves :math:`c = s \sum_i \min(w_i, c)`: with the :math:`k` largest weights
    cut, :math:`c = s R_k / (1 - k s)` for the sum :math:`R_k` of the others, and the right
    :math:`k` is the first for which the next weight is not above :math:`c`. Weights below the cut
    stay as they are; truncated weights are biased, so they are for adaptation and not for estimates
    (Ionides 2008; Vehtari et al., arXiv:1507.02646, cut at the root of the sample size).

    Args:
        log_w: One log weight per point.
        largest_share: In (0, 1]. If fewer than ``1 / largest_share`` weights are positive, no cut
            can do it and the positive ones become equal.

    Raises:
        ValueError: There is no weight, or the share is out of range.

    Example:
        >>> cut = truncate_log_weights(jnp.log(jnp.array([8.0, 1.0, 1.0])), 0.5)
        >>> jnp.exp(cut).round(5).tolist()
        [2.0, 1.0, 1.0]
    """
    _check_some(log_w)
    check_value("largest_share", largest_share, lambda s: (s > 0) & (s <= 1), "in (0, 1]")
    ordered = jnp.flip(jnp.sort(log_w))
    rest = jnp.flip(jax.lax.cumlogsumexp(jnp.flip(ordered)))  # log R_k, k = 0, 1, ...
    cut_off = largest_share * jnp.arange(log_w.shape[0], dtype=log_w.dtype)
    possible = cut_off < 1
    slack = jnp.log1p(-jnp.where(possible, cut_off, 0.0))
    cuts = jnp.where(possible, jnp.log(largest_share) + rest - slack, -jnp.inf)
    fits = possible & (ordered <= cuts) & (cuts > -jnp.inf)
    smallest = jnp.min(jnp.where(log_w > -jnp.inf, log_w, jnp.inf))
    cut = jnp.where(fits.any(), cuts[jnp.argmax(fits)], smallest)
    return jnp.minimum(log_w, cut)


def pareto_khat(log_w: Float[Array, " points"]) -> Float[Array, ""]:
    r"""The shape of a generalised Pareto law fitted to the largest weights.

    Below 0.5 the weights' variance is finite; up to 0.7 estimates are still reliable (Vehtari et
    al., arXiv:1507.02646). The tail has :math:`\min(N/5, 3\sqrt N)` weights. The fit is the
    empirical Bayes estimate of Zhang and Stephens (2009) with PSIS's weak prior, and infinite if
    fewer than 5 weights exceed the tail's threshold.

    Raises:
        ValueError: There are fewer than 2 weights.

    Example:
        >>> u = (jnp.arange(1000) + 0.5) / 1000
        >>> 0.4 < float(pareto_khat(-0.5 * jnp.log(u))) < 0.6  # weights of tail index 2
        True
    """
    num_points = log_w.shape[0]
    if num_points < 2:
        raise ValueError(f"log_w must hold at least 2 weights, got {num_points}")
    tail = math.ceil(min(num_points / 5, 3 * math.sqrt(num_points)))
    ordered = jnp.sort(log_w - log_w.max())
    threshold = jnp.maximum(ordered[-tail - 1], jnp.log(jnp.finfo(log_w.dtype).tiny))
    excess = jnp.exp(ordered[-tail:]) - jnp.exp(threshold)
    in_tail = ordered[-tail:] > threshold
    return jnp.where(in_tail.sum() >= 5, _pareto_shape(excess, in_tail), jnp.inf)


def _pareto_shape(excess: Float[Array, " tail"], in_tail: Array) -> Float[Array, ""]:
    """The posterior mean of the shape, for sorted excesses of which the last ones count."""
    size, count = excess.shape[0], in_tail.sum()
    n = count.astype(excess.dtype)
    largest = 30 + math.isqrt(size)
    used = 30 + jnp.floor(jnp.sqrt(n))
    index = jnp.arange(1, largest + 1, dtype=excess.dtype)
    # The candidates b = shape / scale spread around the inverse of the tail's first quartile.
    quartile = excess[size - count + jnp.floor(n / 4 + 0.5).astype(int) - 1]
    quartile = jnp.where(quartile > 0, quartile, 1.0)
    candidates = 1 / excess[-1] + (1 - jnp.sqrt(used / (index - 0.5))) / (3 * quartile)

    def shape_at(b: Array) -> Array:
        inside = jnp.where(in_tail, jnp.log1p(-jnp.where(in_tail, b * excess, 0.0)), 0.0)
        return inside.sum() / n

    shapes = jax.vmap(shape_at)(candidates)
    log_likelihood = n * (jnp.log(-candidates / shapes) - shapes - 1)
    posterior = jax.nn.softmax(jnp.where(index <= used, log_likelihood, -jnp.inf))
    negligible = posterior < 10 * jnp.finfo(excess.dtype).eps
    posterior = jnp.where(negligible, 0.0, posterior)
    shape = shape_at(posterior @ candidates / posterior.sum())
    return (n * shape + 10 * 0.5) / (n + 10)


def _check_some(log_w: Array) -> None:
    if log_w.shape[0] == 0:
        raise ValueError(f"log_w must hold at least one weight, got shape {log_w.shape}")

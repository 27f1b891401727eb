"""Resampling: from weighted points to equally weighted indices."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxlab.core.checks import check_count, check_key

__all__ = ["multinomial_resample", "stratified_resample", "systematic_resample"]


def systematic_resample(
    key: Array, log_w: Float[Array, " points"], num: int
) -> Int[Array, " {num}"]:
    """Indices drawn with probabilities proportional to the weights, at equal distances.

    Index ``i`` comes ``floor(num p_i)`` or ``ceil(num p_i)`` times, and ``num p_i`` times in
    expectation; the indices are in increasing order (Carpenter et al. 1999).

    Args:
        key: A typed PRNG key.
        log_w: One log weight per point; not all of them minus infinity.
        num: How many indices.

    Raises:
        TypeError: ``key`` is not a typed key, or ``num`` not an integer.
        ValueError: ``num`` is less than 1.

    Example:
        >>> log_w = jnp.log(jnp.array([0.5, 0.25, 0.25]))
        >>> systematic_resample(jax.random.key(0), log_w, 4).tolist()
        [0, 0, 1, 2]
    """
    _check(key, num)
    offset = jax.random.uniform(key, (), log_w.dtype)
    return _invert(log_w, (jnp.arange(num, dtype=log_w.dtype) + offset) / num)


def stratified_resample(
    key: Array, log_w: Float[Array, " points"], num: int
) -> Int[Array, " {num}"]:
    """Like ``systematic_resample``, with an independent offset in each of ``num`` strata.

    Example:
        >>> stratified_resample(jax.random.key(0), jnp.array([0.0, -jnp.inf]), 3).tolist()
        [0, 0, 0]
    """
    _check(key, num)
    offsets = jax.random.uniform(key, (num,), log_w.dtype)
    return _invert(log_w, (jnp.arange(num, dtype=log_w.dtype) + offsets) / num)


def multinomial_resample(
    key: Array, log_w: Float[Array, " points"], num: int
) -> Int[Array, " {num}"]:
    """Independent indices with probabilities proportional to the weights, in increasing order.

    Example:
        >>> multinomial_resample(jax.random.key(0), jnp.array([-jnp.inf, 0.0]), 3).tolist()
        [1, 1, 1]
    """
    _check(key, num)
    # Normalised partial sums of exponentials are ordered uniforms, without a sort.
    gaps = jnp.cumsum(jax.random.exponential(key, (num + 1,), log_w.dtype))
    return _invert(log_w, gaps[:-1] / gaps[-1])


def _invert(log_w: Array, uniforms: Array) -> Int[Array, " num"]:
    """The inverse of the cumulative weights at increasing numbers in [0, 1]."""
    sums = jnp.cumsum(jnp.exp(log_w - log_w.max()))
    # Both sides in units of the last sum, so that a sum that rounds is rounded for both; a uniform
    # that rounds up to 1 still belongs to the last point of positive weight.
    index = jnp.searchsorted(sums, uniforms * sums[-1], side="right")
    last = jnp.searchsorted(sums, sums[-1], side="left")
    return jnp.minimum(index, last).astype(jnp.int32)


def _check(key: Array, num: int) -> None:
    check_key("key", key)
    check_count("num", num)

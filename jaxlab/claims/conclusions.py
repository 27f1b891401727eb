"""What a conclusion says of an instance: an inequality, or a statement on a distribution.

The margin of a statement on a distribution is negative only if samples exclude the statement with a
stated error probability; the estimate is what the attack descends on.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import betainc
from jaxtyping import Array, Bool, Float

from jaxlab.core.types import Scalar
from jaxlab.stats.intervals import empirical_bernstein

__all__ = [
    "Comparison",
    "Expectation",
    "Probability",
    "Scaling",
    "at_most",
    "at_most_in_ratio",
    "close_to",
    "holds_always",
    "holds_with_probability",
    "margins",
]


class Comparison(NamedTuple):
    """The two sides of an inequality and the margin by which it holds; any common shape.

    Attributes:
        left: The side that must not be larger.
        right: The side that must not be smaller.
        margin: At least 0 exactly where the inequality holds, free of scale.
    """

    left: Array
    right: Array
    margin: Array


class Expectation(NamedTuple):
    """``E value <= bound``, told by independent samples of a bounded value.

    Attributes:
        values: Independent samples.
        bound: What the mean must not exceed.
        lower: The least possible value; a sample below it makes the verdict inconclusive.
        upper: The largest possible value.
    """

    values: Float[Array, " samples"]
    bound: Float[Array, ""]
    lower: Float[Array, ""]
    upper: Float[Array, ""]


class Probability(NamedTuple):
    """``P(event) <= bound``, told by independent trials.

    Attributes:
        events: Whether the event happened, trial by trial.
        bound: What the probability must not exceed.
    """

    events: Bool[Array, " trials"]
    bound: Scalar


class Scaling(NamedTuple):
    """``value ~ size ** exponent``, told by a fit over at least four sizes.

    Attributes:
        sizes: Positive and not all equal.
        values: Positive; every size and every replica from a key of its own, since
            ``normal(key, (8,))[:3]`` equals ``normal(key, (3,))``.
        exponent: What the theory says.
        allowance: How far the exponent at these sizes may be from its limit.
    """

    sizes: Float[Array, " sizes"] | np.ndarray
    values: Float[Array, "replicas sizes"]
    exponent: Scalar
    allowance: Scalar


def at_most(left: Scalar, right: Scalar, scale: Scalar = 1.0) -> Comparison:
    """``left <= right``, with the margin ``(right - left) / scale``.

    Example:
        >>> float(at_most(1.0, 3.0, scale=4.0).margin)
        0.5
    """
    left, right = _real(left), _real(right)
    return Comparison(left, right, (right - left) / scale)


def at_most_in_ratio(left: Scalar, right: Scalar) -> Comparison:
    """``left <= right`` of non-negative sides, with the margin ``log(right / left)``.

    A left side of 0 holds with margin infinity; its gradient is 0, not NaN.

    Example:
        >>> round(float(at_most_in_ratio(1.0, jnp.e).margin), 6)
        1.0
    """
    left, right = _real(left), _real(right)
    safe = jnp.where(left > 0, left, 1.0)
    margin = jnp.where(left > 0, jnp.log(right) - jnp.log(safe), jnp.inf)
    return Comparison(left, right, jnp.where(left >= 0, margin, jnp.nan))


def close_to(left: Scalar, right: Scalar, allowance: float, scale: Scalar = 1.0) -> Comparison:
    """``|left - right| <= allowance * scale``, for equalities.

    Example:
        >>> float(close_to(1.0, 1.5, allowance=1.0).margin)
        0.5
    """
    left, right = _real(left), _real(right)
    return Comparison(left, right, allowance - jnp.abs(left - right) / scale)


def _real(value: Scalar) -> Array:
    """Integers become the default float; a float keeps its type, which is looked at elsewhere."""
    value = jnp.asarray(value)
    return value if jnp.issubdtype(value.dtype, jnp.floating) else value.astype(float)


def holds_with_probability(holds: Bool[Array, " trials"], at_least: Scalar) -> Probability:
    """``P(holds) >= at_least``, a bound that may fail now and then.

    Example:
        >>> holds_with_probability(jnp.array([True, False]), 0.75).bound
        0.25
    """
    return Probability(~holds, 1 - at_least)


def holds_always(holds: Bool[Array, "trials times"], at_least: Scalar) -> Probability:
    """``P(holds at all times at once) >= at_least``, an anytime bound.

    Example:
        >>> holds_always(jnp.array([[True, True], [True, False]]), 0.75).events.tolist()
        [False, True]
    """
    return holds_with_probability(holds.all(axis=1), at_least)


def margins(said: Expectation | Probability | Scaling, error: Scalar) -> tuple[Array, Array]:
    """The margin that decides, and the estimate.

    Args:
        said: The statement.
        error: The probability that a true statement gets a negative margin.
    """
    if isinstance(said, Expectation):
        return _expectation(said, error)
    return _probability(said, error) if isinstance(said, Probability) else _scaling(said, error)


def _expectation(said: Expectation, error: Scalar) -> tuple[Array, Array]:
    inside = ((said.values >= said.lower) & (said.values <= said.upper)).all()
    spread = said.upper - said.lower
    scale = jnp.maximum(jnp.abs(said.bound), jnp.finfo(said.values.dtype).tiny)
    estimate = (said.bound - said.values.mean()) / scale
    allowance = empirical_bernstein(said.values, spread, error) / scale
    return jnp.where(inside, estimate + allowance, jnp.nan), estimate


def _probability(said: Probability, error: Scalar) -> tuple[Array, Array]:
    """By the binomial tail, which Clopper and Pearson's interval inverts."""
    trials = said.events.shape[0]
    count = said.events.sum().astype(float)
    bound = jnp.asarray(said.bound, dtype=float)
    # P(Binomial(trials, bound) >= count); a count of 0 excludes nothing.
    tail = betainc(jnp.maximum(count, 1.0), trials - count + 1.0, jnp.clip(bound, 0.0, 1.0))
    excluded = (count > 0) & (tail < error)
    estimate = bound - count / trials
    return jnp.where(excluded, estimate, jnp.maximum(estimate, 0.0)), estimate


def _scaling(said: Scaling, error: Scalar) -> tuple[Array, Array]:
    """By Student's test on the slopes of the replicas."""
    logs = jnp.log(jnp.asarray(said.sizes, dtype=float))
    x = logs - logs.mean()
    slopes = jnp.log(said.values) @ x / (x @ x)
    freedom = slopes.shape[0] - 1
    estimate = jnp.asarray(said.allowance - jnp.abs(slopes.mean() - said.exponent))
    deviation = jnp.maximum(slopes.std(ddof=1), jnp.finfo(slopes.dtype).tiny)
    statistic = -estimate / (deviation / jnp.sqrt(slopes.shape[0]))
    tail = betainc(freedom / 2.0, 0.5, freedom / (freedom + statistic**2))
    excluded = (estimate < 0) & (tail < error)
    return jnp.where(excluded, estimate, jnp.maximum(estimate, 0.0)), estimate

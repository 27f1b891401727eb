"""Laws of a task's label counts, how far apart two of them are, and exact majority votes."""

import math

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import betainc, xlog1py, xlogy
from jaxtyping import Array, Float, Int
from scipy.special import gammaln

from jaxlab.core.checks import check_count, check_value
from jaxlab.core.types import Scalar

__all__ = [
    "bernstein_constant",
    "chi2_divergence",
    "count_cells",
    "hellinger_squared",
    "kl_divergence",
    "majority_error",
    "task_pmf",
    "task_probabilities",
    "transfer_constant",
]


def task_probabilities(eps: Scalar, beta: Scalar) -> tuple[Array, Array]:
    """Probability of the point and margin of its label: ``eps^beta`` and ``eps^(1 - beta)``.

    Raises:
        ValueError: ``eps`` is not in (0, 1], or ``beta`` not in (0, 1).

    Example:
        >>> [float(x) for x in task_probabilities(0.25, 0.5)]
        [0.5, 0.5]
    """
    check_value("eps", eps, lambda e: (e > 0) & (e <= 1), "in (0, 1]")
    check_value("beta", beta, lambda b: (b > 0) & (b < 1), "in (0, 1)")
    eps, beta = jnp.asarray(eps, dtype=float), jnp.asarray(beta, dtype=float)
    return eps**beta, eps ** (1 - beta)


def bernstein_constant(probability: Scalar, margin: Scalar, beta: Scalar) -> Array:
    """``C`` of ``P(h != h*) <= C excess(h)^beta`` for a point of such probability and margin.

    Example:
        >>> float(bernstein_constant(0.5, 0.5, 0.5))
        1.0
    """
    return jnp.asarray(probability / (probability * margin) ** beta)


def transfer_constant(eps_target: Scalar, eps_task: Scalar, exponent: Scalar) -> Array:
    """``C`` of ``excess_target <= C excess_task^(1 / exponent)`` for the wrong sign.

    Example:
        >>> float(transfer_constant(0.5, 0.25, 2.0))
        1.0
    """
    return jnp.asarray(eps_target / eps_task ** (1 / exponent))


def count_cells(n: int) -> Int[np.ndarray, "cells 2"]:
    """All counts ``(k+, k-)`` of both labels at the point among n samples.

    Raises:
        TypeError: ``n`` is not an integer.
        ValueError: It is less than 1.

    Example:
        >>> count_cells(1).tolist()
        [[0, 0], [0, 1], [1, 0]]
    """
    check_count("n", n)
    return np.array([(i, j) for i in range(n + 1) for j in range(n + 1 - i)])


def task_pmf(
    n: int, probability: Float[Array, ""], margin: Float[Array, ""]
) -> tuple[Float[Array, " cells"], Float[Array, " cells"]]:
    """The law of a task's counts if the sign is +, and how much larger it is than if it is -.

    The difference is not one of two numbers that are almost equal: it is relatively exact for
    margins down to the smallest float.

    Example:
        >>> plus, excess = task_pmf(1, jnp.array(0.5), jnp.array(0.5))
        >>> plus.tolist(), excess.round(6).tolist()
        ([0.5, 0.125, 0.375], [0.0, -0.25, 0.25])
    """
    cells = count_cells(n)
    # Real numbers, since JAX has no derivatives of powers with integers.
    plus, minus = jnp.asarray(cells.T, dtype=jnp.result_type(probability, float))
    hits, lead = plus + minus, plus - minus
    fewer, apart = jnp.minimum(plus, minus), jnp.abs(lead)
    ways = [math.comb(n, i) * math.comb(n - i, j) for i, j in cells.tolist()]
    both = xlogy(hits, probability / 2) + xlog1py(n - hits, -probability)
    # (1 - m^2)^fewer times the larger power of 1 + m and of 1 - m.
    common = jnp.array(ways, both.dtype) * jnp.exp(both + xlog1py(fewer, -(margin**2)))
    up, down = (jnp.expm1(xlog1py(apart, sign * margin)) for sign in (1, -1))
    return common * (1 + jnp.where(lead >= 0, up, down)), common * jnp.sign(lead) * (up - down)


def hellinger_squared(
    law: Float[Array, " cells"], excess: Float[Array, " cells"]
) -> Float[Array, ""]:
    """``1/2 sum (sqrt(p) - sqrt(q))^2`` of ``p = law`` and ``q = law - excess``, in [0, 1].

    Example:
        >>> float(hellinger_squared(jnp.array([1.0, 0.0]), jnp.array([1.0, -1.0])))
        1.0
    """
    roots = jnp.sqrt(law) + jnp.sqrt(_other(law, excess))
    return jnp.sum(jnp.where(roots > 0, excess / jnp.where(roots > 0, roots, 1), 0) ** 2) / 2


def kl_divergence(law: Float[Array, " cells"], excess: Float[Array, " cells"]) -> Float[Array, ""]:
    """``sum p log(p / q)`` of ``p = law`` and ``q = law - excess``, in nats.

    Example:
        >>> round(float(kl_divergence(jnp.array([0.75, 0.25]), jnp.array([0.5, -0.5]))), 4)
        0.5493
    """
    # p log(p/q) - (p - q) has no cancelling sum, since both laws have one mass.
    share = jnp.where(law > 0, excess / jnp.where(law > 0, law, 1), 0)
    return jnp.sum(law * (-jnp.log1p(-share) - share))


def chi2_divergence(
    law: Float[Array, " cells"], excess: Float[Array, " cells"]
) -> Float[Array, ""]:
    """``sum (p - q)^2 / q`` of ``p = law`` and ``q = law - excess``.

    Example:
        >>> round(float(chi2_divergence(jnp.array([0.75, 0.25]), jnp.array([0.5, -0.5]))), 4)
        1.3333
    """
    other = _other(law, excess)
    return jnp.sum(jnp.where(other > 0, excess**2 / jnp.where(other > 0, other, 1), 0))


def majority_error(num_labels: int, plus: Scalar, minus: Scalar) -> Float[Array, ""]:
    """The probability that most labels are wrong, ties counted by half; exact.

    Args:
        num_labels: Independent draws, static; each is a right label, a wrong one, or none.
        plus: Probability of a right label.
        minus: Probability of a wrong label.

    Raises:
        ValueError: A probability is negative, or they add up to more than 1.

    Example:
        >>> round(float(majority_error(1, 0.5, 0.25)), 5)  # wrong, or no label and a coin
        0.375
    """
    check_count("num_labels", num_labels)
    check_value("plus", plus, lambda p: p >= 0, "non-negative")
    check_value("minus", minus, lambda p: p >= 0, "non-negative")
    total = jnp.asarray(plus + minus, dtype=float)
    check_value("plus + minus", total, lambda p: p <= 1 + 1e-12, "at most 1")
    whole = np.arange(num_labels + 1.0)
    ways = gammaln(num_labels + 1.0) - gammaln(whole + 1) - gammaln(num_labels - whole + 1)
    hits = jnp.asarray(whole, dtype=float)
    missed = xlogy(num_labels - hits, jnp.maximum(1 - total, 0))
    log_hit = jnp.asarray(ways, dtype=float) + xlogy(hits, total) + missed
    right = jnp.where(total > 0, plus / jnp.where(total > 0, total, 1), 0.5)

    def at_most_right(k: Array, h: Array) -> Array:
        # P(Binomial(h, right) <= k) by the incomplete beta function.
        inside = (k >= 0) & (k < h)
        a, b = jnp.where(inside, h - k, 1.0), jnp.where(inside, k + 1, 1.0)
        tail = betainc(a, b, jnp.clip(1 - right, 0, 1))
        return jnp.where(k < 0, 0.0, jnp.where(k >= h, 1.0, tail))

    half = jnp.ceil(hits / 2) - 1  # the largest number of right labels that is less than half
    below = at_most_right(half, hits)
    tie = jnp.where(hits % 2 == 0, at_most_right(hits / 2, hits) - below, 0)
    return jnp.sum(jnp.exp(log_hit) * (below + tie / 2))


def _other(law: Array, excess: Array) -> Array:
    return jnp.maximum(law - excess, 0)

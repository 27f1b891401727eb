r"""Limits of adaptation in multitask learning: how much an oracle beats every adaptive learner.

May one hope that an algorithm finds out which of N pooled data sets are informative? All of them
share the best classifier :math:`h^*`, each has n samples, a few are good and most are nearly noise.
Whoever knows the good ones succeeds; here is a family on which nobody else does, however large
n is:

.. math::
    P(x_1) = \epsilon^\beta, \qquad P(Y = s \mid x_1) = \tfrac12 (1 + \epsilon^{1-\beta}), \qquad
    \epsilon = \epsilon_G \text{ with probability } a, \text{ else } \epsilon_B .

All hypotheses agree off :math:`x_1`, where the label's sign s is what must be learned. The excess
risk of the wrong one is :math:`\epsilon`, and Bernstein's condition holds with exponent
:math:`\beta` and constant 1. The counts of both labels at :math:`x_1` are sufficient for a task,
and tasks are exchangeable, so that with :math:`H^2 = \frac12 \sum (\sqrt{P_+} - \sqrt{P_-})^2` of
one task's mixture law every learner errs, under a uniform sign, with probability

.. math::
    \tfrac14 (1 - H^2)^{2N} \le \tfrac12 \Bigl(1 - \sqrt{1 - (1 - H^2)^{2N}}\Bigr)
    \le P(\hat s \ne s) , \qquad
    P(\hat s_{Bayes} \ne s) \le \tfrac12 (1 - H^2)^N .

* ``constant_gap``: good tasks of constant :math:`\epsilon_G`. Adaptation is impossible only for
  :math:`n < 2/\beta - 1`: more samples reveal the good tasks.
* ``noisy_gap``: good tasks as noisy as they may be for an oracle to succeed. Adaptation is
  impossible for every n, with enough tasks.
* For a *fixed* family more samples do help: the bound vanishes as n grows.

A task's law is in ``multitask_laws``; learners, simulations and what an oracle of the ranking does
are in ``multitask_learners``, a learner that estimates both types in ``multitask_em``.

Source: arXiv:2601.20774 (Hanneke, Xu), known from its abstract and readers' notes; the two-point
family is that of arXiv:2006.15785 (Hanneke, Kpotufe), reconstructed. The paper uses Fano's
inequality; with two points Le Cam's is tighter and can be computed.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr
from jaxtyping import Array, Float

from jaxlab.core.checks import check_count, check_float64, check_value
from jaxlab.core.types import Scalar
from jaxlab.theory.multitask_em import task_type_em
from jaxlab.theory.multitask_laws import hellinger_squared, task_pmf, task_probabilities

__all__ = [
    "ErrorBounds",
    "TaskFamily",
    "adaptive_error_bounds",
    "constant_gap",
    "mixture_pmf",
    "noisy_gap",
    "oracle_error",
    "pooling_error",
    "smallest_num_tasks",
    "task_type_em",
]

_WHY = "the sign moves probabilities by as little as 1e-20"


class TaskFamily(NamedTuple):
    """Good and bad tasks, with equal signs at the point that matters.

    Attributes:
        beta: Exponent of Bernstein's condition, in (0, 1).
        eps_good: Excess risk of the wrong sign in good tasks, in (0, 1).
        eps_bad: The same in bad tasks, in (0, 1).
        num_good: The expected number of good tasks; a real number.
        num_tasks: The number of all tasks; a real number, so that 1e30 is one.
    """

    beta: Float[Array, ""]
    eps_good: Float[Array, ""]
    eps_bad: Float[Array, ""]
    num_good: Float[Array, ""]
    num_tasks: Float[Array, ""]


class ErrorBounds(NamedTuple):
    """Bounds of the least probability of a wrong sign, over all learners without the ranking.

    Attributes:
        le_cam: ``BC^2 / 4``, below ``lower``.
        lower: ``(1 - sqrt(1 - BC^2)) / 2``; no learner is better.
        upper: ``BC / 2``; the Bayes rule is not worse.
        hellinger: ``H^2`` of one task, of which ``BC = (1 - H^2)^N``.
    """

    le_cam: Float[Array, ""]
    lower: Float[Array, ""]
    upper: Float[Array, ""]
    hellinger: Float[Array, ""]


def mixture_pmf(
    n: int, family: TaskFamily
) -> tuple[Float[Array, " cells"], Float[Array, " cells"]]:
    """The law of the counts of a task that is good by chance, and its excess, as ``task_pmf``.

    Raises:
        TypeError: The family is not in float64.
        ValueError: A number of it is out of range.
    """
    _check_family(family)
    good = task_pmf(n, *task_probabilities(family.eps_good, family.beta))
    bad = task_pmf(n, *task_probabilities(family.eps_bad, family.beta))
    share = family.num_good / family.num_tasks
    law, excess = (share * g + (1 - share) * b for g, b in zip(good, bad, strict=True))
    return law, excess


def adaptive_error_bounds(n: int, family: TaskFamily) -> ErrorBounds:
    """Between what the best learner without the ranking errs, under a uniform sign.

    Multiply by ``family.eps_good`` for excess risks on a good task.

    Args:
        n: Samples per task, static.
        family: In float64.

    Raises:
        TypeError: The family is not in float64.
        ValueError: A number of it is out of range.

    Example:
        >>> with jax.enable_x64(True):  # a dozen tasks with one sample each
        ...     family = TaskFamily(*map(jnp.float64, (0.5, 0.1, 0.005, 3.0, 12.0)))
        ...     bounds = adaptive_error_bounds(1, family)
        >>> round(float(bounds.lower), 3), round(float(bounds.upper), 3)
        (0.365, 0.481)
    """
    hellinger = hellinger_squared(*mixture_pmf(n, family))
    log_affinity = family.num_tasks * jnp.log1p(-hellinger)
    squared = jnp.exp(2 * log_affinity)
    # 1 - sqrt(1 - x) = x / (1 + sqrt(1 - x)), exact for small x; 1 - x by expm1 for large.
    root = jnp.sqrt(jnp.maximum(-jnp.expm1(2 * log_affinity), 0))
    return ErrorBounds(
        squared / 4, squared / (2 * (1 + root)), jnp.exp(log_affinity) / 2, hellinger
    )


def oracle_error(n: int, family: TaskFamily) -> Float[Array, ""]:
    """The majority over the good tasks errs with this probability; normal approximation.

    It needs some thirty labels at the point, ``n * num_good * eps_good^beta``. ``majority_error``
    is exact.

    Example:
        >>> with jax.enable_x64(True):
        ...     float(oracle_error(4, noisy_gap(4, 3e9)).round(6))
        0.000266
    """
    _check_family(family)
    check_count("n", n)
    probability, margin = task_probabilities(family.eps_good, family.beta)
    labels = n * family.num_good
    variance = probability - (probability * margin) ** 2
    return ndtr(-jnp.sqrt(labels / variance) * probability * margin)


def pooling_error(n: int, family: TaskFamily) -> Float[Array, ""]:
    """The majority over all tasks errs with this probability; normal approximation.

    Example:
        >>> with jax.enable_x64(True):
        ...     float(pooling_error(4, noisy_gap(4, 3e9)).round(2))
        0.31
    """
    _check_family(family)
    check_count("n", n)
    mean, variance = 0.0, 0.0
    for eps, count in (
        (family.eps_good, family.num_good),
        (family.eps_bad, family.num_tasks - family.num_good),
    ):
        probability, margin = task_probabilities(eps, family.beta)
        mean += n * count * probability * margin
        variance += n * count * (probability - (probability * margin) ** 2)
    return ndtr(-mean / jnp.sqrt(variance))


def constant_gap(
    n: int, num_tasks: Scalar, *, beta: Scalar = 0.5, eps_good: Scalar = 0.25,
    num_good: Scalar = 64.0, bad_information: Scalar = 0.05,
) -> TaskFamily:  # fmt: skip
    """Good tasks of constant quality, as in 2022: hard only for ``n < 2 / beta - 1``.

    Args:
        n: Samples per task.
        num_tasks: All tasks.
        beta: Exponent of Bernstein's condition.
        eps_good: Excess risk of the wrong sign in good tasks.
        num_good: How many are good, in expectation.
        bad_information: What all bad tasks are worth together, ``n N eps_bad^(2 - beta)``.
    """
    eps_bad = (bad_information / (n * jnp.asarray(num_tasks, dtype=float))) ** (1 / (2 - beta))
    return _family(beta, eps_good, eps_bad, num_good, num_tasks)


def noisy_gap(
    n: int, num_tasks: Scalar, *, beta: Scalar = 0.5, num_good: Scalar = 1e5,
    information: Scalar = 12.0, bad_information: Scalar = 0.05,
) -> TaskFamily:  # fmt: skip
    """Good tasks as noisy as an oracle can bear: hard for every n, with enough tasks.

    Args:
        n: Samples per task.
        num_tasks: All tasks.
        beta: Exponent of Bernstein's condition.
        num_good: How many are good, in expectation.
        information: What all good tasks are worth together, ``n N_G eps_good^(2 - beta)``; the
            oracle's error is about that of a normal at its root.
        bad_information: The same of all bad tasks.
    """
    eps_good = (information / (n * jnp.asarray(num_good, dtype=float))) ** (1 / (2 - beta))
    eps_bad = (bad_information / (n * jnp.asarray(num_tasks, dtype=float))) ** (1 / (2 - beta))
    return _family(beta, eps_good, eps_bad, num_good, num_tasks)


def smallest_num_tasks(
    n: int, *, error: Scalar = 0.1, beta: Scalar = 0.5, num_good: Scalar = 1e5,
    information: Scalar = 12.0, bad_information: Scalar = 0.05, num_steps: int = 60,
) -> Float[Array, ""]:  # fmt: skip
    """How many tasks it takes in ``noisy_gap`` for the Le Cam bound to reach ``error``.

    By bisection of the logarithm between ``2 num_good`` and 1e40; infinity if that is not enough.

    Args:
        n: Samples per task.
        error: In (0, 1/4).
        beta: As ``noisy_gap``.
        num_good: As ``noisy_gap``.
        information: As ``noisy_gap``.
        bad_information: As ``noisy_gap``.
        num_steps: Halvings, static.

    Example:
        >>> with jax.enable_x64(True):
        ...     bool(10**8.5 < smallest_num_tasks(2) < 10**8.75)
        True
    """
    check_value("error", error, lambda e: (e > 0) & (e < 0.25), "in (0, 1/4)")

    def reached(log_tasks: Array) -> Array:
        family = noisy_gap(
            n, jnp.exp(log_tasks), beta=beta, num_good=num_good,
            information=information, bad_information=bad_information,
        )  # fmt: skip
        return adaptive_error_bounds(n, family).le_cam >= error

    def halve(_: Array, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = (low + high) / 2
        enough = reached(middle)
        return jnp.where(enough, low, middle), jnp.where(enough, middle, high)

    most = jnp.log(jnp.asarray(1e40, dtype=float))
    ends = jnp.log(2 * jnp.asarray(num_good, dtype=float)), most
    _, high = jax.lax.fori_loop(0, num_steps, halve, ends)
    return jnp.where(reached(most), jnp.exp(high), jnp.inf)


def _family(beta: Scalar, good: Scalar, bad: Scalar, num_good: Scalar, num: Scalar) -> TaskFamily:
    family = TaskFamily(*(jnp.asarray(x, dtype=float) for x in (beta, good, bad, num_good, num)))
    _check_family(family)
    return family


def _check_family(family: TaskFamily) -> None:
    check_float64("family", family, _WHY)
    check_value("family.num_good", family.num_good, lambda c: c > 0, "positive")
    check_value(
        "family.num_tasks", family.num_tasks / family.num_good, lambda c: c >= 1,
        "at least num_good (as a multiple of it)",
    )  # fmt: skip
    for name in ("eps_good", "eps_bad"):
        value = getattr(family, name)
        check_value(f"family.{name}", value, lambda e: (e > 0) & (e < 1), "in (0, 1)")

"""Learners of the sign that tasks share, and simulations of them.

Tasks are exchangeable, so that all a learner can use is how many tasks had which counts: a
histogram over ``count_cells``. Most rules are votes, a weight for each cell.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxlab.core.checks import check_count, check_key, check_value
from jaxlab.core.types import Scalar
from jaxlab.theory.multitask_em import TaskCounts
from jaxlab.theory.multitask_laws import count_cells, task_pmf, task_probabilities
from jaxlab.theory.multitask_limits import TaskFamily, mixture_pmf

__all__ = [
    "Sampled",
    "as_task_counts",
    "histogram",
    "k_hit_weights",
    "likelihood_weights",
    "minimax_rate",
    "pooled_weights",
    "rank_based_aggregation",
    "sample_tasks",
    "vote",
    "vote_error",
]


class Sampled(NamedTuple):
    """A draw of all tasks.

    Attributes:
        good: How many good tasks had the counts of each cell.
        bad: How many bad tasks.
        sign: What was to be learned, 1 or -1.
    """

    good: Float[Array, " cells"]
    bad: Float[Array, " cells"]
    sign: Float[Array, ""]


def histogram(counts: Int[Array, "tasks 2"], *, n: int) -> Float[Array, " cells"]:
    """How many tasks had which counts ``(k+, k-)`` among n samples.

    Raises:
        ValueError: Counts are negative or add up to more than n.

    Example:
        >>> histogram(jnp.array([[0, 1], [0, 1], [0, 0]]), n=1).tolist()
        [1.0, 2.0, 0.0]
    """
    check_value(
        "counts", counts, lambda k: (k.min() >= 0) & (k.sum(axis=-1) <= n),
        f"non-negative with at most {n} a task",
    )  # fmt: skip
    cells = jnp.asarray(count_cells(n))
    same = (counts[:, None, :] == cells[None]).all(axis=-1)
    return same.sum(axis=0).astype(float)


def as_task_counts(seen: Float[Array, " cells"], *, n: int) -> TaskCounts:
    """A histogram as the problem of ``task_type_em``.

    Example:
        >>> as_task_counts(jnp.array([1.0, 2.0, 0.0]), n=1).minus.tolist()
        [0, 1, 0]
    """
    plus, minus = jnp.asarray(count_cells(n).T, dtype=jnp.int32)
    return TaskCounts(plus, minus, jnp.full_like(plus, n), seen)


def sample_tasks(key: Array, n: int, family: TaskFamily) -> Sampled:
    """A sign, the types of all tasks, and their counts; ``num_tasks`` must be a whole number.

    Cells are drawn and not tasks: a million tasks cost what ten do.

    Raises:
        TypeError: ``key`` is not one typed key.
        ValueError: A number of the family is out of range.

    Example:
        >>> with jax.enable_x64(True):
        ...     family = TaskFamily(*map(jnp.float64, (0.5, 0.1, 0.005, 3.0, 100.0)))
        ...     drawn = sample_tasks(jax.random.key(0), 2, family)
        ...     float(drawn.good.sum() + drawn.bad.sum())
        100.0
    """
    check_key("key", key)
    check_count("n", n)
    key_sign, key_cells = jax.random.split(key)
    sign = jnp.where(jax.random.bernoulli(key_sign), 1.0, -1.0)
    share = family.num_good / family.num_tasks

    def law(eps: Array) -> Array:
        plus, excess = task_pmf(n, *task_probabilities(eps, family.beta))
        return jnp.where(sign > 0, plus, jnp.maximum(plus - excess, 0))

    # Type and cell of a task are drawn at once.
    both = jnp.concatenate([share * law(family.eps_good), (1 - share) * law(family.eps_bad)])
    good, bad = jnp.split(jax.random.multinomial(key_cells, family.num_tasks, both / both.sum()), 2)
    return Sampled(good, bad, sign)


def pooled_weights(n: int) -> Float[Array, " cells"]:
    """A vote for every label at the point: pooling, near-optimal among adaptive learners.

    Example:
        >>> pooled_weights(1).tolist()
        [0.0, -1.0, 1.0]
    """
    cells = jnp.asarray(count_cells(n), dtype=float)
    return cells[:, 0] - cells[:, 1]


def k_hit_weights(n: int, least: int) -> Float[Array, " cells"]:
    """Votes of tasks with at least so many labels at the point, which bad tasks rarely have.

    Raises:
        ValueError: ``least`` is less than 1.

    Example:
        >>> k_hit_weights(2, 2).tolist()
        [0.0, 0.0, -2.0, 0.0, 0.0, 2.0]
    """
    check_count("least", least)
    hits = jnp.asarray(count_cells(n).sum(axis=1))
    return jnp.where(hits >= least, pooled_weights(n), 0)


def likelihood_weights(n: int, family: TaskFamily) -> Float[Array, " cells"]:
    """The log likelihood ratio of a task: the Bayes rule of an independent good type.

    Example:
        >>> with jax.enable_x64(True):
        ...     family = TaskFamily(*map(jnp.float64, (0.5, 0.25, 0.25, 1.0, 1.0)))
        ...     [round(w, 4) for w in likelihood_weights(1, family).tolist()]
        [0.0, -1.0986, 1.0986]
    """
    law, excess = mixture_pmf(n, family)
    # Cells of large leads count the other way round: the odd part is exact for both.
    return jnp.where(excess > 0, -jnp.log1p(-excess / law), jnp.log1p(excess / (law - excess)))


def vote(seen: Float[Array, " cells"], weights: Float[Array, " cells"]) -> Float[Array, ""]:
    """The sign of the votes, 0 for a tie.

    Example:
        >>> float(vote(jnp.array([5.0, 1.0, 2.0]), pooled_weights(1)))
        1.0
    """
    return jnp.sign(seen @ weights)


def vote_error(
    key: Array, n: int, family: TaskFamily, weights: Float[Array, " cells"], *,
    num: int, only_good: bool = False,
) -> Float[Array, " num"]:  # fmt: skip
    """Whether a vote errs, draw by draw: 0, 1, or 1/2 for a tie.

    Args:
        key: A typed key.
        n: Samples per task.
        family: Of ``num_tasks`` tasks, a whole number.
        weights: Of cells.
        num: Draws.
        only_good: The oracle's vote, of good tasks alone.

    Example:
        >>> with jax.enable_x64(True):
        ...     family = TaskFamily(*map(jnp.float64, (0.5, 0.25, 0.001, 90.0, 100.0)))
        ...     errors = vote_error(jax.random.key(0), 4, family, pooled_weights(4), num=100)
        ...     bool(errors.mean() < 0.01)
        True
    """
    check_key("key", key)
    check_count("num", num)

    def once(key: Array) -> Array:
        drawn = sample_tasks(key, n, family)
        seen = drawn.good if only_good else drawn.good + drawn.bad
        return (1 - vote(seen, weights) * drawn.sign) / 2

    return jax.vmap(once)(jax.random.split(key, num))


def minimax_rate(
    exponents: Float[Array, " tasks"], num_samples: Float[Array, " tasks"], beta: Scalar
) -> Float[Array, " tasks"]:
    """``(sum n)^(-1 / ((2 - beta) rho))`` over the first tasks, ``rho`` their mean exponent.

    Args:
        exponents: Transfer exponents in increasing order, at least 1.
        num_samples: Of each task.
        beta: Exponent of Bernstein's condition.

    Raises:
        ValueError: Exponents are below 1 or not in increasing order.

    Example:
        >>> minimax_rate(jnp.array([1.0, 1.0]), jnp.array([4.0, 4.0]), 1.0).tolist()
        [0.25, 0.125]
    """
    check_value("exponents", exponents, lambda r: r >= 1, "at least 1")
    check_value("exponents", exponents, lambda r: r[1:] >= r[:-1], "in increasing order")
    total = jnp.cumsum(num_samples)
    mean = jnp.cumsum(num_samples * exponents) / total
    return total ** (-1 / ((2 - beta) * mean))


def rank_based_aggregation(
    exponents: Float[Array, " tasks"], num_samples: Float[Array, " tasks"], beta: Scalar
) -> Int[Array, ""]:
    """How many of the best tasks an oracle of the ranking should pool: where the rate is least.

    Example:
        >>> one, bad = jnp.ones(4), jnp.array([1.0, 1.0, 40.0, 40.0])
        >>> int(rank_based_aggregation(one, 9 * one, 0.5)), int(
        ...     rank_based_aggregation(bad, 9 * one, 0.5))
        (4, 2)
    """
    return jnp.argmin(minimax_rate(exponents, num_samples, beta)) + 1

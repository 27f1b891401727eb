r"""Two types of tasks, told apart by their counts: expectation maximisation.

Which tasks are informative? Each has n samples of which some fall on a point, with a label + or -.
The two types differ in how often the point comes, :math:`p_j`, and in how often its label is +,
:math:`\theta_j`. A step takes the probability of each type for each task, and then the modes

.. math::
    p_j &= \frac{\sum_t r_{tj} k_t + c}{\sum_t r_{tj} n + 2c}, \qquad
    \theta_j = \frac{\sum_t r_{tj} k_t^+ + c}{\sum_t r_{tj} k_t + 2c}, \qquad
    a = \frac{\sum_t r_{t1} + c}{N + 2c}

under Beta(1 + c, 1 + c) priors, so that no step lowers the log posterior. ``em_sign`` votes with
the likelihood ratio of what was found. Source: textbook; a learner to try against the lower bounds
of arXiv:2601.20774.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax.scipy.special import logsumexp, xlog1py, xlogy
from jaxtyping import Array, Float, Int

from jaxlab.core.checks import check_value
from jaxlab.core.types import Method, Scalar

__all__ = ["EMHyper", "EMInfo", "TaskCounts", "TypeState", "em_hyper", "em_sign", "task_type_em"]


class TaskCounts(NamedTuple):
    """The problem. Tasks with equal counts may share a row.

    Attributes:
        plus: Labels + at the point.
        minus: Labels - at the point.
        samples: Samples of each task, at least their sum.
        weight: How many tasks have these counts.
    """

    plus: Int[Array, " rows"]
    minus: Int[Array, " rows"]
    samples: Int[Array, " rows"]
    weight: Float[Array, " rows"]


class EMHyper(NamedTuple):
    """Attributes: pseudo: the pseudo-count ``c`` of each outcome, positive."""

    pseudo: Float[Array, ""]


class TypeState(NamedTuple):
    """What is believed of both types.

    Attributes:
        share: Of tasks of the first type, which starts as the one with more hits.
        rate: Probability of the point, by type.
        right: Probability of a label + there, by type.
    """

    share: Float[Array, ""]
    rate: Float[Array, " 2"]
    right: Float[Array, " 2"]


class EMInfo(NamedTuple):
    """Attributes: log_posterior: of the state before the step, up to a constant."""

    log_posterior: Float[Array, ""]


def em_hyper(pseudo: Scalar = 0.5) -> EMHyper:
    """Hyper-parameters.

    Raises:
        ValueError: ``pseudo`` is not positive.

    Example:
        >>> float(em_hyper().pseudo)
        0.5
    """
    check_value("pseudo", pseudo, lambda c: c > 0, "positive")
    return EMHyper(jnp.asarray(pseudo, dtype=float))


def task_type_em() -> Method:
    """The iteration; it draws no numbers.

    Raises:
        ValueError: (``init``) counts are negative, or more than the samples.

    Example:
        >>> import jax
        >>> from jaxlab.core import run
        >>> counts = TaskCounts(*jnp.array([[9, 1, 0], [0, 1, 1], [10, 10, 10]]), jnp.ones(3))
        >>> state = run(task_type_em(), counts, em_hyper(), jax.random.key(0), num_steps=30).state
        >>> [round(p, 1) for p in state.rate.tolist()], float(em_sign(state, counts))
        ([0.9, 0.2], 1.0)
    """

    def init(problem: TaskCounts, hyper: EMHyper, key: Array) -> TypeState:
        del key
        check_value("plus", problem.plus, lambda k: k >= 0, "non-negative")
        check_value("minus", problem.minus, lambda k: k >= 0, "non-negative")
        left = problem.samples - problem.plus - problem.minus
        check_value("samples - plus - minus", left, lambda k: k >= 0, "non-negative")
        hits = problem.plus + problem.minus
        rate = (problem.weight @ hits + hyper.pseudo) / (
            problem.weight @ problem.samples + 2 * hyper.pseudo
        )
        right = (problem.weight @ problem.plus + hyper.pseudo) / (
            problem.weight @ hits + 2 * hyper.pseudo
        )
        # Both types at the mean would stay equal for ever.
        odds = rate / (1 - rate) * jnp.array([2.0, 0.5], rate.dtype)
        return TypeState(
            jnp.full((), 0.5, rate.dtype), odds / (1 + odds), jnp.stack([right, right])
        )

    def step(
        problem: TaskCounts, hyper: EMHyper, state: TypeState, key: Array
    ) -> tuple[TypeState, EMInfo]:
        del key
        by_type = _log_joint(problem, state)
        total = logsumexp(by_type, axis=1)
        resp = problem.weight[:, None] * jnp.exp(by_type - total[:, None])
        hits = (problem.plus + problem.minus).astype(resp.dtype)
        seen, plus = hits @ resp, problem.plus.astype(resp.dtype) @ resp
        drawn = problem.samples.astype(resp.dtype) @ resp
        c = hyper.pseudo
        new = TypeState(
            (resp[:, 0].sum() + c) / (problem.weight.sum() + 2 * c),
            (seen + c) / (drawn + 2 * c),
            (plus + c) / (seen + 2 * c),
        )
        info = EMInfo(problem.weight @ total + _log_prior(state, c))
        return new, info

    return Method(init, step)


def em_sign(state: TypeState, counts: TaskCounts) -> Float[Array, ""]:
    """The sign that both types share, by the likelihood ratio of their margins; 0 for a tie.

    Example:
        >>> state = TypeState(jnp.array(0.5), jnp.array([0.5, 0.5]), jnp.array([0.9, 0.5]))
        >>> counts = TaskCounts(*jnp.array([[0], [2], [2]]), jnp.ones(1))
        >>> float(em_sign(state, counts))
        -1.0
    """
    likely = jnp.maximum(state.right, 1 - state.right)

    def likelihood(right: Array) -> Array:
        joint = _log_joint(counts, state._replace(right=right))
        return counts.weight @ logsumexp(joint, axis=1)

    return jnp.sign(likelihood(likely) - likelihood(1 - likely))


def _log_joint(counts: TaskCounts, state: TypeState) -> Float[Array, "rows 2"]:
    # Real numbers, since JAX has no derivatives of powers with integers.
    plus, minus, samples = (
        k.astype(state.rate.dtype)[:, None] for k in (counts.plus, counts.minus, counts.samples)
    )
    hits = plus + minus
    prior = jnp.log(jnp.stack([state.share, 1 - state.share]))
    return (
        prior[None]
        + xlogy(hits, state.rate[None])
        + xlog1py(samples - hits, -state.rate[None])
        + xlogy(plus, state.right[None])
        + xlog1py(minus, -state.right[None])
    )


def _log_prior(state: TypeState, pseudo: Array) -> Array:
    values = jnp.concatenate([state.share[None], state.rate, state.right])
    return pseudo * jnp.sum(jnp.log(values) + jnp.log1p(-values))

"""How often true claims at equality raise a false alarm, and false ones an alarm.

A thousand independent repetitions of each kind of statement; the rates that theory gives come from
SciPy. ``pytest -n 0 -s`` prints what was measured.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import scipy.stats

from jaxlab.claims import (
    Claim,
    Effort,
    Expectation,
    Probability,
    Scaling,
    Verdict,
    holds_always,
    holds_with_probability,
)
from jaxlab.claims.evaluate import Evaluator, evaluate, precise
from jaxlab.claims.ladder import climb_rung, share_error
from jaxlab.claims.search import tolerance_of

REPETITIONS = 1000

SIGNIFICANCE = 1e-3
"""Of the binomial tests below: so seldom would a correct rate fail, were the seeds not fixed."""

BUDGETS = (0.05, 0.2)

TRIALS = 1000
STEPS, BARRIER = 16, 6
SIZES = np.array([8.0, 16.0, 32.0, 64.0, 128.0])
REPLICAS, NOISE = 6, 0.3


def bernoulli_mean(p, *, key, shift=0.0):
    values = jax.random.bernoulli(key, p, (TRIALS,)).astype(float)
    return Expectation(values, p - shift, jnp.array(0.0), jnp.array(1.0))


def uniform_mean(p, *, key, shift=0.0):
    """E U = 1/2, as p + (1/2 - p) so that it depends on the instance."""
    values = p + jax.random.uniform(key, (TRIALS,)) - 0.5
    return Expectation(values, p - shift, p - 0.5, p + 0.5)


def probability(p, *, key, shift=0.0):
    return Probability(jax.random.bernoulli(key, p, (TRIALS,)), p - shift)


def normal_quantile(p, *, key, shift=0.0):
    """A standard normal is below its quantile of 1 - p with probability 1 - p."""
    quantile = jax.scipy.stats.norm.ppf(1 - p)
    return holds_with_probability(jax.random.normal(key, (TRIALS,)) < quantile, 1 - p + shift)


def crossing():
    """P(a random walk is at BARRIER within STEPS steps), by the reflection principle."""
    up = scipy.stats.binom(STEPS, 0.5)
    beyond = up.sf((STEPS + BARRIER) // 2)
    return float(2 * beyond + up.pmf((STEPS + BARRIER) // 2))


def random_walk(p, *, key, shift=0.0):
    walks = jnp.cumsum(jax.random.rademacher(key, (TRIALS, STEPS)), axis=1)
    return holds_always(walks < BARRIER + 0 * p, 1 - crossing() + shift)


def power_law(p, *, key, shift=0.0):
    noise = NOISE * jax.random.normal(key, (REPLICAS, len(SIZES)))
    return Scaling(SIZES, SIZES**p * jnp.exp(noise), p + shift, 0.0)


class Kind(NamedTuple):
    """A statement that is true at equality.

    Attributes:
        conclusion: ``(p, *, key, shift) -> said``, false by ``shift``.
        p: The instance.
        shift: Of the false statement whose power is measured.
        chance: Of the event, if the statement is about one; then the theory is exact.
    """

    conclusion: Callable[..., Any]
    p: float
    shift: float
    chance: float | None = None


KINDS = {
    "bernoulli mean": Kind(bernoulli_mean, 0.3, 0.0),
    "uniform mean": Kind(uniform_mean, 0.7, 0.0),
    "probability": Kind(probability, 0.1, 0.025, 0.1),
    "with probability": Kind(normal_quantile, 0.2, 0.03, 0.2),
    "always": Kind(random_walk, 0.5, 0.03, crossing()),
    "scaling": Kind(power_law, 0.5, 0.15),
}


def claim_of(kind, *, error, families=None, **changes):
    settings = {
        "name": "calibration/claim",
        "statement": "a statement on a distribution, at equality",
        "source": "definition",
        "families": families or {"one": lambda key: jnp.array(kind.p)},
        "conclusion": kind.conclusion,
        "assumptions": lambda p: p * (1 - p),
        "mutants": {"shifted": {"shift": 0.5}},
        "stochastic": True,
        "error": error,
    }
    return Claim(**{**settings, **changes})


def alarms(kind, error, repetitions, shift=0.0):
    """Which of so many independent repetitions find a violation; one program."""
    claim = claim_of(kind, error=error)

    @jax.jit
    def margins(keys, error):
        def one(key):
            return evaluate(claim, jnp.array(kind.p), key, error, {}, {"shift": shift}).margin

        return jax.vmap(one)(keys)

    with precise():
        keys = jax.random.split(jax.random.key(2024), (repetitions // 100, 100))
        found = np.concatenate([np.asarray(margins(part, error)) for part in keys])
    assert not np.isnan(found).any()
    return found < -tolerance_of(claim)


def binomial_power(error, bound, chance):
    """P(Binomial(TRIALS, chance) has a tail below error under the bound)."""
    counts = np.arange(TRIALS + 1)
    excluded = scipy.stats.binom.sf(counts - 1, TRIALS, bound) < error
    return float(scipy.stats.binom.pmf(counts[excluded], TRIALS, chance).sum())


def student_power(error, shift):
    """Of the two-sided test on the replicas' slopes."""
    x = np.log(SIZES) - np.log(SIZES).mean()
    noncentral = shift * math.sqrt(REPLICAS) / (NOISE / math.sqrt(x @ x))
    freedom = REPLICAS - 1
    quantile = scipy.stats.t.ppf(1 - error / 2, freedom)
    t = scipy.stats.nct(freedom, noncentral) if shift else scipy.stats.t(freedom)
    return float(t.sf(quantile) + t.cdf(-quantile))


def theory(kind, error, shift):
    """The exact rate of alarms, or None where there is a bound alone."""
    if kind.chance is not None:
        return binomial_power(error, kind.chance - shift, kind.chance)
    return student_power(error, shift) if kind.conclusion is power_law else None


def p_value(count, number, rate, alternative):
    return scipy.stats.binomtest(int(count), number, rate, alternative=alternative).pvalue


def tell(what, measured, number, expected):
    print(f"{what:45s} {measured / number:.4f} of {number}, theory {expected}")


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("name", KINDS)
def test_false_alarms_stay_within_the_budget(name, budget):
    kind = KINDS[name]
    count = alarms(kind, budget, REPETITIONS).sum()
    level = theory(kind, budget, 0.0)
    tell(f"{name}, budget {budget}", count, REPETITIONS, level or f"at most {budget}")
    assert p_value(count, REPETITIONS, budget, "greater") > SIGNIFICANCE, count
    if level is not None:
        # Neither more nor fewer: a test that never alarms would be no test.
        assert p_value(count, REPETITIONS, level, "two-sided") > SIGNIFICANCE, count


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind.shift])
def test_false_claims_are_refuted_as_often_as_theory_says(name, budget):
    kind = KINDS[name]
    count = alarms(kind, budget, REPETITIONS, kind.shift).sum()
    power = theory(kind, budget, kind.shift)
    tell(f"{name}, false by {kind.shift}, budget {budget}", count, REPETITIONS, power)
    assert power > 0.5
    assert p_value(count, REPETITIONS, power, "two-sided") > SIGNIFICANCE, count


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("name", ["bernoulli mean", "uniform mean"])
def test_means_that_are_off_by_two_widths_are_refuted(name, budget):
    """By the same inequality on the other side, at most a share of ``budget`` may be missed."""
    # Maurer and Pontil's width, at the largest variance that values in [0, 1] can have.
    logarithm = math.log(2 / budget)
    variance = TRIALS / (4 * (TRIALS - 1))
    width = math.sqrt(2 * variance * logarithm / TRIALS) + 7 * logarithm / (3 * (TRIALS - 1))
    count = alarms(KINDS[name], budget, REPETITIONS, 2 * width).sum()
    tell(f"{name}, false by {2 * width:.4f}, budget {budget}", count, REPETITIONS, 1 - budget)
    assert p_value(count, REPETITIONS, 1 - budget, "less") > SIGNIFICANCE, count


def test_a_suite_shares_one_budget():
    """Twenty true claims at equality: how often any of them raises an alarm."""
    number, budget, kind = 20, 0.2, KINDS["probability"]
    claims = share_error([claim_of(kind, error=0.5) for _ in range(number)], budget)
    assert sum(claim.error for claim in claims) == pytest.approx(budget)
    (error,) = {claim.error for claim in claims}
    found = alarms(kind, error, REPETITIONS * number).reshape(REPETITIONS, number)
    count = found.any(axis=1).sum()
    level = 1 - (1 - theory(kind, error, 0.0)) ** number
    tell(f"any of {number} claims, budget {budget}", count, REPETITIONS, level)
    assert p_value(count, REPETITIONS, budget, "greater") > SIGNIFICANCE, count
    assert p_value(count, REPETITIONS, level, "two-sided") > SIGNIFICANCE, count


def test_only_stochastic_claims_share():
    kind = KINDS["probability"]
    sure = claim_of(kind, error=0.5, stochastic=False)
    claims = share_error([claim_of(kind, error=0.5), sure, claim_of(kind, error=0.5)], 1e-4)
    assert [claim.error for claim in claims if claim.stochastic] == [5e-5, 5e-5]


def refutations(claim, rungs, seeds, variant=None):
    """Seeds for which some rung refutes, each through the whole ladder with its fresh keys."""
    effort = Effort(examples=2, restarts=2, steps=3, shrink=False, methods=("adam",))
    with precise():
        evaluator = Evaluator(claim)
        return sum(
            any(
                climb_rung(claim, evaluator, rung, variant or {}, None, effort, seed, None).verdict
                == Verdict.REFUTED
                for rung in rungs
            )
            for seed in range(seeds)
        )


@pytest.mark.parametrize("name", ["probability", "always", "scaling"])
def test_a_rung_asks_again_with_fresh_keys(name):
    """An alarm that is raised twice, under independent keys, refutes: the level is squared."""
    kind, budget, seeds = KINDS[name], 0.4, 300
    claim = claim_of(kind, error=budget, rungs=("sample",), samples=1)
    count = refutations(claim, ["sample"], seeds)
    level = theory(kind, budget, 0.0) ** 2
    tell(f"{name}, sample rung, budget {budget}", count, seeds, level)
    assert p_value(count, seeds, budget, "greater") > SIGNIFICANCE, count
    assert p_value(count, seeds, level, "two-sided") > SIGNIFICANCE, count


@pytest.mark.parametrize("name", ["bernoulli mean", "probability", "scaling"])
def test_all_rungs_together_stay_within_the_budget(name):
    """True claims at equality over a family, with several instances and three rungs."""

    def family():
        return numpyro.sample("p", dist.Uniform(0.1, 0.5))

    budget, seeds = 0.2, 100
    rungs = ("explore", "sample", "attack")
    claim = claim_of(
        KINDS[name], error=budget, families={"uniform": family}, rungs=rungs, samples=8
    )
    count = refutations(claim, rungs, seeds)
    tell(f"{name}, three rungs, budget {budget}", count, seeds, f"at most {budget}")
    assert p_value(count, seeds, budget, "greater") > SIGNIFICANCE, count
    # The same claim shifted by a half is refuted each time.
    assert refutations(claim, rungs[1:2], 10, {"shift": 0.5}) == 10

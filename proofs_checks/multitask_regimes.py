"""Claims on the two regimes of tasks, and on expectation maximisation."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from hypothesis import strategies as st
from jaxtyping import Array, Float

from jaxlab.claims import Claim, Comparison, at_most, at_most_in_ratio, close_to
from jaxlab.problems.sites import log_uniform, uniform
from jaxlab.theory.multitask_em import EMHyper, TaskCounts, task_type_em
from jaxlab.theory.multitask_limits import (
    adaptive_error_bounds,
    constant_gap,
    noisy_gap,
    oracle_error,
)


class Scale(NamedTuple):
    """How many tasks, as a power of ten; and what all good ones are worth."""

    log_tasks: Float[Array, ""]
    information: Float[Array, ""]


def few_or_many() -> Scale:
    """A NumPyro model: 10^3 to 10^30 tasks."""
    return Scale(uniform("log_tasks", 3.0, 30.0), uniform("information", 6.0, 20.0))


def very_many(n: int = 1) -> Scale:
    """A NumPyro model: beyond what makes the noisy regime hard."""
    return Scale(8.0 + n / 2 + uniform("more", 0.0, 20.0), jnp.asarray(12.0))


def countable(instance: Scale) -> Array:
    """More tasks than the good ones of the constant regime, and positive information."""
    return jnp.minimum(instance.log_tasks - 2.0, instance.information)


def revealed(instance: Scale, *, n: int, beta: float = 0.5) -> Comparison:
    """4: a constant gap is easy from ``n = 2/beta - 1`` on, whatever the number of tasks."""
    family = constant_gap(n, 10.0**instance.log_tasks, beta=beta)
    # At n = 3 and at n = 4 of beta = 1/2, to three and to six decimals.
    most = jnp.where(n == 3, 1e-3, 1.1e-7)
    return at_most_in_ratio(adaptive_error_bounds(n, family).le_cam, most)


def hidden(
    instance: Scale, *, n: int, information: float = 12.0, constant: float = 0.0
) -> Comparison:
    """5, 6: a noisy gap is hard for every n, and the oracle errs 300 times less."""
    family = noisy_gap(n, 10.0**instance.log_tasks, information=information)
    # Good tasks that do not get noisier with n are found out.
    family = family._replace(eps_good=jnp.where(constant > 0, 0.02, family.eps_good))
    found, oracle = adaptive_error_bounds(n, family).le_cam, oracle_error(n, family)
    return at_most(jnp.stack([0.1 - found, 300 * oracle]), jnp.stack([jnp.zeros(()), found]))


def oracle_rate(instance: Scale, *, n: int, exponent: float = 1.0) -> Comparison:
    """8: how far the good tasks' labels lie from chance, in standard deviations."""
    beta, num_good = 0.3, 1e5
    family = noisy_gap(n, 1e8, beta=beta, num_good=num_good, information=instance.information)
    power = jnp.where(exponent > 0, 1 - beta / 2, 0.5)
    found = jnp.sqrt(n * num_good) * family.eps_good**power
    return close_to(found / jnp.sqrt(instance.information), 1.0, allowance=1e-10)


class Rows(NamedTuple):
    """Numbers that become counts of five kinds of tasks, and a pseudo-count."""

    hits: Float[Array, " rows"]
    plus: Float[Array, " rows"]
    weight: Float[Array, " rows"]
    pseudo: Float[Array, ""]


def counted() -> Rows:
    """A NumPyro model."""
    return Rows(
        uniform("hits", 0.0, 1.0, 5),
        uniform("plus", 0.0, 1.0, 5),
        uniform("weight", 0.5, 9.0, 5),
        log_uniform("pseudo", 0.05, 2.0),
    )


def countable_rows(instance: Rows) -> Array:
    """Shares in [0, 1], positive weights and pseudo-counts."""
    shares = jnp.concatenate([instance.hits, instance.plus])
    ends = jnp.minimum(shares.min(), 1 - shares.max())
    return jnp.minimum(ends, jnp.minimum(instance.weight.min(), instance.pseudo))


def never_lower(instance: Rows, *, samples: int, prior: float = 1.0) -> Comparison:
    """Each of six steps raises the log posterior; the mutant all but forgets the prior in them."""
    hits = jnp.round(instance.hits * samples).astype(int)
    plus = jnp.round(instance.plus * hits).astype(int)
    problem = TaskCounts(plus, hits - plus, jnp.full_like(hits, samples), instance.weight)
    method, hyper = task_type_em(), EMHyper(instance.pseudo)
    stepped = EMHyper(instance.pseudo * jnp.where(prior > 0, 1.0, 1e-3))
    key = jax.random.key(0)

    def step(state: Any, _: None) -> tuple[Any, Array]:
        told = method.step(problem, hyper, state, key)[1].log_posterior
        return method.step(problem, stepped, state, key)[0], told

    _, values = jax.lax.scan(step, method.init(problem, hyper, key), length=7)
    return at_most(values[:-1], values[1:], scale=jnp.abs(values[0]) + 1.0)


CLAIMS = (
    Claim(
        name="multitask_limits/threshold",
        statement="constant gap, beta = 1/2: the bound is below 1e-3 at n = 3 for every N",
        source="arXiv:2006.15785, the threshold n >= 2/beta - 1; constants derived",
        families={"10^3 to 10^30 tasks": few_or_many},
        conclusion=revealed,
        assumptions=countable,
        sizes={"n": st.sampled_from([3, 4])},
        typical={"n": 3},
        samples=500,
        restarts=16,
        mutants={"beta a third, whose threshold is 5": {"beta": 1 / 3}},
    ),
    Claim(
        name="multitask_limits/every_n",
        statement="noisy gap, N >= 10^(8 + n/2): the bound is 0.1 and 300 oracle errors at least",
        source="arXiv:2601.20774, Theorem 5.2, illustrated; constants derived",
        families={"beyond 10^(8 + n/2) tasks": very_many},
        conclusion=hidden,
        assumptions=countable,
        sizes={"n": st.sampled_from([1, 2, 4, 8])},
        typical={"n": 4},
        samples=500,
        restarts=16,
        mutants={
            "a constant gap": {"constant": 1.0},
            "five times the information": {"information": 60.0},
        },
    ),
    Claim(
        name="multitask_limits/oracle_rate",
        statement="eps_G = (I/(n N_G))^(1/(2 - beta)): sqrt(n N_G) eps_G^(1 - beta/2) = sqrt(I)",
        source="derived: the oracle's minimax rate",
        families={"information": few_or_many},
        conclusion=oracle_rate,
        assumptions=countable,
        sizes={"n": st.sampled_from([1, 5])},
        typical={"n": 3},
        tightness="tight",
        rungs=("explore", "sample"),
        samples=500,
        mutants={"exponent 1/2": {"exponent": 0.0}},
    ),
    Claim(
        name="multitask_limits/em",
        statement="no step of expectation maximisation lowers the log posterior",
        source="Dempster, Laird, Rubin 1977, with Beta priors",
        families={"five kinds of tasks": counted},
        conclusion=never_lower,
        assumptions=countable_rows,
        sizes={"samples": st.sampled_from([1, 6])},
        typical={"samples": 6},
        samples=1000,
        restarts=16,
        mutants={"steps without the prior": {"prior": 0.0}},
    ),
)

"""Claims on the mean-field recursion of delayed weights: its rate, and what the lag may be."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jaxtyping import Array, Float

from jaxlab.claims import Claim, Comparison, ExactCase, at_most, at_most_in_ratio
from jaxlab.inference import ais_theory
from jaxlab.problems.sites import simplex, uniform

DEFENSIVE = 0.1
STEPS = 200


class Space(NamedTuple):
    """A target and a kernel; the global law is uniform."""

    target: Float[Array, " states"]
    kernel: Float[Array, "states states"]


def space(states: int) -> Space:
    """A NumPyro model: laziness 0.7, no state of the target below a thousandth."""
    target = 1e-3 + (1 - states * 1e-3) * simplex("target", states)
    rows = jnp.stack([simplex(f"kernel_{i}", states) for i in range(states)])
    return Space(target, 0.7 * jnp.eye(states) + 0.3 * rows)


def legal_space(instance: Space) -> Array:
    """Stochastic rows, a lazy kernel and a target of at least a thousandth."""
    sums = jnp.append(instance.kernel.sum(axis=1), instance.target.sum())
    lazy = jnp.diagonal(instance.kernel).min() - 0.7
    positive = instance.target.min() - 1e-3
    return jnp.stack([lazy, positive, 0.0]).min() + 1e-12 - jnp.abs(sums - 1).max()


Step = Callable[..., Any]


def squared_step(history, target, proposal, kernel, refresh, defensive):
    """Bug: the weights are divided by the population's law twice."""
    centres = history[-1] * target / history[0] ** 2
    centres = centres / centres.sum()
    proposed = defensive * proposal + (1 - defensive) * centres @ kernel
    newest = (1 - refresh) * history[-1] + refresh * proposed
    return jnp.concatenate([history[1:], newest[None]]), proposed, centres


def unnormalised_step(history, target, proposal, kernel, refresh, defensive):
    """Bug: the centres' weights are not normalised."""
    centres = 1.1 * history[-1] * target / history[0]
    proposed = defensive * proposal + (1 - defensive) * centres @ kernel
    newest = (1 - refresh) * history[-1] + refresh * proposed
    return jnp.concatenate([history[1:], newest[None]]), proposed, centres


def mean_field_rate(
    instance: Space, *, states: int, lag: int, percent: int, step: Step = ais_theory.mean_field_step
) -> Comparison:
    """From step 20 on the relative error decays at least as (1 - a/2)^t."""
    target, kernel = instance
    proposal = jnp.full(states, 1 / states)
    refresh = percent / 100
    fixed = ais_theory.mean_field_fixed_point(target, proposal, kernel, DEFENSIVE)

    def one(history: Array, _: None) -> tuple[Array, tuple[Array, Array]]:
        history, _, centres = step(history, target, proposal, kernel, refresh, DEFENSIVE)
        errors = jnp.abs(history[-1] / fixed - 1).max(), jnp.abs(centres / target - 1).max()
        return history, errors

    start = jnp.broadcast_to(proposal, (lag + 1, states))
    _, (errors, of_centres) = jax.lax.scan(one, start, length=STEPS)
    burn = 20
    allowed = errors[burn] * (1 - refresh / 2) ** jnp.arange(STEPS - burn)
    # Rounding ends the decay; centres follow the population's change within a factor.
    floor = 1e-12
    left = jnp.stack([errors[burn:], of_centres[burn:]])
    factor = jnp.asarray([1.0, 4.0])[:, None]
    return at_most_in_ratio(left, factor * allowed[None] + floor)


class Share(NamedTuple):
    """How far below or above the limit, as a share of it."""

    share: Float[Array, ""]


def share_of_limit() -> Share:
    """A NumPyro model."""
    return Share(uniform("share", 0.02, 0.98))


def lag_limit(instance: Share, *, lag: int, extra: int = 0) -> Comparison:
    """The roots are inside the unit circle below the limit, and one is outside above it."""
    limit = ais_theory.lag_stability_limit(lag)
    below = ais_theory.lag_spectral_radius(limit * (1 - instance.share), 1.0, lag + extra)
    above = ais_theory.lag_spectral_radius(limit * (1 + instance.share), 1.0, lag + extra)
    one = jnp.ones(())
    return at_most(jnp.stack([below, one]), jnp.stack([one, above]))


def lag_cases(extra: int = 0) -> list[ExactCase]:
    """At the limit the polynomial has the root ``exp(i pi / (2 L + 1))``, and none outside.

    Both for lags 0 to 5: the value of the polynomial there, and the largest modulus of all roots.
    """
    cases = []
    for lag in range(6):
        limit, length = ais_theory.lag_stability_limit(lag), lag + extra
        root = complex(math.cos(math.pi / (2 * lag + 1)), math.sin(math.pi / (2 * lag + 1)))
        value = abs(root ** (length + 1) - root**length + limit)
        cases.append(ExactCase({"lag": lag, "polynomial at": "root"}, value, 0.0, tolerance=1e-12))
        polynomial = np.zeros(length + 2)
        polynomial[0] += 1
        polynomial[1] -= 1
        polynomial[-1] += limit
        modulus = float(np.abs(np.roots(polynomial)).max())
        cases.append(ExactCase({"lag": lag, "largest": "modulus"}, modulus, 1.0, tolerance=1e-9))
    return cases


CLAIMS = (
    Claim(
        name="ais/mean_field_rate",
        statement=(
            "lag 0 or 1, a <= 0.2: max |m_t/q* - 1| decays at least as (1 - a/2)^t from step 20, "
            "and max |mu_t/pi - 1| with it"
        ),
        source=(
            "derived: |mu/pi - 1| <= 2 d/(1-d), d the relative change per step, so the error obeys "
            "e+ <= (1-a) e + O(a d)"
        ),
        families={"lazy": space},
        conclusion=mean_field_rate,
        assumptions=legal_space,
        sizes={
            "states": st.sampled_from([2, 12]),
            "lag": st.sampled_from([0, 1]),
            "percent": st.sampled_from([5, 10, 20]),
        },
        typical={"states": 12, "lag": 1, "percent": 20},
        samples=500,
        restarts=4,
        mutants={
            "divided by the population's law twice": {"step": squared_step},
            "weights of centres not normalised": {"step": unnormalised_step},
        },
    ),
    Claim(
        name="ais/lag_stability",
        statement="theta = 1: the lagged recursion is stable iff 0 < a < 2 cos(L pi/(2L+1))",
        source="Levin and May 1976; the linearisation is derived",
        families={"share": share_of_limit},
        conclusion=lag_limit,
        assumptions=lambda instance: jnp.minimum(instance.share - 0.02, 0.98 - instance.share),
        sizes={"lag": st.sampled_from([0, 1, 2, 3, 4, 5])},
        typical={"lag": 1},
        exact=lag_cases,
        tightness="tight",
        samples=500,
        rungs=("explore", "sample", "exact"),
        mutants={"history index off by one": {"extra": 1}},
    ),
)

"""Claims on what goes with the method: waiting times, i-SIR and self-normalised averages."""

import itertools
import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jaxtyping import Array, Float

from jaxlab.claims import Claim, Comparison, at_most, at_most_in_ratio, close_to
from jaxlab.inference import ais_theory, isir, waiting_times
from jaxlab.problems.sites import log_uniform, simplex, uniform


class Laws(NamedTuple):
    """A target, a proposal and a start on a finite space, and a time."""

    target: Float[Array, " states"]
    proposal: Float[Array, " states"]
    start: Float[Array, " states"]
    time: Float[Array, ""]


def laws(states: int) -> Laws:
    """A NumPyro model; no state is rarer than a thousandth, which keeps the spectra apart."""

    def law(name: str) -> Array:
        return 1e-3 + (1 - states * 1e-3) * simplex(name, states)

    return Laws(law("target"), law("proposal"), law("start"), log_uniform("time", 0.1, 10.0))


def legal_laws(instance: Laws) -> Array:
    """Positive, and sums of 1."""
    three = jnp.stack(instance[:3])
    return jnp.minimum(three.min() - 9e-4, 1e-12 - jnp.abs(three.sum(axis=1) - 1).max())


def chi_square(law: Array, target: Array) -> Array:
    """Pearson's divergence from the target."""
    return jnp.sum((law - target) ** 2 / target)


def waiting_gap(instance: Laws, *, inverse: float = 1.0) -> Comparison:
    """Detailed balance, the gap, and the decay of chi-square; a mutant inverts the waits."""
    target, proposal, start, time = instance
    largest = (target / proposal).max()
    rates = (proposal / target) ** (inverse - 1)
    generator = rates[:, None] * waiting_times.jump_generator(target, proposal)
    flow = target[:, None] * generator
    unbalanced = jnp.abs(flow - flow.T).max() / jnp.abs(flow).max()
    gap = waiting_times.spectral_gap(generator, target)
    later = waiting_times.law_at(start, generator, target, time)
    bound = jnp.exp(-2 * time / largest) * chi_square(start, target)
    left = jnp.stack([unbalanced, 1 / largest, chi_square(later, target)])
    right = jnp.stack([jnp.asarray(1e-10), gap, bound])
    scale = jnp.stack([jnp.ones(()), gap + 1 / largest, chi_square(start, target) + 1e-9])
    return at_most(left, right, scale=scale)


def metropolis_gap(instance: Laws, *, clipped: float = 1.0) -> Comparison:
    """The gap of the independent chain; a mutant accepts with the ratio itself."""
    target, proposal, *_ = instance
    weights = target / proposal
    chain = waiting_times.independent_metropolis_matrix(target, proposal)
    moves = proposal[None] * weights[None] / weights[:, None]
    moves = moves - jnp.diag(jnp.diagonal(moves))
    careless = moves + jnp.diag(1 - moves.sum(axis=1))
    used = clipped * chain + (1 - clipped) * careless
    root = jnp.sqrt(target)
    symmetric = root[:, None] * used / root[None]
    gap = 1 - jnp.linalg.eigvalsh((symmetric + symmetric.T) / 2)[-2]
    return close_to(gap / waiting_times.metropolis_gap(weights.max()), 1.0, allowance=1e-6)


def isir_contracts(instance: Laws, *, candidates: int, current: float = 1.0) -> Comparison:
    """Invariance and the Dobrushin coefficient; a mutant forgets the current state."""
    target, proposal, *_ = instance
    matrix = isir.isir_transition_matrix(target, proposal, candidates)
    # Without the current state every row is the law of plain resampling of fresh candidates.
    forgetful = jnp.broadcast_to(proposal @ matrix, matrix.shape)
    used = current * matrix + (1 - current) * forgetful
    moved = jnp.abs(target @ used - target).max()
    bound = isir.isir_contraction((target / proposal).max(), candidates)
    return at_most(
        jnp.stack([moved, isir.dobrushin_coefficient(used)]),
        jnp.stack([jnp.asarray(1e-12), jnp.asarray(bound)]),
    )


class Weighted(NamedTuple):
    """An unnormalised density, a proposal and a function of size at most 1, on three states."""

    density: Float[Array, " states"]
    proposal: Float[Array, " states"]
    values: Float[Array, " states"]


def weighted() -> Weighted:
    """A NumPyro model; the evidence is anything from a hundredth to a hundred."""
    evidence = log_uniform("evidence", 1e-2, 1e2)
    return Weighted(
        evidence * simplex("density", 3), simplex("proposal", 3), uniform("values", -1.0, 1.0, 3)
    )


def self_normalised_error(
    instance: Weighted, *, points: int, normalised: float = 1.0
) -> Comparison:
    """The mean squared error by enumeration of all counts; a mutant forgets ``(sum w)^2``."""
    gamma, q, values = instance
    counts = np.array(
        [c for c in itertools.product(range(points + 1), repeat=3) if sum(c) == points]
    )
    ways = np.array([math.lgamma(points + 1) - sum(math.lgamma(k + 1) for k in c) for c in counts])
    probability = jnp.exp(ways + counts @ jnp.log(q))
    w = counts * (gamma / q)[None]
    estimates = w @ values / w.sum(axis=1)
    truth = gamma @ values / gamma.sum()
    error = probability @ (estimates - truth) ** 2
    ratio = ais_theory.second_moment_ratio(gamma, q) * gamma.sum() ** (2 * (1 - normalised))
    return at_most_in_ratio(error, ais_theory.self_normalized_error_bound(ratio, points))


STATES = {"states": st.sampled_from([3, 6])}

CLAIMS = (
    Claim(
        name="ais/waiting_time_gap",
        statement=(
            "A f = (q(f) - f)/w is reversible, its gap is >= 1/max w, and "
            "chi2(mu_t, pi) <= exp(-2t/max w) chi2(mu_0, pi)"
        ),
        source="derived: the Dirichlet form is Var_q(f) >= Var_pi(f)/max w",
        families={"finite": laws},
        conclusion=waiting_gap,
        assumptions=legal_laws,
        sizes=STATES,
        typical={"states": 6},
        tolerance=1e6,  # eigenvalues of a matrix whose entries span a factor of a million
        samples=1000,
        restarts=8,
        mutants={"waits inverted": {"inverse": -1.0}},
    ),
    Claim(
        name="ais/metropolis_gap",
        statement="the independent Metropolis-Hastings chain has the gap 1/max w exactly",
        source="Liu 1996",
        families={"finite": laws},
        conclusion=metropolis_gap,
        assumptions=legal_laws,
        sizes=STATES,
        typical={"states": 6},
        tolerance=1e6,
        tightness="tight",
        samples=1000,
        rungs=("explore", "sample"),
        mutants={"acceptance not cut at 1": {"clipped": 0.0}},
    ),
    Claim(
        name="ais/isir_contraction",
        statement="i-SIR: pi P = pi, and its Dobrushin coefficient is <= 1 - (N-1)/(2 max w + N-2)",
        source="Samsonov et al. 2022 (arXiv:2111.02702), Theorem 1; candidates are enumerated",
        families={"finite": laws},
        conclusion=isir_contracts,
        assumptions=legal_laws,
        sizes={"states": st.just(3), "candidates": st.sampled_from([2, 3, 5])},
        typical={"states": 3, "candidates": 3},
        samples=2000,
        restarts=16,
        mutants={"the current state is no candidate": {"current": 0.0}},
    ),
    Claim(
        name="ais/self_normalised_error",
        statement="|f| <= 1: E|sum w f/sum w - pi(f)|^2 <= 4 rho/N, rho = E w^2/(E w)^2, any N",
        source="Agapiou et al. 2017 (arXiv:1511.06196), Theorem 2.1; counts are enumerated",
        families={"three states": weighted},
        conclusion=self_normalised_error,
        assumptions=lambda instance: jnp.minimum(
            jnp.minimum(instance.density.min(), 1 - jnp.abs(instance.values).max()),
            1e-12 - jnp.abs(instance.proposal.sum() - 1),
        ),
        sizes={"points": st.sampled_from([5, 20])},
        typical={"points": 20},
        samples=2000,
        restarts=16,
        mutants={"(sum w)^2 missing": {"normalised": 0.0}},
    ),
)

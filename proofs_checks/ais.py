"""Claims on importance sampling by mixtures of proposals, with and without a delay.

Those on the method itself are here; the finite-space theory of its companions is in
``ais_companions.py``, and what the lag does in ``ais_lag.py``.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from hypothesis import strategies as st
from jaxtyping import Array, Float

from jaxlab.claims import Claim, Comparison, Expectation, at_most, close_to
from jaxlab.core import run
from jaxlab.core.locate import load_companion
from jaxlab.inference import ais, ais_theory, mixtures
from jaxlab.inference.target import heavy_tailed, make_target
from jaxlab.problems.sites import log_uniform, normal, simplex, uniform

NUM_CENTRES = 3


class Mixed(NamedTuple):
    """A block proposal around arbitrary centres, points anywhere, and log densities at them."""

    centres: Float[Array, "centres dim"]
    points: Float[Array, "points dim"]
    log_density: Float[Array, " points"]
    width: Float[Array, ""]
    reach: Float[Array, ""]
    defensive: Float[Array, ""]


def mixed(dim: int) -> Mixed:
    """A NumPyro model; points reach into the tails."""
    reach = log_uniform("reach", 1.0, 30.0)
    return Mixed(
        5 * normal("centres", NUM_CENTRES, dim),
        reach * normal("points", 4, dim),
        10 * normal("log_density", 4),
        log_uniform("width", 0.05, 2.0),
        reach,
        uniform("defensive", 0.01, 0.99),
    )


def at_the_centres(dim: int) -> Mixed:
    """All kernels on one point, and points far off."""
    far = jnp.full((4, dim), 1e6)
    half = jnp.asarray(0.5)
    return Mixed(jnp.zeros((NUM_CENTRES, dim)), far, jnp.zeros(4), 0.01 * half, half, half)


def legal_mixture(instance: Mixed) -> Array:
    """Widths and the defensive share are in their ranges."""
    share = jnp.minimum(instance.defensive, 1 - instance.defensive)
    return jnp.minimum(share, jnp.minimum(instance.width, instance.reach))


def defensive_bound(instance: Mixed, *, dim: int, kept: float = 1.0) -> Comparison:
    """Weights under the block proposal against those under its global part alone."""
    g = heavy_tailed(jnp.zeros(dim), 3.0)
    log_g = jnp.asarray(g.log_prob(instance.points))
    tril = instance.width * jnp.eye(dim)
    log_kernels = mixtures.kernel_mixture_log_prob(
        instance.points, instance.centres, tril, "student_t"
    )
    # A mutant leaves the global law out of the denominator.
    share = kept * instance.defensive
    local = jnp.log1p(-instance.defensive) + log_kernels
    log_q = jnp.where(kept > 0, mixtures.log_mix(instance.defensive, log_g, log_kernels), local)
    log_w = instance.log_density - log_q
    largest = (instance.log_density - log_g).max() - jnp.log(jnp.maximum(share, 1e-300))
    bound = instance.log_density - log_g - jnp.log(instance.defensive)
    scale = 1 + jnp.abs(bound)
    left = jnp.append(log_w, log_w.max())
    right = jnp.append(bound, jnp.where(kept > 0, largest, bound.max()))
    return at_most(left, right, scale=jnp.append(scale, scale.max()))


class Finite(NamedTuple):
    """An unnormalised density, a global law, kernels and a function on a finite space."""

    density: Float[Array, " states"]
    proposal: Float[Array, " states"]
    kernel: Float[Array, "states states"]
    values: Float[Array, " states"]
    defensive: Float[Array, ""]


def finite(states: int) -> Finite:
    """A NumPyro model."""
    rows = jnp.stack([simplex(f"kernel_{i}", states) for i in range(states)])
    return Finite(
        log_uniform("evidence", 1e-2, 1e2) * simplex("density", states),
        simplex("proposal", states),
        rows,
        uniform("values", 0.0, 1.0, states),
        uniform("defensive", 0.05, 0.95),
    )


def legal_space(instance: Finite) -> Array:
    """Laws sum to 1 and are positive where they must be."""
    sums = jnp.append(instance.kernel.sum(axis=1), instance.proposal.sum())
    positive = jnp.minimum(instance.proposal.min(), instance.density.min())
    return jnp.minimum(positive, 1e-12 - jnp.abs(sums - 1).max())


def block_unbiased(instance: Finite, *, late: float = 0.0) -> Comparison:
    """All pasts, centres and draws: two points from g, one centre by weight, one draw from q.

    ``late`` weighs the draw by the proposal that is adapted to it, as a delayed density would.
    """
    gamma, g, kernel, values, eps = instance
    states = len(g)
    w = gamma / g  # the past was drawn from g alone

    def proposals(centre: Array) -> Array:
        return eps * g + (1 - eps) * kernel[centre]

    every = jnp.arange(states)
    q = jax.vmap(proposals)(every)  # by centre

    def given_past(first: Array, second: Array) -> Array:
        shares = jnp.stack([w[first], w[second]]) / (w[first] + w[second])

        def given_draw(centre: Array, x: Array) -> Array:
            # The next centre: one of the past or the draw, by weight under the window's mixture.
            seen = jnp.stack([first, second, x])
            window = (2 * g[seen] + q[centre, seen]) / 3
            next_shares = gamma[seen] / window
            next_q = (next_shares / next_shares.sum()) @ q[seen][:, x]
            used = (1 - late) * q[centre, x] + late * next_q
            return q[centre, x] * gamma[x] / used * values[x]

        by_centre = jax.vmap(lambda c: jax.vmap(lambda x: given_draw(c, x))(every).sum())
        return shares @ by_centre(jnp.stack([first, second]))

    table = jax.vmap(lambda a: jax.vmap(lambda b: given_past(a, b))(every))(every)
    expected, truth = g @ table @ g, gamma @ values
    return close_to(expected, truth, allowance=1e-11, scale=truth)


class Bump(NamedTuple):
    """A normalised Gaussian target, and which side of the expectation is asked about."""

    centre: Float[Array, " dim"]
    width: Float[Array, ""]
    side: Float[Array, ""]


def bump(dim: int) -> Bump:
    """A NumPyro model: narrower than the global law, and off its centre."""
    side = jnp.sign(uniform("side", -1.0, 1.0))
    return Bump(uniform("centre", -1.5, 1.5, dim), uniform("width", 0.3, 0.6), side)


# One method for all instances, so that the claim is one program.
SMALL = ais.delayed_ais(num_blocks=2, block_size=6, lag=1, scale="identity")


def sampled_unbiased(instance: Bump, *, dim: int, key: Array, old: float = 0.0) -> Expectation:
    """The library's own step: the newest block's mean weight, after two adaptive steps.

    ``old`` divides by the proposal two blocks before, which did not know the past.
    """
    centre, width, side = instance
    g = heavy_tailed(jnp.zeros(dim), 2.0)
    hyper = ais.ais_hyper(defensive=0.5, bandwidth=0.3)
    log_norm = -dim / 2 * jnp.log(2 * jnp.pi * width**2)

    def logdensity(x: Array) -> Array:
        return log_norm - jnp.sum((x - centre) ** 2) / (2 * width**2)

    target = make_target(logdensity, g)

    def one(key: Array) -> Array:
        state = run(SMALL, target, hyper, key, num_steps=2).state
        before, own = state.block_log_prob[0, -6:], state.block_log_prob[-1, -6:]
        return jnp.exp(state.log_density[-1] - (1 - old) * own - old * before).mean()

    values = jax.vmap(one)(jax.random.split(key, 1000))
    # |x| is at most the distance from the centre plus the centre's: the Gaussian at the near end
    # and the Student tail at the far end of each interval of distances bound gamma / (g / 2).
    ends = jnp.linspace(0.0, 10.0, 401)
    size = jnp.sqrt(jnp.sum(centre**2)) + ends[1:]
    tail = (5 + dim) / 2 * jnp.log1p(size**2 / 20)
    largest = jnp.max(tail - ends[:-1] ** 2 / (2 * width**2))
    top = 2 * jnp.exp(log_norm + largest - jnp.asarray(g.log_prob(jnp.zeros(dim))))
    above = side > 0
    zero = jnp.zeros(())
    return Expectation(
        jnp.where(above, values, top - values), jnp.where(above, 1.0, top - 1.0), zero, top
    )


class Several(NamedTuple):
    """Proposals and an integrand on a finite space."""

    proposals: Float[Array, "proposals states"]
    integrand: Float[Array, " states"]


def several(states: int, proposals: int) -> Several:
    """A NumPyro model."""
    rows = jnp.stack([simplex(f"proposal_{i}", states) for i in range(proposals)])
    return Several(rows, uniform("integrand", 0.0, 1.0, states))


def mixture_beats_separate(
    instance: Several, *, own: float = 0.0, others: float = 0.0
) -> Comparison:
    """The deterministic mixture's variance, plus the spread of its terms' means.

    Mutants divide by the single proposal of each draw, or leave it out of the mixture.
    """
    q, h = instance
    mean = q.mean(axis=0)
    without = (len(q) * mean[None] - q) / (len(q) - 1)
    divisor = own * q + others * without + (1 - own - others) * mean[None]
    ratio = h[None] / divisor
    means = jnp.sum(q * ratio, axis=1)
    squares = jnp.sum(q * (ratio - means[:, None]) ** 2, axis=1).sum() / len(q) ** 2
    plain = jnp.where(own + others == 0, ais_theory.mixture_variance(h, q), squares)
    terms = jnp.sum(q * (h / mean)[None], axis=1)
    separate = ais_theory.separate_variance(h, q)
    spread = jnp.sum((terms - terms.mean()) ** 2) / len(q) ** 2
    return at_most(plain + spread, separate, scale=plain + spread + separate)


CLAIMS = (
    Claim(
        name="ais/defensive_bound",
        statement="any centres, any point: gamma/q_t <= gamma/(eps g), so sup gamma/q_t <= M_g/eps",
        source="derived: q_t >= eps g",
        families={"mixture": mixed},
        conclusion=defensive_bound,
        assumptions=legal_mixture,
        sizes={"dim": st.sampled_from([1, 3])},
        typical={"dim": 3},
        boundary={"kernels on one point": at_the_centres},
        tolerance=1e5,  # logarithms of densities that reach -100 by a dozen operations
        tightness="tight",
        samples=4000,
        restarts=16,
        mutants={"global law missing from the denominator": {"kept": 0.0}},
    ),
    Claim(
        name="ais/block_unbiased",
        statement="E[gamma(X)/q_t(X) f(X)] = sum gamma f for a proposal adapted to any past",
        source="derived: the tower property; every past, centre and draw is enumerated",
        families={"finite": finite},
        conclusion=block_unbiased,
        assumptions=legal_space,
        sizes={"states": st.sampled_from([2, 6])},
        typical={"states": 6},
        tightness="tight",
        samples=2000,
        rungs=("explore", "sample"),
        mutants={"weights by the next proposal": {"late": 1.0}},
    ),
    Claim(
        name="ais/block_unbiased_step",
        statement="the library's step: E mean_i gamma(x_i)/q_t(x_i) = Z for the newest block",
        source="derived: as block_unbiased, with stratified centres under one mixture",
        families={"bump": bump},
        conclusion=sampled_unbiased,
        assumptions=lambda instance: instance.width - 0.3,
        sizes={"dim": st.just(1)},
        typical={"dim": 1},
        stochastic=True,
        samples=8,
        rungs=("sample",),
        mutants={"weights by a delayed proposal": {"old": 1.0}},
    ),
    Claim(
        name="ais/mixture_variance",
        statement=(
            "one draw from each q_r: Var(mixture weights) + sum_r (I_r - I)^2 / W^2 "
            "<= Var(weights by the own q_r), I_r the means of the terms"
        ),
        source="derived: Jensen on 1/q; Elvira et al. 2019, Theorem 1, without the spread",
        families={"finite": several},
        conclusion=mixture_beats_separate,
        assumptions=lambda instance: jnp.minimum(
            instance.proposals.min(), 1e-12 - jnp.abs(instance.proposals.sum(axis=1) - 1).max()
        ),
        sizes={"states": st.sampled_from([2, 5]), "proposals": st.sampled_from([2, 3, 5])},
        typical={"states": 5, "proposals": 3},
        tightness="tight",
        samples=5000,
        restarts=16,
        mutants={
            "the single proposal under the mixture's name": {"own": 1.0},
            "the own proposal missing from the mixture": {"others": 1.0},
        },
    ),
    *load_companion("proofs_checks", "ais_lag").CLAIMS,
    *load_companion("proofs_checks", "ais_companions").CLAIMS,
)

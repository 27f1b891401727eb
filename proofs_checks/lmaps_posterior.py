"""Claims on whole runs of local MAP sampling and on the risk of estimates: L8 to L11."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jaxtyping import Array, Float

from jaxlab.claims import Claim, Comparison, ExactCase, Scaling, at_most, close_to
from jaxlab.core import Method, run
from jaxlab.core.iterate import step_key
from jaxlab.diffusion.empirical import empirical_prior
from jaxlab.diffusion.gaussian import gaussian_prior
from jaxlab.diffusion.lmaps import LMAPSState, lmaps
from jaxlab.diffusion.lmaps_solvers import local_map
from jaxlab.diffusion.lmaps_theory import affine_risk, gaussian_lmaps_moments, spread_limit
from jaxlab.diffusion.operators import MatrixOperator
from jaxlab.diffusion.restoration import LMAPSHyper, Restoration, tweedie
from jaxlab.diffusion.schedule import edm_sigmas
from jaxlab.problems.sites import log_uniform, normal, simplex, uniform


class Chain(NamedTuple):
    """A Gaussian posterior through its prior and measurement, levels and the seed of a run."""

    root: Float[Array, "dim dim"]
    matrix: Float[Array, "1 dim"]
    y: Float[Array, "1"]
    noise: Float[Array, ""]
    sigmas: Float[Array, " levels"]
    rho: Float[Array, " steps"]
    start: Float[Array, " dim"]


def chains(dim: int, levels: int) -> Chain:
    """A NumPyro model; levels fall by random ratios and end at 0."""
    numbers = normal("normals", dim + 2, dim)
    share = uniform("shares", 0.0, 1.0, 2, levels + 1)
    sigmas = 0.5 * 40 ** share[0, -1] * jnp.cumprod(0.1 + 0.8 * share[0, :-1])
    return Chain(
        numbers[:dim], numbers[dim:-1], jnp.ones(1), 0.1 * 20 ** share[1, -1],
        jnp.append(sigmas, 0.0), share[1, :-1], numbers[-1],
    )  # fmt: skip


def is_chain(instance: Chain) -> Array:
    """Levels decrease, the shares are shares, and the noise is positive."""
    falls = -jnp.diff(instance.sigmas).max()
    shares = jnp.minimum(instance.rho, 1 - instance.rho).min()
    return jnp.minimum(jnp.minimum(falls, shares), instance.noise)


def prior_covariance(instance: Chain) -> Array:
    """Away from singular."""
    dim = len(instance.start)
    return instance.root @ instance.root.T / dim + 0.1 * jnp.eye(dim)


def posterior(instance: Chain) -> tuple[Array, Array, Array]:
    """The posterior's mean, variances and axes, by its precision."""
    precision = jnp.linalg.inv(prior_covariance(instance))
    total = precision + instance.matrix.T @ instance.matrix / instance.noise**2
    values, axes = jnp.linalg.eigh(jnp.linalg.inv(total))
    mean = jnp.linalg.solve(total, instance.matrix.T @ instance.y / instance.noise**2)
    return mean, values, axes


def renoised_wrongly(level: bool) -> Method:
    """Bugs: fresh noise of the level that is left, or ``x/sigma`` for the noise that is kept."""
    right = lmaps(tweedie())

    def step(problem: Restoration, hyper: LMAPSHyper, state: LMAPSState, key: Array) -> Any:
        after, info = right.step(problem, hyper, state, key)
        sigma, following = problem.sigmas[state.step], problem.sigmas[state.step + 1]
        rho = hyper.rho[state.step]
        kept = following * jnp.sqrt(1 - rho**2) / sigma
        fresh = after.x - after.x0 - kept * (state.x - after.x0)
        if level:
            x = after.x + (sigma / jnp.where(following > 0, following, sigma) - 1) * fresh
        else:
            x = after.x + kept * after.x0
        return after._replace(x=x), info

    return Method(right.init, step)


def right_method() -> Method:
    """The library's."""
    return lmaps(tweedie())


def wrong_level() -> Method:
    """Fresh noise of the level that is left."""
    return renoised_wrongly(True)


def wrong_noise() -> Method:
    """The whole signal over sigma as the noise that is kept."""
    return renoised_wrongly(False)


def exact_law(instance: Chain, *, method: Callable[[], Method] = right_method) -> Comparison:
    """L8: a run against scalar chains that are driven by the same normal numbers."""
    steps, dim, key = len(instance.rho), len(instance.start), jax.random.key(5)
    centre, s, axes = posterior(instance)
    prior = gaussian_prior(jnp.zeros(dim), prior_covariance(instance))
    problem = Restoration(
        prior.denoise, MatrixOperator(instance.matrix), instance.y, instance.sigmas,
        instance.sigmas[0] * instance.start,
    )  # fmt: skip
    hyper = LMAPSHyper(instance.noise, jnp.ones(()), instance.rho)
    estimate = run(method(), problem, hyper, key, num_steps=steps).state.x0
    start = (problem.start - centre) @ axes
    kept = jnp.sqrt(1 - instance.rho**2)

    def one(carry: tuple[Array, ...], t: Array) -> tuple[tuple[Array, ...], None]:
        offset, drift, variance = carry
        sigma, after = instance.sigmas[t], instance.sigmas[t + 1]
        b = (s + kept[t] * sigma * after) / (s + sigma**2)
        fresh = jax.random.normal(jax.random.split(step_key(key, t), 3)[2], (dim,)) @ axes
        spread = after * instance.rho[t]
        return (b * offset + spread * fresh, b * drift, b**2 * variance + spread**2), None

    carry = (start, start, jnp.zeros_like(s))
    (offset, drift, variance), _ = jax.lax.scan(one, carry, jnp.arange(steps))
    mean, spread = gaussian_lmaps_moments(start, 0.0, s, instance.sigmas, instance.rho)
    apart = jnp.stack([(estimate - centre) @ axes - offset, mean - drift, spread - variance])
    scale = 1 + jnp.abs(centre).max() + jnp.abs(start).max()
    return close_to(apart, 0.0, allowance=1e-9, scale=scale)


class Levels(NamedTuple):
    """Levels, shares of fresh noise and variances of a posterior."""

    eigenvalues: Float[Array, " directions"]
    sigmas: Float[Array, " levels"]
    rho: Float[Array, " steps"]


def schedules(levels: int) -> Levels:
    """A NumPyro model."""
    share = uniform("shares", 0.0, 1.0, 2, levels + 2)
    sigmas = 0.1 * 1000 ** share[0, 0] * jnp.cumprod(share[0, 2:])
    eigenvalues = 10 ** (4 * jnp.append(share[:, 1], share[1, 0]) - 2)
    return Levels(eigenvalues, jnp.append(sigmas, 0.0), share[1, 2:])


def is_schedule(instance: Levels) -> Array:
    """Levels do not increase, shares are shares, variances positive."""
    shares = jnp.minimum(instance.rho, 1 - instance.rho).min()
    falls = -jnp.diff(instance.sigmas).max()
    return jnp.minimum(jnp.minimum(shares, falls), instance.eigenvalues.min())


def under_dispersion(instance: Levels, *, fresh: float = 1.0) -> Comparison:
    """L9: the estimate's variance over the posterior's; a mutant keeps all of the noise."""
    s, sigmas = instance.eigenvalues, instance.sigmas
    first = jnp.square(sigmas[0])
    _, variance = gaussian_lmaps_moments(jnp.zeros_like(s), first, s, sigmas, instance.rho)
    other, kept = first * jnp.ones_like(s), jnp.sqrt(1 - fresh * instance.rho**2)
    for t in range(len(instance.rho)):  # few levels
        sigma, after = sigmas[t], sigmas[t + 1]
        b = (s + kept[t] * sigma * after) / (s + sigma**2)
        other = b**2 * other + (after * instance.rho[t]) ** 2
    # Levels of 0.9 to the power of thousands would end in rounding: a strict 1 is not asked for.
    ratio = jnp.stack([variance / s, jnp.maximum(variance, other) / s])
    return at_most(ratio, 1.0)


def exact_spread(*, fresh: float = 1.0) -> list[ExactCase]:
    """L9 in symbols (Cauchy-Schwarz as a square), for every level and share of noise."""
    from jaxlab.claims.exact import identity_case

    kept = "k" if fresh == 1.0 else "1"
    # The bound s + t^2 of the next level is the old one's image, plus a square, plus what the
    # share of fresh noise, r^2 = 1 - k^2, adds.
    left = f"(s + v**2)*(s + t**2) - (s + {kept}*v*t)**2 - (1 - k**2)*t**2*(s + v**2)"
    return [identity_case(left, "s*(v - k*t)**2", parameters={"kept": kept})]


class Share(NamedTuple):
    """A share of fresh noise, and the variance of a posterior."""

    rho: Float[Array, ""]
    eigenvalue: Float[Array, ""]


def shares() -> Share:
    """A NumPyro model."""
    share = uniform("shares", 0.0, 1.0, 2)
    return Share(0.3 + 0.7 * share[0], 10 ** (2 * share[1] - 1))


def limit_gap(instance: Share, key: Array, *, power: float = 2.0) -> Scaling:
    """L9: the distance to the limit by the number of levels; a mutant takes ``1 - rho``."""
    sizes = (128, 256, 512, 1024)
    eigenvalues = instance.eigenvalue * jnp.exp(jax.random.normal(key, (4,)) / 10)
    kept = jnp.sqrt(1 - instance.rho**power)
    limit = jnp.where(power == 2.0, spread_limit(instance.rho), (1 + kept) / 2)

    def gap(size: int) -> Array:
        sigmas = edm_sigmas(size, smallest=1e-4, largest=100.0, end_at_zero=True)
        zeros = jnp.zeros_like(eigenvalues)
        _, variance = gaussian_lmaps_moments(zeros, 1e4, eigenvalues, sigmas, instance.rho)
        return jnp.abs(variance / eigenvalues - limit)

    values = jnp.stack([gap(size) for size in sizes], axis=1)
    return Scaling(np.array(sizes, float), values, -1.0, 0.15)


class Atoms(NamedTuple):
    """Finitely many signals, and a noisy one."""

    rows: Float[Array, "atoms 2"]
    weights: Float[Array, " atoms"]
    x: Float[Array, "2"]
    sigma: Float[Array, ""]


def atoms(count: int) -> Atoms:
    """A NumPyro model."""
    points = normal("points", count + 1, 2)
    return Atoms(points[1:], simplex("weights", count), points[0], log_uniform("sigma", 0.3, 3.0))


def twice(instance: Atoms, *, sharpness: float = 1.0, centre: float = 0.0) -> Comparison:
    """L10 by enumeration of all pairs; mutants sample another posterior, or score the prior."""
    rows, x = instance.rows, instance.x
    squares = jnp.sum((rows - x[None]) ** 2, axis=1)
    true = jax.nn.softmax(jnp.log(instance.weights) - squares / (2 * instance.sigma**2))
    prior = empirical_prior(rows, instance.weights)
    sampled = prior.posterior_weights(x, instance.sigma / jnp.sqrt(sharpness))
    mean = prior.denoise(x, instance.sigma)
    used = (1 - centre) * mean + centre * (instance.weights @ rows)
    apart = jnp.sum((rows[:, None] - rows[None]) ** 2, axis=2)
    of_sample, of_mean = true @ apart @ sampled, true @ jnp.sum((rows - used[None]) ** 2, axis=1)
    return close_to(of_sample, 2 * of_mean, allowance=1e-9, scale=of_mean)


class Gained(NamedTuple):
    """A covariance given the noisy signal, and a measurement."""

    root: Float[Array, "dim dim"]
    matrix: Float[Array, "1 dim"]
    noise: Float[Array, ""]


def gains(dim: int) -> Gained:
    """A NumPyro model."""
    numbers = normal("normals", dim + 1, dim)
    return Gained(numbers[1:], numbers[:1], log_uniform("noise", 0.1, 2.0))


def least_risk(instance: Gained, *, noises: float = 1.0) -> Comparison:
    """L11: the true covariance against spherical ones; a mutant adds the noise twice."""
    dim, noise = len(instance.root), instance.noise
    covariance = instance.root @ instance.root.T / dim + 0.05 * jnp.eye(dim)

    def gain(covariance: Array, noise: Array) -> Array:
        def estimate(y: Array) -> Array:
            return local_map(jnp.zeros(dim), covariance, MatrixOperator(instance.matrix), y, noise)

        return jax.jacfwd(estimate)(jnp.zeros(1))

    def risk(gain: Array) -> Array:
        return affine_risk(gain, covariance, instance.matrix, noise)

    best = risk(gain(covariance, noise * jnp.sqrt(noises)))
    middle = jnp.trace(covariance) / dim
    grid = middle * jnp.exp(jnp.linspace(-3, 3, 13))
    others = jax.vmap(lambda variance: risk(gain(variance * jnp.eye(dim), noise)))(grid)
    return at_most(best, others + 1e-12, scale=others)


CLAIMS = (
    Claim(
        name="lmaps/exact_law",
        statement="Gaussian posterior: u' = u (s + k sigma sigma')/(s + sigma^2) + sigma' rho eps",
        source="derived: x0* - mu_y = s/(s + sigma^2) u along eigenvectors; k = sqrt(1 - rho^2)",
        families={"Gaussian": chains},
        conclusion=exact_law,
        assumptions=is_chain,
        sizes={"dim": st.sampled_from([1, 2]), "levels": st.just(3)},
        typical={"dim": 2, "levels": 3},
        tightness="tight",
        samples=500,
        rungs=("explore", "sample"),
        mutants={
            "noise of the level that is left": {"method": wrong_level},
            "x/sigma instead of (x - x0)/sigma": {"method": wrong_noise},
        },
    ),
    Claim(
        name="lmaps/under_dispersion",
        statement="Gaussian posterior: Cov(x0*) <= Sigma_y for every schedule and every rho",
        source="derived: (s + k v t)^2 <= (s + k^2 t^2)(s + v^2), so that Var u <= s + sigma^2",
        families={"schedules": schedules},
        conclusion=under_dispersion,
        assumptions=is_schedule,
        sizes={"levels": st.sampled_from([1, 4])},
        typical={"levels": 3},
        exact=exact_spread,
        samples=1000,
        restarts=8,
        mutants={"all of the old noise is kept": {"fresh": 0.0}},
    ),
    Claim(
        name="lmaps/spread_limit",
        statement="slow schedules: Var(x0*)/s -> (1 + sqrt(1 - rho^2))/2, the gap falls like 1/N",
        source="derived: the fixed point sigma^2 rho^2/(1 - b^2) of Var u, sigma -> 0",
        families={"shares": shares},
        conclusion=limit_gap,
        assumptions=lambda instance: jnp.minimum(instance.rho - 0.2, 1 - instance.rho),
        stochastic=True,
        samples=30,
        rungs=("sample",),
        mutants={"rho instead of its square": {"power": 1.0}},
    ),
    Claim(
        name="lmaps/twice_the_least_error",
        statement="any prior: E|x_s - x0|^2 = 2 E|E[x0 | y] - x0|^2 for a posterior sample x_s",
        source="derived: x_s and x0 are independent and equal in law given y; pairs are enumerated",
        families={"atoms": atoms},
        conclusion=twice,
        assumptions=lambda instance: jnp.minimum(
            jnp.minimum(instance.weights.min(), instance.sigma),
            1e-12 - jnp.abs(instance.weights.sum() - 1),
        ),
        sizes={"count": st.sampled_from([2, 7])},
        typical={"count": 5},
        tightness="tight",
        tolerance=1e4,
        samples=1000,
        rungs=("explore", "sample"),
        mutants={
            "a sharper posterior": {"sharpness": 2.0},
            "scored against the prior's mean": {"centre": 1.0},
        },
    ),
    Claim(
        name="lmaps/least_risk",
        statement="given x, no m + B(y - Hm) has less risk than B = S H'(H S H' + sigma_y^2 I)^-1",
        source="derived: the linear estimate of least mean squared error",
        families={"covariances": gains},
        conclusion=least_risk,
        assumptions=lambda instance: instance.noise,
        sizes={"dim": st.sampled_from([1, 3])},
        typical={"dim": 2},
        samples=500,
        rungs=("explore", "sample"),
        mutants={"noise added twice": {"noises": 2.0}},
    ),
)

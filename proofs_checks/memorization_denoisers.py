"""Claims of the paper on the empirical denoiser and the linear one: M9, M10, M11 and M14."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jaxtyping import Array, Float

from jaxlab.claims import Claim, Comparison, at_most, close_to
from jaxlab.diffusion.denoise import score
from jaxlab.diffusion.empirical import empirical_prior
from jaxlab.diffusion.gaussian import fit_gaussian, gaussian_prior
from jaxlab.problems.sites import log_uniform, normal, uniform
from jaxlab.stats.intervals import slope_interval
from jaxlab.stats.quadrature import normal_grid

SIZES = (3.0, 6.0, 12.0, 24.0, 48.0)
"""Noise in units of the data's diameter."""


class Table(NamedTuple):
    """Rows, a level and a noisy signal."""

    rows: Float[Array, "rows dim"]
    sigma: Float[Array, ""]
    x: Float[Array, " dim"]


def table(rows: int, dim: int) -> Table:
    """A NumPyro model; the grid of noise resolves the posterior at these levels."""
    return Table(
        uniform("rows", -1.0, 1.0, rows, dim), log_uniform("sigma", 0.7, 5.0), normal("x", dim)
    )


def is_table(instance: Table) -> Array:
    """Bounded rows that are not all equal, and a positive level."""
    spread = jnp.ptp(instance.rows, axis=0).max()
    return jnp.minimum(jnp.minimum(spread, instance.sigma), 1 - jnp.abs(instance.rows).max())


def grid_of(dim: int) -> tuple[Array, Array]:
    """Noise ``[nodes, dim]`` and its weights: an even grid, which is exact for smooth functions."""
    rule = normal_grid(91, reach=9.0)
    axes = jnp.meshgrid(*[rule.nodes] * dim, indexing="ij")
    weights = jnp.ones(())
    for _ in range(dim):
        weights = jnp.outer(weights, rule.weights).ravel()
    return jnp.stack([axis.ravel() for axis in axes], axis=1), weights


def orthogonality(instance: Table, *, dim: int, away: float = 0.0) -> Comparison:
    """M9: the linear denoiser's excess risk is its distance to the empirical one.

    Held-out signals are rows that moved ``away``.
    """
    memory, linear = empirical_prior(instance.rows), fit_gaussian(instance.rows)
    noise, weights = grid_of(dim)

    def risks(row: Array) -> tuple[Array, Array, Array]:
        def at(z: Array) -> tuple[Array, Array, Array]:
            clean = row + away
            y = clean + instance.sigma * z
            m, g = memory.denoise(y, instance.sigma), linear.denoise(y, instance.sigma)
            return jnp.sum((g - clean) ** 2), jnp.sum((m - clean) ** 2), jnp.sum((m - g) ** 2)

        return jax.vmap(at)(noise)

    total, least, apart = (jnp.mean(part @ weights) for part in jax.vmap(risks)(instance.rows))
    return close_to(total, least + apart, allowance=1e-9, scale=total)


class Replicas(NamedTuple):
    """Several data sets of numbers with a diameter of 1."""

    inner: Float[Array, "replicas inner"]


class Skewed(Replicas):
    """One row is far from the others, so that the third cumulant is not 0."""

    @property
    def rows(self) -> Array:
        """``[replicas, rows]``."""
        ends = jnp.broadcast_to(jnp.array([0.0, 1.0]), (len(self.inner), 2))
        return jnp.concatenate([ends, 0.3 * self.inner], axis=1)


class Symmetric(Replicas):
    """As many rows on one side as on the other: all odd cumulants are 0."""

    @property
    def rows(self) -> Array:
        """``[replicas, rows]``."""
        ends = jnp.broadcast_to(jnp.array([0.0, 1.0]), (len(self.inner), 2))
        return jnp.concatenate([ends, 0.5 - 0.3 * self.inner, 0.5 + 0.3 * self.inner], axis=1)


def skewed() -> Skewed:
    """A NumPyro model."""
    return Skewed(uniform("inner", 0.0, 1.0, 3, 3))


def symmetric() -> Symmetric:
    """A NumPyro model."""
    return Symmetric(uniform("inner", 0.0, 1.0, 3, 3))


def differ(instance: Skewed | Symmetric) -> Array:
    """Data sets differ, so that their interval means something, and have a diameter of 1."""
    spread = jnp.ptp(instance.inner, axis=0).max()
    return jnp.minimum(spread, 1e-12 - jnp.abs(jnp.ptp(instance.rows, axis=1) - 1).max())


def large_noise(
    instance: Skewed | Symmetric, *, power: float = 2.0, uncentred: float = 0.0
) -> Comparison:
    """M10: exponents of the distance to the linear denoiser and to the mean.

    ``power`` is that of the level in the linear denoiser.
    """
    nodes, weights = grid_of(1)
    sigmas = jnp.array(SIZES)

    def distances(numbers: Array) -> tuple[Array, Array]:
        rows = numbers[:, None]
        memory, middle = empirical_prior(rows), jnp.mean(rows, axis=0)
        centre = (1 - uncentred) * middle
        variance = jnp.mean((rows - centre) ** 2)
        # One number needs no eigenvectors.
        linear = gaussian_prior(centre, variance[None, None])

        def at(sigma: Array) -> tuple[Array, Array]:
            def squares(row: Array, z: Array) -> tuple[Array, Array]:
                y = row + sigma * z
                m = memory.denoise(y, sigma)
                g = linear.denoise(y, sigma ** (power / 2))
                return jnp.sum((m - g) ** 2), jnp.sum((m - middle) ** 2)

            over_noise = jax.vmap(squares, in_axes=(None, 0))
            apart, moved = jax.vmap(over_noise, in_axes=(0, None))(rows, nodes)
            return (apart @ weights).mean(), (moved @ weights).mean()

        return jax.vmap(at)(sigmas)

    apart, moved = jax.vmap(distances)(instance.rows)
    expected = -4.0 if isinstance(instance, Skewed) else -6.0
    misses = []
    for values, exponent, allowance in ((apart, expected, 0.3), (moved, -2.0, 0.1)):
        middle, half = slope_interval(sigmas, values)
        misses.append((jnp.abs(middle - exponent) + half) / allowance)
    return at_most(jnp.stack(misses), 1.0)


def tweedie(instance: Table, *, unnormalised: float = 0.0) -> Comparison:
    """M11: the score and its derivative give the mean and the covariance of the rows."""
    prior, (_, sigma, x) = empirical_prior(instance.rows), instance
    dim = len(x)

    def mean(x: Array) -> Array:
        log_mass = prior.log_density(x, sigma) + dim / 2 * jnp.log(2 * jnp.pi * sigma**2)
        return prior.denoise(x, sigma) * jnp.exp(unnormalised * log_mass)

    told = score(mean(x), x, sigma) - jax.grad(prior.log_density)(x, sigma)
    covariance = prior.posterior_covariance(x, sigma)
    jacobian = jax.jacfwd(mean)(x) * sigma**2 - covariance
    deviations = instance.rows - prior.denoise(x, sigma)[None, :]
    weights = prior.posterior_weights(x, sigma)
    direct = (weights[:, None] * deviations).T @ deviations - covariance
    errors = [told * sigma**2, jacobian.ravel(), direct.ravel()]
    return close_to(jnp.concatenate(errors), 0.0, allowance=1e-9)


class Signals(NamedTuple):
    """Signals whose shifts are the data, a level and a noisy signal."""

    signals: Float[Array, "signals dim"]
    sigma: Float[Array, ""]
    x: Float[Array, " dim"]


def signals(dim: int) -> Signals:
    """A NumPyro model."""
    return Signals(normal("signals", 2, dim), log_uniform("sigma", 0.05, 5.0), normal("x", dim))


def vary(instance: Signals) -> Array:
    """Signals are not constant, and the level is positive."""
    return jnp.minimum(jnp.ptp(instance.signals, axis=1).max(), instance.sigma)


def fourier_filter(instance: Signals, *, dim: int, half: float = 0.0) -> Comparison:
    """M14: Wiener's filter by sums over all frequencies; a mutant forgets the mirrored ones."""
    rows = jnp.concatenate([jnp.roll(instance.signals, shift, axis=1) for shift in range(dim)])
    angles = 2 * np.pi * np.outer(np.arange(dim), np.arange(dim)) / dim
    cosines, sines = jnp.asarray(np.cos(angles)), jnp.asarray(np.sin(angles))
    mean = instance.signals.mean()
    centred = instance.signals - mean
    power = ((centred @ cosines) ** 2 + (centred @ sines) ** 2).mean(axis=0) / dim
    gains = power / (power + instance.sigma**2)
    mirrored = np.arange(dim) > dim // 2
    gains = jnp.where(jnp.asarray(mirrored), (1 - half) * gains, gains)
    moved = instance.x - mean
    filtered = cosines @ (gains * (cosines @ moved)) + sines @ (gains * (sines @ moved))
    ours = fit_gaussian(rows).denoise(instance.x, instance.sigma)
    return close_to(ours, mean + filtered / dim, allowance=1e-9, scale=1 + jnp.abs(ours).max())


CLAIMS = (
    Claim(
        name="memorization/orthogonality",
        statement="X from the rows: E|g - X|^2 = E|m - X|^2 + E|m - g|^2, m empirical, g linear",
        source="derived: m is the conditional mean, and g - m a function of the noisy signal",
        families={"table": table},
        conclusion=orthogonality,
        assumptions=is_table,
        sizes={"rows": st.just(4), "dim": st.sampled_from([1, 2])},
        typical={"rows": 4, "dim": 1},
        samples=200,
        rungs=("explore", "sample"),
        tightness="tight",
        mutants={"held-out signals": {"away": 0.3}},
    ),
    Claim(
        name="memorization/nearly_linear",
        statement=(
            "sigma >> diameter: E|m - g|^2 ~ sigma^-4 (sigma^-6 without third cumulants), "
            "E|m - mean|^2 ~ sigma^-2"
        ),
        source="arXiv:2602.17846: near linear at large noise; rates derived: tilted cumulants",
        families={"skewed": skewed, "symmetric": symmetric},
        conclusion=large_noise,
        assumptions=differ,
        samples=50,
        rungs=("explore", "sample"),
        tightness="order",
        mutants={"g with sigma for sigma^2": {"power": 1.0}, "uncentred": {"uncentred": 1.0}},
    ),
    Claim(
        name="memorization/tweedie",
        statement="m = y + sigma^2 grad log p(y), and dm/dy = Cov_w / sigma^2",
        source="derived: Tweedie's formulas (arXiv:2310.06721) for a mixture of points",
        families={"table": table},
        conclusion=tweedie,
        assumptions=is_table,
        sizes={"rows": st.sampled_from([1, 5]), "dim": st.sampled_from([1, 3])},
        typical={"rows": 5, "dim": 3},
        samples=1000,
        rungs=("explore", "sample"),
        tightness="tight",
        mutants={"weights not normalised": {"unnormalised": 1.0}},
    ),
    Claim(
        name="memorization/fourier",
        statement="rows closed under shifts: g is Wiener's filter, gains lam_k/(lam_k + sigma^2)",
        source="arXiv:2602.17846: circulant idealisation; derived: Fourier diagonalises Sigma",
        families={"signals": signals},
        conclusion=fourier_filter,
        assumptions=vary,
        sizes={"dim": st.sampled_from([5, 8])},
        typical={"dim": 8},
        samples=300,
        rungs=("explore", "sample"),
        tightness="tight",
        mutants={"mirrored frequencies forgotten": {"half": 1.0}},
    ),
)

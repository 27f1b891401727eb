"""Claims of the paper on whole trajectories: M13 and M15."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jaxtyping import Array, Float, Int

from jaxlab.claims import Claim, Comparison, Expectation, at_most
from jaxlab.core import run
from jaxlab.data.images import load_images
from jaxlab.diffusion.empirical import EmpiricalPrior, empirical_prior
from jaxlab.diffusion.gaussian import GaussianPrior, gaussian_prior
from jaxlab.diffusion.memorization_copies import distance_ratios, nearest_rows
from jaxlab.diffusion.memorization_shells import ShellRadii, shell_radii
from jaxlab.diffusion.memorization_training import CoverageGated
from jaxlab.diffusion.sample import Sampling, euler, sample, sample_hyper, swap_window
from jaxlab.diffusion.schedule import edm_sigmas
from jaxlab.problems.sites import normal, uniform

NUM_STEPS, NUM_STARTS = 18, 100
LARGEST, SMALLEST = 20.0, 0.01
WINDOWS = {
    # first and last step, whether the population is the base, and the band of the share of copies
    "no swap": (None, False, 0.85, 1.0),
    "large noise, out": ((0, 6), False, 0.8, 1.0),
    "medium noise, out": ((6, 12), False, 0.0, 0.05),
    "small noise, out": ((14, 17), False, 0.8, 1.0),
    "large noise, in": ((0, 6), True, 0.0, 0.1),
    "medium noise, in": ((10, 13), True, 0.1, 1.0),
    "small noise, in": ((14, 17), True, 0.0, 0.1),
}
"""Swaps between the gated learner and the population's denoiser."""


class Corners(NamedTuple):
    """Rows that are far apart, where trajectories start, and directions to look along."""

    rows: Float[Array, "rows dim"]
    starts: Float[Array, "starts dim"]
    directions: Float[Array, "directions dim"]


def far_apart(rows: int, dim: int) -> Corners:
    """A NumPyro model."""
    corners = 2 * jnp.eye(rows, dim) + uniform("shifts", -0.4, 0.4, rows, dim)
    return Corners(corners, LARGEST * normal("starts", 2, dim), normal("directions", 5, dim))


def are_far_apart(instance: Corners) -> Array:
    """Ten times the smallest level at least."""
    gaps = instance.rows[:, None] - instance.rows[None, :]
    squares = jnp.sum(gaps**2, axis=-1) + 100.0 * jnp.eye(len(instance.rows))
    return jnp.sqrt(squares.min()) - 10 * SMALLEST


def copies(instance: Corners, *, steps: int, stopped: float = 0.0) -> Comparison:
    """M13: the last step returns the denoised signal, in the convex hull of the rows, on a row.

    A mutant stops at the smallest level.
    """
    prior = empirical_prior(instance.rows)
    sigmas = edm_sigmas(steps, smallest=SMALLEST, largest=LARGEST, end_at_zero=True)

    def follow(start: Array) -> tuple[Array, Array]:
        problem, hyper = Sampling((prior.denoise,), start), sample_hyper(sigmas)
        path = run(
            euler(), problem, hyper, jax.random.key(0), num_steps=steps,
            trace_fn=lambda state, info: state.x,
        ).trace  # fmt: skip
        end = jnp.where(stopped > 0, path[-2], path[-1])
        return end, prior.denoise(path[-2], sigmas[-2])

    ends, denoised = jax.vmap(follow)(instance.starts)
    beyond = ends @ instance.directions.T - (instance.rows @ instance.directions.T).max(axis=0)
    ratios = distance_ratios(nearest_rows(ends, instance.rows))
    left = jnp.concatenate([jnp.abs(ends - denoised).ravel(), beyond.ravel() - 1e-12, ratios])
    return at_most(
        left, jnp.append(jnp.zeros(len(left) - len(ratios)), jnp.full(len(ratios), 1 / 3))
    )


class Swapped(NamedTuple):
    """A swap, by its number, and where trajectories start."""

    which: Int[Array, ""]
    starts: Float[Array, "starts dim"]


def swapped(key: Array) -> Swapped:
    """A random swap of those above."""
    key_which, key_starts = jax.random.split(key)
    which = jax.random.randint(key_which, (), 0, len(WINDOWS))
    return Swapped(which, LARGEST * jax.random.normal(key_starts, (NUM_STARTS, 64)))


@functools.cache
def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A hundred digits to learn from, and the mean and covariance of the others."""
    pixels = np.random.default_rng(0).permutation(load_images("digits").pixels.reshape(-1, 64))
    others = pixels[100:]
    return pixels[:100], others.mean(axis=0), np.cov(others.T, ddof=0) + 0.02 * np.eye(64)


def priors() -> tuple[EmpiricalPrior, GaussianPrior]:
    """On the training set, and on the others."""
    rows, mean, covariance = digits()
    # Decomposed once, outside of the program that is judged.
    with jax.ensure_compile_time_eval():
        return empirical_prior(jnp.asarray(rows)), gaussian_prior(
            jnp.asarray(mean), jnp.asarray(covariance)
        )


def regimes(
    instance: Swapped, *, key: Array, exchanged: float = 0.0, wide: float = 0.0
) -> Expectation:
    """M15: the share of copies after a swap is in its band.

    Mutants exchange base and donor, or gate by shells that hold everything.
    """
    del key  # instances are fresh draws themselves
    memory, population = priors()
    inner, outer = shell_radii(64, 3.0)
    radii = ShellRadii((1 - wide) * inner, outer * (1 + 1e6 * wide))
    gated = CoverageGated(memory, population.denoise, radii)
    choices, lows, highs = [], [], []
    for window, from_population, low, high in WINDOWS.values():
        base = int(from_population)
        choice = jnp.full(NUM_STEPS, base)
        if window is not None:
            choice = swap_window(NUM_STEPS, *window, base=base, donor=1 - base)
        choices.append(choice)
        lows.append(low)
        highs.append(high)
    choice = jnp.stack(choices)[instance.which]
    choice = jnp.where(exchanged > 0, 1 - choice, choice)
    low, high = jnp.array(lows)[instance.which], jnp.array(highs)[instance.which]
    sigmas = edm_sigmas(NUM_STEPS, smallest=SMALLEST, largest=LARGEST, end_at_zero=True)

    def follow(start: Array) -> Array:
        denoisers = (gated, population.denoise)
        return sample(denoisers, sigmas, start, jax.random.key(0), choice=choice).state.x

    found = nearest_rows(jax.vmap(follow)(instance.starts), jnp.asarray(digits()[0]))
    copied = (distance_ratios(found) < 1 / 3).astype(float)
    # Bands have one end inside of [0, 1].
    above = low > 0
    values, bound = jnp.where(above, 1 - copied, copied), jnp.where(above, 1 - low, high)
    return Expectation(values, bound, jnp.zeros(()), jnp.ones(()))


CLAIMS = (
    Claim(
        name="memorization/last_step",
        statement=(
            "Euler's step to 0 returns D(x, sigma); with the empirical D samples are in the rows' "
            "convex hull and, sigma << distances, on a row"
        ),
        source="derived: x + (0 - sigma)(x - D)/sigma = D, a convex combination of rows",
        families={"far apart": far_apart},
        conclusion=copies,
        assumptions=are_far_apart,
        sizes={"rows": st.just(3), "dim": st.just(3), "steps": st.just(12)},
        typical={"rows": 3, "dim": 3, "steps": 12},
        samples=300,
        rungs=("sample",),
        tightness="tight",
        mutants={"stopping at the smallest level": {"stopped": 1.0}},
    ),
    Claim(
        name="memorization/regimes",
        statement=(
            "gated learner on 100 digits: >= 85% copies; >= 80% with the population at large or "
            "small noise, <= 5% at medium; the other way round copies come from medium noise alone"
        ),
        source="arXiv:2602.17846: three regimes; the learner and its bands are reconstructed",
        families={"swaps": swapped},
        conclusion=regimes,
        assumptions=lambda instance: jnp.isfinite(instance.starts).all(),
        stochastic=True,
        samples=32,
        rungs=("sample",),
        mutants={
            "base and donor exchanged": {"exchanged": 1.0},
            "shells that hold everything": {"wide": 1.0},
        },
    ),
)

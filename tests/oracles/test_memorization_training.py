"""The gated learner, gap training and what judges them, against plain NumPy and closed forms."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.spatial.distance
import scipy.stats

from jaxlab.core import run
from jaxlab.diffusion.edm import edm_loss_weight
from jaxlab.diffusion.empirical import empirical_prior
from jaxlab.diffusion.gaussian import gaussian_prior
from jaxlab.diffusion.learned import Training
from jaxlab.diffusion.memorization_shells import shell_radii
from jaxlab.diffusion.memorization_training import (
    CoverageGated,
    denoising_errors,
    gap_hyper,
    gap_noise,
    gap_training,
    in_shells,
)
from jaxlab.stats.energy import energy_distance

DIM, C = 8, 1.0


def test_the_gate_opens_inside_of_shells_alone():
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(13, DIM))
    queries = rows[generator.integers(13, size=60)] + 0.8 * generator.normal(size=(60, DIM))
    prior, radii = empirical_prior(rows, chunk_size=5), shell_radii(DIM, C)
    gated = CoverageGated(prior, lambda x, sigma: -x * sigma, radii)
    covered = jax.jit(jax.vmap(lambda x: in_shells(prior, x, 0.6, radii)))(queries)
    lengths = np.linalg.norm(queries[:, None] - rows, axis=2) / 0.6
    low, high = np.sqrt(DIM - 2 * np.sqrt(C * DIM)), np.sqrt(DIM + 2 * np.sqrt(C * DIM) + 2 * C)
    expected = ((lengths >= low) & (lengths <= high)).any(axis=1)
    np.testing.assert_array_equal(covered, expected)
    assert 0.2 < expected.mean() < 0.9
    said = jax.jit(jax.vmap(lambda x: gated(x, 0.6)))(queries)
    weights = np.exp(-(lengths**2) / 2)
    copied = weights @ rows / weights.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(said, np.where(expected[:, None], copied, -0.6 * queries), rtol=1e-9)


def test_no_row_of_the_filling_covers_anything():
    rows = jnp.full((3, DIM), -100.0).at[0].set(100.0)
    prior, radii = empirical_prior(rows, chunk_size=2), shell_radii(DIM, C)
    # The filling is a row of zeros at the centre, where no row is.
    x = prior.centre + 1.1 * radii.inner * jnp.eye(DIM)[0]
    assert not in_shells(prior, x, 1.0, radii)


def test_gaps_drop_their_levels_and_keep_a_share():
    low, high, count = 0.2, 0.7, 20_000
    sigma, weight = gap_noise(-1.2, 1.2, low, high, 0.25)(jax.random.key(0), (count,))
    inside = (sigma >= low) & (sigma <= high)
    law = scipy.stats.norm(-1.2, 1.2)
    expected = law.cdf(np.log(high)) - law.cdf(np.log(low))
    error = 5 / np.sqrt(count)
    assert abs(inside.mean() - expected) < error
    assert weight[~inside].min() == 1
    assert abs(weight[inside].mean() - 0.25) < error / np.sqrt(expected)
    assert set(np.unique(weight)) == {0.0, 1.0}
    # Where nothing is left out the levels are the ordinary ones.
    none = gap_noise(-1.2, 1.2, 0.0, 0.0)(jax.random.key(0), (count,))
    np.testing.assert_array_equal(none[0], sigma)
    assert none[1].min() == 1


@functools.cache
def training():
    """A linear network ``F = a u`` on Gaussian data, whose best ``a`` depends on the levels."""
    method = gap_training(
        lambda params, x, noise: params * x, optax.adam(0.02), batch_size=512, decay=0.98
    )
    problem = Training(jnp.zeros(()), jax.random.normal(jax.random.key(1), (4000, 2)) * 2.0)
    return jax.jit(
        lambda hyper: run(method, problem, hyper, jax.random.key(2), num_steps=400).state.average
    )


def best_slope(low, high):
    """The least squares slope over the levels outside of the gap, by a grid of them."""
    log_sigma = np.linspace(-6, 6, 20_001)
    sigma = np.exp(log_sigma)
    density = scipy.stats.norm.pdf(log_sigma) * ((sigma < low) | (sigma > high))
    # D = skip x + out a (in x), for x of variance 4 + sigma^2 and the clean part's variance 4.
    total = sigma**2 + 1
    skip, out, inward = 1 / total, sigma / np.sqrt(total), 1 / np.sqrt(total)
    weight = density * np.asarray(edm_loss_weight(jnp.asarray(sigma), 1.0))
    feature = out * inward
    second = weight * feature**2 * (4 + sigma**2)
    cross = weight * feature * (4 - skip * (4 + sigma**2))
    return cross.sum() / second.sum()


@pytest.mark.parametrize("gap", [(0.0, 0.0), (0.5, 20.0)])
def test_training_descends_the_loss_outside_of_the_gap(gap):
    found = training()(gap_hyper(1.0, gap=gap, mean=0.0, deviation=1.0))
    assert float(found) == pytest.approx(best_slope(*gap), abs=0.03)


def test_the_gap_matters_for_the_answer():
    assert abs(best_slope(0.0, 0.0) - best_slope(0.5, 20.0)) > 0.2


def test_errors_of_the_best_linear_denoiser():
    prior = gaussian_prior(jnp.zeros(3), 4 * jnp.eye(3))
    signals = 2 * jax.random.normal(jax.random.key(1), (5000, 3))
    sigmas = jnp.array([0.5, 3.0])
    errors = jax.jit(
        lambda key: denoising_errors(key, prior.denoise, signals, sigmas, num_noise=2)
    )(jax.random.key(0))
    variances = 4 * np.asarray(sigmas) ** 2 / (4 + np.asarray(sigmas) ** 2)
    np.testing.assert_allclose(errors, 3 * variances, rtol=0.05)


def test_energy_distance_is_that_of_scipy():
    generator = np.random.default_rng(0)
    first, second = generator.normal(size=(40, 1)), generator.normal(size=(30, 1)) + 1
    # SciPy's is the root, in one dimension.
    expected = scipy.stats.energy_distance(first[:, 0], second[:, 0]) ** 2
    found = energy_distance(jnp.asarray(first), jnp.asarray(second))
    np.testing.assert_allclose(found, expected, rtol=1e-10)
    first, second = generator.normal(size=(7, 3)), generator.normal(size=(9, 3))
    means = [
        scipy.spatial.distance.cdist(a, b).mean()
        for a, b in ((first, second), (first, first), (second, second))
    ]
    found = energy_distance(jnp.asarray(first), jnp.asarray(second))
    np.testing.assert_allclose(found, 2 * means[0] - means[1] - means[2], rtol=1e-10)

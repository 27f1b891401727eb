"""The two curves and their bounds against plain NumPy, SciPy and closed forms."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from jaxlab.data.images import load_images
from jaxlab.diffusion.memorization import (
    concentration_of,
    coverage_of,
    danger_zone,
    max_posterior_weight,
    shell_coverage,
    zone_ends,
)
from jaxlab.diffusion.memorization_bounds import (
    capacity_level,
    coverage_level,
    posterior_weight_bounds,
    shell_coverage_bounds,
    spectrum,
)
from jaxlab.diffusion.memorization_copies import (
    distance_ratios,
    memorization_ratio,
    merge_nearest,
    nearest_rows,
)
from jaxlab.diffusion.memorization_neighbours import no_neighbours, noisy_queries, observe_rows
from jaxlab.diffusion.memorization_shells import shell_probability, shell_radii

DIM, C = 12, 2.0
SIGMAS = jnp.array([3.0, 0.1, 0.7])
KEY = jax.random.key(0)


def tables(num_rows=23, num_signals=9):
    generator = np.random.default_rng(1)
    return generator.normal(size=(num_rows, DIM)), generator.normal(size=(num_signals, DIM))


@functools.cache
def seen(num_noise, chunk_size, blocks=(23,)):
    rows, signals = map(jnp.asarray, tables())
    queries = noisy_queries(KEY, signals, num_noise=num_noise)
    found = no_neighbours(queries, SIGMAS)
    meet = jax.jit(observe_rows, static_argnames="chunk_size")
    first = 0
    for size in blocks:
        block, radii = rows[first : first + size], shell_radii(DIM, C)
        found = meet(found, queries, SIGMAS, block, radii=radii, chunk_size=chunk_size)
        first += size
    return queries, found


@pytest.mark.parametrize(("chunk_size", "blocks"), [(1000, (23,)), (4, (10, 13))])
def test_neighbours_are_those_of_numpy(chunk_size, blocks):
    (signals, noise), found = seen(2, chunk_size, blocks)
    rows, _ = tables()
    queries = np.asarray(signals) + np.asarray(SIGMAS)[:, None, None] * np.asarray(noise)
    squares = ((queries[:, :, None] - rows) ** 2).sum(axis=-1)
    scaled = np.exp(-squares / (2 * np.asarray(SIGMAS)[:, None, None] ** 2))
    lengths = np.sqrt(squares) / np.asarray(SIGMAS)[:, None, None]
    low, high = np.sqrt(DIM - 2 * np.sqrt(C * DIM)), np.sqrt(DIM + 2 * np.sqrt(C * DIM) + 2 * C)
    np.testing.assert_allclose(found.nearest, squares.min(axis=2), rtol=1e-12)
    np.testing.assert_array_equal(found.row, squares.argmin(axis=2))
    covered = ((lengths >= low) & (lengths <= high)).any(axis=2)
    np.testing.assert_array_equal(found.covered, covered)
    assert 0.2 < covered.mean() < 0.8
    known = scaled.sum(axis=2) > 1e-290  # below, NumPy's own sum underflows
    expected = scaled.sum(axis=2) / scaled.max(axis=2, initial=1e-300)
    np.testing.assert_allclose(found.total[known], expected[known], rtol=1e-9)
    assert found.num_rows == 23


def test_means_and_errors_are_over_signals():
    _, found = seen(2, 1000)
    share = np.asarray(found.covered).reshape(3, 9, 2).mean(axis=2)
    curve = coverage_of(found, num_noise=2)
    np.testing.assert_allclose(curve.share, share.mean(axis=1))
    np.testing.assert_allclose(curve.error, scipy.stats.sem(share, axis=1))
    own = np.arange(9)
    curve = concentration_of(found, jnp.asarray(own), num_noise=2)
    hits = np.asarray(found.row) == np.repeat(own, 2)
    np.testing.assert_allclose(curve.identified, hits.mean(axis=1))
    weights = (1 / np.asarray(found.total)).reshape(3, 9, 2).mean(axis=2)
    np.testing.assert_allclose(curve.weight, weights.mean(axis=1))
    np.testing.assert_allclose(curve.weight_error, scipy.stats.sem(weights, axis=1))


def test_two_rows_are_told_apart_like_two_hypotheses():
    rows = jnp.array([[0.3, -0.4, 0.0], [0.9, 0.4, 0.0]])  # at distance 1
    sigmas = jnp.array([0.2, 0.5, 2.0])
    curve = jax.jit(functools.partial(max_posterior_weight, num_noise=20_000))(KEY, rows, sigmas)
    expected = scipy.stats.norm.cdf(1 / (2 * np.asarray(sigmas)))
    # Two rows are two signals: the error over them says nothing, that over noise is below this.
    np.testing.assert_allclose(curve.weight, expected, atol=5 * 0.5 / np.sqrt(40_000))
    np.testing.assert_allclose(curve.identified, expected, atol=5 * 0.5 / np.sqrt(40_000))


@functools.cache
def digits():
    pixels = load_images("digits").pixels.reshape(-1, 64)
    mixed = np.random.default_rng(0).permutation(pixels)
    return mixed[:500], mixed[500:1000]


def test_digits_have_a_danger_zone_around_half():
    data, held_out = map(jnp.asarray, digits())
    sigmas = jnp.array([0.2, 0.3, 0.5, 0.7, 1.0, 2.0])
    weights = jax.jit(functools.partial(max_posterior_weight, num_signals=250, num_noise=2))
    shares = jax.jit(functools.partial(shell_coverage, num_noise=2))
    concentration = weights(KEY, data, sigmas)
    coverage = shares(KEY, held_out, data, sigmas, 3.0)
    # Of another program, on another half of the digits.
    np.testing.assert_allclose(
        concentration.weight, [1.0, 0.999, 0.967, 0.849, 0.572, 0.120], atol=0.04
    )
    np.testing.assert_allclose(
        coverage.share, [0.021, 0.217, 0.833, 0.972, 0.993, 0.998], atol=0.05
    )
    gap = np.abs(concentration.weight - concentration.identified)
    assert (gap <= 4 * np.hypot(concentration.weight_error, concentration.identified_error)).all()
    zone = danger_zone(concentration.weight, coverage.share)
    assert [float(end) for end in zone_ends(sigmas, zone)] == [0.5, 0.7]


@pytest.mark.parametrize(("dim", "c"), [(3, 0.7), (64, 3.0), (3072, 5.0)])
def test_shell_probabilities_are_those_of_scipy(dim, c):
    low, high = (float(radius) ** 2 for radius in shell_radii(dim, c))
    places = np.array([1e-6, 0.1, 1.0, 5.0, 20.0, 100.0, 300.0, 1e3, 1e5, 1e12]) * dim / 64
    expected = scipy.stats.ncx2.cdf(high, dim, places) - scipy.stats.ncx2.cdf(low, dim, places)
    ours = shell_probability(jnp.asarray(places), dim, c)
    np.testing.assert_allclose(ours, expected, atol=1e-11)
    own = float(scipy.stats.chi2.cdf(high, dim) - scipy.stats.chi2.cdf(low, dim))
    np.testing.assert_allclose(shell_probability(jnp.zeros(()), dim, c), own, rtol=1e-12)
    assert own >= 1 - 2 * np.exp(-c)
    if dim == 3072:
        assert round(own, 6) == 0.998746


def test_a_traced_width_gives_the_same_sum():
    traced = jax.jit(lambda c: shell_probability(jnp.array([0.5, 9.0]), 8, c))(1.5)
    np.testing.assert_allclose(traced, shell_probability(jnp.array([0.5, 9.0]), 8, 1.5), rtol=1e-12)
    assert shell_probability(jnp.array(jnp.inf), 8, 1.5) == 0


def test_bounds_are_those_of_numpy():
    rows, signals = tables()
    bounds = posterior_weight_bounds(jnp.asarray(rows), SIGMAS, chunk_size=7)
    squares = ((rows[:, None] - rows) ** 2).sum(axis=-1)
    for i, sigma in enumerate(np.asarray(SIGMAS)):
        lower = 1 - (np.exp(-squares / (8 * sigma**2)).sum() - 23) / 46
        covariance = np.cov(rows.T, ddof=0)
        logdet = np.linalg.slogdet(np.eye(DIM) + covariance / sigma**2)[1]
        np.testing.assert_allclose(bounds.lower[i], max(lower, 1 / 23), rtol=1e-10)
        upper = min(1, (logdet / 2 + np.log(2)) / np.log(23))
        np.testing.assert_allclose(bounds.upper[i], upper, rtol=1e-12)
    bounds = shell_coverage_bounds(jnp.asarray(signals), jnp.asarray(rows), SIGMAS, C, chunk_size=7)
    squares = ((signals[:, None] - rows) ** 2).sum(axis=-1)
    low, high = (float(radius) ** 2 for radius in shell_radii(DIM, C))
    for i, sigma in enumerate(np.asarray(SIGMAS)):
        law = scipy.stats.ncx2(DIM, squares / sigma**2)
        reached = law.cdf(high) - law.cdf(low)
        np.testing.assert_allclose(bounds.lower[i], reached.max(axis=1).mean(), atol=1e-12)
        upper = np.minimum(reached.sum(axis=1), 1).mean()
        np.testing.assert_allclose(bounds.upper[i], upper, atol=1e-12)


@pytest.mark.parametrize("shape", [(5, 9), (9, 5)])
def test_the_spectrum_is_that_of_the_covariance(shape):
    table = np.random.default_rng(2).normal(size=shape)
    expected = np.linalg.eigvalsh(np.cov(table.T, ddof=0))[-min(shape) :]
    np.testing.assert_allclose(spectrum(jnp.asarray(table)), np.maximum(expected, 0), atol=1e-14)


def test_scales():
    level = capacity_level(2.0 * jnp.ones(3), 100)
    np.testing.assert_allclose(level, np.sqrt(2 / (100 ** (2 / 3) - 1)), rtol=1e-12)
    eigenvalues = jnp.array([0.0, 0.5, 7.0])
    ratios = np.asarray(eigenvalues) / float(capacity_level(eigenvalues, 1000)) ** 2
    np.testing.assert_allclose(np.log1p(ratios).sum() / 2, np.log(1000), rtol=1e-12)
    # There the mean of the noncentral chi-squared is the square of the outer radius.
    sigma = coverage_level(jnp.array(3.0), 20, 2.5)
    assert float(20 + 9 / sigma**2) == pytest.approx(20 + 2 * np.sqrt(50) + 5, rel=1e-12)


@pytest.mark.parametrize(("dtype", "chunk_size"), [(np.float32, 1000), (np.float64, 5)])
def test_two_nearest_rows_are_those_of_numpy(dtype, chunk_size):
    rows, samples = (table.astype(dtype) for table in tables())
    samples[0] = rows[17]
    distances = np.linalg.norm(samples[:, None] - rows, axis=2)
    found = nearest_rows(jnp.asarray(samples), jnp.asarray(rows), chunk_size=chunk_size)
    halves = [
        nearest_rows(jnp.asarray(samples), jnp.asarray(part), chunk_size=chunk_size)
        for part in (rows[:6], rows[6:])
    ]
    eps = float(np.finfo(dtype).eps)
    for ours in (found, merge_nearest(*halves)):
        ordered = np.sort(distances, axis=1)
        np.testing.assert_allclose(ours.first, ordered[:, 0], rtol=8 * eps, atol=8 * eps)
        np.testing.assert_allclose(ours.second, ordered[:, 1], rtol=8 * eps)
        np.testing.assert_array_equal(ours.row, distances.argmin(axis=1))
        assert ours.num_rows == 23
    np.testing.assert_allclose(
        distance_ratios(found), ordered[:, 0] / ordered[:, 1], rtol=16 * eps, atol=16 * eps
    )
    expected = (ordered[:, 0] < 0.8 * ordered[:, 1]).mean()
    ours = memorization_ratio(jnp.asarray(samples), jnp.asarray(rows), ratio=0.8)
    np.testing.assert_allclose(ours, expected, rtol=4 * eps)
    assert 0 < expected < 1


def test_a_repeated_row_is_a_copy_all_the_same():
    found = nearest_rows(jnp.zeros((1, 2)), jnp.zeros((3, 2)))
    assert distance_ratios(found).tolist() == [0.0]

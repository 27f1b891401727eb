"""Exact denoisers against quadrature, SciPy, scikit-learn and plain NumPy."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.special
import scipy.stats
from sklearn.mixture import GaussianMixture

from jaxlab.data.images import load_images
from jaxlab.diffusion.denoise import (
    score,
    tweedie_covariance,
    tweedie_diagonal,
    tweedie_product,
    tweedie_trace,
)
from jaxlab.diffusion.empirical import empirical_prior
from jaxlab.diffusion.gaussian import fit_gaussian, flow_map, gaussian_prior
from jaxlab.diffusion.mixture import fit_mixture, mixture_prior

EPS = float(np.finfo(np.float64).eps)
DIM, NUM_COMPONENTS, NUM_ROWS = 4, 3, 23
LEVELS = [(0.3, 1.0), (2.0, 1.0), (0.5, 0.7)]
NUM_DRAWS = 20_000


def covariances(generator, count, dim=DIM):
    roots = generator.normal(size=(count, dim, dim))
    return roots @ roots.transpose(0, 2, 1) / dim + 0.1 * np.eye(dim)


def priors():
    generator = np.random.default_rng(3)
    means = 2 * generator.normal(size=(NUM_COMPONENTS, DIM))
    spreads = covariances(generator, NUM_COMPONENTS)
    weights = generator.dirichlet(np.ones(NUM_COMPONENTS))
    rows = generator.normal(size=(NUM_ROWS, DIM))
    row_weights = generator.dirichlet(np.ones(NUM_ROWS))
    return {
        "gaussian": gaussian_prior(jnp.asarray(means[0]), jnp.asarray(spreads[0])),
        "mixture": mixture_prior(*map(jnp.asarray, (weights, means, spreads))),
        "empirical": empirical_prior(rows, jnp.asarray(row_weights), chunk_size=5),
    }


PRIORS = priors()
X = jnp.array([0.4, -1.0, 0.2, 1.5])
every_prior = pytest.mark.parametrize("name", PRIORS)
every_level = pytest.mark.parametrize(("sigma", "alpha"), LEVELS)


# One dimension, by quadrature ------------------------------------------------------------------

WEIGHTS, MEANS, SPREADS = np.array([0.7, 0.3]), np.array([-1.0, 2.0]), np.array([0.25, 0.6])


@jax.jit
def moments_and_density(prior, *at):
    return prior.denoise(*at), prior.posterior_covariance(*at), prior.log_density(*at)


def density(x0):
    return WEIGHTS @ scipy.stats.norm.pdf(x0, MEANS, np.sqrt(SPREADS))


@every_level
@pytest.mark.parametrize("x", [-2.5, 0.3, 1.0])
def test_posterior_moments_are_those_of_quadrature(x, sigma, alpha):
    prior = mixture_prior(
        jnp.asarray(WEIGHTS), jnp.asarray(MEANS)[:, None], jnp.asarray(SPREADS)[:, None, None]
    )

    def integral(power):
        return scipy.integrate.quad(
            lambda x0: x0**power * density(x0) * scipy.stats.norm.pdf(x, alpha * x0, sigma),
            -12, 12, points=(-1.0, 2.0, x / alpha), epsabs=1e-13, epsrel=1e-12, limit=200,
        )[0]  # fmt: skip

    total, first, second = (integral(power) for power in range(3))
    ours = moments_and_density(prior, jnp.array([x]), sigma, alpha)
    mean, variance = first / total, second / total - (first / total) ** 2
    np.testing.assert_allclose(ours[0][0], mean, rtol=1e-9)
    np.testing.assert_allclose(ours[1][0, 0], variance, rtol=1e-8)
    np.testing.assert_allclose(ours[2], np.log(total), rtol=1e-9, atol=1e-10)


# Densities -------------------------------------------------------------------------------------


@every_level
def test_the_gaussian_density_is_that_of_scipy(sigma, alpha):
    prior = PRIORS["gaussian"]
    noisy = alpha**2 * np.asarray(prior.covariance) + sigma**2 * np.eye(DIM)
    expected = scipy.stats.multivariate_normal(alpha * np.asarray(prior.mean), noisy).logpdf(X)
    np.testing.assert_allclose(prior.log_density(X, sigma, alpha), expected, rtol=1e-12)


def test_the_clean_mixture_density_is_that_of_scikit_learn():
    pixels = load_images("digits").pixels.reshape(-1, 64)[:600, 20:28]
    model = GaussianMixture(3, reg_covar=1e-2, random_state=0).fit(pixels)
    prior = mixture_prior(*map(jnp.asarray, (model.weights_, model.means_, model.covariances_)))
    ours = jax.jit(jax.vmap(lambda x: prior.log_density(x, 0.0)))(jnp.asarray(pixels[:50]))
    np.testing.assert_allclose(ours, model.score_samples(pixels[:50]), rtol=1e-9)
    shares = jax.jit(jax.vmap(lambda x: prior.responsibilities(x, 1e-6)))(jnp.asarray(pixels[:50]))
    np.testing.assert_allclose(shares, model.predict_proba(pixels[:50]), atol=1e-6)


def test_moments_of_the_mixture_are_those_of_its_parts():
    prior = PRIORS["mixture"]
    weights, means = np.exp(prior.log_weights), np.asarray(prior.components.mean)
    second = sum(
        w * (np.asarray(jax.tree.map(lambda leaf, k=k: leaf[k], prior.components).covariance)
             + np.outer(means[k], means[k]))
        for k, w in enumerate(weights)
    )  # fmt: skip
    np.testing.assert_allclose(prior.mean, weights @ means, rtol=1e-12)
    expected = second - np.outer(weights @ means, weights @ means)
    np.testing.assert_allclose(prior.covariance, expected, atol=1e-12)


# Tweedie ---------------------------------------------------------------------------------------


@functools.cache
def tweedie_of(name):
    """By the formulas and by derivatives, compiled once for all levels."""

    @jax.jit
    def both(x, sigma, alpha):
        prior = PRIORS[name]

        def denoise(x, sigma):
            return prior.denoise(x, sigma, alpha)

        exact = jax.grad(prior.log_density)(x, sigma, alpha)
        return (
            exact - score(denoise(x, sigma), x, sigma, alpha),
            prior.posterior_covariance(x, sigma, alpha),
            tweedie_covariance(denoise, x, sigma, alpha),
            jax.jacrev(denoise)(x, sigma) * sigma**2 / alpha,
        )

    return both


@every_level
@every_prior
def test_tweedie_gives_score_and_covariance(name, sigma, alpha):
    gap, exact, forward, reverse = tweedie_of(name)(X, sigma, alpha)
    np.testing.assert_allclose(gap, 0, atol=1e-11)
    for ours in (forward, reverse):
        np.testing.assert_allclose(ours, exact, atol=1e-11 * np.abs(exact).max())
    assert np.linalg.eigvalsh(exact).min() > 0


def test_two_far_modes_exceed_the_flat_bound():
    """By hand: variance .01/1.01 inside and (2/1.01)^2 between, against sigma^2 = 1."""
    prior = mixture_prior(
        jnp.array([0.5, 0.5]), jnp.array([[-2.0], [2.0]]), jnp.full((2, 1, 1), 0.01)
    )
    ratio = float(moments_and_density(prior, jnp.zeros(1), 1.0, 1.0)[1][0, 0])
    assert abs(ratio - (0.01 / 1.01 + (2 / 1.01) ** 2)) < 1e-12


def test_the_jacobian_of_an_inexact_denoiser_is_not_transposed():
    matrix = jnp.array([[1.0, 2.0], [0.0, 3.0]])
    ours = tweedie_covariance(lambda x, sigma: matrix @ x, jnp.ones(2), 2.0, 0.5)
    np.testing.assert_array_equal(ours, 8 * matrix)
    along = tweedie_product(
        lambda x, sigma: matrix @ x, jnp.ones(2), 2.0, jnp.array([0.0, 1.0]), 0.5
    )
    np.testing.assert_array_equal(along, 8 * matrix[:, 1])


def test_hutchinson_is_unbiased_with_the_stated_variance():
    prior, sigma, num_probes = PRIORS["gaussian"], 0.7, 4096
    exact = np.asarray(prior.posterior_covariance(X, sigma))
    off = exact - np.diag(np.diag(exact))
    error = np.sqrt((off**2).sum(axis=1) / num_probes)
    key = jax.random.key(2)

    @jax.jit
    def estimates(key):
        at = (key, prior.denoise, X, sigma)
        single = tweedie_diagonal(*at, num_probes=1)
        many = [rule(*at, num_probes=num_probes) for rule in (tweedie_diagonal, tweedie_trace)]
        return *many, single

    diagonal, trace, single = estimates(key)
    assert (np.abs(diagonal - np.diag(exact)) < 5 * error).all()
    assert abs(trace - np.trace(exact)) < 5 * np.sqrt(2 * (off**2).sum() / num_probes)
    # A single probe errs by about its standard deviation: the estimate is not exact by accident.
    assert np.abs(single - np.diag(exact)).max() > error.max()


# Empirical -------------------------------------------------------------------------------------


def brute_force(rows, weights, x, sigma, alpha=1.0):
    """Posterior weights, mean, covariance and log density with every difference materialised."""
    squares = ((x[:, None, :] - alpha * rows[None]) ** 2).sum(axis=2)
    with np.errstate(divide="ignore"):
        joint = np.log(weights)[None] - squares / (2 * sigma**2)
    shares = scipy.special.softmax(joint, axis=1)
    mean = shares @ rows
    deviations = rows[None] - mean[:, None]
    covariance = np.einsum("qn,qni,qnj->qij", shares, deviations, deviations)
    constant = rows.shape[1] / 2 * np.log(2 * np.pi * sigma**2)
    return shares, mean, covariance, scipy.special.logsumexp(joint, axis=1) - constant


@pytest.mark.parametrize("chunk_size", [1, 7, 100])
def test_chunks_equal_brute_force(chunk_size):
    generator = np.random.default_rng(5)
    rows = generator.normal(size=(NUM_ROWS, DIM)) + 3
    weights = generator.dirichlet(np.ones(NUM_ROWS))
    weights[4] = 0.0
    weights /= weights.sum()
    queries = rows[:6] + generator.normal(size=(6, DIM))
    prior = empirical_prior(rows, jnp.asarray(weights), chunk_size=chunk_size)

    @jax.jit
    def ours(queries, sigma, alpha):
        def one(x):
            at = (x, sigma, alpha)
            shares, mean = prior.posterior_weights(*at), prior.denoise(*at)
            parts = shares, mean, prior.posterior_covariance(*at), prior.log_density(*at)
            return parts, prior.largest_weight(*at)

        return jax.vmap(one)(queries)

    for sigma, alpha in ((0.9, 0.8), (0.05, 1.0)):
        parts, largest = ours(jnp.asarray(queries), sigma, alpha)
        expected = brute_force(rows, weights, queries, sigma, alpha)
        for mine, theirs in zip(parts, expected, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(largest, expected[0].max(axis=1), rtol=1e-9)


def test_equal_weights_are_the_default():
    rows = np.random.default_rng(6).normal(size=(NUM_ROWS, DIM))
    expected = brute_force(rows, np.full(NUM_ROWS, 1 / NUM_ROWS), np.asarray(X)[None], 0.8)
    prior = empirical_prior(rows)
    np.testing.assert_allclose(prior.denoise(X, 0.8), expected[1][0], rtol=1e-12)
    np.testing.assert_allclose(prior.log_density(X, 0.8), expected[3][0], rtol=1e-12)


@jax.jit
def denoised(denoise, queries, sigma):
    return jax.vmap(lambda x: denoise(x, sigma))(queries)


@pytest.mark.parametrize(("offset", "sigma"), [(0.0, 0.02), (100.0, 0.5), (0.0, 50.0)])
def test_float32_is_as_good_as_its_input(offset, sigma):
    generator = np.random.default_rng(7)
    pixels = load_images("digits").pixels[:300].reshape(-1, 64)[:, 16:32]
    rows = (pixels + offset).astype(np.float32)
    queries = (rows[:20] + sigma * generator.normal(size=(20, 16))).astype(np.float32)
    prior = empirical_prior(jnp.asarray(rows), chunk_size=64)
    ours = denoised(prior.denoise, jnp.asarray(queries), jnp.float32(sigma))
    assert ours.dtype == jnp.float32
    weights = np.full(300, 1 / 300)
    exact = brute_force(rows.astype(float), weights, queries.astype(float), sigma)[1]
    # Two units in the last place of the answer. Without centring, the offset alone would move the
    # exponents by 16 * 100**2 * eps / 0.25, some percent of the weights.
    assert np.abs(ours - exact).max() < 4 * np.finfo(np.float32).eps * np.abs(exact).max()


def memory(function, prior, queries):
    return jax.jit(function).lower(prior, queries).compile().memory_analysis().temp_size_in_bytes


def test_memory_does_not_grow_with_the_rows():
    generator = np.random.default_rng(8)
    queries = jnp.asarray(generator.normal(size=(64, 8)), jnp.float32)

    def denoise(prior, queries):
        return jax.vmap(lambda x: prior.denoise(x, 0.5))(queries)

    def total(prior, queries):
        return jax.grad(lambda queries: denoise(prior, queries).sum())(queries)

    used = {}
    for count in (2048, 16_384):
        rows = jnp.asarray(generator.normal(size=(count, 8)), jnp.float32)
        prior = empirical_prior(rows, chunk_size=512)
        used[count] = memory(denoise, prior, queries), memory(total, prior, queries)
    small, large = used[2048], used[16_384]
    assert large[0] <= small[0] + 1024  # a loop's counters
    assert large[0] < 3 * 64 * 512 * 4  # some copies of [queries, chunk_size]
    # Derivatives keep the running sums of every chunk, but no [queries, rows].
    assert large[1] < 64 * 16_384 * 4 / 2


# Samples and fits ------------------------------------------------------------------------------


@every_prior
def test_samples_have_the_moments_of_the_prior(name):
    prior = PRIORS[name]
    draws = np.asarray(
        jax.jit(jax.vmap(prior.sample))(jax.random.split(jax.random.key(4), NUM_DRAWS))
    )
    if name == "empirical":
        rows = np.asarray(prior.centre[None] + prior.rows.reshape(-1, DIM)[:NUM_ROWS])
        weights = np.exp(np.asarray(prior.log_weights).reshape(-1)[:NUM_ROWS])
        mean = weights @ rows
        covariance = (rows - mean).T @ (weights[:, None] * (rows - mean))
        assert np.abs(draws[:50, None] - rows[None]).max(axis=2).min(axis=1).max() < 8 * EPS * 4
    else:
        mean, covariance = np.asarray(prior.mean), np.asarray(prior.covariance)
    error = np.sqrt(np.diag(covariance) / NUM_DRAWS)
    assert (np.abs(draws.mean(axis=0) - mean) < 5 * error).all()
    products = (draws - mean)[:, :, None] * (draws - mean)[:, None, :]
    error = products.std(axis=0) / np.sqrt(NUM_DRAWS)
    assert (np.abs(products.mean(axis=0) - covariance) < 5 * error).all()


def test_a_fitted_gaussian_is_that_of_numpy():
    rows = np.random.default_rng(1).normal(size=(30, DIM)) @ np.diag([1.0, 2.0, 0.5, 0.0])
    prior = fit_gaussian(jnp.asarray(rows))
    np.testing.assert_allclose(prior.mean, rows.mean(axis=0), atol=1e-13)
    np.testing.assert_allclose(prior.covariance, np.cov(rows.T, bias=True), atol=1e-13)
    assert np.isfinite(prior.denoise(X, 1e-3)).all()  # the covariance is singular


def test_em_finds_blobs():
    generator = np.random.default_rng(2)
    blobs = [
        generator.normal(size=(count, 2)) @ np.diag([0.3, 0.1]) + centre
        for count, centre in ((60, [-3.0, 0.0]), (40, [3.0, 1.0]))
    ]
    prior = fit_mixture(jax.random.key(0), np.concatenate(blobs), 2, ridge=1e-9)
    order = np.argsort(prior.components.mean[:, 0])
    for k, blob in zip(order, blobs, strict=True):
        part = jax.tree.map(lambda leaf, k=k: leaf[k], prior.components)
        np.testing.assert_allclose(np.exp(prior.log_weights[k]), len(blob) / 100, atol=1e-6)
        np.testing.assert_allclose(part.mean, blob.mean(axis=0), atol=1e-6)
        np.testing.assert_allclose(part.covariance, np.cov(blob.T, bias=True), atol=1e-6)


def test_the_flow_is_that_of_an_ode_solver():
    prior = PRIORS["gaussian"]
    slope = jax.jit(lambda sigma, x: (x - prior.denoise(x, sigma)) / sigma)
    solved = scipy.integrate.solve_ivp(slope, (3.0, 0.1), np.asarray(X), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(flow_map(prior, X, 3.0, 0.1), solved.y[:, -1], rtol=1e-7)


@every_prior
def test_denoisers_pass_through_jit_as_arguments(name):
    prior = PRIORS[name]
    traces = 0

    @jax.jit
    def call(denoise, x, sigma):
        nonlocal traces
        traces += 1
        return denoise(x, sigma)

    first = call(prior.denoise, X, 1.0)
    np.testing.assert_allclose(first, prior.denoise(X, 1.0), rtol=1e-12)
    moved = jax.tree.map(lambda leaf: leaf * 1.0, prior)
    call(moved.denoise, X, 2.0)
    assert traces == 1

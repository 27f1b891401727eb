"""Posteriors of Gaussian mixtures under linear measurements, against quadrature and Bayes."""

import jax
import jax.numpy as jnp
import numpy as np
import scipy.integrate
import scipy.stats

from jaxlab.diffusion.mixture import (
    condition_mixture,
    mixture_prior,
    posterior_mean,
    posterior_sample,
)

GENERATOR = np.random.default_rng(11)
MEASUREMENTS, DIM = 2, 3
MATRIX, Y = GENERATOR.normal(size=(MEASUREMENTS, DIM)), GENERATOR.normal(size=MEASUREMENTS)
MEAN, ROOT = GENERATOR.normal(size=DIM), GENERATOR.normal(size=(DIM, DIM))
COVARIANCE = ROOT @ ROOT.T / DIM + 0.1 * np.eye(DIM)
KEY = jax.random.key(3)

WEIGHTS, MEANS, SPREADS = np.array([0.7, 0.3]), np.array([-1.0, 2.0]), np.array([0.25, 0.6])


def test_the_posterior_in_one_dimension_is_that_of_quadrature():
    prior = mixture_prior(*map(jnp.asarray, (WEIGHTS, MEANS[:, None], SPREADS[:, None, None])))

    def integral(power):
        return scipy.integrate.quad(
            lambda x0: x0**power
            * (WEIGHTS @ scipy.stats.norm.pdf(x0, MEANS, np.sqrt(SPREADS)))
            * scipy.stats.norm.pdf(0.9, 1.5 * x0, 0.8),
            -12, 12, points=(-1.0, 2.0), epsabs=1e-13, epsrel=1e-12, limit=200,
        )[0]  # fmt: skip

    total, first, second = (integral(power) for power in range(3))
    given = (prior, jnp.full((1, 1), 1.5), jnp.array([0.9]), 0.8)
    np.testing.assert_allclose(posterior_mean(*given)[0], first / total, rtol=1e-9)
    after = condition_mixture(*given)
    np.testing.assert_allclose(after.mean[0], first / total, rtol=1e-9)
    variance = second / total - (first / total) ** 2
    np.testing.assert_allclose(after.covariance[0, 0], variance, rtol=1e-8)


def test_posteriors_in_more_dimensions_follow_bayes_and_draws_follow_them():
    spreads = np.stack([COVARIANCE, 0.3 * np.eye(DIM)])
    means = np.stack([MEAN, -MEAN])
    prior = mixture_prior(*map(jnp.asarray, (WEIGHTS, means, spreads)))
    noises = jnp.array([0.3, 1.1])
    after = condition_mixture(prior, jnp.asarray(MATRIX), jnp.asarray(Y), noises)
    points = GENERATOR.normal(size=(6, DIM))

    def joint(x):
        density = WEIGHTS @ [
            scipy.stats.multivariate_normal(m, c).pdf(x)
            for m, c in zip(means, spreads, strict=True)
        ]
        return np.log(density) + scipy.stats.norm.logpdf(Y, MATRIX @ x, noises).sum()

    ours = np.asarray(jax.vmap(lambda x: after.log_density(x, 0.0))(jnp.asarray(points)))
    expected = np.array([joint(x) for x in points])
    np.testing.assert_allclose(ours - ours[0], expected - expected[0], rtol=1e-9)
    count = 40_000
    draw = jax.jit(
        jax.vmap(lambda k: posterior_sample(k, prior, jnp.asarray(MATRIX), jnp.asarray(Y), noises))
    )
    found = np.asarray(draw(jax.random.split(KEY, count)))
    spread = np.asarray(after.covariance)
    errors = np.sqrt(np.diag(spread) / count)
    assert (np.abs(found.mean(axis=0) - after.mean) < 5 * errors).all()
    # Fourth moments of a mixture are below 10 squared variances here.
    scale = np.sqrt(np.outer(np.diag(spread), np.diag(spread)) * 10 / count)
    assert (np.abs(np.cov(found.T) - spread) < 5 * scale).all()

"""Preconditioning and training against the formulas, the Wiener filter and plain averages."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.stats
from flax import nnx

from jaxlab.core import run
from jaxlab.diffusion import edm
from jaxlab.diffusion.gaussian import gaussian_prior
from jaxlab.diffusion.learned import (
    LearnedDenoiser,
    Training,
    TrainingHyper,
    denoiser_training,
    train_denoiser,
)
from jaxlab.diffusion.networks import ConvNetwork, DenseNetwork, split_network

KEY = jax.random.key(0)


@pytest.mark.parametrize("sigma", [0.002, 0.5, 80.0])
def test_preconditioning_is_the_table_s(sigma):
    scale = 0.5
    ours = edm.edm_preconditioning(sigma, scale)
    root = np.sqrt(sigma**2 + scale**2)
    expected = [scale**2 / root**2, sigma * scale / root, 1 / root, np.log(sigma) / 4]
    np.testing.assert_allclose(ours, expected, rtol=1e-12)
    # What the coefficients are for: the network's input and target have variance 1.
    np.testing.assert_allclose(ours.input**2 * (sigma**2 + scale**2), 1)
    left = (1 - ours.skip) ** 2 * scale**2 + ours.skip**2 * sigma**2
    np.testing.assert_allclose(left / ours.output**2, 1)
    weight = (sigma**2 + scale**2) / (sigma * scale) ** 2
    np.testing.assert_allclose(edm.edm_loss_weight(sigma, scale), weight, rtol=1e-12)


def test_noise_levels_are_log_normal():
    sigma, weight = edm.log_normal_noise(-0.7, 1.3)(KEY, (5000,))
    assert scipy.stats.kstest(np.log(sigma), scipy.stats.norm(-0.7, 1.3).cdf).pvalue > 1e-3
    assert (weight == 1).all()


def test_the_best_denoiser_of_white_data_has_loss_one():
    scale, dim, count = 0.5, 8, 4096
    rows = scale * jax.random.normal(jax.random.key(1), (count, dim))

    def wiener(x, sigma):
        return scale**2 / (scale**2 + sigma**2) * x

    loss = jax.jit(lambda k: edm.denoising_loss(wiener, k, rows, edm.log_normal_noise(), scale))
    # A row's loss is a chi-square over its degrees of freedom.
    assert abs(loss(KEY) - 1) < 5 * np.sqrt(2 / dim / count)


def test_rows_of_weight_zero_do_not_count():
    rows = jnp.stack([jnp.ones(3), jnp.full(3, 2.0)])

    @jax.jit
    def loss(weights):
        def two_levels(key, shape):
            return jnp.array([0.5, 1.0]), weights

        return edm.denoising_loss(lambda x, s: jnp.zeros(3), KEY, rows, two_levels, 0.5)

    # (sigma^2 + 1/4) / (sigma / 2)^2 is 8 and 5; the squares are 1 and 4.
    np.testing.assert_allclose(
        [loss(jnp.eye(2)[0]), loss(jnp.eye(2)[1])], [8 / 2, 5 * 4 / 2], rtol=1e-12
    )


@jax.jit
def denoised(denoise, queries, sigma):
    return jax.vmap(lambda x: denoise(x, sigma))(queries)


def test_a_trained_network_is_nearly_the_wiener_filter():
    covariance = jnp.array([[1.0, 0.9], [0.9, 1.0]])
    prior = gaussian_prior(jnp.zeros(2), covariance)
    rows = jax.vmap(prior.sample)(jax.random.split(jax.random.key(1), 4096)).astype(jnp.float32)
    network = DenseNetwork(2, width=32, num_blocks=1, rngs=nnx.Rngs(jax.random.key(2)))
    trained = train_denoiser(
        KEY, network, rows, num_steps=1500, learning_rate=5e-3, decay=0.99,
        noise=edm.log_normal_noise(-0.5, 1.0),
    )  # fmt: skip
    assert trained.losses.shape == (1500,)
    normal = jax.random.normal(jax.random.key(3), rows.shape, rows.dtype)
    for sigma in (0.3, 1.0):
        noisy = rows + sigma * normal
        exact = denoised(prior.denoise, noisy, sigma)
        ours = denoised(trained.denoise, noisy, sigma)
        excess = jnp.square(ours - exact).sum(axis=1).mean()
        risk = jnp.trace(prior.posterior_covariance(jnp.zeros(2), sigma))
        blind = jnp.square(noisy * (1 / (1 + sigma**2)) - exact).sum(axis=1).mean()
        assert excess < 0.03 * risk < 0.5 * blind, (sigma, excess, risk, blind)


def test_the_average_is_that_of_numpy():
    decay = 0.8

    def apply(params, x, noise):
        return params * x

    method = denoiser_training(
        apply, optax.sgd(0.05), batch_size=4, noise=edm.log_normal_noise(), decay=decay
    )
    problem, hyper = Training(jnp.array(0.3), jnp.ones((8, 2))), TrainingHyper(jnp.array(0.5))

    @jax.jit
    def train(key):
        return run(
            method, problem, hyper, key, num_steps=6,
            trace_fn=lambda state, info: (state.params, state.average),
        )  # fmt: skip

    with jax.debug_key_reuse(True):
        done = train(jax.random.key(4))
    params, averages = map(np.asarray, done.trace)
    assert len(np.unique(params)) == 6
    for t in range(6):
        weights = (1 - decay) * decay ** np.arange(t, -1, -1.0)
        np.testing.assert_allclose(averages[t], weights @ params[: t + 1] / weights.sum())


def test_convolutions_start_with_the_skip_alone_and_see_their_neighbours():
    network = ConvNetwork(width=4, num_blocks=1, rngs=nnx.Rngs(jax.random.key(0)))
    apply, params = split_network(network)
    image = np.random.default_rng(0).normal(size=(13, 13)).astype(np.float32)

    @jax.jit
    def denoised_and_influence(params, image):
        denoise = LearnedDenoiser(apply, params, 0.5)
        central = jax.grad(lambda x: apply(params, x, jnp.zeros(()))[6, 6])
        return denoise(image, 1.0), central(image)

    first, _ = denoised_and_influence(params, jnp.asarray(image))
    np.testing.assert_allclose(first, 0.25 / 1.25 * image, rtol=1e-6)
    generator = np.random.default_rng(1)
    params = jax.tree.map(
        lambda leaf: jnp.asarray(leaf + 0.1 * generator.normal(size=leaf.shape), leaf.dtype), params
    )
    influence = np.asarray(denoised_and_influence(params, jnp.asarray(image))[1])
    # Four convolutions of radius 1.
    reach = np.abs(np.arange(13) - 6) <= 4
    assert (influence[~np.outer(reach, reach)] == 0).all()
    assert np.abs(influence[6, 2]) > 0

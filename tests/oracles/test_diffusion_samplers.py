"""Schedules and samplers against closed forms, plain loops and the exact Gaussian flow."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate

from jaxlab.core import Status, run
from jaxlab.diffusion.empirical import empirical_prior
from jaxlab.diffusion.gaussian import flow_map, gaussian_prior
from jaxlab.diffusion.sample import (
    Sampling,
    euler,
    heun,
    renoise,
    sample,
    sample_hyper,
    swap_window,
)
from jaxlab.diffusion.schedule import edm_sigmas, perturb, to_ve, unit_variance_level, vp_level

KEY = jax.random.key(0)
NUM_DRAWS = 20_000
GAUSSIAN = gaussian_prior(jnp.array([0.5, -1.0]), jnp.array([[1.0, 0.6], [0.6, 0.8]]))
ROWS = np.array([[-1.0, 0.5], [1.0, 0.0], [0.3, -1.2], [2.0, 2.0]])
EMPIRICAL = empirical_prior(ROWS)
START = jnp.array([6.0, -3.0])
METHODS = {"euler": euler, "heun": heun}
every_method = pytest.mark.parametrize("name", METHODS)


def test_edm_levels_are_the_formula():
    ours = edm_sigmas(18, smallest=0.002, largest=80.0, end_at_zero=True)
    step = np.arange(18) / 17
    expected = (80 ** (1 / 7) + step * (0.002 ** (1 / 7) - 80 ** (1 / 7))) ** 7
    np.testing.assert_allclose(ours[:-1], expected, rtol=1e-12)
    assert (float(ours[0]), float(ours[-2]), float(ours[-1])) == (80.0, 0.002, 0.0)


@pytest.mark.parametrize("time", [1e-4, 0.3, 1.0])
def test_vp_levels_integrate_the_rate(time):
    total = scipy.integrate.quad(lambda s: 0.1 + s * 19.9, 0, time)[0]
    alpha, sigma = vp_level(time)
    np.testing.assert_allclose([alpha, sigma], [np.exp(-total / 2), np.sqrt(-np.expm1(-total))])
    ratio = sigma / alpha
    np.testing.assert_allclose(unit_variance_level(ratio), [alpha, sigma], rtol=1e-9)
    x = jnp.array([1.0, 2.0])
    np.testing.assert_allclose(to_ve(x, sigma, alpha)[0] * alpha, x)


def test_noise_has_the_level_s_moments():
    x0, sigma, alpha = jnp.array([2.0]), 0.6, 0.8
    keys = jax.random.split(KEY, NUM_DRAWS)
    draws = jax.jit(jax.vmap(lambda key: perturb(key, x0, sigma, alpha)))(keys)
    assert_moments(draws, alpha * x0, sigma**2)


def assert_moments(draws, mean, variance):
    """Mean and variance of normal draws, within 5 standard errors."""
    draws, mean, count = np.asarray(draws), np.asarray(mean), len(draws)
    assert (np.abs(draws.mean(axis=0) - mean) < 5 * np.sqrt(variance / count)).all()
    spread = ((draws - mean) ** 2).mean(axis=0)
    assert (np.abs(spread - variance) < 5 * variance * np.sqrt(2 / count)).all()


@pytest.mark.parametrize(("name", "order"), [("euler", 1), ("heun", 2)])
def test_the_order_of_convergence_is_the_method_s(name, order):
    """The slope of log error against log steps, on the exact flow of a Gaussian prior."""
    exact = flow_map(GAUSSIAN, START, 5.0, 0.1)
    errors = []

    @jax.jit
    def solve(sigmas):
        return sample(GAUSSIAN.denoise, sigmas, START, KEY, method=METHODS[name]()).state.x

    for num_levels in (33, 129):
        sigmas = edm_sigmas(num_levels, smallest=0.1, largest=5.0)
        end = solve(sigmas)
        errors.append(float(np.linalg.norm(end - exact)))
    slope = np.log(errors[0] / errors[1]) / np.log(4)
    # The next term of the error's expansion bends the slope by about an inverse number of steps.
    assert abs(slope - order) < 4 / 32, slope


def softmax_denoise(x, sigma):
    exponents = -((x[None] - ROWS) ** 2).sum(axis=1) / (2 * sigma**2)
    weights = np.exp(exponents - exponents.max())
    return weights @ ROWS / weights.sum()


def wiener_denoise(x, sigma):
    mean, covariance = np.array([0.5, -1.0]), np.array([[1.0, 0.6], [0.6, 0.8]])
    return mean + covariance @ np.linalg.solve(covariance + sigma**2 * np.eye(2), x - mean)


def plain_loop(sigmas, choice, *, second_order):
    denoisers, x, evaluations = (softmax_denoise, wiener_denoise), np.asarray(START), 0
    for sigma, following, index in zip(sigmas[:-1], sigmas[1:], choice, strict=True):
        slope = (x - denoisers[index](x, sigma)) / sigma
        ahead = x + (following - sigma) * slope
        evaluations += 1
        if second_order and following > 0:
            other = (ahead - denoisers[index](ahead, following)) / following
            ahead = x + (following - sigma) * (slope + other) / 2
            evaluations += 1
        x = ahead
    return x, evaluations


SIGMAS = edm_sigmas(7, smallest=0.05, largest=5.0, end_at_zero=True)


@functools.cache
def trajectory(name):
    """Compiled once for the tests that share a grid: base and donor by an index per step."""
    denoisers = (EMPIRICAL.denoise, GAUSSIAN.denoise)
    return jax.jit(
        lambda start, choice: sample(
            denoisers, SIGMAS, start, KEY, method=METHODS[name](), choice=choice
        )
    )


@every_method
def test_swapped_denoisers_equal_a_plain_loop(name):
    # The Gaussian denoiser last: an empirical one would end at the same row whatever came before.
    done = trajectory(name)(START, swap_window(7, 2, 4, base=1, donor=0))
    expected, evaluations = plain_loop(
        np.asarray(SIGMAS), [1, 1, 0, 0, 0, 1, 1], second_order=name == "heun"
    )
    np.testing.assert_allclose(done.state.x, expected, rtol=0, atol=1e-12)
    assert int(done.trace.evaluations.sum()) == evaluations
    assert int(done.status) == Status.OK
    np.testing.assert_array_equal(done.trace.sigma, SIGMAS[1:])


@every_method
def test_the_last_step_returns_the_denoised_signal(name):
    done = trajectory(name)(START, jnp.zeros(7, jnp.int32)).state
    np.testing.assert_array_equal(done.x, done.denoised)
    # At a level far below the rows' distances this is a row: the empirical denoiser copies.
    assert np.abs(np.asarray(done.x)[None] - ROWS).max(axis=1).min() < 1e-12


@every_method
def test_batches_equal_single_trajectories(name):
    starts = jnp.stack([START, -START])
    choices = jnp.stack([swap_window(7, 0, 1), swap_window(7, 3, 4)])
    batch = jax.jit(jax.vmap(trajectory(name)))(starts, choices).state.x
    for i in range(2):
        single = trajectory(name)(starts[i], choices[i]).state.x
        np.testing.assert_allclose(batch[i], single, rtol=0, atol=1e-12)


def test_churn_keeps_the_marginals():
    """With a constant denoiser a step maps N(c, sigma^2) to N(c, sigma_next^2), whatever gamma."""
    point, sigmas = jnp.array([3.0]), jnp.array([2.0, 0.5])

    def one(key):
        key_start, key_churn = jax.random.split(key)
        start = perturb(key_start, point, 2.0)
        return sample(lambda x, sigma: point, sigmas, start, key_churn, churn=0.8).state.x

    assert_moments(jax.jit(jax.vmap(one))(jax.random.split(KEY, NUM_DRAWS)), point, 0.25)
    hyper = sample_hyper(sigmas, churn=0.8, noise_scale=0.0)
    still = run(euler(), Sampling((lambda x, sigma: point,), START[:1]), hyper, KEY, num_steps=1)
    np.testing.assert_allclose(still.state.x, point + 0.5 / 3.6 * (START[:1] - point), rtol=1e-12)


@pytest.mark.parametrize("rho", [0.0, 0.6, 1.0])
def test_renoising_keeps_the_marginals(rho):
    """With the true clean signal as the estimate, the next signal has the next level's law."""
    x0 = jnp.array([1.5])

    def one(key):
        key_now, key_next = jax.random.split(key)
        x = perturb(key_now, x0, 2.0, 0.5)
        return renoise(key_next, x0, x, 2.0, 0.7, rho, 0.5, 0.9)

    assert_moments(jax.jit(jax.vmap(one))(jax.random.split(KEY, NUM_DRAWS)), 0.9 * x0, 0.49)


def test_renoising_without_fresh_noise_is_an_euler_step():
    x, sigma, following = START, 2.0, 0.7
    denoised = jnp.asarray(wiener_denoise(np.asarray(x), sigma))
    take = jax.jit(lambda rho: renoise(KEY, denoised, x, sigma, following, rho))
    np.testing.assert_allclose(
        take(0.0), x + (following - sigma) * (x - denoised) / sigma, rtol=1e-12
    )
    slope = jax.grad(lambda rho: take(rho).sum())(1.0)
    assert np.isfinite(slope)


@every_method
def test_samplers_differentiate(name):
    """Against central differences, and finite at churn 0, where a root has a kink."""
    sigmas, churn = edm_sigmas(4, smallest=0.3, largest=3.0), jnp.zeros(4)

    def loss(sigmas, start, churn):
        problem = Sampling((GAUSSIAN.denoise,), start)
        hyper = sample_hyper(jnp.append(sigmas, 0.0), churn=churn)
        done = run(METHODS[name](), problem, hyper, KEY, num_steps=4)
        return done.state.x @ jnp.array([1.0, -0.3])

    gradient = jax.jit(jax.grad(loss, argnums=(0, 1, 2)))(sigmas, START, churn)
    assert all(np.isfinite(part).all() for part in gradient)
    value, width = jax.jit(loss), 1e-5
    along = (jnp.array([0.3, -1.0, 0.5, 0.2]), jnp.array([1.0, 0.4]))
    high, low = (
        value(sigmas + sign * width * along[0], START + sign * width * along[1], churn)
        for sign in (1, -1)
    )
    slope = gradient[0] @ along[0] + gradient[1] @ along[1]
    np.testing.assert_allclose(slope, (high - low) / (2 * width), rtol=1e-7)


@every_method
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_states_keep_their_types(name, dtype):
    prior = jax.tree.map(lambda leaf: leaf.astype(dtype), GAUSSIAN)
    problem = Sampling((prior.denoise,), START.astype(dtype))
    hyper = sample_hyper(jnp.array([2.0, 1.0, 0.0], dtype), churn=0.1)
    method = METHODS[name]()
    before = jax.eval_shape(method.init, problem, hyper, KEY)
    after, _ = jax.eval_shape(method.step, problem, hyper, before, KEY)
    assert jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), before) == jax.tree.map(
        lambda leaf: (leaf.shape, leaf.dtype), after
    )
    assert after.x.dtype == dtype


def test_keys_are_used_once():
    sigmas = jnp.array([2.0, 1.0])
    with jax.debug_key_reuse(True):
        jax.jit(lambda key: sample(GAUSSIAN.denoise, sigmas, START, key, churn=0.1))(
            jax.random.key(1)
        )

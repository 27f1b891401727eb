"""Local MAP sampling and its relatives against plain NumPy, quadrature and closed forms."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from jaxlab.core import run
from jaxlab.core.iterate import step_key
from jaxlab.diffusion import lmaps_solvers as solvers
from jaxlab.diffusion.empirical import empirical_prior
from jaxlab.diffusion.gaussian import flow_map, gaussian_prior
from jaxlab.diffusion.learned import LearnedDenoiser
from jaxlab.diffusion.lmaps import daps, dps, lmaps, pigdm, restore
from jaxlab.diffusion.lmaps_theory import affine_risk, gaussian_lmaps_moments
from jaxlab.diffusion.networks import DenseNetwork, split_network
from jaxlab.diffusion.nonlinear_operators import quantizer
from jaxlab.diffusion.operators import mask, matrix_operator
from jaxlab.diffusion.restoration import (
    LMAPSHyper,
    Local,
    Restoration,
    ancestral_rho,
    flat,
    gaussian,
    lmaps_hyper,
    ode_denoiser,
    tweedie,
    tweedie_variances,
)
from jaxlab.diffusion.schedule import edm_sigmas

GENERATOR = np.random.default_rng(11)
DIM, MEASUREMENTS, NOISE, SIGMA = 3, 2, 0.3, 0.7
MATRIX = GENERATOR.normal(size=(MEASUREMENTS, DIM))
MEAN, Y, X = (GENERATOR.normal(size=n) for n in (DIM, MEASUREMENTS, DIM))
ROOT = GENERATOR.normal(size=(DIM, DIM))
COVARIANCE = ROOT @ ROOT.T / DIM + 0.1 * np.eye(DIM)
PRIOR = gaussian_prior(jnp.asarray(MEAN), jnp.asarray(COVARIANCE))
OPERATOR = matrix_operator(jnp.asarray(MATRIX))
SIGMAS = edm_sigmas(6, smallest=0.05, largest=4.0, end_at_zero=True)
PROBLEM = Restoration(PRIOR.denoise, OPERATOR, jnp.asarray(Y), SIGMAS, 4 * jnp.asarray(X))
KEY = jax.random.key(3)


def information_form(mean, covariance, y=Y, matrix=MATRIX, noise=NOISE):
    precision = np.linalg.inv(covariance)
    total = precision + matrix.T @ matrix / noise**2
    return np.linalg.solve(total, precision @ mean + matrix.T @ y / noise**2)


# One step --------------------------------------------------------------------------------------


def local_at(covariance_scale=1.0):
    mean = PRIOR.denoise(jnp.asarray(X), SIGMA)
    number = functools.partial(jnp.asarray, dtype=float)
    return Local(
        PROBLEM, jnp.asarray(X), mean, number(SIGMA), number(0.4), number(0.6), number(NOISE),
        number(covariance_scale),
    )  # fmt: skip


FORMS = {
    "variance": (jnp.asarray(0.6), 0.6 * np.eye(DIM)),
    "variances": (jnp.array([0.2, 1.0, 0.5]), np.diag([0.2, 1.0, 0.5])),
    "matrix": (jnp.asarray(COVARIANCE), COVARIANCE),
    "products": (lambda v: jnp.asarray(COVARIANCE) @ v, COVARIANCE),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_covariance_gives_the_local_map(form):
    covariance, dense = FORMS[form]
    local = local_at()
    expected = information_form(np.asarray(local.mean), dense)

    @jax.jit
    def both(local):
        cg = solvers.conjugate_gradient(rtol=1e-12)
        return solvers.closed_form()(local, covariance, KEY), cg(local, covariance, KEY)

    for found in both(local):
        np.testing.assert_allclose(found, expected, rtol=1e-9)
    if form != "products":
        objective = functools.partial(
            solvers.local_objective, mean=local.mean, covariance=covariance, operator=OPERATOR,
            measurement=jnp.asarray(Y), noise=NOISE,
        )  # fmt: skip
        slope = jax.grad(objective)(jnp.asarray(expected))
        np.testing.assert_allclose(slope, 0.0, atol=1e-11)
    else:
        with pytest.raises(ValueError, match="covariance must be a variance or variances"):
            solvers.gradient_descent()(local, covariance, KEY)


def test_gradient_descent_follows_its_closed_form():
    local, variance = local_at(), 0.5
    curvature = 1 + variance * np.linalg.norm(MATRIX, ord=2) ** 2 / NOISE**2
    hessian = np.eye(DIM) + variance * MATRIX.T @ MATRIX / NOISE**2
    best = information_form(np.asarray(local.mean), variance * np.eye(DIM))
    shrink = np.linalg.matrix_power(np.eye(DIM) - hessian / curvature, 7)
    expected = best + shrink @ (np.asarray(local.mean) - best)
    found = solvers.gradient_descent(num_steps=7)(local, jnp.asarray(variance), KEY)
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_adam_reaches_the_local_map():
    local, variances = local_at(), jnp.array([0.2, 1.0, 0.5])
    found = jax.jit(
        lambda local: solvers.descent(num_steps=1500, optimizer=optax.adam(0.02))(
            local, variances, KEY
        )
    )(local)
    expected = information_form(np.asarray(local.mean), np.diag(variances))
    np.testing.assert_allclose(found, expected, atol=1e-3)


def test_posterior_draws_have_the_moments_of_the_local_posterior():
    local, variance, count = local_at(), 0.5, 40_000
    draw = jax.jit(jax.vmap(lambda k: solvers.posterior_draw()(local, jnp.asarray(variance), k)))
    found = np.asarray(draw(jax.random.split(KEY, count)))
    covariance = np.linalg.inv(np.eye(DIM) / variance + MATRIX.T @ MATRIX / NOISE**2)
    expected = information_form(np.asarray(local.mean), variance * np.eye(DIM))
    errors = np.sqrt(np.diag(covariance) / count)
    assert (np.abs(found.mean(axis=0) - expected) < 5 * errors).all()
    variances = np.outer(np.diag(covariance), np.diag(covariance)) + covariance**2
    apart = np.abs(np.cov(found.T) - covariance)
    assert (apart < 5 * np.sqrt(variances / count)).all()


def test_langevin_has_the_variance_of_its_own_recursion():
    """Steps of size ``h`` on curvature ``c`` end at variance ``1 / (c (1 - h c / 2))``."""
    one = jnp.ones(1)
    problem = Restoration(
        lambda x, s: x, matrix_operator(jnp.full((1, 1), 2.0)), 2 * one, SIGMAS, one
    )
    local = Local(problem, one, 0 * one, *map(jnp.asarray, (1.0, 0.5, 1.0, 0.5, 1.0)))
    variance, share, count = 0.8, 0.4, 40_000
    solve = solvers.langevin(num_steps=60, step_size=share)
    draw = jax.jit(jax.vmap(lambda k: solve(local, jnp.asarray(variance), k)))
    found = np.asarray(draw(jax.random.split(KEY, count)))[:, 0]
    curvature = 1 + variance * 4 / 0.25
    expected = variance / (curvature * (1 - share / 2))
    mode = variance * 2 * 2 / 0.25 / curvature
    assert abs(found.mean() - mode) < 5 * np.sqrt(expected / count)
    assert abs(found.var() / expected - 1) < 5 * np.sqrt(2 / count)


def test_covariance_models():
    local = local_at(0.5)
    posterior = COVARIANCE @ np.linalg.inv(COVARIANCE + SIGMA**2 * np.eye(DIM)) * SIGMA**2
    assert float(flat()(local, KEY)) == pytest.approx(0.5 * SIGMA**2)
    expected = 0.5 / (1 / 0.3**2 + 1 / SIGMA**2)
    assert float(gaussian(0.3)(local, KEY)) == pytest.approx(expected)
    product = tweedie()(local, KEY)(jnp.asarray(MEAN))
    np.testing.assert_allclose(product, 0.5 * posterior @ MEAN, rtol=1e-10)
    many = tweedie_variances(num_probes=4000)(local, KEY)
    off = posterior - np.diag(np.diag(posterior))
    errors = 0.5 * np.sqrt((off**2).sum(axis=1) / 4000)
    assert (np.abs(many - 0.5 * np.diag(posterior)) < 5 * errors).all()
    shared = tweedie_variances(num_probes=4000, shared=True)(local, KEY)
    np.testing.assert_allclose(shared, np.mean(many), rtol=1e-12)


def test_the_learned_jacobian_is_transposed():
    """A gradient of the likelihood pulls back, which an asymmetric Jacobian can tell."""
    jacobian = jnp.asarray(GENERATOR.normal(size=(DIM, DIM)))
    problem = PROBLEM._replace(denoise=lambda x, sigma: jacobian @ x)
    local = local_at()._replace(problem=problem, mean=jacobian @ jnp.asarray(X))

    def log_likelihood(x):
        error = jnp.asarray(Y) - jnp.asarray(MATRIX) @ (jacobian @ x)
        return -error @ error / (2 * NOISE**2)

    found = solvers.likelihood_step()(local, tweedie()(local, KEY), KEY)
    expected = local.mean + SIGMA**2 * jax.grad(log_likelihood)(jnp.asarray(X))
    np.testing.assert_allclose(found, expected, rtol=1e-11)


def test_normalized_dps_moves_the_next_signal_by_its_scale():
    scale, local = 0.4, local_at(0.4)
    gain = COVARIANCE @ np.linalg.inv(COVARIANCE + SIGMA**2 * np.eye(DIM))
    error = Y - MATRIX @ np.asarray(local.mean)
    push = scale * gain.T @ MATRIX.T @ error / np.linalg.norm(error)
    covariance = tweedie()(local, KEY)
    found = solvers.likelihood_step(normalized=True)(local, covariance, KEY)
    # The next signal is x0 (1 - kept s'/s) + rest.
    follows = 1 - np.sqrt(1 - 0.6**2) * 0.4 / SIGMA
    np.testing.assert_allclose(follows * (found - local.mean), push, rtol=1e-10)


def test_pigdm_takes_the_gain_of_its_own_variance():
    local = local_at()
    posterior = COVARIANCE @ np.linalg.inv(COVARIANCE + SIGMA**2 * np.eye(DIM)) * SIGMA**2
    inner = 0.5 * MATRIX @ MATRIX.T + NOISE**2 * np.eye(MEASUREMENTS)
    error = Y - MATRIX @ np.asarray(local.mean)
    expected = np.asarray(local.mean) + posterior @ MATRIX.T @ np.linalg.solve(inner, error)
    solve = solvers.pseudo_inverse_step(lambda sigma: jnp.asarray(0.5))
    np.testing.assert_allclose(solve(local, tweedie()(local, KEY), KEY), expected, rtol=1e-10)


# Whole runs ------------------------------------------------------------------------------------


def test_a_run_is_that_of_a_slow_loop():
    """Two steps of mathematics per level, with the same random numbers."""
    rho, x = 0.6, 4 * X
    for t in range(6):
        sigma, after = float(SIGMAS[t]), float(SIGMAS[t + 1])
        wiener = COVARIANCE @ np.linalg.inv(COVARIANCE + sigma**2 * np.eye(DIM))
        mean = MEAN + wiener @ (x - MEAN)
        x0 = information_form(mean, sigma**2 * np.eye(DIM) * 0.8)
        normal = np.asarray(jax.random.normal(jax.random.split(step_key(KEY, t), 3)[2], (DIM,)))
        x = x0 + after * (np.sqrt(1 - rho**2) * (x - x0) / sigma + rho * normal)
    done = jax.jit(lambda p, h: run(lmaps(), p, h, KEY, num_steps=6))(
        PROBLEM, lmaps_hyper(NOISE, scale=0.8, rho=rho)
    )
    np.testing.assert_allclose(done.state.x0, x0, rtol=1e-9)
    np.testing.assert_allclose(done.state.x, x0, rtol=1e-9)
    misfit = np.sqrt(np.mean((Y - MATRIX @ x0) ** 2))
    np.testing.assert_allclose(done.trace.misfit[-1], misfit, rtol=1e-9)
    np.testing.assert_array_equal(done.trace.sigma, SIGMAS[1:])


def test_without_fresh_noise_lmaps_is_deterministic_and_ends_in_nan_beyond_the_levels():
    hyper = lmaps_hyper(NOISE, rho=0.0)
    both = jax.jit(lambda k: run(lmaps(tweedie()), PROBLEM, hyper, k, num_steps=7, trace_fn=keep))
    one, other = both(KEY).trace, both(jax.random.key(4)).trace
    np.testing.assert_array_equal(one[:6], other[:6])
    assert np.isfinite(one[:6]).all()
    assert np.isnan(one[6]).all()


def keep(state, info):
    return state.x0


def test_ancestral_noise_draws_from_the_bridge():
    """Mean and variance of ``x+`` given ``x`` and ``x0`` in a VE process."""
    sigma, after = 2.0, 1.5
    (rho,) = ancestral_rho(jnp.array([sigma, after]))
    kept = np.sqrt(1 - float(rho) ** 2)
    assert after * kept / sigma == pytest.approx((after / sigma) ** 2)
    bridge = after**2 * (sigma**2 - after**2) / sigma**2
    assert (after * float(rho)) ** 2 == pytest.approx(bridge)


# A normalized step of DPS has one length at every level, so that it ends within a step.
METHODS = {
    "dps": (dps(), 0.1, 0.2),
    "pigdm": (pigdm(prior_scale=0.5), 1.0, 0.1),
    "daps": (daps(num_steps=5), 1.0, 0.15),
}


@pytest.mark.parametrize("name", METHODS)
def test_relatives_come_near_a_sharp_measurement(name):
    """Many levels, little noise: the measured entries are the measurement's."""
    method, scale, tolerance = METHODS[name]
    sigmas = edm_sigmas(60, smallest=0.02, largest=4.0, end_at_zero=True)
    kept, y = jnp.array([0, 2]), jnp.array([0.5, 1.0])
    problem = PROBLEM._replace(operator=mask(kept, DIM), sigmas=sigmas, measurement=y)
    rho = 1.0 if name == "daps" else ancestral_rho(sigmas)
    hyper = lmaps_hyper(0.05, scale=scale, rho=rho)
    done = jax.jit(lambda p, h: run(method, p, h, KEY, num_steps=60))(problem, hyper)
    assert np.abs(done.state.x0[kept] - y).max() < tolerance


def test_nonlinear_and_rounded_measurements():
    """Signals of two levels: what the quantizer keeps tells them apart."""
    prior = empirical_prior(jnp.array([[-1.0, 0.3, 0.0], [1.0, 0.3, 0.4], [1.0, -0.7, 0.8]]))
    measured = quantizer(0.5)(jnp.array([0.9, 0.2, 0.3]))
    sigmas = edm_sigmas(8, smallest=0.05, largest=4.0, end_at_zero=True)
    done = jax.jit(
        lambda key: restore(
            prior.denoise, quantizer(0.5), measured, sigmas, 4 * jnp.asarray(X), key,
            noise=0.2, method=lmaps(gaussian(0.5), solvers.descent(num_steps=20)),
        )
    )(KEY)  # fmt: skip
    np.testing.assert_allclose(done.state.x0, [1.0, 0.3, 0.4], atol=0.1)


def test_memorizing_and_learned_denoisers_restore():
    """The one returns the row that fits; a network, trained or not, fits the measurement."""
    rows = GENERATOR.normal(size=(12, 4)).astype(np.float32)
    kept = jnp.array([0, 1, 2])
    network = DenseNetwork(4, width=8, num_blocks=1, rngs=nnx.Rngs(jax.random.key(0)))
    learned = LearnedDenoiser(*split_network(network), 1.0)
    sigmas = edm_sigmas(10, smallest=0.02, largest=5.0, end_at_zero=True).astype(jnp.float32)
    measurement = jnp.asarray(rows[4, :3])
    start = 5 * jax.random.normal(jax.random.key(2), (4,), jnp.float32)
    for denoise in (empirical_prior(jnp.asarray(rows)).denoise, learned):
        done = jax.jit(
            lambda start, d=denoise: restore(
                d, mask(kept, 4), measurement, sigmas, start, KEY, noise=0.05
            )
        )(start)
        assert done.state.x0.dtype == jnp.float32
        assert np.abs(done.state.x0[:3] - measurement).max() < 0.2
        if denoise is not learned:
            np.testing.assert_allclose(done.state.x0, rows[4], atol=0.05)


def test_the_flow_as_a_denoiser():
    flow = ode_denoiser(PRIOR.denoise, num_steps=400, smallest=1e-3)
    expected = flow_map(PRIOR, jnp.asarray(X), SIGMA, 0.0)
    np.testing.assert_allclose(
        jax.jit(lambda x: flow(x, SIGMA))(jnp.asarray(X)), expected, atol=0.01
    )


# Theory ----------------------------------------------------------------------------------------


def test_moments_are_those_of_runs():
    """The recursion against many runs of the sampler itself, start included."""
    sigmas = edm_sigmas(5, smallest=0.1, largest=2.0, end_at_zero=True)
    after = np.linalg.inv(np.linalg.inv(COVARIANCE) + MATRIX.T @ MATRIX / NOISE**2)
    centre = information_form(MEAN, COVARIANCE)
    values, vectors = np.linalg.eigh(after)
    hyper, count = LMAPSHyper(*map(jnp.asarray, (NOISE, 1.0, 0.7))), 20_000

    def one(key):
        key_start, key_run = jax.random.split(key)
        start = 2.0 * jax.random.normal(key_start, (DIM,))
        problem = PROBLEM._replace(sigmas=sigmas, start=start)
        return run(lmaps(tweedie()), problem, hyper, key_run, num_steps=5).state.x0

    found = np.asarray(jax.jit(lambda k: jax.lax.map(one, k, batch_size=400))(
        jax.random.split(KEY, count)
    ))  # fmt: skip
    offsets = (found - centre) @ vectors
    mean, variance = gaussian_lmaps_moments(
        jnp.asarray(-centre @ vectors), 4.0, jnp.asarray(values), sigmas, 0.7
    )
    assert (np.abs(offsets.mean(axis=0) - mean) < 5 * np.sqrt(variance / count)).all()
    assert (np.abs(offsets.var(axis=0) / variance - 1) < 5 * np.sqrt(2 / count)).all()


def test_affine_risk_is_the_error_of_draws():
    gain, count = GENERATOR.normal(size=(DIM, MEASUREMENTS)) / 3, 100_000
    signals = GENERATOR.multivariate_normal(np.zeros(DIM), COVARIANCE, size=count)
    noises = NOISE * GENERATOR.normal(size=(count, MEASUREMENTS))
    errors = ((signals @ MATRIX.T + noises) @ gain.T - signals) ** 2
    expected = errors.sum(axis=1)
    found = affine_risk(*map(jnp.asarray, (gain, COVARIANCE, MATRIX)), NOISE)
    assert abs(found - expected.mean()) < 5 * expected.std() / np.sqrt(count)

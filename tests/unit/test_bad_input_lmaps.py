"""Wrong input to restorations is refused by the argument's name."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import checkify

from jaxlab.core import checked, run
from jaxlab.diffusion import lmaps_solvers as solvers
from jaxlab.diffusion import lmaps_theory as theory
from jaxlab.diffusion.gaussian import gaussian_prior
from jaxlab.diffusion.lmaps import lmaps, pigdm, restore
from jaxlab.diffusion.mixture import mixture_prior, posterior_mean, posterior_sample
from jaxlab.diffusion.nonlinear_operators import block_quantizer, phase_retrieval, quantizer
from jaxlab.diffusion.operators import (
    average_pool,
    blur,
    mask,
    matrix_operator,
    motion_kernel,
    scattering,
)
from jaxlab.diffusion.restoration import (
    LMAPSHyper,
    Restoration,
    gaussian,
    lmaps_hyper,
    ode_denoiser,
    tweedie,
    tweedie_variances,
)

pytestmark = pytest.mark.usefixtures("without_type_checks")

KEY = jax.random.key(0)
PRIOR = gaussian_prior(jnp.zeros(3), jnp.eye(3))
OPERATOR = mask(jnp.array([0, 2]), 3)
PROBLEM = Restoration(
    PRIOR.denoise, OPERATOR, jnp.zeros(2), jnp.array([2.0, 1.0, 0.0]), jnp.ones(3)
)
HYPER = lmaps_hyper(0.1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mask(jnp.array([0, 3]), 3), "kept must be indices from 0 to 2, got"),
        (lambda: mask(jnp.array([1, 1]), 3), "kept must hold every index once"),
        (lambda: mask(jnp.array([0.0]), 3), "kept must be a vector of indices, got shape"),
        (lambda: average_pool((4, 6), 4), r"factor must divide both sides of shape = \(4, 6\)"),
        (lambda: average_pool((4,), 2), r"shape must be \(height, width\), got \(4,\)"),
        (lambda: blur((4, 4), jnp.ones((2, 3))), "kernel must be a matrix with odd sides"),
        (lambda: blur((4, 4), jnp.ones((5, 3))), "kernel must be a matrix with odd sides of at m"),
        (lambda: blur((4, 4), jnp.full((1, 1), jnp.nan)), "kernel must be finite"),
        (lambda: motion_kernel(4, 0.0), "length must be odd"),
        (lambda: matrix_operator(jnp.ones(3)), "entries must have shape"),
        (lambda: scattering(jnp.ones((2, 2)), 4), "wave_numbers must be a vector"),
        (lambda: quantizer(0.0), "step must be positive and finite, got 0.0"),
        (lambda: block_quantizer((8, 12)), r"shape must be multiples of 8, got \(8, 12\)"),
        (lambda: block_quantizer((8, 8), jnp.ones((4, 4))), r"steps must have shape \(8, 8\)"),
        (lambda: block_quantizer((8, 8), coarseness=-1.0), "coarseness must be positive"),
        (lambda: phase_retrieval((8, 8), oversampling=0), "oversampling must be at least 1"),
        (lambda: phase_retrieval((8, 8), softening=0.0), "softening must be positive"),
        (lambda: lmaps_hyper(0.0), "noise must be positive and finite, got 0.0"),
        (lambda: lmaps_hyper(0.1, scale=-1.0), "scale must be positive and finite, got -1.0"),
        (lambda: lmaps_hyper(0.1, rho=1.5), r"rho must be in \[0, 1\], got 1.5"),
        (lambda: gaussian(0.0), "prior_scale must be positive, got 0.0"),
        (lambda: pigdm(prior_scale=-1.0), "prior_scale must be positive, got -1.0"),
        (lambda: tweedie_variances(num_probes=0), "num_probes must be at least 1, got 0"),
        (lambda: ode_denoiser(PRIOR.denoise, num_steps=1), "num_steps must be at least 2, got 1"),
        (lambda: ode_denoiser(PRIOR.denoise, smallest=1.0), r"smallest must be in \(0, 1\)"),
        (lambda: solvers.conjugate_gradient(rtol=0.0), "rtol must be positive"),
        (lambda: solvers.descent(num_steps=0), "num_steps must be at least 1, got 0"),
        (lambda: solvers.gradient_descent(step_size=2.0), r"step_size must be in \(0, 2\)"),
        (lambda: solvers.langevin(step_size=1.5), r"step_size must be in \(0, 1\], got 1.5"),
        (lambda: theory.spread_limit(-0.1), r"rho must be in \[0, 1\], got -0.1"),
    ],
)
def test_numbers_and_shapes(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("problem", "hyper", "message"),
    [
        ({"measurement": jnp.zeros(3)}, {}, r"measurement must have the shape \(2,\) of operator"),
        ({"measurement": jnp.array([0.0, jnp.nan])}, {}, "problem.measurement must be finite"),
        ({"start": jnp.zeros((2, 3))}, {}, r"start must be one signal of shape \[dim\], got sha"),
        ({"sigmas": jnp.array([1.0, 2.0])}, {}, "sigmas must be finite, strictly decreasing"),
        ({"denoise": lambda x, s: x[:2]}, {}, "denoise must keep the shape and dtype of start"),
        ({}, {"rho": jnp.ones(3)}, "rho must be one number or one for each of 2 steps"),
        ({}, {"noise": jnp.zeros(())}, "noise must be positive"),
        ({}, {"scale": jnp.array(-1.0)}, "scale must be positive"),
    ],
)
def test_restorations(problem, hyper, message):
    with pytest.raises(ValueError, match=message):
        lmaps().init(PROBLEM._replace(**problem), HYPER._replace(**hyper), KEY)


def test_solvers_say_what_they_need():
    rounded = PROBLEM._replace(operator=quantizer(0.5), measurement=jnp.zeros(3))
    for solver in (solvers.closed_form(), solvers.conjugate_gradient(), solvers.gradient_descent()):
        with pytest.raises(TypeError, match=r"operator must be a LinearOperator.*got Quantizer"):
            run(lmaps(solver=solver), rounded, HYPER, KEY, num_steps=2)
    with pytest.raises(ValueError, match="covariance must be a variance or variances for this"):
        run(lmaps(tweedie(), solvers.descent()), PROBLEM, HYPER, KEY, num_steps=2)


def test_keys_and_traced_numbers():
    with pytest.raises(TypeError, match="key must be a typed PRNG key"):
        lmaps().init(PROBLEM, HYPER, 0)

    def restored(noise):
        hyper = LMAPSHyper(noise, jnp.ones(()), jnp.ones(()))
        return run(lmaps(), PROBLEM, hyper, KEY, num_steps=1).state.x0

    with pytest.raises(checkify.JaxRuntimeError, match="noise must be positive"):
        checked(jax.jit(restored))(jnp.array(-1.0))
    with pytest.raises(ValueError, match=r"noise must be positive and finite, got -1\.0"):
        restore(*PROBLEM, KEY, noise=-1.0)


def test_moments_and_posteriors():
    with pytest.raises(ValueError, match="zero at the end"):
        theory.gaussian_lmaps_moments(jnp.zeros(1), 1.0, jnp.ones(1), jnp.array([2.0, 1.0]))
    prior = mixture_prior(jnp.ones(1), jnp.zeros((1, 2)), jnp.eye(2)[None])
    with pytest.raises(
        ValueError, match=r"matrix must have shape \[measurements, dim\] = \(1, 2\)"
    ):
        posterior_mean(prior, jnp.ones((1, 3)), jnp.ones(1), 1.0)
    with pytest.raises(ValueError, match="noise must be one number or have"):
        posterior_mean(prior, jnp.ones((1, 2)), jnp.ones(1), jnp.ones(2))
    with pytest.raises(ValueError, match=r"noise must be positive and finite, got 0\.0"):
        posterior_sample(KEY, prior, jnp.ones((1, 2)), jnp.ones(1), 0.0)
    with pytest.raises(TypeError, match="key must be a typed PRNG key"):
        posterior_sample(np.uint32(0), prior, jnp.ones((1, 2)), jnp.ones(1), 1.0)

"""Wrong input to diffusion models is refused by the argument's name."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from jax.experimental import checkify

from jaxlab.core import Status, checked, run
from jaxlab.diffusion import edm, learned, networks
from jaxlab.diffusion.denoise import tweedie_diagonal
from jaxlab.diffusion.empirical import empirical_prior
from jaxlab.diffusion.gaussian import fit_gaussian, gaussian_prior
from jaxlab.diffusion.mixture import fit_mixture, mixture_prior
from jaxlab.diffusion.sample import Sampling, euler, renoise, sample, sample_hyper, swap_window
from jaxlab.diffusion.schedule import (
    check_sigmas,
    edm_sigmas,
    perturb,
    unit_variance_level,
    vp_level,
)

pytestmark = pytest.mark.usefixtures("without_type_checks")

KEY = jax.random.key(0)
X = jnp.zeros(2)
GAUSSIAN = gaussian_prior(jnp.zeros(2), jnp.eye(2))
MIXTURE = mixture_prior(jnp.ones(1), jnp.zeros((1, 2)), jnp.eye(2)[None])
EMPIRICAL = empirical_prior(jnp.eye(2))
SIGMAS = jnp.array([2.0, 1.0, 0.0])


@pytest.mark.parametrize("prior", [GAUSSIAN, MIXTURE, EMPIRICAL], ids=lambda p: type(p).__name__)
def test_priors(prior):
    methods = (prior.denoise, prior.posterior_covariance)
    for sigma in (0.0, -1.0, np.nan, np.inf):
        for method in methods:
            with pytest.raises(ValueError, match="sigma must be positive and finite, got"):
                method(X, sigma)
    for method in (*methods, prior.log_density):
        with pytest.raises(ValueError, match="alpha must be positive and finite, got 0"):
            method(X, 1.0, 0.0)
        with pytest.raises(ValueError, match=r"x must be one signal of shape \(2,\), got shape"):
            method(jnp.zeros((5, 2)), 1.0)
    with pytest.raises(ValueError, match="sigma must be not negative and finite, got -1"):
        prior.log_density(X, -1.0)
    with pytest.raises(TypeError, match="key must be a typed PRNG key"):
        prior.sample(0)
    with pytest.raises(checkify.JaxRuntimeError, match="sigma must be positive"):
        checked(jax.jit(lambda sigma: prior.denoise(X, sigma)))(-1.0)


def test_rows_have_no_density():
    with pytest.raises(ValueError, match="sigma must be positive, since rows have no density"):
        EMPIRICAL.log_density(X, 0.0)
    with pytest.raises(ValueError, match="sigma must be positive"):
        EMPIRICAL.posterior_weights(X, 0.0)
    with pytest.raises(ValueError, match="x must be one signal"):
        EMPIRICAL.largest_weight(jnp.zeros(3), 1.0)


@pytest.mark.parametrize(
    ("mean", "covariance", "message"),
    [
        (jnp.zeros(2), jnp.diag(jnp.array([1.0, -0.5])), r"covariance must be positive semidefin"),
        (jnp.zeros(2), jnp.array([[1.0, 0.5], [0.0, 1.0]]), r"covariance must be symmetric.*0\.5"),
        (jnp.zeros(2), jnp.eye(3), r"covariance must have shape \(2, 2\) like mean.*\(3, 3\)"),
        (jnp.zeros((1, 2)), jnp.eye(2), r"mean must have shape \[dim\].*\(1, 2\)"),
        (jnp.zeros(0), jnp.zeros((0, 0)), r"mean must have shape \[dim\]"),
        (jnp.array([0.0, jnp.nan]), jnp.eye(2), "mean must be finite"),
        (jnp.zeros(2), jnp.full((2, 2), jnp.inf), "covariance must be finite"),
    ],
)
def test_gaussians(mean, covariance, message):
    with pytest.raises(ValueError, match=message):
        gaussian_prior(mean, covariance)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (
            jnp.array([0.5, 0.4]),
            r"weights must be probabilities with sum 1 \(their sum\), got 0\.9",
        ),
        (jnp.array([1.5, -0.5]), "weights must be non-negative"),
        (jnp.array([1.0]), r"weights must have shape \(2,\), got \(1,\)"),
        (jnp.array([0.5, jnp.nan]), "weights must be finite"),
    ],
)
def test_weights(weights, message):
    with pytest.raises(ValueError, match=message):
        mixture_prior(weights, jnp.zeros((2, 1)), jnp.ones((2, 1, 1)))
    with pytest.raises(ValueError, match=message):
        empirical_prior(jnp.eye(2), weights)


def test_mixtures():
    half = jnp.array([0.5, 0.5])
    with pytest.raises(ValueError, match=r"covariances must have shape \(2, 1, 1\) like means"):
        mixture_prior(half, jnp.zeros((2, 1)), jnp.ones((2, 1)))
    with pytest.raises(ValueError, match=r"means must have shape \[components, dim\], got \(2,\)"):
        mixture_prior(half, jnp.zeros(2), jnp.ones((2, 1, 1)))
    with pytest.raises(ValueError, match="covariance must be positive semidefinite"):
        mixture_prior(half, jnp.zeros((2, 1)), jnp.array([1.0, -1.0])[:, None, None])
    with pytest.raises(ValueError, match="num_components = 3 rows, got"):
        fit_mixture(KEY, np.eye(2), 3)
    with pytest.raises(ValueError, match="rows must be finite"):
        fit_mixture(KEY, np.full((4, 2), np.nan), 2)


def test_em_needs_scikit_learn(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.mixture", None)
    with pytest.raises(ImportError, match=r"fit_mixture needs scikit-learn: pip install 'jaxlab\["):
        fit_mixture(KEY, np.eye(3), 2)


@pytest.mark.parametrize("make", [empirical_prior, fit_gaussian])
def test_rows(make):
    with pytest.raises(ValueError, match=r"rows must have shape \[rows, dim\].*\(0, 3\)"):
        make(jnp.zeros((0, 3)))
    with pytest.raises(ValueError, match=r"rows must have shape \[rows, dim\].*\(3,\)"):
        make(jnp.zeros(3))
    with pytest.raises(ValueError, match=r"rows must be finite.*\(1, 0\)"):
        make(jnp.array([[0.0], [jnp.nan]]))


def test_chunk_sizes():
    with pytest.raises(ValueError, match="chunk_size must be at least 1, got 0"):
        empirical_prior(jnp.eye(2), chunk_size=0)
    with pytest.raises(TypeError, match="chunk_size must be a Python integer"):
        empirical_prior(jnp.eye(2), chunk_size=1.5)  # pyright: ignore[reportArgumentType]


def test_probes():
    with pytest.raises(ValueError, match="num_probes must be at least 1, got 0"):
        tweedie_diagonal(KEY, GAUSSIAN.denoise, X, 1.0, num_probes=0)
    with pytest.raises(TypeError, match="key must be a typed PRNG key"):
        tweedie_diagonal(0, GAUSSIAN.denoise, X, 1.0, num_probes=1)  # pyright: ignore


@pytest.mark.parametrize(
    "sigmas", [[1.0, 2.0], [1.0, 1.0], [1.0, -1.0], [2.0, np.nan], [np.inf, 1.0], [2.0, 0.0, 0.0]]
)
def test_levels_must_decrease(sigmas):
    with pytest.raises(ValueError, match="sigmas must be finite, strictly decreasing and not neg"):
        check_sigmas(jnp.array(sigmas))
    with pytest.raises(ValueError, match="sigmas must be finite, strictly decreasing and not neg"):
        sample(GAUSSIAN.denoise, jnp.array(sigmas), X, KEY)


def test_schedules():
    with pytest.raises(ValueError, match=r"sigmas must be a vector of at least 2 levels.*\(1,\)"):
        check_sigmas(jnp.ones(1))
    with pytest.raises(ValueError, match="num_levels must be at least 2, got 1"):
        edm_sigmas(1, smallest=0.1, largest=1.0)
    with pytest.raises(ValueError, match="smallest must be positive and finite, got 0"):
        edm_sigmas(3, smallest=0.0, largest=1.0)
    with pytest.raises(ValueError, match=r"largest must be above smallest \(difference\), got -1"):
        edm_sigmas(3, smallest=2.0, largest=1.0)
    with pytest.raises(ValueError, match="exponent must be positive and finite, got -7"):
        edm_sigmas(3, smallest=0.1, largest=1.0, exponent=-7.0)
    for time in (0.0, 1.5):
        with pytest.raises(ValueError, match=r"time must be in \(0, 1\]"):
            vp_level(time)
    with pytest.raises(ValueError, match="ratio must be positive"):
        unit_variance_level(0.0)
    with pytest.raises(ValueError, match="sigma must be positive"):
        perturb(KEY, X, 0.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"choice": jnp.array([0, 2])}, r"choice must be an index of the 2 denoisers, from 0, got"),
        ({"choice": jnp.array([-1, 0])}, "choice must be an index of the 2 denoisers"),
        ({"choice": jnp.array([0])}, r"choice must have shape \(2,\), one number per step.*\(1,\)"),
        ({"churn": -0.1}, "churn must be non-negative and finite, got -0.1"),
        ({"churn": jnp.zeros(3)}, r"churn must have shape \(2,\)"),
    ],
)
def test_samplers(options, message):
    with pytest.raises(ValueError, match=message):
        sample((GAUSSIAN.denoise, EMPIRICAL.denoise), SIGMAS, X, KEY, **options)


def test_denoisers():
    with pytest.raises(ValueError, match="denoisers must hold at least one denoiser, got none"):
        sample((), SIGMAS, X, KEY)
    with pytest.raises(ValueError, match=r"denoisers\[1\] must keep the shape and dtype .*\(1,\)"):
        sample((GAUSSIAN.denoise, lambda x, sigma: x[:1]), SIGMAS, X, KEY)
    with pytest.raises(ValueError, match=r"problem\.start must be finite"):
        sample(GAUSSIAN.denoise, SIGMAS, jnp.full(2, jnp.nan), KEY)
    with pytest.raises(ValueError, match="noise_scale must be non-negative"):
        sample_hyper(SIGMAS, noise_scale=-1.0)


def test_steps_beyond_the_last_level_do_not_pass_for_samples():
    problem = Sampling((GAUSSIAN.denoise,), X + 1)
    done = run(euler(), problem, sample_hyper(SIGMAS), KEY, num_steps=3)
    assert (int(done.status), int(done.first_bad_step)) == (Status.NONFINITE, 2)


@pytest.mark.parametrize("window", [(-1, 2), (3, 2), (0, 5)])
def test_windows(window):
    with pytest.raises(ValueError, match=r"0 <= first <= last < num_steps = 5, got"):
        swap_window(5, *window)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rho": 1.5}, r"rho must be in \[0, 1\], got 1\.5"),
        ({"rho": -0.5}, r"rho must be in \[0, 1\]"),
        ({"sigma": 0.0}, "sigma must be positive"),
        ({"next_sigma": -1.0}, "next_sigma must be non-negative"),
        ({"next_alpha": 0.0}, "next_alpha must be positive"),
    ],
)
def test_renoising(change, message):
    with pytest.raises(ValueError, match=message):
        renoise(KEY, X, X, **{"sigma": 1.0, "next_sigma": 0.5, **change})


def dense(**options):
    return networks.DenseNetwork(
        2, **{"width": 4, "num_blocks": 1, "rngs": nnx.Rngs(jax.random.key(0)), **options}
    )


def test_networks():
    with pytest.raises(ValueError, match="width must be at least 1, got 0"):
        dense(width=0)
    with pytest.raises(ValueError, match="num_blocks must be at least 1, got 0"):
        dense(num_blocks=0)
    with pytest.raises(ValueError, match="network must hold parameters alone, got 2 other"):
        networks.split_network(nnx.BatchNorm(2, rngs=nnx.Rngs(jax.random.key(0))))


def test_trainings():
    with pytest.raises(ValueError, match=r"rows must hold at least one signal, got \(0, 2\)"):
        learned.train_denoiser(KEY, dense(), jnp.zeros((0, 2)), num_steps=1)
    with pytest.raises(ValueError, match="rows must be finite"):
        learned.train_denoiser(KEY, dense(), jnp.full((3, 2), jnp.nan), num_steps=1)
    with pytest.raises(ValueError, match="num_steps must be at least 1, got 0"):
        learned.train_denoiser(KEY, dense(), jnp.ones((3, 2)), num_steps=0)
    with pytest.raises(ValueError, match="data_scale must be positive and finite, got 0"):
        learned.train_denoiser(KEY, dense(), jnp.zeros((3, 2)), num_steps=1)
    for options in ({"batch_size": 0}, {"batch_size": 1, "decay": 1.0}):
        with pytest.raises(ValueError, match=r"(batch_size|decay) must be"):
            learned.denoiser_training(
                edm.preconditioned, optax.sgd(0.1), noise=edm.log_normal_noise(), **options
            )


def test_noise():
    with pytest.raises(ValueError, match="deviation must be non-negative, got -1"):
        edm.log_normal_noise(0.0, -1.0)
    with pytest.raises(ValueError, match="data_scale must be positive and finite, got 0"):
        edm.edm_preconditioning(1.0, 0.0)
    with pytest.raises(ValueError, match="sigma must be positive and finite, got 0"):
        edm.edm_loss_weight(0.0, 1.0)

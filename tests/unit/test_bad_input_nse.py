"""Wrong input to the theory of noise sensitivity is refused by the argument's name."""

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import checkify

from jaxlab.core import checked, run
from jaxlab.stats.hermite import hermite_polynomials
from jaxlab.stats.quadrature import gauss_hermite, gauss_legendre, normal_grid
from jaxlab.theory import nse, nse_evolution, nse_multi, nse_replica
from jaxlab.theory import nse_amp as amp
from jaxlab.theory.nse_activations import StepActivation, piecewise, smooth, step_activation

pytestmark = pytest.mark.usefixtures("without_type_checks")

KEY = jax.random.key(0)
STEP = step_activation(2, 0.2)
ODD = smooth(jnp.tanh)
CONSTANT = smooth(lambda z: 0 * z + 2.0)
KINK = smooth(jnp.abs)
NEEDS_EVEN = {
    "exponent": nse.noise_sensitivity_exponent,
    "first-order": lambda a: nse.weak_recovery_threshold(a, 1.0),
    "information": lambda a: nse_replica.information_threshold(a, 1.0),
    "large noise": nse_replica.large_noise_information,
    "spectral": lambda a: amp.spectral_estimator(jnp.ones((3, 2)), jnp.ones(3), a, 1.0),
}


@pytest.mark.parametrize("name", NEEDS_EVEN)
@pytest.mark.parametrize(
    ("activation", "message"),
    [
        (ODD, r"the odd part of activation must be 0: .* AMP starts at once .*, got 1\.9"),
        (CONSTANT, r"standard deviation of activation must be positive: a constant .*, got 0\.0"),
        (KINK, r"num_nodes must be large enough for the activation, got 128: .* from 96 nodes"),
    ],
)
def test_activations_without_a_theory(name, activation, message):
    with pytest.raises(ValueError, match=message):
        NEEDS_EVEN[name](activation)


def single(tree):
    return jax.tree.map(lambda leaf: leaf.astype(jnp.float32), tree)


@pytest.mark.parametrize("name", NEEDS_EVEN)
def test_single_precision_is_refused_and_not_misreported(name):
    with pytest.raises(TypeError, match=r"activation\.thresholds must be float64 .*float32; use"):
        NEEDS_EVEN[name](single(STEP))


def test_single_precision_elsewhere():
    for function in (
        nse.nse_coefficients,
        lambda a: nse_replica.channel_information(a, 0.5, 1.0),
        lambda a: nse_multi.committee_threshold(a, 1.0, num_units=2),
    ):
        with pytest.raises(TypeError, match=r"activation\.thresholds must be float64"):
            function(single(STEP))
    with jax.enable_x64(False), pytest.raises(TypeError, match="scale must be float64"):
        step_activation(2, 0.2)


@pytest.mark.parametrize("snr", [0.0, -1.0, jnp.nan, jnp.inf])
def test_signal_to_noise_ratios(snr):
    message = f"snr must be positive and finite, got {float(snr)}"
    with pytest.raises(ValueError, match=message):
        nse.weak_recovery_threshold(STEP, snr)
    with pytest.raises(ValueError, match=message):
        nse_replica.information_threshold(STEP, snr)
    with pytest.raises(ValueError, match=message):
        nse_evolution.state_evolution(STEP, 0.1, 1.0, snr, num_steps=2)
    with pytest.raises(ValueError, match=message):
        amp.sample_single_index(KEY, STEP, snr, num_samples=3, dim=2)


def test_checks_under_a_trace():
    def threshold(rate, snr):
        return nse.weak_recovery_threshold(smooth(lambda z, r: jnp.cos(r * z), rate), snr)

    compiled = checked(jax.jit(threshold))
    assert float(compiled(1.0, 1.0)) > 0.5
    for rate, snr, message in (
        (1.0, -1.0, "snr must be positive"),
        (0.0, 1.0, "standard deviation of activation must be positive"),
        (9.0, 100.0, "num_nodes"),
    ):
        with pytest.raises(checkify.JaxRuntimeError, match=message):
            compiled(rate, snr)


def test_grids_that_are_too_coarse_say_by_how_much():
    with pytest.raises(ValueError, match=r"num_y must be large enough .* got 21, .* at least 81"):
        nse.weak_recovery_threshold(STEP, 1.0, num_y=21)
    with pytest.raises(ValueError, match=r"num_nodes must be large .* in so little noise, got 128"):
        nse.weak_recovery_threshold(smooth(lambda z: z**2), 400.0, num_y=20_001)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((2, 0.25), ValueError, r"scale must be in \(0, 0\.24197\), got 0\.25"),
        ((2, 0.0), ValueError, r"scale must be in \(0, 0\.24197\), got 0\.0"),
        ((0, 0.1), ValueError, "order must be at least 1, got 0"),
        ((1.5, 0.1), TypeError, r"order must be a Python integer, got 1\.5"),
    ],
)
def test_step_functions_that_do_not_exist(arguments, error, message):
    with pytest.raises(error, match=message):
        step_activation(*arguments)


def test_step_functions_by_hand():
    with pytest.raises(ValueError, match="values must have one entry more than thresholds, 3, got"):
        StepActivation(jnp.array([1.0, 2.0]), jnp.array([0.0, 1.0]))
    with pytest.raises(ValueError, match="thresholds must be positive and increasing"):
        StepActivation(jnp.array([2.0, 1.0]), jnp.array([0.0, 1.0, 2.0]))
    with pytest.raises(ValueError, match="breaks must be increasing"):
        piecewise(jnp.abs, breaks=(1.0, 0.0))


@pytest.mark.parametrize("overlap", [0.0, 1.0, -0.1, jnp.nan])
def test_overlaps(overlap):
    with pytest.raises(ValueError, match=r"overlap must be in \(0, 1\)"):
        nse_replica.free_entropy(STEP, overlap, 1.0, 1.0)
    with pytest.raises(ValueError, match=r"overlap must be in \(0, 1\)"):
        nse_replica.noise_covariance(STEP, overlap)
    with pytest.raises(ValueError, match=r"overlaps must be in \(0, 1\)"):
        nse_replica.information_threshold(STEP, 1.0, overlaps=jnp.array([0.5, overlap]))


def test_committees_and_hierarchies():
    half = StepActivation(STEP.thresholds, STEP.values / 2)
    with pytest.raises(ValueError, match=r"activation\.values must be integers from 0 to 2"):
        nse_multi.committee_threshold(half, 1.0, num_units=2)
    with pytest.raises(ValueError, match=r"noise must be positive, got 0\.0"):
        nse_multi.committee_threshold(STEP, 0.0, num_units=2)
    with pytest.raises(ValueError, match="num_units must be at least 1, got 0"):
        nse_multi.committee_threshold(STEP, 1.0, num_units=0)
    with pytest.raises(ValueError, match=r"decay must be above 1/2, got 0\.5"):
        nse_multi.hierarchical_thresholds(3, 0.5, 1.0, 1.0, order=1)
    with pytest.raises(ValueError, match="feature must be at least 1, got 0"):
        nse_multi.hierarchical_snr(0, 1.0, 1.0)
    with pytest.raises(ValueError, match=r"coefficient must be other than 0, got 0\.0"):
        nse.large_noise_weak_recovery(0.0, 1, 1.0)
    with pytest.raises(ValueError, match="order must be at least 1, got 0"):
        nse.large_noise_weak_recovery(1.0, 0, 1.0)


def test_amp_problems():
    link = smooth(jnp.cos, num_nodes=8)
    data = amp.sample_single_index(KEY, link, 1.0, num_samples=5, dim=3)
    hyper = amp.AMPHyper(jnp.array(1.0))

    def start(**changes):
        problem = amp.AMPProblem(data.features, data.labels, link, jnp.zeros(3))
        return run(amp.amp(), problem._replace(**changes), hyper, KEY, num_steps=1)

    with pytest.raises(ValueError, match=r"problem\.labels must have a leading axis of 5 samples"):
        start(labels=jnp.zeros(4))
    with pytest.raises(ValueError, match=r"problem\.start must have a leading axis of 3 dim"):
        start(start=jnp.zeros(4))
    with pytest.raises(ValueError, match=r"mean square of problem\.start must be below 1, got 4"):
        start(start=2 * jnp.ones(3))
    with pytest.raises(ValueError, match=r"problem\.labels must be finite, got 5 NaN"):
        start(labels=jnp.full(5, jnp.nan))
    with pytest.raises(ValueError, match=r"overlap must be in \[0, 1\), got 1\.0"):
        amp.informed_start(KEY, data.teacher, 1.0)
    with pytest.raises(TypeError, match="key must be a typed PRNG key"):
        amp.uninformed_start(0, 3)
    with pytest.raises(ValueError, match="dim must be at least 1, got 0"):
        amp.sample_committee(KEY, link, 1.0, num_samples=5, dim=0, num_units=2)


def test_quadratures():
    for rule in (gauss_hermite, gauss_legendre):
        with pytest.raises(ValueError, match="num_nodes must be at least 1, got 0"):
            rule(0)
    with pytest.raises(ValueError, match="num_nodes must be at least 2, got 1"):
        normal_grid(1)
    with pytest.raises(ValueError, match=r"reach must be positive, got 0\.0"):
        normal_grid(5, reach=0.0)
    with pytest.raises(ValueError, match="degree must be at least 0, got -1"):
        hermite_polynomials(jnp.zeros(2), degree=-1)

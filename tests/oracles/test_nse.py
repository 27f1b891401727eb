"""The theory of noise sensitivity against SciPy's quadrature, closed forms and known numbers."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.special
import scipy.stats

from jaxlab.core import run
from jaxlab.stats.hermite import hermite_coefficients, hermite_polynomials
from jaxlab.stats.quadrature import gauss_hermite, gauss_legendre, normal_grid
from jaxlab.theory import nse, nse_evolution, nse_multi, nse_replica
from jaxlab.theory import nse_amp as amp
from jaxlab.theory.nse_activations import StepActivation, piecewise, smooth, step_activation
from jaxlab.theory.nse_channel import posterior
from tests.oracles import numpy_nse

SCALES = {1: 0.3, 2: 0.2, 3: 0.08}
COARSE = {"num_y": 161, "num_v": 161}


@functools.cache
def step(order):
    return step_activation(order, SCALES[order])


ABSOLUTE = piecewise(jnp.abs, breaks=(0.0,))
COSINE = smooth(lambda z, rate: jnp.cos(rate * z), 1.3, num_nodes=80)


def as_numpy(activation):
    """Written again, since the oracle must not call what it checks."""
    thresholds, values = np.asarray(activation.thresholds), np.asarray(activation.values)
    return lambda z: values[np.digitize(np.abs(z), thresholds)]


def breaks_of(activation):
    thresholds = np.asarray(activation.thresholds)
    return (*-thresholds, *thresholds)


PEERS = {
    "step": (step(3), as_numpy(step(3)), breaks_of(step(3))),
    "absolute": (ABSOLUTE, np.abs, (0.0,)),
    "cosine": (COSINE, lambda z: np.cos(1.3 * z), ()),
}
every_peer = pytest.mark.parametrize("name", PEERS)


def test_quadratures_know_the_normal_moments():
    powers = np.arange(7)
    even = powers % 2 == 0
    moments = np.array([math.prod(range(1, k, 2)) for k in powers]) * even
    hermite, grid = gauss_hermite(12), normal_grid(201, reach=9.0)
    for rule in (hermite, grid):
        found = np.asarray(rule.nodes) ** powers[:, None] @ np.asarray(rule.weights)
        np.testing.assert_allclose(found, moments, atol=1e-12, rtol=1e-11)
    half = normal_grid(201, half=True)
    found = np.asarray(half.nodes) ** powers[:, None] @ np.asarray(half.weights)
    np.testing.assert_allclose(found[even], moments[even], rtol=1e-9)
    rule = gauss_legendre(5)
    found = np.asarray(rule.nodes) ** powers[:, None] @ np.asarray(rule.weights)
    np.testing.assert_allclose(found, even / (powers + 1), atol=1e-14)


def test_hermite_polynomials_are_scipys_and_expand_the_exponential():
    z = np.linspace(-3, 3, 7)
    ours = hermite_polynomials(jnp.asarray(z), degree=6)
    for order in range(7):
        np.testing.assert_allclose(
            ours[order], scipy.special.eval_hermitenorm(order, z), rtol=1e-12
        )
    # E[exp(t z) He_k] = t^k exp(t^2 / 2).
    found = hermite_coefficients(lambda z: jnp.exp(0.7 * z), gauss_hermite(40), degree=5)
    np.testing.assert_allclose(found, 0.7 ** np.arange(6) * math.exp(0.245), rtol=1e-11)


@pytest.mark.parametrize(
    ("order", "thresholds", "values"),
    [
        (1, [1.75554], [0, 1]),
        (2, [0.25923, 1.46403], [2, 0, 1]),
        (3, [0.100776, 1.699344, 2.542934], [0, 2, 1, 3]),
    ],
)
def test_step_activations_of_known_thresholds(order, thresholds, values):
    np.testing.assert_allclose(step(order).thresholds, thresholds, atol=5e-6)
    np.testing.assert_array_equal(step(order).values, values)


def test_thresholds_have_the_derivative_of_the_scale():
    slope = jax.jacfwd(lambda c: step_activation(2, c).thresholds)(0.2)
    high, low = (step_activation(2, 0.2 + sign * 1e-5).thresholds for sign in (1, -1))
    np.testing.assert_allclose(slope, (high - low) / 2e-5, rtol=1e-7)


@pytest.mark.parametrize(("mean", "variance"), [(0.0, 1.0), (0.7, 0.3), (-5.0, 0.05)])
def test_step_moments_are_truncated_normal_moments(mean, variance):
    activation = step(3)
    found = activation.moments(mean, variance)
    edges = np.array([0.0, *activation.thresholds, np.inf])
    deviation = math.sqrt(variance)
    for shell in range(4):
        expected = np.zeros(3)
        for low, high in ((edges[shell], edges[shell + 1]), (-edges[shell + 1], -edges[shell])):
            a, b = (low - mean) / deviation, (high - mean) / deviation
            mass = scipy.stats.norm.cdf(b) - scipy.stats.norm.cdf(a)
            if mass > 1e-12:
                m, v = scipy.stats.truncnorm.stats(a, b)
                expected += mass * np.array([1.0, m, v + m**2 - 1])
        ours = [found.mass[shell], found.first[shell], found.second[shell]]
        np.testing.assert_allclose(ours, expected, atol=1e-9)


@pytest.mark.parametrize(
    ("activation", "exponent", "coefficient"),
    [
        (smooth(lambda z: (z**2 - 1) / jnp.sqrt(2.0)), 1, math.sqrt(2)),
        (smooth(lambda z: (z**4 - 6 * z**2 + 3) / jnp.sqrt(24.0)), 2, 8.0),
        (smooth(jnp.cos), 1, -math.exp(-0.5)),
        # E[exp(-z^2/2) (z^2 - 1)] = (1/2 - 1) / sqrt(2).
        (smooth(lambda z: jnp.exp(-(z**2) / 2)), 1, -0.5 / math.sqrt(2)),
        (ABSOLUTE, 1, math.sqrt(2 / math.pi)),
        (step(1), 1, 0.3),
        (step(2), 2, -0.4),
        (step(3), 3, 0.48),
        (step_activation(4, 0.05), 4, -1.2),
        # A shift moves no coefficient, since the activation is centred first.
        (smooth(lambda z: 5 + jnp.cos(z)), 1, -math.exp(-0.5)),
    ],
)
def test_known_exponents(activation, exponent, coefficient):
    found = nse.noise_sensitivity(activation)
    assert int(found.exponent) == exponent
    np.testing.assert_allclose(found.coefficient, coefficient, rtol=1e-9)


def test_an_activation_without_an_exponent():
    """``He_4`` up to order 1, whose first coefficient vanishes."""
    he4 = smooth(lambda z: z**4 - 6 * z**2 + 3)
    found = nse.noise_sensitivity(he4, max_order=1)
    assert (int(found.exponent), float(found.coefficient)) == (0, 0.0)


def test_exponents_of_a_batch():
    scales = jnp.array([0.05, 0.1, 0.2])
    found = jax.vmap(lambda c: nse.noise_sensitivity(step_activation(2, c)))(scales)
    np.testing.assert_array_equal(found.exponent, [2, 2, 2])
    np.testing.assert_allclose(found.coefficient, -2 * scales, rtol=1e-9)
    rates = jnp.array([0.5, 1.0])
    cosines = jax.vmap(lambda a: nse.noise_sensitivity(smooth(lambda z, r: jnp.cos(r * z), a)))
    np.testing.assert_allclose(
        cosines(rates).coefficient, -(rates**2) * np.exp(-(rates**2) / 2), rtol=1e-9
    )


@every_peer
@pytest.mark.parametrize("snr", [0.3, 2.0])
def test_weak_recovery_is_scipys_double_integral(name, snr):
    ours, theirs, breaks = PEERS[name]
    expected = numpy_nse.inverse_threshold(theirs, snr, breaks)
    np.testing.assert_allclose(1 / nse.weak_recovery_threshold(ours, snr), expected, rtol=1e-8)


def test_a_telling_output_needs_half_a_sample_per_dimension():
    telling = piecewise(lambda z: jnp.exp(-(z**2) / 4), breaks=(), num_nodes=300)
    found = jax.jit(lambda snr: nse.weak_recovery_threshold(telling, snr, num_y=201))
    values = [found(snr) for snr in (50.0, 1000.0)]
    assert 0.5 < float(values[1]) < float(values[0])
    np.testing.assert_allclose(values[1], 0.5, rtol=0.03)


@every_peer
def test_information_and_score_are_scipys(name):
    ours, theirs, breaks = PEERS[name]
    overlap, snr = 0.6, 1.5
    np.testing.assert_allclose(
        nse_replica.channel_information(ours, overlap, snr, **COARSE),
        numpy_nse.information(theirs, snr, overlap, breaks),
        rtol=1e-6,
    )
    np.testing.assert_allclose(
        nse_replica.squared_score(ours, overlap, snr, **COARSE),
        numpy_nse.squared_score(theirs, snr, overlap, breaks),
        rtol=1e-6,
    )


def step_covariance(activation, overlap, orders=160):
    """``sum_k sigma_k^2 q^k / k!``, with ``E[He_k; |z| > t] = 2 He_{k-1}(t) phi(t)``."""
    jumps, thresholds = np.diff(activation.values), np.asarray(activation.thresholds)
    tails = [scipy.stats.norm.pdf(thresholds) * np.ones_like(thresholds)]
    for k in range(1, orders):  # He_{k-1} phi / sqrt(k!), for large k without overflow
        last = tails[-2] if k > 1 else 0 * thresholds
        tails.append((thresholds * tails[-1] - math.sqrt(k - 1) * last) / math.sqrt(k))
    return sum(
        (2 * jumps @ tails[k - 1] / math.sqrt(k)) ** 2 * overlap**k for k in range(2, orders, 2)
    )


@pytest.mark.parametrize("overlap", [0.3, 0.8])
def test_covariance_of_noise(overlap):
    closed = {
        "step": step_covariance(step(3), overlap),
        "absolute": 2 / math.pi * (overlap * math.asin(overlap) + math.sqrt(1 - overlap**2) - 1),
        "cosine": math.exp(-1.69) * (math.cosh(1.69 * overlap) - 1),
    }
    for name, expected in closed.items():
        found = nse_replica.noise_covariance(PEERS[name][0], overlap)
        np.testing.assert_allclose(found, expected, rtol=1e-7)


@pytest.mark.parametrize(("order", "kappa", "overlap"), [(2, 7.5386, 0.980), (3, 19.177, 0.997)])
def test_large_noise_information_of_steps(order, kappa, overlap):
    found = nse_replica.large_noise_information(step(order))
    np.testing.assert_allclose(found.alpha, kappa, rtol=1e-4)
    np.testing.assert_allclose(found.overlap, overlap, atol=1e-3)


def test_large_noise_information_in_closed_form():
    """The infimum of ``-(q + log(1-q))/q^k``: 1/2 at 0 for ``k = 2``; by SciPy for ``k = 4``."""
    he2 = smooth(lambda z: (z**2 - 1) / jnp.sqrt(2.0), num_nodes=20)
    np.testing.assert_allclose(nse_replica.large_noise_information(he2).alpha, 0.5, rtol=1e-3)
    he4 = smooth(lambda z: (z**4 - 6 * z**2 + 3) / jnp.sqrt(24.0), num_nodes=20)
    best = scipy.optimize.minimize_scalar(
        lambda q: -(q + np.log1p(-q)) / q**4, bounds=(0.1, 0.99), method="bounded"
    )
    found = nse_replica.large_noise_information(he4)
    np.testing.assert_allclose(found.alpha, best.fun, rtol=1e-3)
    np.testing.assert_allclose(found.overlap, best.x, atol=0.01)


THRESHOLDS = [  # From the table of exact thresholds: snr, information, first order.
    (1, [9.13, 108, 1108], [9.13, 108, 1108]),
    (2, [10.0, 77.8, 756], [23.3, 1350, 1.26e5]),
    (3, [22.3, 194, 1920], [65.7, 2.86e4, 2.63e7]),
]


@pytest.mark.parametrize(("order", "information", "first_order"), THRESHOLDS)
def test_thresholds_of_steps(order, information, first_order):
    snrs = jnp.array([1.0, 0.1, 0.01])
    overlaps = nse_replica.overlap_grid(80)
    found = jax.jit(
        lambda grid: jax.lax.map(
            lambda snr: (
                nse_replica.information_threshold(
                    step(order), snr, overlaps=overlaps, num_y=121, num_v=151
                ).alpha
            ),
            grid,
        )
    )(snrs)
    np.testing.assert_allclose(found, information, rtol=4e-3)
    ours = jax.vmap(lambda snr: nse.weak_recovery_threshold(step(order), snr))(snrs)
    np.testing.assert_allclose(ours, first_order, rtol=3e-3)


def test_free_entropy_changes_sign_at_the_threshold():
    snr, overlaps = 0.5, nse_replica.overlap_grid(40)
    alpha = nse_replica.information_threshold(step(2), snr, overlaps=overlaps, **COARSE).alpha
    for factor in (0.99, 1.01):
        values = jax.lax.map(
            lambda q, a=factor * alpha: nse_replica.free_entropy(step(2), q, a, snr, **COARSE),
            overlaps,
        )
        assert (float(values.max()) > 0) is (factor > 1)


def test_state_evolution_of_the_absolute_value():
    path = nse_evolution.state_evolution(
        ABSOLUTE, 0.1, 3.0, 4.0, num_steps=12, num_y=161, num_v=121
    )
    assert path.shape == (13,)
    assert float(path[0]) == 0.1
    np.testing.assert_allclose(path[-1], 0.8209, atol=1e-3)


@pytest.mark.parametrize("order", [1, 3])
def test_committee_sums_are_enumerated(order):
    """Three units: all 4^3 combinations of shells, one by one."""
    activation, noise = step(order), 0.5
    unit = activation.moments(0.0, 1.0)
    combos = np.stack(np.meshgrid(*[np.arange(order + 1)] * 3, indexing="ij"), -1).reshape(-1, 3)
    values, mass, second = (np.asarray(x) for x in (unit.values, unit.mass, unit.second))
    sums = values[combos].sum(axis=1) / math.sqrt(3)
    grid = np.linspace(-8, sums.max() + 8, 1001)
    like = scipy.stats.norm.pdf(grid, sums[:, None], math.sqrt(noise))
    p = mass[combos].prod(axis=1) @ like
    he2 = (second[combos[:, 0]] * mass[combos[:, 1]] * mass[combos[:, 2]]) @ like
    expected = 1 / np.trapezoid(he2**2 / p, grid)
    ours = nse_multi.committee_threshold(activation, noise, num_units=3)
    np.testing.assert_allclose(ours, expected, rtol=1e-9)


@pytest.mark.parametrize(("order", "ratio"), [(1, 0.9963), (2, 0.9983), (3, 0.9940)])
def test_wide_committees_have_the_derived_constant(order, ratio):
    activation = step(order)
    unit = activation.moments(0.0, 1.0)
    variance = unit.mass @ (unit.values - unit.mass @ unit.values) ** 2
    coefficient = nse.noise_sensitivity(activation).coefficient
    limit = nse_multi.large_noise_committee(coefficient, order, variance, 0.5, 128)
    exact = nse_multi.committee_threshold(activation, 0.5, num_units=128)
    np.testing.assert_allclose(exact / limit, ratio, atol=1e-4)


def test_hierarchical_tail_is_the_sum():
    j = np.arange(8, 2_000_001, dtype=float)
    tail = np.sum(j**-3.0) + 0.5 / 2e6**2
    np.testing.assert_allclose(nse_multi.hierarchical_error(7, 1.5, 2.0), 2 * tail, rtol=1e-10)
    snr = nse_multi.hierarchical_snr(7, 1.5, 0.4, 2.0)
    np.testing.assert_allclose(snr, 7**-3.0 / (0.4 + 2 * tail), rtol=1e-10)
    ours = nse_multi.hierarchical_thresholds(7, 1.5, 0.3, 0.4, order=2, variance=2.0)
    np.testing.assert_allclose(ours, 2 / 0.09 / snr**2, rtol=1e-10)


def test_amp_is_the_plain_loop():
    link = smooth(jnp.abs, num_nodes=31)
    data = amp.sample_single_index(jax.random.key(3), link, 4.0, num_samples=60, dim=20)
    start = amp.informed_start(jax.random.key(4), data.teacher, 0.3)
    problem = amp.AMPProblem(data.features, data.labels, link, start)
    hyper = amp.AMPHyper(jnp.array(4.0))
    done = run(nse.amp(), problem, hyper, jax.random.key(0), num_steps=5)
    expected, variance = numpy_nse.amp(
        np.asarray(data.features), np.asarray(data.labels), np.abs, 4.0, np.asarray(start), 5, 31
    )
    np.testing.assert_allclose(done.state.estimate, expected, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(done.state.variance, variance, rtol=1e-10)
    np.testing.assert_allclose(done.trace.self_overlap[-1], np.mean(expected**2), rtol=1e-9)
    np.testing.assert_allclose(done.trace.precision[-1], 1 / variance - 1, rtol=1e-9)


def test_amp_on_a_step_function_is_exact():
    """Far into the tail of a shell the score stays finite and points the right way."""
    link = StepActivation(jnp.array([1.0]), jnp.array([0.0, 9.0]))
    moments = link.moments(0.0, 1e-3)
    told = posterior(moments, 1.0, jnp.array(9.0))
    assert np.isfinite([float(x) for x in told]).all()


def test_spectral_estimator_sees_what_it_should():
    snr, dim = 4.0, 300
    overlaps = []
    for alpha in (0.4, 4.0):
        data = amp.sample_single_index(
            jax.random.key(5), ABSOLUTE, snr, num_samples=int(alpha * dim), dim=dim
        )
        found = amp.spectral_estimator(data.features, data.labels, ABSOLUTE, snr)
        np.testing.assert_allclose(jnp.mean(found.direction**2), 1.0, rtol=1e-12)
        overlaps.append(float(amp.overlap_with(found.direction, data.teacher)))
    assert overlaps[0] < 0.35 < 0.6 < overlaps[1]
    assert 0.4 < float(nse.weak_recovery_threshold(ABSOLUTE, snr)) < 4.0


def test_samples_follow_the_model():
    key, step2 = jax.random.key(6), step(2)
    single = amp.sample_single_index(key, step2, 9.0, num_samples=4000, dim=50)
    signal = as_numpy(step2)(np.asarray(single.features) @ np.asarray(single.teacher))
    residual = np.asarray(single.labels) - 3 * signal
    assert scipy.stats.kstest(residual, "norm").pvalue > 1e-4
    committee = amp.sample_committee(key, step2, 0.25, num_samples=4000, dim=50, num_units=3)
    inputs = np.asarray(committee.features) @ np.asarray(committee.teacher).T
    residual = np.asarray(committee.labels) - as_numpy(step2)(inputs).sum(axis=1) / math.sqrt(3)
    assert scipy.stats.kstest(2 * residual, "norm").pvalue > 1e-4
    deep = amp.sample_hierarchical(key, step2, 0.25, 1.5, num_samples=4000, dim=50, num_units=3)
    inputs = np.asarray(deep.features) @ np.asarray(deep.teacher).T
    amplitudes = np.array([1.0, 2**-1.5, 3**-1.5])
    residual = np.asarray(deep.labels) - as_numpy(step2)(inputs) @ amplitudes
    assert scipy.stats.kstest(2 * residual, "norm").pvalue > 1e-4
    scaled = np.asarray(deep.features).ravel()[:4000] * math.sqrt(50)
    assert scipy.stats.kstest(scaled, "norm").pvalue > 1e-4

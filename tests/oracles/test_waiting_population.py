"""Particles that wait their weights, against the exact law of the process."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from jaxlab.core import run
from jaxlab.inference import waiting_population as wp
from jaxlab.inference.target import heavy_tailed, make_target

NUM = 4000
LOG_EVIDENCE = math.log(math.sqrt(2 * math.pi))
GLOBAL = heavy_tailed(jnp.array([0.5]), 1.5)
TARGET = make_target(lambda x: -jnp.sum(x**2) / 2, GLOBAL)
METHOD = wp.waiting_population(num_particles=NUM, num_jumps=24)
STEP = jax.jit(METHOD.step)


def test_particles_leave_at_the_rate_of_their_weights():
    """With the global law alone, a particle at x is still there with probability exp(-R/w(x))."""
    hyper = wp.waiting_hyper(defensive=1.0, period=0.7, log_unit=LOG_EVIDENCE)
    for place in (0.0, 2.0):
        start = wp.WaitingState(jnp.full((NUM, 1), place))
        after, info = STEP(TARGET, hyper, start, jax.random.key(3))
        proposal = scipy.stats.t.logpdf(place, 5, 0.5, 1.5)
        weight = math.exp(scipy.stats.norm.logpdf(place) - proposal)
        expected = 1 - math.exp(-0.7 / weight)
        error = 5 * math.sqrt(expected * (1 - expected) / NUM)
        assert float(info.moved) == pytest.approx(expected, abs=error)
        left = np.asarray(after.points[:, 0]) != place
        assert left.mean() == pytest.approx(float(info.moved), abs=1e-12)
        assert float(info.short) == 0.0


def test_the_target_is_stationary_and_the_evidence_unbiased():
    hyper = wp.waiting_hyper(period=1.3, log_unit=LOG_EVIDENCE)
    state = wp.WaitingState(jax.random.normal(jax.random.key(5), (NUM, 1)))
    evidences = []
    for key in jax.random.split(jax.random.key(6), 3):
        state, info = STEP(TARGET, hyper, state, key)
        evidences.append(float(info.log_evidence))
    points = np.asarray(state.points[:, 0])
    assert scipy.stats.kstest(points, scipy.stats.norm.cdf).pvalue > 1e-4
    # 24 * 4000 draws whose weights are of order 1.
    np.testing.assert_allclose(evidences, LOG_EVIDENCE, atol=5 / math.sqrt(24 * NUM))


def test_a_population_far_away_comes_to_the_target():
    hyper = wp.waiting_hyper(period=2.0, log_unit=LOG_EVIDENCE)
    start = wp.WaitingState(jnp.full((NUM, 1), 30.0) + jnp.linspace(-1, 1, NUM)[:, None])
    after, info = STEP(TARGET, hyper, start, jax.random.key(7))
    for key in jax.random.split(jax.random.key(8), 4):
        after, info = STEP(TARGET, hyper, after, key)
    assert scipy.stats.kstest(np.asarray(after.points[:, 0]), scipy.stats.norm.cdf).pvalue > 1e-4
    assert float(info.short) == 0.0


def test_a_period_too_long_for_its_jumps_is_reported():
    method = wp.waiting_population(num_particles=50, num_jumps=1)
    hyper = wp.waiting_hyper(period=1e6, log_unit=LOG_EVIDENCE)
    done = run(method, TARGET, hyper, jax.random.key(0), num_steps=1)
    assert float(done.trace.short[0]) == 1.0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: wp.waiting_hyper(period=0.0), "period must be positive and finite, got 0.0"),
        (lambda: wp.waiting_hyper(defensive=0.0), r"defensive must be in \(0, 1\], got 0.0"),
        (lambda: wp.waiting_hyper(log_unit=math.inf), "log_unit must be finite, got inf"),
        (lambda: wp.waiting_population(num_particles=1), "num_particles must be at least 2, got 1"),
        (lambda: wp.waiting_population(num_jumps=0), "num_jumps must be at least 1, got 0"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()

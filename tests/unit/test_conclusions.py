"""The margins of conclusions against SciPy's tests and numbers by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from jaxlab.claims import conclusions
from jaxlab.claims.conclusions import Expectation, Probability, Scaling, margins

# SciPy's tails and JAX's incomplete beta function agree to about 1e-12.
NEAR = 1e-9


def decides_at(said, tail):
    """The margin is the negative estimate if the allowed error is above the tail, and 0 if not."""
    excluded, estimate = margins(said, tail * (1 + NEAR))
    kept, _ = margins(said, tail * (1 - NEAR))
    return float(estimate) < 0 and float(excluded) == float(estimate) and float(kept) == 0


@pytest.mark.parametrize(("count", "trials", "bound"), [(1, 40, 0.01), (9, 20, 0.3), (20, 20, 0.9)])
def test_a_probability_is_excluded_by_the_binomial_tail(count, trials, bound):
    said = Probability(jnp.arange(trials) < count, bound)
    assert decides_at(said, scipy.stats.binom.sf(count - 1, trials, bound))
    assert float(margins(said, 1e-9)[1]) == pytest.approx(bound - count / trials, abs=1e-15)


@pytest.mark.parametrize("bound", [-0.25, 0.0, 0.2, 1.0])
def test_no_event_excludes_nothing(bound):
    margin, estimate = margins(Probability(jnp.zeros(9, bool), bound), 0.5)
    assert (float(margin), float(estimate)) == (max(bound, 0.0), bound)


def test_an_event_excludes_what_cannot_happen():
    """A bound below 0 counts as 0."""
    for bound in (0.0, -0.25):
        margin, estimate = margins(Probability(jnp.array([True, False]), bound), 1e-9)
        assert float(margin) == float(estimate) == bound - 0.5


@pytest.mark.parametrize(("exponent", "sign"), [(0.5, 1), (1.5, -1)])
def test_an_exponent_is_excluded_by_students_test(exponent, sign):
    sizes = np.array([8.0, 16.0, 32.0, 128.0])
    noise = np.random.default_rng(0).normal(size=(5, 4))
    values = 3 * sizes * np.exp(0.3 * noise)
    slopes = [scipy.stats.linregress(np.log(sizes), np.log(row)).slope for row in values]
    allowance = 0.25
    tail = scipy.stats.ttest_1samp(slopes, exponent + sign * allowance).pvalue
    said = Scaling(sizes, jnp.asarray(values), exponent, allowance)
    assert decides_at(said, tail)
    expected = allowance - abs(np.mean(slopes) - exponent)
    assert float(margins(said, 1e-9)[1]) == pytest.approx(expected, abs=1e-12)
    assert tuple(map(float, margins(said._replace(allowance=1.0), 0.5))) == pytest.approx(
        (expected + 0.75, expected + 0.75), abs=1e-12
    )


def test_equal_slopes_exclude_all_others():
    sizes = np.array([1.0, 2.0, 4.0, 8.0])
    said = Scaling(sizes, jnp.asarray(np.stack([sizes, 2 * sizes])), 2.0, 0.5)
    margin, _ = margins(said, 1e-6)
    assert float(margin) == pytest.approx(-0.5, abs=1e-12)


def test_a_mean_is_excluded_by_the_bound_of_maurer_and_pontil():
    values = np.concatenate([np.full(60, 2.0), np.full(40, 3.0)])
    error, bound = 1e-3, 2.2
    log = np.log(2 / error)
    width = np.sqrt(2 * values.var(ddof=1) * log / 100) + 7 * 4.0 * log / (3 * 99)
    said = Expectation(jnp.asarray(values), jnp.array(bound), jnp.array(0.0), jnp.array(4.0))
    margin, estimate = margins(said, error)
    assert float(estimate) == pytest.approx((2.2 - 2.4) / 2.2, abs=1e-14)
    assert float(margin) == pytest.approx((2.2 - 2.4 + width) / 2.2, abs=1e-14)


@pytest.mark.parametrize(
    ("lower", "upper", "inside"), [(0, 1, True), (0.1, 1, False), (0, 0.9, False)]
)
def test_samples_outside_their_range_decide_nothing(lower, upper, inside):
    values = jnp.array([0.0, 0.5, 1.0])
    said = Expectation(values, jnp.array(0.5), jnp.array(float(lower)), jnp.array(float(upper)))
    assert bool(jnp.isfinite(margins(said, 0.1)[0])) == inside


def test_a_negative_bound_scales_by_its_size():
    said = Expectation(jnp.zeros(9), jnp.array(-2.0), jnp.array(0.0), jnp.array(1.0))
    assert float(margins(said, 0.1)[1]) == -1.0
    assert float(margins(said._replace(bound=jnp.array(0.0)), 0.1)[1]) == 0.0


def test_ratios_of_sides_that_are_zero_or_less():
    def margin(left, right):
        return conclusions.at_most_in_ratio(left, right).margin

    assert float(margin(0.0, 2.0)) == np.inf
    assert float(jax.grad(margin)(0.0, 2.0)) == 0.0
    assert np.isnan(float(margin(-1.0, 2.0)))
    assert float(margin(2.0, 6.0)) == pytest.approx(np.log(3), abs=1e-15)
    assert float(margin(0.5, 0.25)) == pytest.approx(-np.log(2), abs=1e-15)


def test_differences_by_hand():
    assert float(conclusions.at_most(1.0, 3.0, scale=4.0).margin) == 0.5
    assert float(conclusions.at_most(3.0, 1.0).margin) == -2.0
    assert float(conclusions.close_to(1.0, 4.0, allowance=0.5, scale=2.0).margin) == -1.0
    assert float(conclusions.close_to(4.0, 1.0, allowance=2.0).margin) == -1.0


def test_integers_become_floats_and_floats_keep_their_type():
    both = conclusions.at_most(1, np.float32(3))
    assert (both.left.dtype, both.right.dtype) == (jnp.float64, jnp.float32)


def test_always_means_at_all_times():
    holds = jnp.array([[True, True, True], [True, False, True]])
    said = conclusions.holds_always(holds, 0.75)
    assert (said.events.tolist(), said.bound) == ([False, True], 0.25)

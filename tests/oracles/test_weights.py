"""Functions of log weights against ArviZ, SciPy and closed forms."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.special
import scipy.stats

from jaxlab.core import checked
from jaxlab.stats import resampling
from jaxlab.stats import weights as lw

EPS = float(np.finfo(np.float64).eps)
KEY = jax.random.key(3)
khat = jax.jit(lw.pareto_khat)
RULES = (
    resampling.systematic_resample,
    resampling.stratified_resample,
    resampling.multinomial_resample,
)


def log_weights(size, scale, seed=0):
    return np.random.default_rng(seed).standard_t(5, size=size) * scale


@pytest.mark.parametrize("size", [30, 1000])
@pytest.mark.parametrize("scale", [0.3, 1.0, 3.0])
def test_khat_is_arviz(size, scale):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import arviz
    values = log_weights(size, scale)
    expected = float(arviz.psislw(values.copy())[1])
    found = float(khat(jnp.asarray(values - 5000.0)))
    # Shifting by 5000 leaves weights with errors of 5000 epsilon, which the shape scales up.
    assert found == pytest.approx(expected, abs=1e-8)


def test_khat_of_a_pareto_law_is_its_shape():
    quantiles = (np.arange(1000) + 0.5) / 1000
    for shape in (0.3, 0.6, 0.9):
        found = float(khat(jnp.asarray(-shape * np.log(quantiles))))
        # The fit sees 95 quantiles and a prior worth ten points at 0.5.
        assert found == pytest.approx(shape, abs=0.1)


def test_khat_needs_a_tail():
    assert np.isinf(khat(jnp.zeros(1000)))
    with pytest.raises(ValueError, match="log_w must hold at least 2 weights, got 1"):
        lw.pareto_khat(jnp.zeros(1))


def test_estimates_are_those_of_plain_weights():
    values, points = log_weights(50, 2.0), np.random.default_rng(1).normal(size=(50, 3))
    w, log_w = np.exp(values), jnp.asarray(values - 3000.0)
    assert float(lw.log_evidence(log_w)) == pytest.approx(np.log(w.mean()) - 3000, rel=1e-13)
    assert float(lw.effective_sample_size(log_w)) == pytest.approx(w.sum() ** 2 / (w**2).sum())
    mean = lw.self_normalized_mean(jnp.asarray(points), log_w)
    np.testing.assert_allclose(mean, w @ points / w.sum(), rtol=1e-9)
    assert float(jnp.exp(lw.normalized_log_weights(log_w)).sum()) == pytest.approx(1, rel=1e-12)


def test_effective_sample_size_of_equal_and_of_single_weights():
    assert float(lw.effective_sample_size(jnp.zeros(7))) == pytest.approx(7)
    single = jnp.full(7, -jnp.inf).at[3].set(2.0)
    assert float(lw.effective_sample_size(single)) == pytest.approx(1)


@pytest.mark.parametrize("share", [0.02, 0.05, 0.14, 0.5])
def test_truncation_solves_its_equation(share):
    values = log_weights(60, 4.0)
    w = np.exp(values)
    cut = scipy.optimize.brentq(
        lambda c: c - share * np.minimum(w, c).sum(), w.min(), w.max() * 2, rtol=1e-14
    )
    expected = np.minimum(values, np.log(cut)) if w.max() > share * w.sum() else values
    found = jax.jit(lw.truncate_log_weights)(jnp.asarray(values), share)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_truncation_that_cannot_be_makes_positive_weights_equal():
    cut = lw.truncate_log_weights(jnp.array([0.0, -jnp.inf, -3.0]), 0.1)
    assert cut.tolist() == [-3.0, -np.inf, -3.0]
    with pytest.raises(ValueError, match=r"largest_share must be in \(0, 1\], got 0"):
        lw.truncate_log_weights(jnp.zeros(3), 0.0)


def test_traced_shares_are_caught_by_checked():
    truncate = checked(jax.jit(lambda share: lw.truncate_log_weights(jnp.zeros(3), share)))
    with pytest.raises(Exception, match="largest_share must be in"):
        truncate(2.0)


@pytest.mark.parametrize(
    "function", [lw.log_evidence, lw.normalized_log_weights, lw.effective_sample_size]
)
def test_no_weights_are_refused(function):
    with pytest.raises(ValueError, match="log_w must hold at least one weight"):
        function(jnp.zeros(0))


def test_values_and_weights_must_match(without_type_checks):
    with pytest.raises(ValueError, match=r"values must have a leading axis of 3 points.*\(2,\)"):
        lw.self_normalized_mean(jnp.zeros(2), jnp.zeros(3))


@pytest.mark.parametrize("rule", RULES)
def test_resampling_frequencies(rule):
    p = np.random.default_rng(0).dirichlet(np.ones(6))
    keys = jax.random.split(KEY, 4000)
    draw = jax.jit(jax.vmap(lambda key: rule(key, jnp.log(jnp.asarray(p)) - 800.0, 10)))
    found = np.asarray(draw(keys))
    assert (np.diff(found, axis=1) >= 0).all()
    counts = (found[:, :, None] == np.arange(6)).sum(axis=1)
    # Each count is at most 10 and its deviation at most that of independent draws.
    error = np.abs(counts.mean(axis=0) - 10 * p) / np.sqrt(10 * p * (1 - p) / len(found))
    assert error.max() < 5
    if rule is resampling.systematic_resample:
        assert (counts >= np.floor(10 * p)).all()
        assert (counts <= np.ceil(10 * p)).all()
    if rule is resampling.multinomial_resample:
        variance = counts.var(axis=0) / (10 * p * (1 - p))
        np.testing.assert_allclose(variance, 1, atol=0.15)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_weights_of_zero_are_never_drawn(rule, dtype):
    log_w = jnp.full(5000, -jnp.inf, dtype).at[2500].set(-1e4).at[100].set(-1e4)
    found = np.asarray(jax.jit(rule, static_argnums=2)(KEY, log_w, 300))
    assert found.dtype == np.int32
    assert set(found) == {100, 2500}


def test_resampling_in_float32_stays_inside():
    log_w = jnp.zeros(100_000, jnp.float32)
    draw = jax.jit(jax.vmap(lambda key: resampling.systematic_resample(key, log_w, 1000)))
    index = np.asarray(draw(jax.random.split(KEY, 8)))
    assert index.min() >= 0
    assert 99_000 < index.max() < 100_000


def test_resampling_refuses_bad_input(without_type_checks):
    with pytest.raises(TypeError, match="key must be a typed PRNG key"):
        resampling.systematic_resample(0, jnp.zeros(3), 2)
    with pytest.raises(ValueError, match="num must be at least 1, got 0"):
        resampling.multinomial_resample(KEY, jnp.zeros(3), 0)

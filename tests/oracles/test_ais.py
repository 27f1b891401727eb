"""Delayed importance sampling against SciPy's densities, loops, closed forms and laws."""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.optimize
import scipy.special
import scipy.stats

from jaxlab.core import Method, Status, checked, run
from jaxlab.core.iterate import step_key
from jaxlab.inference import mixtures
from jaxlab.inference.ais import (
    AISInfo,
    ais_hyper,
    block_log_weights,
    delayed_ais,
    delayed_log_weights,
    evidence_settled,
    mixture_log_prob,
    resample_points,
)
from jaxlab.inference.target import Target, heavy_tailed, lowest, make_target

KEY = jax.random.key(11)
DIM, BLOCKS, SIZE, LAG = 2, 3, 24, 1
STEPS = 4  # so that all blocks but one of those kept are adapted
HYPER = ais_hyper(defensive=0.2, bandwidth=0.7)
CENTRES = np.array([[2.0, 0.0], [-2.0, 1.0]])


def logdensity(x):
    parts = -jnp.sum((x[None] - jnp.asarray(CENTRES)) ** 2, axis=1) / 2
    return jax.nn.logsumexp(parts + jnp.asarray(np.log([3.0, 1.0])))


LOG_EVIDENCE = math.log(4 * 2 * math.pi)
TARGET = make_target(logdensity, heavy_tailed(jnp.zeros(DIM), 3.0))


class Setting(NamedTuple):
    """A way to run the method, and SciPy's density of its global law."""

    method: Method
    target: Target
    lag: int
    kernel: str
    truncate: bool
    log_global: Callable


def wide(points):
    return scipy.stats.multivariate_t(np.zeros(DIM), 9.0 * np.eye(DIM), df=5).logpdf(points)


def box(points):
    inside = (np.abs(points) <= 6).all(axis=1)
    return np.where(inside, -DIM * math.log(12), lowest(jnp.float64))


def half_plane(position):
    """As BlackJAX would take it, by a dictionary; its density vanishes for x < 0."""
    x = jnp.stack([position["a"], position["b"]["c"]])
    return jnp.where(x[0] > 0, logdensity(x), -jnp.inf)


BOX = make_target(
    half_plane,
    dist.Uniform(jnp.full(DIM, -6.0), jnp.full(DIM, 6.0)).to_event(1),
    position={"a": 0.0, "b": {"c": 0.0}},
)
SETTINGS = {
    "delayed": Setting(
        delayed_ais(num_blocks=BLOCKS, block_size=SIZE, lag=LAG),
        TARGET, LAG, "student_t", True, wide,
    ),
    "plain": Setting(
        delayed_ais(
            num_blocks=BLOCKS, block_size=SIZE, lag=0, kernel="gaussian", scale="identity",
            truncate=False,
        ),
        BOX, 0, "gaussian", False, box,
    ),
}  # fmt: skip
both = pytest.mark.parametrize("name", SETTINGS)


@functools.cache
def finished(name):
    """The states and infos of all steps."""
    method, target, *_ = SETTINGS[name]

    def go(key):
        return run(method, target, HYPER, key, num_steps=STEPS, trace_fn=lambda *both: both)

    return jax.jit(go)(KEY)


def last_state(name):
    return finished(name).state


def scipy_block(name, block, points):
    """``log q`` of one block of the last state, kernel by kernel."""
    state, kernel = last_state(name), SETTINGS[name].kernel
    g = SETTINGS[name].log_global(points)
    share = float(state.defensive[block])
    if share == 1:
        return g
    factor = np.asarray(state.scale_tril[block])
    parts = []
    for centre in np.asarray(state.centres[block]):
        if kernel == "gaussian":
            law = scipy.stats.multivariate_normal(centre, factor @ factor.T)
        else:
            law = scipy.stats.multivariate_t(centre, factor @ factor.T, df=mixtures.STUDENT_DF)
        parts.append(law.logpdf(points))
    kernels = scipy.special.logsumexp(parts, axis=0) - math.log(SIZE)
    return np.logaddexp(math.log(share) + g, math.log1p(-share) + kernels)


@both
def test_the_table_of_densities_is_scipys(name):
    state, kept = last_state(name), BLOCKS + SETTINGS[name].lag
    assert state.defensive.tolist() == [0.2] * kept
    points = np.asarray(state.points).reshape(-1, DIM)
    expected = np.stack([scipy_block(name, b, points) for b in range(kept)])
    np.testing.assert_allclose(state.block_log_prob, expected, rtol=1e-10)


def test_weights_are_density_over_window_mixture():
    state = last_state("delayed")
    points = np.asarray(state.points).reshape(-1, DIM)
    table = np.stack([scipy_block("delayed", b, points) for b in range(BLOCKS + LAG)])
    log_gamma = np.array([float(logdensity(jnp.asarray(x))) for x in points])
    np.testing.assert_allclose(state.log_density.reshape(-1), log_gamma, rtol=1e-12)
    now = log_gamma - scipy.special.logsumexp(table[LAG:], axis=0) + math.log(BLOCKS)
    before = log_gamma - scipy.special.logsumexp(table[:BLOCKS], axis=0) + math.log(BLOCKS)
    np.testing.assert_allclose(delayed_log_weights(state, 0), now, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(delayed_log_weights(state, 1), before, rtol=1e-9, atol=1e-11)
    assert np.abs(now - before).max() > 0.1
    own = np.concatenate([table[LAG + b, b * SIZE : (b + 1) * SIZE] for b in range(BLOCKS)])
    expected = (log_gamma - own).reshape(BLOCKS, SIZE)
    np.testing.assert_allclose(block_log_weights(state), expected, rtol=1e-9, atol=1e-11)


def test_mixture_anywhere_is_scipys():
    points = np.random.default_rng(0).normal(size=(7, DIM)) * 4
    rows = [scipy_block("delayed", b, points) for b in range(BLOCKS)]
    found = jax.jit(functools.partial(mixture_log_prob, lag=1))(
        TARGET, last_state("delayed"), jnp.asarray(points)
    )
    expected = scipy.special.logsumexp(rows, axis=0) - math.log(BLOCKS)
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_infos_are_those_of_the_weights():
    state, (_, infos) = last_state("delayed"), finished("delayed").trace
    last = jax.tree.map(lambda leaf: float(leaf[-1]), infos)
    w = np.exp(np.asarray(delayed_log_weights(state, 0)))
    assert last.log_evidence == pytest.approx(math.log(w.mean()))
    assert last.ess == pytest.approx(w.sum() ** 2 / (w**2).sum())
    assert last.largest_share == pytest.approx(w.max() / w.sum())
    newest = np.exp(np.asarray(block_log_weights(state)[-1]))
    assert last.block_log_evidence == pytest.approx(math.log(newest.mean()))
    np.testing.assert_array_equal(state.recent_log_evidence, infos.log_evidence[-3:])
    assert float(state.num_steps) == STEPS


@both
def test_adaptation_by_hand(name):
    """The newest centres: systematic resampling of the delayed weights of the step before."""
    _, _, lag, _, truncate, _ = SETTINGS[name]
    states, _ = finished(name).trace
    for t in range(1, STEPS):
        before, after = (jax.tree.map(lambda leaf, t=t: leaf[t], states) for t in (t - 1, t))
        log_w = np.asarray(delayed_log_weights(before, lag))
        w = np.exp(log_w - log_w.max())
        if truncate and w.max() > w.sum() / math.sqrt(len(w)):
            cut = scipy.optimize.brentq(
                lambda c, w=w: c - np.minimum(w, c).sum() / math.sqrt(len(w)), 1e-9, 2.0
            )
            w = np.minimum(w, cut)
        key = jax.random.split(step_key(KEY, t), 4)[0]
        u = (np.arange(SIZE) + float(jax.random.uniform(key, ()))) / SIZE
        index = np.searchsorted(np.cumsum(w) / w.sum(), u)
        flat = np.asarray(before.points).reshape(-1, DIM)
        np.testing.assert_array_equal(after.centres[-1], flat[index])
        np.testing.assert_array_equal(after.centres[:-1], before.centres[1:])
        np.testing.assert_array_equal(after.points[:-1], before.points[1:])


def test_a_density_that_vanishes_and_a_bounded_global_law():
    """Weights of 0, and no infinity in the state."""
    done = finished("plain")
    assert int(done.status) == Status.OK
    x = np.asarray(done.state.points)[:, :, 0]
    positive = np.asarray(done.state.log_density) > lowest(jnp.float64)
    np.testing.assert_array_equal(positive, x > 0)
    assert 0 < positive.mean() < 1
    weights = np.asarray(delayed_log_weights(done.state, 0)).reshape(x.shape)
    np.testing.assert_array_equal(np.isfinite(weights), positive)


def test_block_evidence_is_unbiased_and_the_window_is_accurate():
    method, keys = SETTINGS["delayed"].method, jax.random.split(jax.random.key(5), 1000)
    runs = jax.jit(jax.vmap(lambda key: run(method, TARGET, HYPER, key, num_steps=6).trace))(keys)
    ratio = np.exp(np.asarray(runs.block_log_evidence) - LOG_EVIDENCE)
    score = (ratio.mean(axis=0) - 1) / (ratio.std(axis=0) / math.sqrt(len(keys)))
    assert np.abs(score).max() < 4.5  # six normal scores: one in 20 000 runs by chance
    assert ratio.std(axis=0).max() < 1
    # The window's mixture trades a bias, since its centres depend on its points, for variance.
    window = np.exp(np.asarray(runs.log_evidence) - LOG_EVIDENCE)
    assert (window.std(axis=0) < ratio.std(axis=0)).all()
    # One in five points comes from g.
    share = np.asarray(runs.global_share)
    assert abs(share.mean() - 0.2) < 5 * math.sqrt(0.16 / (share.size * SIZE))


def test_local_scale_is_the_loop():
    generator = np.random.default_rng(2)
    origin = np.sort(generator.integers(0, 40, size=32))
    cloud = generator.normal(size=(40, DIM)) * [1.0, 20.0]
    centres = cloud[origin]
    unit = centres / centres.std(axis=0)
    radii, steps = [], []
    for i in range(32):
        distinct = [j for j in range(32) if j == 0 or origin[j] != origin[j - 1]]
        others = [j for j in distinct if origin[j] != origin[i]]
        others.sort(key=lambda j: np.sum((unit[j] - unit[i]) ** 2))
        near = others[: 5 * DIM]
        radii.append(max(np.sum((unit[j] - unit[i]) ** 2) for j in near))
        steps.append([centres[j] - centres[i] for j in near])
    kept = np.concatenate([s for r, s in zip(radii, steps, strict=True) if r <= np.median(radii)])
    covariance = kept.T @ kept / len(kept)
    diagonal = np.diag(np.diag(covariance) + 1e-6 * np.trace(covariance) / DIM)
    expected = 0.9 * covariance + 0.1 * diagonal
    factor, usable = jax.jit(mixtures.local_scale)(jnp.asarray(centres), jnp.asarray(origin))
    assert bool(usable)
    np.testing.assert_allclose(factor @ factor.T, expected, rtol=1e-9)


def test_local_scale_of_one_point_is_marked():
    factor, usable = jax.jit(mixtures.local_scale)(jnp.ones((6, 2)), jnp.zeros(6, dtype=int))
    assert not bool(usable)
    np.testing.assert_array_equal(factor, np.eye(2))


@pytest.mark.parametrize("kernel", ["student_t", "gaussian"])
def test_float32_far_from_the_origin(kernel):
    """Distances of order 1 at an offset of 10^4, whose squares have no digits left for them."""
    generator = np.random.default_rng(0)
    points, centres = (np.float32(1e4 + generator.normal(size=(50, 3))) for _ in range(2))
    factor = np.float32(0.5 * np.eye(3))
    log_prob = jax.jit(mixtures.kernel_mixture_log_prob, static_argnums=3)
    single = log_prob(jnp.asarray(points), jnp.asarray(centres), jnp.asarray(factor), kernel)
    double = log_prob(
        *(jnp.asarray(a, dtype=jnp.float64) for a in (points, centres, factor)), kernel
    )
    assert single.dtype == jnp.float32
    np.testing.assert_allclose(single, double, atol=2e-4)


def test_more_points_than_a_chunk():
    points = jnp.asarray(np.random.default_rng(1).normal(size=(1500, 1)))
    found = mixtures.kernel_mixture_log_prob(points, jnp.zeros((1, 1)), jnp.eye(1), "gaussian")
    np.testing.assert_allclose(found, scipy.stats.norm.logpdf(points[:, 0]), rtol=1e-12)


def test_draws_have_their_laws():
    factor = jnp.array([[2.0, 0.0], [1.0, 0.5]])
    size = 20_000
    zeros = jnp.zeros((size, 2))
    key_t, key_g, key_wide = jax.random.split(KEY, 3)
    student = mixtures.kernel_draws(key_t, zeros, factor, "student_t")
    normal = mixtures.kernel_draws(key_g, zeros, factor, "gaussian")
    wide = heavy_tailed(jnp.array([1.0, 0.0]), 3.0, df=5).sample(key_wide, (size,))
    second = math.sqrt(1.25)  # the scale of the second coordinate
    for values, law in [
        (student[:, 0], scipy.stats.t(df=10, scale=2)),
        (student[:, 1], scipy.stats.t(df=10, scale=second)),
        (normal[:, 1], scipy.stats.norm(scale=second)),
        (wide[:, 0], scipy.stats.t(df=5, loc=1, scale=3)),
    ]:
        assert scipy.stats.kstest(np.asarray(values), law.cdf).pvalue > 1e-4
    # One chi-square for both coordinates: E x1^2 x2^2 tells it from a product of Student laws.
    moment = np.mean(np.asarray(student[:, 0] ** 2 * student[:, 1] ** 2))
    chi = 100 / (8 * 6)
    assert moment == pytest.approx(chi * (4 * 1.25 + 2 * 2.0**2), rel=0.15)
    correlation = np.corrcoef(np.asarray(normal).T)[0, 1]
    assert correlation == pytest.approx(1 / second, abs=0.02)


def test_reference_bandwidth_is_silvermans():
    assert mixtures.reference_bandwidth(1, 1) == pytest.approx((4 / 3) ** 0.2)
    assert mixtures.reference_bandwidth(2, 64) == pytest.approx(0.5)


def test_resampled_points_have_the_weighted_mean():
    state = last_state("delayed")
    log_w = np.asarray(delayed_log_weights(state, 0))
    w = np.exp(log_w - scipy.special.logsumexp(log_w))
    points = resample_points(KEY, state, 20_000)
    expected = w @ np.asarray(state.points).reshape(-1, DIM)
    np.testing.assert_allclose(points.mean(axis=0), expected, atol=0.02)


def test_densities_that_vanish_or_break_are_reported():
    """No density anywhere is told by the evidence; NaN by the runner's status and step."""

    def breaks(x):
        return jnp.where(jnp.sum(x**2) > 2000, jnp.nan, -jnp.inf)

    target = make_target(breaks, TARGET.proposal)
    method = delayed_ais(num_blocks=1, block_size=8, lag=0)
    done = jax.jit(lambda key: run(method, target, HYPER, key, num_steps=100))(KEY)
    bad = int(done.first_bad_step)
    assert int(done.status) == Status.NONFINITE
    assert bad >= 1
    assert np.isneginf(np.asarray(done.trace.log_evidence[:bad])).all()
    assert np.isnan(done.trace.log_evidence[bad])
    calm = jax.tree.map(lambda leaf: leaf[bad - 1], done.trace)
    state = done.state._replace(recent_log_evidence=jnp.zeros(3))
    assert not bool(evidence_settled(1.0, largest_khat=math.inf)(state, calm))


@pytest.mark.parametrize("value", [jnp.nan, jnp.inf])
def test_checked_names_the_density(value):
    target = make_target(lambda x: value * (1 + x[0] ** 2), TARGET.proposal)
    with pytest.raises(Exception, match="logdensity_fn's value must be a number or minus inf"):
        checked(jax.jit(lambda points: target.log_density(points)))(jnp.ones((3, DIM)))


def test_stopping_rule():
    state = last_state("delayed")._replace(
        recent_log_evidence=jnp.array([1.0, 1.05, 1.1]), num_steps=jnp.array(3.0)
    )
    info = AISInfo(*jnp.array([1.1, 1.0, 50.0, 0.4, 0.1, 0.1]))
    assert bool(evidence_settled(0.11)(state, info))
    assert not bool(evidence_settled(0.09)(state, info))
    assert not bool(evidence_settled(0.11)(state, info._replace(khat=jnp.array(0.8))))
    assert not bool(evidence_settled(0.11)(state._replace(num_steps=jnp.array(2.0)), info))

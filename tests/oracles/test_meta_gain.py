"""Adaptation against slow loops and closed forms, the fit against SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.optimize

from jaxlab.core import run
from jaxlab.optim import meta_gain, meta_gain_budget
from jaxlab.optim.meta_gain import TaskFamily

H = np.array([[2.0, 0.5], [0.5, 1.0]])
CENTRES = np.array([[1.0, 0.0], [-0.5, 2.0], [0.3, -1.0], [2.0, 1.5]])
START = np.array([0.4, -0.2])
ETA = 0.3
KEY = jax.random.key(0)


def loss(x, centre):
    away = x - centre
    return away @ jnp.asarray(H) @ away / 2


def slow_path(centre, steps, start=START):
    """Losses and parameters of plain gradient descent."""
    x, losses, path = start.copy(), [], [start.copy()]
    for _ in range(steps + 1):
        losses.append((x - centre) @ H @ (x - centre) / 2)
        x = x - ETA * H @ (x - centre)
        path.append(x.copy())
    return np.array(losses), path


def test_adaptation_is_gradient_descent_per_task():
    family = TaskFamily(jnp.asarray(START), jnp.asarray(CENTRES))
    method, hyper = meta_gain.adaptation(loss), meta_gain.adaptation_hyper(ETA)
    done = run(method, family, hyper, KEY, num_steps=5)
    slow = [slow_path(centre, 5) for centre in CENTRES]
    np.testing.assert_allclose(done.state.params, [path[5] for _, path in slow], rtol=1e-13)
    np.testing.assert_allclose(
        done.trace.loss, np.mean([losses[:5] for losses, _ in slow], axis=0), rtol=1e-13
    )
    curves = meta_gain.adaptation_curves(loss, *family, ETA, num_steps=5)
    np.testing.assert_allclose(curves, [losses for losses, _ in slow], rtol=1e-12)
    gains = np.mean([losses[0] - losses for losses, _ in slow], axis=0)
    np.testing.assert_allclose(meta_gain.adaptation_gain(curves), gains, rtol=1e-12)


def test_no_step_gains_nothing():
    found = meta_gain.adapt(loss, jnp.asarray(START), jnp.asarray(CENTRES[0]), ETA, num_steps=0)
    assert found.losses.shape == (1,)
    np.testing.assert_array_equal(found.params, START)


def test_parts_of_the_gain_on_quadratics():
    """The shared part is the descent to the mean of the minimisers, the other is exact too."""
    parts = meta_gain.gain_parts(loss, jnp.asarray(START), jnp.asarray(CENTRES), ETA, num_steps=6)
    mean = CENTRES.mean(axis=0)
    losses, _ = slow_path(mean, 6)
    np.testing.assert_allclose(parts.shared, losses[0] - losses, atol=1e-13)
    np.testing.assert_allclose(parts.central, losses[0] - losses, atol=1e-13)
    cov = np.cov(CENTRES.T, bias=True)
    expected = [
        meta_gain.quadratic_gain(jnp.asarray(H), jnp.asarray(cov), ETA, k) for k in range(7)
    ]
    np.testing.assert_allclose(parts.individual, expected, atol=1e-12)
    np.testing.assert_allclose(parts.total, parts.shared + parts.individual, atol=1e-15)


def test_variance_is_the_trace_of_the_covariance():
    tree = {"a": jnp.asarray(CENTRES), "b": jnp.array([0.0, 1.0, 2.0, 5.0])}
    expected = CENTRES.var(axis=0).sum() + np.var([0.0, 1.0, 2.0, 5.0])
    assert float(meta_gain.task_variance(tree)) == pytest.approx(expected)


def test_fomaml_steps_along_gradients_after_adaptation():
    method = meta_gain.fomaml(loss, optax.sgd(0.1), num_inner_steps=2)
    family = TaskFamily(jnp.asarray(START), jnp.asarray(CENTRES))
    done = run(method, family, meta_gain.fomaml_hyper(ETA), KEY, num_steps=3)
    x = START.copy()
    for _ in range(3):
        ends = [slow_path(centre, 2, x)[1][2] for centre in CENTRES]
        gradients = [H @ (e - c) for e, c in zip(ends, CENTRES, strict=True)]
        after = np.mean([(e - c) @ H @ (e - c) / 2 for e, c in zip(ends, CENTRES, strict=True)])
        x = x - 0.1 * np.mean(gradients, axis=0)
    np.testing.assert_allclose(done.state.params, x, rtol=1e-13)
    assert float(done.trace.loss[-1]) == pytest.approx(after, rel=1e-12)


def test_batches_are_tasks_of_the_family_without_repetition():
    """The mean over a batch of all tasks but one tells which one is missing."""
    method = meta_gain.fomaml(lambda x, c: x * c, optax.sgd(1.0), num_inner_steps=0, batch_size=2)
    centres = jnp.array([1.0, 10.0, 100.0])
    hyper, family = meta_gain.fomaml_hyper(1.0), TaskFamily(jnp.array(0.0), centres)
    state = method.init(family, hyper, KEY)
    keys = jax.random.split(KEY, 60)
    moved = jax.vmap(lambda key: -method.step(family, hyper, state, key)[0].params)(keys)
    assert set(np.round(np.asarray(moved) * 2, 6)) == {11.0, 101.0, 110.0}


def test_robust_start_is_the_mean_of_minimisers():
    found = meta_gain.robust_init(
        loss, jnp.asarray(START), jnp.asarray(CENTRES), optax.sgd(0.5), num_steps=200
    )
    np.testing.assert_allclose(found, CENTRES.mean(axis=0), rtol=1e-10)


@pytest.mark.parametrize("rate", [0.004, 0.05, 0.4, 3.0])
def test_fit_agrees_with_scipy(rate):
    rng = np.random.default_rng(3)
    steps = np.arange(31)
    gains = 0.006 * (1 - np.exp(-rate * steps)) * (1 + 0.05 * rng.normal(size=31))
    gains[0] = 0

    def misfit(log):
        return 0.006 * np.exp(log[0]) * -np.expm1(-np.exp(log[1]) * steps) - gains

    best = scipy.optimize.least_squares(
        misfit, [0.0, np.log(rate)], xtol=1e-15, ftol=1e-15, gtol=1e-15, x_scale="jac"
    )
    found = meta_gain_budget.fit_saturation(jnp.asarray(gains))
    residual = float((1 - found.r2) * np.sum((gains - gains.mean()) ** 2))
    # Nobody can do better, and along flat valleys the parameters themselves are loose.
    assert residual == pytest.approx(2 * best.cost, rel=1e-6)
    assert float(found.rate) == pytest.approx(np.exp(best.x[1]), rel=1e-3)
    assert float(found.slope) == pytest.approx(float(found.limit * found.rate))
    assert bool(found.curved) == (rate >= 0.05)


def test_fit_and_budget_work_in_batches():
    rates, k = jnp.array([0.05, 0.2, 0.7]), jnp.arange(21.0)
    gains = jax.vmap(lambda b: meta_gain_budget.saturating_gain(3.0, b, k))(rates)
    found = jax.jit(jax.vmap(meta_gain_budget.fit_saturation))(gains)
    np.testing.assert_allclose(found.rate, rates, rtol=1e-5)
    np.testing.assert_allclose(found.limit, 3.0, rtol=1e-5)
    np.testing.assert_allclose(found.r2, 1.0, atol=1e-9)


@pytest.mark.parametrize("probes", [2, 3, 4, 6])
def test_probes_of_one_mode_tell_everything(probes):
    gains = meta_gain_budget.saturating_gain(0.3, 0.08, jnp.arange(probes + 1.0))
    found = meta_gain_budget.probe_fit(gains)
    assert float(found.limit) == pytest.approx(0.3, rel=1e-5)
    assert float(found.rate) == pytest.approx(0.08, rel=1e-5)
    told = meta_gain_budget.budget(found, shortfall=0.1, cost=0.001)
    assert float(told.steps) == np.ceil(np.log(10) / 0.08)
    steps = np.linspace(0, 200, 200001)
    net = 0.3 * (1 - np.exp(-0.08 * steps)) - 0.001 * steps
    assert float(told.steps_paid) == pytest.approx(steps[net.argmax()], abs=2e-3)
    assert bool(told.adapt)


def test_what_shows_no_limit_gives_no_budget():
    rising = meta_gain_budget.probe_fit(jnp.array([0.0, 1.0, 3.0]))
    told = meta_gain_budget.budget(rising, shortfall=0.1, cost=1.5)
    assert not bool(rising.curved)
    assert jnp.isnan(told.steps)
    assert jnp.isnan(told.steps_paid)
    assert bool(told.adapt)  # the last step brought 2
    dear = meta_gain_budget.budget(rising, shortfall=0.1, cost=2.5)
    assert not bool(dear.adapt)


def test_probe_budget_puts_the_pieces_together():
    one = [meta_gain_budget.probe_budget(
        lambda x, c: 3.0 * (x - c) ** 2 / 2, jnp.array(0.0), jnp.array([-1.0, 1.0]), 0.01,
        num_probe=n, shortfall=0.1, cost=1e-4,
    ) for n in (3, 5)]  # fmt: skip
    rate = -2 * np.log(1 - 0.03)
    for told in one:
        assert float(told.fit.rate) == pytest.approx(rate, rel=1e-5)
        assert float(told.fit.limit) == pytest.approx(1.5, rel=1e-5)
        assert float(told.steps) == np.ceil(np.log(10) / rate)


def test_bounds_are_their_formulas():
    assert float(meta_gain.pl_gain_bound(0.5, 0.2, 4.0, 3)) == pytest.approx(4 * (1 - 0.9**3))
    found = meta_gain.gain_lower_bound(0.5, 0.2, 3.0, 0.7, 3)
    assert float(found) == pytest.approx(0.25 * 9 * 0.7 * (1 - 0.9**3))


def test_adaptation_is_differentiable_in_the_start():
    """Through two steps: the gradient of exact MAML on a quadratic."""
    after = np.linalg.matrix_power(np.eye(2) - ETA * H, 2)

    def end(x):
        return meta_gain.adapt(loss, x, jnp.asarray(CENTRES[0]), ETA, num_steps=2).losses[-1]

    expected = after @ H @ after @ (START - CENTRES[0])
    np.testing.assert_allclose(jax.grad(end)(jnp.asarray(START)), expected, rtol=1e-12)

"""Feedback in continuous time against SciPy and the closed form of one dimension."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.linalg

from jaxlab.control.continuous import (
    Plant,
    QuadraticCost,
    feedback_cost,
    lyapunov,
    optimal_gain,
    spring,
)

COST = QuadraticCost(jnp.diag(jnp.array([1.0, 0.1])), jnp.array([[0.1]]))
START = jnp.array([1.0, 0.3])
GAIN = jnp.array([[0.8, 0.5]])


def test_spring_obeys_newton():
    plant = spring(1.7, 0.4, 2.5)
    x, v, force = 0.6, -1.2, 0.9
    found = plant.transition @ jnp.array([x, v]) + plant.inputs[:, 0] * force
    np.testing.assert_allclose(found, [v, (force - 0.4 * v - 2.5 * x) / 1.7], rtol=1e-14)


def test_lyapunov_agrees_with_scipy():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(3, 3)) - 4 * np.eye(3)
    Q = np.diag([1.0, 2.0, 3.0]) + 0.2
    expected = scipy.linalg.solve_continuous_lyapunov(A.T, -Q)
    np.testing.assert_allclose(lyapunov(jnp.asarray(A), jnp.asarray(Q)), expected, rtol=1e-12)


def test_cost_is_the_integral():
    plant = spring(1.3)
    closed = np.asarray(plant.transition - plant.inputs @ GAIN)

    def running(t):
        x = scipy.linalg.expm(closed * t) @ START
        u = GAIN @ x
        return float(x @ COST.state @ x + u @ COST.input @ u)

    expected = scipy.integrate.quad(running, 0, 60, limit=400, epsabs=1e-11, epsrel=1e-10)[0]
    assert float(feedback_cost(GAIN, plant, COST, START)) == pytest.approx(expected, rel=1e-8)


def test_gradient_is_the_closed_form():
    """``2 (R K - B'P) Sigma``."""
    plant = spring(0.8)
    A, B = (np.asarray(matrix) for matrix in plant)
    closed = A - B @ np.asarray(GAIN)
    P = scipy.linalg.solve_continuous_lyapunov(
        closed.T, -np.asarray(COST.state + GAIN.T @ COST.input @ GAIN)
    )
    states = scipy.linalg.solve_continuous_lyapunov(closed, -np.outer(START, START))
    expected = 2 * (np.asarray(COST.input) @ np.asarray(GAIN) - B.T @ P) @ states
    found = jax.grad(feedback_cost)(GAIN, plant, COST, START)
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_optimum_agrees_with_scipy():
    plant = spring(1.0)
    P = scipy.linalg.solve_continuous_are(*map(np.asarray, (*plant, *COST)))
    expected = np.linalg.solve(COST.input, np.asarray(plant.inputs).T @ P)
    np.testing.assert_allclose(optimal_gain(plant, COST), expected, rtol=1e-12)
    unstable = Plant(jnp.array([[0.7]]), jnp.array([[1.0]]))
    one = QuadraticCost(jnp.eye(1), jnp.eye(1))
    found = optimal_gain(unstable, one, jnp.array([[2.0]]))
    assert float(found[0, 0]) == pytest.approx(0.7 + (0.49 + 1) ** 0.5, rel=1e-12)


def test_one_dimension_has_closed_forms():
    """For x' = -x/2 + b u, q = 1, r = 0.1: cost, optimum, and what a small variance of b gains."""

    def cost(k, b):
        plant = Plant(jnp.array([[-0.5]]), jnp.reshape(b, (1, 1)))
        price = QuadraticCost(jnp.eye(1), 0.1 * jnp.eye(1))
        return feedback_cost(jnp.reshape(k, (1, 1)), plant, price, jnp.ones(1))

    k, b = jnp.array(1.7), jnp.array(1.1)
    assert float(cost(k, b)) == pytest.approx((1 + 0.1 * 1.7**2) / (2 * (1.1 * 1.7 + 0.5)))
    best = jnp.sqrt(10.25) - 0.5
    mixed = jax.jit(jax.hessian(cost, argnums=(0, 1)))(best, jnp.array(1.0))
    move = -mixed[0][1] / mixed[0][0]
    assert float(mixed[0][0] * move**2 / 2) == pytest.approx(0.002780, abs=5e-7)


def test_an_unstable_loop_costs_without_end():
    assert jnp.isinf(feedback_cost(jnp.array([[-3.0, 0.0]]), spring(1.0), COST, START))
    assert jnp.isinf(feedback_cost(jnp.array([[0.0, -1.0]]), spring(1.0), COST, START))
    assert jnp.isfinite(feedback_cost(jnp.zeros((1, 2)), spring(1.0), COST, START))


@pytest.mark.usefixtures("without_type_checks")
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: spring(0.0), r"mass must be positive, got 0\.0"),
        (lambda: feedback_cost(jnp.ones((2, 1)), spring(1.0), COST, START), r"gain must have"),
        (
            lambda: feedback_cost(GAIN, spring(1.0), COST._replace(state=jnp.eye(3)), START),
            r"cost\.state must have shape \(2, 2\), got \(3, 3\)",
        ),
        (
            lambda: optimal_gain(spring(1.0)._replace(transition=jnp.eye(3)), COST),
            r"plant\.transition must have shape \(2, 2\), got \(3, 3\)",
        ),
        (
            lambda: optimal_gain(spring(1.0), COST._replace(input=jnp.eye(2))),
            r"cost\.input must have shape \(1, 1\)",
        ),
        (lambda: optimal_gain(spring(1.0), COST, num_steps=0), "num_steps must be at least 1"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()

"""Regulators and tracking bounds against SciPy, stacked least squares and NumPy loops."""

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg

from jaxlab.control import tracking
from jaxlab.control.lqr import (
    LinearSystem,
    Rollout,
    Weights,
    closed_loop,
    quadratic_cost,
    riccati,
    rollout,
)

GENERATOR = np.random.default_rng(5)
STEPS, DIM, INPUTS = 4, 3, 2
A = np.eye(DIM) + 0.4 * GENERATOR.normal(size=(STEPS, DIM, DIM))
B = GENERATOR.normal(size=(STEPS, DIM, INPUTS))
C = GENERATOR.normal(size=(STEPS, DIM))
TARGETS = GENERATOR.normal(size=(STEPS + 1, DIM))
START = GENERATOR.normal(size=DIM)
ROOTS = GENERATOR.normal(size=(STEPS, DIM, DIM))
Q = np.einsum("kij,klj->kil", ROOTS, ROOTS)
R = np.array([[2.0, 0.5], [0.5, 1.0]])
FINAL = np.diag([1.0, 0.0, 3.0])
SYSTEM = LinearSystem(jnp.asarray(A), jnp.asarray(C), jnp.asarray(B))
WEIGHTS = Weights(jnp.asarray(Q), jnp.asarray(R), jnp.asarray(FINAL))


def test_long_horizons_end_in_the_stationary_solution():
    a, b = A[0], B[0]
    q, r = Q[0], R
    steady = LinearSystem(jnp.tile(a, (300, 1, 1)), None, jnp.tile(b, (300, 1, 1)))
    found = riccati(steady, Weights(jnp.asarray(q), jnp.asarray(r), 0.0))
    expected = scipy.linalg.solve_discrete_are(a, b, q, r)
    np.testing.assert_allclose(found.curvatures[0], expected, rtol=1e-10)
    gain = np.linalg.solve(r + b.T @ expected @ b, b.T @ expected @ a)
    np.testing.assert_allclose(found.policy.gains[0], gain, rtol=1e-9, atol=1e-12)


def stacked_optimum():
    """Inputs of least cost, by least squares over all of them."""

    def path(inputs):
        states = [START]
        for k in range(STEPS):
            states.append(A[k] @ states[-1] + B[k] @ inputs[k] + C[k])
        return np.array(states)

    def weighted(states, inputs):
        away = states - TARGETS
        rows = [ROOTS[k].T @ away[k] for k in range(STEPS)]
        rows += [np.sqrt(FINAL) @ away[-1], *(np.linalg.cholesky(R).T @ u for u in inputs)]
        return np.concatenate(rows)

    none = np.zeros((STEPS, INPUTS))
    base = weighted(path(none), none)
    units = np.eye(STEPS * INPUTS).reshape(-1, STEPS, INPUTS)
    columns = np.stack([weighted(path(unit), unit) - base for unit in units], axis=1)
    best, *_ = np.linalg.lstsq(columns, -base, rcond=None)
    return best.reshape(STEPS, INPUTS), np.sum((base + columns @ best) ** 2)


def test_drift_targets_inputs_and_weights_of_every_step():
    inputs, cost = stacked_optimum()
    found = riccati(SYSTEM, WEIGHTS, jnp.asarray(TARGETS))
    done = rollout(SYSTEM, found.policy, jnp.asarray(START))
    np.testing.assert_allclose(done.inputs, inputs, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(quadratic_cost(done, WEIGHTS, jnp.asarray(TARGETS)), cost, rtol=1e-9)


def test_numbers_stand_for_multiples_of_the_identity():
    system = LinearSystem(jnp.asarray(A))
    numbers = Weights(jnp.arange(1.0, STEPS + 1), 2.0, 0.5)
    states = jnp.stack([k * jnp.eye(DIM) for k in range(1, STEPS + 1)])
    full = Weights(states, 2 * jnp.eye(DIM), jnp.eye(DIM) / 2)
    one, two = (riccati(system, weights) for weights in (numbers, full))
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13)
    path = Rollout(jnp.asarray(TARGETS), jnp.asarray(C))
    np.testing.assert_allclose(quadratic_cost(path, numbers), quadratic_cost(path, full))


def test_the_closed_loop_is_what_the_policy_makes_of_the_system():
    policy = riccati(SYSTEM, WEIGHTS).policy
    expected = [a - b @ k for a, b, k in zip(A, B, np.asarray(policy.gains), strict=True)]
    np.testing.assert_allclose(closed_loop(SYSTEM, policy), expected, rtol=1e-12)


# Tracking --------------------------------------------------------------------------------------


def test_stationary_weights_solve_the_lyapunov_equation():
    stable = 0.5 * A[0] / np.abs(np.linalg.eigvals(A[0])).max()
    found = tracking.lyapunov_weights(jnp.tile(stable, (200, 1, 1)))[0]
    expected = scipy.linalg.solve_discrete_lyapunov(stable.T, np.eye(DIM))
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_norms_of_transitions_by_matrix_roots():
    closed = 0.6 * A
    weights = tracking.lyapunov_weights(jnp.asarray(closed))
    found = tracking.transition_norms(jnp.asarray(closed), weights)
    roots = [scipy.linalg.sqrtm(np.asarray(p)).real for p in weights]
    for i in range(STEPS + 1):
        product = np.eye(DIM)
        for k in range(i, STEPS + 1):
            scaled = roots[k] @ product @ np.linalg.inv(roots[i])
            np.testing.assert_allclose(found[k, i], np.linalg.norm(scaled, 2), rtol=1e-9)
            product = closed[k] @ product if k < STEPS else product
    np.testing.assert_array_equal(np.triu(found, 1), 0)
    chained = tracking.chained_norms(tracking.lyapunov_contractions(weights))
    assert (chained >= found - 1e-12).all()
    np.testing.assert_allclose(np.diag(chained, -1), np.diag(found, -1), rtol=1e-9)


def test_the_bound_written_as_loops():
    norms = np.tril(GENERATOR.uniform(size=(STEPS + 1, STEPS + 1)))
    start, remainders = np.array(0.7), GENERATOR.uniform(size=STEPS)
    found = tracking.tracking_bound(*map(jnp.asarray, (norms, start, remainders)))
    for k in range(STEPS + 1):
        expected = norms[k, 0] * start
        for i in range(k):
            expected += norms[k, i + 1] * remainders[i]
        np.testing.assert_allclose(found[k], expected, rtol=1e-12)


def test_a_start_that_is_too_large_has_no_bound():
    found = tracking.apriori_bound(0.5, 2.0, 0.5, num_steps=2)
    np.testing.assert_array_equal(found, [0.5, np.inf, np.inf])


def test_norms_of_zero_have_a_gradient():
    weights = jnp.tile(jnp.eye(2), (2, 1, 1))
    slope = jax.grad(lambda x: tracking.weighted_norms(weights, x).sum())(jnp.zeros((2, 2)))
    np.testing.assert_array_equal(slope, 0)

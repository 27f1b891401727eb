"""Steering of layers against NumPy loops, finite differences and decoding token by token."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from jaxlab.control.lqr import LinearSystem, Weights, riccati, rollout
from jaxlab.core import run
from jaxlab.language import controllers, lqr_studies, plants, policies
from jaxlab.language.feature_lqr import feature_lqr
from jaxlab.language.lqr_steering import (
    SteeringProblem,
    lqr_steering,
    steering_hyper,
)
from jaxlab.language.setpoints import (
    adaptive_setpoint,
    contrast_setpoint,
    features,
    setpoint_values,
)
from tests.language.points import random_setpoint

GENERATOR = np.random.default_rng(3)
LAYERS, DIM = 3, 8


POINT = random_setpoint(GENERATOR, LAYERS, DIM)
VECTORS = GENERATOR.normal(size=(LAYERS, DIM))


def loop(advance, start, control):
    """Layer by layer in NumPy."""
    z, states, inputs = start, [start], []
    for k in range(LAYERS):
        u = control(k, z)
        z = advance(k, z) + u
        states.append(z)
        inputs.append(u)
    return np.array(states), np.array(inputs)


MATRICES = np.eye(DIM) + 0.3 * GENERATOR.normal(size=(LAYERS, DIM, DIM))


def bent(layer, z):
    return jnp.tanh(layer @ z)


def bent_plant():
    start = jnp.asarray(GENERATOR.normal(size=DIM))
    return plants.Plant(Partial(bent), jnp.asarray(MATRICES), start)


def bent_numpy(k, z):
    return np.tanh(MATRICES[k] @ z)


# The method ------------------------------------------------------------------------------------


def test_the_method_written_as_numpy_loops():
    crooked = bent_plant()
    states = plants.trajectory(crooked)
    jacobians = plants.layer_jacobians(crooked, states)
    for k, z in enumerate(np.asarray(states)[:-1]):
        slope = 1 - np.tanh(MATRICES[k] @ z) ** 2
        np.testing.assert_allclose(jacobians[k], slope[:, None] * MATRICES[k], rtol=1e-12)
    q, r, final, strength = 0.3, 2.0, 1.5, 1.2
    S, gains = final * np.eye(DIM), [None] * LAYERS
    for k in reversed(range(LAYERS)):
        gains[k] = np.linalg.inv(S + r * np.eye(DIM)) @ S @ np.asarray(jacobians[k])
        S = q * np.eye(DIM) + np.asarray(jacobians[k]).T @ S @ (jacobians[k] - gains[k])
    v, aims = np.asarray(POINT.directions), np.asarray(POINT.offsets + strength * POINT.scales)

    def control(k, z):
        return gains[k] @ ((aims[k] - v[k] @ z) * v[k])

    expected, inputs = loop(bent_numpy, np.asarray(crooked.start), control)
    hyper = steering_hyper(strength, state_cost=q, input_cost=r, final_cost=final)
    problem = SteeringProblem(crooked, jacobians, POINT)
    done = run(lqr_steering(), problem, hyper, jax.random.key(0), num_steps=LAYERS)
    np.testing.assert_allclose(done.state.z, expected[-1], rtol=1e-10)
    np.testing.assert_allclose(done.trace.energy, (inputs**2).sum(axis=1), rtol=1e-10)
    seen = np.einsum("kd,kd->k", expected[:-1], v[:-1])
    np.testing.assert_allclose(done.trace.feature, seen, rtol=1e-10)
    np.testing.assert_allclose(done.trace.error, aims[:-1] - seen, rtol=1e-9)
    policy = riccati(LinearSystem(jacobians), Weights(q, r, final)).policy
    steered = controllers.steer(crooked, controllers.alqr(policy, POINT, strength))
    np.testing.assert_allclose(steered.states, expected, rtol=1e-10)


def test_pid_written_as_a_loop():
    v, aims = np.asarray(POINT.directions), np.asarray(setpoint_values(POINT, 0.7))
    crooked, errors = bent_plant(), []

    def control(k, z):
        errors.append(aims[k] - v[k] @ z)
        since = 2 * (k // 2)
        change = errors[k] - errors[k - 1] if k else 0.0
        return (0.4 * errors[k] + 0.2 * sum(errors[since:]) + 0.1 * change) * v[k]

    expected, _ = loop(bent_numpy, np.asarray(crooked.start), control)
    pid = controllers.s_pid(
        POINT, 0.7, proportional=0.4, integral=0.2, derivative=0.1, reset_every=2
    )
    np.testing.assert_allclose(controllers.steer(crooked, pid).states, expected, rtol=1e-10)


def test_constant_additions_land_behind_their_layer():
    crooked = bent_plant()
    vectors = GENERATOR.normal(size=(LAYERS + 1, DIM))
    added = controllers.act_add(jnp.asarray(vectors), jnp.array([0.0, 2.0, 0.0]))
    expected, _ = loop(
        bent_numpy, np.asarray(crooked.start), lambda k, z: 2 * vectors[2] * (k == 1)
    )
    np.testing.assert_allclose(controllers.steer(crooked, added).states, expected, rtol=1e-12)
    fixed = policies.constant_policy(jnp.asarray(VECTORS))
    inputs = controllers.steer(crooked, controllers.low_rank(fixed, -2.0)).inputs
    np.testing.assert_allclose(inputs, -2 * VECTORS, rtol=1e-12)


def test_several_features_add_up():
    crooked, other = bent_plant(), random_setpoint(GENERATOR, LAYERS, DIM)
    one, two = controllers.proportional(0.5, POINT, 1.0), controllers.s_pid(other, 2.0)
    both = controllers.combine(one, two)
    z = crooked.start
    state, u = both.step(both.init(), 0, z)
    expected = one.step(one.init(), 0, z)[1] + two.step(two.init(), 0, z)[1]
    np.testing.assert_allclose(u, expected, rtol=1e-14)
    assert jax.tree.structure(state) == jax.tree.structure(both.init())


def test_tracking_a_trajectory_is_the_regulator_of_deviations():
    system = LinearSystem(jnp.asarray(MATRICES))
    policy = riccati(system, Weights(1.0, 2.0, 3.0)).policy
    nominal = plants.trajectory(plants.linear_plant(system, jnp.asarray(VECTORS[0])))
    start = jnp.asarray(VECTORS[1])
    tracked = controllers.trajectory_tracking(policy, nominal)
    done = controllers.steer(plants.linear_plant(system, start), tracked)
    away = rollout(system, policy, start - nominal[0])
    np.testing.assert_allclose(done.states - nominal, away.states, rtol=1e-9, atol=1e-12)


def test_open_loops_do_not_look_and_closed_ones_do():
    crooked = bent_plant()
    moved = crooked._replace(start=crooked.start + 0.1)
    closed = controllers.proportional(0.8, POINT, 1.0)
    inputs = controllers.steer(crooked, closed).inputs
    replayed = controllers.fixed_inputs(inputs)
    np.testing.assert_array_equal(controllers.steer(moved, replayed).inputs, inputs)
    assert np.abs(controllers.steer(moved, closed).inputs - inputs).max() > 1e-3


def test_the_optimum_without_matrices_is_the_dense_one():
    drifts, weights, strength = jnp.asarray(VECTORS), Weights(0.7, 0.3, 2.0), 1.3
    found = feature_lqr(lambda A, y: A.T @ y, jnp.asarray(MATRICES), drifts, POINT, weights)
    low = policies.dense_policy(found, strength)
    v = np.asarray(POINT.directions)
    outer = jnp.asarray(v[:, :, None] * v[:, None, :])
    full = Weights(0.7 * outer[:-1], 0.3, 2.0 * outer[-1])
    targets = jnp.asarray(np.asarray(setpoint_values(POINT, strength))[:, None] * v)
    dense = riccati(LinearSystem(jnp.asarray(MATRICES), drifts), full, targets).policy
    np.testing.assert_allclose(low.gains, dense.gains, rtol=0, atol=1e-12)
    np.testing.assert_allclose(low.offsets, dense.offsets, rtol=0, atol=1e-11)


# Setpoints -------------------------------------------------------------------------------------


def test_contrast_in_numpy():
    high, low = (
        GENERATOR.normal(size=(LAYERS + 1, 5, DIM)),
        GENERATOR.normal(size=(LAYERS + 1, 4, DIM)),
    )
    high[0], low[0] = 1.0, 1.0 + 4e-16  # the same last token, but for rounding
    plain = contrast_setpoint(jnp.asarray(high), jnp.asarray(low))
    gap = high.mean(axis=1) - low.mean(axis=1)
    np.testing.assert_allclose(plain.scales[1:], np.linalg.norm(gap, axis=1)[1:], rtol=1e-12)
    np.testing.assert_allclose(plain.directions[1:] * plain.scales[1:, None], gap[1:], rtol=1e-12)
    np.testing.assert_array_equal(plain.directions[0], 0)
    np.testing.assert_array_equal(plain.offsets, 0)
    centred = contrast_setpoint(jnp.asarray(high), jnp.asarray(low), centered=True)
    for strength, side in ((1.0, high), (-1.0, low)):
        mean = features(centred, jnp.asarray(side.mean(axis=1)))
        np.testing.assert_allclose(setpoint_values(centred, strength), mean, atol=1e-12)


def test_a_state_on_its_setpoint_is_left_alone():
    z, v = jnp.asarray(VECTORS), POINT.directions[0]
    np.testing.assert_allclose(adaptive_setpoint(z, v, z[0] @ v)[0], z[0], rtol=1e-14)
    moved = adaptive_setpoint(z, v, 3.0)
    np.testing.assert_allclose(moved @ v, 3.0, rtol=1e-12)
    np.testing.assert_allclose(moved - z, ((moved - z) @ v)[:, None] * v[None], atol=1e-12)


# Measures -----------------------------------------------------------------------------------


def test_alignment_by_singular_value_decompositions():
    other = MATRICES + 0.2 * GENERATOR.normal(size=MATRICES.shape)
    found = plants.jacobian_alignment(jnp.asarray(MATRICES), jnp.asarray(other), rank=3)
    for k in range(LAYERS):
        (u1, s1, _), (u2, s2, _) = (np.linalg.svd(m[k]) for m in (MATRICES, other))
        between = np.diag(s1[:3]) @ u1[:, :3].T @ u2[:, :3] @ np.diag(s2[:3])
        expected = np.linalg.norm(between, "nuc") / np.linalg.norm(s1[:3]) / np.linalg.norm(s2[:3])
        np.testing.assert_allclose(found[k], expected, rtol=1e-9)


def test_errors_are_relative_to_the_contrast():
    seen = np.array([[5.0, 5.0], [2.0, 4.0]])
    found = lqr_studies.relative_errors(
        jnp.asarray(seen), jnp.array([0.0, 1.0]), jnp.array([0.0, 2.0])
    )
    np.testing.assert_allclose(found, [0.0, np.sqrt((0.25 + 2.25) / 2)], rtol=1e-12)

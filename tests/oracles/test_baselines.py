"""Rivals and accelerated gradient descent against their transcriptions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlab.core import run
from jaxlab.optim import federated, inexact_agd
from jaxlab.problems import consensus, graphs
from jaxlab.problems.quadratic import quadratic_gradient, random_quadratics
from tests.oracles import numpy_dual_sgd as slow

EPS = np.finfo(float).eps
KEY = jax.random.key(6)
NUM_AGENTS, DIM, ROUNDS, NUM_LOCAL_STEPS = 5, 3, 20, 4
MU, BIG = 1.0, 8.0
START = jnp.array([1.0, -2.0, 0.5])
# About ten roundings per entry and local step, and controls are divided by a step size of 0.05.
TOLERANCE = 10 * ROUNDS * NUM_LOCAL_STEPS / 0.05 * EPS
ETA = 0.05


@pytest.fixture(scope="module")
def setting():
    stack = random_quadratics(
        KEY, num_agents=NUM_AGENTS, dim=DIM, strong_convexity=MU, smoothness=BIG
    )
    gossip = graphs.metropolis_weights(graphs.ring_graph(NUM_AGENTS))
    problem = consensus.make_consensus(quadratic_gradient, stack, START, gossip)
    hessian, linear = np.asarray(stack.hessian), np.asarray(stack.linear)
    return problem, lambda m, x: hessian[m] @ x - linear[m], np.asarray(gossip)


def ours(method, problem, hyper):
    return jax.jit(lambda: run(method, problem, hyper, KEY, num_steps=ROUNDS))()


def local_hyper():
    return federated.LocalHyper(jnp.asarray(ETA, dtype=float))


def assert_close(state, expected):
    for a, b in zip(state, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=TOLERANCE * max(1.0, np.abs(b).max()))


def test_fedavg(setting):
    problem, gradient, W = setting
    done = ours(federated.fedavg(num_local_steps=NUM_LOCAL_STEPS), problem, local_hyper())
    expected = slow.fedavg(
        gradient, np.asarray(START), W, eta=ETA, K=NUM_LOCAL_STEPS, rounds=ROUNDS
    )
    assert_close(done.state, (expected,))


def test_scaffold(setting):
    problem, gradient, W = setting
    done = ours(federated.scaffold(num_local_steps=NUM_LOCAL_STEPS), problem, local_hyper())
    expected = slow.scaffold(
        gradient, np.asarray(START), W, eta=ETA, K=NUM_LOCAL_STEPS, rounds=ROUNDS
    )
    assert_close(done.state, expected)


def test_scaffnew(setting):
    problem, gradient, W = setting
    hyper = federated.ScaffnewHyper(jnp.asarray(ETA, dtype=float), jnp.asarray(0.3, dtype=float))
    done = ours(federated.scaffnew(), problem, hyper)
    coins = np.asarray(done.trace.num_communications)
    assert 0 < coins.sum() < ROUNDS
    expected = slow.scaffnew(gradient, np.asarray(START), W, eta=ETA, p=0.3, coins=coins)
    assert_close(done.state, expected)


def test_scaffnew_hyper():
    hyper = federated.scaffnew_hyper(2.0, 8.0)
    assert [float(x) for x in hyper] == [1 / 8, 1 / 2]


def test_gradient_tracking(setting):
    problem, gradient, W = setting
    done = ours(federated.gradient_tracking(), problem, local_hyper())
    X, Y = slow.gradient_tracking(gradient, np.asarray(START), W, eta=ETA, rounds=ROUNDS)
    assert_close((done.state.params, done.state.direction), (X, Y))


def test_ssda_equals_dual_ascent_with_closed_form_solves(setting):
    problem, _, W = setting
    spectrum = graphs.gossip_spectrum(problem.mixing.gossip)
    done = ours(federated.ssda(), problem, federated.ssda_hyper(MU, BIG, spectrum))
    hessian, linear = (np.asarray(leaf) for leaf in problem.data)
    eigenvalues = np.linalg.eigvalsh(np.eye(NUM_AGENTS) - W)
    q = np.sqrt(MU / BIG * eigenvalues[1] / eigenvalues[-1])
    tau = MU / eigenvalues[-1]
    P = R = np.zeros((NUM_AGENTS, DIM))
    for _ in range(ROUNDS):
        X = np.array([np.linalg.solve(hessian[m], linear[m] - R[m]) for m in range(NUM_AGENTS)])
        new = R + tau * (X - W @ X)
        R, P = new + (1 - q) / (1 + q) * (new - P), new
    # Newton's method ends within 32 epsilon times the condition number.
    tolerance = 32 * ROUNDS * BIG / MU * EPS * np.abs(P).max()
    np.testing.assert_allclose(done.state.params, X, rtol=0, atol=tolerance)
    np.testing.assert_allclose(done.state.p, P, rtol=0, atol=tolerance)


def one_quadratic():
    stack = random_quadratics(KEY, num_agents=1, dim=DIM, strong_convexity=MU, smoothness=BIG)
    return stack.hessian[0], stack.linear[0]


def agd_gradient(x, data, key):
    hessian, linear = data
    return hessian @ x - linear


def test_accelerated_gradient_descent():
    hessian, linear = one_quadratic()
    problem = inexact_agd.Oracle(START, (hessian, linear))
    method = inexact_agd.inexact_agd(agd_gradient)
    done = ours(method, problem, inexact_agd.agd_hyper(MU, BIG))
    H, b = np.asarray(hessian), np.asarray(linear)
    expected = slow.accelerated_gradient(
        lambda x: H @ x - b, np.asarray(START), mu=MU, L=BIG, steps=ROUNDS
    )
    np.testing.assert_allclose(done.state.x, expected, rtol=0, atol=TOLERANCE)


def test_reproducible_descent_is_accelerated_descent_on_the_ridge():
    hessian, linear = one_quadratic()
    ridge, hyper = inexact_agd.reproducible_hyper(BIG, 2.0, 0.4)
    np.testing.assert_allclose(ridge, 0.1, rtol=4 * EPS)
    problem = inexact_agd.Oracle(START, (ridge, (hessian, linear)))
    done = ours(inexact_agd.reproducible_agd(agd_gradient), problem, hyper)
    H, b, start = np.asarray(hessian), np.asarray(linear), np.asarray(START)
    expected = slow.accelerated_gradient(
        lambda x: H @ x - b + 0.1 * (x - start), start, mu=0.1, L=BIG + 0.1, steps=ROUNDS
    )
    np.testing.assert_allclose(done.state.x, expected, rtol=0, atol=TOLERANCE)


def test_reproducible_steps_by_hand():
    # r = 0.01, sqrt((1 + r)/r) = sqrt(101), log(8 * 0.01 / 1e-6) = 11.29: 2 * 11.29 * 10.05.
    assert inexact_agd.reproducible_steps(1.0, 1.0, 1e-2, energy=1.0, error_norm=1e-3) == 227
    # r = 0.9 / 3**2, sqrt((3 + r)/r) = sqrt(31), log(8 * 5 * 0.1 / 0.01) = 5.99: 66.7.
    assert inexact_agd.reproducible_steps(3.0, 3.0, 0.9, energy=5.0, error_norm=0.1) == 67
    # The logarithm is at least 1.
    assert inexact_agd.reproducible_steps(1.0, 1.0, 1e-2, energy=0.0, error_norm=1.0) == 21


def test_reproducible_hyper_by_hand():
    ridge, hyper = inexact_agd.reproducible_hyper(2.4, 3.0, 0.9)
    np.testing.assert_allclose((ridge, *hyper), (0.1, 0.4, 0.2), rtol=4 * EPS)


def test_energy_formulas_by_hand():
    np.testing.assert_allclose(inexact_agd.energy_factor(0.5), 2 / 3, rtol=4 * EPS)
    np.testing.assert_allclose(inexact_agd.energy_factor(0.2), 8 / 9, rtol=4 * EPS)
    np.testing.assert_allclose(inexact_agd.energy_floor(0.3, 2.0), 0.09, rtol=4 * EPS)

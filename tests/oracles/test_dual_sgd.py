"""The methods against their transcriptions, closed forms and other people's solvers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from sklearn.linear_model import LogisticRegression

from jaxlab.core import run
from jaxlab.optim import dual_sgd as dual
from jaxlab.optim import local_solvers
from jaxlab.problems import consensus, graphs
from jaxlab.problems.quadratic import Quadratic, quadratic_gradient, random_quadratics
from tests.oracles import numpy_dual_sgd as slow

EPS = np.finfo(float).eps
KEY = jax.random.key(5)
NUM_AGENTS, DIM, ROUNDS = 6, 3, 20
MU, BIG = 1.0, 20.0
GRAPHS = {
    "ring": graphs.ring_graph(NUM_AGENTS),
    "star": graphs.star_graph(NUM_AGENTS),
    "grid": graphs.grid_graph(2, 3),
}
# An operation errs by half an epsilon; a round has about ten per entry for every local step, and
# nothing amplifies errors in a stable run.
OPERATIONS_PER_LOCAL_STEP = 10


def quadratics():
    return random_quadratics(
        KEY, num_agents=NUM_AGENTS, dim=DIM, strong_convexity=MU, smoothness=BIG
    )


def numpy_gradient(stack):
    hessian, linear = np.asarray(stack.hessian), np.asarray(stack.linear)
    return lambda m, x: hessian[m] @ x - linear[m]


def tolerance(values, num_local_steps):
    operations = OPERATIONS_PER_LOCAL_STEP * ROUNDS * max(num_local_steps, 1)
    return operations * EPS * max(1.0, np.abs(values).max())


@pytest.mark.parametrize("mode", ["accelerated", "plain"])
@pytest.mark.parametrize(("graph", "num_local_steps"), [("ring", 30), ("star", 45), ("grid", 37)])
def test_rounds_equal_the_transcription(graph, num_local_steps, mode):
    stack, gossip = quadratics(), graphs.metropolis_weights(GRAPHS[graph])
    start = jnp.array([1.0, -2.0, 0.5])
    problem = consensus.make_consensus(quadratic_gradient, stack, start, gossip)
    hyper = dual.dual_sgd_hyper(
        MU, BIG, graphs.gossip_spectrum(gossip), num_local_steps=num_local_steps, mode=mode
    )
    method = dual.dual_sgd(num_local_steps=num_local_steps)
    done = jax.jit(lambda: run(method, problem, hyper, KEY, num_steps=ROUNDS))()

    # The step sizes come from the formulas of the text, not from the library's.
    W = np.asarray(gossip)
    eigenvalues = np.linalg.eigvalsh(np.eye(NUM_AGENTS) - W)
    condition = BIG / MU * eigenvalues[-1] / eigenvalues[1]
    seen = (1 - (1 - MU / BIG) ** num_local_steps) / MU
    accelerated = {"tau": MU / eigenvalues[-1], "q": 1 / np.sqrt(condition)}
    plain = {"tau": 1 / (eigenvalues[-1] * seen), "q": 1.0}
    constants = accelerated if mode == "accelerated" else plain
    expected = slow.dual_sgd(
        numpy_gradient(stack), np.asarray(start), W,
        eta=1 / BIG, K=num_local_steps, rounds=ROUNDS, **constants,
    )  # fmt: skip

    for ours, theirs in zip((*done.state, done.trace.consensus_error), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance(theirs, num_local_steps))
    assert done.trace.num_gradients.tolist() == [num_local_steps] * ROUNDS

    P, X = slow.dual_sgd_two_sequences(
        numpy_gradient(stack), np.asarray(start), W,
        eta=1 / BIG, K=num_local_steps, rounds=ROUNDS, **constants,
    )  # fmt: skip
    np.testing.assert_allclose(done.state.p, P, rtol=0, atol=tolerance(P, num_local_steps))
    np.testing.assert_allclose(done.state.params, X, rtol=0, atol=tolerance(X, num_local_steps))


@pytest.mark.parametrize("num_local_steps", [1, 2, 7])
def test_few_local_steps_converge_to_the_exact_optimum(num_local_steps):
    stack, gossip = quadratics(), graphs.metropolis_weights(GRAPHS["ring"])
    problem = consensus.make_consensus(quadratic_gradient, stack, jnp.zeros(DIM), gossip)
    hyper = dual.dual_sgd_hyper(
        MU, BIG, graphs.gossip_spectrum(gossip), num_local_steps=num_local_steps
    )
    assert float(hyper.rate) == 1.0
    method = dual.dual_sgd(num_local_steps=num_local_steps)
    done = jax.jit(lambda: run(method, problem, hyper, KEY, num_steps=3000, every=3000))()
    optimum = np.linalg.solve(
        np.asarray(stack.hessian).sum(axis=0), np.asarray(stack.linear).sum(axis=0)
    )
    condition = BIG / MU
    np.testing.assert_allclose(
        done.state.params, np.tile(optimum, (NUM_AGENTS, 1)), rtol=0, atol=1e3 * condition * EPS
    )


def test_acceleration_beats_plain_ascent_as_the_square_root_of_the_condition():
    """The reference table, qualitatively: rounds to 1e-8 grow by 2 and by 4 per factor 4."""
    gossip = graphs.metropolis_weights(graphs.complete_graph(NUM_AGENTS))
    spectrum = graphs.gossip_spectrum(gossip)

    def rounds(kappa, mode):
        stack = random_quadratics(
            KEY, num_agents=NUM_AGENTS, dim=DIM, strong_convexity=1.0, smoothness=kappa
        )
        problem = consensus.make_consensus(quadratic_gradient, stack, jnp.zeros(DIM), gossip)
        steps = int(np.ceil(1.5 * kappa))
        hyper = dual.dual_sgd_hyper(
            1.0, kappa, spectrum, num_local_steps=steps, mode=mode
        )._replace(dual_step_size=jnp.asarray(1.0))
        method = dual.dual_sgd(num_local_steps=steps)
        optimum = np.linalg.solve(
            np.asarray(stack.hessian).sum(axis=0), np.asarray(stack.linear).sum(axis=0)
        )

        def squared_error(state, info):
            return jnp.sum((state.params - optimum[None]) ** 2)

        done = jax.jit(
            lambda: run(method, problem, hyper, KEY, num_steps=600, trace_fn=squared_error)
        )()
        return int(np.argmax(np.asarray(done.trace) < 1e-8))

    accelerated, plain = rounds(25.0, "accelerated"), rounds(25.0, "plain")
    # The reference instance took 56 and 248 rounds.
    assert 0 < accelerated < plain / 2
    assert 1.4 < rounds(100.0, "accelerated") / accelerated < 2.8


def logistic_rows():
    keys = jax.random.split(KEY, 2)
    inputs = jax.random.normal(keys[0], (NUM_AGENTS, 20, DIM))
    truth = jnp.array([2.0, -1.0, 0.5])
    labels = jax.random.bernoulli(keys[1], jax.nn.sigmoid(inputs @ truth)).astype(float)
    return inputs, 2 * labels - 1


RIDGE = 0.1


def logistic_loss(params, rows):
    inputs, labels = rows
    margins = labels * (inputs @ params)
    return jnp.mean(jnp.logaddexp(0.0, -margins)) + RIDGE / 2 * jnp.sum(params**2)


def numpy_logistic_loss(params, inputs, labels, shift=0.0):
    margins = labels * (inputs @ params)
    value = np.mean(np.logaddexp(0.0, -margins)) + RIDGE / 2 * params @ params
    return value + np.sum(shift * params)


def test_logistic_regression_reaches_the_optimum_of_scipy_and_sklearn():
    inputs, labels = (np.asarray(x) for x in logistic_rows())
    gossip = graphs.metropolis_weights(GRAPHS["ring"])
    problem = consensus.make_consensus(
        consensus.full_gradient(logistic_loss), logistic_rows(), jnp.zeros(DIM), gossip
    )
    big = RIDGE + max(np.linalg.norm(x, 2) ** 2 / len(x) / 4 for x in inputs)
    steps = int(np.ceil(1.5 * big / RIDGE))
    hyper = dual.dual_sgd_hyper(RIDGE, big, graphs.gossip_spectrum(gossip), num_local_steps=steps)
    assert float(hyper.rate) < 1
    method = dual.dual_sgd(num_local_steps=steps)
    done = jax.jit(lambda: run(method, problem, hyper, KEY, num_steps=400, every=400))()
    flat_inputs, flat_labels = inputs.reshape(-1, DIM), labels.reshape(-1)

    solved = scipy.optimize.minimize(
        numpy_logistic_loss, np.zeros(DIM), (flat_inputs, flat_labels),
        method="BFGS", options={"gtol": 1e-9},
    )  # fmt: skip
    # SciPy's differences are good to the square root of epsilon, over the curvature.
    finite_difference_error = 10 * np.sqrt(EPS) / RIDGE
    np.testing.assert_allclose(
        done.state.params, np.tile(solved.x, (NUM_AGENTS, 1)), rtol=0, atol=finite_difference_error
    )
    model = LogisticRegression(
        C=1 / (RIDGE * len(flat_inputs)), fit_intercept=False, tol=1e-10, solver="newton-cholesky"
    ).fit(flat_inputs, flat_labels)
    np.testing.assert_allclose(
        done.state.params, np.tile(model.coef_[0], (NUM_AGENTS, 1)), rtol=0, atol=1e-8
    )


def test_exact_minimizer_equals_scipy():
    inputs, labels = (np.asarray(x) for x in logistic_rows())
    problem = consensus.make_consensus(
        consensus.full_gradient(logistic_loss), logistic_rows(), jnp.zeros(DIM),
        graphs.metropolis_weights(GRAPHS["star"]),
    )  # fmt: skip
    shift = 0.05 * jax.random.normal(KEY, (NUM_AGENTS, DIM))
    found = local_solvers.exact_minimizer(problem, shift, jnp.zeros((NUM_AGENTS, DIM)), KEY)
    for m in range(NUM_AGENTS):
        solved = scipy.optimize.minimize(
            numpy_logistic_loss, np.zeros(DIM), (inputs[m], labels[m], np.asarray(shift[m])),
            options={"gtol": 1e-9},
        )  # fmt: skip
        np.testing.assert_allclose(found[m], solved.x, rtol=0, atol=10 * np.sqrt(EPS) / RIDGE)


def test_step_sizes_equal_hand_computed_numbers():
    """mu = 2, L = 8, and the ring of four: I - W has the eigenvalues 0, 2/3, 2/3, 4/3."""
    spectrum = graphs.gossip_spectrum(graphs.metropolis_weights(graphs.ring_graph(4)))
    constants = dual.dual_constants(2.0, 8.0, spectrum)
    np.testing.assert_allclose(
        [*constants], [(2 / 3) / 8, (4 / 3) / 2, 8.0, 1 / np.sqrt(8)], rtol=32 * EPS
    )
    plain = dual.dual_sgd_hyper(2.0, 8.0, spectrum, num_local_steps=3, mode="plain")
    # (1 - (3/4)^3) / 2 = 37/128, so that tau = 3/4 * 128/37 = 96/37.
    np.testing.assert_allclose([*plain], [96 / 37, 1.0, 1 / 8], rtol=32 * EPS)
    fast = dual.dual_sgd_hyper(2.0, 8.0, spectrum, num_local_steps=4, mode="accelerated",
                               step_size=0.24)  # fmt: skip
    auto = dual.dual_sgd_hyper(2.0, 8.0, spectrum, num_local_steps=6)
    np.testing.assert_allclose([*auto], [1.5, 1 / np.sqrt(8), 1 / 8], rtol=32 * EPS)
    np.testing.assert_allclose(fast.step_size, 0.24, rtol=EPS)
    # One step fewer is too little work: (1 - (3/4)^5) / 2 = 781/2048.
    short = dual.dual_sgd_hyper(2.0, 8.0, spectrum, num_local_steps=5)
    np.testing.assert_allclose([*short], [0.75 * 2048 / 781, 1.0, 1 / 8], rtol=32 * EPS)
    # 13 * 2000^(3/4) = 3887.9, and log(3887.9) / -log(1 - 1/1000) = 8261.49.
    assert float(dual.sufficient_local_steps(1.0, 1000.0, spectrum)) == 8262
    # log(13 * 8^(3/4)) / log(4/3) = 14.33 and log(1e-6) / (2 log(1 - 1/sqrt 8)) = 15.8.
    assert float(dual.sufficient_local_steps(2.0, 8.0, spectrum)) == 15
    assert float(dual.rounds_to_accuracy(constants, 1e-6)) == 16
    # log(1e-6) / (2 log(7/8)) = 51.7.
    assert float(dual.rounds_to_accuracy(constants, 1e-6, mode="plain")) == 52
    np.testing.assert_allclose(
        dual.communication_bound(constants, np.exp(-2.0)), 2 * np.sqrt(8), rtol=32 * EPS
    )


def test_a_mode_that_is_asked_for_is_kept_whatever_the_local_work():
    spectrum = graphs.gossip_spectrum(graphs.metropolis_weights(graphs.ring_graph(4)))
    plain = dual.dual_sgd_hyper(2.0, 8.0, spectrum, num_local_steps=60, mode="plain")
    assert float(plain.rate) == 1.0
    with pytest.warns(dual.InsufficientLocalWorkWarning):
        fast = dual.dual_sgd_hyper(2.0, 8.0, spectrum, num_local_steps=1, mode="accelerated")
    np.testing.assert_allclose(fast.rate, 1 / np.sqrt(8), rtol=32 * EPS)


def test_dual_value_and_energy_equal_their_definitions():
    """On one-dimensional quadratics h x^2/2 - b x: D(Z) = sum (b - z)^2 / (2 h)."""
    hessian, linear = np.array([2.0, 4.0, 8.0]), np.array([1.0, -2.0, 3.0])
    stack = Quadratic(jnp.asarray(hessian)[:, None, None], jnp.asarray(linear)[:, None])
    gossip = graphs.metropolis_weights(graphs.star_graph(3))
    problem = consensus.make_consensus(quadratic_gradient, stack, jnp.zeros(1), gossip)
    shift = np.array([0.5, -0.25, -0.25])
    minimizers = (linear - shift) / hessian

    def loss(x, quadratic):
        return 0.5 * x @ quadratic.hessian @ x - quadratic.linear @ x

    value = dual.dual_value(
        loss, problem, jnp.asarray(shift)[:, None], jnp.asarray(minimizers)[:, None]
    )
    expected = np.sum((linear - shift) ** 2 / (2 * hessian))
    np.testing.assert_allclose(value, expected, rtol=16 * EPS)

    constants = dual.dual_constants(2.0, 8.0, graphs.gossip_spectrum(gossip))
    gradients = hessian * linear.sum() / hessian.sum() - linear
    energy = dual.dual_energy(
        jnp.asarray(0.3), jnp.asarray(shift)[:, None], -jnp.asarray(gradients)[:, None], gossip,
        constants,
    )  # fmt: skip
    offset = shift + gradients
    pseudo_inverse = np.linalg.pinv(np.eye(3) - np.asarray(gossip))
    expected = 0.3 + float(constants.strong_convexity) / 2 * offset @ pseudo_inverse @ offset
    np.testing.assert_allclose(energy, expected, rtol=64 * EPS)


def test_dual_energy_where_the_laplacian_is_singular_to_the_last_bit():
    """Two agents that average: I - W has the eigenvalue 1 on (1, -1), and 0 exactly on (1, 1)."""
    gossip = jnp.full((2, 2), 0.5)
    constants = dual.dual_constants(1.0, 2.0, graphs.gossip_spectrum(gossip))
    q = jnp.array([[1.0], [-1.0]])
    energy = dual.dual_energy(jnp.asarray(0.0), q, jnp.zeros((2, 1)), gossip, constants)
    np.testing.assert_allclose(energy, constants.strong_convexity / 2 * 2, rtol=16 * EPS)

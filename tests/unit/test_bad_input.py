"""Wrong input is refused before anything is computed, by the argument's name."""

import warnings

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest
from jax.experimental import checkify

from jaxlab.core import checked, run
from jaxlab.optim import dual_sgd, federated, local_solvers
from jaxlab.optim.inexact_agd import agd_hyper, reproducible_hyper
from jaxlab.problems import consensus, graphs, mixing
from jaxlab.problems.quadratic import Quadratic, quadratic_gradient, random_quadratics

pytestmark = pytest.mark.usefixtures("without_type_checks")

KEY = jax.random.key(0)
RING = graphs.metropolis_weights(graphs.ring_graph(4))
SPECTRUM = graphs.gossip_spectrum(RING)


def stack(num_agents=4):
    return random_quadratics(
        KEY, num_agents=num_agents, dim=2, strong_convexity=1.0, smoothness=4.0
    )


def hyper_of(*, strong_convexity=1.0, smoothness=4.0, num_local_steps=3, **options):
    return dual_sgd.dual_sgd_hyper(
        strong_convexity, smoothness, SPECTRUM, num_local_steps=num_local_steps, **options
    )


def problem_of(data=None, start=None, gossip=RING, gradient=quadratic_gradient):
    data = stack() if data is None else data
    return consensus.make_consensus(
        gradient, data, jnp.zeros(2) if start is None else start, gossip
    )


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (np.zeros((3, 3)), r"graph must be connected, got 3 agents of which 2 cannot be reached"),
        (np.triu(np.ones((3, 3))), r"graph must be symmetric, got an edge between agents 0 and 1"),
        (np.ones((2, 3)), r"graph must be a square matrix, got shape \(2, 3\)"),
        (nx.path_graph(3, create_using=nx.DiGraph), r"graph must be undirected, got a directed"),
        (nx.disjoint_union(nx.path_graph(2), nx.path_graph(2)), r"agent 2 among them"),
    ],
)
def test_graphs(graph, message):
    with pytest.raises(ValueError, match=message):
        graphs.metropolis_weights(graph)


def doubly_stochastic_but(row, column, change):
    return np.asarray(RING).copy() + change * np.outer(np.eye(4)[row], np.eye(4)[column])


@pytest.mark.parametrize(
    ("gossip", "message"),
    [
        (doubly_stochastic_but(0, 1, 0.1), r"gossip must be symmetric, got 0\.433333 at \(0, 1\)"),
        (doubly_stochastic_but(2, 2, 0.1), r"gossip must be doubly stochastic, got a sum of 1\.1"),
        (np.eye(4), r"gossip must belong to a connected graph .*eigenvalues 1 and 1"),
        (np.array([[0.0, 1.0], [1.0, 0.0]]), r"gossip must have eigenvalues above -1, got -1"),
        (np.ones((2, 4)), r"gossip must be a square matrix \[agents, agents\], got shape \(2, 4\)"),
        (RING.at[1, 1].set(jnp.nan), r"gossip must be finite, got 1 NaN .*\(1, 1\)"),
    ],
)
def test_gossip_matrices(gossip, message):
    with pytest.raises(ValueError, match=message):
        problem_of(gossip=jnp.asarray(gossip))
    with pytest.raises(ValueError, match=message):
        graphs.gossip_spectrum(jnp.asarray(gossip))


def test_one_agent_has_no_spectrum():
    with pytest.raises(ValueError, match="gossip must join at least 2 agents, got 1"):
        graphs.gossip_spectrum(jnp.ones((1, 1)))


@pytest.mark.parametrize(
    ("constants", "message"),
    [
        ({"strong_convexity": 0.0}, r"strong_convexity must be positive, got 0\.0"),
        ({"strong_convexity": -1.0}, r"strong_convexity must be positive, got -1\.0"),
        ({"strong_convexity": np.nan}, r"strong_convexity must be positive, got nan"),
        ({"strong_convexity": 5.0}, r"smoothness must be at least strong_convexity = 5, got 4\.0"),
        ({"smoothness": np.inf}, r"smoothness must be positive and finite, got inf"),
        ({"num_local_steps": 0}, r"num_local_steps must be at least 1, got 0"),
        ({"step_size": 0.0}, r"step_size must be in \(0, 2/smoothness\), got 0\.0"),
        ({"step_size": 0.5}, r"step_size must be in \(0, 2/smoothness\), got 0\.5"),
        ({"step_size": 0.6}, r"step_size must be in \(0, 2/smoothness\), got 0\.6"),
        ({"step_size": -0.1}, r"step_size must be in \(0, 2/smoothness\), got -0\.1"),
        ({"mode": "fast"}, "mode must be one of auto, accelerated, plain, got 'fast'"),
    ],
)
def test_constants(constants, message):
    with pytest.raises(ValueError, match=message):
        hyper_of(**constants)


def test_rounds_need_a_known_mode():
    constants = dual_sgd.dual_constants(1.0, 4.0, SPECTRUM)
    with pytest.raises(ValueError, match="mode must be one of accelerated, plain, got 'auto'"):
        dual_sgd.rounds_to_accuracy(constants, 1e-3, mode="auto")  # pyright: ignore[reportArgumentType]


def test_the_baselines_check_curvature_too():
    for function in (agd_hyper, lambda mu, big: federated.ssda_hyper(mu, big, SPECTRUM)):
        with pytest.raises(ValueError, match="strong_convexity must be positive"):
            function(0.0, 1.0)
    with pytest.raises(ValueError, match=r"accuracy must be positive, got 0\.0"):
        reproducible_hyper(1.0, 1.0, 0.0)


def test_acceleration_with_too_little_work_warns():
    with pytest.warns(dual_sgd.InsufficientLocalWorkWarning, match=r"= 0\.75 is below 1\.5"):
        hyper_of(mode="accelerated")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hyper_of(mode="accelerated", num_local_steps=6)


@pytest.mark.parametrize("steps", [0, -2])
@pytest.mark.parametrize("factory", [dual_sgd.dual_sgd, federated.fedavg, federated.scaffold])
def test_local_steps(factory, steps):
    with pytest.raises(ValueError, match=f"num_local_steps must be at least 1, got {steps}"):
        factory(num_local_steps=steps)
    with pytest.raises(TypeError, match=r"num_local_steps must be a Python integer, got 1\.5"):
        factory(num_local_steps=1.5)


def test_exactly_one_local_solver():
    with pytest.raises(ValueError, match="exactly one of num_local_steps and local_solver"):
        dual_sgd.dual_sgd()
    with pytest.raises(ValueError, match="exactly one of num_local_steps and local_solver"):
        dual_sgd.dual_sgd(num_local_steps=2, local_solver=local_solvers.exact_solver())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"data": stack(3)}, r"data\.hessian must have a leading axis of 4 agents .*\(3, 2, 2\)"),
        (
            {"data": Quadratic(stack().hessian, jnp.full((4, 2), jnp.nan))},
            r"data\.linear must be finite, got 8 NaN",
        ),
        ({"start": jnp.array([0.0, jnp.inf])}, r"start must be finite, got 1 NaN or infinite"),
        ({"start": {"x": jnp.zeros(2)}, "gradient": lambda x, data, key: x["x"]}, "structure"),
        (
            {"gradient": lambda x, data, key: jnp.zeros(3)},
            r"gradient_fn must return leaves shaped as in start, \(2,\), got \(3,\)",
        ),
    ],
)
def test_problems(options, message):
    with pytest.raises(ValueError, match=message):
        problem_of(**options)


def test_a_problem_put_together_by_hand_is_checked_by_the_method():
    problem = consensus.Consensus(
        quadratic_gradient, stack(3), jnp.zeros(2), mixing.DenseMixing(gossip=RING)
    )
    with pytest.raises(ValueError, match=r"problem\.data.* leading axis of 4 agents"):
        run(dual_sgd.dual_sgd(num_local_steps=1), problem, hyper_of(), KEY, num_steps=1)


@pytest.mark.parametrize("key", [0, jax.random.PRNGKey(0), jax.random.split(KEY, 2)])
def test_keys(key):
    with pytest.raises(TypeError, match="key must be a typed PRNG key"):
        run(dual_sgd.dual_sgd(num_local_steps=1), problem_of(), hyper_of(), key, num_steps=1)


def test_batches_and_exchanges_are_counted_from_one():
    with pytest.raises(ValueError, match="batch_size must be at least 1, got 0"):
        consensus.minibatch_gradient(lambda x, rows: x, batch_size=0)
    with pytest.raises(ValueError, match="num_exchanges must be at least 1, got 0"):
        mixing.ChebyshevMixing(mixing.DenseMixing(gossip=RING), SPECTRUM, 0)
    with pytest.raises(ValueError, match="num_exchanges must be at least 1, got 0"):
        mixing.chebyshev_spectrum(SPECTRUM, 0)


def test_graph_sizes():
    with pytest.raises(ValueError, match="num_agents must be at least 1, got 0"):
        graphs.ring_graph(0)
    with pytest.raises(ValueError, match=r"edge_probability must be in \[0, 1\], got 1\.5"):
        graphs.erdos_renyi_graph(KEY, 4, 1.5)


def test_traced_constants_are_caught_by_checked():
    def rate(mu):
        return dual_sgd.dual_sgd_hyper(mu, 4.0, SPECTRUM, num_local_steps=3).rate

    assert float(checked(jax.jit(rate))(1.0)) == 1.0
    with pytest.raises(checkify.JaxRuntimeError, match="strong_convexity must be positive"):
        checked(jax.jit(rate))(-1.0)
    with pytest.raises(checkify.JaxRuntimeError, match="smoothness must be at least"):
        checked(jax.jit(rate))(5.0)

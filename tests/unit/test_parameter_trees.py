"""Networks of Flax and Equinox are parameter trees like any other."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxlab.core import Status, run
from jaxlab.optim.dual_sgd import DualSGDHyper, dual_sgd
from jaxlab.problems import consensus, graphs

NUM_AGENTS, KEY = 3, jax.random.key(0)


def flax_network():
    network = nnx.Sequential(
        nnx.Linear(2, 4, rngs=nnx.Rngs(0), param_dtype=float),
        jnp.tanh,
        nnx.Linear(4, 1, rngs=nnx.Rngs(1), param_dtype=float),
    )
    structure, params = nnx.split(network)
    return params, lambda params, x: nnx.merge(structure, params)(x)


def equinox_network():
    network = eqx.nn.MLP(2, 1, 4, 1, activation=jnp.tanh, key=KEY)
    params, rest = eqx.partition(network, eqx.is_array)
    return params, lambda params, x: jax.vmap(eqx.combine(params, rest))(x)


def rows():
    keys = jax.random.split(KEY, 2)
    inputs = jax.random.normal(keys[0], (NUM_AGENTS, 16, 2))
    return inputs, jnp.sin(inputs[..., :1]) + 0.1 * jax.random.normal(keys[1], (NUM_AGENTS, 16, 1))


@pytest.mark.parametrize("network", [flax_network, equinox_network])
def test_agents_train_a_network_together(network):
    params, apply = network()

    def loss(params, rows):
        inputs, outputs = rows
        with jax.numpy_rank_promotion("allow"):  # layers add their bias to a batch
            return jnp.mean((apply(params, inputs) - outputs) ** 2)

    gossip = graphs.metropolis_weights(graphs.complete_graph(NUM_AGENTS))
    problem = consensus.make_consensus(consensus.full_gradient(loss), rows(), params, gossip)
    hyper = DualSGDHyper(jnp.asarray(0.1), jnp.asarray(1.0), jnp.asarray(0.1))
    done = jax.jit(lambda: run(dual_sgd(num_local_steps=5), problem, hyper, KEY, num_steps=60))()

    assert int(done.status) == Status.OK
    assert jax.tree.structure(done.state.params) == jax.tree.structure(problem.start)
    for leaf, like in zip(jax.tree.leaves(done.state.params), jax.tree.leaves(params), strict=True):
        assert leaf.shape == (NUM_AGENTS, *like.shape)

    def mean_loss(params):
        return float(np.mean(jax.vmap(lambda data: loss(params, data))(problem.data)))

    mean = problem.mixing.average(done.state.params)
    assert mean_loss(mean) < 0.5 * mean_loss(params)
    assert done.trace.consensus_error[-1] < done.trace.consensus_error[0]

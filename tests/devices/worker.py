"""Run the device cases in a process of their own, where the number of devices can be chosen.

``python worker.py OUT NUM_DEVICES [COORDINATOR PROCESS NUM_PROCESSES]``: the results of the runs
with one agent per device and, from the first process, of the runs on one device go to OUT as npz.
"""

import os
import re
import sys
from pathlib import Path

out, num_devices, *cluster = sys.argv[1:]
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={num_devices}"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.experimental import multihost_utils  # noqa: E402

from jaxlab.core import run  # noqa: E402
from jaxlab.optim import dual_sgd, federated  # noqa: E402
from jaxlab.problems import consensus, devices, graphs, quadratic  # noqa: E402

NUM_AGENTS, NUM_STEPS, NUM_LOCAL_STEPS = 8, 20, 15
RUNAWAY_AGENT = 5


def squared_error(params, rows):
    return 0.5 * jnp.mean((rows["a"] @ params["w"] + params["b"] - rows["y"]) ** 2) + (
        0.05 * (jnp.sum(params["w"] ** 2) + params["b"] ** 2)
    )


def regression(gossip):
    """A problem with a parameter tree and stochastic gradients."""
    keys = jax.random.split(jax.random.key(1), 2)
    rows = {
        "a": jax.random.normal(keys[0], (NUM_AGENTS, 12, 3)),
        "y": jax.random.normal(keys[1], (NUM_AGENTS, 12)),
    }
    gradient = consensus.minibatch_gradient(squared_error, batch_size=4)
    start = {"w": jnp.zeros(3), "b": jnp.zeros(())}
    return consensus.make_consensus(gradient, rows, start, gossip)


def quadratics(gossip):
    stack = quadratic.random_quadratics(
        jax.random.key(2), num_agents=NUM_AGENTS, dim=3, strong_convexity=1.0, smoothness=10.0
    )
    return consensus.make_consensus(quadratic.quadratic_gradient, stack, jnp.zeros(3), gossip)


def exploding(gossip):
    """One agent runs away to infinity after a few rounds; the others hear of it by and by."""

    def gradient(x, agent, key):
        del key
        return jnp.where(agent == RUNAWAY_AGENT, -(x**3), x)

    agents = jnp.arange(NUM_AGENTS)
    return consensus.make_consensus(gradient, agents, jnp.ones(1), gossip)


def cases():
    """``name -> (method, problem, hyper, options)``."""
    adjacencies = {
        "ring": graphs.ring_graph(NUM_AGENTS),
        "star": graphs.star_graph(NUM_AGENTS),
        "erdos_renyi": graphs.erdos_renyi_graph(jax.random.key(4), NUM_AGENTS, 0.6),
        "complete": graphs.complete_graph(NUM_AGENTS),
    }
    method = dual_sgd.dual_sgd(num_local_steps=NUM_LOCAL_STEPS)
    rows = {}
    for name, adjacency in adjacencies.items():
        gossip = graphs.metropolis_weights(adjacency)
        spectrum = graphs.gossip_spectrum(gossip)
        hyper = dual_sgd.dual_sgd_hyper(1.0, 10.0, spectrum, num_local_steps=NUM_LOCAL_STEPS)
        rows[name] = (method, quadratics(gossip), hyper, {})
    ring = graphs.metropolis_weights(adjacencies["ring"])
    slow = dual_sgd.dual_sgd_hyper(
        0.1, 10.0, graphs.gossip_spectrum(ring), num_local_steps=NUM_LOCAL_STEPS, step_size=0.02
    )
    rows["stochastic"] = (method, regression(ring), slow, {"every": 5})
    rows["nonfinite"] = (method, exploding(ring), slow, {"divergence_threshold": 1e3})
    local = federated.LocalHyper(jnp.asarray(0.01, dtype=float))
    rows["fedavg"] = (federated.fedavg(num_local_steps=3), quadratics(ring), local, {})
    return rows


def save(results, name, done):
    for i, leaf in enumerate(jax.tree.leaves(done)):
        results[f"{name}/{i}"] = np.asarray(leaf)


def edges_used(method, problem, hyper, mesh):
    """The pairs of agents that the traced program sends between."""

    def traced(hyper, key):
        return devices.run_on_devices(method, problem, hyper, key, mesh=mesh, num_steps=1)

    text = str(jax.make_jaxpr(traced)(hyper, jax.random.key(0)))
    exchanges = re.findall(r"perm=([(), 0-9]*)", text)
    pairs = re.findall(r"(\d+), (\d+)", " | ".join(exchanges))
    return np.array(sorted({(int(a), int(b)) for a, b in pairs})).reshape(-1, 2)


def main():
    jax.config.update("jax_enable_x64", True)
    first = True
    if cluster:
        coordinator, process, num_processes = cluster
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(
            coordinator, int(num_processes), int(process), initialization_timeout=60
        )
        first = int(process) == 0
    mesh = jax.make_mesh((NUM_AGENTS,), ("agent",))
    key, results = jax.random.key(7), {}
    names = ("ring", "stochastic") if cluster else tuple(cases())
    for name in names:
        method, problem, hyper, options = cases()[name]
        done = devices.run_on_devices(
            method, problem, hyper, key, mesh=mesh, num_steps=NUM_STEPS, **options
        )
        for leaf in jax.tree.leaves(done.state):
            assert leaf.sharding.spec[0] == "agent", leaf.sharding
            assert len(leaf.sharding.device_set) == NUM_AGENTS
        assert all(leaf.is_fully_replicated for leaf in jax.tree.leaves(done[1:]))
        gathered = multihost_utils.process_allgather(done.state, tiled=True)
        save(results, f"devices/{name}", done._replace(state=gathered))
        if first:
            alone = jax.jit(
                lambda h, k, m=method, p=problem, o=options: run(
                    m, p, h, k, num_steps=NUM_STEPS, **o
                )
            )(hyper, key)
            save(results, f"one/{name}", alone)
            if not cluster:
                results[f"edges/{name}"] = edges_used(method, problem, hyper, mesh)
                results[f"gossip/{name}"] = np.asarray(problem.mixing.gossip)
    if first:
        np.savez(Path(out), **results)


main()

import itertools
import socket
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlab.core import Status
from jaxlab.optim.dual_sgd import DualSGDHyper, dual_sgd
from jaxlab.problems import devices, graphs
from jaxlab.problems.consensus import make_consensus
from jaxlab.problems.mixing import ChebyshevMixing, DenseMixing
from jaxlab.problems.quadratic import quadratic_gradient, random_quadratics

WORKER = Path(__file__).with_name("worker.py")
NUM_STEPS = 20
# A round sums over up to 8 agents in another order and takes 15 local steps from there; errors
# add up over the rounds, since the method is stable.
ROUNDING_PER_STEP = 32
TIMEOUT = 150


def wait_for(*processes):
    """Wait for all; kill the rest and show the output when one fails or hangs."""
    try:
        for process in processes:
            output, _ = process.communicate(timeout=TIMEOUT)
            assert process.returncode == 0, output[-3000:]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def start_worker(*arguments):
    return subprocess.Popen(
        [sys.executable, str(WORKER), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def assert_equal_to_one_device(stored, name):
    count = 0
    while f"one/{name}/{count}" in stored:
        alone, spread = stored[f"one/{name}/{count}"], stored[f"devices/{name}/{count}"]
        assert alone.shape == spread.shape
        tolerance = ROUNDING_PER_STEP * NUM_STEPS * np.finfo(float).eps
        scale = np.max(np.abs(alone), initial=1.0, where=np.isfinite(alone))
        np.testing.assert_allclose(spread, alone, rtol=0, atol=tolerance * scale, err_msg=name)
        count += 1
    assert count >= 7, f"{name}: {count} results"


def test_agents_on_devices_equal_one_device_and_talk_along_edges_only(tmp_path):
    out = tmp_path / "results.npz"
    wait_for(start_worker(out, 8))
    with np.load(out) as stored:
        names = [key.removeprefix("gossip/") for key in stored if key.startswith("gossip/")]
        assert {"ring", "star", "erdos_renyi", "complete", "stochastic"} < set(names)
        for name in names:
            if name != "nonfinite":
                assert_equal_to_one_device(stored, name)
            pairs = {tuple(pair) for pair in stored[f"edges/{name}"].tolist()}
            gossip = stored[f"gossip/{name}"]
            edges = {(int(i), int(j)) for i, j in np.argwhere(gossip) if i != j}
            assert pairs == (set() if name in ("complete", "fedavg") else edges), name
        # Status and first bad step are the last but two leaves of a Run.
        alone, spread = (
            [int(stored[f"{kind}/nonfinite/{i}"]) for i in (6, 7)] for kind in ("one", "devices")
        )
        assert spread == alone
        assert spread[0] == Status.NONFINITE
        assert spread[1] > 0


def test_two_processes_equal_one_device(tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        coordinator = f"127.0.0.1:{probe.getsockname()[1]}"
    out = tmp_path / "results.npz"
    wait_for(*(start_worker(out, 4, coordinator, process, 2) for process in range(2)))
    with np.load(out) as stored:
        for name in ("ring", "stochastic"):
            assert_equal_to_one_device(stored, name)


@pytest.mark.parametrize(
    "adjacency",
    [graphs.ring_graph(7), graphs.star_graph(9), graphs.complete_graph(6), graphs.grid_graph(3, 4)],
    ids=["ring", "star", "complete", "grid"],
)
def test_matchings_cover_every_edge_once_and_no_agent_twice(adjacency):
    matchings = devices.edge_matchings(adjacency)
    for matching in matchings:
        agents = list(itertools.chain(*matching))
        assert len(agents) == len(set(agents))
    edges = sorted(itertools.chain(*matchings))
    assert edges == [(i, j) for i, j in np.argwhere(adjacency).tolist() if i < j]
    assert len(matchings) <= 2 * adjacency.sum(axis=1).max() - 1


def problem_of(num_agents, wrap=lambda mixing: mixing):
    stack = random_quadratics(
        jax.random.key(0), num_agents=num_agents, dim=2, strong_convexity=1.0, smoothness=4.0
    )
    gossip = graphs.metropolis_weights(graphs.complete_graph(num_agents))
    return make_consensus(quadratic_gradient, stack, jnp.zeros(2), wrap(DenseMixing(gossip)))


def run_here(problem, *, axis="agent", **options):
    hyper = DualSGDHyper(jnp.asarray(0.1), jnp.asarray(1.0), jnp.asarray(0.1))
    mesh = jax.make_mesh((1,), (axis,), devices=jax.devices()[:1])
    return devices.run_on_devices(
        dual_sgd(num_local_steps=2), problem, hyper, jax.random.key(0),
        mesh=mesh, num_steps=2, **options,
    )  # fmt: skip


def test_one_agent_needs_one_device():
    assert run_here(problem_of(1)).state.params.shape == (1, 2)


def test_wrong_number_of_devices_is_refused():
    with pytest.raises(ValueError, match=r"mesh must have one device per agent, 3 .* got 1"):
        run_here(problem_of(3))


def test_mesh_without_agents_is_refused():
    with pytest.raises(ValueError, match=r"mesh must have an axis 'agent', got axes \('data',\)"):
        run_here(problem_of(1), axis="data")


def test_other_mixings_are_refused():
    def chebyshev(mixing):
        return ChebyshevMixing(mixing, graphs.gossip_spectrum(mixing.gossip), 2)

    with pytest.raises(ValueError, match=r"problem\.mixing must be a DenseMixing.*got Chebyshev"):
        run_here(problem_of(2, chebyshev))


def test_traces_that_differ_between_devices_are_refused():
    with pytest.raises(ValueError, match=r"trace_fn must return values that are equal"):
        run_here(problem_of(1), trace_fn=lambda state, info: state.params.sum())


def test_a_trace_reduced_over_agents_is_accepted():
    def mean_norm(state, info):
        return jax.lax.pmean(jnp.sum(state.params**2), "agent")

    assert run_here(problem_of(1), trace_fn=mean_norm).trace.shape == (2,)

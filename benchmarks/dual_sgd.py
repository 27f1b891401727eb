"""What a round of ``dual_sgd`` costs, against the plainest loops and against a bare scan.

Run from the repository's root::

    pytest benchmarks/dual_sgd.py -n 0

Times are printed and decide nothing. What decides: all programs give the same answers, and the
runner's compiled program counts no more operations and bytes than a hand-written scan of the same
step. PyTorch gets one thread, which is its fastest at these sizes. First calls include tracing and
compilation; rounds are the best of several runs after that.
"""

import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch  # pyright: ignore[reportMissingImports]

from jaxlab.core import run
from jaxlab.core.iterate import init_key, step_key
from jaxlab.optim.dual_sgd import DualSGDHyper, dual_sgd, dual_sgd_hyper
from jaxlab.problems import consensus, graphs

NUM_ROUNDS, NUM_LOCAL_STEPS, NUM_ROWS, DIM = 50, 10, 64, 32
NUM_SEEDS, BATCH_SIZE = 64, 8
RIDGE, SMOOTHNESS = 0.1, 20.0
KEY = jax.random.key(0)
# A local step rounds about NUM_ROWS + DIM times per entry; nothing amplifies errors.
TOLERANCE = NUM_ROUNDS * NUM_LOCAL_STEPS * (NUM_ROWS + DIM) * float(np.finfo(np.float64).eps)
REPETITIONS = 20


class Setting(NamedTuple):
    """One problem for all programs.

    Attributes:
        inputs: ``[agents, rows, dim]``.
        labels: ``[agents, rows]``, plus or minus one.
        gossip: The ring's matrix.
        hyper: Step sizes.
    """

    inputs: np.ndarray
    labels: np.ndarray
    gossip: np.ndarray
    hyper: DualSGDHyper


pytestmark = pytest.mark.usefixtures("as_users_run")


@functools.cache
def setting(num_agents: int) -> Setting:
    generator = np.random.default_rng(0)
    inputs = generator.normal(size=(num_agents, NUM_ROWS, DIM))
    labels = np.sign(generator.normal(size=(num_agents, NUM_ROWS)))
    gossip = graphs.metropolis_weights(graphs.ring_graph(num_agents))
    hyper = dual_sgd_hyper(
        RIDGE, SMOOTHNESS, graphs.gossip_spectrum(gossip), num_local_steps=NUM_LOCAL_STEPS
    )
    return Setting(inputs, labels, np.array(gossip), hyper)


def loss(params: jax.Array, rows: tuple[jax.Array, jax.Array]) -> jax.Array:
    inputs, labels = rows
    margins = labels * (inputs @ params)
    return jnp.mean(jnp.logaddexp(0.0, -margins)) + RIDGE / 2 * jnp.sum(params**2)


def problem_of(given: Setting, gradient: Callable | None = None) -> consensus.Consensus:
    rows = (jnp.asarray(given.inputs), jnp.asarray(given.labels))
    gradient = gradient or consensus.full_gradient(loss)
    return consensus.make_consensus(gradient, rows, jnp.zeros(DIM), jnp.asarray(given.gossip))


def jaxlab_program(given: Setting) -> Callable[[], Any]:
    method, problem = dual_sgd(num_local_steps=NUM_LOCAL_STEPS), problem_of(given)
    compiled = jax.jit(lambda p, h, k: run(method, p, h, k, num_steps=NUM_ROUNDS))
    return lambda: jax.block_until_ready(compiled(problem, given.hyper, KEY)).state.params


def numpy_program(given: Setting) -> Callable[[], Any]:
    inputs, labels, gossip, hyper = given
    tau, q, eta = (float(x) for x in hyper)
    transposed = inputs.transpose(0, 2, 1)

    def gradient(x: np.ndarray) -> np.ndarray:
        margins = labels * (inputs @ x[:, :, None])[:, :, 0]
        weights = -labels / (1 + np.exp(margins)) / NUM_ROWS
        return (transposed @ weights[:, :, None])[:, :, 0] + RIDGE * x

    def program() -> np.ndarray:
        slow, x = np.zeros((len(gossip), DIM)), np.zeros((len(gossip), DIM))
        fast = slow
        for _ in range(NUM_ROUNDS):
            shift = (fast + q * slow) / (1 + q)
            for _ in range(NUM_LOCAL_STEPS):
                x = x - eta * (gradient(x) + shift)
            disagreement = x - gossip @ x
            fast = shift + tau * disagreement
            slow = (1 - q) * slow + q * shift + tau / q * disagreement
        return x

    return program


def torch_program(given: Setting) -> Callable[[], Any]:
    torch.set_num_threads(1)
    inputs, labels, gossip = (torch.from_numpy(array) for array in given[:3])
    tau, q, eta = (float(x) for x in given.hyper)
    transposed = inputs.transpose(1, 2).contiguous()

    def gradient(x: torch.Tensor) -> torch.Tensor:
        margins = labels * torch.bmm(inputs, x[:, :, None])[:, :, 0]
        weights = -labels * torch.sigmoid(-margins) / NUM_ROWS
        return torch.bmm(transposed, weights[:, :, None])[:, :, 0] + RIDGE * x

    @torch.no_grad()
    def program() -> np.ndarray:
        slow = torch.zeros(len(gossip), DIM, dtype=torch.float64)
        fast, x = slow, slow
        for _ in range(NUM_ROUNDS):
            shift = (fast + q * slow) / (1 + q)
            for _ in range(NUM_LOCAL_STEPS):
                x = x - eta * (gradient(x) + shift)
            disagreement = x - gossip @ x
            fast = shift + tau * disagreement
            slow = (1 - q) * slow + q * shift + tau / q * disagreement
        return x.numpy()

    return program


PROGRAMS = {"jaxlab": jaxlab_program, "numpy": numpy_program, "torch": torch_program}


def seconds(function: Callable[[], Any]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


@pytest.mark.parametrize("num_agents", [16, 64])
@pytest.mark.parametrize("name", PROGRAMS)
def test_round(benchmark, report, name, num_agents):
    given = setting(num_agents)
    program = PROGRAMS[name](given)
    benchmark.extra_info["first_call_seconds"] = first = seconds(program)
    expected = numpy_program(given)()
    np.testing.assert_allclose(program(), expected, rtol=0, atol=TOLERANCE * np.abs(expected).max())
    benchmark.group = f"{NUM_ROUNDS} rounds, {num_agents} agents"
    benchmark.pedantic(program, rounds=REPETITIONS)
    best = benchmark.stats.stats.min
    report(f"{num_agents} agents, {name}: first call", f"{first:.3f} s")
    report(f"{num_agents} agents, {name}: one round", f"{best / NUM_ROUNDS * 1e6:.0f} us")
    if name != "jaxlab":
        ours = jaxlab_program(given)
        ours()
        ratio = best / min(seconds(ours) for _ in range(REPETITIONS))
        report(f"{num_agents} agents: {name} / jaxlab", f"{ratio:.2f}")


def runner_programs(given: Setting) -> dict[str, Any]:
    """The runner, with and without its status, and the scan that one would write by hand."""
    method, problem = dual_sgd(num_local_steps=NUM_LOCAL_STEPS), problem_of(given)

    def whole(hyper: DualSGDHyper, key: jax.Array) -> Any:
        return run(method, problem, hyper, key, num_steps=NUM_ROUNDS)

    def state_and_trace(hyper: DualSGDHyper, key: jax.Array) -> Any:
        return whole(hyper, key)[:2]

    def bare(hyper: DualSGDHyper, key: jax.Array) -> Any:
        def one_round(state: Any, t: jax.Array) -> Any:
            return method.step(problem, hyper, state, step_key(key, t))

        state = method.init(problem, hyper, init_key(key))
        return jax.lax.scan(one_round, state, jnp.arange(NUM_ROUNDS, dtype=jnp.int32))

    programs = {"bare scan": bare, "state and trace": state_and_trace, "with status": whole}
    return {
        name: jax.jit(program).lower(given.hyper, KEY).compile()
        for name, program in programs.items()
    }


@pytest.mark.parametrize("num_agents", [16, 64])
def test_runner_overhead(report, num_agents):
    given = setting(num_agents)
    programs = runner_programs(given)
    costs = {name: program.cost_analysis() for name, program in programs.items()}
    for count in ("flops", "bytes accessed"):
        assert costs["state and trace"][count] <= costs["bare scan"][count]
        ratio = costs["with status"][count] / costs["bare scan"][count]
        report(f"{num_agents} agents, with status / bare scan: {count}", f"{ratio:.3f}")
    answers = {name: program(given.hyper, KEY) for name, program in programs.items()}
    for name in ("state and trace", "with status"):
        for ours, theirs in zip(
            jax.tree.leaves(answers[name][:2]), jax.tree.leaves(answers["bare scan"]), strict=True
        ):
            scale = max(1.0, float(np.abs(theirs).max()))
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=TOLERANCE * scale)
    best = dict.fromkeys(programs, np.inf)
    for _ in range(3 * REPETITIONS):
        # Alternating, so that a busy machine slows all of them.
        for name, program in programs.items():
            took = seconds(lambda p=program: jax.block_until_ready(p(given.hyper, KEY)))
            best[name] = min(best[name], took)
    for name in ("state and trace", "with status"):
        ratio = best[name] / best["bare scan"]
        report(f"{num_agents} agents, {name} / bare scan: time", f"{ratio:.3f}")


def test_seeds_by_vmap(report):
    given = setting(16)
    method = dual_sgd(num_local_steps=NUM_LOCAL_STEPS)
    problem = problem_of(given, consensus.minibatch_gradient(loss, batch_size=BATCH_SIZE))

    def one(key: jax.Array) -> jax.Array:
        return run(method, problem, given.hyper, key, num_steps=NUM_ROUNDS).state.params

    single, batched = jax.jit(one), jax.jit(jax.vmap(one))
    keys = jax.random.split(KEY, NUM_SEEDS)

    def by_loop() -> np.ndarray:
        return np.stack([jax.block_until_ready(single(key)) for key in keys])

    def by_vmap() -> jax.Array:
        return jax.block_until_ready(batched(keys))

    expected = by_loop()
    np.testing.assert_allclose(by_vmap(), expected, rtol=0, atol=TOLERANCE * np.abs(expected).max())
    ratio = min(seconds(by_loop) for _ in range(3)) / min(seconds(by_vmap) for _ in range(3))
    report(f"{NUM_SEEDS} runs / {NUM_SEEDS} seeds by vmap: time", f"{ratio:.2f}")

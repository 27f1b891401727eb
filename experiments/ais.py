"""Races delayed-weight importance sampling on multimodal densities with known modes.

Run it by ``jaxlab run ais`` or ``python experiments/ais.py``; ``--help`` lists the flags.
"""

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlab.core import Method
from jaxlab.data.galaxies import galaxy_velocities
from jaxlab.data.tabular import standardize
from jaxlab.experiment import CommonArgs, Experiment, Row, Session, main, seed_keys
from jaxlab.experiment.ais_report import draw, judge
from jaxlab.experiment.ais_rivals import global_sampling, tempered_smc
from jaxlab.inference.ais import ais_hyper, block_log_weights, delayed_ais
from jaxlab.inference.ais_numpyro import numpyro_target
from jaxlab.inference.ais_theory import mean_field_fixed_point, mean_field_step
from jaxlab.inference.isir import isir
from jaxlab.inference.target import Target, heavy_tailed, make_target
from jaxlab.problems import densities
from jaxlab.stats.weights import effective_sample_size

SIZE = 100  # points per block, and calls of the log density per step of every method
CHAINS, CANDIDATES = 20, 6
MOVES, TEMPERATURES = 4, 20
SCALES = (0.2, 0.5, 1.0)  # of the random walks of tempered SMC, the best of which is shown
PARTS = 3
TASKS = ("ring", "mixture 5-d", "mixture 10-d", "banana", "galaxies")


@dataclass(frozen=True)
class Args(CommonArgs):
    """Flags of the experiment."""

    seeds: int = 8
    """How many independent repetitions."""
    task: Literal["all", "ring", "mixture 5-d", "mixture 10-d", "banana", "galaxies"] = "all"
    """Which density; with --smoke, "all" means ring, and there are fewer rivals."""
    calls: int = 60_000
    """Calls of the log density per method and repetition; with --smoke at most 6000."""

    def __post_init__(self) -> None:
        """Check what the types leave open."""
        super().__post_init__()
        if self.calls < 6000 or self.calls % 6000:
            raise ValueError(f"calls must be a multiple of 6000, got {self.calls}")


class Task(NamedTuple):
    """A target, the regions of its modes with their masses, and its log evidence if known."""

    name: str
    target: Target
    label_fn: Callable[[jax.Array], jax.Array]
    masses: np.ndarray
    log_evidence: float


class Measured(NamedTuple):
    """What a step tells. Attributes: log_masses: of each region, unnormalised; ess."""

    log_masses: jax.Array
    ess: jax.Array


class Inputs(NamedTuple):
    """What ``prepare`` hands to ``run``."""

    tasks: list[Task]
    calls: int


def prepare(args: Args) -> Inputs:
    """Build the targets; the galaxies are read from their package."""
    wanted = (TASKS[:1] if args.smoke else TASKS) if args.task == "all" else (args.task,)
    calls = min(args.calls, 6000) if args.smoke else args.calls
    return Inputs([make_task(name) for name in wanted], calls)


def make_task(name: str) -> Task:
    """A task by its name."""
    if name == "galaxies":
        rows = jnp.asarray(standardize(galaxy_velocities()))
        # Where the prior is: shares around equal, means within the data, scales below it.
        location = {"means": jnp.zeros(PARTS), "scales": jnp.full(PARTS, -1.5)}
        scale = {"means": jnp.ones(PARTS), "scales": jnp.ones(PARTS)}
        posterior = numpyro_target(
            densities.mixture_posterior, (rows, PARTS), key=jax.random.key(0),
            location={**location, "shares": jnp.zeros(PARTS - 1)},
            scale={**scale, "shares": jnp.ones(PARTS - 1)},
        )  # fmt: skip
        target = posterior.target

        def label_fn(x: jax.Array) -> jax.Array:
            return densities.labels_of_order(target.unravel(x)["means"])

        return Task(name, target, label_fn, np.full(6, 1 / 6), float("nan"))
    if name == "banana":
        density, law = densities.banana(4), heavy_tailed(jnp.zeros(4), 3.0)
    elif name == "ring":
        density, law = densities.ring_of_bumps(8, 15.0), heavy_tailed(jnp.zeros(2), 12.0)
    else:
        dim = 5 if name == "mixture 5-d" else 10
        directions = np.random.default_rng(3).normal(size=(5, dim))
        centres = 9 * directions / np.linalg.norm(directions, axis=1, keepdims=True)
        density = densities.bumps(centres, np.array([0.35, 0.25, 0.2, 0.12, 0.08]))
        law = heavy_tailed(jnp.zeros(dim), 4.0)
    target = make_target(density.logdensity_fn, law)
    return Task(name, target, density.label_fn, density.masses, 0.0)


def measure(task: Task, read: Callable[[Any], tuple[jax.Array, jax.Array]]) -> Callable:
    """A ``trace_fn``: masses of the regions by the newest points and their log weights."""

    def trace_fn(state: Any, info: Any) -> Measured:
        del info
        points, log_w = read(state)
        labels = jax.vmap(task.label_fn)(points)
        regions = jnp.arange(len(task.masses))
        inside = jnp.where(labels[None] == regions[:, None], log_w[None], -jnp.inf)
        masses = jax.nn.logsumexp(inside, axis=1) - jnp.log(log_w.shape[0])
        return Measured(masses, effective_sample_size(log_w))

    return trace_fn


def newest_block(state: Any) -> tuple[jax.Array, jax.Array]:
    """The block drawn last, with its unbiased weights."""
    return state.points[-1], block_log_weights(state)[-1]


def samplers(task: Task, smoke: bool) -> dict[str, tuple[Method, Any, Callable]]:
    """Methods that call the log density ``SIZE`` times in every step."""
    wide: dict[str, Any] = {"num_blocks": 5, "block_size": SIZE}
    hyper = ais_hyper()
    found: dict[str, tuple[Method, Any, Callable]] = {
        "plain IS": (global_sampling(batch_size=SIZE), (), lambda s: (s.points, s.log_weights)),
        "AMIS (L = 0)": (delayed_ais(lag=0, **wide), hyper, newest_block),
        "delayed (L = 1)": (delayed_ais(lag=1, **wide), hyper, newest_block),
    }
    if smoke:
        return found
    found["i-SIR"] = (
        isir(num_chains=CHAINS, num_candidates=CANDIDATES), (),
        lambda s: (s.points, jnp.zeros_like(s.log_weights)),
    )  # fmt: skip
    found["PMC"] = (delayed_ais(num_blocks=1, block_size=SIZE, lag=0), hyper, newest_block)
    if task.name == "ring":
        found["delayed (L = 2)"] = (delayed_ais(lag=2, **wide), hyper, newest_block)
    return found


def run(args: Args, inputs: Inputs, session: Session) -> list[Row]:
    """All measurements."""
    rows = []
    for task in inputs.tasks:
        reference = task.log_evidence
        if np.isnan(reference):
            reference = long_run(args, session, task)
        for name, (method, hyper, read) in samplers(task, args.smoke).items():
            rows += race(args, session, inputs.calls, task, reference, (name, method, hyper, read))
        rows += smc_rows(args, session, inputs.calls, task, reference)
    with session.timed("mean field"):
        return rows + mean_field_rows() + stability_rows()


def race(
    args: Args, session: Session, calls: int, task: Task, reference: float, contender: tuple
) -> list[Row]:
    """All seeds at once; estimates come from the second half of the blocks."""
    name, method, hyper, read = contender
    num_steps = calls // SIZE - 5  # the methods with a window start with five blocks
    done = session.run(
        f"{task.name} {name}", method, task.target, hyper, seed_keys(args),
        num_steps=num_steps, chunk_size=num_steps // 5, in_axes=(None, None, 0),
        trace_fn=measure(task, read),
    )  # fmt: skip
    log_masses = np.asarray(done.trace.log_masses)
    kept = log_masses[:, num_steps // 2 :] if name != "plain IS" else log_masses
    masses = np.exp(kept).mean(axis=1)
    ess = np.asarray(done.trace.ess)[:, -kept.shape[1] :].sum(axis=1) / calls
    # A chain's points have no weights: it tells neither an evidence nor this ESS.
    weighted = name != "i-SIR"
    rows = estimate_rows(args, task, reference, name, masses, ess if weighted else None)
    window = 5
    running = np.exp(log_masses)
    for s in range(args.seeds if task.name == "ring" else 0):
        smooth = np.array([running[s, max(0, t - window + 1) : t + 1].mean(axis=0)
                           for t in range(min(num_steps, 30))])  # fmt: skip
        held = (smooth / task.masses).min(axis=1)
        rows += [
            Row(name, "least_mode", held[t], step=SIZE * (5 + t + 1), seed=args.seed + s)
            for t in range(len(held))
        ]
    return rows


def estimate_rows(
    args: Args, task: Task, reference: float, name: str, masses: np.ndarray, ess: Any
) -> list[Row]:
    """Errors of each seed's evidence and masses."""
    total = masses.sum(axis=1)
    distance = np.abs(masses / total[:, None] - task.masses).sum(axis=1) / 2
    rows = []
    for s in range(args.seeds):
        where: dict[str, Any] = {"seed": args.seed + s, "dataset": task.name}
        rows.append(Row(name, "mode_tv", distance[s], **where))
        if ess is not None:
            error = abs(np.log(total[s]) - reference)
            rows.append(Row(name, "log_evidence_error", error, **where))
            rows.append(Row(name, "ess_per_call", ess[s], **where))
    return rows


def smc_trace(task: Task) -> Callable:
    """Masses from SMC's particles; its evidence scales them."""
    inner = measure(task, lambda state: (state.points, jnp.log(state.weights)))

    def trace_fn(state: Any, info: Any) -> Measured:
        log_masses, ess = inner(state, info)
        return Measured(log_masses + jnp.log(len(state.weights)) + state.log_evidence, ess)

    return trace_fn


def smc_rows(args: Args, session: Session, calls: int, task: Task, reference: float) -> list[Row]:
    """Tempered SMC at every scale; the scale with the smallest mean distance is shown."""
    method = tempered_smc(
        num_particles=calls // (TEMPERATURES * (MOVES + 2)), num_moves=MOVES,
        num_temperatures=TEMPERATURES,
    )  # fmt: skip
    scales = jnp.repeat(jnp.array(SCALES), args.seeds)
    keys = jnp.tile(seed_keys(args), len(SCALES))
    done = session.run(
        f"{task.name} tempered SMC", method, task.target, scales, keys,
        num_steps=TEMPERATURES, chunk_size=TEMPERATURES, in_axes=(None, 0, 0),
        trace_fn=smc_trace(task),
    )  # fmt: skip
    last = jax.tree.map(lambda leaf: np.asarray(leaf)[:, -1], done.trace)
    masses = np.exp(last.log_masses).reshape(len(SCALES), args.seeds, -1)
    ess = last.ess.reshape(len(SCALES), args.seeds) / calls
    shares = masses / masses.sum(axis=2, keepdims=True)
    distances = np.abs(shares - task.masses).sum(axis=2).mean(axis=1)
    best = int(np.argmin(distances))
    return estimate_rows(args, task, reference, "tempered SMC", masses[best], ess[best])


def long_run(args: Args, session: Session, task: Task) -> float:
    """The log evidence by four SMC runs of a million calls each."""
    method = tempered_smc(num_particles=4000, num_moves=6, num_temperatures=30)
    done = session.run(
        f"{task.name} reference", method, task.target, jnp.asarray(0.5),
        jax.random.split(jax.random.key(args.seed + 10_000), 4),
        num_steps=30, chunk_size=10, in_axes=(None, None, 0), trace_fn=smc_trace(task),
    )  # fmt: skip
    totals = np.exp(np.asarray(done.trace.log_masses)[:, -1]).sum(axis=1)
    return float(np.log(totals.mean()))


@functools.partial(jax.jit, static_argnames=("lag", "steps"))
def recursion(
    target: jax.Array, kernel: jax.Array, refresh: jax.Array, defensive: float, *, lag: int,
    steps: int,
) -> jax.Array:  # fmt: skip
    """Relative errors of the population's law, for several refresh shares."""
    proposal = jnp.full_like(target, 1 / len(target))
    fixed = mean_field_fixed_point(target, proposal, kernel, defensive)

    def of_share(share: jax.Array) -> jax.Array:
        def step(history: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
            history = mean_field_step(history, target, proposal, kernel, share, defensive)[0]
            return history, jnp.abs(history[-1] / fixed - 1).max()

        start = jnp.broadcast_to(proposal, (lag + 1, len(target)))
        return jax.lax.scan(step, start, length=steps)[1]

    return jax.vmap(of_share)(refresh)


def small_space(lazy: float) -> tuple[jax.Array, jax.Array]:
    """A target on twelve states, none rarer than a thousandth, and a lazy kernel."""
    generator = np.random.default_rng(0)
    target = 1e-3 + (1 - 0.012) * generator.dirichlet(np.ones(12))
    kernel = lazy * np.eye(12) + (1 - lazy) * generator.dirichlet(np.ones(12), size=12)
    return jnp.asarray(target), jnp.asarray(kernel)


def mean_field_rows() -> list[Row]:
    """Errors against steps, for two refresh shares."""
    rows: list[Row] = []
    percents = (5, 20)
    for lag in (0, 1):
        shares = jnp.array(percents) / 100
        errors = recursion(*small_space(0.7), shares, 0.1, lag=lag, steps=200)
        rows += [
            Row(f"L = {lag}", f"mean_field_{percent}", max(float(error), 1e-16), step=t + 1)
            for percent, curve in zip(percents, np.asarray(errors), strict=True)
            for t, error in enumerate(curve)
        ]
    return rows


def stability_rows() -> list[Row]:
    """Whether the nonlinear recursion without mixing settles, by lag and refresh share."""
    shares, rows = np.linspace(0.1, 0.95, 18), []
    for lag in (1, 2, 3, 4):
        errors = recursion(*small_space(1.0), jnp.asarray(shares), 0.01, lag=lag, steps=400)
        settled = np.asarray(errors)[:, -40:].max(axis=1) < 0.1
        rows += [
            Row(f"L = {lag}", "settled", float(good), step=share)
            for share, good in zip(shares, settled, strict=True)
        ]
    return rows


EXPERIMENT = Experiment("ais", Args, prepare, run, judge, draw)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))

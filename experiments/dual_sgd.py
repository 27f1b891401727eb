"""Races accelerated dual SGD against its rivals and shows when local work is not enough.

Run it by ``jaxlab run dual_sgd`` or ``python experiments/dual_sgd.py``; ``--help`` lists the flags.
"""

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlab.core import Method, Status
from jaxlab.data import tabular
from jaxlab.experiment import CommonArgs, Experiment, Row, Session, main, seed_keys
from jaxlab.experiment.dual_sgd_report import draw, judge
from jaxlab.experiment.measure import Measured, Solved, cost_to_accuracy, with_error
from jaxlab.experiment.metrics import sweep_rows
from jaxlab.experiment.networks import Network, named_network
from jaxlab.optim import dual_sgd as dual
from jaxlab.optim import dual_sgd_studies as studies
from jaxlab.optim import federated, inexact_agd
from jaxlab.problems import consensus, regression

ACCURACY = 1e-10
FEW_STEPS = 10
DATASETS = ("breast_cancer", "digits", "diabetes")


@dataclass(frozen=True)
class Args(CommonArgs):
    """Flags of the experiment."""

    agents: int = 10
    """How many agents share the rows."""
    graph: Literal["ring", "grid", "star", "erdos_renyi", "complete"] = "ring"
    """The communication graph that is compared with a server (the complete graph)."""
    dataset: Literal["all", "breast_cancer", "digits", "diabetes"] = "all"
    """Which regression problem; with --smoke, "all" means breast_cancer."""
    condition: float = 100.0
    """The condition number kappa of every agent's loss; with --smoke at most 25."""

    def __post_init__(self) -> None:
        """Check what the types leave open."""
        super().__post_init__()
        if self.seeds < 2:
            raise ValueError(f"seeds must be at least 2 for an interval, got {self.seeds}")
        if self.agents < 2:
            raise ValueError(f"agents must be at least 2, got {self.agents}")
        if not 1 < self.condition <= 1000:
            raise ValueError(f"condition must be in (1, 1000], got {self.condition}")


class Task(NamedTuple):
    """A regression problem with its constants and its answer."""

    name: str
    loss_fn: Callable[[Any, Any], Any]
    gradient_fn: Callable[[Any, Any, Any], Any]
    shards: regression.Shards
    strong_convexity: float
    smoothness: float
    solution: jax.Array


class Contender(NamedTuple):
    """A method with a grid of hyper-parameters, of which the best is reported."""

    name: str
    method: Method
    hyper: Any  # leaves [grid]
    num_steps: int
    chunk_size: int
    random: bool = False


class Inputs(NamedTuple):
    """What ``prepare`` hands to ``run``."""

    tasks: list[Task]
    networks: list[Network]
    condition: float


def prepare(args: Args) -> Inputs:
    """Load the tables, deal them out and build the graphs."""
    condition = min(args.condition, 25.0) if args.smoke else args.condition
    wanted = (
        (DATASETS[:1] if args.smoke else DATASETS) if args.dataset == "all" else (args.dataset,)
    )
    names = dict.fromkeys(("complete", args.graph))
    tasks = [make_task(w, args.agents, condition) for w in wanted]
    return Inputs(tasks, [named_network(n, args.agents, args.seed) for n in names], condition)


def make_task(name: str, num_agents: int, condition: float) -> Task:
    """Deal a table out by its first feature; digits by the class, as blank pixels come first."""
    table = getattr(tabular, name)()
    loss_fn, smoothness_fn = regression.logistic_loss, regression.logistic_smoothness
    targets = table.targets
    if name == "diabetes":
        loss_fn, smoothness_fn = regression.least_squares_loss, regression.least_squares_smoothness
        targets = tabular.standardize(targets)
    features = tabular.prepare_features(table.features)
    by = "target" if name == "digits" else "feature"
    shards = tabular.split_sorted(features, targets, num_agents, by=by)
    shards = regression.with_condition(shards, smoothness_fn, condition)
    solution = regression.centralized_optimum(loss_fn, shards)
    mu = float(shards.ridge[0])
    gradient_fn = consensus.full_gradient(loss_fn)
    return Task(name, loss_fn, gradient_fn, shards, mu, condition * mu, solution)


def run(args: Args, inputs: Inputs, session: Session) -> list[Row]:
    """All measurements."""
    rows = []
    for task in inputs.tasks:
        methods = dual_methods(inputs.condition)
        for network in inputs.networks:
            for contender in contenders(task, network, methods, inputs.condition, args.smoke):
                rows += race(args, session, task, network, contender)
    rows += stochastic_rows(args, session, inputs)
    rows += condition_rows(args, session)
    rows += graph_rows(args, session)
    rows += accuracy_rows(args, session)
    return rows + radius_rows(args, session)


def dual_methods(condition: float) -> dict[str, Method]:
    """One object per method: the runner compiles each of them once for all graphs."""
    local_steps = math.ceil(1.5 * condition)
    many, few = (dual.dual_sgd(num_local_steps=k) for k in (local_steps, FEW_STEPS))
    methods = {
        "accelerated": many,
        "plain": many,
        "plain, few steps": few,
        "SSDA": federated.ssda(),
        "gradient tracking": federated.gradient_tracking(),
        "FedAvg": federated.fedavg(num_local_steps=local_steps),
        "FedAvg, few steps": federated.fedavg(num_local_steps=FEW_STEPS),
        "SCAFFOLD": federated.scaffold(num_local_steps=FEW_STEPS),
        "SCAFFOLD, many steps": federated.scaffold(num_local_steps=local_steps),
        "Scaffnew": federated.scaffnew(),
    }
    wrapped = {method: with_error(method) for method in methods.values()}
    return {name: wrapped[method] for name, method in methods.items()}


def contenders(
    task: Task, network: Network, methods: dict[str, Method], condition: float, smoke: bool
) -> list[Contender]:
    """Dual methods with the theory's step sizes; the others with a grid around theirs."""
    mu, big = task.strong_convexity, task.smoothness
    few, many = FEW_STEPS, math.ceil(1.5 * condition)

    def theory(num_local_steps: int, mode: Any) -> Any:
        hyper = dual.dual_sgd_hyper(
            mu, big, network.spectrum, num_local_steps=num_local_steps, mode=mode
        )
        return jax.tree.map(lambda leaf: leaf[None], hyper)

    def steps(*multiples: float) -> federated.LocalHyper:
        return federated.LocalHyper(jnp.array(multiples) / big)

    ssda = jax.tree.map(lambda leaf: leaf[None], federated.ssda_hyper(mu, big, network.spectrum))
    long = 2000 if smoke else 10_000
    listed = [
        ("accelerated", theory(many, "accelerated"), long, 40),
        ("plain", theory(many, "plain"), long, 40),
        ("plain, few steps", theory(few, "auto"), long, 40),
        ("SSDA", ssda, long, 40),
        ("gradient tracking", steps(4, 2, 1, 0.5, 0.25), 8000, 400),
    ]
    if network.name == "complete":
        listed += [
            ("FedAvg", steps(2, 1, 0.5, 0.25, 0.125), 120, 120),
            ("SCAFFOLD", steps(8, 4, 2, 1, 0.5), 400, 20),
            ("Scaffnew", scaffnew_grid(big, condition), 1600, 100),
        ]
    if network.name == "complete" and not smoke:
        listed += [
            ("FedAvg, few steps", steps(2, 1, 0.5, 0.25, 0.125), 400, 400),
            ("SCAFFOLD, many steps", steps(1, 0.5, 0.25, 0.125, 0.0625), 400, 20),
        ]
    return [Contender(n, methods[n], *rest, random=n == "Scaffnew") for n, *rest in listed]


def scaffnew_grid(smoothness: float, condition: float) -> federated.ScaffnewHyper:
    """Step sizes around 1/L times communication probabilities around 1/sqrt(kappa)."""
    step, often = np.meshgrid([1.0, 2.0, 4.0, 8.0], [0.5, 1.0, 2.0, 4.0])
    probability = np.minimum(often.ravel() / math.sqrt(condition), 1.0)
    return federated.ScaffnewHyper(jnp.asarray(step.ravel() / smoothness), jnp.asarray(probability))


def race(
    args: Args, session: Session, task: Task, network: Network, contender: Contender
) -> list[Row]:
    """Run the whole grid at once; report the member with the fewest communications."""
    seeds = args.seeds if contender.random else 1
    grid = len(jax.tree.leaves(contender.hyper)[0])
    problem = consensus.make_consensus(
        task.gradient_fn, task.shards, jnp.zeros_like(task.solution), network.gossip
    )

    def settled(trace: Measured) -> bool:
        last = np.asarray(trace.error)[:, -1]
        done = last < ACCURACY
        # Communications grow with the steps alone, but for coins: there all have to finish.
        return bool(np.all(done | ~(last < 1e6)) if contender.random else done.any())

    done = session.run(
        f"{task.name} {network.name} {contender.name}",
        contender.method,
        Solved(problem, task.solution),
        jax.tree.map(lambda leaf: jnp.repeat(leaf, seeds, axis=0), contender.hyper),
        jnp.tile(seed_keys(args, seeds), grid),
        num_steps=contender.num_steps,
        chunk_size=contender.chunk_size,
        in_axes=(None, 0, 0),
        stop_fn=settled,
    )
    trace = jax.tree.map(lambda leaf: np.asarray(leaf).reshape(grid, seeds, -1), done.trace)
    rounds, gradients = cost_to_accuracy(trace, ACCURACY)
    final = np.where(np.isfinite(trace.error[..., -1]), trace.error[..., -1], np.inf)
    best = min(range(grid), key=lambda g: (np.median(rounds[g]), np.median(final[g])))

    def row(metric: str, value: float, **where: Any) -> Row:
        return Row(contender.name, metric, value, dataset=task.name, graph=network.name, **where)

    costs = {"communications": rounds, "gradients": gradients, "final_error": final}
    rows = [row(m, v[best, s], seed=args.seed + s) for m, v in costs.items() for s in range(seeds)]
    step_size = float(jax.tree.leaves(contender.hyper.step_size)[0][best]) * task.smoothness
    rows.append(row("step_size_times_smoothness", step_size, seed=args.seed))
    talked, error = np.cumsum(trace.num_communications[best, 0]), trace.error[best, 0]
    shown = np.unique(np.linspace(0, len(error) - 1, 120).astype(int))
    return rows + [row("error", error[i], step=talked[i], seed=args.seed) for i in shown]


def stochastic_rows(args: Args, session: Session, inputs: Inputs) -> list[Row]:
    """Batches of 8 and small steps: enough local work stays bounded, too little diverges."""
    name, network = inputs.tasks[0].name, inputs.networks[-1]
    settings, rows = [(25, 375, ["accelerated"]), (100, 149, ["accelerated", "plain"])], []
    for kappa, local_steps, modes in settings:
        task = make_task(name, args.agents, float(kappa))
        step_size = 0.1 / task.smoothness
        method = with_error(dual.dual_sgd(num_local_steps=local_steps))
        gradient_fn = regression.weighted_minibatch_gradient(task.loss_fn, batch_size=8)
        problem = consensus.make_consensus(
            gradient_fn, task.shards, jnp.zeros_like(task.solution), network.gossip
        )
        for mode in modes:
            hyper = studies.unguarded_hyper(
                task.strong_convexity, task.smoothness, network.spectrum,
                num_local_steps=local_steps, step_size=step_size, mode=mode,
            )  # fmt: skip
            done = session.run(
                f"stochastic {kappa} {mode}", method,
                Solved(problem, task.solution), hyper, seed_keys(args),
                num_steps=60 if kappa == 25 else 100, chunk_size=20, in_axes=(None, None, 0),
                divergence_threshold=100.0,
            )  # fmt: skip
            error = np.asarray(done.trace.error)
            work = local_steps * step_size * task.strong_convexity
            for s in range(args.seeds):
                where: dict[str, Any] = {"step": work, "seed": args.seed + s, "dataset": name}
                diverged = float(int(done.status[s]) in (Status.DIVERGED, Status.NONFINITE))
                floor = float(np.median(error[s, -20:]))
                rows += [Row(mode, "stochastic_diverged", diverged, **where),
                         Row(mode, "stochastic_floor", floor, **where)]  # fmt: skip
    return rows


def quadratic_batch(
    key: jax.Array, network: Network, kappas: Sequence[float], local_steps: Sequence[int]
) -> Solved:
    """Random quadratics with a leading axis of cases."""
    cases = studies.quadratic_cases(key, kappas, len(network.gossip))
    steps = jnp.asarray(local_steps, dtype=float)
    return Solved(*BUILD(cases, network.gossip, steps))


def sweep(
    args: Args, session: Session, piece: str, network: Network, kappas: Sequence[float], mode: Any
) -> np.ndarray:
    """Rounds to an error of 1e-10 on random quadratics of optimum 1, ``[seeds, kappas]``.

    Every seed and condition number has an instance of its own.
    """
    root = jax.random.fold_in(jax.random.key(args.seed), len(network.gossip))
    local_steps = [math.ceil(1.5 * kappa) for kappa in kappas]
    problems = quadratic_batch(root, network, [*kappas] * args.seeds, local_steps * args.seeds)
    hypers = [
        dual.dual_sgd_hyper(1.0, kappa, network.spectrum, num_local_steps=steps, mode=mode)
        for kappa, steps in zip(kappas, local_steps, strict=True)
    ] * args.seeds
    done = session.run(
        piece, QUADRATIC, problems, consensus.stack_agents(*hypers), jax.random.key(args.seed),
        num_steps=20_000, chunk_size=400, in_axes=(0, 0, None),
        stop_fn=lambda trace: bool((trace.error[:, -1] < ACCURACY).all()),
    )  # fmt: skip
    return cost_to_accuracy(done.trace, ACCURACY)[0].reshape(args.seeds, len(kappas))


def condition_rows(args: Args, session: Session) -> list[Row]:
    """Rounds against the condition number of the losses, with a server."""
    kappas = [16.0, 32.0, 64.0, 128.0] + ([] if args.smoke else [256.0, 512.0])
    server, rows = named_network("complete", 8), []
    for mode in ("accelerated", "plain"):
        rounds = sweep(args, session, f"kappa-{mode}", server, kappas, mode)
        rows += sweep_rows(args.seed, mode, "rounds_by_kappa", kappas, rounds)
    return rows


def graph_rows(args: Args, session: Session) -> list[Row]:
    """Rounds against the condition number of the graph, on rings of growing size."""
    rings = [named_network("ring", size) for size in (4, 8, 12, 16, 24)[: 4 if args.smoke else 5]]
    columns = [
        sweep(args, session, f"ring-{len(ring.gossip)}", ring, [25.0], "accelerated")
        for ring in rings
    ]
    chis = [float(ring.spectrum.condition) for ring in rings]
    return sweep_rows(args.seed, "accelerated", "rounds_by_chi", chis, np.hstack(columns))


def accuracy_rows(args: Args, session: Session) -> list[Row]:
    """Reproducible minimisation: gradients against 1/accuracy, and how far two biases part."""
    inverses = np.logspace(2, 4 if args.smoke else 5, 5 if args.smoke else 7)
    problems, hypers, lengths, bounds = [], [], [], []
    for s in range(args.seeds):
        for i, accuracy in enumerate(1 / inverses):
            key = jax.random.fold_in(jax.random.key(args.seed + s), i)
            bias = accuracy / 100
            ridge, hyper = inexact_agd.reproducible_hyper(1.0, 1.0, accuracy)
            problems.append(studies.biased_oracle(key, dim=64, error_norm=bias, ridge=ridge))
            hypers.append(hyper)
            lengths.append(inexact_agd.reproducible_steps(
                1.0, 1.0, accuracy, energy=1.0, error_norm=bias
            ))  # fmt: skip
            bounds.append(5 * bias / float(ridge))
    chunk = 256
    total = -(-max(lengths) // chunk) * chunk
    batch = (consensus.stack_agents(*problems), consensus.stack_agents(*hypers))
    rows, shape = [], (args.seeds, len(inverses))
    for name, method in (("accelerated", REPRODUCIBLE), ("plain", DESCENT)):
        done = session.run(
            f"accuracy-{name}", method, *batch, jax.random.key(args.seed),
            num_steps=total, chunk_size=chunk, in_axes=(0, 0, None),
        )  # fmt: skip
        gap = np.asarray(done.trace.gap) <= np.tile(1 / inverses, args.seeds)[:, None]
        count = np.where(gap.any(axis=1), gap.argmax(axis=1) + 1.0, np.inf).reshape(shape)
        rows += sweep_rows(args.seed, name, "gradients_by_inverse_accuracy", list(inverses), count)
        if name == "accelerated":
            at_end = np.asarray(done.trace.deviation)[range(len(lengths)), np.array(lengths) - 1]
            ratio = (at_end / np.array(bounds)).reshape(shape)
            rows += sweep_rows(args.seed, name, "deviation_over_bound", list(inverses), ratio)
    return rows


def radius_rows(args: Args, session: Session) -> list[Row]:
    """Spectral radius of a round against the local work ``K eta mu``, with ``eta = 1/L``."""
    ring, rows = named_network("ring", 4), []
    works = np.geomspace(0.03, 4.0, 6 if args.smoke else 14)
    cases = [(kappa, max(1, round(work * kappa)), s) for kappa in (30, 100, 300)
             for work in works for s in range(args.seeds)]  # fmt: skip
    kappas, local_steps, _ = zip(*cases, strict=True)
    with session.timed("radius"):
        root = jax.random.fold_in(jax.random.key(args.seed), 1)
        problems = quadratic_batch(root, ring, kappas, local_steps).problem
        radius = jax.jit(jax.vmap(studies.round_radius))
        for mode in ("accelerated", "plain"):
            hypers = [
                studies.unguarded_hyper(
                    1.0, float(kappa), ring.spectrum, num_local_steps=steps, mode=mode
                )
                for kappa, steps, _ in cases
            ]
            values = np.asarray(radius(problems, consensus.stack_agents(*hypers)))
            rows += [
                Row(mode, f"radius_kappa_{kappa}", value, step=steps / kappa, seed=args.seed + s)
                for (kappa, steps, s), value in zip(cases, values, strict=True)
            ]
    return rows


BUILD = jax.jit(jax.vmap(studies.quadratic_problem, in_axes=(0, None, 0)))
QUADRATIC = with_error(studies.quadratic_method())
REPRODUCIBLE, DESCENT = studies.worst_case_reproducible(), studies.worst_case_descent()
EXPERIMENT = Experiment("dual_sgd", Args, prepare, run, judge, draw)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))

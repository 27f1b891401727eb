"""Forgets a class or a random tenth of the digits in low-bit networks, and races the rivals.

Run it by ``jaxlab run oeu`` or ``python experiments/oeu.py``; ``--help`` lists the flags.
"""

import functools
import sys
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxlab.experiment import CommonArgs, Experiment, Row, Session, main, seed_keys
from jaxlab.experiment.oeu_inputs import (
    BINS,
    RIVALS,
    RULES,
    ChoiceHyper,
    Data,
    Examples,
    Outcome,
    Panel,
    apply_network,
    choose,
    confidence,
    forget_loss,
    init_network,
    load_data,
    observed,
    penalised_loss,
    split_rows,
)
from jaxlab.experiment.oeu_report import COMPARED, SCENARIOS, draw, judge
from jaxlab.optim.oeu import Labelled, Unlearning, oeu
from jaxlab.optim.unlearning_baselines import (
    random_labels,
    retain_alone,
    saliency_mask,
    similar_labels,
)
from jaxlab.optim.unlearning_metrics import UnlearnReport, UnlearnSplits, unlearning_report

GRID = (0.0125, 0.025, 0.05, 0.1, 0.2)
"""Step sizes that are searched."""
TRAINING_RATE, BATCH_SIZE, SPARSE_SHARE = 2e-3, 64, 0.5
NUM_LOOKS, FEW_LOOKS = 15, 6
"""How often a run of unlearning is looked at; with --smoke."""


@dataclass(frozen=True)
class Args(CommonArgs):
    """Flags of the experiment."""

    seeds: int = 4
    """How many independent repetitions: splits, networks, batches; at least 3."""
    dataset: Literal["digits", "mnist"] = "digits"
    """8 x 8 digits of scikit-learn, or 5000 of MNIST averaged to 14 x 14."""
    bits: int = 4
    """Of all weights and activations."""
    width: int = 96
    """Of both hidden layers."""
    training_steps: int = 1500
    """Steps of Adam; with --smoke at most 300."""
    steps: int = 300
    """Steps of unlearning; with --smoke at most 60."""

    def __post_init__(self) -> None:
        """Check what the types leave open."""
        super().__post_init__()
        least = {"seeds": 3, "bits": 2, "width": 4, "training_steps": 30, "steps": NUM_LOOKS}
        for name, number in least.items():
            if getattr(self, name) < number:
                raise ValueError(f"{name} must be at least {number}, got {getattr(self, name)}")
        if self.bits > 8:
            raise ValueError(f"bits must be at most 8, got {self.bits}")


class Inputs(NamedTuple):
    """What ``prepare`` hands to ``run``. Attributes: data; training_steps; looks; every; grid."""

    data: Data
    training_steps: int
    looks: int
    every: int
    grid: tuple[float, ...]


def prepare(args: Args) -> Inputs:
    """Load the images."""
    training, steps, looks, grid = args.training_steps, args.steps, NUM_LOOKS, GRID
    if args.smoke:
        training, steps, looks, grid = min(training, 300), min(steps, 60), FEW_LOOKS, GRID[2:4]
    data = load_data(args.dataset)
    return Inputs(data, training - training % 3, looks, steps // looks, grid)


class Trained(NamedTuple):
    """Models and data by case, which is a scenario and a seed.

    Attributes:
        splits: Forget, retain and test.
        validation: Instead of test.
        models: Parameters of the models that are to forget, then of those that never saw the forget
            set, on a second axis.
    """

    splits: UnlearnSplits
    validation: Labelled
    models: Any


def run(args: Args, inputs: Inputs, session: Session) -> list[Row]:
    """All measurements, in float32."""
    with jax.enable_x64(False):
        apply_fn = functools.partial(apply_network, bits=args.bits)
        trained = train(args, inputs, session, apply_fn)
        with session.timed("models"):
            rows, panels, labels, masks = look(args, inputs, trained, apply_fn)
        for name in COMPARED if args.smoke else RIVALS:
            rows += race(args, inputs, session, name, panels, labels, masks)
        return rows


def cases(args: Args) -> list[tuple[str, int]]:
    """Scenario and repetition."""
    return [(scenario, s) for scenario in SCENARIOS for s in range(args.seeds)]


def case_keys(args: Args, use: int) -> jax.Array:
    """A key of each case for one use, the same for both scenarios of a seed."""
    keys = jax.vmap(lambda key: jax.random.fold_in(key, use))(seed_keys(args))
    return keys[np.array([s for _, s in cases(args)])]


def stacked(trees: list[Any]) -> Any:
    """One tree of NumPy arrays with a leading axis, so that nothing is compiled for it."""
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)


def retained_loss_of(state: Any, info: Any) -> Any:
    """All that is recorded of training; what is not recorded is not computed."""
    del state
    return info.retain_loss


def losses(apply_fn: Any) -> tuple[Any, Any]:
    """Of batches of ``Examples``."""

    def forget_fn(params: Any, batch: Examples) -> Any:
        return forget_loss(apply_fn(params, batch.inputs), batch)

    def retain_fn(params: Any, batch: Examples) -> Any:
        return penalised_loss(params, apply_fn(params, batch.inputs), batch)

    return forget_fn, retain_fn


def examples(
    part: Labelled, weights: tuple[float, ...] = (0.0,) * 4, counts: np.ndarray | None = None
) -> Examples:
    """Rows of a batch of cases with weights for losses."""
    shape = np.shape(part.labels)
    wide = np.broadcast_to(np.asarray(weights, np.float32), (*shape, 4))
    counts = np.ones(shape, np.float32) if counts is None else counts
    return Examples(part.inputs, part.labels, wide, counts)


def train(args: Args, inputs: Inputs, session: Session, apply_fn: Any) -> Trained:
    """Original and retrained models of all cases, by Adam from the same initial weights."""
    data, parts = inputs.data, []
    for scenario, s in cases(args):
        rows = split_rows(data, scenario, args.seed + s)
        parts.append(
            [
                Labelled(data.inputs[row].astype(np.float32), data.labels[row].astype(np.int32))
                for row in rows
            ]
        )
    forget, retain, validation, test = (stacked([case[i] for case in parts]) for i in range(4))
    keys = jax.vmap(lambda key: jax.random.split(key, 3))(seed_keys(args))
    keys = keys[np.array([s for _, s in cases(args)])]

    def start(key: jax.Array) -> Any:
        return init_network(key, data.inputs.shape[1], width=args.width, bits=args.bits)

    starts = jax.device_get(jax.jit(jax.vmap(start))(keys[:, 0]))
    everything = jax.tree.map(lambda *leaves: np.concatenate(leaves, axis=1), forget, retain)
    # Both kinds of models in one program: retrained ones see the forget set with a weight of 0.
    seen = np.ones(everything.labels.shape, np.float32)
    retained = seen.copy()
    retained[:, : data.sizes.forget] = 0.0
    method = oeu(
        *losses(apply_fn), batch_size=BATCH_SIZE, combine=retain_alone, optimizer=optax.adam(1.0)
    )
    problem = Unlearning(starts, examples(forget), examples(everything))
    both = jax.tree.map(lambda leaf: np.concatenate([leaf, leaf]), problem)
    both = both._replace(retain=both.retain._replace(counts=np.concatenate([seen, retained])))
    done = session.run(
        "training",
        method,
        both,
        ChoiceHyper(jnp.float32(TRAINING_RATE), jnp.float32(1.0), jnp.int32(0)),
        keys[:, 1:].T.reshape(-1),
        num_steps=inputs.training_steps,
        chunk_size=inputs.training_steps // 3,
        every=inputs.training_steps // 3,
        trace_fn=retained_loss_of,
        in_axes=(0, None, 0),
    )
    models = jax.tree.map(
        lambda leaf: np.asarray(leaf).reshape(2, -1, *leaf.shape[1:]).swapaxes(0, 1),
        done.state.params,
    )
    return Trained(UnlearnSplits(forget, retain, test), validation, models)


def look(
    args: Args, inputs: Inputs, trained: Trained, apply_fn: Any
) -> tuple[list[Row], Panel, dict[str, jax.Array], Any]:
    """Reports of the trained models, and what the rivals take from the original ones."""

    def one(trained: Trained, key: jax.Array) -> tuple[Any, ...]:
        splits, forget = trained.splits, trained.splits.forget

        def reports(params: Any) -> tuple[Any, ...]:
            parts = (splits, splits._replace(test=trained.validation))
            told = [unlearning_report(apply_fn, params, part) for part in parts]
            return *told, confidence(apply_fn, params, splits)

        original = jax.tree.map(lambda leaf: leaf[0], trained.models)
        labels = {
            "true": forget.labels,
            "random": random_labels(key, forget.labels, num_classes=10),
            "similar": similar_labels(apply_fn(original, forget.inputs), forget.labels),
        }
        forget_fn, _ = losses(apply_fn)
        batch = examples(forget, RIVALS["gradient ascent"].weights)
        mask = saliency_mask(jax.grad(forget_fn)(original, batch), SPARSE_SHARE)
        return jax.vmap(reports)(trained.models), original, labels, mask

    told, original, labels, mask = jax.device_get(
        jax.jit(jax.vmap(one))(trained, case_keys(args, 1))
    )
    first, second = (jax.tree.map(lambda leaf, i=i: leaf[:, i], told) for i in range(2))
    panel = Panel(
        Unlearning(
            original,
            examples(trained.splits.forget),
            examples(trained.splits.retain),
            jax.tree.map(np.ones_like, mask),
        ),
        trained.splits,
        trained.validation,
        second[0],
        second[1],
    )
    rows = []
    for name, (report, _, (shares, wrong)) in (("original", first), ("retrained", second)):
        rows += report_rows(args, name, report, shares, wrong)
    return rows, panel, labels, mask


def report_rows(
    args: Args, name: str, report: UnlearnReport, shares: Any, wrong: Any, step: float = 0.0
) -> list[Row]:
    """Rows of reports with a leading axis of cases."""
    rows = []
    values = {**report._asdict(), "confidently_wrong": wrong}
    for i, (scenario, s) in enumerate(cases(args)):
        where = {"seed": args.seed + s, "dataset": scenario}
        rows += [
            Row(name, metric, float(value[i]), step=step, **where)
            for metric, value in values.items()
        ]
        if step == 0.0:
            rows += [
                Row(name, "confidence", float(share), step=(b + 0.5) / BINS, **where)
                for b, share in enumerate(shares[i])
            ]
    return rows


@functools.lru_cache(maxsize=4)
def unlearner(bits: int, steps: int) -> Any:
    """The one compiled method of all rivals."""
    apply_fn = functools.partial(apply_network, bits=bits)
    method = oeu(*losses(apply_fn), batch_size=BATCH_SIZE, combine=choose)
    return observed(method, apply_fn, steps=steps)


def race(
    args: Args,
    inputs: Inputs,
    session: Session,
    name: str,
    panel: Panel,
    labels: dict[str, jax.Array],
    masks: Any,
) -> list[Row]:
    """One rival at all step sizes; its path at the step size that validation chooses."""
    rival, grid = RIVALS[name], np.asarray(inputs.grid, np.float32)
    forget = panel.problem.forget._replace(labels=labels[rival.labels])
    problem = panel.problem._replace(
        forget=examples(Labelled(forget.inputs, forget.labels), rival.weights),
        retain=examples(panel.splits.retain, rival.weights),
        mask=masks if rival.masked else panel.problem.mask,
    )
    num_cases, num_rates = len(cases(args)), len(grid)
    count = num_cases * num_rates

    def repeat(tree: Any) -> Any:
        return jax.tree.map(lambda leaf: np.repeat(leaf, num_rates, axis=0), tree)

    done = session.run(
        name,
        unlearner(args.bits, inputs.every),
        repeat(panel._replace(problem=problem)),
        ChoiceHyper(
            np.tile(grid, num_cases),
            np.full(count, rival.strength, np.float32),
            np.full(count, list(RULES).index(rival.rule), np.int32),
        ),
        case_keys(args, 2)[np.repeat(np.arange(num_cases), num_rates)],
        num_steps=inputs.looks,
        chunk_size=inputs.looks // 3,
        in_axes=(0, 0, 0),
    )
    seen: Outcome = jax.tree.map(
        lambda leaf: np.asarray(leaf).reshape(num_cases, num_rates, *leaf.shape[1:]), done.trace
    )
    return race_rows(args, inputs, name, seen)


def race_rows(args: Args, inputs: Inputs, name: str, seen: Outcome) -> list[Row]:
    """Last reports at all step sizes, and paths at the chosen one."""
    rows = []
    for j, rate in enumerate(inputs.grid):
        last = jax.tree.map(lambda leaf, j=j: leaf[:, j, -1], seen)
        rows += report_rows(args, name, last.report, None, last.confidently_wrong, step=rate)
        for metric in ("gap", "validation_gap"):
            for i, (scenario, s) in enumerate(cases(args)):
                value = float(getattr(last, metric)[i])
                rows.append(
                    Row(name, metric, value, step=rate, seed=args.seed + s, dataset=scenario)
                )
    for scenario in SCENARIOS:
        places = [i for i, (other, _) in enumerate(cases(args)) if other == scenario]
        mean = seen.validation_gap[places, :, -1].mean(axis=0)
        best = int(np.argmin(np.where(np.isfinite(mean), mean, np.inf)))
        rows.append(Row(name, "chosen_step_size", inputs.grid[best], dataset=scenario))
        for i in places:
            where = {"seed": args.seed + cases(args)[i][1], "dataset": scenario}
            shares = seen.confidences[i, best, -1]
            rows += [
                Row(name, "confidence", float(share), step=(b + 0.5) / BINS, **where)
                for b, share in enumerate(shares)
            ]
            for metric in ("forget_accuracy", "retain_accuracy"):
                path = getattr(seen.report, metric)[i, best]
                rows += [
                    Row(name, f"{metric}_path", float(value), step, **where)
                    for step, value in zip(
                        [inputs.every * (i + 1) for i in range(inputs.looks)], path, strict=True
                    )
                ]
    return rows


EXPERIMENT = Experiment("oeu", Args, prepare, run, judge, draw)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))

"""Measures whether robust training survives rounds in which most of the heard clients lie.

Run it by ``jaxlab run demoa`` or ``python experiments/demoa.py``; ``--help`` lists the flags.
"""

import sys
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from jaxlab.experiment import CommonArgs, Experiment, Row, Session, main, seed_keys
from jaxlab.experiment import demoa_training as training
from jaxlab.experiment.demoa_report import draw, judge, label
from jaxlab.experiment.measure import sweep
from jaxlab.problems.consensus import stack_agents

PARTICIPATION, MOMENTUM, STEP_SIZE = 0.1, 0.1, 0.5
POINTS = 30
"""Records of a run."""
GRID = ("none", "flip x10", "noise 5", "IPM 3")
SUBTLE = ("ALIE 1.5", "mimic", "label flip")


class Setting(NamedTuple):
    """A cell by its names."""

    dataset: str
    rule: str
    attack: str
    method: str
    participation: float = PARTICIPATION
    momentum: float = MOMENTUM


@dataclass(frozen=True)
class Args(CommonArgs):
    """Flags of the experiment."""

    seeds: int = 3
    """How many independent repetitions on the small digits; MNIST has one."""
    rounds: int = 1500
    """Rounds on the small digits, a multiple of 30; with --smoke at most 450."""
    mnist_rounds: int = 390
    """Rounds on MNIST, a multiple of 30; --smoke leaves MNIST out."""

    def __post_init__(self) -> None:
        """Check what the types leave open."""
        super().__post_init__()
        for name in ("rounds", "mnist_rounds"):
            number = getattr(self, name)
            if number < POINTS or number % POINTS:
                raise ValueError(f"{name} must be a positive multiple of {POINTS}, got {number}")


class Inputs(NamedTuple):
    """The digits of every seed, dealt and sorted, and MNIST, which --smoke leaves out."""

    digits: training.Data
    mnist: training.Data | None


def prepare(args: Args) -> Inputs:
    """Load and share out."""
    pairs = [training.digits_data(args.seed + s) for s in range(args.seeds)]
    digits = stack_agents(*(stack_agents(*pair) for pair in pairs))
    return Inputs(digits, None if args.smoke else training.mnist_data(args.seed))


def digits_settings(smoke: bool) -> list[Setting]:
    """What is run on the small digits."""
    rules = ("median", "RFA") if smoke else tuple(training.RULES)
    grid = GRID[:3] if smoke else GRID
    cells = [("digits", rule, attack) for rule in rules for attack in grid]
    hard = ("RFA",) if smoke else rules
    cells += [("digits, sorted", rule, attack) for rule in hard for attack in GRID[:3]]
    if not smoke:
        cells += [("digits", rule, attack) for rule in ("median", "RFA") for attack in SUBTLE]
    found = [Setting(*cell, method) for cell in cells for method in ("DeMoA", "naive")]
    for attack in GRID[:3]:
        found.append(Setting("digits", "RFA", attack, "everybody heard", participation=1.0))
        found.append(Setting("digits", "RFA", attack, "no momentum", momentum=1.0))
    return found


def mnist_settings() -> list[Setting]:
    """What is run on MNIST."""
    cells = [("RFA", attack) for attack in GRID[:3]] + [("mean", "flip x10")]
    return [Setting("MNIST", *cell, method) for cell in cells for method in ("DeMoA", "naive")]


def numbers(settings: list[Setting]) -> training.Cell:
    """The settings as data, stacked."""
    rules, attacks = list(training.RULES), list(training.ATTACKS)
    columns = [
        (
            rules.index(s.rule), attacks.index(s.attack), s.participation, s.momentum,
            int(s.dataset == "digits, sorted"), s.method != "naive",
        )
        for s in settings
    ]  # fmt: skip
    return training.Cell(*(jnp.asarray(column) for column in zip(*columns, strict=True)))


def trainer(num_rounds: int) -> Any:
    """One cell on every seed; ``data`` is ``[seeds, sharing, ...]``."""

    def one_cell(context: tuple[training.Data, PyTree, jax.Array], cell: training.Cell) -> Any:
        data, start, keys = context
        here = jax.tree.map(lambda leaf: leaf[:, cell.sorted_labels], data)
        return jax.vmap(
            lambda data, key: training.train(
                data, start, cell, key,
                num_rounds=num_rounds, every=num_rounds // POINTS, step_size=STEP_SIZE,
            )
        )(here, keys)  # fmt: skip

    return sweep(one_cell)


def run(args: Args, inputs: Inputs, session: Session) -> list[Row]:
    """All measurements."""
    rounds = min(args.rounds, 450) if args.smoke else args.rounds
    keys = seed_keys(args)
    context = inputs.digits, jnp.zeros((65, 10)), keys
    rows = curves(args, session, "digits", context, digits_settings(args.smoke), rounds)
    rows += majority_rows(args, rounds)
    if inputs.mnist is not None:
        data = jax.tree.map(lambda leaf: leaf[None, None], inputs.mnist)
        context = data, training.mlp_start(keys[0]), keys[:1]
        rows += curves(args, session, "MNIST", context, mnist_settings(), args.mnist_rounds)
    return rows


def curves(
    args: Args,
    session: Session,
    piece: str,
    context: Any,
    settings: list[Setting],
    rounds: int,
) -> list[Row]:
    """Accuracy by round of every setting and seed."""
    done = session.run(
        piece, trainer(rounds), (context, numbers(settings)), (), jax.random.key(0),
        num_steps=len(settings), chunk_size=2,
    )  # fmt: skip
    accuracy, sampled = np.asarray(done.trace.accuracy), np.asarray(done.trace.sampled)
    steps = rounds // POINTS * np.arange(1, POINTS + 1)
    rows = []
    for setting, curves, heard in zip(settings, accuracy, sampled, strict=True):
        metric = label(setting.rule, setting.attack)
        for s, curve in enumerate(curves):
            where = {"seed": args.seed + s, "dataset": setting.dataset}
            rows += [
                Row(setting.method, metric, float(value), step=float(step), **where)
                for step, value in zip(steps, curve, strict=True)
            ]
            if metric == label("RFA", "none"):
                rows.append(Row(setting.method, "uploads", float(heard[s][-1]), **where))
    return rows


def majority_rows(args: Args, rounds: int) -> list[Row]:
    """The rounds in which most of the heard clients lie; they are the same for all settings."""
    rows = []
    for s, key in enumerate(seed_keys(args)):
        found = training.majority_rounds(key, PARTICIPATION, rounds)
        rows += [Row("sample", "majority", 1.0, step=t, seed=args.seed + s) for t in found]
    return rows


EXPERIMENT = Experiment("demoa", Args, prepare, run, judge, draw)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))

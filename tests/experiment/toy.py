"""A small experiment for tests of the harness: noisy descent in many chunks."""

import sys
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from jaxlab.core import Method
from jaxlab.experiment import Criterion, Experiment, Report, ReportTable, Row, main, select
from jaxlab.experiment.args import CommonArgs


@dataclass(frozen=True)
class Args(CommonArgs):
    chunks: int = 20
    """How many chunks each piece has."""
    fail: bool = False
    """Fail in the middle."""


def init(problem, hyper, key):
    return problem + jax.random.normal(key, problem.shape)


def step(problem, hyper, x, key):
    x = x - hyper * (x - problem) + 0.1 * jax.random.normal(key, x.shape)
    return x, jnp.sum((x - problem) ** 2)


WALK = Method(init, step)


def prepare(args):
    if args.chunks > 1000:
        raise ValueError(f"chunks must be at most 1000, got {args.chunks}")
    return jnp.arange(3.0)


def run(args, problem, session):
    rows = []
    for name, hyper in (("slow", 0.1), ("fast", 0.5)):
        keys = jnp.stack([jax.random.key(args.seed + s) for s in range(args.seeds)])
        done = session.run(
            name, WALK, problem, hyper, keys,
            num_steps=5 * args.chunks, chunk_size=5, in_axes=(None, None, 0),
        )  # fmt: skip
        if args.fail:
            raise KeyboardInterrupt
        for s, errors in enumerate(np.asarray(done.trace)):
            rows += [
                Row(name, "error", e, step=t, seed=args.seed + s) for t, e in enumerate(errors)
            ]
    return rows


def judge(rows):
    last = {name: select(rows, method=name)[-1].value for name in ("slow", "fast")}
    table = ReportTable("Last", ("method", "error"), [(k, f"{v:.3g}") for k, v in last.items()])
    criteria = [Criterion("error of fast", last["fast"], at_most=10.0, shape=True)]
    return Report(criteria, ["a note"], [table])


def draw(rows, figure):
    axes = figure.subplots()
    for name in ("slow", "fast"):
        axes.plot([row.value for row in select(rows, method=name)], label=name)
    axes.set(xlabel="step", ylabel="error")
    axes.legend()


EXPERIMENT = Experiment("dual_sgd", Args, prepare, run, judge, draw)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))

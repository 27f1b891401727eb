"""Measures how far learners that must find the good tasks are behind an oracle that knows them.

Run it by ``jaxlab run multitask_limits`` or ``python experiments/multitask_limits.py``; ``--help``
lists the flags.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlab import core
from jaxlab.experiment import CommonArgs, Experiment, Row, Session, main, seed_keys
from jaxlab.experiment.measure import sweep
from jaxlab.experiment.multitask_inputs import Panel, film_panel
from jaxlab.experiment.multitask_report import (
    CONSTANT_SAMPLES,
    FIXED_SAMPLES,
    NOISY_TASKS,
    NUM_GOOD,
    NUM_USERS,
    SIMULATED_SAMPLES,
    draw,
    judge,
)
from jaxlab.theory import multitask_learners as learners
from jaxlab.theory import multitask_limits as limits
from jaxlab.theory.multitask_em import TaskCounts, TypeState, em_hyper, em_sign, task_type_em

NUM_TASKS, BATCH, EM_STEPS = 20_000, 100, 40
LABELS = 3
"""Ratings of each user that a learner sees."""


@dataclass(frozen=True)
class Args(CommonArgs):
    """Flags of the experiment."""

    seeds: int = 1
    """How many repetitions of all simulations."""
    replicas: int = 2000
    """Draws of all tasks, a multiple of 100; with --smoke at most 200."""

    def __post_init__(self) -> None:
        """Check what the types leave open."""
        super().__post_init__()
        if self.replicas < BATCH or self.replicas % BATCH:
            raise ValueError(f"replicas must be a multiple of {BATCH}, got {self.replicas}")


class Inputs(NamedTuple):
    """Ratings by user, and how often everything is drawn."""

    panel: Panel
    batches: int
    num_sizes: int


def prepare(args: Args) -> Inputs:
    """Read the ratings."""
    replicas = min(args.replicas, 200) if args.smoke else args.replicas
    return Inputs(film_panel(), replicas // BATCH, 9 if args.smoke else 57)


def run(args: Args, inputs: Inputs, session: Session) -> list[Row]:
    """All measurements."""
    rows = regime_rows(session, inputs.num_sizes) + fixed_rows(session)
    for seed, key in enumerate(seed_keys(args), start=args.seed):
        for n in SIMULATED_SAMPLES:
            rows += simulated_rows(session, inputs, n, jax.random.fold_in(key, n), seed)
        rows += panel_rows(session, inputs, jax.random.fold_in(key, 9), seed)
    return rows


def regime_rows(session: Session, num_sizes: int) -> list[Row]:
    """Bounds by the number of tasks, for good tasks of constant quality and for noisy ones."""
    rows = []
    regimes: tuple[tuple[str, Callable, Any, float], ...] = (
        ("constant gap", limits.constant_gap, CONSTANT_SAMPLES, 3.0),
        ("noisy gap", limits.noisy_gap, tuple(NOISY_TASKS), 5.5),
    )
    with session.timed("regimes"):
        for name, family, samples, low in regimes:
            sizes = np.linspace(low, 14.0, num_sizes)
            for n in samples:
                found = jax.jit(jax.vmap(partial(_bound, family, n)))(jnp.asarray(10.0**sizes))
                rows += [
                    Row(name, f"bound {n}", float(value), step=size)
                    for size, value in zip(sizes, found, strict=True)
                ]
        for n, size in NOISY_TASKS.items():
            values = jax.jit(partial(_noisy, n))(10.0**size)
            rows += [
                Row(method, metric, float(value), step=n)
                for (method, metric), value in zip(_NOISY, values, strict=True)
            ]
    return rows


_NOISY = (
    ("noisy gap", "at the grid"),
    ("oracle", "error at the grid"),
    ("oracle", "excess"),
    ("noisy gap", "log tasks for 0.1"),
)


def _noisy(n: int, num_tasks: jax.Array) -> tuple[jax.Array, ...]:
    family = limits.noisy_gap(n, num_tasks)
    needed = jnp.log10(limits.smallest_num_tasks(n))
    bound = limits.adaptive_error_bounds(n, family).le_cam
    return bound, limits.oracle_error(n, family), family.eps_good, needed


BOUNDS = jax.jit(limits.adaptive_error_bounds, static_argnums=0)


def _bound(family: Callable, n: int, num_tasks: jax.Array) -> jax.Array:
    return limits.adaptive_error_bounds(n, family(n, num_tasks)).le_cam


def fixed_rows(session: Session) -> list[Row]:
    """A family that does not change with n: there more samples do help."""
    family = limits.TaskFamily(*(jnp.asarray(x) for x in (0.5, 0.1, 0.005, 3.0, 100.0)))
    rows = []
    with session.timed("fixed family"):
        for n in FIXED_SAMPLES:
            found = BOUNDS(n, family)
            rows.append(Row("fixed family", "le_cam", float(found.le_cam), step=n))
            rows.append(Row("fixed family", "upper", float(found.upper), step=n))
    return rows


def converged(counts: TaskCounts) -> TypeState:
    """Both types after expectation maximisation."""
    # Nothing is random; the protocol asks for a key.
    return core.run(task_type_em(), counts, em_hyper(), jax.random.key(0), num_steps=EM_STEPS).state


def simulated(n: int, context: tuple[jax.Array, Any], at: jax.Array) -> dict[str, jax.Array]:
    """Errors of all learners on a batch of draws, for every family of the context."""
    key, families = context
    keys = jax.random.split(jax.random.fold_in(jax.random.wrap_key_data(key), at), BATCH)

    def once(family: limits.TaskFamily, key: jax.Array) -> dict[str, jax.Array]:
        drawn = learners.sample_tasks(key, n, family)
        seen = drawn.good + drawn.bad
        counts = learners.as_task_counts(seen, n=n)
        pooled = learners.pooled_weights(n)
        said = {
            "pooling": learners.vote(seen, pooled),
            "tasks with all hits": learners.vote(seen, learners.k_hit_weights(n, n)),
            "likelihood ratio": learners.vote(seen, learners.likelihood_weights(n, family)),
            "expectation maximisation": em_sign(converged(counts), counts),
            "oracle": learners.vote(drawn.good, pooled),
        }
        return {name: (1 - sign * drawn.sign) / 2 for name, sign in said.items()}

    return jax.vmap(lambda family: jax.vmap(partial(once, family))(keys))(families)


def simulated_rows(
    session: Session, inputs: Inputs, n: int, key: jax.Array, seed: int
) -> list[Row]:
    """Errors and bounds of families with few and with many good tasks."""
    made = [limits.noisy_gap(n, float(NUM_TASKS), num_good=float(good)) for good in NUM_GOOD]
    families = jax.tree.map(lambda *leaves: jnp.stack(leaves), *made)
    context = (jax.random.key_data(key), families)
    done = session.run(
        f"simulation {n} {seed}", sweep(partial(simulated, n)),
        (context, jnp.arange(inputs.batches)), (), jax.random.key(0),
        num_steps=inputs.batches, chunk_size=max(1, inputs.batches // 4),
    )  # fmt: skip
    rows = []
    for name, errors in done.trace.items():
        for i, good in enumerate(NUM_GOOD):
            values = np.asarray(errors)[:, i].ravel()
            for metric, value in (
                ("error", values.mean()),
                ("draws", len(values)),
            ):
                rows.append(Row(name, metric, float(value), step=n, seed=seed, dataset=str(good)))
    for family, good in zip(made, NUM_GOOD, strict=True):
        found = BOUNDS(n, family)
        for metric in ("lower", "upper"):
            value = float(getattr(found, metric))
            rows.append(Row("bound", metric, value, step=n, seed=seed, dataset=str(good)))
    return rows


def films(context: tuple[jax.Array, Panel], case: tuple[jax.Array, jax.Array]) -> Any:
    """Errors on the sign of a genre, of learners that see a few labels of some users."""
    key, panel = context
    at, num_users = case
    keys = jax.random.split(jax.random.fold_in(jax.random.wrap_key_data(key), at), BATCH)

    def once(genre: Any, key: jax.Array) -> dict[str, jax.Array]:
        key_users, key_labels = jax.random.split(key)
        order = jax.random.uniform(key_users, genre.plus.shape) + 2.0 * ~genre.real
        chosen = jnp.argsort(jnp.argsort(order)) < num_users
        shares = jnp.stack([genre.plus, genre.minus, 1 - genre.plus - genre.minus], axis=-1)
        drawn = jax.random.multinomial(key_labels, jnp.asarray(float(LABELS)), shares)
        plus, minus = drawn[:, 0], drawn[:, 1]
        lead = jnp.where(chosen, plus - minus, 0)
        # The best quarter of the chosen, by ratings that are not drawn from.
        rank = jnp.argsort(jnp.argsort(jnp.where(chosen, -genre.held_out * genre.sign, jnp.inf)))
        best = rank < jnp.ceil(num_users / 4)
        whole = drawn.astype(jnp.int32)
        counts = TaskCounts(
            whole[:, 0], whole[:, 1], jnp.full(chosen.shape, LABELS), chosen.astype(float)
        )
        said = {
            "pooling": jnp.sign(lead.sum()),
            "tasks of one mind": jnp.sign(jnp.where(jnp.abs(lead) == LABELS, lead, 0).sum()),
            "expectation maximisation": em_sign(converged(counts), counts),
            "oracle": jnp.sign(jnp.where(best, lead, 0).sum()),
        }
        return {name: (1 - sign * genre.sign) / 2 for name, sign in said.items()}

    return jax.vmap(lambda genre: jax.vmap(partial(once, genre))(keys))(panel.genres)


FILMS = sweep(films)


def panel_rows(session: Session, inputs: Inputs, key: jax.Array, seed: int) -> list[Row]:
    """Mean errors over genres by the number of users."""
    users = np.repeat(NUM_USERS, inputs.batches)
    cases = (jnp.arange(len(users)), jnp.asarray(users))
    done = session.run(
        f"films {seed}", FILMS, ((jax.random.key_data(key), inputs.panel), cases), (),
        jax.random.key(0), num_steps=len(users), chunk_size=inputs.batches,
    )  # fmt: skip
    rows = []
    for name, errors in done.trace.items():
        by_size = np.asarray(errors).reshape(len(NUM_USERS), -1)
        rows += [
            Row(name, "film error", float(values.mean()), step=size, seed=seed)
            for size, values in zip(NUM_USERS, by_size, strict=True)
        ]
    return rows


EXPERIMENT = Experiment("multitask_limits", Args, prepare, run, judge, draw)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))

"""Measures when adapting a controller to each device pays, on simulated qubits and on springs.

Run it by ``jaxlab run meta_gain`` or ``python experiments/meta_gain.py``; ``--help`` lists the
flags.
"""

import sys
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxlab.control.continuous import QuadraticCost, feedback_cost, optimal_gain, spring
from jaxlab.experiment import CommonArgs, Experiment, Row, Session, main, seed_keys
from jaxlab.experiment.meta_gain_report import FAMILIES, OUTSIDE, PROBES, SPREADS, draw, judge
from jaxlab.optim import meta_gain, meta_gain_budget
from jaxlab.optim.meta_gain import TaskFamily
from jaxlab.quantum.bloch import ONE, ZERO, Qubit, bloch_generator, bloch_infidelity
from jaxlab.quantum.pulses import bounded_controls, propagate_pwc
from jaxlab.quantum.two_qubits import NUM_CONTROLS, QubitPair, gate_infidelity

SEGMENTS = 20
DEPHASING, RELAXATION = (0.02, 0.15), (0.01, 0.08)
LARGEST, ROBUST_STEP, STEP = 2.0, 3.0, 1.0
PAIR_LARGEST, PAIR_STEP, COUPLING = 10.0, 5.0, 1.0
SPRING_STEP, SPRING_STEPS = 0.08, 30
SPRING_COST = QuadraticCost(jnp.diag(jnp.array([1.0, 0.1])), jnp.array([[0.1]]))


@dataclass(frozen=True)
class Args(CommonArgs):
    """Flags of the experiment."""

    seeds: int = 3
    """Independent samples of devices."""
    tasks: int = 48
    """Devices per sample; with --smoke at most 16."""
    robust_steps: int = 3000
    """Steps that find the robust pulse; with --smoke at most 1000."""
    steps: int = 60
    """Steps of adaptation; with --smoke at most 60."""

    def __post_init__(self) -> None:
        """Check what the types leave open."""
        super().__post_init__()
        for name, least in (("tasks", 4), ("robust_steps", 100), ("steps", 30)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}")
        if self.robust_steps % 100:
            raise ValueError(f"robust_steps must be a multiple of 100, got {self.robust_steps}")


class Inputs(NamedTuple):
    """Sizes, and keys of the seeds."""

    keys: jax.Array
    tasks: int
    robust_steps: int
    steps: int
    pair_tasks: int
    pair_steps: int


def prepare(args: Args) -> Inputs:
    """Sizes of the run."""
    if args.smoke:
        keys = seed_keys(args, min(args.seeds, 2))
        return Inputs(keys, min(args.tasks, 16), min(args.robust_steps, 1000), args.steps, 3, 25)
    return Inputs(seed_keys(args), args.tasks, args.robust_steps, args.steps, 8, 30)


def run(args: Args, inputs: Inputs, session: Session) -> list[Row]:
    """All measurements."""
    del args
    rows, starts, devices = robust_rows(inputs, session)
    rows += adaptation_rows(inputs, starts, devices, session)
    return rows + pair_rows(inputs, session) + spring_rows(inputs, session)


def pulse_loss(raw: jax.Array, qubit: Qubit) -> jax.Array:
    """Infidelity of the flip of one qubit."""
    controls = bounded_controls(raw, LARGEST)
    end = propagate_pwc(bloch_generator, controls, qubit, jnp.array(ZERO), 1.0)
    return bloch_infidelity(end, ONE)


def sample_devices(key: jax.Array, count: int) -> Qubit:
    """Devices of every family, ``[families, tasks]``; all share their rates and their numbers."""
    one, two, three = jax.random.split(key, 3)
    dephasing = jax.random.uniform(one, (count,), minval=DEPHASING[0], maxval=DEPHASING[1])
    relaxation = jax.random.uniform(two, (count,), minval=RELAXATION[0], maxval=RELAXATION[1])
    spreads = jnp.array(SPREADS)[:, None]
    shape = (len(SPREADS), count)
    return Qubit(
        jnp.broadcast_to(dephasing, shape),
        jnp.broadcast_to(relaxation, shape),
        spreads * jax.random.normal(three, (count,))[None],
    )


def robust_rows(inputs: Inputs, session: Session) -> tuple[list[Row], jax.Array, Qubit]:
    """One pulse for all devices of a family, from a constant one that turns too little."""
    devices = jax.vmap(lambda key: sample_devices(jax.random.fold_in(key, 0), inputs.tasks))(
        inputs.keys
    )
    flat = jax.tree.map(lambda leaf: leaf.reshape(-1, inputs.tasks), devices)
    turn = LARGEST * np.arctanh(0.9 * np.pi / 2 / LARGEST)
    count = flat.detuning.shape[0]
    begin = jnp.zeros((count, SEGMENTS, 2)).at[:, :, 0].set(turn)
    method = meta_gain.fomaml(pulse_loss, optax.sgd(ROBUST_STEP), num_inner_steps=0)
    done = session.run(
        "robust pulses", method, TaskFamily(begin, flat), meta_gain.fomaml_hyper(1.0),
        jax.random.key(0), num_steps=inputs.robust_steps, chunk_size=inputs.robust_steps // 10,
        every=inputs.robust_steps // 20,
        in_axes=(TaskFamily(0, 0), None, None),
    )  # fmt: skip
    rows = []
    shape = (len(inputs.keys), len(FAMILIES))
    losses = np.asarray(done.trace.loss).reshape(*shape, -1)
    norms = np.asarray(done.trace.gradient_norm).reshape(*shape, -1)
    for seed, family in np.ndindex(shape):
        at = {"seed": seed, "method": FAMILIES[family]}
        rows.append(Row(metric="robust_loss", value=float(losses[seed, family, -1]), **at))
        rows.append(Row(metric="robust_gradient", value=float(norms[seed, family, -1]), **at))
    return rows, done.state.params.reshape(*shape, SEGMENTS, 2), devices


def outside(devices: Qubit) -> Qubit:
    """Devices of the second spread, with ten times the rates, or ten times the detuning."""
    at = jax.tree.map(lambda leaf: leaf[OUTSIDE], devices)
    rates = at._replace(dephasing=10 * at.dephasing, relaxation=10 * at.relaxation)
    detuned = at._replace(detuning=10 * at.detuning)
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), rates, detuned)


def adaptation_rows(
    inputs: Inputs, starts: jax.Array, devices: Qubit, session: Session
) -> list[Row]:
    """Gains, their parts, fits and budgets, within and outside of the families."""

    @jax.jit
    def measure(starts: jax.Array, devices: Qubit) -> tuple:
        def one(start: jax.Array, tasks: Qubit) -> tuple:
            parts = meta_gain.gain_parts(pulse_loss, start, tasks, STEP, num_steps=inputs.steps)
            loss = meta_gain.mean_loss(pulse_loss, start, tasks)
            fit = meta_gain_budget.fit_saturation(parts.total)
            probes = [meta_gain_budget.probe_fit(parts.total[: n + 1]) for n in PROBES]
            return parts, loss, fit, probes, jnp.var(tasks.detuning)

        return jax.lax.map(lambda pair: jax.vmap(one)(*pair), (starts, devices))

    names = (*FAMILIES, "rates x10", "detuning x10")
    with session.timed("adaptation"):
        more = jax.vmap(outside)(devices)
        everything = jax.tree.map(lambda a, b: jnp.concatenate([a, b], axis=1), devices, more)
        again = jnp.repeat(starts[:, OUTSIDE : OUTSIDE + 1], 2, axis=1)
        found = jax.block_until_ready(measure(jnp.concatenate([starts, again], axis=1), everything))
    parts, losses, fits, probes, variances = jax.tree.map(np.asarray, found)
    rows = []
    for seed, i in np.ndindex(losses.shape):
        at = {"seed": seed, "method": names[i]}
        rows += _curve_rows(jax.tree.map(lambda leaf, s=seed, i=i: leaf[s, i], parts), at)
        rows.append(Row(metric="loss", value=float(losses[seed, i]), **at))
        rows.append(Row(metric="variance", value=float(variances[seed, i]), **at))
        rows += _fit_rows(jax.tree.map(lambda leaf, s=seed, i=i: leaf[s, i], fits), "fit", at)
        for n, probe in zip(PROBES, probes, strict=True):
            one = jax.tree.map(lambda leaf, s=seed, i=i: leaf[s, i], probe)
            rows += _fit_rows(one, f"{n} probes", at)
    return rows


def _curve_rows(parts: meta_gain.GainParts, at: dict[str, Any]) -> list[Row]:
    return [
        Row(metric=name, value=float(value), step=k, **at)
        for name in ("total", "shared", "individual", "central")
        for k, value in enumerate(getattr(parts, name))
    ]


def _fit_rows(fit: meta_gain_budget.Saturation, dataset: str, at: dict[str, Any]) -> list[Row]:
    metrics = {"limit": fit.limit, "rate": fit.rate, "r2": fit.r2, "curved": fit.curved}
    return [
        Row(metric=name, value=float(value), dataset=dataset, **at)
        for name, value in metrics.items()
    ]


def pair_loss(raw: jax.Array, pair: QubitPair) -> jax.Array:
    """Infidelity of the controlled phase flip."""
    controls = bounded_controls(raw, PAIR_LARGEST)
    return gate_infidelity(controls, pair, coupling=COUPLING, duration=jnp.pi / 4)


def pair_rows(inputs: Inputs, session: Session) -> list[Row]:
    """Two qubits, from a pulse that was hardly trained and from one that was trained longer."""
    count = inputs.pair_tasks

    @jax.jit
    def measure(key: jax.Array) -> tuple:
        one, two, three = jax.random.split(key, 3)
        tasks = QubitPair(
            jax.random.uniform(one, (count, 2), minval=DEPHASING[0], maxval=DEPHASING[1]),
            jax.random.uniform(two, (count, 2), minval=RELAXATION[0], maxval=RELAXATION[1]),
        )
        raw = 0.1 * jax.random.normal(three, (SEGMENTS, NUM_CONTROLS))

        def again(start: jax.Array, _: None) -> tuple:
            curves = meta_gain.adaptation_curves(
                pair_loss, start, tasks, PAIR_STEP, num_steps=inputs.pair_steps
            )

            def mean(params: jax.Array, tasks: QubitPair) -> jax.Array:
                return meta_gain.mean_loss(pair_loss, params, tasks)

            # The loss is nearly linear in the rates: the mean device stands for the mean loss.
            common = meta_gain.adapt(mean, start, tasks, PAIR_STEP, num_steps=inputs.pair_steps)
            return common.params, (curves, common.losses)

        # The second round starts where one controller for all ends the first.
        return jax.lax.scan(again, raw, None, length=2)[1]

    names, rows = ("two qubits, untrained", "two qubits, trained"), []
    with session.timed("two qubits"):
        curves, common = jax.block_until_ready(measure(jax.random.fold_in(inputs.keys[0], 1)))
    for name, each, one in zip(names, np.asarray(curves), np.asarray(common), strict=True):
        gains = (each[:, :1] - each).mean(axis=0)
        for k in range(len(one)):
            rows.append(Row(name, "total", float(gains[k]), step=k))
            rows.append(Row(name, "shared", float(one[0] - one[k]), step=k))
            rows.append(Row(name, "individual", float(gains[k] - one[0] + one[k]), step=k))
        rows.append(Row(name, "spread", float((each[:, 0] - each[:, -1]).std())))
        rows.append(Row(name, "loss", float(each[:, 0].mean())))
    return rows


def spring_loss(gain: jax.Array, mass: jax.Array) -> jax.Array:
    """Cost of a feedback from one start."""
    return feedback_cost(gain, spring(mass), SPRING_COST, jnp.array([1.0, 0.0]))


def spring_rows(inputs: Inputs, session: Session) -> list[Row]:
    """The classical twin: a feedback gain tuned for the mean mass."""

    @jax.jit
    def measure(keys: jax.Array) -> tuple:
        def one(key: jax.Array) -> tuple:
            noise = jax.random.normal(jax.random.fold_in(key, 2), (100,))
            masses = jnp.clip(1 + 0.25 * noise, 0.4, 1.8)
            every = jnp.append(masses, 1.0)
            best = jax.vmap(lambda mass: optimal_gain(spring(mass), SPRING_COST))(every)
            start, best = best[-1], best[:-1]
            parts = meta_gain.gain_parts(
                spring_loss, start, masses, SPRING_STEP, num_steps=SPRING_STEPS
            )
            first = meta_gain.mean_loss(spring_loss, start, masses)
            possible = first - jax.vmap(spring_loss)(best, masses).mean()
            return parts, possible, meta_gain_budget.fit_saturation(parts.total)

        return jax.lax.map(one, keys)

    with session.timed("springs"):
        found = jax.block_until_ready(measure(inputs.keys))
    parts, possible, fits = jax.tree.map(np.asarray, found)
    rows = []
    for seed in range(len(inputs.keys)):
        at = {"seed": seed, "method": "springs"}
        rows += _curve_rows(jax.tree.map(lambda leaf, s=seed: leaf[s], parts), at)
        rows.append(Row(metric="possible", value=float(possible[seed]), **at))
        rows += _fit_rows(jax.tree.map(lambda leaf, s=seed: leaf[s], fits), "fit", at)
    return rows


EXPERIMENT = Experiment("meta_gain", Args, prepare, run, judge, draw)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))

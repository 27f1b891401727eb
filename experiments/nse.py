"""Measures how the gap between information and first-order methods opens as noise grows.

Run it by ``jaxlab run nse`` or ``python experiments/nse.py``; ``--help`` lists the flags.
"""

import sys
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlab.data import tabular
from jaxlab.experiment import CommonArgs, Experiment, Row, Session, main, seed_keys
from jaxlab.experiment.measure import sweep
from jaxlab.experiment.metrics import select
from jaxlab.experiment.nse_report import SCALES, draw, judge, label
from jaxlab.problems.consensus import stack_agents
from jaxlab.theory import nse, nse_evolution, nse_multi, nse_replica
from jaxlab.theory import nse_amp as amp
from jaxlab.theory.nse_activations import Activation, StepActivation, piecewise, smooth
from jaxlab.theory.nse_studies import (
    Taught,
    chance,
    cosine_with,
    normalized,
    recovery,
    ridge_direction,
    step_functions,
    taught,
    whiten,
)

SNR, START = 4.0, 0.1
FEW_STEPS, MANY_STEPS = 12, 40
ALPHAS = (0.5, 1.0, 1.5, 3.0, 5.0)
FRACTIONS = (0.5, 0.7, 0.9)
"""Of the largest scale: more step functions of each exponent, for intervals."""
TABLES = ("diabetes", "breast_cancer")
REAL_SNRS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


@dataclass(frozen=True)
class Args(CommonArgs):
    """Flags of the experiment."""

    dim: int = 1500
    """Dimension of the AMP runs; with --smoke at most 300."""
    rival_dim: int = 300
    """Dimension where AMP meets the spectral method and ridge; with --smoke at most 200."""
    snrs: int = 25
    """Points of the curves between signal-to-noise ratios of 0.01 and 1; with --smoke 9."""

    def __post_init__(self) -> None:
        """Check what the types leave open."""
        super().__post_init__()
        if self.seeds < 2:
            raise ValueError(f"seeds must be at least 2 for a spread, got {self.seeds}")
        for name, least in (("dim", 50), ("rival_dim", 30)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}")
        if self.snrs < 9:
            raise ValueError(f"snrs must be at least 9, got {self.snrs}")


class Inputs(NamedTuple):
    """What ``prepare`` hands to ``run``: sizes, and tables of white features."""

    dim: int
    rival_dim: int
    snrs: np.ndarray
    alphas: tuple[float, ...]
    tables: dict[str, np.ndarray]


def prepare(args: Args) -> Inputs:
    """Load the tables and whiten them, as the theory's features are."""
    names = TABLES[:1] if args.smoke else TABLES
    tables = {name: whiten(getattr(tabular, name)().features) for name in names}
    if args.smoke:
        dims = min(args.dim, 300), min(args.rival_dim, 200)
        return Inputs(*dims, np.logspace(-2, 0, 9), (3.0,), tables)
    return Inputs(args.dim, args.rival_dim, np.logspace(-2, 0, args.snrs), ALPHAS, tables)


def run(args: Args, inputs: Inputs, session: Session) -> list[Row]:
    """All measurements."""
    rows = threshold_rows(session, inputs.snrs, args.smoke)
    rows += no_gap_rows(session)
    references = step_functions(SCALES)
    constants = constant_rows(session, references)
    rows += constants + committee_rows(session, references, constants, args.smoke)
    rows += amp_rows(args, session, inputs)
    rows += prediction_rows(session, args.smoke)
    rows += rival_rows(args, session, inputs)
    rows += hard_phase_rows(args, session, references, inputs.rival_dim)
    return rows + real_rows(args, session, references, inputs.tables)


def both_thresholds(context: tuple[()], case: tuple[StepActivation, jax.Array]) -> jax.Array:
    """First-order, information, and the overlap of the latter."""
    del context
    activation, snr = case
    found = nse_replica.information_threshold(activation, snr, num_y=161, num_v=151)
    needed = nse.weak_recovery_threshold(activation, snr, num_y=401)
    return jnp.stack([needed, found.alpha, found.overlap])


def absolute() -> Activation:
    """``|z|``, whose exponent is 1."""
    return piecewise(jnp.abs, breaks=(0.0,), num_nodes=32)


SWEEP = sweep(both_thresholds)
METRICS = ("alpha_alg", "alpha_it", "overlap_it")


def threshold_rows(session: Session, snrs: np.ndarray, smoke: bool) -> list[Row]:
    """Both thresholds of step functions; seed 0 is the one of the table, others are replicas."""
    weak = snrs[snrs <= 0.1 * (1 + 1e-9)]
    few = weak[:: max(1, len(weak) // 4)]
    fractions = (None, *(FRACTIONS[:2] if smoke else FRACTIONS))
    cases = [
        (order, seed, snr)
        for order in SCALES
        for seed in range(len(fractions))
        for snr in (few if seed else snrs)
    ]
    made = stack_agents(*(step_functions(SCALES, fraction) for fraction in fractions))
    at = np.array([(seed, order - 1) for order, seed, _ in cases])
    activations = jax.tree.map(lambda leaf: leaf[at[:, 0], at[:, 1]], made)
    inputs = (activations, jnp.array([snr for *_, snr in cases]))
    done = session.run(
        "thresholds", SWEEP, ((), inputs), (), jax.random.key(0), num_steps=len(cases), chunk_size=3
    )
    rows = []
    for (order, seed, snr), values in zip(cases, np.asarray(done.trace), strict=True):
        for metric, value in zip(METRICS, values, strict=True):
            rows.append(Row(label(order), metric, value, step=snr, seed=seed))
    return rows


def constant_rows(session: Session, references: StepActivation) -> list[Row]:
    """Exponents, coefficients and large-noise limits of the step functions of the table."""

    def constants(activation: StepActivation) -> dict[str, jax.Array]:
        found = nse.noise_sensitivity(activation)._asdict()
        moments = activation.moments(0.0, 1.0)
        mean, square = (moments.mass @ moments.values**k for k in (1, 2))
        kappa = nse_replica.large_noise_information(activation).alpha
        return {**found, "kappa": kappa, "variance": square - mean**2}

    with session.timed("constants"):
        found = jax.jit(jax.vmap(constants))(references)
    return [
        Row(label(order), metric, float(values[i]))
        for i, order in enumerate(SCALES)
        for metric, values in found.items()
    ]


def no_gap_rows(session: Session) -> list[Row]:
    """The baseline without a gap: ``He_2`` has the exponent 1 and a continuous transition."""
    he2 = smooth(lambda z: (z**2 - 1) / jnp.sqrt(2.0), num_nodes=64)
    overlaps: Any = nse_replica.overlap_grid(24)

    def thresholds(snr: jax.Array) -> tuple[jax.Array, jax.Array]:
        found = nse_replica.information_threshold(he2, snr, overlaps=overlaps, num_y=201, num_v=121)
        return found.alpha, nse.weak_recovery_threshold(he2, snr)

    rows, compiled = [], jax.jit(thresholds)
    with session.timed("thresholds He_2"):
        for snr in (0.01, 0.1):
            for metric, value in zip(METRICS[1::-1], compiled(jnp.array(snr)), strict=True):
                rows.append(Row("He_2", metric, float(value), step=snr))
    return rows


def committee_rows(
    session: Session, references: StepActivation, constants: list[Row], smoke: bool
) -> list[Row]:
    """Exact thresholds of committees against their width, and the limit."""
    noise, rows = 0.5, []
    widths = (32, 64, 128) if smoke else (1, 4, 16, 32, 64, 128)

    def threshold(activation: StepActivation, width: int) -> jax.Array:
        return nse_multi.committee_threshold(activation, noise, num_units=width)

    with session.timed("committees"):
        for width in widths:
            exact = jax.jit(jax.vmap(partial(threshold, width=width)))(references)
            for order, value in zip(SCALES, exact, strict=True):
                c, variance = (
                    select(constants, method=label(order), metric=metric)[0].value
                    for metric in ("coefficient", "variance")
                )
                limit = nse_multi.large_noise_committee(c, order, variance, noise, width)
                rows.append(Row(label(order), "committee", float(value), step=width))
                rows.append(Row(label(order), "committee_limit", float(limit), step=width))
    return rows


AMP = taught(amp.amp())


def amp_runs(
    args: Args,
    session: Session,
    piece: str,
    link: Activation,
    snr: float,
    alpha: float,
    dim: int,
    overlap: float,
) -> tuple[Taught, np.ndarray]:
    """One run per seed; the problems, and ``[seeds, 4]`` at the end. Overlap 0 is no knowledge."""
    num_samples = round(alpha * dim)

    def taught_problem(key: jax.Array) -> Taught:
        key_data, key_start = jax.random.split(jax.random.fold_in(key, num_samples))
        data = amp.sample_single_index(key_data, link, snr, num_samples=num_samples, dim=dim)
        start = amp.uninformed_start(key_start, dim)
        if overlap > 0:
            start = amp.informed_start(key_start, data.teacher, overlap)
        problem = amp.AMPProblem(data.features, data.labels, link, start)
        return Taught(problem, data.teacher)

    keys = seed_keys(args)
    with session.timed(f"{piece} {alpha:g}: data"):
        problems = jax.jit(jax.vmap(taught_problem))(keys)
    num_steps = FEW_STEPS if piece == "amp" else MANY_STEPS
    done = session.run(
        f"{piece} {alpha:g}", AMP, problems, amp.AMPHyper(jnp.array(snr)),
        jax.random.key(0), num_steps=num_steps, chunk_size=num_steps // 2, in_axes=(0, None, None),
    )  # fmt: skip
    return problems, np.asarray(done.trace)[:, -1]


def amp_rows(args: Args, session: Session, inputs: Inputs) -> list[Row]:
    """AMP from a start of known overlap, in one large dimension."""
    rows = []
    for alpha in inputs.alphas:
        _, ends = amp_runs(args, session, "amp", absolute(), SNR, alpha, inputs.dim, START)
        for s, (overlap, square, variance, _) in enumerate(ends):
            found = {"overlap": overlap, "self_overlap": square, "known": 1 - variance}
            rows += [
                Row("AMP", metric, value, step=alpha, seed=args.seed + s)
                for metric, value in found.items()
            ]
    return rows


def prediction_rows(session: Session, smoke: bool) -> list[Row]:
    """State evolution's end by sample size, and where it leaves 0."""
    link, between = absolute(), [] if smoke else np.linspace(0.25, 5.0, 20)
    alphas = np.unique([*ALPHAS, *between])

    def end(alpha: jax.Array) -> jax.Array:
        return nse_evolution.state_evolution(
            link, START, alpha, SNR, num_steps=FEW_STEPS, num_y=121, num_v=41
        )[-1]

    with session.timed("state evolution"):
        ends = jax.jit(jax.vmap(end))(jnp.asarray(alphas))
        needed = float(nse.weak_recovery_threshold(link, SNR))
    rows = [
        Row("state evolution", "predicted", float(end), step=alpha)
        for alpha, end in zip(alphas, ends, strict=True)
    ]
    return [*rows, Row("state evolution", "weak_recovery", needed)]


def rival_rows(args: Args, session: Session, inputs: Inputs) -> list[Row]:
    """Without knowledge of the direction: AMP, the spectral method and ridge on the same data."""
    rows, penalties, link = [], jnp.array([0.1, 1.0, 10.0, 100.0]), absolute()
    spectral = jax.jit(lambda x, y: amp.spectral_estimator(x, y, link, SNR).direction)
    ridge = jax.jit(ridge_direction)
    for alpha in inputs.alphas:
        problems, ends = amp_runs(args, session, "blind", link, SNR, alpha, inputs.rival_dim, 0.0)
        for s in range(args.seeds):
            data, teacher = jax.tree.map(lambda leaf, s=s: leaf[s], problems)
            with session.timed(f"rivals {alpha:g} {s}"):
                eigenvector = spectral(data.features, data.labels)
                matrices = ridge(data.features, data.labels, penalties)
            found = {
                "AMP, no knowledge": ends[s, 3],
                "spectral": cosine_with(eigenvector, teacher),
                # The penalty is chosen by the answer, in favour of the rival.
                "ridge on products": max(cosine_with(m, teacher) for m in matrices),
            }
            rows += [
                Row(method, "cosine", float(value), step=alpha, seed=args.seed + s)
                for method, value in found.items()
            ]
    return rows


def hard_phase_rows(
    args: Args, session: Session, references: StepActivation, dim: int
) -> list[Row]:
    """Between both thresholds AMP keeps what it knows, and learns nothing by itself."""
    link, snr, alpha = jax.tree.map(lambda leaf: leaf[1], references), 1.0, 15.0
    rows = []
    for name, overlap in (("informed", 0.9), ("uninformed", 0.0)):
        _, ends = amp_runs(args, session, name, link, snr, alpha, dim, overlap)
        rows += [
            Row(name, "hard_phase", end[0], step=alpha, seed=args.seed + s)
            for s, end in enumerate(ends)
        ]
    return rows


def real_rows(
    args: Args, session: Session, references: StepActivation, tables: dict[str, np.ndarray]
) -> list[Row]:
    """Spectral recovery of random directions, from white real features and from normal ones."""
    directions = 4 if args.smoke else 16
    links = jax.jit(jax.vmap(normalized))(references)
    over_keys = jax.vmap(recovery, in_axes=(None, None, None, 0))
    over_snrs = jax.vmap(over_keys, in_axes=(None, None, 0, None))
    recover = jax.jit(jax.vmap(over_snrs, in_axes=(None, 0, None, None)))
    rows = []
    for name, features in tables.items():
        count, dim = features.shape
        normals = np.random.default_rng(args.seed).standard_normal(features.shape) / np.sqrt(dim)
        with session.timed(f"real features {name}"):
            for metric, table in (("real_cosine", features), ("normal_cosine", normals)):
                for s in range(args.seeds):
                    keys = jax.random.split(jax.random.key(args.seed + s), directions)
                    cosines = recover(jnp.asarray(table), links, jnp.array(REAL_SNRS), keys)
                    for order, curve in zip(SCALES, cosines.mean(axis=-1), strict=True):
                        where = {"seed": args.seed + s, "dataset": name}
                        rows += [
                            Row(label(order), metric, float(cosine), step=snr, **where)
                            for snr, cosine in zip(REAL_SNRS, curve, strict=True)
                        ]
            rows.append(Row("chance", "real_cosine", chance(dim), dataset=name))
            rows.append(Row("table", "real_alpha", count / dim, dataset=name))
    return rows


EXPERIMENT = Experiment("nse", Args, prepare, run, judge, draw)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))

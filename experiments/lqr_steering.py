"""Measures what steering by linear optimal control does to a language model, against its rivals.

Run it by ``jaxlab run lqr_steering`` or ``python experiments/lqr_steering.py``; ``--help`` lists
the flags.
"""

import sys
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlab.control import tracking
from jaxlab.control.lqr import AffinePolicy, LinearSystem, Weights, closed_loop, riccati
from jaxlab.experiment import CommonArgs, Experiment, Row, Session, main
from jaxlab.experiment.lqr_inputs import Inputs, Start, first_layers, make_inputs, start
from jaxlab.experiment.lqr_report import GRIDS, SETTINGS, TRACKED, draw, judge
from jaxlab.experiment.measure import sweep
from jaxlab.language import lqr_studies as studies
from jaxlab.language.controllers import low_rank, s_pid, steer, trajectory_tracking
from jaxlab.language.feature_lqr import plant_feature_lqr
from jaxlab.language.plants import (
    Plant,
    jacobian_alignment,
    layer_jacobians,
    linear_plant,
    linearize,
)
from jaxlab.language.policies import (
    LowRankPolicy,
    alqr_policy,
    constant_policy,
    dense_policy,
    feedback_policy,
    stack_policies,
)
from jaxlab.language.setpoints import FeatureSetpoint, contrast_setpoint, setpoint_values
from jaxlab.models.llama import Params
from jaxlab.models.load import load

WEIGHTS = Weights(0.1, 10.0, 1.0)
SAMPLED = (
    ("unsteered", 0.0),
    ("A-LQR", 1.0),
    ("A-LQR", 2.0),
    ("feature LQR, centred", 2.0),
    ("proportional", 1.0),
    ("proportional", 2.0),
    ("ActAdd, all layers", 0.1),
    ("ActAdd, all layers", 0.2),
)
"""Which controllers write text, at which strengths."""
SMOKE_LAYERS = 5


@dataclass(frozen=True)
class Args(CommonArgs):
    """Flags of the experiment."""

    model: str = "smollm2-135m-instruct"
    """As for jaxlab.models.load; with --smoke only its first 5 layers are used."""
    new_tokens: int = 24
    """Length of the steered continuations; with --smoke at most 4."""

    def __post_init__(self) -> None:
        """Check what the types leave open."""
        super().__post_init__()
        if self.new_tokens < 1:
            raise ValueError(f"new_tokens must be at least 1, got {self.new_tokens}")


def prepare(args: Args) -> Inputs:
    """Load the model, and turn stems and words into tokens."""
    try:
        loaded = load(args.model)
    except FileNotFoundError as error:
        raise ValueError(str(error)) from error
    if not args.smoke:
        return make_inputs(loaded, stems=8, new_tokens=args.new_tokens)
    short = first_layers(loaded, min(SMOKE_LAYERS, loaded.lm.config.num_layers))
    return make_inputs(short, stems=2, new_tokens=min(args.new_tokens, 4))


class Linear(NamedTuple):
    """What is known of the model at its contrast prompts."""

    setpoint: FeatureSetpoint
    centred: FeatureSetpoint
    jacobians: jax.Array
    good: Start
    middle: jax.Array


def run(args: Args, inputs: Inputs, session: Session) -> list[Row]:
    """All measurements; with --smoke without S-PID, other prices and the bound."""
    known, rows = linearise(inputs, session)
    policies, dense_rows = make_policies(args, inputs, known, session)
    with session.timed("neutral prompts"):
        neutral = start(inputs.lm, inputs.params, inputs.neutral)
    rows += dense_rows + frontier_rows(inputs, known, policies, neutral, session)
    if not args.smoke:
        rows += pid_rows(inputs, known, neutral, session)
        rows += bound_rows(known, neutral, session)
    return rows + text_rows(args, inputs, policies, session)


@jax.jit
def jacobians(plant: Plant, states: jax.Array) -> jax.Array:
    """Of one prompt."""
    return layer_jacobians(plant, states)


def linearise(inputs: Inputs, session: Session) -> tuple[Linear, list[Row]]:
    """Contrast, mean Jacobians of the good prompts, and how alike those of single prompts are."""
    with session.timed("contrast"):
        good, bad = (start(inputs.lm, inputs.params, side) for side in (inputs.good, inputs.bad))
    with session.timed("Jacobians"):
        count = good.states.shape[1]
        singles = [jacobians(*_one_prompt(good, i)) for i in range(count)]
        other = jax.block_until_ready(jacobians(*_one_prompt(bad, 0)))
        mean = sum(singles[1:], start=singles[0]) / count
    with session.timed("alignment"):
        align, rows = jax.jit(jacobian_alignment), []
        layers = np.unique(np.linspace(1, mean.shape[0] - 1, 8).astype(int))
        for name, one, two in (
            ("good, good", singles[0], singles[1]),
            ("good, bad", singles[0], other),
        ):
            for k, value in zip(layers, align(one[layers], two[layers]), strict=True):
                rows.append(Row(name, "alignment", float(value), step=k))
    linear = Linear(
        contrast_setpoint(good.states, bad.states),
        contrast_setpoint(good.states, bad.states, centered=True),
        mean,
        good,
        (good.states.mean(axis=1) + bad.states.mean(axis=1)) / 2,
    )
    return linear, rows


def _one_prompt(begun: Start, i: int) -> tuple[Plant, jax.Array]:
    weights, past = begun.plant.layers
    one = jax.tree.map(lambda leaf: leaf[:, i], past)
    plant = begun.plant._replace(layers=(weights, one), start=begun.plant.start[i])
    return plant, begun.states[:, i]


@jax.jit
def gains(A: jax.Array, weights: Weights) -> AffinePolicy:
    """Of the Riccati recursion."""
    return riccati(LinearSystem(A), weights).policy


@jax.jit
def without_matrices(begun: Start, point: FeatureSetpoint) -> LowRankPolicy:
    """The feature's optimum at the mean of prompts."""
    return plant_feature_lqr(begun.plant, begun.states, point, WEIGHTS)


def make_policies(
    args: Args, inputs: Inputs, known: Linear, session: Session
) -> tuple[dict[str, LowRankPolicy], list[Row]]:
    """All linear controllers, and the dense feature LQR against that without matrices."""
    point, found = known.setpoint, {}
    with session.timed("Riccati"):
        for name, setting in SETTINGS.items():
            if args.smoke and name != "A-LQR":
                continue
            policy = gains(known.jacobians, Weights(*map(_single, setting)))
            found[name] = alqr_policy(policy, point)
            if name == "A-LQR":
                found["A-LQR, centred"] = alqr_policy(policy, known.centred)
        jax.block_until_ready(found)
    with session.timed("feature LQR"):
        found["feature LQR"] = without_matrices(known.good, point)
        found["feature LQR, centred"] = without_matrices(known.good, known.centred)
        jax.block_until_ready(found)
    vectors = point.directions * point.scales[:, None]
    layers = vectors.shape[0] - 1
    found["proportional"] = feedback_policy(_single(0.3) * point.directions[:-1], point)
    found["proportional, centred"] = feedback_policy(
        _single(0.3) * point.directions[:-1], known.centred
    )
    found["ActAdd, all layers"] = constant_policy(vectors[1:])
    at = (jnp.arange(layers) == 2 * layers // 3)[:, None]
    found["ActAdd, one layer"] = constant_policy(jnp.where(at, vectors[1:], 0))
    found["open loop"] = _open_loop(known, found["A-LQR"])
    found["unsteered"] = jax.tree.map(jnp.zeros_like, found["ActAdd, all layers"])
    with session.timed("dense feature LQR"):
        rows = _dense_rows(known, found["feature LQR"])
    return found, rows


def _single(value: float) -> jax.Array:
    return jnp.asarray(value, jnp.float32)


def _open_loop(known: Linear, policy: LowRankPolicy) -> LowRankPolicy:
    """What the closed loop would do to the middle of the contrast, on the linear model."""
    plant = linear_plant(linearize(known.jacobians, known.middle), known.middle[0])
    zero, one = (steer(plant, low_rank(policy, _single(s))).inputs for s in (0.0, 1.0))
    return constant_policy(one - zero)._replace(base=zero)


def _dense_rows(known: Linear, policy: LowRankPolicy) -> list[Row]:
    """Largest relative difference of gains and offsets from the Riccati recursion with matrices."""

    @jax.jit
    def compare(A: jax.Array, states: jax.Array, point: FeatureSetpoint, policy: LowRankPolicy):
        v = point.directions
        outer = v[:, :, None] * v[:, None, :]
        weights = Weights(WEIGHTS.state * outer[:-1], WEIGHTS.input, WEIGHTS.final * outer[-1])
        targets = setpoint_values(point, 1.0)[:, None] * v
        dense = riccati(linearize(A, states), weights, targets).policy
        found = dense_policy(policy, 1.0)

        def differ(one: jax.Array, other: jax.Array) -> jax.Array:
            size = jnp.sqrt(jnp.sum(other**2, axis=tuple(range(1, other.ndim))))
            away = jnp.sqrt(jnp.sum((one - other) ** 2, axis=tuple(range(1, one.ndim))))
            # Before the contrast begins the feature has no direction, and gains are small.
            return jnp.max(away / size.max())

        return differ(found.gains, dense.gains), differ(found.offsets, dense.offsets)

    gains, offsets = compare(
        known.jacobians, known.good.states.mean(axis=1), known.setpoint, policy
    )
    return [
        Row("feature LQR", "dense_gains", float(gains)),
        Row("feature LQR", "dense_offsets", float(offsets)),
    ]


def frontier_rows(
    inputs: Inputs,
    known: Linear,
    policies: dict[str, LowRankPolicy],
    neutral: Start,
    session: Session,
) -> list[Row]:
    """Score, divergence, energy and features of every linear controller and strength."""
    lm, point, words = inputs.lm, known.setpoint, inputs.words
    names = [name for name in policies if name in GRIDS]
    cases = [(name, strength) for name in names for strength in GRIDS[name]]

    def one(context: Any, case: tuple[jax.Array, jax.Array]) -> studies.NextToken:
        params, plant, free, stacked = context
        policy = jax.tree.map(lambda leaf: leaf[case[0]], stacked)
        return studies.next_token(lm, params, plant, low_rank(policy, case[1]), point, words, free)

    context = (
        inputs.params, neutral.plant, neutral.logits, stack_policies([policies[n] for n in names]),
    )  # fmt: skip
    index = jnp.array([names.index(name) for name, _ in cases])
    strengths = jnp.array([strength for _, strength in cases], jnp.float32)
    done = session.run(
        "frontier", sweep(one), (context, (index, strengths)), (), jax.random.key(0),
        num_steps=len(cases), chunk_size=_chunk(len(cases)),
    )  # fmt: skip
    rows = []
    for i, (name, strength) in enumerate(cases):
        rows += _case_rows(name, strength, jax.tree.map(lambda x, i=i: x[i], done.trace), point)
    return rows


def pid_rows(inputs: Inputs, known: Linear, neutral: Start, session: Session) -> list[Row]:
    """The same for S-PID."""
    lm, point = inputs.lm, known.setpoint

    @jax.jit
    def one(params: Params, begun: Start, strength: jax.Array) -> studies.NextToken:
        controller = s_pid(known.centred, strength)
        return studies.next_token(
            lm, params, begun.plant, controller, point, inputs.words, begun.logits
        )

    rows = []
    with session.timed("S-PID"):
        for s in GRIDS["S-PID"]:
            rows += _case_rows("S-PID", s, one(inputs.params, neutral, _single(s)), point)
    return rows


def _case_rows(
    name: str, strength: float, seen: studies.NextToken, point: FeatureSetpoint
) -> list[Row]:
    rows = [
        Row(name, metric, float(np.mean(getattr(seen, metric))), step=strength)
        for metric in ("score", "divergence", "energy")
    ]
    if strength in (0.0, 1.0):
        rows += _layer_rows(name, strength, jnp.asarray(seen.features), point)
    return rows


def _chunk(count: int) -> int:
    return max(size for size in range(1, 13) if count % size == 0)


def _layer_rows(name: str, strength: float, seen: jax.Array, point: FeatureSetpoint) -> list[Row]:
    """Features and their distance from a strength of 1, by layer, both over ``mu``."""
    errors = studies.relative_errors(seen, setpoint_values(point, 1.0), point.scales)
    means = jnp.mean(seen, axis=1) / jnp.where(point.scales > 0, point.scales, 1)
    where = f"strength {strength:g}"
    return [
        Row(name, metric, float(value), step=k, dataset=where)
        for metric, values in (("tracking_error", errors), ("feature", means))
        for k, value in enumerate(values)
    ]


@jax.jit
def deviations_and_bounds(
    begun: Start, A: jax.Array, nominal: jax.Array, weights: Weights
) -> tuple[jax.Array, jax.Array]:
    """Tracking a nominal trajectory, ``[prompts, layers + 1]``."""
    policy = riccati(LinearSystem(A), weights).policy
    done = steer(begun.plant, trajectory_tracking(policy, nominal))
    closed = closed_loop(LinearSystem(A), policy)
    P = tracking.lyapunov_weights(closed)
    norms = tracking.chained_norms(tracking.lyapunov_contractions(P))

    def one(states: jax.Array) -> tuple[jax.Array, jax.Array]:
        away = states - nominal
        remainder = away[1:] - jnp.einsum("kij,kj->ki", closed, away[:-1])
        sizes = tracking.weighted_norms(P, away)
        left = tracking.weighted_norms(P[1:], remainder)
        return sizes, tracking.tracking_bound(norms, sizes[0], left)

    return jax.vmap(one, in_axes=1)(done.states)


def bound_rows(known: Linear, neutral: Start, session: Session) -> list[Row]:
    """Tracking a whole trajectory: the true deviations against the bound from norms of layers."""
    nominal, rows = known.good.states.mean(axis=1), []
    with session.timed("bound"):
        for name, setting in TRACKED.items():
            weights = Weights(*map(_single, setting))
            found = deviations_and_bounds(neutral, known.jacobians, nominal, weights)
            for metric, table in zip(("deviation", "bound"), found, strict=True):
                rows += [
                    Row(f"prompt {i}", metric, float(value), step=k, dataset=name)
                    for i, values in enumerate(table)
                    for k, value in enumerate(values)
                ]
    return rows


def text_rows(
    args: Args, inputs: Inputs, policies: dict[str, LowRankPolicy], session: Session
) -> list[Row]:
    """Steered continuations as the unsteered model sees them."""
    lm, new_tokens = inputs.lm, inputs.new_tokens
    names = list(dict.fromkeys(name for name, _ in SAMPLED))
    stacked = stack_policies([policies[name] for name in names])
    cases = [(name, s, args.seed + i) for name, s in SAMPLED for i in range(args.seeds)]

    def write(context: Any, case: tuple[jax.Array, jax.Array, jax.Array]) -> tuple:
        params, prompts, question, words, stacked = context
        index, strength, seed = case
        policy = jax.tree.map(lambda leaf: leaf[index], stacked)
        made = studies.continuations(
            lm, params, prompts.tokens, prompts.mask, question, words, policy, strength,
            jax.random.key(seed), max_new_tokens=new_tokens,
        )  # fmt: skip
        return made.nats, made.score

    context = (inputs.params, inputs.neutral, inputs.question, inputs.words, stacked)
    columns = (
        jnp.array([names.index(name) for name, *_ in cases]),
        jnp.array([strength for _, strength, _ in cases], jnp.float32),
        jnp.array([seed for *_, seed in cases]),
    )
    done = session.run(
        "continuations", sweep(write), (context, columns), (), jax.random.key(0),
        num_steps=len(cases), chunk_size=args.seeds,
    )  # fmt: skip
    rows = []
    for (name, strength, seed), nats, score in zip(cases, *done.trace, strict=True):
        rows.append(Row(name, "nats", float(np.mean(nats)), step=strength, seed=seed))
        rows.append(Row(name, "effect", float(np.mean(score)), step=strength, seed=seed))
    return rows


EXPERIMENT = Experiment("lqr_steering", Args, prepare, run, judge, draw)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))

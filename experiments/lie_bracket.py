"""Measures whether Lie brackets tell in which order to train on sources.

Run it by ``jaxlab run lie_bracket`` or ``python experiments/lie_bracket.py``; ``--help`` lists the
flags.
"""

import itertools
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxlab.core.trees import tree_dot
from jaxlab.core.types import Method
from jaxlab.experiment import CommonArgs, Experiment, Row, Session, main, seed_keys
from jaxlab.experiment.lie_bracket_block import BlockInputs, block_inputs, block_rows
from jaxlab.experiment.lie_bracket_figure import draw
from jaxlab.experiment.lie_bracket_inputs import Texts, builtin_names, language_texts
from jaxlab.experiment.lie_bracket_report import (
    FEW_METRIC,
    OPTIMIZERS,
    PAIR_STEP,
    STEP_SIZES,
    STEPS,
    judge,
)
from jaxlab.experiment.measure import sweep
from jaxlab.models.byte_mlp import Contexts, byte_mlp_loss, draw_contexts, init_byte_mlp
from jaxlab.optim import lie_bracket as lb
from jaxlab.optim import lie_bracket_orders as orders
from jaxlab.optim import lie_bracket_schedules as schedules

FEW = 8
GRID = tuple(float(x) for x in 0.4 * 2.0 ** -np.arange(6)[::-1])


@dataclass(frozen=True)
class Args(CommonArgs):
    """Flags of the experiment."""

    seeds: int = 3
    """How many draws of all batches; the model is pretrained once."""
    data: Path | None = None
    """Pygments' source distribution or its folder; fetched by pip if not given."""
    sources: int = 85
    """Languages; with --smoke at most 16."""
    random: int = 100
    """Random orders that schedules are compared with; with --smoke at most 30."""

    def __post_init__(self) -> None:
        """Check what the types leave open."""
        super().__post_init__()
        for name, least in (("sources", 4), ("random", 10)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}")


class Inputs(NamedTuple):
    """Texts; a language model, but not with --smoke; and sizes."""

    texts: Texts
    block: BlockInputs | None
    random: int
    searched: int
    pairs: int
    pretraining: int
    batch: int


def prepare(args: Args) -> Inputs:
    """Read texts, and run the language model up to its last block."""
    if args.smoke:
        texts = builtin_names(min(args.sources, 16))
        return Inputs(texts, None, min(args.random, 30), 500, 24, 300, 64)
    texts = language_texts(args.sources, args.data)
    return Inputs(texts, block_inputs(args.data), args.random, 20000, 120, 1500, 128)


def run(args: Args, inputs: Inputs, session: Session) -> list[Row]:
    """All measurements."""
    params = pretrained(args, inputs, session)
    rows = []
    for seed, key in zip(itertools.count(args.seed), seed_keys(args)):
        drawn = draw_sources(jax.random.fold_in(key, 1), inputs)
        with session.timed(f"tournament {seed}"):
            table = TABLE(params, drawn.sources, drawn.target)
            edges = lb.edge_matrix(table)
        rows += schedule_rows(session, inputs, params, drawn, table, seed)
        rows += found_rows(session, inputs, params, drawn, table, edges, seed)
        rows += pair_rows(session, inputs, params, drawn, seed)
        rows += triple_rows(session, inputs, params, drawn, table, edges, seed)
        rows += remainder_rows(session, params, drawn, seed)
    return rows if inputs.block is None else rows + block_rows(session, inputs.block, args.seed)


def pretrained(args: Args, inputs: Inputs, session: Session) -> Any:
    """The byte model after Adam on the mixture of all sources."""
    tx = optax.adam(1e-3)

    def init(problem: jax.Array, hyper: tuple[()], key: jax.Array) -> Any:
        del problem, hyper
        params = init_byte_mlp(key)
        params = params._replace(embedding=0.3 * params.embedding)
        return params, tx.init(params)

    def step(problem: jax.Array, hyper: tuple[()], state: Any, key: jax.Array) -> Any:
        del hyper
        params, memory = state
        # The texts have one length, so that places of their concatenation are places of each.
        batch = draw_contexts(key, problem.reshape(-1), batch_size=256)
        value, grad = jax.value_and_grad(byte_mlp_loss)(params, batch)
        updates, memory = tx.update(grad, memory, params)
        return (optax.apply_updates(params, updates), memory), value

    count = inputs.pretraining
    done = session.run(
        "pretraining", Method(init, step), jnp.asarray(inputs.texts.texts), (),
        jax.random.key(args.seed), num_steps=count, chunk_size=count // 3,
    )  # fmt: skip
    return done.state[0]


class Drawn(NamedTuple):
    """The batches that schedules use, the target's, and a key for choices."""

    sources: Contexts
    target: Contexts
    key: jax.Array


def draw_sources(key: jax.Array, inputs: Inputs) -> Drawn:
    """A batch of every source, and one of the target."""
    key_sources, key_target, key_choice = jax.random.split(key, 3)
    texts = jnp.asarray(inputs.texts.texts)
    keys = jax.random.split(key_sources, len(texts))
    batches = jax.vmap(partial(draw_contexts, batch_size=inputs.batch))(keys, texts)
    size = 32 * inputs.batch
    target = draw_contexts(key_target, jnp.asarray(inputs.texts.target), batch_size=size)
    return Drawn(batches, target, key_choice)


def final_loss(context: Any, case: Any) -> jax.Array:
    """The target's loss after one step on each source, in an order."""
    (params, sources, target), (order, step_size) = context, case
    end = schedules.run_schedule(byte_mlp_loss, params, sources, order, step_size)
    return byte_mlp_loss(end, target)


FINAL = sweep(final_loss)
TABLE = jax.jit(partial(lb.tournament, byte_mlp_loss))


def schedule_rows(
    session: Session, inputs: Inputs, params: Any, drawn: Drawn, table: lb.Tournament, seed: int
) -> list[Row]:
    """Every rule's schedule of all sources, against random ones."""
    borda = lb.borda_order(lb.borda_scores(table))
    rules = {
        "Borda": borda,
        "Borda, reversed": borda[::-1],
        "gradient norm": orders.gradient_norm_order(table.grads),
        "recency alignment": orders.recency_alignment_order(table.grads, table.target_grad),
    }
    piece = f"schedules {seed}"
    rows = compare(session, piece, "loss", inputs.random, params, drawn, rules, STEP_SIZES, seed)
    curl = float(orders.hodge_residual(lb.edge_matrix(table)))
    return [*rows, Row("tournament", "curl", curl, seed=seed)]


def compare(
    session: Session, piece: str, metric: str, num: int, params: Any, drawn: Drawn,
    rules: dict[str, jax.Array], step_sizes: tuple[float, ...], seed: int,
    sources: Any = None,
) -> list[Row]:  # fmt: skip
    """The target's loss after each rule's order, and after random ones."""
    sources = drawn.sources if sources is None else sources
    others = orders.random_orders(drawn.key, len(next(iter(rules.values()))), num=num)
    names = [*rules, *["random"] * num]
    every = jnp.concatenate([jnp.stack(list(rules.values())), others])
    cases = [(name, size) for size in step_sizes for name in names]
    listed = jnp.tile(every, (len(step_sizes), 1))
    sizes = jnp.array([size for _, size in cases])
    done = session.run(
        piece, FINAL, ((params, sources, drawn.target), (listed, sizes)), (),
        jax.random.key(0), num_steps=len(cases), chunk_size=len(names),
    )  # fmt: skip
    return [
        Row(name, metric, float(value), step=size, seed=seed)
        for (name, size), value in zip(cases, np.asarray(done.trace), strict=True)
    ]


def found_rows(
    session: Session, inputs: Inputs, params: Any, drawn: Drawn, table: lb.Tournament,
    edges: jax.Array, seed: int,
) -> list[Row]:  # fmt: skip
    """Where the second order should count most: few sources, searched for; and does it?

    Of many random choices of sources the one is run whose orders by brackets and by alignment
    differ most in predicted cost, in standard deviations of random orders' costs.
    """
    along = orders.cosines(table.grads, table.target_grad)
    shuffled = orders.random_orders(jax.random.key(0), FEW, num=200)

    def advantage(chosen: jax.Array) -> jax.Array:
        among = edges[chosen][:, chosen]
        cost = partial(orders.linear_ordering_cost, among)
        others = jax.vmap(cost)(shuffled)
        return (cost(jnp.argsort(along[chosen])) - cost(lb.borda_order(among.sum(axis=1)))) / (
            others.std()
        )

    keys = jax.random.split(jax.random.fold_in(drawn.key, 4), inputs.searched)
    with session.timed(f"search {seed}"):
        chosen = jax.vmap(lambda k: jax.random.choice(k, len(along), (FEW,), replace=False))(keys)
        chosen = chosen[jnp.argmax(jax.jit(jax.vmap(advantage))(chosen))]
    among = edges[chosen][:, chosen]
    rules = {
        "Borda": lb.borda_order(among.sum(axis=1)),
        "best predicted": orders.best_order(among),
        "gradient norm": orders.gradient_norm_order(
            jax.tree.map(lambda leaf: leaf[chosen], table.grads)
        ),
        "recency alignment": jnp.argsort(along[chosen]).astype(jnp.int32),
    }
    sources = jax.tree.map(lambda leaf: leaf[chosen], drawn.sources)
    return compare(
        session, f"found {seed}", FEW_METRIC, inputs.random, params, drawn, rules,
        (PAIR_STEP / 5,), seed, sources,
    )  # fmt: skip


def optimizers() -> dict[str, optax.GradientTransformation]:
    """By their names in the report; step sizes so that one step moves about as far."""
    made = optax.sgd(PAIR_STEP), optax.sgd(PAIR_STEP / 10, momentum=0.9), optax.adam(1e-3)
    return dict(zip(OPTIMIZERS, made, strict=True))


def pair_values(context: Any, pair: jax.Array) -> dict[str, jax.Array]:
    """Measured gaps of a pair by steps and optimizer, and what each rule says."""
    params, sources, target = context
    a, b = (jax.tree.map(lambda leaf, k=k: leaf[pair[k]], sources) for k in (0, 1))
    both = jax.tree.map(lambda x, y: jnp.stack([x, y]), a, b)
    grads = [jax.grad(byte_mlp_loss)(params, x) for x in (a, b)]
    norms = [tree_dot(g, g) for g in grads]
    along = orders.cosines(
        jax.tree.map(lambda *g: jnp.stack(g), *grads), jax.grad(byte_mlp_loss)(params, target)
    )
    # Positive where the second of the pair should be first.
    found = {"gradient norm": norms[1] - norms[0], "recency alignment": along[0] - along[1]}
    for k in STEPS:
        found[f"gap {k}"] = schedules.ordering_gap(
            byte_mlp_loss, params, a, b, target, PAIR_STEP, steps=k
        )
        for reference in ("origin", "trotter"):
            found[f"{reference} {k}"] = lb.pair_score(
                byte_mlp_loss, params, a, b, target,
                step_size=PAIR_STEP, steps=k, reference=reference,
            ).gap  # fmt: skip
    for name, tx in optimizers().items():
        ends = [
            byte_mlp_loss(
                schedules.run_schedule_optax(
                    byte_mlp_loss, params, both, order, tx, allow_memory=True
                ),
                target,
            )
            for order in (jnp.array([0, 1]), jnp.array([1, 0]))
        ]
        found[name] = ends[0] - ends[1]
    return found


PAIRS = sweep(pair_values)


def pair_rows(session: Session, inputs: Inputs, params: Any, drawn: Drawn, seed: int) -> list[Row]:
    """Every pair's values; the report counts signs."""
    count = len(inputs.texts.names)
    every = np.array(list(itertools.combinations(range(count), 2)))
    chosen = jax.random.permutation(drawn.key, len(every))[: inputs.pairs]
    pairs = jnp.asarray(every)[chosen]
    done = session.run(
        f"pairs {seed}", PAIRS, ((params, drawn.sources, drawn.target), pairs), (),
        jax.random.key(0), num_steps=len(pairs), chunk_size=len(pairs) // 4,
    )  # fmt: skip
    return [
        Row("pair", name, float(value), step=i, seed=seed)
        for name, values in done.trace.items()
        for i, value in enumerate(np.asarray(values))
    ]


def triple_rows(
    session: Session, inputs: Inputs, params: Any, drawn: Drawn, table: lb.Tournament,
    edges: jax.Array, seed: int,
) -> list[Row]:  # fmt: skip
    """Whether rules find the best of a triple's six orders, by running all six."""
    count, num = len(inputs.texts.names), inputs.pairs // 2
    keys = jax.random.split(jax.random.fold_in(drawn.key, 3), num)
    triples = jax.vmap(lambda k: jax.random.choice(k, count, (3,), replace=False))(keys)
    six = jnp.array(list(itertools.permutations(range(3))))
    listed = triples[:, six].reshape(-1, 3)
    sizes = jnp.full(len(listed), PAIR_STEP)
    done = session.run(
        f"triples {seed}", FINAL, ((params, drawn.sources, drawn.target), (listed, sizes)), (),
        jax.random.key(0), num_steps=len(listed), chunk_size=len(listed) // 2,
    )  # fmt: skip
    norms = jax.vmap(tree_dot)(table.grads, table.grads)
    along = orders.cosines(table.grads, table.target_grad)

    def choices(triple: jax.Array) -> jax.Array:
        among = edges[triple][:, triple]
        costs = jax.vmap(partial(orders.linear_ordering_cost, among))(six)
        borda = lb.borda_order(among.sum(axis=1))
        rules = borda, jnp.argsort(-norms[triple]), jnp.argsort(along[triple])
        at = [jnp.argmax((six == order).all(axis=1)) for order in rules]
        return jnp.stack([jnp.argmin(costs), *at])

    chosen = np.asarray(jax.jit(jax.vmap(choices))(triples))
    losses = np.asarray(done.trace).reshape(num, 6)
    return [
        Row(name, "best of six", float(np.mean(chosen[:, i] == losses.argmin(axis=1))), seed=seed)
        for i, name in enumerate(("exhaustive", "Borda", "gradient norm", "recency alignment"))
    ]


def remainder_rows(session: Session, params: Any, drawn: Drawn, seed: int) -> list[Row]:
    """What the bracket leaves unexplained, by step size."""
    with session.timed(f"remainder {seed}"):
        report = CALIBRATE(drawn.key, params, drawn.sources, drawn.target, jnp.array(GRID))
    return [
        Row("pair", "remainder", float(value), step=size, seed=seed)
        for size, value in zip(GRID, report.remainder, strict=True)
    ]


CALIBRATE = jax.jit(
    lambda key, params, *rest: schedules.calibrate_step_size(key, byte_mlp_loss, params, *rest)
)


EXPERIMENT = Experiment("lie_bracket", Args, prepare, run, judge, draw)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))

"""Federated training for the experiment ``demoa``: data, models, rules and lies, chosen by number.

Which rule and which lie a run has is data (``lax.switch``), so that one program serves the grid.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, PyTree

from jaxlab.core import run
from jaxlab.core.iterate import step_key
from jaxlab.data.mnist import load_mnist
from jaxlab.data.tabular import load_table
from jaxlab.optim import byzantine_aggregators as rules
from jaxlab.optim import byzantine_attacks as attacks
from jaxlab.optim import byzantine_selection as selection
from jaxlab.optim import demoa as dm
from jaxlab.problems.consensus import minibatch_gradient
from jaxlab.problems.federation import Federation

__all__ = [
    "ATTACKS",
    "CLIENTS",
    "LIARS",
    "NUM_LIARS",
    "RULES",
    "Cell",
    "Curve",
    "Data",
    "digits_data",
    "majority_rounds",
    "mlp_start",
    "mnist_data",
    "train",
]

CLASSES, BATCH = 10, 16
CLIENTS = 20
"""All of them."""
NUM_LIARS = 4
"""Those that lie."""
LIARS = np.arange(CLIENTS) % 5 == 0
"""Every fifth: sorted by label, no class is in the hands of liars alone."""


class Data(NamedTuple):
    """Rows shared out to clients, and rows to test on.

    Attributes:
        features: The clients' rows.
        labels: Their classes.
        test_features: Rows that no client has.
        test_labels: Their classes.
    """

    features: Float[Array, "*seeds clients rows columns"]
    labels: Int[Array, "*seeds clients rows"]
    test_features: Float[Array, "*seeds tests columns"]
    test_labels: Int[Array, "*seeds tests"]


class Cell(NamedTuple):
    """One entry of the grid, as numbers.

    Attributes:
        rule: An index of ``RULES``.
        attack: An index of ``ATTACKS``.
        participation: The probability that a client is heard.
        momentum: The weight of a fresh gradient.
        sorted_labels: Whether the clients' rows are sorted by label.
        cached: Whether all cached momenta are aggregated, or those of the sample.
    """

    rule: Int[Array, ""]
    attack: Int[Array, ""]
    participation: Float[Array, ""]
    momentum: Float[Array, ""]
    sorted_labels: Int[Array, ""]
    cached: Bool[Array, ""]


class Curve(NamedTuple):
    """A run's history at its recorded rounds.

    Attributes:
        accuracy: On the test rows.
        sampled: Clients heard so far.
    """

    accuracy: Float[Array, " points"]
    sampled: Float[Array, " points"]


def _few(participants: Array) -> Array:
    """The liars to defend against, as far as a minority goes."""
    return jnp.minimum(NUM_LIARS, (participants.sum() - 1) // 2).clip(0)


def _clip(vectors: Array, participants: Array, previous: Array, key: Array) -> Array:
    del key
    return rules.centered_clipping(vectors, previous, participants, radius=1.0)


def _mixed_median(vectors: Array, participants: Array) -> Array:
    mixed = selection.nearest_neighbour_mixing(
        vectors, participants, num_byzantine=_few(participants)
    )
    return rules.coordinate_median(mixed, participants)


RULES: dict[str, dm.Aggregate] = {
    "mean": dm.without_history(rules.mean),
    "median": dm.without_history(rules.coordinate_median),
    "RFA": dm.without_history(rules.geometric_median),
    "CCLIP": _clip,
    "Krum": dm.without_history(lambda v, m: selection.krum(v, m, num_byzantine=_few(m))),
    "NNM + median": dm.without_history(_mixed_median),
}
"""Robust means by their names in tables."""

ATTACKS: dict[str, dm.Attack] = {
    "none": lambda vectors, byzantine, key: vectors,
    "flip x10": lambda vectors, byzantine, key: attacks.sign_flip(vectors, byzantine),
    "noise 5": lambda vectors, byzantine, key: attacks.gaussian_noise(vectors, byzantine, key),
    "IPM 3": lambda v, liars, key: attacks.inner_product_manipulation(v, liars, scale=3.0),
    "ALIE 1.5": lambda v, liars, key: attacks.a_little_is_enough(v, liars, deviations=1.5),
    "mimic": lambda vectors, byzantine, key: attacks.mimic(vectors, byzantine),
    # Its liars compute what they should, on the labels that ``train`` flips.
    "label flip": lambda vectors, byzantine, key: vectors,
}
"""Lies by their names in tables."""


def digits_data(seed: int) -> tuple[Data, Data]:
    """1400 digits of scikit-learn for 20 clients, dealt at random and sorted; 397 to test on."""
    table = load_table("digits")
    features = np.concatenate([table.features / 16, np.ones((len(table.targets), 1))], axis=1)
    labels = table.targets.astype(np.int64)
    order = np.random.default_rng(seed).permutation(len(labels))
    train, test = order[:1400], order[1400:]
    by_label = train[np.argsort(labels[train], kind="stable")]
    dealt, in_order = (_share(features, labels, rows, test) for rows in (train, by_label))
    return dealt, in_order


def mnist_data(seed: int) -> Data:
    """4000 digits of MNIST for 20 clients, dealt at random; 1000 to test on. Float32."""
    images = load_mnist()
    features = (images.pixels.reshape(len(images.labels), -1) / 255.0).astype(np.float32)
    order = np.random.default_rng(seed).permutation(len(images.labels))
    return _share(features, images.labels, order[:4000], order[4000:])


def _share(features: np.ndarray, labels: np.ndarray, train: np.ndarray, test: np.ndarray) -> Data:
    rows = train.reshape(CLIENTS, -1)
    parts = features[rows], labels[rows], features[test], labels[test]
    return Data(*(jnp.asarray(part) for part in parts))


def mlp_start(key: Array, hidden: int = 64) -> PyTree:
    """A network of 784, ``hidden`` and 10 units in float32."""
    key_first, key_second = jax.random.split(key)
    first = jax.random.normal(key_first, (784, hidden), jnp.float32) * (2 / 784) ** 0.5
    second = jax.random.normal(key_second, (hidden, CLASSES), jnp.float32) / hidden**0.5
    bias = jnp.zeros(hidden, jnp.float32), jnp.zeros(CLASSES, jnp.float32)
    return {"first": first, "bias": bias[0], "second": second, "last": bias[1]}


def logits(params: PyTree, features: Array) -> Array:
    """Of a linear model (a matrix) or of the network of ``mlp_start`` (a dict)."""
    if isinstance(params, dict):
        hidden = jax.nn.relu(features @ params["first"] + params["bias"][None])
        return hidden @ params["second"] + params["last"][None]
    return features @ params


def _loss(params: PyTree, rows: tuple[Array, Array]) -> Array:
    features, labels = rows
    losses = optax.softmax_cross_entropy_with_integer_labels(logits(params, features), labels)
    return losses.mean()


GRADIENT = minibatch_gradient(_loss, batch_size=BATCH)


def train(
    data: Data,
    start: PyTree,
    cell: Cell,
    key: Array,
    *,
    num_rounds: int,
    every: int,
    step_size: float,
) -> Curve:
    """One run; the step size falls tenfold at a half and again at three quarters of the rounds.

    Args:
        data: Of one seed.
        start: The first parameters.
        cell: Which rule, lie, participation and momentum.
        key: Decides who is heard and which rows are drawn.
        num_rounds: How many.
        every: Rounds between records.
        step_size: The first one.
    """

    def aggregate(*arguments: Any) -> Array:
        return jax.lax.switch(cell.rule, list(RULES.values()), *arguments)

    def attack(*arguments: Any) -> Array:
        return jax.lax.switch(cell.attack, list(ATTACKS.values()), *arguments)

    liars = jnp.asarray(LIARS)
    poisoned = liars[:, None] & (cell.attack == list(ATTACKS).index("label flip"))
    flipped = attacks.flip_labels(data.labels, num_classes=CLASSES)
    labels = jnp.where(poisoned, flipped, data.labels)
    problem = Federation(GRADIENT, (data.features, labels), start, liars)
    method = dm.demoa(aggregate, attack=attack, over=lambda sampled: sampled | cell.cached)
    dtype = jax.tree.leaves(start)[0].dtype

    def record(state: dm.DeMoAState, first: Array) -> tuple[dm.DeMoAState, Curve]:
        falls = (2 * first >= num_rounds).astype(int) + (4 * first >= 3 * num_rounds)
        hyper = dm.DeMoAHyper(cell.participation, cell.momentum, step_size * 0.1**falls)
        hyper = jax.tree.map(lambda number: jnp.asarray(number, dtype), hyper)
        done = run(method, problem, hyper, key, num_steps=every, state=state, first_step=first)
        guess = jnp.argmax(logits(done.state.params, data.test_features), axis=1)
        accuracy = (guess == data.test_labels).mean(dtype=dtype)
        return done.state, Curve(accuracy, done.trace.num_sampled.sum())

    begin = method.init(problem, dm.demoa_hyper(step_size=step_size), key)
    firsts = every * jnp.arange(num_rounds // every, dtype=jnp.int32)
    _, curve = jax.lax.scan(record, begin, firsts)
    return curve._replace(sampled=jnp.cumsum(curve.sampled))


def majority_rounds(key: Array, participation: Any, num_rounds: int) -> np.ndarray:
    """The rounds of ``train`` in which more liars than honest clients are heard."""

    def most_lie(round_: Array) -> Array:
        key_sample = jax.random.split(step_key(key, round_), 4)[0]
        heard = dm.sample_clients(key_sample, participation, num_clients=CLIENTS)
        return (heard & LIARS).sum() > (heard & ~LIARS).sum()

    return np.flatnonzero(jax.vmap(most_lie)(jnp.arange(num_rounds)))

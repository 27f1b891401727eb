"""Rivals of orthogonal entropy unlearning, as rules for gradients, labels and masks.

Each is ``oeu`` with other parts, so that all of them run, stop and resume alike:

| rival | parts |
| --- | --- |
| fine-tuning (FT) | ``combine=retain_alone`` |
| gradient ascent (GA) | ``ascent_loss``, ``plain_sum`` |
| random labels (RL) | ``random_labels`` for the forget set, ``relabel_loss``, ``plain_sum`` |
| similar labels (Q-MUL) | ``similar_labels``, likewise |
| adaptive reweighting (Q-MUL) | the same with ``combine=matched_sum`` |
| PCGrad | ``combine=pcgrad_sum`` |
| SalUn | random labels with ``Unlearning.mask`` from ``saliency_mask`` |
| l1-sparse | ``retain_alone`` with ``with_l1(retain_loss_fn, ...)`` |
| entropy without projection | ``combine=plain_sum`` |

Sources: Q-MUL, arXiv:2503.13917 (its weights are reconstructed); PCGrad, arXiv:2001.06782; SalUn,
arXiv:2310.12508; l1-sparse, arXiv:2304.04934.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from jaxlab.core.checks import check_count, check_key, check_value
from jaxlab.core.trees import tree_combine
from jaxlab.core.types import Scalar
from jaxlab.optim.oeu import Labelled, retain_loss
from jaxlab.optim.oeu_projection import inner_product, project_orthogonal, tree_norm

__all__ = [
    "ascent_loss",
    "forget_alone",
    "matched_sum",
    "pcgrad_sum",
    "plain_sum",
    "random_labels",
    "relabel_loss",
    "retain_alone",
    "saliency_mask",
    "similar_labels",
    "with_l1",
]


def plain_sum(forget: PyTree, retain: PyTree, hyper: Any) -> PyTree:
    """``retain + strength * forget``, without a projection."""
    return tree_combine((1.0, hyper.strength), retain, forget)


def retain_alone(forget: PyTree, retain: PyTree, hyper: Any) -> PyTree:
    """Only ``retain``: fine-tuning, or training from scratch."""
    del forget, hyper
    return retain


def forget_alone(forget: PyTree, retain: PyTree, hyper: Any) -> PyTree:
    """Only the projected forgetting part: no repair, to see the guarantee by itself."""
    return tree_combine((hyper.strength,), project_orthogonal(forget, retain))


def pcgrad_sum(forget: PyTree, retain: PyTree, hyper: Any) -> PyTree:
    """As ``orthogonal_sum`` if both gradients conflict, else as ``plain_sum``.

    Only the forgetting part is projected: what is retained takes precedence.

    Example:
        >>> from jaxlab.optim.oeu import oeu_hyper
        >>> hyper = oeu_hyper(0.1)
        >>> [pcgrad_sum(jnp.array([a, 1.0]), jnp.array([1.0, 0.0]), hyper).tolist()
        ...  for a in (-1.0, 1.0)]
        [[1.0, 1.0], [2.0, 1.0]]
    """
    conflict = inner_product(forget, retain) < 0
    projected = project_orthogonal(forget, retain)
    chosen = jax.tree.map(lambda a, b: jnp.where(conflict, a, b), projected, forget)
    return tree_combine((1.0, hyper.strength), retain, chosen)


def matched_sum(forget: PyTree, retain: PyTree, hyper: Any) -> PyTree:
    """``retain + strength * forget``, the latter scaled to the norm of the former.

    Example:
        >>> from jaxlab.optim.oeu import oeu_hyper
        >>> matched_sum(jnp.array([0.0, 8.0]), jnp.array([2.0, 0.0]), oeu_hyper(0.1)).tolist()
        [2.0, 2.0]
    """
    size = tree_norm(forget)
    ratio = tree_norm(retain) / jnp.where(size > 0, size, 1.0)
    return tree_combine((1.0, hyper.strength * ratio), retain, forget)


def ascent_loss(apply_fn: Callable[[Any, Any], Any]) -> Callable[[Any, Labelled], Any]:
    """Minus the cross-entropy on the true labels, which has no lower bound.

    Example:
        >>> loss = ascent_loss(lambda w, x: x @ w)
        >>> round(float(loss(jnp.zeros((3, 2)), Labelled(jnp.ones((2, 3)), jnp.zeros(2, int)))), 4)
        -0.6931
    """
    learn = relabel_loss(apply_fn)
    return lambda params, batch: -learn(params, batch)


def relabel_loss(apply_fn: Callable[[Any, Any], Any]) -> Callable[[Any, Labelled], Any]:
    """The cross-entropy on the labels that the batch has, say random or similar ones."""

    def loss(params: Any, batch: Labelled) -> Any:
        return retain_loss(apply_fn(params, batch.inputs), batch.labels)

    return loss


def random_labels(
    key: Array, labels: Int[Array, " rows"], *, num_classes: int, only_wrong: bool = False
) -> Int[Array, " rows"]:
    """A label for each row, uniform on all classes.

    Args:
        key: Decides the labels.
        labels: The true ones, in ``[0, num_classes)``.
        num_classes: At least 2.
        only_wrong: Never the true one. On average over labels the gradient in the logits is then
            ``p - (1 - e_y)/(num_classes - 1)`` instead of ``p - 1/num_classes``.

    Raises:
        TypeError: ``key`` is not a typed key, or ``num_classes`` not an integer.
        ValueError: There are less than 2 classes, or a label is out of range.

    Example:
        >>> drawn = random_labels(
        ...     jax.random.key(0), jnp.zeros(500, int), num_classes=3, only_wrong=True
        ... )
        >>> sorted(set(drawn.tolist()))
        [1, 2]
    """
    check_key("key", key)
    check_count("num_classes", num_classes, least=2)
    check_value("labels", labels, lambda y: (y >= 0) & (y < num_classes), f"in [0, {num_classes})")
    if only_wrong:
        shift = jax.random.randint(key, labels.shape, 1, num_classes, labels.dtype)
        return (labels + shift) % num_classes
    return jax.random.randint(key, labels.shape, 0, num_classes, labels.dtype)


def similar_labels(
    logits: Float[Array, "rows classes"], labels: Int[Array, " rows"]
) -> Int[Array, " rows"]:
    """The most probable wrong class of each row, by the model before it forgets.

    Raises:
        ValueError: There are less than 2 classes, or rows do not match.

    Example:
        >>> similar_labels(jnp.array([[5.0, 1.0, 2.0]]), jnp.array([0])).tolist()
        [2]
    """
    rows, classes = logits.shape
    check_count("the number of classes", classes, least=2)
    if labels.shape != (rows,):
        raise ValueError(f"labels must be one per row of logits, {rows}, got shape {labels.shape}")
    right = labels[:, None] == jnp.arange(classes, dtype=labels.dtype)[None, :]
    return jnp.argmax(jnp.where(right, -jnp.inf, logits), axis=-1).astype(labels.dtype)


def saliency_mask(gradient: PyTree, fraction: Scalar) -> PyTree:
    """1 for the largest entries of a gradient by magnitude, over all leaves, else 0.

    Args:
        gradient: Of the forgetting loss at the trained model.
        fraction: How many entries, as a share in [0, 1]; ties at the limit all count.

    Returns:
        In the structure, shapes and dtypes of ``gradient``, for ``Unlearning.mask``.

    Raises:
        ValueError: ``fraction`` is out of range.

    Example:
        >>> mask = saliency_mask({"a": jnp.array([0.1, -3.0]), "b": jnp.array([1.0, 0.0])}, 0.5)
        >>> mask["a"].tolist(), mask["b"].tolist()
        ([0.0, 1.0], [1.0, 0.0])
    """
    check_value("fraction", fraction, lambda f: (f >= 0) & (f <= 1), "in [0, 1]")
    sizes = jnp.concatenate([jnp.abs(leaf).ravel() for leaf in jax.tree.leaves(gradient)])
    ordered = jnp.sort(sizes)
    count = jnp.round(jnp.asarray(fraction) * sizes.size).astype(int)
    least = ordered[jnp.clip(sizes.size - count, 0, sizes.size - 1)]
    least = jnp.where(count > 0, least, jnp.inf)
    return jax.tree.map(lambda leaf: (jnp.abs(leaf) >= least).astype(leaf.dtype), gradient)


def with_l1(retain_loss_fn: Callable[[Any, Any], Any], weight: Scalar) -> Callable[[Any, Any], Any]:
    """A retaining loss plus ``weight`` times the sum of all parameters' magnitudes.

    Raises:
        ValueError: ``weight`` is negative.

    Example:
        >>> loss = with_l1(lambda w, batch: 0.0 * w.sum(), 0.5)
        >>> float(loss(jnp.array([-1.0, 3.0]), None))
        2.0
    """
    check_value("weight", weight, lambda w: w >= 0, "non-negative")

    def loss(params: Any, batch: Any) -> Any:
        size = sum(jnp.abs(leaf).sum() for leaf in jax.tree.leaves(params))
        return retain_loss_fn(params, batch) + weight * size

    return loss

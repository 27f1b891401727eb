r"""Orthogonal entropy unlearning: forget by uncertainty, without a step against what is kept.

How does a trained, possibly quantised classifier forget some of its training data, when it may not
be trained again and must not get worse elsewhere? With the mean cross-entropy :math:`L_r` on
retained data and the negative mean entropy :math:`L_f = -E_f H(p_\theta(x))` on what is to be
forgotten,

.. math::
    g_r &= \nabla L_r(\theta), \qquad g_f = \nabla L_f(\theta)      && \text{on minibatches} \\
    g_\perp &= g_f - \frac{\langle g_f, g_r\rangle}{\lVert g_r\rVert^2} g_r  && \text{always} \\
    \theta &\leftarrow \theta - \eta\,(g_r + \lambda g_\perp) .

To first order the forgetting part does not touch the retain loss. Entropy has no preferred wrong
class, where random labels have one per sample.

* **The entropy's gradient vanishes on confident samples**: nothing happens in the first steps.
  ``warm_forget_loss`` starts with a divergence from the uniform law, whose gradient does not.
* Orthogonality to a minibatch's gradient is no orthogonality to that of all data: take larger
  retain batches, or ``oeu_projection.project_subspace``.
* Momentum and Adam turn the step away from orthogonality; the default is plain SGD.
* For quantised models the gradients are straight-through, and so is orthogonality.

Steps of the quantisers are parameters like all others and take part in the projection.

Source: arXiv:2602.00567, known from its abstract; the two ideas are the source's, the formulas, the
warm start and the guarantees are reconstructed and attacked in ``proofs_checks/oeu.py``.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PyTree

from jaxlab.core.checks import check_count, check_key, check_value
from jaxlab.core.trees import tree_combine
from jaxlab.core.types import Method, Scalar
from jaxlab.optim.oeu_projection import cosine, project_orthogonal, tree_norm

__all__ = [
    "Combine",
    "Labelled",
    "OEUHyper",
    "OEUInfo",
    "OEUState",
    "Unlearning",
    "classification_losses",
    "entropy",
    "entropy_forget_loss",
    "oeu",
    "oeu_direction",
    "oeu_hyper",
    "orthogonal_sum",
    "orthogonal_sum_per_leaf",
    "retain_loss",
    "uniform_kl_loss",
    "warm_forget_loss",
]

Combine: TypeAlias = Callable[[Any, Any, Any], Any]
"""``(forget gradient, retain gradient, hyper) -> direction`` to descend along."""


class Labelled(NamedTuple):
    """A batch of a classifier. Attributes: inputs: rows first; labels: integers, one per row."""

    inputs: Any
    labels: Any


class Unlearning(NamedTuple):
    """What is to be unlearned.

    Attributes:
        params: Of the trained model, any tree of floating-point arrays.
        forget: What is to be forgotten; leaves have a leading axis of rows.
        retain: What is to be kept, likewise.
        mask: Which parameters may move, as 0 and 1 in the structure of ``params``; None for all.
    """

    params: PyTree
    forget: PyTree
    retain: PyTree
    mask: PyTree = None


class OEUHyper(NamedTuple):
    """Hyper-parameters; made by ``oeu_hyper``.

    Attributes:
        step_size: ``eta``.
        strength: ``lambda`` of the forgetting part.
    """

    step_size: Float[Array, ""]
    strength: Float[Array, ""]


class OEUState(NamedTuple):
    """Where unlearning is. Attributes: params; optimizer: the state of the optimizer."""

    params: PyTree
    optimizer: PyTree


class OEUInfo(NamedTuple):
    """Diagnostics of a step, from before it.

    Attributes:
        forget_loss: On the minibatch.
        retain_loss: On the minibatch.
        cosine: Between both gradients; 0 if one of them is zero.
        forget_norm: Of the forgetting gradient.
        retain_norm: Of the retaining gradient.
        direction_norm: Of the step before it is scaled.
    """

    forget_loss: Float[Array, ""]
    retain_loss: Float[Array, ""]
    cosine: Float[Array, ""]
    forget_norm: Float[Array, ""]
    retain_norm: Float[Array, ""]
    direction_norm: Float[Array, ""]


def entropy(logits: Float[Array, "*batch classes"]) -> Float[Array, "*batch"]:
    """The entropy of the softmax in nats, in [0, log(classes)], finite for all finite logits.

    Example:
        >>> [round(x, 4) for x in entropy(jnp.array([[0.0, 0.0], [1000.0, 0.0]])).tolist()]
        [0.6931, 0.0]
    """
    logs = jax.nn.log_softmax(logits)
    return jnp.sum(jnp.exp(logs) * -logs, axis=-1)


def entropy_forget_loss(logits: Float[Array, "*batch classes"]) -> Float[Array, ""]:
    """Minus the mean entropy, which is ``KL(p | uniform) - log(classes)`` on average.

    Its gradient vanishes where the model is certain.

    Example:
        >>> round(float(entropy_forget_loss(jnp.zeros((3, 10)))), 4)
        -2.3026
    """
    return -entropy(logits).mean()


def uniform_kl_loss(logits: Float[Array, "*batch classes"]) -> Float[Array, ""]:
    """The mean of ``KL(uniform | p)``: what random labels teach on average.

    Its gradient in the logits is ``p - 1/classes``, which does not vanish where the model is
    certain.

    Example:
        >>> round(float(uniform_kl_loss(jnp.zeros((3, 10)))), 4)
        0.0
    """
    logs = jax.nn.log_softmax(logits)
    return jnp.mean(-logs.mean(axis=-1) - jnp.log(jnp.asarray(logits.shape[-1], logs.dtype)))


def warm_forget_loss(
    logits: Float[Array, "*batch classes"], *, least_entropy: Scalar = 0.1
) -> Float[Array, ""]:
    """``uniform_kl_loss`` while the batch's mean entropy is below a level, then the entropy's.

    Args:
        logits: Of a batch to forget.
        least_entropy: In nats; 0 switches the warm start off.

    Raises:
        ValueError: ``least_entropy`` is negative.

    Example:
        >>> certain = jnp.array([[20.0, 0.0, 0.0]])
        >>> [round(float(jnp.abs(jax.grad(loss)(certain)).max()), 3)
        ...  for loss in (entropy_forget_loss, warm_forget_loss)]
        [0.0, 0.667]
    """
    check_value("least_entropy", least_entropy, lambda h: h >= 0, "non-negative")
    uncertain = -entropy_forget_loss(logits) >= least_entropy
    return jnp.where(uncertain, entropy_forget_loss(logits), uniform_kl_loss(logits))


def retain_loss(
    logits: Float[Array, "rows classes"], labels: Int[Array, " rows"]
) -> Float[Array, ""]:
    """The mean cross-entropy in nats.

    Example:
        >>> round(float(retain_loss(jnp.zeros((3, 10)), jnp.arange(3))), 4)
        2.3026
    """
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def classification_losses(
    apply_fn: Callable[[Any, Any], Any],
    forget_fn: Callable[[Any], Any] = entropy_forget_loss,
) -> tuple[Callable[[Any, Labelled], Any], Callable[[Any, Labelled], Any]]:
    """The two losses of ``oeu`` for any classifier.

    Args:
        apply_fn: ``(params, inputs) -> logits`` of a batch: Flax, Equinox or one's own.
        forget_fn: ``logits -> loss`` of a batch to forget.

    Returns:
        ``forget_loss_fn`` and ``retain_loss_fn``, each ``(params, Labelled) -> loss``.

    Example:
        >>> forget, retain = classification_losses(lambda w, x: x @ w)
        >>> batch = Labelled(jnp.ones((2, 3)), jnp.zeros(2, int))
        >>> round(float(retain(jnp.zeros((3, 2)), batch)), 4)
        0.6931
    """

    def forget_loss_fn(params: Any, batch: Labelled) -> Any:
        return forget_fn(apply_fn(params, batch.inputs))

    def retain_loss_fn(params: Any, batch: Labelled) -> Any:
        return retain_loss(apply_fn(params, batch.inputs), batch.labels)

    return forget_loss_fn, retain_loss_fn


def oeu_hyper(step_size: Scalar, strength: Scalar = 1.0) -> OEUHyper:
    """Hyper-parameters from numbers.

    Args:
        step_size: Positive. Search it on a logarithmic grid by the gap to a retrained model.
        strength: Of forgetting, at least 0; 0.1 to 1 is usual.

    Raises:
        ValueError: A number is out of range.

    Example:
        >>> float(oeu_hyper(0.05).strength)
        1.0
    """
    check_value("step_size", step_size, lambda s: s > 0, "positive")
    check_value("strength", strength, lambda s: s >= 0, "non-negative")
    return OEUHyper(jnp.asarray(step_size, dtype=float), jnp.asarray(strength, dtype=float))


def orthogonal_sum(forget: PyTree, retain: PyTree, hyper: Any) -> PyTree:
    """``retain + strength * forget_perp``, the rule of the paper.

    Example:
        >>> orthogonal_sum(jnp.array([3.0, 4.0]), jnp.array([1.0, 0.0]), oeu_hyper(0.1)).tolist()
        [1.0, 4.0]
    """
    return tree_combine((1.0, hyper.strength), retain, project_orthogonal(forget, retain))


def orthogonal_sum_per_leaf(forget: PyTree, retain: PyTree, hyper: Any) -> PyTree:
    """The same with a projection of its own for every array."""
    projected = project_orthogonal(forget, retain, per_leaf=True)
    return tree_combine((1.0, hyper.strength), retain, projected)


def oeu_direction(
    params: PyTree,
    forget_loss_fn: Callable[[Any], Any],
    retain_loss_fn: Callable[[Any], Any],
    hyper: Any,
    *,
    combine: Combine = orthogonal_sum,
) -> tuple[PyTree, OEUInfo]:
    """The direction to descend along, for any pair of losses.

    Args:
        params: A tree of floating-point arrays.
        forget_loss_fn: ``params -> loss``, whose descent forgets.
        retain_loss_fn: ``params -> loss``, whose descent retains.
        hyper: From ``oeu_hyper``.
        combine: How both gradients become one direction.

    Example:
        >>> def forget(w):
        ...     return 3 * w[0] + 4 * w[1]
        >>> def retain(w):
        ...     return w[0]
        >>> direction, info = oeu_direction(jnp.zeros(2), forget, retain, oeu_hyper(0.1))
        >>> direction.tolist(), round(float(info.cosine), 4)
        ([1.0, 4.0], 0.6)
    """
    forget_value, forget = jax.value_and_grad(forget_loss_fn)(params)
    retain_value, retain = jax.value_and_grad(retain_loss_fn)(params)
    direction = combine(forget, retain, hyper)
    info = OEUInfo(
        forget_value,
        retain_value,
        cosine(forget, retain),
        tree_norm(forget),
        tree_norm(retain),
        tree_norm(direction),
    )
    return direction, info


def oeu(
    forget_loss_fn: Callable[[Any, Any], Any],
    retain_loss_fn: Callable[[Any, Any], Any],
    *,
    batch_size: int | None = None,
    combine: Combine = orthogonal_sum,
    optimizer: optax.GradientTransformation | None = None,
) -> Method:
    """Unlearning by two losses, orthogonally unless another rule is given.

    The problem is an ``Unlearning``, the hyper-parameters an ``OEUHyper`` (or a tuple with more
    fields that ``combine`` reads), the state an ``OEUState`` and the info an ``OEUInfo``.

    Args:
        forget_loss_fn: ``(params, rows of problem.forget) -> loss``.
        retain_loss_fn: ``(params, rows of problem.retain) -> loss``; see
            ``classification_losses`` for both.
        batch_size: Rows of each kind per step, drawn anew; all by default. More than there are
            take all.
        combine: How both gradients become one direction; rivals are in
            ``unlearning_baselines``.
        optimizer: Of optax, with a learning rate of 1, such as ``optax.sgd(1.0, momentum=0.9)``.
            Plain gradient descent by default, which alone keeps orthogonality.

    Raises:
        TypeError: ``batch_size`` is not an integer.
        ValueError: It is less than 1. ``init`` raises it for data without rows, for leaves of
            different length and for a mask of another structure.

    Example:
        >>> from jaxlab.core import run
        >>> forget, retain = classification_losses(lambda w, x: x @ w)
        >>> x, y = jnp.eye(3), jnp.arange(3)
        >>> problem = Unlearning(8.0 * jnp.eye(3), Labelled(x[:1], y[:1]), Labelled(x[1:], y[1:]))
        >>> warm, _ = classification_losses(lambda w, x: x @ w, warm_forget_loss)
        >>> method = oeu(warm, retain, batch_size=2)
        >>> done = run(method, problem, oeu_hyper(1.0), jax.random.key(0), num_steps=60)
        >>> [round(p, 2) for p in jax.nn.softmax(done.state.params).diagonal().tolist()]
        [0.33, 1.0, 1.0]
    """
    if batch_size is not None:
        check_count("batch_size", batch_size)
    apply_optimizer = optax.sgd(1.0) if optimizer is None else optimizer

    def init(problem: Unlearning, hyper: Any, key: Array) -> OEUState:
        del hyper
        check_key("key", key)
        _check_rows("problem.forget", problem.forget)
        _check_rows("problem.retain", problem.retain)
        if problem.mask is not None:
            expected, got = (jax.tree.structure(t) for t in (problem.params, problem.mask))
            if expected != got:
                raise ValueError(
                    f"problem.mask must have the structure of params, {expected}, got {got}"
                )
        params = jax.tree.map(jnp.asarray, problem.params)
        return OEUState(params, apply_optimizer.init(params))

    def step(
        problem: Unlearning, hyper: Any, state: OEUState, key: Array
    ) -> tuple[OEUState, OEUInfo]:
        key_forget, key_retain = jax.random.split(key)
        forget = _draw(key_forget, problem.forget, batch_size)
        retain = _draw(key_retain, problem.retain, batch_size)
        direction, info = oeu_direction(
            state.params,
            lambda params: forget_loss_fn(params, forget),
            lambda params: retain_loss_fn(params, retain),
            hyper,
            combine=combine,
        )
        update, optimizer_state = apply_optimizer.update(direction, state.optimizer, state.params)
        update = optax.tree.scale(hyper.step_size, update)
        if problem.mask is not None:
            update = optax.tree.mul(update, problem.mask)
        params = jax.tree.map(lambda p, u: p + u.astype(p.dtype), state.params, update)
        return OEUState(params, optimizer_state), info

    return Method(init, step)


def _num_rows(data: PyTree) -> int:
    return jax.tree.leaves(data)[0].shape[0]


def _check_rows(name: str, data: PyTree) -> None:
    leaves = jax.tree.leaves(data)
    lengths = {jnp.shape(leaf)[0] if jnp.ndim(leaf) else None for leaf in leaves}
    if len(lengths) != 1 or None in lengths or 0 in lengths:
        shapes = [jnp.shape(leaf) for leaf in leaves]
        raise ValueError(
            f"{name} must hold arrays with one common, positive number of rows, got shapes {shapes}"
        )


def _draw(key: Array, data: PyTree, batch_size: int | None) -> PyTree:
    """Different rows in random order."""
    rows = _num_rows(data)
    if batch_size is None or batch_size >= rows:
        return data
    chosen = jax.random.choice(key, rows, (batch_size,), replace=False)
    return jax.tree.map(lambda leaf: leaf[chosen], data)

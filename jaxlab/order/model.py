"""A language model of which the last blocks learn, and what brackets need of it.

The blocks below are run once for every batch: their output is all that the others depend on.
"""

import dataclasses
import hashlib
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int, PyTree

from jaxlab.core.derivatives import hvp
from jaxlab.data.text import encode_bytes
from jaxlab.models.llama import CausalLM, token_log_probs
from jaxlab.models.load import load
from jaxlab.models.small import train_small
from jaxlab.models.tokenizer import Tokenizer

__all__ = [
    "SMALL_MODEL",
    "Batch",
    "ByteReader",
    "Learner",
    "batch_of",
    "gradients",
    "load_model",
    "losses_of",
    "make_learner",
    "products",
    "sgd_step",
    "token_losses",
]

SMALL_MODEL = "small"
"""The name of the byte-level model that is trained on the spot."""


class ByteReader:
    """What ``Learner`` needs of a tokenizer, for bytes.

    Example:
        >>> ByteReader().encode("Aé")
        [65, 195, 169]
    """

    pad_id = 0

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """The UTF-8 bytes; there are no special tokens."""
        del special
        return encode_bytes(text).tolist()

    def encode_chat(self, messages: Any, add_generation_prompt: bool = True) -> list[int]:
        """Raises ``ValueError``: no format of conversations is known to this model."""
        raise ValueError("this tokenizer has no chat template")


class Learner(NamedTuple):
    """A model in two parts.

    Attributes:
        lower: The functions of the blocks that stay; ``None`` if all learn.
        upper: The functions of those that learn, and of the head.
        below: Parameters of the former.
        block: Parameters of the latter, stacked along a leading axis.
        head: The last norm and the table, which stay.
        reader: A tokenizer.
        digest: Of all parameters.
    """

    lower: CausalLM | None
    upper: CausalLM
    below: PyTree
    block: PyTree
    head: PyTree
    reader: Tokenizer | ByteReader
    digest: str

    @property
    def size(self) -> int:
        """How many numbers learn."""
        return sum(leaf.size for leaf in jax.tree.leaves(self.block))


class Batch(NamedTuple):
    """Sequences before the blocks that learn, in two halves.

    Attributes:
        states: Hidden states.
        tokens: Ids.
        mask: Which are no padding.
    """

    states: Float[Array, "*halves time dim"]
    tokens: Int[Array, "*halves time"]
    mask: Bool[Array, "*halves time"]


def load_model(name: str) -> tuple[CausalLM, PyTree, Tokenizer | ByteReader]:
    """What ``jaxlab.models.load`` finds, or the small model.

    Raises:
        FileNotFoundError: There is no such model; the message names the ways to get one.
        ValueError: The file is unusable.
    """
    if name == SMALL_MODEL:
        trained = train_small(jax.random.key(0))
        return trained.lm, trained.params, ByteReader()
    return load(name)


def make_learner(
    lm: CausalLM, params: PyTree, reader: Tokenizer | ByteReader, layers: int
) -> Learner:
    """Cut a model below its last ``layers`` blocks.

    Raises:
        ValueError: It has fewer.
    """
    count = lm.config.num_layers
    if not 1 <= layers <= count:
        raise ValueError(f"layers must be in 1 to {count}, all blocks of this model, got {layers}")
    head = {name: value for name, value in params.items() if name != "layers"}
    cut = count - layers
    parts = [
        jax.tree.map(lambda leaf, at=at: leaf[at], params["layers"])
        for at in (slice(cut), slice(cut, None))
    ]
    lower, upper = (
        CausalLM(dataclasses.replace(lm.config, num_layers=n), remat=lm.remat) if n else None
        for n in (cut, layers)
    )
    assert upper is not None  # layers is at least 1
    return Learner(lower, upper, parts[0], parts[1], head, reader, _digest(params))


def _digest(params: PyTree) -> str:
    state = hashlib.blake2b(digest_size=8)
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        state.update(f"{jax.tree_util.keystr(path)} {leaf.shape} {leaf.dtype}".encode())
        state.update(np.ascontiguousarray(leaf).view(np.uint8).data)
    return state.hexdigest()


def batch_of(
    learner: Learner,
    tokens: Int[np.ndarray, "*halves time"],
    mask: Bool[np.ndarray, "*halves time"],
) -> Batch:
    """Run the blocks that stay. Padding is at the right, where causality hides it."""
    ids = jnp.asarray(tokens)
    if learner.lower is None:
        return Batch(learner.upper.embed(learner.head, ids), ids, jnp.asarray(mask))
    states = _lower_states(learner.lower, learner.below, learner.head, ids)
    return Batch(states, ids, jnp.asarray(mask))


@partial(jax.jit, static_argnums=0)
def _lower_states(lm: CausalLM, below: Any, head: Any, tokens: Array) -> Array:
    return lm.hidden_states({**head, "layers": below}, tokens)[-1]


def token_losses(
    lm: CausalLM, block: Any, head: Any, batch: Batch
) -> Float[Array, "*halves scored"]:
    """Minus the log probability of every token given those before it, 0 where it is not scored."""

    def step(h: Array, layer: Any) -> tuple[Array, None]:
        one = {"layers": jax.tree.map(lambda leaf: leaf[None], layer)}
        return lm.layer(one, 0, h), None

    h, _ = jax.lax.scan(step, batch.states, block)
    logits = lm.unembed(head, h)[..., :-1, :]
    losses = -token_log_probs(logits, batch.tokens[..., 1:])
    return jnp.where(batch.mask[..., 1:], losses, 0)


def _mean_loss(lm: CausalLM, head: Any, block: Any, batch: Batch) -> Array:
    # A half of a short target may be padding alone; its gradient is 0.
    return token_losses(lm, block, head, batch).sum() / jnp.maximum(batch.mask[..., 1:].sum(), 1)


def gradients(learner: Learner, batch: Batch) -> Float[Array, "2 size"]:
    """Of the mean loss of each half of a batch."""
    return _gradients(learner.upper, learner.block, learner.head, batch)


@partial(jax.jit, static_argnums=0)
def _gradients(lm: CausalLM, block: Any, head: Any, batch: Batch) -> Array:
    def one(half: Batch) -> Array:
        return ravel_pytree(jax.grad(partial(_mean_loss, lm, head))(block, half))[0]

    return jax.lax.map(one, batch)


def products(
    learner: Learner, batch: Batch, vectors: Float[Array, "vectors size"]
) -> Float[Array, "2 vectors size"]:
    """The Hessian of the mean loss of each half of a batch times every vector."""
    return _products(learner.upper, learner.block, learner.head, batch, vectors)


@partial(jax.jit, static_argnums=0)
def _products(lm: CausalLM, block: Any, head: Any, batch: Batch, vectors: Array) -> Array:
    back = ravel_pytree(block)[1]

    def one(half: Batch) -> Array:
        def times(vector: Array) -> Array:
            loss = partial(_mean_loss, lm, head)
            return ravel_pytree(hvp(loss, block, half, back(vector)))[0]

        return jax.vmap(times)(vectors)  # the gradient inside is computed once for all of them

    return jax.lax.map(one, batch)


def sgd_step(learner: Learner, batch: Batch, step_size: float) -> Learner:
    """One step on the mean loss of all of a batch's tokens."""
    counts = np.asarray(batch.mask)[..., 1:].sum(axis=(1, 2))
    weights = jnp.asarray(-step_size * counts / counts.sum(), learner.head["norm"]["scale"].dtype)
    block = _moved(learner.block, gradients(learner, batch), weights)
    return learner._replace(block=block)


@jax.jit
def _moved(block: Any, grads: Array, weights: Array) -> Any:
    flat, back = ravel_pytree(block)
    return back(flat + weights @ grads)


def losses_of(learner: Learner, batch: Batch) -> Float[np.ndarray, "*halves scored"]:
    """``token_losses`` in float64, so that two models' losses can be subtracted token by token."""
    return np.asarray(_losses(learner.upper, learner.block, learner.head, batch), np.float64)


_losses = partial(jax.jit, static_argnums=0)(token_losses)

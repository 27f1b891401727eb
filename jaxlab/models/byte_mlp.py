"""A tiny language model over bytes: embeddings of the last few, one hidden layer, a softmax.

It is what many orders of training can be tried on: 26 thousand parameters, and a loss of contexts.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxlab.core.checks import check_count, check_key

__all__ = ["ByteMlp", "Contexts", "byte_mlp_loss", "draw_contexts", "init_byte_mlp"]


class ByteMlp(NamedTuple):
    """Parameters. Attributes: embedding; hidden; hidden_bias; head; head_bias."""

    embedding: Float[Array, "256 features"]
    hidden: Float[Array, "inputs width"]
    hidden_bias: Float[Array, " width"]
    head: Float[Array, "width 256"]
    head_bias: Float[Array, " 256"]


class Contexts(NamedTuple):
    """A batch. Attributes: inputs: the bytes before each; targets: the bytes to be told."""

    inputs: Int[Array, "*batch length"]
    targets: Int[Array, "*batch"]


def init_byte_mlp(key: Array, *, length: int = 8, features: int = 12, width: int = 64) -> ByteMlp:
    """Parameters of variance one over the inputs; biases are zero.

    Example:
        >>> params = init_byte_mlp(jax.random.key(0))
        >>> sum(leaf.size for leaf in params)
        25920
    """
    check_key("key", key)
    for name, value in (("length", length), ("features", features), ("width", width)):
        check_count(name, value)
    one, two, three = jax.random.split(key, 3)
    inputs = length * features
    return ByteMlp(
        jax.random.normal(one, (256, features)),
        jax.random.normal(two, (inputs, width)) / inputs**0.5,
        jnp.zeros(width),
        jax.random.normal(three, (width, 256)) / width**0.5,
        jnp.zeros(256),
    )


def byte_mlp_loss(params: ByteMlp, batch: Contexts) -> Float[Array, ""]:
    """Mean cross-entropy of the next byte, in nats.

    Example:
        >>> batch = Contexts(jnp.zeros((5, 8), int), jnp.zeros(5, int))
        >>> bool(byte_mlp_loss(init_byte_mlp(jax.random.key(0)), batch) > 3)
        True
    """
    embedded = params.embedding[batch.inputs]
    flat = embedded.reshape(*embedded.shape[:-2], -1)
    hidden = jnp.tanh(flat @ params.hidden + params.hidden_bias)
    logits = hidden @ params.head + params.head_bias
    chosen = jnp.take_along_axis(logits, batch.targets[..., None], axis=-1)[..., 0]
    return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - chosen)


def draw_contexts(
    key: Array, text: Int[Array, " bytes"], *, batch_size: int, length: int = 8
) -> Contexts:
    """Random places of a text.

    Raises:
        ValueError: The text is too short.

    Example:
        >>> drawn = draw_contexts(jax.random.key(0), jnp.arange(20), batch_size=3, length=4)
        >>> bool((drawn.inputs[:, -1] + 1 == drawn.targets).all())
        True
    """
    size = jnp.shape(text)[0]
    if size <= length:
        raise ValueError(f"text must be longer than a context of {length} bytes, got {size}")
    starts = jax.random.randint(key, (batch_size,), 0, size - length)
    windows = jnp.asarray(text)[starts[:, None] + jnp.arange(length + 1)]
    return Contexts(windows[:, :-1], windows[:, -1])

r"""The blocks of the Llama family in Flax NNX, the one place where the architecture is written.

.. math::

    h &\leftarrow h + W_o\,\mathrm{Attention}(R W_q n,\, R W_k n,\, W_v n),
        & n &= \mathrm{RMSNorm}(h), \\
    h &\leftarrow h + W_d\,(\mathrm{silu}(W_g n) \odot W_u n), & n &= \mathrm{RMSNorm}(h),

with rotations R by the token's position, and heads of keys and values that several heads of
queries share.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from jaxlab.models.config import LlamaConfig

__all__ = ["Attention", "Block", "GatedMlp", "KeyValues", "Llama", "attend", "rotate"]


class KeyValues(NamedTuple):
    """Keys and values of tokens at one layer, or at all layers with a leading axis.

    Attributes:
        keys: Rotated keys.
        values: Values.
        mask: Which tokens may be attended to; padding may not.
    """

    keys: Float[Array, "*batch slots kv_heads head_dim"]
    values: Float[Array, "*batch slots kv_heads head_dim"]
    mask: Bool[Array, "*batch slots"]


def rotate(
    x: Float[Array, "*batch time heads head_dim"],
    positions: Int[Array, "*batch time"],
    config: LlamaConfig,
) -> Float[Array, "*batch time heads head_dim"]:
    """Rotate the pairs ``(x[i], x[i + head_dim / 2])`` by angles that grow with the position.

    Example:
        >>> config = LlamaConfig(vocab_size=8, dim=4, num_layers=1, num_heads=1, mlp_dim=8)
        >>> x = jnp.ones((3, 1, 4))
        >>> bool((rotate(x, jnp.zeros(3, int), config) == x).all())
        True
    """
    dtype = jnp.promote_types(x.dtype, jnp.float32)
    half = config.head_dim // 2
    frequencies = config.rope_theta ** (-jnp.arange(half, dtype=dtype) / half)
    if config.rope_factors is not None:
        frequencies = frequencies / jnp.asarray(config.rope_factors, dtype)
    angles = (positions[..., None].astype(dtype) * frequencies)[..., None, :]
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    first, second = x[..., :half].astype(dtype), x[..., half:].astype(dtype)
    turned = jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
    return turned.astype(x.dtype)


def attend(
    queries: Float[Array, "*batch time heads head_dim"],
    past: KeyValues,
    allowed: Bool[Array, "*batch time slots"],
) -> Float[Array, "*batch time width"]:
    """Softmax attention, in float32 at least; a query that may see nothing gets the mean value.

    Args:
        queries: Rotated queries.
        past: Keys and values, the queries' own among them; its mask is not looked at.
        allowed: Which slots each query sees.
    """
    *batch, time, heads, head_dim = queries.shape
    slots, kv_heads = past.keys.shape[-3:-1]
    dtype = jnp.promote_types(queries.dtype, jnp.float32)
    # One matrix product for each head of keys, over the rows of all its heads of queries.
    grouped = queries.reshape(*batch, time, kv_heads, heads // kv_heads, head_dim)
    rows = jnp.moveaxis(grouped, -4, -2).reshape(*batch, kv_heads, -1, head_dim)
    keys, values = jnp.moveaxis(past.keys, -3, -1), jnp.moveaxis(past.values, -3, -2)
    scores = jnp.matmul(rows, keys, preferred_element_type=dtype) * head_dim**-0.5
    scores = scores.reshape(*batch, kv_heads, -1, time, slots)
    scores = jnp.where(allowed[..., None, None, :, :], scores, jnp.finfo(dtype).min)
    highest = jax.lax.stop_gradient(scores.max(axis=-1, keepdims=True))
    weights = jnp.exp(scores - highest)
    total = weights.sum(axis=-1)[..., None]
    flat = weights.reshape(*batch, kv_heads, -1, slots).astype(values.dtype)
    # Dividing the mixture costs less than dividing the weights.
    mixed = jnp.matmul(flat, values, preferred_element_type=dtype)
    mixed = mixed.reshape(*batch, kv_heads, -1, time, head_dim) / total
    joined = jnp.moveaxis(mixed, -2, -4).reshape(*batch, time, heads * head_dim)
    return joined.astype(queries.dtype)


class Attention(nnx.Module):
    """Grouped-query attention with rotary positions."""

    def __init__(self, config: LlamaConfig, *, rngs: nnx.Rngs):
        def linear(inputs: int, outputs: int, bias: bool) -> nnx.Linear:
            return nnx.Linear(inputs, outputs, use_bias=bias, rngs=rngs)

        width = config.num_heads * config.head_dim
        kv_width = config.num_kv_heads * config.head_dim
        self.query = linear(config.dim, width, config.attention_bias)
        self.key = linear(config.dim, kv_width, config.attention_bias)
        self.value = linear(config.dim, kv_width, config.attention_bias)
        self.output = linear(width, config.dim, False)
        self.config = config

    def project(
        self, x: Float[Array, "*batch time dim"], positions: Int[Array, "*batch time"]
    ) -> tuple[Array, Array, Array]:
        """Rotated queries, rotated keys, and values, split into heads."""

        def heads(projected: Array) -> Array:
            return projected.reshape(*projected.shape[:-1], -1, self.config.head_dim)

        return (
            rotate(heads(self.query(x)), positions, self.config),
            rotate(heads(self.key(x)), positions, self.config),
            heads(self.value(x)),
        )


class GatedMlp(nnx.Module):
    """The gated perceptron, SwiGLU."""

    def __init__(self, config: LlamaConfig, *, rngs: nnx.Rngs):
        def linear(inputs: int, outputs: int) -> nnx.Linear:
            return nnx.Linear(inputs, outputs, use_bias=False, rngs=rngs)

        self.gate = linear(config.dim, config.mlp_dim)
        self.up = linear(config.dim, config.mlp_dim)
        self.down = linear(config.mlp_dim, config.dim)

    def __call__(self, x: Float[Array, "*batch dim"]) -> Float[Array, "*batch dim"]:
        """The output for normalised states."""
        return self.down(nnx.silu(self.gate(x)) * self.up(x))


class Block(nnx.Module):
    """One layer: attention and perceptron, each on normalised states and added to the stream."""

    def __init__(self, config: LlamaConfig, *, rngs: nnx.Rngs):
        self.attention_norm = nnx.RMSNorm(config.dim, epsilon=config.norm_eps, rngs=rngs)
        self.attention = Attention(config, rngs=rngs)
        self.mlp_norm = nnx.RMSNorm(config.dim, epsilon=config.norm_eps, rngs=rngs)
        self.mlp = GatedMlp(config, rngs=rngs)

    def project(self, h: Array, positions: Array) -> tuple[Array, Array, Array]:
        """Queries, keys and values of the tokens whose states are ``h``."""
        return self.attention.project(self.attention_norm(h), positions)

    def finish(self, h: Array, mixed: Array) -> Array:
        """The next states, from the states and what the heads brought."""
        h = h + self.attention.output(mixed)
        return h + self.mlp(self.mlp_norm(h))


class Llama(nnx.Module):
    """Embedding, stacked blocks, last norm and, unless it is tied, the head."""

    def __init__(self, config: LlamaConfig, *, rngs: nnx.Rngs):
        @nnx.split_rngs(splits=config.num_layers)
        @nnx.vmap(in_axes=(0,), out_axes=0)
        def stacked(rngs: nnx.Rngs) -> Block:
            return Block(config, rngs=rngs)

        self.embed = nnx.Embed(
            config.vocab_size,
            config.dim,
            embedding_init=nnx.initializers.normal(config.dim**-0.5),
            rngs=rngs,
        )
        self.layers = stacked(rngs)
        self.norm = nnx.RMSNorm(config.dim, epsilon=config.norm_eps, rngs=rngs)
        if not config.tied_embeddings:
            self.head = nnx.Linear(config.dim, config.vocab_size, use_bias=False, rngs=rngs)

"""A causal language model of the Llama family as pure functions of its parameters.

``CausalLM(config)`` is static and hashable; everything that learns is in ``params``, a dictionary
of arrays whose layers are stacked along a leading axis; ``unstack_layers`` makes a tuple of them,
with which programs compile for longer and run faster. Pass ``params`` to jitted functions as an
argument: closed over, the embedding table becomes a constant that XLA folds for minutes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from jaxlab.core.checks import check_key, check_value
from jaxlab.models.blocks import Block, KeyValues, Llama, attend
from jaxlab.models.config import LlamaConfig

__all__ = ["CausalLM", "Params", "token_log_probs", "unstack_layers"]

Params: TypeAlias = Mapping[str, Any]
"""Nested dictionaries of arrays, as ``CausalLM.init`` returns them."""


@dataclass(frozen=True)
class CausalLM:
    """The functions of one architecture; all are pure, and take one sequence or a batch.

    Attributes:
        config: Sizes and constants.
        remat: Recompute each layer in the backward pass: less memory, a third more time.

    Example:
        >>> config = LlamaConfig(vocab_size=16, dim=8, num_layers=2, num_heads=2, mlp_dim=16)
        >>> lm = CausalLM(config)
        >>> params = lm.init(jax.random.key(0))
        >>> tokens = jnp.array([3, 1, 4, 1, 5])
        >>> lm.logits(params, tokens).shape
        (5, 16)
        >>> lm.hidden_states(params, tokens).shape
        (3, 5, 8)
    """

    config: LlamaConfig
    remat: bool = False

    def init(self, key: Array, *, dtype: Any = jnp.float32) -> Params:
        """Kernels of variance 1 / inputs, embeddings of variance 1 / dim, norms at one, no bias.

        Raises:
            TypeError: ``key`` is not one typed key.
        """
        check_key("key", key)
        params = nnx.to_pure_dict(nnx.state(Llama(self.config, rngs=nnx.Rngs(key)), nnx.Param))
        return jax.tree.map(lambda leaf: leaf.astype(dtype), params)

    def shapes(self, *, dtype: Any = jnp.float32) -> Params:
        """The parameters' shapes and dtypes, without arrays."""
        return jax.eval_shape(lambda key: self.init(key, dtype=dtype), jax.random.key(0))

    def embed(
        self, params: Params, tokens: Int[Array, "*batch time"]
    ) -> Float[Array, "*batch time dim"]:
        """The states at the input of the first layer.

        Raises:
            ValueError: No tokens, more than ``context_length``, or one that is not in the
                vocabulary.
        """
        length = jnp.shape(tokens)[-1]
        if not 1 <= length <= self.config.context_length:
            raise ValueError(
                f"tokens must be 1 to {self.config.context_length} (the model's context length) "
                f"along their last axis, got {length}"
            )
        size = self.config.vocab_size
        check_value("tokens", tokens, lambda ids: (ids >= 0) & (ids < size), f"in 0 to {size - 1}")
        return params["embed"]["embedding"][tokens]

    def layer(
        self,
        params: Params,
        i: int | Int[Array, ""],
        h: Float[Array, "*batch time dim"],
        *,
        mask: Bool[Array, "*batch time"] | None = None,
        past: KeyValues | None = None,
    ) -> Float[Array, "*batch time dim"]:
        """The states after layer ``i``, of which ``h`` are the states before; for Jacobians.

        A token's own key and value come from ``h`` and are differentiated with it.

        Args:
            params: Parameters.
            i: The layer, from 0; may be traced if layers are stacked.
            h: States of the newest tokens.
            mask: Which of them are real; all if not given.
            past: Keys and values of the tokens before them at this layer (``key_values`` with
                the leading axis indexed), taken as fixed.
        """
        layers = params["layers"]
        stacked = not isinstance(layers, tuple)
        layer = jax.tree.map(lambda leaf: leaf[i], layers) if stacked else layers[i]
        place = partial(_among, mask=mask, past=past)
        return self.advance(layer, h, _positions(h, mask, past), place)[0]

    def hidden_states(
        self,
        params: Params,
        tokens: Int[Array, "*batch time"],
        *,
        mask: Bool[Array, "*batch time"] | None = None,
    ) -> Float[Array, "layers_and_one *batch time dim"]:
        """The states at the input of every layer, and last those at the output of the last."""
        h = self.embed(params, tokens)
        last, (before, _) = self._scan(params, h, mask)
        return jnp.concatenate([before, last[None]])

    def key_values(
        self,
        params: Params,
        tokens: Int[Array, "*batch time"],
        *,
        mask: Bool[Array, "*batch time"] | None = None,
    ) -> KeyValues:
        """Keys and values of all tokens at all layers, along a leading axis of layers."""
        h = self.embed(params, tokens)
        _, (_, past) = self._scan(params, h, mask)
        return past

    def unembed(
        self, params: Params, h: Float[Array, "*batch dim"]
    ) -> Float[Array, "*batch vocab"]:
        """Logits of the next token from states after the last layer, in float32 at least."""
        norm = nnx.merge(_norm_graph(self.config), {"scale": params["norm"]["scale"]})
        h = norm(h)
        dtype = jnp.promote_types(h.dtype, jnp.float32)
        if self.config.tied_embeddings:
            table = params["embed"]["embedding"]
            return jnp.einsum("...d,vd->...v", h, table, preferred_element_type=dtype)
        return jnp.matmul(h, params["head"]["kernel"], preferred_element_type=dtype)

    def logits(
        self,
        params: Params,
        tokens: Int[Array, "*batch time"],
        *,
        mask: Bool[Array, "*batch time"] | None = None,
    ) -> Float[Array, "*batch time vocab"]:
        """Logits of the token after each, in float32 at least.

        Args:
            params: Parameters.
            tokens: Token ids.
            mask: Which tokens are real; padding, on either side, is never attended to, and
                positions count the real ones.

        Raises:
            ValueError: As ``embed``.
        """
        h, _ = self._scan(params, self.embed(params, tokens), mask, keep=False)
        return self.unembed(params, h)

    def log_prob(
        self,
        params: Params,
        tokens: Int[Array, "*batch time"],
        mask: Bool[Array, "*batch time"] | None = None,
    ) -> Float[Array, "*batch time"]:
        """Log probability of each token given those before it, in nats; 0 where it is not scored.

        Sums and means are the caller's: effects of 1e-5 of a loss survive only if two losses are
        subtracted token by token.

        Args:
            params: Parameters.
            tokens: Token ids; padding stands at the right, where causality hides it.
            mask: Which tokens are scored; all if not given. The first never is.
        """
        logits = self.logits(params, tokens)[..., :-1, :]
        scores = token_log_probs(logits, tokens[..., 1:])
        scores = jnp.concatenate([jnp.zeros_like(scores[..., :1]), scores], axis=-1)
        return scores if mask is None else jnp.where(mask, scores, 0)

    def _scan(self, params: Params, h: Array, mask: Array | None, *, keep: bool = True) -> Any:
        # Through all layers; `keep` stacks what entered each and its keys and values.
        positions = _positions(h, mask, None)

        def step(h: Array, layer: Params) -> tuple[Array, Any]:
            after, present = self.advance(layer, h, positions, partial(_among, mask=mask))
            return after, ((h, present) if keep else None)

        step = jax.checkpoint(step) if self.remat else step
        layers = params["layers"]
        if not isinstance(layers, tuple):
            return jax.lax.scan(step, h, layers)
        kept = []
        for layer in layers:
            h, out = step(h, layer)
            kept.append(out)
        return h, jax.tree.map(lambda *leaves: jnp.stack(leaves), *kept)

    def advance(
        self,
        layer: Params,
        h: Float[Array, "*batch time dim"],
        positions: Int[Array, "*batch time"],
        place: Callable[[Array, Array], tuple[KeyValues, Array]],
    ) -> tuple[Float[Array, "*batch time dim"], KeyValues]:
        """One layer whose keys and values are kept as the caller likes; what all others stand on.

        Args:
            layer: The layer's parameters, one entry of the stack.
            h: States before.
            positions: Of these tokens, from 0.
            place: ``(keys, values) -> (present, allowed)``: all keys and values to attend to,
                given the newest, and which of them each token sees, ``[*batch, time, slots]``.

        Returns:
            States after, and ``present``.
        """
        block = nnx.merge(_block_graph(self.config), layer)
        queries, keys, values = block.project(h, positions)
        present, allowed = place(keys, values)
        return block.finish(h, attend(queries, present, allowed)), present


def unstack_layers(params: Params) -> Params:
    """Parameters whose layers are a tuple of trees: nothing is copied in or out of a stack.

    A layer cut out of the stack is copied first, and its gradient is copied into one: decoding and
    gradients are a quarter to a third faster without. Compilation takes about twice as long. Call
    it once, outside of what is jitted; ``CausalLM``, decoding and losses take either form.

    Example:
        >>> lm = CausalLM(LlamaConfig(vocab_size=16, dim=8, num_layers=2, num_heads=2, mlp_dim=16))
        >>> apart = unstack_layers(lm.init(jax.random.key(0)))
        >>> len(apart["layers"]), lm.logits(apart, jnp.array([3, 1])).shape
        (2, (2, 16))
    """
    layers = params["layers"]
    if isinstance(layers, tuple):
        return params
    count = jax.tree.leaves(layers)[0].shape[0]
    cut = tuple(jax.tree.map(lambda leaf, i=i: leaf[i], layers) for i in range(count))
    return {**params, "layers": cut}


def token_log_probs(
    logits: Float[Array, "*batch vocab"], tokens: Int[Array, "*batch"]
) -> Float[Array, "*batch"]:
    """Log probability of each token under its logits, in nats.

    Example:
        >>> round(float(token_log_probs(jnp.array([0.0, 0.0]), jnp.array(1))), 4)
        -0.6931
    """
    chosen = jnp.take_along_axis(logits, tokens[..., None], axis=-1)[..., 0]
    return chosen - jax.nn.logsumexp(logits, axis=-1)


def _among(
    keys: Array, values: Array, mask: Array | None, past: KeyValues | None = None
) -> tuple[KeyValues, Array]:
    # The newest tokens stand after those of the past, and see these and their own predecessors.
    time = keys.shape[-3]
    real = jnp.ones(keys.shape[:-2], bool) if mask is None else mask
    present = KeyValues(keys, values, real)
    if past is not None:
        present = KeyValues(
            jnp.concatenate([past.keys, keys], axis=-3),
            jnp.concatenate([past.values, values], axis=-3),
            jnp.concatenate([past.mask, real], axis=-1),
        )
    slots = present.keys.shape[-3]
    causal = jnp.arange(slots) <= jnp.arange(time)[:, None] + (slots - time)
    return present, causal & present.mask[..., None, :]


def _positions(h: Array, mask: Array | None, past: KeyValues | None) -> Array:
    # Positions count real tokens; padding before the first stands at 0, where nobody looks.
    before = 0 if past is None else past.mask.sum(axis=-1)[..., None]
    if mask is None:
        return jnp.broadcast_to(jnp.arange(h.shape[-2]) + before, h.shape[:-1])
    return jnp.maximum(jnp.cumsum(mask, axis=-1) - 1, 0) + before


@cache
def _block_graph(config: LlamaConfig) -> Any:
    return nnx.split(nnx.eval_shape(lambda: Block(config, rngs=nnx.Rngs(0))))[0]


@cache
def _norm_graph(config: LlamaConfig) -> Any:
    def make() -> nnx.RMSNorm:
        return nnx.RMSNorm(config.dim, epsilon=config.norm_eps, rngs=nnx.Rngs(0))

    return nnx.split(nnx.eval_shape(make))[0]

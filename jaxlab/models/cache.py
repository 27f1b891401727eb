"""Keys and values kept from token to token, so that a new token costs one pass over the weights."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxlab.core.checks import check_count
from jaxlab.models.blocks import KeyValues
from jaxlab.models.llama import CausalLM, Params, unstack_layers

__all__ = ["Cache", "Control", "decode_step", "prefill"]


class Cache(NamedTuple):
    """Keys and values of the tokens so far, with room for more.

    Attributes:
        layers: Keys and values of every layer, a tuple since each is updated in place.
        mask: Which slots hold real tokens.
        length: How many slots are in use, padding among them.
    """

    layers: tuple[
        tuple[
            Float[Array, "*batch slots kv_heads head_dim"],
            Float[Array, "*batch slots kv_heads head_dim"],
        ],
        ...,
    ]
    mask: Bool[Array, "*batch slots"]
    length: Int[Array, ""]


class Control(NamedTuple):
    """What acts on the newest token's state between the layers.

    Attributes:
        init: ``() -> state``, called for every token.
        apply: ``(state, i, before, after) -> (state, after)``: the states ``[*batch, dim]`` at
            the input and output of layer ``i``, a Python integer; the last is what the next layer
            gets.
    """

    init: Callable[[], Any]
    apply: Callable[[Any, int, Array, Array], tuple[Any, Array]]


def prefill(
    lm: CausalLM,
    params: Params,
    tokens: Int[Array, "*batch time"],
    *,
    slots: int,
    mask: Bool[Array, "*batch time"] | None = None,
) -> Cache:
    """The cache after ``tokens``, which may be none, with room for ``slots`` in all.

    Args:
        lm: The model.
        params: Its parameters, stacked.
        tokens: A prompt without its last token, which ``decode_step`` takes.
        slots: Size of the cache.
        mask: Which tokens are real; padding stands at the left.

    Raises:
        ValueError: Fewer slots than tokens, or more than the model's context.

    Example:
        >>> from jaxlab.models.config import LlamaConfig
        >>> lm = CausalLM(LlamaConfig(vocab_size=9, dim=8, num_layers=2, num_heads=2, mlp_dim=8))
        >>> params = lm.init(jax.random.key(0))
        >>> tokens = jnp.array([1, 2, 3, 4])
        >>> cache = prefill(lm, params, tokens[:3], slots=8)
        >>> logits, cache = decode_step(lm, params, cache, tokens[3])
        >>> bool(jnp.allclose(logits, lm.logits(params, tokens)[3], atol=1e-6))
        True
    """
    *batch, time = jnp.shape(tokens)
    check_count("slots", slots)
    if not time <= slots <= lm.config.context_length:
        raise ValueError(
            f"slots must be at least the {time} tokens given and at most the context length "
            f"{lm.config.context_length}, got {slots}"
        )
    size = (*batch, slots, lm.config.num_kv_heads, lm.config.head_dim)
    dtype = params["embed"]["embedding"].dtype
    if time == 0:
        empty = tuple(
            (jnp.zeros(size, dtype), jnp.zeros(size, dtype)) for _ in range(lm.config.num_layers)
        )
        return Cache(empty, jnp.zeros((*batch, slots), bool), jnp.asarray(0, jnp.int32))
    past: KeyValues = lm.key_values(params, tokens, mask=mask)
    room = [(0, 0)] * len(batch) + [(0, slots - time)]
    layers = tuple(
        (
            jnp.pad(past.keys[i], [*room, (0, 0), (0, 0)]),
            jnp.pad(past.values[i], [*room, (0, 0), (0, 0)]),
        )
        for i in range(lm.config.num_layers)
    )
    return Cache(layers, jnp.pad(past.mask[0], room), jnp.asarray(time, jnp.int32))


def decode_step(
    lm: CausalLM,
    params: Params,
    cache: Cache,
    token: Int[Array, "*batch"],
    *,
    control: Control | None = None,
) -> tuple[Float[Array, "*batch vocab"], Cache]:
    """Logits after one more token, and the cache that holds it.

    Args:
        lm: The model.
        params: Its parameters; ``unstack_layers`` once before a loop makes the loop faster.
        cache: What came before; writing beyond its last slot overwrites that.
        token: One token a sequence.
        control: Acts on the token's state after every layer.
    """
    h = lm.embed(params, token[..., None])
    mask = cache.mask.at[..., cache.length].set(True)
    positions = cache.mask.sum(axis=-1, dtype=jnp.int32)[..., None]
    state = None if control is None else control.init()
    layers = []
    for i, layer in enumerate(unstack_layers(params)["layers"]):
        after, present = lm.advance(layer, h, positions, _slot(cache, i, mask))
        if control is not None:
            state, steered = control.apply(state, i, h[..., 0, :], after[..., 0, :])
            after = steered[..., None, :]
        h = after
        layers.append((present.keys, present.values))
    logits = lm.unembed(params, h[..., 0, :])
    return logits, Cache(tuple(layers), mask, cache.length + 1)


def _slot(cache: Cache, i: int, mask: Array) -> Callable[[Array, Array], tuple[KeyValues, Array]]:
    # Slots beyond the newest token are not real yet, so that the mask alone says who is seen.
    def place(keys: Array, values: Array) -> tuple[KeyValues, Array]:
        kept_keys, kept_values = cache.layers[i]
        present = KeyValues(
            jax.lax.dynamic_update_slice_in_dim(kept_keys, keys, cache.length, keys.ndim - 3),
            jax.lax.dynamic_update_slice_in_dim(kept_values, values, cache.length, keys.ndim - 3),
            mask,
        )
        return present, mask[..., None, :]

    return place

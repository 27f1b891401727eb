"""Generation: one jitted loop over tokens, for a batch, with a cache."""

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxlab.core.checks import check_count, check_key, check_value
from jaxlab.core.types import Scalar
from jaxlab.models.cache import Control, decode_step, prefill
from jaxlab.models.llama import CausalLM, Params, token_log_probs, unstack_layers

__all__ = ["Generated", "choose_token", "generate", "pad_prompts"]


class Generated(NamedTuple):
    """Continuations.

    Attributes:
        tokens: New tokens; 0 after a stop token.
        mask: Which of them are real, the stop token among them.
        log_probs: Log probability of each under the model at temperature 1, in nats; 0 after a
            stop token.
    """

    tokens: Int[Array, "*batch new"]
    mask: Bool[Array, "*batch new"]
    log_probs: Float[Array, "*batch new"]


def choose_token(
    key: Array | None,
    logits: Float[Array, "*batch vocab"],
    *,
    temperature: Scalar = 0.0,
    top_k: int | None = None,
    top_p: Scalar | None = None,
) -> Int[Array, "*batch"]:
    """Draw the next token; the likeliest if the temperature is 0.

    Args:
        key: A typed key; not needed if ``temperature`` is Python's 0.
        logits: Of the next token.
        temperature: Divides the logits; at least 0.
        top_k: Only the so many likeliest tokens; all if not given. Static.
        top_p: Of these only the fewest whose probability reaches ``top_p``, in (0, 1].

    Raises:
        ValueError: A value out of its range.
        TypeError: No key where one is needed.

    Example:
        >>> logits = jnp.array([0.0, 2.0, 1.0, -1.0])
        >>> int(choose_token(None, logits))
        1
        >>> keys = jax.random.split(jax.random.key(0), 100)
        >>> draw = lambda key: choose_token(key, logits, temperature=1.0, top_k=2)
        >>> sorted(set(jax.vmap(draw)(keys).tolist()))
        [1, 2]
    """
    check_value("temperature", temperature, lambda x: x >= 0, "at least 0")
    likeliest = jnp.argmax(logits, axis=-1).astype(jnp.int32)
    if _is_greedy(temperature):
        return likeliest
    check_key("key", key)
    size = logits.shape[-1]
    if top_k is not None:
        check_count("top_k", top_k)
    # Descending candidates; without top_p the order of all tokens need not be known.
    if top_k is None and top_p is None:
        candidates, kept = None, logits
    else:
        kept, candidates = jax.lax.top_k(logits, size if top_k is None else min(top_k, size))
    tiny = jnp.finfo(kept.dtype).tiny
    kept = kept / jnp.maximum(jnp.asarray(temperature, kept.dtype), tiny)
    if top_p is not None:
        check_value("top_p", top_p, lambda p: (p > 0) & (p <= 1), "in (0, 1]")
        probabilities = jax.nn.softmax(kept, axis=-1)
        before = jnp.cumsum(probabilities, axis=-1) - probabilities
        kept = jnp.where(before < top_p, kept, -jnp.inf)
    drawn = jax.random.categorical(cast("Array", key), kept, axis=-1)
    if candidates is not None:
        drawn = jnp.take_along_axis(candidates, drawn[..., None], axis=-1)[..., 0]
    return jnp.where(jnp.asarray(temperature) > 0, drawn.astype(jnp.int32), likeliest)


def generate(
    lm: CausalLM,
    params: Params,
    tokens: Int[Array, "*batch time"],
    key: Array | None = None,
    *,
    max_new_tokens: int,
    mask: Bool[Array, "*batch time"] | None = None,
    temperature: Scalar = 0.0,
    top_k: int | None = None,
    top_p: Scalar | None = None,
    stop_tokens: tuple[int, ...] = (),
    control: Control | None = None,
) -> Generated:
    """Continue prompts until every one has met a stop token or has ``max_new_tokens``.

    Under ``jit`` the model, ``max_new_tokens``, ``top_k``, ``stop_tokens`` and ``control`` are
    static; one compilation serves all prompts of one padded length (``pad_prompts``).

    Args:
        lm: The model.
        params: Its parameters.
        tokens: Prompts, padded at the left.
        key: A typed key; not needed for greedy choice.
        max_new_tokens: The most tokens to add.
        mask: Which tokens of the prompts are real; all if not given.
        temperature: 0 chooses the likeliest token.
        top_k: See ``choose_token``.
        top_p: See ``choose_token``.
        stop_tokens: A sequence ends with the first of these.
        control: Acts on the states of the prompt's last token and of all new ones.

    Raises:
        ValueError: An empty prompt, or one that leaves no room in the model's context.

    Example:
        >>> from jaxlab.models.config import LlamaConfig
        >>> lm = CausalLM(LlamaConfig(vocab_size=9, dim=8, num_layers=2, num_heads=2, mlp_dim=8))
        >>> params = lm.init(jax.random.key(0))
        >>> generate(lm, params, jnp.array([[1, 2], [3, 4]]), max_new_tokens=5).tokens.shape
        (2, 5)
    """
    check_count("max_new_tokens", max_new_tokens)
    *batch, time = jnp.shape(tokens)
    room = lm.config.context_length - max_new_tokens
    if not 1 <= time <= room:
        raise ValueError(
            f"tokens must be 1 to {room} along their last axis (the context length "
            f"{lm.config.context_length} less max_new_tokens = {max_new_tokens}), got {time}"
        )
    if mask is not None:
        check_value("mask", mask, lambda real: real[..., -1], "true at the last token (pad left)")
    before = None if mask is None else mask[..., :-1]
    cache = prefill(lm, params, tokens[..., :-1], slots=time + max_new_tokens, mask=before)
    layers = unstack_layers(params)
    if not _is_greedy(temperature):
        check_key("key", key)
    key = jax.random.key(0) if key is None else key  # Greedy choice looks at none.
    stops = jnp.asarray(stop_tokens, jnp.int32)

    def goes_on(carry: tuple[Any, ...]) -> Array:
        step, _, _, alive, _ = carry
        return (step < max_new_tokens) & jnp.any(alive)

    def add_token(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        step, cache, token, alive, out = carry
        logits, cache = decode_step(lm, layers, cache, token, control=control)
        token = choose_token(
            jax.random.fold_in(key, step),
            logits,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
        )
        token = jnp.where(alive, token, 0)
        score = token_log_probs(logits, token)
        out = Generated(
            out.tokens.at[..., step].set(token),
            out.mask.at[..., step].set(alive),
            out.log_probs.at[..., step].set(jnp.where(alive, score, 0)),
        )
        alive = alive & ~jnp.any(token[..., None] == stops, axis=-1)
        return step + 1, cache, token, alive, out

    new = (*batch, max_new_tokens)
    dtype = jnp.promote_types(params["embed"]["embedding"].dtype, jnp.float32)
    empty = Generated(jnp.zeros(new, jnp.int32), jnp.zeros(new, bool), jnp.zeros(new, dtype))
    first = jnp.asarray(tokens[..., -1], jnp.int32)
    start = (jnp.asarray(0, jnp.int32), cache, first, jnp.ones(batch, bool), empty)
    return jax.lax.while_loop(goes_on, add_token, start)[-1]


def _is_greedy(temperature: Scalar) -> bool:
    # A traced or array temperature may be 0 as well, but needs the program that can draw.
    return isinstance(temperature, int | float) and temperature == 0


def pad_prompts(
    prompts: Sequence[Sequence[int]], *, pad_id: int = 0, shortest: int = 16
) -> tuple[Int[Array, "batch time"], Bool[Array, "batch time"]]:
    """Prompts padded at the left to one length, a power of two, and the mask of real tokens.

    Few lengths mean few compilations of ``generate``.

    Raises:
        ValueError: No prompt, or an empty one.

    Example:
        >>> tokens, mask = pad_prompts([[5, 6, 7], [8]], shortest=4)
        >>> tokens.tolist()
        [[0, 5, 6, 7], [0, 0, 0, 8]]
        >>> mask.sum(axis=1).tolist()
        [3, 1]
    """
    check_count("shortest", shortest)
    if not prompts or any(len(prompt) == 0 for prompt in prompts):
        raise ValueError(
            f"prompts must each have a token, got {len(prompts)} prompts of lengths "
            f"{[len(prompt) for prompt in prompts]}"
        )
    longest = max(len(prompt) for prompt in prompts)
    length = max(shortest, 1 << (longest - 1).bit_length())
    tokens = np.full((len(prompts), length), pad_id, np.int32)
    mask = np.zeros((len(prompts), length), bool)
    for row, prompt in enumerate(prompts):
        tokens[row, length - len(prompt) :] = prompt
        mask[row, length - len(prompt) :] = True
    return jnp.asarray(tokens), jnp.asarray(mask)

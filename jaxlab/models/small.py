"""A small sibling of the large models: the same architecture, trained on the spot.

It serves tests and papers that need a language model but no particular one; 0.33 million
parameters over bytes learn English spelling in seconds.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from jaxlab.core.checks import check_count, check_key
from jaxlab.data.text import encode_bytes, python_manual
from jaxlab.models.config import LlamaConfig
from jaxlab.models.llama import CausalLM, Params
from jaxlab.models.losses import TokenBatch, next_token_loss

__all__ = ["SMALL", "Trained", "draw_windows", "train", "train_small"]

SMALL = LlamaConfig(
    vocab_size=256,
    dim=96,
    num_layers=3,
    num_heads=6,
    num_kv_heads=3,
    mlp_dim=256,
    context_length=512,
)
"""Bytes in, three layers, 0.33 million parameters."""


class Trained(NamedTuple):
    """A model after training.

    Attributes:
        lm: Its functions.
        params: What it has learnt.
        losses: The loss before every step, in nats a token.
    """

    lm: CausalLM
    params: Params
    losses: Float[Array, " steps"]


def draw_windows(
    key: Array, tokens: Int[Array, " all"], *, batch_size: int, length: int
) -> TokenBatch:
    """Random windows of a long text, all of whose tokens are scored.

    Raises:
        ValueError: The text is shorter than a window.

    Example:
        >>> draw_windows(jax.random.key(0), jnp.arange(9), batch_size=2, length=4).tokens.shape
        (2, 4)
    """
    check_count("batch_size", batch_size)
    check_count("length", length, least=2)
    size = jnp.shape(tokens)[0]
    if size < length:
        raise ValueError(f"tokens must be at least one window of {length}, got {size}")
    starts = jax.random.randint(key, (batch_size,), 0, size - length + 1)
    windows = jnp.asarray(tokens)[starts[:, None] + jnp.arange(length)]
    return TokenBatch(windows, jnp.ones(windows.shape, bool))


def train(
    key: Array,
    loss: Callable[[Params, Any], Array],
    params: Params,
    draw_batch: Callable[[Array], Any],
    *,
    tx: optax.GradientTransformation,
    num_steps: int,
) -> tuple[Params, Float[Array, " steps"]]:
    """Minimise ``loss`` over fresh batches, in one compiled loop.

    Args:
        key: A typed key; every step draws its batch from its own.
        loss: Of parameters and a batch.
        params: Where to begin.
        draw_batch: A batch from a key.
        tx: An optimizer of Optax.
        num_steps: How many.

    Returns:
        The parameters, and the loss before every step.
    """
    check_key("key", key)
    check_count("num_steps", num_steps)

    def step(carry: tuple[Params, Any], key: Array) -> tuple[tuple[Params, Any], Array]:
        params, state = carry
        value, grads = jax.value_and_grad(loss)(params, draw_batch(key))
        updates, state = tx.update(grads, state, params)
        return (cast("Params", optax.apply_updates(params, updates)), state), value

    keys = jax.random.split(key, num_steps)
    (params, _), losses = jax.lax.scan(step, (params, tx.init(params)), keys)
    return params, losses


def train_small(
    key: Array, *, config: LlamaConfig = SMALL, num_steps: int = 300, text: str | None = None
) -> Trained:
    """Train a byte-level model on a text, Python's manual if none is given.

    The batches are 16 windows of 64 bytes; Adam's step size falls from 0.003 to 0 as a cosine.

    Args:
        key: A typed key.
        config: The architecture; its vocabulary must hold the 256 bytes.
        num_steps: How many steps.
        text: What to learn.

    Raises:
        ValueError: A vocabulary of fewer than 256 tokens.
    """
    if config.vocab_size < 256:
        raise ValueError(f"config must have a vocabulary of 256 bytes, got {config.vocab_size}")
    check_count("num_steps", num_steps)
    lm = CausalLM(config)
    tokens = jnp.asarray(encode_bytes(python_manual() if text is None else text))
    key_init, key_train = jax.random.split(key)
    tx = optax.adam(optax.cosine_decay_schedule(3e-3, num_steps))

    @jax.jit
    def fit(key: Array, params: Params, tokens: Array) -> tuple[Params, Array]:
        def draw_batch(key: Array) -> TokenBatch:
            return draw_windows(key, tokens, batch_size=16, length=64)

        return train(key, next_token_loss(lm), params, draw_batch, tx=tx, num_steps=num_steps)

    params, losses = fit(key_train, lm.init(key_init), tokens)
    return Trained(lm, params, losses)

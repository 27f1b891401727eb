r"""Losses of a language model as pure functions ``loss(params, batch)``.

Each factory takes a ``CausalLM`` and returns such a function, the shape that optimizers and
``jaxlab.optim.lie_bracket`` take.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxlab.core.checks import check_value
from jaxlab.core.types import Scalar
from jaxlab.models.llama import CausalLM, Params

__all__ = [
    "PreferenceBatch",
    "TokenBatch",
    "dpo_loss",
    "next_token_loss",
    "prompt_mask",
    "with_reference",
]


class TokenBatch(NamedTuple):
    """Sequences, and which of their tokens are scored.

    Attributes:
        tokens: Token ids, padded at the right.
        mask: Which tokens the loss is over; neither padding nor, in supervised fine-tuning, the
            prompt (``prompt_mask``).
    """

    tokens: Int[Array, "*batch time"]
    mask: Bool[Array, "*batch time"]


class PreferenceBatch(NamedTuple):
    """Pairs of answers to the same prompts, and what the reference model says of them.

    Attributes:
        chosen: The preferred answers after their prompts; the mask holds the answers alone.
        rejected: The others.
        reference_margin: Log probability of the chosen less that of the rejected answer under
            the reference model, in nats; ``with_reference`` fills it in.
    """

    chosen: TokenBatch
    rejected: TokenBatch
    reference_margin: Float[Array, "*batch"]


def prompt_mask(
    prompt_lengths: Int[Array, "*batch"], lengths: Int[Array, "*batch"], *, time: int
) -> Bool[Array, "*batch time"]:
    """Which tokens answer: those from the prompt's length up to the sequence's.

    Example:
        >>> prompt_mask(jnp.array([2]), jnp.array([4]), time=5).tolist()
        [[False, False, True, True, False]]
    """
    places = jnp.arange(time)
    return (places >= prompt_lengths[..., None]) & (places < lengths[..., None])


def next_token_loss(lm: CausalLM) -> Callable[[Params, TokenBatch], Float[Array, ""]]:
    """Mean negative log likelihood of the scored tokens, in nats a token.

    With a mask of ``prompt_mask`` it is the loss of supervised fine-tuning. The first token of a
    sequence is never scored. The mean is over the batch's tokens, not over its sequences.

    Example:
        >>> from jaxlab.models.config import LlamaConfig
        >>> lm = CausalLM(LlamaConfig(vocab_size=9, dim=8, num_layers=1, num_heads=2, mlp_dim=8))
        >>> batch = TokenBatch(jnp.array([[1, 2, 3]]), jnp.ones((1, 3), bool))
        >>> loss = next_token_loss(lm)(lm.init(jax.random.key(0)), batch)
        >>> bool(abs(loss - jnp.log(9)) < 1)
        True
    """

    def loss(params: Params, batch: TokenBatch) -> Array:
        scored = batch.mask.at[..., 0].set(False)
        check_value("mask", scored, lambda mask: mask.any(), "true at a token after the first")
        return -lm.log_prob(params, batch.tokens, scored).sum() / scored.sum()

    return loss


def dpo_loss(
    lm: CausalLM, *, beta: Scalar = 0.1
) -> Callable[[Params, PreferenceBatch], Float[Array, ""]]:
    r"""Mean of ``-log sigmoid(beta (margin - reference margin))``, direct preference optimization.

    Margins are log probabilities of the chosen answer less those of the rejected one. Rafailov et
    al., arXiv:2305.18290, equation 7.

    Raises:
        ValueError: ``beta`` is not positive.
    """
    check_value("beta", beta, lambda x: x > 0, "positive")

    def loss(params: Params, batch: PreferenceBatch) -> Array:
        gain = _margin(lm, params, batch) - batch.reference_margin
        return -jax.nn.log_sigmoid(beta * gain).mean()

    return loss


def with_reference(
    lm: CausalLM, reference_params: Params, batch: PreferenceBatch
) -> PreferenceBatch:
    """The batch with the margins of a reference model, which are fixed during training."""
    margin = jax.lax.stop_gradient(_margin(lm, reference_params, batch))
    return batch._replace(reference_margin=margin)


def _margin(lm: CausalLM, params: Params, batch: PreferenceBatch) -> Array:
    def answer(part: TokenBatch) -> Array:
        return lm.log_prob(params, part.tokens, part.mask).sum(axis=-1)

    return answer(batch.chosen) - answer(batch.rejected)

"""What steering does to a model's next token and to its continuations, for experiments."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxlab.core.types import Scalar
from jaxlab.language.controllers import Controller, decoding_control, low_rank, steer
from jaxlab.language.plants import Plant
from jaxlab.language.policies import LowRankPolicy
from jaxlab.language.setpoints import FeatureSetpoint, features
from jaxlab.models.generate import generate
from jaxlab.models.llama import CausalLM, Params, token_log_probs

__all__ = [
    "Continuations",
    "NextToken",
    "Words",
    "continuations",
    "next_token",
    "relative_errors",
    "word_score",
]


class Words(NamedTuple):
    """Tokens that tell a feature. Attributes: positive: for it; negative: against it."""

    positive: Int[Array, " words"]
    negative: Int[Array, " others"]


class NextToken(NamedTuple):
    """What a controller did to the next token of each prompt.

    Attributes:
        score: Log odds of the positive words against the negative ones.
        divergence: Kullback and Leibler's, of the steered law from the unsteered, in nats.
        energy: The sum of ``||u_k||^2`` over layers.
        features: ``beta_k``.
    """

    score: Float[Array, "*prompts"]
    divergence: Float[Array, "*prompts"]
    energy: Float[Array, "*prompts"]
    features: Float[Array, "layers_and_one *prompts"]


class Continuations(NamedTuple):
    """Steered texts as an unsteered model sees them.

    Attributes:
        tokens: New tokens.
        nats: The mean negative log probability of a new token; its exponential is the perplexity.
        score: The words' log odds after the text and a question that asks for them.
    """

    tokens: Int[Array, "prompts new"]
    nats: Float[Array, " prompts"]
    score: Float[Array, " prompts"]


def word_score(logits: Float[Array, "*batch vocab"], words: Words) -> Float[Array, "*batch"]:
    """Log odds of the positive words against the negative ones.

    Example:
        >>> words = Words(jnp.array([0]), jnp.array([2]))
        >>> float(word_score(jnp.array([3.0, 9.0, 1.0]), words))
        2.0
    """
    positive, negative = (jax.nn.logsumexp(logits[..., ids], axis=-1) for ids in words)
    return positive - negative


def next_token(
    lm: CausalLM,
    params: Params,
    plant: Plant,
    controller: Controller,
    setpoint: FeatureSetpoint,
    words: Words,
    free: Float[Array, "*prompts vocab"],
) -> NextToken:
    """Steer the last token of each prompt and look at what comes next.

    Args:
        lm: The model.
        params: Its parameters.
        plant: Of the prompts.
        controller: What steers.
        setpoint: The feature.
        words: What the score asks for.
        free: The unsteered logits.
    """
    done = steer(plant, controller)
    logits = lm.unembed(params, done.states[-1])
    steered, unsteered = jax.nn.log_softmax(logits), jax.nn.log_softmax(free)
    return NextToken(
        word_score(logits, words),
        jnp.sum(jnp.exp(steered) * (steered - unsteered), axis=-1),
        jnp.sum(done.inputs**2, axis=(0, -1)),
        features(setpoint, done.states),
    )


def relative_errors(
    features: Float[Array, "layers_and_one *prompts"],
    targets: Float[Array, " layers_and_one"],
    norms: Float[Array, " layers_and_one"],
) -> Float[Array, " layers_and_one"]:
    """The root mean square over prompts of ``(beta_k - beta*_k) / mu_k``; 0 where ``mu_k`` is.

    Example:
        >>> relative_errors(jnp.array([[3.0, 1.0]]), jnp.array([1.0]), jnp.array([2.0])).round(3)
        Array([0.707], dtype=float32)
    """
    count = features.shape[0]
    away = (features.reshape(count, -1) - targets[:, None]) / jnp.where(norms > 0, norms, 1)[
        :, None
    ]
    return jnp.where(norms > 0, jnp.sqrt(jnp.mean(away**2, axis=1)), 0.0)


def continuations(
    lm: CausalLM,
    params: Params,
    tokens: Int[Array, "prompts time"],
    mask: Bool[Array, "prompts time"],
    question: Int[Array, " asked"],
    words: Words,
    policy: LowRankPolicy,
    strength: Scalar,
    key: Array,
    *,
    max_new_tokens: int,
    top_k: int = 50,
    top_p: float = 0.9,
) -> Continuations:
    """Continue prompts under a policy, and let the unsteered model judge what came out.

    Args:
        lm: The model.
        params: Its parameters.
        tokens: Prompts, padded at the left.
        mask: Which of their tokens are real.
        question: Tokens after the continuation, whose next token the score looks at.
        words: What the score asks for.
        policy: What steers.
        strength: ``lambda``.
        key: A typed key.
        max_new_tokens: Length of the continuations.
        top_k: See ``jaxlab.models.generate.choose_token``; at most the vocabulary.
        top_p: Likewise.
    """
    made = generate(
        lm, params, tokens, key, max_new_tokens=max_new_tokens, mask=mask, temperature=1.0,
        top_k=top_k, top_p=top_p, control=decoding_control(low_rank(policy, strength)),
    )  # fmt: skip
    asked = jnp.broadcast_to(question, (tokens.shape[0], question.shape[0]))
    whole = jnp.concatenate([tokens, made.tokens, asked], axis=1)
    real = jnp.concatenate([mask, made.mask, jnp.ones(asked.shape, bool)], axis=1)
    logits = lm.logits(params, whole, mask=real)
    start = tokens.shape[1]
    before = logits[:, start - 1 : start - 1 + max_new_tokens]
    nats = -token_log_probs(before, made.tokens).mean(axis=1)
    return Continuations(made.tokens, nats, word_score(logits[:, -1], words))

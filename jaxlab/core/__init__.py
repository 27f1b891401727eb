"""The protocol, the runners, the registry and the checks that every family shares.

Names load when they are used: the registry answers without importing JAX.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxlab.core.checks import checked as checked
    from jaxlab.core.chunks import ChunkProgress as ChunkProgress
    from jaxlab.core.chunks import run_chunks as run_chunks
    from jaxlab.core.iterate import run as run
    from jaxlab.core.iterate import run_until as run_until
    from jaxlab.core.registry import Paper as Paper
    from jaxlab.core.registry import find_paper as find_paper
    from jaxlab.core.registry import papers as papers
    from jaxlab.core.types import Method as Method
    from jaxlab.core.types import Run as Run
    from jaxlab.core.types import Status as Status

_HOMES = {
    "ChunkProgress": "chunks",
    "Method": "types",
    "Paper": "registry",
    "Run": "types",
    "Status": "types",
    "checked": "checks",
    "find_paper": "registry",
    "papers": "registry",
    "run": "iterate",
    "run_chunks": "chunks",
    "run_until": "iterate",
}

__all__ = list(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"jaxlab.core.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'jaxlab.core' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])

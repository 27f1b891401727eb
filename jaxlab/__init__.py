"""A JAX functional toolkit for theory and optimization papers.

Families of methods load when they are named: ``jaxlab.optim`` imports JAX, ``jaxlab`` alone does
not, so that the command line answers at once.
"""

import importlib
import os
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jaxlab import claims as claims
    from jaxlab import core as core
    from jaxlab import data as data
    from jaxlab import diffusion as diffusion
    from jaxlab import experiment as experiment
    from jaxlab import inference as inference
    from jaxlab import optim as optim
    from jaxlab import problems as problems
    from jaxlab import stats as stats

__version__ = "0.1.0"

__all__ = [
    "__version__",
    "claims",
    "core",
    "data",
    "diffusion",
    "experiment",
    "inference",
    "optim",
    "problems",
    "stats",
]

if os.environ.get("JAXLAB_TYPECHECK") == "1":
    from jaxtyping import install_import_hook

    install_import_hook("jaxlab", "beartype.beartype")


def __getattr__(name: str) -> ModuleType:
    if name in __all__:
        return importlib.import_module(f"jaxlab.{name}")
    raise AttributeError(f"module 'jaxlab' has no attribute {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted(__all__)

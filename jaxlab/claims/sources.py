"""Where claims come from: a paper of the registry, or a user's own Python file."""

import hashlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from jaxlab.claims.claim import Claim
from jaxlab.claims.examine import user_errors_named
from jaxlab.core.locate import load_companion
from jaxlab.core.registry import find_paper, papers

__all__ = ["claims_in", "claims_of", "known_claims", "source_name"]


def claims_of(source: str) -> tuple[Claim, ...]:
    """The claims of a paper or of a Python file.

    Args:
        source: A paper's slug, or the path of a file that ends in ``.py``.

    Raises:
        ValueError: There is no such paper or file, it cannot be imported, or it holds no claim.

    Example:
        >>> claims_of("dual_sgd")[0].name
        'dual_sgd/inexact_energy_decrease'
    """
    if not source.endswith(".py"):
        return load_companion("proofs_checks", find_paper(source).slug).CLAIMS
    path = Path(source)
    if not path.is_file():
        raise ValueError(f"SOURCES must be papers or Python files, got no file {source!r}")
    claims = claims_in(user_errors_named(f"{source}", lambda: _load(path), must="be importable"))
    if not claims:
        raise ValueError(f"SOURCES must define at least one Claim at top level, got {source!r}")
    return claims


def claims_in(module: ModuleType) -> tuple[Claim, ...]:
    """The claims at the top level of a module, alone or in a tuple or list, each once.

    Raises:
        ValueError: Two claims share a name.
    """
    found: dict[int, Claim] = {}
    for value in vars(module).values():
        for item in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(item, Claim):
                found[id(item)] = item
    names = [claim.name for claim in found.values()]
    double = sorted({name for name in names if names.count(name) > 1})
    if double:
        raise ValueError(f"names of claims must differ, got {double[0]!r} twice")
    return tuple(found.values())


def known_claims(origin: str) -> dict[str, Claim]:
    """Claims by name: those of ``origin``, or those of all papers if it is empty."""
    sources = [origin] if origin else [paper.slug for paper in papers()]
    return {claim.name: claim for source in sources for claim in claims_of(source)}


def source_name(source: str) -> str:
    """A short name for files of results.

    Example:
        >>> source_name("theorems/my_claims.py"), source_name("dual_sgd")
        ('my_claims', 'dual_sgd')
    """
    return Path(source).stem if source.endswith(".py") else source


def _load(path: Path) -> ModuleType:
    """Import a file by its path; its folder can be imported from, as with ``python FILE``."""
    path = path.resolve()
    mark = hashlib.sha256(str(path).encode()).hexdigest()[:12]
    name = f"jaxlab_user_{path.stem}_{mark}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up there
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        sys.path.remove(str(path.parent))
    return module

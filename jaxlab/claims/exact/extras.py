"""Packages that only the exact rung needs."""

import importlib
from typing import Any

__all__ = ["require"]


def require(name: str) -> Any:
    """Import a package of the extra ``exact``.

    Raises:
        ImportError: It is not installed; the message says what to install.

    Example:
        >>> require("no_such_package")
        Traceback (most recent call last):
        ImportError: no_such_package is not installed: pip install 'jaxlab[exact]'
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.split(".")[0]
        raise ImportError(
            f"{package} is not installed: pip install 'jaxlab[exact]'", name=package
        ) from error

"""What loaders of packaged data share: a checksum, and the error if a package is missing."""

import hashlib

import numpy as np

__all__ = ["check_digest", "missing_package"]


def missing_package(what: str, package: str, error: ImportError) -> ImportError:
    """The error to raise where ``what`` needs an optional package.

    Example:
        >>> missing_package("the digits table", "scikit-learn", ImportError(name="sklearn"))
        ImportError("the digits table needs scikit-learn: pip install 'jaxlab[experiments]'")
    """
    return ImportError(
        f"{what} needs {package}: pip install 'jaxlab[experiments]'", name=error.name
    )


def check_digest(what: str, package: str, expected: str, *arrays: np.ndarray) -> None:
    """Raise ``ValueError`` unless the arrays' bytes have this sha256.

    Example:
        >>> zeros = np.zeros(1)
        >>> check_digest("zeros", "numpy", hashlib.sha256(zeros.tobytes()).hexdigest(), zeros)
    """
    digest = hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()
    if digest != expected:
        raise ValueError(
            f"{what} must have the sha256 {expected}, got {digest}: the installed {package} "
            "ships other numbers"
        )

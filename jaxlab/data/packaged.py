"""What loaders of packaged data share: a checksum."""

import hashlib

import numpy as np

__all__ = ["check_digest"]


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

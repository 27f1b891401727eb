"""English text that comes with Python, and text as bytes."""

import numpy as np
from jaxtyping import Int

__all__ = ["encode_bytes", "python_manual"]


def python_manual() -> str:
    """The language reference by topics, as Python's own ``help`` shows it: about 460 kB.

    It is that of the running interpreter, so its length differs between versions of Python.

    Example:
        >>> text = python_manual()
        >>> "statement" in text, len(text) > 100_000
        (True, True)
    """
    from pydoc_data.topics import topics

    return "\n\n".join(topics[name] for name in sorted(topics))


def encode_bytes(text: str) -> Int[np.ndarray, " bytes"]:
    """The UTF-8 bytes of a text as tokens from 0 to 255.

    Example:
        >>> encode_bytes("Aé").tolist()
        [65, 195, 169]
    """
    return np.frombuffer(text.encode(), np.uint8).astype(np.int32)

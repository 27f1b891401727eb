"""Files that are written whole or not at all."""

import contextlib
import io
import json
import os
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from jaxlab.core.trees import is_key

__all__ = [
    "UnreadableFileError",
    "json_text",
    "load_leaves",
    "read_header",
    "save_leaves",
    "usable_directory",
    "usable_file",
    "write_bytes",
    "write_json",
    "write_text",
]


class UnreadableFileError(ValueError):
    """A file of leaves is damaged, or is no such file."""


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file through a temporary neighbour and a rename, so that no half file is ever seen.

    Raises:
        OSError: The folder cannot be written; the old file, if any, is untouched.
    """
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def write_text(path: Path, content: str) -> None:
    """Write a text file whole."""
    write_bytes(path, content.encode())


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file whole. Infinities and NaN become strings, so that every reader accepts it.

    Raises:
        TypeError: ``content`` holds something that JSON does not know.
    """
    write_text(path, json_text(content))


def json_text(content: Any) -> str:
    """What ``write_json`` writes.

    Raises:
        TypeError: ``content`` holds something that JSON does not know.
    """
    return json.dumps(_plain(content), indent=2, allow_nan=False) + "\n"


def usable_directory(path: Path, name: str = "out") -> Path:
    """Make a folder and prove that a file can be written there, before any work is done.

    Raises:
        ValueError: With the argument's ``name``, the path and what the system said.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        reason = error.strerror or str(error)
        raise ValueError(
            f"{name} must be a folder that can be written, got {str(path)!r}: {reason}"
        ) from error
    return path


def usable_file(path: Path, name: str) -> None:
    """Prove that a file could be written, before any work is done.

    Raises:
        ValueError: With the argument's ``name`` and the path.
    """
    usable_directory(path.parent, f"{name}'s folder")
    if path.is_dir():
        raise ValueError(f"{name} must be a file, got {str(path)!r}, which is a folder")


def save_leaves(path: Path, tree: PyTree, **header: Any) -> None:
    """Save the leaves of a tree and a JSON header as one npz file, written whole.

    Typed PRNG keys are stored by their data.
    """
    arrays = {f"leaf_{i}": np.asarray(_raw(x)) for i, x in enumerate(jax.tree.leaves(tree))}
    arrays["header"] = np.array(json.dumps(_plain(header), allow_nan=False))
    stream = io.BytesIO()
    np.savez(stream, **arrays)  # pyright: ignore[reportArgumentType]
    write_bytes(path, stream.getvalue())


def load_leaves(
    path: Path, like: PyTree | Callable[[dict[str, Any]], PyTree]
) -> tuple[PyTree, dict[str, Any]]:
    """Load what ``save_leaves`` wrote.

    Args:
        path: The npz file.
        like: A tree of the same structure, shapes and dtypes (arrays or
            ``jax.ShapeDtypeStruct``), or a function from the header to one.

    Raises:
        UnreadableFileError: The file is damaged, or is no such file.
        ValueError: Its leaves do not fit ``like``.
    """
    header, leaves = _read(path)
    template = like(header) if callable(like) else like
    expected, structure = jax.tree.flatten(template)
    if len(expected) != len(leaves):
        raise ValueError(f"{path} holds {len(leaves)} arrays where {len(expected)} were expected")
    return jax.tree.unflatten(
        structure,
        [_cooked(path, leaf, wanted) for leaf, wanted in zip(leaves, expected, strict=True)],
    ), header


def read_header(path: Path) -> dict[str, Any]:
    """The header alone of what ``save_leaves`` wrote.

    Raises:
        UnreadableFileError: The file is damaged, or is no such file.
    """
    return _read(path)[0]


def _read(path: Path) -> tuple[dict[str, Any], list[np.ndarray]]:
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as stored:
            header = json.loads(str(stored["header"]))
            return header, [stored[f"leaf_{i}"] for i in range(len(stored.files) - 1)]
    except (OSError, KeyError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise UnreadableFileError(
            f"path must be a file of saved leaves, got {str(path)!r}: {error}"
        ) from error


def _raw(leaf: Any) -> Any:
    return jax.random.key_data(leaf) if is_key(leaf) else leaf


def _cooked(path: Path, leaf: np.ndarray, wanted: Any) -> Any:
    if is_key(wanted):
        return jax.random.wrap_key_data(jnp.asarray(leaf))
    shape, dtype = np.shape(wanted), np.dtype(getattr(wanted, "dtype", type(wanted)))
    if leaf.shape != shape or leaf.dtype != dtype:
        raise ValueError(
            f"{path} holds an array of shape {leaf.shape} and dtype {leaf.dtype} where shape "
            f"{shape} and dtype {dtype} were expected"
        )
    return leaf


def _plain(content: Any) -> Any:
    """Turn paths, arrays, enumerations and named tuples into what JSON knows."""
    if isinstance(content, Mapping):
        return {str(key): _plain(value) for key, value in content.items()}
    if hasattr(content, "_asdict"):
        return _plain(content._asdict())
    if isinstance(content, list | tuple | set | frozenset):
        return [_plain(item) for item in content]
    if isinstance(content, np.ndarray | np.generic | jax.Array):
        return _plain(np.asarray(content).tolist())
    if isinstance(content, Path):
        return str(content)
    if isinstance(content, bool | int | str) or content is None:
        return content
    if isinstance(content, float):
        return content if np.isfinite(content) else str(content)
    raise TypeError(f"cannot write {type(content).__name__} as JSON")

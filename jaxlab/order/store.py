"""What a run keeps on disk, so that a killed one goes on and memory does not grow with sources.

Files are named by the digests of what they are of: renamed sources are found again.
"""

import io
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from jaxlab.core.files import (
    UnreadableFileError,
    load_leaves,
    save_leaves,
    write_bytes,
    write_json,
)
from jaxlab.order.model import Batch

__all__ = ["Store", "inner_products", "open_store"]

_COLUMNS = 1 << 22
"""How many numbers of all gradients are in memory at a time."""


class Store:
    """The folder ``checkpoints`` of a run."""

    def __init__(self, folder: Path):
        self.folder = folder
        for name in ("batches", "gradients", "products"):
            (folder / name).mkdir(exist_ok=True)

    def save_gradients(self, digest: str, batch: Batch, grads: np.ndarray, seconds: float) -> None:
        """Keep a source's batch and its halves' gradients."""
        leaves = [(np.shape(leaf), str(leaf.dtype)) for leaf in batch]
        save_leaves(self._batch(digest), batch, leaves=leaves, seconds=seconds)
        write_bytes(self._gradient(digest), _npy(grads))

    def has_gradients(self, digest: str) -> bool:
        """Whether they are there and whole."""
        try:
            self.gradients(digest)
            self.batch(digest)
        except (OSError, ValueError):
            return False
        return True

    def gradients(self, digest: str) -> Float[np.ndarray, "2 size"]:
        """The halves' gradients, mapped from the disk."""
        return np.load(self._gradient(digest), mmap_mode="r")

    def batch(self, digest: str) -> tuple[Batch, float]:
        """A source's batch, and how many seconds it and its gradients took."""

        def like(header: dict[str, Any]) -> Batch:
            leaves: list[Any] = [
                np.broadcast_to(np.zeros((), kind), shape) for shape, kind in header["leaves"]
            ]
            return Batch(*leaves)

        batch, header = load_leaves(self._batch(digest), like)
        return batch, header["seconds"]

    def save_products(self, digest: str, found: Mapping[str, np.ndarray], seconds: float) -> None:
        """Keep what a source's products with the target's gradient gave."""
        save_leaves(self._product(digest), dict(found), seconds=seconds)

    def products(self, digest: str, like: Mapping[str, Any]) -> tuple[dict, float] | None:
        """The same, and how many seconds they took; ``None`` if they are not there."""
        try:
            found, header = load_leaves(self._product(digest), dict(like))
        except UnreadableFileError:
            return None
        return found, header["seconds"]

    def drop_large(self) -> None:
        """Remove what only an unfinished run needs."""
        for name in ("batches", "gradients"):
            shutil.rmtree(self.folder / name, ignore_errors=True)

    def _batch(self, digest: str) -> Path:
        return self.folder / "batches" / f"{digest}.npz"

    def _gradient(self, digest: str) -> Path:
        return self.folder / "gradients" / f"{digest}.npy"

    def _product(self, digest: str) -> Path:
        return self.folder / "products" / f"{digest}.npz"


def open_store(out: Path, described: dict[str, Any], *, restart: bool) -> Store:
    """The store of a run; a new one, or one to go on from.

    Args:
        out: The run's folder.
        described: What decides the numbers: ``settings``, ``model``, ``target``, ``sources``.
        restart: Whether to throw away what is there.

    Raises:
        ValueError: It is another run's, and ``restart`` is not asked; the message says what
            differs. Or it is none of ours at all.
    """
    folder = out / "checkpoints"
    if folder.exists() and any(folder.iterdir()):
        stored = _stored(folder)
        if stored is None:
            raise ValueError(
                f"out must be a new folder or that of an earlier run, got {str(out)!r} with a "
                "checkpoints folder but without a readable checkpoints/run.json"
            )
        changes = _changes(stored, described)
        if restart:
            shutil.rmtree(folder)
        elif changes:
            raise ValueError(
                f"out must be that of the same run, got {str(out)!r} with {'; '.join(changes)}. "
                "Repeat what it was, choose another --out, or begin anew with --restart"
            )
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "run.json", described)
    return Store(folder)


def _stored(folder: Path) -> dict[str, Any] | None:
    try:
        stored = json.loads((folder / "run.json").read_text())
        fine = all(isinstance(stored[name], dict) for name in ("settings", "model", "sources"))
        return stored if fine and "target" in stored else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _changes(stored: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """In words. Names of files do not count."""
    told = [
        f"{name.replace('_', '-')} {stored['settings'].get(name)!r}, now {value!r}"
        for name, value in json.loads(json.dumps(now["settings"])).items()
        if stored["settings"].get(name) != value
    ]
    if stored["model"] != now["model"]:
        told.append(f"the model {stored['model']}, now {now['model']}")
    if stored["target"] != now["target"]:
        told.append("another target")
    before, after = stored["sources"], now["sources"]
    if sorted(before.values()) != sorted(after.values()):
        new = [name for name, digest in after.items() if digest not in before.values()]
        gone = [name for name, digest in before.items() if digest not in after.values()]
        listed = [
            f"{what} {', '.join(names[:3])}{', ...' if len(names) > 3 else ''}"
            for what, names in (("without", new), ("with", gone))
            if names
        ]
        told.append(f"sources {' and '.join(listed) or 'in other numbers'}")
    return told


def inner_products(
    gradients: Sequence[Float[np.ndarray, "2 size"]], vectors: Float[np.ndarray, "vectors size"]
) -> Float[np.ndarray, "sources 2 vectors"]:
    """Of every half's gradient with every vector, summed in float64, a few columns at a time."""
    size = vectors.shape[1]
    width = max(1024, _COLUMNS // (2 * len(gradients)))
    total = np.zeros((len(gradients), 2, len(vectors)))
    for start in range(0, size, width):
        part = slice(start, start + width)
        total += np.stack([pair[:, part] for pair in gradients]) @ vectors[:, part].T
    return total


def _npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.ascontiguousarray(array), allow_pickle=False)
    return stream.getvalue()

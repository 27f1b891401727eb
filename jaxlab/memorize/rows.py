"""Rows of an npy or npz file, of which only a block is in memory at a time."""

import contextlib
import dataclasses
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Float, Int

__all__ = ["AS_STORED", "Rows", "Scale", "ScaleName", "open_rows", "own_scale", "same_scale"]

ScaleName: TypeAlias = Literal["auto", "none", "unit"]
"""How the numbers of a file become those of the analysis."""


class Scale(NamedTuple):
    """What every number is multiplied by, and what is added then.

    Attributes:
        factor: Positive.
        shift: In the units that come out.
    """

    factor: float = 1.0
    shift: float = 0.0


AS_STORED = Scale()
"""Changes nothing."""


@dataclasses.dataclass(frozen=True)
class Rows:
    """The rows of an array on disk; made by ``open_rows``.

    Attributes:
        name: The argument that the file came by, for messages.
        path: The file as it was given.
        array: The npy file that holds the array.
        dtype: Of the stored numbers.
        shape: ``(rows, ...)``.
        scale: Applied to all that is read.
    """

    name: str
    path: Path
    array: Path
    dtype: np.dtype
    shape: tuple[int, ...]
    scale: Scale = AS_STORED

    def __len__(self) -> int:
        """How many rows there are."""
        return self.shape[0]

    @property
    def row_shape(self) -> tuple[int, ...]:
        """The shape of one row."""
        return self.shape[1:]

    @property
    def width(self) -> int:
        """How many numbers a row has."""
        return int(np.prod(self.row_shape))

    def take(self, indices: Int[np.ndarray, " some"]) -> Float[np.ndarray, "some width"]:
        """Some rows, flattened, in float64 and scaled.

        The file is mapped for this call alone, so that pages that were read are given back.
        """
        mapped = np.load(self.array, mmap_mode="r", allow_pickle=False)
        chosen = mapped[indices].reshape(len(indices), self.width).astype(np.float64)
        chosen *= self.scale.factor
        # Also turns -0 into 0, so that equal rows have equal bytes.
        chosen += self.scale.shift + 0.0
        return chosen


def own_scale(rows: Rows, scale: ScaleName) -> Scale:
    """The scale that a file has by itself: bytes become [-1, 1], as diffusion models take images.

    Example:
        >>> rows = Rows("DATA", Path("x.npy"), Path("x.npy"), np.dtype(np.uint8), (5, 3))
        >>> own_scale(rows, "auto").factor * 255 + own_scale(rows, "auto").shift
        1.0
    """
    if scale == "auto" and rows.dtype == np.uint8:
        return Scale(1 / 127.5, -1.0)
    return AS_STORED


def same_scale(low: float, high: float) -> Scale:
    """The scale that brings the numbers from ``low`` to ``high`` to [-1, 1].

    Example:
        >>> same_scale(0.0, 16.0)
        Scale(factor=0.125, shift=-1.0)
    """
    factor = 2 / (high - low)
    return Scale(factor, -1.0 - low * factor)


@contextlib.contextmanager
def open_rows(name: str, path: Path, key: str = "", key_flag: str = "key") -> Iterator[Rows]:
    """Look at an array of rows without reading it.

    The archive of an npz file cannot be mapped into memory: its array is unpacked into the folder
    for temporary files, and removed at the end.

    Args:
        name: What to call the file in messages.
        path: An npy or npz file; what it holds decides, not its name.
        key: The array of an npz file, if it has several.
        key_flag: The flag that chooses it, for messages.

    Raises:
        ValueError: The file cannot be read, or is no array of numbers in rows.
    """
    if not path.is_file():
        kind = "a folder" if path.is_dir() else "nothing"
        raise ValueError(f"{name} must be an npy or npz file, got {kind} at {str(path)!r}")
    with contextlib.ExitStack() as stack:
        array = path
        try:
            if _is_archive(path):
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="jaxlab-"))
                array = _unpacked(name, path, key, key_flag, Path(folder))
            elif key:
                raise ValueError(
                    f"{key_flag} must be left out, since {str(path)!r} is no npz file, got {key!r}"
                )
            dtype, shape = _header(name, path, array)
        except OSError as error:
            raise ValueError(
                f"{name} must be a file that can be read, got {str(path)!r}: "
                f"{error.strerror or error}"
            ) from error
        yield Rows(name, path, array, dtype, shape)


def _is_archive(path: Path) -> bool:
    with path.open("rb") as stream:
        return stream.read(2) == b"PK"


def _unpacked(name: str, path: Path, key: str, key_flag: str, folder: Path) -> Path:
    """The chosen array of an npz file as an npy file."""
    try:
        with zipfile.ZipFile(path) as archive:
            known = [
                entry.removesuffix(".npy") for entry in archive.namelist() if entry.endswith(".npy")
            ]
            if not known:
                raise ValueError(f"{name} must hold an array, got {str(path)!r} with none")
            if key not in known and (key or len(known) > 1):
                raise ValueError(
                    f"{key_flag} must be one of the arrays of {str(path)!r}, {', '.join(known)}, "
                    f"got {repr(key) if key else 'none'}"
                )
            array = folder / "array.npy"
            with archive.open(f"{key or known[0]}.npy") as packed, array.open("wb") as unpacked:
                shutil.copyfileobj(packed, unpacked, 1 << 20)
            return array
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise ValueError(
            f"{name} must be an npz file that is whole, got {str(path)!r}: {error}"
        ) from error


def _header(name: str, path: Path, array: Path) -> tuple[np.dtype, tuple[int, ...]]:
    """What the array is, from the beginning of its file."""
    with array.open("rb") as stream:
        magic = stream.read(6)
    if magic != b"\x93NUMPY":
        raise ValueError(
            f"{name} must be an npy or npz file as written by numpy.save, got {str(path)!r}, "
            "which is neither"
        )
    try:
        mapped = np.load(array, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        if "object" in str(error):
            raise ValueError(
                f"{name} must hold numbers, got Python objects in {str(path)!r}, which are never "
                "unpickled; rows of different lengths?"
            ) from error
        raise ValueError(
            f"{name} must be an npy file that is whole, got {str(path)!r}: {error}"
        ) from error
    if mapped.dtype.kind not in "buif":
        raise ValueError(
            f"{name} must hold integers or floats, got dtype {mapped.dtype} in {str(path)!r}"
        )
    if mapped.ndim < 2 or not mapped.size:
        raise ValueError(
            f"{name} must have shape (rows, ...) with at least two axes and no empty one, got "
            f"{mapped.shape} in {str(path)!r}"
        )
    return mapped.dtype, mapped.shape

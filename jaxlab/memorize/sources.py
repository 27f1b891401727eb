"""The files of one analysis: opened, read once, scaled, and found fit or not."""

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from jaxlab.core.progress import Track
from jaxlab.memorize.rows import AS_STORED, Rows, Scale, ScaleName, open_rows, own_scale, same_scale
from jaxlab.memorize.survey import Survey, first_equals, shared_rows, survey

__all__ = ["Source", "check_apart", "check_distinct", "open_files", "read_sources", "shared"]


class Source(NamedTuple):
    """A file and what one pass over it told.

    Attributes:
        rows: The file.
        plain: The same without the scale that all files share; its rows are compared, since scaling
            would round rows of float32 and of float64 apart.
        survey: In the units after scaling, but for the hashes, which are of ``plain``.
        first: For every row the first row that is the same.
    """

    rows: Rows
    plain: Rows
    survey: Survey
    first: Int[np.ndarray, " rows"]

    @property
    def kept(self) -> Int[np.ndarray, " kept"]:
        """The rows without those that repeat an earlier one."""
        return np.flatnonzero(self.first == np.arange(len(self.first)))

    @property
    def repeats(self) -> Int[np.ndarray, " repeats"]:
        """The rows that repeat an earlier one."""
        return np.flatnonzero(self.first != np.arange(len(self.first)))


@contextlib.contextmanager
def open_files(
    data: Path,
    holdout: Path | None,
    samples: Path | None,
    keys: tuple[str, str, str],
) -> Iterator[tuple[Rows, Rows | None, Rows | None]]:
    """Open the files, ``None`` for those that are not given, and compare the shapes of their rows.

    Args:
        data: The training set.
        holdout: Held-out rows.
        samples: Samples of a model.
        keys: The arrays of the three files, empty for the only one.

    Raises:
        ValueError: A file is unusable, or its rows are unlike those of ``data``.
    """
    if holdout is None and keys[1]:
        raise ValueError(f"holdout-key must come with a holdout, got {keys[1]!r} alone")
    if samples is None and keys[2]:
        raise ValueError(f"samples-key must come with samples, got {keys[2]!r} alone")
    with contextlib.ExitStack() as stack:

        def opened(name: str, path: Path, key: str, flag: str) -> Rows:
            return stack.enter_context(open_rows(name, path, key, flag))

        rows = opened("DATA", data, keys[0], "key")
        others = []
        for name, path, key in zip(
            ("holdout", "samples"), (holdout, samples), keys[1:], strict=True
        ):
            other = None if path is None else opened(name, path, key, f"{name}-key")
            if other is not None:
                _check_rows_fit(rows, other)
            others.append(other)
        yield rows, others[0], others[1]


def _check_rows_fit(data: Rows, rows: Rows) -> None:
    """Equal shapes, or one of them flat; (3, 32, 32) and (32, 32, 3) are not the same images."""
    flat = 1 in (len(data.row_shape), len(rows.row_shape))
    if rows.width != data.width or not (flat or rows.row_shape == data.row_shape):
        raise ValueError(
            f"{rows.name} must have rows of shape {data.row_shape} like DATA, got {rows.row_shape}"
            f" (files of shapes {rows.shape} and {data.shape})"
        )


def read_sources(
    files: list[Rows], scale: ScaleName, block_rows: int, track: Track
) -> dict[str, Source]:
    """One pass over every file; a scale that all files share is that of the first one."""
    sources = {}
    common = None
    for file in files:
        plain = rows = dataclasses.replace(file, scale=own_scale(file, scale))
        seen = survey(plain, block_rows=block_rows, track=track)
        first = first_equals(plain, seen.hashes, block_rows=block_rows)
        if scale == "unit":
            if common is None and seen.low < seen.high:
                common = same_scale(seen.low, seen.high)
            # Equal numbers throughout cannot be scaled; the check of DATA says so.
            rows, seen = _rescaled(plain, seen, common or AS_STORED)
        sources[file.name] = Source(rows, plain, seen, first)
    return sources


def _rescaled(rows: Rows, seen: Survey, scale: Scale) -> tuple[Rows, Survey]:
    factor, shift = scale
    mean = seen.mean
    return dataclasses.replace(rows, scale=scale), seen._replace(
        low=seen.low * factor + shift,
        high=seen.high * factor + shift,
        mean=mean * factor + shift,
        square=factor**2 * seen.square + 2 * factor * shift * mean + shift**2,
        radius=factor * seen.radius,
    )


def check_distinct(whole: Source, to_split: bool) -> None:
    """Raise ``ValueError`` unless there are two different rows, and one more to split off."""
    rows, kept = whole.rows, whole.kept
    least = 3 if to_split else 2
    if len(kept) == 1:
        got = f"{len(rows)} rows that are all the same" if len(rows) > 1 else "a single row"
        raise ValueError(f"DATA must have rows that differ, got {got}")
    if len(kept) < least:
        why = ", one of them to hold out" if to_split else ""
        raise ValueError(
            f"DATA must have at least {least} different rows{why}, got {len(kept)} among its "
            f"{len(rows)}"
        )


def shared(whole: Source, other: Source, block_rows: int) -> Int[np.ndarray, "shared 2"]:
    """Pairs of an index of ``other`` and of the first row of ``whole`` that is the same."""
    hashes = (whole.survey.hashes, other.survey.hashes)
    return shared_rows(whole.plain, hashes[0], other.plain, hashes[1], block_rows=block_rows)


def check_apart(whole: Source, held: Source, block_rows: int) -> None:
    """Raise ``ValueError`` if a held-out row is a training row, and say which."""
    pairs = shared(whole, held, block_rows)
    if len(pairs):
        shown = ", ".join(f"{i} = {j}" for i, j in pairs[:5]) + (", ..." if len(pairs) > 5 else "")
        raise ValueError(
            f"holdout must have no row of DATA, which would cover its own noise, got {len(pairs)} "
            f"of {len(held.rows)} rows that are in both (index in holdout = index in DATA): {shown}"
        )

"""One pass over the rows of a file: are they finite, how large, and which are the same?

Rows count as the same if they agree after rounding to float32, in which networks learn them. Then
a held-out row of float32 is found among training rows of float64.
"""

import hashlib
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, UInt64

from jaxlab.core.progress import Track, untracked
from jaxlab.memorize.rows import Rows

__all__ = [
    "Survey",
    "block_size",
    "blocks_of",
    "first_equals",
    "shared_rows",
    "survey",
]

BLOCK_BYTES = 1 << 24
"""What a block of rows may take in float64."""


class Survey(NamedTuple):
    """What one pass over the rows tells.

    Attributes:
        low: The least number.
        high: The largest number.
        mean: The mean of the numbers.
        square: The mean of their squares.
        radius: The root mean square distance of the rows from their mean.
        constant: The indices of rows whose numbers are all equal.
        hashes: Of the rows, rounded to float32.
    """

    low: float
    high: float
    mean: float
    square: float
    radius: float
    constant: Int[np.ndarray, " constant"]
    hashes: UInt64[np.ndarray, " rows"]


def block_size(width: int) -> int:
    """How many rows of float64 make a block, at least 64.

    Example:
        >>> block_size(3072)
        682
    """
    return max(64, BLOCK_BYTES // (8 * width))


def blocks_of(indices: Int[np.ndarray, " some"], block_rows: int) -> list[np.ndarray]:
    """Blocks of at most ``block_rows`` indices, of at most two sizes.

    Example:
        >>> [len(block) for block in blocks_of(np.arange(10), 4)]
        [4, 3, 3]
    """
    return np.array_split(indices, -(-len(indices) // block_rows))


def survey(rows: Rows, *, block_rows: int, track: Track = untracked) -> Survey:
    """Read all rows once.

    Raises:
        ValueError: A row holds NaN or infinity; how many do, and which is the first.
    """
    hashes = np.empty(len(rows), np.uint64)
    bad, constant = [], []
    low, high, squares = np.inf, -np.inf, 0.0
    seen, mean, scatter = 0, np.zeros(rows.width), 0.0
    for block in track(blocks_of(np.arange(len(rows)), block_rows), f"reading {rows.name}"):
        values = rows.take(block)
        single = _single(values)
        finite = np.isfinite(single).all(axis=1)
        bad.append(block[~finite])
        if not finite.all():
            continue
        hashes[block] = [_digest(row) for row in single]
        least, most = values.min(axis=1), values.max(axis=1)
        constant.append(block[least == most])
        low, high = min(low, least.min()), max(high, most.max())
        squares += np.square(values).sum()
        # Of the rows so far and of the block together, as Chan, Golub and LeVeque join them.
        own = values.mean(axis=0)
        apart = own - mean
        share = len(block) / (seen + len(block))
        scatter += np.square(values - own).sum() + seen * share * (apart @ apart)
        mean += share * apart
        seen += len(block)
    wrong = np.concatenate(bad)
    if len(wrong):
        raise ValueError(
            f"{rows.name} must be finite, also in float32, got {len(wrong)} of {len(rows)} rows "
            f"with NaN or infinity, the first at index {wrong[0]}"
        )
    return Survey(
        float(low),
        float(high),
        float(mean.mean()),
        float(squares / (len(rows) * rows.width)),
        float((scatter / len(rows)) ** 0.5),
        np.concatenate(constant),
        hashes,
    )


def first_equals(
    rows: Rows, hashes: UInt64[np.ndarray, " rows"], *, block_rows: int
) -> Int[np.ndarray, " rows"]:
    """For every row the index of the first row that is the same; its own if it is the first."""
    own = np.arange(len(rows))
    _, first, group = np.unique(hashes, return_index=True, return_inverse=True)
    found = first[group]
    later = np.flatnonzero(found != own)
    same = _are_same(rows, later, rows, found[later], block_rows)
    found[later[~same]] = later[~same]
    return found


def shared_rows(
    rows: Rows,
    hashes: UInt64[np.ndarray, " rows"],
    others: Rows,
    other_hashes: UInt64[np.ndarray, " others"],
    *,
    block_rows: int,
) -> Int[np.ndarray, "shared 2"]:
    """Pairs of an index of ``others`` and of the first of ``rows`` that is the same."""
    known, first = np.unique(hashes, return_index=True)
    place = np.minimum(np.searchsorted(known, other_hashes), len(known) - 1)
    hits = np.flatnonzero(known[place] == other_hashes)
    found = first[place[hits]]
    same = _are_same(others, hits, rows, found, block_rows)
    return np.stack([hits[same], found[same]], axis=1)


def _are_same(
    left: Rows,
    left_indices: Int[np.ndarray, " pairs"],
    right: Rows,
    right_indices: Int[np.ndarray, " pairs"],
    block_rows: int,
) -> Bool[np.ndarray, " pairs"]:
    """Whether pairs of rows, whose hashes agree, really are the same."""
    same = np.zeros(len(left_indices), bool)
    for start in range(0, len(same), block_rows):
        part = slice(start, start + block_rows)
        one, other = left.take(left_indices[part]), right.take(right_indices[part])
        same[part] = (_single(one) == _single(other)).all(axis=1)
    return same


def _single(values: Float[np.ndarray, "rows width"]) -> np.ndarray:
    with np.errstate(over="ignore"):  # what is too large becomes infinite, and is told
        return values.astype(np.float32) + np.float32(0)


def _digest(row: np.ndarray) -> int:
    return int.from_bytes(hashlib.blake2b(row.tobytes(), digest_size=8).digest(), "little")

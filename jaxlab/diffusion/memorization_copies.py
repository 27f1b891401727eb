"""Is a sample a copy? Its distances to the two nearest rows of the training set.

The rows pass in chunks, and blocks of them go together by ``merge_nearest``. Distances are computed
once more from the differences, so that float32 is enough.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxlab.core.checks import check_count, check_value
from jaxlab.core.types import Scalar
from jaxlab.diffusion.memorization_chunks import check_table, in_chunks, out_of_chunks

__all__ = [
    "COPY_RATIO",
    "Nearest",
    "distance_ratios",
    "memorization_ratio",
    "merge_nearest",
    "nearest_rows",
]

COPY_RATIO = 1 / 3
"""A sample is memorized if its nearest row is nearer than this share of the second nearest."""


class Nearest(NamedTuple):
    """The two nearest rows of every sample.

    Attributes:
        first: The distance to the nearest row.
        second: The distance to the second nearest; infinite if there is one row.
        row: The index of the nearest row.
        num_rows: How many rows were searched.
    """

    first: Float[Array, " samples"]
    second: Float[Array, " samples"]
    row: Int[Array, " samples"]
    num_rows: Int[Array, ""]


def nearest_rows(
    samples: Float[Array, "samples dim"],
    rows: Float[Array, "rows dim"],
    *,
    chunk_size: int = 1024,
) -> Nearest:
    """The two nearest rows of every sample; blocks of rows go together by ``merge_nearest``.

    Raises:
        TypeError: ``chunk_size`` is not an integer.
        ValueError: The rows are of another length than the samples, one of the two is empty, or
            holds NaN or infinity.

    Example:
        >>> found = nearest_rows(jnp.array([[0.0], [5.0]]), jnp.array([[1.0], [-2.0], [5.0]]))
        >>> found.first.tolist(), found.second.tolist(), found.row.tolist()
        ([1.0, 0.0], [2.0, 4.0], [0, 2])
    """
    check_count("chunk_size", chunk_size)
    check_table("samples", samples)
    check_table("rows", rows)
    num_samples, dim = samples.shape
    if rows.shape[1] != dim:
        raise ValueError(f"rows must have length {dim} like the samples, got {rows.shape[1]}")
    dtype = jnp.result_type(samples, rows)
    centre = samples.mean(axis=0)
    row_chunks, is_row = in_chunks(rows.astype(dtype) - centre[None, :], chunk_size)
    sample_chunks, _ = in_chunks(samples.astype(dtype) - centre[None, :], chunk_size)

    def search(samples: Array) -> Nearest:
        far = jnp.full(len(samples), jnp.inf, dtype)
        start = Nearest(far, far, jnp.full(len(samples), -1, jnp.int32), jnp.zeros((), jnp.int32))

        def add(found: Nearest, chunk: tuple[Array, Array]) -> tuple[Nearest, None]:
            return merge_nearest(found, _search_chunk(samples, *chunk)), None

        return jax.lax.scan(add, start, (row_chunks, is_row))[0]

    found = jax.lax.map(search, sample_chunks)
    return Nearest(
        *(out_of_chunks(leaf, num_samples) for leaf in found[:-1]),
        num_rows=jnp.asarray(len(rows), jnp.int32),
    )


def _search_chunk(
    samples: Float[Array, "samples dim"],
    rows: Float[Array, "size dim"],
    is_row: Bool[Array, " size"],
) -> Nearest:
    # By default accelerators multiply float32 with the precision of shorter formats.
    products = jnp.matmul(samples, rows.T, precision=jax.lax.Precision.HIGHEST)
    # Without the sample's own square, which all rows share.
    order = jnp.square(rows).sum(axis=1)[None, :] / 2 - products
    order = jnp.where(is_row[None, :], order, jnp.inf)
    indices = []
    for _ in range(2):
        index = order.argmin(axis=1)
        indices.append(index)
        order = jnp.where(jnp.arange(len(rows))[None, :] == index[:, None], jnp.inf, order)
    # The expansion finds the rows, the differences say how far they are.
    distances = [
        jnp.where(is_row[index], jnp.linalg.norm(samples - rows[index], axis=1), jnp.inf)
        for index in indices
    ]
    if len(rows) == 1:
        distances[1] = jnp.full_like(distances[0], jnp.inf)
    swapped = distances[1] < distances[0]
    return Nearest(
        jnp.minimum(*distances),
        jnp.maximum(*distances),
        jnp.where(swapped, *reversed(indices)).astype(jnp.int32),
        is_row.sum(dtype=jnp.int32),
    )


def merge_nearest(first: Nearest, second: Nearest) -> Nearest:
    """The two nearest among the rows of ``first`` followed by those of ``second``.

    Example:
        >>> samples = jnp.array([[0.0]])
        >>> blocks = jnp.array([[[3.0], [1.0]], [[-2.0], [9.0]]])
        >>> merged = merge_nearest(*(nearest_rows(samples, block) for block in blocks))
        >>> merged.first.tolist(), merged.second.tolist(), merged.row.tolist()
        ([1.0], [2.0], [1])
    """
    later = second.first < first.first
    loser = jnp.maximum(first.first, second.first)
    return Nearest(
        jnp.minimum(first.first, second.first),
        jnp.minimum(loser, jnp.minimum(first.second, second.second)),
        jnp.where(later, second.row + first.num_rows, first.row),
        first.num_rows + second.num_rows,
    )


def distance_ratios(found: Nearest) -> Float[Array, " samples"]:
    """How much nearer the nearest row is than the second nearest, from 0 (a copy) to 1.

    A sample that coincides with two equal rows has a ratio of 0.

    Example:
        >>> found = nearest_rows(jnp.array([[1.0]]), jnp.array([[0.0], [5.0]]))
        >>> distance_ratios(found).tolist()
        [0.25]
    """
    return jnp.where(found.first > 0, found.first / found.second, 0.0)


def memorization_ratio(
    samples: Float[Array, "samples dim"],
    data: Float[Array, "rows dim"],
    *,
    ratio: Scalar = COPY_RATIO,
    chunk_size: int = 1024,
) -> Float[Array, ""]:
    """The share of samples that are memorized: much nearer to one row than to any other.

    A sample counts if its nearest row is closer than ``ratio`` times the second nearest. The rule
    depends on how many rows there are and on their own distances, so look at ``distance_ratios``
    as well.

    Args:
        samples: Of a model; float32 is enough.
        data: Its training set, of at least two rows.
        ratio: In (0, 1].
        chunk_size: How many samples meet how many rows at a time.

    Raises:
        TypeError: ``chunk_size`` is not an integer.
        ValueError: ``ratio`` is out of range, there are fewer than two rows or no sample, lengths
            differ, or NaN or infinity.

    Example:
        >>> float(memorization_ratio(jnp.array([[0.1], [2.5]]), jnp.array([[0.0], [5.0]])))
        0.5
    """
    check_value("ratio", ratio, lambda r: (r > 0) & (r <= 1), "in (0, 1]")
    found = nearest_rows(samples, data, chunk_size=chunk_size)
    if len(data) < 2:
        raise ValueError(f"data must hold at least 2 rows, got {len(data)}")
    copied = distance_ratios(found) < ratio
    return copied.mean(dtype=found.first.dtype)

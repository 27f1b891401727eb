"""Comparing every query with every row while only a chunk of the comparisons exists.

Memory is that of the tables and some ``chunk_size^2`` numbers, whatever their sizes.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxlab.core.checks import check_finite, check_float64, check_value

__all__ = ["check_levels", "check_rows", "check_table", "fold_rows", "in_chunks", "out_of_chunks"]


def check_table(name: str, table: Float[Array, "rows dim"]) -> None:
    """Raise ``ValueError`` unless this is ``[rows, dim]`` with entries, all of them finite."""
    if jnp.ndim(table) != 2 or not jnp.size(table):
        raise ValueError(f"{name} must have shape [rows, dim] with entries, got {jnp.shape(table)}")
    check_finite(name, table)


def check_rows(name: str, rows: Float[Array, "rows dim"]) -> None:
    """Raise as ``check_table``, and ``TypeError`` unless the entries are float64.

    Example:
        >>> with jax.enable_x64(True):
        ...     check_rows("rows", jnp.ones((2, 2)))
    """
    check_table(name, rows)
    check_float64(name, rows, "squared distances cancel at small noise")


def check_levels(sigmas: Float[Array, " levels"]) -> None:
    """Raise ``ValueError`` unless this is a vector of positive levels, in any order.

    Example:
        >>> check_levels(jnp.array([1.0, 0.0]))
        Traceback (most recent call last):
        ValueError: sigmas must be positive and finite, got [1.0, 0.0]
    """
    if jnp.ndim(sigmas) != 1 or not len(sigmas):
        raise ValueError(f"sigmas must be a vector of levels, got shape {jnp.shape(sigmas)}")
    check_value("sigmas", sigmas, lambda s: (s > 0) & (s < jnp.inf), "positive and finite")


def in_chunks(table: Float[Array, "rows dim"], chunk_size: int) -> tuple[Array, Array]:
    """Chunks of one size, the last filled up with zeros, and which rows are no filling."""
    num_chunks = -(-len(table) // chunk_size)
    size = -(-len(table) // num_chunks)
    filling = num_chunks * size - len(table)
    filled = jnp.pad(table, ((0, filling), (0, 0))).reshape(num_chunks, size, -1)
    return filled, (jnp.arange(num_chunks * size) < len(table)).reshape(num_chunks, size)


def out_of_chunks(chunks: Array, count: int) -> Array:
    """From ``[chunks, ..., size]`` to ``[..., count]``, without the filling."""
    joined = jnp.moveaxis(chunks, 0, -2)
    return joined.reshape(*joined.shape[:-2], -1)[..., :count]


def fold_rows(
    queries: Float[Array, "queries dim"],
    rows: Float[Array, "rows dim"],
    reduce: Callable[[Any], Any],
    merge: Callable[[Any, Any], Any],
    *,
    chunk_size: int,
) -> Any:
    """Reduce the squared distances between queries and rows, of which no more than a chunk exists.

    Args:
        queries: From where.
        rows: To where.
        reduce: Of ``[some queries, some rows]`` distances, infinite for filling, to a tree whose
            leaves end with an axis of queries.
        merge: Of the trees of different rows; zeros are neutral.
        chunk_size: How many queries meet how many rows at a time.

    Example:
        >>> sums = fold_rows(
        ...     jnp.zeros((1, 1)),
        ...     jnp.array([[1.0], [2.0]]),
        ...     lambda squares: jnp.exp(-squares).sum(axis=1),
        ...     jnp.add,
        ...     chunk_size=1,
        ... )
        >>> round(float(sums[0]), 4)  # exp(-1) + exp(-4)
        0.3862
    """
    centre = queries.mean(axis=0)[None, :]
    row_chunks, is_row = in_chunks(rows - centre, chunk_size)
    query_chunks, _ = in_chunks(queries - centre, chunk_size)

    def over_rows(queries: Array) -> Any:
        def reduced(chunk: tuple[Array, Array]) -> Any:
            rows, is_row = chunk
            norms = (jnp.square(table).sum(axis=1) for table in (queries, rows))
            of_query, of_row = norms
            squares = of_query[:, None] + of_row[None, :] - 2 * queries @ rows.T
            return reduce(jnp.where(is_row[None, :], jnp.maximum(squares, 0.0), jnp.inf))

        first = (row_chunks[0], is_row[0])
        shapes = jax.eval_shape(reduced, first)
        start = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        return jax.lax.scan(
            lambda total, chunk: (merge(total, reduced(chunk)), None), start, (row_chunks, is_row)
        )[0]

    folded = jax.lax.map(over_rows, query_chunks)
    return jax.tree.map(lambda leaf: out_of_chunks(leaf, len(queries)), folded)

r"""What noisy signals learn about the rows of a table, in chunks and one block at a time.

Nothing here grows with the number of rows: they pass in chunks, and ``observe_rows`` takes them one
block at a time, so that a table may be larger than memory. All levels share their noise :math:`z`,
so that two matrix products serve every level,

.. math::
    |y - x_i|^2 = |x - x_i|^2 + 2 \sigma z^T (x - x_i) + \sigma^2 |z|^2,
    \qquad y = x + \sigma z .

That expansion cancels at small noise, so that everything here wants float64.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxlab.core.checks import check_count, check_key
from jaxlab.diffusion.memorization_chunks import (
    check_levels,
    check_rows,
    in_chunks,
    out_of_chunks,
)
from jaxlab.diffusion.memorization_shells import ShellRadii

__all__ = [
    "Neighbours",
    "NoisyQueries",
    "merge_neighbours",
    "no_neighbours",
    "noisy_queries",
    "observe_rows",
]


class NoisyQueries(NamedTuple):
    """Signals and the noise that is added to them, times the level; made by ``noisy_queries``.

    Attributes:
        signals: Every signal as often as there is noise for it, copies next to each other.
        noise: Standard normal.
    """

    signals: Float[Array, "queries dim"]
    noise: Float[Array, "queries dim"]


class Neighbours(NamedTuple):
    """What noisy queries know of the rows that they have met.

    Attributes:
        nearest: The squared distance to the nearest row.
        row: The index of that row, counted over all blocks.
        total: The sum of the unnormalised posterior weights in units of the largest one: the
            largest posterior weight is ``1 / total``.
        covered: Whether the query lies in the shell of any row.
        num_rows: How many rows were met.
    """

    nearest: Float[Array, "levels queries"]
    row: Int[Array, "levels queries"]
    total: Float[Array, "levels queries"]
    covered: Bool[Array, "levels queries"]
    num_rows: Int[Array, ""]


def noisy_queries(
    key: Array, signals: Float[Array, "signals dim"], *, num_noise: int
) -> NoisyQueries:
    """Every signal with ``num_noise`` independent draws of noise, which all levels share.

    Raises:
        TypeError: ``key`` is not a typed key, ``num_noise`` no integer, or the signals are not
            float64.
        ValueError: There is no signal, or NaN or infinity.

    Example:
        >>> with jax.enable_x64(True):
        ...     noisy_queries(jax.random.key(0), jnp.zeros((3, 2)), num_noise=4).noise.shape
        (12, 2)
    """
    check_key("key", key)
    check_count("num_noise", num_noise)
    check_rows("signals", signals)
    repeated = jnp.repeat(signals, num_noise, axis=0)
    return NoisyQueries(repeated, jax.random.normal(key, repeated.shape, repeated.dtype))


def no_neighbours(queries: NoisyQueries, sigmas: Float[Array, " levels"]) -> Neighbours:
    """What the queries know before they have met a row.

    Example:
        >>> with jax.enable_x64(True):
        ...     queries = noisy_queries(jax.random.key(0), jnp.zeros((3, 2)), num_noise=4)
        ...     no_neighbours(queries, jnp.array([0.1, 1.0])).nearest.shape
        (2, 12)
    """
    check_levels(sigmas)
    shape, dtype = (len(sigmas), len(queries.signals)), queries.signals.dtype
    return Neighbours(
        jnp.full(shape, jnp.inf, dtype),
        jnp.full(shape, -1, jnp.int32),
        jnp.zeros(shape, dtype),
        jnp.zeros(shape, bool),
        jnp.zeros((), jnp.int32),
    )


def merge_neighbours(
    first: Neighbours, second: Neighbours, sigmas: Float[Array, " levels"]
) -> Neighbours:
    """What the same queries know of the rows of ``first`` followed by those of ``second``.

    Of two rows at the same distance the first counts as the nearest.

    Example:
        >>> def one_row(square):
        ...     one, row = jnp.ones((1, 1)), jnp.zeros((1, 1), int)
        ...     return Neighbours(square * one, row, one, one > 2, jnp.array(1))
        >>> merged = merge_neighbours(one_row(4.0), one_row(0.0), jnp.ones(1))
        >>> int(merged.row[0, 0]), round(float(merged.total[0, 0]), 4)  # 1 + exp(-4 / 2)
        (1, 1.1353)
    """
    nearest = jnp.minimum(first.nearest, second.nearest)

    def rescaled(seen: Neighbours) -> Array:
        # A side without rows has nothing to add; infinity minus infinity would be NaN.
        gap = jnp.where(jnp.isfinite(seen.nearest), seen.nearest - nearest, 0.0)
        return seen.total * jnp.exp(-gap / (2 * jnp.square(sigmas)[:, None]))

    return Neighbours(
        nearest,
        jnp.where(second.nearest < first.nearest, second.row + first.num_rows, first.row),
        rescaled(first) + rescaled(second),
        first.covered | second.covered,
        first.num_rows + second.num_rows,
    )


def observe_rows(
    seen: Neighbours,
    queries: NoisyQueries,
    sigmas: Float[Array, " levels"],
    rows: Float[Array, "rows dim"],
    *,
    radii: ShellRadii | None = None,
    chunk_size: int = 1024,
) -> Neighbours:
    """Let the queries meet another block of rows.

    Beyond its arguments and its result it needs some ``chunk_size^2`` numbers. Compile it once with
    ``jax.jit`` for blocks of equal size.

    Args:
        seen: What the queries know already; ``no_neighbours`` at first.
        queries: Signals with noise.
        sigmas: Positive, in any order.
        rows: A block of the training set.
        radii: The shells' radii; without them no query is covered.
        chunk_size: How many queries meet how many rows at a time.

    Raises:
        TypeError: ``chunk_size`` is not an integer, or the rows are not float64.
        ValueError: A level is not positive, the rows are of another length than the queries, there
            is no row, or NaN or infinity.

    Example:
        >>> with jax.enable_x64(True):
        ...     rows, sigmas = jnp.array([[-1.0], [1.0]]), jnp.array([0.1, 10.0])
        ...     queries = noisy_queries(jax.random.key(0), rows, num_noise=1)
        ...     seen = no_neighbours(queries, sigmas)
        ...     for block in (rows[:1], rows[1:]):
        ...         seen = observe_rows(seen, queries, sigmas, block)
        ...     int(seen.num_rows), (1 / seen.total).round(1).tolist()
        (2, [[1.0, 1.0], [0.5, 0.5]])
    """
    check_count("chunk_size", chunk_size)
    check_levels(sigmas)
    check_rows("rows", rows)
    num_queries, dim = queries.signals.shape
    if rows.shape[1] != dim:
        raise ValueError(f"rows must have length {dim} like the queries, got {rows.shape[1]}")
    if seen.nearest.shape != (len(sigmas), num_queries):
        raise ValueError(
            f"seen must be of {len(sigmas)} levels and {num_queries} queries, "
            f"got {seen.nearest.shape}"
        )
    # Distances between nearby points are small beside their distance to the origin.
    centre = queries.signals.mean(axis=0)
    row_chunks, is_row = in_chunks(rows - centre[None, :], chunk_size)
    signal_chunks, _ = in_chunks(queries.signals - centre[None, :], chunk_size)
    noise_chunks, _ = in_chunks(queries.noise, chunk_size)

    def meet(queries: tuple[Array, Array]) -> Neighbours:
        start = no_neighbours(NoisyQueries(*queries), sigmas)

        def add(seen: Neighbours, chunk: tuple[Array, Array]) -> tuple[Neighbours, None]:
            new = _meet_chunk(NoisyQueries(*queries), sigmas, radii, *chunk)
            return merge_neighbours(seen, new, sigmas), None

        return jax.lax.scan(add, start, (row_chunks, is_row))[0]

    met = jax.lax.map(meet, (signal_chunks, noise_chunks))
    new = Neighbours(
        *(out_of_chunks(leaf, num_queries) for leaf in met[:-1]),
        num_rows=jnp.asarray(len(rows), jnp.int32),
    )
    return merge_neighbours(seen, new, sigmas)


def _meet_chunk(
    queries: NoisyQueries,
    sigmas: Float[Array, " levels"],
    radii: ShellRadii | None,
    rows: Float[Array, "size dim"],
    is_row: Bool[Array, " size"],
) -> Neighbours:
    signals, noise = queries
    norms = jnp.square(signals).sum(axis=1)[:, None] + jnp.square(rows).sum(axis=1)[None, :]
    clean = norms - 2 * signals @ rows.T
    along = (signals * noise).sum(axis=1)[:, None] - noise @ rows.T
    lengths = jnp.square(noise).sum(axis=1)[:, None]

    def at_level(sigma: Array) -> tuple[Array, ...]:
        squares = jnp.maximum(clean + 2 * sigma * along + jnp.square(sigma) * lengths, 0.0)
        squares = jnp.where(is_row[None, :], squares, jnp.inf)
        nearest = squares.min(axis=1)
        shares = jnp.exp((nearest[:, None] - squares) / (2 * jnp.square(sigma)))
        if radii is None:
            covered = jnp.zeros(len(signals), bool)
        else:
            low, high = (jnp.square(sigma * radius) for radius in radii)
            covered = ((squares >= low) & (squares <= high)).any(axis=1)
        index = squares.argmin(axis=1).astype(jnp.int32)
        return nearest, index, shares.sum(axis=1), covered

    return Neighbours(*jax.lax.map(at_level, sigmas), num_rows=is_row.sum(dtype=jnp.int32))

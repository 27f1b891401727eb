"""The two curves, the danger zone and the copies among samples, of rows that are read in blocks."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxlab.core.progress import Track, untracked
from jaxlab.diffusion.memorization import (
    concentration_of,
    coverage_of,
    danger_zone,
    zone_ends,
)
from jaxlab.diffusion.memorization_bounds import coverage_level
from jaxlab.diffusion.memorization_copies import (
    Nearest,
    distance_ratios,
    merge_nearest,
    nearest_rows,
)
from jaxlab.diffusion.memorization_neighbours import (
    Neighbours,
    NoisyQueries,
    no_neighbours,
    noisy_queries,
    observe_rows,
)
from jaxlab.diffusion.memorization_shells import shell_radii
from jaxlab.memorize.rows import Rows
from jaxlab.memorize.survey import blocks_of

__all__ = [
    "Copies",
    "Curves",
    "Queries",
    "Zone",
    "default_ends",
    "draw_queries",
    "find_copies",
    "find_zone",
    "finer_levels",
    "measure_curves",
    "neighbours_of",
    "split_rows",
]

_observe = jax.jit(observe_rows)
_search = jax.jit(nearest_rows)


class Queries(NamedTuple):
    """Noisy training rows and noisy held-out rows.

    Attributes:
        own: Where the training rows among the queries are in the list of training rows.
        places: Where the held-out ones are in the list of held-out rows.
        train: Those rows with noise.
        held: Held-out rows with noise.
        train_noise: Draws per training row.
        held_noise: Draws per held-out row.
    """

    own: Int[np.ndarray, " signals"]
    places: Int[np.ndarray, " held"]
    train: NoisyQueries
    held: NoisyQueries
    train_noise: int
    held_noise: int


class Curves(NamedTuple):
    """Concentration and coverage with standard errors, levels in increasing order.

    Attributes:
        sigmas: The levels.
        weight: The concentration ``W``.
        weight_error: Its standard error.
        share: The coverage ``C``.
        share_error: Its standard error.
    """

    sigmas: Float[np.ndarray, " levels"]
    weight: Float[np.ndarray, " levels"]
    weight_error: Float[np.ndarray, " levels"]
    share: Float[np.ndarray, " levels"]
    share_error: Float[np.ndarray, " levels"]


class Zone(NamedTuple):
    """The levels at which both curves reach a threshold.

    Attributes:
        threshold: In (0, 1).
        low: The least such level, NaN if there is none.
        high: The largest one.
        next_below: The level of the grid below ``low``; NaN if there is none.
        next_above: The level of the grid above ``high``.
    """

    threshold: float
    low: float
    high: float
    next_below: float
    next_above: float


class Copies(NamedTuple):
    """How near samples are to training rows.

    Attributes:
        ratio: The distance to the nearest row over that to the second nearest.
        distance: The distance to the nearest row.
        row: The index of that row in its file.
    """

    ratio: Float[np.ndarray, " samples"]
    distance: Float[np.ndarray, " samples"]
    row: Int[np.ndarray, " samples"]


def split_rows(
    key: Array, kept: Int[np.ndarray, " kept"], num_held: int
) -> tuple[Int[np.ndarray, " train"], Int[np.ndarray, " held"]]:
    """Training and held-out rows at random, each in the order of the file."""
    order = _shuffled(key, len(kept))
    return kept[np.sort(order[num_held:])], kept[np.sort(order[:num_held])]


def _shuffled(key: Array, count: int) -> Int[np.ndarray, " count"]:
    """By NumPy, since XLA would compile a sort for every number of rows."""
    return np.random.default_rng(np.asarray(jax.random.key_data(key))).permutation(count)


def draw_queries(
    key: Array,
    rows: Rows,
    train: Int[np.ndarray, " train"],
    held_rows: Rows,
    held: Int[np.ndarray, " held"],
    *,
    num_queries: int,
) -> Queries:
    """At most ``num_queries`` of either kind; where rows are few, each has noise several times."""
    key_train, key_held, key_train_noise, key_held_noise = jax.random.split(key, 4)

    def chosen(key: Array, indices: np.ndarray) -> tuple[np.ndarray, int]:
        count = min(num_queries, len(indices))
        places = _shuffled(key, len(indices))[:count]
        return np.sort(places), max(1, num_queries // count)

    own, train_noise = chosen(key_train, train)
    places, held_noise = chosen(key_held, held)
    signals = (jnp.asarray(rows.take(train[own])), jnp.asarray(held_rows.take(held[places])))
    return Queries(
        own,
        places,
        noisy_queries(key_train_noise, signals[0], num_noise=train_noise),
        noisy_queries(key_held_noise, signals[1], num_noise=held_noise),
        train_noise,
        held_noise,
    )


def neighbours_of(
    signals: Float[Array, "signals width"],
    rows: Rows,
    indices: Int[np.ndarray, " some"],
    *,
    block_rows: int,
    track: Track = untracked,
    description: str = "neighbours",
) -> Nearest:
    """The two nearest of some rows for every signal; rows are counted among ``indices``."""
    found = None
    for block in track(blocks_of(indices, block_rows), description):
        new = _search(signals, jnp.asarray(rows.take(block)))
        # Waited for, or else blocks would be read ahead of the work and pile up in memory.
        found = jax.block_until_ready(new if found is None else merge_nearest(found, new))
    assert found is not None  # there is a block as there are rows
    return found


def default_ends(
    distances: Float[np.ndarray, " signals"], radius: float, width: int, c: float
) -> tuple[float, float]:
    """From where no shell is reached to where no row stands out.

    The lower end is half of where noise around the nearest twentieth of the signals begins to reach
    the shell of a neighbour. The upper end is the root mean square radius of the data, at which
    rows differ by no more than their noise.

    Args:
        distances: From signals to their nearest other rows, positive.
        radius: The rows' root mean square distance from their mean.
        width: The length of a row.
        c: The width of the shells.
    """
    low = float(coverage_level(float(np.quantile(distances, 0.05)), width, c)) / 2
    # Not so low that the grid gets coarse, as near-copies would have it.
    return float(np.clip(low, radius / 1e4, radius / 20)), radius


def measure_curves(
    queries: Queries,
    rows: Rows,
    train: Int[np.ndarray, " train"],
    sigmas: Float[np.ndarray, " levels"],
    c: float,
    *,
    block_rows: int,
    track: Track = untracked,
    description: str = "curves",
) -> Curves:
    """Both curves in one pass over the training rows."""
    # Queries of both kinds go together, so that one program serves both.
    both = NoisyQueries(
        *(jnp.concatenate(parts) for parts in zip(queries.train, queries.held, strict=True))
    )
    levels = jnp.asarray(sigmas)
    radii = shell_radii(rows.width, c)
    seen = no_neighbours(both, levels)
    for block in track(blocks_of(train, block_rows), description):
        new = _observe(seen, both, levels, jnp.asarray(rows.take(block)), radii=radii)
        seen = jax.block_until_ready(new)
    border = len(queries.train.signals)
    of_train, of_held = (
        Neighbours(*(leaf[:, part] for leaf in seen[:-1]), num_rows=seen.num_rows)
        for part in (slice(border), slice(border, None))
    )
    weight = concentration_of(of_train, jnp.asarray(queries.own), num_noise=queries.train_noise)
    cover = coverage_of(of_held, num_noise=queries.held_noise)
    parts = (levels, weight.weight, weight.weight_error, cover.share, cover.error)
    return Curves(*(np.asarray(part) for part in parts))


def finer_levels(
    curves: Curves, thresholds: tuple[float, ...], count: int
) -> Float[np.ndarray, " levels"] | None:
    """So many levels where a curve crosses a threshold; none if the grid meets no crossing.

    The zone begins where the coverage rises and ends where the concentration falls.

    Example:
        >>> curve = Curves(np.array([1.0, 2.0, 4.0]), np.array([1.0, 1.0, 0.0]), *np.zeros((3, 3)))
        >>> finer_levels(curve, (0.8,), 3).round(2).tolist()
        [2.38, 2.83, 3.36]
    """
    starts = set()
    for threshold in thresholds:
        rises = np.flatnonzero(curves.share >= threshold)[:1] - 1
        falls = np.flatnonzero(curves.weight >= threshold)[-1:]
        starts |= {int(i) for i in (*rises, *falls) if 0 <= i < len(curves.sigmas) - 1}
    if not starts:
        return None
    parts = np.array_split(np.arange(count), len(starts))
    levels = [
        np.geomspace(curves.sigmas[start], curves.sigmas[start + 1], len(part) + 2)[1:-1]
        for start, part in zip(sorted(starts), parts, strict=True)
    ]
    return np.concatenate(levels)


def find_zone(curves: Curves, threshold: float) -> Zone:
    """The danger zone on the grid of the curves.

    Example:
        >>> ones = np.ones(4)
        >>> curve = Curves(2.0 ** np.arange(4), ones, ones, np.array([0.1, 0.9, 1, 1]), ones)
        >>> find_zone(curve, 0.8)
        Zone(threshold=0.8, low=2.0, high=8.0, next_below=1.0, next_above=nan)
    """
    weight, share = jnp.asarray(curves.weight), jnp.asarray(curves.share)
    zone = danger_zone(weight, share, least_weight=threshold, least_share=threshold)
    low, high = (float(end) for end in zone_ends(jnp.asarray(curves.sigmas), zone))
    below, above = curves.sigmas[curves.sigmas < low], curves.sigmas[curves.sigmas > high]
    return Zone(
        threshold,
        low,
        high,
        float(below.max()) if len(below) else np.nan,
        float(above.min()) if len(above) else np.nan,
    )


def find_copies(
    samples: Rows,
    rows: Rows,
    kept: Int[np.ndarray, " kept"],
    *,
    block_rows: int,
    track: Track = untracked,
) -> Copies:
    """The nearest of some rows for every sample; both files pass in blocks."""
    parts = blocks_of(np.arange(len(samples)), block_rows)
    found = [
        neighbours_of(
            jnp.asarray(samples.take(part)),
            rows,
            kept,
            block_rows=block_rows,
            track=track,
            description=f"samples {number}/{len(parts)}",
        )
        for number, part in enumerate(parts, start=1)
    ]
    return Copies(
        np.concatenate([np.asarray(distance_ratios(part)) for part in found]),
        np.concatenate([np.asarray(part.first) for part in found]),
        kept[np.concatenate([np.asarray(part.row) for part in found])],
    )

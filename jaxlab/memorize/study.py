"""From files to findings: everything that ``jaxlab memorize`` computes."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from jaxlab.core.progress import Track, untracked
from jaxlab.diffusion.memorization_copies import distance_ratios
from jaxlab.diffusion.memorization_shells import shell_probability
from jaxlab.memorize.analysis import (
    Copies,
    Curves,
    Zone,
    default_ends,
    draw_queries,
    find_copies,
    find_zone,
    finer_levels,
    measure_curves,
    neighbours_of,
    split_rows,
)
from jaxlab.memorize.rows import Rows, Scale, ScaleName
from jaxlab.memorize.sources import Source, check_apart, check_distinct, read_sources, shared
from jaxlab.memorize.survey import block_size

__all__ = ["Found", "Settings", "Study", "study"]

NEAR = 1e-3
"""Below this share of the median distance two different rows are called near-copies."""

FEW = 10
"""Fewer held-out rows than this are warned of."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """The numbers that decide what is computed."""

    seed: int = 0
    """Of all random choices."""
    scale: ScaleName = "auto"
    """auto: bytes (uint8) become [-1, 1], other numbers stay; none: all stay; unit: the least and
    the largest number of DATA become -1 and 1, and the same for all files."""
    width: float | None = None
    """The width c of the shells, at most a quarter of a row's length; 5 or that if not given."""
    threshold: float = 0.8
    """What both curves must reach in the danger zone."""
    queries: int = 500
    """How many noisy training rows, and how many noisy held-out rows, are looked at."""
    sigmas: int = 24
    """How many noise levels; as many again go where the zone begins and ends."""
    sigma_min: float | None = None
    """The least level; from the distances between rows if not given."""
    sigma_max: float | None = None
    """The largest level; the rows' root mean square distance from their mean if not given."""
    block_rows: int | None = None
    """How many rows are in memory at a time; so many as fill 16 MiB if not given."""


class Found(NamedTuple):
    """What is known of samples, or of held-out rows for comparison.

    Attributes:
        source: Their file.
        chosen: Which of its rows were looked at.
        copies: Their distances.
        same: Pairs of one of all of the file's rows and the training row that is the same.
    """

    source: Source
    chosen: Int[np.ndarray, " chosen"]
    copies: Copies
    same: Int[np.ndarray, "same 2"]


class Study(NamedTuple):
    """All findings.

    Attributes:
        data: The training set's file, without held-out rows if those were split off.
        scale: What happened to the numbers of ``data``.
        train: The rows that the curves are of.
        held_out: Held-out rows.
        held_count: How many held-out rows there are.
        samples: Samples, if there are any.
        width: The width ``c`` of the shells.
        own_mass: The share of a row's own noise in its shell.
        curves: Both curves, levels in increasing order.
        zones: At the threshold, and below and above it by 0.1 as far as that makes sense.
        data_scale: The root mean square of the numbers, as ``gap_hyper`` wants it.
        warnings: What the numbers should not be read without.
    """

    data: Source
    scale: Scale
    train: Int[np.ndarray, " train"]
    held_out: Found
    held_count: int
    samples: Found | None
    width: float
    own_mass: float
    curves: Curves
    zones: list[Zone]
    data_scale: float
    warnings: list[str]


def study(
    data: Rows,
    holdout: Rows | None,
    samples: Rows | None,
    settings: Settings,
    track: Track = untracked,
) -> Study:
    """Compute everything; float64 must be enabled.

    Raises:
        ValueError: The rows or the settings do not allow it.
    """
    block_rows = settings.block_rows or block_size(data.width)
    width = _width(data.width, settings.width)
    files = [rows for rows in (data, holdout, samples) if rows is not None]
    sources = read_sources(files, settings.scale, block_rows, track)
    whole = sources[data.name]
    check_distinct(whole, holdout is None)
    keys = jax.random.split(jax.random.key(settings.seed), 2)
    if holdout is None:
        num_held = min(settings.queries, max(1, len(whole.kept) // 5))
        train, held = split_rows(keys[0], whole.kept, num_held)
        held_source = whole
    else:
        held_source = sources[holdout.name]
        train, held = whole.kept, held_source.kept
        check_apart(whole, held_source, block_rows)

    rows = whole.rows
    queries = draw_queries(
        keys[1], rows, train, held_source.rows, held, num_queries=settings.queries
    )
    signals = [queries.train.signals[:: queries.train_noise],
               queries.held.signals[:: queries.held_noise]]  # fmt: skip
    near = neighbours_of(jnp.concatenate(signals), rows, train, block_rows=block_rows, track=track)
    border = len(signals[0])
    # The nearest training row of a training row is itself.
    to_train, to_held = np.asarray(near.second[:border]), np.asarray(near.first[border:])
    distances = np.concatenate([to_train, to_held])
    sigmas = _levels(settings, distances, whole.survey.radius, data.width, width)
    curves = measure_curves(queries, rows, train, sigmas, width, block_rows=block_rows, track=track)
    thresholds = _thresholds(settings.threshold)
    finer = finer_levels(curves, thresholds, settings.sigmas)
    if finer is not None:
        more = measure_curves(
            queries, rows, train, finer, width,
            block_rows=block_rows, track=track, description="finer curves",
        )  # fmt: skip
        curves = _joined(curves, more)
    zones = [find_zone(curves, threshold) for threshold in thresholds]
    baseline = Copies(
        np.asarray(distance_ratios(near))[border:], to_held, train[np.asarray(near.row)[border:]]
    )
    held_out = Found(held_source, held[queries.places], baseline, np.empty((0, 2), int))
    found = None
    if samples is not None:
        source = sources[samples.name]
        same = shared(whole, source, block_rows)
        copies = find_copies(source.rows, rows, whole.kept, block_rows=block_rows, track=track)
        found = Found(source, np.arange(len(source.rows)), copies, same)
    own_mass = float(shell_probability(jnp.zeros(()), data.width, width))
    return Study(
        whole,
        rows.scale,
        train,
        held_out,
        len(held),
        found,
        width,
        own_mass,
        curves,
        zones,
        whole.survey.square**0.5,
        _warnings(list(sources.values()), distances, own_mass, len(held), curves, zones[0]),
    )


def _width(dim: int, width: float | None) -> float:
    if width is None:
        return min(5.0, dim / 4)
    if not 0 < width <= dim / 4:
        raise ValueError(
            f"width must be in (0, {dim / 4:g}], a quarter of a row's {dim} numbers, got {width:g}"
        )
    return width


def _levels(
    settings: Settings, distances: np.ndarray, radius: float, dim: int, width: float
) -> Float[np.ndarray, " levels"]:
    low, high = default_ends(distances, radius, dim, width)
    low = low if settings.sigma_min is None else settings.sigma_min
    high = high if settings.sigma_max is None else settings.sigma_max
    if not low < high:
        raise ValueError(f"sigma-min must be below sigma-max, got {low:g} and {high:g}")
    return np.geomspace(low, high, settings.sigmas)


def _thresholds(threshold: float) -> tuple[float, ...]:
    """The threshold and its neighbours, of which the lower one gives the recommended gap."""
    around = (round(threshold - 0.1, 6), round(threshold + 0.1, 6))
    return (threshold, *(value for value in around if 0 < value < 1))


def _joined(first: Curves, second: Curves) -> Curves:
    joined = [np.concatenate(pair) for pair in zip(first, second, strict=True)]
    order = np.argsort(joined[0])
    return Curves(*(part[order] for part in joined))


def _warnings(
    sources: list[Source],
    distances: np.ndarray,
    own_mass: float,
    held_count: int,
    curves: Curves,
    zone: Zone,
) -> list[str]:
    told = []
    data = sources[0].survey
    for source in sources[1:]:
        ends = [source.survey.low, source.survey.high]
        apart = max(abs(ends[0] - data.low), abs(ends[1] - data.high))
        if apart > (data.high - data.low) / 2:
            told.append(
                f"numbers of {source.rows.name} run from {ends[0]:.3g} to {ends[1]:.3g} and those "
                f"of DATA from {data.low:.3g} to {data.high:.3g}: are both of one scale?"
            )
    near = int((distances < NEAR * np.median(distances)).sum())
    if near:
        told.append(
            f"{near} of {len(distances)} queries have a training row nearer than {NEAR:g} of the "
            "median distance: near-copies in DATA, or in the held-out rows, bend the curves"
        )
    if own_mass < zone.threshold:
        told.append(
            f"a shell this thin holds {own_mass:.1%} of its own noise, so that coverage hardly "
            f"reaches {zone.threshold:g}: take a larger width"
        )
    if held_count < FEW:
        told.append(f"the coverage rests on few held-out rows, {held_count}")
    if zone.low == curves.sigmas[0] or zone.high == curves.sigmas[-1]:
        told.append("the zone reaches an end of the levels: see --sigma-min and --sigma-max")
    return told

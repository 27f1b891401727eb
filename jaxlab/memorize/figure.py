"""One figure: both curves with the danger zone, ratios of distances, and the nearest pairs."""

from pathlib import Path
from typing import Any

import numpy as np

from jaxlab.diffusion.memorization_copies import COPY_RATIO
from jaxlab.experiment.figures import PALETTE, draw_figure, method_style
from jaxlab.memorize.report import gap_of
from jaxlab.memorize.rows import Rows
from jaxlab.memorize.study import Found, Study

__all__ = ["draw", "image_shape"]

_PAIRS = 10
_BINS = 40


def image_shape(rows: Rows, wanted: tuple[int, ...]) -> tuple[int, ...] | None:
    """The shape in which a row is drawn, if it is an image.

    Args:
        rows: Rows of two axes are images, and of three if one of them is that of 1, 3 or 4 colours.
        wanted: Of rows that are flat; empty for the shape in the file.

    Raises:
        ValueError: ``wanted`` is no shape of an image of this size.
    """
    shape = wanted or rows.row_shape
    grey = len(shape) == 2
    colour = len(shape) == 3 and (shape[-1] in (1, 3, 4) or shape[0] in (1, 3, 4))
    if not wanted:
        return shape if grey or colour else None
    if not (grey or colour) or np.prod(shape) != rows.width:
        raise ValueError(
            f"image must be the height, width and colours (1, 3 or 4, if there is such an axis) "
            f"of {rows.width} numbers, got {' '.join(map(str, wanted))}"
        )
    return shape


def draw(found: Study, shape: tuple[int, ...] | None, folder: Path) -> None:
    """Draw ``figure.png`` and ``figure.svg``.

    Raises:
        ImportError: matplotlib is not installed.
        OSError: The folder cannot be written.
    """

    def onto(figure: Any) -> None:
        if shape is None:
            axes = figure.subplots(1, 2)
        else:
            grid = figure.add_gridspec(2, 2, height_ratios=[3, 2])
            axes = [figure.add_subplot(grid[0, i]) for i in range(2)]
            _draw_pairs(figure.add_subplot(grid[1, :]), found, shape)
        _draw_curves(axes[0], found)
        _draw_ratios(axes[1], found)

    draw_figure(onto, folder, size=(15.0, 7.0 if shape is None else 11.0))


def _draw_curves(axes: Any, found: Study) -> None:
    curves, zone = found.curves, found.zones[0]
    gap = gap_of(found)
    if gap is not None:
        axes.axvspan(*gap, color=PALETTE["grey"], alpha=0.2, label="gap to leave out")
        axes.axvspan(zone.low, zone.high, color=PALETTE["vermilion"], alpha=0.3,
                     label="danger zone")  # fmt: skip
    axes.axhline(zone.threshold, color=PALETTE["black"], linewidth=1, linestyle=":")
    for name, label, values, errors in (
        ("W", "W: one training row decides", curves.weight, curves.weight_error),
        ("C", "C: new rows are supervised", curves.share, curves.share_error),
    ):
        style = method_style(name)
        axes.plot(curves.sigmas, values, label=label, markersize=4, **style)
        axes.fill_between(
            curves.sigmas, np.maximum(values - 2 * errors, 0), np.minimum(values + 2 * errors, 1),
            color=style["color"], alpha=0.25, linewidth=0,
        )  # fmt: skip
    axes.set(
        xscale="log",
        xlabel="noise level sigma, in units of the scaled data",
        ylabel="probability",
        ylim=(-0.03, 1.03),
        title="(a) Danger zone" if gap is not None else "(a) No danger zone",
    )
    _legend_below(axes)


def _draw_ratios(axes: Any, found: Study) -> None:
    bins = np.linspace(0, 1, _BINS + 1).tolist()
    shown = [("held-out rows", found.held_out, "grey")]
    if found.samples is not None:
        shown.append(("samples", found.samples, "blue"))
    for label, part, colour in shown:
        ratios = part.copies.ratio
        axes.hist(
            ratios, bins=bins, weights=np.full(len(ratios), 1 / len(ratios)), alpha=0.6,
            color=PALETTE[colour],
            label=f"{label}: {(ratios < COPY_RATIO).mean():.1%} below 1/3",
        )  # fmt: skip
    axes.axvline(COPY_RATIO, color=PALETTE["vermilion"], label="1/3: copies are on the left")
    axes.set(
        xlabel="distance to nearest / second nearest training row",
        ylabel="share",
        xlim=(0, 1),
        title="(b) Copies",
    )
    _legend_below(axes)


def _legend_below(axes: Any) -> None:
    """Where no curve can be hidden."""
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2, frameon=False)


def _draw_pairs(axes: Any, found: Study, shape: tuple[int, ...]) -> None:
    """Rows with the least ratios above their nearest training rows."""
    part: Found = found.samples or found.held_out
    what, name = ("Samples", "sample") if found.samples else ("Held-out rows", "held out")
    ratios = part.copies.ratio
    order = np.argsort(ratios, kind="stable")[:_PAIRS]
    data = found.data
    upper = _images(part.source.rows.take(part.chosen[order]), data, shape)
    lower = _images(data.rows.take(part.copies.row[order]), data, shape)
    height, width = upper.shape[1:3]
    edge = max(1, width // 8)
    tiles = np.ones((2, len(order), height + edge, width + edge, upper.shape[3]))
    tiles[0, :, :height, :width] = upper
    tiles[1, :, :height, :width] = lower
    mosaic = np.concatenate([np.concatenate(list(row), axis=1) for row in tiles], axis=0)
    mosaic = mosaic[:-edge, :-edge]
    axes.imshow(mosaic[..., 0] if mosaic.shape[2] == 1 else mosaic, cmap="gray", vmin=0, vmax=1)
    axes.set_xticks(
        [width / 2 - 0.5 + i * (width + edge) for i in range(len(order))],
        [f"{ratios[i]:.2f}" for i in order],
    )
    axes.set_yticks([height / 2 - 0.5, 1.5 * height + edge - 0.5], [name, "nearest"])
    axes.grid(False)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set(
        xlabel="ratio of distances",
        title=f"(c) {what} that come nearest to copies, above their nearest training rows",
    )


def _images(values: np.ndarray, data: Any, shape: tuple[int, ...]) -> np.ndarray:
    """In [0, 1], of shape ``[images, height, width, colours]``."""
    low, high = data.survey.low, data.survey.high
    images = np.clip((values - low) / (high - low), 0, 1).reshape(len(values), *shape)
    if len(shape) == 2:
        return images[..., None]
    return images if shape[-1] in (1, 3, 4) else np.moveaxis(images, 1, -1)

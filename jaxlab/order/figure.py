"""One figure: margins in the order of training, and scores with those of both halves."""

from pathlib import Path
from typing import Any

import numpy as np

from jaxlab.experiment.figures import PALETTE, draw_figure
from jaxlab.order.report import Findings

__all__ = ["draw"]

_NAMED = 40
"""Of more sources than this only some are named."""
_LONGEST = 24


def draw(found: Findings, folder: Path) -> None:
    """Draw ``figure.png`` and ``figure.svg``.

    Raises:
        ImportError: matplotlib is not installed.
        OSError: The folder cannot be written.
    """

    def onto(figure: Any) -> None:
        left, right = figure.subplots(1, 2, width_ratios=[1.15, 1], sharey=True)
        _draw_margins(figure, left, found)
        _draw_scores(right, found)

    height = 3.5 + 0.32 * min(len(found.sources), _NAMED)
    draw_figure(onto, folder, size=(15.0, max(6.5, height)))


def _draw_margins(figure: Any, axes: Any, found: Findings) -> None:
    order = found.study.order
    edges = found.study.edges[np.ix_(order, order)]
    largest = np.abs(edges).max() or 1.0
    image = axes.imshow(edges, cmap="RdBu_r", vmin=-largest, vmax=largest, aspect="auto")
    figure.colorbar(image, ax=axes, location="bottom", shrink=0.8, pad=0.02,
                    label="margin σ of row before column (nats / η²): blue is better")  # fmt: skip
    count = len(order)
    step = -(-count // _NAMED)
    axes.set_yticks(range(0, count, step), [_label(found.sources[i].name) for i in order[::step]])
    columns = range(0, count, max(1, count // 12))
    axes.set_xticks(columns, [str(k + 1) for k in columns])
    axes.tick_params(axis="y", labelsize=12 if count <= 25 else 9)
    axes.grid(False)
    axes.set(title="(a) Margins, first trained on top", xlabel="place in the order")


def _label(name: str) -> str:
    return name if len(name) <= _LONGEST else f"…{name[1 - _LONGEST :]}"


def _draw_scores(axes: Any, found: Findings) -> None:
    study = found.study
    places = np.arange(len(study.order))
    axes.barh(places, study.scores[study.order], color=PALETTE["sky"], label="all sequences")
    for half, (colour, marker) in enumerate((("vermilion", "^"), ("black", "o"))):
        axes.scatter(
            study.noise.scores[half, study.order], places, color=PALETTE[colour], marker=marker,
            s=30, label=("one half", "the other half")[half], zorder=3,
        )  # fmt: skip
    axes.axvline(0, color=PALETTE["black"], linewidth=1)
    axes.tick_params(axis="y", labelleft=False)
    axes.set(
        xlabel="score S (nats / η²)",
        title=f"(b) Scores; halves' rank correlation {study.noise.rank_correlation:.2f}",
    )
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=3, frameon=False)

"""The figure of the experiment ``lie_bracket``."""

from typing import Any

import numpy as np

from jaxlab.experiment.figures import PALETTE
from jaxlab.experiment.lie_bracket_report import (
    BLOCK_STEPS,
    FEW_METRIC,
    LOCAL,
    OPTIMIZERS,
    PAIR_STEP,
    STEPS,
    pairs_told,
    told_for,
    values_of,
)
from jaxlab.experiment.metrics import Row, select

__all__ = ["draw"]

_COLOURS = {
    "Borda": "blue",
    "recency alignment": "green",
    "gradient norm": "orange",
    "Borda, reversed": "vermilion",
}


def draw(rows: list[Row], figure: Any) -> None:
    """Schedules, pairs and the language model above; where alignment fails, memory, remainders."""
    above, below = figure.subplots(2, 3)
    _draw_schedules(rows, above[0])
    _draw_pairs(rows, above[1])
    _draw_gaps(rows, above[2])
    _draw_few(rows, below[0])
    _draw_optimizers(rows, below[1])
    _draw_remainder(rows, below[2])


def _draw_schedules(rows: list[Row], axes: Any) -> None:
    _draw_orders(rows, axes, "loss", LOCAL)
    axes.set_title(f"(a) orders of all sources, η = {LOCAL:g}")


def _draw_few(rows: list[Row], axes: Any) -> None:
    size = select(rows, method="Borda", metric=FEW_METRIC)[0].step
    _draw_orders(rows, axes, FEW_METRIC, size)
    axes.set_title(f"(d) 8 sources, searched for, η = {size:g}")


def _draw_orders(rows: list[Row], axes: Any, metric: str, step_size: float) -> None:
    seed = min(row.seed for row in rows)
    where = {"metric": metric, "step": step_size, "seed": seed}
    others = values_of(rows, method="random", **where)
    centre = others.mean()
    axes.hist(1e3 * (others - centre), bins=20, color=PALETTE["grey"], label="random orders")
    for rule, colour in _COLOURS.items():
        # The few sources have no reversed schedule.
        for value in values_of(rows, method=rule, **where):
            axes.axvline(1e3 * (value - centre), color=PALETTE[colour], label=rule)
    axes.set(xlabel="target loss less the random mean [millinats]", ylabel="random orders")
    axes.set_ylim(0, 2.2 * axes.get_ylim()[1])
    axes.legend(loc="upper center")


def _draw_optimizers(rows: list[Row], axes: Any) -> None:
    shares = [100 * told_for(rows, name) for name in OPTIMIZERS]
    colours = [PALETTE[name] for name in ("blue", "orange", "vermilion")]
    axes.bar(OPTIMIZERS, shares, color=colours)
    axes.axhline(50, color="black", linestyle=":", label="chance")
    axes.set(ylabel="pairs told by the bracket [%]", ylim=(0, 118), title="(e) optimizers, 1 step")
    for place, share in enumerate(shares):
        axes.text(place, share + 1, f"{share:.0f}", ha="center", va="bottom")
    axes.legend(loc="upper right")


def _draw_pairs(rows: list[Row], axes: Any) -> None:
    times = [k * PAIR_STEP for k in STEPS]
    for rule, name, colour, marker in (
        ("origin", "bracket, at the start", "blue", "o"),
        ("trotter", "bracket, Trotter", "sky", "D"),
        ("recency alignment", "recency alignment", "green", "^"),
        ("gradient norm", "gradient norm", "orange", "s"),
    ):
        shares = [100 * pairs_told(rows, rule, k) for k in STEPS]
        axes.semilogx(times, shares, color=PALETTE[colour], marker=marker, label=name)
    axes.axhline(50, color=PALETTE["grey"], linestyle=":", label="chance")
    axes.set(
        xlabel="steps × step size, kη", ylabel="pairs told [%]", ylim=(0, 150),
        title="(b) pairs of sources",
    )  # fmt: skip
    axes.set_yticks([0, 25, 50, 75, 100])
    _plain_ticks(axes, times)
    axes.legend(loc="upper center")


def _plain_ticks(axes: Any, places: Any) -> None:
    """Marks of a logarithmic axis at these places only: others' labels would overlap."""
    axes.set_xticks(places, [f"{place:.2g}" for place in places])
    axes.set_xticks([], minor=True)


def _draw_gaps(rows: list[Row], axes: Any) -> None:
    if select(rows, method="block"):
        score = values_of(rows, "score", method="block")
        for size, colour, marker in zip(
            BLOCK_STEPS[1:], ("blue", "orange", "vermilion"), "os^", strict=True
        ):
            gaps = values_of(rows, "gap", method="block", dataset=f"{size:g}")
            axes.plot(
                score, gaps / size**2, color=PALETTE[colour], marker=marker, linestyle="",
                label=f"η = {size:g}",
            )  # fmt: skip
        title = "(c) last block of SmolLM2-135M"
    else:
        score = values_of(rows, "origin 1", method="pair") / PAIR_STEP**2
        gaps = values_of(rows, "gap 1", method="pair") / PAIR_STEP**2
        axes.plot(
            score, gaps, color=PALETTE["blue"], marker="o", linestyle="", label=f"η = {PAIR_STEP:g}"
        )
        title = "(c) pairs of sources"
    ends = np.array([score.min(), score.max()])
    axes.plot(ends, ends, color="black", linewidth=1.2, label="as predicted")
    axes.set(xlabel="predicted gap / η² [nats]", ylabel="measured gap / η² [nats]", title=title)
    axes.legend(loc="upper left")


def _draw_remainder(rows: list[Row], axes: Any) -> None:
    seeds = sorted({row.seed for row in select(rows, metric="remainder")})
    for i, seed in enumerate(seeds):
        found = select(rows, metric="remainder", seed=seed)
        axes.loglog(
            [row.step for row in found], [row.value for row in found],
            color=PALETTE["blue"], marker="osD^"[i % 4], label=f"6 pairs, draw {seed}",
        )  # fmt: skip
    found = select(rows, metric="remainder", seed=seeds[0])
    sizes = np.array([row.step for row in found])
    axes.loglog(sizes, found[0].value * sizes / sizes[0], color="black", label="slope 1")
    axes.axhline(0.25, color=PALETTE["grey"], linestyle=":", label="calibration allows")
    axes.set(
        xlabel="step size η", ylabel="‖difference − η² bracket‖ / ‖η² bracket‖",
        title="(f) what brackets leave",
    )  # fmt: skip
    _plain_ticks(axes, sizes)
    axes.legend(loc="lower right")

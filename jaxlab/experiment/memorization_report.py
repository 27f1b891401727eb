"""What the experiment ``memorization`` concludes from its metrics, and how it draws them."""

import math
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxlab.diffusion.memorization import danger_zone
from jaxlab.experiment.figures import PALETTE, method_style
from jaxlab.experiment.metrics import Row, select
from jaxlab.experiment.verdict import Criterion, Report, ReportTable

__all__ = ["VARIANTS", "WINDOWS", "draw", "judge", "zone_of"]

WINDOWS: dict[str, tuple[tuple[int, int] | None, int, int]] = {
    # steps, base and donor: 0 empirical, 1 gated, 2 population
    "empirical": (None, 0, 0),
    "gated": (None, 1, 1),
    "population": (None, 2, 2),
    "gated, large swapped": ((0, 6), 1, 2),
    "gated, medium swapped": ((6, 12), 1, 2),
    "gated, middle of medium swapped": ((8, 11), 1, 2),
    "gated, small swapped": ((14, 17), 1, 2),
    "population, large swapped": ((0, 6), 2, 1),
    "population, medium swapped": ((6, 12), 2, 1),
    "population, middle of medium swapped": ((10, 13), 2, 1),
    "population, small swapped": ((14, 17), 2, 1),
}
"""Swaps of denoisers: windows of steps, of 18 from sigma 20 to 0.01."""

VARIANTS = {
    "standard": (0.0, 0.0),
    "gap": (0.15, 1.5),
    "narrow gap": (0.77, 1.54),
    "dummy gap, large": (1.5, 1e3),
    "dummy gap, small": (1e-9, 0.1),
}
"""Levels that training leaves out; the narrow gap is where both curves of 20 digits exceed 0.7."""

_DUMMIES = ("dummy gap, large", "dummy gap, small")
_LIMITS = (0.7, 0.8, 0.9)


def judge(rows: list[Row]) -> Report:
    """Criteria, notes and tables."""
    criteria = [*_curve_criteria(rows), *_swap_criteria(rows), *_training_criteria(rows)]
    return Report(criteria, _notes(rows), [_zones(rows), _swaps(rows), _trainings(rows)])


def zone_of(rows: list[Row], dataset: str, limit: float = 0.8) -> tuple[float, float]:
    """The least and the largest level at which both curves are above ``limit``; NaN if none."""
    sigmas, weight = _curve(rows, dataset, "weight")
    curves = (jnp.asarray(weight), jnp.asarray(_curve(rows, dataset, "share")[1]))
    inside = np.asarray(danger_zone(*curves, least_weight=limit, least_share=limit))
    if not inside.any():
        return math.nan, math.nan
    return float(sigmas[inside].min()), float(sigmas[inside].max())


def _value(rows: list[Row], **fields: Any) -> float:
    """The mean over what is selected; NaN if that is nothing."""
    values = [row.value for row in select(rows, **fields)]
    return float(np.mean(values)) if values else math.nan


def _curve(rows: list[Row], dataset: str, metric: str) -> tuple[np.ndarray, np.ndarray]:
    found = sorted(select(rows, dataset=dataset, metric=metric), key=lambda row: row.step)
    return np.array([row.step for row in found]), np.array([row.value for row in found])


def _datasets(rows: list[Row]) -> list[str]:
    return list(dict.fromkeys(row.dataset for row in select(rows, metric="weight")))


def _outside(rows: list[Row], dataset: str, metric: str, error: str) -> float:
    """By how many standard errors a curve leaves its bounds at worst."""
    values, errors = (_curve(rows, dataset, name)[1] for name in (metric, error))
    low, high = (_curve(rows, dataset, f"{metric}_{end}")[1] for end in ("lower", "upper"))
    # An error of 0 is that of equal values; a thousandth is what this many queries resolve.
    return float((np.maximum(low - values, values - high) / np.maximum(errors, 1e-3)).max())


def _apart(rows: list[Row], dataset: str) -> float:
    weight, hits = (_curve(rows, dataset, name)[1] for name in ("weight", "identified"))
    errors = (_curve(rows, dataset, f"{name}_error")[1] for name in ("weight", "identified"))
    return float((np.abs(weight - hits) / np.maximum(np.hypot(*errors), 1e-3)).max())


def _curve_criteria(rows: list[Row]) -> list[Criterion]:
    criteria, names = [], _datasets(rows)
    for name in ("digits", "faces"):
        low, high = zone_of(rows, name)
        least, most = ((0.3, 0.7), (0.5, 0.9)) if name == "digits" else ((0.6, 1.3), (1.5, 3.0))
        criteria += [
            Criterion(f"danger zone of {name}, from", low, *least, shape=True),
            Criterion(f"danger zone of {name}, to", high, *most, shape=True),
        ]
    ends = []
    for name in names:
        weight, share = (_curve(rows, name, metric)[1] for metric in ("weight", "share"))
        ends += [1 - weight[0], share[0], weight[-1], 1 - share[-1]]
    ratios = [high / low for low, high in (zone_of(rows, name) for name in ("faces", "digits"))]
    outside = [
        _outside(rows, name, metric, error)
        for name in names
        for metric, error in (("weight", "weight_error"), ("share", "error"))
    ]
    apart = max(_apart(rows, name) for name in names)
    return [
        *criteria,
        Criterion("W near 1 and C near 0 at the least noise, W near 0 and C near 1 at the most",
                  max(ends), at_most=0.2, shape=True),
        Criterion("width of the zone, faces / digits", ratios[0] / ratios[1], at_least=1.2,
                  shape=True),
        Criterion("curves beyond their bounds, standard errors", max(outside), at_most=4.0),
        Criterion("W against identified rows, standard errors", apart, at_most=4.0),
    ]  # fmt: skip


def _swap_criteria(rows: list[Row]) -> list[Criterion]:
    def share(name: str) -> float:
        return _value(rows, method=name, metric="swap_copies")

    outer = ("large", "small")
    induced = max(share(f"population, {part} swapped") for part in outer)
    return [
        Criterion("copies of the gated learner", share("gated"), at_least=0.85, shape=True),
        *(
            Criterion(f"copies, population at {part} noise", share(f"gated, {part} swapped"),
                      at_least=0.8, shape=True)
            for part in outer
        ),
        Criterion("copies, population at medium noise", share("gated, medium swapped"),
                  at_most=0.05, shape=True),
        Criterion("copies of the population, gated at medium noise",
                  share("population, middle of medium swapped"), at_least=0.1, shape=True),
        Criterion("copies of the population, gated at large or small noise", induced,
                  at_most=0.1, shape=True),
    ]  # fmt: skip


def _training_criteria(rows: list[Row]) -> list[Criterion]:
    copies = {name: _value(rows, method=name, metric="copies") for name in VARIANTS}
    dummies = min(copies[name] for name in _DUMMIES)
    energy = [_value(rows, method=name, metric="energy") for name in ("gap", "standard")]
    standard = copies["standard"]
    return [
        Criterion("copies of networks, standard", standard, at_least=0.05, shape=True),
        Criterion("copies of networks, gap", copies["gap"], at_most=0.05),
        Criterion("copies, gap less a quarter of standard", copies["gap"] - standard / 4,
                  at_most=0.0, shape=True),
        Criterion("copies, lesser dummy less 0.8 of standard", dummies - 0.8 * standard,
                  at_least=0.0, shape=True),
        Criterion("energy distance, gap less standard", energy[0] - energy[1], at_most=0.05),
    ]  # fmt: skip


def _notes(rows: list[Row]) -> list[str]:
    notes = [
        "The gated learner is a model of a network and no network; its population is a mixture of "
        "ten Gaussians.",
        "A sample is a copy if its nearest row is closer than a third of the second nearest; with "
        "few rows that is a weak rule.",
    ]
    few = [name for name in _datasets(rows) if name not in ("digits", "faces")]
    for name in few:
        low, high = zone_of(rows, name)
        ends = VARIANTS["gap"]
        notes.append(
            f"the gap from {ends[0]:g} to {ends[1]:g} is wider than the danger zone of {name}, "
            f"which goes from {low:.2g} to {high:.2g} at thresholds of 0.8"
        )
    narrow, standard, gap = (
        _value(rows, method=name, metric="copies") for name in ("narrow gap", "standard", "gap")
    )
    low, high = VARIANTS["narrow gap"]
    notes.append(
        f"a narrow gap from {low:g} to {high:g} leaves {narrow:.1%} copies, of {standard:.1%} "
        f"without a gap and {gap:.1%} with the wide one"
    )
    worse = [
        f"{name} ({value:.2f})"
        for name in VARIANTS
        if (value := _value(rows, method=name, metric="energy"))
        > _value(rows, method="training set", metric="energy")
    ]
    if worse:
        notes.append(
            "farther from held-out digits than the training sets themselves, by energy distance: "
            + ", ".join(worse)
        )
    return notes


def _zones(rows: list[Row]) -> ReportTable:
    lines = []
    for name in _datasets(rows):
        cells = ["{:.2g} to {:.2g}".format(*zone_of(rows, name, limit)) for limit in _LIMITS]
        scales = [_value(rows, dataset=name, metric=f"{part}_level")
                  for part in ("coverage", "capacity")]  # fmt: skip
        lines.append((name, *cells, *(f"{level:.2g}" for level in scales)))
    above = (f"both above {limit:g}" for limit in _LIMITS)
    columns = ("data", *above, "C turns near", "W turns near")
    return ReportTable("Danger zones, in sigma", columns, lines)


def _spread(rows: list[Row], method: str, metric: str) -> tuple[str, str]:
    values = [row.value for row in select(rows, method=method, metric=metric)]
    return f"{np.mean(values):.3f}", f"{min(values):.3f} to {max(values):.3f}"


def _swaps(rows: list[Row]) -> ReportTable:
    lines = [
        (name, "all" if window is None else "{} to {}".format(*window),
         *_spread(rows, name, "swap_copies"))
        for name, (window, _, _) in WINDOWS.items()
    ]  # fmt: skip
    return ReportTable("Copies by window", ("denoisers", "steps", "copies", "seeds"), lines)


def _trainings(rows: list[Row]) -> ReportTable:
    lines = []
    for name, (low, high) in VARIANTS.items():
        quantiles = [f"{_value(rows, method=name, metric='ratio', step=q):.2f}"
                     for q in (0.1, 0.5, 0.9)]  # fmt: skip
        gap = "none" if high == 0 else f"{low:.2g} to {high:g}"
        cells = _spread(rows, name, "copies")
        energy = f"{_value(rows, method=name, metric='energy'):.3f}"
        lines.append((name, gap, *cells, energy, " / ".join(quantiles)))
    own = f"{_value(rows, method='training set', metric='energy'):.3f}"
    lines.append(("training set", "", "", "", own, ""))
    columns = ("training", "gap", "copies", "seeds", "energy distance",
               "nearest / second nearest: 10%, 50%, 90%")  # fmt: skip
    return ReportTable("Networks", columns, lines)


def draw(rows: list[Row], figure: Any) -> None:
    """Curves of two data sets, swaps, networks, and samples beside their nearest rows."""
    layout = [["digits", "faces"], ["swaps", "networks"], ["samples", "samples"]]
    axes = figure.subplot_mosaic(layout, height_ratios=[1, 1, 0.5])
    for letter, name in zip("ab", ("digits", "faces"), strict=True):
        _draw_curves(rows, axes[name], letter, name)
    axes["faces"].legend(loc="center left")
    _draw_swaps(rows, axes["swaps"])
    _draw_networks(rows, axes["networks"])
    _draw_samples(rows, axes["samples"])


def _draw_curves(rows: list[Row], axes: Any, letter: str, name: str) -> None:
    sigmas, _ = _curve(rows, name, "weight")
    looks = {"weight": ("W: one row decides", "W"), "share": ("C: new data covered", "C")}
    for metric, (text, method) in looks.items():
        style = method_style(method)
        low, high = (_curve(rows, name, f"{metric}_{end}")[1] for end in ("lower", "upper"))
        axes.fill_between(sigmas, low, high, color=style["color"], alpha=0.15, linewidth=0)
        error = _curve(rows, name, "weight_error" if metric == "weight" else "error")[1]
        axes.errorbar(
            sigmas, _curve(rows, name, metric)[1], 2 * error, label=text, markersize=5, **style
        )
    low, high = zone_of(rows, name)
    if low <= high:
        axes.axvspan(low, high, color=PALETTE["vermilion"], alpha=0.3, linewidth=0,
                     label="both above 0.8")  # fmt: skip
    axes.fill_between([], [], [], color="black", alpha=0.15, label="between bounds")
    axes.set(
        xscale="log", xlabel="noise level σ", ylabel="W and C", ylim=(-0.03, 1.05),
        title=f"({letter}) two curves of the {name}",
    )  # fmt: skip


def _draw_swaps(rows: list[Row], axes: Any) -> None:
    names = [name for base in ("gated", "population") for name in WINDOWS if name.startswith(base)]
    labels = ["nowhere", "large σ", "medium σ", "its middle", "small σ"] * 2
    colours = [PALETTE["vermilion" if name.startswith("gated") else "green"] for name in names]
    _bars(rows, axes, names, "swap_copies", colours)
    axes.set_xticks(range(len(names)), labels, rotation=30, ha="right", rotation_mode="anchor")
    for text, colour in (
        ("gated learner, population's denoiser at ...", "vermilion"),
        ("population's denoiser, gated learner at ...", "green"),
    ):
        axes.bar([0], [0], color=PALETTE[colour], alpha=0.6, label=text)
    axes.set(ylabel="share of copies", ylim=(0, 1.45), title="(c) which noise carries the copying")
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1.0])
    axes.legend(loc="upper right")


def _bars(rows: list[Row], axes: Any, names: list[str], metric: str, colours: list[str]) -> None:
    """Means over seeds, and the seeds as points."""
    for place, (name, colour) in enumerate(zip(names, colours, strict=True)):
        values = [row.value for row in select(rows, method=name, metric=metric)]
        axes.bar(place, np.mean(values), color=colour, alpha=0.6)
        axes.plot(np.full(len(values), place), values, "o", color="black", markersize=4)


def _draw_networks(rows: list[Row], axes: Any) -> None:
    names = list(VARIANTS)
    _bars(rows, axes, names, "copies", [method_style(name)["color"] for name in names])
    labels = [_gap_label(name) for name in names]
    axes.set_xticks(range(len(names)), labels)
    axes.margins(y=0.15)
    axes.plot([], [], "o", color="black", markersize=4, label="one training")
    axes.set(ylabel="share of copies", title="(d) networks, by the gap in training")
    axes.legend(loc="upper left")


def _gap_label(name: str) -> str:
    low, high = VARIANTS[name]
    ends = {"standard": "no gap", "dummy gap, large": f"σ > {low:g}"}
    ends |= {"dummy gap, small": f"σ < {high:g}"}
    return name.split(",")[0].removesuffix(" gap") + "\n" + ends.get(name, f"{low:g} to {high:g}")


def _draw_samples(rows: list[Row], axes: Any) -> None:
    """Strips: samples above, the nearest row of the training set below."""
    blocks = []
    for name in VARIANTS:
        strips = []
        for metric in ("sample_pixel", "nearest_pixel"):
            images = {}
            for row in select(rows, method=name, metric=metric):
                images.setdefault(row.seed, []).append((row.step, row.value))
            tiles = [_tile(images[index]) for index in sorted(images)[:5]]
            strips.append(np.concatenate(tiles, axis=1))
        blocks.append(np.pad(np.concatenate(strips), ((0, 0), (0, 6)), constant_values=np.nan))
    picture = np.concatenate(blocks, axis=1)
    axes.imshow(picture, cmap="gray_r", vmin=-1, vmax=1, interpolation="nearest")
    width = blocks[0].shape[1]
    for place, name in enumerate(VARIANTS):
        axes.text((place + 0.45) * width, -1.5, name, ha="center", va="bottom", fontsize=13.5)
    axes.set_yticks([picture.shape[0] * 0.22, picture.shape[0] * 0.72], ["sample", "nearest"])
    axes.set_xticks([])
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.set_title("(e) samples above the nearest digit of their training set", pad=22)


def _tile(pixels: list[tuple[float, float]]) -> np.ndarray:
    values = np.array([value for _, value in sorted(pixels)])
    side = math.isqrt(len(values))
    return np.pad(values.reshape(side, side), 1, constant_values=np.nan)

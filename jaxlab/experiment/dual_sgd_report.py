"""What the experiment ``dual_sgd`` concludes from its metrics, and how it draws them."""

import math
from typing import Any

import numpy as np

from jaxlab.experiment.figures import PALETTE, method_style
from jaxlab.experiment.metrics import Row, select
from jaxlab.experiment.verdict import Criterion, Report, ReportTable
from jaxlab.stats.intervals import ExponentFit, fit_exponent

__all__ = ["DUAL_METHODS", "draw", "judge", "scaling"]

DUAL_METHODS = ("accelerated", "plain", "plain, few steps", "SSDA")
"""The contenders that take dual steps, which must reach the accuracy."""
SCALINGS = (
    ("accelerated", "rounds_by_kappa", "rounds, κ of the losses"),
    ("accelerated", "rounds_by_chi", "rounds, χ of the ring"),
    ("accelerated", "gradients_by_inverse_accuracy", "gradients / log(1/ε), 1/ε"),
    ("plain", "rounds_by_kappa", "plain: rounds, κ"),
    ("plain", "gradients_by_inverse_accuracy", "plain descent: gradients, 1/ε"),
)


def judge(rows: list[Row]) -> Report:
    """Criteria, notes and tables."""
    criteria = _race_criteria(rows)
    for method, metric, label in SCALINGS[:3]:
        slope = scaling(rows, method, metric)[2].slope
        criteria.append(Criterion(f"exponent of {label}", slope, 0.4, 0.6, shape=True))
    ratio = max(row.value for row in select(rows, metric="deviation_over_bound"))
    criteria.append(Criterion("deviation of two biased runs / its bound", ratio, at_most=1.0))
    tables = [*(_race_table(rows, *place) for place in _places(rows)), _slopes(rows)]
    return Report(criteria + _stability_criteria(rows), _notes(rows), tables)


def scaling(rows: list[Row], method: str, metric: str) -> tuple[Any, Any, ExponentFit]:
    """The swept sizes, the values ``[seeds, sizes]`` and the fitted exponent.

    The theory's count of accelerated gradients has a factor ``log(1/accuracy)``, which bends the
    line at every accuracy that can be run: it is divided out.
    """
    found = select(rows, method=method, metric=metric)
    sizes = sorted({row.step for row in found})
    seeds = sorted({row.seed for row in found})
    table = {(row.seed, row.step): row.value for row in found}
    values = np.array([[table[seed, size] for size in sizes] for seed in seeds])
    if (method, metric) == ("accelerated", "gradients_by_inverse_accuracy"):
        values = values / np.log(sizes)
    if not np.isfinite(values).all():
        return np.array(sizes), values, ExponentFit(math.nan, math.nan, math.nan)
    return np.array(sizes), values, fit_exponent(np.array(sizes), values)


def _median(rows: list[Row], **fields: Any) -> float:
    values = [row.value for row in select(rows, **fields)]
    return float(np.median(values)) if values else math.nan


def _places(rows: list[Row]) -> list[tuple[str, str]]:
    found = select(rows, metric="communications")
    return list(dict.fromkeys((row.dataset, row.graph) for row in found))


def _race_criteria(rows: list[Row]) -> list[Criterion]:
    places = _places(rows)
    criteria = []
    for graph in dict.fromkeys(graph for _, graph in places):
        ratios = []
        for dataset in (d for d, g in places if g == graph):
            where = {"metric": "communications", "dataset": dataset, "graph": graph}
            accelerated = _median(rows, method="accelerated", **where)
            plain = _median(rows, method="plain", **where)
            ratios.append(accelerated / plain if math.isfinite(accelerated) else math.nan)
        name = f"rounds, accelerated / plain at K = 1.5 κ, worst table ({graph})"
        criteria.append(Criterion(name, float(np.max(ratios)), at_most=0.75))
    missed = [
        row
        for method in DUAL_METHODS
        for row in select(rows, metric="communications", method=method)
        if not math.isfinite(row.value)
    ]
    criteria.append(Criterion("dual runs that miss an error of 1e-10", len(missed), at_most=0.0))
    floor = min(row.value for row in select(rows, metric="final_error", method="FedAvg"))
    criteria.append(Criterion("error of FedAvg at K = 1.5 κ, best step size", floor, 1e-3))
    return criteria


def _stability_criteria(rows: list[Row]) -> list[Criterion]:
    radius = [row for row in rows if row.metric.startswith("radius_")]
    fast = select(radius, method="accelerated")
    enough = max(row.value for row in fast if row.step >= 1.5)
    short = min(
        max(row.value for row in select(fast, metric=metric) if row.step < 0.5)
        for metric in {row.metric for row in fast}
    )
    plain = max(row.value for row in select(radius, method="plain"))
    noisy = select(rows, metric="stochastic_diverged", method="accelerated")
    bounded = np.mean([1 - row.value for row in noisy if row.step >= 1])
    diverged = np.mean([row.value for row in noisy if row.step < 1])
    return [
        Criterion("radius, accelerated, K η μ >= 1.5, largest", enough, at_most=1, shape=True),
        Criterion("radius, accelerated, K η μ < 0.5, largest", short, at_least=1, shape=True),
        Criterion("radius, plain, any K, largest", plain, at_most=1, shape=True),
        Criterion("stochastic runs bounded at K η μ = 1.5", float(bounded), 1, shape=True),
        Criterion("stochastic runs diverged at K η μ = 0.15", float(diverged), 1, shape=True),
    ]


def _notes(rows: list[Row]) -> list[str]:
    notes = [
        "The dual methods use the theory's step sizes; every rival has a grid of step sizes "
        "(Scaffnew also of probabilities) and shows its best member.",
    ]
    for dataset, graph in _places(rows):
        where = {"dataset": dataset, "graph": graph}
        methods = {row.method for row in select(rows, metric="communications", **where)}
        ours = {m: _median(rows, metric=m, method="accelerated", **where) for m in _COSTS}
        for metric, unit in _COSTS.items():
            costs = {m: _median(rows, metric=metric, method=m, **where) for m in sorted(methods)}
            better = [
                f"{method} ({cost:.0f})"
                for method, cost in sorted(costs.items(), key=lambda item: item[1])
                if cost < ours[metric] and not (method == "SSDA" and metric == "gradients")
            ]
            if better:
                notes.append(
                    f"{dataset}, {graph}: fewer {unit} than accelerated ({ours[metric]:.0f}): "
                    + ", ".join(better)
                )
    floor = _median(rows, metric="stochastic_floor", method="accelerated", step=_enough(rows))
    notes.append(
        f"Batches of 8 at K η μ = 1.5 stay at a noise floor of {floor:.2g} (mean squared distance)."
    )
    return notes


_COSTS = {"communications": "communications", "gradients": "gradients per agent"}


def _enough(rows: list[Row]) -> float:
    return max(row.step for row in select(rows, metric="stochastic_floor"))


def _race_table(rows: list[Row], dataset: str, graph: str) -> ReportTable:
    where = {"dataset": dataset, "graph": graph}
    found = select(rows, metric="communications", **where)
    lines = []
    for method in dict.fromkeys(row.method for row in found):
        cells = {m: _median(rows, metric=m, method=method, **where) for m in _SHOWN}
        exact = method == "SSDA"
        lines.append((
            method,
            _count(cells["communications"]),
            "exact solves" if exact else _count(cells["gradients"]),
            "-" if exact else f"{cells['step_size_times_smoothness']:g}",
            f"{cells['final_error']:.1e}",
        ))  # fmt: skip
    columns = ("method", "rounds", "gradients", "step x L", "last error")
    title = f"{dataset}, {graph}: until the mean squared distance is below 1e-10"
    return ReportTable(title, columns, lines)


_SHOWN = ("communications", "gradients", "step_size_times_smoothness", "final_error")


def _count(value: float) -> str:
    return f"{value:.0f}" if math.isfinite(value) else "not reached"


def _slopes(rows: list[Row]) -> ReportTable:
    lines = []
    for method, metric, label in SCALINGS:
        fit = scaling(rows, method, metric)[2]
        lines.append((label, f"{fit.slope:.3f}", f"[{fit.low:.3f}, {fit.high:.3f}]"))
    return ReportTable("Exponents", ("cost and size", "slope", "95% interval"), lines)


def draw(rows: list[Row], figure: Any) -> None:
    """Four panels: the race, its cost, the scaling laws, and where acceleration breaks."""
    (race, cost), (laws, stability) = figure.subplots(2, 2)
    _draw_race(rows, race)
    _draw_cost(rows, cost)
    _draw_scaling(rows, laws)
    _draw_stability(rows, stability)


_DRAWN = (
    "accelerated", "plain", "plain, few steps", "SSDA", "gradient tracking", "FedAvg", "SCAFFOLD",
    "Scaffnew",
)  # fmt: skip


def _draw_race(rows: list[Row], axes: Any) -> None:
    places = _places(rows)
    dataset = places[0][0]
    slow = select(rows, metric="communications", method="plain", dataset=dataset)
    finite = [row.value for row in slow if math.isfinite(row.value)]
    for method in _DRAWN:
        colour = method_style(method)["color"]
        for graph in (g for d, g in places if d == dataset):
            server = graph == "complete"
            curve = select(rows, metric="error", method=method, dataset=dataset, graph=graph)
            if not curve:
                continue
            axes.semilogy(
                [row.step for row in curve], [row.value for row in curve], color=colour,
                linestyle="-" if server else "--", label=method if server else None,
                linewidth=1.2 if method in ("SSDA", "Scaffnew") else None,  # on top of others
            )  # fmt: skip
    axes.axhline(1e-10, color="black", linewidth=1, linestyle=":")
    axes.set(
        xlim=(0, 1.05 * max(finite, default=1000)), ylim=(1e-12, None),
        xlabel="communication rounds", ylabel="mean squared distance to the optimum",
        title=f"(a) {dataset}: server solid, graph dashed",
    )  # fmt: skip
    axes.legend(loc="upper right", ncols=2)


def _draw_cost(rows: list[Row], axes: Any) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

    places = _places(rows)
    dataset = places[0][0]
    for graph in (g for d, g in places if d == dataset):
        for method in _DRAWN:
            where = {"method": method, "dataset": dataset, "graph": graph}
            rounds = _median(rows, metric="communications", **where)
            gradients = _median(rows, metric="gradients", **where)
            style = method_style(method)
            if not math.isfinite(rounds):
                continue
            server = graph == "complete"
            if method == "SSDA":  # exact solves have no count of gradients
                dashes = "-" if server else "--"
                axes.axvline(rounds, 0, 0.7, color=style["color"], linestyle=dashes, linewidth=1.2)
                continue
            face = style["color"] if server else "white"
            axes.loglog(
                rounds, gradients, linestyle="", markersize=13, markeredgewidth=2.2,
                markeredgecolor=style["color"], markerfacecolor=face, marker=style["marker"],
                label=method if server else None,
            )  # fmt: skip
    axes.plot([], [], color="black", linewidth=1.2, label="SSDA (exact solves)")
    low, high = axes.get_ylim()
    axes.set(
        xlabel="communication rounds", ylabel="gradients per agent",
        ylim=(low / 1.5, high * (high / low) ** 0.4),
        title="(b) cost of reaching 1e-10: server filled, graph hollow",
    )  # fmt: skip
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.legend(loc="upper left", ncols=2)


def _draw_scaling(rows: list[Row], axes: Any) -> None:
    colours = ("blue", "sky", "green", "orange", "purple")
    for (method, metric, label), colour, marker in zip(SCALINGS, colours, "os^Dv", strict=True):
        sizes, values, fit = scaling(rows, method, metric)
        half = (fit.high - fit.low) / 2
        axes.loglog(
            sizes, np.median(values, axis=0), color=PALETTE[colour], marker=marker,
            linestyle="-" if method == "accelerated" else "--",
            label=f"{label}: {fit.slope:.2f} ± {half:.2f}",
        )  # fmt: skip
    low, high = axes.get_ylim()
    axes.set(
        xlabel="condition number or 1/ε", ylabel="rounds or gradients",
        ylim=(low, high * (high / low) ** 0.5),
        title="(c) scaling laws, with fitted exponents",
    )  # fmt: skip
    axes.legend(loc="upper left")


def _draw_stability(rows: list[Row], axes: Any) -> None:
    radius = [row for row in rows if row.metric.startswith("radius_kappa_")]
    metrics = sorted({row.metric for row in radius}, key=lambda m: int(m.split("_")[-1]))
    for method in ("accelerated", "plain"):
        for metric, linestyle in zip(metrics, (":", "--", "-"), strict=True):
            found = select(radius, method=method, metric=metric)
            works = sorted({row.step for row in found})
            middle = [_median(found, step=work) for work in works]
            axes.semilogx(works, middle, color=method_style(method)["color"], linestyle=linestyle)
        axes.plot([], [], color=method_style(method)["color"], label=method)
    for metric, linestyle in zip(metrics, (":", "--", "-"), strict=True):
        axes.plot([], [], color="black", linestyle=linestyle, label=f"κ = {metric.split('_')[-1]}")
    low, high = min(row.value for row in radius), max(row.value for row in radius)
    bottom, top = low - 0.3 * (high - low), high + 0.45 * (high - low)
    axes.axhspan(1.0, top, color=PALETTE["vermilion"], alpha=0.12, label="diverges")
    axes.axvline(1.5, 0, 0.7, color=PALETTE["grey"], linestyle="-.", label="K η μ = 1.5")
    for row in select(rows, metric="stochastic_diverged", method="accelerated"):
        mark, colour = ("x", "vermilion") if row.value else ("o", "green")
        axes.plot(row.step, bottom + 0.1 * (high - low), mark, color=PALETTE[colour])
    axes.plot([], [], "x", color=PALETTE["vermilion"], label="batch 8, diverged")
    axes.plot([], [], "o", color=PALETTE["green"], label="batch 8, bounded")
    axes.set(
        xlabel="local work K η μ", ylabel="spectral radius of a round", ylim=(bottom, top),
        title="(d) too little local work breaks acceleration",
    )  # fmt: skip
    axes.legend(loc="upper center", ncols=3, columnspacing=1.0)

"""What the experiment ``ais`` concludes from its metrics, and how it draws them."""

import math
from typing import Any

import numpy as np

from jaxlab.experiment.figures import PALETTE, method_style
from jaxlab.experiment.metrics import Row, select
from jaxlab.experiment.verdict import Criterion, Report, ReportTable
from jaxlab.inference.ais_theory import lag_stability_limit

__all__ = ["draw", "judge"]

DELAYED, UNDELAYED, PLAIN = "delayed (L = 1)", "AMIS (L = 0)", "plain IS"
METRICS = ("log_evidence_error", "mode_tv", "ess_per_call")


def _mean(rows: list[Row], **fields: Any) -> float:
    values = [row.value for row in select(rows, **fields)]
    return float(np.mean(values)) if values else math.nan


def _datasets(rows: list[Row]) -> list[str]:
    return list(dict.fromkeys(row.dataset for row in select(rows, metric="mode_tv")))


def _methods(rows: list[Row], dataset: str) -> list[str]:
    found = select(rows, metric="mode_tv", dataset=dataset)
    return list(dict.fromkeys(row.method for row in found))


def _rate(rows: list[Row], method: str, percent: int) -> float:
    """The factor per step between steps 50 and 100, before rounding ends the decay."""
    at = {
        row.step: row.value for row in select(rows, method=method, metric=f"mean_field_{percent}")
    }
    return (at[100.0] / at[50.0]) ** (1 / 50)


def judge(rows: list[Row]) -> Report:
    """Criteria, notes and tables."""
    criteria = []
    datasets = _datasets(rows)
    if "ring" in datasets:
        where = {"method": DELAYED, "dataset": "ring"}
        for metric, label in (("log_evidence_error", "|log Z error|"), ("mode_tv", "mode TV")):
            value = _mean(rows, metric=metric, **where)
            criteria.append(Criterion(f"ring, L = 1: mean {label}", value, at_most=0.05))
    if "mixture 5-d" in datasets:
        where = {"metric": "mode_tv", "dataset": "mixture 5-d"}
        delayed = _mean(rows, method=DELAYED, **where)
        excess = delayed - _mean(rows, method=UNDELAYED, **where)
        name = "mixture 5-d: mode TV, L = 1 less that of L = 0"
        criteria.append(Criterion(name, excess, at_most=0.03, shape=True))
        ratio = delayed / _mean(rows, method=PLAIN, **where)
        name = "mixture 5-d: mode TV, L = 1 / plain IS"
        criteria.append(Criterion(name, ratio, at_most=1.0, shape=True))
    for percent in (5, 20):
        rate = max(_rate(rows, f"L = {lag}", percent) for lag in (0, 1))
        limit = 1 - percent / 200
        name = f"mean field: factor per step, a = {percent / 100:g}"
        criteria.append(Criterion(name, rate, at_most=limit, shape=True))
    wrong = sum(
        row.value != (row.step < lag_stability_limit(int(row.method[-1])))
        for row in select(rows, metric="settled")
        if abs(row.step - lag_stability_limit(int(row.method[-1]))) > 0.05
    )
    name = "runs that settle beyond the limit of their lag, or do not below it"
    criteria.append(Criterion(name, wrong, at_most=0, shape=True))
    return Report(criteria, _notes(rows), [_table(rows, dataset) for dataset in datasets])


def _notes(rows: list[Row]) -> list[str]:
    notes = [
        "All methods call the log density equally often and share the global law; tempered SMC "
        "shows the best of three scales of its moves.",
        "Estimates come from the second half of the blocks, each with its own proposal's weights.",
    ]
    for dataset in _datasets(rows):
        for metric, label in (("log_evidence_error", "log evidence"), ("mode_tv", "modes")):
            ours = _mean(rows, metric=metric, method=DELAYED, dataset=dataset)
            better = {
                m: _mean(rows, metric=metric, method=m, dataset=dataset)
                for m in _methods(rows, dataset)
            }
            better = sorted((v, m) for m, v in better.items() if v < ours)
            if better:
                told = ", ".join(f"{m} ({v:.3g})" for v, m in better)
                notes.append(f"{dataset}: nearer in {label} than L = 1 ({ours:.3g}): {told}")
    return notes


def _table(rows: list[Row], dataset: str) -> ReportTable:
    lines = []
    for method in _methods(rows, dataset):
        where = {"method": method, "dataset": dataset}
        cells = [_mean(rows, metric=metric, **where) for metric in METRICS]
        lines.append((method, *("-" if math.isnan(c) else f"{c:.3g}" for c in cells)))
    columns = ("method", "|log Z error|", "mode TV", "ESS per call")
    return ReportTable(f"{dataset}: means over the seeds", columns, lines)


def draw(rows: list[Row], figure: Any) -> None:
    """Four panels: finding modes, mode masses by task, the mean-field rate, the lag's limit."""
    (finding, masses), (field, limit) = figure.subplots(2, 2)
    _draw_finding(rows, finding)
    _draw_masses(rows, masses)
    _draw_mean_field(rows, field)
    _draw_limit(rows, limit)


def _draw_finding(rows: list[Row], axes: Any) -> None:
    for method in ("plain IS", "AMIS (L = 0)", "delayed (L = 1)", "delayed (L = 2)"):
        found = select(rows, metric="least_mode", method=method)
        if not found:
            continue
        steps = sorted({row.step for row in found})
        middle = [np.median([r.value for r in found if r.step == step]) for step in steps]
        axes.plot(steps, middle, color=method_style(method)["color"], label=method)
    axes.axhline(1.0, color="black", linestyle=":", linewidth=1)
    axes.set(
        xlabel="calls of the log density", ylabel="estimated mass / true mass", ylim=(0, 1.3),
        title="(a) ring: the worst of eight modes (median of seeds)",
    )  # fmt: skip
    axes.legend(loc="lower right")


def _draw_masses(rows: list[Row], axes: Any) -> None:
    datasets = _datasets(rows)
    methods = list(dict.fromkeys(m for d in datasets for m in _methods(rows, d)))
    for offset, method in enumerate(methods):
        style = method_style(method)
        places, values = [], []
        for place, dataset in enumerate(datasets):
            found = select(rows, metric="mode_tv", method=method, dataset=dataset)
            places += [place + (offset - (len(methods) - 1) / 2) * 0.11] * len(found)
            values += [max(row.value, 1e-4) for row in found]
        axes.semilogy(
            places, values, style["marker"], color=style["color"], label=method, markersize=6,
            alpha=0.75,
        )  # fmt: skip
    axes.set_xticks(range(len(datasets)), [name.replace(" ", "\n") for name in datasets])
    axes.set_xlim(-0.5, len(datasets) - 0.5)
    low, high = axes.get_ylim()
    axes.set(
        ylabel="total variation of mode masses", ylim=(low, high * (high / low) ** 0.45),
        title="(b) mode masses at equal calls: each seed a mark",
    )  # fmt: skip
    axes.grid(visible=False, axis="x")
    axes.legend(loc="upper left", ncols=2)


def _draw_mean_field(rows: list[Row], axes: Any) -> None:
    for percent, colour in ((5, "blue"), (20, "vermilion")):
        for lag, style in ((0, "-"), (1, "--")):
            curve = select(rows, metric=f"mean_field_{percent}", method=f"L = {lag}")
            axes.semilogy(
                [row.step for row in curve], [row.value for row in curve], style,
                color=PALETTE[colour], label=f"a = {percent / 100:g}, L = {lag}",
            )  # fmt: skip
        steps = np.arange(1, 201)
        axes.semilogy(steps, (1 - percent / 100) ** steps, ":", color="black", linewidth=1.2)
    axes.plot([], [], ":", color="black", linewidth=1.2, label="(1 - a)$^t$")
    axes.set(
        xlabel="steps t", ylabel="largest relative error of the law", ylim=(1e-15, 1e2),
        title="(c) infinitely many points: the error decays as 1 - a",
    )  # fmt: skip
    axes.legend(loc="lower left")


def _draw_limit(rows: list[Row], axes: Any) -> None:
    lags = np.linspace(0.8, 4.3, 200)
    curve = 2 * np.cos(lags * np.pi / (2 * lags + 1))
    axes.fill_between(lags, curve, 1.45, color=PALETTE["vermilion"], alpha=0.12)
    axes.plot(lags, curve, color="black", label="2 cos(L π / (2 L + 1))")
    for value, mark, colour, label in (
        (1.0, "o", "green", "settles"), (0.0, "x", "vermilion", "does not"),
    ):  # fmt: skip
        found = select(rows, metric="settled", value=value)
        axes.plot(
            [int(row.method[-1]) for row in found], [row.step for row in found], mark,
            color=PALETTE[colour], label=label,
        )  # fmt: skip
    axes.plot([1, 2, 3, 4], [0.2] * 4, "--", color=PALETTE["grey"], label="a = 1/W for W = 5")
    axes.set(
        xlabel="lag L", ylabel="share a renewed per step", ylim=(0, 1.45), xticks=[1, 2, 3, 4],
        title="(d) too long a lag never settles",
    )  # fmt: skip
    axes.legend(loc="upper right")

"""What the experiment ``oeu`` concludes from its metrics, and how it draws them."""

import math
from typing import Any

import numpy as np

from jaxlab.experiment.figures import PALETTE, method_style
from jaxlab.experiment.metrics import Row, select
from jaxlab.experiment.verdict import Criterion, Report, ReportTable

__all__ = ["COMPARED", "SCENARIOS", "draw", "judge"]

SCENARIOS = ("class", "random")
"""What is forgotten: a class, or a tenth of the training data."""

SHARED_STEP_SIZE = 0.05
"""At which methods are compared without a search."""

_COLUMNS = {
    "forget_accuracy": "FA",
    "retain_accuracy": "RA",
    "test_accuracy": "TA",
    "mia": "MIA",
    "auc": "AUC",
    "forget_entropy": "entropy",
    "gap": "gap",
}
_MODELS = ("original", "retrained")
COMPARED = (
    "OEU",
    "entropy",
    "random labels",
    "similar labels",
    "reweighted",
    "gradient ascent",
    "fine-tuning",
)
"""Methods that the figure shows; all that run with ``--smoke``."""
_TITLES = {"class": "one class", "random": "a random tenth"}


def judge(rows: list[Row]) -> Report:
    """Criteria, notes and tables."""
    tables = [_table(rows, scenario) for scenario in SCENARIOS]
    return Report(_criteria(rows), _notes(rows), [*tables, _grid(rows)])


def _methods(rows: list[Row]) -> list[str]:
    return list(dict.fromkeys(row.method for row in select(rows, metric="chosen_step_size")))


def _chosen(rows: list[Row], method: str, scenario: str) -> float:
    if method in _MODELS:
        return 0.0
    found = select(rows, method=method, metric="chosen_step_size", dataset=scenario)
    return found[0].value if found else math.nan


def _values(
    rows: list[Row], method: str, scenario: str, metric: str, step: float | None = None
) -> np.ndarray:
    """By seed, at the chosen step size unless one is given."""
    at = _chosen(rows, method, scenario) if step is None else step
    found = select(rows, method=method, dataset=scenario, metric=metric, step=at)
    return np.array([row.value for row in sorted(found, key=lambda row: row.seed)])


def _mean_error(values: np.ndarray) -> tuple[float, float]:
    """The mean over seeds and its standard error; NaN without seeds."""
    if not len(values):
        return math.nan, math.nan
    return float(values.mean()), float(values.std(ddof=1) / len(values) ** 0.5)


def _less(
    rows: list[Row],
    one: str,
    other: str,
    scenario: str,
    metric: str,
    step: float | None = None,
) -> tuple[float, float]:
    """The mean of the differences of two methods, seed by seed, and its standard error."""
    pair = [_values(rows, method, scenario, metric, step) for method in (one, other)]
    return _mean_error(pair[0] - pair[1])


def _criteria(rows: list[Row]) -> list[Criterion]:
    def oeu(metric: str) -> float:
        return _mean_error(_values(rows, "OEU", "class", metric))[0]

    retrained = _mean_error(_values(rows, "retrained", "class", "test_accuracy"))[0]
    shared = f"random, step size {SHARED_STEP_SIZE:g}"
    return [
        Criterion("class: RA of OEU", oeu("retain_accuracy"), at_least=0.99),
        Criterion("class: TA of OEU, distance to retrained",
                  abs(oeu("test_accuracy") - retrained), at_most=0.02),
        Criterion("class: FA of OEU", oeu("forget_accuracy"), at_most=0.25),
        *(
            Criterion(f"class: gap of OEU less that of {other}",
                      _less(rows, "OEU", other, "class", "gap")[0], at_most=0.0,
                      shape=True)
            for other in ("random labels", "gradient ascent", "entropy")
        ),
        *(
            Criterion(f"{shared}: {name} of OEU less that of entropy",
                      _less(rows, "OEU", "entropy", "random", metric, SHARED_STEP_SIZE)[0],
                      at_least=0.0, shape=True)
            for name, metric in (("RA", "retain_accuracy"), ("TA", "test_accuracy"))
        ),
    ]  # fmt: skip


def _told(pair: tuple[float, float]) -> str:
    return f"{pair[0]:.3f} ± {pair[1]:.3f}"


def _notes(rows: list[Row]) -> list[str]:
    notes = [
        "MIA is the share of the forget set that the best threshold on the largest probability, "
        "found on retained and held-out data, calls not trained on; ± is one standard error over "
        "seeds"
    ]
    shared = [
        _told(_less(rows, "OEU", "entropy", "random", metric, SHARED_STEP_SIZE))
        for metric in ("retain_accuracy", "test_accuracy")
    ]
    notes.append(
        f"what the projection adds at the shared step size, random tenth: RA {shared[0]}, TA "
        f"{shared[1]}; class, at the step sizes chosen: gap "
        + _told(_less(rows, "OEU", "entropy", "class", "gap"))
    )
    for scenario in SCENARIOS:
        gaps = {name: _mean_error(_values(rows, name, scenario, "gap")) for name in _methods(rows)}
        best = min(gaps, key=lambda name: gaps[name][0])
        if best != "OEU":
            notes.append(
                f"forgetting {_TITLES[scenario]}: the least gap is that of {best}, "
                f"{_told(gaps[best])}, against {_told(gaps['OEU'])} of OEU"
            )
    wrong = {
        name: _mean_error(_values(rows, name, "class", "confidently_wrong"))[0]
        for name in ("retrained", "OEU", "random labels", "similar labels")
    }
    notes.append(
        "forgotten class, share called something else with more than 0.9: "
        + ", ".join(f"{name} {value:.2f}" for name, value in wrong.items())
        + "; to be uncertain is not what a retrained model does"
    )
    ends = [
        f"{name} ({scenario})"
        for scenario in SCENARIOS
        for name in _methods(rows)
        if _chosen(rows, name, scenario) in (min(_steps(rows)), max(_steps(rows)))
    ]
    if ends:
        notes.append("chosen at an end of the grid of step sizes: " + ", ".join(ends))
    return notes


def _steps(rows: list[Row]) -> list[float]:
    return sorted({row.step for row in select(rows, metric="validation_gap")})


def _table(rows: list[Row], scenario: str) -> ReportTable:
    lines = []
    for name in (*_MODELS, *_methods(rows)):
        cells = []
        for metric in _COLUMNS:
            values = _values(rows, name, scenario, metric)
            cells.append(_told(_mean_error(values)) if len(values) else "")
        step = "" if name in _MODELS else f"{_chosen(rows, name, scenario):g}"
        lines.append((name, step, *cells))
    title = f"Forgetting {_TITLES[scenario]}: means and standard errors over seeds"
    return ReportTable(title, ("model", "step size", *_COLUMNS.values()), lines)


def _grid(rows: list[Row]) -> ReportTable:
    steps = _steps(rows)
    lines = [
        (name, scenario, *(
            f"{_mean_error(_values(rows, name, scenario, 'validation_gap', step))[0]:.3f}"
            for step in steps
        ))
        for scenario in SCENARIOS for name in _methods(rows)
    ]  # fmt: skip
    title = "Gap on the validation split by step size, which chose the step size"
    return ReportTable(title, ("model", "forgotten", *(f"{step:g}" for step in steps)), lines)


def draw(rows: list[Row], figure: Any) -> None:
    """Paths of accuracies, confidence on what was forgotten, and gaps."""
    axes = figure.subplots(2, 2)
    for letter, scenario, place in zip("ab", SCENARIOS, axes[0], strict=True):
        _draw_paths(rows, place, letter, scenario)
    _draw_confidence(rows, axes[1, 0])
    _draw_gaps(rows, axes[1, 1])


def _draw_paths(rows: list[Row], axes: Any, letter: str, scenario: str) -> None:
    floor = 5e-4
    for name in COMPARED:
        pair = []
        for metric in ("forget_accuracy", "retain_accuracy"):
            found = select(rows, method=name, dataset=scenario, metric=f"{metric}_path")
            steps = sorted({row.step for row in found})
            start = _mean_error(_values(rows, "original", scenario, metric))[0]
            means = [np.mean([row.value for row in select(found, step=s)]) for s in steps]
            pair.append(np.array([start, *means]))
        style = method_style(name)
        error = np.maximum(1 - pair[1], floor)
        axes.plot(pair[0], error, alpha=0.8, color=style["color"], linewidth=1.5)
        axes.plot(pair[0][-1:], error[-1:], linestyle="none", label=name, **style)
    for name, marker in (("original", "s"), ("retrained", "*")):
        forget, retain = (
            _mean_error(_values(rows, name, scenario, metric))[0]
            for metric in ("forget_accuracy", "retain_accuracy")
        )
        axes.plot([forget], [max(1 - retain, floor)], marker, color="black", markersize=14,
                  markerfacecolor="none", markeredgewidth=2, linestyle="none", label=name,
                  clip_on=False)  # fmt: skip
    axes.set(
        yscale="log", xlabel="accuracy on what is forgotten (FA)",
        ylabel="error on what is kept (1 − RA)", title=f"({letter}) forgetting {_TITLES[scenario]}",
    )  # fmt: skip
    if scenario == "class":
        axes.legend(ncols=2, loc="upper right", fontsize=11.5)


def _draw_confidence(rows: list[Row], axes: Any) -> None:
    names = ("retrained", "OEU", "random labels", "similar labels")
    width = 0.1 / (len(names) + 1)
    for place, name in enumerate(names):
        found = select(rows, method=name, dataset="class", metric="confidence")
        steps = sorted({row.step for row in found})
        shares = [np.mean([row.value for row in select(found, step=step)]) for step in steps]
        left = np.array(steps) - 0.05 + width * (place + 1)
        colour = "black" if name == "retrained" else method_style(name)["color"]
        axes.bar(left, shares, width=width, color=colour, alpha=0.8, label=name)
    axes.set(
        xlabel="largest probability", ylabel="share of the forgotten class",
        title="(c) how certain models are of the forgotten class", xlim=(0, 1),
    )  # fmt: skip
    axes.legend(loc="upper center")


def _draw_gaps(rows: list[Row], axes: Any) -> None:
    names = _methods(rows)
    for scenario, colour, shift in zip(SCENARIOS, ("blue", "orange"), (-0.2, 0.2), strict=True):
        means, errors = zip(
            *(_mean_error(_values(rows, name, scenario, "gap")) for name in names), strict=True
        )
        places = np.arange(len(names)) + shift
        axes.barh(places, means, xerr=errors, height=0.38, color=PALETTE[colour], alpha=0.8,
                  label=_TITLES[scenario])  # fmt: skip
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set(
        xlabel="mean |difference| to the retrained model", title="(d) gap, with standard errors"
    )
    axes.legend(title="forgotten", loc="upper right")

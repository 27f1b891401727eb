"""What the experiment ``multitask_limits`` concludes from its metrics, and how it draws them."""

from typing import Any

import numpy as np

from jaxlab.experiment.figures import PALETTE
from jaxlab.experiment.metrics import Row, select
from jaxlab.experiment.verdict import Criterion, Report, ReportTable

__all__ = [
    "CONSTANT_SAMPLES",
    "FIXED_SAMPLES",
    "NOISY_TASKS",
    "NUM_GOOD",
    "NUM_USERS",
    "SIMULATED_SAMPLES",
    "draw",
    "judge",
]

CONSTANT_SAMPLES = (1, 2, 3, 4)
"""Samples a task where good tasks have a constant gap."""
NOISY_TASKS = {1: 8.25, 2: 8.75, 3: 9.0, 4: 9.5, 6: 10.0, 8: 10.5}
"""Samples a task where the gap falls with them, and the power of ten of the tasks."""
FIXED_SAMPLES = (1, 2, 4, 8, 16, 32)
"""Samples a task of the family that does not change."""
SIMULATED_SAMPLES = (1, 2, 3)
"""Samples a task of simulations."""
NUM_GOOD = (20, 100)
"""Good tasks of simulations, of twenty thousand."""
NUM_USERS = (8, 16, 32, 64, 128)
"""Users whose ratings a learner sees."""

ADAPTIVE = ("pooling", "tasks with all hits", "likelihood ratio", "expectation maximisation")
FILM_RULES = ("pooling", "tasks of one mind", "expectation maximisation", "oracle")


def _one(rows: list[Row], method: str, metric: str, **fields: Any) -> float:
    found = select(rows, method=method, metric=metric, **fields)
    return float(np.mean([row.value for row in found]))


def _cells() -> list[dict[str, Any]]:
    return [{"step": n, "dataset": str(good)} for good in NUM_GOOD for n in SIMULATED_SAMPLES]


def _slack(rows: list[Row]) -> float:
    """By how many standard errors the luckiest adaptive learner is above the bound, at least.

    The standard error is that of a learner which errs as often as the bound says.
    """
    found = []
    for name in ADAPTIVE:
        for at in _cells():
            bound = _one(rows, "bound", "lower", **at)
            spread = (bound * (1 - bound) / _one(rows, name, "draws", **at)) ** 0.5
            found.append((_one(rows, name, "error", **at) - bound) / spread)
    return min(found)


def judge(rows: list[Row]) -> Report:
    """Criteria, notes and tables."""
    criteria = [
        Criterion(
            f"constant gap: largest bound over numbers of tasks, n = {n}",
            max(row.value for row in select(rows, method="constant gap", metric=f"bound {n}")),
            at_most=1e-3, shape=True,
        )
        for n in (3, 4)
    ]  # fmt: skip
    criteria += [
        Criterion(
            "noisy gap: least bound over samples",
            min(row.value for row in select(rows, metric="at the grid")),
            at_least=0.1, shape=True,
        ),
        Criterion(
            "the oracle's largest error there",
            max(row.value for row in select(rows, metric="error at the grid")),
            at_most=3e-4,
        ),
        Criterion(
            "simulated learners above the bound, standard errors at least", _slack(rows),
            at_least=-4.0, shape=True,
        ),
        Criterion(
            "fixed family: bound with 32 samples over that with 1",
            _one(rows, "fixed family", "le_cam", step=32)
            / _one(rows, "fixed family", "le_cam", step=1),
            at_most=0.1,
        ),
        Criterion(
            "films: the oracle's error over pooling's, mean over numbers of users",
            float(np.mean([_film(rows, "oracle", size) for size in NUM_USERS]))
            / float(np.mean([_film(rows, "pooling", size) for size in NUM_USERS])),
            at_most=1.0,
        ),
    ]  # fmt: skip
    tables = [_regime_table(rows), _simulation_table(rows), _film_table(rows)]
    return Report(criteria, _notes(rows), tables)


def _film(rows: list[Row], name: str, size: int) -> float:
    return _one(rows, name, "film error", step=size)


def _notes(rows: list[Row]) -> list[str]:
    falls = (
        _one(rows, "fixed family", "le_cam", step=1),
        _one(rows, "fixed family", "le_cam", step=32),
    )
    notes = [
        f"a family that does not change with n: the bound falls from {falls[0]:.3f} with one "
        f"sample to {falls[1]:.4f} with 32, so that more data do help there"
    ]
    excess = [_one(rows, "oracle", "excess", step=n) for n in (1, 8)]
    notes.append(
        f"the oracle's possible excess risk falls from {excess[0]:.2e} with one sample to "
        f"{excess[1]:.2e} with eight, while the adaptive error stays above a tenth"
    )
    best = {name: np.mean([_film(rows, name, size) for size in NUM_USERS]) for name in FILM_RULES}
    rule = min((name for name in FILM_RULES if name != "oracle"), key=lambda name: best[name])
    notes.append(
        f"films: the best rule that does not know the good users is {rule}, with a mean error of "
        f"{best[rule]:.3f} where the oracle has {best['oracle']:.3f}"
    )
    return notes


def _regime_table(rows: list[Row]) -> ReportTable:
    lines = [
        (
            str(n),
            f"{10.0**size:.2g}",
            f"{_one(rows, 'noisy gap', 'at the grid', step=n):.3f}",
            f"{_one(rows, 'oracle', 'error at the grid', step=n):.2e}",
            f"{_one(rows, 'noisy gap', 'log tasks for 0.1', step=n):.2f}",
        )
        for n, size in NOISY_TASKS.items()
    ]
    columns = ("samples", "tasks", "adaptive error at least", "oracle", "log10 tasks for 0.1")
    return ReportTable("Noisy gap, 100,000 good tasks", columns, lines)


def _simulation_table(rows: list[Row]) -> ReportTable:
    cells = _cells()
    lines = [
        (name, *(f"{_one(rows, name, 'error', **at):.3f}" for at in cells))
        for name in (*ADAPTIVE, "oracle")
    ]
    for metric in ("lower", "upper"):
        values = (f"{_one(rows, 'bound', metric, **at):.3f}" for at in cells)
        lines.append((f"{metric} bound", *values))
    columns = ("learner", *(f"{at['dataset']}, n={at['step']}" for at in cells))
    return ReportTable("Errors on the sign, 20 or 100 good tasks of 20,000", columns, lines)


def _film_table(rows: list[Row]) -> ReportTable:
    lines = [
        (name, *(f"{_film(rows, name, size):.3f}" for size in NUM_USERS)) for name in FILM_RULES
    ]
    columns = ("learner", *(f"{size} users" for size in NUM_USERS))
    return ReportTable("Errors on a genre's sign, 3 ratings a user", columns, lines)


_COLOURS = ("blue", "orange", "green", "vermilion", "purple", "sky")
_LEARNERS = {
    "pooling": ("orange", "s"),
    "tasks with all hits": ("sky", "^"),
    "tasks of one mind": ("sky", "^"),
    "likelihood ratio": ("blue", "o"),
    "expectation maximisation": ("purple", "D"),
    "oracle": ("green", "v"),
}


def draw(rows: list[Row], figure: Any) -> None:
    """Both regimes above, simulations and films below."""
    above, below = figure.subplots(2, 2)
    _draw_regime(rows, above[0], "constant gap", CONSTANT_SAMPLES, "(a) good tasks stay as good")
    title = "(b) good tasks as noisy as an oracle bears"
    _draw_regime(rows, above[1], "noisy gap", tuple(NOISY_TASKS), title)
    _draw_simulation(rows, below[0])
    _draw_films(rows, below[1])


def _draw_regime(
    rows: list[Row], axes: Any, regime: str, samples: tuple[int, ...], title: str
) -> None:
    for n, colour in zip(samples, _COLOURS, strict=False):
        found = select(rows, method=regime, metric=f"bound {n}")
        axes.plot(
            [row.step for row in found], [row.value for row in found], color=PALETTE[colour],
            label=f"n = {n}",
        )  # fmt: skip
    axes.axhline(0.25, color=PALETTE["grey"], linestyle=":", label="most that this bound says")
    axes.set(
        xlabel="tasks, power of ten", ylabel="least adaptive error", title=title, ylim=(0, 0.36)
    )
    axes.legend(loc="upper left", ncols=2)


def _draw_simulation(rows: list[Row], axes: Any) -> None:
    good = str(NUM_GOOD[-1])
    for name in (*ADAPTIVE, "oracle"):
        colour, marker = _LEARNERS[name]
        values = [_one(rows, name, "error", step=n, dataset=good) for n in SIMULATED_SAMPLES]
        axes.plot(SIMULATED_SAMPLES, values, color=PALETTE[colour], marker=marker, label=name)
    low, high = (
        [_one(rows, "bound", metric, step=n, dataset=good) for n in SIMULATED_SAMPLES]
        for metric in ("lower", "upper")
    )
    axes.fill_between(
        SIMULATED_SAMPLES,
        low,
        high,
        color=PALETTE["grey"],
        alpha=0.3,
        label="best adaptive, between bounds",
    )
    axes.set(
        xlabel="samples a task, n", ylabel="error on the sign", ylim=(-0.01, 0.42),
        title=f"(c) {good} good tasks of 20,000",
    )  # fmt: skip
    axes.set_xticks(SIMULATED_SAMPLES)
    axes.set_yticks(np.arange(0, 0.21, 0.05))
    axes.legend(loc="upper right", ncols=1)


def _draw_films(rows: list[Row], axes: Any) -> None:
    for name in FILM_RULES:
        colour, marker = _LEARNERS[name]
        values = [_film(rows, name, size) for size in NUM_USERS]
        axes.plot(NUM_USERS, values, color=PALETTE[colour], marker=marker, label=name)
    axes.set_xscale("log")
    axes.set_xticks(NUM_USERS, [str(size) for size in NUM_USERS])
    axes.set_xticks([], minor=True)
    axes.set(
        xlabel="users, 3 ratings each", ylabel="error on a genre's sign",
        title="(d) films: is a genre rated above the mean?",
    )  # fmt: skip
    axes.legend()

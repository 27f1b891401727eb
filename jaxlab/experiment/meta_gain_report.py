"""What the experiment ``meta_gain`` concludes from its metrics, and how it draws them."""

import math
from typing import Any

import numpy as np

from jaxlab.experiment.figures import PALETTE
from jaxlab.experiment.metrics import Row, select
from jaxlab.experiment.verdict import Criterion, Report, ReportTable

__all__ = ["FAMILIES", "OUTSIDE", "PROBES", "SPREADS", "draw", "judge"]

SPREADS = (0.0, 0.1, 0.2, 0.4, 0.8)
"""Standard deviations of the detuning, an angular frequency over one gate time."""

FAMILIES = ("rates only", *(f"detuning {s:g}" for s in SPREADS[1:]))
"""Families of devices, by what differs between them; rates differ in all."""

OUTSIDE = 2
"""The family whose pulse meets devices outside of it."""

PROBES = (3, 4, 5)
"""How many steps are taken before the budget is told."""

_COLOURS = dict(zip(FAMILIES, ("grey", "blue", "orange", "green", "vermilion"), strict=True))


def judge(rows: list[Row]) -> Report:
    """Criteria, notes and tables."""
    return Report(_criteria(rows), _notes(rows), [_family_table(rows), _probe_table(rows)])


def _values(rows: list[Row], method: str, metric: str, dataset: str = "") -> np.ndarray:
    """By seed."""
    found = select(rows, method=method, metric=metric, dataset=dataset)
    return np.array([row.value for row in sorted(found, key=lambda row: row.seed)])


def _mean(rows: list[Row], method: str, metric: str, dataset: str = "") -> float:
    return float(_values(rows, method, metric, dataset).mean())


def _curve(rows: list[Row], method: str, metric: str, seed: int = 0) -> np.ndarray:
    found = select(rows, method=method, metric=metric, seed=seed)
    return np.array([row.value for row in sorted(found, key=lambda row: row.step)])


def _seeds(rows: list[Row]) -> list[int]:
    return sorted({row.seed for row in rows})


def _gains(rows: list[Row], method: str, metric: str = "total") -> np.ndarray:
    """After the last step, by seed."""
    return np.array([_curve(rows, method, metric, seed)[-1] for seed in _seeds(rows)])


def _per_variance(rows: list[Row], method: str) -> float:
    gain = _gains(rows, method).sum()
    return float(gain / _values(rows, method, "variance").sum())


def _budget_errors(rows: list[Row], method: str, probes: int) -> np.ndarray:
    """Of the steps to nine tenths of the limit, against the fit of the whole curve; by seed."""
    told = _values(rows, method, "rate", f"{probes} probes")
    return np.abs(_values(rows, method, "rate", "fit") / told - 1)


def _criteria(rows: list[Row]) -> list[Criterion]:
    detuned = FAMILIES[1:]
    least_r2 = min(_values(rows, name, "r2", "fit").min() for name in detuned)
    slopes = [_per_variance(rows, name) for name in detuned]
    inside, out = _gains(rows, FAMILIES[OUTSIDE]).mean(), _gains(rows, "detuning x10").mean()
    errors = [_budget_errors(rows, name, 4).max() for name in detuned]
    untrained, trained = (f"two qubits, {word}" for word in ("untrained", "trained"))
    first = _curve(rows, untrained, "total")[-1]
    return [
        Criterion("R² of the law, least of detuning families", float(least_r2), at_least=0.99),
        Criterion(
            "gain over variance, detuning 0.1 over 0.2", slopes[0] / slopes[1],
            at_least=1 / 1.5, at_most=1.5, shape=True,
        ),
        Criterion(
            "gain over variance, detuning 0.8 over 0.1", slopes[3] / slopes[0], at_most=0.7,
            shape=True,
        ),
        Criterion("gain at ten times the detuning", float(out), at_least=0.08),
        Criterion(
            "the same over the gain inside of the family", float(out / inside), at_least=50.0
        ),
        Criterion(
            "error of the budget by four probes, largest", float(max(errors)), at_most=0.25,
            shape=True,
        ),
        Criterion(
            "two qubits, untrained: one controller's share of the gain",
            float(_curve(rows, untrained, "shared")[-1] / first), at_least=0.95, shape=True,
        ),
        Criterion(
            "two qubits: gain once trained over gain untrained",
            float(_curve(rows, trained, "total")[-1] / first), at_most=0.02, shape=True,
        ),
        Criterion(
            "R² of the law, springs", float(_values(rows, "springs", "r2", "fit").min()),
            at_least=0.99,
        ),
    ]  # fmt: skip


def _notes(rows: list[Row]) -> list[str]:
    untrained = "two qubits, untrained"
    gain, spread = _curve(rows, untrained, "total")[-1], _mean(rows, untrained, "spread")
    fidelity = 1 - _mean(rows, untrained, "loss")
    trained = _curve(rows, "two qubits, trained", "total")[-1]
    rates = _gains(rows, "rates only").mean()
    share = _gains(rows, "rates only", "shared").mean() / rates
    curved = _mean(rows, "rates only", "curved", "fit")
    steps = len(_curve(rows, "rates only", "total")) - 1
    limits = {name: _mean(rows, name, "limit", "fit") for name in FAMILIES[1:]}
    reached = ", ".join(
        f"{name} {_gains(rows, name).mean() / limits[name]:.2f}" for name in FAMILIES[1:]
    )
    possible, spring = _mean(rows, "springs", "possible"), _mean(rows, "springs", "limit", "fit")
    ten = _mean(rows, "rates x10", "loss")
    wide = _mean(rows, "detuning x10", "loss")
    return [
        f"Two qubits: from a pulse that was not trained the fidelity rises from {fidelity:.3f} by "
        f"{gain:.4f}, with a standard deviation of {spread:.4f} over devices. One controller for "
        f"all gains {_curve(rows, untrained, 'shared')[-1]:.4f} by the same steps, and from there "
        f"adaptation brings {trained:.1e}: the large gain is a mismatched start.",
        f"Where only rates differ, {steps} steps gain {rates:.1e}, of which one controller would "
        f"gain {share:.0%}; the curve bends towards a limit in {curved:.0%} of the samples. The "
        "best pulse hardly depends on the rates.",
        f"Gain after {steps} steps over the fitted limit: {reached}.",
        f"Outside of the family of detuning 0.2: rates x10 fidelity {1 - ten:.3f} to "
        f"{1 - ten + _gains(rows, 'rates x10').mean():.3f}, detuning x10 {1 - wide:.3f} to "
        f"{1 - wide + _gains(rows, 'detuning x10').mean():.3f}.",
        f"Springs: the fitted limit is {spring / possible:.2f} of what the best feedback of every "
        "mass would gain: the law sees the fast modes.",
        "Devices are simulated: rates in units of one over the gate time, as of relaxation times "
        "of 20 to 60 us and gates of about 1 us; no measured device is behind them.",
    ]


def _family_table(rows: list[Row]) -> ReportTable:
    table = []
    for name in (*FAMILIES, "springs"):
        gain = _gains(rows, name)
        has_variance = name != "springs" and _mean(rows, name, "variance") > 0
        table.append(
            (
                name,
                f"{gain.mean():.2e}",
                f"{_gains(rows, name, 'shared').mean():.1e}",
                f"{_per_variance(rows, name):.4f}" if has_variance else "",
                f"{_mean(rows, name, 'limit', 'fit'):.2e}",
                f"{_mean(rows, name, 'rate', 'fit'):.4f}",
                f"{_values(rows, name, 'r2', 'fit').min():.4f}",
                "yes" if _values(rows, name, "curved", "fit").all() else "no",
            )
        )
    columns = ("family", "gain", "shared", "gain / variance", "A", "beta", "least R²", "saturates")
    return ReportTable("Adaptation, means of seeds", columns, table)


def _probe_table(rows: list[Row]) -> ReportTable:
    table = [
        (name, *(f"{_budget_errors(rows, name, n).max():.1%}" for n in PROBES))
        for name in FAMILIES[1:]
    ]
    columns = ("family", *(f"{n} probes" for n in PROBES))
    return ReportTable("Error of the budget, largest of seeds", columns, table)


def draw(rows: list[Row], figure: Any) -> None:
    """Gains and the law, gains by variance, budgets, two qubits, other devices, springs."""
    axes = figure.subplots(2, 3)
    _draw_gains(rows, axes[0, 0])
    _draw_variance(rows, axes[0, 1])
    _draw_budgets(rows, axes[0, 2])
    _draw_pairs(rows, axes[1, 0])
    _draw_outside(rows, axes[1, 1])
    _draw_springs(rows, axes[1, 2])
    for letter, panel in zip("abcdef", axes.flat, strict=True):
        title = panel.get_title()
        panel.set_title("")
        panel.set_title(f"({letter}) {title}", loc="left")


def _law(rows: list[Row], method: str, steps: np.ndarray) -> np.ndarray:
    limit, rate = (_values(rows, method, metric, "fit")[0] for metric in ("limit", "rate"))
    return limit * -np.expm1(-rate * steps)


def _draw_gains(rows: list[Row], axes: Any) -> None:
    for name in FAMILIES:
        gains = _curve(rows, name, "total")
        steps = np.arange(len(gains))
        axes.plot(steps[::4], gains[::4], "o", color=PALETTE[_COLOURS[name]], label=name)
        if name != FAMILIES[0]:
            axes.plot(steps, _law(rows, name, steps), color=PALETTE[_COLOURS[name]])
    axes.plot([], [], color="black", label="A (1 - exp(-βK))")
    bottom, top = axes.get_ylim()
    axes.set_ylim(bottom, 1.45 * top)  # room for the legend
    axes.set(xlabel="steps K", ylabel="gain in fidelity", title="gain and its law")
    axes.legend(fontsize=11, ncols=2, loc="upper left")


def _draw_variance(rows: list[Row], axes: Any) -> None:
    slope = _per_variance(rows, FAMILIES[1])
    for name in FAMILIES[1:]:
        x = _values(rows, name, "variance")
        axes.plot(x, _gains(rows, name), "o", color=PALETTE[_COLOURS[name]], label=name)
    ends = np.array([_values(rows, FAMILIES[1], "variance").min() / 1.5, 0.3])
    axes.plot(ends, slope * ends, "--", color="black", label="in proportion")
    axes.set(
        xscale="log", yscale="log", xlabel="variance of the detuning", ylabel="gain",
        title="gain and variance",
    )  # fmt: skip
    axes.legend(fontsize=11)


def _draw_budgets(rows: list[Row], axes: Any) -> None:
    ends = []
    for n, marker in zip((3, 4, 5), "sov", strict=True):
        true, told = [], []
        for name in FAMILIES[1:]:
            true.append(math.log(10) / _values(rows, name, "rate", "fit"))
            told.append(math.log(10) / _values(rows, name, "rate", f"{n} probes"))
        x, y = np.concatenate(true), np.concatenate(told)
        ends += [x.min(), x.max()]
        colour = {3: "sky", 4: "blue", 5: "purple"}[n]
        axes.plot(x, y, marker, color=PALETTE[colour], label=f"{n} probes", alpha=0.7)
    line = np.array([min(ends) / 1.5, max(ends) * 1.2])
    axes.plot(line, line, "--", color="black", label="equal")
    axes.fill_between(line, line / 1.25, line * 1.25, color="black", alpha=0.1, label="25%")
    axes.set(
        xlabel="steps to 90%, whole curve", ylabel="steps to 90%, from probes", title="budgets"
    )
    axes.legend(fontsize=11)


def _draw_pairs(rows: list[Row], axes: Any) -> None:
    for name, colour in (("untrained", "vermilion"), ("trained", "blue")):
        gains = _curve(rows, f"two qubits, {name}", "total")
        axes.plot(gains, color=PALETTE[colour], label=f"{name}, each its own", linewidth=4)
        shared = _curve(rows, f"two qubits, {name}", "shared")
        axes.plot(shared, "--", color="black", label=None if colour == "blue" else "one for all")
    bottom, top = axes.get_ylim()
    axes.set_ylim(bottom, 1.5 * top)  # room for the legend
    axes.set(xlabel="steps K", ylabel="gain in fidelity", title="two qubits: the start's fault")
    axes.legend(fontsize=11, loc="upper left")


def _draw_outside(rows: list[Row], axes: Any) -> None:
    names = (FAMILIES[OUTSIDE], "rates x10", "detuning x10")
    before = np.array([1 - _mean(rows, name, "loss") for name in names])
    after = before + [_gains(rows, name).mean() for name in names]
    at = np.arange(len(names))
    axes.bar(at - 0.2, before, 0.4, color=PALETTE["grey"], label="before")
    axes.bar(at + 0.2, after, 0.4, color=PALETTE["green"], label="after")
    axes.set_xticks(at, ["inside", "rates\nx10", "detuning\nx10"])
    axes.set(ylim=(0.5, 1.1), ylabel="fidelity", title="other devices")
    axes.legend(fontsize=11, loc="upper center", ncols=2)


def _draw_springs(rows: list[Row], axes: Any) -> None:
    gains = _curve(rows, "springs", "total")
    steps = np.arange(len(gains))
    axes.plot(steps[::2], gains[::2], "o", color=PALETTE["blue"], label="springs")
    axes.plot(steps, _law(rows, "springs", steps), color=PALETTE["blue"], label="the law")
    possible = _values(rows, "springs", "possible")[0]
    axes.axhline(possible, linestyle=":", color="black", label="best feedback each")
    axes.set(xlabel="steps K", ylabel="gain in cost", title="springs, mass unknown")
    axes.legend(fontsize=11)

"""What the experiment ``nse`` concludes from its metrics, and how it draws them."""

import math
from typing import Any

import numpy as np

from jaxlab.experiment.figures import PALETTE, method_style
from jaxlab.experiment.metrics import Row, select
from jaxlab.experiment.verdict import Criterion, Report, ReportTable
from jaxlab.stats.intervals import ExponentFit, fit_exponent

__all__ = ["SCALES", "draw", "judge", "label"]

SCALES = {1: 0.3, 2: 0.2, 3: 0.08}
"""Exponents and scales of the step functions that are compared."""

KNOWN = {
    1: {1.0: (9.13, 9.13), 0.1: (108.0, 108.0), 0.01: (1108.0, 1108.0)},
    2: {1.0: (10.0, 23.3), 0.1: (77.8, 1350.0), 0.01: (756.0, 1.26e5)},
    3: {1.0: (22.3, 65.7), 0.1: (194.0, 2.86e4), 0.01: (1920.0, 2.63e7)},
}
"""``(alpha_IT, alpha_alg)`` by exponent and snr, to three digits, computed apart from this code."""

WEAK = 0.1
"""The signal-to-noise ratio at which exponents are compared on real features."""

SETTLED = 3.0
"""The number of samples per dimension at which AMP must be on state evolution."""

_ROUNDED = 0.006  # The table's three digits.
_NAMES = {"alpha_alg": "first-order", "alpha_it": "information"}


def label(order: int) -> str:
    """How a step function of this exponent is called.

    Example:
        >>> label(2)
        'exponent 2'
    """
    return f"exponent {order}"


def judge(rows: list[Row]) -> Report:
    """Criteria, notes and tables."""
    criteria = [
        *_threshold_criteria(rows),
        *_committee_criteria(rows),
        *_amp_criteria(rows),
        *_real_criteria(rows),
    ]
    tables = [_threshold_table(rows), _slope_table(rows), _amp_table(rows), _real_table(rows)]
    return Report(criteria, _notes(rows), tables)


def _value(rows: list[Row], **fields: Any) -> float:
    (row,) = select(rows, **fields)
    return row.value


def _mean(rows: list[Row], **fields: Any) -> float:
    values = [row.value for row in select(rows, **fields)]
    return float(np.mean(values)) if values else math.nan


def _curve(rows: list[Row], method: str, metric: str, seed: int = 0) -> tuple[Any, Any]:
    found = sorted(select(rows, method=method, metric=metric, seed=seed), key=lambda r: r.step)
    return np.array([row.step for row in found]), np.array([row.value for row in found])


def _weak_slope(rows: list[Row], order: int, metric: str) -> float:
    """The slope of the reference in ``log snr``, below 0.1."""
    snrs, values = _curve(rows, label(order), metric)
    weak = snrs <= 0.1 * (1 + 1e-9)
    return float(np.polyfit(np.log(snrs[weak]), np.log(values[weak]), 1)[0])


def _interval(rows: list[Row], order: int, metric: str) -> ExponentFit:
    """Over the replicas, which are other step functions of the exponent."""
    seeds = sorted({r.seed for r in select(rows, method=label(order), metric=metric)} - {0})
    curves = [_curve(rows, label(order), metric, seed) for seed in seeds]
    return fit_exponent(curves[0][0], np.stack([values for _, values in curves]))


def _gap(rows: list[Row], method: str) -> np.ndarray:
    return _curve(rows, method, "alpha_alg")[1] / _curve(rows, method, "alpha_it")[1]


def _worst(values: Any, target: float = 1.0) -> float:
    """The value that is farthest from the target."""
    flat = np.ravel(values)
    return float(flat[np.argmax(np.abs(flat - target))])


def _limit_ratio(rows: list[Row], order: int, metric: str) -> float:
    """The threshold at the smallest snr, over its large-noise limit."""
    snrs, values = _curve(rows, label(order), metric)
    if metric == "alpha_it":
        return float(values[0] * snrs[0] / _value(rows, method=label(order), metric="kappa"))
    c = _value(rows, method=label(order), metric="coefficient")
    return float(values[0] * snrs[0] ** order * c**2 / math.factorial(order))


def _table_deviation(rows: list[Row]) -> float:
    worst = 0.0
    for order, known in KNOWN.items():
        for snr, pair in known.items():
            for metric, expected in zip(("alpha_it", "alpha_alg"), pair, strict=True):
                snrs, values = _curve(rows, label(order), metric)
                at = int(np.argmin(np.abs(np.log(snrs / snr))))
                worst = max(worst, abs(values[at] / expected - 1))
    return worst


def _threshold_criteria(rows: list[Row]) -> list[Criterion]:
    criteria = []
    for order in SCALES:
        found = _value(rows, method=label(order), metric="exponent")
        criteria.append(Criterion(f"exponent found, {order} by construction", found, order, order))
    for metric, name in _NAMES.items():
        for order in SCALES:
            expected = -order if metric == "alpha_alg" else -1
            slope = _weak_slope(rows, order, metric)
            criteria.append(
                Criterion(
                    f"slope of the {name} threshold in snr, exponent {order}", slope,
                    expected - 0.05, expected + 0.05, shape=True,
                )
            )  # fmt: skip
    for method in (label(1), "He_2"):
        gap = _worst(_gap(rows, method))
        criteria.append(Criterion(f"gap, {method}, worst", gap, 0.98, 1.02, shape=True))
    alg, it = (_worst([_limit_ratio(rows, order, metric) for order in SCALES]) for metric in _NAMES)
    criteria.append(Criterion("first-order / limit at snr 0.01, worst", alg, 0.988, 1.012))
    criteria.append(Criterion("information / limit at snr 0.01, worst", it, 0.995, 1.005))
    deviation = _table_deviation(rows)
    criteria.append(Criterion("deviation from known thresholds", deviation, at_most=_ROUNDED))
    return criteria


def _committee_criteria(rows: list[Row]) -> list[Criterion]:
    ratios, criteria = [], []
    for order in SCALES:
        widths, exact = _curve(rows, label(order), "committee")
        limit = _curve(rows, label(order), "committee_limit")[1]
        ratios.append(exact[-1] / limit[-1])
        wide = widths >= 32
        slope = float(np.polyfit(np.log(widths[wide]), np.log(exact[wide]), 1)[0])
        criteria.append(
            Criterion(
                f"slope of the committee's threshold in its width, exponent {order}", slope,
                order - 0.03, order + 0.03, shape=True,
            )
        )  # fmt: skip
    worst = _worst(ratios)
    return [*criteria, Criterion("committee / limit at 128 units, worst", worst, 0.98, 1.02)]


def _alphas(rows: list[Row]) -> list[float]:
    return sorted({row.step for row in select(rows, method="AMP", metric="overlap")})


def _off(rows: list[Row], alpha: float) -> float:
    """The mean overlap less that of state evolution."""
    overlap = _mean(rows, method="AMP", metric="overlap", step=alpha)
    return overlap - _value(rows, metric="predicted", step=alpha)


def _amp_criteria(rows: list[Row]) -> list[Criterion]:
    apart = [
        _mean(rows, method="AMP", metric="overlap", step=alpha)
        - _mean(rows, method="AMP", metric=metric, step=alpha)
        for alpha in _alphas(rows)
        for metric in ("self_overlap", "known")
    ]
    kept = _mean(rows, method="informed", metric="hard_phase")
    learnt = _mean(rows, method="uninformed", metric="hard_phase")
    off = abs(_off(rows, SETTLED))
    worst = abs(_worst(apart, 0.0))
    return [
        Criterion(f"AMP against state evolution, alpha {SETTLED:g}", off, at_most=0.04),
        Criterion("mean square and 1 - v against the overlap, worst", worst, at_most=0.04),
        Criterion("hard phase, overlap from an informed start", kept, at_least=0.9, shape=True),
        Criterion("hard phase, overlap from no knowledge", learnt, at_most=0.2, shape=True),
    ]


def _real_means(rows: list[Row], dataset: str, metric: str = "real_cosine") -> list[float]:
    where = {"dataset": dataset, "step": WEAK}
    return [_mean(rows, method=label(order), metric=metric, **where) for order in SCALES]


def _tables(rows: list[Row]) -> list[str]:
    found = select(rows, metric="real_cosine", method=label(1))
    return list(dict.fromkeys(row.dataset for row in found))


def _real_criteria(rows: list[Row]) -> list[Criterion]:
    names = _tables(rows)
    best = sum(float(np.argmax(_real_means(rows, name)) == 0) for name in names)
    name = f"real tables where exponent 1 is recovered best at snr {WEAK:g}"
    return [Criterion(name, best, len(names), shape=True)]


def _notes(rows: list[Row]) -> list[str]:
    notes = [
        "Hardness is that of first-order methods; that no method of polynomial time does better "
        "is a conjecture.",
        "Both thresholds are for infinite dimension; the committee's width and the noise go to "
        "infinity after it.",
    ]
    farthest = max(_alphas(rows), key=lambda alpha: abs(_off(rows, alpha)))
    values = [row.value for row in select(rows, method="AMP", metric="overlap", step=farthest)]
    notes.append(
        f"AMP is farthest from state evolution at alpha {farthest:g}: its mean overlap is off by "
        f"{_off(rows, farthest):+.3f}, and {len(values)} seeds have a standard deviation of "
        f"{np.std(values, ddof=1):.3f}"
    )
    for alpha in _alphas(rows):
        cosines = {
            method: _mean(rows, method=method, metric="cosine", step=alpha) for method in _RIVALS
        }
        ours = cosines.pop("AMP, no knowledge")
        better = [f"{m} ({c:.2f})" for m, c in cosines.items() if c > ours]
        if better:
            notes.append(
                f"alpha {alpha:g}: nearer to the direction than AMP without knowledge "
                f"({ours:.2f}): " + ", ".join(better)
            )
    for name in _tables(rows):
        guess = _value(rows, method="chance", metric="real_cosine", dataset=name)
        one, two, three = _real_means(rows, name)
        normal = _real_means(rows, name, "normal_cosine")[0]
        notes.append(
            f"{name} at snr {WEAK:g}: exponents 2 and 3 are recovered with cosines {two:.2f} and "
            f"{three:.2f}, a random guess has {guess:.2f}; exponent 1 with {one:.2f}, from normal "
            f"features with {normal:.2f}"
        )
    return notes


_RIVALS = ("AMP, no knowledge", "spectral", "ridge on products")


def _threshold_table(rows: list[Row]) -> ReportTable:
    lines = []
    for snr in (1.0, 0.1, 0.01):
        cells = []
        for order in SCALES:
            pair = []
            for metric in ("alpha_it", "alpha_alg"):
                snrs, values = _curve(rows, label(order), metric)
                pair.append(f"{values[int(np.argmin(np.abs(np.log(snrs / snr))))]:.4g}")
            cells.append(" / ".join(pair))
        lines.append((f"{snr:g}", *cells))
    columns = ("snr", *(label(order) for order in SCALES))
    return ReportTable("Samples per dimension: information / first-order", columns, lines)


def _slope_table(rows: list[Row]) -> ReportTable:
    lines = []
    for metric, name in _NAMES.items():
        for order in SCALES:
            fit, reference = _interval(rows, order, metric), _weak_slope(rows, order, metric)
            interval = f"[{fit.low:.3f}, {fit.high:.3f}]"
            lines.append((name, str(order), f"{reference:.3f}", f"{fit.slope:.3f}", interval))
    columns = ("threshold", "exponent", "slope", "slope of replicas", "95% interval")
    return ReportTable("Slopes in log snr, 0.01 to 0.1", columns, lines)


def _amp_table(rows: list[Row]) -> ReportTable:
    lines = [
        (
            f"{alpha:g}",
            f"{_value(rows, metric='predicted', step=alpha):.3f}",
            f"{_mean(rows, method='AMP', metric='overlap', step=alpha):.3f}",
            *(f"{_mean(rows, method=m, metric='cosine', step=alpha):.2f}" for m in _RIVALS),
        )
        for alpha in _alphas(rows)
    ]
    columns = ("alpha", "state evolution", "AMP, informed", *(f"cosine, {m}" for m in _RIVALS))
    return ReportTable("|z| at snr 4", columns, lines)


def _real_table(rows: list[Row]) -> ReportTable:
    lines = []
    for name in _tables(rows):
        alpha = f"{_value(rows, metric='real_alpha', dataset=name):.1f}"
        guess = f"{_value(rows, method='chance', metric='real_cosine', dataset=name):.3f}"
        for kind, metric in (("real", "real_cosine"), ("normal", "normal_cosine")):
            means = [f"{mean:.3f}" for mean in _real_means(rows, name, metric)]
            lines.append((name, kind, alpha, *means, guess))
    columns = ("table", "features", "alpha", *(label(order) for order in SCALES), "chance")
    return ReportTable(f"Mean cosine of the spectral method at snr {WEAK:g}", columns, lines)


_COLOURS = {1: "blue", 2: "orange", 3: "green"}


def draw(rows: list[Row], figure: Any) -> None:
    """Four panels: the gap, committees, AMP on its prediction, and real features."""
    (gap, committee), (runs, real) = figure.subplots(2, 2)
    _draw_gap(rows, gap)
    _draw_committee(rows, committee)
    _draw_runs(rows, runs)
    _draw_real(rows, real)


def _draw_gap(rows: list[Row], axes: Any) -> None:
    for order, colour in _COLOURS.items():
        snrs, first = _curve(rows, label(order), "alpha_alg")
        information = _curve(rows, label(order), "alpha_it")[1]
        shade = PALETTE[colour]
        axes.loglog(1 / snrs, first, color=shade, label=f"{label(order)}: first-order methods")
        axes.loglog(1 / snrs, information, color=shade, linestyle="--")
        axes.fill_between(1 / snrs, information, first, color=shade, alpha=0.15)
    axes.plot([], [], color="black", linestyle="--", label="information suffices")
    axes.fill_between([], [], [], color="black", alpha=0.15, label="hard phase")
    axes.set(
        xlabel="noise-to-signal ratio 1/λ", ylabel="samples per dimension α",
        title="(a) the gap opens with the exponent",
    )  # fmt: skip
    axes.legend(loc="upper left")


def _draw_committee(rows: list[Row], axes: Any) -> None:
    for order, colour in _COLOURS.items():
        widths, exact = _curve(rows, label(order), "committee")
        limit = _curve(rows, label(order), "committee_limit")[1]
        axes.loglog(widths, limit, color=PALETTE[colour], linewidth=1.2)
        axes.loglog(
            widths, exact, color=PALETTE[colour], marker="os^"[order - 1], linestyle="",
            label=label(order),
        )  # fmt: skip
    axes.plot([], [], color="black", linewidth=1.2, label="limit of wide committees")
    axes.set(
        xlabel="hidden units p", ylabel="samples per dimension α",
        title="(b) committees: exact thresholds (marks)",
    )  # fmt: skip
    axes.legend(loc="upper left")


def _draw_runs(rows: list[Row], axes: Any) -> None:
    alphas, ends = _curve(rows, "state evolution", "predicted")
    axes.plot(alphas, ends, color="black", label="state evolution: overlap")
    _points(rows, axes, "AMP", "overlap", "AMP, informed start: overlap")
    for method in _RIVALS:
        _points(rows, axes, method, "cosine", f"{method}: cosine")
    needed = _value(rows, metric="weak_recovery")
    axes.axvline(needed, color=PALETTE["grey"], linestyle="-.", label="threshold of AMP")
    axes.set(
        xlabel="samples per dimension α", ylabel="overlap or cosine with the direction",
        ylim=(0, 1.75), title="(c) |z| at λ = 4: AMP and its rivals",
    )  # fmt: skip
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1.0])
    axes.legend(loc="upper left", ncols=2, columnspacing=1.0)


def _points(rows: list[Row], axes: Any, method: str, metric: str, name: str) -> None:
    """Means over seeds with their range."""
    alphas = _alphas(rows)
    groups = [
        [row.value for row in select(rows, method=method, metric=metric, step=alpha)]
        for alpha in alphas
    ]
    means = np.array([np.mean(group) for group in groups])
    ends = np.array([[m - min(g), max(g) - m] for m, g in zip(means, groups, strict=True)]).T
    axes.errorbar(
        alphas, means, np.maximum(ends, 0), linestyle="", capsize=4, label=name,
        **method_style(method),
    )  # fmt: skip


def _draw_real(rows: list[Row], axes: Any) -> None:
    for name, linestyle in zip(_tables(rows), ("-", "--"), strict=False):
        for order, colour in _COLOURS.items():
            where = {"method": label(order), "metric": "real_cosine", "dataset": name}
            snrs = sorted({row.step for row in select(rows, **where)})
            means = [_mean(rows, step=snr, **where) for snr in snrs]
            axes.semilogx(
                snrs, means, color=PALETTE[colour], linestyle=linestyle, marker="os^"[order - 1]
            )
        guess = _value(rows, method="chance", metric="real_cosine", dataset=name)
        axes.axhline(guess, color=PALETTE["grey"], linestyle=linestyle, linewidth=1.2)
        axes.plot([], [], color="black", linestyle=linestyle, label=name)
    for order, colour in _COLOURS.items():
        axes.plot([], [], color=PALETTE[colour], marker="os^"[order - 1], label=label(order))
    axes.plot([], [], color=PALETTE["grey"], linewidth=1.2, label="random guess")
    axes.set(
        xlabel="signal-to-noise ratio λ", ylabel="cosine with the direction", ylim=(0, 1.45),
        title="(d) real features: spectral recovery",
    )  # fmt: skip
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1.0])
    axes.legend(loc="upper left", ncols=2, columnspacing=1.0)

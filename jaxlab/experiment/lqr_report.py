"""What the experiment ``lqr_steering`` concludes from its metrics, and how it draws them."""

import math
from typing import Any

import numpy as np

from jaxlab.experiment.figures import PALETTE, method_style
from jaxlab.experiment.metrics import Row, select
from jaxlab.experiment.verdict import Criterion, Report, ReportTable

__all__ = ["GRIDS", "SETTINGS", "TRACKED", "draw", "judge"]

SETTINGS = {
    "A-LQR": (0.1, 10.0, 1.0),
    "A-LQR (0.1, 1, 0.1)": (0.1, 1.0, 0.1),
    "A-LQR (1, 1, 1)": (1.0, 1.0, 1.0),
}
"""Prices of state, input and last state, as in the paper's code for three models."""

GRIDS: dict[str, tuple[float, ...]] = {
    "unsteered": (0.0,),
    "A-LQR": (-1.0, 0.0, 0.25, 0.5, 1.0, 2.0, 3.0),
    "A-LQR (0.1, 1, 0.1)": (0.5, 1.0, 2.0),
    "A-LQR (1, 1, 1)": (0.5, 1.0, 2.0),
    "A-LQR, centred": (-1.0, 0.0, 1.0, 2.0, 4.0, 6.0),
    "feature LQR": (-1.0, 0.0, 1.0, 2.0),
    "feature LQR, centred": (-1.0, 0.0, 1.0, 2.0, 3.0, 4.0),
    "proportional": (-1.0, 0.0, 0.25, 0.5, 1.0, 2.0),
    "proportional, centred": (-1.0, 0.0, 1.0, 2.0, 4.0, 6.0),
    "S-PID": (0.0, 0.5, 1.0, 2.0, 3.0),
    "open loop": (0.0, 0.5, 1.0, 2.0, 3.0),
    "ActAdd, all layers": (-0.1, 0.05, 0.1, 0.2, 0.3),
    "ActAdd, one layer": (1.0, 2.0, 4.0, 6.0),
}
"""Strengths of every controller; for constant additions, multiples of the contrast vector."""

DRAWN = (
    "A-LQR",
    "A-LQR, centred",
    "feature LQR, centred",
    "proportional",
    "proportional, centred",
    "S-PID",
    "open loop",
    "ActAdd, all layers",
    "ActAdd, one layer",
)
TRACKED = {"r/q = 0.001": (100.0, 0.1, 1000.0), "r/q = 100": (0.1, 10.0, 1.0)}
"""Prices of state, input and last state where a whole trajectory is tracked."""

BUDGETS = (0.1, 0.25, 0.5, 1.0)
"""Divergences from the unsteered law, in nats, at which controllers are compared."""

GAINS = (2.0, 4.0, 6.0)
"""Gains in score, at whose energy they are compared."""

_RISING = (-1.0, 0.0, 1.0, 2.0)


def judge(rows: list[Row]) -> Report:
    """Criteria, notes and tables."""
    return Report(
        _criteria(rows),
        _notes(rows),
        [_frontier_table(rows), _energy_table(rows), _text_table(rows)],
    )


def _value(rows: list[Row], **fields: Any) -> float:
    (row,) = select(rows, **fields)
    return row.value


def _mean(rows: list[Row], **fields: Any) -> float:
    return float(np.mean([row.value for row in select(rows, **fields)]))


def _at(rows: list[Row], method: str, metric: str, strength: float) -> float:
    return _value(rows, method=method, metric=metric, step=strength)


def _layers(rows: list[Row], method: str, metric: str, **fields: Any) -> np.ndarray:
    found = sorted(select(rows, method=method, metric=metric, **fields), key=lambda r: r.step)
    return np.array([row.value for row in found])


def _strengths(rows: list[Row], method: str, metric: str = "score") -> list[float]:
    return sorted({row.step for row in select(rows, method=method, metric=metric)})


def _gain(rows: list[Row], method: str, strength: float) -> float:
    return _at(rows, method, "score", strength) - _at(rows, "unsteered", "score", 0.0)


def _frontier(rows: list[Row], method: str, cost: str) -> tuple[np.ndarray, np.ndarray]:
    """Cost and gain along the positive strengths."""
    points = [
        (_at(rows, method, cost, s), _gain(rows, method, s))
        for s in _strengths(rows, method)
        if s > 0
    ]
    costs, gains = np.array(points).T
    return costs, gains


def _gain_at(rows: list[Row], method: str, budget: float) -> float:
    """The gain in score at a divergence."""
    divergences, gains = _frontier(rows, method, "divergence")
    return _between(divergences, gains, budget)


def _energy_at(rows: list[Row], method: str, gain: float) -> float:
    """The energy that a gain in score takes."""
    energies, gains = _frontier(rows, method, "energy")
    return _between(gains, energies, gain)


def _between(x: np.ndarray, y: np.ndarray, at: float) -> float:
    """On straight lines between strengths; NaN beyond them."""
    order = np.argsort(x)
    return float(np.interp(at, x[order], y[order])) if x.min() <= at <= x.max() else math.nan


def _tracking(rows: list[Row], method: str, strength: float = 1.0) -> np.ndarray:
    return _layers(rows, method, "tracking_error", dataset=f"strength {strength:g}")


def _ratio_of_errors(rows: list[Row]) -> float:
    """Closed over open loop, as the geometric mean over layers with an error."""
    closed, free = (_tracking(rows, method)[2:] for method in ("A-LQR", "open loop"))
    return float(np.exp(np.mean(np.log(closed / free))))


def _bound_ratios(rows: list[Row], weights: str) -> np.ndarray:
    """By prompt and layer; all prompts may end with the token that the nominal path starts from."""
    found = select(rows, dataset=weights)
    names = sorted({row.method for row in select(found, metric="bound")})
    pairs = [(_layers(found, n, "bound"), _layers(found, n, "deviation")) for n in names]
    return np.array([bound[1:] / deviation[1:] for bound, deviation in pairs])


def _criteria(rows: list[Row]) -> list[Criterion]:
    scores = [_at(rows, "A-LQR", "score", s) for s in _RISING]
    gains = [
        _gain(rows, "A-LQR", s)
        for s in _strengths(rows, "A-LQR")
        if _at(rows, "A-LQR", "divergence", s) <= 1.0
    ]
    criteria = [
        Criterion(
            "least rise of A-LQR's score between strengths -1, 0, 1, 2",
            float(np.diff(scores).min()), at_least=1e-3, shape=True,
        ),
        Criterion("A-LQR's gain in score within 1 nat", max(gains), at_least=4.0),
        Criterion(
            "gains without matrices against dense ones, relative",
            _value(rows, metric="dense_gains"), at_most=1e-3,
        ),
        Criterion(
            "offsets without matrices against dense ones, relative",
            _value(rows, metric="dense_offsets"), at_most=1e-3,
        ),
        Criterion(
            "alignment of Jacobians, good and bad prompt, layer 1",
            _at(rows, "good, bad", "alignment", 1.0), at_least=0.8,
        ),
        Criterion(
            "tracking error of A-LQR over open loop, mean of layers",
            _ratio_of_errors(rows), at_most=1.0, shape=True,
        ),
    ]  # fmt: skip
    if select(rows, metric="bound"):  # not with --smoke
        ratio = float(min(_bound_ratios(rows, weights).min() for weights in TRACKED))
        criteria.append(Criterion("bound over deviation, least", ratio, at_least=0.999, shape=True))
    return criteria


def _notes(rows: list[Row]) -> list[str]:
    names = ("proportional", "open loop", "ActAdd, all layers")
    against = "; ".join(f"{name} {_differences(rows, name)}" for name in names)
    drawn = _drawn(rows)
    best = {b: max(drawn, key=lambda m, b=b: _nan_low(_gain_at(rows, m, b))) for b in BUDGETS}
    winners = ", ".join(
        f"{name} at {budget:g}"
        for budget, name in best.items()
        if not math.isnan(_gain_at(rows, name, budget))
    )
    free = _tracking(rows, "unsteered", 0.0)[2:]
    closed = _tracking(rows, "A-LQR")[2:]
    last = _tracking(rows, "feature LQR")[-10:]
    alike = _layers(rows, "good, good", "alignment")
    return [
        "Score: log odds of words that praise against words that complain; gain: its rise over no "
        "steering, the mean over neutral prompts.",
        "A-LQR's gain less that of its rivals at divergences of "
        f"{', '.join(f'{b:g}' for b in BUDGETS)} nats: {against}.",
        f"The largest gain at a divergence (nats): {winners or 'not measured'}.",
        f"Distance from a strength of 1 in units of mu, median over layers: {np.median(free):.2f} "
        f"unsteered, {np.median(closed):.2f} under A-LQR, which corrects a part of it only: r is "
        f"a hundred times q. In the last ten layers the feature LQR comes to {last.min():.2f} to "
        f"{last.max():.2f}, but diverges by {_at(rows, 'feature LQR', 'divergence', 0.0):.2f} nats "
        "at a strength of 0.",
        f"Alignment of the Jacobians of two good prompts: {alike.min():.2f} to "
        f"{alike[:-1].max():.2f} before the last layer, {alike[-1]:.2f} there.",
        *_bound_notes(rows),
        "Texts are judged by the unsteered model; steering acts on the prompt's last token and all "
        "new ones, and the feedback does not look ahead over tokens.",
    ]


def _bound_notes(rows: list[Row]) -> list[str]:
    if not select(rows, metric="bound"):
        return []
    middles = (f"{w}: {np.median(_bound_ratios(rows, w)):.3g}" for w in TRACKED)
    return [f"Bound over deviation, median of prompts and layers, {'; '.join(middles)}."]


def _differences(rows: list[Row], rival: str) -> str:
    pairs = [(_gain_at(rows, "A-LQR", b), _gain_at(rows, rival, b)) for b in BUDGETS]
    gaps = (one - two for one, two in pairs)
    return ", ".join("not measured" if math.isnan(gap) else f"{gap:+.2f}" for gap in gaps)


def _drawn(rows: list[Row]) -> list[str]:
    return [name for name in DRAWN if select(rows, method=name, metric="score")]


def _nan_low(value: float) -> float:
    return -math.inf if math.isnan(value) else value


def _cell(value: float, form: str = ".2f") -> str:
    return "" if math.isnan(value) else f"{value:{form}}"


def _frontier_table(rows: list[Row]) -> ReportTable:
    names = [name for name in GRIDS if name != "unsteered" and _strengths(rows, name)]
    table = [(name, *(_cell(_gain_at(rows, name, b)) for b in BUDGETS)) for name in names]
    columns = ("controller", *(f"{b:g} nats" for b in BUDGETS))
    return ReportTable("Gain in score at a divergence from the unsteered law", columns, table)


def _energy_table(rows: list[Row]) -> ReportTable:
    names = [name for name in GRIDS if name != "unsteered" and _strengths(rows, name)]
    table = [(name, *(_cell(_energy_at(rows, name, g), ".0f") for g in GAINS)) for name in names]
    return ReportTable(
        "Energy at a gain in score", ("controller", *(f"{g:g}" for g in GAINS)), table
    )


def _text_table(rows: list[Row]) -> ReportTable:
    table = []
    base = _mean(rows, method="unsteered", metric="effect")
    for method, strength in _texts(rows):
        where = {"method": method, "step": strength}
        nats = _mean(rows, metric="nats", **where)
        effect = _mean(rows, metric="effect", **where) - base
        table.append((method, f"{strength:g}", f"{effect:+.2f}", f"{math.exp(nats):.1f}"))
    columns = ("controller", "strength", "effect on the text", "perplexity")
    return ReportTable("Continuations, judged by the unsteered model", columns, table)


def _texts(rows: list[Row]) -> list[tuple[str, float]]:
    return list(dict.fromkeys((row.method, row.step) for row in select(rows, metric="effect")))


def draw(rows: list[Row], figure: Any) -> None:
    """Tracking by layer, both frontiers, texts, alignment, and the bound."""
    axes = figure.subplots(2, 3)
    _draw_tracking(rows, axes[0, 0])
    _draw_frontier(rows, axes[0, 1], "divergence", "KL from unsteered (nats)")
    _draw_frontier(rows, axes[0, 2], "energy", "energy, sum of |u|²")
    _draw_texts(rows, axes[1, 0])
    _draw_alignment(rows, axes[1, 1])
    _draw_bound(rows, axes[1, 2])
    handles, labels = axes[0, 1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4)
    for letter, panel in zip("abcdef", axes.flat, strict=True):
        title = panel.get_title()
        panel.set_title("")
        panel.set_title(f"({letter}) {title}", loc="left")


def _draw_tracking(rows: list[Row], axes: Any) -> None:
    for method, strength, line in (
        ("unsteered", 0.0, ":"),
        ("open loop", 1.0, "-"),
        ("A-LQR", 1.0, "-"),
        ("feature LQR", 1.0, "-"),
    ):
        errors = _tracking(rows, method, strength)[1:]
        colour = method_style(method)["color"]
        axes.semilogy(np.arange(1, len(errors) + 1), errors, line, color=colour, label=method)
    axes.set(xlabel="layer's input", ylabel="|β - β*| / μ, rms", title="tracking at λ = 1")
    axes.legend(fontsize=11)


def _draw_frontier(rows: list[Row], axes: Any, cost: str, label: str) -> None:
    for method in _drawn(rows):
        costs, gains = _frontier(rows, method, cost)
        axes.plot(costs, gains, label=method, **method_style(method), markersize=6)
    axes.set(xscale="log", xlabel=label, ylabel="gain in score", title="next token, gain")


def _draw_texts(rows: list[Row], axes: Any) -> None:
    base = _mean(rows, method="unsteered", metric="effect")
    for method in dict.fromkeys(method for method, _ in _texts(rows)):
        points = [
            (
                math.exp(_mean(rows, method=method, metric="nats", step=s)),
                _mean(rows, method=method, metric="effect", step=s) - base,
            )
            for s in _strengths(rows, method, "effect")
        ]
        x, y = np.array(points).T
        axes.plot(x, y, **method_style(method))
    axes.set(xlabel="perplexity", ylabel="effect on the text", title="continuations")


def _draw_alignment(rows: list[Row], axes: Any) -> None:
    for pair, colour in (("good, good", "blue"), ("good, bad", "vermilion")):
        found = select(rows, method=pair, metric="alignment")
        x, y = [row.step for row in found], [row.value for row in found]
        axes.plot(x, y, "o-", color=PALETTE[colour], label=pair)
    axes.set(xlabel="layer", ylabel="alignment", ylim=(0, 1.05), title="Jacobians of two prompts")
    axes.legend(fontsize=11)


def _draw_bound(rows: list[Row], axes: Any) -> None:
    axes.set(xlabel="layer's input", ylabel="norm of P", title="deviation and bound")
    if not select(rows, metric="bound"):
        axes.text(0.5, 0.5, "not with --smoke", ha="center", transform=axes.transAxes)
        return
    for weights, colour in zip(TRACKED, ("orange", "blue"), strict=True):
        found = select(rows, dataset=weights, method="prompt 0")
        for metric, line in (("deviation", "-"), ("bound", "--")):
            values = _layers(found, "prompt 0", metric)[1:]
            layers = np.arange(1, len(values) + 1)
            label = f"{metric}, {weights}"
            axes.semilogy(layers, values, line, color=PALETTE[colour], label=label)
    bottom, top = axes.get_ylim()
    axes.set_ylim(bottom, 12 * top)  # room for the legend
    axes.legend(fontsize=11, loc="upper left")

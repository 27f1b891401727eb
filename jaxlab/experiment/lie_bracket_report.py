"""What the experiment ``lie_bracket`` concludes from its metrics, and how it draws them."""

from typing import Any

import numpy as np

from jaxlab.experiment.figures import PALETTE
from jaxlab.experiment.metrics import Row, select
from jaxlab.experiment.verdict import Criterion, Report, ReportTable

__all__ = [
    "BLOCK_STEPS",
    "OPTIMIZERS",
    "PAIR_STEP",
    "STEPS",
    "STEP_SIZES",
    "accuracy",
    "draw",
    "judge",
    "standing",
]

STEP_SIZES = (0.001, 0.003, 0.01, 0.03)
"""Of schedules of all sources."""
LOCAL = 0.003
"""The step size that criteria on schedules are about."""
PAIR_STEP = 0.05
STEPS = (1, 4, 16)
"""Steps on each source of a pair."""
OPTIMIZERS = ("SGD", "heavy ball", "Adam")
BLOCK_STEPS = (3e-4, 1e-3, 3e-3, 1e-2)
"""Of the language model's last block."""
BLOCK_LOCAL = 1e-3

_RULES = ("Borda", "recency alignment", "gradient norm", "Borda, reversed")


def standing(rows: list[Row], rule: str, step_size: float) -> tuple[float, float]:
    """Percentage of random orders that end higher, and standard deviations below their mean.

    Means over draws.

    Example:
        >>> rows = [Row("random", "loss", x, step=0.1) for x in (1.0, 2.0, 3.0)]
        >>> percentile, z = standing([*rows, Row("Borda", "loss", 0.0, step=0.1)], "Borda", 0.1)
        >>> percentile, round(z, 3)
        (100.0, 2.0)
    """
    found = []
    for row in select(rows, method=rule, metric="loss", step=step_size):
        where = {"method": "random", "metric": "loss", "step": step_size, "seed": row.seed}
        others = np.array([other.value for other in select(rows, **where)])
        z = (others.mean() - row.value) / others.std(ddof=1)
        found.append((100 * np.mean(others > row.value), z))
    percentile, z = np.mean(found, axis=0)
    return float(percentile), float(z)


def _pairs(rows: list[Row], metric: str, **fields: Any) -> np.ndarray:
    return np.array([row.value for row in select(rows, metric=metric, **fields)])


def accuracy(measured: np.ndarray, said: np.ndarray, *, top: float = 1.0) -> float:
    """The share of gaps whose sign was said, among the ``top`` of those said to be largest.

    Example:
        >>> accuracy(np.array([1.0, -1.0, 1.0, 1.0]), np.array([0.1, 0.2, 5.0, 0.3]))
        0.75
    """
    kept = np.argsort(-np.abs(said))[: max(1, round(top * len(said)))]
    return float(np.mean(np.sign(measured[kept]) == np.sign(said[kept])))


def _told(rows: list[Row], rule: str, steps: int, **options: Any) -> float:
    """A rule's accuracy for pairs of one network."""
    said = _pairs(rows, rule if rule == "gradient norm" else f"{rule} {steps}", method="pair")
    return accuracy(_pairs(rows, f"gap {steps}", method="pair"), said, **options)


def _memory(rows: list[Row], optimizer: str) -> float:
    gaps = _pairs(rows, optimizer, method="pair")
    return accuracy(gaps, _pairs(rows, "origin 1", method="pair"))


def _best(rows: list[Row], rule: str) -> float:
    return float(np.mean(_pairs(rows, "best of six", method=rule)))


def _block(rows: list[Row], step_size: float, metric: str = "score") -> float:
    gaps = _pairs(rows, "gap", method="block", dataset=f"{step_size:g}")
    return accuracy(gaps, _pairs(rows, metric, method="block"))


def judge(rows: list[Row]) -> Report:
    """Criteria, notes and tables."""
    criteria = [
        Criterion(
            f"percentile of Borda's schedule, step size {LOCAL:g}",
            standing(rows, "Borda", LOCAL)[0], at_least=99, shape=True,
        ),
        Criterion("the same reversed", standing(rows, "Borda, reversed", LOCAL)[0], at_most=1),
        Criterion(
            "the same by gradient norms", standing(rows, "gradient norm", LOCAL)[0], 1, 99
        ),
        Criterion(
            "pairs told by the Trotter score, 1 step", _told(rows, "trotter", 1),
            at_least=0.9, shape=True,
        ),
        Criterion(
            "pairs told, 1 step less 16 steps",
            _told(rows, "trotter", 1) - _told(rows, "trotter", 16), at_least=0, shape=True,
        ),
        Criterion("pairs told by gradient norms", _told(rows, "gradient norm", 1), at_most=0.7),
        Criterion(
            "triples whose best order is predicted", _best(rows, "exhaustive"), at_least=0.5
        ),
        Criterion("pairs told for heavy ball", _memory(rows, "heavy ball"), at_most=0.5),
        Criterion("pairs told for Adam", _memory(rows, "Adam"), at_most=0.5),
    ]  # fmt: skip
    if select(rows, method="block"):
        share = _block(rows, BLOCK_LOCAL)
        name = f"pairs told for the language model's block, step size {BLOCK_LOCAL:g}"
        criteria.append(Criterion(name, share, at_least=14 / 15, shape=True))
    tables = [_schedule_table(rows), _pair_table(rows)]
    if select(rows, method="block"):
        tables.append(_block_table(rows))
    return Report(criteria, _notes(rows), tables)


def _notes(rows: list[Row]) -> list[str]:
    notes = []
    for size in STEP_SIZES:
        ours, first = (standing(rows, rule, size)[1] for rule in _RULES[:2])
        which = "above" if ours > first else "not above"
        notes.append(
            f"step size {size:g}: Borda is {ours:.1f} standard deviations better than random "
            f"orders, {which} recency alignment ({first:.1f}), which needs no Hessian"
        )
    failing = [f"{size:g}" for size in STEP_SIZES if standing(rows, "Borda", size)[0] < 99]
    if failing:
        notes.append(
            "beyond the local regime the tournament fails: below the 99th percentile at step size "
            + ", ".join(failing)
        )
    curl = float(np.mean(_pairs(rows, "curl")))
    notes.append(
        f"{100 * curl:.1f}% of the squared pairwise scores is curl, which no sort explains"
    )
    told = ", ".join(f"{name} {100 * _memory(rows, name):.0f}%" for name in OPTIMIZERS)
    notes.append(f"pairs told for optimizers with and without memory: {told}")
    return notes


def _schedule_table(rows: list[Row]) -> ReportTable:
    lines = []
    for rule in _RULES:
        cells = [standing(rows, rule, size) for size in STEP_SIZES]
        lines.append((rule, *(f"{percentile:.0f} ({z:+.1f})" for percentile, z in cells)))
    columns = ("order", *(f"step size {size:g}" for size in STEP_SIZES))
    return ReportTable(
        "Percentile among random orders (standard deviations better)", columns, lines
    )


def _pair_table(rows: list[Row]) -> ReportTable:
    lines = []
    for name, rule in (
        ("bracket, at the start", "origin"),
        ("bracket, Trotter", "trotter"),
        ("gradient norm", "gradient norm"),
    ):
        cells = [
            f"{100 * _told(rows, rule, k):.0f} / {100 * _told(rows, rule, k, top=0.25):.0f}"
            for k in STEPS
        ]
        lines.append((name, *cells))
    columns = ("rule", *(f"{k} steps" for k in STEPS))
    title = f"% of pairs told / of the quarter of largest scores, step size {PAIR_STEP:g}"
    return ReportTable(title, columns, lines)


def _block_table(rows: list[Row]) -> ReportTable:
    lines = []
    score = _pairs(rows, "score", method="block")
    for size in BLOCK_STEPS:
        gaps = _pairs(rows, "gap", method="block", dataset=f"{size:g}")
        shares = [f"{100 * _block(rows, size, m):.0f}%" for m in ("score", "gradient norm")]
        lines.append((f"{size:g}", *shares, f"{np.corrcoef(gaps, score)[0, 1]:.3f}"))
    columns = ("step size", "bracket", "gradient norm", "correlation")
    return ReportTable("Pairs told for the last block of SmolLM2-135M", columns, lines)


_COLOURS = {
    "Borda": "blue",
    "recency alignment": "green",
    "gradient norm": "orange",
    "Borda, reversed": "vermilion",
}


def draw(rows: list[Row], figure: Any) -> None:
    """Four panels: schedules, pairs, gaps, and what the bracket leaves."""
    (schedules, pairs), (gaps, remainder) = figure.subplots(2, 2)
    _draw_schedules(rows, schedules)
    _draw_pairs(rows, pairs)
    _draw_gaps(rows, gaps)
    _draw_remainder(rows, remainder)


def _draw_schedules(rows: list[Row], axes: Any) -> None:
    seed = min(row.seed for row in rows)
    where = {"metric": "loss", "step": LOCAL, "seed": seed}
    others = _pairs(rows, method="random", **where)
    centre = others.mean()
    axes.hist(1e3 * (others - centre), bins=20, color=PALETTE["grey"], label="random orders")
    for rule, colour in _COLOURS.items():
        (value,) = _pairs(rows, method=rule, **where)
        axes.axvline(1e3 * (value - centre), color=PALETTE[colour], label=rule)
    axes.set(
        xlabel="target loss less the random mean [millinats]", ylabel="random orders",
        title=f"(a) schedules of all sources, η = {LOCAL:g}",
    )  # fmt: skip
    axes.set_ylim(0, 1.9 * axes.get_ylim()[1])
    axes.legend(loc="upper center", ncols=2)


def _draw_pairs(rows: list[Row], axes: Any) -> None:
    times = [k * PAIR_STEP for k in STEPS]
    for rule, name, colour, marker in (
        ("origin", "bracket, target's gradient at the start", "blue", "o"),
        ("trotter", "bracket, at the Trotter reference", "sky", "D"),
        ("gradient norm", "larger gradient first", "orange", "s"),
    ):
        shares = [100 * _told(rows, rule, k) for k in STEPS]
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
        score = _pairs(rows, "score", method="block")
        for size, colour, marker in zip(
            BLOCK_STEPS[1:], ("blue", "orange", "vermilion"), "os^", strict=True
        ):
            gaps = _pairs(rows, "gap", method="block", dataset=f"{size:g}")
            axes.plot(
                score, gaps / size**2, color=PALETTE[colour], marker=marker, linestyle="",
                label=f"η = {size:g}",
            )  # fmt: skip
        title = "(c) last block of SmolLM2-135M"
    else:
        score = _pairs(rows, "origin 1", method="pair") / PAIR_STEP**2
        gaps = _pairs(rows, "gap 1", method="pair") / PAIR_STEP**2
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
            color=PALETTE["blue"], marker="osD^"[i % 4], label=f"median of 6 pairs, draw {seed}",
        )  # fmt: skip
    found = select(rows, metric="remainder", seed=seeds[0])
    sizes = np.array([row.step for row in found])
    axes.loglog(sizes, found[0].value * sizes / sizes[0], color="black", label="slope 1")
    axes.axhline(0.25, color=PALETTE["grey"], linestyle=":", label="what calibration allows")
    axes.set(
        xlabel="step size η", ylabel="‖difference − η² bracket‖ / ‖η² bracket‖",
        title="(d) what the bracket leaves unexplained",
    )  # fmt: skip
    _plain_ticks(axes, sizes)
    axes.legend(loc="lower right")

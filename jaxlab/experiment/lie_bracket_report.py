"""What the experiment ``lie_bracket`` concludes from its metrics."""

from typing import Any

import numpy as np

from jaxlab.experiment.metrics import Row, select
from jaxlab.experiment.verdict import Criterion, Report, ReportTable

__all__ = [
    "BLOCK_STEPS",
    "FEW_METRIC",
    "LOCAL",
    "OPTIMIZERS",
    "PAIR_STEP",
    "STEPS",
    "STEP_SIZES",
    "accuracy",
    "disagreements",
    "judge",
    "pairs_told",
    "standing",
    "told_for",
    "values_of",
]

STEP_SIZES = (0.001, 0.003, 0.01, 0.03)
"""Of schedules of all sources."""
LOCAL = 0.003
"""The step size that criteria on schedules are about."""
PAIR_STEP = 0.05
"""The step size of pairs and triples."""
STEPS = (1, 4, 16)
"""Steps on each source of a pair."""
OPTIMIZERS = ("SGD", "heavy ball", "Adam")
"""That train pairs, by their names in the tables."""
BLOCK_STEPS = (3e-4, 1e-3, 3e-3, 1e-2)
"""Of the language model's last block."""
BLOCK_LOCAL = 1e-3

_RULES = ("Borda", "recency alignment", "gradient norm", "Borda, reversed")
_FIRST_ORDER = ("gradient norm", "recency alignment")
FEW_METRIC = "loss of few"
"""Of schedules of the sources that were searched for."""
_FEW_RULES = ("best predicted", "Borda", "recency alignment", "gradient norm")


def standing(
    rows: list[Row], rule: str, step_size: float | None, metric: str = "loss"
) -> tuple[float, float]:
    """Percentage of random orders that end higher, and standard deviations below their mean.

    Means over draws; None is the only step size that there is.

    Example:
        >>> rows = [Row("random", "loss", x, step=0.1) for x in (1.0, 2.0, 3.0)]
        >>> percentile, z = standing([*rows, Row("Borda", "loss", 0.0, step=0.1)], "Borda", 0.1)
        >>> percentile, round(z, 3)
        (100.0, 2.0)
    """
    found = []
    at = {} if step_size is None else {"step": step_size}
    for row in select(rows, method=rule, metric=metric, **at):
        where = {"method": "random", "metric": metric, "seed": row.seed, **at}
        others = np.array([other.value for other in select(rows, **where)])
        z = (others.mean() - row.value) / others.std(ddof=1)
        found.append((100 * np.mean(others > row.value), z))
    percentile, z = np.mean(found, axis=0)
    return float(percentile), float(z)


def values_of(rows: list[Row], metric: str, **fields: Any) -> np.ndarray:
    """What was measured, in the order of the rows.

    Example:
        >>> values_of([Row("pair", "gap 1", 0.5), Row("pair", "curl", 0.1)], "gap 1").tolist()
        [0.5]
    """
    return np.array([row.value for row in select(rows, metric=metric, **fields)])


def accuracy(measured: np.ndarray, said: np.ndarray, *, top: float = 1.0) -> float:
    """The share of gaps whose sign was said, among the ``top`` of those said to be largest.

    Example:
        >>> accuracy(np.array([1.0, -1.0, 1.0, 1.0]), np.array([0.1, 0.2, 5.0, 0.3]))
        0.75
    """
    kept = np.argsort(-np.abs(said))[: max(1, round(top * len(said)))]
    return float(np.mean(np.sign(measured[kept]) == np.sign(said[kept])))


def pairs_told(rows: list[Row], rule: str, steps: int, **options: Any) -> float:
    """A rule's accuracy for pairs of one network, with so many steps of SGD a source."""
    said = values_of(rows, rule if rule in _FIRST_ORDER else f"{rule} {steps}", method="pair")
    return accuracy(values_of(rows, f"gap {steps}", method="pair"), said, **options)


def told_for(rows: list[Row], optimizer: str) -> float:
    """The accuracy of brackets for pairs of one network that an optimizer trains."""
    gaps = values_of(rows, optimizer, method="pair")
    return accuracy(gaps, values_of(rows, "origin 1", method="pair"))


def _best(rows: list[Row], rule: str) -> float:
    return float(np.mean(values_of(rows, "best of six", method=rule)))


def disagreements(rows: list[Row], steps: int) -> tuple[int, int]:
    """Pairs of which brackets and alignment say the opposite; and of how many brackets are right.

    Example:
        >>> values = {"trotter 1": (1.0, 1.0), "recency alignment": (0.5, -0.5), "gap 1": (2, 3)}
        >>> rows = [Row("pair", m, x) for m, xs in values.items() for x in xs]
        >>> disagreements(rows, 1)
        (1, 1)
    """
    ours, first, measured = (
        np.sign(values_of(rows, metric, method="pair"))
        for metric in (f"trotter {steps}", "recency alignment", f"gap {steps}")
    )
    apart = ours != first
    return int(apart.sum()), int((ours == measured)[apart].sum())


def _block(rows: list[Row], step_size: float, metric: str = "score") -> float:
    gaps = values_of(rows, "gap", method="block", dataset=f"{step_size:g}")
    return accuracy(gaps, values_of(rows, metric, method="block"))


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
            "pairs told by the Trotter score, 1 step", pairs_told(rows, "trotter", 1),
            at_least=0.9, shape=True,
        ),
        Criterion(
            "pairs told, 1 step less 16 steps",
            pairs_told(rows, "trotter", 1) - pairs_told(rows, "trotter", 16),
            at_least=0, shape=True,
        ),
        Criterion(
            "pairs told by gradient norms", pairs_told(rows, "gradient norm", 1), at_most=0.7
        ),
        Criterion(
            "triples whose best order is predicted", _best(rows, "exhaustive"), at_least=0.5
        ),
        Criterion(
            "of pairs where alignment says the opposite, told by brackets",
            disagreements(rows, 1)[1] / max(1, disagreements(rows, 1)[0]), at_least=0.8,
        ),
        Criterion(
            "sources searched for: deviations by which brackets are ahead of alignment",
            standing(rows, "Borda", None, FEW_METRIC)[1]
            - standing(rows, "recency alignment", None, FEW_METRIC)[1],
            at_least=0,
        ),
        Criterion("pairs told for heavy ball", told_for(rows, "heavy ball"), at_most=0.5),
        Criterion("pairs told for Adam", told_for(rows, "Adam"), at_most=0.5),
    ]  # fmt: skip
    if select(rows, method="block"):
        share = _block(rows, BLOCK_LOCAL)
        name = f"pairs told for the language model's block, step size {BLOCK_LOCAL:g}"
        criteria.append(Criterion(name, share, at_least=14 / 15, shape=True))
    tables = [_schedule_table(rows), _pair_table(rows), _few_table(rows), _triple_table(rows)]
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
    curl = float(np.mean(values_of(rows, "curl")))
    notes.append(
        f"{100 * curl:.1f}% of the squared pairwise scores is curl, which no sort explains"
    )
    for k in STEPS:
        apart, right = disagreements(rows, k)
        total = len(values_of(rows, f"gap {k}", method="pair"))
        notes.append(
            f"{k} step{'s' * (k > 1)} a source: brackets and alignment say the opposite of "
            f"{apart} of {total} pairs, and brackets are right of {right} of these"
        )
    shares = ", ".join(f"{name} {100 * told_for(rows, name):.0f}%" for name in OPTIMIZERS)
    notes.append(f"pairs told for optimizers with and without memory: {shares}")
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
        ("recency alignment", "recency alignment"),
        ("gradient norm", "gradient norm"),
    ):
        cells = [
            " / ".join(f"{100 * pairs_told(rows, rule, k, top=top):.0f}" for top in (1.0, 0.25))
            for k in STEPS
        ]
        lines.append((name, *cells))
    columns = ("rule", *(f"{k} step{'s' * (k > 1)}" for k in STEPS))
    title = f"% of pairs told / of the quarter of largest scores, step size {PAIR_STEP:g}"
    return ReportTable(title, columns, lines)


def _few_table(rows: list[Row]) -> ReportTable:
    lines = []
    for rule in _FEW_RULES:
        percentile, z = standing(rows, rule, None, FEW_METRIC)
        lines.append((rule, f"{percentile:.0f}", f"{z:+.1f}"))
    columns = ("order", "percentile", "standard deviations better")
    return ReportTable("8 sources, searched so that brackets and alignment differ", columns, lines)


def _triple_table(rows: list[Row]) -> ReportTable:
    names = ("exhaustive", "Borda", "recency alignment", "gradient norm")
    lines = [(name, f"{100 * _best(rows, name):.0f}%") for name in names]
    return ReportTable("Triples whose best order of six is said", ("rule", "share"), lines)


def _block_table(rows: list[Row]) -> ReportTable:
    lines = []
    score = values_of(rows, "score", method="block")
    for size in BLOCK_STEPS:
        gaps = values_of(rows, "gap", method="block", dataset=f"{size:g}")
        rules = ("score", *reversed(_FIRST_ORDER))
        shares = [f"{100 * _block(rows, size, m):.0f}%" for m in rules]
        lines.append((f"{size:g}", *shares, f"{np.corrcoef(gaps, score)[0, 1]:.3f}"))
    columns = ("step size", "bracket", "recency alignment", "gradient norm", "correlation")
    return ReportTable("Pairs told for the last block of SmolLM2-135M", columns, lines)

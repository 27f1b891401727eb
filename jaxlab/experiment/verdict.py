"""Verdicts: whether an experiment shows what its paper claims, by thresholds set beforehand."""

import math
from typing import Any, Literal, NamedTuple

__all__ = ["Criterion", "Report", "ReportTable", "Verdict", "summarize", "verdict"]

Verdict = Literal["reproduced", "shape only", "not reproduced"]
"""What an experiment comes to; ``verdict`` decides it."""


class Criterion(NamedTuple):
    """A measured value and the band that it must lie in. NaN lies in no band.

    Attributes:
        name: What is measured.
        measured: The value.
        at_least: The band's lower end.
        at_most: The band's upper end.
        shape: Whether it is about the shape of a result (an order, a trend) and not its size.
    """

    name: str
    measured: float
    at_least: float = -math.inf
    at_most: float = math.inf
    shape: bool = False

    @property
    def holds(self) -> bool:
        """Whether the value is in the band."""
        return self.at_least <= self.measured <= self.at_most

    @property
    def threshold(self) -> str:
        """The band in words."""
        if self.at_least == -math.inf:
            return f"at most {self.at_most:g}"
        if self.at_most == math.inf:
            return f"at least {self.at_least:g}"
        return f"in [{self.at_least:g}, {self.at_most:g}]"


class ReportTable(NamedTuple):
    """A table to print. Attributes: title; columns: the header; rows: cells as text."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]


class Report(NamedTuple):
    """What an experiment concludes from its metrics.

    Attributes:
        criteria: What the verdict rests on.
        notes: Sentences for the reader, above all on what speaks against the paper.
        tables: What to print.
    """

    criteria: list[Criterion]
    notes: list[str]
    tables: list[ReportTable]


def verdict(criteria: list[Criterion]) -> Verdict:
    """``reproduced`` if all hold, ``shape only`` if at least all those on shape do.

    Example:
        >>> slope = Criterion("slope", 0.52, at_least=0.4, at_most=0.6, shape=True)
        >>> verdict([slope, Criterion("error", 0.3, at_most=0.1)])
        'shape only'
    """
    if criteria and all(criterion.holds for criterion in criteria):
        return "reproduced"
    shapes = [criterion for criterion in criteria if criterion.shape]
    if shapes and all(criterion.holds for criterion in shapes):
        return "shape only"
    return "not reproduced"


def summarize(slug: str, report: Report, *, smoke: bool) -> dict[str, Any]:
    """The content of ``summary.json``: numbers only that a second run gives again."""
    return {
        "experiment": slug,
        "smoke": smoke,
        "verdict": verdict(report.criteria),
        "criteria": [
            {
                "name": criterion.name,
                "measured": criterion.measured,
                "threshold": criterion.threshold,
                "holds": criterion.holds,
                "about": "shape" if criterion.shape else "size",
            }
            for criterion in report.criteria
        ],
        "notes": report.notes,
    }

"""What the ladder found, for people and for programs."""

import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from jaxlab.claims.claim import RUNGS
from jaxlab.claims.verdict import ClaimReport, MutantReport, RungReport, Verdict
from jaxlab.core.trees import is_key
from jaxlab.report.results import LOOSE

__all__ = [
    "REACHED",
    "as_data",
    "claims_table",
    "findings",
    "instance_table",
    "mutants_table",
    "part_name",
    "rung_line",
    "tightness_of",
]

REACHED = 1e-3
"""A least margin up to here counts as equality."""

_COLOURS = {
    Verdict.HELD: "green",
    Verdict.CERTIFIED: "bold green",
    Verdict.REFUTED: "bold red",
    Verdict.VACUOUS: "red",
    Verdict.INCONCLUSIVE: "red",
    Verdict.INVALID: "bold red",
    Verdict.CANDIDATE: "yellow",
    Verdict.SKIPPED: "dim",
}


def claims_table(reports: Sequence[ClaimReport]) -> Table:
    """One row per claim: the least margin that each rung reached, and the verdict."""
    # Without vertical lines it fits into 80 columns.
    table = Table(title="claims: least margin by rung", box=SIMPLE_HEAD, padding=(0, 1, 1, 0))
    table.add_column("claim, families", overflow="fold", min_width=16)
    table.add_column("tried", justify="right", no_wrap=True)
    for rung in RUNGS:
        table.add_column(rung, justify="right", no_wrap=True)
    table.add_column("verdict", overflow="fold", min_width=9)
    table.add_column("mutants", justify="right", no_wrap=True)
    for report in reports:
        by_name = {rung.rung: rung for rung in report.rungs}
        cells = [_rung_cell(by_name.get(rung)) for rung in RUNGS]
        killed = len(report.mutants) - len(report.survivors)
        colour = "green" if not report.survivors else "bold red"
        mutants = f"[{colour}]{killed}/{len(report.mutants)}[/]"
        verdict = _coloured(report.verdict)
        if report.expected == "refuted":
            verdict += ", as it should" if report.ok else ", should be refuted"
        elif (tightness := tightness_of(report)) != "-":
            verdict += f"\n[dim]{tightness}[/]"
        name = f"{escape(report.name)}\n[dim]{escape(', '.join(report.families))}[/]"
        tried = _short(sum(rung.num_instances for rung in report.rungs))
        table.add_row(name, tried, *cells, verdict, mutants)
    return table


def tightness_of(report: ClaimReport) -> str:
    """How near to equality the search came: a bound that is never approached is loose here.

    Example:
        >>> from jaxlab.claims.verdict import ClaimReport, RungReport
        >>> rungs = (RungReport("attack", Verdict.HELD, 10, {"a": 0.5}),)
        >>> tightness_of(ClaimReport("n", "s", "source", ("a",), "held", "upper", rungs, ()))
        'loose'
    """
    least = report.least_margin
    if math.isnan(least) or report.verdict not in (Verdict.HELD, Verdict.CERTIFIED):
        return "-"
    if abs(least) <= REACHED:
        return "reached"
    return "near" if least <= LOOSE else "loose"


def rung_line(name: str, rung: RungReport) -> str:
    """What a rung came to, in one line.

    Example:
        >>> rung_line("a/b", RungReport("sample", Verdict.HELD, 1000, {"f": 0.25}, seconds=1.5))
        'a/b: sample: held, 1000 tried, least margin 0.25, 1.5 s'
    """
    parts = [f"{name}: {rung.rung}: {rung.verdict}"]
    if rung.num_instances:
        parts.append(f"{_short(rung.num_instances)} tried")
    if not math.isnan(rung.least_margin):
        parts.append(f"least margin {rung.least_margin:.3g}")
    parts.append(f"{rung.seconds:.1f} s")
    if rung.note:
        parts.append(rung.note)
    return ", ".join(parts)


def instance_table(instance: Any) -> Table:
    """An instance in named parts."""
    table = Table(title="the instance", show_header=False)
    table.add_column("part", no_wrap=True)
    table.add_column("value", overflow="fold")
    for where, leaf in jax.tree_util.tree_leaves_with_path(instance):
        if is_key(leaf):
            value = f"key {jax.random.key_data(leaf).tolist()}"
        else:
            value = np.array2string(np.asarray(leaf), precision=6, threshold=60, separator=", ")
        table.add_row(escape(part_name(where)), escape(value))
    return table


def part_name(where: Any) -> str:
    """A path into an instance as a person would write it.

    Example:
        >>> [(where, _)] = jax.tree_util.tree_leaves_with_path({"start": 1.0})
        >>> part_name(where)
        'start'
    """
    return jax.tree_util.keystr(where, simple=True, separator=".") or "instance"


def mutants_table(reports: Sequence[ClaimReport]) -> Table:
    """One row per mutant: the rung that refuted it."""
    table = Table(title="mutants: the rung that refutes them")
    table.add_column("claim", overflow="fold")
    table.add_column("mutant", overflow="fold")
    for rung in RUNGS:
        table.add_column(rung, justify="center", no_wrap=True)
    for report in reports:
        for mutant in report.mutants:
            table.add_row(
                escape(report.name),
                escape(mutant.name),
                *(_mutant_cell(mutant, rung) for rung in RUNGS),
            )
    return table


def findings(report: ClaimReport) -> list[str]:
    """What went wrong with a claim, a line each; nothing if all is as expected."""
    if report.ok:
        return []
    lines = []
    for rung in report.rungs:
        if rung.verdict not in (Verdict.HELD, Verdict.CERTIFIED, Verdict.SKIPPED):
            lines.append(f"{report.name}: {rung.rung}: {rung.verdict} {rung.note}".rstrip())
        if rung.file:
            lines.append(f"  replay with: jaxlab replay {rung.file}")
    lines += [f"{report.name}: no rung refutes the mutant {name!r}" for name in report.survivors]
    return lines


def as_data(report: ClaimReport) -> dict[str, Any]:
    """A report as JSON knows it, without the instances."""
    return {
        "name": report.name,
        "statement": report.statement,
        "source": report.source,
        "families": list(report.families),
        "expected": report.expected,
        "verdict": str(report.verdict),
        "ok": report.ok,
        "tightness": report.tightness,
        "least_margin": report.least_margin,
        "seconds": report.seconds,
        "rungs": [_rung_data(rung) for rung in report.rungs],
        "mutants": [
            {
                "name": mutant.name,
                "killed_by": mutant.killed_by,
                "margin": mutant.margin,
                "rungs": [_rung_data(rung) for rung in mutant.rungs],
            }
            for mutant in report.mutants
        ],
    }


def _short(number: int) -> str:
    """A count in at most five characters.

    Example:
        >>> _short(999), _short(20_000), _short(1_500_000)
        ('999', '20k', '1.5M')
    """
    for size, letter in ((1_000_000, "M"), (10_000, "k")):
        if number >= size:
            scale = 1_000_000 if letter == "M" else 1000
            return f"{number / scale:.3g}{letter}"
    return str(number)


def _rung_data(rung: RungReport) -> dict[str, Any]:
    return {
        "rung": rung.rung,
        "verdict": str(rung.verdict),
        "num_instances": rung.num_instances,
        "least": dict(rung.least),
        "note": rung.note,
        "file": rung.file,
        "seconds": rung.seconds,
    }


def _coloured(verdict: Verdict) -> str:
    return f"[{_COLOURS[verdict]}]{verdict}[/]"


def _rung_cell(rung: RungReport | None) -> str:
    if rung is None:
        return "[dim]-[/]"
    if rung.verdict == Verdict.SKIPPED or math.isnan(rung.least_margin):
        return _coloured(rung.verdict)
    return f"[{_COLOURS[rung.verdict]}]{_margin(rung.least_margin)}[/]"


def _margin(value: float) -> str:
    """Two digits, one where only the order of magnitude is of interest."""
    return f"{value:.0e}" if 0 < abs(value) < 1e-4 else f"{value:.2g}"


def _mutant_cell(mutant: MutantReport, rung: str) -> str:
    climbed = {report.rung: report.verdict for report in mutant.rungs}
    if rung == mutant.killed_by:
        return "[green]refuted[/]"
    return _coloured(climbed[rung]) if rung in climbed else "[dim]-[/]"

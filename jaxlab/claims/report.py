"""What the ladder found, for people and for programs."""

import math
from collections.abc import Sequence
from typing import Any

from rich.table import Table

from jaxlab.claims.claim import RUNGS
from jaxlab.claims.verdict import ClaimReport, MutantReport, RungReport, Verdict

__all__ = ["as_data", "claims_table", "findings", "mutants_table"]

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
    table = Table(title="claims: least margin by rung")
    table.add_column("claim", overflow="fold")
    for rung in RUNGS:
        table.add_column(rung, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("mutants", justify="right", no_wrap=True)
    for report in reports:
        by_name = {rung.rung: rung for rung in report.rungs}
        cells = [_rung_cell(by_name.get(rung)) for rung in RUNGS]
        killed = len(report.mutants) - len(report.survivors)
        colour = "green" if not report.survivors else "bold red"
        mutants = f"[{colour}]{killed}/{len(report.mutants)}[/]"
        verdict = _coloured(report.verdict)
        if report.expected == "refuted":
            verdict += " (expected refuted)"
        table.add_row(report.name, *cells, verdict, mutants)
    return table


def mutants_table(reports: Sequence[ClaimReport]) -> Table:
    """One row per mutant: the rung that refuted it."""
    table = Table(title="mutants: the rung that refutes them")
    table.add_column("claim", overflow="fold")
    table.add_column("mutant", overflow="fold")
    for rung in RUNGS:
        table.add_column(rung, justify="center", no_wrap=True)
    for report in reports:
        for mutant in report.mutants:
            table.add_row(report.name, mutant.name, *(_mutant_cell(mutant, rung) for rung in RUNGS))
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
    return f"[{_COLOURS[rung.verdict]}]{rung.least_margin:.2g}[/]"


def _mutant_cell(mutant: MutantReport, rung: str) -> str:
    climbed = {report.rung: report.verdict for report in mutant.rungs}
    if rung == mutant.killed_by:
        return "[green]refuted[/]"
    return _coloured(climbed[rung]) if rung in climbed else "[dim]-[/]"

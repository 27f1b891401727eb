"""The part of the page on claims and their mutants, rung by rung."""

import math
from collections.abc import Sequence

from jaxlab.report.markup import Column, Html, join, table, tag
from jaxlab.report.pieces import about_line, badge, details, number, replay
from jaxlab.report.results import LOOSE, ClaimResult, ClaimsFile, MutantResult, RungResult

__all__ = ["claims_part"]

_RUNGS = ("check", "explore", "sample", "attack", "exact")


def claims_part(file: ClaimsFile) -> Html:
    """The claims of one file and their mutants, each with the rungs that were climbed."""
    if not file.claims:
        return join(tag("h3", "Claims"), about_line(file.file, file.about), tag("p", "No claims."))
    rungs = _rungs(file.claims)
    return join(
        tag("h3", "Claims"),
        about_line(file.file, file.about),
        table(
            "Least margin by rung; a claim fails below 0 by more than rounding or chance allow",
            [
                Column("claim"),
                *(Column(rung, numeric=True) for rung in rungs),
                Column("verdict"),
                Column("tightness"),
                Column("mutants", numeric=True),
            ],
            [_claim_row(claim, rungs) for claim in file.claims],
        ),
        tag(
            "p",
            "Tightness: as stated, then the least margin of the rungs that look for the worst case "
            f"(attack and exact). “Loose here” means that it stays above {LOOSE:g}: either the "
            "bound is loose, or the search missed its worst case.",
            class_="about",
        ),
        _mutants_part(file, rungs),
    )


def _mutants_part(file: ClaimsFile, rungs: list[str]) -> Html:
    rows = [_mutant_row(c, mutant, rungs) for c in file.claims for mutant in c.mutants]
    if not rows:  # claims that are expected to be refuted need none
        return join()
    columns = [
        Column("mutant"),
        *(Column(rung) for rung in rungs),
        Column("margin", numeric=True),
        Column("result"),
    ]
    return join(
        tag("h3", "Mutants"),
        table("Planted bugs, and what each rung says of them", columns, rows),
    )


def _rungs(claims: Sequence[ClaimResult]) -> list[str]:
    """The rungs that any claim or mutant climbed, in the ladder's order; unknown ones last."""
    climbed = [
        rung.rung for claim in claims for part in (claim, *claim.mutants) for rung in part.rungs
    ]
    known = [rung for rung in _RUNGS if rung in climbed]
    return known + sorted(set(climbed) - set(known))


def _claim_row(claim: ClaimResult, rungs: Sequence[str]) -> list[str]:
    climbed = {rung.rung: rung for rung in claim.rungs}
    killed = len(claim.mutants) - len(claim.survivors)
    return [
        _claim_cell(claim),
        *(_margin_cell(climbed.get(rung)) for rung in rungs),
        _verdict_cell(claim),
        _tightness_cell(claim),
        f"{killed} of {len(claim.mutants)}",
    ]


def _claim_cell(claim: ClaimResult) -> Html:
    lines: list[str] = [_tried(rung) for rung in claim.rungs]
    if claim.families:
        lines.insert(0, f"families: {', '.join(claim.families)}")
    if claim.source:
        lines.insert(0, f"source: {claim.source}")
    if not math.isnan(claim.seconds):
        lines.append(f"took {claim.seconds:.1f} s")
    return join(
        tag("strong", claim.name),
        tag("p", claim.statement, class_="statement"),
        tag("p", claim.note, class_="note") if claim.note else "",
        details("details", tag("ul", *(tag("li", line) for line in lines))),
    )


def _tried(rung: RungResult) -> Html:
    margins = (join("; ", family, " ", number(margin)) for family, margin in rung.least.items())
    note = f"; {rung.note}" if rung.note else ""
    return join(f"{rung.rung}: {rung.num_instances} tried", *margins, note)


def _margin_cell(rung: RungResult | None) -> Html:
    if rung is None:
        return join("–")
    if math.isnan(rung.margin):
        return badge(rung.verdict)
    shown = number(rung.margin)
    return shown if rung.verdict == "held" else join(shown, tag("div", badge(rung.verdict)))


def _verdict_cell(claim: ClaimResult) -> Html:
    files = [rung.file for rung in claim.rungs if rung.file]
    return join(
        badge(claim.verdict),
        "" if claim.expected == "held" else f" expected: {claim.expected}",
        *(replay(file) for file in files),
    )


def _tightness_cell(claim: ClaimResult) -> Html:
    worst = "not attacked" if math.isnan(claim.worst_margin) else number(claim.worst_margin)
    mark = join(" ", badge("loose here")) if claim.is_loose else ""
    return join(claim.tightness, " · ", worst, mark)


def _mutant_row(claim: ClaimResult, mutant: MutantResult, rungs: Sequence[str]) -> list[str]:
    climbed = {rung.rung: rung for rung in mutant.rungs}
    file = next((rung.file for rung in mutant.rungs if rung.file), "")
    said = [climbed[rung].verdict if rung in climbed else "–" for rung in rungs]
    caught = tag("span", "refuted", class_="badge good")
    return [
        join(
            tag("strong", mutant.name),
            tag("p", claim.name, class_="statement"),
            details("counterexample", replay(file)) if file else "",
        ),
        *(
            caught if rung == mutant.killed_by else word
            for rung, word in zip(rungs, said, strict=True)
        ),
        number(mutant.margin),
        join("caught by ", mutant.killed_by) if mutant.killed_by else badge("survived"),
    ]

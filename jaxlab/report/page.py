"""The page: one HTML text without references to anything outside it."""

import base64
from collections.abc import Sequence
from pathlib import Path

from jaxlab.report.claims import claims_part
from jaxlab.report.markup import Column, Html, join, table, tag
from jaxlab.report.pieces import about_line, badge, command, count, details, moment, number, replay
from jaxlab.report.results import (
    Benchmark,
    ExperimentRun,
    Figure,
    Finding,
    Results,
    Section,
    findings,
)

__all__ = ["page"]

# A second lock beside the data URIs: with it, no browser fetches or runs anything.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def page(results: Results) -> str:
    """The report as one HTML text; everything that files say is escaped.

    Example:
        >>> shown = page(Results("results", "2026-11-30T13:00:00+00:00", (), ()))
        >>> "Nothing was run yet" in shown
        True
    """
    style = Path(__file__).with_name("style.css").read_text(encoding="utf-8")
    found = findings(results)
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("title", "jaxlab report"),
        tag("style", Html(style)),
    )
    body = tag(
        "main",
        tag("h1", "jaxlab report"),
        tag("p", f"The folder {results.folder}, read {moment(results.when)}.", class_="about"),
        _overview(results.sections),
        _findings_part(results, found),
        *(_section_part(index, section) for index, section in enumerate(results.sections)),
    )
    return f"<!DOCTYPE html>\n{tag('html', head, tag('body', body), lang='en')}\n"


def _overview(sections: Sequence[Section]) -> Html:
    columns = ["source", "claims as expected", "mutants refuted", "experiments", "benchmarks"]
    rows = [_overview_row(index, section) for index, section in enumerate(sections)]
    return table("At a glance", [Column(column) for column in columns], rows)


def _overview_row(index: int, section: Section) -> list[str]:
    claims, none = section.all_claims, badge("not run")
    mutants = [mutant for claim in claims for mutant in claim.mutants]
    killed = sum(bool(mutant.killed_by) for mutant in mutants)
    good = sum(claim.as_expected for claim in claims)
    ratios = sum(len(benchmark.rows) for benchmark in section.benchmarks)
    return [
        tag("a", section.title, href=f"#source-{index}"),
        join(f"{good} of {len(claims)}", _not_all(section)) if section.claims else none,
        f"{killed} of {len(mutants)}" if section.claims else none,
        join(*(join(_run_badges(run), " ") for run in section.experiments)) or none,
        count(ratios, "number") if section.benchmarks else none,
    ]


def _not_all(section: Section) -> str:
    """A paper has more claims than were looked at."""
    known = 0 if section.paper is None else section.paper.claims
    return f" (the paper has {known})" if len(section.all_claims) < known else ""


def _findings_part(results: Results, found: Sequence[Finding]) -> Html:
    heading = tag("h2", "What did not reproduce", id="not-reproduced")
    if found:
        columns = [Column(name) for name in ("what", "source", "verdict", "why")]
        rows = [
            [
                join(tag("span", f"{finding.kind} ", class_="kind"), tag("strong", finding.name)),
                finding.section or "–",
                badge(finding.verdict),
                join(finding.reason, replay(finding.file)) if finding.file else finding.reason,
            ]
            for finding in found
        ]
        return join(heading, table(f"{len(found)} to look at", columns, rows))
    if all(section.is_empty for section in results.sections):
        return join(heading, tag("p", "Nothing was run yet, so nothing can be said."))
    return join(heading, tag("p", f"Nothing of what was run: {_amounts(results.sections)}."))


def _amounts(sections: Sequence[Section]) -> str:
    claims = [claim for section in sections for claim in section.all_claims]
    mutants = sum(len(claim.mutants) for claim in claims)
    smoke = [run.smoke for section in sections for run in section.experiments]
    rows = sum(len(file.rows) for section in sections for file in section.benchmarks)
    amounts = {
        "claim": len(claims),
        "mutant": mutants,
        "experiment": smoke.count(False),
        "smoke run": smoke.count(True),
        "benchmark number": rows,
    }
    return ", ".join(count(amount, noun) for noun, amount in amounts.items() if amount)


def _section_part(index: int, section: Section) -> Html:
    paper = section.paper
    told = (
        "Your own source."
        if paper is None
        else f"{paper.title} ({paper.source}), {paper.evidence}."
    )
    return tag(
        "section",
        tag("h2", section.title),
        tag("p", told, class_="lead"),
        *(claims_part(file) for file in section.claims),
        *(_experiment_part(run) for run in section.experiments),
        *(_benchmark_part(benchmark) for benchmark in section.benchmarks),
        _missing_part(section),
        id=f"source-{index}",
    )


def _missing_part(section: Section) -> Html:
    """The commands that would fill what a paper has not got yet."""
    if section.paper is None:
        return join()
    slug = section.paper.slug
    ways = (
        (section.claims, "No claims were attacked", f"jaxlab verify {slug}"),
        (section.experiments, "No experiment was run", f"jaxlab run {slug}"),
        (section.benchmarks, "No benchmark was run", f"pytest benchmarks/{slug}.py -n 0"),
    )
    return join(
        *(
            tag("p", f"{missing} yet: ", command(line), class_="missing")
            for found, missing, line in ways
            if not found
        )
    )


def _experiment_part(run: ExperimentRun) -> Html:
    columns = [Column("criterion"), Column("measured", True), Column("threshold"),
               Column("about"), Column("holds")]  # fmt: skip
    rows = [
        [c.name, number(c.measured, 4), c.threshold, c.about or "–",
         badge("yes" if c.holds else "no")]
        for c in run.criteria
    ]  # fmt: skip
    flags = " ".join(f"{name}={value}" for name, value in run.flags.items())
    return join(
        tag("h3", "Experiment ", _run_badges(run)),
        about_line(run.folder, run.about),
        details("flags", tag("p", flags, class_="about")) if flags else "",
        _figure(run, run.figure) if run.figure else "",
        table("What the verdict rests on", columns, rows) if rows else "",
        tag("ul", *(tag("li", note) for note in run.notes), class_="notes") if run.notes else "",
    )


def _run_badges(run: ExperimentRun) -> Html:
    if not run.smoke:
        return badge(run.verdict)
    return join(tag("span", f"{run.verdict}, but only a smoke run", class_="badge unsure"))


def _figure(run: ExperimentRun, figure: Figure) -> Html:
    # As an image, an SVG file runs no scripts and fetches nothing.
    data = base64.b64encode(figure.content).decode()
    image = tag(
        "img",
        src=f"data:{figure.media_type};base64,{data}",
        alt=f"The figure of the experiment {run.experiment}, drawn from its metrics.csv",
    )
    return tag("figure", image, tag("figcaption", figure.file))


def _benchmark_part(benchmark: Benchmark) -> Html:
    columns = [Column("what"), Column("value", numeric=True)]
    failed = [tag("p", badge("failed"), f" {test}") for test in benchmark.failed]
    return join(
        tag("h3", "Benchmarks"),
        about_line(benchmark.file, benchmark.about),
        *failed,
        table("Measured on this machine, at that time", columns, benchmark.rows)
        if benchmark.rows
        else "",
    )

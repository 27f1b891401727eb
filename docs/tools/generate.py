"""Fill the generated parts of the README and of the papers' pages.

Run from the repository's root::

    python docs/tools/generate.py

A part stands between ``<!-- generated: NAME -->`` and ``<!-- end -->``. The table of papers comes
from the registry, the tables of claims from ``docs/papers/SLUG_claims.json`` (written by ``jaxlab
verify SLUG --json``), the reference numbers from ``docs/papers/SLUG_reference.json`` (written by
``docs/tools/reference.py``), the false theorems from ``docs/false_theorems.json`` (written by
``benchmarks/false_theorems.py --json``).
"""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from jaxlab.core.registry import Paper, papers

ROOT = Path(__file__).parents[2]
RUNGS = ("explore", "sample", "attack", "exact")


def main() -> None:
    """Write every page that has changed."""
    for path, text in generated().items():
        if path.read_text() != text:
            path.write_text(text)
            print(path.relative_to(ROOT))


def generated() -> dict[Path, str]:
    """The pages with generated parts, as they should be."""
    pages = {
        ROOT / "README.md": {"papers": papers_table},
        ROOT / "docs/false-theorems.md": false_theorems_parts(),
    }
    for paper in papers():
        pages[ROOT / f"docs/papers/{paper.slug}.md"] = paper_parts(paper)
    return {path: fill(path.read_text(), parts) for path, parts in pages.items()}


def paper_parts(paper: Paper) -> dict[str, Callable[[], str]]:
    """The parts that a paper's page can have."""

    def data(kind: str) -> Any:
        return json.loads((ROOT / f"docs/papers/{paper.slug}_{kind}.json").read_text())

    return {
        "claims": lambda: claims_table(data("claims")),
        "mutants": lambda: mutants_table(data("claims")),
        "reference": lambda: reference_table(data("reference")),
    }


def false_theorems_parts() -> dict[str, Callable[[], str]]:
    """The parts of the page on the bench of false theorems."""
    measured = json.loads((ROOT / "docs/false_theorems.json").read_text())
    return {
        "totals": lambda: false_theorems_totals(measured),
        "theorems": lambda: false_theorems_table(measured["rows"]),
        "statements": lambda: table(
            ("theorem", "statement", "source"),
            [(f"`{row['name']}`", f"`{row['statement']}`", row["source"])
             for row in measured["rows"]],
        ),
    }  # fmt: skip


def fill(text: str, parts: dict[str, Callable[[], str]]) -> str:
    """Replace every generated part."""
    return re.sub(
        r"(?<=<!-- generated: )(\w+) -->\n.*?(?=<!-- end -->)",
        lambda found: f"{found[1]} -->\n\n{parts[found[1]]()}\n\n",
        text,
        flags=re.DOTALL,
    )


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [columns, ["---"] * len(columns), *rows]
    cells = [[cell.replace("|", r"\|") for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def papers_table() -> str:
    """One row per paper."""
    columns = ("paper", "title", "family", "evidence", "claims", "what you get")
    rows = [
        (
            f"[`{paper.slug}`](docs/papers/{paper.slug}.md)",
            f"{paper.title} ({paper.source})",
            f"`jaxlab.{paper.family}`",
            paper.evidence,
            str(paper.claims),
            paper.summary,
        )
        for paper in papers()
    ]
    return table(columns, rows)


def claims_table(reports: list[dict[str, Any]]) -> str:
    """One row per claim: what each rung's least margin was."""
    rows = []
    for report in reports:
        rungs = {rung["rung"]: rung for rung in report["rungs"]}
        killed = sum(mutant["killed_by"] is not None for mutant in report["mutants"])
        rows.append((
            f"`{report['name'].split('/')[1]}`",
            f"`{report['statement']}`",
            *(_margin(rungs.get(rung)) for rung in RUNGS),
            report["verdict"],
            f"{killed} of {len(report['mutants'])}",
        ))  # fmt: skip
    return table(("claim", "statement", *RUNGS, "verdict", "mutants refuted"), rows)


def mutants_table(reports: list[dict[str, Any]]) -> str:
    """One row per mutant: the rungs that it passed and the one that refuted it."""
    rows = []
    for report in reports:
        for mutant in report["mutants"]:
            climbed = {rung["rung"]: rung["verdict"] for rung in mutant["rungs"]}
            cells = [f"**{climbed[r]}**" if r == mutant["killed_by"] else climbed.get(r, "")
                     for r in RUNGS]  # fmt: skip
            rows.append((f"`{report['name'].split('/')[1]}`", mutant["name"], *cells))
    return table(("claim", "mutant", *RUNGS), rows)


def reference_table(reference: dict[str, Any]) -> str:
    """One row per number of the experiment."""
    rows = [
        (row["name"], f"{row['measured']:.4g}", f"{row['low']:.4g} to {row['high']:.4g}",
         row["threshold"])
        for row in reference["default"]
    ]  # fmt: skip
    return table(("quantity", "measured", "band", "threshold of the verdict"), rows)


def false_theorems_totals(measured: dict[str, Any]) -> str:
    """Both scores in a sentence."""
    rows = measured["rows"]
    ladder, alone = (sum(bool(row[way]["rung"]) for row in rows) for way in ("ladder", "sample"))
    return (
        f"Of {len(rows)} false theorems the ladder refutes **{ladder}** and `sample` alone "
        f"**{alone}**, each within {measured['budget']:g} s on {measured['cores']} cores."
    )


def false_theorems_table(rows: list[dict[str, Any]]) -> str:
    """One row per theorem: what refuted it, and whether random instances would have."""
    columns = ("theorem", "what is false", "refuted by", "instances", "seconds",
               "`sample` alone", "instances", "seconds")  # fmt: skip
    lines = []
    for row in rows:
        ladder, alone = row["ladder"], row["sample"]
        lines.append((
            f"`{row['name']}`", row["kind"], ladder["rung"] or "**nothing**",
            f"{ladder['instances']:,}", f"{ladder['seconds']:.1f}",
            "refutes" if alone["rung"] else "does not",
            f"{alone['instances']:,}", f"{alone['seconds']:.1f}",
        ))  # fmt: skip
    return table(columns, lines)


def _margin(rung: dict[str, Any] | None) -> str:
    if rung is None:
        return ""
    finite = [value for value in rung["least"].values() if isinstance(value, int | float)]
    return f"{min(finite):.2g}" if finite else rung["verdict"]


if __name__ == "__main__":
    main()

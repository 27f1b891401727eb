"""``jaxlab verify`` and ``jaxlab replay``."""

import dataclasses
import sys
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console

from jaxlab.claims.claim import Claim
from jaxlab.claims.ladder import climb
from jaxlab.claims.refutation import Replay, replay
from jaxlab.claims.report import as_data, claims_table, findings, mutants_table
from jaxlab.claims.search import Effort
from jaxlab.claims.verdict import ClaimReport
from jaxlab.core.files import json_text, usable_directory, write_text
from jaxlab.core.locate import load_companion
from jaxlab.core.registry import find_paper, papers
from jaxlab.core.usage import parse_args

__all__ = ["EFFORTS", "claims_of", "replay_main", "verify_main"]

EFFORTS = {
    "quick": Effort(
        examples=6, samples=1000, restarts=8, steps=60, shrink=False, methods=("adam",)
    ),
    "standard": Effort(examples=20, samples=10_000, restarts=64, steps=300),
    "deep": Effort(examples=100, samples=100_000, restarts=256, steps=1000),
}
"""What ``--effort`` means; the test suite climbs with ``"quick"``."""


@dataclasses.dataclass(frozen=True)
class VerifyArgs:
    """Try to break the papers' claims, and see that every mutant falls."""

    slugs: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """The papers; all of them by default."""
    only: str = ""
    """Only claims whose name contains this."""
    effort: Literal["quick", "standard", "deep"] = "quick"
    """How hard to try; quick takes minutes, the others much longer."""
    seed: int = 0
    """Of all random choices."""
    out: Path = Path("results/claims")
    """The folder for counterexamples."""
    json: str = ""
    """Write the reports as JSON to this file; "-" means standard output."""


@dataclasses.dataclass(frozen=True)
class ReplayArgs:
    """Look again at a counterexample that verify has stored, outside JAX."""

    file: Annotated[Path, tyro.conf.Positional]
    """The npz file."""
    json: str = ""
    """Write what comes out as JSON to this file; "-" means standard output."""


def claims_of(slug: str) -> tuple[Claim, ...]:
    """The claims of a paper.

    Raises:
        ValueError: There is no such paper.
    """
    return load_companion("proofs_checks", find_paper(slug).slug).CLAIMS


def verify_main(words: list[str]) -> int:
    """Run the ladder; 1 if a claim or a mutant did not come out as it should."""
    try:
        args = parse_args(VerifyArgs, words, prog="jaxlab verify")
        slugs = args.slugs or tuple(paper.slug for paper in papers())
        claims = [claim for slug in slugs for claim in claims_of(slug) if args.only in claim.name]
        if not claims:
            raise ValueError(f"only must be part of a claim's name, got {args.only!r}")
        usable_directory(args.out)
        reports = _climb_all(claims, args)
        console = Console(stderr=args.json == "-")
        console.print(claims_table(reports))
        console.print(mutants_table(reports))
        for report in reports:
            for line in findings(report):
                console.print(line, style="red", markup=False, highlight=False)
        good = sum(report.ok for report in reports)
        console.print(f"{good} of {len(reports)} claims came out as they should")
        _write_json(args.json, [as_data(report) for report in reports])
    except (ValueError, OSError) as error:
        return _fail(str(error))
    return 0 if all(report.ok for report in reports) else 1


def replay_main(words: list[str]) -> int:
    """Replay a refutation; 0 if it stands, 1 if it does not."""
    try:
        args = parse_args(ReplayArgs, words, prog="jaxlab replay")
        known = {claim.name: claim for paper in papers() for claim in claims_of(paper.slug)}
        seen = replay(args.file, known)
        _print_replay(seen, Console(stderr=args.json == "-"))
        data = {
            "left": seen.left,
            "right": seen.right,
            "confirmed": seen.recheck.confirmed,
            "margin": seen.recheck.margin,
            "slack": seen.recheck.slack,
            "header": seen.header,
        }
        _write_json(args.json, data)
    except (ValueError, OSError) as error:
        return _fail(str(error))
    return 0 if seen.recheck.confirmed else 1


def _climb_all(claims: list[Claim], args: VerifyArgs) -> list[ClaimReport]:
    console = Console(stderr=True)
    with console.status("") as status:
        return [
            climb(
                claim,
                effort=EFFORTS[args.effort],
                seed=args.seed,
                folder=args.out,
                on_step=lambda step, index=index: status.update(
                    f"[{index + 1}/{len(claims)}] {step}"
                ),
            )
            for index, claim in enumerate(claims)
        ]


def _print_replay(seen: Replay, console: Console) -> None:
    header = seen.header
    mutant = f", mutant {header['mutant']!r}" if header["mutant"] else ""

    def say(line: str) -> None:
        console.print(line, markup=False, highlight=False)

    say(f"{header['claim']}{mutant}: {header['statement']}")
    say(f"instance of {header['family']!r}, found by {header['rung']}, sizes {header['sizes']}")
    say(f"left side   {seen.left:.17g}")
    say(f"right side  {seen.right:.17g}")
    say(f"margin      {seen.recheck.margin:.6g} in NumPy, {header['margin']:.6g} in JAX")
    say(f"slack of the assumptions {seen.recheck.slack:.3g}")
    verdict = "refuted" if seen.recheck.confirmed else f"not confirmed: {seen.recheck.reason}"
    say(f"verdict     {verdict}")


def _write_json(target: str, data: object) -> None:
    if target == "-":
        print(json_text(data), end="")
    elif target:
        write_text(Path(target), json_text(data))


def _fail(message: str) -> int:
    print(f"jaxlab: {message}", file=sys.stderr)
    return 2

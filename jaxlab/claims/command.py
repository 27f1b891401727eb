"""``jaxlab verify`` and ``jaxlab replay``."""

import dataclasses
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console

from jaxlab.claims.claim import Claim
from jaxlab.claims.ladder import climb, share_error
from jaxlab.claims.refutation import Replay, origin_of, replay
from jaxlab.claims.report import (
    as_data,
    claims_table,
    findings,
    instance_table,
    mutants_table,
    rung_line,
)
from jaxlab.claims.search import Effort
from jaxlab.claims.sources import claims_of, known_claims, source_name
from jaxlab.claims.verdict import ClaimReport, RungReport
from jaxlab.core.environment import describe_measurement
from jaxlab.core.files import json_text, usable_directory, write_json, write_text
from jaxlab.core.registry import papers
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
    """Try to break claims, and see that every mutant falls."""

    sources: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Papers' slugs, or Python files of your own that define claims; all papers by default."""
    only: str = ""
    """Only claims whose name contains this."""
    effort: Literal["quick", "standard", "deep"] = "quick"
    """How hard to try; quick takes seconds a claim, the others much longer."""
    budget: float = 0.0
    """Seconds in all, shared by the claims; replaces --effort if positive."""
    error: float = 1e-6
    """The probability that any true stochastic claim of this run is called refuted."""
    seed: int = 0
    """Of all random choices."""
    out: Path = Path("results/claims")
    """The folder for the reports and for every counterexample."""
    json: str = ""
    """Write the reports as JSON to this file as well; "-" means standard output."""

    def __post_init__(self) -> None:
        """Check the values that the types leave open."""
        if not self.budget >= 0:
            raise ValueError(f"budget must be at least 0 seconds, got {self.budget}")
        if not 0 < self.error < 1:
            raise ValueError(f"error must be in (0, 1), got {self.error}")


@dataclasses.dataclass(frozen=True)
class ReplayArgs:
    """Look again at a counterexample that verify has stored, outside JAX."""

    file: Annotated[Path, tyro.conf.Positional]
    """The npz file."""
    claims: str = ""
    """The Python file that defines the claim, if it is no longer where it was."""
    figure: Path | None = None
    """Draw the margin around the counterexample into this PNG file."""
    json: str = ""
    """Write what comes out as JSON to this file; "-" means standard output."""


def verify_main(words: list[str]) -> int:
    """Run the ladder; 1 if a claim or a mutant did not come out as it should."""
    try:
        args = parse_args(VerifyArgs, words, prog="jaxlab verify")
        sources = args.sources or tuple(paper.slug for paper in papers())
        claims = _selected(sources, args)
        usable_directory(args.out)
        begin = time.monotonic()
        reports = _climb_all(claims, args, Console(stderr=True))
        _write_reports(reports, args, time.monotonic() - begin)
        _show([report for _, report in reports], Console(stderr=args.json == "-"))
        _write_json(args.json, [as_data(report) for _, report in reports])
    except (ValueError, OSError) as error:
        return _fail(str(error))
    return 0 if all(report.ok for _, report in reports) else 1


def replay_main(words: list[str]) -> int:
    """Replay a refutation; 0 if it stands, 1 if it does not."""
    try:
        args = parse_args(ReplayArgs, words, prog="jaxlab replay")
        origin = args.claims or origin_of(args.file)
        if origin.endswith(".py") and not Path(origin).is_file():
            raise ValueError(
                f"claims must be the file that defines the claim, got none at {origin!r}"
            )
        seen = replay(args.file, known_claims(origin))
        _print_replay(seen, Console(stderr=args.json == "-"))
        if args.figure is not None:
            from jaxlab.claims.picture import draw_counterexample

            print(draw_counterexample(seen.claim, seen.candidate, seen.variant, args.figure))
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


def _selected(sources: Sequence[str], args: VerifyArgs) -> list[tuple[str, Claim]]:
    """The claims to climb, each with its source."""
    # Two files of one name would write to one report.
    names = [source_name(source) for source in sources]
    if len(set(names)) < len(names):
        raise ValueError(f"SOURCES must have different names, got {', '.join(sources)}")
    pairs = [(s, claim) for s in sources for claim in claims_of(s) if args.only in claim.name]
    if not pairs:
        raise ValueError(f"only must be part of a claim's name, got {args.only!r}")
    shared = share_error([claim for _, claim in pairs], args.error)
    return [(source, claim) for (source, _), claim in zip(pairs, shared, strict=True)]


def _climb_all(
    claims: list[tuple[str, Claim]], args: VerifyArgs, console: Console
) -> list[tuple[str, ClaimReport]]:
    reports = []
    end = time.monotonic() + args.budget
    with console.status("") as status:
        for index, (source, claim) in enumerate(claims):
            place = f"[{index + 1}/{len(claims)}]"
            # What a claim leaves over is for the claims after it.
            share = (end - time.monotonic()) / (len(claims) - index)

            def tell(step: str, place: str = place) -> None:
                status.update(f"{place} {step}")

            def line(name: str, rung: RungReport, place: str = place) -> None:
                told = f"{place} {rung_line(name, rung)}"
                console.print(told, markup=False, highlight=False, soft_wrap=True)

            report = climb(
                claim,
                effort=None if args.budget else EFFORTS[args.effort],
                budget=max(share, 0.0) if args.budget else None,
                seed=args.seed,
                folder=args.out,
                origin=os.path.abspath(source) if source.endswith(".py") else source,
                on_step=tell,
                on_rung=line,
            )
            reports.append((source, report))
    return reports


def _show(reports: list[ClaimReport], console: Console) -> None:
    console.print(claims_table(reports))
    if any(report.mutants for report in reports):
        console.print(mutants_table(reports))
    for report in reports:
        for line in findings(report):
            console.print(line, style="red", markup=False, highlight=False, soft_wrap=True)
    good = sum(report.ok for report in reports)
    console.print(f"{good} of {len(reports)} claims came out as they should")


def _write_reports(
    reports: list[tuple[str, ClaimReport]], args: VerifyArgs, seconds: float
) -> None:
    """One file per source, which ``jaxlab report`` reads."""
    measured = describe_measurement()
    for source in dict.fromkeys(source for source, _ in reports):
        about = {
            "source": source,
            "effort": f"budget of {args.budget:g} s" if args.budget else args.effort,
            "seed": args.seed,
            "seconds": seconds,
            **measured,
        }
        own = [as_data(report) for origin, report in reports if origin == source]
        write_json(args.out / f"{source_name(source)}.json", {"about": about, "claims": own})


def _print_replay(seen: Replay, console: Console) -> None:
    header = seen.header
    mutant = f", mutant {header['mutant']!r}" if header["mutant"] else ""

    def say(line: str) -> None:
        console.print(line, markup=False, highlight=False)

    say(f"{header['claim']}{mutant}: {header['statement']}")
    say(f"instance of {header['family']!r}, found by {header['rung']}, sizes {header['sizes']}")
    console.print(instance_table(seen.candidate.instance))
    say(f"left side   {seen.left:.17g}")
    say(f"right side  {seen.right:.17g}")
    say(f"margin      {seen.recheck.margin:.6g} in NumPy, {header['margin']:.6g} when it was found")
    say(f"slack of the assumptions {seen.recheck.slack:.3g}")
    verdict = "refuted" if seen.recheck.confirmed else f"not confirmed: {seen.recheck.reason}"
    say(f"verdict     {verdict}")


def _write_json(target: str, data: Any) -> None:
    if target == "-":
        print(json_text(data), end="")
    elif target:
        write_text(Path(target), json_text(data))


def _fail(message: str) -> int:
    print(f"jaxlab: {message}", file=sys.stderr)
    return 2

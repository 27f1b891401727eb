"""Which rung breaks which false theorem, and what random instances alone break in the same time.

Run from the repository's root::

    python benchmarks/false_theorems.py
    python benchmarks/false_theorems.py --budget 20 --only kantorovich

The ladder climbs ``explore``, ``sample`` and ``attack``, and repeats the attack with fresh seeds
until it refutes the theorem or the time is spent. The rival repeats ``sample``. Both pay for their
compilations. A rung's instances count as a whole, since it looks at them together.
"""

import dataclasses
import itertools
import os
import sys
import time
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import jax
from rich.console import Console
from rich.table import Table

from jaxlab.claims import Claim, Effort, Verdict
from jaxlab.claims.evaluate import Evaluator, precise
from jaxlab.claims.ladder import climb_rung
from jaxlab.core.files import json_text, write_text
from jaxlab.core.locate import load_companion
from jaxlab.core.usage import parse_args

BENCH = ("false_inequalities", "false_matrices", "false_methods", "false_statistics")
EFFORT = Effort(shrink=False)


@dataclasses.dataclass(frozen=True)
class Args:
    """Break false theorems, by the ladder and by random instances alone."""

    budget: float = 60.0
    """Seconds for each theorem, once for the ladder and once for random instances."""
    only: str = ""
    """Part of the names of the theorems to break."""
    seed: int = 0
    """Of all random choices."""
    json: str = ""
    """Write what came out as JSON to this file; "-" means standard output."""


class Found(NamedTuple):
    """What a search came to.

    Attributes:
        rung: The one that refuted the theorem in time, or None.
        instances: How many were looked at.
        seconds: Until the refutation was confirmed, or until the search ended.
    """

    rung: str | None
    instances: int
    seconds: float


def search(claim: Claim, rungs: Iterable[str], budget: float, seed: int) -> Found:
    """Rungs one after the other, each with its own seed, until one refutes or time is spent."""
    jax.clear_caches()  # no search profits from the programs of an earlier one
    begin, instances, spent = time.monotonic(), 0, 0.0
    with precise():
        evaluator = Evaluator(claim)
        for attempt, rung in enumerate(rungs):
            report = climb_rung(
                claim, evaluator, rung, {}, None, EFFORT, seed + attempt, None, begin + budget
            )
            instances += report.num_instances
            spent = time.monotonic() - begin
            if spent > budget:
                break
            if report.verdict == Verdict.REFUTED:
                return Found(rung, instances, spent)
    return Found(None, instances, spent)


def by_ladder(claim: Claim, budget: float, seed: int) -> Found:
    """The rungs that search, the last one again and again."""
    rungs = itertools.chain(("explore", "sample"), itertools.repeat("attack"))
    return search(claim, rungs, budget, seed)


def by_sample(claim: Claim, budget: float, seed: int) -> Found:
    """Random instances alone."""
    return search(claim, itertools.repeat("sample"), budget, seed)


def told(found: Found) -> str:
    """In a few words, for the one who waits."""
    return f"{'refuted' if found.rung else 'not refuted'} in {found.seconds:.1f} s"


def bench() -> dict[str, tuple[Claim, str]]:
    """The false theorems by name, and what is wrong with each."""
    found = {}
    for slug in BENCH:
        module = load_companion("proofs_checks", slug)
        for claim in module.CLAIMS:
            share = module.TOO_GOOD.get(claim.name)
            found[claim.name] = (claim, f"constant, {share}" if share else "folklore")
    return found


def measure(args: Args, console: Console) -> list[dict[str, Any]]:
    """One row per theorem."""
    rows = []
    chosen = [pair for name, pair in bench().items() if args.only in name]
    if not chosen:
        raise ValueError(f"only must be part of a theorem's name, got {args.only!r}")
    with console.status("") as status:
        for index, (claim, kind) in enumerate(chosen):
            status.update(f"[{index + 1}/{len(chosen)}] {claim.name}")
            ladder = by_ladder(claim, args.budget, args.seed)
            alone = by_sample(claim, args.budget, args.seed)
            console.print(f"{claim.name}: {told(ladder)} by the ladder, {told(alone)} by sample")
            rows.append({
                "name": claim.name.split("/")[1],
                "statement": claim.statement,
                "source": claim.source,
                "kind": kind,
                "ladder": ladder._asdict(),
                "sample": alone._asdict(),
            })  # fmt: skip
    return rows


def totals(rows: list[dict[str, Any]]) -> str:
    """Both scores in a line."""
    ladder, alone = (sum(bool(row[way]["rung"]) for row in rows) for way in ("ladder", "sample"))
    return f"the ladder breaks {ladder} of {len(rows)}, random instances alone {alone}"


def table(rows: list[dict[str, Any]]) -> Table:
    """For people."""
    shown = Table(title="false theorems")
    for column in ("theorem", "what is false", "rung"):
        shown.add_column(column)
    for column in ("instances", "seconds", "sample alone", "instances", "seconds"):
        shown.add_column(column, justify="right")
    for row in rows:
        ladder, alone = row["ladder"], row["sample"]
        shown.add_row(
            row["name"], row["kind"], ladder["rung"] or "[red]none[/]",
            f"{ladder['instances']:,}", f"{ladder['seconds']:.1f}",
            "yes" if alone["rung"] else "no",
            f"{alone['instances']:,}", f"{alone['seconds']:.1f}",
        )  # fmt: skip
    return shown


def main(words: list[str]) -> int:
    """Measure and print; 1 if a false theorem stands."""
    try:
        args = parse_args(Args, words, prog="false_theorems.py")
        console = Console(stderr=args.json == "-")
        rows = measure(args, console)
        console.print(table(rows))
        console.print(f"{totals(rows)}, in {args.budget:g} s for each theorem")
        data = {
            "budget": args.budget, "seed": args.seed, "cores": os.cpu_count(),
            "jax": version("jax"), "rows": rows,
        }  # fmt: skip
        if args.json == "-":
            print(json_text(data), end="")
        elif args.json:
            write_text(Path(args.json), json_text(data))
    except (ValueError, OSError) as error:
        print(f"false_theorems.py: {error}", file=sys.stderr)
        return 2
    return 0 if all(row["ladder"]["rung"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

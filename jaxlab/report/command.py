"""``jaxlab report``."""

import dataclasses
import sys
from pathlib import Path

from jaxlab.core.files import json_text, usable_file, write_text
from jaxlab.core.usage import parse_args
from jaxlab.report.collect import collect
from jaxlab.report.page import page
from jaxlab.report.results import Results, as_plain, findings

__all__ = ["report_main"]


@dataclasses.dataclass(frozen=True)
class ReportArgs:
    """Write one HTML page about all papers and your own claims: what held and what did not."""

    results: Path = Path("results")
    """The folder that verify, run and the benchmarks write to."""
    out: Path | None = None
    """The page to write, RESULTS/report.html if not given."""
    json: str = ""
    """Write what the page says as JSON to this file; "-" means standard output."""


def report_main(words: list[str]) -> int:
    """Write the report; 0 whatever it says, 2 if it cannot be written."""
    try:
        args = parse_args(ReportArgs, words, prog="jaxlab report")
        out = args.results / "report.html" if args.out is None else args.out
        results = collect(args.results)
        usable_file(out, "out")
        if args.json not in ("", "-"):
            usable_file(Path(args.json), "json")
        write_text(out, page(results))
        _write_json(args.json, results)
    except (ValueError, OSError) as error:
        print(f"jaxlab: {error}", file=sys.stderr)
        return 2
    print(out, file=sys.stderr if args.json == "-" else sys.stdout)
    return 0


def _write_json(target: str, results: Results) -> None:
    if not target:
        return
    found = [as_plain(finding) for finding in findings(results)]
    text = json_text({**as_plain(results), "findings": found})
    if target == "-":
        print(text, end="")
    else:
        write_text(Path(target), text)

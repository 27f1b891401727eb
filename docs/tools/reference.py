"""Collect the summaries of several runs of an experiment into its reference numbers.

Run from the repository's root, with runs of different first seeds; the first one is shown::

    python docs/tools/reference.py SLUG results/*/summary.json

A band is the range over the runs, widened at both ends by half of it and by 1% of the largest
value. Runs with ``--smoke`` get bands of their own, which a test holds the smoke run to.
"""

import json
import sys
from pathlib import Path
from typing import Any


def bands(summaries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row per criterion."""
    rows = []
    for index, first in enumerate(summaries[0]["criteria"]):
        values = [summary["criteria"][index]["measured"] for summary in summaries]
        spread = max(values) - min(values)
        slack = spread / 2 + 0.01 * max(abs(value) for value in values)
        rows.append(
            {
                "name": first["name"],
                "measured": first["measured"],
                "low": min(values) - slack,
                "high": max(values) + slack,
                "threshold": first["threshold"],
            }
        )
    return rows


def main(slug: str, *files: str) -> None:
    """Write ``docs/papers/SLUG_reference.json``."""
    summaries = [json.loads(Path(file).read_text()) for file in files]
    reference = {
        "default": bands([summary for summary in summaries if not summary["smoke"]]),
        "smoke": bands([summary for summary in summaries if summary["smoke"]]),
    }
    target = Path(__file__).parents[1] / "papers" / f"{slug}_reference.json"
    target.write_text(json.dumps(reference, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])

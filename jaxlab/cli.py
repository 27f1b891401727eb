"""The command line: papers, experiments, claims, the report, and tools on one's own data."""

import difflib
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from jaxlab.core.locate import load_companion, missing_extra
from jaxlab.core.registry import find_paper, papers

__all__ = ["main"]

_HELP = """usage: jaxlab COMMAND ...

  list                    the papers, their methods and claims
  run SLUG [flags]        a paper's experiment; its flags: jaxlab run SLUG --help
  verify [SLUG ...]       try to break the papers' claims
  replay FILE             look again at a counterexample that verify has stored
  report                  one HTML page about everything that was run
  memorize DATA           where a diffusion model would copy your own arrays, and what it copied
  order                   in which order to train on your own files, for a target

Each command answers --help; jaxlab --version says the version.
"""

_LIST_HELP = """usage: jaxlab list [--json FILE]

Show every paper with its slug, title, family, evidence and number of claims.

  --json FILE             write the table as JSON to FILE; "-" means standard output
"""


def _run_help() -> str:
    slugs = ", ".join(paper.slug for paper in papers())
    return f"""usage: jaxlab run SLUG [flags]

Run a paper's experiment. The same as python experiments/SLUG.py [flags].
SLUG is one of: {slugs}. Flags differ by experiment: jaxlab run SLUG --help
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: The words after ``jaxlab``; those of the process by default.

    Returns:
        The exit code: 0 when done, 1 when ``verify`` refuted something, 2 for wrong usage, 130
        after Ctrl-C.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if not words:
        print(_HELP, file=sys.stderr, end="")
        return 2
    command, *rest = words
    if command in ("-h", "--help", "help"):
        print(_HELP, end="")
        return 0
    if command == "--version":
        from jaxlab import __version__

        print(__version__)
        return 0
    if command not in _COMMANDS:
        return _fail(f"command must be {_one_of(list(_COMMANDS), command)}")
    try:
        return _COMMANDS[command](rest)
    except KeyboardInterrupt:
        return _fail("stopped", 130)
    except ImportError as error:
        message = missing_extra(error)
        if message is None:
            raise
        return _fail(message)


def _list(words: list[str]) -> int:
    if any(word in ("-h", "--help") for word in words):
        print(_LIST_HELP, end="")
        return 0
    if not words:
        _print_papers()
        return 0
    flag, *values = words
    if flag.startswith("--json="):
        flag, values = "--json", [flag.removeprefix("--json="), *values]
    if flag != "--json":
        return _fail(f"flag of list must be {_one_of(['--json', '--help'], flag)}")
    if len(values) != 1:
        got = " ".join(values) or "none"
        return _fail(f"--json must be followed by one file or '-', got {got}")
    text = json.dumps([paper._asdict() for paper in papers()], indent=2) + "\n"
    if values[0] == "-":
        print(text, end="")
        return 0
    try:
        from jaxlab.core.files import write_text

        write_text(Path(values[0]), text)
    except OSError as error:
        return _fail(f"--json must be a file that can be written, got {values[0]!r}: {error}")
    return 0


def _print_papers() -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table()
    for column in ("slug", "title", "family", "evidence", "claims"):
        table.add_column(column, overflow="fold", no_wrap=column == "slug")
    for paper in papers():
        table.add_row(paper.slug, paper.title, paper.family, paper.evidence, str(paper.claims))
    Console().print(table)


def _run(words: list[str]) -> int:
    if not words:
        print(_run_help(), file=sys.stderr, end="")
        return 2
    slug, *flags = words
    if slug in ("-h", "--help"):
        print(_run_help(), end="")
        return 0
    try:
        find_paper(slug)
        experiment = load_companion("experiments", slug).EXPERIMENT
    except (ValueError, FileNotFoundError) as error:
        return _fail(str(error))
    from jaxlab.experiment import main as run_experiment

    return run_experiment(experiment, flags, prog=f"jaxlab run {slug}")


def _verify(words: list[str]) -> int:
    from jaxlab.claims.command import verify_main

    return verify_main(words)


def _replay(words: list[str]) -> int:
    from jaxlab.claims.command import replay_main

    return replay_main(words)


def _report(words: list[str]) -> int:
    from jaxlab.report.command import report_main

    return report_main(words)


def _memorize(words: list[str]) -> int:
    from jaxlab.memorize.command import memorize_main

    return memorize_main(words)


def _order(words: list[str]) -> int:
    from jaxlab.order.command import order_main

    return order_main(words)


_COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "list": _list,
    "run": _run,
    "verify": _verify,
    "replay": _replay,
    "report": _report,
    "memorize": _memorize,
    "order": _order,
}


def _one_of(known: list[str], got: str) -> str:
    near = difflib.get_close_matches(got, known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"one of {', '.join(known)}, got {got!r}{hint}"


def _fail(message: str, code: int = 2) -> int:
    print(f"jaxlab: {message}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())

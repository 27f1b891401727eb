"""The one way to run an experiment: from a script or from the command line, with the same files."""

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
from rich.console import Console
from rich.table import Table

from jaxlab.core.files import write_json
from jaxlab.core.locate import missing_extra
from jaxlab.core.registry import find_paper
from jaxlab.core.usage import UsageError, parse_args
from jaxlab.experiment.args import CommonArgs
from jaxlab.experiment.figures import save_figure
from jaxlab.experiment.folder import claim_folder, inspect_folder
from jaxlab.experiment.metrics import Row, read_metrics, write_metrics
from jaxlab.experiment.session import Session, open_session
from jaxlab.experiment.verdict import Report, summarize

__all__ = ["Experiment", "main"]


class Experiment(NamedTuple):
    """What ``experiments/<slug>.py`` defines, as ``EXPERIMENT``.

    Attributes:
        slug: The paper's slug.
        args: A frozen dataclass derived from ``CommonArgs``.
        prepare: ``args -> inputs``: load data, build problems. A ``ValueError`` here is the user's.
        run: ``(args, inputs, session) -> rows``: everything that takes time.
        judge: ``rows -> Report``, from the metrics alone.
        draw: ``(rows, figure) -> None``, from the metrics alone.
    """

    slug: str
    args: type[CommonArgs]
    prepare: Callable[[Any], Any]
    run: Callable[[Any, Any, Session], list[Row]]
    judge: Callable[[list[Row]], Report]
    draw: Callable[[list[Row], Any], None]


def main(
    experiment: Experiment, argv: Sequence[str] | None = None, *, prog: str | None = None
) -> int:
    """Parse flags, run the experiment, write its files and print its verdict.

    Returns:
        The exit code: 0 when done, whatever the verdict; 2 for unusable flags, input or folders;
        130 after Ctrl-C.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    prog = prog or f"python {sys.argv[0]}"
    try:
        summary = find_paper(experiment.slug).summary
        args = parse_args(experiment.args, words, prog=prog, description=summary)
        _execute(experiment, args)
    except KeyboardInterrupt:
        again = words if "--resume" in words else [*words, "--resume"]
        return _fail(f"stopped; to go on: {prog} {' '.join(again)}", 130)
    except UsageError as error:
        return _fail(f"error: {error}", 2)
    except OSError as error:
        return _fail(f"error: {error}", 2)
    except ImportError as error:
        message = missing_extra(error)
        if message is None:
            raise
        return _fail(f"error: {message}", 2)
    return 0


def _fail(message: str, code: int) -> int:
    print(message, file=sys.stderr)
    return code


def _execute(experiment: Experiment, args: CommonArgs) -> None:
    started = time.perf_counter()
    folder = inspect_folder(experiment.slug, args)
    with jax.enable_x64(True), open_session(folder, progress=args.progress) as session:
        try:
            inputs = experiment.prepare(args)
        except ValueError as error:
            raise UsageError(str(error)) from error
        claim_folder(folder, experiment.slug, args)
        write_metrics(folder / "metrics.csv", experiment.run(args, inputs, session))
        report = experiment.judge(read_metrics(folder / "metrics.csv"))
        summary = summarize(experiment.slug, report, smoke=args.smoke)
        write_json(folder / "summary.json", summary)
        save_figure(experiment.draw, folder)
    total = time.perf_counter() - started
    timings = {
        "compile_seconds": session.compile_seconds,
        "run_seconds": total - session.compile_seconds,
        "total_seconds": total,
        "pieces": session.seconds,
    }
    write_json(folder / "timings.json", timings)
    _print_report(report, summary, timings, folder, Console(stderr=args.json == "-"))
    if args.json == "-":
        print((folder / "summary.json").read_text(), end="")
    elif args.json is not None:
        write_json(Path(args.json), summary)


def _print_report(
    report: Report, summary: dict[str, Any], timings: dict[str, Any], folder: Path, console: Console
) -> None:
    for table in report.tables:
        shown = Table(title=table.title, title_justify="left")
        for column in table.columns:
            shown.add_column(column)
        for row in table.rows:
            shown.add_row(*row)
        console.print(shown)
    criteria = Table(title="Criteria", title_justify="left")
    for column in ("criterion", "measured", "threshold", "holds"):
        criteria.add_column(column)
    for row in summary["criteria"]:
        holds = "yes" if row["holds"] else "no"
        criteria.add_row(row["name"], f"{row['measured']:.4g}", row["threshold"], holds)
    console.print(criteria)
    for note in report.notes:
        console.print(f"- {note}", markup=False, highlight=False)
    console.print(
        f"compile {timings['compile_seconds']:.1f} s, run {timings['run_seconds']:.1f} s; "
        f"files in {folder}",
        markup=False, highlight=False, soft_wrap=True,
    )  # fmt: skip
    console.print(f"verdict: {summary['verdict']}", markup=False, highlight=False)

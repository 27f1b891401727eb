"""What became of mutants, and how a night's results are shown."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Result(NamedTuple):
    """What became of one mutant, a line of ``results.jsonl``.

    Attributes:
        module: The path from the root.
        operator: Cosmic Ray's name of the change.
        occurrence: Which place of the operator.
        line: In the module as it is.
        diff: The changed lines.
        outcome: ``killed``, ``timeout`` or ``survived``.
        by: What killed it, as pytest says.
        seconds: How long the tests took.
        source: A digest of the module.
        tests: A digest of its tests.
    """

    module: str
    operator: str
    occurrence: int
    line: int
    diff: str
    outcome: str
    by: str
    seconds: float
    source: str
    tests: str


class Score(NamedTuple):
    """What is known of one module.

    Attributes:
        module: The path from the root.
        results: Of the mutants that were run.
        population: How many mutants there are.
    """

    module: str
    results: list[Result]
    population: int

    def count(self, outcome: str) -> int:
        """How many mutants ended so."""
        return sum(result.outcome == outcome for result in self.results)

    @property
    def killed(self) -> int:
        """A test that hangs has noticed, too."""
        return self.count("killed") + self.count("timeout")

    @property
    def percent(self) -> float:
        """The share of killed mutants; all of none."""
        return 100 * self.killed / len(self.results) if self.results else 100.0


def table(scores: Sequence[Score]) -> str:
    """A row for each module."""
    head = ("module", "mutants", "run", "killed", "survived", "timeouts", "score", "95 % interval")
    rows = [head, *map(row_of, scores)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        f"{row[0]:<{widths[0]}}  "
        + "  ".join(f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True))
        for row in rows
    )


def row_of(score: Score) -> tuple[str, ...]:
    """The numbers of one module."""
    counts = (score.population, len(score.results), score.killed)
    alive, hung = score.count("survived"), score.count("timeout")
    return (
        score.module, *map(str, (*counts, alive, hung)), f"{score.percent:.1f} %", interval(score)
    )  # fmt: skip


def interval(score: Score) -> str:
    """Clopper and Pearson's interval of a sample's score; nothing where all mutants were run."""
    from jaxlab.stats.intervals import clopper_pearson

    if len(score.results) == score.population or not score.results:
        return "all run"
    low, high = clopper_pearson(score.killed, len(score.results), 0.05)
    return f"{100 * low:.1f} to {100 * high:.1f} %"


def survivors(scores: Iterable[Score]) -> str:
    """What no test has noticed."""
    alive = [each for score in scores for each in score.results if each.outcome == "survived"]
    if not alive:
        return "no survivors"
    return "survivors:\n" + "\n".join(f"\n{name_of(result)}\n{result.diff}" for result in alive)


def describe_result(result: Result) -> str:
    """One line on one mutant."""
    return f"{result.outcome} in {result.seconds:.0f} s: {name_of(result)} {result.by}"


def name_of(result: Result) -> str:
    """Where a mutant is."""
    return f"{result.module}:{result.line} {result.operator} {result.occurrence}"

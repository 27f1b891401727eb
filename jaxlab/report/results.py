"""What a folder of results holds, as plain values, and what in it speaks against its source."""

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from jaxlab.core.registry import Paper

__all__ = [
    "LOOSE",
    "About",
    "Benchmark",
    "ClaimResult",
    "ClaimsFile",
    "CriterionResult",
    "Damage",
    "ExperimentRun",
    "Figure",
    "Finding",
    "MutantResult",
    "Results",
    "RungResult",
    "Section",
    "as_plain",
    "findings",
]

LOOSE = 0.1
"""A bound is loose where even the rungs that look for the worst case leave a larger margin.

Margins have no scale. For sides in ratio, 0.1 means that the bound is 10% above its worst case.
"""

_WORST_CASE_RUNGS = ("attack", "exact")
_GOOD = ("held", "certified")


class About(NamedTuple):
    """Where numbers come from; empty where a file does not say.

    Attributes:
        source: A paper's slug, or the path of a user's file.
        when: An ISO time.
        effort: Of ``jaxlab verify``.
        seed: Of all random choices.
        seconds: Wall time; NaN if unknown.
        machine: Facts by name.
        versions: Versions by package.
    """

    source: str = ""
    when: str = ""
    effort: str = ""
    seed: str = ""
    seconds: float = math.nan
    machine: Mapping[str, str] = {}
    versions: Mapping[str, str] = {}


class RungResult(NamedTuple):
    """What one rung found; the fields are those of ``RungReport``."""

    rung: str
    verdict: str
    num_instances: int
    least: Mapping[str, float]
    note: str
    file: str

    @property
    def margin(self) -> float:
        """The least margin over all families; NaN if there is none."""
        known = [margin for margin in self.least.values() if not math.isnan(margin)]
        return min(known, default=math.nan)


class MutantResult(NamedTuple):
    """Which rung refuted a mutant; ``killed_by`` is empty for a survivor."""

    name: str
    killed_by: str
    margin: float
    rungs: tuple[RungResult, ...]


class ClaimResult(NamedTuple):
    """What the ladder made of one claim; the fields are those of ``jaxlab verify --json``."""

    name: str
    statement: str
    source: str
    families: tuple[str, ...]
    expected: str
    verdict: str
    tightness: str
    note: str
    seconds: float
    rungs: tuple[RungResult, ...]
    mutants: tuple[MutantResult, ...]

    @property
    def worst_margin(self) -> float:
        """The least margin of the attack and the exact rung; NaN if neither found one."""
        margins = [rung.margin for rung in self.rungs if rung.rung in _WORST_CASE_RUNGS]
        return min((m for m in margins if not math.isnan(m)), default=math.nan)

    @property
    def is_loose(self) -> bool:
        """Whether ``worst_margin`` stays above ``LOOSE``; an order of growth has no constant."""
        return self.tightness != "order" and self.worst_margin > LOOSE

    @property
    def survivors(self) -> tuple[str, ...]:
        """Mutants that no rung refuted."""
        return tuple(mutant.name for mutant in self.mutants if not mutant.killed_by)

    @property
    def as_expected(self) -> bool:
        """Whether the verdict is the expected one; mutants are counted apart."""
        return self.verdict in (_GOOD if self.expected == "held" else ("refuted",))


class ClaimsFile(NamedTuple):
    """What ``jaxlab verify`` wrote about one source."""

    file: str
    about: About
    claims: tuple[ClaimResult, ...]


class CriterionResult(NamedTuple):
    """One line of an experiment's verdict."""

    name: str
    measured: float
    threshold: str
    holds: bool
    about: str


class Figure(NamedTuple):
    """An image and its media type."""

    file: str
    media_type: str
    content: bytes


class ExperimentRun(NamedTuple):
    """What a run of an experiment left; the verdict of one without a summary is "unfinished"."""

    folder: str
    experiment: str
    verdict: str
    smoke: bool
    criteria: tuple[CriterionResult, ...]
    notes: tuple[str, ...]
    figure: Figure | None
    flags: Mapping[str, str]
    about: About


class Benchmark(NamedTuple):
    """The numbers of one file of benchmarks; ``failed`` names the tests that did not pass."""

    file: str
    about: About
    rows: tuple[tuple[str, str], ...]
    failed: tuple[str, ...]


class Damage(NamedTuple):
    """A file that could not be used."""

    file: str
    reason: str


class Section(NamedTuple):
    """Everything about one source: a paper of the registry, or a user's own without a ``paper``."""

    title: str
    paper: Paper | None
    claims: tuple[ClaimsFile, ...] = ()
    experiments: tuple[ExperimentRun, ...] = ()
    benchmarks: tuple[Benchmark, ...] = ()

    @property
    def all_claims(self) -> tuple[ClaimResult, ...]:
        """The claims of all files."""
        return tuple(claim for file in self.claims for claim in file.claims)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was run yet."""
        return not (self.claims or self.experiments or self.benchmarks)


class Results(NamedTuple):
    """A folder of results."""

    folder: str
    when: str
    sections: tuple[Section, ...]
    damage: tuple[Damage, ...]


class Finding(NamedTuple):
    """Something that did not reproduce.

    Attributes:
        section: The source's title; empty for a damaged file that names none.
        kind: What it is about: a claim, a mutant, an experiment, a benchmark or a file.
        name: Its name.
        verdict: What came out.
        reason: Why, as far as the files say.
        file: A counterexample for ``jaxlab replay``, or empty.
    """

    section: str
    kind: str
    name: str
    verdict: str
    reason: str
    file: str = ""


def findings(results: Results) -> tuple[Finding, ...]:
    """All that did not reproduce, in the order of the sections, damaged files last.

    Example:
        >>> findings(Results("results", "", (), (Damage("claims/x.json", "is empty"),)))[0].reason
        'is empty'
    """
    found = [finding for section in results.sections for finding in _of_section(section)]
    found += [Finding("", "file", hurt.file, "damaged", hurt.reason) for hurt in results.damage]
    return tuple(found)


def as_plain(value: Any) -> Any:
    """Named tuples as dictionaries, without the figures' bytes.

    Example:
        >>> as_plain(Damage("claims/x.json", "is empty"))
        {'file': 'claims/x.json', 'reason': 'is empty'}
    """
    if hasattr(value, "_asdict"):
        return {k: as_plain(v) for k, v in value._asdict().items() if k != "content"}
    if isinstance(value, Mapping):
        return {key: as_plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [as_plain(item) for item in value]
    return value


def _of_section(section: Section) -> Iterator[Finding]:
    for claim in section.all_claims:
        yield from _of_claim(section.title, claim)
    for run in section.experiments:
        if run.verdict != "reproduced":
            yield Finding(section.title, "experiment", run.folder, run.verdict, _of_run(run))
    for benchmark in section.benchmarks:
        for test in benchmark.failed:
            yield Finding(section.title, "benchmark", test, "failed", f"see {benchmark.file}")


def _of_claim(title: str, claim: ClaimResult) -> Iterator[Finding]:
    if claim.verdict not in _GOOD or not claim.as_expected:
        bad = [rung for rung in claim.rungs if rung.verdict not in (*_GOOD, "skipped")]
        told = [f"{rung.rung}: {rung.note}" for rung in bad if rung.note]
        if claim.expected != "held":
            told.insert(0, f"expected: {claim.expected}")
        reason = "; ".join([*told, claim.note] if claim.note else told)
        file = next((rung.file for rung in bad if rung.file), "")
        yield Finding(title, "claim", claim.name, claim.verdict, reason, file)
    elif claim.tightness == "tight" and claim.is_loose:
        reason = f"stated as tight, but the worst margin found is {claim.worst_margin:.2g}"
        yield Finding(title, "claim", claim.name, "loose here", reason)
    for name in claim.survivors:
        reason = "no rung refutes this bug, so the claim's own verdict means nothing"
        yield Finding(title, "mutant", f"{claim.name}: {name}", "survived", reason)


def _of_run(run: ExperimentRun) -> str:
    missed = [criterion for criterion in run.criteria if not criterion.holds]
    told = [f"{c.name}: {c.measured:.4g}, threshold {c.threshold}" for c in missed]
    if run.smoke:
        told.insert(0, "a smoke run, whose verdict is no evidence")
    if run.verdict == "unfinished":
        told.insert(0, "it has no summary: it is running, was stopped, or failed")
    return "; ".join(told)

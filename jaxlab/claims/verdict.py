"""What a rung, a mutant and a whole claim can come to."""

import enum
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

__all__ = ["Candidate", "ClaimReport", "MutantReport", "RungReport", "Verdict", "merged"]


class Verdict(enum.StrEnum):
    """The outcome of an attack on a claim."""

    HELD = "held"
    """Nothing was found."""
    CERTIFIED = "certified"
    """The exact worst case satisfies the claim."""
    CANDIDATE = "candidate"
    """A violation that has not been recomputed outside JAX."""
    REFUTED = "refuted"
    """A violation that has been recomputed outside JAX, with its assumptions."""
    VACUOUS = "vacuous"
    """Instances violate their own assumptions, so that nothing was tried."""
    INCONCLUSIVE = "inconclusive"
    """A margin was NaN, a violation could not be confirmed, or a solver failed."""
    INVALID = "invalid"
    """The claim cannot be judged as it is written; the note says why."""
    SKIPPED = "skipped"
    """The rung does not apply, needs a package that is not installed, or had no time left."""


class Candidate(NamedTuple):
    """A violation and what is needed to build it again.

    Attributes:
        family: The family or boundary instance's name.
        sizes: The static sizes.
        instance: The instance itself.
        key: For stochastic claims, the key of the conclusion.
        margin: As JAX computed it.
    """

    family: str
    sizes: Mapping[str, Any]
    instance: Any
    key: Any
    margin: float


class RungReport(NamedTuple):
    """What one rung found.

    Attributes:
        rung: Its name.
        verdict: What it came to.
        num_instances: How many were tried.
        least: The least margin by family; without the families that found no finite margin.
        note: A reason, or a warning.
        candidate: The worst violation.
        outside: That violation's margin outside JAX.
        file: Where the refutation was written.
        seconds: Wall time.
    """

    rung: str
    verdict: Verdict
    num_instances: int = 0
    least: Mapping[str, float] = {}
    note: str = ""
    candidate: Candidate | None = None
    outside: float = math.nan
    file: str = ""
    seconds: float = 0.0

    @property
    def least_margin(self) -> float:
        """The least margin over all families; NaN if there is none."""
        return min(self.least.values(), default=math.nan)


class MutantReport(NamedTuple):
    """Which rung refuted a mutant.

    Attributes:
        name: The mutant's name.
        killed_by: The rung, or None if the mutant survived.
        margin: The violation's margin.
        rungs: The rungs that were climbed.
    """

    name: str
    killed_by: str | None
    margin: float
    rungs: tuple[RungReport, ...]


class ClaimReport(NamedTuple):
    """What the ladder made of one claim.

    Attributes:
        name: The claim's name.
        statement: The theorem.
        source: Where it stands.
        families: The names of the families of instances.
        expected: ``"held"`` or ``"refuted"``.
        tightness: As the claim states.
        rungs: The rungs in order; only ``check`` if the claim itself is at fault.
        mutants: The mutants in order.
        seconds: Wall time.
    """

    name: str
    statement: str
    source: str
    families: tuple[str, ...]
    expected: str
    tightness: str
    rungs: tuple[RungReport, ...]
    mutants: tuple[MutantReport, ...]
    seconds: float = 0.0

    @property
    def verdict(self) -> Verdict:
        """The worst of the rungs' verdicts; certified if an exact rung certified the claim.

        A candidate that could not be confirmed leaves the claim inconclusive.
        """
        found = {report.verdict for report in self.rungs}
        if Verdict.CANDIDATE in found:
            found.add(Verdict.INCONCLUSIVE)
        order = (
            Verdict.INVALID,
            Verdict.REFUTED,
            Verdict.VACUOUS,
            Verdict.INCONCLUSIVE,
            Verdict.CERTIFIED,
            Verdict.HELD,
        )
        return next((verdict for verdict in order if verdict in found), Verdict.INCONCLUSIVE)

    @property
    def least_margin(self) -> float:
        """The least margin of all rungs."""
        margins = [r.least_margin for r in self.rungs if not math.isnan(r.least_margin)]
        return min(margins, default=math.nan)

    @property
    def survivors(self) -> tuple[str, ...]:
        """Mutants that no rung refuted."""
        return tuple(mutant.name for mutant in self.mutants if mutant.killed_by is None)

    @property
    def ok(self) -> bool:
        """Whether the claim came out as expected and every mutant was refuted."""
        good = {Verdict.HELD, Verdict.CERTIFIED}
        expected = good if self.expected == "held" else {Verdict.REFUTED}
        return self.verdict in expected and not self.survivors


def merged(first: RungReport, second: RungReport) -> RungReport:
    """Two rounds of one rung as one report; the second decides unless it found nothing.

    Example:
        >>> rounds = [RungReport("sample", Verdict.HELD, 10, {"a": m}) for m in (0.5, 0.25)]
        >>> merged(*rounds).num_instances, merged(*rounds).least_margin
        (20, 0.25)
    """
    last = first if second.verdict in (Verdict.HELD, Verdict.SKIPPED) else second
    least = dict(first.least)
    for name, margin in second.least.items():
        least[name] = min(margin, least.get(name, math.inf))
    return last._replace(
        num_instances=first.num_instances + second.num_instances,
        least=least,
        seconds=first.seconds + second.seconds,
    )

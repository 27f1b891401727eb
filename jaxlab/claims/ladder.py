"""The ladder: every rung on a claim, then on each of its mutants."""

import dataclasses
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from jaxlab.claims.attack import attack
from jaxlab.claims.claim import RUNGS, Claim
from jaxlab.claims.confirm import confirm
from jaxlab.claims.evaluate import Evaluator, precise
from jaxlab.claims.exact.rung import exact_rung
from jaxlab.claims.examine import ClaimError
from jaxlab.claims.explore import explore
from jaxlab.claims.sample import sample
from jaxlab.claims.search import Effort, Findings
from jaxlab.claims.smaller import smaller_counterexample
from jaxlab.claims.verdict import (
    Candidate,
    ClaimReport,
    MutantReport,
    RungReport,
    Verdict,
    merged,
)

__all__ = ["climb", "climb_mutant", "climb_rung", "rungs_of", "share_error"]

_SEARCHERS = {"explore": explore, "sample": sample, "attack": attack}

_BUDGET_EFFORT = Effort(examples=20, samples=20_000, restarts=64, steps=200)
"""One round of a climb with a budget; rounds follow until the budget is spent."""

_LARGEST_ROUND = 1_000_000
"""Instances of ``sample`` in one round: each round doubles them up to here."""


class _Climb(NamedTuple):
    """What all rungs of a claim share."""

    claim: Claim
    evaluator: Evaluator
    effort: Effort
    seed: int
    folder: Path | None
    origin: str
    deadline: float
    on_step: Callable[[str], None]
    on_rung: Callable[[str, RungReport], None]


def climb(
    claim: Claim,
    *,
    effort: Effort | None = None,
    seed: int = 0,
    budget: float | None = None,
    folder: Path | None = None,
    origin: str = "",
    on_step: Callable[[str], None] | None = None,
    on_rung: Callable[[str, RungReport], None] | None = None,
) -> ClaimReport:
    """Attack a claim on all of its rungs, then see that every mutant falls.

    Args:
        claim: The theorem.
        effort: How hard to try.
        seed: Of all random choices; the same seed gives the same report on the same machine, if no
            ``budget`` ends it.
        budget: Seconds to spend: what is not begun by then is skipped, and what is left after one
            round goes into further rounds of ``sample`` and ``attack`` with fresh seeds.
        folder: Where refutations are written; nowhere by default.
        origin: The paper's slug or the file that defines the claim, for the replay.
        on_step: Told what is about to be done.
        on_rung: Told what a rung came to, with the claim's or the mutant's name.

    Example:
        >>> import jax.numpy as jnp, numpyro, numpyro.distributions as dist
        >>> from jaxlab.claims import at_most_in_ratio
        >>> def model():
        ...     return numpyro.sample("x", dist.Normal(0.0, 1.0).expand([3]))
        >>> def holder(x, factor=1.0):
        ...     bound = factor * jnp.sqrt(3.0) * jnp.linalg.norm(x)
        ...     return at_most_in_ratio(jnp.abs(x).sum(), bound)
        >>> claim = Claim(
        ...     name="example/holder", statement="|x|_1 <= sqrt(3) |x|_2", source="Cauchy-Schwarz",
        ...     families={"normal": model}, conclusion=holder,
        ...     assumptions=lambda x: jnp.isfinite(x).all(),
        ...     mutants={"the constant forgotten": {"factor": 0.9}},
        ... )
        >>> report = climb(claim, effort=Effort(10, 1000, 16, 100, methods=("adam",)))
        >>> str(report.verdict), report.mutants[0].killed_by
        ('held', 'explore')
    """
    begin = time.monotonic()
    deadline = math.inf if budget is None else begin + budget
    effort = effort or (Effort() if budget is None else _BUDGET_EFFORT)
    with precise():
        this = _Climb(
            claim, Evaluator(claim), effort, seed, folder, origin, deadline,
            on_step or (lambda step: None), on_rung or (lambda name, report: None),
        )  # fmt: skip
        rungs, mutants = [_examined(this)], []
        if rungs[0].verdict != Verdict.INVALID:
            rungs = [_rung(this, rung, {}, None, round_=0) for rung in rungs_of(claim)]
            for name in claim.mutants:
                mutants.append(_mutant(this, name))
            rungs = _further_rounds(this, rungs) if budget is not None else rungs
    return ClaimReport(
        claim.name, claim.statement, claim.source, tuple(claim.families), claim.expected,
        claim.tightness, tuple(rungs), tuple(mutants), time.monotonic() - begin,
    )  # fmt: skip


def climb_mutant(
    claim: Claim,
    evaluator: Evaluator,
    name: str,
    effort: Effort,
    seed: int,
    folder: Path | None,
    origin: str = "",
) -> MutantReport:
    """Climb until a rung refutes the mutant."""
    return _mutant(_alone(claim, evaluator, effort, seed, folder, origin), name)


def climb_rung(
    claim: Claim,
    evaluator: Evaluator,
    rung: str,
    variant: Mapping[str, Any],
    mutant: str | None,
    effort: Effort,
    seed: int,
    folder: Path | None,
    deadline: float = math.inf,
    origin: str = "",
) -> RungReport:
    """One rung on a claim (``variant`` empty) or on one of its mutants.

    What is after ``deadline`` (on the clock of ``time.monotonic``) is not begun.
    """
    this = _alone(claim, evaluator, effort, seed, folder, origin)._replace(deadline=deadline)
    return _rung(this, rung, variant, mutant, round_=0)


def share_error(claims: list[Claim], error: float) -> list[Claim]:
    """Give each stochastic claim an equal part of one error probability for the whole suite.

    Example:
        >>> share_error([], 1e-6)
        []
    """
    number = max(1, sum(claim.stochastic for claim in claims))
    return [dataclasses.replace(claim, error=error / number) for claim in claims]


def _alone(
    claim: Claim, evaluator: Evaluator, effort: Effort, seed: int, folder: Path | None, origin: str
) -> _Climb:
    return _Climb(
        claim, evaluator, effort, seed, folder, origin, math.inf,
        lambda step: None, lambda name, report: None,
    )  # fmt: skip


def rungs_of(claim: Claim) -> list[str]:
    """The rungs that a claim is climbed on, in order."""
    return [r for r in RUNGS if r in claim.rungs and (r != "exact" or claim.exact is not None)]


def _examined(this: _Climb) -> RungReport:
    this.on_step(f"{this.claim.name}: check")
    try:
        this.evaluator.examine()
    except ClaimError as error:
        report = RungReport("check", Verdict.INVALID, note=str(error))
        this.on_rung(this.claim.name, report)
        return report
    return RungReport("check", Verdict.HELD)


def _mutant(this: _Climb, name: str) -> MutantReport:
    reports = []
    for rung in rungs_of(this.claim):
        report = _rung(this, rung, this.claim.mutants[name], name, round_=0)
        reports.append(report)
        if report.verdict == Verdict.REFUTED:
            return MutantReport(name, rung, report.least_margin, tuple(reports))
    return MutantReport(name, None, reports[-1].least_margin, tuple(reports))


def _further_rounds(this: _Climb, rungs: list[RungReport]) -> list[RungReport]:
    """Sample and attack with fresh seeds while there is time and nothing was found."""
    found = {report.rung: report for report in rungs}
    again = [rung for rung in ("sample", "attack") if rung in found]
    round_, good = 1, {Verdict.HELD, Verdict.CERTIFIED}
    while again and time.monotonic() < this.deadline:
        if any(report.verdict not in good for report in found.values()):
            break
        samples = min(this.effort.samples * 2**round_, _LARGEST_ROUND)
        wider = this._replace(effort=this.effort._replace(samples=samples))
        for rung in again:
            if time.monotonic() < this.deadline:
                found[rung] = merged(found[rung], _rung(wider, rung, {}, None, round_=round_))
        round_ += 1
    return list(found.values())


def _rung(
    this: _Climb, rung: str, variant: Mapping[str, Any], mutant: str | None, round_: int
) -> RungReport:
    claim = this.claim
    name = claim.name if mutant is None else f"{claim.name}: mutant {mutant}"
    name += f", round {round_ + 1}" if round_ else ""
    this.on_step(f"{name}: {rung}")
    begin = time.monotonic()
    if begin > this.deadline:
        report = RungReport(rung, Verdict.SKIPPED, note="the budget was spent")
    else:
        try:
            report = _searched(this, rung, variant, mutant, round_)
        except ClaimError as error:
            report = RungReport(rung, Verdict.INVALID, note=str(error))
    report = report._replace(seconds=time.monotonic() - begin)
    this.on_rung(name, report)
    return report


def _searched(
    this: _Climb, rung: str, variant: Mapping[str, Any], mutant: str | None, round_: int
) -> RungReport:
    if rung == "exact":
        return exact_rung(this.claim, variant)
    claim = _with_part_of_error(this.claim, round_, math.isfinite(this.deadline))
    seed = this.seed + 7919 * round_
    found = _SEARCHERS[rung](
        claim, this.evaluator, variant, this.effort, seed, deadline=this.deadline
    )
    report = RungReport(
        rung, _verdict(claim, found), found.num_instances, found.least, _note(found)
    )
    if found.candidate is None:
        return report

    def confirmed(candidate: Candidate) -> RungReport:
        return confirm(
            claim, this.evaluator, candidate, report, variant, mutant,
            folder=this.folder, origin=this.origin, shrink=this.effort.shrink,
        )  # fmt: skip

    first = confirmed(found.candidate)
    # Hypothesis has made its own finds small, and nobody reads a mutant's counterexample.
    if first.verdict == Verdict.REFUTED and rung != "explore" and mutant is None:
        smaller = _smaller(this, claim, found.candidate, variant)
        return first if smaller is None else confirmed(smaller)
    return first


def _smaller(
    this: _Climb, claim: Claim, found: Candidate, variant: Mapping[str, Any]
) -> Candidate | None:
    if claim.stochastic or not claim.sizes or not this.effort.shrink:
        return None
    left = this.deadline - time.monotonic()
    return smaller_counterexample(claim, found, variant, this.seed, seconds=min(left, 20.0))


def _with_part_of_error(claim: Claim, round_: int, many_rounds: bool) -> Claim:
    """The claim's error probability, split over its rungs and halved from round to round."""
    if not claim.stochastic:
        return claim
    parts = len(rungs_of(claim)) * (2 ** (round_ + 1) if many_rounds else 1)
    return dataclasses.replace(claim, error=claim.error / parts)


def _verdict(claim: Claim, found: Findings) -> Verdict:
    """Short of a candidate. A rung that saw no finite margin cannot say that the claim held."""
    if found.vacuous:
        return Verdict.VACUOUS
    # An identity may well have one margin; elsewhere it means that nothing was compared.
    if found.nan or (found.constant and claim.tightness != "tight"):
        return Verdict.INCONCLUSIVE
    if not found.num_instances:
        return Verdict.SKIPPED
    return Verdict.HELD if found.least else Verdict.INCONCLUSIVE


def _note(found: Findings) -> str:
    parts = (found.vacuous, found.nan, found.constant, found.note)
    return "; ".join(part for part in parts if part)

"""The ladder: every rung on a claim, then on each of its mutants."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jaxlab.claims.attack import attack
from jaxlab.claims.claim import RUNGS, Claim
from jaxlab.claims.evaluate import Evaluator, precise
from jaxlab.claims.exact.rung import exact_rung
from jaxlab.claims.explore import explore
from jaxlab.claims.numpy_rules import NoOutsideRuleError
from jaxlab.claims.refutation import Recheck, recheck, write_refutation
from jaxlab.claims.sample import sample
from jaxlab.claims.search import Effort, Findings
from jaxlab.claims.verdict import ClaimReport, MutantReport, RungReport, Verdict

__all__ = ["climb", "climb_mutant", "climb_rung"]

_SEARCHERS = {"explore": explore, "sample": sample, "attack": attack}


def climb(
    claim: Claim,
    *,
    effort: Effort | None = None,
    seed: int = 0,
    folder: Path | None = None,
    on_step: Callable[[str], None] | None = None,
) -> ClaimReport:
    """Attack a claim on all of its rungs, then see that every mutant falls.

    Args:
        claim: The theorem.
        effort: How hard to try.
        seed: Of all random choices; the same seed gives the same report on the same machine.
        folder: Where refutations are written; nowhere by default.
        on_step: Told what is about to be done.

    Example:
        >>> import jax.numpy as jnp, numpyro, numpyro.distributions as dist
        >>> def model():
        ...     return numpyro.sample("x", dist.Normal(0.0, 1.0).expand([3]))
        >>> def holder(x, factor=1.0):
        ...     bound = factor * jnp.sqrt(3.0) * jnp.linalg.norm(x)
        ...     return at_most_in_ratio(jnp.abs(x).sum(), bound)
        >>> from jaxlab.claims.conclusions import at_most_in_ratio
        >>> claim = Claim(
        ...     name="example/holder", statement="|x|_1 <= sqrt(3) |x|_2", source="Cauchy-Schwarz",
        ...     families={"normal": model}, conclusion=holder,
        ...     assumptions=lambda x: jnp.isfinite(x).all(),
        ...     mutants={"the constant forgotten": {"factor": 0.9}},
        ... )
        >>> report = climb(claim, effort=Effort(10, 1000, 16, 100))
        >>> str(report.verdict), report.mutants[0].killed_by
        ('held', 'explore')
    """
    effort = effort or Effort()
    tell = on_step or (lambda step: None)
    with precise():
        evaluator = Evaluator(claim)
        rungs = []
        for rung in _rungs(claim):
            tell(f"{claim.name}: {rung}")
            rungs.append(climb_rung(claim, evaluator, rung, {}, None, effort, seed, folder))
        mutants = []
        for name in claim.mutants:
            tell(f"{claim.name}: mutant {name}")
            mutants.append(climb_mutant(claim, evaluator, name, effort, seed, folder))
    return ClaimReport(
        claim.name, claim.statement, claim.expected, claim.tightness, tuple(rungs), tuple(mutants)
    )


def climb_mutant(
    claim: Claim,
    evaluator: Evaluator,
    name: str,
    effort: Effort,
    seed: int,
    folder: Path | None,
) -> MutantReport:
    """Climb until a rung refutes the mutant."""
    reports = []
    for rung in _rungs(claim):
        report = climb_rung(claim, evaluator, rung, claim.mutants[name], name, effort, seed, folder)
        reports.append(report)
        if report.verdict == Verdict.REFUTED:
            return MutantReport(name, rung, report.least_margin, tuple(reports))
    return MutantReport(name, None, reports[-1].least_margin, tuple(reports))


def climb_rung(
    claim: Claim,
    evaluator: Evaluator,
    rung: str,
    variant: Mapping[str, Any],
    mutant: str | None,
    effort: Effort,
    seed: int,
    folder: Path | None,
) -> RungReport:
    """One rung on a claim (``variant`` empty) or on one of its mutants."""
    begin = time.perf_counter()
    if rung == "exact":
        report = exact_rung(claim, variant)
        return report._replace(seconds=time.perf_counter() - begin)
    found = _SEARCHERS[rung](claim, evaluator, variant, effort, seed)
    report = RungReport(rung, _verdict(found), found.num_instances, found.least, _note(found))
    if found.candidate is not None:
        report = _confirm(claim, found, report, variant, mutant, folder)
    return report._replace(seconds=time.perf_counter() - begin)


def _rungs(claim: Claim) -> list[str]:
    return [r for r in RUNGS if r in claim.rungs and (r != "exact" or claim.exact is not None)]


def _verdict(found: Findings) -> Verdict:
    """Short of a candidate. A rung that saw no finite margin cannot say that the claim held."""
    if found.vacuous:
        return Verdict.VACUOUS
    if found.nan:
        return Verdict.INCONCLUSIVE
    if not found.num_instances:
        return Verdict.SKIPPED
    return Verdict.HELD if found.least else Verdict.INCONCLUSIVE


def _note(found: Findings) -> str:
    return "; ".join(part for part in (found.vacuous, found.nan, found.note) if part)


def _confirm(
    claim: Claim,
    found: Findings,
    report: RungReport,
    variant: Mapping[str, Any],
    mutant: str | None,
    folder: Path | None,
) -> RungReport:
    """Turn a candidate into a refutation, or into a disagreement that is told."""
    candidate = found.candidate
    assert candidate is not None
    try:
        second = recheck(claim, candidate, variant)
    except NoOutsideRuleError as missing:
        return report._replace(
            verdict=Verdict.CANDIDATE, candidate=candidate, note=f"not confirmed: {missing}"
        )
    least = {**report.least, candidate.family: min(candidate.margin, report.least_margin)}
    if second.confirmed:
        file = _write(folder, claim, candidate, report.rung, mutant, second)
        return report._replace(
            verdict=Verdict.REFUTED, candidate=candidate, outside=second.margin, file=file,
            least=least,
        )  # fmt: skip
    if claim.stochastic:
        # The fresh key did not confirm what the first one suggested: that is what it is for.
        note = f"a suspicion was not confirmed: {second.reason}"
        return report._replace(note="; ".join(filter(None, (report.note, note))))
    return report._replace(
        verdict=Verdict.INCONCLUSIVE, candidate=candidate, outside=second.margin,
        note=f"JAX and NumPy disagree: {second.reason}", least=least,
    )  # fmt: skip


def _write(
    folder: Path | None,
    claim: Claim,
    candidate: Any,
    rung: str,
    mutant: str | None,
    second: Recheck,
) -> str:
    if folder is None:
        return ""
    return str(write_refutation(folder, claim, candidate, rung, mutant, second))

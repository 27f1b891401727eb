"""From a candidate to a refutation: a second opinion, a smaller instance, and a file."""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxlab.claims.claim import Claim
from jaxlab.claims.evaluate import Evaluator
from jaxlab.claims.minimise import minimise
from jaxlab.claims.numpy_rules import NoOutsideRuleError
from jaxlab.claims.picture import MOST_NUMBERS, draw_counterexample
from jaxlab.claims.refutation import recheck, write_refutation
from jaxlab.claims.verdict import Candidate, RungReport, Verdict
from jaxlab.core.trees import split_real

__all__ = ["confirm"]


def confirm(
    claim: Claim,
    evaluator: Evaluator,
    candidate: Candidate,
    report: RungReport,
    variant: Mapping[str, Any],
    mutant: str | None,
    *,
    folder: Path | None = None,
    origin: str = "",
    shrink: bool = True,
) -> RungReport:
    """Turn a candidate into a refutation, or into a disagreement that is told.

    Args:
        claim: The theorem.
        evaluator: Of the claim.
        candidate: The violation as JAX computed it.
        report: Of the rung that found it.
        variant: The mutant's keyword arguments.
        mutant: The mutant's name, or None.
        folder: Where the refutation is written; nowhere by default.
        origin: Where the claim is defined, for the replay.
        shrink: Whether the instance is made simpler before it is written.
    """
    try:
        second = recheck(claim, candidate, variant)
    except NoOutsideRuleError as missing:
        return report._replace(
            verdict=Verdict.CANDIDATE, candidate=candidate, note=f"not confirmed: {missing}"
        )
    least = {**report.least, candidate.family: min(candidate.margin, report.least_margin)}
    if not second.confirmed:
        if claim.stochastic:
            # The fresh key did not confirm what the first one suggested: that is what it is for.
            note = f"a suspicion was not confirmed: {second.reason}"
            return report._replace(note="; ".join(filter(None, (report.note, note))))
        return report._replace(
            verdict=Verdict.INCONCLUSIVE, candidate=candidate, outside=second.margin, least=least,
            note=f"JAX and NumPy disagree: {second.reason}",
        )  # fmt: skip
    if shrink and not claim.stochastic:
        simpler = candidate._replace(instance=minimise(claim, evaluator, candidate, variant))
        again = recheck(claim, simpler, variant)
        if again.confirmed:
            candidate, second = simpler._replace(margin=again.margin), again
    file = ""
    if folder is not None:
        written = write_refutation(
            folder, claim, candidate, report.rung, mutant, second, origin=origin
        )
        file = str(written)
        if shrink and mutant is None:
            _draw(claim, candidate, variant, written)
    return report._replace(
        verdict=Verdict.REFUTED, candidate=candidate, outside=second.margin, file=file, least=least
    )


def _draw(claim: Claim, candidate: Candidate, variant: Mapping[str, Any], file: Path) -> None:
    """A picture beside the file, if the instance is small and matplotlib is there."""
    parts, _ = split_real(candidate.instance)
    if 0 < sum(array.size for _, array in parts) <= MOST_NUMBERS:
        with contextlib.suppress(ImportError):
            draw_counterexample(claim, candidate, variant, file.with_suffix(".png"))

"""What a claim's exact cases come to."""

import math
from collections.abc import Mapping
from typing import Any

from jaxlab.claims.claim import Claim, ExactCase
from jaxlab.claims.verdict import RungReport, Verdict

__all__ = ["GAP_TOLERANCE", "REPLAY_TOLERANCE", "doubt", "exact_rung"]

GAP_TOLERANCE = 1e-5
"""How far a solver's two values may be apart, relative to the larger side or 1."""

REPLAY_TOLERANCE = 1e-4
"""The square root of the solver's 1e-8, relative: a function that interpolates recorded data up to
1e-8 has the recorded gradients up to 1e-4."""


def exact_rung(claim: Claim, variant: Mapping[str, Any]) -> RungReport:
    """Judge the exact cases of a claim, or of the mutant that ``variant`` makes of it.

    One case beyond its bound refutes. A case that is not known well enough says nothing, and then
    the others cannot certify the claim.

    Example:
        >>> from jaxlab.claims import at_most
        >>> claim = Claim(
        ...     name="example/square", statement="|x| <= 1  =>  x^2 <= 1", source="arithmetic",
        ...     families={"none": lambda key: key}, conclusion=lambda x, power=2.0: at_most(x, 1),
        ...     assumptions=lambda x: x, mutants={"wrong power": {"power": -1.0}},
        ...     exact=lambda: [ExactCase({}, worst=1.0, bound=1.0)],
        ... )
        >>> str(exact_rung(claim, {}).verdict)
        'certified'
    """
    assert claim.exact is not None
    try:
        cases = claim.exact(**variant)
    except ImportError as error:
        return RungReport("exact", Verdict.SKIPPED, note=str(error))
    least, refuted, doubts = {}, [], []
    for case in cases:
        name = ", ".join(f"{k}={v}" for k, v in case.parameters.items())
        margin = (case.bound - case.worst) / _scale(case)
        reason = doubt(case)
        if not math.isnan(margin):
            least[name] = margin
        if reason:
            doubts.append(f"{name}: {reason}")
        elif margin < -case.tolerance - case.gap / _scale(case):
            refuted.append(
                f"{name}: the worst case is {case.worst:.6g}, the bound {case.bound:.6g}"
            )
    if not cases:
        doubts.append("there is no case")
    verdict = Verdict.INCONCLUSIVE if doubts else Verdict.CERTIFIED
    verdict = Verdict.REFUTED if refuted else verdict
    return RungReport("exact", verdict, len(cases), least, "; ".join([*refuted, *doubts]))


def doubt(case: ExactCase) -> str:
    """Why a case cannot decide; empty if it can.

    Example:
        >>> doubt(ExactCase({}, worst=1.0, bound=2.0, gap=0.5))
        "the solver's two values differ by 0.5"
    """
    scale = _scale(case)
    # Each condition is written so that NaN fails it.
    if not abs(case.worst - case.bound) < math.inf:
        return f"the worst case is {case.worst:.6g}, the bound {case.bound:.6g}"
    if not case.gap <= GAP_TOLERANCE * scale:
        return f"the solver's two values differ by {case.gap:.3g}"
    if case.replayed is not None and not (
        abs(case.replayed - case.worst) <= REPLAY_TOLERANCE * scale
    ):
        return f"the worst instance replays to {case.replayed:.6g}, not {case.worst:.6g}"
    return ""


def _scale(case: ExactCase) -> float:
    return max(abs(case.worst), abs(case.bound), 1.0)

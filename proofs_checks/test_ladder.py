"""Every claim of every paper climbs the ladder, and every mutant falls."""

import dataclasses
from pathlib import Path

import pytest

from jaxlab.claims import Effort, climb
from jaxlab.claims.command import EFFORTS, claims_of
from jaxlab.claims.ladder import share_error
from jaxlab.claims.report import findings
from jaxlab.core.registry import papers

# One error probability for the whole suite, split over its stochastic claims.
ERROR = 1e-6
# Every size that Hypothesis draws is traced anew, which takes longer than all that is computed.
EFFORT = EFFORTS["quick"]._replace(examples=3)
CLAIMS = {
    claim.name: claim
    for claim in share_error([c for paper in papers() for c in claims_of(paper.slug)], ERROR)
}


@pytest.mark.parametrize("name", CLAIMS)
def test_claim(name: str, tmp_path: Path) -> None:
    """The claim comes out as expected and a rung refutes each mutant.

    Compiling the descents takes half of a climb. Here they are for what nothing else refutes;
    ``jaxlab verify`` climbs every rung.
    """
    claim = CLAIMS[name]
    without = tuple(rung for rung in claim.rungs if rung != "attack")
    report = climb(dataclasses.replace(claim, rungs=without), effort=EFFORT, folder=tmp_path)
    if not report.ok:
        report = climb(claim, effort=EFFORTS["quick"], folder=tmp_path)
    assert report.ok, "\n".join(findings(report))


@pytest.mark.parametrize("paper", papers(), ids=lambda paper: paper.slug)
def test_claims_are_listed(paper) -> None:
    """The registry states how many claims a paper has, under names of its own."""
    claims = claims_of(paper.slug)
    assert len(claims) == paper.claims
    assert len({claim.name for claim in claims}) == len(claims)
    assert all(claim.name.startswith(f"{paper.slug}/") for claim in claims)


def test_exact_rung_sees_a_false_constant() -> None:
    """The worst case over the whole class refutes a floor a twentieth of the proven one."""
    pytest.importorskip("PEPit", reason="the exact rung needs pip install 'jaxlab[exact]'")
    claim = CLAIMS["dual_sgd/inexact_error_floor"]
    assert claim.exact is not None

    def too_good(**variant):
        assert claim.exact is not None
        return [case._replace(bound=case.bound / 20) for case in claim.exact(**variant)]

    false = dataclasses.replace(claim, exact=too_good, rungs=("exact",))
    report = climb(false, effort=Effort(examples=1))
    assert str(report.verdict) == "refuted"

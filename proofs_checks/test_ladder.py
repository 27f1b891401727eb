"""Every claim of every paper climbs the ladder, and every mutant falls."""

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlab.claims import Effort, climb
from jaxlab.claims.command import EFFORTS, claims_of
from jaxlab.claims.report import findings
from jaxlab.core.locate import load_companion
from jaxlab.core.registry import papers
from jaxlab.optim import inexact_agd as agd

CLAIMS = {claim.name: claim for paper in papers() for claim in claims_of(paper.slug)}


@pytest.mark.parametrize("name", CLAIMS)
def test_claim(name: str, tmp_path: Path) -> None:
    """The claim comes out as expected and a rung refutes each mutant."""
    report = climb(CLAIMS[name], effort=EFFORTS["quick"], folder=tmp_path)
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


@pytest.mark.parametrize("kappa", [4.0, 100.0])
def test_symbolic_twin_makes_the_library_steps(kappa: float) -> None:
    """What PEPit runs on symbolic points is what the library runs on arrays."""
    pytest.importorskip("PEPit", reason="the exact rung needs pip install 'jaxlab[exact]'")
    pep = load_companion("proofs_checks", "inexact_agd_pep")
    curvature, error = np.array([1.0, kappa]), np.array([0.3, -0.2])
    x, z = np.array([1.0, -2.0]), np.array([0.5, 3.0])
    with jax.enable_x64(True):
        method = agd.inexact_agd(lambda y, data, key: jnp.asarray(curvature) * y + error)
        state = agd.AGDState(jnp.asarray(x), jnp.asarray(z))
        hyper = agd.agd_hyper(1.0, kappa)
        after, _ = method.step(agd.Oracle(state.x), hyper, state, jax.random.key(0))
    twin = pep.step_on_points(lambda y: curvature * y + error, x, z, kappa)
    # Entries cancel: rounding is relative to the largest term, kappa-free since steps are 1/L.
    allowed = 16 * np.finfo(float).eps * np.abs(z).max()
    np.testing.assert_allclose(after, twin, rtol=0, atol=allowed)

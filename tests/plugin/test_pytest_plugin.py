"""``pytest --claims`` on files of claims whose truth is known, each in a pytest of its own."""

import re
import shlex

import pytest

from jaxlab import cli

pytest_plugins = "pytester"

# |x|_1 <= sqrt(d) |x|_2 is Cauchy and Schwarz's inequality with equality at the ones vector, so
# that no smaller constant will do.
CLAIMS = """
import hypothesis.strategies as st
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jaxlab.claims import Claim, at_most_in_ratio


def vector(dim):
    return numpyro.sample("x", dist.Normal(0.0, 1.0).expand([dim]))


def norms(x, *, dim, factor=1.0):
    return at_most_in_ratio(jnp.abs(x).sum(), factor * jnp.sqrt(dim) * jnp.linalg.norm(x))


def half(x, *, dim, factor=0.5):
    return norms(x, dim=dim, factor=factor)


def not_a_scalar(x, *, dim, factor=1.0):
    return factor * jnp.sqrt(dim) * jnp.abs(x)


def needs_a_solver(factor=1.0):
    raise ImportError("needs a solver")


def claim(name, conclusion=norms, **changes):
    settings = dict(
        name=name, statement="|x|_1 <= c sqrt(d) |x|_2", source="Cauchy-Schwarz",
        families={"normal": vector}, conclusion=conclusion,
        assumptions=lambda x: jnp.isfinite(x).all(),
        sizes={"dim": st.sampled_from([1, 2, 5])}, typical={"dim": 5},
        mutants={"constant 10% too small": {"factor": 0.4}}, rungs=("explore", "exact"),
    )
    return Claim(**{**settings, **changes})
"""

MIXED = (
    CLAIMS
    + """
TRUE = claim("norms/true", exact=needs_a_solver)
CLAIMS = [
    TRUE,
    claim("norms/false", half),
    claim("norms/finding", half, expected="refuted", mutants={}),
    claim("norms/no_finding", expected="refuted", mutants={}),
    claim("norms/invalid", not_a_scalar),
    claim("norms/blunt", mutants={"harmless": {"factor": 1.5}}),
]
"""
)


def verdicts(result):
    """The outcomes by test, without the file's name."""
    pattern = r"^\[gw\d\] .*(PASSED|FAILED|SKIPPED) \w+\.py::(.+?) *$"
    return {name: outcome for outcome, name in re.findall(pattern, result.stdout.str(), re.M)}


def test_each_rung_and_each_mutant_is_a_test(pytester):
    pytester.makepyfile(mixed=MIXED)
    workers = ("-n2", "--dist=loadscope")
    result = pytester.runpytest_subprocess("--claims", *workers, "-v", "-rs", "mixed.py")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    mutant = "mutant[constant 10% too small]"
    assert verdicts(result) == {
        "norms/true::check": "PASSED",
        "norms/true::explore": "PASSED",
        "norms/true::exact": "SKIPPED",
        f"norms/true::{mutant}": "PASSED",
        "norms/false::check": "PASSED",
        "norms/false::explore": "FAILED",
        f"norms/false::{mutant}": "PASSED",
        "norms/finding::check": "PASSED",
        "norms/finding::refuted": "PASSED",
        "norms/no_finding::check": "PASSED",
        "norms/no_finding::refuted": "FAILED",
        "norms/invalid::check": "FAILED",
        "norms/invalid::explore": "FAILED",
        f"norms/invalid::{mutant}": "FAILED",
        "norms/blunt::check": "PASSED",
        "norms/blunt::explore": "PASSED",
        "norms/blunt::mutant[harmless]": "FAILED",
    }
    shown = result.stdout.str()
    assert "needs a solver" in shown
    assert "a bare margin must be a scalar, got shape (5,)" in shown
    assert "no rung refutes this mutant" in shown
    assert "not refuted, though that is expected" in shown
    # A message instead of a traceback.
    assert "ClaimFailedError" not in shown


def test_the_commands_of_a_failure_message_work(pytester, capsys):
    pytester.makepyfile(mixed=MIXED)
    chosen = "mixed.py::norms/false::explore"
    result = pytester.runpytest_subprocess("--claims", "--claims-seed=7", "--claims-out=o", chosen)
    result.assert_outcomes(failed=1)
    shown = result.stdout.str()
    assert "norms/false: explore: refuted" in shown
    assert "instance of 'normal' at sizes {'dim': " in shown
    # Half of the constant that equality needs: no instance in one dimension is further off.
    assert "least margin -0.693147" in shown
    assert "seed 7, effort quick" in shown
    # Where CI is set, pytest shows the message once more in its summary.
    words = shlex.split(re.findall(r"replay with: jaxlab (replay .+)", shown)[0])
    assert words[1] == str(pytester.path / "o/norms_false-claim-explore-normal.npz")
    capsys.readouterr()
    assert cli.main(words) == 0
    assert re.search(r"^verdict +refuted$", capsys.readouterr().out, re.M)
    words = shlex.split(re.findall(r"run again with: pytest (.+)", shown)[0])
    again = pytester.runpytest_subprocess(*words)
    again.assert_outcomes(failed=1)


def test_without_the_option_nothing_is_collected_or_imported(pytester):
    pytester.makepyfile(
        test_mixed=CLAIMS + "TRUE = claim('norms/true')\n",
        other_claims=CLAIMS + "TRUE = claim('norms/true')\n",
        test_light="import sys\nLOADED = {'jax', 'jaxlab', 'numpyro'} & set(sys.modules)\n"
        "def test_nothing_heavy_was_loaded():\n    assert not LOADED\n",
    )
    options = ("-p", "no:xdist", "-p", "no:randomly")
    result = pytester.runpytest_subprocess(*options)
    result.assert_outcomes(passed=1)


def test_claims_are_found_where_they_are_named_or_in_test_files(pytester):
    pytester.makepyfile(
        test_a=CLAIMS + "A = claim('a')\nCLAIMS = (A, A)\n",
        b_claims=CLAIMS + "CLAIMS = [claim('b', stochastic=True, error=1e-3)]\n",
        c_claims=CLAIMS + "CLAIMS = [claim('c', stochastic=True, error=1e-2)]\n",
        other=CLAIMS + "CLAIMS = [claim('other')]\n",
        twins_claims=CLAIMS + "CLAIMS = claim('twin'), claim('twin')\n",
    )
    pytester.makeconftest(
        """
def pytest_collection_finish(session):
    print({item.parent.name: item.parent.claim.error for item in session.items})
"""
    )
    # Type checks by jaxtyping need that nothing of the package is loaded before its hook.
    hook = "--jaxtyping-packages=jaxlab,beartype.beartype"
    result = pytester.runpytest_subprocess("--claims", "--co", "-q", hook)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["*twins_claims.py: names of claims must differ, got 'twin' twice"])
    rungs = ("check", "explore", "mutant[constant 10% too small]")
    files = {"test_a.py::a": rungs, "b_claims.py::b": rungs, "c_claims.py::c": rungs}
    collected = [line for line in result.outlines if "::" in line]
    assert sorted(collected) == sorted(f"{c}::{r}" for c, names in files.items() for r in names)
    # The least error that is stated, 0.001, is for both stochastic claims together.
    assert "{'b': 0.0005, 'c': 0.0005, 'a': 0.0005}" in result.stdout.str()

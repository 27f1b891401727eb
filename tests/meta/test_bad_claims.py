"""Claims that are wrong in themselves: each is named, and none comes out green."""

import inspect
import itertools
import re

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from jaxlab import cli
from jaxlab.claims import Effort, Verdict, at_most, at_most_in_ratio, climb
from tests.meta import toys

EFFORT = Effort(examples=25, samples=200, restarts=2, steps=5, shrink=False, methods=("adam",))

# A vector of so many numbers takes 7276 GiB.
TERABYTES = 10**12


def climbed(**changes):
    report = climb(toys.cauchy_schwarz(**changes), effort=EFFORT)
    assert not report.ok
    return report


def note_of(report, rung):
    return next(found.note for found in report.rungs if found.rung == rung)


def refusal(**changes):
    """Why a claim is called invalid; nothing was searched."""
    report = climbed(**changes)
    assert report.verdict == Verdict.INVALID
    assert [rung.rung for rung in report.rungs] == ["check"]
    assert report.mutants == ()
    return note_of(report, "check")


def line_of(function, words):
    """The number of the line of a function that contains words."""
    lines, first = inspect.getsourcelines(function)
    return first + next(i for i, line in enumerate(lines) if words in line)


def test_a_margin_that_is_not_a_scalar():
    def conclusion(x, *, factor=1.0):
        return factor * jnp.abs(x)

    assert "a bare margin must be a scalar, got shape (5,)" in refusal(conclusion=conclusion)


@pytest.mark.parametrize("result", [(1.0, 2.0), None, "held"], ids=["tuple", "None", "string"])
def test_a_conclusion_that_gives_something_else(result):
    message = refusal(conclusion=lambda x, *, factor=1.0: result)
    assert "must give a Comparison" in message
    assert f"got {type(result).__name__}" in message


def test_a_constant_margin():
    def conclusion(x, *, factor=1.0):
        return jnp.where(x @ x >= 0, 0.5, 2.0) * factor

    changes = {"conclusion": conclusion, "mutants": {"sign": {"factor": -1.0}}}
    report = climbed(**changes, tightness="upper", rungs=("explore", "sample"))
    assert report.verdict == Verdict.INCONCLUSIVE
    assert note_of(report, "sample") == "the margin is 0.5 at all 200 instances"
    # Hypothesis alone notices too, although each of its examples is judged by itself.
    assert re.match(r"the margin is 0.5 at all 2\d instances", note_of(report, "explore"))


@pytest.mark.parametrize("left", [lambda x: 1.0, lambda x: float(len(x))], ids=["number", "length"])
def test_a_margin_that_ignores_the_instance(left):
    def conclusion(x, *, factor=1.0):
        return at_most(left(x), 10.0 * factor)

    assert "ignores it over 'normal'" in refusal(conclusion=conclusion)


def test_a_margin_that_is_nan_everywhere():
    def conclusion(x, *, factor=1.0):
        return jnp.log(-(x @ x) - 1) * factor

    report = climbed(conclusion=conclusion, mutants={"double": {"factor": 2.0}}, boundary={})
    assert report.verdict == Verdict.INCONCLUSIVE
    assert {str(rung.verdict) for rung in report.rungs} == {"inconclusive"}
    assert "200 of 200 margins are NaN" in note_of(report, "sample")
    # A mutant that is NaN is not refuted either.
    assert report.survivors == ("double",)


def test_a_side_effect_that_jax_knows():
    def conclusion(x, *, dim, factor=1.0):
        jax.debug.print("{}", x)
        return toys.norms(x, dim=dim, factor=factor)

    message = refusal(conclusion=conclusion)
    assert "must have no side effects, got DebugEffect over 'normal'" in message


def test_a_side_effect_in_python():
    calls = itertools.count()

    def conclusion(x, *, dim, factor=1.0):
        return toys.norms(x + next(calls), dim=dim, factor=factor)

    message = refusal(conclusion=conclusion)
    assert "must be a pure function, got two programs from two traces" in message


def test_a_margin_of_another_type():
    def conclusion(x, *, factor=1.0):
        x = x.astype(jnp.float32)
        return at_most_in_ratio(jnp.abs(x).sum(), jnp.float32(3 * factor) * jnp.linalg.norm(x))

    assert "must be computed in float64, got float32" in refusal(conclusion=conclusion)


def rounded(x, *, dim, factor=1.0):
    return toys.norms(x.astype(jnp.float32).astype(float), dim=dim, factor=factor)


def test_a_cast_to_float32_and_back():
    message = refusal(conclusion=rounded)
    assert "must compute in float64, got a cast to float32 over 'normal'" in message


def test_a_theorem_on_float32_says_so():
    report = climb(toys.cauchy_schwarz(conclusion=rounded, rounds=True), effort=EFFORT)
    assert report.ok


def test_a_family_that_violates_its_own_assumptions():
    report = climb(toys.vacuous(), effort=EFFORT)
    assert report.verdict == Verdict.VACUOUS
    assert not report.ok
    assert "200 of 200 instances violate the assumptions" in note_of(report, "sample")


def test_a_mutant_that_is_the_original():
    def conclusion(x, *, dim, factor=1.0):
        return toys.norms(x, dim=dim)

    message = refusal(conclusion=conclusion)
    assert "mutant 'constant 10% too small' must differ from the original" in message
    assert "does not use factor" in message


def raises(x=None, **sizes):
    raise LookupError("no such vector")


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"families": {"broken": lambda dim: raises()}}, "family 'broken' must be traceable"),
        ({"conclusion": lambda x, *, factor=1.0: raises()}, "the conclusion must be traceable"),
        ({"assumptions": raises}, "the assumptions must be traceable"),
        ({"boundary": {"corner": raises}}, "boundary instance 'corner' must be computable"),
    ],
    ids=["family", "conclusion", "assumptions", "boundary"],
)
def test_a_function_that_raises_is_told_with_its_line(changes, what):
    place = f"test_bad_claims.py:{line_of(raises, 'raise LookupError')}"
    assert refusal(**changes) == f"{what}, got LookupError: no such vector ({place})"


def test_a_conclusion_that_raises_at_some_sizes_only():
    def conclusion(x, *, dim, factor=1.0):
        if dim == 2:
            raise LookupError("not in the plane")
        return toys.norms(x, dim=dim, factor=factor)

    report = climbed(conclusion=conclusion, rungs=("explore",))
    assert report.verdict == Verdict.INVALID
    line = line_of(conclusion, "raise LookupError")
    assert note_of(report, "explore").endswith(
        f"got LookupError: not in the plane (test_bad_claims.py:{line})"
    )


def pairs(x, *, dim, factor=1.0):
    """The square of Cauchy and Schwarz's inequality with all products in memory."""
    return at_most_in_ratio(jnp.abs(x[:, None] * x).sum(), factor * dim * (x @ x))


@pytest.mark.parametrize(
    ("changes", "dim"),
    [({"boundary": {}}, TERABYTES), ({"conclusion": pairs, "boundary": {}}, 10**6)],
    ids=["family", "conclusion"],
)
def test_sizes_that_need_terabytes_are_refused(changes, dim):
    message = refusal(**changes, sizes={"dim": st.just(dim)}, typical={"dim": dim})
    assert message.startswith("sizes must fit into memory")
    # Eight bytes for each of 10^12 numbers; keys and bits beside them are smaller.
    assert f"got {{'dim': {dim}}}, for which one instance needs 7.45e+03 GiB" in message


@pytest.mark.parametrize(
    ("changes", "dim"),
    [
        ({"boundary": {}}, TERABYTES),
        (
            {"families": {"tiny": lambda dim: numpyro.sample("x", dist.Normal().expand([1]))}},
            TERABYTES,
        ),
        ({"conclusion": pairs, "boundary": {}}, 10**6),
        ({"assumptions": lambda x: (x[:, None] * x).sum() + 1, "boundary": {}}, 10**6),
    ],
    ids=["family", "boundary", "conclusion", "assumptions"],
)
def test_drawn_sizes_that_need_terabytes_are_refused(changes, dim):
    sizes = {"dim": st.sampled_from([5, dim])}
    report = climbed(**changes, sizes=sizes, rungs=("explore",))
    assert report.verdict == Verdict.INVALID
    assert "needs 7.45e+03 GiB" in note_of(report, "explore")


def test_a_family_without_continuous_numbers_cannot_be_attacked():
    def signs(dim):
        return 2.0 * numpyro.sample("x", dist.Bernoulli(0.5).expand([dim])) - 1

    report = climb(toys.cauchy_schwarz(families={"signs": signs}), effort=EFFORT)
    # All signs give equality, so that the margin is one rounding error or another.
    assert report.ok
    attack = report.rungs[-1]
    assert attack.verdict == Verdict.SKIPPED
    assert "continuous" in attack.note


FILE = """
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jaxlab.claims import Claim


def vector():
    return numpyro.sample("x", dist.Normal(0.0, 1.0).expand([3]))


def conclusion(x, factor=1.0):
    return {margin}


CLAIM = Claim(
    name="user/bad", statement="|x|^2 >= 0", source="positivity", families={{"normal": vector}},
    conclusion=conclusion, assumptions=lambda x: jnp.isfinite(x).all(),
    mutants={{"sign": {{"factor": -1.0}}}}, rungs=("explore", "sample"),
)
"""


@pytest.mark.parametrize(
    ("margin", "message"),
    [
        ("factor * x**2", "a bare margin must be a scalar, got shape (3,)"),
        ("jnp.nan * x.sum() * factor", "the margin is NaN"),
        ("factor * unknown", "got NameError: name 'unknown' is not defined (bad.py:13)"),
    ],
)
def test_verify_is_not_green_either(margin, message, tmp_path, capsys):
    file = tmp_path / "bad.py"
    file.write_text(FILE.format(margin=margin))
    assert cli.main(["verify", str(file), "--out", str(tmp_path / "out")]) == 1
    shown = capsys.readouterr()
    assert message in " ".join((shown.out + shown.err).split())


def test_a_counted_vector_is_what_the_message_says():
    assert np.dtype(float).itemsize * TERABYTES / 2**30 == pytest.approx(7.45e3, rel=1e-3)

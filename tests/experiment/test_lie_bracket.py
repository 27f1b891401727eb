"""The experiment ``lie_bracket`` from its command to its files."""

import json
import random

import numpy as np
import pytest

from jaxlab.core.locate import load_companion
from jaxlab.experiment import Row, read_metrics, select
from jaxlab.experiment.lie_bracket_figure import draw
from jaxlab.experiment.lie_bracket_inputs import builtin_names
from jaxlab.experiment.lie_bracket_report import (
    BLOCK_STEPS,
    FEW_METRIC,
    OPTIMIZERS,
    STEP_SIZES,
    STEPS,
    accuracy,
    judge,
    standing,
)

SMOKE = ("--smoke", "--seeds", 1, "--no-progress")


def check_verdict(out, printed):
    summary = json.loads((out / "summary.json").read_text())
    assert f"verdict: {summary['verdict']}" in printed
    rows = read_metrics(out / "metrics.csv")
    # SGD of Optax is our schedule of one step a source.
    gaps, sgd = (
        [row.value for row in select(rows, method="pair", metric=metric)]
        for metric in ("gap 1", "SGD")
    )
    np.testing.assert_allclose(gaps, sgd, rtol=1e-6, atol=1e-13)
    # The remainder is of first order in the step size.
    left = select(rows, method="pair", metric="remainder")
    sizes, shares = np.log([(row.step, row.value) for row in left[:3]]).T
    slope = np.polyfit(sizes, shares, 1)[0]
    assert 0.8 < slope < 1.2
    held = {criterion["name"]: criterion["holds"] for criterion in summary["criteria"]}
    assert held["percentile of Borda's schedule, step size 0.003"]
    assert held["pairs told by the Trotter score, 1 step"]
    assert any("recency alignment" in note for note in summary["notes"])
    # Nobody is ahead of the best order that was predicted for the few, but for rounding.
    few = {row.method: row.value for row in select(rows, metric=FEW_METRIC)}
    assert few["best predicted"] <= few["Borda"] + 1e-9


@pytest.mark.slow
def test_smoke_run(program, tmp_path, seed, check_reference, check_redrawing):
    # One test, since every worker would repeat the run for a fixture.
    out = tmp_path / "run"
    count = random.Random(seed).randrange(3, 9)
    done = program.resume_killed("lie_bracket", SMOKE, count, out)
    check_verdict(out, done.stdout)
    check_reference("lie_bracket", out)
    check_redrawing(draw, out, tmp_path / "redrawn")


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        ({"sources": 3}, "sources must be at least 4, got 3"),
        ({"random": 5}, "random must be at least 10, got 5"),
        ({"seeds": 0}, "seeds must be at least 1, got 0"),
    ],
)
def test_impossible_flags(flags, complaint):
    module = load_companion("experiments", "lie_bracket")
    with pytest.raises(ValueError, match=complaint):
        module.Args(**flags)


def test_data_that_is_not_there_is_the_users_fault(tmp_path):
    module = load_companion("experiments", "lie_bracket")
    with pytest.raises(FileNotFoundError, match="there is no file or folder"):
        module.prepare(module.Args(data=tmp_path / "nothing"))


def test_packaged_sources_are_of_one_length_and_differ():
    found = builtin_names(5)
    assert len(set(found.names)) == 5
    assert len({text.tobytes() for text in found.texts}) == 5
    assert found.texts.max() < 256


def made_rows(*, first=1.0, block=1.0):
    """Scores that are right if ``first`` is 1 and wrong if -1, and the same for the block."""
    values = np.array([1.0, -2.0, 3.0, -4.0])
    rows = [Row("tournament", "curl", 0.1)]
    for size in STEP_SIZES:
        rows += [Row("random", "loss", float(i), step=size) for i in range(10)]
        for name, loss in (("Borda", -first), ("Borda, reversed", 20.0)):
            rows.append(Row(name, "loss", loss, step=size))
        rows.append(Row("gradient norm", "loss", 4.5, step=size))
        rows.append(Row("recency alignment", "loss", -1.0, step=size))
    rows += [Row("random", FEW_METRIC, float(i)) for i in range(10)]
    for name, loss in (("Borda", -first), ("recency alignment", 0.0), ("best predicted", -1.0)):
        rows.append(Row(name, FEW_METRIC, loss))
    rows.append(Row("gradient norm", FEW_METRIC, 4.5))
    for i, value in enumerate(values):
        for k in STEPS:
            for rule in ("origin", "trotter"):
                rows.append(Row("pair", f"{rule} {k}", first * value, step=i))
            rows.append(Row("pair", f"gap {k}", value, step=i))
        rows.append(Row("pair", "gradient norm", -value, step=i))
        rows.append(Row("pair", "recency alignment", abs(value), step=i))
        for name in OPTIMIZERS:
            rows.append(Row("pair", name, first * value * (1 if name == "SGD" else -1), step=i))
        rows.append(Row("block", "score", block * value, step=i))
        rows.append(Row("block", "gradient norm", -value, step=i))
        rows.append(Row("block", "recency alignment", value, step=i))
        rows += [Row("block", "gap", value, step=i, dataset=f"{size:g}") for size in BLOCK_STEPS]
    names = ("exhaustive", "Borda", "gradient norm", "recency alignment")
    return [*rows, *(Row(name, "best of six", 0.8) for name in names)]


@pytest.mark.parametrize(
    ("options", "failing"),
    [
        ({}, set()),
        (
            {"first": -1.0},
            {
                "pairs told by the Trotter score, 1 step",
                "of pairs where alignment says the opposite, told by brackets",
                "sources searched for: deviations by which brackets are ahead of alignment",
            },
        ),
        (
            {"block": -1.0},
            {"pairs told for the language model's block, step size 0.001"},
        ),
    ],
)
def test_the_verdict_follows_the_numbers(options, failing):
    criteria = judge(made_rows(**options)).criteria
    failed = {criterion.name for criterion in criteria if not criterion.holds}
    assert failing <= failed
    assert bool(failed) == bool(failing)


def test_standing_and_accuracy_count():
    rows = made_rows()
    assert standing(rows, "gradient norm", STEP_SIZES[0])[0] == 50.0
    assert accuracy(np.array([1.0, -1.0]), np.array([1.0, 5.0])) == 0.5
    assert accuracy(np.array([1.0, -1.0]), np.array([1.0, -5.0]), top=0.5) == 1.0

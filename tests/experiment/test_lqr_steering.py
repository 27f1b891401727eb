"""The experiment ``lqr_steering`` from its command to its files."""

import json

import numpy as np
import pytest

from jaxlab.core.locate import load_companion
from jaxlab.experiment import Row, read_metrics, select
from jaxlab.experiment.lqr_report import GRIDS, draw, judge

SMOKE = ("--smoke", "--seeds", 1, "--no-progress")


def check_verdict(out, printed):
    summary = json.loads((out / "summary.json").read_text())
    assert f"verdict: {summary['verdict']}" in printed
    rows = read_metrics(out / "metrics.csv")
    # Nothing is added without steering, and energy is the square of what is added.
    (still,) = select(rows, method="unsteered", metric="energy")
    assert still.value == 0
    constant = select(rows, method="ActAdd, all layers", metric="energy")
    energy = {row.step: row.value for row in constant}
    assert energy[0.2] == pytest.approx(4 * energy[0.1], rel=1e-5)
    assert all(row.value > 0 for row in select(rows, method="A-LQR", metric="divergence"))
    held = {criterion["name"]: criterion["holds"] for criterion in summary["criteria"]}
    assert held["gains without matrices against dense ones, relative"]
    assert held["offsets without matrices against dense ones, relative"]
    assert any("A-LQR's gain less that of its rivals" in note for note in summary["notes"])


@pytest.mark.lm
@pytest.mark.slow
def test_smoke_run(program, tmp_path, check_reference, check_redrawing):
    # One test, since every worker would repeat the run for a fixture.
    out = tmp_path / "run"
    done = program.run("experiments/lqr_steering.py", *SMOKE, "--out", out)
    assert done.returncode == 0, done.stderr
    check_verdict(out, done.stdout)
    # Rounding errors differ between machines.
    check_reference("lqr_steering", out, besides=("matrices",))
    check_redrawing(draw, out, tmp_path / "redrawn")


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        ({"new_tokens": 0}, "new_tokens must be at least 1, got 0"),
        ({"seeds": 0}, "seeds must be at least 1, got 0"),
    ],
)
def test_impossible_flags(flags, complaint):
    module = load_companion("experiments", "lqr_steering")
    with pytest.raises(ValueError, match=complaint):
        module.Args(**flags)


def test_a_model_that_is_not_there_is_the_users_fault():
    module = load_companion("experiments", "lqr_steering")
    with pytest.raises(ValueError, match="no model 'nothing' was found"):
        module.prepare(module.Args(model="nothing"))


def made_rows(*, rises=1.0, closed=0.5):
    """Numbers of a controller that gains ``rises`` a unit of strength."""
    rows = []
    for name, strengths in GRIDS.items():
        for s in strengths:
            rows.append(Row(name, "score", 1.0 + rises * s, step=s))
            rows.append(Row(name, "divergence", 0.2 * abs(s), step=s))
            rows.append(Row(name, "energy", 10.0 * s**2, step=s))
        tracked = f"strength {0.0 if name == 'unsteered' else 1.0:g}"
        errors = np.full(5, closed if name == "A-LQR" else 1.0)
        rows += [
            Row(name, "tracking_error", e, step=k, dataset=tracked) for k, e in enumerate(errors)
        ]
    for pair in ("good, good", "good, bad"):
        rows += [Row(pair, "alignment", 0.9, step=k) for k in (1.0, 2.0)]
    rows += [Row("feature LQR", metric, 1e-6) for metric in ("dense_gains", "dense_offsets")]
    for metric in ("nats", "effect"):
        rows += [Row(name, metric, 1.0, step=1.0) for name in ("unsteered", "A-LQR")]
    return rows


def test_the_verdict_looks_at_every_criterion():
    def names(rows):
        return {c.name.split(",")[0] for c in judge(rows).criteria if not c.holds}

    good = made_rows(rises=2.5)
    assert names(good) == set()
    assert names(made_rows(rises=0.1)) == {"A-LQR's gain in score within 1 nat"}
    assert "least rise of A-LQR's score between strengths -1" in names(made_rows(rises=-1.0))
    assert names(made_rows(rises=2.5, closed=1.5)) == {"tracking error of A-LQR over open loop"}
    worse = [row._replace(value=0.1) if row.metric == "dense_gains" else row for row in good]
    assert names(worse) == {"gains without matrices against dense ones"}
    apart = [row._replace(value=0.5) if row.method == "good, bad" else row for row in good]
    assert names(apart) == {"alignment of Jacobians"}

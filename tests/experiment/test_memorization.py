"""The experiment ``memorization`` from its command to its files."""

import json

import numpy as np
import pytest

from jaxlab.core.locate import load_companion
from jaxlab.experiment import read_metrics, select
from jaxlab.experiment.memorization_report import VARIANTS, draw, zone_of

SMOKE = ("--smoke", "--seeds", 2, "--no-progress")


def check_verdict(out, printed):
    summary = json.loads((out / "summary.json").read_text())
    assert f"verdict: {summary['verdict']}" in printed
    rows = read_metrics(out / "metrics.csv")
    held = {criterion["name"]: criterion["holds"] for criterion in summary["criteria"]}
    # Too few steps to copy; everything that needs no training is there.
    assert not held.pop("copies of networks, standard")
    held.pop("energy distance, gap less standard")
    assert all(held.values()), held
    assert zone_of(rows, "digits") == pytest.approx((0.49, 0.62), abs=0.16)
    for seed in (0, 1):
        # A single empirical denoiser copies, whatever the latents.
        assert select(rows, method="empirical", metric="swap_copies", seed=seed)[0].value == 1.0
    # Shared latents end near one another for networks that were trained alike.
    standard, small = (
        np.array([row.value for row in select(rows, method=name, metric="sample_pixel")])
        for name in ("standard", "dummy gap, small")
    )
    assert np.corrcoef(standard, small)[0, 1] > 0.8
    for name in VARIANTS:
        errors = sorted(
            select(rows, method=name, metric="train_error", seed=0), key=lambda row: row.step
        )
        assert errors[0].value < errors[-1].value


@pytest.mark.slow
def test_smoke_run(program, tmp_path, check_reference, check_redrawing):
    # One test, since every worker would repeat the run for a fixture.
    out = tmp_path / "run"
    done = program.resume_killed("memorization", SMOKE, 1, out)
    check_verdict(out, done.stdout)
    check_reference("memorization", out)
    check_redrawing(draw, out, tmp_path / "redrawn")


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        ({"seeds": 1}, "seeds must be at least 2, got 1"),
        ({"levels": 4}, "levels must be at least 5, got 4"),
        ({"train_rows": 1}, "train_rows must be at least 2, got 1"),
        ({"train_rows": 300}, "train_rows must be at most 200, got 300"),
        ({"steps": 10}, "steps must be at least 30, got 10"),
        ({"samples": 8}, "samples must be at least 16, got 8"),
    ],
)
def test_impossible_flags(flags, complaint):
    module = load_companion("experiments", "memorization")
    with pytest.raises(ValueError, match=complaint):
        module.Args(**flags)

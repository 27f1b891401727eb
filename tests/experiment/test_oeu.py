"""The experiment ``oeu`` from its command to its files."""

import json

import numpy as np
import pytest

from jaxlab.data.images import load_images
from jaxlab.experiment import oeu_inputs, read_metrics, select
from jaxlab.experiment.oeu_report import COMPARED, SCENARIOS, draw

SMOKE = ("--smoke", "--seeds", 3, "--no-progress")


def check_verdict(out, printed):
    summary = json.loads((out / "summary.json").read_text())
    assert f"verdict: {summary['verdict']}" in printed
    rows = read_metrics(out / "metrics.csv")
    for seed in range(3):
        # A model that never saw a class never calls it; one that saw all knows it.
        forgotten = {"metric": "forget_accuracy", "dataset": "class", "seed": seed}
        assert select(rows, method="retrained", **forgotten)[0].value == 0.0
        assert select(rows, method="original", **forgotten)[0].value > 0.9
    for name in COMPARED:
        for scenario in SCENARIOS:
            chosen = select(rows, method=name, metric="chosen_step_size", dataset=scenario)
            gaps = select(rows, method=name, metric="validation_gap", dataset=scenario)
            means = {
                step: np.mean([row.value for row in select(gaps, step=step)])
                for step in {row.step for row in gaps}
            }
            assert chosen[0].value == min(means, key=lambda step, means=means: means[step])
    histogram = select(rows, method="OEU", metric="confidence", dataset="class", seed=0)
    np.testing.assert_allclose(sum(row.value for row in histogram), 1, rtol=1e-6)


@pytest.mark.slow
def test_smoke_run(program, tmp_path, check_reference, check_redrawing):
    # One test, since every worker would repeat the run for a fixture.
    out = tmp_path / "run"
    done = program.resume_killed("oeu", SMOKE, 4, out)
    check_verdict(out, done.stdout)
    check_reference("oeu", out)
    check_redrawing(draw, out, tmp_path / "redrawn")


@pytest.mark.parametrize("name", ["digits", "mnist"])
def test_splits_are_disjoint_and_hold_no_forgotten_class(name):
    data = oeu_inputs.load_data(name)
    assert 0 <= data.inputs.min() < data.inputs.max() == 1
    for scenario in SCENARIOS:
        parts = oeu_inputs.split_rows(data, scenario, 3)
        assert tuple(map(len, parts)) == data.sizes
        together = np.concatenate(parts)
        assert len(np.unique(together)) == len(together)
        classes = [set(data.labels[part]) for part in parts]
        if scenario == "class":
            assert classes[0] == {oeu_inputs.FORGOTTEN_CLASS}
            assert all(oeu_inputs.FORGOTTEN_CLASS not in labels for labels in classes[1:])
        else:
            assert all(labels == set(range(10)) for labels in classes)


def test_digits_are_in_their_order():
    pixels = load_images("digits").pixels[5]
    np.testing.assert_allclose(oeu_inputs.load_data("digits").inputs[5], (pixels.ravel() + 1) / 2)

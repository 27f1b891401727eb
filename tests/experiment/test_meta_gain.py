"""The experiment ``meta_gain`` from its command to its files."""

import json

import numpy as np
import pytest

from jaxlab.core.locate import load_companion
from jaxlab.experiment import Row, read_metrics, select
from jaxlab.experiment.meta_gain_report import FAMILIES, PROBES, draw, judge

SMOKE = ("--smoke", "--seeds", 2, "--no-progress")


def check_verdict(out, printed):
    summary = json.loads((out / "summary.json").read_text())
    assert f"verdict: {summary['verdict']}" in printed
    rows = read_metrics(out / "metrics.csv")
    for family in FAMILIES:
        total, shared, individual = (
            np.array([row.value for row in select(rows, method=family, metric=metric, seed=0)])
            for metric in ("total", "shared", "individual")
        )
        assert total[0] == 0
        np.testing.assert_allclose(total, shared + individual, atol=1e-15)
        assert (np.diff(total) > 0).all()
    # What is gained cannot be more than what the best feedback of every mass gains.
    (possible, *_) = select(rows, method="springs", metric="possible")
    springs = select(rows, method="springs", metric="total", seed=0)
    assert 0 < max(row.value for row in springs) < possible.value
    assert any("mismatched start" in note for note in summary["notes"])


def test_smoke_run(program, tmp_path, check_reference, check_redrawing):
    # One test, since every worker would repeat the run for a fixture.
    out = tmp_path / "run"
    done = program.resume_killed("meta_gain", SMOKE, 2, out)
    check_verdict(out, done.stdout)
    # Ratios of what is left of a gain are of rounding's size.
    check_reference("meta_gain", out)
    check_redrawing(draw, out, tmp_path / "redrawn")


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        ({"tasks": 3}, "tasks must be at least 4, got 3"),
        ({"robust_steps": 99}, "robust_steps must be at least 100, got 99"),
        ({"robust_steps": 150}, "robust_steps must be a multiple of 100, got 150"),
        ({"steps": 10}, "steps must be at least 30, got 10"),
        ({"seeds": 0}, "seeds must be at least 1, got 0"),
    ],
)
def test_impossible_flags(flags, complaint):
    module = load_companion("experiments", "meta_gain")
    with pytest.raises(ValueError, match=complaint):
        module.Args(**flags)


def made_rows(**changes):
    """Numbers of gains that follow the law and are in proportion to the variance."""
    sizes = {
        "wide": 0.5, "outside": 0.2, "r2": 1.0, "springs": 1.0, "probe": 0.1, "shared": 1.0,
        "trained": 0.0, "second": 1.0,
    } | changes  # fmt: skip
    rows = []

    def add(name, limit, variance, r2=1.0):
        for k in range(61):
            gain = limit * -np.expm1(-0.1 * k)
            rows.append(Row(name, "total", gain, step=k))
            rows.append(Row(name, "shared", 0.0, step=k))
        rows.append(Row(name, "variance", variance))
        rows.append(Row(name, "loss", 0.03))
        for dataset in ("fit", *(f"{n} probes" for n in PROBES)):
            rate = 0.1 if dataset == "fit" else sizes["probe"]
            values = {"limit": limit, "rate": rate, "r2": r2, "curved": 1.0}
            rows.extend(Row(name, metric, v, dataset=dataset) for metric, v in values.items())

    factors = (1.0, 1.0, sizes["second"], 0.8, sizes["wide"])
    for name, factor, spread in zip(FAMILIES, factors, (0.0, 0.1, 0.2, 0.4, 0.8), strict=True):
        add(name, 0.05 * factor * max(spread, 0.01) ** 2, spread**2, sizes["r2"])
    for name, limit in (("rates x10", 1e-3), ("detuning x10", sizes["outside"])):
        add(name, limit, 1.0)
    add("springs", 1e-3, 0.0, sizes["springs"])
    rows.append(Row("springs", "possible", 1.1e-3))
    for name, gain in (("untrained", 0.5), ("trained", sizes["trained"])):
        for k in range(31):
            rows.append(Row(f"two qubits, {name}", "total", gain * k / 30, step=k))
            rows.append(
                Row(f"two qubits, {name}", "shared", sizes["shared"] * gain * k / 30, step=k)
            )
        rows.append(Row(f"two qubits, {name}", "spread", 1e-3))
        rows.append(Row(f"two qubits, {name}", "loss", 0.6))
    return rows


@pytest.mark.parametrize(
    ("changes", "broken"),
    [
        ({}, set()),
        ({"r2": 0.9}, {"R² of the law, least of detuning families"}),
        ({"springs": 0.9}, {"R² of the law, springs"}),
        ({"second": 0.5}, {"gain over variance, detuning 0.1 over 0.2"}),
        ({"wide": 1.0}, {"gain over variance, detuning 0.8 over 0.1"}),
        (
            {"outside": 0.07},
            {"gain at ten times the detuning", "the same over the gain inside of the family"},
        ),
        ({"probe": 0.05}, {"error of the budget by four probes, largest"}),
        ({"shared": 0.5}, {"two qubits, untrained: one controller's share of the gain"}),
        ({"trained": 0.1}, {"two qubits: gain once trained over gain untrained"}),
    ],
)
def test_the_verdict_looks_at_every_criterion(changes, broken):
    assert {c.name for c in judge(made_rows(**changes)).criteria if not c.holds} == broken

"""The experiment ``demoa`` from its command to its files."""

import json
import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlab.core.locate import load_companion
from jaxlab.experiment import demoa_training as training
from jaxlab.experiment import read_metrics, select
from jaxlab.experiment.demoa_report import draw

SMOKE = ("--smoke", "--seeds", 1, "--no-progress")


def check_verdict(out, printed):
    summary = json.loads((out / "summary.json").read_text())
    assert f"verdict: {summary['verdict']}" in printed
    held = {criterion["name"]: criterion["holds"] for criterion in summary["criteria"]}
    for name in ("median / flip x10", "RFA / flip x10", "RFA / noise 5"):
        assert held[f"DeMoA less naive, {name}"]
    assert held["rounds with a Byzantine majority, mean over seeds"]
    rows = read_metrics(out / "metrics.csv")
    # The same coins for all: nobody uploads more than the naive rule does.
    uploads = {row.method: row.value for row in select(rows, metric="uploads", dataset="digits")}
    assert uploads["DeMoA"] == uploads["naive"]
    assert uploads["everybody heard"] == 20 * max(row.step for row in rows)


@pytest.mark.slow
def test_smoke_run(program, tmp_path, seed, check_redrawing):
    # One test, since every worker would repeat the run for a fixture.
    out = tmp_path / "run"
    count = random.Random(seed).randrange(3, 15)
    done = program.resume_killed("demoa", SMOKE, count, out)
    check_verdict(out, done.stdout)
    check_redrawing(draw, out, tmp_path / "redrawn")


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        ({"rounds": 100}, "rounds must be a positive multiple of 30, got 100"),
        ({"mnist_rounds": 0}, "mnist_rounds must be a positive multiple of 30, got 0"),
        ({"seeds": 0}, "seeds must be at least 1, got 0"),
    ],
)
def test_impossible_flags(flags, complaint):
    with pytest.raises(ValueError, match=complaint):
        load_companion("experiments", "demoa").Args(**flags)


def test_digits_are_shared_out_whole():
    dealt, in_order = training.digits_data(0)
    for data in (dealt, in_order):
        assert data.features.shape == (20, 70, 65)
        assert data.test_features.shape == (397, 65)
        assert (data.features[..., -1] == 1).all()
    one, two = (
        np.sort(np.asarray(data.features).reshape(1400, -1).sum(axis=1))
        for data in (dealt, in_order)
    )
    np.testing.assert_allclose(one, two)
    labels = np.asarray(in_order.labels)
    assert (np.diff(labels.ravel()) >= 0).all()
    assert len(np.unique(np.asarray(dealt.labels)[0])) == 10
    # No class is known to liars alone.
    assert set(labels[~training.LIARS].ravel()) == set(range(10))
    assert training.LIARS.sum() == training.NUM_LIARS


def test_settings_are_their_numbers():
    module = load_companion("experiments", "demoa")
    settings = module.digits_settings(False)
    assert len(set(settings)) == len(settings)
    cells = module.numbers(settings)
    at = settings.index(module.Setting("digits, sorted", "Krum", "noise 5", "naive"))
    cell = jax.tree.map(lambda leaf: leaf[at].item(), cells)
    assert cell == training.Cell(4, 2, 0.1, 0.1, 1, False)
    at = settings.index(
        module.Setting("digits", "RFA", "flip x10", "everybody heard", participation=1.0)
    )
    assert jax.tree.map(lambda leaf: leaf[at].item(), cells) == training.Cell(
        2, 1, 1.0, 0.1, 0, True
    )


def test_majorities_are_few():
    found = training.majority_rounds(jax.random.key(0), 0.1, 4000)
    assert abs(len(found) / 4000 - 0.0820) < 4 * (0.082 * 0.918 / 4000) ** 0.5
    assert len(training.majority_rounds(jax.random.key(0), jnp.array(1.0), 50)) == 0

"""The experiment ``multitask_limits`` from its command to its files."""

import json
import random

import numpy as np
import pytest

from jaxlab.core.locate import load_companion
from jaxlab.data.movielens import film_ratings
from jaxlab.experiment import read_metrics, select
from jaxlab.experiment.multitask_inputs import film_panel
from jaxlab.experiment.multitask_report import NUM_USERS, draw, judge

SMOKE = ("--smoke", "--no-progress")


def check_verdict(out, printed):
    summary = json.loads((out / "summary.json").read_text())
    assert f"verdict: {summary['verdict']}" in printed
    held = {criterion["name"]: criterion["holds"] for criterion in summary["criteria"]}
    assert held["constant gap: largest bound over numbers of tasks, n = 3"]
    assert held["noisy gap: least bound over samples"]
    assert held["the oracle's largest error there"]
    rows = read_metrics(out / "metrics.csv")
    fixed = [row.value for row in select(rows, method="fixed family", metric="le_cam")]
    assert (np.diff(fixed) < 0).all()
    # Whoever knows the good users is better, with as many ratings.
    for size in NUM_USERS:
        errors = {
            name: select(rows, method=name, metric="film error", step=size)[0].value
            for name in ("oracle", "pooling")
        }
        assert errors["oracle"] < errors["pooling"]


@pytest.mark.slow
def test_smoke_run(program, tmp_path, seed, check_reference, check_redrawing):
    # One test, since every worker would repeat the run for a fixture.
    out = tmp_path / "run"
    count = random.Random(seed).randrange(2, 9)
    done = program.resume_killed("multitask_limits", SMOKE, count, out)
    check_verdict(out, done.stdout)
    check_reference("multitask_limits", out)
    check_redrawing(draw, out, tmp_path / "redrawn")


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        ({"replicas": 150}, "replicas must be a multiple of 100, got 150"),
        ({"replicas": 0}, "replicas must be a multiple of 100, got 0"),
        ({"seeds": 0}, "seeds must be at least 1, got 0"),
    ],
)
def test_impossible_flags(flags, complaint):
    module = load_companion("experiments", "multitask_limits")
    with pytest.raises(ValueError, match=complaint):
        module.Args(**flags)


def test_films_are_shares_of_ratings_above_and_below_each_users_mean():
    found, panel = film_ratings(), film_panel().genres
    assert found.genres[:5] == ("Action", "Comedy", "Drama", "Adventure", "Crime")
    assert panel.real.sum(axis=1).tolist() == [553, 500, 448, 344, 240]
    assert panel.sign.tolist() == [1.0] * 5
    # The first user of the first genre, counted by hand.
    genre = found.genre == 0
    user = next(u for u in range(671) if (found.user[genre] == u).sum() >= 8)
    mean = found.rating[found.user == user].mean()
    own = found.rating[(found.user == user) & genre][::2]
    assert panel.plus[0, 0] == (own > mean).mean()
    assert panel.minus[0, 0] == (own < mean).mean()
    assert not panel.plus[~panel.real].any()


def test_the_verdict_needs_its_rows():
    with pytest.raises(ValueError, match="max"):
        judge([])

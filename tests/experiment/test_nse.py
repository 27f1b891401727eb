"""The experiment ``nse`` from its command to its files."""

import json
import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlab.core import run
from jaxlab.core.locate import load_companion
from jaxlab.experiment import read_metrics, select
from jaxlab.experiment.measure import sweep
from jaxlab.experiment.nse_report import draw, label
from jaxlab.theory import nse_studies as studies
from jaxlab.theory.nse_activations import smooth

SMOKE = ("--smoke", "--seeds", 2, "--dim", 150, "--rival-dim", 60, "--no-progress")


def check_verdict(out, printed):
    summary = json.loads((out / "summary.json").read_text())
    assert f"verdict: {summary['verdict']}" in printed
    rows = read_metrics(out / "metrics.csv")
    for order in (1, 2, 3):
        found = {
            metric: np.array(
                [row.value for row in select(rows, method=label(order), metric=metric)]
            )
            for metric in ("alpha_it", "alpha_alg")
        }
        # The transition of exponent 1 is continuous: the grid's first overlap is not 0.
        assert (found["alpha_it"] <= 1.005 * found["alpha_alg"]).all()
    held = {criterion["name"]: criterion["holds"] for criterion in summary["criteria"]}
    for order in (1, 2, 3):
        assert held[f"exponent found, {order} by construction"]
        assert held[f"slope of the first-order threshold in snr, exponent {order}"]
        assert held[f"slope of the information threshold in snr, exponent {order}"]
    assert held["deviation from known thresholds"]
    assert held["gap, He_2, worst"]
    assert held["hard phase, overlap from no knowledge"]
    assert any("farthest from state evolution" in note for note in summary["notes"])


@pytest.mark.slow
def test_smoke_run(program, tmp_path, seed, check_reference, check_redrawing):
    # One test, since every worker would repeat the run for a fixture.
    out = tmp_path / "run"
    count = random.Random(seed).randrange(3, 15)
    done = program.resume_killed("nse", SMOKE, count, out)
    check_verdict(out, done.stdout)
    # What depends on the dimension has other values in this smaller run.
    check_reference("nse", out, besides=("AMP", "overlap", "real"))
    check_redrawing(draw, out, tmp_path / "redrawn")


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        ({"seeds": 1}, "seeds must be at least 2 for a spread, got 1"),
        ({"dim": 10}, "dim must be at least 50, got 10"),
        ({"rival_dim": 10}, "rival_dim must be at least 30, got 10"),
        ({"snrs": 4}, "snrs must be at least 9, got 4"),
    ],
)
def test_impossible_flags(flags, complaint):
    module = load_companion("experiments", "nse")
    with pytest.raises(ValueError, match=complaint):
        module.Args(**flags)


def test_an_interrupted_sweep_gives_the_same_numbers():
    squares = sweep(lambda context, x: context * x**2)
    problem = (jnp.array(2.0), jnp.arange(6.0))
    key = jax.random.key(0)
    whole = run(squares, problem, (), key, num_steps=6)
    np.testing.assert_array_equal(whole.trace, 2 * np.arange(6.0) ** 2)
    half = run(squares, problem, (), key, num_steps=3)
    rest = run(squares, problem, (), key, num_steps=3, state=half.state, first_step=3)
    np.testing.assert_array_equal(rest.trace, whole.trace[3:])


def test_white_features_are_white():
    generator = np.random.default_rng(0)
    table = generator.standard_normal((200, 4)) @ generator.standard_normal((4, 5))
    white = studies.whiten(table)
    assert white.shape == (200, 4)  # the fifth column depends on the others
    np.testing.assert_allclose(white.T @ white, 200 / 4 * np.eye(4), atol=1e-8)


def test_ridge_finds_the_direction_of_a_quadratic():
    key_x, key_w = jax.random.split(jax.random.key(0))
    features = jax.random.normal(key_x, (400, 8)) / 8**0.5
    teacher = jax.random.normal(key_w, (8,))
    found = studies.ridge_direction(features, (features @ teacher) ** 2, jnp.array([1e-6, 1e9]))
    # Without a penalty ridge is least squares, which is exact on a quadratic.
    np.testing.assert_allclose(studies.cosine_with(found[0], teacher), 1.0, atol=1e-3)
    assert found.shape == (2, 8)


def test_chance_is_the_mean_cosine_of_a_random_direction():
    directions = np.random.default_rng(0).standard_normal((200_000, 10))
    cosines = np.abs(directions[:, 0]) / np.linalg.norm(directions, axis=1)
    assert studies.chance(10) == pytest.approx(cosines.mean(), rel=5e-3)


def test_step_functions_have_one_shape_and_their_own_moments():
    scales = {1: 0.3, 2: 0.2, 3: 0.08}
    stacked = studies.step_functions(scales)
    assert stacked.values.shape == (3, 4)
    unit = jax.vmap(lambda a: studies.normalized(a).moments(0.0, 1.0))(stacked)
    np.testing.assert_allclose((unit.mass * unit.values).sum(axis=1), 0.0, atol=1e-12)
    np.testing.assert_allclose((unit.mass * unit.values**2).sum(axis=1), 1.0, rtol=1e-12)
    he2 = smooth(lambda z: z**2 - 1, num_nodes=10)
    assert float(he2(jnp.array(2.0))) == 3.0

import json
import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlab.core.locate import load_companion
from jaxlab.data.galaxies import galaxy_velocities
from jaxlab.experiment import read_metrics, select
from jaxlab.problems import densities

SMOKE = ("--smoke", "--seeds", 2, "--no-progress")


def check_verdict(out, printed):
    summary = json.loads((out / "summary.json").read_text())
    assert f"verdict: {summary['verdict']}" in printed
    held = {criterion["name"]: criterion["holds"] for criterion in summary["criteria"]}
    assert held["ring, L = 1: mean |log Z error|"]
    assert held["ring, L = 1: mean mode TV"]
    assert held["runs that settle beyond the limit of their lag, or do not below it"]
    rows = read_metrics(out / "metrics.csv")
    ess = {row.method: row.value for row in select(rows, metric="ess_per_call")}
    assert ess["delayed (L = 1)"] > 2 * ess["plain IS"] > 0
    assert (out / "figure.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_smoke_run(program, tmp_path, seed, check_reference):
    out = tmp_path / "command"
    done = program.run("-m", "jaxlab.cli", "run", "ais", *SMOKE, "--out", out)
    assert done.returncode == 0, done.stderr
    check_verdict(out, done.stdout)
    check_reference("ais", out)
    count = random.Random(seed).randrange(2, 12)
    program.check_same_after_kill("ais", SMOKE, count, tmp_path / "killed", out)


@pytest.mark.parametrize("calls", [0, 5000, 61_000])
def test_impossible_flags(calls):
    module = load_companion("experiments", "ais")
    with pytest.raises(ValueError, match=f"calls must be a multiple of 6000, got {calls}"):
        module.Args(calls=calls)


def test_bumps_are_a_density_with_the_masses_of_their_regions():
    two = densities.bumps(np.array([[-6.0], [6.0]]), np.array([0.3, 0.7]))
    grid = jnp.linspace(-15.0, 15.0, 6001)[:, None]
    density = np.exp(np.asarray(jax.vmap(two.logdensity_fn)(grid)))
    labels = np.asarray(jax.vmap(two.label_fn)(grid))
    step = float(grid[1, 0] - grid[0, 0])
    np.testing.assert_allclose(np.bincount(labels, density) * step, [0.3, 0.7], atol=1e-6)


def test_banana_is_a_density():
    banana = densities.banana(2)
    first, second = np.meshgrid(np.linspace(-12, 12, 481), np.linspace(-12, 80, 921))
    points = jnp.stack([jnp.asarray(first.ravel()), jnp.asarray(second.ravel())], axis=1)
    density = np.exp(np.asarray(jax.vmap(banana.logdensity_fn)(points)))
    assert density.sum() * 0.05 * 0.1 == pytest.approx(1, abs=1e-3)


def test_orders_have_numbers_of_their_own():
    orders = [[1, 2, 3], [1, 3, 2], [2, 1, 3], [2, 3, 1], [3, 1, 2], [3, 2, 1]]
    found = [int(densities.labels_of_order(jnp.array(order, float))) for order in orders]
    assert found == list(range(6))


def test_the_galaxy_posterior_does_not_tell_orders_apart():
    """Exchanging two parts leaves the constrained density, and so every order's mass, alone."""
    module = load_companion("experiments", "ais")
    with jax.enable_x64(True):
        task = module.make_task("galaxies")
        x = jnp.array([0.3, -1.2, 1.7, -1.0, -2.0, -0.5, 0.4, -0.8])
        position = task.target.unravel(x)
        assert set(position) == {"means", "scales", "shares"}
        turned = {name: position[name][::-1] for name in ("means", "scales")}

        def corrected(position, shares):
            """The density over the simplex: without the stick-breaking map's Jacobian."""
            from numpyro.distributions.transforms import StickBreakingTransform

            transform = StickBreakingTransform()
            stick = transform.inv(shares)
            jacobian = transform.log_abs_det_jacobian(stick, shares)
            return task.target.logdensity_fn({**position, "shares": stick}) - jacobian

        shares = jnp.array([0.2, 0.5, 0.3])
        here = corrected({n: position[n] for n in turned}, shares)
        there = corrected(turned, shares[::-1])
        assert float(here) == pytest.approx(float(there), rel=1e-10)


def test_galaxies_are_the_known_table():
    velocities = galaxy_velocities()
    assert velocities.shape == (82,)
    assert (velocities.min(), velocities.max()) == (9.172, 34.279)

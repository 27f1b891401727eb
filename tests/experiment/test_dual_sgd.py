import json
import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlab.core import run
from jaxlab.core.locate import load_companion
from jaxlab.experiment import read_metrics, select
from jaxlab.experiment.dual_sgd_report import draw
from jaxlab.experiment.networks import named_network
from jaxlab.optim import dual_sgd as dual
from jaxlab.optim import dual_sgd_studies as studies
from jaxlab.problems import consensus
from jaxlab.problems.quadratic import Quadratic, quadratic_gradient

SMOKE = ("--smoke", "--seeds", 2, "--agents", 6, "--no-progress")


def check_verdict(out, printed):
    summary = json.loads((out / "summary.json").read_text())
    assert f"verdict: {summary['verdict']}" in printed
    rows = read_metrics(out / "metrics.csv")
    for graph in ("complete", "ring"):
        found = select(rows, metric="communications", graph=graph)
        rounds = {row.method: row.value for row in found}
        assert rounds["accelerated"] < rounds["plain"] < np.inf
        # Exact local solves are what many local steps approximate.
        assert rounds["SSDA"] == pytest.approx(rounds["accelerated"], rel=0.25)
    assert "Scaffnew" in " ".join(summary["notes"])
    held = {criterion["name"]: criterion["holds"] for criterion in summary["criteria"]}
    assert held["stochastic runs bounded at K η μ = 1.5"]
    assert held["stochastic runs diverged at K η μ = 0.15"]
    assert held["dual runs that miss an error of 1e-10"]


@pytest.mark.slow
def test_smoke_run(program, tmp_path, seed, check_reference, check_redrawing):
    # One test, since every worker would repeat the run for a fixture.
    out = tmp_path / "command"
    done = program.run("-m", "jaxlab.cli", "run", "dual_sgd", *SMOKE, "--out", out)
    assert done.returncode == 0, done.stderr
    check_verdict(out, done.stdout)
    check_reference("dual_sgd", out)
    check_redrawing(draw, out, tmp_path / "redrawn")
    count = random.Random(seed).randrange(5, 40)
    program.check_same_after_kill("dual_sgd", SMOKE, count, tmp_path / "killed", out)


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        ({"agents": 1}, "agents must be at least 2, got 1"),
        ({"seeds": 1}, "seeds must be at least 2 for an interval, got 1"),
        ({"condition": 1.0}, r"condition must be in \(1, 1000\], got 1.0"),
        ({"agents": 600}, "num_agents must be at most the number of rows 569, got 600"),
    ],
)
def test_impossible_flags(flags, complaint):
    module = load_companion("experiments", "dual_sgd")
    with pytest.raises(ValueError, match=complaint):
        module.prepare(module.Args(dataset="breast_cancer", **flags))


@pytest.mark.parametrize("name", ["ring", "grid", "star", "erdos_renyi", "complete"])
def test_every_graph_is_connected(name):
    network = named_network(name, 7, seed=3)
    assert network.gossip.shape == (7, 7)
    assert float(network.spectrum.smallest) > 0


def random_case(condition):
    """Quadratics of four agents whose spectra reach both ends, from NumPy."""
    generator = np.random.default_rng(0)
    frames = np.linalg.qr(generator.standard_normal((4, 6, 6)))[0]
    spectrum = np.geomspace(1.0, condition, 6)
    hessian = frames @ (spectrum[:, None] * np.swapaxes(frames, 1, 2))
    return Quadratic(jnp.asarray(hessian), jnp.asarray(generator.standard_normal((4, 6))))


def test_closed_form_local_steps_are_gradient_steps():
    with jax.enable_x64(True):
        ring, case = named_network("ring", 4), random_case(30.0)
        problem, optimum = studies.quadratic_problem(case, ring.gossip, 7)
        hyper = studies.unguarded_hyper(1.0, 30.0, ring.spectrum, num_local_steps=7, mode="plain")
        stepwise = consensus.make_consensus(
            quadratic_gradient,
            Quadratic(case.hessian, problem.data.linear),
            problem.start,
            ring.gossip,
        )
        key = jax.random.key(0)
        closed = run(studies.quadratic_method(), problem, hyper, key, num_steps=5)
        taken = run(dual.dual_sgd(num_local_steps=7), stepwise, hyper, key, num_steps=5)
        np.testing.assert_allclose(closed.state.params, taken.state.params, atol=1e-12)
        np.testing.assert_allclose(jnp.linalg.norm(optimum), 1.0)


@pytest.mark.parametrize(("steps", "converges"), [(150, True), (10, False)])
def test_radius_tells_convergence_from_divergence(steps, converges):
    with jax.enable_x64(True):
        ring = named_network("ring", 4)
        problem, optimum = studies.quadratic_problem(random_case(100.0), ring.gossip, steps)
        hyper = studies.unguarded_hyper(
            1.0, 100.0, ring.spectrum, num_local_steps=steps, mode="accelerated"
        )
        radius = float(jax.jit(studies.round_radius)(problem, hyper))
        assert (radius < 1) is converges
        done = run(studies.quadratic_method(), problem, hyper, jax.random.key(0), num_steps=600)
        error = float(jnp.abs(done.state.params - optimum).max())
        assert (error < 1e-6) is converges


def test_quadratic_cases_have_the_curvatures_that_were_asked_for():
    cases = studies.quadratic_cases(jax.random.key(0), [10.0, 1000.0], 3)
    assert cases.linear.shape == (2, 3, 6)
    values = np.linalg.eigvalsh(cases.hessian)
    np.testing.assert_allclose(values[..., -1], [[10.0] * 3, [1000.0] * 3], rtol=1e-4)
    np.testing.assert_allclose(values[0, :, 0], 1.0, rtol=1e-4)
    with pytest.raises(ValueError, match="num_agents must be at most 24, got 25"):
        studies.quadratic_cases(jax.random.key(0), [10.0], 25)

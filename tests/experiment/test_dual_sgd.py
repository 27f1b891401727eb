import json
import random
import signal

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlab.core import run
from jaxlab.core.locate import load_companion
from jaxlab.experiment import read_metrics, select
from jaxlab.experiment.dual_sgd_report import draw
from jaxlab.experiment.figures import save_figure
from jaxlab.experiment.networks import named_network
from jaxlab.optim import dual_sgd as dual
from jaxlab.optim import dual_sgd_studies as studies
from jaxlab.problems import consensus
from jaxlab.problems.quadratic import Quadratic, quadratic_gradient

SMOKE = ("--smoke", "--seeds", 2, "--agents", 6, "--no-progress")


@pytest.fixture(scope="module")
def smoke(program, tmp_path_factory):
    out = tmp_path_factory.mktemp("dual_sgd") / "smoke"
    done = program.run("-m", "jaxlab.cli", "run", "dual_sgd", *SMOKE, "--out", out)
    assert done.returncode == 0, done.stderr
    return out, done.stdout


def test_smoke_run_reaches_a_verdict(smoke):
    out, printed = smoke
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


def test_killed_script_goes_on_to_the_numbers_of_the_command(smoke, program, tmp_path, seed):
    out = tmp_path / "script"
    words = ["experiments/dual_sgd.py", *SMOKE, "--out", out]
    count = random.Random(seed).randrange(5, 40)
    assert program.kill_after_chunks(count, out, *words) == -signal.SIGKILL
    done = program.run(*words, "--resume")
    assert done.returncode == 0, done.stderr
    for name in ("metrics.csv", "summary.json"):
        assert (out / name).read_bytes() == (smoke[0] / name).read_bytes()


def test_figure_is_drawn_from_metrics_alone(smoke, tmp_path):
    (tmp_path / "metrics.csv").write_bytes((smoke[0] / "metrics.csv").read_bytes())
    save_figure(draw, tmp_path)
    assert (tmp_path / "figure.svg").read_bytes() == (smoke[0] / "figure.svg").read_bytes()


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


def test_closed_form_local_steps_are_gradient_steps():
    with jax.enable_x64(True):
        ring = named_network("ring", 4)
        cases = studies.quadratic_cases(jax.random.key(0), [30.0], 4)
        case = Quadratic(cases.hessian[0], cases.linear[0])
        problem, optimum = studies.quadratic_problem(case, ring.gossip, 7)
        hyper = studies.unguarded_hyper(1.0, 30.0, ring.spectrum, num_local_steps=7, mode="plain")
        linear = problem.data.linear
        plain = consensus.make_consensus(
            quadratic_gradient, Quadratic(case.hessian, linear), problem.start, ring.gossip
        )
        state = studies.quadratic_method().init(problem, hyper, jax.random.key(0))
        other = state
        for _ in range(5):
            state, _ = studies.quadratic_method().step(problem, hyper, state, jax.random.key(0))
            other, _ = dual.dual_sgd(num_local_steps=7).step(plain, hyper, other, jax.random.key(0))
        np.testing.assert_allclose(state.params, other.params, atol=1e-12)
        np.testing.assert_allclose(jnp.linalg.norm(optimum), 1.0)


def test_radius_tells_convergence_from_divergence():
    with jax.enable_x64(True):
        ring = named_network("ring", 4)
        cases = studies.quadratic_cases(jax.random.key(1), [100.0], 4)
        case = Quadratic(cases.hessian[0], cases.linear[0])
        for steps, converges in ((150, True), (10, False)):
            problem, optimum = studies.quadratic_problem(case, ring.gossip, steps)
            hyper = studies.unguarded_hyper(
                1.0, 100.0, ring.spectrum, num_local_steps=steps, mode="accelerated"
            )
            radius = float(studies.round_radius(problem, hyper))
            assert (radius < 1) is converges
            method = studies.quadratic_method()
            done = run(method, problem, hyper, jax.random.key(0), num_steps=600)
            error = float(jnp.abs(done.state.params - optimum).max())
            assert (error < 1e-6) is converges

"""What the attack finds that a plain descent does not."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from jaxlab.claims import Claim, Effort, Verdict
from jaxlab.claims.approach import approach_boundary
from jaxlab.claims.evaluate import Evaluator, precise
from jaxlab.claims.ladder import climb, climb_rung
from tests.meta import toys

DIM = 6
EFFORT = Effort(samples=500, restarts=32, steps=200, methods=("adam",))


def vector():
    return numpyro.sample("x", dist.Normal(0.0, 1.0).expand([DIM]))


def claim(conclusion, **changes):
    settings = {
        "name": "toy/attack",
        "statement": "false somewhere",
        "source": "made for the test",
        "families": {"normal": vector},
        "conclusion": conclusion,
        "assumptions": lambda x: jnp.isfinite(x).all(),
        "expected": "refuted",
    }
    return Claim(**{**settings, **changes})


def attack(claim, effort=EFFORT):
    with precise():
        return climb_rung(claim, Evaluator(claim), "attack", {}, None, effort, 0, None)


def test_evolution_steps_in_where_the_margin_is_piecewise_constant():
    # All six above 1.5 has probability 9e-8, and no margin here has a slope.
    report = attack(claim(lambda x: 0.9 - jnp.mean(x > 1.5)))
    assert report.verdict == Verdict.REFUTED
    assert (np.asarray(report.candidate.instance) > 1.5).all()
    assert report.outside == pytest.approx(-0.1)
    assert "gradients moved 0 of 32 restarts" in report.note


def test_evolution_draws_discrete_sites_anew():
    def model():
        # Each pattern has probability 1/512: few random restarts hold the right one.
        return numpyro.sample("bits", dist.Bernoulli(0.5).expand([9])), vector()

    wanted = jnp.arange(9) % 2

    def conclusion(instance):
        bits, x = instance
        return jnp.mean(bits != wanted) - 0.01 + 0 * x.sum()

    found = claim(conclusion, families={"bits": model}, assumptions=lambda i: i[1].sum() < jnp.inf)
    report = attack(found, EFFORT._replace(steps=800, samples=32))
    assert report.verdict == Verdict.REFUTED
    np.testing.assert_array_equal(report.candidate.instance[0], np.arange(9) % 2)


def test_lbfgs_goes_where_adam_is_too_slow():
    def rosenbrock(x):  # the minimum is 0 at the ones, at the end of a curved valley
        return jnp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2) - 1e-9

    short = EFFORT._replace(steps=100)
    assert attack(claim(rosenbrock), short).verdict == Verdict.HELD
    report = attack(claim(rosenbrock), short._replace(methods=("adam", "lbfgs")))
    assert report.verdict == Verdict.REFUTED
    np.testing.assert_allclose(report.candidate.instance, np.ones(DIM), atol=1e-3)


def test_the_attack_begins_near_boundary_instances_too():
    centre = 3.0 * jnp.ones(DIM)

    def shell(x):  # fails on a thin shell around the boundary instance and is flat far from it
        distance = jnp.sum((x - centre) ** 2)
        return 1 - 2 * jnp.exp(-((distance - 0.04) ** 2) / 0.0008)

    # Without L-BFGS the boundary is not asked for: it is part of the thorough methods.
    lonely = claim(shell, boundary={"centre": lambda: centre})
    assert attack(lonely).verdict == Verdict.HELD
    report = attack(lonely, EFFORT._replace(methods=("adam", "lbfgs")))
    assert report.verdict == Verdict.REFUTED
    distance = np.sum((np.asarray(report.candidate.instance) - 3.0) ** 2)
    assert distance == pytest.approx(0.04, abs=0.03)


def test_points_of_the_family_approach_a_boundary_instance():
    tight = toys.cauchy_schwarz()
    with precise():
        evaluator = Evaluator(tight)
        (near,) = approach_boundary(tight, evaluator, "normal", jax.random.key(0))
        numbers = evaluator.unflattener("normal")(near)
        instance = evaluator.rebuild("normal", numbers, jax.random.key(0))
    np.testing.assert_allclose(instance, np.ones(5), atol=1e-2)


def test_dead_restarts_are_counted_and_no_nan_is_a_margin():
    def half(x):
        return jnp.where(x[0] > 0, jnp.nan, 1.0 + jnp.sum(x**2))

    report = attack(claim(half))
    # Margins of x and -x are equal, and half of the restarts begin anywhere.
    assert "restarts never saw a finite margin" in report.note
    assert report.least_margin == pytest.approx(1.0, abs=0.05)


def test_a_violation_outside_the_assumptions_is_walked_away_from():
    # The margin falls without end, but the assumption ends at 8, where no random instance is.
    report = attack(claim(lambda x: 10.0 - x[0], assumptions=lambda x: 8.0 - x[0]))
    assert report.verdict == Verdict.HELD
    assert report.least_margin == pytest.approx(2.0, abs=0.3)


def test_a_round_more_adds_instances():
    square = toys.cauchy_schwarz()
    effort = Effort(examples=3, samples=200, restarts=4, steps=10, methods=("adam",))
    once = climb(square, effort=effort)
    often = climb(square, effort=effort, budget=once.seconds + 10)
    counts = [{r.rung: r.num_instances for r in report.rungs} for report in (once, often)]
    assert often.ok
    assert counts[1]["sample"] > 2 * counts[0]["sample"]
    assert counts[1]["attack"] > counts[0]["attack"]
    assert often.seconds < once.seconds + 20


def test_without_time_nothing_is_called_held():
    report = climb(toys.cauchy_schwarz(), budget=0.0)
    assert report.verdict == Verdict.INCONCLUSIVE
    assert {rung.verdict for rung in report.rungs} == {Verdict.SKIPPED}
    assert "budget" in report.rungs[0].note
    assert not report.ok

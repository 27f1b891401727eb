"""The exact rung against worst cases that are known from elsewhere."""

import dataclasses
import math
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from jaxlab.claims import Claim, Effort, ExactCase, Verdict, at_most, climb
from jaxlab.claims.exact import (
    FunctionClass,
    NotSymbolicError,
    Setting,
    convex,
    gradient,
    proximal,
    run_symbolically,
    smooth_convex,
    solve,
    sweep,
    value,
)
from jaxlab.claims.exact.rung import doubt, exact_rung
from jaxlab.claims.exact.twin import TwinError
from jaxlab.core import run
from jaxlab.core.locate import load_companion
from jaxlab.core.types import Method
from jaxlab.optim import inexact_agd as agd

KEY = jax.random.key(0)
SOLVER = 1e-6  # Relative; Clarabel stops at 1e-8 and the worst case is conditioned by the steps.


@pytest.fixture(autouse=True)
def with_the_extra():
    pytest.importorskip("PEPit", reason="the exact rung needs pip install 'jaxlab[exact]'")


def descent(gradient_fn):
    """A Method as a user writes it; its info is not linear in points, and nobody asks for it."""

    def init(problem, hyper, key):
        return problem.start

    def step(problem, hyper, state, key):
        slope = gradient_fn(state)
        return state - hyper * slope, jnp.linalg.norm(slope)

    return Method(init, step)


def from_distance(one_step, steps, kind, radius=1.0):
    """The worst final gap of some steps from a distance to the minimiser."""

    def gap(x, best):
        return value(jax.lax.fori_loop(0, steps, lambda i, y: one_step(y), x)) - value(best)

    def within(x, best):
        return jnp.sum((x - best) ** 2) - radius**2

    return Setting(gap, within, {"f": kind}, {"x": ()}, {"best": "f"})


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_gradient_descent_has_the_worst_case_of_drori_and_teboulle(steps):
    smoothness, radius = 2.0, 3.0
    method = descent(gradient)

    def gap(x, best):
        end = run(method, agd.Oracle(x), jnp.array(1 / smoothness), KEY, num_steps=steps).state
        return value(end) - value(best)

    def within(x, best):
        return jnp.sum((x - best) ** 2) - radius**2

    setting = Setting(gap, within, {"f": smooth_convex(smoothness)}, {"x": ()}, {"best": "f"})
    known = smoothness * radius**2 / (4 * steps + 2)
    case = solve(setting, parameters={"steps": steps}, bound=known)
    assert case.worst == pytest.approx(known, rel=SOLVER)
    assert case.gap < SOLVER * known
    assert case.replayed == pytest.approx(known, rel=1e-4)


@pytest.mark.parametrize(("steps", "step_size"), [(1, 0.5), (3, 2.0)])
def test_proximal_point_has_the_worst_case_of_taylor(steps, step_size):
    setting = from_distance(lambda y: proximal(y, step_size), steps, convex())
    known = 1 / (4 * steps * step_size)
    case = solve(setting, parameters={}, bound=known)
    assert case.worst == pytest.approx(known, rel=SOLVER)
    assert case.replayed == pytest.approx(known, rel=1e-4)


def test_the_optimized_gradient_method_has_the_worst_case_of_kim_and_fessler():
    """A loop with momentum; the factor is L R^2 / (2 theta_N^2) (2016, arXiv:1406.5468)."""
    steps = 3
    theta = [1.0]
    for index in range(steps):
        factor = 8 if index == steps - 1 else 4
        theta.append((1 + math.sqrt(1 + factor * theta[-1] ** 2)) / 2)

    def gap(x, best):
        def step(carry, thetas):
            x, y = carry
            now, later = thetas
            new = x - gradient(x)
            ahead = new + (now - 1) / later * (new - y) + now / later * (new - x)
            return (ahead, new), None

        thetas = (jnp.array(theta[:-1]), jnp.array(theta[1:]))
        (end, _), _ = jax.lax.scan(step, (x, x), thetas)
        return value(end) - value(best)

    within = from_distance(gradient, 0, smooth_convex(1.0)).conditions
    setting = Setting(gap, within, {"f": smooth_convex(1.0)}, {"x": ()}, {"best": "f"})
    known = 1 / (2 * theta[-1] ** 2)
    case = solve(setting, parameters={"steps": steps}, bound=known)
    assert case.worst == pytest.approx(known, rel=SOLVER)
    assert case.replayed == pytest.approx(known, abs=1e-4)


def test_a_claims_own_conclusion_and_its_mutants_run_on_points():
    """The energy of inexact accelerated descent decreases as claimed, with equality."""
    checks = load_companion("proofs_checks", "inexact_agd")
    claim = checks.CLAIMS[0]
    cases = claim.exact()
    assert [case.parameters["kappa"] for case in cases] == [4.0, 25.0, 100.0]
    assert all(abs(case.worst) < SOLVER and abs(case.replayed) < 1e-4 for case in cases)
    for mutant in ("gradient at the midpoint", "step 2/L", "sign of the error"):
        assert exact_rung(claim, claim.mutants[mutant]).verdict == Verdict.REFUTED


@pytest.mark.parametrize("step_size", [0.3, 1.7])
def test_strongly_convex_gradient_descent_contracts_as_on_quadratics(step_size):
    # Taylor, Hendrickx and Glineur 2018: the factor is max(|1 - h mu|, |1 - h L|)^2 exactly.
    mu, smoothness = 0.2, 1.0
    setting = Setting(
        lambda x, best: jnp.sum((x - step_size * gradient(x) - best) ** 2),
        lambda x, best: jnp.sum((x - best) ** 2) - 1,
        {"f": smooth_convex(smoothness, mu)},
        {"x": ()},
        {"best": "f"},
    )
    known = max(abs(1 - step_size * mu), abs(1 - step_size * smoothness)) ** 2
    case = solve(setting, parameters={}, bound=known)
    assert case.worst == pytest.approx(known, rel=SOLVER)
    assert case.replayed == pytest.approx(known, rel=1e-4)


def test_two_functions_and_their_common_minimiser():
    """A proximal gradient step contracts like its gradient step (Taylor et al. 2018)."""
    mu, smoothness, step_size = 0.2, 1.0, 1.0

    def step(x):
        return proximal(x - step_size * gradient(x, "f"), step_size, "g")

    setting = Setting(
        lambda x, best: jnp.sum((step(x) - best) ** 2),
        lambda x, best: jnp.sum((x - best) ** 2) - 1,
        {"f": smooth_convex(smoothness, mu), "g": convex()},
        {"x": ()},
        {"best": "f + g"},
    )
    known = (1 - step_size * mu) ** 2
    case = solve(setting, parameters={}, bound=known)
    assert case.worst == pytest.approx(known, rel=SOLVER)
    assert case.replayed == pytest.approx(known, rel=1e-4)


def test_the_gradient_is_that_of_the_value():
    """``jax.grad`` of the unknown value asks for the unknown gradient."""
    loss = from_distance(lambda y: y - jax.grad(value)(y), 2, smooth_convex(1.0))
    assert solve(loss, parameters={}, bound=0.1).worst == pytest.approx(0.1, rel=SOLVER)


def test_oracles_are_asked_at_stacks_of_points():
    """The mean gap over the path of two proximal steps, asked by ``vmap``."""

    def gap(x, best):
        first = proximal(x, 1.0)
        path = jnp.stack([first, proximal(first, 1.0)])
        along = jax.vmap(value)(path) - value(best)
        again = jax.vmap(proximal)(jnp.stack([x, first]), jnp.ones(2))
        return along.mean() + jnp.sum((again - path) ** 2)

    within = from_distance(lambda y: y, 0, convex()).conditions
    setting = Setting(gap, within, {"f": convex()}, {"x": ()}, {"best": "f"})
    case = solve(setting, parameters={}, bound=1.0)
    # f(x_1) is at most 1/4 and f(x_2) at most 1/8, and not both on one function.
    assert 1 / 8 < case.worst < 3 / 16 + SOLVER
    assert case.replayed == pytest.approx(case.worst, rel=1e-4)


def test_sweep_covers_the_product_and_a_class_without_reconstruction_is_not_replayed():
    def case(smoothness, steps):
        # Gradients are at most L here, so that the Lipschitz constant changes nothing.
        kind = FunctionClass("SmoothConvexLipschitzFunction", {"L": smoothness, "M": 10.0})
        setting = from_distance(lambda y: y - gradient(y) / smoothness, steps, kind)
        names = {"L": smoothness, "steps": steps}
        return solve(setting, parameters=names, bound=smoothness / (4 * steps + 2))

    cases = sweep(case, smoothness=[1.0, 4.0], steps=[1, 2])
    assert [tuple(c.parameters.values()) for c in cases] == [(1.0, 1), (1.0, 2), (4.0, 1), (4.0, 2)]
    assert all(c.worst == pytest.approx(c.bound, rel=SOLVER) for c in cases)
    assert all(c.replayed is None for c in cases)


def descent_claim(steps):
    """Its family holds quadratics alone, which stay far from the worst case."""

    def curvatures():
        return numpyro.sample("h", dist.Uniform(0.1, 1.0).expand([3]))

    def rate(h, *, denominator=4.0 * steps + 2.0):
        x = (1 - h) ** steps / jnp.sqrt(len(h))
        return at_most(0.5 * jnp.sum(h * x**2), 1 / denominator)

    def exact(denominator=4.0 * steps + 2.0):
        setting = from_distance(lambda y: y - gradient(y), steps, smooth_convex(1.0))
        return [solve(setting, parameters={"steps": steps}, bound=1 / denominator)]

    return Claim(
        name="toy/descent",
        statement="|x - x*| <= R: f(x_N) - f* <= L R^2 / (4N + 2)",
        source="Drori and Teboulle 2014, Theorem 1",
        families={"quadratic": curvatures},
        conclusion=rate,
        assumptions=lambda h: 1 - h.max(),
        exact=exact,
        tightness="tight",
        mutants={"4N + 4": {"denominator": 4.0 * steps + 4.0}},
    )


def test_only_the_exact_rung_refutes_a_false_constant():
    report = climb(descent_claim(10), effort=Effort(examples=5, samples=1000, restarts=8, steps=50))
    assert report.verdict == Verdict.CERTIFIED
    (mutant,) = report.mutants
    assert mutant.killed_by == "exact"
    assert {str(r.verdict) for r in mutant.rungs if r.rung != "exact"} <= {"held", "skipped"}


def find(setting):
    return solve(setting, parameters={}, bound=1.0)


@pytest.mark.parametrize(
    ("one_step", "primitive"),
    [
        (lambda y: y - gradient(y) / jnp.linalg.norm(gradient(y)), "sqrt"),
        (lambda y: y - gradient(y).mean(), "dim_as_value"),
        (lambda y: y - jnp.sum(gradient(y)), "reduce_sum"),
        (lambda y: y - jnp.flip(gradient(y)), "rev"),
        (lambda y: jnp.maximum(y, 0.0), "max"),
        (lambda y: y - (gradient(y) @ y) * y, "mul"),
        (lambda y: y - y**3, "integer_pow"),
        (lambda y: y + 1.0, "gradient"),
        (lambda y: jnp.where(value(y) > 0, y, -y), "gt"),
    ],
)
def test_what_is_not_linear_in_points_is_named(one_step, primitive):
    def step(y):
        return y - gradient(one_step(y))

    with pytest.raises(NotSymbolicError, match=f"primitive '{primitive}'.*twin"):
        find(from_distance(step, 1, smooth_convex(1.0)))


def test_programs_on_points_agree_with_the_same_programs_on_arrays():
    """Stacks, indices, loops and weights: evaluate the symbolic result at solved points."""
    import PEPit
    from PEPit.functions import SmoothConvexFunction

    def program(x, errors, best):
        def body(carry, error):
            return 0.5 * carry + error, carry

        last, path = jax.lax.scan(body, x, errors)
        weighted = jnp.arange(3.0) @ errors + path[1] - jnp.stack([x, last])[jnp.array(1)]
        swapped = jnp.concatenate([errors[2:], errors[:2]])
        inner = swapped @ x + jnp.sum(errors * path, axis=1)
        return jnp.sum((weighted - best) ** 2), inner, jax.lax.cond(len(errors) > 2, jnp.add,
            jnp.subtract, x, best)  # fmt: skip

    pep = PEPit.PEP()
    f = pep.declare_function(SmoothConvexFunction, L=1.0)
    points = {"x": pep.set_initial_point(), "best": f.stationary_point()}
    points["errors"] = np.array([pep.set_initial_point() for _ in range(3)], dtype=object)
    norm, inner, moved = run_symbolically(program, points, {"f": f})
    for point in (points["x"], *points["errors"], points["best"]):
        pep.set_initial_condition(point**2 <= 1)
    pep.set_performance_metric(norm)
    pep.solve(verbose=0, solver="CLARABEL")
    arrays = {"x": points["x"].eval(), "best": points["best"].eval()}
    arrays["errors"] = np.stack([point.eval() for point in points["errors"]])
    expected = program(**arrays)
    allowed = 1e-12
    np.testing.assert_allclose(norm.eval(), expected[0], rtol=allowed)
    np.testing.assert_allclose([i.eval() for i in inner], expected[1], atol=allowed)
    np.testing.assert_allclose(moved.eval(), expected[2], atol=allowed)


def guarded(y):
    """Gradient descent that would stop at huge gradients: no solver can follow the condition."""
    slope = gradient(y)
    return y - jnp.where(jnp.linalg.norm(slope) < 1e9, slope, 0.0)


def plain_twin(length):
    def twin(functions, x, best):
        f = functions["f"]
        end = x - length * f.gradient(x)
        end = end - length * f.gradient(end)
        return f.value(end) - f.value(best), (x - best) ** 2 - 1

    return twin


def test_a_twin_takes_the_place_of_its_method_and_the_method_replays_the_worst_case():
    setting = from_distance(guarded, 2, smooth_convex(1.0))
    with pytest.raises(NotSymbolicError):
        find(setting)
    case = solve(setting, parameters={}, bound=0.1, twin=plain_twin(1.0))
    assert case.worst == pytest.approx(0.1, rel=SOLVER)
    assert case.replayed == pytest.approx(0.1, rel=1e-4)


def test_a_twin_that_does_something_else_is_refused():
    setting = from_distance(guarded, 2, smooth_convex(1.0))
    with pytest.raises(TwinError, match="metric: the method gives"):
        solve(setting, parameters={}, bound=0.1, twin=plain_twin(1.01))


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        (ExactCase({}, 1.0, 2.0, gap=1e-3), "two values differ"),
        (ExactCase({}, 1.0, 2.0, replayed=0.9), "replays to 0.9"),
        (ExactCase({}, 1.0, 2.0, replayed=math.nan), "replays to nan"),
        (ExactCase({}, math.nan, 2.0), "worst case is nan"),
        (ExactCase({}, 1.0, 2.0, gap=math.nan), "two values differ"),
    ],
)
def test_a_doubtful_case_decides_nothing(case, reason):
    assert reason in doubt(case)
    claim = dataclasses.replace(descent_claim(1), exact=lambda: [case, ExactCase({}, 0.0, 1.0)])
    assert exact_rung(claim, {}).verdict == Verdict.INCONCLUSIVE
    false = ExactCase({}, 2.0, 1.0)
    refuted = dataclasses.replace(descent_claim(1), exact=lambda: [case, false])
    assert exact_rung(refuted, {}).verdict == Verdict.REFUTED


def test_no_case_certifies_nothing():
    assert (
        exact_rung(dataclasses.replace(descent_claim(1), exact=list), {}).verdict
        == Verdict.INCONCLUSIVE
    )


@pytest.mark.parametrize("package", ["PEPit", "cvxpy", "clarabel"])
def test_the_rung_is_skipped_without_the_extra(package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    report = exact_rung(descent_claim(1), {})
    assert report.verdict == Verdict.SKIPPED
    assert "pip install 'jaxlab[exact]'" in report.note


def test_the_packages_of_the_extra_are_not_imported_with_the_library():
    program = "import sys, jaxlab.claims.exact; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert not {"PEPit", "cvxpy", "clarabel", "sympy", "networkx"} & set(done.stdout.split())

"""Claims on accelerated gradient descent that is driven by a wrong gradient (C1 to C3).

They are part of the paper of ``proofs_checks/dual_sgd.py``, which lists them with its own.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from hypothesis import strategies as st
from jaxtyping import Array, Float

from jaxlab.claims import (
    Claim,
    Comparison,
    ExactCase,
    at_most,
    at_most_in_ratio,
    close_to,
)
from jaxlab.claims.exact import (
    FunctionClass,
    Setting,
    UnknownFunction,
    smooth_convex,
    solve,
    sweep,
)
from jaxlab.core import run
from jaxlab.core.types import Method
from jaxlab.optim import inexact_agd as agd
from jaxlab.problems.biased import (
    BOUNDARY,
    FAMILIES,
    Biased,
    biased_gradient,
    energy,
    within_constants,
)
from jaxlab.problems.objectives import Objective
from jaxlab.problems.sites import log_uniform, normal

KEY = jax.random.key(0)  # The methods here are deterministic: errors are part of the instance.

STRENGTH = 0.5  # Not 1, where a power of mu would not show.

KAPPAS = (4.0, 25.0, 100.0)

METHOD = agd.inexact_agd(biased_gradient)


def one_step(
    instance: Biased, hyper: agd.AGDHyper, state: agd.AGDState, error: Array
) -> agd.AGDState:
    """The library's step with the error of one step."""
    return METHOD.step(agd.Oracle(instance.x, (instance, error)), hyper, state, KEY)[0]


def midpoint_step(
    instance: Biased, hyper: agd.AGDHyper, state: agd.AGDState, error: Array
) -> agd.AGDState:
    """Bug: the gradient is asked at the mean of both sequences."""
    query = 0.5 * (state.x + state.z)
    gradient = biased_gradient(query, (instance, error), KEY)
    return agd.AGDState(*agd.accelerated_update(state.z, query, gradient, hyper))


def no_decay_step(
    instance: Biased, hyper: agd.AGDHyper, state: agd.AGDState, error: Array
) -> agd.AGDState:
    """Bug: the slow sequence keeps all of itself."""
    done = one_step(instance, hyper, state, error)
    return agd.AGDState(done.x, done.z + hyper.rate * state.z)


def energy_decrease(
    instance: Biased,
    *,
    step: Callable[..., agd.AGDState] = one_step,
    step_scale: float = 1.0,
    slow_scale: float = 1.0,
    error_sign: float = 1.0,
) -> Comparison:
    """C1: one step from anywhere."""
    hyper = agd.agd_hyper(instance.objective.strong_convexity, instance.objective.smoothness)
    error, state = instance.errors[0], agd.AGDState(instance.x, instance.z)
    fast = step(instance, hyper._replace(step_size=step_scale * hyper.step_size), state, error)
    slow = step(instance, hyper._replace(step_size=slow_scale * hyper.step_size), state, error)
    x, z = fast.x, slow.z
    before, after = energy(instance, state.x, state.z), energy(instance, x, z)
    work = hyper.rate * (error_sign * error) @ (z - instance.optimum)
    right = (1 - hyper.rate) * before - work
    return at_most(after, right, scale=before + after + jnp.abs(work))


def momentum_schedule_run(instance: Biased, hyper: agd.AGDHyper) -> agd.AGDState:
    """Bug: the momentum (k - 1)/(k + 2) of convex functions instead of the constant one."""

    def step(carry: tuple[Array, Array], indexed: tuple[Array, Array]) -> tuple[Any, None]:
        x, y = carry
        index, error = indexed
        new = y - hyper.step_size * biased_gradient(y, (instance, error), KEY)
        return (new, new + index / (index + 3) * (new - x)), None

    steps = jnp.arange(len(instance.errors), dtype=float)
    (x, y), _ = jax.lax.scan(step, (instance.x, instance.x), (steps, instance.errors))
    return agd.AGDState(x, y)


def library_run(instance: Biased, hyper: agd.AGDHyper) -> agd.AGDState:
    """All steps from ``x = z``, each with its error."""

    def step(state: agd.AGDState, error: Array) -> tuple[agd.AGDState, None]:
        return one_step(instance, hyper, state, error), None

    start = agd.AGDState(instance.x, instance.x)
    return jax.lax.scan(step, start, instance.errors)[0]


def hyper_of(
    objective: Objective, strength_exponent: float = 1.0, step_scale: float = 1.0
) -> agd.AGDHyper:
    """The theory's hyper-parameters, or wrong ones."""
    mu, smoothness = objective.strong_convexity, objective.smoothness
    step_size = step_scale * agd.agd_hyper(mu, smoothness).step_size
    return agd.AGDHyper(step_size, jnp.sqrt(mu**strength_exponent / smoothness))


def bounded_errors(
    instance: Biased,
    *,
    runner: Callable[..., agd.AGDState] = library_run,
    strength_exponent: float = 1.0,
    step_scale: float = 1.0,
) -> Comparison:
    """C2: energy and both distances after all steps, under errors of norm at most delta."""
    mu = instance.objective.strong_convexity
    delta = jnp.sqrt(jnp.sum(instance.errors**2, axis=1).max())
    end = runner(instance, hyper_of(instance.objective, strength_exponent, step_scale))
    factor = agd.energy_factor(hyper_of(instance.objective).rate) ** len(instance.errors)
    start = energy(instance, instance.x, instance.x)
    bound = factor * start + agd.energy_floor(delta, mu)
    reach = jnp.sqrt(2 * factor * start / mu) + 2 * delta / mu
    distances = [jnp.sqrt(jnp.sum((p - instance.optimum) ** 2)) for p in end]
    left = jnp.stack([energy(instance, *end), *distances])
    return at_most_in_ratio(left, jnp.stack([bound, reach, reach]))


class Bowl(NamedTuple):
    """``(mu/2) |x|^2`` seen as smooth with a larger ``L``, and a constant bias."""

    strong_convexity: Float[Array, ""]
    smoothness: Float[Array, ""]
    start: Float[Array, " dim"]
    bias: Float[Array, " dim"]


def bowl(dim: int) -> Bowl:
    """A NumPyro model of bowls."""
    mu = log_uniform("mu", 1e-2, 1e2)
    kappa = log_uniform("kappa", 1.0, 1e2)
    start, direction = normal("points", 2, dim)
    return Bowl(mu, mu * kappa, start, direction)


def round_bowl(*, dim: int) -> Bowl:
    """Condition number 1."""
    one = jnp.ones(())
    return Bowl(one, one, jnp.ones(dim), jnp.ones(dim))


def averaging(method: Method) -> Method:
    """Bug: the answer is the mean of all iterates."""

    def step(problem: Any, hyper: Any, state: Any, key: Array) -> Any:
        inner, mean, count = state
        inner, info = method.step(problem, hyper, inner, key)
        count = count + 1
        return (inner, mean + (inner.x - mean) / count, count), info

    def init(problem: Any, hyper: Any, key: Array) -> Any:
        return method.init(problem, hyper, key), problem.start, jnp.zeros(())

    return Method(init, step)


def limit_of_bias(
    instance: Bowl,
    *,
    steps: int,
    wrap: Callable[[Method], Method] | None = None,
    gradient_scale: float = 1.0,
) -> Comparison:
    """C3: two runs under opposite constant biases end at distance ``2 |e| / mu`` exactly."""

    def gradient(x: Array, bias: Array, key: Array) -> Array:
        del key
        return gradient_scale * instance.strong_convexity * x + bias

    method = agd.inexact_agd(gradient)
    hyper = agd.agd_hyper(instance.strong_convexity, instance.smoothness)

    def end(bias: Array) -> Array:
        used = method if wrap is None else wrap(method)
        state = run(used, agd.Oracle(instance.start, bias), hyper, KEY, num_steps=steps).state
        return state.x if wrap is None else state[1]

    distance = jnp.linalg.norm(end(instance.bias) - end(-instance.bias))
    expected = 2 * jnp.linalg.norm(instance.bias) / instance.strong_convexity
    return close_to(distance, expected, allowance=1e-8, scale=expected)


def unknown(kappa: float) -> UnknownFunction:
    """Any function of condition number ``kappa``."""
    return UnknownFunction(jnp.asarray(STRENGTH), jnp.asarray(STRENGTH * kappa))


def classes(kappa: float) -> dict[str, FunctionClass]:
    """What the exact rung knows of ``unknown(kappa)``."""
    return {"f": smooth_convex(STRENGTH * kappa, STRENGTH)}


def exact_energy_decrease(**variant: Any) -> list[ExactCase]:
    """C1 over the whole function class: the largest violation over ``V <= 1``, ``|e| <= 1``."""

    def case(kappa: float) -> ExactCase:
        objective = unknown(kappa)

        def violation(**points: Array) -> Array:
            said = energy_decrease(Biased(objective, **points), **variant)
            return said.left - said.right

        def conditions(**points: Array) -> tuple[Array, Array]:
            instance = Biased(objective, **points)
            before = energy(instance, instance.x, instance.z)
            return before - 1, jnp.sum(instance.errors**2) - 1

        points = {"x": (), "z": (), "errors": (1,)}
        setting = Setting(violation, conditions, classes(kappa), points, {"optimum": "f"})
        return solve(setting, parameters={"kappa": kappa}, bound=0.0)

    return sweep(case, kappa=KAPPAS)


def exact_bounded_errors(
    *,
    runner: Callable[..., agd.AGDState] = library_run,
    strength_exponent: float = 1.0,
    step_scale: float = 1.0,
) -> list[ExactCase]:
    """C2 over the whole function class, ``V_0 <= 1`` and all errors of norm at most 1/2."""
    delta = 0.5

    def case(kappa: float, steps: int) -> ExactCase:
        objective = unknown(kappa)
        used = hyper_of(objective, strength_exponent, step_scale)

        def final_energy(*, x: Array, errors: Array, optimum: Array) -> Array:
            instance = Biased(objective, optimum, x, x, errors)
            return energy(instance, *runner(instance, used))

        def conditions(*, x: Array, errors: Array, optimum: Array) -> tuple[Array, Array]:
            instance = Biased(objective, optimum, x, x, errors)
            return energy(instance, x, x) - 1, jnp.sum(errors**2, axis=1) - delta**2

        points = {"x": (), "errors": (steps,)}
        setting = Setting(final_energy, conditions, classes(kappa), points, {"optimum": "f"})
        factor = agd.energy_factor(hyper_of(objective).rate) ** steps
        bound = float(factor + agd.energy_floor(delta, STRENGTH))
        return solve(setting, parameters={"kappa": kappa, "steps": steps}, bound=bound)

    return sweep(case, kappa=KAPPAS, steps=(1, 2, 3))


# Rounding grows with the condition number, which the families bound by 1e4.
TOLERANCE = 100 * 1e4

CLAIMS = (
    Claim(
        name="dual_sgd/inexact_energy_decrease",
        statement="for every error e: V+ <= (1-q) V - q <e, z+ - x*>, q = sqrt(mu/L)",
        source=(
            "derived: descent lemma at x+, expansion of |z+ - x*|^2 around (1-q) z + q y, "
            "convexity towards x, strong convexity towards x*"
        ),
        families=FAMILIES,
        conclusion=energy_decrease,
        assumptions=within_constants,
        sizes={"dim": st.sampled_from([1, 2, 5]), "steps": st.just(1)},
        typical={"dim": 3, "steps": 1},
        boundary=BOUNDARY,
        exact=exact_energy_decrease,
        tolerance=TOLERANCE,
        tightness="tight",
        mutants={
            "gradient at the midpoint": {"step": midpoint_step},
            "slow sequence without decay": {"step": no_decay_step},
            "step 2/L": {"step_scale": 2.0},
            "slow step 1/mu": {"slow_scale": 3.0},
            "sign of the error": {"error_sign": -1.0},
        },
    ),
    Claim(
        name="dual_sgd/inexact_error_floor",
        statement="|e| <= delta: V_K <= rho^K V_0 + 2 delta^2/mu, rho = (1-q)/(1-q/2)",
        source="derived: the energy decrease, |z - x*| <= sqrt(2V/mu) and AM-GM",
        families=FAMILIES,
        conclusion=bounded_errors,
        assumptions=within_constants,
        sizes={"dim": st.sampled_from([1, 3]), "steps": st.sampled_from([1, 2, 30])},
        typical={"dim": 3, "steps": 30},
        boundary=BOUNDARY,
        exact=exact_bounded_errors,
        tolerance=TOLERANCE,
        samples=4000,
        restarts=32,
        mutants={
            "momentum of convex functions": {"runner": momentum_schedule_run},
            "mu forgotten in q": {"strength_exponent": 0.0},
            "step 3/L": {"step_scale": 3.0},
        },
    ),
    Claim(
        name="dual_sgd/bias_moves_the_limit",
        statement="f = (mu/2)|x|^2, constant biases +e and -e: the limits differ by 2|e|/mu",
        source="derived: the fixed point solves grad f + e = 0",
        families={"bowl": bowl},
        conclusion=limit_of_bias,
        assumptions=lambda instance: instance.smoothness / instance.strong_convexity - 1,
        sizes={"dim": st.sampled_from([1, 4]), "steps": st.just(600)},
        typical={"dim": 2, "steps": 600},
        boundary={"condition number 1": round_bowl},
        tightness="tight",
        samples=1000,
        restarts=8,
        mutants={
            "answer averaged over iterates": {"wrap": averaging},
            "gradient 1% too long": {"gradient_scale": 1.01},
        },
    ),
)

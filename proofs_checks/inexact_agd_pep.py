"""The exact worst case of accelerated gradient descent with errors, as semidefinite programs.

PEPit finds the worst function of the whole class, the worst errors and the worst start at once. The
method is written a second time here, on PEPit's symbolic points; a test asserts that it makes the
same steps as ``jaxlab.optim.inexact_agd``.
"""

import math
import warnings
from collections.abc import Callable
from typing import Any

from jaxlab.claims import ExactCase

try:
    import PEPit
    from PEPit.functions import SmoothStronglyConvexFunction
except ImportError as error:
    raise ImportError(
        "PEPit is not installed: pip install 'jaxlab[exact]'", name="PEPit"
    ) from error

SOLVER = "CLARABEL"


def step_on_points(
    gradient: Callable[[Any], Any],
    x: Any,
    z: Any,
    kappa: float,
    *,
    step: Callable[..., Any] | None = None,
    step_scale: float = 1.0,
    slow_scale: float = 1.0,
    rate: float | None = None,
) -> tuple[Any, Any]:
    """One step for ``mu = 1``, ``L = kappa``; ``x``, ``z`` may be points or arrays."""
    bug = "" if step is None else step.__name__
    rate = math.sqrt(1 / kappa) if rate is None else rate
    blend = 1.0 if bug == "midpoint_step" else rate
    query = (x + blend * z) / (1 + blend)
    used = gradient(query)
    slow = (1.0 if bug == "no_decay_step" else 1 - rate) * z + rate * query
    return query - step_scale / kappa * used, slow - slow_scale / (kappa * rate) * used


def worst_violation(kappa: float, *, error_sign: float = 1.0, **variant: Any) -> ExactCase:
    """The largest ``V+ - (1-q) V + q <e, z+ - x*>`` over ``V <= 1`` and ``|e| <= 1``."""
    program, function, optimum = _program(kappa)
    x, z, error = (program.set_initial_point() for _ in range(3))
    rate = math.sqrt(1 / kappa)
    new_x, new_z = step_on_points(lambda y: function.gradient(y) + error, x, z, kappa, **variant)
    before, after = (_energy(function, optimum, *pair) for pair in ((x, z), (new_x, new_z)))
    program.set_initial_condition(before <= 1)
    program.set_initial_condition(error**2 <= 1)
    work = rate * error_sign * (error * (new_z - optimum))
    program.set_performance_metric(after - (1 - rate) * before + work)
    return _solved(program, {"kappa": kappa}, bound=0.0)


def worst_energy(
    kappa: float,
    steps: int,
    *,
    runner: Callable[..., Any] | None = None,
    strength_exponent: float = 1.0,
    step_scale: float = 1.0,
) -> ExactCase:
    """The largest energy after some steps over ``V_0 <= 1`` and errors of norm at most 1/2."""
    del strength_exponent  # mu = 1 here: forgetting it changes nothing
    delta = 0.5
    program, function, optimum = _program(kappa)
    x = program.set_initial_point()
    z, previous = x, x
    program.set_initial_condition(_energy(function, optimum, x, z) <= 1)
    for index in range(steps):
        error = program.set_initial_point()
        program.set_initial_condition(error**2 <= delta**2)

        def gradient(y: Any, error: Any = error) -> Any:
            return function.gradient(y) + error

        if runner is not None and runner.__name__ == "momentum_schedule_run":
            # There z holds the extrapolated point.
            x = z - gradient(z) / kappa
            z, previous = x + index / (index + 3) * (x - previous), x
        else:
            x, z = step_on_points(gradient, x, z, kappa, step_scale=step_scale)
    program.set_performance_metric(_energy(function, optimum, x, z))
    rate = math.sqrt(1 / kappa)
    bound = ((1 - rate) / (1 - rate / 2)) ** steps + 2 * delta**2
    return _solved(program, {"kappa": kappa, "steps": steps}, bound)


def _program(kappa: float) -> tuple[Any, Any, Any]:
    program = PEPit.PEP()
    function = program.declare_function(SmoothStronglyConvexFunction, mu=1.0, L=kappa)
    return program, function, function.stationary_point()


def _energy(function: Any, optimum: Any, x: Any, z: Any) -> Any:
    return function(x) - function(optimum) + 0.5 * (z - optimum) ** 2


def _solved(program: Any, parameters: dict[str, Any], bound: float) -> ExactCase:
    """Solve; the dual value certifies, its distance from the primal one is the gap."""

    def solve(side: str) -> float | None:
        return program.solve(wrapper="cvxpy", solver=SOLVER, verbose=0, return_primal_or_dual=side)

    with warnings.catch_warnings():
        # How inaccurate a solution is, the gap tells in numbers; it decides the verdict.
        warnings.filterwarnings("ignore", message="Solution may be inaccurate")
        primal, dual = solve("primal"), solve("dual")
    if primal is None or dual is None:
        return ExactCase(parameters, math.nan, bound, math.inf)
    return ExactCase(parameters, float(dual), bound, abs(float(dual) - float(primal)))

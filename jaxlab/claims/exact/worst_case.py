"""The true worst case of a method over a class of functions, by semidefinite programming.

Drori and Teboulle (2014, arXiv:1206.3209) and Taylor, Hendrickx and Glineur (2017,
arXiv:1502.05666): the worst function, start and errors of a first-order method are the solution of
a semidefinite program in the Gram matrix of its points and gradients. PEPit (Goujaud et al. 2024,
arXiv:2201.04040) states it; here the method is the one that runs on arrays, traced by JAX.
"""

import contextlib
import functools
import io
import itertools
import math
import operator
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxlab.claims.claim import ExactCase
from jaxlab.claims.exact.extras import require
from jaxlab.claims.exact.reconstruct import (
    CONVEX_CLASSES,
    Interpolant,
    NoReplayError,
    evaluate_on,
)
from jaxlab.claims.exact.rung import REPLAY_TOLERANCE
from jaxlab.claims.exact.symbolic import PointOracle, run_symbolically
from jaxlab.claims.exact.twin import check_twin

__all__ = [
    "FunctionClass",
    "Setting",
    "Solution",
    "WorstInstance",
    "convex",
    "find_worst",
    "reconstruct",
    "replay",
    "smooth_convex",
    "solve",
    "sweep",
]

_RANK = 1e-9
"""Directions in which the points spread less, relative and squared, are the solver's rounding."""


class FunctionClass(NamedTuple):
    """A class of functions (or operators) under its name in PEPit.

    Attributes:
        name: ``"SmoothStronglyConvexFunction"``, say.
        parameters: Its constants.
    """

    name: str
    parameters: Mapping[str, float] = {}


def smooth_convex(smoothness: float, strong_convexity: float = 0.0) -> FunctionClass:
    """``L``-smooth and ``mu``-strongly convex functions.

    Raises:
        ValueError: Unless ``0 <= mu < L``.

    Example:
        >>> smooth_convex(4.0).parameters
        {'mu': 0.0, 'L': 4.0}
    """
    if not 0 <= strong_convexity < smoothness < math.inf:
        raise ValueError(
            "smoothness must be finite and above strong_convexity >= 0, got "
            f"{smoothness} and {strong_convexity}"
        )
    parameters = {"mu": float(strong_convexity), "L": float(smoothness)}
    return FunctionClass("SmoothStronglyConvexFunction", parameters)


def convex(strong_convexity: float = 0.0) -> FunctionClass:
    """Closed convex functions, ``mu``-strongly convex ones if ``mu > 0``.

    Raises:
        ValueError: ``mu`` is negative.

    Example:
        >>> convex().name
        'ConvexFunction'
    """
    if not 0 <= strong_convexity < math.inf:
        raise ValueError(f"strong_convexity must be at least 0, got {strong_convexity}")
    if strong_convexity == 0:
        return FunctionClass("ConvexFunction")
    return FunctionClass("StronglyConvexFunction", {"mu": float(strong_convexity)})


class Setting(NamedTuple):
    """A worst case to find: ``max metric(**points)`` subject to ``conditions(**points) <= 0``.

    Attributes:
        metric: Of the points by name, vectors of shape ``(dim,)`` or stacks ``(n, dim)`` of them;
            it runs the method and returns a scalar.
        conditions: Likewise; any tree of scalars, each of which must not be positive.
        functions: The unknown functions' classes, by the name under which they are asked.
        points: The shapes of the free points without their last axis: ``()`` is one point.
        optima: Points at which a function is stationary: ``{"optimum": "f"}``. Sums are written
            ``"f + g"``.
    """

    metric: Callable[..., Any]
    conditions: Callable[..., Any]
    functions: Mapping[str, FunctionClass]
    points: Mapping[str, tuple[int, ...]]
    optima: Mapping[str, str] = {}


class WorstInstance(NamedTuple):
    """An instance that attains the worst case, as numbers.

    Attributes:
        points: Arrays by name, in as many dimensions as the worst case needs.
        functions: Functions by name.
    """

    points: Mapping[str, np.ndarray]
    functions: Mapping[str, Interpolant]


class Solution(NamedTuple):
    """Both values of the semidefinite program, and where it is attained.

    Attributes:
        primal: What the solved points attain; NaN if the solver failed or there is no maximum.
        dual: The certified upper bound.
        points: PEPit's points by name, solved.
        functions: PEPit's functions by name, with the data that the solver gave them.
    """

    primal: float
    dual: float
    points: Mapping[str, np.ndarray]
    functions: Mapping[str, Any]


def solve(
    setting: Setting,
    *,
    parameters: Mapping[str, Any],
    bound: float,
    twin: Callable[..., Any] | None = None,
    solver: str = "CLARABEL",
) -> ExactCase:
    """The exact case of a claim: the worst value, certified by duality and attained by an instance.

    The worst instance is reconstructed and the method runs on it in NumPy, where the classes allow
    (``reconstruct``). ``ExactCase.replayed`` is what it reaches there.

    Args:
        setting: What is maximised over what.
        parameters: What the case is called in reports.
        bound: What the claim says of the worst value.
        twin: ``(functions, **points) -> (metric, conditions)`` on points, where the setting's own
            cannot be traced onto them; it is held to them on quadratics first (``check_twin``).
        solver: One that CVXPY knows.

    Raises:
        NotSymbolicError: The method is not linear in points and gradients.
        TwinError: The twin does something else than the method.
        ImportError: PEPit is not installed.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxlab.claims.exact import gradient, value
        >>> setting = Setting(
        ...     metric=lambda x, best: value(x - gradient(x)) - value(best),
        ...     conditions=lambda x, best: jnp.sum((x - best) ** 2) - 1,
        ...     functions={"f": smooth_convex(1.0)}, points={"x": ()}, optima={"best": "f"},
        ... )
        >>> case = solve(setting, parameters={"steps": 1}, bound=1 / 6)
        >>> round(case.worst, 6), round(case.replayed, 4)
        (0.166667, 0.1667)
    """
    solution = find_worst(setting, twin=twin, solver=solver)
    if math.isnan(solution.primal):
        return ExactCase(parameters, math.nan, bound, math.inf)
    case = ExactCase(parameters, solution.dual, bound, abs(solution.dual - solution.primal))
    try:
        instance = reconstruct(setting, solution)
        return case._replace(replayed=replay(setting, instance))
    except NoReplayError:
        return case


def find_worst(
    setting: Setting, *, twin: Callable[..., Any] | None = None, solver: str = "CLARABEL"
) -> Solution:
    """State and solve the semidefinite program; see ``solve``."""
    program = require("PEPit").PEP()
    functions = {
        name: program.declare_function(_pepit_class(kind.name), **kind.parameters)
        for name, kind in setting.functions.items()
    }
    points = {
        name: _stack(shape, program.set_initial_point) for name, shape in setting.points.items()
    }
    for name, of in setting.optima.items():
        terms = [functions[term.strip()] for term in of.split("+")]
        points[name] = _stack((), functools.reduce(operator.add, terms).stationary_point)
    if twin is None:
        metric, conditions = run_symbolically(
            lambda **points: (setting.metric(**points), setting.conditions(**points)),
            points, functions,
        )  # fmt: skip
    else:
        check_twin(setting, twin)
        oracles = {name: PointOracle(function) for name, function in functions.items()}
        single = {name: p if p.ndim else p.item() for name, p in points.items()}
        metric, conditions = twin(oracles, **single)
    for condition in _scalars(conditions):
        program.set_initial_condition(condition <= 0)
    program.set_performance_metric(metric)
    dual = _solve(program, solver)
    primal = math.nan if dual is None else float(metric.eval())
    return Solution(primal, math.nan if dual is None else float(dual), points, functions)


def _solve(program: Any, solver: str) -> float | None:
    failed = require("cvxpy").error.SolverError
    if solver == "CLARABEL":
        require("clarabel")
    # How inaccurate a solution is, the gap tells in numbers; it decides the verdict.
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.filterwarnings("ignore", message="Solution may be inaccurate")
        try:
            return program.solve(wrapper="cvxpy", solver=solver, verbose=0)
        except failed:
            return None


def _stack(shape: tuple[int, ...], make: Callable[[], Any]) -> np.ndarray:
    stack = np.empty(shape, dtype=object)
    for index in np.ndindex(shape):
        stack[index] = make()
    return stack


def _scalars(tree: Any) -> list[Any]:
    return [entry for leaf in jax.tree.leaves(tree) for entry in np.array(leaf, dtype=object).flat]


def _pepit_class(name: str) -> Any:
    for module in ("PEPit.functions", "PEPit.operators"):
        found = getattr(require(module), name, None)
        if found is not None:
            return found
    raise ValueError(f"name must be a class of PEPit.functions or PEPit.operators, got {name!r}")


def reconstruct(setting: Setting, solution: Solution) -> WorstInstance:
    """The worst instance in numbers, in the dimension that it needs.

    Raises:
        NoReplayError: A class has no reconstruction here (only convex functions have).
    """
    constants = {name: _constants(kind) for name, kind in setting.functions.items()}
    data = {name: f.list_of_points for name, f in solution.functions.items()}
    vectors = [p.eval() for stack in solution.points.values() for p in stack.flat]
    vectors += [v.eval() for triplets in data.values() for x, g, _ in triplets for v in (x, g)]
    frame = _frame(np.stack(vectors))

    def interpolant(name: str) -> Interpolant:
        xs, gs, fs = zip(*data[name], strict=True)
        return Interpolant(
            np.stack([x.eval() @ frame for x in xs]),
            np.stack([g.eval() @ frame for g in gs]),
            np.array([float(f.eval()) for f in fs]),
            **constants[name],
        )

    points = {
        name: np.stack([p.eval() @ frame for p in stack.flat]).reshape((*stack.shape, -1))
        for name, stack in solution.points.items()
    }
    return WorstInstance(points, {name: interpolant(name) for name, xs in data.items() if xs})


def _frame(vectors: np.ndarray) -> np.ndarray:
    """An orthonormal basis of the directions in which the vectors spread; at least one."""
    _, sizes, directions = np.linalg.svd(vectors, full_matrices=False)
    needed = max(1, int(np.sum(sizes**2 > _RANK * sizes[0] ** 2)))
    return directions[:needed].T


def _constants(kind: FunctionClass) -> dict[str, float]:
    if kind.name not in CONVEX_CLASSES:
        raise NoReplayError(f"no reconstruction for the class {kind.name}")
    names = {"mu": "strong_convexity", "L": "smoothness"}
    return {names[name]: constant for name, constant in kind.parameters.items()}


def replay(setting: Setting, instance: WorstInstance) -> float:
    """What the method reaches on an instance, in NumPy; NaN if the instance breaks a condition.

    Raises:
        NoReplayError: The method asks for what the reconstruction cannot answer.
    """
    metric, conditions = evaluate_on(
        lambda **points: (setting.metric(**points), setting.conditions(**points)),
        instance.points,
        instance.functions,
    )
    kept = all(condition <= REPLAY_TOLERANCE for condition in _scalars(conditions))
    return float(metric) if kept else math.nan


def sweep(case: Callable[..., ExactCase], **grids: Iterable[Any]) -> list[ExactCase]:
    """``case`` at every combination of parameters.

    Example:
        >>> from jaxlab.claims.claim import ExactCase
        >>> cases = sweep(lambda n, m: ExactCase({}, float(n * m), 6.0), n=[1, 2], m=[3])
        >>> [case.worst for case in cases]
        [3.0, 6.0]
    """
    combinations = itertools.product(*grids.values())
    return [case(**dict(zip(grids, values, strict=True))) for values in combinations]

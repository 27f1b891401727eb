"""A function with given values and gradients at given points, to run a method on in NumPy.

With weights ``a`` on the simplex, the function is the least of what interpolation leaves open
(Drori 2017, arXiv:1512.02383; Taylor, Hendrickx and Glineur 2017, arXiv:1502.05666):

* ``L``-smooth: ``min_a L/2 |x - sum_i a_i (x_i - g_i/L)|^2 + sum_i a_i (f_i - |g_i|^2 / 2L)``;
* convex only: ``max_i f_i + <g_i, x - x_i>``;
* ``mu``-strongly convex: one of both plus ``mu/2 |x|^2``.

It belongs to its class whatever the data are, so what a method reaches on it bounds the worst case
from below. It has the given values and gradients as far as the data meet the interpolation
conditions.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
import scipy.sparse

from jaxlab.claims.control import run_program, trace
from jaxlab.claims.evaluate import precise
from jaxlab.claims.exact.extras import require
from jaxlab.claims.exact.oracles import ORACLES
from jaxlab.claims.outside import apply_outside

__all__ = ["CONVEX_CLASSES", "Interpolant", "NoReplayError", "evaluate_on", "least_on_simplex"]

CONVEX_CLASSES = frozenset(
    ["ConvexFunction", "SmoothConvexFunction", "SmoothStronglyConvexFunction",
     "StronglyConvexFunction"]
)  # fmt: skip
"""PEPit's classes whose functions can be reconstructed; the constants are ``mu`` and ``L``."""

_ACCURACY = 1e-12
"""Asked of the quadratic programs; their solutions enter the next step of the method."""


class NoReplayError(ValueError):
    """A function's class, or what is asked of it, has no reconstruction here."""


class Interpolant(NamedTuple):
    """A function of the class that agrees with the data.

    Attributes:
        points: ``x_i``, shape ``(n, dim)``.
        gradients: ``g_i``, shape ``(n, dim)``.
        values: ``f_i``, shape ``(n,)``.
        smoothness: ``L``; infinity if it is convex only.
        strong_convexity: ``mu < L``.

    Example:
        >>> bowl = Interpolant(np.eye(1), np.eye(1), np.array([0.5]), smoothness=1.0)
        >>> x = np.array([3.0])
        >>> round(float(bowl.value(x)), 6), bowl.gradient(x).round(6).tolist()
        (4.5, [3.0])
    """

    points: np.ndarray
    gradients: np.ndarray
    values: np.ndarray
    smoothness: float = np.inf
    strong_convexity: float = 0.0

    def value(self, x: np.ndarray) -> float:
        """``f(x)``."""
        strong = self.strong_convexity / 2 * x @ x
        points, gradients, values = self._rest()
        if self.smoothness == np.inf:
            return float(np.max(values + np.sum(gradients * (x - points), axis=1)) + strong)
        centres, heights, curvature = self._pieces()
        weights = least_on_simplex(centres, x, curvature, heights)
        apart = curvature / 2 * np.sum((x - weights @ centres) ** 2)
        return float(apart + weights @ heights + strong)

    def gradient(self, x: np.ndarray) -> np.ndarray:
        """The gradient at ``x``.

        Raises:
            NoReplayError: The function is convex only; which subgradient a method was given, a
                maximum of affine functions does not tell.
        """
        if self.smoothness == np.inf:
            raise NoReplayError("a subgradient of a convex function is not unique")
        centres, heights, curvature = self._pieces()
        weights = least_on_simplex(centres, x, curvature, heights)
        return curvature * (x - weights @ centres) + self.strong_convexity * x

    def proximal(self, x: np.ndarray, step_size: Any) -> np.ndarray:
        """``argmin_y f(y) + |y - x|^2 / (2 step_size)``."""
        # mu/2 |y|^2 + |y - x|^2 / (2 step) is pull/2 |y - target|^2 and a constant.
        pull = self.strong_convexity + 1 / step_size
        target = x / (step_size * pull)
        if self.smoothness == np.inf:
            points, gradients, values = self._rest()
            heights = values - np.sum(gradients * points, axis=1)
            weights = least_on_simplex(gradients, pull * target, 1 / pull, -heights)
            return target - weights @ gradients / pull
        centres, heights, curvature = self._pieces()
        joint = curvature * pull / (curvature + pull)
        weights = least_on_simplex(centres, target, joint, heights)
        return (curvature * weights @ centres + pull * target) / (curvature + pull)

    def _rest(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The data of the function without its strongly convex part."""
        mu, points = self.strong_convexity, self.points
        gradients = self.gradients - mu * points
        return points, gradients, self.values - mu / 2 * np.sum(points**2, axis=1)

    def _pieces(self) -> tuple[np.ndarray, np.ndarray, float]:
        """Centres and least values of the parabolas, and their common curvature."""
        points, gradients, values = self._rest()
        curvature = self.smoothness - self.strong_convexity
        centres = points - gradients / curvature
        return centres, values - np.sum(gradients**2, axis=1) / (2 * curvature), curvature


def least_on_simplex(
    centres: np.ndarray, target: np.ndarray, curvature: float, heights: np.ndarray
) -> np.ndarray:
    """Weights that minimise ``curvature/2 |target - sum_i a_i centres_i|^2 + sum_i a_i heights_i``.

    Args:
        centres: Shape ``(n, dim)``.
        target: Shape ``(dim,)``.
        curvature: Positive.
        heights: Shape ``(n,)``.

    Returns:
        Non-negative weights of sum 1, shape ``(n,)``; NaN if the solver failed.

    Raises:
        ImportError: Clarabel is not installed.

    Example:
        >>> corners = np.array([[0.0], [1.0], [5.0]])
        >>> least_on_simplex(corners, np.array([0.25]), 1.0, np.array([0.0, 0.0, 9.0])).round(6)
        array([0.75, 0.25, 0.  ])
    """
    clarabel = require("clarabel")
    num = len(heights)
    offsets = centres - target
    # Free of scale, so that the accuracy is relative.
    scale = max(curvature * np.abs(offsets @ offsets.T).max(), np.ptp(heights), 1e-300)
    quadratic = curvature * offsets @ offsets.T / scale
    linear = (heights - heights.min()) / scale
    constraints = scipy.sparse.csc_matrix(np.vstack([np.ones(num), -np.eye(num)]))
    right = np.concatenate([[1.0], np.zeros(num)])
    cones = [clarabel.ZeroConeT(1), clarabel.NonnegativeConeT(num)]
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = _ACCURACY
    upper = scipy.sparse.csc_matrix(np.triu(quadratic))
    solution = clarabel.DefaultSolver(upper, linear, constraints, right, cones, settings).solve()
    if "Solved" not in str(solution.status):
        return np.full(num, np.nan)
    weights = np.maximum(solution.x, 0.0)
    return _polish(weights / weights.sum(), quadratic, linear)


def _polish(weights: np.ndarray, quadratic: np.ndarray, linear: np.ndarray) -> np.ndarray:
    """The exact minimum over the weights that an interior point leaves away from zero.

    An objective within 1e-12 of its minimum leaves the weights, and so the gradient, wrong by 1e-6.
    """

    def objective(a: np.ndarray) -> Any:
        return a @ quadratic @ a / 2 + linear @ a

    support = np.flatnonzero(weights > 10 * math.sqrt(_ACCURACY))
    while len(support):
        size = len(support)
        system = np.block(
            [
                [quadratic[np.ix_(support, support)], np.ones((size, 1))],
                [np.ones((1, size)), np.zeros((1, 1))],
            ]
        )
        right = np.append(-linear[support], 1.0)
        found = np.linalg.lstsq(system, right, rcond=None)[0][:size]
        if (found >= 0).all():
            exact = np.zeros_like(weights)
            exact[support] = found / found.sum()
            return exact if objective(exact) <= objective(weights) else weights
        support = support[found > 0]
    return weights


def evaluate_on(
    function: Callable[..., Any],
    points: Mapping[str, np.ndarray],
    functions: Mapping[str, Any],
) -> Any:
    """``function(**points)`` in NumPy, with given functions in the place of the unknown ones.

    Args:
        function: Traceable by JAX; it asks unknown functions through ``jaxlab.claims.exact``.
        points: Arrays by name.
        functions: What answers, by the name under which it is asked; an ``Interpolant``, say.

    Raises:
        NoReplayError: A function cannot answer.

    Example:
        >>> from jaxlab.claims.exact import gradient
        >>> bowl = Interpolant(np.eye(1), np.eye(1), np.array([0.5]), smoothness=1.0)
        >>> evaluate_on(lambda x: x - gradient(x) / 2, {"x": np.ones(1)}, {"f": bowl}).round(6)
        array([0.5])
    """

    def apply(equation: Any, args: list[Any]) -> list[Any]:
        if equation.primitive in ORACLES:
            answer = getattr(functions[equation.params["function"]], equation.primitive.name)
            return [_over_stacks(answer, *args)]
        return apply_outside(equation, args, run)

    def run(closed: Any, args: list[Any]) -> list[Any]:
        return run_program(closed, args, apply)

    with precise():
        closed, structure = trace(lambda inputs: function(**inputs), dict(points))
        out = run(closed, [np.asarray(leaf) for leaf in jax.tree.leaves(dict(points))])
    return jax.tree.unflatten(structure, out)


def _over_stacks(answer: Callable[..., Any], x: np.ndarray, *rest: Any) -> np.ndarray:
    """An answer for each point of a stack; what else is asked has the stack's shape or none."""
    if x.ndim == 1:
        return np.asarray(answer(x, *rest))
    rows = [(x[i], *(r[i] if r.ndim else r for r in rest)) for i in range(len(x))]
    return np.stack([_over_stacks(answer, *row) for row in rows])

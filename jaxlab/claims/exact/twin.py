"""A method written a second time, on points, where its own step cannot be traced onto them.

A twin is ``twin(functions, **points) -> (metric, conditions)``. Each function has ``gradient(x)``,
``value(x)`` and ``proximal(x, step_size)``; ``x * y`` is an inner product and ``x**2`` a squared
norm, as in PEPit. Before a twin stands in for a method, both run on random quadratics.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxlab.claims.exact.reconstruct import CONVEX_CLASSES, evaluate_on

__all__ = ["Quadratic", "TwinError", "Vector", "check_twin"]


class TwinError(ValueError):
    """A twin does not do what its method does."""


class Quadratic(NamedTuple):
    """``<x - centre, hessian (x - centre)> / 2``.

    Attributes:
        hessian: Symmetric, shape ``(dim, dim)``.
        centre: Shape ``(dim,)``.

    Example:
        >>> Quadratic(np.eye(1), np.zeros(1)).proximal(np.array([3.0]), 2.0)
        array([1.])
    """

    hessian: np.ndarray
    centre: np.ndarray

    def value(self, x: np.ndarray) -> float:
        """The value."""
        return float((x - self.centre) @ self.hessian @ (x - self.centre) / 2)

    def gradient(self, x: np.ndarray) -> np.ndarray:
        """The gradient."""
        return self.hessian @ (x - self.centre)

    def proximal(self, x: np.ndarray, step_size: Any) -> np.ndarray:
        """``argmin_y f(y) + |y - x|^2 / (2 step_size)``."""
        system = np.eye(len(x)) + step_size * self.hessian
        return np.linalg.solve(system, x + step_size * self.hessian @ self.centre)


@dataclasses.dataclass(frozen=True, eq=False)
class Vector:
    """An array that is added and multiplied as PEPit's points are.

    Attributes:
        array: Shape ``(dim,)``.

    Example:
        >>> x = Vector(np.array([3.0, 4.0]))
        >>> float(x**2), float(x * (x - 2 * x))
        (25.0, -25.0)
    """

    array: np.ndarray

    def __add__(self, other: "Vector") -> "Vector":
        return Vector(self.array + other.array)

    def __sub__(self, other: "Vector") -> "Vector":
        return Vector(self.array - other.array)

    def __neg__(self) -> "Vector":
        return Vector(-self.array)

    def __mul__(self, other: Any) -> Any:
        return self.array @ other.array if isinstance(other, Vector) else Vector(self.array * other)

    __rmul__ = __mul__

    def __truediv__(self, other: float) -> "Vector":
        return Vector(self.array / other)

    def __pow__(self, power: int) -> Any:
        if power != 2:
            raise ValueError(f"power must be 2, a squared norm, got {power}")
        return self * self


class _OnVectors(NamedTuple):
    """A quadratic that is asked by a twin."""

    quadratic: Quadratic

    def value(self, x: Vector) -> float:
        return self.quadratic.value(x.array)

    def gradient(self, x: Vector) -> Vector:
        return Vector(self.quadratic.gradient(x.array))

    def proximal(self, x: Vector, step_size: float) -> Vector:
        return Vector(self.quadratic.proximal(x.array, step_size))


def check_twin(
    setting: Any,
    twin: Callable[..., Any],
    *,
    tolerance: float = 1e-9,
    num_trials: int = 3,
    seed: int = 0,
) -> None:
    """Assert that a twin has its method's metric and conditions on random quadratics.

    Args:
        setting: A ``Setting``, whose metric runs the method.
        twin: ``(functions, **points) -> (metric, conditions)``.
        tolerance: Relative to the largest number that both give, or 1.
        num_trials: How many quadratics, in 1, 2, 3, ... dimensions.
        seed: Of the quadratics and points.

    Raises:
        TwinError: They differ; or a class holds no quadratics.
    """
    rng = np.random.default_rng(seed)
    for dim in range(1, num_trials + 1):
        quadratics = {name: _draw(rng, dim, kind) for name, kind in setting.functions.items()}
        points = {name: rng.normal(size=(*s, dim)) for name, s in setting.points.items()}
        for name, of in setting.optima.items():
            points[name] = _stationary([quadratics[term.strip()] for term in of.split("+")])
        said = evaluate_on(
            lambda **points: (setting.metric(**points), setting.conditions(**points)),
            points, quadratics,
        )  # fmt: skip
        vectors = {name: _vectors(array) for name, array in points.items()}
        functions = {name: _OnVectors(quadratic) for name, quadratic in quadratics.items()}
        other = twin(functions, **vectors)
        _compare(_numbers(said), _numbers(other), tolerance)


def _draw(rng: np.random.Generator, dim: int, kind: Any) -> Quadratic:
    """A quadratic whose curvatures reach both constants; ``mu + 1`` where there is no ``L``."""
    if kind.name not in CONVEX_CLASSES:
        raise TwinError(f"no quadratics to compare on in the class {kind.name}")
    low = kind.parameters.get("mu", 0.0)
    high = kind.parameters.get("L", low + 1.0)
    curvatures = np.concatenate([[high], [low], rng.uniform(low, high, dim)])[:dim]
    frame = np.linalg.qr(rng.normal(size=(dim, dim)))[0]
    return Quadratic(frame * curvatures @ frame.T, rng.normal(size=dim))


def _stationary(quadratics: list[Quadratic]) -> np.ndarray:
    hessian = np.sum([q.hessian for q in quadratics], axis=0)
    right = np.sum([q.hessian @ q.centre for q in quadratics], axis=0)
    return np.linalg.lstsq(hessian, right, rcond=None)[0]


def _vectors(array: np.ndarray) -> Any:
    """One vector, or an object array of them."""
    rows = array.reshape(-1, array.shape[-1])
    stack = np.empty(len(rows), dtype=object)
    stack[:] = [Vector(row) for row in rows]
    return stack[0] if array.ndim == 1 else stack.reshape(array.shape[:-1])


def _numbers(said: tuple[Any, Any]) -> list[np.ndarray]:
    """The metric, and all conditions in order."""
    metric, conditions = said
    leaves = [np.asarray(leaf, dtype=float).ravel() for leaf in jax.tree.leaves(conditions)]
    return [np.asarray(metric, dtype=float).ravel(), np.concatenate(leaves or [np.zeros(0)])]


def _compare(said: list[np.ndarray], other: list[np.ndarray], tolerance: float) -> None:
    for name, first, second in zip(("metric", "conditions"), said, other, strict=True):
        if first.shape != second.shape:
            raise TwinError(f"{name}: the method has {first.size} numbers, the twin {second.size}")
        scale = max(1.0, *np.abs(first), *np.abs(second))
        if not np.all(np.abs(first - second) <= tolerance * scale):
            raise TwinError(f"{name}: the method gives {first}, the twin {second}")

"""Smooth convex functions in random families whose constants and minimisers are known exactly.

The minimiser of a tilted function is free to choose: for any smooth convex ``g`` and point ``x*``,
``g(x) - <grad g(x*), x>`` is minimal at ``x*``, and its gap is the Bregman divergence of ``g``. So
instances need no solver, and nothing is lost to its tolerance.
"""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array, Float

from jaxlab.problems.quadratic import rotation
from jaxlab.problems.sites import log_uniform, normal, site

__all__ = [
    "DiagonalQuadratic",
    "FullQuadratic",
    "HuberRidge",
    "LogisticRidge",
    "Objective",
    "curvature_slack",
    "draw_diagonal",
    "draw_huber",
    "draw_logistic",
    "draw_quadratic",
    "gap",
]

Point = Float[Array, " dim"]


class Objective(eqx.Module):
    """A twice differentiable function with known constants.

    Attributes:
        strong_convexity: ``mu >= 0``.
        smoothness: ``L``.
    """

    strong_convexity: eqx.AbstractVar[Float[Array, ""]]
    smoothness: eqx.AbstractVar[Float[Array, ""]]

    @abc.abstractmethod
    def value(self, x: Point) -> Float[Array, ""]:
        """The function's value."""

    def gradient(self, x: Point) -> Point:
        """The gradient."""
        return jax.grad(self.value)(x)

    def divergence(self, x: Point, y: Point) -> Float[Array, ""]:
        """The Bregman divergence, ``f(x) - f(y) - <grad f(y), x - y>``; at least 0."""
        # A difference of values: rounding alone can make it negative where both points agree.
        return jnp.maximum(self.bregman(x, y), 0.0)

    def bregman(self, x: Point, y: Point) -> Float[Array, ""]:
        """The formula of ``divergence`` as it is written."""
        return self.value(x) - self.value(y) - self.gradient(y) @ (x - y)


class DiagonalQuadratic(Objective):
    """``sum_i h_i x_i^2 / 2``; rotation-equivariant methods need no other quadratic."""

    curvature: Point
    strong_convexity: Float[Array, ""]
    smoothness: Float[Array, ""]

    def value(self, x: Point) -> Float[Array, ""]:
        """The function's value."""
        return 0.5 * jnp.sum(self.curvature * x**2)

    def divergence(self, x: Point, y: Point) -> Float[Array, ""]:
        """Without the cancellation of values."""
        return self.value(x - y)


class FullQuadratic(Objective):
    """``<x, H x> / 2``."""

    hessian: Float[Array, "dim dim"]
    strong_convexity: Float[Array, ""]
    smoothness: Float[Array, ""]

    def value(self, x: Point) -> Float[Array, ""]:
        """The function's value."""
        return 0.5 * x @ self.hessian @ x

    def divergence(self, x: Point, y: Point) -> Float[Array, ""]:
        """Without the cancellation of values."""
        return self.value(x - y)


class LogisticRidge(Objective):
    """``sum_j log(1 + exp(a_j x)) + mu |x|^2 / 2``, with ``|A|^2 / 4 = L - mu``."""

    rows: Float[Array, "rows dim"]
    strong_convexity: Float[Array, ""]
    smoothness: Float[Array, ""]

    def value(self, x: Point) -> Float[Array, ""]:
        """The function's value."""
        ridge = 0.5 * self.strong_convexity * jnp.sum(x**2)
        return jax.nn.softplus(self.rows @ x).sum() + ridge


class HuberRidge(Objective):
    """``mu |x|^2 / 2`` and a Huber function of curvature ``L - mu`` around shifted centres.

    It is quadratic on one side of the threshold and nearly flat on the other, as worst cases are.
    """

    centre: Point
    threshold: Float[Array, ""]
    strong_convexity: Float[Array, ""]
    smoothness: Float[Array, ""]

    def value(self, x: Point) -> Float[Array, ""]:
        """The function's value."""
        offset = jnp.abs(x - self.centre)
        inside = jnp.minimum(offset, self.threshold)
        huber = inside * offset - 0.5 * inside**2
        steep = (self.smoothness - self.strong_convexity) * huber.sum()
        return steep + 0.5 * self.strong_convexity * jnp.sum(x**2)


def gap(objective: Objective, x: Point, optimum: Point) -> Float[Array, ""]:
    """``f(x) - f(x*)`` of the function tilted to be minimal at ``optimum``; at least 0.

    Example:
        >>> bowl = DiagonalQuadratic(jnp.ones(1), jnp.array(1.0), jnp.array(1.0))
        >>> float(gap(bowl, jnp.array([3.0]), jnp.array([1.0])))
        2.0
    """
    return objective.divergence(x, optimum)


def curvature_slack(objective: Objective, *points: Point) -> Float[Array, ""]:
    """How well the Hessians at ``points`` stay within the stated constants, relative to ``L``."""

    def slack(x: Point) -> Float[Array, ""]:
        eigenvalues = jnp.linalg.eigvalsh(jax.hessian(objective.value)(x))
        low = eigenvalues[0] - objective.strong_convexity
        high = objective.smoothness - eigenvalues[-1]
        return jnp.minimum(low, high) / objective.smoothness

    return jax.vmap(slack)(jnp.stack(points)).min()


def draw_diagonal(name: str, dim: int, strong_convexity: Array, smoothness: Array) -> Objective:
    """NumPyro sites of a quadratic that reaches both constants (one dimension reaches ``mu``)."""
    position = site(f"{name}_position", dist.Uniform(0.0, 1.0).expand([dim]))
    position = position.at[-1].set(1.0).at[0].set(0.0)
    # Log-uniform where mu > 0; a convex function's spectrum reaches down to zero.
    ratio = smoothness / jnp.where(strong_convexity > 0, strong_convexity, 1e-6 * smoothness)
    curvature = smoothness * ratio ** (position - 1)
    curvature = curvature.at[-1].set(smoothness).at[0].set(strong_convexity)
    return DiagonalQuadratic(curvature, strong_convexity, smoothness)


def draw_quadratic(name: str, dim: int, strong_convexity: Array, smoothness: Array) -> Objective:
    """NumPyro sites of a quadratic in random directions that reaches both constants."""
    diagonal = draw_diagonal(name, dim, strong_convexity, smoothness)
    assert isinstance(diagonal, DiagonalQuadratic)
    frame = rotation(normal(f"{name}_frame", dim, dim))
    hessian = (frame * diagonal.curvature) @ frame.T
    return FullQuadratic(hessian, strong_convexity, smoothness)


def draw_logistic(
    name: str, dim: int, strong_convexity: Array, smoothness: Array, *, num_rows: int = 4
) -> Objective:
    """NumPyro sites of a logistic loss with ridge whose Hessian bound is ``smoothness``."""
    raw = normal(f"{name}_rows", num_rows, dim)
    largest = jnp.linalg.eigvalsh(raw.T @ raw)[-1]
    rows = raw * jnp.sqrt(4 * (smoothness - strong_convexity) / (largest + 1e-12))
    return LogisticRidge(rows, strong_convexity, smoothness)


def draw_huber(name: str, dim: int, strong_convexity: Array, smoothness: Array) -> Objective:
    """NumPyro sites of a Huber function with ridge."""
    centre = normal(f"{name}_centre", dim)
    threshold = log_uniform(f"{name}_threshold", 1e-2, 1e1)
    return HuberRidge(centre, threshold, strong_convexity, smoothness)

"""Instances for methods that are driven by wrong gradients, as NumPyro models."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxlab.problems import objectives
from jaxlab.problems.sites import log_uniform, normal

__all__ = [
    "BOUNDARY",
    "FAMILIES",
    "Biased",
    "biased_gradient",
    "corner",
    "energy",
    "make_family",
    "within_constants",
]


class Biased(NamedTuple):
    """A function, where it is minimal, where the method stands, and the errors it will meet."""

    objective: objectives.Objective
    optimum: Float[Array, " dim"]
    x: Float[Array, " dim"]
    z: Float[Array, " dim"]
    errors: Float[Array, "steps dim"]


def make_family(draw_objective: Callable[..., Any]) -> Callable[..., Biased]:
    """A NumPyro model of ``Biased`` instances over one family of objectives."""

    def model(dim: int, steps: int) -> Biased:
        mu = log_uniform("mu", 1e-2, 1e1)
        kappa = log_uniform("kappa", 1.0, 1e4)
        objective = draw_objective("f", dim, mu, mu * kappa)
        optimum, x, z = normal("points", 3, dim)
        size = log_uniform("error_size", 1e-6, 1e0)
        errors = size * normal("errors", steps, dim)
        return Biased(objective, optimum, x, z, errors)

    return model


def corner(*, dim: int, steps: int, error: float) -> Biased:
    """Condition number 1, all points on a line, constant errors: no open family reaches it."""
    bowl = objectives.DiagonalQuadratic(jnp.ones(dim), jnp.array(1.0), jnp.array(1.0))
    line = jnp.ones(dim)
    return Biased(bowl, 0 * line, line, line, error * jnp.ones((steps, dim)))


def within_constants(instance: Biased) -> Array:
    """The Hessians stay within the constants wherever the method may start or end."""
    return objectives.curvature_slack(instance.objective, instance.optimum, instance.x, instance.z)


def energy(instance: Biased, x: Array, z: Array) -> Array:
    """``f(x) - f* + (mu/2) |z - x*|^2``."""
    strength = instance.objective.strong_convexity
    distance = jnp.sum((z - instance.optimum) ** 2)
    return objectives.gap(instance.objective, x, instance.optimum) + strength / 2 * distance


def biased_gradient(x: Array, data: tuple[Biased, Array], key: Array) -> Array:
    """The tilted function's gradient, plus the error of this step."""
    del key
    instance, error = data
    exact = instance.objective.gradient(x) - instance.objective.gradient(instance.optimum)
    return exact + error


FAMILIES = {
    "quadratic": make_family(objectives.draw_diagonal),
    "logistic": make_family(objectives.draw_logistic),
    "huber": make_family(objectives.draw_huber),
}
"""Models of ``Biased`` instances by the kind of their objective."""

BOUNDARY = {
    "condition number 1": lambda *, dim, steps: corner(dim=dim, steps=steps, error=1.0),
    "no error": lambda *, dim, steps: corner(dim=dim, steps=steps, error=0.0),
}
"""Instances that the families reach with probability 0."""

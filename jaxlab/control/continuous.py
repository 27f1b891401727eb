r"""Linear feedback of a system in continuous time: its cost, its gradient and its optimum.

For :math:`x' = Ax + Bu` with :math:`u = -Kx` the cost from :math:`x_0` is

.. math::
    \int_0^\infty (x^T Q x + u^T R u)\,dt = x_0^T P x_0, \qquad
    A_K^T P + P A_K + Q + K^T R K = 0, \quad A_K = A - BK .

It is a smooth function of the gain where :math:`A_K` is stable, so that policies are tuned by
``jax.grad``; its gradient is :math:`2(RK - B^TP)\,\Sigma` with
:math:`A_K\Sigma + \Sigma A_K^T + x_0x_0^T = 0`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxlab.core.checks import check_count, check_value
from jaxlab.core.types import Scalar
from jaxlab.stats.elimination import eliminate

__all__ = ["Plant", "QuadraticCost", "feedback_cost", "lyapunov", "optimal_gain", "spring"]


class Plant(NamedTuple):
    """``x' = A x + B u``. Attributes: transition: ``A``; inputs: ``B``."""

    transition: Float[Array, "dim dim"]
    inputs: Float[Array, "dim inputs"]


class QuadraticCost(NamedTuple):
    """``x'Qx + u'Ru``. Attributes: state: ``Q``, convex; input: ``R``, strictly convex."""

    state: Float[Array, "dim dim"]
    input: Float[Array, "inputs inputs"]


def spring(mass: Scalar, damping: Scalar = 0.5, stiffness: Scalar = 2.0) -> Plant:
    """A mass on a spring with a damper, pushed by a force: ``m x'' + b x' + k x = u``.

    Args:
        mass: Positive.
        damping: ``b``.
        stiffness: ``k``.

    Raises:
        ValueError: ``mass`` is not positive.

    Example:
        >>> spring(2.0).transition.tolist(), spring(2.0).inputs.tolist()
        ([[0.0, 1.0], [-1.0, -0.25]], [[0.0], [0.5]])
    """
    check_value("mass", mass, lambda m: m > 0, "positive")
    mass = jnp.asarray(mass, dtype=float)
    zero, one = jnp.zeros_like(mass), jnp.ones_like(mass)
    transition = jnp.stack(
        [jnp.stack([zero, one]), jnp.stack([-stiffness / mass, -damping / mass])]
    )
    return Plant(transition, jnp.stack([zero, 1 / mass])[:, None])


def lyapunov(
    transition: Float[Array, "dim dim"], right: Float[Array, "dim dim"]
) -> Float[Array, "dim dim"]:
    """``P`` of ``A'P + PA + right = 0``, by ``dim**2`` linear equations: for small systems.

    Example:
        >>> lyapunov(jnp.array([[-2.0]]), jnp.array([[8.0]])).tolist()
        [[2.0]]
    """
    eye = jnp.eye(transition.shape[0], dtype=transition.dtype)
    matrix = jnp.kron(transition.T, eye) + jnp.kron(eye, transition.T)
    return eliminate(matrix, -right.reshape(-1)).solution.reshape(right.shape)


def feedback_cost(
    gain: Float[Array, "inputs dim"],
    plant: Plant,
    cost: QuadraticCost,
    start: Float[Array, " dim"],
) -> Float[Array, ""]:
    """``x_0' P x_0``, the cost of ``u = -K x``; infinite where the closed loop is unstable.

    Example:
        >>> plant = Plant(-0.5 * jnp.eye(1), jnp.eye(1))
        >>> cost = QuadraticCost(jnp.eye(1), 0.1 * jnp.eye(1))
        >>> round(float(feedback_cost(jnp.array([[1.5]]), plant, cost, jnp.ones(1))), 5)
        0.30625
    """
    _check(plant, cost)
    if jnp.shape(gain) != jnp.shape(plant.inputs)[::-1]:
        raise ValueError(
            f"gain must have shape {jnp.shape(plant.inputs)[::-1]}, got {jnp.shape(gain)}"
        )
    P = _cost_to_go(gain, plant, cost)
    # P is positive definite exactly where the loop is stable, if every motion costs something.
    return jnp.where(_is_positive(P), start @ P @ start, jnp.inf)


def optimal_gain(
    plant: Plant,
    cost: QuadraticCost,
    stabilizing: Float[Array, "inputs dim"] | None = None,
    *,
    num_steps: int = 20,
) -> Float[Array, "inputs dim"]:
    """The gain of the linear-quadratic regulator, by Newton's method on Riccati's equation.

    Kleinman (1968): every step solves a Lyapunov equation, stays stable and converges
    quadratically.

    Args:
        plant: The system.
        cost: Its cost.
        stabilizing: A gain of a stable closed loop; 0 by default, for systems that are stable.
        num_steps: Of Newton's method.

    Raises:
        TypeError: ``num_steps`` is not an integer.
        ValueError: Shapes do not fit.

    Example:
        >>> plant = Plant(-0.5 * jnp.eye(1), jnp.eye(1))
        >>> cost = QuadraticCost(jnp.eye(1), 0.1 * jnp.eye(1))
        >>> round(float(optimal_gain(plant, cost)[0, 0]), 4)  # (sqrt(0.25 + 10) - 0.5)
        2.7016
    """
    check_count("num_steps", num_steps)
    _check(plant, cost)

    def step(gain: Array, _: None) -> tuple[Array, None]:
        P = _cost_to_go(gain, plant, cost)
        return eliminate(cost.input, plant.inputs.T @ P).solution, None

    start = jnp.zeros_like(plant.inputs.T) if stabilizing is None else stabilizing
    return jax.lax.scan(step, start, None, length=num_steps)[0]


def _cost_to_go(gain: Array, plant: Plant, cost: QuadraticCost) -> Array:
    closed = plant.transition - plant.inputs @ gain
    return lyapunov(closed, cost.state + gain.T @ cost.input @ gain)


def _is_positive(matrix: Array) -> Array:
    """Whether all pivots are positive."""
    positive = matrix[0, 0] > 0
    for _ in range(1, matrix.shape[0]):
        matrix = matrix[1:, 1:] - jnp.outer(matrix[1:, 0], matrix[0, 1:]) / matrix[0, 0]
        positive &= matrix[0, 0] > 0
    return positive


def _check(plant: Plant, cost: QuadraticCost) -> None:
    dim, num_inputs = jnp.shape(plant.inputs)
    expected = {
        "plant.transition": (plant.transition, (dim, dim)),
        "cost.state": (cost.state, (dim, dim)),
        "cost.input": (cost.input, (num_inputs, num_inputs)),
    }
    for name, (value, shape) in expected.items():
        if jnp.shape(value) != shape:
            raise ValueError(f"{name} must have shape {shape}, got {jnp.shape(value)}")

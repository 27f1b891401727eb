r"""Linear-quadratic regulators of a system that changes with time, in a finite number of steps.

The system is :math:`x_{k+1} = A_k x_k + B_k u_k + c_k`, and the cost to minimise

.. math::
    J = \sum_{k<T} \left[(x_k - t_k)^T Q_k (x_k - t_k) + u_k^T R_k u_k\right]
        + (x_T - t_T)^T Q_T (x_T - t_T) .

Dynamic programming from the end gives the cost to go :math:`x^T S_k x - 2 s_k^T x + const` and the
optimal feedback :math:`u_k = -K_k x_k + f_k`:

.. math::
    K_k &= (R_k + B_k^T S_{k+1} B_k)^{-1} B_k^T S_{k+1} A_k, &
    S_k &= Q_k + A_k^T S_{k+1} (A_k - B_k K_k), \\
    f_k &= (R_k + B_k^T S_{k+1} B_k)^{-1} B_k^T y, &
    s_k &= Q_k t_k + (A_k - B_k K_k)^T y, \qquad y = s_{k+1} - S_{k+1} c_k .

Source: the discrete Riccati recursion, as in Anderson and Moore 1990.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_factor, cho_solve
from jaxtyping import Array, Float

from jaxlab.core.checks import check_leading_axis, check_value

__all__ = [
    "AffinePolicy",
    "LinearSystem",
    "Regulator",
    "Rollout",
    "Weights",
    "closed_loop",
    "quadratic_cost",
    "riccati",
    "rollout",
]


class LinearSystem(NamedTuple):
    """A linear system over ``steps`` steps.

    Attributes:
        transitions: ``A``.
        drifts: ``c``; none if not given.
        inputs: ``B``; the identity if not given, which is never formed.
    """

    transitions: Float[Array, "steps dim dim"]
    drifts: Float[Array, "steps dim"] | None = None
    inputs: Float[Array, "steps dim inputs"] | None = None


class Weights(NamedTuple):
    """What deviations and inputs cost.

    Each of the first two is a number, numbers ``[steps]``, a matrix, or matrices ``[steps, ...]``;
    the last is a number or a matrix. All are symmetric and at least 0, and ``input`` is above 0.

    Attributes:
        state: ``Q_k``.
        input: ``R_k``.
        final: ``Q_T``.
    """

    state: Any
    input: Any
    final: Any


class AffinePolicy(NamedTuple):
    """Feedback ``u_k = -K_k x_k + f_k``. Attributes: gains: ``K``; offsets: ``f``."""

    gains: Float[Array, "steps inputs dim"]
    offsets: Float[Array, "steps inputs"]


class Regulator(NamedTuple):
    """The optimum.

    Attributes:
        policy: The optimal feedback.
        curvatures: ``S_k``, of the cost to go.
        slopes: ``s_k``; zero without drift and targets.
    """

    policy: AffinePolicy
    curvatures: Float[Array, "steps_and_one dim dim"]
    slopes: Float[Array, "steps_and_one dim"]


class Rollout(NamedTuple):
    """What happens under a policy. Attributes: states: ``x``; inputs: ``u``."""

    states: Float[Array, "steps_and_one dim"]
    inputs: Float[Array, "steps inputs"]


def riccati(
    system: LinearSystem,
    weights: Weights,
    targets: Float[Array, "steps_and_one dim"] | None = None,
) -> Regulator:
    """The optimal feedback, by the Riccati recursion with Cholesky factors.

    Args:
        system: The system.
        weights: The cost.
        targets: ``t``; the origin if not given.

    Raises:
        ValueError: Shapes that do not fit, or a number among the weights that is out of range.

    Example:
        >>> steady = LinearSystem(jnp.ones((60, 1, 1)))
        >>> gains = riccati(steady, Weights(1.0, 1.0, 1.0)).policy.gains
        >>> round(float(gains[0, 0, 0]), 4)  # the golden ratio less 1
        0.618
    """
    steps, dim = _check_system(system)
    num_inputs = dim if system.inputs is None else system.inputs.shape[2]
    _check_weights(weights, steps)
    dtype = system.transitions.dtype
    states = _matrices(weights.state, steps, dim, dtype)
    costs = _matrices(weights.input, steps, num_inputs, dtype)
    final = _matrices(weights.final, 1, dim, dtype)[0]
    aims = jnp.zeros((steps + 1, dim), dtype) if targets is None else targets
    if aims.shape != (steps + 1, dim):
        raise ValueError(f"targets must have shape {(steps + 1, dim)}, got {aims.shape}")

    def back(carry: tuple[Array, Array], now: Any) -> tuple[tuple[Array, Array], Any]:
        S, s = carry
        A, c, B, Q, R, aim = now
        SA, y = S @ A, (s if c is None else s - S @ c)
        if B is None:
            curvature, linear, pull = R + S, SA, y
        else:
            curvature, linear, pull = R + B.T @ S @ B, B.T @ SA, B.T @ y
        solved = cho_solve(cho_factor(curvature), jnp.concatenate([linear, pull[:, None]], axis=1))
        gain, offset = solved[:, :-1], solved[:, -1]
        closed = A - (gain if B is None else B @ gain)
        before = Q + SA.T @ closed
        # Rounding would otherwise let S drift away from symmetry.
        before = (before + before.T) / 2
        slope = Q @ aim + closed.T @ y
        return (before, slope), (gain, offset, before, slope)

    end = (final, final @ aims[-1])
    inputs = (system.transitions, system.drifts, system.inputs, states, costs, aims[:-1])
    _, (gains, offsets, curvatures, slopes) = jax.lax.scan(back, end, inputs, reverse=True)
    return Regulator(
        AffinePolicy(gains, offsets),
        jnp.concatenate([curvatures, end[0][None]]),
        jnp.concatenate([slopes, end[1][None]]),
    )


def rollout(system: LinearSystem, policy: AffinePolicy, start: Float[Array, " dim"]) -> Rollout:
    """The states and inputs under a policy.

    Example:
        >>> system = LinearSystem(jnp.full((2, 1, 1), 2.0))
        >>> policy = AffinePolicy(jnp.ones((2, 1, 1)), jnp.zeros((2, 1)))
        >>> rollout(system, policy, jnp.array([3.0])).states[:, 0].tolist()
        [3.0, 3.0, 3.0]
    """
    steps, _ = _check_system(system)
    check_leading_axis("policy", policy, steps, "steps")

    def forward(x: Array, now: Any) -> tuple[Array, tuple[Array, Array]]:
        A, c, B, gain, offset = now
        u = offset - gain @ x
        after = A @ x + (u if B is None else B @ u)
        after = after if c is None else after + c
        return after, (after, u)

    inputs = (system.transitions, system.drifts, system.inputs, policy.gains, policy.offsets)
    _, (states, controls) = jax.lax.scan(forward, start, inputs)
    return Rollout(jnp.concatenate([start[None], states]), controls)


def quadratic_cost(
    path: Rollout, weights: Weights, targets: Float[Array, "steps_and_one dim"] | None = None
) -> Float[Array, ""]:
    """``J`` of states and inputs.

    Example:
        >>> path = Rollout(jnp.array([[3.0], [1.0]]), jnp.array([[-2.0]]))
        >>> float(quadratic_cost(path, Weights(1.0, 10.0, 2.0)))
        51.0
    """
    steps, num_inputs = path.inputs.shape
    dim = path.states.shape[1]
    _check_weights(weights, steps)
    dtype = path.states.dtype
    away = path.states if targets is None else path.states - targets

    def total(vectors: Array, value: Any, size: int) -> Array:
        matrices = _matrices(value, vectors.shape[0], size, dtype)
        return jnp.einsum("ki,kij,kj->", vectors, matrices, vectors)

    return (
        total(away[:-1], weights.state, dim)
        + total(path.inputs, weights.input, num_inputs)
        + total(away[-1:], weights.final, dim)
    )


def closed_loop(system: LinearSystem, policy: AffinePolicy) -> Float[Array, "steps dim dim"]:
    """``A - B K``, what the feedback makes of the system.

    Example:
        >>> system = LinearSystem(jnp.full((1, 1, 1), 2.0))
        >>> closed_loop(system, AffinePolicy(jnp.ones((1, 1, 1)), jnp.zeros((1, 1)))).tolist()
        [[[1.0]]]
    """
    if system.inputs is None:
        return system.transitions - policy.gains
    return system.transitions - system.inputs @ policy.gains


def _check_system(system: LinearSystem) -> tuple[int, int]:
    shape = jnp.shape(system.transitions)
    if len(shape) != 3 or shape[1] != shape[2]:
        raise ValueError(
            f"system.transitions must have shape [steps, dim, dim], got {tuple(shape)}"
        )
    steps, dim = shape[0], shape[1]
    for name in ("drifts", "inputs"):
        value = getattr(system, name)
        if value is not None and jnp.shape(value)[:2] != (steps, dim):
            raise ValueError(
                f"system.{name} must have leading axes of {steps} steps and {dim} dimensions, got "
                f"shape {jnp.shape(value)}"
            )
    return steps, dim


def _check_weights(weights: Weights, steps: int) -> None:
    for name, value in weights._asdict().items():
        if jnp.ndim(value) <= 1:  # of matrices only the shape is checked
            least, holds = ("positive", _positive) if name == "input" else ("at least 0", _fine)
            check_value(f"weights.{name}", value, holds, least)
        if jnp.ndim(value) in (1, 3):
            count = 1 if name == "final" else steps
            check_leading_axis(f"weights.{name}", value, count, "steps")


def _positive(value: Any) -> Any:
    return value > 0


def _fine(value: Any) -> Any:
    return value >= 0


def _matrices(value: Any, steps: int, size: int, dtype: Any) -> Array:
    value = jnp.asarray(value, dtype)
    if value.ndim <= 1:
        value = jnp.einsum("...,ij->...ij", value, jnp.eye(size, dtype=dtype))
    if value.shape[-2:] != (size, size):
        raise ValueError(f"weights must be matrices of {size} x {size}, got shape {value.shape}")
    return jnp.broadcast_to(value, (steps, size, size))

r"""The optimal tracking of a feature through layers, without any matrix of ``dim`` times ``dim``.

If only the feature is to be on its setpoint, the cost of a state has rank one,

.. math::
    J = \sum_{k<L} \left[q (v_k^T z_k - \beta^*_k)^2 + r \|u_k\|^2\right]
        + q_L (v_L^T z_L - \beta^*_L)^2 ,

and the curvature of the cost to go is :math:`S_k = M_k M_k^T` with at most :math:`L + 1 - k`
columns. From :math:`M_L = \sqrt{q_L}\, v_L` backwards,

.. math::
    G &= I + M_{k+1}^T M_{k+1} / r = C C^T, & W &= A_k^T M_{k+1}, \\
    K_k &= M_{k+1} G^{-1} W^T / r, & M_k &= [\,W C^{-T},\ \sqrt q\, v_k\,],

by Woodbury's identity. The layers enter by vector-Jacobian products alone, as many as :math:`M` has
columns: :math:`L(L+1)/2` instead of :math:`L \cdot dim` columns of Jacobians, and dense Riccati
steps of ``dim`` cubed are gone. The affine part with the drift :math:`c_k` is

.. math::
    y = s_{k+1} - M_{k+1} M_{k+1}^T c_k, \quad
    f_k = (y - M_{k+1} G^{-1} M_{k+1}^T y / r)/r, \quad
    s_k = q \beta^*_k v_k + A_k^T y - K_k^T y .

Source: derived here; arXiv:2604.19018 states the dense problem with a cost on all of the state.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve, solve_triangular
from jaxtyping import Array, Float, PyTree

from jaxlab.control.lqr import Weights
from jaxlab.core.checks import check_leading_axis, check_value
from jaxlab.language.plants import Plant, forward_product, transpose_product
from jaxlab.language.policies import LowRankPolicy
from jaxlab.language.setpoints import FeatureSetpoint

__all__ = ["Transpose", "feature_lqr", "plant_feature_lqr"]

Transpose = Callable[[PyTree, Array], Array]
"""``(layer, directions [dim, columns]) -> A_k^T directions``, given one entry of ``layers``."""


def feature_lqr(
    transpose: Transpose,
    layers: PyTree,
    drifts: Float[Array, "layers dim"],
    setpoint: FeatureSetpoint,
    weights: Weights,
) -> LowRankPolicy:
    """The optimal policy of every strength at once.

    Args:
        transpose: Products with the transposed Jacobian of a layer.
        layers: A tree of arrays with a leading axis of layers, whose entries ``transpose`` gets.
        drifts: ``c_k = z_{k+1} - A_k z_k`` of the nominal trajectory.
        setpoint: The feature.
        weights: ``q``, ``r`` and the final ``q``, numbers; that of the input is positive.

    Raises:
        ValueError: Shapes that do not fit, or a weight out of its range.

    Example:
        >>> from jaxlab.language.policies import dense_policy
        >>> A = jnp.ones((1, 1, 1))
        >>> point = FeatureSetpoint(jnp.ones((2, 1)), jnp.zeros(2), jnp.ones(2))
        >>> def transpose(A, y):
        ...     return A.T @ y
        >>> policy = feature_lqr(transpose, A, jnp.zeros((1, 1)), point, Weights(1.0, 1.0, 1.0))
        >>> found = dense_policy(policy, 2.0)
        >>> found.gains.round(4).tolist(), found.offsets.round(4).tolist()
        ([[[0.5]]], [[1.0]])
    """
    count, dim = drifts.shape
    check_leading_axis("setpoint", setpoint, count + 1, "states")
    check_leading_axis("layers", layers, count, "layers")
    q, r, final = (jnp.asarray(value, drifts.dtype) for value in weights)
    for name, value in (("state", weights.state), ("final", weights.final)):
        check_value(f"weights.{name}", value, lambda x: x >= 0, "a number, at least 0")
    check_value("weights.input", weights.input, lambda x: x > 0, "a positive number")
    v = setpoint.directions
    # What strengths of 0 and the unit ask for: two right sides of one recursion.
    asks = jnp.stack([setpoint.offsets, setpoint.scales], axis=1)
    has_drift = jnp.array([1.0, 0.0], drifts.dtype)
    identity = jnp.eye(count + 1, dtype=drifts.dtype)

    def back(carry: tuple[Array, Array], now: Any) -> tuple[tuple[Array, Array], Any]:
        M, s = carry
        layer, c, direction, ask, column = now
        factor = jnp.linalg.cholesky(identity + M.T @ M / r)
        y = s - jnp.outer(M @ (M.T @ c), has_drift)
        pulled = transpose(layer, jnp.concatenate([M, y], axis=1))
        W, z = pulled[:, :-2], pulled[:, -2:]
        right = cho_solve((factor, True), W.T).T / r
        inner = cho_solve((factor, True), M.T @ y) / r
        offset = (y - M @ inner) / r
        before = solve_triangular(factor, W.T, lower=True).T
        before = before.at[:, column].set(jnp.sqrt(q) * direction)
        slope = q * jnp.outer(direction, ask) + z - W @ inner
        return (before, slope), (M, right, offset)

    start = jnp.zeros((dim, count + 1), drifts.dtype).at[:, 0].set(jnp.sqrt(final) * v[-1])
    end = (start, final * jnp.outer(v[-1], asks[-1]))
    columns = jnp.arange(count, 0, -1)
    inputs = (layers, drifts, v[:-1], asks[:-1], columns)
    _, (left, right, offsets) = jax.lax.scan(back, end, inputs, reverse=True)
    return LowRankPolicy(left, right, offsets[..., 0], offsets[..., 1])


def plant_feature_lqr(
    plant: Plant,
    states: Float[Array, "layers_and_one *batch dim"],
    setpoint: FeatureSetpoint,
    weights: Weights,
) -> LowRankPolicy:
    """``feature_lqr`` of a plant linearised at states; at means over a batch of prompts.

    Args:
        plant: The plant; only its layers are used.
        states: Nominal states, as ``trajectory`` gives them.
        setpoint: The feature.
        weights: As for ``feature_lqr``.
    """

    def transpose(entry: tuple[Any, Array], directions: Array) -> Array:
        return transpose_product(plant, *entry, directions)

    def moved(entry: tuple[Any, Array, Array]) -> Array:
        layer, z, mean = entry
        return forward_product(plant, layer, z, mean[:, None])[:, 0]

    means = states.mean(axis=tuple(range(1, states.ndim - 1)))
    drifts = means[1:] - jax.lax.map(moved, (plant.layers, states[:-1], means[:-1]))
    return feature_lqr(transpose, (plant.layers, states[:-1]), drifts, setpoint, weights)

r"""Feedback through layers of low rank, one form for many controllers.

.. math::  u_k = b_k + \lambda s_k - U_k V_k^T z_k

A strength :math:`\lambda` enters linearly. Feedback along one direction has one column, constant
addition none, and the optimal tracking of a feature one for each layer that is left. Policies are
stacked and vmapped: one compilation serves them all.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxlab.control.lqr import AffinePolicy
from jaxlab.core.checks import check_leading_axis
from jaxlab.core.types import Scalar
from jaxlab.language.setpoints import FeatureSetpoint

__all__ = [
    "LowRankPolicy",
    "alqr_policy",
    "constant_policy",
    "dense_policy",
    "feedback_policy",
    "stack_policies",
]


class LowRankPolicy(NamedTuple):
    """Feedback ``u_k = base_k + strength * slope_k - left_k right_k^T z_k``.

    Attributes:
        left: Left factors of the gains, perhaps padded with columns of zeros.
        right: Right factors.
        base: Offsets at a strength of 0.
        slope: What a unit of strength adds to them.
    """

    left: Float[Array, "*stack layers dim columns"]
    right: Float[Array, "*stack layers dim columns"]
    base: Float[Array, "*stack layers dim"]
    slope: Float[Array, "*stack layers dim"]


def feedback_policy(
    vectors: Float[Array, "layers dim"], setpoint: FeatureSetpoint
) -> LowRankPolicy:
    """``u_k = (beta*_k - v_k^T z_k) g_k`` with any vectors ``g``.

    Raises:
        ValueError: Not one vector per layer.

    Example:
        >>> point = FeatureSetpoint(jnp.ones((2, 1)), jnp.array([5.0, 0.0]), jnp.ones(2))
        >>> policy = feedback_policy(jnp.array([[0.5]]), point)
        >>> policy.base.tolist(), policy.slope.tolist()
        ([[2.5]], [[0.5]])
    """
    layers = setpoint.directions.shape[0] - 1
    check_leading_axis("vectors", vectors, layers, "layers")
    return LowRankPolicy(
        vectors[..., None],
        setpoint.directions[:-1, :, None],
        setpoint.offsets[:-1, None] * vectors,
        setpoint.scales[:-1, None] * vectors,
    )


def alqr_policy(policy: AffinePolicy, setpoint: FeatureSetpoint) -> LowRankPolicy:
    """A-LQR, ``u_k = (beta*_k - v_k^T z_k) K_k v_k``: of the gains only ``K_k v_k`` is needed."""
    vectors = jnp.einsum("kij,kj->ki", policy.gains, setpoint.directions[:-1])
    return feedback_policy(vectors, setpoint)


def constant_policy(vectors: Float[Array, "layers dim"]) -> LowRankPolicy:
    """Open loop: ``strength * vectors[k]`` is added after layer ``k``, whatever the state.

    Example:
        >>> constant_policy(jnp.ones((2, 3))).left.shape
        (2, 3, 0)
    """
    none = jnp.zeros((*vectors.shape, 0), vectors.dtype)
    return LowRankPolicy(none, none, jnp.zeros_like(vectors), vectors)


def stack_policies(policies: Sequence[LowRankPolicy]) -> LowRankPolicy:
    """Policies along a new leading axis, padded to the same number of columns.

    Raises:
        ValueError: No policy.

    Example:
        >>> constant = constant_policy(jnp.ones((2, 3)))
        >>> wide = constant._replace(left=jnp.ones((2, 3, 4)), right=jnp.ones((2, 3, 4)))
        >>> stack_policies([constant, wide]).left.shape
        (2, 2, 3, 4)
    """
    if not policies:
        raise ValueError("policies must be at least one, got none")
    columns = max(policy.left.shape[-1] for policy in policies)

    def wide(factor: Array) -> Array:
        return jnp.pad(factor, ((0, 0), (0, 0), (0, columns - factor.shape[-1])))

    padded = [p._replace(left=wide(p.left), right=wide(p.right)) for p in policies]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *padded)


def dense_policy(policy: LowRankPolicy, strength: Scalar) -> AffinePolicy:
    """The same feedback with matrices of gains, for small dimensions.

    Example:
        >>> dense_policy(constant_policy(jnp.ones((1, 1))), 3.0).offsets.tolist()
        [[3.0]]
    """
    gains = policy.left @ jnp.swapaxes(policy.right, -1, -2)
    return AffinePolicy(gains, policy.base + strength * policy.slope)

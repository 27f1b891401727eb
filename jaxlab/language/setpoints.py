r"""Features of a residual stream by contrast, and where they are to be.

Of two sets of prompts, one with a feature and one against it, the last token's mean states
:math:`\bar z^\pm_k` at the input of each layer give directions and scales,

.. math::  v_k = e_k / \mu_k, \qquad e_k = \bar z^+_k - \bar z^-_k, \qquad \mu_k = \|e_k\| .

The feature is :math:`\beta_k = v_k^T z_k`, and a strength :math:`\lambda` asks for
:math:`\beta^*_k = o_k + \lambda m_k`. The paper's linear setpoint has :math:`o = 0` and
:math:`m = \mu`; the centred one starts from the middle of both means, so that strengths of 1 and -1
are the two sets themselves: :math:`o_k = v_k^T (\bar z^+_k + \bar z^-_k)/2`, :math:`m_k = \mu_k/2`.

Source: arXiv:2604.19018, Section 4; the centred setpoint is derived here.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxlab.core.types import Scalar

__all__ = [
    "FeatureSetpoint",
    "adaptive_setpoint",
    "contrast_setpoint",
    "features",
    "min_norm_correction",
    "setpoint_values",
]


class FeatureSetpoint(NamedTuple):
    """Where a feature is measured at each layer, and what a strength asks of it.

    Attributes:
        directions: ``v``, of norm 1, or 0 where the two sets do not differ.
        offsets: ``o``, what a strength of 0 asks for.
        scales: ``m``, what a unit of strength adds.
    """

    directions: Float[Array, "layers_and_one dim"]
    offsets: Float[Array, " layers_and_one"]
    scales: Float[Array, " layers_and_one"]


def contrast_setpoint(
    positive: Float[Array, "layers_and_one prompts dim"],
    negative: Float[Array, "layers_and_one others dim"],
    *,
    centered: bool = False,
) -> FeatureSetpoint:
    """The setpoint of two sets of trajectories of the last token.

    Args:
        positive: States with the feature.
        negative: States without it, or with its opposite.
        centered: Whether a strength of 0 asks for the middle of both sets, and not for 0.

    Raises:
        ValueError: Different numbers of layers or dimensions.

    Example:
        >>> point = contrast_setpoint(jnp.array([[[3.0, 0.0]]]), jnp.array([[[1.0, 0.0]]]))
        >>> point.directions.tolist(), point.scales.tolist()
        ([[1.0, 0.0]], [2.0])
    """
    if positive.shape[::2] != negative.shape[::2]:
        raise ValueError(
            "negative must have the layers and dimensions of positive, "
            f"{positive.shape[::2]}, got {negative.shape[::2]}"
        )
    high, low = positive.mean(axis=1), negative.mean(axis=1)
    gap = high - low
    norms = jnp.sqrt(jnp.sum(gap**2, axis=1))
    # Two sets that end with the same token do not differ before the first layer but by rounding.
    size = jnp.sqrt(jnp.sum(high**2, axis=1) + jnp.sum(low**2, axis=1))
    differs = norms > 8 * jnp.finfo(norms.dtype).eps * size
    directions = jnp.where(differs[:, None], gap / jnp.where(differs, norms, 1.0)[:, None], 0.0)
    scales = jnp.where(differs, norms, 0.0)
    if not centered:
        return FeatureSetpoint(directions, jnp.zeros_like(scales), scales)
    middle = jnp.sum(directions * (high + low) / 2, axis=1)
    return FeatureSetpoint(directions, middle, scales / 2)


def setpoint_values(setpoint: FeatureSetpoint, strength: Scalar) -> Float[Array, " layers_and_one"]:
    """``beta*`` of every layer.

    Example:
        >>> point = FeatureSetpoint(jnp.ones((2, 1)), jnp.array([1.0, 0.0]), jnp.array([2.0, 3.0]))
        >>> setpoint_values(point, -1.0).tolist()
        [-1.0, -3.0]
    """
    return setpoint.offsets + setpoint.scales * strength


def features(
    setpoint: FeatureSetpoint, states: Float[Array, "layers_and_one *batch dim"]
) -> Float[Array, "layers_and_one *batch"]:
    """``beta_k`` of states along their layers.

    Example:
        >>> point = FeatureSetpoint(jnp.eye(2), jnp.zeros(2), jnp.ones(2))
        >>> features(point, jnp.array([[5.0, 0.0], [0.0, 7.0]])).tolist()
        [5.0, 7.0]
    """
    return jnp.einsum("k...d,kd->k...", states, setpoint.directions)


def min_norm_correction(
    z: Float[Array, "*batch dim"], direction: Float[Array, " dim"], target: Scalar
) -> Float[Array, "*batch dim"]:
    """The shortest vector that brings the feature of ``z`` to ``target``: ``(beta* - v^T z) v``.

    The direction must have norm 1. (arXiv:2604.19018, Theorem 4.1)

    Example:
        >>> v = jnp.array([0.0, 1.0])
        >>> min_norm_correction(jnp.array([3.0, 1.0]), v, 1.5).tolist()
        [0.0, 0.5]
    """
    missing = jnp.asarray(target) - z @ direction
    return jnp.einsum("...,d->...d", missing, direction)


def adaptive_setpoint(
    z: Float[Array, "*batch dim"], direction: Float[Array, " dim"], target: Scalar
) -> Float[Array, "*batch dim"]:
    """The nearest state whose feature is ``target``; ``z`` itself where it already is.

    Where controllers aim moves with the measured state: all that the feature does not see is left
    to the prompt.

    Example:
        >>> adaptive_setpoint(jnp.array([3.0, 1.0]), jnp.array([0.0, 1.0]), 1.5).tolist()
        [3.0, 1.5]
    """
    return z + min_norm_correction(z, direction, target)

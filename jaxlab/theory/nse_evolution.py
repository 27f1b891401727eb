r"""State evolution: what approximate message passing does in the limit of many dimensions.

The overlap :math:`q_t` of its iterates with the direction follows
:math:`q_{t+1} = h/(1 + h)`, :math:`h = \alpha\, E g^2`, with the score of ``squared_score`` at
:math:`q_t`. Fixed points are stationary points of the free entropy in ``nse_replica``.

Source: Barbier et al. 2019 (arXiv:1708.03395).
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxlab.core.checks import check_count, check_value
from jaxlab.core.types import Scalar
from jaxlab.theory.nse_activations import Activation
from jaxlab.theory.nse_channel import check_overlap, check_snr
from jaxlab.theory.nse_replica import squared_score

__all__ = ["state_evolution", "state_evolution_step"]


def state_evolution_step(
    activation: Activation,
    overlap: Scalar,
    alpha: Scalar,
    snr: Scalar,
    *,
    num_y: int = 401,
    num_v: int = 351,
) -> Float[Array, ""]:
    """The overlap after one step of AMP, ``h / (1 + h)`` with ``h = alpha E g^2``.

    Args:
        activation: Any activation.
        overlap: ``q`` in ``(0, 1)``.
        alpha: Samples per dimension, positive.
        snr: ``lambda > 0``.
        num_y: Points of the grid over outputs, static.
        num_v: Points of the grid over the known part, static.

    Raises:
        ValueError: Something is out of range, or a grid is too coarse.
    """
    check_value("alpha", alpha, lambda ratio: ratio > 0, "positive")
    told = squared_score(activation, overlap, snr, num_y=num_y, num_v=num_v)
    gain = jnp.asarray(alpha) * told
    return gain / (1 + gain)


def state_evolution(
    activation: Activation,
    overlap: Scalar,
    alpha: Scalar,
    snr: Scalar,
    *,
    num_steps: int,
    num_y: int = 401,
    num_v: int = 351,
) -> Float[Array, " times"]:
    """The overlaps of AMP's iterates, from the initial one on; ``num_steps + 1`` of them.

    Args:
        activation: Any activation.
        overlap: The initial one, in ``(0, 1)``; at 0 an even activation stays there.
        alpha: Samples per dimension, positive.
        snr: ``lambda > 0``.
        num_steps: Static.
        num_y: Points of the grid over outputs, static.
        num_v: Points of the grid over the known part, static.

    Raises:
        ValueError: Something is out of range, or a grid is too coarse.

    Example:
        >>> from jaxlab.theory.nse_activations import piecewise
        >>> absolute = piecewise(jnp.abs, breaks=(0.0,), num_nodes=24)
        >>> path = state_evolution(absolute, 0.1, 3.0, 4.0, num_steps=12, num_y=201, num_v=61)
        >>> round(float(path[-1]), 2)
        0.82
    """
    check_count("num_steps", num_steps, least=0)
    check_value("alpha", alpha, lambda ratio: ratio > 0, "positive")
    check_overlap(overlap)
    check_snr(snr)

    def step(current: Array, _: None) -> tuple[Array, Array]:
        after = state_evolution_step(
            activation, current, alpha, snr, num_y=num_y, num_v=num_v
        )  # fmt: skip
        return after, after

    start = jnp.asarray(overlap, dtype=float)
    return jnp.append(start, jax.lax.scan(step, start, length=num_steps)[1])

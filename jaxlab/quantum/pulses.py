r"""Piecewise constant pulses: how they are bounded, and what they do to a linear system.

Within a segment of length :math:`\tau` the generator is constant, and the state moves by
:math:`e^{\tau G}`. Its Taylor series of fixed order is several times faster, with gradients, than a
matrix exponential by Padé approximants, and as exact as rounding where :math:`\tau\|G\|` is about 1
or less: order :math:`m` leaves out at most :math:`(\tau\|G\|)^{m+1} e^{\tau\|G\|} / (m+1)!` of the
state.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Inexact

from jaxlab.core.checks import check_count, check_value
from jaxlab.core.types import Scalar

__all__ = ["bounded_controls", "propagate_pwc"]


def bounded_controls(
    raw: Float[Array, "*segments controls"],
    largest: Scalar | Float[Array, " controls"],
    mask: Float[Array, " controls"] | None = None,
) -> Float[Array, "*segments controls"]:
    """Amplitudes ``largest * tanh(raw / largest)``, within ``largest`` and close to small ``raw``.

    Without a bound the best pulse of a relaxing qubit is late and very short, and its infidelity
    falls without limit.

    Args:
        raw: Any real numbers.
        largest: The bound, positive, one for all controls or one for each.
        mask: 0 switches a control off, 1 leaves it on.

    Raises:
        ValueError: ``largest`` is not positive.

    Example:
        >>> bounded_controls(jnp.array([[1e9, -1e9]]), 2.0, jnp.array([1.0, 0.0])).tolist()
        [[2.0, -0.0]]
    """
    check_value("largest", largest, lambda u: u > 0, "positive")
    controls = jnp.asarray(largest * jnp.tanh(raw / largest))
    return controls if mask is None else mask * controls


def propagate_pwc(
    generator: Callable[[Any, Any], Any],
    controls: Float[Array, "segments controls"],
    task: Any,
    start: Inexact[Array, "dim *columns"],
    duration: Scalar,
    *,
    order: int = 10,
) -> Inexact[Array, "dim *columns"]:
    """The state of ``v' = G(controls, task) v`` at the end of the last segment.

    Args:
        generator: ``(controls of one segment, task) -> G``, a ``[dim, dim]`` matrix.
        controls: One row per segment; all segments have the same length.
        task: What differs between devices, any pytree.
        start: One state, or several as columns; the identity gives the propagator.
        duration: Of all segments together, positive.
        order: Of the Taylor series in each segment.

    Raises:
        TypeError: ``order`` is not an integer.
        ValueError: It is less than 1, there are no segments, or ``duration`` is not positive.

    Example:
        >>> def decay(u, rate):
        ...     return -rate * jnp.eye(1)
        >>> end = propagate_pwc(decay, jnp.zeros((4, 1)), 0.5, jnp.ones(1), 2.0)
        >>> round(float(end[0]), 5)  # 1/e
        0.36788
    """
    check_count("order", order)
    check_value("duration", duration, lambda t: t > 0, "positive")
    if jnp.ndim(controls) != 2 or not jnp.shape(controls)[0]:
        raise ValueError(
            f"controls must have shape [segments, controls], got {jnp.shape(controls)}"
        )
    length = duration / controls.shape[0]

    def segment(state: Array, now: Array) -> tuple[Array, None]:
        matrix = length * generator(now, task)
        term, total = state, state
        for k in range(1, order + 1):
            term = matrix @ term / k
            total = total + term
        return total, None

    dtype = jnp.result_type(start, jax.eval_shape(generator, controls[0], task).dtype)
    end, _ = jax.lax.scan(segment, jnp.asarray(start, dtype), controls)
    return end

r"""One qubit in a noisy environment, by its Bloch vector: real numbers instead of complex matrices.

The Hamiltonian is :math:`H = u_x\sigma_x + u_y\sigma_y + \tfrac\delta2\sigma_z`, and the jump
operators are :math:`\sqrt{\gamma_r}\,|0\rangle\langle1|` (relaxation to :math:`|0\rangle`) and
:math:`\sqrt{\gamma_d/2}\,\sigma_z` (dephasing). With :math:`v = (1, x, y, z)` the master equation
is :math:`v' = G v`. Left alone, the probability of :math:`|1\rangle` decays as
:math:`e^{-\gamma_r t}` and coherence as :math:`e^{-(\gamma_d + \gamma_r/2) t}`.

The conventions are those of the one-qubit code of arXiv:2601.18973.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxlab.core.checks import check_value
from jaxlab.core.types import Scalar

__all__ = ["ONE", "ZERO", "Qubit", "bloch_generator", "bloch_infidelity", "qubit_of_times"]

ZERO = (1.0, 0.0, 0.0, 1.0)
"""The state of ``|0>``, to which the qubit relaxes."""

ONE = (1.0, 0.0, 0.0, -1.0)
"""The state of ``|1>``."""


class Qubit(NamedTuple):
    """A device: its rates and its detuning, in units of one over the time unit.

    Attributes:
        dephasing: ``gamma_d``, at least 0.
        relaxation: ``gamma_r``, at least 0.
        detuning: ``delta``, an angular frequency.
    """

    dephasing: Float[Array, "*batch"]
    relaxation: Float[Array, "*batch"]
    detuning: Float[Array, "*batch"]


def qubit_of_times(gate_time: Scalar, t1: Scalar, t2: Scalar, detuning: Scalar = 0.0) -> Qubit:
    """The device of measured coherence times, with the gate's duration as the time unit.

    Args:
        gate_time: Positive; all times are in one unit, say microseconds.
        t1: The relaxation time, positive.
        t2: The coherence time, in (0, 2 t1].
        detuning: An angular frequency in one over the unit of the times.

    Raises:
        ValueError: A time is out of range.

    Example:
        >>> qubit = qubit_of_times(1.0, 40.0, 20.0)
        >>> round(float(qubit.relaxation), 6), round(float(qubit.dephasing), 6)
        (0.025, 0.0375)
    """
    check_value("gate_time", gate_time, lambda t: t > 0, "positive")
    check_value("t1", t1, lambda t: t > 0, "positive")
    check_value("t2", t2, lambda t: (t > 0) & (t <= 2 * t1), "in (0, 2 t1]")
    t1, t2, gate = (jnp.asarray(value, dtype=float) for value in (t1, t2, gate_time))
    relaxation = gate / t1
    return Qubit(gate / t2 - relaxation / 2, relaxation, jnp.asarray(detuning * gate, dtype=float))


def bloch_generator(controls: Float[Array, " 2"], qubit: Qubit) -> Float[Array, "4 4"]:
    """``G`` of ``v' = G v``.

    Args:
        controls: ``(u_x, u_y)``.
        qubit: One device; its rates are not checked here, since it is called for every segment.

    Example:
        >>> free = bloch_generator(jnp.zeros(2), Qubit(*jnp.array([0.1, 0.04, 0.0])))
        >>> round(-float(free[1, 1]), 6), round(-float(free[3, 3]), 6)
        (0.12, 0.04)
    """
    x, y = 2 * controls[0], 2 * controls[1]
    delta, relaxation = qubit.detuning, qubit.relaxation
    loss = qubit.dephasing + relaxation / 2
    zero = jnp.zeros_like(x + loss + delta)
    rows = [
        [zero, zero, zero, zero],
        [zero, -loss, -delta, y],
        [zero, delta, -loss, -x],
        [relaxation, -y, x, -relaxation],
    ]
    return jnp.stack([jnp.stack([zero + entry for entry in row]) for row in rows])


def bloch_infidelity(
    state: Float[Array, " 4"], target: Float[Array, " 4"] | tuple[float, ...]
) -> Float[Array, ""]:
    """``1 - <target|rho|target>`` for a pure target.

    Example:
        >>> [float(bloch_infidelity(jnp.array(state), ONE)) for state in (ZERO, ONE)]
        [1.0, 0.0]
    """
    # 1 - (1 + r't)/2 for Bloch vectors r and t; half of a squared distance cancels nothing.
    away = state - jnp.asarray(target, state.dtype)
    inside = 1 - jnp.sum(state[1:] ** 2)
    return (jnp.sum(away**2) + inside) / 4

r"""Two coupled qubits, each with its own noise and controls.

:math:`H = J\,Z_1 Z_2 + u_1 X_1 + u_2 Y_1 + u_3 X_2 + u_4 Y_2 + u_5 Z_1 + u_6 Z_2`, with relaxation
and dephasing of each qubit as in ``jaxlab.quantum.bloch``.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float

from jaxlab.core.types import Scalar
from jaxlab.quantum.lindblad import average_gate_infidelity, dissipator, hamiltonian_part
from jaxlab.quantum.pulses import propagate_pwc

__all__ = ["CZ", "NUM_CONTROLS", "QubitPair", "gate_infidelity", "pair_generator"]

CZ = np.diag([1.0, 1.0, 1.0, -1.0])
"""The controlled phase flip."""

NUM_CONTROLS = 6
"""How many amplitudes a segment has."""

_X = np.array([[0, 1], [1, 0]], dtype=complex)
_Y = np.array([[0, -1j], [1j, 0]])
_Z = np.diag([1.0 + 0j, -1.0])
_LOWER = np.array([[0, 1], [0, 0]], dtype=complex)


class QubitPair(NamedTuple):
    """Two qubits' rates, in units of one over the time unit.

    Attributes:
        dephasing: ``gamma_d`` of each.
        relaxation: ``gamma_r`` of each.
    """

    dephasing: Float[Array, "*batch 2"]
    relaxation: Float[Array, "*batch 2"]


@functools.cache
def _parts() -> np.ndarray:
    """The generator is linear: coupling, six controls, two dephasings, two relaxations."""
    eye = np.eye(2)
    one = [np.kron(matrix, eye) for matrix in (_X, _Y)]
    two = [np.kron(eye, matrix) for matrix in (_X, _Y)]
    phases = [np.kron(_Z, eye), np.kron(eye, _Z)]
    with jax.ensure_compile_time_eval(), jax.enable_x64(True):
        hamiltonians = jnp.asarray([np.kron(_Z, _Z), *one, *two, *phases])
        lowering = [np.kron(_LOWER, eye), np.kron(eye, _LOWER)]
        jumps = jnp.asarray([phase / 2**0.5 for phase in phases] + lowering)
        coherent = [hamiltonian_part(matrix) for matrix in hamiltonians]
        return np.stack([np.asarray(part) for part in (*coherent, *map(dissipator, jumps))])


def pair_generator(
    coupling: Scalar,
) -> Callable[[Float[Array, " 6"], QubitPair], Complex[Array, "16 16"]]:
    """``(controls, pair) -> generator`` for ``propagate_pwc``.

    Args:
        coupling: ``J``, an angular frequency.

    Example:
        >>> pair = QubitPair(jnp.zeros(2), jnp.zeros(2))
        >>> generator = pair_generator(1.0)(jnp.zeros(6), pair)
        >>> generator[1, 1].tolist(), generator[2, 2].tolist()  # of |00><01| and |00><10|
        (-2j, -2j)
    """

    def generator(controls: Float[Array, " 6"], pair: QubitPair) -> Complex[Array, "16 16"]:
        rates = [pair.dephasing, pair.relaxation]
        weights = jnp.concatenate([jnp.asarray(coupling, controls.dtype)[None], controls, *rates])
        parts = jnp.asarray(_parts(), jnp.result_type(weights, jnp.complex64))
        return jnp.tensordot(weights.astype(parts.dtype), parts, axes=1)

    return generator


def gate_infidelity(
    controls: Float[Array, "segments 6"],
    pair: QubitPair,
    *,
    coupling: Scalar,
    duration: Scalar,
    target: Float[Array, "4 4"] | np.ndarray = CZ,
    order: int = 12,
) -> Float[Array, ""]:
    """The average gate infidelity of a pulse.

    Args:
        controls: Amplitudes of ``X_1, Y_1, X_2, Y_2, Z_1, Z_2``.
        pair: One pair of qubits.
        coupling: ``J``.
        duration: Of the whole pulse, positive.
        target: A unitary.
        order: As for ``propagate_pwc``.

    Example:
        >>> quiet = QubitPair(jnp.zeros(2), jnp.zeros(2))
        >>> z = jnp.zeros((20, 6)).at[:, 4:].set(-1.0)  # with the coupling alone this is CZ
        >>> error = gate_infidelity(z, quiet, coupling=1.0, duration=jnp.pi / 4)
        >>> abs(float(error)) < 1e-5
        True
    """
    start = jnp.eye(16, dtype=jnp.result_type(controls, jnp.complex64))
    propagator = propagate_pwc(
        pair_generator(coupling), controls, pair, start, duration, order=order
    )
    return average_gate_infidelity(propagator, jnp.asarray(target, start.dtype))

r"""The Lindblad master equation of any small system, as a matrix on vectorised density matrices.

.. math::
    \rho' = -i[H, \rho] + \sum_j \left(J_j\rho J_j^\dagger
        - \tfrac12\{J_j^\dagger J_j, \rho\}\right)

With rows stacked, :math:`\mathrm{vec}(A\rho B) = (A \otimes B^T)\,\mathrm{vec}(\rho)`. The
generator is linear in the rates, so that it is Lipschitz in them (arXiv:2601.18973, Lemma 4.3) with
a constant that is known.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Complex, Float, Inexact

__all__ = [
    "average_gate_infidelity",
    "dissipator",
    "hamiltonian_part",
    "lindblad_superoperator",
    "lipschitz_constant_lindblad",
    "state_infidelity",
]


def hamiltonian_part(hamiltonian: Inexact[Array, "dim dim"]) -> Complex[Array, "square square"]:
    """``-i [H, .]`` as a matrix of ``dim**2`` rows.

    Example:
        >>> hamiltonian_part(jnp.diag(jnp.array([1.0, -1.0]))).diagonal().imag.tolist()
        [-0.0, -2.0, 2.0, -0.0]
    """
    matrix = _square("hamiltonian", hamiltonian)
    eye = jnp.eye(matrix.shape[0], dtype=matrix.dtype)
    return -1j * (jnp.kron(matrix, eye) - jnp.kron(eye, matrix.T))


def dissipator(jump: Inexact[Array, "dim dim"]) -> Complex[Array, "square square"]:
    """``J . J^* - (J^* J . + . J^* J) / 2`` as a matrix of ``dim**2`` rows.

    Example:
        >>> lowering = jnp.array([[0.0, 1.0], [0.0, 0.0]])
        >>> dissipator(lowering).real.diagonal().tolist()  # of rho_00, rho_01, rho_10, rho_11
        [0.0, -0.5, -0.5, -1.0]
    """
    matrix = _square("jump", jump)
    eye = jnp.eye(matrix.shape[0], dtype=matrix.dtype)
    lost = matrix.conj().T @ matrix
    both = jnp.kron(lost, eye) + jnp.kron(eye, lost.T)
    return jnp.kron(matrix, matrix.conj()) - both / 2


def lindblad_superoperator(
    hamiltonian: Inexact[Array, "dim dim"], jumps: Inexact[Array, "jumps dim dim"]
) -> Complex[Array, "square square"]:
    """The generator of the master equation.

    Args:
        hamiltonian: Hermitian, as an angular frequency.
        jumps: With the roots of the rates in them.

    Raises:
        ValueError: A matrix is not square, or their sizes differ.

    Example:
        >>> jumps = jnp.array([[[0.0, 0.2], [0.0, 0.0]]])
        >>> generator = lindblad_superoperator(jnp.zeros((2, 2)), jumps)
        >>> round(float(generator[3, 3].real), 6), round(float(generator[0, 3].real), 6)
        (-0.04, 0.04)
    """
    if jnp.ndim(jumps) != 3 or jnp.shape(jumps)[1:] != jnp.shape(hamiltonian):
        raise ValueError(
            "jumps must have shape [jumps, dim, dim] with the dim of the hamiltonian, got "
            f"{jnp.shape(jumps)} and {jnp.shape(hamiltonian)}"
        )
    return hamiltonian_part(hamiltonian) + jax.vmap(dissipator)(jumps).sum(axis=0)


def lipschitz_constant_lindblad(jumps: Inexact[Array, "jumps dim dim"]) -> Float[Array, ""]:
    """``max_j |D[J_j]|_F``, the generator's Lipschitz constant in the rates' 1-norm [derived].

    Args:
        jumps: Without rates.

    Example:
        >>> lowering = jnp.array([[[0.0, 1.0], [0.0, 0.0]]])
        >>> round(float(lipschitz_constant_lindblad(lowering)) ** 2, 5)
        2.5
    """
    parts = jax.vmap(dissipator)(jumps)
    return jnp.sqrt(jnp.sum(jnp.abs(parts) ** 2, axis=(1, 2))).max()


def state_infidelity(
    state: Complex[Array, " square"], target: Complex[Array, " square"]
) -> Float[Array, ""]:
    """``1 - tr(rho sigma)`` of vectorised density matrices, ``sigma`` pure.

    Example:
        >>> mixed, pure = jnp.array([0.5, 0, 0, 0.5 + 0j]), jnp.array([1.0, 0, 0, 0j])
        >>> float(state_infidelity(mixed, pure)), float(state_infidelity(pure, pure))
        (0.5, 0.0)
    """
    return 1 - jnp.vdot(target, state).real


def average_gate_infidelity(
    propagator: Complex[Array, "square square"], target: Inexact[Array, "dim dim"]
) -> Float[Array, ""]:
    """One minus the fidelity to a unitary, averaged over all pure states (Nielsen 2002).

    ``F = (d F_pro + 1) / (d + 1)`` with ``F_pro = tr(S_U^* S) / d^2``.

    Args:
        propagator: Of vectorised density matrices.
        target: Unitary.

    Raises:
        ValueError: Sizes do not fit.

    Example:
        >>> float(average_gate_infidelity(jnp.eye(4) + 0j, jnp.eye(2))) < 1e-6
        True
        >>> flip = jnp.array([[0.0, 1.0], [1.0, 0.0]])
        >>> round(float(average_gate_infidelity(jnp.eye(4) + 0j, flip)), 6)
        0.666667
    """
    unitary = _square("target", target)
    dim = unitary.shape[0]
    if jnp.shape(propagator) != (dim**2, dim**2):
        raise ValueError(
            f"propagator must have shape {(dim**2, dim**2)} for a target of {dim} x {dim}, got "
            f"{jnp.shape(propagator)}"
        )
    process = jnp.vdot(jnp.kron(unitary, unitary.conj()), propagator).real / dim**2
    return dim * (1 - process) / (dim + 1)


def _square(name: str, matrix: Array) -> Array:
    shape = jnp.shape(matrix)
    if len(shape) != 2 or shape[0] != shape[1]:
        raise ValueError(f"{name} must be a square matrix, got shape {shape}")
    return jnp.asarray(matrix, jnp.result_type(matrix, jnp.complex64))

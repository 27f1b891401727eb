"""Master equations against QuTiP, SciPy's matrix exponential, and closed forms."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from jaxlab.quantum import bloch, lindblad, pulses, two_qubits

GOLDEN = Path(__file__).parent / "golden" / "qutip.npz"
PAULI = np.array([[[0, 1], [1, 0]], [[0, -1j], [1j, 0]], [[1, 0], [0, -1]]])
LOWER = np.array([[0, 1], [0, 0]], dtype=complex)
QUBIT = bloch.Qubit(*jnp.array([0.085, 0.045, 0.3]))


@pytest.fixture(scope="module")
def golden():
    with np.load(GOLDEN) as file:
        return dict(file)


@jax.jit
def final_state(controls, qubit):
    return pulses.propagate_pwc(bloch.bloch_generator, controls, qubit, jnp.array(bloch.ZERO), 1.0)


def bloch_vector(rho):
    return np.array([np.trace(rho @ matrix).real for matrix in (np.eye(2), *PAULI)])


def test_one_qubit_agrees_with_qutip(golden):
    for controls, device, rho in zip(
        golden["controls"], golden["devices"], golden["states"], strict=True
    ):
        state = final_state(jnp.asarray(controls), bloch.Qubit(*jnp.asarray(device)))
        np.testing.assert_allclose(state, bloch_vector(rho), rtol=0, atol=1e-8)


def test_two_qubits_agree_with_qutip(golden):
    plus = np.array([1, 1j]) / 2**0.5
    ket = np.kron(plus, [0, 1])
    start = jnp.asarray(np.outer(ket, ket.conj()).reshape(-1))
    pair = two_qubits.QubitPair(*jnp.asarray(golden["pair_rates"]))
    end = jax.jit(
        lambda u, pair: pulses.propagate_pwc(
            two_qubits.pair_generator(1.0), u, pair, start, np.pi / 4, order=16
        )
    )(jnp.asarray(golden["pair_controls"]), pair)
    np.testing.assert_allclose(end.reshape(4, 4), golden["pair_state"], rtol=0, atol=1e-8)


def test_bloch_equations_are_the_master_equation():
    """Through the map from vectorised density matrices to Bloch vectors."""
    x, y = 0.7, -1.1
    H = x * PAULI[0] + y * PAULI[1] + QUBIT.detuning / 2 * PAULI[2]
    jumps = [
        np.sqrt(QUBIT.dephasing / 2) * PAULI[2], np.sqrt(QUBIT.relaxation) * LOWER,
    ]  # fmt: skip
    full = lindblad.lindblad_superoperator(jnp.asarray(H), jnp.asarray(jumps))
    to_bloch = np.stack([matrix.T.reshape(-1) for matrix in (np.eye(2), *PAULI)])
    expected = to_bloch @ np.asarray(full) @ np.linalg.inv(to_bloch)
    found = bloch.bloch_generator(jnp.array([x, y]), QUBIT)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-14)


def test_superoperator_is_the_formula_on_density_matrices():
    rng = np.random.default_rng(1)
    H, *rest = rng.normal(size=(4, 3, 3)) + 1j * rng.normal(size=(4, 3, 3))
    H, rho, jumps = H + H.conj().T, rest[0], rest[1:]
    expected = -1j * (H @ rho - rho @ H)
    for J in jumps:
        lost = J.conj().T @ J
        expected += J @ rho @ J.conj().T - (lost @ rho + rho @ lost) / 2
    full = lindblad.lindblad_superoperator(jnp.asarray(H), jnp.asarray(jumps))
    np.testing.assert_allclose((full @ rho.reshape(-1)).reshape(3, 3), expected, rtol=0, atol=1e-12)


def test_taylor_steps_equal_matrix_exponentials():
    controls = jax.random.uniform(jax.random.key(0), (20, 2), minval=-2.0, maxval=2.0)
    state = np.array(bloch.ZERO)
    for u in controls:
        state = scipy.linalg.expm(np.asarray(bloch.bloch_generator(u, QUBIT)) / 20) @ state
    np.testing.assert_allclose(final_state(controls, QUBIT), state, rtol=0, atol=1e-13)


def test_order_is_the_error():
    """A step of order m errs by about ``|G|^(m+1) / (m+1)!``."""
    controls, quiet = jnp.full((1, 2), 0.2), bloch.Qubit(*jnp.zeros(3))
    exact = scipy.linalg.expm(np.asarray(bloch.bloch_generator(controls[0], quiet)))[:, 3]
    errors = [
        float(
            jnp.abs(
                pulses.propagate_pwc(
                    bloch.bloch_generator, controls, quiet, jnp.eye(4)[3], 1.0, order=order
                )
                - exact
            ).max()
        )
        for order in (2, 4)
    ]
    norm = 0.4 * 2**0.5
    assert norm**3 / 6 / 2 < errors[0] < norm**3 / 6
    assert norm**5 / 120 / 2 < errors[1] < norm**5 / 120


def test_infidelities_of_pi_pulses():
    """Without noise there is no error; with it, the value of a run of another program."""
    controls = jnp.zeros((20, 2)).at[:, 0].set(jnp.pi / 2)
    error = bloch.bloch_infidelity(final_state(controls, bloch.Qubit(*jnp.zeros(3))), bloch.ONE)
    assert abs(float(error)) < 1e-13
    noisy = final_state(controls, QUBIT._replace(detuning=jnp.array(0.0)))
    assert float(bloch.bloch_infidelity(noisy, bloch.ONE)) == pytest.approx(0.03718, abs=5e-6)


def test_gate_infidelity_averages_over_states():
    """Against the mean over many pure states of their own infidelities."""
    rng = np.random.default_rng(2)
    controls = jnp.asarray(rng.uniform(-3, 3, (20, 6)))
    pair = two_qubits.QubitPair(jnp.array([0.1, 0.2]), jnp.array([0.3, 0.05]))
    duration = 0.7
    found = two_qubits.gate_infidelity(controls, pair, coupling=1.3, duration=duration)
    propagator = np.asarray(
        pulses.propagate_pwc(
            two_qubits.pair_generator(1.3), controls, pair, jnp.eye(16) + 0j, duration, order=12
        )
    )
    # Stabiliser states are a 3-design: their mean is that over all pure states.
    total = []
    for ket in stabiliser_states():
        rho = np.outer(ket, ket.conj())
        aim = two_qubits.CZ @ ket
        total.append((aim.conj() @ (propagator @ rho.reshape(-1)).reshape(4, 4) @ aim).real)
    assert len(total) == 60
    assert float(found) == pytest.approx(1 - np.mean(total), abs=1e-10)


def stabiliser_states():
    """All 60 of two qubits: joint eigenstates of two commuting Pauli matrices."""
    singles = [np.eye(2), *PAULI]
    words = [np.kron(a, b) for a in singles for b in singles][1:]
    states = []
    for i, one in enumerate(words):
        for two in words[i + 1 :]:
            if not np.allclose(one @ two, two @ one):
                continue
            for signs in ((1, 1), (1, -1), (-1, 1), (-1, -1)):
                projector = (np.eye(4) + signs[0] * one) @ (np.eye(4) + signs[1] * two) / 4
                if not any(np.allclose(projector, np.outer(s, s.conj())) for s in states):
                    column = projector[:, np.argmax(np.abs(np.diag(projector)))]
                    states.append(column / np.linalg.norm(column))
    return states


def test_state_infidelity_agrees_with_bloch():
    rho = np.array([[0.7, 0.1 - 0.2j], [0.1 + 0.2j, 0.3]])
    target = np.array([[0.5, 0.5], [0.5, 0.5]])
    vector = jnp.asarray(bloch_vector(rho))
    aim = jnp.array([1.0, 1.0, 0.0, 0.0])
    state, pure = (jnp.asarray(matrix.reshape(-1) + 0j) for matrix in (rho, target))
    full = lindblad.state_infidelity(state, pure)
    assert float(full) == pytest.approx(1 - np.trace(rho @ target).real, abs=1e-14)
    assert float(bloch.bloch_infidelity(vector, aim)) == pytest.approx(float(full), abs=1e-14)


def test_coherence_times_give_rates():
    """Left alone for a time t, a qubit keeps exp(-t/T1) of |1> and exp(-t/T2) of coherence."""
    t1, t2, gate = 40.0, 30.0, 2.0
    qubit = bloch.qubit_of_times(gate, t1, t2, detuning=0.05)
    assert float(qubit.detuning) == pytest.approx(0.1)
    start = jnp.array([1.0, 1.0, 0.0, 0.0])
    end = scipy.linalg.expm(np.asarray(bloch.bloch_generator(jnp.zeros(2), qubit))) @ start
    assert np.hypot(*end[1:3]) == pytest.approx(np.exp(-gate / t2), abs=1e-12)
    excited = scipy.linalg.expm(np.asarray(bloch.bloch_generator(jnp.zeros(2), qubit))) @ np.array(
        bloch.ONE
    )
    assert (1 - excited[3]) / 2 == pytest.approx(np.exp(-gate / t1), abs=1e-12)


def test_bounded_controls_stay_within_and_follow_small_inputs():
    raw = jnp.array([[1e-4, 50.0], [-1e-4, -50.0]])
    found = pulses.bounded_controls(raw, jnp.array([2.0, 3.0]))
    np.testing.assert_allclose(found[:, 0], raw[:, 0], rtol=1e-8)
    np.testing.assert_allclose(found[:, 1], [3.0, -3.0])
    off = pulses.bounded_controls(raw, 2.0, jnp.array([0.0, 1.0]))
    np.testing.assert_array_equal(off[:, 0], 0.0)
    slope = jax.grad(lambda w: pulses.bounded_controls(w, 2.0).sum())(jnp.full((1, 1), 1.0))
    assert float(slope[0, 0]) == pytest.approx(1 / np.cosh(0.5) ** 2)


def test_lipschitz_constants_of_the_usual_jumps():
    for jump, value in ((PAULI[2], 8**0.5), (PAULI[2] / 2**0.5, 2**0.5), (LOWER, 2.5**0.5)):
        found = lindblad.lipschitz_constant_lindblad(jnp.asarray(jump)[None])
        assert float(found) == pytest.approx(value, rel=1e-12)

"""Final states of noisy qubits by QuTiP's adaptive solver, for the ordinary tests to hold ours to.

Run by hand, from the repository's root, with ``pip install -e '.[peers]'``::

    python tests/peers/master_equation.py
"""

from pathlib import Path

import numpy as np
import qutip

TARGET = Path(__file__).parents[1] / "quantum" / "golden" / "qutip.npz"
SEGMENTS, DEVICES = 20, 4
COUPLING, DURATION = 1.0, float(np.pi / 4)
ACCURATE = {"atol": 1e-11, "rtol": 1e-10, "nsteps": 10**6, "progress_bar": ""}


def evolve(parts, controls, drift, jumps, state, duration):
    """One segment after the other, so that no step crosses a jump of the controls."""
    length = duration / len(controls)
    for amplitudes in controls:
        total = drift + sum(float(u) * part for u, part in zip(amplitudes, parts, strict=True))
        state = qutip.mesolve(total, state, [0.0, length], jumps, options=ACCURATE).states[-1]
    return state.full()


def one_qubit(controls, dephasing, relaxation, detuning):
    x, y, z = qutip.sigmax(), qutip.sigmay(), qutip.sigmaz()
    lower = qutip.basis(2, 0) * qutip.basis(2, 1).dag()
    jumps = [(dephasing / 2) ** 0.5 * z, relaxation**0.5 * lower]
    state = qutip.ket2dm(qutip.basis(2, 0))
    return evolve([x, y], controls, detuning / 2 * z, jumps, state, 1.0)


def two_qubits(controls, dephasing, relaxation):
    eye = qutip.qeye(2)
    lower = qutip.basis(2, 0) * qutip.basis(2, 1).dag()

    def first(matrix):
        return qutip.tensor(matrix, eye)

    def second(matrix):
        return qutip.tensor(eye, matrix)

    x, y, z = qutip.sigmax(), qutip.sigmay(), qutip.sigmaz()
    parts = [first(x), first(y), second(x), second(y), first(z), second(z)]
    jumps = [
        (dephasing[0] / 2) ** 0.5 * first(z), (dephasing[1] / 2) ** 0.5 * second(z),
        relaxation[0] ** 0.5 * first(lower), relaxation[1] ** 0.5 * second(lower),
    ]  # fmt: skip
    plus = (qutip.basis(2, 0) + 1j * qutip.basis(2, 1)).unit()
    state = qutip.ket2dm(qutip.tensor(plus, qutip.basis(2, 1)))
    return evolve(parts, controls, COUPLING * first(z) * second(z), jumps, state, DURATION)


def main():
    rng = np.random.default_rng(0)
    controls = rng.uniform(-2, 2, (DEVICES, SEGMENTS, 2))
    dephasing, relaxation = rng.uniform(0.02, 0.15, DEVICES), rng.uniform(0.01, 0.08, DEVICES)
    devices = np.stack([dephasing, relaxation, rng.normal(size=DEVICES)], axis=1)
    singles = [one_qubit(u, *device) for u, device in zip(controls, devices, strict=True)]
    pair_controls = rng.uniform(-6, 6, (SEGMENTS, 6))
    rates = rng.uniform(0.02, 0.15, (2, 2))
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(
        TARGET,
        version=qutip.__version__,
        controls=controls, devices=devices, states=np.stack(singles),
        pair_controls=pair_controls, pair_rates=rates,
        pair_state=two_qubits(pair_controls, *rates),
    )  # fmt: skip
    print(f"{TARGET} by QuTiP {qutip.__version__}")


if __name__ == "__main__":
    main()

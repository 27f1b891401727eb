"""What values and gradients of 48 noisy qubits under a pulse cost, against dynamiqs.

Run from the repository's root::

    pytest benchmarks/meta_gain.py -n 0

Times are printed and decide nothing; equal answers come first. dynamiqs gets its piecewise constant
Hamiltonian, all devices in one batch and an adaptive solver whose tolerance reaches the same
answers; ours takes Taylor steps of fixed order. Both are compiled by JAX in double precision.
"""

import functools
import time
from collections.abc import Callable
from typing import Any

import dynamiqs as dq  # pyright: ignore[reportMissingImports]
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlab.quantum.bloch import ONE, ZERO, Qubit, bloch_generator, bloch_infidelity
from jaxlab.quantum.pulses import propagate_pwc

DEVICES, SEGMENTS = 48, 20
TOLERANCE = 1e-6
REPETITIONS = 5

pytestmark = pytest.mark.usefixtures("as_users_run")


@functools.cache
def setting() -> tuple[jax.Array, Qubit]:
    keys = jax.random.split(jax.random.key(0), 4)
    controls = jax.random.uniform(keys[0], (SEGMENTS, 2), minval=-1.0, maxval=2.0)
    dephasing = jax.random.uniform(keys[1], (DEVICES,), minval=0.02, maxval=0.15)
    relaxation = jax.random.uniform(keys[2], (DEVICES,), minval=0.01, maxval=0.08)
    return controls, Qubit(dephasing, relaxation, 0.2 * jax.random.normal(keys[3], (DEVICES,)))


def ours(controls: jax.Array, devices: Qubit) -> jax.Array:
    """The mean infidelity of the flip."""

    def one(qubit: Qubit) -> jax.Array:
        end = propagate_pwc(bloch_generator, controls, qubit, jnp.array(ZERO), 1.0)
        return bloch_infidelity(end, ONE)

    return jax.vmap(one)(devices).mean()


def theirs(controls: jax.Array, devices: Qubit) -> jax.Array:
    """The same by dynamiqs."""
    times = jnp.linspace(0.0, 1.0, SEGMENTS + 1)
    # |0> is the first vector, to which the qubit relaxes.
    lower = dq.asqarray(np.array([[0.0, 1.0], [0.0, 0.0]]))

    def one(qubit: Qubit) -> jax.Array:
        H = (
            dq.pwc(times, controls[:, 0], dq.sigmax())
            + dq.pwc(times, controls[:, 1], dq.sigmay())
            + qubit.detuning / 2 * dq.sigmaz()
        )
        jumps = [
            jnp.sqrt(qubit.dephasing / 2) * dq.sigmaz(),
            jnp.sqrt(qubit.relaxation) * lower,
        ]
        done = dq.mesolve(
            H, jumps, dq.asqarray(np.diag([1.0 + 0j, 0.0])), jnp.array([0.0, 1.0]),
            method=dq.method.Tsit5(rtol=1e-8, atol=1e-8),
            gradient=dq.gradient.BackwardCheckpointed(),
            progress_meter=None,
        )  # fmt: skip
        return 1 - done.final_state.to_jax()[1, 1].real

    return jax.vmap(one)(devices).mean()


def best(function: Callable[[], Any]) -> float:
    """Seconds of the quickest of several calls."""
    times = []
    for _ in range(REPETITIONS):
        start = time.perf_counter()
        jax.block_until_ready(function())
        times.append(time.perf_counter() - start)
    return min(times)


def test_value_and_gradient(report):
    dq.set_precision("double")
    controls, devices = setting()
    programs, firsts = {}, {}
    for name, loss in (("jaxlab", ours), ("dynamiqs", theirs)):
        program = jax.jit(jax.value_and_grad(loss))
        start = time.perf_counter()
        answer = jax.block_until_ready(program(controls, devices))
        firsts[name] = time.perf_counter() - start
        programs[name] = (program, answer)
    mine, peer = (programs[name][1] for name in ("jaxlab", "dynamiqs"))
    np.testing.assert_allclose(mine[0], peer[0], rtol=0, atol=TOLERANCE)
    np.testing.assert_allclose(mine[1], peer[1], rtol=0, atol=TOLERANCE)
    seconds = {
        name: best(lambda p=program: p(controls, devices))
        for name, (program, _) in programs.items()
    }
    report("value and gradient, 48 devices x 20 segments", f"{seconds['jaxlab'] * 1e3:.2f} ms")
    report("the same, first call", f"{firsts['jaxlab']:.1f} s")
    report("dynamiqs / jaxlab", f"{seconds['dynamiqs'] / seconds['jaxlab']:.1f}")
    report("dynamiqs / jaxlab, first call", f"{firsts['dynamiqs'] / firsts['jaxlab']:.1f}")

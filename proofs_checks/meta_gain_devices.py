"""Claims on the simulators of meta_gain, and on gains where the variance of tasks is small."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jaxtyping import Array, Float

from jaxlab.claims import Claim, Comparison, at_most, close_to
from jaxlab.problems.sites import uniform
from jaxlab.quantum.bloch import ZERO, Qubit, bloch_generator
from jaxlab.quantum.lindblad import lindblad_superoperator, lipschitz_constant_lindblad
from jaxlab.quantum.pulses import bounded_controls, propagate_pwc
from jaxlab.stats.intervals import slope_interval

SIGMA_Z = np.diag([1.0, -1.0]) / 2**0.5
LOWER = np.array([[0.0, 1.0], [0.0, 0.0]])
ACROSS = np.diag([0.0, 1.0, 1.0, 0.0])
FEED = np.outer([0.0, 0.0, 0.0, 1.0], [1.0, 0.0, 0.0, 0.0])
SPREADS = (0.0025, 0.005, 0.01, 0.02, 0.04)
NODES = 21


class Rates(NamedTuple):
    """Two devices: dephasing and relaxation of each."""

    one: Float[Array, " 2"]
    two: Float[Array, " 2"]


def rates() -> Rates:
    """A NumPyro model."""
    both = uniform("rates", 0.001, 1.0, 4)
    return Rates(both[:2], both[2:])


def only_dephasing() -> Rates:
    """Only one rate changes."""
    return Rates(jnp.array([0.1, 0.3]), jnp.array([0.7, 0.3]))


def only_relaxation() -> Rates:
    """Only the other does."""
    return Rates(jnp.array([0.1, 0.3]), jnp.array([0.1, 0.05]))


def generator(rates: Array) -> Array:
    """Of a qubit without Hamiltonian, by the general formula."""
    jumps = jnp.asarray(np.stack([SIGMA_Z, LOWER])) * jnp.sqrt(rates)[:, None, None]
    return lindblad_superoperator(jnp.zeros((2, 2)), jumps)


def lipschitz(instance: Rates, *, size: float = 1.0, anti: float = 1.0) -> Comparison:
    """The bound, and its equality in one rate; mutants change a jump, or lose a half."""
    jumps = jnp.asarray(np.stack([SIGMA_Z, LOWER]))
    lost = jumps[1].T @ jumps[1]
    # A dissipator without its half has once more of what the anticommutator takes away.
    extra = (anti - 1) * (jnp.kron(lost, jnp.eye(2)) + jnp.kron(jnp.eye(2), lost)) / 2

    def whole(rates: Array) -> Array:
        return generator(rates) - rates[1] * extra

    def apart(one: Array, two: Array) -> Array:
        return jnp.sqrt(jnp.sum(jnp.abs(whole(one) - whole(two)) ** 2))

    constant = size**2 * lipschitz_constant_lindblad(jumps)
    scale = constant * jnp.sum(jnp.abs(instance.one - instance.two))
    # The lowering operator has the larger constant, which a change of its rate alone attains.
    only = instance.two.at[0].set(instance.one[0])
    attained = constant * jnp.abs(instance.one[1] - instance.two[1])
    missed = jnp.abs(apart(instance.one, only) - attained)
    left = jnp.stack([apart(instance.one, instance.two), missed]) / scale
    return at_most(left, jnp.array([1.0, 0.0]) + 1e-12)


class Driven(NamedTuple):
    """A device, its pulse, and its start inside of the Bloch ball."""

    qubit: Qubit
    raw: Float[Array, "segments 2"]
    start: Float[Array, " 3"]
    duration: Float[Array, ""]


def driven(segments: int) -> Driven:
    """A NumPyro model: rates up to 2, detunings up to 3, amplitudes up to 2."""
    numbers = uniform("numbers", 0.0, 1.0, 2 * segments + 7)
    rates, rest = numbers[:2], numbers[2:]
    direction = 2 * rest[:3] - 1
    length = jnp.sqrt(jnp.sum(direction**2) + 1e-12)
    qubit = Qubit(2 * rates[0], 2 * rates[1], 6 * rest[4] - 3)
    raw = 8 * rest[5:].reshape(segments, 2) - 4
    return Driven(qubit, raw, direction / length * rest[3] ** 0.25, 0.2 + uniform("t", 0.0, 1.0))


def pure(segments: int) -> Driven:
    """From a pure state, without dephasing: the smallest that positivity allows."""
    qubit = Qubit(jnp.zeros(()), jnp.ones(()), jnp.zeros(()))
    start = jnp.array([1.0, 0.0, 0.0])
    return Driven(qubit, jnp.zeros((segments, 2)), start, jnp.ones(()))


def is_state(instance: Driven) -> Array:
    """Rates that are not negative, and a density matrix."""
    least = jnp.minimum(instance.qubit.dephasing, instance.qubit.relaxation)
    return jnp.minimum(least, 1 + 1e-12 - jnp.sum(instance.start**2))


def evolve(instance: Driven, *, controls: Array, change: Any) -> Array:
    """The end, with a generator that a mutant may change."""

    def changed(u: Array, qubit: Qubit) -> Array:
        return change(bloch_generator(u, qubit), qubit)

    start = jnp.append(jnp.ones(1), instance.start)
    return propagate_pwc(changed, controls, instance.qubit, start, instance.duration, order=14)


def physical(instance: Driven, *, coherence: float = 1.0, feed: float = 1.0) -> Comparison:
    """No negative probability; mutants decohere too slowly, or fill |0> too fast."""

    def change(matrix: Array, qubit: Qubit) -> Array:
        loss = qubit.dephasing + qubit.relaxation / 2
        slower = (1 - coherence) * loss * jnp.asarray(ACROSS)
        return matrix + slower + (feed - 1) * qubit.relaxation * jnp.asarray(FEED)

    end = evolve(instance, controls=bounded_controls(instance.raw, 2.0), change=change)
    return at_most(jnp.sum(end[1:] ** 2), end[0] ** 2 + 1e-10)


def free_decay(instance: Driven, *, strength: float = 1.0, upward: float = 0.0) -> Comparison:
    """Closed forms; mutants halve the dephasing, or relax to the other state."""
    qubit, (x, y, z), t = instance.qubit, instance.start, instance.duration

    def change(matrix: Array, qubit: Qubit) -> Array:
        less = (1 - strength) * qubit.dephasing * jnp.asarray(ACROSS)
        return matrix + less - 2 * upward * qubit.relaxation * jnp.asarray(FEED)

    end = evolve(instance, controls=jnp.zeros_like(instance.raw), change=change)
    coherence = jnp.exp(-(qubit.dephasing + qubit.relaxation / 2) * t)
    cos, sin = jnp.cos(qubit.detuning * t), jnp.sin(qubit.detuning * t)
    excited = (1 - z) / 2 * jnp.exp(-qubit.relaxation * t)
    told = jnp.stack(
        [coherence * (cos * x - sin * y), coherence * (sin * x + cos * y), 1 - 2 * excited]
    )
    return close_to(end[1:], told, allowance=1e-10)


def rabi(instance: Driven, *, drive: float = 1.0, drift: float = 1.0) -> Comparison:
    """Rabi's formula without noise; mutants forget a factor 2 of drive or detuning."""
    amplitude = 2 * jnp.tanh(instance.raw[0, 0] / 2)
    detuning, t = instance.qubit.detuning, instance.duration
    qubit = Qubit(jnp.zeros(()), jnp.zeros(()), drift * detuning)
    controls = jnp.zeros_like(instance.raw).at[:, 0].set(drive * amplitude)
    end = propagate_pwc(bloch_generator, controls, qubit, jnp.array(ZERO), t, order=14)
    frequency = jnp.sqrt(4 * amplitude**2 + detuning**2 + 1e-300)
    told = 4 * amplitude**2 / frequency**2 * jnp.sin(frequency * t / 2) ** 2
    return close_to((end[0] - end[3]) / 2, told, allowance=1e-10)


class Regulators(NamedTuple):
    """Scalar systems ``x' = -a x + b u`` at the cost ``q x^2 + r u^2``."""

    decay: Float[Array, " replicas"]
    input: Float[Array, " replicas"]
    state_cost: Float[Array, " replicas"]
    input_cost: Float[Array, " replicas"]


def regulators() -> Regulators:
    """A NumPyro model: three around that of a fixed example."""
    numbers = uniform("numbers", 0.0, 1.0, 4, 3)
    low, high = jnp.array([0.3, 0.8, 0.5, 0.05]), jnp.array([0.8, 1.5, 2.0, 0.3])
    return Regulators(*(low[:, None] + (high - low)[:, None] * numbers))


def are_apart(instance: Regulators) -> Array:
    """Stable, with costs that are positive, and not three times the same."""
    return jnp.minimum(jnp.stack(instance).min(), jnp.ptp(instance.input))


def small_variance(instance: Regulators, *, half: float = 0.5, start: float = 1.0) -> Comparison:
    """Exponent and constant; mutants lose the half, or evaluate from another state."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    shares = jnp.asarray(weights / weights.sum())
    spreads = jnp.asarray(SPREADS)

    def one(a: Array, b: Array, q: Array, r: Array) -> tuple[Array, Array]:
        def cost(k: Array, b: Array, x: float = 1.0) -> Array:
            return (q + r * k**2) / (2 * (b * k + a)) * x**2

        def best(b: Array) -> Array:
            return (jnp.sqrt(a**2 + b**2 * q / r) - a) / b

        def gain(s: Array) -> Array:
            def at(z: Array) -> Array:
                now = b * (1 + s * z)
                return cost(best(b), now, start) - cost(best(now), now, start)

            return shares @ jax.vmap(at)(jnp.asarray(nodes))

        curvature = jax.grad(jax.grad(cost))(best(b), b)
        limit = half * curvature * jax.grad(best)(b) ** 2 * b**2
        gains = jax.vmap(gain)(spreads)
        return gains, gains / (limit * spreads**2)

    gains, ratios = jax.vmap(one)(*instance)
    middle, width = slope_interval(spreads, gains)
    misses = jnp.abs(middle - 2) + width
    return at_most(jnp.stack([misses, jnp.abs(ratios[:, 0] - 1).max()]) / 0.02, 1.0)


SEGMENTS: dict[str, Any] = {
    "sizes": {"segments": st.sampled_from([8, 12])},
    "typical": {"segments": 8},
    "samples": 1000,
    "restarts": 8,
}
CLAIMS = (
    Claim(
        name="meta_gain/lipschitz",
        statement="|L - L'|_F <= max_j |D[J_j]|_F |gamma - gamma'|_1; one rate: equality",
        source="arXiv:2601.18973, Lemma 4.3; derived: the generator is linear in the rates",
        families={"two devices": rates},
        conclusion=lipschitz,
        assumptions=lambda instance: jnp.stack(instance).min(),
        boundary={"one rate": only_dephasing, "the other": only_relaxation},
        samples=5000,
        restarts=8,
        tightness="tight",
        rungs=("explore", "sample"),
        mutants={"jumps smaller": {"size": 0.9}, "dissipator without its half": {"anti": 2.0}},
    ),
    Claim(
        name="meta_gain/physical",
        statement="any pulse: no eigenvalue of the density matrix becomes negative",
        source="Lindblad's theorem",
        families={"driven": driven},
        conclusion=physical,
        assumptions=is_state,
        boundary={"pure": pure},
        mutants={
            "coherence lives too long": {"coherence": 0.4},
            "|0> fills too fast": {"feed": 3.0},
        },
        **SEGMENTS,
    ),
    Claim(
        name="meta_gain/free_decay",
        statement="no pulse: |1> decays as exp(-g_r t), coherence as exp(-(g_d + g_r/2) t)",
        source="derived: the two jump operators of arXiv:2601.18973's code",
        families={"driven": driven},
        conclusion=free_decay,
        assumptions=is_state,
        boundary={"pure": pure},
        tightness="tight",
        mutants={
            "sigma_z/2 for sigma_z/sqrt 2": {"strength": 0.5},
            "jump reversed": {"upward": 1.0},
        },
        **SEGMENTS,
    ),
    Claim(
        name="meta_gain/rabi",
        statement="no noise, constant u: P_1 = 4u^2/w^2 sin^2(w t/2) with w^2 = 4u^2 + delta^2",
        source="Rabi's formula",
        families={"driven": driven},
        conclusion=rabi,
        assumptions=is_state,
        tightness="tight",
        mutants={"half of the drive": {"drive": 0.5}, "twice the detuning": {"drift": 2.0}},
        **SEGMENTS,
    ),
    Claim(
        name="meta_gain/small_variance",
        statement="scalar regulators, b of relative spread s -> 0: "
        "G_inf / Var b -> J'' (d theta*/d b)^2 / 2, an exponent of 2",
        source="derived: Taylor's formula; expectations by Gauss-Hermite quadrature",
        families={"regulators": regulators},
        conclusion=small_variance,
        assumptions=are_apart,
        samples=500,
        restarts=4,
        tightness="order",
        rungs=("explore", "sample"),
        mutants={"without the half": {"half": 1.0}, "another start": {"start": 1.1}},
    ),
)

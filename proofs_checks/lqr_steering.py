"""Claims on steering by linear optimal control: the regulator, its limits, and the plant."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from hypothesis import strategies as st
from jaxtyping import Array, Float

from jaxlab.claims import Claim, Comparison, at_most, close_to
from jaxlab.control.lqr import (
    AffinePolicy,
    LinearSystem,
    Weights,
    closed_loop,
    quadratic_cost,
    riccati,
    rollout,
)
from jaxlab.core.locate import load_companion
from jaxlab.language.setpoints import adaptive_setpoint
from jaxlab.problems.sites import log_uniform, normal, normals
from jaxlab.stats.elimination import eliminate


class Loop(NamedTuple):
    """A linear system without drift, its weights, a start, and directions to perturb along."""

    transitions: Float[Array, "steps dim dim"]
    start: Float[Array, " dim"]
    noise: Float[Array, "steps dim"]
    state: Float[Array, ""]
    input: Float[Array, ""]
    final: Float[Array, ""]

    @property
    def system(self) -> LinearSystem:
        """The system."""
        return LinearSystem(self.transitions)

    @property
    def weights(self) -> Weights:
        """The weights, numbers times the identity."""
        return Weights(self.state, self.input, self.final)


def loops(dim: int, steps: int) -> Loop:
    """A NumPyro model: the identity plus noise, as layers of residual networks are."""
    noise, start, push = normals("loop", (steps, dim, dim), (dim,), (steps, dim))
    spread = log_uniform("spread", 0.05, 1.0)
    costs = [log_uniform(name, 0.1, 10.0) for name in ("state", "input", "final")]
    return Loop(jnp.eye(dim) + spread * noise / dim**0.5, start, push, *costs)


def one_rotation(dim: int, steps: int) -> Loop:
    """Reversal of all coordinates at equal weights, from a unit vector."""
    flip = jnp.broadcast_to(-jnp.eye(dim)[::-1], (steps, dim, dim))
    one = jnp.ones(())
    return Loop(flip, jnp.eye(dim)[0], jnp.ones((steps, dim)), one, one, one)


def legal_loop(instance: Loop) -> Array:
    """Convex costs, and a start that is not 0."""
    costs = jnp.stack([instance.state, instance.input, instance.final])
    return jnp.minimum(costs.min(), jnp.sum(instance.start**2))


def least_cost(instance: Loop) -> Array:
    """The minimum over all inputs at once, by the normal equations of the stacked problem."""
    steps, dim = instance.noise.shape

    def path(inputs: Array) -> Array:
        zero = AffinePolicy(jnp.zeros_like(instance.transitions), inputs)
        return rollout(instance.system, zero, instance.start).states

    free = path(jnp.zeros((steps, dim)))
    units = jnp.eye(steps * dim).reshape(-1, steps, dim)
    reach = jax.vmap(lambda inputs: path(inputs) - free)(units).reshape(steps * dim, -1)
    price = jnp.repeat(
        jnp.concatenate([jnp.full(steps, instance.state), instance.final[None]]), dim
    )
    normal_matrix = (reach * price) @ reach.T + instance.input * jnp.eye(steps * dim)
    right = -(reach * price) @ free.ravel()
    best = eliminate(normal_matrix, right).solution
    return jnp.sum(price * free.ravel() ** 2) - best @ right


def optimal_cost(
    instance: Loop, *, closed: float = 1.0, late: float = 1.0, priced: float = 1.0
) -> Comparison:
    """Three values of the optimum; mutants forget ``-K``, the shift of S, or what inputs cost."""
    found = riccati(instance.system, instance.weights)
    A, S, K = instance.transitions, found.curvatures, found.policy.gains
    early = jnp.linalg.solve(S[:-1] + instance.input * jnp.eye(A.shape[1]), S[:-1] @ A)
    deadbeat = A
    gains = late * (priced * K + (1 - priced) * deadbeat) + (1 - late) * early
    path = rollout(instance.system, found.policy._replace(gains=gains), instance.start)
    cost = quadratic_cost(path, instance.weights)
    first = S[0] + (1 - closed) * A[0].T @ S[1] @ K[0]
    told = instance.start @ first @ instance.start
    least = least_cost(instance)
    return close_to(jnp.stack([cost, told]) / least, jnp.ones(2), allowance=1e-9)


def perturbed_cost(instance: Loop, *, shifted: float = 1.0, gain: float = 1.0) -> Comparison:
    """Completing the square; mutants take ``S_k`` for ``S_{k+1}``, or one wrong gain."""
    found = riccati(instance.system, instance.weights)
    first = jnp.arange(instance.noise.shape[0]) == 0
    wrong = jnp.where(first, gain, 1.0)[:, None, None] * found.policy.gains
    path = rollout(instance.system, found.policy._replace(offsets=instance.noise), instance.start)
    away = path.inputs + jnp.einsum("kij,kj->ki", wrong, path.states[:-1])
    S = shifted * found.curvatures[1:] + (1 - shifted) * found.curvatures[:-1]
    more = jnp.einsum("ki,kij,kj->", away, S, away) + instance.input * jnp.sum(away**2)
    told = instance.start @ found.curvatures[0] @ instance.start + more
    return close_to(quadratic_cost(path, instance.weights) / told, 1.0, allowance=1e-9)


class Aim(NamedTuple):
    """A state, a direction, another point of the hyperplane's space, and a target."""

    z: Float[Array, " dim"]
    direction: Float[Array, " dim"]
    other: Float[Array, " dim"]
    target: Float[Array, ""]


def aims(dim: int) -> Aim:
    """A NumPyro model; directions are normalised."""
    z, v, other = normals("aim", (dim,), (dim,), (dim,))
    return Aim(z, v / jnp.sqrt(jnp.sum(v**2)), other, normal("target"))


def nearest_point(instance: Aim, *, length: float = 1.0) -> Comparison:
    """Feasible, and nearer than another feasible point; a mutant's direction has another norm."""
    z, v, other, target = instance
    found = adaptive_setpoint(z, length * v, target)
    feasible = other + (target - v @ other) * v
    missed = (v @ found - target) ** 2
    near, far = jnp.sum((found - z) ** 2), jnp.sum((feasible - z) ** 2)
    scale = jnp.sum(z**2) + jnp.sum(other**2) + target**2
    return at_most(jnp.stack([missed, near]) / scale, jnp.stack([0.0, far / scale]) + 1e-12)


def gain_contracts(instance: Loop, *, exchanged: float = 0.0) -> Comparison:
    """``A - K`` against ``(I + S/r)^-1 A`` and its norm; a mutant exchanges the two prices."""
    q, r = instance.state, instance.input
    used = Weights(
        (1 - exchanged) * q + exchanged * r, (1 - exchanged) * r + exchanged * q, instance.final
    )
    found = riccati(instance.system, used)
    loop = closed_loop(instance.system, found.policy)
    A, S = instance.transitions, found.curvatures[1:]
    same = jnp.linalg.solve(jnp.eye(A.shape[1]) + S / r, A)
    floors = jnp.full(A.shape[0], q).at[-1].set(instance.final)
    norms = jnp.linalg.norm(loop, ord=2, axis=(1, 2))
    free = jnp.linalg.norm(A, ord=2, axis=(1, 2))
    least = jnp.linalg.eigvalsh(S)[:, 0]
    gap = jnp.abs(loop - same).max(axis=(1, 2))
    # At the last step S is a multiple of the identity, and the bound an equality.
    last = jnp.abs(norms[-1] - r / (r + instance.final) * free[-1])
    return at_most(
        jnp.concatenate([gap, norms, r / (r + least), last[None]]),
        jnp.concatenate(
            [
                1e-9 * free,
                r / (r + least) * free * (1 + 1e-9),
                r / (r + floors) * (1 + 1e-9),
                1e-9 * free[-1:],
            ]
        ),
        scale=jnp.concatenate([free, free, jnp.ones_like(free), free[-1:]]),
    )


def cheap_and_dear(instance: Loop, *, sign: float = 1.0) -> Comparison:
    """Inputs that cost nothing cancel the plant, those that cost all are not used."""
    A, q = instance.transitions, instance.state
    dear = riccati(instance.system, Weights(q, 1e8 * q, q)).policy
    free = riccati(instance.system, Weights(q, 1e-8 * q, q)).policy
    free = free._replace(gains=sign * free.gains)
    states = rollout(instance.system, free, instance.start).states[1:]
    scale = jnp.sum(A**2, axis=(1, 2)) ** 0.5
    return at_most(
        jnp.concatenate(
            [
                jnp.abs(dear.gains).max(axis=(1, 2)) / jnp.prod(1 + scale) ** 2,
                jnp.abs(free.gains - A).max(axis=(1, 2)) / scale,
                jnp.abs(states).max(axis=1) / scale / jnp.sum(instance.start**2) ** 0.5,
            ]
        ),
        1e-6 * jnp.ones(3 * A.shape[0]),
    )


SIZES: dict[str, Any] = {"dim": st.sampled_from([1, 3]), "steps": st.sampled_from([1, 4])}
TYPICAL = {"dim": 3, "steps": 4}
FEW: dict[str, Any] = {"sizes": SIZES, "typical": TYPICAL, "samples": 2000, "restarts": 8}
CLAIMS = (
    Claim(
        name="lqr_steering/optimal_cost",
        statement="the feedback -K x costs x_0' S_0 x_0 = min over all inputs",
        source="the linear-quadratic regulator; the minimum by stacked normal equations",
        families={"residual": loops},
        conclusion=optimal_cost,
        assumptions=legal_loop,
        boundary={"reversal": one_rotation},
        tightness="tight",
        rungs=("explore", "sample"),
        mutants={
            "S without -K": {"closed": 0.0},
            "S_k instead of S_{k+1} in the gain": {"late": 0.0},
            "inputs without a price": {"priced": 0.0},
        },
        **FEW,
    ),
    Claim(
        name="lqr_steering/perturbed_cost",
        statement="J(u) = x_0' S_0 x_0 + sum_k |u_k + K_k x_k|^2 in the norm of R + S_{k+1}",
        source="derived: completing the square at every step",
        families={"residual": loops},
        conclusion=perturbed_cost,
        assumptions=legal_loop,
        boundary={"reversal": one_rotation},
        tightness="tight",
        rungs=("explore", "sample"),
        mutants={
            "S_k instead of S_{k+1}": {"shifted": 0.0},
            "one gain a tenth too large": {"gain": 1.1},
        },
        **FEW,
    ),
    Claim(
        name="lqr_steering/nearest_point",
        statement="|v| = 1: z + (beta* - v'z) v is the nearest point with feature beta*",
        source="arXiv:2604.19018, Theorem 4.1",
        families={"normal": aims},
        conclusion=nearest_point,
        assumptions=lambda instance: 1e-12 - jnp.abs(jnp.sum(instance.direction**2) - 1),
        sizes={"dim": st.sampled_from([1, 2, 8])},
        typical={"dim": 4},
        samples=5000,
        restarts=8,
        tightness="tight",
        mutants={"direction not normalised": {"length": 1.05}},
    ),
    Claim(
        name="lqr_steering/gain_contracts",
        statement="A - K = (I + S/r)^-1 A, so |A - K| <= r/(r + q) |A|; the last step has q_L",
        source="derived: K = (S + r)^-1 S A, and S_k >= q I",
        families={"residual": loops},
        conclusion=gain_contracts,
        assumptions=legal_loop,
        boundary={"reversal": one_rotation},
        tightness="tight",
        rungs=("explore", "sample"),
        mutants={"Q and R exchanged": {"exchanged": 1.0}},
        **FEW,
    ),
    Claim(
        name="lqr_steering/limits",
        statement="r -> infinity: K -> 0; r -> 0 with q_L = q: K -> A, and all states -> 0",
        source="derived: both limits of (S + r)^-1 S A",
        families={"residual": loops},
        conclusion=cheap_and_dear,
        assumptions=legal_loop,
        boundary={"reversal": one_rotation},
        rungs=("explore", "sample"),
        mutants={"inputs with the wrong sign": {"sign": -1.0}},
        **FEW,
    ),
    *load_companion("proofs_checks", "lqr_tracking").CLAIMS,
    *load_companion("proofs_checks", "lqr_features").CLAIMS,
)

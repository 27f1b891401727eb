"""Claims on how a closed loop tracks: exact contractions and bounds with a remainder."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from hypothesis import strategies as st
from jaxtyping import Array, Float

from jaxlab.claims import Claim, Comparison, at_most, close_to
from jaxlab.control import tracking
from jaxlab.problems.sites import log_uniform, normals, uniform


class Perturbed(NamedTuple):
    """A closed loop, a deviation at its start, and the strength of a quadratic remainder."""

    closed: Float[Array, "steps dim dim"]
    start: Float[Array, " dim"]
    quadratic: Float[Array, ""]


def perturbed(dim: int, steps: int) -> Perturbed:
    """A NumPyro model; loops may contract or grow."""
    noise, start = normals("loop", (steps, dim, dim), (dim,))
    size = log_uniform("size", 0.1, 2.0)
    closed = size * (jnp.eye(dim) + noise / dim**0.5) / 2
    return Perturbed(closed, start, log_uniform("quadratic", 1e-3, 0.1))


def attained(dim: int, steps: int) -> Perturbed:
    """No remainder, and one direction that every step leaves the longest."""
    closed = jnp.broadcast_to(jnp.diag(jnp.linspace(1.0, 0.5, dim)), (steps, dim, dim))
    return Perturbed(closed, jnp.eye(dim)[0], jnp.zeros(()))


def legal_loop(instance: Perturbed) -> Array:
    """A start that is not 0, and entries that are not large."""
    size = jnp.abs(instance.closed).max()
    return jnp.minimum(jnp.minimum(jnp.sum(instance.start**2), instance.quadratic), 20 - size)


def deviations(instance: Perturbed) -> Array:
    """The true deviations, with the remainder ``eps * d * d``."""

    def forward(d: Array, A: Array) -> tuple[Array, Array]:
        after = A @ d + instance.quadratic * d**2
        return after, after

    _, path = jax.lax.scan(forward, instance.start, instance.closed)
    return jnp.concatenate([instance.start[None], path])


def exact_contraction(instance: Perturbed, *, after: float = 1.0) -> Comparison:
    """Induced norms of the steps, against eigenvalues; a mutant measures both ends by ``P_k``."""
    closed = instance.closed
    P = tracking.lyapunov_weights(closed)
    told = tracking.lyapunov_contractions(P) ** 2
    norms = tracking.transition_norms(closed, P)
    true = jnp.diagonal(norms, offset=-1) ** 2
    end = after * P[1:] + (1 - after) * P[:-1]
    # P_k^-1 A' P_{k+1} A = I - P_k^-1 is symmetric, so that the cheaper eigenvalues will do.
    inner = jnp.linalg.solve(P[:-1], jnp.swapaxes(closed, 1, 2) @ end @ closed)
    cheap = jnp.linalg.eigvalsh(inner)[:, -1]
    return close_to(jnp.stack([told, cheap]), jnp.stack([true, true]), allowance=1e-9)


def worst_growth(closed: Array, P: Array) -> Array:
    """The growth from the start that Phi(T, 0) stretches most, by running it."""
    whole = closed[0]
    for A in closed[1:]:
        whole = A @ whole
    first, last = jnp.linalg.cholesky(P[0]), jnp.linalg.cholesky(P[-1])
    scaled = last.T @ jnp.linalg.solve(first, whole.T).T
    _, vectors = jnp.linalg.eigh(scaled.T @ scaled)
    start = jnp.linalg.solve(first.T, vectors[:, -1])
    end = deviations(Perturbed(closed, start, jnp.zeros(())))[-1]
    return jnp.sqrt(end @ P[-1] @ end) / jnp.sqrt(start @ P[0] @ start)


def variation_of_constants(
    instance: Perturbed, *, matrices: float = 1.0, later: float = 1.0
) -> Comparison:
    """The bound at every layer; mutants drop a matrix of ``Phi`` or measure in the norm before."""
    closed, path = instance.closed, deviations(instance)
    P = tracking.lyapunov_weights(closed)
    norms = tracking.transition_norms(closed, P)
    steps = closed.shape[0]
    # Phi(k, 0) of k - 1 matrices stands a row higher.
    fewer = jnp.concatenate([norms[:1, 0], norms[:-1, 0]])
    norms = norms.at[:, 0].set(matrices * norms[:, 0] + (1 - matrices) * fewer)
    sizes = tracking.weighted_norms(P, path)
    remainders = instance.quadratic * path[:-1] ** 2
    measure = later * P[1:] + (1 - later) * P[:-1]
    left_over = jnp.sqrt(jnp.einsum("ki,kij,kj->k", remainders, measure, remainders))
    bound = tracking.tracking_bound(norms, sizes[0], left_over)
    scale = bound + sizes
    # Without a remainder and from the worst start the first term is all there is.
    last = worst_growth(closed, P)
    return at_most(
        jnp.append(sizes / scale, jnp.abs(last / norms[-1, 0] - 1)),
        jnp.append(bound / scale + 1e-12 * steps, 1e-9),
    )


class Decay(NamedTuple):
    """A rate, a curvature, the share of the largest start, and how much of the bound is used."""

    rate: Float[Array, ""]
    curvature: Float[Array, ""]
    share: Float[Array, ""]
    used: Float[Array, " steps"]


def decays(steps: int) -> Decay:
    """A NumPyro model."""
    return Decay(
        uniform("rate", 0.0, 0.99),
        log_uniform("curvature", 0.01, 100.0),
        uniform("share", 0.01, 0.999),
        uniform("used", 0.0, 1.0, steps),
    )


def worst_decay(steps: int) -> Decay:
    """Nothing is left of the recursion's slack, and hardly anything of the start's."""
    return Decay(jnp.array(0.5), jnp.array(2.0), jnp.array(0.99), jnp.ones(steps))


def decay_is_geometric(instance: Decay, *, half: float = 1.0) -> Comparison:
    """A sequence below the recursion against the bound; a mutant drops the factor 2."""
    rate, curvature, share, used = instance
    # The mutant believes in starts twice as large, V_0 <= 4 c (1 - rho) / l.
    start = 2 * share * (1 - rate) / curvature * (2 - half)

    def forward(value: Array, portion: Array) -> tuple[Array, Array]:
        after = portion * (rate * value + curvature / 2 * value**2)
        return after, after

    _, values = jax.lax.scan(forward, start, used)
    values = jnp.concatenate([start[None], values])
    believed = tracking.apriori_bound(
        rate, curvature, start / (2 - half), num_steps=used.shape[0]
    ) * (2 - half)
    return at_most(values / start, believed / start * (1 + 1e-12))


SIZES = {"dim": st.sampled_from([1, 3]), "steps": st.sampled_from([1, 4])}
TYPICAL = {"dim": 3, "steps": 4}
CLAIMS = (
    Claim(
        name="lqr_steering/exact_contraction",
        statement="P_k = A'P_{k+1}A + I: |A|^2 from P_k's norm to P_{k+1}'s is 1 - 1/max eig P_k",
        source="derived: A'P_{k+1}A = P_k - I, whatever A",
        families={"any loop": perturbed},
        conclusion=exact_contraction,
        assumptions=legal_loop,
        sizes=SIZES,
        typical=TYPICAL,
        boundary={"one direction": attained},
        samples=2000,
        tightness="tight",
        rungs=("explore", "sample"),
        mutants={"P_k at both ends of a step": {"after": 0.0}},
    ),
    Claim(
        name="lqr_steering/tracking_bound",
        statement=(
            "d' = A d + r: |d_k| <= |Phi(k,0)||d_0| + sum_i |Phi(k,i+1)||r_i| in the norms of P, "
            "attained without remainder"
        ),
        source="arXiv:2604.19018, Theorem 4.2; exact by variation of constants",
        families={"quadratic remainder": perturbed},
        conclusion=variation_of_constants,
        assumptions=legal_loop,
        sizes=SIZES,
        typical=TYPICAL,
        boundary={"attained": attained},
        samples=2000,
        restarts=8,
        tightness="tight",
        rungs=("explore", "sample"),
        mutants={
            "k - 1 of the k matrices in Phi(k, 0)": {"matrices": 0.0},
            "remainder in the norm of the step before": {"later": 0.0},
        },
    ),
    Claim(
        name="lqr_steering/apriori_bound",
        statement=(
            "V_{k+1} <= rho V_k + l/2 V_k^2, V_0 <= 2c(1-rho)/l, c < 1 => "
            "V_k <= (rho + c(1-rho))^k V_0"
        ),
        source="derived: induction",
        families={"any slack": decays},
        conclusion=decay_is_geometric,
        assumptions=lambda d: jnp.minimum(1 - jnp.maximum(d.rate, d.share), d.used.min()),
        sizes={"steps": st.sampled_from([1, 5])},
        typical={"steps": 5},
        boundary={"no slack": worst_decay},
        samples=5000,
        restarts=8,
        tightness="tight",
        mutants={"V_0 <= 4c(1-rho)/l": {"half": 0.0}},
    ),
)

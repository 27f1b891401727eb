"""A claim on DeMoA where all honest clients share a minimiser, as over-parameterised models do."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from hypothesis import strategies as st
from jaxtyping import Array, Float, Int

from jaxlab.claims import Claim, Comparison, at_most_in_ratio
from jaxlab.core import run
from jaxlab.optim import byzantine_aggregators as rules
from jaxlab.optim import byzantine_attacks as attacks
from jaxlab.optim import demoa as dm
from jaxlab.optim.byzantine_theory import robustness_coefficient
from jaxlab.problems.federation import Federation
from jaxlab.problems.sites import normals, site, uniform


class Interpolation(NamedTuple):
    """Least squares with similar Hessians, whose minimisers may be moved apart."""

    hessians: Float[Array, "clients dim dim"]
    start: Float[Array, " dim"]
    apart: Float[Array, "clients dim"]
    seed: Int[Array, ""]


def similar(clients: int, dim: int) -> Interpolation:
    """A NumPyro model: within 10 % of a common Hessian between 1/2 and 1."""
    noise, start, apart = normals("points", (clients, dim, dim), (dim,), (clients, dim))
    noise = noise + jnp.swapaxes(noise, 1, 2)
    norms = jnp.linalg.norm(noise, axis=(1, 2), keepdims=True)
    common = jnp.diag(uniform("curvature", 0.6, 0.9, dim))
    seed = site("seed", dist.DiscreteUniform(0, 1_000_000))
    return Interpolation(common[None] + 0.06 * noise / norms, start, apart, seed)


def quadratic_gradient(params: Array, data: Any, key: Array) -> Array:
    """Of one client."""
    del key
    hessian, center = data
    return hessian @ (params - center)


def interpolation(instance: Interpolation, *, rounds: int, apart: float = 0.0) -> Comparison:
    """D10: with a common minimiser the liars cost nothing in the end."""
    clients = len(instance.hessians)
    liars = jnp.arange(clients) < 1
    data = (instance.hessians, apart * instance.apart)
    problem = Federation(quadratic_gradient, data, instance.start, liars)

    def attack(vectors: Array, byzantine: Array, key: Array) -> Array:
        return attacks.sign_flip(vectors, byzantine)

    rule = dm.without_history(rules.coordinate_median)
    hyper = dm.demoa_hyper(0.5, momentum=0.5, step_size=0.1)
    done = run(
        dm.demoa(rule, attack=attack), problem, hyper,
        jax.random.key(instance.seed), num_steps=rounds,
    )  # fmt: skip
    # The honest clients' own minimiser, where they differ.
    target = jnp.linalg.solve(
        data[0][1:].sum(axis=0), jnp.einsum("cij,cj->i", data[0][1:], data[1][1:])
    )
    error = jnp.linalg.norm(done.state.params - target)
    return at_most_in_ratio(error, 1e-2 * jnp.linalg.norm(instance.start) + 1e-12)


def interpolates(instance: Interpolation) -> Array:
    """``kappa H <= 1/8`` and eigenvalues in [1/2, 1]."""
    honest = instance.hessians[1:]
    mean = honest.mean(axis=0)
    kappa = robustness_coefficient(
        "coordinate_median", num_clients=len(instance.hessians), num_byzantine=1
    )
    differ = honest - mean[None]
    spread = jnp.einsum("cji,cjk->ik", differ, differ) / len(honest)
    inverse = jnp.linalg.inv(mean)
    relative = jnp.linalg.eigvalsh(inverse.T @ spread @ inverse)[-1]
    eigenvalues = jnp.linalg.eigvalsh(instance.hessians)
    inside = jnp.minimum(eigenvalues.min() - 0.5, 1 - eigenvalues.max())
    return jnp.minimum(1 / 8 - kappa * relative, inside)


CLAIMS = (
    Claim(
        name="demoa/interpolation",
        statement=(
            "the median, one minimiser for all honest clients, kappa H <= 1/8, eta = 0.1/L: x_t -> "
            "x*, |x_t - x*| <= 1e-2 |x_0 - x*| after 120 rounds"
        ),
        source="derived: transfer and descent; errors vanish with the gradients",
        families={"similar": similar},
        conclusion=interpolation,
        assumptions=interpolates,
        sizes={"clients": st.just(12), "dim": st.just(2), "rounds": st.just(120)},
        typical={"clients": 12, "dim": 2, "rounds": 120},
        samples=32,
        rungs=("sample",),  # outside JAX, as explore looks at instances, rounds are slow
        mutants={"minimisers differ": {"apart": 1.0}},
    ),
)

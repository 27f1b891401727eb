"""Claims on inexact accelerated gradient descent (C4, C5): reproducibility and noise.

Part of the paper of ``proofs_checks/dual_sgd.py``, which lists them with its own.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from hypothesis import strategies as st
from jaxtyping import Array, Float

from jaxlab.claims import Claim, Comparison, Expectation, at_most_in_ratio
from jaxlab.core import run
from jaxlab.optim import inexact_agd as agd
from jaxlab.problems import objectives
from jaxlab.problems.biased import Biased, biased_gradient
from jaxlab.problems.sites import log_uniform, normal
from jaxlab.stats.sphere import unit_vector

KEY = jax.random.key(0)  # The methods of C4 are deterministic: errors are part of the instance.


class Twice(NamedTuple):
    """A convex function, and the biases of two runs on it."""

    objective: objectives.Objective
    optimum: Float[Array, " dim"]
    start: Float[Array, " dim"]
    accuracy: Float[Array, ""]
    errors: Float[Array, "runs steps dim"]


def make_convex_family(draw_objective: Callable[..., Any]) -> Callable[..., Twice]:
    """A NumPyro model over convex functions with ``L = 1`` and no strong convexity."""

    def model(dim: int, steps: int) -> Twice:
        objective = draw_objective("f", dim, jnp.array(0.0), jnp.array(1.0))
        optimum, start = normal("points", 2, dim)
        accuracy = log_uniform("accuracy", 1e-3, 1e0)
        size = log_uniform("error_size", 1e-6, 1e-1)
        # A common part is a bias, the rest changes from step to step.
        constant = normal("bias", 2, 1, dim)
        changing = normal("errors", 2, steps, dim)
        return Twice(objective, optimum, start, accuracy, size * (constant + changing))

    return model


def reproducibility(
    instance: Twice, *, ridge_scale: float = 1.0, accuracy_power: float = 1.0
) -> Comparison:
    """C4: deviation of two runs, and the accuracy of each."""
    radius = jnp.linalg.norm(instance.start - instance.optimum)
    ridge, proven = agd.reproducible_hyper(1.0, radius, instance.accuracy)
    used, hyper = agd.reproducible_hyper(1.0, radius, instance.accuracy**accuracy_power)
    delta = jnp.sqrt(jnp.sum(instance.errors**2, axis=-1).max())
    tilted = Biased(
        instance.objective, instance.optimum, instance.start, instance.start, instance.errors[0]
    )

    def end(errors: Array) -> Array:
        def step(state: agd.AGDState, error: Array) -> tuple[agd.AGDState, None]:
            data = (ridge_scale * used, (tilted, error))
            method = agd.reproducible_agd(biased_gradient)
            return method.step(agd.Oracle(instance.start, data), hyper, state, KEY)[0], None

        start = agd.AGDState(instance.start, instance.start)
        return jax.lax.scan(step, start, errors)[0].x

    ends = jax.vmap(end)(instance.errors)
    # The regularised optimum is nearer to the start than the optimum, and its value is not lower.
    start = objectives.gap(instance.objective, instance.start, instance.optimum)
    energy_bound = start + ridge * radius**2 / 2
    factor = agd.energy_factor(proven.rate) ** instance.errors.shape[1]
    deviation = 2 * jnp.sqrt(2 * factor * energy_bound / ridge) + 4 * delta / ridge
    accuracy = factor * energy_bound + agd.energy_floor(delta, ridge) + ridge * radius**2 / 2
    gaps = jax.vmap(lambda x: objectives.gap(instance.objective, x, instance.optimum))(ends)
    left = jnp.append(gaps, jnp.linalg.norm(ends[0] - ends[1]))
    return at_most_in_ratio(left, jnp.stack([accuracy, accuracy, deviation]))


class Noisy(NamedTuple):
    """A quadratic, a start and the size of the noise in every gradient."""

    objective: objectives.Objective
    start: Float[Array, " dim"]
    noise: Float[Array, ""]


def noisy_quadratic(dim: int) -> Noisy:
    """A NumPyro model of quadratics with noise."""
    kappa = log_uniform("kappa", 2.0, 1e2)
    objective = objectives.draw_diagonal("f", dim, jnp.array(1.0), kappa)
    noise = log_uniform("noise", 1e-1, 1e1)
    start = normal("start", dim)
    return Noisy(objective, start, noise)


def noise_floor(
    instance: Noisy, *, steps: int, chains: int, key: Array, reuse: bool = False
) -> Expectation:
    """C5: the energy's mean over chains with unbiased noise of norm s exactly."""
    mu, smoothness = instance.objective.strong_convexity, instance.objective.smoothness
    hyper = agd.agd_hyper(mu, smoothness)
    dim = instance.start.shape[0]

    def gradient(x: Array, data: Array, key: Array) -> Array:
        used = data if reuse else key
        return instance.objective.gradient(x) + instance.noise * unit_vector(used, dim)

    def chain(key: Array) -> Array:
        oracle = agd.Oracle(instance.start, jax.random.fold_in(key, 1))
        method = agd.inexact_agd(gradient)
        state = run(method, oracle, hyper, jax.random.fold_in(key, 0), num_steps=steps).state
        return instance.objective.value(state.x) + mu / 2 * jnp.sum(state.z**2)

    start = instance.objective.value(instance.start) + mu / 2 * jnp.sum(instance.start**2)
    left_over = (1 - hyper.rate) ** steps
    added = instance.noise**2 / smoothness * (1 - left_over) / hyper.rate
    largest = agd.energy_factor(hyper.rate) ** steps * start + agd.energy_floor(instance.noise, mu)
    energies = jax.vmap(chain)(jax.random.split(key, chains))
    return Expectation(energies, left_over * start + added, jnp.zeros(()), largest * (1 + 1e-9))


# Rounding grows with the condition number, which the families bound by 1e4.
TOLERANCE = 100 * 1e4

CLAIMS = (
    Claim(
        name="dual_sgd/reproducibility",
        statement=(
            "r = eps/D^2, biases up to delta: |x_T - x'_T| <= 2 sqrt(2 rho^T V_0/r) + 4 delta/r "
            "and f(x_T) - f* <= rho^T V_0 + 2 delta^2/r + r D^2/2"
        ),
        source="derived: the error floor of the regularised function; order of arXiv:2310.17759",
        families={
            "quadratic": make_convex_family(objectives.draw_diagonal),
            "logistic": make_convex_family(objectives.draw_logistic),
        },
        conclusion=reproducibility,
        assumptions=lambda instance: objectives.curvature_slack(
            instance.objective, instance.optimum, instance.start
        ),
        sizes={"dim": st.sampled_from([1, 4]), "steps": st.sampled_from([1, 100])},
        typical={"dim": 3, "steps": 100},
        tolerance=TOLERANCE,
        samples=2000,
        restarts=16,
        mutants={
            "ridge dropped": {"ridge_scale": 0.0},
            "ridge of eps^2": {"accuracy_power": 2.0},
        },
    ),
    Claim(
        name="dual_sgd/inexact_noise_floor",
        statement="E e = 0, E|e|^2 <= s^2: E V_K <= (1-q)^K V_0 + (1 - (1-q)^K) s^2/sqrt(mu L)",
        source="derived: z+ contains -(q/mu) e in the energy decrease, and q^2/mu = 1/L",
        families={"quadratic": noisy_quadratic},
        conclusion=noise_floor,
        assumptions=lambda instance: objectives.curvature_slack(instance.objective, instance.start),
        sizes={
            "dim": st.sampled_from([1, 3]),
            "steps": st.sampled_from([1, 30]),
            "chains": st.just(500),
        },
        typical={"dim": 2, "steps": 30, "chains": 2000},
        stochastic=True,
        samples=200,
        restarts=2,
        rungs=("explore", "sample"),
        mutants={"one noise for all steps": {"reuse": True}},
    ),
)

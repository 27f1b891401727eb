"""The rivals of ``ais`` that it does not contain: plain importance sampling and tempered SMC."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxlab.core.checks import check_count
from jaxlab.core.locate import missing_package
from jaxlab.core.types import Method
from jaxlab.inference.target import Target
from jaxlab.stats.weights import log_evidence

__all__ = ["GlobalState", "SMCState", "global_sampling", "tempered_smc"]


class GlobalState(NamedTuple):
    """The newest batch. Attributes: points; log_weights: ``log(gamma / g)``."""

    points: Float[Array, "batch dim"]
    log_weights: Float[Array, " batch"]


class SMCState(NamedTuple):
    """Particles on the way from the global law to the target.

    Attributes:
        points: Where they are.
        weights: Their normalised weights.
        temperature: The exponent of the likelihood, from 0 to 1.
        log_evidence: The evidence so far.
    """

    points: Float[Array, "particles dim"]
    weights: Float[Array, " particles"]
    temperature: Float[Array, ""]
    log_evidence: Float[Array, ""]


def global_sampling(*, batch_size: int) -> Method:
    """Importance sampling from the global law. ``hyper`` is an empty tuple, the info the evidence.

    Example:
        >>> global_sampling(batch_size=10).init is not None
        True
    """
    check_count("batch_size", batch_size)

    def init(problem: Target, hyper: tuple, key: Array) -> GlobalState:
        del hyper
        points = problem.draw(key, batch_size)
        return GlobalState(points, problem.log_density(points) - problem.log_proposal(points))

    def step(
        problem: Target, hyper: tuple, state: GlobalState, key: Array
    ) -> tuple[GlobalState, Array]:
        del state
        state = init(problem, hyper, key)
        return state, log_evidence(state.log_weights)

    return Method(init, step)


def tempered_smc(*, num_particles: int, num_moves: int, num_temperatures: int) -> Method:
    """BlackJAX's tempered SMC along ``g^(1-t) gamma^t`` with random-walk Metropolis moves.

    ``hyper`` is the moves' scale as a factor of ``2.38 / sqrt(dim)`` times the particles'
    covariance. Temperatures are ``(i / num_temperatures)^3``. A step calls the log density
    ``num_particles * (num_moves + 2)`` times.

    Args:
        num_particles: At least 2.
        num_moves: Moves per temperature.
        num_temperatures: Steps to take.

    Raises:
        ImportError: BlackJAX is not installed.
        ValueError: A count is too small.
    """
    check_count("num_particles", num_particles, least=2)
    check_count("num_moves", num_moves)
    check_count("num_temperatures", num_temperatures)
    try:
        from blackjax.mcmc import random_walk
        from blackjax.smc import resampling, tempered
    except ImportError as error:
        raise missing_package("tempered_smc", "BlackJAX", error) from error
    move = random_walk.build_additive_step()

    def moved(key: Array, state: Any, logdensity_fn: Any, factor: Array) -> Any:
        return move(key, state, logdensity_fn, random_walk.normal(factor))

    def init(problem: Target, hyper: Array, key: Array) -> SMCState:
        del hyper
        points = problem.draw(key, num_particles)
        zero = jnp.zeros((), points.dtype)
        equal = jnp.full(num_particles, 1 / num_particles, points.dtype)
        return SMCState(points, equal, zero, zero)

    def step(problem: Target, hyper: Array, state: SMCState, key: Array) -> tuple[SMCState, Array]:
        def log_prior(x: Array) -> Array:
            return problem.log_proposal(x[None])[0]

        def log_likelihood(x: Array) -> Array:
            return problem.log_density(x[None])[0] - log_prior(x)

        kernel = tempered.build_kernel(
            log_prior, log_likelihood, moved, random_walk.init, resampling.systematic
        )
        centred = state.points - state.weights @ state.points
        covariance = (centred.T * state.weights) @ centred
        covariance = covariance + 1e-9 * jnp.trace(covariance) * jnp.eye(problem.dim)
        factor = hyper * 2.38 / jnp.sqrt(problem.dim) * jnp.linalg.cholesky(covariance)
        before = tempered.TemperedSMCState(state.points, state.weights, state.temperature)
        index = jnp.round(num_temperatures * jnp.cbrt(state.temperature)) + 1
        after, info = kernel(
            key, before, num_moves, (index / num_temperatures) ** 3, {"factor": factor[None]}
        )
        evidence = state.log_evidence + info.log_likelihood_increment
        return SMCState(after.particles, after.weights, after.tempering_param, evidence), evidence

    return Method(init, step)

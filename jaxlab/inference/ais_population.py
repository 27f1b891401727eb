"""The population of delayed importance sampling, and the weights that follow from it."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxlab.core.checks import check_count
from jaxlab.inference.mixtures import Kernel, kernel_mixture_log_prob, log_mix
from jaxlab.inference.target import Target, log_ratio

__all__ = [
    "NUM_RECENT",
    "AISState",
    "block_log_weights",
    "delayed_log_weights",
    "mixture_log_prob",
]

NUM_RECENT = 3
"""How many evidences the stopping rule compares."""


class AISState(NamedTuple):
    """The population and the proposals that it is weighted by; the newest block comes last.

    Attributes:
        points: The population.
        log_density: ``log gamma`` of each point.
        centres: The centres of the last ``W + L`` blocks.
        scale_tril: The Cholesky factors of their kernels' scales.
        defensive: Their shares of the global law; 1 for blocks drawn from it alone.
        block_log_prob: ``log q_r(x_i)`` of every block kept at every point of the population.
        recent_log_evidence: The estimates of the last three steps.
        num_steps: How many steps were taken, as a float.
    """

    points: Float[Array, "blocks size dim"]
    log_density: Float[Array, "blocks size"]
    centres: Float[Array, "kept size dim"]
    scale_tril: Float[Array, "kept dim dim"]
    defensive: Float[Array, " kept"]
    block_log_prob: Float[Array, "kept population"]
    recent_log_evidence: Float[Array, " {NUM_RECENT}"]
    num_steps: Float[Array, ""]


def delayed_log_weights(state: AISState, lag: int) -> Float[Array, " population"]:
    """``log(gamma / m_{t - lag})`` of the population, oldest block first.

    Lag 0 gives the weights of estimates; larger lags are for choosing centres only.

    Args:
        state: Of ``delayed_ais``.
        lag: At most the method's own.

    Raises:
        ValueError: The state does not reach back so far.
    """
    rows = state.block_log_prob[_window(state, lag)]
    log_mixture = jax.nn.logsumexp(rows, axis=0) - math.log(len(rows))
    return log_ratio(state.log_density.reshape(-1), log_mixture)


def block_log_weights(state: AISState) -> Float[Array, "blocks size"]:
    """``log(gamma / q_r)`` of each point under the proposal of its own block.

    Given the past, the mean of a new block's weights is an unbiased estimate of the evidence.
    """
    num_blocks, size = state.log_density.shape
    own = state.block_log_prob[-num_blocks:].reshape(num_blocks, num_blocks, size)
    diagonal = jnp.diagonal(own, axis1=0, axis2=1).T
    return log_ratio(state.log_density, diagonal)


def mixture_log_prob(
    problem: Target, state: AISState, points: Float[Array, "num dim"], *, lag: int = 0,
    kernel: Kernel = "student_t",
) -> Float[Array, " num"]:  # fmt: skip
    """The log density ``log m_{t - lag}`` of the window's mixture anywhere.

    Args:
        problem: As in the run.
        state: Of ``delayed_ais``.
        points: Where.
        lag: At most the method's own.
        kernel: As in the factory.

    Raises:
        ValueError: The state does not reach back so far.
    """
    window = _window(state, lag)
    log_global = problem.log_proposal(points)

    def block(parts: tuple[Array, Array, Array]) -> Array:
        centres, tril, defensive = parts
        log_kernels = kernel_mixture_log_prob(points, centres, tril, kernel)
        return log_mix(defensive, log_global, log_kernels)

    blocks = (state.centres, state.scale_tril, state.defensive)
    rows = jax.lax.map(block, tuple(leaf[window] for leaf in blocks))
    return jax.nn.logsumexp(rows, axis=0) - math.log(len(rows))


def _window(state: AISState, lag: int) -> slice:
    """The blocks whose proposals make up the mixture that is ``lag`` blocks old."""
    num_blocks, kept = state.points.shape[0], state.block_log_prob.shape[0]
    check_count("lag", lag, least=0)
    if lag > kept - num_blocks:
        raise ValueError(f"lag must be at most that of the state, {kept - num_blocks}, got {lag}")
    first = kept - num_blocks - lag
    return slice(first, first + num_blocks)

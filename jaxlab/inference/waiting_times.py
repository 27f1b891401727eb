r"""Importance weights as waiting times: a jump process whose law is exact, and its theory.

A particle drawn at :math:`x` waits an exponential time of mean :math:`w(x) = \gamma(x)/q(x)` and
is then drawn again from :math:`q`. It leaves quickly where the proposal is too heavy. Its time
averages are self-normalised importance sampling in the limit, its law converges to the target, and
the generator :math:`A f(x) = (q(f) - f(x)) / w(x)` is reversible with a spectral gap of at least
:math:`1 / \max w`. An independent Metropolis-Hastings chain with the same proposal has exactly that
gap per step.

Source: Malefaki and Iliopoulos 2008 (arXiv:math/0505045); this is the second reading of "delayed
weighting" in the paper of ``jaxlab.inference.ais``. The gap is derived: the Dirichlet form is the
variance under ``q``, which is at least the variance under the target over the largest weight.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxlab.core.checks import check_count, check_key
from jaxlab.core.types import Scalar
from jaxlab.inference.target import Target, log_ratio

__all__ = [
    "WaitingPath",
    "independent_metropolis_matrix",
    "jump_generator",
    "law_at",
    "metropolis_gap",
    "path_mean",
    "spectral_gap",
    "state_at",
    "waiting_time_path",
]


class WaitingPath(NamedTuple):
    """A path of the process.

    Attributes:
        points: Where the particle was, in order.
        log_weights: ``log(gamma / q)`` there.
        waits: How long it stayed, in units of ``exp(log_unit)`` of ``waiting_time_path``.
    """

    points: Float[Array, "jumps dim"]
    log_weights: Float[Array, " jumps"]
    waits: Float[Array, " jumps"]


def waiting_time_path(
    key: Array, target: Target, *, num_jumps: int, log_unit: Scalar = 0.0
) -> WaitingPath:
    """Follow one particle for a fixed number of jumps; ``vmap`` over keys follows many.

    Args:
        key: A typed PRNG key.
        target: Its global law is the proposal.
        num_jumps: At least 1, as many calls of the log density.
        log_unit: The logarithm of the unit of time; near the log evidence, waits are of order 1.

    Raises:
        TypeError: ``key`` is not a typed key, or the count not an integer.
        ValueError: ``num_jumps`` is less than 1.

    Example:
        >>> from jaxlab.inference.target import heavy_tailed, make_target
        >>> target = make_target(lambda x: -jnp.sum(x**2) / 2, heavy_tailed(jnp.ones(1), 2.0))
        >>> path = waiting_time_path(jax.random.key(0), target, num_jumps=4000)
        >>> abs(float(path_mean(path.points, path)[0])) < 0.1
        True
    """
    check_key("key", key)
    check_count("num_jumps", num_jumps)
    key_draw, key_wait = jax.random.split(key)
    points = target.draw(key_draw, num_jumps)
    log_w = log_ratio(target.log_density(points), target.log_proposal(points))
    clocks = jax.random.exponential(key_wait, (num_jumps,), target.dtype)
    return WaitingPath(points, log_w, clocks * jnp.exp(log_w - log_unit))


def state_at(path: WaitingPath, time: Scalar) -> tuple[Float[Array, " dim"], Bool[Array, ""]]:
    """Where the particle is at a time, and whether the path reaches so far.

    Example:
        >>> path = WaitingPath(jnp.array([[1.0], [2.0]]), jnp.zeros(2), jnp.array([0.5, 0.5]))
        >>> point, reached = state_at(path, 0.7)
        >>> float(point[0]), bool(reached)
        (2.0, True)
    """
    ends = jnp.cumsum(path.waits)
    index = jnp.searchsorted(ends, jnp.asarray(time, ends.dtype), side="right")
    return path.points[jnp.minimum(index, len(ends) - 1)], ends[-1] > time


def path_mean(values: Float[Array, "jumps *shape"], path: WaitingPath) -> Float[Array, "*shape"]:
    """The time average of one value per point of a path."""
    return jnp.tensordot(path.waits / path.waits.sum(), values, axes=1)


def jump_generator(
    target: Float[Array, " states"], proposal: Float[Array, " states"]
) -> Float[Array, "states states"]:
    """The generator of the process on a finite space; its rows sum to 0.

    Args:
        target: ``pi``, normalised.
        proposal: ``q``, normalised and positive where ``pi`` is.

    Example:
        >>> jump_generator(jnp.array([0.5, 0.5]), jnp.array([0.5, 0.5])).tolist()
        [[-0.5, 0.5], [0.5, -0.5]]
    """
    rates = proposal / target
    return rates[:, None] * (proposal[None] - jnp.eye(len(target), dtype=proposal.dtype))


def independent_metropolis_matrix(
    target: Float[Array, " states"], proposal: Float[Array, " states"]
) -> Float[Array, "states states"]:
    """The transition matrix of Metropolis and Hastings' chain that proposes from ``q``.

    Example:
        >>> independent_metropolis_matrix(jnp.array([0.8, 0.2]), jnp.array([0.5, 0.5])).tolist()
        [[0.875, 0.125], [0.5, 0.5]]
    """
    weights = target / proposal
    moves = proposal[None] * jnp.minimum(1.0, weights[None] / weights[:, None])
    moves = moves - jnp.diag(jnp.diagonal(moves))
    return moves + jnp.diag(1 - moves.sum(axis=1))


def spectral_gap(
    generator: Float[Array, "states states"], stationary: Float[Array, " states"]
) -> Float[Array, ""]:
    """The smallest non-zero rate of a reversible generator.

    Args:
        generator: Reversible with respect to ``stationary``; for a chain, its matrix minus one.
        stationary: Positive.

    Example:
        >>> half = jnp.array([0.5, 0.5])
        >>> round(float(spectral_gap(jump_generator(half, half), half)), 5)
        1.0
    """
    return -jnp.linalg.eigvalsh(_symmetrized(generator, stationary))[-2]


def metropolis_gap(largest_weight: Scalar) -> Scalar:
    """``1 / max w``, the gap per step of the independent chain (Liu 1996)."""
    return 1 / largest_weight


def law_at(
    start: Float[Array, " states"],
    generator: Float[Array, "states states"],
    stationary: Float[Array, " states"],
    time: Scalar,
) -> Float[Array, " states"]:
    """The law of the process at a time, by the eigenvectors of the symmetrised generator.

    Example:
        >>> half, corner = jnp.array([0.5, 0.5]), jnp.array([1.0, 0.0])
        >>> law_at(corner, jump_generator(half, half), half, 100.0).round(4).tolist()
        [0.5, 0.5]
    """
    rates, vectors = jnp.linalg.eigh(_symmetrized(generator, stationary))
    root = jnp.sqrt(stationary)
    return ((start / root) @ vectors * jnp.exp(rates * time)) @ vectors.T * root


def _symmetrized(generator: Array, stationary: Array) -> Array:
    root = jnp.sqrt(stationary)
    return root[:, None] * generator / root[None]

"""Iterated sampling importance resampling (i-SIR): a chain that moves globally, and its theory.

A move draws ``N - 1`` fresh candidates from the global law, adds the current point, and takes one
of the ``N`` with probabilities proportional to ``w = gamma / g``. It is the global half of Ex2MCMC
(Samsonov et al. 2022, arXiv:2111.02702).
"""

import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxlab.core.checks import check_count, check_key
from jaxlab.core.types import Method, Scalar
from jaxlab.inference.target import Target, lowest

__all__ = [
    "ISIRInfo",
    "ISIRState",
    "dobrushin_coefficient",
    "isir",
    "isir_contraction",
    "isir_transition_matrix",
]


class ISIRState(NamedTuple):
    """Independent chains. Attributes: points; log_weights: ``log(gamma / g)`` of each."""

    points: Float[Array, "chains dim"]
    log_weights: Float[Array, " chains"]


class ISIRInfo(NamedTuple):
    """Diagnostics of one move. Attributes: moved: the share of chains that left their point."""

    moved: Float[Array, ""]


def isir(*, num_chains: int, num_candidates: int) -> Method:
    """Chains of i-SIR moves. The problem is a ``Target``; ``hyper`` is an empty tuple.

    A step calls the log density ``num_chains * (num_candidates - 1)`` times.

    Args:
        num_chains: How many, at least 1.
        num_candidates: ``N >= 2``, with the current point.

    Raises:
        TypeError: A count is not an integer.
        ValueError: A count is too small.

    Example:
        >>> from jaxlab.core import run
        >>> from jaxlab.inference.target import heavy_tailed, make_target
        >>> target = make_target(lambda x: -jnp.sum(x**2) / 2, heavy_tailed(jnp.zeros(1), 2.0))
        >>> method = isir(num_chains=500, num_candidates=8)
        >>> done = run(method, target, (), jax.random.key(0), num_steps=10)
        >>> 0.8 < float(done.state.points.var()) < 1.2
        True
    """
    check_count("num_chains", num_chains)
    check_count("num_candidates", num_candidates, least=2)

    def weighted(problem: Target, key: Array, num: int) -> tuple[Array, Array]:
        points = problem.draw(key, num)
        ratio = problem.log_density(points) - problem.log_proposal(points)
        return points, jnp.maximum(ratio, lowest(problem.dtype))

    def init(problem: Target, hyper: tuple, key: Array) -> ISIRState:
        del hyper
        check_key("key", key)
        return ISIRState(*weighted(problem, key, num_chains))

    def step(
        problem: Target, hyper: tuple, state: ISIRState, key: Array
    ) -> tuple[ISIRState, ISIRInfo]:
        del hyper
        key_draw, key_choose = jax.random.split(key)
        fresh, log_w = weighted(problem, key_draw, num_chains * (num_candidates - 1))
        fresh = fresh.reshape(num_chains, num_candidates - 1, -1)
        points = jnp.concatenate([state.points[:, None], fresh], axis=1)
        log_w = jnp.concatenate([state.log_weights[:, None], log_w.reshape(num_chains, -1)], axis=1)
        uniform = jax.random.uniform(key_choose, (num_chains,), log_w.dtype)
        sums = jnp.cumsum(jnp.exp(log_w - log_w.max(axis=1, keepdims=True)), axis=1)
        chosen = jnp.sum(sums <= uniform[:, None] * sums[:, -1:], axis=1)
        rows = jnp.arange(num_chains)
        after = ISIRState(points[rows, chosen], log_w[rows, chosen])
        return after, ISIRInfo(jnp.mean(chosen > 0, dtype=log_w.dtype))

    return Method(init, step)


def isir_transition_matrix(
    target: Float[Array, " states"], proposal: Float[Array, " states"], num_candidates: int
) -> Float[Array, "states states"]:
    """The transition matrix of a move on a finite space, by enumeration of all candidates.

    Args:
        target: ``pi``, up to a constant.
        proposal: The global law.
        num_candidates: ``N >= 2``; the cost grows as ``states ** (N - 1)``.

    Raises:
        ValueError: ``num_candidates`` is less than 2.

    Example:
        >>> p = isir_transition_matrix(jnp.array([0.5, 0.5]), jnp.array([0.5, 0.5]), 2)
        >>> p.tolist()
        [[0.75, 0.25], [0.25, 0.75]]
    """
    check_count("num_candidates", num_candidates, least=2)
    num_states, weights = target.shape[0], target / proposal
    tuples = np.array(list(itertools.product(range(num_states), repeat=num_candidates - 1)))
    probability = jnp.prod(proposal[tuples], axis=1)

    def row(state: Array) -> Array:
        first = jnp.broadcast_to(state, (len(tuples), 1))
        candidates = jnp.concatenate([first, tuples], axis=1)
        shares = weights[candidates]
        shares = shares / shares.sum(axis=1, keepdims=True)
        where = (candidates[:, :, None] == jnp.arange(num_states)[None, None]).astype(shares.dtype)
        return jnp.einsum("t,tn,tns->s", probability, shares, where)

    return jax.vmap(row)(jnp.arange(num_states))


def isir_contraction(largest_weight: Scalar, num_candidates: int) -> Scalar:
    r"""A bound on the Dobrushin coefficient: :math:`1 - (N-1)/(2 w_{\max} + N - 2)`.

    Samsonov et al. 2022 (arXiv:2111.02702), Theorem 1.

    Args:
        largest_weight: The maximum of ``pi / q`` of the normalised laws.
        num_candidates: ``N``.
    """
    return 1 - (num_candidates - 1) / (2 * largest_weight + num_candidates - 2)


def dobrushin_coefficient(matrix: Float[Array, "states states"]) -> Float[Array, ""]:
    """The largest total variation distance between two rows of a stochastic matrix.

    Example:
        >>> float(dobrushin_coefficient(jnp.eye(2)))
        1.0
    """
    return jnp.abs(matrix[:, None] - matrix[None]).sum(axis=-1).max() / 2

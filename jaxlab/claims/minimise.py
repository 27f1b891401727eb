"""Make a counterexample readable: drive every number that does not matter to zero or a round one.

Hypothesis makes the sizes small. What is left is an instance full of random digits. This pass tries
zeros first and then numbers of one, two and three digits, on whole arrays, then on halves of them,
then on single numbers, and keeps what leaves at least half of the violation and all assumptions.
"""

import itertools
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from jaxlab.claims.claim import Claim
from jaxlab.claims.evaluate import Evaluator
from jaxlab.claims.search import tolerance_of
from jaxlab.claims.verdict import Candidate
from jaxlab.core.trees import is_key

__all__ = ["minimise", "simplify"]


def minimise(
    claim: Claim,
    evaluator: Evaluator,
    candidate: Candidate,
    variant: Mapping[str, Any],
    *,
    seconds: float = 3.0,
) -> Any:
    """A simpler instance that violates the claim, judged by NumPy.

    Args:
        claim: The theorem; not a stochastic one, whose violation is no property of an instance.
        evaluator: Of the claim.
        candidate: A confirmed violation.
        variant: The mutant's keyword arguments.
        seconds: When to stop.
    """
    leaves, structure = jax.tree.flatten(candidate.instance)
    leaves = [leaf if is_key(leaf) else np.asarray(leaf) for leaf in leaves]
    places = [i for i, leaf in enumerate(leaves) if _is_real(leaf)]
    if not places:
        return candidate.instance
    lengths = [leaves[i].size for i in places]
    offsets = np.cumsum([0, *lengths])

    def rebuilt(values: np.ndarray) -> Any:
        new = list(leaves)
        for place, (start, stop) in zip(places, itertools.pairwise(offsets), strict=True):
            old = leaves[place]
            new[place] = values[start:stop].reshape(old.shape).astype(old.dtype)
        return jax.tree.unflatten(structure, new)

    tolerance = tolerance_of(claim)

    def violation(values: np.ndarray) -> float:
        seen = evaluator.outside(
            rebuilt(values), candidate.key, claim.error, candidate.sizes, variant
        )
        margin, slack = float(seen.margin), float(seen.slack)
        allowed = slack >= -min(tolerance, abs(margin) / 100)
        return -margin if allowed and margin < -2 * tolerance else -np.inf

    values = np.concatenate([leaves[i].ravel() for i in places])
    enough = 0.5 * min(violation(values), 1e300)  # half of an infinite violation is as good
    if not enough > 0:
        return candidate.instance
    blocks = [np.arange(a, b) for a, b in itertools.pairwise(offsets)]
    deadline = time.monotonic() + seconds
    return rebuilt(
        simplify(values, blocks, lambda v: violation(v) >= enough and time.monotonic() < deadline)
    )


def simplify(
    values: np.ndarray, blocks: list[np.ndarray], keeps: Callable[[np.ndarray], bool]
) -> np.ndarray:
    """Replace values by zeros and round numbers wherever ``keeps`` still holds.

    Args:
        values: Flat.
        blocks: Indices that are tried together before they are tried apart.
        keeps: Whether new values will do.

    Example:
        >>> simplify(np.array([0.123, 4.567]), [np.arange(2)], lambda v: v[1] > 4.2).tolist()
        [0.0, 5.0]
    """
    values = values.copy()

    def attempt(where: np.ndarray, replacement: np.ndarray) -> bool:
        trial = values.copy()
        trial[where] = replacement
        if np.array_equal(trial, values) or not keeps(trial):
            return False
        values[where] = replacement
        return True

    def visit(where: np.ndarray) -> None:
        if not values[where].any() or attempt(where, np.zeros(len(where))):
            return
        if len(where) == 1:
            for digits in (1, 2, 3):
                if attempt(where, _rounded(values[where], digits)):
                    return
            return
        attempt(where, _rounded(values[where], 3))
        half = len(where) // 2
        visit(where[:half])
        visit(where[half:])

    for block in blocks:
        if len(block):
            visit(block)
    return values


def _rounded(values: np.ndarray, digits: int) -> np.ndarray:
    return np.array([float(f"{value:.{digits}g}") for value in values])


def _is_real(leaf: Any) -> bool:
    return not is_key(leaf) and np.issubdtype(leaf.dtype, np.floating) and leaf.size > 0

"""Make a counterexample readable: drive every number that does not matter to zero or a round one.

Hypothesis makes the sizes small. What is left is an instance full of random digits. This pass tries
zeros first and then numbers of one, two and three digits, on whole arrays, then on halves of them,
then on single numbers, and keeps what leaves at least half of the violation and all assumptions.
"""

import itertools
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from jaxlab.claims.claim import Claim
from jaxlab.claims.evaluate import Evaluator
from jaxlab.claims.search import tolerance_of
from jaxlab.claims.verdict import Candidate
from jaxlab.core.trees import split_real

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
    parts, rebuilt = split_real(candidate.instance)
    if not parts:
        return candidate.instance
    tolerance = tolerance_of(claim)

    def violation(values: np.ndarray) -> float:
        seen = evaluator.outside(
            rebuilt(values), candidate.key, claim.error, candidate.sizes, variant
        )
        margin, slack = float(seen.margin), float(seen.slack)
        allowed = slack >= -min(tolerance, abs(margin) / 100)
        return -margin if allowed and margin < -2 * tolerance else -np.inf

    values = np.concatenate([array.ravel() for _, array in parts])
    enough = 0.5 * min(violation(values), 1e300)  # half of an infinite violation is as good
    if not enough > 0:
        return candidate.instance
    offsets = np.cumsum([0, *(array.size for _, array in parts)])
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

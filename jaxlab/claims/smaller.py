"""Look for a counterexample of smaller sizes, once there is one."""

import dataclasses
import time
from collections.abc import Mapping
from typing import Any

import hypothesis
import hypothesis.strategies as st
from hypothesis.errors import NoSuchExample

from jaxlab.claims.attack import attack
from jaxlab.claims.claim import Claim
from jaxlab.claims.evaluate import Evaluator
from jaxlab.claims.explore import SLOW_IS_FINE
from jaxlab.claims.refutation import recheck
from jaxlab.claims.sample import sample
from jaxlab.claims.search import Effort
from jaxlab.claims.verdict import Candidate

__all__ = ["smaller_counterexample"]

_EFFORT = Effort(samples=2000, restarts=32, steps=150, methods=("adam",))
"""A short search at each of the sizes, since every one of them is a compilation."""


def smaller_counterexample(
    claim: Claim,
    found: Candidate,
    variant: Mapping[str, Any],
    seed: int,
    *,
    seconds: float = 20.0,
) -> Candidate | None:
    """Let Hypothesis shrink the sizes of a confirmed counterexample of a deterministic claim.

    Args:
        claim: The theorem.
        found: The counterexample at the typical sizes.
        variant: The mutant's keyword arguments.
        seed: Of the searches.
        seconds: When to stop.

    Returns:
        A confirmed counterexample whose sizes are nowhere larger, or None.
    """
    deadline = time.monotonic() + seconds
    seen: dict[tuple, Candidate | None] = {}

    def violates(sizes: dict[str, Any]) -> bool:
        mark = tuple(sizes.items())
        if mark not in seen and (
            time.monotonic() > deadline or not _is_smaller(sizes, found.sizes)
        ):
            return False
        if mark not in seen:
            seen[mark] = _search(claim, sizes, variant, seed, deadline)
        return seen[mark] is not None

    settings = hypothesis.settings(
        max_examples=20,
        deadline=None,
        database=None,
        suppress_health_check=SLOW_IS_FINE,
        phases=[hypothesis.Phase.generate, hypothesis.Phase.shrink],
    )
    try:
        smallest = hypothesis.find(
            st.fixed_dictionaries(dict(claim.sizes)), violates, settings=settings
        )
    except NoSuchExample:
        return None
    return seen[tuple(smallest.items())]


def _search(
    claim: Claim, sizes: dict[str, Any], variant: Mapping[str, Any], seed: int, deadline: float
) -> Candidate | None:
    there = dataclasses.replace(claim, typical=sizes)
    evaluator = Evaluator(there)
    for searcher in (sample, attack):
        candidate = searcher(there, evaluator, variant, _EFFORT, seed, deadline=deadline).candidate
        if candidate is not None and recheck(claim, candidate, variant).confirmed:
            return candidate
    return None


def _is_smaller(sizes: Mapping[str, Any], others: Mapping[str, Any]) -> bool:
    pairs = [(sizes[name], others[name]) for name in sizes]
    counts = [pair for pair in pairs if all(isinstance(n, int) for n in pair)]
    return all(a <= b for a, b in counts) and any(a < b for a, b in counts)

"""The first searcher: Hypothesis draws sizes and seeds, and shrinks what fails."""

import math
import time
from collections.abc import Mapping
from typing import Any

import hypothesis
import hypothesis.strategies as st
import jax

from jaxlab.claims.claim import Claim
from jaxlab.claims.evaluate import Evaluator
from jaxlab.claims.search import Effort, Findings, Tally

__all__ = ["SLOW_IS_FINE", "explore"]

SLOW_IS_FINE = (
    hypothesis.HealthCheck.too_slow,
    hypothesis.HealthCheck.data_too_large,
    hypothesis.HealthCheck.large_base_example,
    hypothesis.HealthCheck.nested_given,
)
"""Compilation is slow and instances are large; neither says anything against a search."""


class _Stop(Exception):  # noqa: N818 - control flow for Hypothesis, not an error of the user's
    """An example that ends the search."""


def explore(
    claim: Claim,
    evaluator: Evaluator,
    variant: Mapping[str, Any],
    effort: Effort,
    seed: int,
    *,
    deadline: float = math.inf,
) -> Findings:
    """Let Hypothesis draw and shrink sizes and seeds, after every boundary instance was tried.

    Examples are computed outside JAX: many shapes are tried, and none is worth a compilation. The
    worst examples of the typical sizes are where the attack begins. What is after ``deadline`` (on
    the clock of ``time.monotonic``) is not begun.
    """
    state = Tally(claim)
    sources = {**claim.boundary, **claim.families}
    found: dict[str, list[tuple[float, Any]]] = {}

    def look(name: str, sizes: Mapping[str, Any], instance_seed: int) -> None:
        key_instance, key_claim = jax.random.split(jax.random.key(instance_seed))
        if name in claim.boundary:
            instance = evaluator.boundary(name, sizes)
        else:
            instance = evaluator.draw_outside(name, sizes, key_instance)
        error = claim.error / (effort.examples + len(sources))
        seen = evaluator.outside(instance, key_claim, error, sizes, variant)
        example = Tally(claim)
        example.take(name, sizes, instance, key_claim, seen)
        if name in claim.families and dict(sizes) == dict(claim.typical):
            found.setdefault(name, []).append((float(seen.estimate), key_instance))
        state.absorb(example)
        if example.stopped or time.monotonic() > deadline:
            raise _Stop

    sizes_strategy = st.fixed_dictionaries(dict(claim.sizes))

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=effort.examples,
        deadline=None,
        database=None,
        print_blob=False,
        verbosity=hypothesis.Verbosity.quiet,
        suppress_health_check=SLOW_IS_FINE,
        phases=[hypothesis.Phase.generate, *[hypothesis.Phase.shrink] * effort.shrink],
    )
    @hypothesis.given(st.sampled_from(sorted(sources)), sizes_strategy, st.integers(0, 2**16))
    def search(name: str, sizes: Mapping[str, Any], instance_seed: int) -> None:
        look(name, sizes, instance_seed)

    try:
        for name in claim.boundary:
            look(name, claim.typical, seed)
        search()
    except _Stop:
        pass
    for name, seen in found.items():
        evaluator.remember(name, variant, [key for _, key in sorted(seen, key=lambda s: s[0])[:4]])
    return state.findings()

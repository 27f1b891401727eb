"""The second searcher: many random instances in few compiled calls."""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from jaxlab.claims.claim import Claim
from jaxlab.claims.evaluate import Batch, Evaluation, Evaluator
from jaxlab.claims.search import Effort, Findings, Tally, at_most_allowed

__all__ = ["judged_pieces", "sample"]


def sample(
    claim: Claim,
    evaluator: Evaluator,
    variant: Mapping[str, Any],
    effort: Effort,
    seed: int,
    *,
    deadline: float = math.inf,
) -> Findings:
    """Evaluate many random instances of each family.

    A deterministic claim is left at the piece that refutes it. What is after ``deadline`` (on the
    clock of ``time.monotonic``) is not begun.
    """
    state = Tally(claim)
    num_samples = at_most_allowed(effort.samples, claim.samples)
    error = claim.error / (num_samples * len(claim.families))
    for index, name in enumerate(claim.families):
        if time.monotonic() > deadline:
            break
        key = jax.random.fold_in(jax.random.key(seed), index)
        for batch, seen in judged_pieces(evaluator, name, variant, error, num_samples, key):
            state.take_batch(name, batch, seen)
            if time.monotonic() > deadline or (state.candidate and not claim.stochastic):
                break
    return state.findings()


def judged_pieces(
    evaluator: Evaluator,
    name: str,
    variant: Mapping[str, Any],
    error: float,
    num_samples: int,
    key: Array,
) -> Iterator[tuple[Batch, Evaluation]]:
    """Draw and judge in pieces of one size: one compilation, and memory for one piece.

    The pieces go one after the other from the host. ``lax.map`` with a remainder would put two
    loops into one program, which XLA runs side by side on CPU and, with LAPACK calls in both, can
    wait for itself forever.
    """

    def make(one: Callable[..., Evaluation]) -> Callable[..., Evaluation]:
        return jax.vmap(one, in_axes=(0, 0, None, None))

    program = evaluator.program(f"judge {name}", make, variant)
    numbers = evaluator.numbers(variant)
    num_pieces = math.ceil(num_samples / evaluator.largest_piece(name))
    size = math.ceil(num_samples / num_pieces)
    for piece in range(num_pieces):
        batch = evaluator.draw_batch(name, jax.random.fold_in(key, piece), size)
        seen = program(batch.instances, batch.keys, error, numbers)
        # The next draw must not begin before: two programs at a time can wait for each other too.
        yield batch, Evaluation(*(np.asarray(part) for part in seen))

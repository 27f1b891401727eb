"""What brackets predict for a step size, against steps that are really taken."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from jaxlab.order.model import Batch, Learner, batch_of, losses_of, sgd_step
from jaxlab.order.sources import Drawn

__all__ = ["Gap", "chosen_pairs", "measured_gaps", "sgd_gap"]


class Gap(NamedTuple):
    """Two sources, one step on each.

    Attributes:
        first: The one that the margin wants first.
        second: The other.
        predicted: The target's loss in this order less that in the other, ``eta^2 sigma``.
        measured: The same by running both.
    """

    first: int
    second: int
    predicted: float
    measured: float


def chosen_pairs(edges: Float[np.ndarray, "sources sources"]) -> list[tuple[int, int]]:
    """The pairs of the largest and of the median margin, the better one first.

    Example:
        >>> edges = np.array([[0.0, 1.0, -3.0], [-1.0, 0.0, 2.0], [3.0, -2.0, 0.0]])
        >>> chosen_pairs(edges)
        [(0, 2), (2, 1)]
    """
    above = np.triu_indices(len(edges), 1)
    margins = edges[above]
    ranked = [k for k in np.argsort(np.abs(margins), kind="stable")[::-1] if margins[k] != 0]
    chosen = sorted({0, len(ranked) // 2} & set(range(len(ranked))))
    pairs = [(int(above[0][ranked[k]]), int(above[1][ranked[k]])) for k in chosen]
    return [(i, j) if edges[i, j] < 0 else (j, i) for i, j in pairs]


def sgd_gap(
    learner: Learner, first: Batch, second: Batch, target: list[Batch], step_size: float
) -> float:
    """The target's loss after a step on ``first`` and then ``second``, less after the reverse."""
    ends = []
    for one, other in ((first, second), (second, first)):
        end = sgd_step(sgd_step(learner, one, step_size), other, step_size)
        ends.append([losses_of(end, batch) for batch in target])
    difference = sum((a - b).sum() for a, b in zip(*ends, strict=True))
    return float(difference / sum(np.asarray(batch.mask)[..., 1:].sum() for batch in target))


def measured_gaps(
    learner: Learner,
    edges: Float[np.ndarray, "sources sources"],
    drawn: list[Drawn],
    target: list[Drawn],
    step_size: float,
) -> list[Gap]:
    """Train on the chosen pairs in both orders.

    Args:
        learner: The model.
        edges: Margins.
        drawn: The sources' sequences.
        target: The target's.
        step_size: Of SGD.
    """
    goal = [batch_of(learner, *part) for part in target]
    gaps = []
    for i, j in chosen_pairs(edges):
        batches = [batch_of(learner, *drawn[k]) for k in (i, j)]
        measured = sgd_gap(learner, batches[0], batches[1], goal, step_size)
        gaps.append(Gap(i, j, float(step_size**2 * edges[i, j]), measured))
    return gaps

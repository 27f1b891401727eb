"""What brackets predict for a step size, against steps that are really taken."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Float, Int

from jaxlab.core.progress import Track, untracked
from jaxlab.order.model import Batch, Learner, batch_of, losses_of, sgd_step
from jaxlab.order.sources import Drawn

__all__ = ["Gap", "chosen_pairs", "loss_change", "measured_gaps", "rehearsed", "trained"]

Batches: TypeAlias = Callable[[int], Batch]
"""A source's batch by its place, so that not all are in memory."""


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


def loss_change(before: Learner, after: Learner, target: list[Batch]) -> float:
    """The target's mean loss of one model less that of another, subtracted token by token."""
    changes = [losses_of(after, batch) - losses_of(before, batch) for batch in target]
    count = sum(np.asarray(batch.mask)[..., 1:].sum() for batch in target)
    return float(sum(change.sum() for change in changes) / count)


def trained(
    learner: Learner,
    order: Sequence[int],
    batches: Batches,
    step_size: float,
    track: Track = untracked,
) -> Learner:
    """After one step on each source of an order."""
    for i in track(list(order), "training"):
        learner = sgd_step(learner, batches(i), step_size)
    return learner


def measured_gaps(
    learner: Learner,
    edges: Float[np.ndarray, "sources sources"],
    batches: Batches,
    target: list[Drawn],
    step_size: float,
) -> list[Gap]:
    """Train on the chosen pairs in both orders.

    Args:
        learner: The model.
        edges: Margins.
        batches: The sources' batches by their places.
        target: The target's.
        step_size: Of SGD.
    """
    goal = [batch_of(learner, *part) for part in target]
    gaps = []
    for i, j in chosen_pairs(edges):
        ends = [trained(learner, pair, batches, step_size) for pair in ((i, j), (j, i))]
        predicted = float(step_size**2 * edges[i, j])
        gaps.append(Gap(i, j, predicted, loss_change(ends[1], ends[0], goal)))
    return gaps


def rehearsed(
    learner: Learner,
    orders: Mapping[str, Int[np.ndarray, " sources"]],
    batches: Batches,
    target: list[Drawn],
    step_size: float,
    track: Track = untracked,
) -> dict[str, float]:
    """How one step on each source, in several orders, changes the target's loss.

    Args:
        learner: The model.
        orders: By name.
        batches: The sources' batches by their places.
        target: The target's.
        step_size: Of SGD.
        track: Shows progress.
    """
    goal = [batch_of(learner, *part) for part in target]
    changes = {}
    for name, order in orders.items():
        end = trained(learner, order.tolist(), batches, step_size, track)
        changes[name] = loss_change(learner, end, goal)
    return changes

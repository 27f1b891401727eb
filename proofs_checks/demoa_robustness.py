"""Claims on robust means: every set of honest clients, for any liars."""

import itertools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jaxtyping import Array, Float

from jaxlab.claims import Claim, Comparison, ExactCase, at_most_in_ratio
from jaxlab.optim import byzantine_aggregators as rules
from jaxlab.optim import byzantine_selection as selection
from jaxlab.optim import byzantine_theory as theory
from jaxlab.problems.sites import log_uniform, normal

Points = Float[Array, "clients dim"]

FLOOR = 1e-20
"""Of squared distances, relative to the largest: Weiszfeld's iteration is exact to about 1e-10."""


def scattered(clients: int, byzantine: int, dim: int) -> Points:
    """Liars anywhere near or far."""
    points = normal("points", clients, dim)
    far = log_uniform("far", 0.1, 1e4)
    return points * jnp.where(jnp.arange(clients)[:, None] < byzantine, far, 1.0)


def together(clients: int, byzantine: int, dim: int) -> Points:
    """Liars that agree on one place."""
    points, place = normal("points", clients, dim), normal("place", dim)
    far = log_uniform("far", 0.1, 1e4)
    return jnp.where(jnp.arange(clients)[:, None] < byzantine, far * place[None], points)


def two_places(clients: int, byzantine: int, dim: int) -> Points:
    """Ties everywhere: the honest at 0, the liars at 1."""
    return jnp.where(jnp.arange(clients)[:, None] < byzantine, jnp.ones((1, dim)), 0.0)


def sets_of(points: Any, byzantine: int) -> Any:
    """``[sets, size, dim]``."""
    clients = len(points)
    sets = itertools.combinations(range(clients), clients - byzantine)
    return points[np.array(list(sets))]


def within(output: Array, points: Points, byzantine: int, coefficient: float) -> Comparison:
    """The definition, over all sets."""
    chosen = sets_of(points, byzantine)
    means = chosen.mean(axis=1)
    variances = jnp.sum((chosen - means[:, None]) ** 2, axis=(1, 2)) / chosen.shape[1]
    missed = jnp.sum((output[None] - means) ** 2, axis=1)
    size = jnp.sum((points[:, None] - points[None]) ** 2, axis=-1).max()
    return at_most_in_ratio(missed, coefficient * variances + FLOOR * size)


def coefficient(rule: theory.Rule, clients: int, byzantine: int, mixed: bool = False) -> float:
    """The library's constant."""
    return theory.robustness_coefficient(
        rule, num_clients=clients, num_byzantine=byzantine, mixed=mixed
    )


def stacked(comparisons: list[Comparison]) -> Comparison:
    """All at once."""
    return Comparison(*(jnp.concatenate(parts) for parts in zip(*comparisons, strict=True)))


def medians(points: Points, *, byzantine: int, steps: int = 300, mean: float = 0.0) -> Comparison:
    """D6; mutants take the mean, or one step of Weiszfeld's iteration from it."""
    clients, average = len(points), points.mean(axis=0)
    exact = rules.geometric_median(points, num_iters=steps, smoothing=1e-12,
                                   start=average if steps == 1 else None)  # fmt: skip
    median = (1 - mean) * rules.coordinate_median(points) + mean * average
    kappa = coefficient("geometric_median", clients, byzantine)
    return stacked([within(output, points, byzantine, kappa) for output in (exact, median)])


def one_sided(points: Any, byzantine: int) -> Any:
    """Bug: only the largest values are trimmed."""
    return jnp.sort(points, axis=0)[: len(points) - byzantine].mean(axis=0)


def krum_of(points: Points, neighbours: int) -> Array:
    """Bug: another number of neighbours."""
    nearest = jnp.sort(selection.squared_distances(points), axis=1)[:, :neighbours]
    return points[jnp.argmin(nearest.sum(axis=1))]


def selections(points: Points, *, byzantine: int, bug: str = "none") -> Comparison:
    """D7, trimmed mean and Krum; mutants by name."""
    clients = len(points)
    trimmed = rules.trimmed_mean(points, num_byzantine=byzantine)
    chosen = selection.krum(points, num_byzantine=byzantine)
    if bug == "one side":
        trimmed = one_sided(points, byzantine)
    if bug == "few neighbours":
        chosen = krum_of(points, byzantine)
    return stacked(
        [
            within(trimmed, points, byzantine, coefficient("trimmed_mean", clients, byzantine)),
            within(chosen, points, byzantine, coefficient("krum", clients, byzantine)),
        ]
    )


def mixing(points: Points, *, byzantine: int, fewer: int = 0) -> Comparison:
    """D7, mixed vectors before the median and Krum; a mutant mixes everybody."""
    clients = len(points)
    mixed = selection.nearest_neighbour_mixing(points, num_byzantine=byzantine - fewer)
    outputs: dict[theory.Rule, Array] = {
        "coordinate_median": rules.coordinate_median(mixed),
        "krum": selection.krum(mixed, num_byzantine=byzantine),
    }
    return stacked(
        [
            within(output, points, byzantine, coefficient(rule, clients, byzantine, True))
            for rule, output in outputs.items()
        ]
    )


def numpy_krum(points: np.ndarray, neighbours: int) -> np.ndarray:
    """Krum by a full table of distances."""
    apart = np.sort(((points[:, None] - points[None]) ** 2).sum(axis=-1), axis=1)
    return points[apart[:, :neighbours].sum(axis=1).argmin()]


def numpy_mixed(points: np.ndarray, byzantine: int) -> np.ndarray:
    """Nearest-neighbour mixing by a full table of distances."""
    apart = ((points[:, None] - points[None]) ** 2).sum(axis=-1)
    near = np.argsort(apart, axis=1, kind="stable")[:, : len(points) - byzantine]
    return points[near].mean(axis=1)


def worst_on_grid(
    rule: Callable[[np.ndarray, int], np.ndarray], name: theory.Rule, mixed: bool = False
) -> list[ExactCase]:
    """All multisets of the grid {0, 1, 10} of up to nine points, all minorities, all sets."""
    cases = []
    for clients in range(3, 10):
        for byzantine in range(1, (clients + 1) // 2):
            kappa = coefficient(name, clients, byzantine, mixed)
            worst = 0.0
            for values in itertools.combinations_with_replacement((0.0, 1.0, 10.0), clients):
                points = np.array(values)[:, None]
                chosen = sets_of(points, byzantine)
                means = chosen.mean(axis=1)[:, 0]
                bounds = kappa * chosen.var(axis=1)[:, 0]
                missed = (rule(points, byzantine)[0] - means) ** 2
                # A set of equal points must be met, up to the rounding of means of up to 10.
                ratios = missed / np.where(bounds > 0, bounds, 1e-28)
                worst = max(worst, float(ratios.max()))
            parameters = {"rule": name, "clients": clients, "byzantine": byzantine}
            cases.append(ExactCase(parameters, worst, 1.0, tolerance=1e-12))
    return cases


def exact_medians(*, steps: int = 300, mean: float = 0.0) -> list[ExactCase]:
    """In one dimension both medians are NumPy's; an early stop has no closed form."""
    del steps
    rule = np.mean if mean else np.median
    return worst_on_grid(lambda points, _: rule(points, axis=0), "coordinate_median")


def exact_selections(*, bug: str = "none") -> list[ExactCase]:
    """Trimmed mean and Krum in NumPy."""

    def trimmed(points: np.ndarray, byzantine: int) -> np.ndarray:
        low = 0 if bug == "one side" else byzantine
        return np.sort(points, axis=0)[low : len(points) - byzantine].mean(axis=0)

    def chosen(points: np.ndarray, byzantine: int) -> np.ndarray:
        few = bug == "few neighbours"
        return numpy_krum(points, byzantine if few else len(points) - byzantine)

    return worst_on_grid(trimmed, "trimmed_mean") + worst_on_grid(chosen, "krum")


def exact_mixing(*, fewer: int = 0) -> list[ExactCase]:
    """The median of mixed points in NumPy."""

    def rule(points: np.ndarray, byzantine: int) -> np.ndarray:
        return np.median(numpy_mixed(points, max(byzantine - fewer, 0)), axis=0)

    return worst_on_grid(rule, "coordinate_median", mixed=True)


def apart(points: Points) -> Array:
    """Finite points that are not all the same; nothing else is assumed."""
    return jnp.where(jnp.isfinite(points).all(), jnp.abs(points - points[:1]).max(), -1.0)


SHARED: dict[str, Any] = {
    "families": {"scattered": scattered, "together": together},
    "boundary": {"two places": two_places},
    "assumptions": apart,
    "sizes": {
        "clients": st.sampled_from([5, 9]),
        "byzantine": st.sampled_from([1, 2]),
        "dim": st.sampled_from([1, 3]),
    },
    "typical": {"clients": 7, "byzantine": 3, "dim": 2},
    "samples": 500,
    "restarts": 8,
    "rungs": ("explore", "sample", "attack", "exact"),
    "tolerance": 1e4,
}
CLAIMS = (
    Claim(
        name="demoa/median_robustness",
        statement=(
            "for every S of n-f vectors: |GM - mean_S|^2 <= 4 (1 + f/(n-2f))^2 var_S, and the same "
            "for the coordinates' median"
        ),
        source="derived: optimality of the geometric median and the triangle inequality",
        conclusion=medians,
        exact=exact_medians,
        mutants={"the mean": {"mean": 1.0}, "stopped after a step": {"steps": 1}},
        **SHARED,
    ),
    Claim(
        name="demoa/selection_robustness",
        statement=(
            "for every S of n-f vectors, r = 1 + f/(n-2f): |CWTM - mean_S|^2 <= 6 r f/(n-2f) var_S "
            "and |Krum - mean_S|^2 <= 6 r var_S"
        ),
        source="Allouah et al. 2023, arXiv:2302.01772, Propositions 2 and 3",
        conclusion=selections,
        exact=exact_selections,
        mutants={
            "trimmed on one side": {"bug": "one side"},
            "f neighbours instead of n - f": {"bug": "few neighbours"},
        },
        **SHARED,
    ),
    Claim(
        name="demoa/mixing_robustness",
        statement="mixed by nearest neighbours, kappa becomes 8 f/(n-f) (kappa + 1)",
        source="Allouah et al. 2023, arXiv:2302.01772, Lemma 1",
        conclusion=mixing,
        exact=exact_mixing,
        mutants={"f too small": {"fewer": 1}},
        **SHARED,
    ),
)

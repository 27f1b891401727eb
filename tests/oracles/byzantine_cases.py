"""The matrices on which ours and ByzFL's robust means are compared."""

import jax.numpy as jnp
import numpy as np

from jaxlab.optim import byzantine_aggregators as rules
from jaxlab.optim import byzantine_attacks as attacks
from jaxlab.optim import byzantine_selection as selection

CASES = {
    "normal": (9, 4, 2),
    "outliers": (9, 4, 2),
    "duplicates": (9, 4, 2),
    "even": (10, 4, 3),
}
"""Clients, coordinates and Byzantine clients, which are the first ones."""


def matrix(name: str) -> np.ndarray:
    """The vectors of a case."""
    clients, dim, f = CASES[name]
    vectors = np.random.default_rng(list(CASES).index(name)).standard_normal((clients, dim))
    if name == "outliers":
        vectors[:f] *= 100
    if name == "duplicates":
        vectors[f : f + 4] = vectors[f]
    return vectors


def ours(vectors: np.ndarray, f: int) -> dict[str, np.ndarray]:
    """Everything that ByzFL has as well."""
    x, byzantine = jnp.asarray(vectors), jnp.arange(len(vectors)) < f
    zero = jnp.zeros_like(x[0])
    clip = {"radius": 1.5, "num_iters": 2}
    first = rules.centered_clipping(x, zero, **clip)
    found = {
        "mean": rules.mean(x),
        "coordinate_median": rules.coordinate_median(x),
        "trimmed_mean": rules.trimmed_mean(x, num_byzantine=f),
        "geometric_median": rules.geometric_median(x, start=zero, num_iters=3, smoothing=0.1),
        "krum": selection.krum(x, num_byzantine=f),
        "multi_krum": selection.multi_krum(x, num_byzantine=f),
        "minimum_diameter_average": selection.minimum_diameter_average(x, num_byzantine=f),
        "centered_clipping": jnp.stack([first, rules.centered_clipping(x[::-1], first, **clip)]),
        "nearest_neighbour_mixing": selection.nearest_neighbour_mixing(x, num_byzantine=f),
        "sign_flip": attacks.sign_flip(x, byzantine, scale=1.0)[0],
        "inner_product_manipulation": attacks.inner_product_manipulation(x, byzantine, scale=0.7)[
            0
        ],
        "a_little_is_enough": attacks.a_little_is_enough(x, byzantine, deviations=-1.5)[0],
        "mimic": attacks.mimic(x, byzantine, client=f + 1)[0],
    }
    return {name: np.asarray(value) for name, value in found.items()}

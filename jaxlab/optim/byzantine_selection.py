"""Robust means that look at the distances between vectors, and what to do before a robust mean.

Krum and its relatives choose among the vectors; nearest-neighbour mixing and bucketing replace them
by means of a few, which makes honest vectors alike where the clients' data are not.
"""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxlab.core.checks import check_count, check_key
from jaxlab.optim.byzantine_aggregators import (
    Mask,
    check_byzantine,
    check_participants,
    weighted_sum,
)

__all__ = [
    "MOST_SUBSETS",
    "bucketing",
    "krum",
    "minimum_diameter_average",
    "multi_krum",
    "nearest_neighbour_mixing",
    "squared_distances",
]

MOST_SUBSETS = 20_000
"""Of ``minimum_diameter_average``, which looks at each."""


def squared_distances(vectors: Float[Array, "clients dim"]) -> Float[Array, "clients clients"]:
    """Squared distances of all pairs, by two matrix products.

    Products of vectors far from the origin cancel. The second pass takes one vector amid the others
    for the origin, so that rounding is relative to the honest vectors' spread, wherever they are
    and however far the liars went.

    Example:
        >>> squared_distances(jnp.array([[0.0], [3.0]])).tolist()
        [[0.0, 9.0], [9.0, 0.0]]
    """

    def around(origin: Array) -> Array:
        moved = vectors - origin[None]
        products = jnp.matmul(moved, moved.T, precision="highest")
        norms = jnp.diagonal(products)
        apart = jnp.maximum(norms[:, None] + norms[None] - 2 * products, 0)
        return jnp.where(jnp.eye(len(vectors), dtype=bool), 0, apart)

    rough = around(jnp.zeros_like(vectors[0]))
    amid = jnp.argmin(jnp.sort(rough, axis=1)[:, len(vectors) // 2])
    return around(vectors[amid])


def krum(
    vectors: Float[Array, "clients dim"],
    participants: Mask | None = None,
    *,
    num_byzantine: int | Int[Array, ""],
) -> Float[Array, " dim"]:
    """The vector with the least sum of squared distances to its nearest ``m - num_byzantine``.

    ``m`` counts the participants, and every vector is its own nearest. The first of equals wins.

    Source: Blanchard et al. 2017, arXiv:1703.02757, with the ``m - f`` neighbours of Allouah et al.
    2023, arXiv:2302.01772.

    Args:
        vectors: One per client.
        participants: Who takes part; all by default.
        num_byzantine: Fewer than half of the participants; may be traced.

    Raises:
        ValueError: ``num_byzantine`` is negative or half of the participants or more.

    Example:
        >>> krum(jnp.array([[0.0], [1.0], [1.5], [99.0]]), num_byzantine=1).tolist()
        [1.0]
    """
    return vectors[jnp.argmin(_scores(vectors, participants, num_byzantine))]


def multi_krum(
    vectors: Float[Array, "clients dim"],
    participants: Mask | None = None,
    *,
    num_byzantine: int | Int[Array, ""],
    num_selected: int | Int[Array, ""] | None = None,
) -> Float[Array, " dim"]:
    """The mean of the vectors with the least scores of Krum.

    Args:
        vectors: One per client.
        participants: Who takes part; all by default.
        num_byzantine: Fewer than half of the participants; may be traced.
        num_selected: How many; the participants less ``num_byzantine`` by default.

    Raises:
        ValueError: ``num_byzantine`` is negative or half of the participants or more, or
            ``num_selected`` is out of range.

    Example:
        >>> multi_krum(jnp.array([[0.0], [1.0], [2.0], [99.0]]), num_byzantine=1).tolist()
        [1.0]
    """
    _, count = check_participants(vectors, participants)
    selected = count - num_byzantine if num_selected is None else num_selected
    if isinstance(selected, int):
        check_count("num_selected", selected)
        if selected > len(vectors):
            raise ValueError(
                f"num_selected must be at most the number of clients {len(vectors)}, got {selected}"
            )
    chosen = _ranks(_scores(vectors, participants, num_byzantine)) < selected
    return weighted_sum(chosen.astype(vectors.dtype), vectors, chosen) / selected


def minimum_diameter_average(
    vectors: Float[Array, "clients dim"], *, num_byzantine: int
) -> Float[Array, " dim"]:
    """The mean of those ``clients - num_byzantine`` vectors that lie closest together.

    It looks at every subset, so it is for few clients.

    Source: Rousseeuw 1985; El Mhamdi, Guerraoui, Rouault 2018, arXiv:1802.07927.

    Raises:
        ValueError: ``num_byzantine`` is negative or half of the clients or more, or there are more
            than ``MOST_SUBSETS`` subsets.

    Example:
        >>> minimum_diameter_average(jnp.array([[0.0], [1.0], [99.0]]), num_byzantine=1).tolist()
        [0.5]
    """
    _, count = check_participants(vectors, None)
    check_byzantine(num_byzantine, count)
    size = len(vectors) - num_byzantine
    number = math.comb(len(vectors), size)
    if number > MOST_SUBSETS:
        raise ValueError(
            f"num_byzantine must leave at most {MOST_SUBSETS} subsets to look at, got "
            f"{num_byzantine} of {len(vectors)} clients, which leaves {number}"
        )
    subsets = np.array(list(itertools.combinations(range(len(vectors)), size)))
    apart = squared_distances(vectors)
    # One subset at a time: all their distances at once would be many times the vectors.
    diameters = jax.lax.map(lambda subset: apart[subset][:, subset].max(), jnp.asarray(subsets))
    return vectors[jnp.asarray(subsets)[jnp.argmin(diameters)]].mean(axis=0)


def nearest_neighbour_mixing(
    vectors: Float[Array, "clients dim"],
    participants: Mask | None = None,
    *,
    num_byzantine: int | Int[Array, ""],
) -> Float[Array, "clients dim"]:
    """Every vector replaced by the mean of its ``m - num_byzantine`` nearest, itself included.

    ``m`` counts the participants. Hand the result to a robust mean with the same mask.

    Source: Allouah et al. 2023, arXiv:2302.01772, Algorithm 2.

    Args:
        vectors: One per client.
        participants: Who takes part; all by default.
        num_byzantine: Fewer than half of the participants; may be traced.

    Raises:
        ValueError: ``num_byzantine`` is negative or half of the participants or more.

    Example:
        >>> mixed = nearest_neighbour_mixing(jnp.array([[0.0], [1.0], [99.0]]), num_byzantine=1)
        >>> mixed.tolist()
        [[0.5], [0.5], [50.0]]
    """
    mask, count = check_participants(vectors, participants)
    check_byzantine(num_byzantine, count)
    apart = jnp.where(mask[None, :], squared_distances(vectors), jnp.inf)
    near = jax.vmap(_ranks)(apart) < count - num_byzantine
    used = jnp.where(mask[:, None], vectors, 0)
    total = jnp.matmul(near.astype(vectors.dtype), used, precision="highest")
    return total / (count - num_byzantine)


def bucketing(
    key: Array, vectors: Float[Array, "clients dim"], *, size: int
) -> Float[Array, "buckets dim"]:
    """Means of ``size`` vectors each, dealt at random; the last bucket may be smaller.

    A liar spoils one bucket, so the share of bad ones grows up to ``size`` times.

    Source: Karimireddy, He, Jaggi 2022, arXiv:2006.09365.

    Raises:
        TypeError: ``key`` is not a typed key, or ``size`` is not an integer.
        ValueError: ``size`` is less than 1 or more than the number of clients.

    Example:
        >>> bucketing(jax.random.key(0), jnp.ones((5, 2)), size=2).shape
        (3, 2)
    """
    check_key("key", key)
    check_count("size", size)
    check_participants(vectors, None)
    clients = len(vectors)
    if size > clients:
        raise ValueError(f"size must be at most the number of clients {clients}, got {size}")
    buckets = -(-clients // size)
    place = jax.random.permutation(key, clients) // size
    total = jax.ops.segment_sum(vectors, place, num_segments=buckets)
    counts = np.full(buckets, size)
    counts[-1] = clients - size * (buckets - 1)
    return total / jnp.asarray(counts, dtype=vectors.dtype)[:, None]


def _scores(vectors: Array, participants: Mask | None, num_byzantine: int | Array) -> Array:
    """Krum's, infinite for those who do not take part."""
    mask, count = check_participants(vectors, participants)
    check_byzantine(num_byzantine, count)
    apart = jnp.where(mask[None, :], squared_distances(vectors), jnp.inf)
    nearest = jnp.arange(len(vectors)) < count - num_byzantine
    return jnp.where(
        mask, jnp.where(nearest[None], jnp.sort(apart, axis=1), 0).sum(axis=1), jnp.inf
    )


def _ranks(values: Array) -> Array:
    """The place of each in increasing order; the first of equals comes first."""
    return jnp.argsort(jnp.argsort(values))

"""What liars send to a server that takes a mean of vectors.

An attack is a function ``(vectors, byzantine, ...) -> vectors`` that replaces the rows of Byzantine
clients and leaves the others alone. It sees the honest vectors, as an omniscient adversary does.
"""

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtri
from jaxtyping import Array, Bool, Float, Int

from jaxlab.core.checks import check_count, check_key, check_value
from jaxlab.core.roots import safe_sqrt
from jaxlab.core.types import Scalar

__all__ = [
    "a_little_is_enough",
    "alie_factor",
    "far_away",
    "flip_labels",
    "gaussian_noise",
    "inner_product_manipulation",
    "mimic",
    "sign_flip",
]

Byzantine = Bool[Array, " clients"]


def sign_flip(
    vectors: Float[Array, "clients dim"], byzantine: Byzantine, *, scale: Scalar = 10.0
) -> Float[Array, "clients dim"]:
    """``-scale`` times the honest mean.

    Raises:
        ValueError: ``byzantine`` is for another number of clients, or all are Byzantine.

    Example:
        >>> sign_flip(jnp.array([[1.0], [3.0], [0.0]]), jnp.array([False, False, True])).tolist()
        [[1.0], [3.0], [-20.0]]
    """
    honest_mean, _ = _honest_moments(vectors, byzantine)
    return _replace(vectors, byzantine, jnp.asarray(-scale * honest_mean)[None])


def inner_product_manipulation(
    vectors: Float[Array, "clients dim"], byzantine: Byzantine, *, scale: Scalar = 0.5
) -> Float[Array, "clients dim"]:
    """``-scale`` times the honest mean with a scale so small that the liars are not outliers.

    Source: Xie, Koyejo, Gupta 2020, arXiv:1903.03936.

    Raises:
        ValueError: ``byzantine`` is for another number of clients, or all are Byzantine.

    Example:
        >>> vectors, byzantine = jnp.array([[2.0], [0.0]]), jnp.array([False, True])
        >>> inner_product_manipulation(vectors, byzantine).tolist()
        [[2.0], [-1.0]]
    """
    return sign_flip(vectors, byzantine, scale=scale)


def alie_factor(num_clients: int, num_byzantine: int) -> Float[Array, ""]:
    """How many deviations a lie may be off and still have a majority around it.

    Source: Baruch, Baruch, Goldberg 2019, arXiv:1902.06156, Algorithm 3.

    Raises:
        ValueError: ``num_byzantine`` is not between 1 and the honest clients' number.

    Example:
        >>> round(float(alie_factor(50, 24)), 4)
        1.4261
    """
    check_count("num_clients", num_clients)
    check_count("num_byzantine", num_byzantine)
    if 2 * num_byzantine >= num_clients:
        raise ValueError(
            f"num_byzantine must be fewer than half of num_clients = {num_clients}, got "
            f"{num_byzantine}"
        )
    honest = num_clients - num_byzantine
    supporters = num_clients // 2 + 1 - num_byzantine
    return ndtri(jnp.asarray((honest - supporters) / honest, dtype=float))


def a_little_is_enough(
    vectors: Float[Array, "clients dim"], byzantine: Byzantine, *, deviations: Scalar
) -> Float[Array, "clients dim"]:
    """The honest mean less some standard deviations of the honest, in every coordinate.

    Source: Baruch, Baruch, Goldberg 2019, arXiv:1902.06156.

    Args:
        vectors: One per client.
        byzantine: Who lies.
        deviations: How many; ``alie_factor`` is the authors' choice.

    Raises:
        ValueError: ``byzantine`` is for another number of clients, or all are Byzantine.

    Example:
        >>> vectors = jnp.array([[1.0], [3.0], [0.0]])
        >>> liars = jnp.array([False, False, True])
        >>> round(float(a_little_is_enough(vectors, liars, deviations=1.0)[2, 0]), 4)
        0.5858
    """
    honest_mean, variance = _honest_moments(vectors, byzantine)
    return _replace(vectors, byzantine, (honest_mean - deviations * safe_sqrt(variance))[None])


def mimic(
    vectors: Float[Array, "clients dim"],
    byzantine: Byzantine,
    *,
    client: int | Int[Array, ""] | None = None,
) -> Float[Array, "clients dim"]:
    """What one honest client sends, over and over, so that its data count too much.

    Source: Karimireddy, He, Jaggi 2022, arXiv:2006.09365, with a fixed client.

    Args:
        vectors: One per client.
        byzantine: Who lies.
        client: Whom to copy; the first honest one by default.

    Raises:
        ValueError: ``byzantine`` is for another number of clients, or all are Byzantine.

    Example:
        >>> mimic(jnp.array([[0.0], [3.0]]), jnp.array([True, False])).tolist()
        [[3.0], [3.0]]
    """
    _check(vectors, byzantine)
    copied = vectors[jnp.argmin(byzantine) if client is None else client]
    return _replace(vectors, byzantine, copied[None])


def gaussian_noise(
    vectors: Float[Array, "clients dim"],
    byzantine: Byzantine,
    key: Array,
    *,
    deviation: Scalar = 5.0,
) -> Float[Array, "clients dim"]:
    """Noise of mean 0, another for every liar.

    Raises:
        TypeError: ``key`` is not a typed key.
        ValueError: ``byzantine`` is for another number of clients, or all are Byzantine.

    Example:
        >>> honest = jnp.ones((2, 3))
        >>> sent = gaussian_noise(honest, jnp.array([False, True]), jax.random.key(0))
        >>> sent[0].tolist(), bool((sent[1] != 1).all())
        ([1.0, 1.0, 1.0], True)
    """
    _check(vectors, byzantine)
    check_key("key", key)
    noise = jax.random.normal(key, vectors.shape, vectors.dtype)
    return _replace(vectors, byzantine, jnp.asarray(deviation * noise))


def far_away(
    vectors: Float[Array, "clients dim"], byzantine: Byzantine, *, scale: Scalar
) -> Float[Array, "clients dim"]:
    """``scale`` along the first axis: the plainest test of a breakdown point.

    Example:
        >>> far_away(jnp.ones((2, 2)), jnp.array([False, True]), scale=1e6).tolist()
        [[1.0, 1.0], [1000000.0, 0.0]]
    """
    _check(vectors, byzantine)
    return _replace(vectors, byzantine, jnp.zeros_like(vectors[:1]).at[0, 0].set(scale))


def flip_labels(labels: Int[Array, "*shape"], *, num_classes: int) -> Int[Array, "*shape"]:
    """Class ``c`` becomes ``num_classes - 1 - c``: the liars' data are wrong and their sums right.

    Raises:
        ValueError: ``num_classes`` is less than 2, or a label is out of range.

    Example:
        >>> flip_labels(jnp.array([0, 1, 9]), num_classes=10).tolist()
        [9, 8, 0]
    """
    check_count("num_classes", num_classes, least=2)
    check_value("labels", labels, lambda c: (c >= 0) & (c < num_classes), f"in [0, {num_classes})")
    return num_classes - 1 - labels


def _check(vectors: Array, byzantine: Array) -> None:
    if vectors.ndim != 2 or byzantine.shape != vectors.shape[:1]:
        raise ValueError(
            f"byzantine must have one entry per client of vectors [clients, dim], got shapes "
            f"{byzantine.shape} and {vectors.shape}"
        )
    check_value("byzantine", byzantine, lambda b: ~b.all(), "such that somebody is honest")


def _honest_moments(vectors: Array, byzantine: Array) -> tuple[Array, Array]:
    """Mean and unbiased variance of the honest, by coordinate; one client has no variance."""
    _check(vectors, byzantine)
    honest = ~byzantine[:, None]
    count = honest.sum()
    average = jnp.where(honest, vectors, 0).sum(axis=0) / count
    squares = jnp.where(honest, (vectors - average[None]) ** 2, 0).sum(axis=0)
    return average, squares / jnp.maximum(count - 1, 1)


def _replace(vectors: Array, byzantine: Array, lie: Array) -> Array:
    return jnp.where(byzantine[:, None], lie, vectors).astype(vectors.dtype)

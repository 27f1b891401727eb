"""The few operations on pytrees that optax does not have."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree

__all__ = [
    "all_finite",
    "is_inexact",
    "is_key",
    "largest_magnitude",
    "split_real",
    "tree_combine",
    "tree_dot",
]


def is_inexact(leaf: object) -> bool:
    """Whether a leaf is an array of floating-point or complex numbers."""
    dtype = getattr(leaf, "dtype", None)
    return dtype is not None and jnp.issubdtype(dtype, jnp.inexact)


def is_key(leaf: object) -> bool:
    """Whether a leaf is an array of typed PRNG keys, or stands for one by its dtype."""
    dtype = getattr(leaf, "dtype", None)
    return dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key)


def split_real(
    tree: PyTree,
) -> tuple[list[tuple[Any, np.ndarray]], Callable[[Any], PyTree]]:
    """The real-valued leaves of ``tree``, and the way back from other values.

    Returns:
        Path and array of each floating-point leaf, and a function from all their numbers, as one
        flat NumPy or JAX array, to a tree that has them in place.

    Example:
        >>> parts, rebuild = split_real({"count": np.array(3), "x": np.array([1.0, 2.0])})
        >>> [array.tolist() for _, array in parts]
        [[1.0, 2.0]]
        >>> rebuild(np.zeros(2))["x"].tolist()
        [0.0, 0.0]
    """
    located, structure = jax.tree_util.tree_flatten_with_path(tree)
    leaves = [leaf if is_key(leaf) else np.asarray(leaf) for _, leaf in located]
    places = [
        i
        for i, leaf in enumerate(leaves)
        if not is_key(leaf) and np.issubdtype(leaf.dtype, np.floating)
    ]

    def rebuild(values: Any) -> PyTree:
        new, start = list(leaves), 0
        for place in places:
            old = leaves[place]
            new[place] = values[start : start + old.size].reshape(old.shape).astype(old.dtype)
            start += old.size
        return jax.tree.unflatten(structure, new)

    return [(located[i][0], leaves[i]) for i in places], rebuild


def _inexact_leaves(tree: PyTree) -> list[Any]:
    return [leaf for leaf in jax.tree.leaves(tree) if is_inexact(leaf)]


def all_finite(tree: PyTree) -> Bool[Array, ""]:
    """Whether every floating-point number in ``tree`` is finite; keys and integers do not count.

    Example:
        >>> bool(all_finite({"x": jnp.array([1.0, jnp.nan])}))
        False
    """
    finite = jnp.array(True)
    for leaf in _inexact_leaves(tree):
        finite = finite & jnp.isfinite(leaf).all()
    return finite


def largest_magnitude(tree: PyTree) -> Float[Array, ""]:
    """The largest absolute value in ``tree``; 0 without floating-point leaves.

    The maximum drops NaN for large arrays on CPU, so ask ``all_finite`` as well.
    """
    magnitude = jnp.zeros(())
    for leaf in _inexact_leaves(tree):
        if leaf.size:
            magnitude = jnp.maximum(magnitude, jnp.abs(leaf).max().astype(magnitude.dtype))
    return magnitude


def tree_combine(weights: tuple, *trees: PyTree) -> PyTree:
    """The weighted sum of trees of one structure, leaf by leaf, in the dtype of the first tree.

    Example:
        >>> tree_combine((2.0, -1.0), jnp.ones(2), jnp.ones(2)).tolist()
        [1.0, 1.0]
    """

    def combine(*leaves: Array) -> Array:
        total = sum(w * leaf for w, leaf in zip(weights, leaves, strict=True))
        return jnp.asarray(total, dtype=leaves[0].dtype)

    return jax.tree.map(combine, *trees)


def tree_dot(first: PyTree, second: PyTree) -> Float[Array, ""]:
    """The inner product of two trees of one structure, over all their numbers.

    Example:
        >>> tree = {"a": jnp.ones(2), "b": jnp.array(3.0)}
        >>> float(tree_dot(tree, tree))
        11.0
    """
    products = jax.tree.map(lambda a, b: jnp.sum(a * b), first, second)
    return jax.tree.reduce(jnp.add, products)

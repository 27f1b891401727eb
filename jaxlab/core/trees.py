"""The few operations on pytrees that optax does not have."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

__all__ = ["all_finite", "is_inexact", "is_key", "largest_magnitude", "tree_combine"]


def is_inexact(leaf: object) -> bool:
    """Whether a leaf is an array of floating-point or complex numbers."""
    dtype = getattr(leaf, "dtype", None)
    return dtype is not None and jnp.issubdtype(dtype, jnp.inexact)


def is_key(leaf: object) -> bool:
    """Whether a leaf is an array of typed PRNG keys, or stands for one by its dtype."""
    dtype = getattr(leaf, "dtype", None)
    return dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key)


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

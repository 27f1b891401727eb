"""Roots whose derivatives stay finite."""

import jax.numpy as jnp
from jaxtyping import Array, Float

__all__ = ["safe_sqrt"]


def safe_sqrt(square: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """The root, with the derivative 0 at 0 instead of infinity, which turns others into NaN.

    Example:
        >>> import jax
        >>> float(jax.grad(safe_sqrt)(0.0)), float(safe_sqrt(jnp.array(4.0)))
        (0.0, 2.0)
    """
    positive = square > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, square, 1.0)), 0.0)

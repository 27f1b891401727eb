"""Uniform directions."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

__all__ = ["unit_vector"]


def unit_vector(key: Array, dim: int) -> Float[Array, " dim"]:
    """A uniform point on the unit sphere.

    Example:
        >>> x = unit_vector(jax.random.key(0), 3)
        >>> round(float(jnp.sum(x**2)), 5)
        1.0
    """
    x = jax.random.normal(key, (dim,))
    return x / jnp.sqrt(jnp.sum(x**2))

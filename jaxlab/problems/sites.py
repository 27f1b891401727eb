"""NumPyro sample sites, with the type that they have: an array."""

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array

__all__ = ["log_uniform", "normal", "site"]


def site(name: str, distribution: dist.Distribution) -> Array:
    """One named random value of the instance."""
    return jnp.asarray(numpyro.sample(name, distribution))


def normal(name: str, *shape: int) -> Array:
    """Independent standard normals.

    Example:
        >>> import jax
        >>> from numpyro import handlers
        >>> handlers.seed(normal, jax.random.key(0))("x", 2, 3).shape
        (2, 3)
    """
    return site(name, dist.Normal(0.0, 1.0).expand(list(shape)).to_event(len(shape)))


def log_uniform(name: str, low: float, high: float) -> Array:
    """A positive number whose logarithm is uniform."""
    return site(name, dist.LogUniform(low, high))

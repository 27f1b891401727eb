"""NumPyro sample sites, with the type that they have: an array."""

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array

__all__ = ["log_uniform", "normal", "simplex", "site", "uniform"]


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


def uniform(name: str, low: float, high: float, *shape: int) -> Array:
    """Independent uniform numbers."""
    return site(name, dist.Uniform(low, high).expand(list(shape)).to_event(len(shape)))


def simplex(name: str, size: int) -> Array:
    """A point that is uniform on the simplex: a law on ``size`` states.

    Example:
        >>> import jax
        >>> from numpyro import handlers
        >>> law = handlers.seed(simplex, jax.random.key(0))("law", 4)
        >>> law.shape, round(float(law.sum()), 5)
        ((4,), 1.0)
    """
    weights = site(name, dist.Exponential(1.0).expand([size]))
    return weights / weights.sum()

"""NumPyro sample sites, with the type that they have: an array."""

import itertools
import math

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array

__all__ = ["between", "log_uniform", "normal", "normals", "simplex", "site", "uniform"]


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


def normals(name: str, *shapes: tuple[int, ...]) -> list[Array]:
    """Standard normal arrays out of one site: every site takes its time to compile.

    Example:
        >>> import jax
        >>> from numpyro import handlers
        >>> pair = handlers.seed(normals, jax.random.key(0))("x", (2, 3), (4,))
        >>> [part.shape for part in pair]
        [(2, 3), (4,)]
    """
    counts = [math.prod(shape) for shape in shapes]
    ends = list(itertools.accumulate(counts))
    parts = jnp.split(normal(name, ends[-1]), ends[:-1])
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


def log_uniform(name: str, low: float, high: float) -> Array:
    """A positive number whose logarithm is uniform."""
    return site(name, dist.LogUniform(low, high))


def between(low: float, high: float, share: Array) -> Array:
    """The number at a share of the logarithmic way from ``low`` to ``high``."""
    return low * (high / low) ** share


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

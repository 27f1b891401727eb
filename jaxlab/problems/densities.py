"""Log densities with known normalising constants and modes, to test samplers on."""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array, Float

__all__ = ["Density", "banana", "bumps", "labels_of_order", "mixture_posterior", "ring_of_bumps"]


class Density(NamedTuple):
    """A density whose normalising constant is 1 and whose modes have known masses.

    Attributes:
        logdensity_fn: ``x -> log density``.
        label_fn: ``x -> int``, the region that a point belongs to.
        masses: Of the regions.
    """

    logdensity_fn: Callable[[Array], Array]
    label_fn: Callable[[Array], Array]
    masses: Float[np.ndarray, " regions"]


def bumps(centres: Float[np.ndarray, "modes dim"], masses: Float[np.ndarray, " modes"]) -> Density:
    """Unit Gaussians; the regions are those of the nearest centre.

    Regions have the masses of their Gaussians up to the overlap, which is below 1e-4 from a
    distance of 8 on.

    Args:
        centres: Of the Gaussians.
        masses: Sum to 1.

    Example:
        >>> two = bumps(np.array([[0.0], [10.0]]), np.array([0.25, 0.75]))
        >>> int(two.label_fn(jnp.array([9.0])))
        1
    """
    log_masses, dim = np.log(masses), centres.shape[1]

    def squares(x: Array) -> Array:
        return jnp.sum((x[None] - jnp.asarray(centres, x.dtype)) ** 2, axis=1)

    def logdensity(x: Array) -> Array:
        parts = jnp.asarray(log_masses, x.dtype) - squares(x) / 2
        return jax.nn.logsumexp(parts) - dim / 2 * math.log(2 * math.pi)

    return Density(logdensity, lambda x: jnp.argmin(squares(x)), np.asarray(masses))


def ring_of_bumps(num_modes: int, radius: float) -> Density:
    """Equal unit Gaussians in the plane, on a circle.

    Example:
        >>> ring_of_bumps(8, 15.0).masses.tolist()[:2]
        [0.125, 0.125]
    """
    angles = 2 * np.pi * np.arange(num_modes) / num_modes
    centres = radius * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    return bumps(centres, np.full(num_modes, 1 / num_modes))


def banana(dim: int, curvature: float = 0.5) -> Density:
    """A Gaussian bent into a banana in its first two coordinates; the regions are its two arms.

    The first coordinate has a deviation of 2, and the second one of 1 around ``curvature`` times
    the first one's square (less its mean).

    Example:
        >>> banana(4).masses.tolist()
        [0.5, 0.5]
    """

    def logdensity(x: Array) -> Array:
        bent = x.at[1].add(-curvature * (x[0] ** 2 - 4.0))
        first = -(x[0] ** 2) / 8 - math.log(2.0)
        return first - jnp.sum(bent[1:] ** 2) / 2 - dim / 2 * math.log(2 * math.pi)

    return Density(logdensity, lambda x: (x[0] > 0).astype(int), np.full(2, 0.5))


def mixture_posterior(observed: Float[Array, " rows"], num_parts: int) -> None:
    """A NumPyro model: rows from a mixture of Gaussians with unknown means, scales and shares.

    Its prior does not tell the parts apart, so that all orders of the means have equal posterior
    probability, whatever the rows: a posterior on real data with known masses of its modes.

    Args:
        observed: Standardised rows.
        num_parts: How many Gaussians.
    """
    shares = numpyro.sample("shares", dist.Dirichlet(jnp.ones(num_parts)))
    means = numpyro.sample("means", dist.Normal(0.0, 1.5).expand([num_parts]))
    scales = numpyro.sample("scales", dist.LogNormal(-1.0, 1.0).expand([num_parts]))
    parts = dist.Normal(means, scales)
    mixed = dist.MixtureSameFamily(dist.Categorical(shares), parts)
    numpyro.sample("rows", mixed, obs=observed)


def labels_of_order(values: Float[Array, " parts"]) -> Array:
    """Which of the orders of ``parts`` numbers theirs is, from 0 to ``parts! - 1``.

    Example:
        >>> int(labels_of_order(jnp.array([1.0, 2.0, 3.0]))), int(labels_of_order(-jnp.arange(3.0)))
        (0, 5)
    """
    size = values.shape[0]
    label = jnp.zeros((), dtype=int)
    for i in range(size - 1):
        label = label * (size - i) + jnp.sum(values[i + 1 :] < values[i])
    return label

"""Families of activations in noise, for claims that hold for every one of them."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array, Float

from jaxlab.problems.sites import log_uniform, site
from jaxlab.theory.nse_activations import Activation, Moments, StepActivation, smooth

__all__ = [
    "Affine",
    "Channel",
    "Waves",
    "is_channel",
    "link",
    "random_steps",
    "random_waves",
    "two_valued",
    "weak_signal",
]


class Affine(Activation):
    """``slope * sigma + shift``, with the square of ``z`` projected on ``z^2 - projection``."""

    activation: Activation
    slope: Any
    shift: Any
    projection: Any = 1.0

    def __call__(self, z: Array) -> Array:
        """The activation's values."""
        return self.slope * self.activation(z) + self.shift

    def moments(self, mean: Any, variance: Any) -> Moments:
        """Of the same pieces."""
        inner = self.activation.moments(mean, variance)
        return inner._replace(
            values=self.slope * inner.values + self.shift,
            second=inner.second + (1 - self.projection) * inner.mass,
        )


class Channel(NamedTuple):
    """A step function, or a sum of cosines, in noise."""

    gaps: Float[Array, " jumps"]
    values: Float[Array, " shells"]
    snr: Float[Array, ""]
    ratio: Float[Array, ""]


class Waves(NamedTuple):
    """``weights . (cos(rate z), exp(-z^2), -tanh(z)^2)`` in noise."""

    weights: Float[Array, "3"]
    rate: Float[Array, ""]
    snr: Float[Array, ""]
    ratio: Float[Array, ""]


def noise(low: float, high: float) -> tuple[Array, Array]:
    """A signal-to-noise ratio, and by how much a second one is larger."""
    return log_uniform("snr", low, high), log_uniform("ratio", 1.0, 10.0)


def random_steps() -> Channel:
    """Three jumps, four values."""
    gaps = site("gaps", dist.Uniform(0.1, 1.0).expand([3]).to_event(1))
    values = site("values", dist.Uniform(-1.0, 1.0).expand([4]).to_event(1))
    return Channel(gaps, values, *noise(0.01, 3.0))


def random_waves() -> Waves:
    """Smooth bounded even functions."""
    weights = site("weights", dist.Uniform(0.1, 0.5).expand([3]).to_event(1))
    return Waves(weights, site("rate", dist.Uniform(0.5, 1.5)), *noise(0.3, 2.0))


def weak_signal() -> Channel:
    """Noise up to a hundred times the signal."""
    return random_steps()._replace(snr=log_uniform("weak_snr", 0.01, 1.0))


def two_valued() -> Channel:
    """An indicator: ties between the other values."""
    return Channel(jnp.full(3, 0.5), jnp.array([0.0, 1.0, 1.0, 1.0]), jnp.ones(()), jnp.ones(()))


def link(instance: Channel | Waves) -> Activation:
    """The activation of an instance."""
    if isinstance(instance, Channel):
        return StepActivation(jnp.cumsum(instance.gaps), instance.values)

    def waves(z: Array, weights: Array, rate: Array) -> Array:
        stacked = jnp.stack([jnp.cos(rate * z), jnp.exp(-(z**2)), -(jnp.tanh(z) ** 2)])
        return jnp.tensordot(weights, stacked, axes=1)

    return smooth(waves, instance.weights, instance.rate, num_nodes=40)


def is_channel(instance: Channel | Waves) -> Array:
    """Positive noise, a signal, and jumps in order."""
    slack = jnp.minimum(instance.snr, instance.ratio - 1)
    if isinstance(instance, Channel):
        return jnp.minimum(slack, jnp.minimum(instance.gaps.min(), jnp.ptp(instance.values)))
    return jnp.minimum(slack, jnp.abs(instance.weights).max())

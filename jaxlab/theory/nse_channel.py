r"""The noisy observation of an activation, :math:`y = \sqrt\lambda\,\sigma(z) + \xi`.

Given ``Moments`` of :math:`z`, the density of :math:`y` is a mixture of normals of variance 1, and
what :math:`y` tells of :math:`z` is a ratio of two such mixtures.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import checkify
from jax.scipy.stats import norm
from jaxtyping import Array, Float

from jaxlab.core.checks import check_count, check_value, is_concrete
from jaxlab.core.types import Scalar
from jaxlab.stats.quadrature import Quadrature
from jaxlab.theory.nse_activations import Activation, Moments, StepActivation

__all__ = [
    "Posterior",
    "check_overlap",
    "check_resolution",
    "check_snr",
    "log_likelihood",
    "output_grid",
    "posterior",
]

_REACH = 9.0  # Of the noise, in standard deviations.
_WIDEST = 0.25  # The spacing up to which the trapezoid rule is exact to rounding.
_FARTHEST = 1.0  # Between values of neighbouring nodes, in standard deviations of the noise.
_ROUGH = 1e-3  # The mass on which they may be farther apart.


class Posterior(NamedTuple):
    """What an output tells; ``u`` is ``z`` standardised by its prior.

    Attributes:
        log_density: ``log p(y)``.
        first: ``E[u | y]``.
        second: ``E[u^2 - 1 | y]``.
    """

    log_density: Float[Array, ""]
    first: Float[Array, ""]
    second: Float[Array, ""]


def log_likelihood(value: Array, snr: Scalar, output: Scalar) -> Array:
    """``log p(y | sigma)``, of one value and many outputs or of many values and one output."""
    return norm.logpdf(output - jnp.sqrt(snr) * value)


def posterior(moments: Moments, snr: Scalar, output: Scalar) -> Posterior:
    """The output's density and what it tells of ``z``. Weights are formed in logarithms.

    Args:
        moments: Of ``z``.
        snr: ``lambda``, a ratio of powers.
        output: One ``y``; ``vmap`` over more.

    Example:
        >>> from jaxlab.theory.nse_activations import StepActivation
        >>> inside = StepActivation(jnp.array([1.0]), jnp.array([1.0, 0.0]))
        >>> told = posterior(inside.moments(0.0, 1.0), 100.0, jnp.array(10.0))  # so |z| < 1
        >>> round(float(told.second), 3)
        -0.709
    """
    logs = log_likelihood(moments.values, snr, output)
    largest = jax.lax.stop_gradient(logs.max())
    weights = jnp.exp(logs - largest)
    tiny = jnp.finfo(weights.dtype).tiny
    density = jnp.maximum(moments.mass @ weights, tiny)
    return Posterior(
        jnp.log(density) + largest,
        (moments.first @ weights) / density,
        (moments.second @ weights) / density,
    )


def output_grid(moments: Moments, snr: Scalar, num_y: int) -> Quadrature:
    """An even grid over all outputs that occur; the weights are the spacing and do not sum to 1.

    Raises:
        ValueError: ``num_y`` is too small for the range of the outputs.
    """
    check_count("num_y", num_y, least=2)
    occurs = moments.mass > 1e-16 * moments.mass.max()
    centre = moments.mass @ moments.values
    values = jnp.sqrt(snr) * jnp.where(occurs, moments.values, centre)
    low, high = values.min() - _REACH, values.max() + _REACH
    spacing = (high - low) / (num_y - 1)
    message = f"num_y must be large enough for the range of the outputs, got {num_y}, a spacing of"
    if is_concrete(spacing):
        if not spacing <= _WIDEST:
            needed = math.ceil((float(high) - float(low)) / _WIDEST) + 1
            raise ValueError(f"{message} {float(spacing):.3g}; it needs at least {needed}")
    else:
        checkify.debug_check(spacing <= _WIDEST, message + " {spacing}", spacing=spacing)
    nodes = low + spacing * jnp.arange(num_y, dtype=values.dtype)
    return Quadrature(nodes, jnp.full(num_y, 1, values.dtype) * spacing)


def check_resolution(activation: Activation, moments: Moments, snr: Scalar) -> None:
    """Raise ``ValueError`` if the quadrature's values are farther apart than the noise is wide.

    Normals of variance 1 that are 1 apart add up to a smooth density to 1e-9; farther ones do not.
    """
    if isinstance(activation, StepActivation):
        return
    apart = jnp.sqrt(snr) * jnp.abs(jnp.diff(moments.values))
    rough = jnp.where(apart > _FARTHEST, jnp.minimum(moments.mass[1:], moments.mass[:-1]), 0).sum()
    message = "num_nodes must be large enough for the activation in so little noise"
    if is_concrete(rough):
        if not rough <= _ROUGH:
            raise ValueError(
                f"{message}, got {moments.values.shape[0]} nodes, between which the signal moves "
                f"by up to {float(apart.max()):.3g} standard deviations of the noise"
            )
    else:
        checkify.debug_check(rough <= _ROUGH, message)


def check_snr(snr: Scalar) -> None:
    """Raise ``ValueError`` unless the signal-to-noise ratio is positive and finite.

    Example:
        >>> check_snr(0.0)
        Traceback (most recent call last):
        ValueError: snr must be positive and finite, got 0.0
    """
    check_value("snr", snr, lambda ratio: (ratio > 0) & jnp.isfinite(ratio), "positive and finite")


def check_overlap(overlap: Scalar) -> None:
    """Raise ``ValueError`` unless the overlap is strictly between nothing and everything.

    Example:
        >>> check_overlap(1.0)
        Traceback (most recent call last):
        ValueError: overlap must be in (0, 1), got 1.0
    """
    check_value("overlap", overlap, lambda q: (q > 0) & (q < 1), "in (0, 1)")

r"""Information thresholds and free entropy of noisy single indices.

The overlap :math:`q \in [0, 1)` measures how much of the direction is known. The replica-symmetric
free entropy (Barbier et al. 2019, arXiv:1708.03395)

.. math::
    \Phi(q) - \Phi(0) = \tfrac12 [q + \log(1 - q)] + \alpha\, [\Psi(q) - \Psi(0)]

is largest at the overlap that information allows, and its stationary points are the fixed points of
state evolution (``nse_evolution``), which an AMP run follows from its initial overlap.
:math:`\Psi(q) - \Psi(0)` is the mutual information of the output and the known part
:math:`\sqrt q\, V` of :math:`z`.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxlab.core.checks import check_count, check_float64, check_value
from jaxlab.core.types import Scalar
from jaxlab.stats.quadrature import Quadrature, normal_grid
from jaxlab.theory.nse_activations import Activation, StepActivation, check_activation
from jaxlab.theory.nse_channel import (
    check_overlap,
    check_resolution,
    check_snr,
    log_likelihood,
    output_grid,
    posterior,
)

__all__ = [
    "InformationThreshold",
    "channel_information",
    "free_entropy",
    "information_threshold",
    "large_noise_information",
    "noise_covariance",
    "overlap_grid",
    "prior_entropy",
    "squared_score",
]

_DIFFERENCE = "it is a small difference of entropies"
_BLOCK = 2**20  # Numbers that are held at a time.


class InformationThreshold(NamedTuple):
    """From how many samples on information suffices, and how much is then known.

    Attributes:
        alpha: Samples per dimension (times ``snr`` for the large-noise limit).
        overlap: The overlap to which the estimate jumps; the grid's first one if the transition is
            continuous.
    """

    alpha: Float[Array, ""]
    overlap: Float[Array, ""]


def overlap_grid(num_overlaps: int = 240) -> Float[Array, " overlaps"]:
    """Overlaps from ``9e-4`` to ``1 - 1e-6``, even in ``log(q / (1 - q))``.

    First-order transitions have their overlap near 1, continuous ones near 0.

    Example:
        >>> [round(float(overlap), 4) for overlap in overlap_grid(3)]
        [0.0009, 0.9677, 1.0]
    """
    check_count("num_overlaps", num_overlaps, least=2)
    return jax.nn.sigmoid(jnp.linspace(-7.0, 13.8, num_overlaps))


def prior_entropy(overlap: Scalar) -> Float[Array, ""]:
    """``[q + log(1 - q)] / 2``, what an overlap costs; at most 0.

    Example:
        >>> round(float(prior_entropy(0.5)), 4)
        -0.0966
    """
    known = jnp.asarray(overlap, dtype=float)
    return (known + jnp.log1p(-known)) / 2


def channel_information(
    activation: Activation, overlap: Scalar, snr: Scalar, *, num_y: int = 401, num_v: int = 351
) -> Float[Array, ""]:
    """``Psi(q) - Psi(0)``, the information that an output has on the known part of ``z``, in nats.

    The difference is formed pointwise, where it is not lost to rounding; the largest intermediate
    array has about a million numbers.

    Args:
        activation: Any activation.
        overlap: ``q`` in ``(0, 1)``.
        snr: ``lambda > 0``.
        num_y: Points of the grid over outputs, static.
        num_v: Points of the grid over the known part; half of them on each side if the activation
            is not a step function.

    Raises:
        TypeError: The activation is in float32.
        ValueError: ``overlap`` or ``snr`` is out of range, or a grid is too coarse.

    Example:
        >>> from jaxlab.theory.nse_activations import step_activation
        >>> with jax.enable_x64(True):
        ...     told = channel_information(step_activation(2, 0.2), 0.5, 0.01)
        >>> round(float(told) * 1e5, 3)
        1.577
    """
    check_overlap(overlap)
    check_snr(snr)
    check_float64("activation", activation, _DIFFERENCE)
    prior = activation.moments(0.0, 1.0)
    check_resolution(activation, prior, snr)
    outputs = output_grid(prior, snr, num_y)
    base = jax.vmap(posterior, in_axes=(None, None, 0))(prior, snr, outputs.nodes).log_density
    density = outputs.weights * jnp.exp(base)

    def likelihood_ratio(value: Array) -> Array:
        return jnp.exp(log_likelihood(value, snr, outputs.nodes) - base)

    def divergence(mean: Array) -> Array:
        given = activation.moments(mean, 1 - overlap)
        excess = given.mass @ jax.vmap(likelihood_ratio)(given.values) - 1
        excess = jnp.maximum(excess, -1 + 1e-15)
        # r log r - r + 1 is not negative; its last two terms integrate to 0.
        return density @ ((1 + excess) * jnp.log1p(excess) - excess)

    return _mean_over_known(activation, divergence, overlap, num_v, num_y)


def squared_score(
    activation: Activation, overlap: Scalar, snr: Scalar, *, num_y: int = 401, num_v: int = 351
) -> Float[Array, ""]:
    """``E g^2`` with ``g = E[z - m | y] / v``, ``m = sqrt(q) V`` and ``v = 1 - q``.

    Args:
        activation: Any activation.
        overlap: ``q`` in ``(0, 1)``.
        snr: ``lambda > 0``.
        num_y: Points of the grid over outputs, static.
        num_v: Points of the grid over the known part, static.

    Raises:
        ValueError: ``overlap`` or ``snr`` is out of range, or a grid is too coarse.
    """
    check_overlap(overlap)
    check_snr(snr)
    prior = activation.moments(0.0, 1.0)
    check_resolution(activation, prior, snr)
    outputs = output_grid(prior, snr, num_y)

    def score(mean: Array) -> Array:
        given = activation.moments(mean, 1 - overlap)
        told = jax.vmap(posterior, in_axes=(None, None, 0))(given, snr, outputs.nodes)
        return outputs.weights @ (jnp.exp(told.log_density) * told.first**2)

    return _mean_over_known(activation, score, overlap, num_v, num_y) / (1 - overlap)


def _mean_over_known(
    activation: Activation,
    function: Callable[[Array], Array],
    overlap: Scalar,
    num_v: int,
    num_y: int,
) -> Float[Array, ""]:
    """The mean over ``V`` of a function of ``sqrt(q) V``, in blocks."""
    grid = _known_grid(activation, num_v)
    sizes = jax.eval_shape(lambda: activation.moments(0.0, 1.0)).values.shape[0]
    block = max(1, min(num_v, _BLOCK // (sizes * num_y)))
    means = jnp.sqrt(overlap) * grid.nodes
    return grid.weights @ jax.lax.map(function, means, batch_size=block)


def _known_grid(activation: Activation, num_v: int) -> Quadrature:
    check_count("num_v", num_v, least=2)
    return normal_grid(num_v, half=isinstance(activation, StepActivation))


def free_entropy(
    activation: Activation,
    overlap: Scalar,
    alpha: Scalar,
    snr: Scalar,
    *,
    num_y: int = 401,
    num_v: int = 351,
) -> Float[Array, ""]:
    """``Phi(q) - Phi(0)``; positive somewhere exactly if information suffices. Differentiable.

    Args:
        activation: Any activation.
        overlap: ``q`` in ``(0, 1)``.
        alpha: Samples per dimension.
        snr: ``lambda > 0``.
        num_y: Points of the grid over outputs, static.
        num_v: Points of the grid over the known part, static.

    Raises:
        TypeError: The activation is in float32.
        ValueError: Something is out of range, or a grid is too coarse.
    """
    told = channel_information(activation, overlap, snr, num_y=num_y, num_v=num_v)
    return prior_entropy(overlap) + alpha * told


def information_threshold(
    activation: Activation,
    snr: Scalar,
    *,
    overlaps: Float[Array, " overlaps"] | None = None,
    num_y: int = 401,
    num_v: int = 351,
) -> InformationThreshold:
    r"""Samples per dimension from which on a single index can be learned at all.

    :math:`\alpha_{IT} = \inf_q -[q + \log(1-q)] / (2 [\Psi(q) - \Psi(0)])`, over a grid of
    overlaps, one at a time.

    Args:
        activation: Even and not constant.
        snr: ``lambda > 0``; ``vmap`` over it, or ``jax.lax.map`` to save memory.
        overlaps: The grid, ``overlap_grid()`` by default.
        num_y: Points of the grid over outputs, static.
        num_v: Points of the grid over the known part, static.

    Raises:
        TypeError: The activation is in float32.
        ValueError: ``snr`` is not positive, an overlap is not in ``(0, 1)``, a grid is too coarse,
            or the activation is constant, not even or on too few nodes.

    Example:
        >>> from jaxlab.theory.nse_activations import step_activation
        >>> with jax.enable_x64(True):
        ...     found = information_threshold(step_activation(2, 0.2), 0.1, num_v=101)
        >>> round(float(found.alpha), 1)
        77.8
    """
    check_activation("activation", activation)
    check_snr(snr)

    def needed(overlap: Array) -> Array:
        told = channel_information(activation, overlap, snr, num_y=num_y, num_v=num_v)
        return -prior_entropy(overlap) / told

    return _least(needed, overlaps)


def _least(
    needed: Callable[[Array], Array], overlaps: Float[Array, " overlaps"] | None
) -> InformationThreshold:
    """The overlap for which the fewest samples are needed."""
    grid = overlap_grid() if overlaps is None else overlaps
    check_value("overlaps", grid, lambda q: ((q > 0) & (q < 1)).all(), "in (0, 1)")
    alphas = jax.lax.map(needed, grid)
    best = jnp.argmin(alphas)
    return InformationThreshold(alphas[best], grid[best])


def noise_covariance(
    activation: Activation, overlap: Scalar, *, num_v: int = 351
) -> Float[Array, ""]:
    r"""``Cov(sigma(z), sigma(z'))`` of standard normals with correlation ``overlap``.

    It is :math:`\sum_{k \ge 1} \sigma_k^2 q^k / k!` in the Hermite coefficients, the mixture of a
    spin model to which the single index reduces in large noise.

    Args:
        activation: Any activation.
        overlap: ``q`` in ``(0, 1)``.
        num_v: Points of the grid, static.

    Raises:
        ValueError: ``overlap`` is out of range.

    Example:
        >>> from jaxlab.theory.nse_activations import smooth
        >>> he2 = smooth(lambda z: (z**2 - 1) / jnp.sqrt(2.0))
        >>> round(float(noise_covariance(he2, 0.5)), 4)
        0.25
    """
    check_overlap(overlap)
    grid = _known_grid(activation, num_v)

    def value(mean: Array) -> Array:
        given = activation.moments(mean, 1 - overlap)
        return given.mass @ given.values

    known = jax.vmap(value)(jnp.sqrt(overlap) * grid.nodes)
    return grid.weights @ (known - grid.weights @ known) ** 2


def large_noise_information(
    activation: Activation,
    *,
    overlaps: Float[Array, " overlaps"] | None = None,
    num_v: int = 351,
) -> InformationThreshold:
    r"""The limit of ``snr * information_threshold`` as ``snr`` falls [derived].

    :math:`\kappa = \inf_q -[q + \log(1-q)]/g(q)` with :math:`g` the ``noise_covariance``.

    Args:
        activation: Even and not constant.
        overlaps: The grid, ``overlap_grid()`` by default.
        num_v: Points of the grid over the known part, static.

    Raises:
        TypeError: The activation is in float32.
        ValueError: As ``information_threshold``.

    Example:
        >>> from jaxlab.theory.nse_activations import step_activation
        >>> with jax.enable_x64(True):
        ...     limit = large_noise_information(step_activation(2, 0.2))
        >>> round(float(limit.alpha), 2), round(float(limit.overlap), 2)
        (7.54, 0.98)
    """
    check_activation("activation", activation)

    def needed(overlap: Array) -> Array:
        return -2 * prior_entropy(overlap) / noise_covariance(activation, overlap, num_v=num_v)

    return _least(needed, overlaps)

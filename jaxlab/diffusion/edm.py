r"""How a network becomes a denoiser, and what it is trained on: Karras et al. 2022.

.. math::
    D(x, \sigma) = c_{\text{skip}} x + c_{\text{out}} F(c_{\text{in}} x, c_{\text{noise}})

with coefficients that give the network's input and its target unit variance at every level, and
that multiply its errors as little as possible.

Source: arXiv:2206.00364, table 1 (column "ours"), equations 3 and 8.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxlab.core.checks import check_key, check_value
from jaxlab.core.types import Scalar
from jaxlab.diffusion.denoise import Denoiser
from jaxlab.diffusion.schedule import check_level

__all__ = [
    "NoiseSampler",
    "Preconditioning",
    "check_data_scale",
    "denoising_loss",
    "edm_loss_weight",
    "edm_preconditioning",
    "log_normal_noise",
    "preconditioned",
]

NoiseSampler: TypeAlias = Callable[[Any, Any], tuple[Any, Any]]
"""``(key, shape) -> (sigma, weight)``, the levels to train at; weight 0 leaves a row out."""


class Preconditioning(NamedTuple):
    """The coefficients of one level.

    Attributes:
        skip: ``c_skip``, of the noisy signal.
        output: ``c_out``, of the network's output.
        input: ``c_in``, of the network's input.
        noise: ``c_noise``, what the network is told of the level, ``log(sigma) / 4``.
    """

    skip: Float[Array, "*batch"]
    output: Float[Array, "*batch"]
    input: Float[Array, "*batch"]
    noise: Float[Array, "*batch"]


def edm_preconditioning(
    sigma: Scalar | Float[Array, "*batch"], data_scale: Scalar
) -> Preconditioning:
    """The coefficients at ``sigma`` for data of standard deviation ``data_scale``.

    Raises:
        ValueError: ``sigma`` or ``data_scale`` is not positive.

    Example:
        >>> [round(float(c), 4) for c in edm_preconditioning(1.0, 1.0)]
        [0.5, 0.7071, 0.7071, 0.0]
    """
    check_level(sigma)
    check_data_scale(data_scale)
    sigma = jnp.asarray(sigma, dtype=jnp.result_type(sigma, float))
    total = jnp.square(sigma) + jnp.square(data_scale)
    return Preconditioning(
        jnp.square(data_scale) / total,
        sigma * data_scale * jax.lax.rsqrt(total),
        jax.lax.rsqrt(total),
        jnp.log(sigma) / 4,
    )


def edm_loss_weight(
    sigma: Scalar | Float[Array, "*batch"], data_scale: Scalar
) -> Float[Array, "*batch"]:
    """The weight of squared errors at ``sigma``, ``1 / c_out^2``.

    Example:
        >>> round(float(edm_loss_weight(0.5, 0.5)), 4)
        8.0
    """
    return 1 / jnp.square(edm_preconditioning(sigma, data_scale).output)


def preconditioned(network: Callable[[Any, Any], Any], data_scale: Scalar) -> Denoiser:
    """The denoiser of a network ``(scaled signal, noise label) -> output``.

    Example:
        >>> denoise = preconditioned(lambda x, noise: jnp.zeros_like(x), 1.0)
        >>> denoise(jnp.array([2.0]), 1.0).tolist()  # exact for data of N(0, 1)
        [1.0]
    """

    def denoise(x: Float[Array, "*shape"], sigma: Scalar) -> Float[Array, "*shape"]:
        level = edm_preconditioning(sigma, data_scale)
        return level.skip * x + level.output * network(level.input * x, level.noise)

    return denoise


def log_normal_noise(mean: Scalar = -1.2, deviation: Scalar = 1.2) -> NoiseSampler:
    """Levels whose logarithms are normal, all of weight 1; the defaults are the source's.

    Raises:
        ValueError: ``deviation`` is negative.

    Example:
        >>> sigma, weight = log_normal_noise(0.0, 0.0)(jax.random.key(0), (2,))
        >>> sigma.tolist(), weight.tolist()
        ([1.0, 1.0], [1.0, 1.0])
    """
    check_value("deviation", deviation, lambda d: d >= 0, "non-negative")

    def draw(key: Array, shape: tuple[int, ...]) -> tuple[Array, Array]:
        check_key("key", key)
        sigma = jnp.exp(mean + deviation * jax.random.normal(key, shape))
        return sigma, jnp.ones_like(sigma)

    return draw


def denoising_loss(
    denoise: Denoiser,
    key: Array,
    batch: Float[Array, "rows *shape"],
    noise: NoiseSampler,
    data_scale: Scalar,
) -> Float[Array, ""]:
    """The weighted squared error of ``denoise``, over rows with fresh noise at drawn levels.

    The mean over rows of ``weight * edm_loss_weight * mean squared error of the entries``. For
    white Gaussian data of this scale the best denoiser has a loss of 1 at every level.

    Args:
        denoise: ``(x, sigma) -> E[x0 | x]`` of one signal.
        key: Of levels and noise.
        batch: Clean signals.
        noise: Draws the levels and their weights.
        data_scale: The standard deviation of the data's entries.

    Raises:
        TypeError: ``key`` is not a typed key.
        ValueError: ``data_scale`` is not positive.

    Example:
        >>> perfect = lambda x, sigma: jnp.zeros_like(x)
        >>> float(denoising_loss(
        ...     perfect, jax.random.key(0), jnp.zeros((4, 2)), log_normal_noise(), 0.5
        ... ))
        0.0
    """
    check_key("key", key)
    key_level, key_noise = jax.random.split(key)
    sigma, weight = noise(key_level, batch.shape[:1])
    normal = jax.random.normal(key_noise, batch.shape, batch.dtype)

    def error(row: Array, sigma: Array, normal: Array) -> Array:
        denoised = denoise(row + sigma.astype(row.dtype) * normal, sigma)
        return edm_loss_weight(sigma, data_scale) * jnp.mean(jnp.square(denoised - row))

    return jnp.mean(weight * jax.vmap(error)(batch, sigma, normal))


def check_data_scale(data_scale: Scalar) -> None:
    """Raise ``ValueError`` unless this is positive and finite."""
    check_value("data_scale", data_scale, lambda s: (s > 0) & (s < jnp.inf), "positive and finite")

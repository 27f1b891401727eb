"""Measurements that are not linear: rounded, or without their phases.

An operator that rounds has the derivative of a *surrogate* (``straight_through``): its values are
true, its gradients are not.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxlab.core.checks import check_count, check_value
from jaxlab.core.types import Scalar
from jaxlab.diffusion.operators import Operator, Shape, check_shape

__all__ = [
    "JPEG_LUMINANCE",
    "BlockQuantizer",
    "PhaseRetrieval",
    "Quantizer",
    "block_quantizer",
    "phase_retrieval",
    "quantizer",
    "straight_through",
]

# ITU-T T.81, table K.1, for pixels from 0 to 255 at quality 50.
JPEG_LUMINANCE = np.array(
    [
        [16, 11, 10, 16, 24, 40, 51, 61],
        [12, 12, 14, 19, 26, 58, 60, 55],
        [14, 13, 16, 24, 40, 57, 69, 56],
        [14, 17, 22, 29, 51, 87, 80, 62],
        [18, 22, 37, 56, 68, 109, 103, 77],
        [24, 35, 55, 64, 81, 104, 113, 92],
        [49, 64, 78, 87, 103, 121, 120, 101],
        [72, 92, 95, 98, 112, 100, 103, 99],
    ],
    dtype=np.float64,
)
"""The quantisation steps of JPEG's luminance in grey values of 0 to 255, row by row."""


class Quantizer(eqx.Module):
    """Rounds to multiples of a step, with the derivative of the identity; by ``quantizer``.

    Attributes:
        step: The distance of two levels.
    """

    step: Float[Array, ""]

    def __call__(self, x: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """The nearest levels, halves to even multiples."""
        return _round_to(x, self.step.astype(x.dtype))


class BlockQuantizer(eqx.Module):
    """The core of JPEG on blocks of 8 x 8; made by ``block_quantizer``.

    Attributes:
        steps: Of the coefficients, in units of the signal.
        shape: Of the image.
    """

    steps: Float[Array, "8 8"]
    shape: Shape = eqx.field(static=True)

    def __call__(self, x: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """The rounded coefficients in units of their steps, block after block, as in a file."""
        rows, columns = self.shape
        blocks = x.reshape(rows // 8, 8, columns // 8, 8).transpose(0, 2, 1, 3)
        coefficients = jax.scipy.fft.dctn(blocks, axes=(2, 3), norm="ortho")
        scaled = coefficients / self.steps.astype(x.dtype)[None, None]
        return _round_to(scaled, jnp.ones((), x.dtype)).reshape(-1)

    def decode(self, y: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """The image of given coefficients, as a decoder shows it."""
        rows, columns = self.shape
        blocks = y.reshape(rows // 8, columns // 8, 8, 8) * self.steps.astype(y.dtype)[None, None]
        image = jax.scipy.fft.idctn(blocks, axes=(2, 3), norm="ortho")
        return image.transpose(0, 2, 1, 3).reshape(-1)


class PhaseRetrieval(eqx.Module):
    """Magnitudes of Fourier coefficients; made by ``phase_retrieval``.

    Attributes:
        shape: Of the image.
        oversampling: The factor of the zero padding per axis.
        softening: The square that keeps the magnitude differentiable at 0.
    """

    shape: Shape = eqx.field(static=True)
    oversampling: int = eqx.field(static=True)
    softening: float = eqx.field(static=True)

    def __call__(self, x: Float[Array, " dim"]) -> Float[Array, " measurements"]:
        """``|F x|`` of the image in [0, 1] that belongs to pixels in [-1, 1]."""
        padded = tuple(self.oversampling * size for size in self.shape)
        image = (1 + x.reshape(self.shape)) / 2
        spectrum = jnp.fft.rfft2(image, s=padded, norm="ortho")
        square = jnp.square(spectrum.real) + jnp.square(spectrum.imag)
        return jnp.sqrt(square + self.softening).reshape(-1)


def straight_through(forward: Operator, surrogate: Operator) -> Operator:
    """The values of ``forward`` with the derivative of ``surrogate`` (Bengio et al. 2013).

    Values that are close need not have close derivatives: nothing is promised of a descent.

    Example:
        >>> rounded = straight_through(jnp.round, lambda x: x)
        >>> value, slope = jax.value_and_grad(rounded)(1.7)
        >>> float(value), float(slope)
        (2.0, 1.0)
    """

    @jax.custom_jvp
    def operator(x: Any) -> Array:
        return forward(x)

    @operator.defjvp
    def _(primals: tuple[Any], tangents: tuple[Any]) -> tuple[Array, Array]:
        return forward(*primals), jax.jvp(surrogate, primals, tangents)[1]

    return operator


@jax.custom_jvp
def _round_to(x: Array, step: Array) -> Array:
    return step * jnp.round(x / step)


@_round_to.defjvp
def _(primals: tuple[Any, Any], tangents: tuple[Any, Any]) -> tuple[Array, Array]:
    return _round_to(*primals), tangents[0]


def quantizer(step: Scalar) -> Quantizer:
    """Rounds every entry to a multiple of ``step``.

    Raises:
        ValueError: ``step`` is not positive.

    Example:
        >>> quantizer(0.25)(jnp.array([0.3, -0.4])).tolist()
        [0.25, -0.5]
    """
    check_value("step", step, lambda s: (s > 0) & (s < jnp.inf), "positive and finite")
    return Quantizer(jnp.asarray(step, dtype=jnp.result_type(step, float)))


def block_quantizer(
    shape: Shape, steps: Float[Array, "8 8"] | None = None, *, coarseness: Scalar = 1.0
) -> BlockQuantizer:
    """Rounds the cosine coefficients of blocks of 8 x 8 pixels, as JPEG does.

    What rounding leaves has the standard deviation ``1 / sqrt(12)`` in units of the steps.

    Args:
        shape: Of the image, multiples of 8.
        steps: Of the coefficients, for pixels in [-1, 1]; those of JPEG's luminance by default.
        coarseness: A factor of the steps; 1 is quality 50.

    Raises:
        ValueError: A side is no multiple of 8, or a step is not positive.

    Example:
        >>> y = block_quantizer((8, 8))(jnp.full(64, 0.5))
        >>> float(y[0]), float(jnp.abs(y[1:]).max())
        (32.0, 0.0)
    """
    check_shape(shape)
    if any(size % 8 for size in shape):
        raise ValueError(f"shape must be multiples of 8, got {shape}")
    steps = jnp.asarray(JPEG_LUMINANCE / 127.5 if steps is None else steps, dtype=float)
    if steps.shape != (8, 8):
        raise ValueError(f"steps must have shape (8, 8), got {steps.shape}")
    check_value("steps", steps, lambda s: (s > 0) & (s < jnp.inf), "positive and finite")
    check_value("coarseness", coarseness, lambda c: c > 0, "positive")
    return BlockQuantizer(steps * coarseness, tuple(shape))


def phase_retrieval(
    shape: Shape, *, oversampling: int = 2, softening: float = 1e-6
) -> PhaseRetrieval:
    """Magnitudes of the Fourier transform of a zero-padded image, without the phases.

    Images that are turned by half a turn have the same magnitudes, so do some that are shifted.

    Raises:
        ValueError: ``oversampling`` is less than 1, or ``softening`` is not positive.

    Example:
        >>> operator = phase_retrieval((4, 4))
        >>> image = jax.random.uniform(jax.random.key(0), (4, 4), minval=-1.0)
        >>> turned = operator(image[::-1, ::-1].reshape(-1))
        >>> bool(jnp.allclose(turned, operator(image.reshape(-1)), atol=1e-4))
        True
    """
    check_shape(shape)
    check_count("oversampling", oversampling)
    check_value("softening", softening, lambda s: s > 0, "positive")
    return PhaseRetrieval(tuple(shape), oversampling, softening)

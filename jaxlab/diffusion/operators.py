r"""What was measured: linear maps from a signal to a measurement, with adjoints.

An *operator* is a callable ``H(x)`` from a signal ``[dim]`` to a measurement ``[measurements]``
that JAX can differentiate. Images are signals of ``height * width`` pixels, row by row. Linear ones
are ``LinearOperator`` s, which know their adjoint and their matrix; others are in
``nonlinear_operators``.

All of them are pytrees, so that ``jax.vmap`` runs over their arrays (one mask per image, say).
"""

import abc
import math
from collections.abc import Callable
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxlab.core.checks import check_count, check_finite, check_value, is_concrete
from jaxlab.core.types import Scalar

__all__ = [
    "LinearOperator",
    "MatrixOperator",
    "Operator",
    "Shape",
    "average_pool",
    "blur",
    "check_shape",
    "mask",
    "matrix_operator",
    "motion_kernel",
    "operator_norm",
    "scattering",
]

Operator: TypeAlias = Callable[[Any], Any]
"""``x -> H(x)``, from ``[dim]`` to ``[measurements]``, differentiable by JAX."""

Shape: TypeAlias = tuple[int, ...]
"""The height and the width of an image, in pixels."""


_SQUARINGS = 50
"""After them the trace's excess over the largest eigenvalue is raised to the power 2^-50."""


class LinearOperator(eqx.Module):
    """A linear map of signals of a known length."""

    @property
    @abc.abstractmethod
    def dim(self) -> int:
        """The length of a signal."""

    @abc.abstractmethod
    def __call__(self, x: Float[Array, " dim"]) -> Float[Array, " measurements"]:
        """``H x``."""

    def adjoint(self, y: Float[Array, " measurements"]) -> Float[Array, " dim"]:
        """``H' y``."""
        signal = jax.ShapeDtypeStruct((self.dim,), y.dtype)
        return jax.linear_transpose(self, signal)(y)[0]

    def matrix(self, dtype: Any = None) -> Float[Array, "measurements dim"]:
        """``H`` as a matrix, by its action on unit vectors."""
        return jax.vmap(self)(jnp.eye(self.dim, dtype=dtype)).T


class MatrixOperator(LinearOperator):
    """A matrix; made by ``matrix_operator`` or ``scattering``.

    Attributes:
        entries: ``[measurements, dim]``.
    """

    entries: Float[Array, "measurements dim"]

    @property
    def dim(self) -> int:
        """The length of a signal."""
        return self.entries.shape[-1]

    def __call__(self, x: Float[Array, " dim"]) -> Float[Array, " measurements"]:
        """``H x``."""
        return self.entries @ x

    def adjoint(self, y: Float[Array, " measurements"]) -> Float[Array, " dim"]:
        """``H' y``."""
        return y @ self.entries

    def matrix(self, dtype: Any = None) -> Float[Array, "measurements dim"]:
        """The entries."""
        return self.entries if dtype is None else self.entries.astype(dtype)


class _Mask(LinearOperator):
    kept: Int[Array, " measurements"]
    length: int = eqx.field(static=True)

    @property
    def dim(self) -> int:
        return self.length

    def __call__(self, x: Float[Array, " dim"]) -> Float[Array, " measurements"]:
        return x[self.kept]


class _AveragePool(LinearOperator):
    shape: Shape = eqx.field(static=True)
    factor: int = eqx.field(static=True)

    @property
    def dim(self) -> int:
        return math.prod(self.shape)

    def __call__(self, x: Float[Array, " dim"]) -> Float[Array, " measurements"]:
        rows, columns = (size // self.factor for size in self.shape)
        blocks = x.reshape(rows, self.factor, columns, self.factor)
        return blocks.mean(axis=(1, 3)).reshape(-1)


class _Blur(LinearOperator):
    kernel: Float[Array, "_ _"]
    shape: Shape = eqx.field(static=True)

    @property
    def dim(self) -> int:
        return math.prod(self.shape)

    def __call__(self, x: Float[Array, " dim"]) -> Float[Array, " measurements"]:
        image, kernel = x.reshape(self.shape), self.kernel.astype(x.dtype)
        return jax.scipy.signal.convolve2d(image, kernel, mode="same").reshape(-1)


def operator_norm(operator: LinearOperator, dtype: Any = None) -> Float[Array, ""]:
    """The largest singular value, to rounding, by squaring ``H H'`` again and again.

    Traces bound eigenvalues from above, so that the result is not too small. Batches of eigenvalue
    problems inside of compiled loops are avoided, as in ``stats.elimination``.

    Example:
        >>> round(float(operator_norm(matrix_operator(jnp.diag(jnp.array([3.0, 1.0]))))), 4)
        3.0
    """
    rows = operator.matrix(dtype)
    gram = rows @ rows.T if rows.shape[0] < rows.shape[1] else rows.T @ rows
    tiny = jnp.finfo(gram.dtype).tiny

    def square(gram: Array, _: None) -> tuple[Array, Array]:
        size = jnp.maximum(jnp.trace(gram), tiny)
        gram = gram / size
        return gram @ gram, jnp.log(size)

    # lambda(G) = size * sqrt(lambda((G / size)^2)), and so on.
    _, logs = jax.lax.scan(square, gram, length=_SQUARINGS)
    return jnp.exp(logs @ (0.5 ** jnp.arange(1, _SQUARINGS + 1, dtype=gram.dtype)))


def matrix_operator(entries: Float[Array, "measurements dim"]) -> MatrixOperator:
    """A matrix as an operator.

    Raises:
        ValueError: It is no matrix with entries, or has NaN or infinity.

    Example:
        >>> matrix_operator(jnp.array([[1.0, 2.0]]))(jnp.array([1.0, 1.0])).tolist()
        [3.0]
    """
    entries = jnp.asarray(entries)
    if entries.ndim != 2 or not entries.size:
        raise ValueError(
            f"entries must have shape [measurements, dim] with entries, got {entries.shape}"
        )
    check_finite("entries", entries)
    return MatrixOperator(entries)


def mask(kept: Int[Array, " measurements"], dim: int) -> LinearOperator:
    """Keeps some entries of a signal of length ``dim`` and hides the others.

    Raises:
        ValueError: An index is outside of the signal or comes twice, or there is none.

    Example:
        >>> mask(jnp.array([0, 2]), 3)(jnp.array([1.0, 2.0, 3.0])).tolist()
        [1.0, 3.0]
    """
    check_count("dim", dim)
    kept = jnp.asarray(kept)
    if kept.ndim != 1 or not kept.size or not jnp.issubdtype(kept.dtype, jnp.integer):
        raise ValueError(
            f"kept must be a vector of indices, got shape {kept.shape} and dtype {kept.dtype}"
        )
    check_value("kept", kept, lambda i: (i >= 0) & (i < dim), f"indices from 0 to {dim - 1}")
    if is_concrete(kept) and np.unique(kept).size < kept.size:
        raise ValueError("kept must hold every index once, got one twice")
    return _Mask(kept, dim)


def average_pool(shape: Shape, factor: int) -> LinearOperator:
    """Means over blocks of ``factor * factor`` pixels: a smaller image.

    Raises:
        ValueError: ``factor`` does not divide both sides of ``shape``.

    Example:
        >>> average_pool((2, 2), 2)(jnp.array([1.0, 2.0, 3.0, 6.0])).tolist()
        [3.0]
    """
    check_shape(shape)
    check_count("factor", factor)
    if any(size % factor for size in shape):
        raise ValueError(f"factor must divide both sides of shape = {shape}, got {factor}")
    return _AveragePool(tuple(shape), factor)


def motion_kernel(length: int, angle: Scalar) -> Float[Array, "length length"]:
    """A line of ``length`` pixels through the middle: the kernel of a camera that moved.

    Args:
        length: An odd number.
        angle: In radians, from the direction of the rows, anticlockwise on the screen.

    Raises:
        ValueError: ``length`` is not odd.

    Example:
        >>> [round(float(weight), 4) for weight in motion_kernel(3, 0.0)[1]]
        [0.3333, 0.3333, 0.3333]
    """
    check_count("length", length)
    if length % 2 == 0:
        raise ValueError(f"length must be odd, so that the kernel has a middle, got {length}")
    offsets = jnp.arange(length) - length // 2
    across = offsets[None, :] * jnp.sin(angle) + offsets[:, None] * jnp.cos(angle)
    along = offsets[None, :] * jnp.cos(angle) - offsets[:, None] * jnp.sin(angle)
    inside = jnp.abs(along) <= length / 2
    weights = jnp.where(inside, jnp.maximum(1 - jnp.abs(across), 0.0), 0.0)
    return weights / weights.sum()


def blur(shape: Shape, kernel: Float[Array, "_ _"]) -> LinearOperator:
    """The convolution with a kernel, of the same shape; zeros continue the image.

    Raises:
        ValueError: The kernel has an even side, is larger than the image or not finite.

    Example:
        >>> blur((1, 3), jnp.array([[0.5, 0.0, 0.0]]))(jnp.array([2.0, 4.0, 6.0])).tolist()
        [2.0, 3.0, 0.0]
    """
    check_shape(shape)
    kernel = jnp.asarray(kernel)
    if kernel.ndim != 2 or any(
        k % 2 == 0 or k > size for k, size in zip(kernel.shape, shape, strict=True)
    ):
        raise ValueError(
            f"kernel must be a matrix with odd sides of at most shape = {shape}, got {kernel.shape}"
        )
    check_finite("kernel", kernel)
    return _Blur(kernel, tuple(shape))


def scattering(wave_numbers: Float[Array, " frequencies"], dim: int) -> MatrixOperator:
    r"""Linear scattering in one dimension: the reflected field in Born's approximation.

    A contrast :math:`f` on [0, 1] reflects :math:`\int f(s) e^{2iks} ds` at the wave number
    :math:`k`; the measurement holds real parts, then imaginary parts, times :math:`\sqrt{dim}`.

    Args:
        wave_numbers: In radians per unit of length.
        dim: How many cells the contrast has.

    Raises:
        ValueError: There is no wave number, or one is not finite.

    Example:
        >>> scattering(jnp.array([0.0]), 4)(jnp.ones(4)).tolist()
        [2.0, 0.0]
    """
    check_count("dim", dim)
    wave_numbers = jnp.asarray(wave_numbers)
    if wave_numbers.ndim != 1 or not wave_numbers.size:
        raise ValueError(f"wave_numbers must be a vector, got shape {wave_numbers.shape}")
    check_finite("wave_numbers", wave_numbers)
    places = (jnp.arange(dim, dtype=wave_numbers.dtype) + 0.5) / dim
    phases = 2 * wave_numbers[:, None] * places[None, :]
    return MatrixOperator(jnp.concatenate([jnp.cos(phases), jnp.sin(phases)]) / math.sqrt(dim))


def check_shape(shape: Shape) -> None:
    """Raise unless this is a height and a width.

    Example:
        >>> check_shape((8,))
        Traceback (most recent call last):
        ValueError: shape must be (height, width), got (8,)
    """
    if len(shape) != 2:
        raise ValueError(f"shape must be (height, width), got {shape}")
    for size in shape:
        check_count("shape", size)

r"""Learned step-size quantisation: low-bit weights and activations that gradients pass through.

A number is rounded to a multiple of a step :math:`s > 0` within the bounds of ``b`` bits,

.. math::
    q(v) = s\,\mathrm{round}(\mathrm{clip}(v/s, -Q_n, Q_p)) ,

whose derivative is zero almost everywhere. The straight-through rule differentiates a *surrogate*
instead, in which the rounding error :math:`r = \mathrm{round}(v/s) - v/s` is a constant,
:math:`s\,(\mathrm{clip}(v/s) + r)`:

.. math::
    \partial q/\partial v = 1 \text{ inside, } 0 \text{ outside}; \qquad
    \partial q/\partial s = r \text{ inside, } -Q_n \text{ or } Q_p \text{ outside} ,

the latter times :math:`1/\sqrt{\mathrm{numel}\; Q_p}` in gradients, which keeps the steps' updates
in proportion to the weights'. Inside is :math:`-Q_n < v/s < Q_p`.

The rule is a ``jax.custom_jvp``: it works forwards and backwards, under ``vmap`` and ``jit``.

Source: Esser et al. 2020, Learned Step Size Quantization (arXiv:1902.08153), equations 1 to 5.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from jaxlab.core.checks import check_count, check_key, check_value
from jaxlab.core.trees import is_inexact

__all__ = [
    "QuantDense",
    "QuantRange",
    "fake_quant_dense",
    "init_quant_dense",
    "lsq_init_step",
    "lsq_quantize",
    "quantize_params",
    "rounding_distance",
    "signed_range",
    "step_sizes",
    "unsigned_range",
]


class QuantRange(NamedTuple):
    """Which multiples of the step there are: ``-q_n, ..., q_p``.

    Attributes:
        q_n: Minus the lowest, at least 0.
        q_p: The highest, at least 1.
    """

    q_n: int
    q_p: int


def signed_range(bits: int) -> QuantRange:
    """The range of weights, ``2**bits`` levels.

    Raises:
        TypeError: ``bits`` is not an integer.
        ValueError: It is less than 2: one signed bit has no positive level.

    Example:
        >>> signed_range(4)
        QuantRange(q_n=8, q_p=7)
    """
    check_count("bits", bits, least=2)
    return QuantRange(2 ** (bits - 1), 2 ** (bits - 1) - 1)


def unsigned_range(bits: int) -> QuantRange:
    """The range of activations that are not negative, ``2**bits`` levels.

    Raises:
        TypeError: ``bits`` is not an integer.
        ValueError: It is less than 1.

    Example:
        >>> unsigned_range(4)
        QuantRange(q_n=0, q_p=15)
    """
    check_count("bits", bits)
    return QuantRange(0, 2**bits - 1)


def lsq_quantize(
    v: Float[Array, "..."],
    step: Float[Array, "..."] | float,
    bounds: QuantRange,
    *,
    numel: int | None = None,
) -> Float[Array, "..."]:
    """Round to the nearest level; the derivative is the straight-through rule.

    Args:
        v: Any shape.
        step: Positive: one number, or one per channel in a shape that broadcasts to ``v``'s.
        bounds: From ``signed_range`` or ``unsigned_range``.
        numel: How many numbers share a step, for the scale ``1 / sqrt(numel * q_p)`` of the
            step's gradient; counted by default. For activations that is the number of features,
            without the batch.

    Raises:
        ValueError: ``step`` is not positive or does not broadcast, or ``bounds`` holds no level
            above 0.

    Example:
        >>> v = jnp.array([-9.0, 0.3, 0.6, 9.0])
        >>> lsq_quantize(v, jnp.array(0.5), signed_range(3)).tolist()
        [-2.0, 0.5, 0.5, 1.5]
        >>> jax.grad(lambda v: lsq_quantize(v, 0.5, signed_range(3)).sum())(v).tolist()
        [0.0, 1.0, 1.0, 0.0]
    """
    _check_bounds(bounds)
    step = jnp.asarray(step, dtype=v.dtype)
    if not _broadcasts(step.shape, v.shape):
        raise ValueError(
            f"step must broadcast to the shape of v, {v.shape}, got shape {step.shape}"
        )
    check_value("step", step, lambda s: s > 0, "positive")
    step = step.reshape((1,) * (v.ndim - step.ndim) + step.shape)
    shared = v.size // max(step.size, 1) if numel is None else numel
    check_count("numel", shared, least=0 if v.size == 0 else 1)
    scale = (max(shared, 1) * bounds.q_p) ** -0.5
    return _quantize(v, step, bounds.q_n, bounds.q_p, scale)


@functools.partial(jax.custom_jvp, nondiff_argnums=(2, 3, 4))
def _quantize(v: Array, step: Array, q_n: int, q_p: int, scale: float) -> Array:
    return step * jnp.round(jnp.clip(v / step, -q_n, q_p))


@_quantize.defjvp
def _quantize_jvp(q_n: int, q_p: int, scale: float, primals: Any, tangents: Any) -> Any:
    v, step = primals
    v_dot, step_dot = tangents
    ratio = v / step
    codes = jnp.round(jnp.clip(ratio, -q_n, q_p))
    inside = (ratio > -q_n) & (ratio < q_p)
    slope = scale * (codes - jnp.where(inside, ratio, 0))
    return step * codes, jnp.where(inside, v_dot, 0) + slope * step_dot


def lsq_init_step(v: Float[Array, "..."], bounds: QuantRange) -> Float[Array, ""]:
    """The step to start from, ``2 mean|v| / sqrt(q_p)``.

    Args:
        v: The weights, or a batch of activations.
        bounds: From ``signed_range`` or ``unsigned_range``.

    Raises:
        ValueError: ``v`` is empty or all zero: no step follows from it.

    Example:
        >>> float(lsq_init_step(jnp.array([-1.0, 3.0]), QuantRange(4, 4)))
        2.0
    """
    _check_bounds(bounds)
    if not v.size:
        raise ValueError(f"v must hold at least one number, got shape {v.shape}")
    size = jnp.abs(v).mean()
    check_value("the mean magnitude of v", size, lambda s: s > 0, "positive")
    return 2 * size / bounds.q_p**0.5


def rounding_distance(
    v: Float[Array, "..."], step: Float[Array, "..."] | float, bounds: QuantRange
) -> Float[Array, "..."]:
    """How far each number can move, in either direction, before it is rounded elsewhere.

    A quantised loss, its steps and biases held fixed, is a constant of the weights within these
    distances: straight-through gradients speak of the surrogate alone.

    Args:
        v: Any shape.
        step: Positive, as for ``lsq_quantize``.
        bounds: From ``signed_range`` or ``unsigned_range``.

    Raises:
        ValueError: ``step`` is not positive.

    Example:
        >>> v = jnp.array([0.25, 0.75, 9.0])
        >>> rounding_distance(v, 1.0, signed_range(3)).tolist()
        [0.25, 0.25, 6.5]
    """
    _check_bounds(bounds)
    check_value("step", step, lambda s: s > 0, "positive")
    ratio = v / step
    # The boundaries are at k + 1/2 for k from -q_n to q_p - 1.
    low, high = -bounds.q_n + 0.5, bounds.q_p - 0.5
    below = jnp.clip(jnp.floor(ratio - 0.5) + 0.5, low, high)
    above = jnp.clip(below + 1, low, high)
    return step * jnp.minimum(jnp.abs(ratio - below), jnp.abs(ratio - above))


def step_sizes(
    params: PyTree,
    *,
    bits: int,
    where: Callable[[tuple[Any, ...], Array], bool] | None = None,
) -> PyTree:
    """Initial steps of the weights of any model, one per array.

    Args:
        params: A tree of arrays: parameters of a Flax model (``nnx.split``), the arrays of an
            Equinox one (``eqx.partition``), or one's own.
        bits: At least 2.
        where: ``(path, leaf) -> bool`` says which are quantised, say all but the first and last
            layers; by default all floating-point arrays of two axes or more, so no biases.

    Returns:
        The structure of ``params`` with a step for each quantised array and 0 for the others.

    Raises:
        TypeError: ``bits`` is not an integer.
        ValueError: It is less than 2, or an array to quantise is all zero.

    Example:
        >>> params = {"kernel": jnp.array([[-1.0, 3.0]]), "bias": jnp.ones(2)}
        >>> jax.tree.map(float, step_sizes(params, bits=4))["bias"]
        0.0
    """
    bounds = signed_range(bits)
    chosen = where or (lambda path, leaf: jnp.ndim(leaf) >= 2)

    def first(path: tuple[Any, ...], leaf: Any) -> Array:
        if is_inexact(leaf) and chosen(path, leaf):
            return lsq_init_step(leaf, bounds)
        return jnp.zeros((), leaf.dtype if is_inexact(leaf) else float)

    return jax.tree_util.tree_map_with_path(first, params)


def quantize_params(params: PyTree, steps: PyTree, *, bits: int) -> PyTree:
    """The quantised weights of any model, for its own forward pass.

    Args:
        params: As for ``step_sizes``.
        steps: From ``step_sizes``, learned or not. Arrays whose step is 0 stay as they are; a
            learned step that turned negative counts by its magnitude.
        bits: At least 2.

    Raises:
        TypeError: ``bits`` is not an integer.
        ValueError: It is less than 2, or ``steps`` has another structure.

    Example:
        >>> params = {"kernel": jnp.array([[-1.0, 3.0]]), "bias": jnp.array([0.3])}
        >>> steps = {"kernel": jnp.array(2.0), "bias": jnp.array(0.0)}
        >>> jax.tree.map(jnp.ravel, quantize_params(params, steps, bits=4))["kernel"].tolist()
        [-0.0, 4.0]
    """
    bounds = signed_range(bits)
    if jax.tree.structure(params) != jax.tree.structure(steps):
        raise ValueError(
            "steps must have the structure of params, got "
            f"{jax.tree.structure(steps)} for {jax.tree.structure(params)}"
        )

    def quantize(leaf: Any, step: Any) -> Any:
        if not is_inexact(leaf):
            return leaf
        used = jnp.where(step == 0, jnp.ones_like(step), jnp.abs(step))
        return jnp.where(step == 0, leaf, lsq_quantize(leaf, used, bounds))

    return jax.tree.map(quantize, params, steps)


class QuantDense(NamedTuple):
    """A dense layer whose weights and input are quantised.

    Attributes:
        kernel: The latent weights, in full precision.
        bias: In full precision.
        kernel_step: The step of the weights.
        input_step: The step of the input.
    """

    kernel: Float[Array, "inputs outputs"]
    bias: Float[Array, " outputs"]
    kernel_step: Float[Array, ""]
    input_step: Float[Array, ""]


def init_quant_dense(
    key: Array, num_inputs: int, num_outputs: int, *, bits: int, input_size: float = 0.5
) -> QuantDense:
    """He's initial weights, and the steps that suit them.

    Args:
        key: Decides the weights.
        num_inputs: Features that come in.
        num_outputs: Features that go out.
        bits: Of the weights and of the input.
        input_size: The mean of the input's magnitude, for its first step; ``lsq_init_step`` of a
            batch is better where there is one.

    Raises:
        TypeError: ``key`` is not a typed key, or a size not an integer.
        ValueError: A number is out of range.

    Example:
        >>> init_quant_dense(jax.random.key(0), 3, 2, bits=4).kernel.shape
        (3, 2)
    """
    check_key("key", key)
    check_count("num_inputs", num_inputs)
    check_count("num_outputs", num_outputs)
    check_value("input_size", input_size, lambda s: s > 0, "positive")
    kernel = jax.nn.initializers.he_normal()(key, (num_inputs, num_outputs), jnp.zeros(()).dtype)
    input_step = 2 * input_size / unsigned_range(bits).q_p ** 0.5
    return QuantDense(
        kernel,
        jnp.zeros(num_outputs, kernel.dtype),
        lsq_init_step(kernel, signed_range(bits)),
        jnp.asarray(input_step, kernel.dtype),
    )


def fake_quant_dense(
    params: QuantDense,
    x: Float[Array, "*batch inputs"],
    *,
    weight_bits: int | None,
    input_bits: int | None,
) -> Float[Array, "*batch outputs"]:
    """``x W + b`` with the quantised weights and a quantised input that is not negative.

    A learned step may become negative; its magnitude is used, so that it cannot stop the training.

    Args:
        params: The layer.
        x: Such as what a ReLU gives; what is negative becomes 0 if it is quantised.
        weight_bits: At least 2; None leaves the weights as they are.
        input_bits: At least 1; None leaves the input as it is.

    Raises:
        TypeError: A number of bits is not an integer.
        ValueError: It is too small.

    Example:
        >>> layer = QuantDense(jnp.eye(2), jnp.zeros(2), jnp.array(0.3), jnp.array(0.25))
        >>> x = jnp.array([0.3, 0.9])
        >>> fake_quant_dense(layer, x, weight_bits=None, input_bits=4).tolist()
        [0.25, 1.0]
    """
    kernel = params.kernel
    if weight_bits is not None:
        kernel = lsq_quantize(kernel, jnp.abs(params.kernel_step), signed_range(weight_bits))
    if input_bits is not None:
        step, bounds = jnp.abs(params.input_step), unsigned_range(input_bits)
        x = lsq_quantize(x, step, bounds, numel=x.shape[-1])
    out = x @ kernel
    return out + jnp.broadcast_to(params.bias, out.shape)


def _check_bounds(bounds: QuantRange) -> None:
    check_count("bounds.q_n", bounds.q_n, least=0)
    check_count("bounds.q_p", bounds.q_p)


def _broadcasts(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    if len(shape) > len(to):
        return False
    return all(a in (1, b) for a, b in zip(reversed(shape), reversed(to), strict=False))

r"""Activations of a Gaussian variable, as what a noisy observer of their value learns about it.

Everything that ``jaxlab.theory.nse`` computes needs one thing of an activation: how a Gaussian
:math:`z \sim N(m, v)` splits up by the value :math:`\sigma(z)`. ``Moments`` says it as a finite
list of values with their mass and the moments of :math:`u = (z - m)/\sqrt v` on each. Step
functions have such a list exactly; smooth functions have one up to quadrature.
"""

import abc
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.experimental import checkify
from jax.scipy.special import ndtr
from jax.scipy.stats import norm
from jaxtyping import Array, Float

from jaxlab.core.checks import check_count, check_float64, check_value, is_concrete
from jaxlab.core.types import Scalar
from jaxlab.stats.quadrature import Quadrature, gauss_hermite, gauss_legendre

__all__ = [
    "Activation",
    "Moments",
    "PiecewiseActivation",
    "SmoothActivation",
    "StepActivation",
    "check_activation",
    "piecewise",
    "smooth",
    "step_activation",
    "step_scale_limit",
]

_REACH = 9.0  # A standard normal exceeds it with probability 1e-19.
_FAR = 40.0  # Stands for infinity, whose derivatives are not numbers.
_COARSE = 1e-6  # Moments that change more between two rules have not converged.


class Moments(NamedTuple):
    """How ``z ~ N(mean, variance)`` splits by the activation's value; ``u`` is ``z`` standardised.

    Attributes:
        values: The activation's values.
        mass: ``P(value)``; sums to 1.
        first: ``E[u 1(value)]``; sums to 0.
        second: ``E[(u^2 - 1) 1(value)]``; sums to 0.
    """

    values: Float[Array, " values"]
    mass: Float[Array, " values"]
    first: Float[Array, " values"]
    second: Float[Array, " values"]


class Activation(eqx.Module):
    """A function of one real variable. Subclasses are pytrees: ``vmap`` over their leaves."""

    @abc.abstractmethod
    def __call__(self, z: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """The activation's values."""

    @abc.abstractmethod
    def moments(self, mean: Scalar, variance: Scalar) -> Moments:
        """How ``N(mean, variance)`` splits by value."""


class StepActivation(Activation):
    """A step function of ``|z|``; its moments are exact, with no error at the jumps.

    Attributes:
        thresholds: Where ``|z|`` jumps, positive and increasing.
        values: The value of each shell, from the centre outward.
    """

    thresholds: Float[Array, " jumps"]
    values: Float[Array, " shells"]

    def __check_init__(self) -> None:
        """Check what the shapes and known values tell."""
        jumps, shells = jnp.shape(self.thresholds)[-1:], jnp.shape(self.values)[-1:]
        if jumps and shells and shells[0] != jumps[0] + 1:
            raise ValueError(
                f"values must have one entry more than thresholds, {jumps[0] + 1}, got {shells[0]}"
            )
        check_value("thresholds", self.thresholds, _is_increasing, "positive and increasing")

    def __call__(self, z: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """The activation's values."""
        shell = jnp.zeros(jnp.shape(z), jnp.int32)
        for threshold in self.thresholds:
            shell = shell + (jnp.abs(z) > threshold)
        return self.values[shell]

    def moments(self, mean: Scalar, variance: Scalar) -> Moments:
        """Exact, by differences of the normal distribution function and density."""
        deviation = jnp.sqrt(variance)
        far = jnp.full(1, _FAR, self.thresholds.dtype)
        centre = jnp.reshape(-mean / deviation, 1).astype(self.thresholds.dtype)
        above = (self.thresholds - mean) / deviation
        below = (-self.thresholds - mean) / deviation
        right = _interval(jnp.append(centre, above), jnp.append(above, far))
        left = _interval(jnp.append(below, -far), jnp.append(centre, below))
        return Moments(self.values, *(a + b for a, b in zip(right, left, strict=True)))


class SmoothActivation(Activation):
    """A smooth function, by Gauss-Hermite quadrature; ``smooth`` makes one.

    Attributes:
        function: ``(z, *params) -> value``, elementwise in ``z``.
        params: Its parameters, a tuple of pytrees.
        quadrature: Under ``N(0, 1)``.
    """

    function: Callable[..., Array] = eqx.field(static=True)
    params: tuple[Any, ...]
    quadrature: Quadrature

    def __call__(self, z: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """The activation's values."""
        return self.function(z, *self.params)

    def moments(self, mean: Scalar, variance: Scalar) -> Moments:
        """One value per node."""
        nodes, weights = self.quadrature
        values = self(_affine(mean, variance, nodes))
        return Moments(values, weights, weights * nodes, weights * (nodes**2 - 1))


class PiecewiseActivation(Activation):
    """A function that is smooth between known breaks; ``piecewise`` makes one.

    Attributes:
        function: ``(z, *params) -> value``, elementwise in ``z``.
        params: Its parameters, a tuple of pytrees.
        breaks: Where it has kinks or jumps, increasing.
        quadrature: The rule on each piece, over ``[-1, 1]``.
    """

    function: Callable[..., Array] = eqx.field(static=True)
    params: tuple[Any, ...]
    breaks: Float[Array, " breaks"]
    quadrature: Quadrature

    def __call__(self, z: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """The activation's values."""
        return self.function(z, *self.params)

    def moments(self, mean: Scalar, variance: Scalar) -> Moments:
        """One value per node of every piece, within nine standard deviations."""
        end = jnp.full(1, _REACH, self.breaks.dtype)
        inner = jnp.clip((self.breaks - mean) / jnp.sqrt(variance), -_REACH, _REACH)
        edges = jnp.concatenate([-end, inner, end])
        rule = self.quadrature

        def piece(low: Array, high: Array) -> tuple[Array, Array]:
            u = low + (high - low) * (1 + rule.nodes) / 2
            return u, (high - low) * rule.weights * norm.pdf(u)

        u, mass = (leaf.reshape(-1) for leaf in jax.vmap(piece)(edges[:-1], edges[1:]))
        values = self(_affine(mean, variance, u))
        return Moments(values, mass, mass * u, mass * (u**2 - 1))


def smooth(function: Callable[..., Array], *params: Any, num_nodes: int = 128) -> SmoothActivation:
    """A smooth activation.

    Args:
        function: ``(z, *params) -> value``, elementwise in ``z``.
        params: Its parameters; ``vmap`` over them compares many activations at once.
        num_nodes: Of Gauss-Hermite quadrature.

    Example:
        >>> activation = smooth(lambda z, width: jnp.exp(-(z**2) / (2 * width)), 1.0)
        >>> round(float(activation(jnp.array(0.0))), 3)
        1.0
    """
    return SmoothActivation(function, params, gauss_hermite(num_nodes))


def piecewise(
    function: Callable[..., Array],
    *params: Any,
    breaks: tuple[float, ...],
    num_nodes: int = 48,
) -> PiecewiseActivation:
    """An activation with kinks or jumps at known places.

    Args:
        function: ``(z, *params) -> value``, elementwise in ``z``.
        params: Its parameters.
        breaks: Where it is not smooth, increasing.
        num_nodes: Of Gauss-Legendre quadrature on every piece.

    Raises:
        ValueError: ``breaks`` do not increase.

    Example:
        >>> moments = piecewise(jnp.abs, breaks=(0.0,)).moments(0.0, 1.0)
        >>> round(float(moments.values @ moments.mass), 5)  # E|z|
        0.79788
    """
    places = jnp.asarray(breaks, dtype=float)
    check_value("breaks", places, lambda b: jnp.all(jnp.diff(b) > 0), "increasing")
    return PiecewiseActivation(function, params, places, gauss_legendre(num_nodes))


def step_scale_limit(order: int) -> float:
    """The supremum of ``scale`` in ``step_activation``: ``2 phi(1) / 2^(order - 1)``.

    Example:
        >>> round(step_scale_limit(1), 5)
        0.48394
    """
    check_count("order", order)
    return 2 * math.exp(-0.5) / math.sqrt(2 * math.pi) / 2 ** (order - 1)


def step_activation(order: int, scale: Scalar) -> StepActivation:
    r"""A step function of ``|z|`` whose noise sensitivity exponent is exactly ``order``.

    Its values are :math:`0, \dots, b` with :math:`b` the order, and the shell of value :math:`v`
    has :math:`E[He_2 1] = (-1)^{v+1} \binom{b}{v} c` with :math:`c` the scale. Finite differences
    then give :math:`c_k = 0` for :math:`k < b` and :math:`c_b = (-1)^{b+1} b!\, c` [derived].
    Differentiable in the scale.

    Args:
        order: ``b >= 1``, static.
        scale: ``c`` in ``(0, step_scale_limit(order))``, float64.

    Raises:
        TypeError: ``order`` is not an integer, or ``scale`` is float32, in which the lower
            coefficients are not 0.
        ValueError: Something is out of range.

    Example:
        >>> import jax
        >>> with jax.enable_x64(True):
        ...     activation = step_activation(2, 0.2)
        >>> [round(float(t), 5) for t in activation.thresholds], activation.values.tolist()
        ([0.25923, 1.46403], [2.0, 0.0, 1.0])
    """
    limit = step_scale_limit(order)
    scale = jnp.asarray(scale, dtype=float)
    check_float64("scale", scale, "thresholds rounded to float32 have another exponent")
    check_value("scale", scale, lambda c: (c > 0) & (c < limit), f"in (0, {limit:.5f})")
    sizes = {v: math.comb(order, v) for v in range(order + 1)}
    # Mass that the observer sees below its mean comes first; thin shells at both ends.
    inner = sorted(range(0, order + 1, 2), key=lambda v: (sizes[v], -v))
    outer = sorted(range(1, order + 1, 2), key=lambda v: (-sizes[v], v))
    signed = [sizes[v] for v in inner] + [-sizes[v] for v in outer]
    targets = scale * jnp.cumsum(jnp.asarray(signed, dtype=float))[:-1]
    rising = jnp.arange(order) < len(inner) - 1
    thresholds = jax.vmap(_invert_tail)(targets, rising)
    return StepActivation(thresholds, jnp.asarray(inner + outer, dtype=float))


def _affine(mean: Scalar, variance: Scalar, u: Array) -> Array:
    return jnp.asarray(mean + jnp.sqrt(variance) * u)


def _tail(t: Array) -> Array:
    """``E[He_2(z); |z| > t]``, which rises until ``t = 1`` and falls after it."""
    return 2 * t * norm.pdf(t)


def _invert_tail(target: Array, rising: Array) -> Array:
    """Where ``_tail`` is ``target``, by bisection; a last Newton step carries the derivative."""

    def halve(_: Array, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bracket
        middle = (low + high) / 2
        beyond = (_tail(middle) < target) == rising
        return jnp.where(beyond, middle, low), jnp.where(beyond, high, middle)

    one = jnp.ones_like(target)
    start = (jnp.where(rising, 0.0, one), jnp.where(rising, one, 40.0))
    low, high = jax.lax.fori_loop(0, 64, halve, start)
    middle = jax.lax.stop_gradient((low + high) / 2)
    slope = 2 * norm.pdf(middle) * (1 - middle**2)
    return middle - (_tail(middle) - target) / slope


def _interval(low: Array, high: Array) -> tuple[Array, Array, Array]:
    """Mass, ``E u`` and ``E (u^2 - 1)`` of a standard normal between two ends."""
    # On the far right the upper tails keep their digits, which the lower ones lose.
    right = low > 0
    mass = jnp.where(right, ndtr(-low) - ndtr(-high), ndtr(high) - ndtr(low))
    return mass, norm.pdf(low) - norm.pdf(high), low * norm.pdf(low) - high * norm.pdf(high)


def _is_increasing(thresholds: Any) -> Any:
    return (thresholds[..., 0] > 0) & (jnp.diff(thresholds) > 0).all()


def check_activation(name: str, activation: Activation) -> Moments:
    """The moments of ``N(0, 1)``, if the theory of even activations applies.

    Raises:
        TypeError: The activation is in float32.
        ValueError: It is constant, not even, or ``num_nodes`` is too small for it; the message
            says which.
    """
    check_float64(name, activation, "what is left of small differences decides")
    moments = activation.moments(0.0, 1.0)
    mean = moments.mass @ moments.values
    spread = jnp.sqrt(moments.mass @ (moments.values - mean) ** 2)
    scale = jnp.abs(mean) + spread
    check_value(
        f"the standard deviation of {name}", spread, lambda s: s > 0,
        "positive: a constant activation shows nothing of its input",
    )  # fmt: skip
    if not isinstance(activation, StepActivation):
        points = jnp.linspace(0.1, 3.0, 30)
        odd = jnp.abs(activation(points) - activation(-points)).max()
        check_value(
            f"the odd part of {name}", odd, lambda part: part <= 1e-9 * scale,
            "0: for an activation that is not even AMP starts at once and there is no gap",
        )  # fmt: skip
    if isinstance(activation, SmoothActivation | PiecewiseActivation):
        _check_converged(activation, moments)
    return moments


def _check_converged(activation: SmoothActivation | PiecewiseActivation, moments: Moments) -> None:
    """Compare the first coefficients with those of a rule of three quarters of the nodes."""
    count = activation.quadrature.nodes.shape[-1]
    rule = gauss_hermite if isinstance(activation, SmoothActivation) else gauss_legendre
    fewer = max(3 * count // 4, 1)
    coarser = eqx.tree_at(lambda a: a.quadrature, activation, rule(fewer))

    def first(moments: Moments) -> Array:
        centred = moments.values - moments.mass @ moments.values
        size = jnp.sqrt(moments.mass @ centred**2)
        return (
            jnp.stack([size, moments.second @ centred, moments.second @ centred**2 / size]) / size
        )

    change = jnp.abs(first(moments) - first(coarser.moments(0.0, 1.0)))[1:].max()
    advice = "more nodes, or piecewise or StepActivation where there are kinks or jumps"
    if is_concrete(change):
        if not change <= _COARSE:
            raise ValueError(
                f"num_nodes must be large enough for the activation, got {count}: its moments "
                f"change by {float(change):.1g} from {fewer} nodes; take {advice}"
            )
    else:
        message = f"num_nodes = {count} is too small for the activation; take {advice}"
        checkify.debug_check(change <= _COARSE, message)

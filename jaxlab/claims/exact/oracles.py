"""What a method may ask of a function that is not chosen yet, as JAX primitives.

A method that calls ``gradient(x)`` can be traced, and the traced program can then be run on the
points of an unknown function (``jaxlab.claims.exact.symbolic``) or with a given one
(``jaxlab.claims.exact.reconstruct``). Functions are told apart by their names.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching
from jaxtyping import Array, Float

from jaxlab.core.types import Scalar
from jaxlab.problems.objectives import Objective, Point

__all__ = ["ORACLES", "UnknownFunction", "gradient", "proximal", "value"]


def _primitive(name: str) -> Primitive:
    primitive = Primitive(name)

    def ask_a_number(*args: Any, **params: Any) -> Any:
        del args
        raise ValueError(
            f"the function {params['function']!r} must be traced by jaxlab.claims.exact.solve, got "
            f"numbers: it is not known yet, so it has no {name}"
        )

    primitive.def_impl(ask_a_number)
    return primitive


_GRADIENT, _VALUE, _PROXIMAL = map(_primitive, ["gradient", "value", "proximal"])
_GRADIENT.def_abstract_eval(lambda x, *, function: x)
_VALUE.def_abstract_eval(lambda x, *, function: x.update(shape=x.shape[:-1]))
_PROXIMAL.def_abstract_eval(lambda x, step_size, *, function: x)

ORACLES = frozenset([_GRADIENT, _VALUE, _PROXIMAL])
"""The primitives, each with the parameter ``function``, a name."""


def gradient(x: Point, function: str = "f") -> Point:
    """A (sub)gradient of an unknown function.

    Example:
        >>> import jax
        >>> print(jax.make_jaxpr(gradient)(jnp.zeros(2)))
        { lambda ; a:f32[2]. let b:f32[2] = gradient[function=f] a in (b,) }
    """
    return _GRADIENT.bind(x, function=function)


def value(x: Point, function: str = "f") -> Float[Array, ""]:
    """The value of an unknown function; ``jax.grad`` of it is ``gradient``.

    Example:
        >>> import jax
        >>> jax.eval_shape(jax.grad(value), jnp.zeros(2)).shape
        (2,)
    """
    return _VALUE.bind(x, function=function)


def proximal(x: Point, step_size: Scalar, function: str = "f") -> Point:
    """``argmin_y f(y) + |y - x|^2 / (2 step_size)`` of an unknown function.

    Example:
        >>> import jax
        >>> jax.eval_shape(proximal, jnp.zeros(2), 1.0).shape
        (2,)
    """
    return _PROXIMAL.bind(x, jnp.asarray(step_size, dtype=x.dtype), function=function)


def _value_jvp(primals: Any, tangents: Any, *, function: str) -> Any:
    (x,), (tangent,) = primals, tangents
    return value(x, function), gradient(x, function) @ ad.instantiate_zeros(tangent)


ad.primitive_jvps[_VALUE] = _value_jvp


def _batching_rule(primitive: Primitive) -> Any:
    """Axes before the last one are stacks of points."""

    def batched(args: Any, dims: Any, **params: Any) -> Any:
        sizes = [a.shape[d] for a, d in zip(args, dims, strict=True) if d is not None]
        moved = [batching.bdim_at_front(a, d, sizes[0]) for a, d in zip(args, dims, strict=True)]
        return primitive.bind(*moved, **params), 0

    return batched


for _oracle in ORACLES:
    batching.primitive_batchers[_oracle] = _batching_rule(_oracle)


class UnknownFunction(Objective):
    """An unknown function in the place of a ``jaxlab.problems`` objective.

    Attributes:
        strong_convexity: ``mu``, as its class states.
        smoothness: ``L``, likewise.
        name: Which function it is.
    """

    strong_convexity: Float[Array, ""]
    smoothness: Float[Array, ""]
    name: str = eqx.field(default="f", static=True)

    def value(self, x: Point) -> Float[Array, ""]:
        """The function's value."""
        return value(x, self.name)

    def gradient(self, x: Point) -> Point:
        """The gradient."""
        return gradient(x, self.name)

    def divergence(self, x: Point, y: Point) -> Float[Array, ""]:
        """The Bregman divergence; there is no rounding to guard against."""
        return self.bregman(x, y)

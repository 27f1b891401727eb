"""Products with Hessians, and losses of some parameters: for any loss of a tree and a batch."""

from collections.abc import Callable
from typing import Any

import jax
from jaxtyping import Array, PyTree

__all__ = ["curvature", "gradient_and_hvp", "hvp", "restricted"]


def hvp(loss: Callable[[Any, Any], Array], params: PyTree, batch: Any, v: PyTree) -> PyTree:
    """The Hessian of ``loss`` at ``params`` times ``v``, forward over reverse.

    Args:
        loss: ``(params, batch) -> scalar``, twice differentiable.
        params: Where.
        batch: The loss's second argument.
        v: A tree like ``params``.

    Example:
        >>> import jax.numpy as jnp
        >>> hvp(lambda x, scale: scale * x[0] ** 2 * x[1], jnp.array([1.0, 2.0]), 3.0, jnp.ones(2))
        Array([18.,  6.], dtype=float32)
    """
    return gradient_and_hvp(loss, params, batch, v)[1]


def gradient_and_hvp(
    loss: Callable[[Any, Any], Array], params: PyTree, batch: Any, v: PyTree
) -> tuple[PyTree, PyTree]:
    """The gradient and the Hessian's product with ``v``, for the price of the product."""
    return jax.jvp(jax.grad(lambda p: loss(p, batch)), (params,), (v,))


def curvature(
    loss: Callable[[Any, Any], Array], params: PyTree, batch: Any, v: PyTree, w: PyTree
) -> tuple[Array, Array]:
    """The slope along ``w`` and ``v' H w``, in forward mode alone: no gradient is kept.

    Example:
        >>> import jax.numpy as jnp
        >>> x, v, w = jnp.array([1.0, 2.0]), jnp.array([1.0, 0.0]), jnp.array([0.0, 1.0])
        >>> curvature(lambda x, _: x[0] ** 2 * x[1], x, None, v, w)
        (Array(1., dtype=float32), Array(2., dtype=float32))
    """

    def slope(p: PyTree) -> Array:
        return jax.jvp(lambda q: loss(q, batch), (p,), (w,))[1]

    return jax.jvp(slope, (params,), (v,))


def restricted(
    loss: Callable[[Any, Any], Array], merge: Callable[[Any, Any], PyTree], fixed: Any
) -> Callable[[Any, Any], Array]:
    """The loss of the parameters that are trained, given those that are not.

    Every gradient and Hessian of it is the restriction of the whole one.

    Args:
        loss: Of all parameters.
        merge: ``(trained, fixed) -> params``; for adapters ``lambda a, p: merge_lora(p, a)``.
        fixed: What is not trained. It becomes a constant of jitted functions, so close over large
            parameters inside them only.

    Example:
        >>> whole = lambda p, batch: batch * p["a"] ** 2 * p["b"]
        >>> part = restricted(whole, lambda a, fixed: {"a": a, **fixed}, {"b": 3.0})
        >>> float(jax.grad(part)(2.0, 1.0))
        12.0
    """
    return lambda trained, batch: loss(merge(trained, fixed), batch)

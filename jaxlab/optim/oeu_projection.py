r"""Gradients without what another task's gradient has in common with them, for any pytrees.

.. math::
    g_\perp = g - \frac{\langle g, h \rangle}{\lVert h \rVert^2}\, h ,
    \qquad h = 0 \Rightarrow g_\perp = g .

Inner products are accumulated in float32 at least. ``h`` is scaled by its largest entry before it
is squared, so that a retain gradient of any size counts: a guard ``+ 1e-12`` in the denominator
would switch the projection off where the gradient is below 1e-6, which is where a model that fits
its data is.

Source: reconstructed from the abstract of arXiv:2602.00567; the subspace is an extension, as in
gradient projection memory (arXiv:2103.09762).
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

from jaxlab.core.checks import check_value
from jaxlab.core.roots import safe_sqrt
from jaxlab.core.trees import largest_magnitude
from jaxlab.core.types import Scalar

__all__ = [
    "cosine",
    "inner_product",
    "orthogonal_to",
    "project_orthogonal",
    "project_subspace",
    "safe_step_size",
    "tree_norm",
]


def inner_product(one: PyTree, other: PyTree) -> Float[Array, ""]:
    """The inner product over all leaves, in float32 or better.

    Example:
        >>> half = jnp.full(4096, 1.0, jnp.bfloat16)
        >>> float(inner_product({"x": half}, {"x": half}))
        4096.0
    """
    total = jnp.zeros(())
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        dtype = jnp.promote_types(jnp.result_type(a, b), jnp.float32)
        product = jnp.vdot(a.astype(dtype), b.astype(dtype), precision=jax.lax.Precision.HIGHEST)
        total = total + product
    return total


def project_orthogonal(forget: PyTree, retain: PyTree, *, per_leaf: bool = False) -> PyTree:
    """Take out of ``forget`` its part along ``retain``.

    Args:
        forget: The gradient to project.
        retain: What it shall be orthogonal to, of the same structure and shapes; all zero changes
            nothing.
        per_leaf: One inner product per leaf instead of one in all, which implies it. More is taken
            out: a layer cannot pay for another.

    Returns:
        Of the structure, shapes and dtypes of ``forget``.

    Raises:
        ValueError: Structures or shapes differ.

    Example:
        >>> project_orthogonal({"w": jnp.array([3.0, 4.0])}, {"w": jnp.array([1.0, 0.0])})
        {'w': Array([0., 4.], dtype=float32)}
    """
    _check_alike(forget, retain)
    if per_leaf:
        return jax.tree.map(_without, forget, retain)
    return _without(forget, retain)


def _without(forget: PyTree, retain: PyTree) -> PyTree:
    # The result does not depend on the scale: no derivative goes through it.
    size = jax.lax.stop_gradient(largest_magnitude(retain))
    size = jnp.where(size > 0, size, 1.0)
    unit = jax.tree.map(lambda leaf: leaf / size.astype(leaf.dtype), retain)
    square = inner_product(unit, unit)
    share = inner_product(forget, unit) / jnp.where(square > 0, square, 1.0)

    def subtract(leaf: Array, along: Array) -> Array:
        dtype = jnp.promote_types(leaf.dtype, jnp.float32)
        rest = leaf.astype(dtype) - share.astype(dtype) * along.astype(dtype)
        return rest.astype(leaf.dtype)

    return jax.tree.map(subtract, forget, unit)


def project_subspace(forget: PyTree, retain: PyTree, *, rcond: float | None = None) -> PyTree:
    """Take out of ``forget`` its part in the span of several retain gradients.

    Orthogonality to one minibatch's gradient does not protect the loss on all retained data; the
    span of 4 to 16 of them protects more.

    Args:
        forget: The gradient to project.
        retain: The structure of ``forget`` with a leading axis of gradients on every leaf.
        rcond: Directions whose singular value is below this share of the largest do not count;
            the machine epsilon times the number of parameters by default.

    Raises:
        ValueError: Structures or shapes differ, or ``rcond`` is negative.

    Example:
        >>> g = {"w": jnp.array([1.0, 2.0, 3.0])}
        >>> span = {"w": jnp.array([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [1.0, 1.0, 0.0]])}
        >>> rest = jax.jit(project_subspace)(g, span)
        >>> [abs(round(x, 4)) for x in rest["w"].tolist()]
        [0.0, 0.0, 3.0]
    """
    _check_alike(forget, jax.tree.map(lambda leaf: leaf[0], retain))
    if rcond is not None:
        check_value("rcond", rcond, lambda r: r >= 0, "non-negative")
    leaves, structure = jax.tree.flatten(forget)
    dtype = jnp.promote_types(jnp.result_type(*leaves), jnp.float32)
    flat = jnp.concatenate([leaf.ravel() for leaf in leaves]).astype(dtype)
    rows = jax.tree.leaves(retain)
    table = jnp.concatenate([leaf.reshape(leaf.shape[0], -1) for leaf in rows], axis=1)
    table = table.astype(dtype)
    # Rows count by their directions alone: a small gradient protects as much as a large one.
    sizes = jnp.abs(table).max(axis=1, keepdims=True)
    table = table / jnp.where(sizes > 0, sizes, 1.0)
    _, values, basis = jnp.linalg.svd(table, full_matrices=False)
    least = float(jnp.finfo(dtype).eps) * flat.size if rcond is None else rcond
    counts = (values > least * values.max()).astype(dtype)
    rest = flat - (counts * (basis @ flat)) @ basis
    # A second pass removes what rounding left of the first.
    rest = rest - (counts * (basis @ rest)) @ basis
    parts, start = [], 0
    for leaf in leaves:
        parts.append(rest[start : start + leaf.size].reshape(leaf.shape).astype(leaf.dtype))
        start += leaf.size
    return jax.tree.unflatten(structure, parts)


def orthogonal_to(*, per_leaf: bool = False) -> optax.GradientTransformationExtraArgs:
    """``project_orthogonal`` as a transformation of optax.

    Its ``update`` needs ``retain_gradient=``. Put it last, or with plain SGD: what follows may
    scale the result, but preconditioning and momentum turn it away from orthogonality.

    Example:
        >>> optimizer = optax.chain(orthogonal_to(), optax.sgd(0.1))
        >>> params = jnp.array([1.0, 1.0])
        >>> update, _ = optimizer.update(
        ...     jnp.array([3.0, 4.0]),
        ...     optimizer.init(params),
        ...     params,
        ...     retain_gradient=jnp.array([1.0, 0.0]),
        ... )
        >>> [round(x, 6) for x in update.tolist()]
        [-0.0, -0.4]
    """

    def init(params: Any) -> optax.EmptyState:
        del params
        return optax.EmptyState()

    def update(
        updates: Any,
        state: Any,
        params: Any = None,
        *,
        retain_gradient: Any = None,
        **extra_args: Any,
    ) -> tuple[Any, Any]:
        del params, extra_args
        if retain_gradient is None:
            raise ValueError("retain_gradient must be given to update, got none")
        return project_orthogonal(updates, retain_gradient, per_leaf=per_leaf), state

    return optax.GradientTransformationExtraArgs(init, update)


def cosine(one: PyTree, other: PyTree) -> Float[Array, ""]:
    """The cosine of the angle between two trees; 0 if one of them is zero.

    Example:
        >>> round(float(cosine(jnp.array([1.0, 0.0]), jnp.array([1.0, 1.0]))), 4)
        0.7071
    """
    square = inner_product(one, one) * inner_product(other, other)
    return inner_product(one, other) / jnp.sqrt(jnp.where(square > 0, square, 1.0))


def tree_norm(tree: PyTree) -> Float[Array, ""]:
    """The Euclidean norm over all leaves, whose derivative at 0 is 0.

    Example:
        >>> float(tree_norm({"a": jnp.array([3.0]), "b": jnp.array([4.0])}))
        5.0
    """
    return safe_sqrt(inner_product(tree, tree))


def safe_step_size(
    smoothness: Scalar, retain_norm: Scalar, projected_norm: Scalar, strength: Scalar
) -> Float[Array, ""]:
    r"""The largest step that provably does not raise an ``L``-smooth retain loss [derived].

    Along :math:`g_r + \lambda g_\perp` with full gradients, by the descent lemma:
    :math:`\eta \le 2 \lVert g_r\rVert^2 / (L (\lVert g_r\rVert^2 +
    \lambda^2 \lVert g_\perp\rVert^2))`.

    Raises:
        ValueError: ``smoothness`` is not positive.

    Example:
        >>> float(safe_step_size(2.0, 1.0, 1.0, 1.0))
        0.5
    """
    check_value("smoothness", smoothness, lambda v: v > 0, "positive")
    square = jnp.square(jnp.asarray(retain_norm, dtype=float))
    total = square + jnp.square(strength * jnp.asarray(projected_norm, dtype=float))
    return 2 * square / (smoothness * jnp.where(total > 0, total, 1.0))


def _check_alike(forget: PyTree, retain: PyTree) -> None:
    if jax.tree.structure(forget) != jax.tree.structure(retain):
        raise ValueError(
            "retain must have the structure of forget, got "
            f"{jax.tree.structure(retain)} for {jax.tree.structure(forget)}"
        )
    pairs = zip(jax.tree_util.tree_leaves_with_path(forget), jax.tree.leaves(retain), strict=True)
    for (path, one), other in pairs:
        if jnp.shape(one) != jnp.shape(other):
            raise ValueError(
                f"retain{jax.tree_util.keystr(path)} must have the shape {jnp.shape(one)} of "
                f"forget's, got {jnp.shape(other)}"
            )

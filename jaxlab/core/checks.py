"""Errors that name the argument, what was expected and what came.

Shapes and concrete values are checked when a function is called or traced. Values that only exist
at run time are checked by ``check_value`` under a trace: the check is free until ``checked`` wraps
the call.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.experimental import checkify
from jaxtyping import PyTree

from jaxlab.core.trees import is_inexact

__all__ = [
    "check_count",
    "check_finite",
    "check_float64",
    "check_key",
    "check_leading_axis",
    "check_value",
    "checked",
    "is_concrete",
]


def is_concrete(*values: Any) -> bool:
    """Whether all values are known now, that is, none is traced."""
    return not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(values))


def check_value(name: str, value: Any, holds: Callable[[Any], Any], expected: str) -> None:
    """Raise ``ValueError`` unless ``holds(value)``; under a trace, leave a check for ``checked``.

    Args:
        name: The argument's name, for the message.
        value: A number or an array.
        holds: The condition, written so that it works on arrays; all entries must satisfy it. NaN
            must fail it, so write ``x > 0`` and not ``~(x <= 0)``.
        expected: The condition in words, for the message.

    Raises:
        ValueError: ``value`` is concrete and the condition fails.

    Example:
        >>> check_value("step_size", -1.0, lambda x: x > 0, "positive")
        Traceback (most recent call last):
        ValueError: step_size must be positive, got -1.0
    """
    known = is_concrete(value)
    result = holds(np.asarray(value) if known else value)
    if not is_concrete(result):
        message = f"{name} must be {expected}, got {{value}}"
        checkify.debug_check(jnp.all(result), message, value=jnp.asarray(value))
    elif not np.all(result):
        raise ValueError(f"{name} must be {expected}, got {_show(value)}")


def check_count(name: str, value: Any, *, least: int = 1) -> None:
    """Raise unless a static count is an integer of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be a Python integer, got {_show(value)}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")


def check_key(name: str, key: Any) -> None:
    """Raise ``TypeError`` unless ``key`` is one typed PRNG key.

    Example:
        >>> check_key("key", 0)
        Traceback (most recent call last):
        TypeError: key must be a typed PRNG key as made by jax.random.key(seed), got 0
    """
    expected = f"{name} must be a typed PRNG key as made by jax.random.key(seed)"
    if not isinstance(key, jax.Array) or not jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        hint = " (a raw key of jax.random.PRNGKey?)" if getattr(key, "shape", None) == (2,) else ""
        raise TypeError(f"{expected}, got {_show(key)}{hint}")
    if key.shape != ():
        raise TypeError(f"{expected}, got {key.shape} keys; vmap over the keys instead")


def check_finite(name: str, tree: PyTree) -> None:
    """Raise ``ValueError`` if a concrete tree of arrays holds NaN or infinity, and say where."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        if not is_inexact(leaf):
            continue
        where = name + jax.tree_util.keystr(path)
        if is_concrete(leaf):
            bad = ~np.isfinite(np.asarray(leaf))
            if bad.any():
                first = tuple(int(i) for i in np.argwhere(bad)[0])
                raise ValueError(
                    f"{where} must be finite, got {int(bad.sum())} NaN or infinite entries of "
                    f"{bad.size}, the first at index {first}"
                )
        else:
            checkify.debug_check(jnp.isfinite(leaf).all(), f"{where} must be finite")


def check_float64(name: str, tree: PyTree, why: str) -> None:
    """Raise ``TypeError`` if a float of less precision than float64 is in the tree.

    Args:
        name: The argument's name, for the message.
        tree: Arrays and numbers; Python's floats count as JAX's default.
        why: What single precision would spoil, for the message.

    Example:
        >>> check_float64("x", jnp.ones(2), "differences cancel")
        Traceback (most recent call last):
        TypeError: x must be float64 (differences cancel), got float32; use jax.enable_x64(True)
    """
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        dtype = jnp.result_type(leaf)
        if jnp.issubdtype(dtype, jnp.floating) and jnp.finfo(dtype).bits < 64:
            raise TypeError(
                f"{name}{jax.tree_util.keystr(path)} must be float64 ({why}), got {dtype}; use "
                "jax.enable_x64(True)"
            )


def check_leading_axis(name: str, tree: PyTree, size: int, axis: str) -> None:
    """Raise ``ValueError`` unless every leaf has a leading axis of ``size`` entries."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        shape = jnp.shape(leaf)
        if not shape or shape[0] != size:
            where = name + jax.tree_util.keystr(path)
            raise ValueError(
                f"{where} must have a leading axis of {size} {axis}, got shape {shape}"
            )


def checked(function: Callable) -> Callable:
    """Switch on the run-time value checks inside ``function``.

    Returns a function of the same arguments that raises ``jax.experimental.checkify``'s
    ``JaxRuntimeError`` with the first failed check's message. Non-finite values that arise inside
    are errors as well. JAX drops checks inside a ``lax.scan`` that is differentiated in reverse
    mode, so wrap the loss and not its gradient.

    Example:
        >>> def root(x):
        ...     check_value("x", x, lambda v: v >= 0, "non-negative")
        ...     return jnp.sqrt(x)
        >>> float(checked(jax.jit(root))(jnp.array(4.0)))
        2.0
    """
    functionalized = checkify.checkify(
        function, errors=checkify.user_checks | checkify.float_checks
    )

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        error, out = functionalized(*args, **kwargs)
        error.throw()
        return out

    return wrapped


def _show(value: Any) -> str:
    if isinstance(value, jax.Array | np.ndarray) and np.size(value) > 8:
        return f"an array of shape {value.shape} and dtype {value.dtype}"
    if isinstance(value, jax.Array | np.ndarray) and not is_inexact(value):
        return f"an array of shape {value.shape} and dtype {value.dtype}"
    if isinstance(value, jax.Array | np.ndarray):
        return str(np.asarray(value).tolist())
    return repr(value)

"""A second opinion: a traced function computed by NumPy in float64, without XLA.

A violation that XLA reports may be XLA's own (a flushed subnormal, a dropped NaN, a rounding).
``evaluate_outside`` walks the traced program and does its arithmetic in NumPy and SciPy. Only what
moves data without computing (gather, sort, dynamic slices) and random bits, which are integers, is
left to JAX.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from jaxlab.claims.control import CONTROL, Run, run_program, to_numpy, trace
from jaxlab.claims.numpy_rules import (
    ARITHMETIC,
    SEVERAL,
    SHAPED,
    NoOutsideRuleError,
    threefry_bits,
)
from jaxlab.core.trees import is_key

__all__ = ["NoOutsideRuleError", "apply_outside", "evaluate_outside", "trace_outside"]


def evaluate_outside(function: Callable[..., Any], *args: Any) -> Any:
    """``function(*args)`` with its arithmetic in NumPy.

    Args:
        function: Traceable by JAX.
        args: Pytrees of arrays.

    Raises:
        NoOutsideRuleError: The program uses a primitive without a rule.

    Example:
        >>> import jax.numpy as jnp
        >>> import numpy as np
        >>> float(evaluate_outside(lambda x: jnp.exp(x).sum(), np.zeros(3, np.float32)))
        3.0
    """
    return trace_outside(function, *args)(*args)


def trace_outside(
    function: Callable[..., Any], *args: Any, look: Callable[[Any], None] | None = None
) -> Callable[..., Any]:
    """Trace once, to compute many times without a compiler.

    Args:
        function: Traceable by JAX.
        args: Pytrees of arrays.
        look: Is shown the program before anything is computed, and may raise.

    Returns:
        A function of arguments that look like ``args``.
    """
    closed, structure = trace(function, *args)
    if look is not None:
        look(closed)

    def compute(*args: Any) -> Any:
        flat = [to_numpy(leaf) for leaf in jax.tree.leaves(args)]
        with np.errstate(all="ignore"):
            return jax.tree.unflatten(structure, _run(closed, flat))

    return compute


def _run(closed: Any, args: list[Any]) -> list[Any]:
    return run_program(closed, args, apply_outside)


def apply_outside(equation: Any, args: list[Any], run: Run = _run) -> list[Any]:
    """One equation of a traced program, in NumPy.

    Args:
        equation: Of a jaxpr.
        args: The values of its operands.
        run: How the programs inside the equation run.

    Raises:
        NoOutsideRuleError: The primitive has no rule.
    """
    name, params = equation.primitive.name, equation.params
    if name in CONTROL:
        return CONTROL[name](args, params, run)
    if name in _SPECIAL:
        return _SPECIAL[name](args, params)
    if name in _COMPOSITE:
        return run(_expand(equation), args)
    if name in _MOVED_BY_JAX or any(is_key(variable.aval) for variable in equation.outvars):
        out = equation.primitive.bind(*args, **params)
        out = out if equation.primitive.multiple_results else [out]
        return [to_numpy(value) for value in out]
    if name in SEVERAL:
        out = SEVERAL[name](args, params)
    elif name in ARITHMETIC:
        out = [ARITHMETIC[name](*args)]
    elif name in SHAPED:
        out = [SHAPED[name](args, params)]
    else:
        raise NoOutsideRuleError(f"no rule outside JAX for the primitive {name!r}")
    # NumPy promotes where JAX does not; every result has the type that was traced.
    return [
        np.asarray(value, dtype=variable.aval.dtype)
        for value, variable in zip(out, equation.outvars, strict=True)
    ]


def _random_bits(args: list[Any], params: dict[str, Any]) -> list[Any]:
    """JAX's default generator; keys of another kind stay with JAX."""
    keys, width, shape = args[0], params["bit_width"], params["shape"]
    if str(jax.random.key_impl(keys)) != "threefry2x32":
        raise NoOutsideRuleError("no rule outside JAX for keys other than threefry2x32")
    words = np.asarray(jax.random.key_data(keys)).reshape(-1, 2).tolist()
    bits = [threefry_bits(first, second, shape, width) for first, second in words]
    return [np.stack(bits).reshape((*keys.shape, *shape))]


@functools.lru_cache(maxsize=256)
def _expand(equation: Any) -> Any:
    """The program behind a composite primitive: Lineax's solves, and Equinox's batches of them."""
    avals = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in equation.invars]
    return jax.make_jaxpr(functools.partial(equation.primitive.impl, **equation.params))(*avals)


def _platform_index(args: list[Any], params: dict[str, Any]) -> list[Any]:
    for index, names in enumerate(params["platforms"]):
        if names is None or "cpu" in names:
            return [np.asarray(index, dtype=np.int32)]
    raise NoOutsideRuleError(f"no branch for the CPU among {params['platforms']}")


def _linear_solve(args: list[Any], params: dict[str, Any]) -> list[Any]:
    lengths, jaxprs = params["const_lengths"], params["jaxprs"]
    offset = lengths.matvec + lengths.vecmat
    consts = args[offset : offset + lengths.solve]
    return _run(jaxprs.solve, [*consts, *args[sum(lengths) :]])


_SPECIAL: dict[str, Callable[[list[Any], dict[str, Any]], list[Any]]] = {
    "custom_linear_solve": _linear_solve,
    "platform_index": _platform_index,
    "random_bits": _random_bits,
}

_COMPOSITE = frozenset(["linear_solve", "vprim"])

_MOVED_BY_JAX = frozenset(
    ["gather", "scatter", "scatter-add", "scatter_add", "dynamic_slice", "dynamic_update_slice",
     "sort", "bitcast_convert_type", "threefry2x32", "random_wrap", "random_unwrap",
     "random_seed", "random_fold_in", "random_split", "random_clone",
     "lu_pivots_to_permutation", "population_count", "clz"]
)  # fmt: skip

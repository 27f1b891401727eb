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
from jax.extend import core as jex
from jax.interpreters.partial_eval import dce_jaxpr

from jaxlab.claims.numpy_rules import (
    ARITHMETIC,
    SEVERAL,
    SHAPED,
    NoOutsideRuleError,
    threefry_bits,
)
from jaxlab.core.trees import is_key

__all__ = ["NoOutsideRuleError", "evaluate_outside", "trace_outside"]


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


def trace_outside(function: Callable[..., Any], *args: Any) -> Callable[..., Any]:
    """Trace once, to compute many times without a compiler.

    Returns:
        A function of arguments that look like ``args``.
    """
    closed, shape = jax.make_jaxpr(function, return_shape=True)(*args)
    # What no output needs (keys of deterministic gradients, say) is most of some programs.
    used = [True] * len(closed.jaxpr.outvars)
    jaxpr, _ = dce_jaxpr(closed.jaxpr, used, instantiate=True)
    closed = jex.ClosedJaxpr(jaxpr, closed.consts)
    structure = jax.tree.structure(shape)

    def compute(*args: Any) -> Any:
        flat = [_to_numpy(leaf) for leaf in jax.tree.leaves(args)]
        with np.errstate(all="ignore"):
            return jax.tree.unflatten(structure, _run(closed, flat))

    return compute


def _to_numpy(value: Any) -> Any:
    return value if is_key(value) else np.asarray(value)


def _run(closed: Any, args: list[Any]) -> list[Any]:
    jaxpr = closed.jaxpr
    values: dict[Any, Any] = {}

    def read(atom: Any) -> Any:
        return _to_numpy(atom.val) if isinstance(atom, jex.Literal) else values[atom]

    for variable, value in zip(jaxpr.constvars, closed.consts, strict=True):
        values[variable] = _to_numpy(value)
    for variable, value in zip(jaxpr.invars, args, strict=True):
        values[variable] = value
    for equation in jaxpr.eqns:
        out = _apply(equation, [read(atom) for atom in equation.invars])
        for variable, value in zip(equation.outvars, out, strict=True):
            values[variable] = value
    return [read(atom) for atom in jaxpr.outvars]


def _apply(equation: Any, args: list[Any]) -> list[Any]:
    name, params = equation.primitive.name, equation.params
    if name in _CONTROL:
        return _CONTROL[name](args, params)
    if name in _COMPOSITE:
        return _run(_expand(equation), args)
    if name in _MOVED_BY_JAX or any(is_key(variable.aval) for variable in equation.outvars):
        out = equation.primitive.bind(*args, **params)
        out = out if equation.primitive.multiple_results else [out]
        return [_to_numpy(value) for value in out]
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


def _call(args: list[Any], params: dict[str, Any]) -> list[Any]:
    for name in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
        if name in params:
            inner = params[name]
            closed = inner if hasattr(inner, "consts") else jex.ClosedJaxpr(inner, ())
            return _run(closed, args)
    raise NoOutsideRuleError(f"no rule outside JAX for a call with {sorted(params)}")


def _scan(args: list[Any], params: dict[str, Any]) -> list[Any]:
    num_consts, num_carry = params["num_consts"], params["num_carry"]
    consts, carry = args[:num_consts], args[num_consts : num_consts + num_carry]
    columns = args[num_consts + num_carry :]
    order = range(params["length"])
    stacked: list[list[Any]] = []
    for index in reversed(order) if params["reverse"] else order:
        out = _run(params["jaxpr"], [*consts, *carry, *(column[index] for column in columns)])
        carry = out[:num_carry]
        stacked.append(out[num_carry:])
    if params["reverse"]:
        stacked.reverse()
    shapes = params["jaxpr"].out_avals[num_carry:]
    ys = [
        np.stack([row[i] for row in stacked])
        if stacked
        else np.zeros((0, *shape.shape), dtype=shape.dtype)
        for i, shape in enumerate(shapes)
    ]
    return [*carry, *ys]


def _while(args: list[Any], params: dict[str, Any]) -> list[Any]:
    split = params["cond_nconsts"]
    stop = split + params["body_nconsts"]
    cond_consts, body_consts, carry = args[:split], args[split:stop], args[stop:]
    while bool(np.all(_run(params["cond_jaxpr"], [*cond_consts, *carry])[0])):
        carry = _run(params["body_jaxpr"], [*body_consts, *carry])
    return carry


def _cond(args: list[Any], params: dict[str, Any]) -> list[Any]:
    branches = params["branches"]
    return _run(branches[int(np.clip(int(args[0]), 0, len(branches) - 1))], args[1:])


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


_CONTROL: dict[str, Callable[[list[Any], dict[str, Any]], list[Any]]] = {
    **dict.fromkeys(
        ["jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call",
         "custom_vjp_call_jaxpr", "remat", "checkpoint"],
        _call,
    ),
    "scan": _scan,
    "while": _while,
    "cond": _cond,
    "custom_linear_solve": _linear_solve,
    "platform_index": _platform_index,
    "random_bits": _random_bits,
}  # fmt: skip

_COMPOSITE = frozenset(["linear_solve", "vprim"])

_MOVED_BY_JAX = frozenset(
    ["gather", "scatter", "scatter-add", "scatter_add", "dynamic_slice", "dynamic_update_slice",
     "sort", "bitcast_convert_type", "threefry2x32", "random_wrap", "random_unwrap",
     "random_seed", "random_fold_in", "random_split", "random_clone",
     "lu_pivots_to_permutation", "population_count", "clz"]
)  # fmt: skip

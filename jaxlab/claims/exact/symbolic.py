"""Run a traced JAX program on the points of an unknown function in an unknown dimension.

The program is traced with a symbolic dimension, so that a step which depends on the dimension shows
itself. A traced array whose last axis is that dimension is a NumPy array of ``Along`` entries over
its other axes; a scalar is a number or a PEPit ``Expression``. Numbers are computed by
``jaxlab.claims.outside``, loops are unrolled, and whatever only moves entries is asked of the same
NumPy rules on labels.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import export

from jaxlab.claims.control import CONTROL, run_program, trace
from jaxlab.claims.evaluate import precise
from jaxlab.claims.exact.along import Along, NotSymbolicError, is_number
from jaxlab.claims.exact.extras import require
from jaxlab.claims.exact.oracles import ORACLES
from jaxlab.claims.outside import NoOutsideRuleError, apply_outside

__all__ = ["NotSymbolicError", "PointOracle", "run_symbolically"]

_WIDTH = 3
"""The size that stands for the unknown dimension while entries are moved."""


def run_symbolically(
    function: Callable[..., Any], points: Mapping[str, Any], functions: Mapping[str, Any]
) -> Any:
    """``function(**points)`` on PEPit's points.

    Args:
        function: Traceable by JAX; it asks unknown functions through ``jaxlab.claims.exact``.
        points: PEPit points by name, or NumPy arrays of them, which arrive with shape
            ``(*shape, dim)``.
        functions: PEPit functions by the name under which they are asked.

    Returns:
        What ``function`` returns, with PEPit points in the place of vectors and numbers or PEPit
        expressions in the place of scalars.

    Raises:
        NotSymbolicError: The program is not linear in the points up to inner products.
        ImportError: PEPit is not installed.

    Example:
        >>> from jaxlab.claims.exact import gradient
        >>> pep = require("PEPit")
        >>> program = pep.PEP()
        >>> smooth = require("PEPit.functions").SmoothConvexFunction
        >>> f = program.declare_function(smooth, L=1.0)
        >>> start = program.set_initial_point()
        >>> x = run_symbolically(lambda x: x - gradient(x) / 2, {"x": start}, {"f": f})
        >>> sorted(x.decomposition_dict.values())
        [-0.5, 1]
    """
    require("PEPit")
    arrays = {name: np.array(value, dtype=object) for name, value in points.items()}
    with precise():
        (dim,) = export.symbolic_shape("dim")
        shapes = {
            name: jax.ShapeDtypeStruct((*array.shape, dim), float) for name, array in arrays.items()
        }
        closed, structure = trace(lambda inputs: function(**inputs), shapes)
        flat = [_each(_as_along, array) for array in jax.tree.leaves(arrays)]
        apply = functools.partial(_apply, functions)
        out = run_program(closed, flat, apply)
    return jax.tree.unflatten(structure, [_unwrap(array) for array in out])


def _each(function: Callable[..., Any], *arrays: Any) -> np.ndarray:
    """Over all entries, with an array as the result even if there is one entry."""
    return np.array(np.frompyfunc(function, len(arrays), 1)(*arrays), dtype=object)


def _as_along(point: Any) -> Along:
    return Along(point=point)


def _unwrap(array: np.ndarray) -> Any:
    opened = _each(lambda entry: _point(entry) if isinstance(entry, Along) else entry, array)
    return opened.item() if opened.ndim == 0 else opened


def _point(entry: Along) -> Any:
    point = entry.as_point()
    return point if point is not None else require("PEPit").Point(False, {})


def _apply(functions: Mapping[str, Any], equation: Any, args: list[Any]) -> list[Any]:
    """One equation on points; the errors name its primitive."""
    name = equation.primitive.name

    def run(closed: Any, inner: list[Any]) -> list[Any]:
        return run_program(closed, inner, functools.partial(_apply, functions))

    if name in CONTROL:
        return CONTROL[name](args, equation.params, run)
    try:
        if equation.primitive in ORACLES:
            return [_ask(functions, equation, args)]
        unknown = [_has_dim(variable) for variable in equation.outvars]
        if not any(unknown) and not any(map(_is_symbolic, args)):
            return apply_outside(equation, args, run)
        if name in _MOVES:
            return _move(equation, args)
        return [_settle(_RULES[name](equation, [_entries(arg) for arg in args]))]
    # PEPit asserts types where its operators do not fit.
    except (KeyError, TypeError, AssertionError, NoOutsideRuleError) as error:
        reason = f" ({error})" if isinstance(error, TypeError) else ""
        raise NotSymbolicError(
            f"the primitive {name!r} does not apply to points of an unknown dimension{reason}; "
            "pass solve a twin of the method, written on points"
        ) from error


def _is_symbolic(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == "O"


def _has_dim(variable: Any) -> bool:
    """Whether the last axis is the unknown dimension; no other may be."""
    shape: tuple[Any, ...] = getattr(variable.aval, "shape", ())
    unknown = [str(size) for size in shape if not isinstance(size, int)]
    if unknown and (unknown != ["dim"] or isinstance(shape[-1], int)):
        raise TypeError(f"an array of shape ({', '.join(map(str, shape))})")
    return bool(unknown)


def _entries(value: Any) -> np.ndarray:
    return value if _is_symbolic(value) else np.asarray(value).astype(object)


def _settle(result: Any) -> np.ndarray:
    """An array of entries, or of numbers if nothing symbolic is left."""
    array = np.asarray(result, dtype=object)
    if all(map(is_number, array.flat)):
        return array.astype(float)
    return array


class PointOracle(NamedTuple):
    """A PEPit function that is asked at PEPit points.

    Attributes:
        function: A PEPit ``Function``.
    """

    function: Any

    def gradient(self, x: Any) -> Any:
        """A (sub)gradient."""
        return self.function.gradient(_once(self.function, x))

    def value(self, x: Any) -> Any:
        """The value."""
        return self.function.value(_once(self.function, x))

    def proximal(self, x: Any, step_size: Any) -> Any:
        """The proximal point."""
        if not is_number(step_size):
            raise TypeError("a step size that depends on points")
        return require("PEPit.primitive_steps").proximal_step(x, self.function, step_size)[0]


def _ask(functions: Mapping[str, Any], equation: Any, args: list[Any]) -> np.ndarray:
    """What an unknown function answers at points."""
    name, question = equation.params["function"], equation.primitive.name
    if name not in functions:
        raise ValueError(f"function must be one of {sorted(functions)}, got {name!r}")
    answer = getattr(PointOracle(functions[name]), question)

    def rule(entry: Along, *rest: Any) -> Any:
        answered = answer(_point(entry), *rest)
        return answered if question == "value" else Along(point=answered)

    return _each(rule, *map(_entries, args))


def _once(function: Any, point: Any) -> Any:
    """The point at which the function was asked before, if only rounding tells them apart.

    PEPit would hold them for two points, and their gradients for independent up to a tiny distance.
    """
    for known, *_ in function.list_of_points:
        difference = (point - known).decomposition_dict.values()
        size = max(map(abs, point.decomposition_dict.values()), default=0.0)
        if all(abs(weight) <= 64 * np.finfo(float).eps * size for weight in difference):
            return known
    return point


def _move(equation: Any, args: list[Any]) -> list[Any]:
    """Move entries as the NumPy rules move labels, with three labels along the dimension."""
    held = _MOVES[equation.primitive.name]  # operands that stay numbers: indices, predicates
    entries: list[Any] = []
    operands = []
    for position, (arg, variable) in enumerate(zip(args, equation.invars, strict=True)):
        if held(position):
            operands.append(np.asarray(arg))
            continue
        array = _entries(arg)
        labels = _WIDTH * (len(entries) + np.arange(array.size).reshape(array.shape))
        entries.extend(array.flat)
        across = np.arange(_WIDTH) if _has_dim(variable) else None
        operands.append(labels if across is None else labels[..., None] + across)
    params = {key: _with_width(value) for key, value in equation.params.items()}
    moved = apply_outside(equation.replace(params=params), operands)
    return [
        _settle(_relabel(np.asarray(labels).astype(int), variable, entries))
        for labels, variable in zip(moved, equation.outvars, strict=True)
    ]


def _with_width(value: Any) -> Any:
    if type(value) is tuple:
        return tuple(map(_with_width, value))
    if type(value).__name__ != "_DimExpr":
        return value
    if str(value) != "dim":
        raise TypeError(f"a part of a point, {value} coordinates")
    return _WIDTH


def _relabel(labels: np.ndarray, variable: Any, entries: list[Any]) -> np.ndarray:
    """Entries from labels; an entry must arrive whole, or be a number repeated."""
    first = labels[..., 0] if _has_dim(variable) else labels
    found = _each(lambda label: entries[label // _WIDTH], first)
    if not _has_dim(variable):
        if any(isinstance(entry, Along) for entry in found.flat):
            raise TypeError("a coordinate of a point")
        return found
    vectors = _each(lambda entry: isinstance(entry, Along), found).astype(bool)
    expected = first[..., None] + vectors[..., None] * np.arange(_WIDTH)
    if (labels != expected).any() or (first % _WIDTH).any():
        raise TypeError("coordinates of a point out of order")
    return _each(lambda entry: entry if isinstance(entry, Along) else Along() + entry, found)


def _to_float(equation: Any, args: list[Any]) -> Any:
    if not np.issubdtype(equation.params["new_dtype"], np.floating):
        raise TypeError(f"a point as {equation.params['new_dtype']}")
    return args[0]


def _square(equation: Any, args: list[Any]) -> Any:
    if equation.params.get("y", 2) != 2:
        raise TypeError(f"the power {equation.params['y']}")
    return args[0] * args[0]


def _sum(equation: Any, args: list[Any]) -> Any:
    (array,), axes = args, equation.params["axes"]
    last = array.ndim if _has_dim(equation.invars[0]) else None
    if last in axes:
        array = _each(Along.total, array)
    return array.sum(axis=tuple(axis for axis in axes if axis != last))


def _dot(equation: Any, args: list[Any]) -> Any:
    (left_axes, right_axes), batch = equation.params["dimension_numbers"]
    left, right = args
    inner = [
        _has_dim(variable) and array.ndim in axes
        for variable, array, axes in zip(
            equation.invars, args, (left_axes, right_axes), strict=True
        )
    ]
    if any(batch) or inner[0] != inner[1]:
        raise TypeError("a product of matrices")
    if inner[0]:
        if len(left_axes) > 1:
            raise TypeError("a product of matrices")
        return _each(Along.inner, left.reshape(left.shape + (1,) * right.ndim), right)
    if _has_dim(equation.invars[0]) and right.ndim > len(right_axes):
        raise TypeError("an outer product")
    return np.tensordot(left, right, axes=(left_axes, right_axes))


def _operator(rule: Callable[..., Any]) -> Callable[[Any, list[Any]], Any]:
    return lambda equation, args: _each(rule, *args)


_RULES: dict[str, Callable[[Any, list[Any]], Any]] = {
    **dict.fromkeys(["add", "add_any"], _operator(lambda a, b: a + b)),
    **dict.fromkeys(["copy", "copy_p", "stop_gradient"], _operator(lambda a: a)),
    "sub": _operator(lambda a, b: a - b),
    "neg": _operator(lambda a: -a),
    "mul": _operator(lambda a, b: a * b),
    "div": _operator(lambda a, b: a / b),
    "convert_element_type": _to_float,
    "square": _square,
    "integer_pow": _square,
    "reduce_sum": _sum,
    "dot_general": _dot,
}
"""``(equation, arrays of entries) -> array of entries``."""

_MOVES: dict[str, Callable[[int], bool]] = {
    **dict.fromkeys(
        ["broadcast_in_dim", "reshape", "squeeze", "expand_dims", "transpose", "rev", "stack",
         "unstack", "tile", "concatenate", "slice", "split"],
        lambda position: False,
    ),
    "dynamic_slice": lambda position: position >= 1,
    "dynamic_update_slice": lambda position: position >= 2,
    "gather": lambda position: position == 1,
    "select_n": lambda position: position == 0,
}  # fmt: skip
"""Primitives that move entries, and which of their operands are no entries."""

"""How a traced program is run: equation by equation, with its control flow unrolled.

What the values are, and how one equation computes, is up to the caller: NumPy arrays in
``jaxlab.claims.outside``, points of an unknown Hilbert space in ``jaxlab.claims.exact.symbolic``.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.extend import core as jex
from jax.interpreters.partial_eval import dce_jaxpr

from jaxlab.claims.numpy_rules import NoOutsideRuleError
from jaxlab.core.trees import is_key

__all__ = ["CONTROL", "Apply", "Run", "run_program", "to_numpy", "trace"]

Apply = Callable[[Any, list[Any]], list[Any]]
"""``(equation, values) -> results``: computes one equation."""

Run = Callable[[Any, list[Any]], list[Any]]
"""``(closed jaxpr, values) -> results``: runs a whole program."""


def trace(function: Callable[..., Any], *args: Any) -> tuple[Any, Any]:
    """The program of ``function`` without what no output needs, and its output's tree structure.

    Example:
        >>> closed, _ = trace(lambda x: (x + 1, jax.numpy.sin(x))[0], 1.0)
        >>> [equation.primitive.name for equation in closed.jaxpr.eqns]
        ['add']
    """
    closed, shape = jax.make_jaxpr(function, return_shape=True)(*args)
    # What no output needs (keys of deterministic gradients, say) is most of some programs.
    used = [True] * len(closed.jaxpr.outvars)
    jaxpr, _ = dce_jaxpr(closed.jaxpr, used, instantiate=True)
    return jex.ClosedJaxpr(jaxpr, closed.consts), jax.tree.structure(shape)


def run_program(closed: Any, args: list[Any], apply: Apply) -> list[Any]:
    """Run a closed jaxpr on ``args``, with ``apply`` for each equation.

    Example:
        >>> closed, _ = trace(lambda x: x + x, 1.0)
        >>> run_program(closed, ["ab"], lambda equation, values: ["".join(values)])
        ['abab']
    """
    jaxpr = closed.jaxpr
    values: dict[Any, Any] = {}

    def read(atom: Any) -> Any:
        return to_numpy(atom.val) if isinstance(atom, jex.Literal) else values[atom]

    for variable, value in zip(jaxpr.constvars, closed.consts, strict=True):
        values[variable] = to_numpy(value)
    for variable, value in zip(jaxpr.invars, args, strict=True):
        values[variable] = value
    for equation in jaxpr.eqns:
        out = apply(equation, [read(atom) for atom in equation.invars])
        for variable, value in zip(equation.outvars, out, strict=True):
            values[variable] = value
    return [read(atom) for atom in jaxpr.outvars]


def to_numpy(value: Any) -> Any:
    """A NumPy array, except of keys, which stay JAX's."""
    return value if is_key(value) else np.asarray(value)


def _call(args: list[Any], params: dict[str, Any], run: Run) -> list[Any]:
    for name in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
        if name in params:
            inner = params[name]
            closed = inner if hasattr(inner, "consts") else jex.ClosedJaxpr(inner, ())
            return run(closed, args)
    raise NoOutsideRuleError(f"no rule outside JAX for a call with {sorted(params)}")


def _scan(args: list[Any], params: dict[str, Any], run: Run) -> list[Any]:
    num_consts, num_carry = params["num_consts"], params["num_carry"]
    consts, carry = args[:num_consts], args[num_consts : num_consts + num_carry]
    columns = args[num_consts + num_carry :]
    order = range(params["length"])
    stacked: list[list[Any]] = []
    for index in reversed(order) if params["reverse"] else order:
        out = run(params["jaxpr"], [*consts, *carry, *(_row(column, index) for column in columns)])
        carry = out[:num_carry]
        stacked.append(out[num_carry:])
    if params["reverse"]:
        stacked.reverse()
    shapes = params["jaxpr"].out_avals[num_carry:]
    ys = [
        np.stack([row[i] for row in stacked]) if stacked else _no_rows(shape)
        for i, shape in enumerate(shapes)
    ]
    return [*carry, *ys]


def _row(column: Any, index: int) -> Any:
    """A row that is an array even where its one entry is a Python object."""
    return column[index] if is_key(column) else column[index, ...]


def _no_rows(shape: Any) -> np.ndarray:
    known = [size for size in shape.shape if isinstance(size, int)]
    return np.zeros((0, *known), dtype=shape.dtype)


def _while(args: list[Any], params: dict[str, Any], run: Run) -> list[Any]:
    split = params["cond_nconsts"]
    stop = split + params["body_nconsts"]
    cond_consts, body_consts, carry = args[:split], args[split:stop], args[stop:]
    while bool(np.all(run(params["cond_jaxpr"], [*cond_consts, *carry])[0])):
        carry = run(params["body_jaxpr"], [*body_consts, *carry])
    return carry


def _cond(args: list[Any], params: dict[str, Any], run: Run) -> list[Any]:
    branches = params["branches"]
    return run(branches[int(np.clip(int(args[0]), 0, len(branches) - 1))], args[1:])


CONTROL: dict[str, Callable[[list[Any], dict[str, Any], Run], list[Any]]] = {
    **dict.fromkeys(
        ["jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call",
         "custom_vjp_call_jaxpr", "remat", "remat2", "checkpoint"],
        _call,
    ),
    "scan": _scan,
    "while": _while,
    "cond": _cond,
}  # fmt: skip
"""Primitives that run other programs: ``(args, params, run) -> results``."""

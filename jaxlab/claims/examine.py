"""Faults of a claim itself, found before anything is searched.

A claim that cannot fail, or that computes something else than it says, must never come out green.
"""

import os
import re
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jex
from jax.interpreters.partial_eval import dce_jaxpr
from jaxtyping import Array

from jaxlab.claims.claim import Claim
from jaxlab.claims.conclusions import Comparison, Expectation, Probability, Scaling

__all__ = [
    "ClaimError",
    "calls_lapack",
    "check_memory",
    "equations",
    "examine",
    "memory_of",
    "user_errors_named",
]

Sides = Callable[..., Any]

_LAPACK = frozenset(
    ["cholesky", "eig", "eigh", "geqrf", "householder_product", "lu", "qr", "schur", "svd",
     "triangular_solve", "tridiagonal", "tridiagonal_solve"]
)  # fmt: skip


class ClaimError(ValueError):
    """A claim cannot be judged as it is written; the message says why."""


def examine(claim: Claim, shapes: Mapping[str, Any], sides: Sides) -> None:
    """Look at the traced programs of a claim and of its mutants at the typical sizes.

    Args:
        claim: The theorem.
        shapes: The shape of an instance of every family.
        sides: ``(claim, instance, key, settings)``, the conclusion as it is written.

    Raises:
        ClaimError: The margin is not a scalar or not float64 throughout, has side effects, changes
            from trace to trace, or ignores the instance; a mutant is the original; sizes need more
            memory than there is.
    """
    programs: dict[str, Any] = {}
    for name, shape in shapes.items():
        programs[name], said = _traced(claim, name, shape, sides, {})
        _check_result(name, said)
        _check_program(name, programs[name], said, shape)
        if not claim.rounds:
            _check_precision(name, programs[name])
        again, _ = _traced(claim, name, shape, sides, {})
        if not _same(programs[name], again):
            raise ClaimError(
                f"the conclusion must be a pure function, got two programs from two traces over "
                f"{name!r}: it reads or changes something outside"
            )
    for mutant, variant in claim.mutants.items():
        mutants = (_traced(claim, *pair, sides, variant)[0] for pair in shapes.items())
        if all(_same(*pair) for pair in zip(programs.values(), mutants, strict=True)):
            raise ClaimError(
                f"mutant {mutant!r} must differ from the original, got the same program: the "
                f"conclusion does not use {', '.join(sorted(variant))}"
            )


def memory_of(closed: Any) -> int:
    """The bytes of the largest equation's results, a lower bound on what a program needs.

    Example:
        >>> memory_of(jax.make_jaxpr(lambda x: (x[:, None] * x).sum())(jnp.ones(10)))
        400
    """
    return max((_bytes(equation.outvars) for equation in equations(closed.jaxpr)), default=0)


def calls_lapack(closed: Any) -> bool:
    """Whether a program decomposes or solves matrices.

    Example:
        >>> calls_lapack(jax.make_jaxpr(jnp.linalg.eigvalsh)(jnp.eye(2)))
        True
    """
    return any(equation.primitive.name in _LAPACK for equation in equations(closed.jaxpr))


def check_memory(needed: int, sizes: Mapping[str, Any]) -> None:
    """Refuse what does not fit into memory.

    Raises:
        ClaimError: More than half of the available memory is needed.
    """
    available = _available_memory()
    if needed > available // 2:
        raise ClaimError(
            f"sizes must fit into memory ({available / 2**30:.1f} GiB available), got "
            f"{dict(sizes)}, for which one instance needs {needed / 2**30:.3g} GiB or more"
        )


def user_errors_named(what: str, function: Callable[[], Any], must: str = "be traceable") -> Any:
    """Call a user's function; what it raises is told with the user's line.

    Raises:
        ClaimError: The function raised something.
    """
    try:
        return function()
    except ClaimError:
        raise
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        own = [f for f in frames if "site-packages" not in f.filename and f.filename != __file__]
        place = own[-1] if own else frames[-1]
        told = (str(error).strip() or "no message").splitlines()[0]
        raise ClaimError(
            f"{what} must {must}, got {type(error).__name__}: {told} "
            f"({os.path.basename(place.filename)}:{place.lineno})"
        ) from error


def _traced(
    claim: Claim, name: str, shape: Any, sides: Sides, variant: Mapping[str, Any]
) -> tuple[Any, Any]:
    key = jax.random.key(0)

    def conclusion(instance: Any, key: Array) -> Any:
        said = sides(claim, instance, key, {**claim.typical, **variant})
        known = (Comparison, Expectation, Probability, Scaling, float, int)
        if not isinstance(said, known) and not hasattr(said, "shape"):
            raise ClaimError(
                "the conclusion must give a Comparison, an Expectation, a Probability, a Scaling "
                f"or a scalar margin, got {type(said).__name__} over {name!r}"
            )
        return said

    return user_errors_named(
        "the conclusion",
        lambda: jax.make_jaxpr(conclusion, return_shape=True)(shape, key),
    )


def _check_result(name: str, said: Any) -> None:
    if isinstance(said, Comparison):
        parts = said._asdict()
    elif isinstance(said, (Expectation, Probability, Scaling)):
        parts = {
            field: value
            for field, value in said._asdict().items()
            if field in ("values", "bound", "exponent") and hasattr(value, "dtype")
        }
    else:
        if said.shape:
            raise ClaimError(
                f"a bare margin must be a scalar, got shape {said.shape} over {name!r}; give a "
                "Comparison, whose sides may have any shape"
            )
        parts = {"margin": said}
    for field, part in parts.items():
        if part.dtype != jnp.float64:
            raise ClaimError(
                f"the {field} must be computed in float64, got {part.dtype} over {name!r}: "
                "something changes the type on the way"
            )


def _check_program(name: str, closed: Any, said: Any, shape: Any) -> None:
    jaxpr = closed.jaxpr
    # Run-time value checks that are not switched on have an effect by name only.
    effects = {type(effect).__name__ for effect in jaxpr.effects} - {"ErrorEffect"}
    if effects:
        told = ", ".join(sorted(effects))
        raise ClaimError(f"the conclusion must have no side effects, got {told} over {name!r}")
    # Only what decides: the sides of a Comparison may depend on the instance for the reader alone.
    leaves = jax.tree_util.tree_leaves_with_path(said)
    decides = [
        not isinstance(said, Comparison) or getattr(path[0], "name", "") == "margin"
        for path, _ in leaves
    ]
    _, used = dce_jaxpr(jaxpr, decides, instantiate=False)
    num_numbers = len(jax.tree.leaves(shape))
    if not any(used[:num_numbers]):
        raise ClaimError(
            f"the margin must depend on the instance, got one that ignores it over {name!r}"
        )


def _check_precision(name: str, closed: Any) -> None:
    """A cast to float32 and back leaves no trace in the margin's type, only in its value."""
    for equation in equations(closed.jaxpr):
        if equation.primitive.name != "convert_element_type":
            continue
        before, after = equation.invars[0].aval.dtype, equation.outvars[0].aval.dtype
        if before == jnp.float64 and jnp.issubdtype(after, jnp.floating) and after != before:
            raise ClaimError(
                f"the conclusion must compute in float64, got a cast to {after} over {name!r}; "
                "if the theorem is about that precision, set rounds=True"
            )


# Run-time value checks number themselves from trace to trace; static functions show addresses.
_CHECK_NUMBER = re.compile(r"select_n False:bool\[\] \d+:i(32|64)\[\] -1")
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def _text(closed: Any) -> str:
    return _ADDRESS.sub("", _CHECK_NUMBER.sub("number of a check", str(closed.jaxpr)))


def _same(one: Any, other: Any) -> bool:
    if _text(one) != _text(other) or len(one.consts) != len(other.consts):
        return False
    pairs = zip(one.consts, other.consts, strict=True)
    return all(a is b or _equal_arrays(a, b) for a, b in pairs)


def _equal_arrays(a: Any, b: Any) -> bool:
    if jnp.issubdtype(getattr(a, "dtype", float), jax.dtypes.prng_key):
        a, b = jax.random.key_data(a), jax.random.key_data(b)
    return np.array_equal(np.asarray(a), np.asarray(b), equal_nan=False)


def equations(jaxpr: Any) -> Iterator[Any]:
    """All equations of a jaxpr, those inside of loops and calls too.

    Example:
        >>> program = jax.make_jaxpr(jax.jit(lambda x: x + 1))(1.0)
        >>> [equation.primitive.name for equation in equations(program.jaxpr)]
        ['jit', 'add']
    """
    for equation in jaxpr.eqns:
        yield equation
        for value in jax.tree.leaves(
            list(equation.params.values()), is_leaf=lambda v: hasattr(v, "eqns") or _is_closed(v)
        ):
            if _is_closed(value):
                yield from equations(value.jaxpr)
            elif hasattr(value, "eqns"):
                yield from equations(value)


def _is_closed(value: Any) -> bool:
    return isinstance(value, jex.ClosedJaxpr)


def _bytes(variables: Any) -> int:
    # Keys have no size of their own in bytes, and are small.
    return sum(
        variable.aval.size * getattr(variable.aval.dtype, "itemsize", 8)
        for variable in variables
        if hasattr(variable.aval, "size")
    )


def _available_memory() -> int:
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not on this system
        return 8 * 2**30

"""Claims that are algebra: identities and inequalities of polynomials, in exact arithmetic.

An ``ExactCase`` compares two numbers. For an identity the left one is 0 if it holds and 1 if not;
for an inequality it is the largest violation that was found, or 0 with a proof.
"""

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from jaxlab.claims.claim import ExactCase
from jaxlab.claims.exact.extras import require

__all__ = ["at_rationals", "identity_case", "is_identity", "nonnegative_case", "squares"]


def is_identity(left: Any, right: Any) -> bool:
    """Whether two rational expressions are equal, by expansion over the rationals.

    Floating-point constants are refused: they would be compared after rounding.

    Args:
        left: A SymPy expression or a string that SymPy reads.
        right: Likewise.

    Returns:
        True or False for rational functions; for others True is sure and False is not.

    Raises:
        ValueError: An expression contains a floating-point number.
        ImportError: SymPy is not installed.

    Example:
        >>> is_identity("(a + b)**2", "a**2 + 2*a*b + b**2"), is_identity("(a + b)**2", "a**2")
        (True, False)
    """
    sympy = require("sympy")
    difference = _exact(left) - _exact(right)
    return bool(sympy.cancel(sympy.together(difference)) == 0 or sympy.simplify(difference) == 0)


def identity_case(left: Any, right: Any, *, parameters: Mapping[str, Any]) -> ExactCase:
    """``left == right`` for all values of the symbols, as an exact case.

    Example:
        >>> identity_case("x**2 - y**2", "(x - y)*(x + y)", parameters={}).worst
        0.0
    """
    return ExactCase(parameters, 0.0 if is_identity(left, right) else 1.0, 0.0)


def squares(polynomial: Any) -> list[tuple[Any, Any]] | None:
    """A quadratic polynomial as a sum of squares ``sum_i w_i q_i^2`` with rational ``w_i >= 0``.

    The squares are completed one variable at a time; that finds a sum of squares of a polynomial
    of degree at most 2 exactly if it is non-negative.

    Args:
        polynomial: A SymPy expression or a string, of degree at most 2 with rational coefficients.

    Returns:
        The pairs ``(w_i, q_i)``; None if the polynomial is negative somewhere.

    Raises:
        ValueError: It is no such polynomial.

    Example:
        >>> squares("x**2 - 2*x*y + 2*y**2")
        [(1, x - y), (1, y)]
        >>> squares("x**2 - 3*x*y + y**2") is None
        True
    """
    sympy = require("sympy")
    rest = sympy.expand(_exact(polynomial))
    symbols = sorted(rest.free_symbols, key=str)
    if symbols and sympy.Poly(rest, *symbols).total_degree() > 2:
        raise ValueError(f"polynomial must have degree at most 2, got {rest}")
    if not all(c.is_Rational for c in sympy.Poly(rest, *symbols or [sympy.Dummy()]).coeffs()):
        raise ValueError(f"polynomial must have rational coefficients, got {rest}")
    found = []
    for symbol in symbols:
        in_symbol = sympy.Poly(rest, symbol)
        lead, slope = in_symbol.coeff_monomial(symbol**2), in_symbol.coeff_monomial(symbol)
        if lead == 0 and slope == 0:
            continue
        if not lead > 0:
            return None  # a line, or a parabola that opens downwards
        square = sympy.expand(symbol + slope / (2 * lead))
        found.append((lead, square))
        rest = sympy.expand(rest - lead * square**2)
    if rest < 0:
        return None
    return found + ([(rest, sympy.Integer(1))] if rest > 0 else [])


def nonnegative_case(polynomial: Any, *, parameters: Mapping[str, Any]) -> ExactCase:
    """``polynomial >= 0`` everywhere, for degree at most 2, as an exact case.

    Example:
        >>> nonnegative_case("a**2 + b**2 - 2*a*b", parameters={}).worst
        0.0
        >>> nonnegative_case("a**2 + b**2 - 3*a*b", parameters={}).worst
        1.0
    """
    return ExactCase(parameters, 1.0 if squares(polynomial) is None else 0.0, 0.0)


def at_rationals(
    left: Any, right: Any, values: Mapping[str, Iterable[Any]], *, parameters: Mapping[str, Any]
) -> ExactCase:
    """``left <= right`` at all combinations of rational values, without rounding.

    That proves nothing between them, but a failure there is a proof.

    Args:
        left: A SymPy expression or a string.
        right: Likewise.
        values: Rational values of each symbol, as SymPy reads them: ``"1/3"``.
        parameters: What the case is called.

    Returns:
        The combination where ``left - right`` is largest; ``worst`` is that difference.

    Raises:
        ValueError: Values are missing, or are no rationals.

    Example:
        >>> case = at_rationals("2*x/(1 + x)", "1 + x**2", {"x": ["1/3", "1", "2"]}, parameters={})
        >>> round(case.worst, 4), case.parameters
        (-0.6111, {'x': '1/3'})
    """
    difference = _exact(left) - _exact(right)
    missing = {str(symbol) for symbol in difference.free_symbols} - set(values)
    if missing:
        raise ValueError(f"values must be given for every symbol, got none for {sorted(missing)}")
    worst, where = None, {}
    for chosen in itertools.product(*values.values()):
        point = dict(zip(values, map(_exact, chosen), strict=True))
        found = difference.subs({s: point[str(s)] for s in difference.free_symbols})
        if not found.is_Rational:
            raise ValueError(f"values must give rational sides, got {found} at {point}")
        if worst is None or found > worst:
            worst, where = found, {name: str(value) for name, value in point.items()}
    if worst is None:
        raise ValueError("values must not be empty")
    return ExactCase({**parameters, **where}, float(worst), 0.0, tolerance=0.0)


def _exact(expression: Any) -> Any:
    sympy = require("sympy")
    found = sympy.sympify(expression)
    if found.atoms(sympy.Float):
        raise ValueError(f"numbers must be exact ('1/3', not 0.33), got {found}")
    return found

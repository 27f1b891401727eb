"""Worst cases without a solver: enumeration, all small graphs, quadrature."""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import scipy.integrate

from jaxlab.claims.claim import ExactCase
from jaxlab.claims.exact.extras import require

__all__ = [
    "connected_graphs",
    "enumerate_worst",
    "expectation",
    "integral",
    "quadrature_case",
]

LARGEST_GRAPH = 7
"""Nodes of the largest graphs in NetworkX's atlas."""

_ROUNDING = 1e-12
"""Of closed forms and sums in double precision, relative."""

Law = Mapping[Any, Any]
"""Outcomes and their probabilities."""


def expectation(function: Callable[..., Any], *laws: Law) -> Any:
    """``E function(X_1, ..., X_n)`` of independent finite variables, by enumeration.

    Probabilities that are ``fractions.Fraction`` or integers make the result exact, if the
    function's values are rational as well; otherwise the sum is rounded once (``math.fsum``).

    Args:
        function: Of one outcome of each variable.
        laws: Of each variable: outcomes mapped to probabilities.

    Raises:
        ValueError: Probabilities are negative or do not add up to 1.

    Example:
        >>> coin = {0: Fraction(1, 3), 1: Fraction(2, 3)}
        >>> expectation(lambda x, y: (x + y) ** 2, coin, coin)
        Fraction(20, 9)
    """
    for law in laws:
        _check_law(law)
    terms = []
    for outcomes in itertools.product(*(law.items() for law in laws)):
        weight = math.prod(probability for _, probability in outcomes)
        terms.append(weight * function(*(outcome for outcome, _ in outcomes)))
    exact = all(isinstance(term, int | Fraction) for term in terms)
    return sum(terms) if exact else math.fsum(map(float, terms))


def _check_law(law: Law) -> None:
    total = sum(law.values())
    exact = all(isinstance(p, int | Fraction) for p in law.values())
    allowed = 0 if exact else len(law) * np.finfo(float).eps
    if not (all(p >= 0 for p in law.values()) and abs(total - 1) <= allowed):
        raise ValueError(f"probabilities must be at least 0 and add up to 1, got the sum {total}")


def enumerate_worst(
    comparison: Callable[[Any], tuple[Any, Any]],
    instances: Iterable[Any],
    *,
    parameters: Mapping[str, Any],
) -> ExactCase:
    """The instance on which ``left <= right`` is closest to fail, or fails most.

    Args:
        comparison: ``instance -> (left, right)``; exact numbers are compared exactly, and are
            rounded only in the report.
        instances: All of them.
        parameters: What the case is called; ``instance`` is added, the worst one's position.

    Raises:
        ValueError: There is no instance.

    Example:
        >>> pairs = list(itertools.product(range(5), repeat=2))
        >>> case = enumerate_worst(lambda p: (2 * p[0] * p[1], p[0] ** 2 + p[1] ** 2), pairs,
        ...     parameters={"up to": 4})
        >>> case.worst <= case.bound
        True
    """
    worst = None
    for position, instance in enumerate(instances):
        left, right = comparison(instance)
        margin = right - left
        if math.isnan(margin):  # NaN decides nothing, so the case must not
            return ExactCase({**parameters, "instance": position}, math.nan, math.nan, math.inf)
        if worst is None or margin < worst[0]:
            worst = (margin, position, left, right)
    if worst is None:
        raise ValueError("instances must not be empty")
    _, position, left, right = worst
    exact = isinstance(left, int | Fraction) and isinstance(right, int | Fraction)
    return ExactCase(
        {**parameters, "instance": position}, float(left), float(right),
        tolerance=0.0 if exact else _ROUNDING,
    )  # fmt: skip


def connected_graphs(num_nodes: int) -> Iterator[np.ndarray]:
    """The adjacency matrices of all connected graphs with some nodes, one of each shape.

    They come from NetworkX's atlas (Read and Wilson 1998).

    Args:
        num_nodes: 1 to 7.

    Raises:
        ValueError: The atlas has no graphs of this size.
        ImportError: NetworkX is not installed.

    Example:
        >>> [sum(1 for _ in connected_graphs(n)) for n in (1, 2, 3, 4)]
        [1, 1, 2, 6]
    """
    if not 1 <= num_nodes <= LARGEST_GRAPH:
        raise ValueError(f"num_nodes must be within 1 and {LARGEST_GRAPH}, got {num_nodes}")
    networkx = require("networkx")
    for graph in networkx.graph_atlas_g():
        if len(graph) == num_nodes and networkx.is_connected(graph):
            yield networkx.to_numpy_array(graph)


def integral(
    function: Callable[[float], float],
    low: float = -math.inf,
    high: float = math.inf,
    *,
    breaks: Sequence[float] = (),
) -> tuple[float, float]:
    """An integral over an interval by adaptive quadrature, and a bound on its error.

    Args:
        function: Of one variable.
        low: May be minus infinity.
        high: May be infinity.
        breaks: Where the function is not smooth, in increasing order; pieces are integrated apart.

    Example:
        >>> total, error = integral(lambda x: math.exp(-abs(x)), breaks=[0.0])
        >>> abs(total - 2) <= error < 1e-7
        True
    """
    ends = [low, *breaks, high]
    pieces = [
        scipy.integrate.quad(function, a, b, epsabs=1e-12, epsrel=1e-12, limit=200)
        for a, b in itertools.pairwise(ends)
    ]
    return math.fsum(piece[0] for piece in pieces), math.fsum(piece[1] for piece in pieces)


def quadrature_case(
    function: Callable[[float], float],
    low: float = -math.inf,
    high: float = math.inf,
    *,
    bound: float,
    parameters: Mapping[str, Any],
    breaks: Sequence[float] = (),
) -> ExactCase:
    """``integral(function) <= bound`` as an exact case; the quadrature's error is the gap.

    Example:
        >>> case = quadrature_case(lambda x: x, 0.0, 1.0, bound=0.5, parameters={})
        >>> round(case.worst, 12), case.gap < 1e-12
        (0.5, True)
    """
    total, error = integral(function, low, high, breaks=breaks)
    return ExactCase(parameters, total, bound, error, tolerance=_ROUNDING)

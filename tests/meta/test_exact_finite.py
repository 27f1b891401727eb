"""What the exact rung needs no semidefinite program for, against known numbers."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import scipy.stats

from jaxlab.claims.exact.algebra import at_rationals, is_identity, squares
from jaxlab.claims.exact.finite import connected_graphs, enumerate_worst, expectation, integral
from jaxlab.claims.exact.reconstruct import Interpolant


@pytest.fixture(autouse=True)
def with_the_extra():
    for package in ("sympy", "networkx", "clarabel"):
        pytest.importorskip(package, reason="the exact rung needs pip install 'jaxlab[exact]'")


@pytest.mark.parametrize("count", [1, 4, 9])
def test_enumeration_gives_the_moments_of_the_binomial_law(count):
    p = Fraction(2, 7)
    coin = {0: 1 - p, 1: p}
    assert expectation(lambda *x: sum(x), *[coin] * count) == count * p
    second = expectation(lambda *x: sum(x) ** 2, *[coin] * count)
    assert second - (count * p) ** 2 == count * p * (1 - p)
    tail = expectation(lambda *x: float(sum(x) >= 2), *[{0: 5 / 7, 1: 2 / 7}] * count)
    assert tail == pytest.approx(scipy.stats.binom.sf(1, count, 2 / 7), rel=1e-13)


def test_a_law_adds_up_to_one():
    with pytest.raises(ValueError, match="got the sum 3/4"):
        expectation(lambda x: x, {0: Fraction(1, 2), 1: Fraction(1, 4)})


def test_connected_graphs_are_counted_as_in_the_encyclopedia_of_sequences():
    assert [sum(1 for _ in connected_graphs(n)) for n in range(1, 7)] == [1, 1, 2, 6, 21, 112]


def test_enumeration_finds_the_graph_of_least_connectivity():
    """Fiedler: the path has the least spectral gap, 2 (1 - cos(pi / n)), of connected graphs."""

    def gap(adjacency):
        laplacian = np.diag(adjacency.sum(axis=0)) - adjacency
        return 2 * (1 - math.cos(math.pi / 5)), float(np.linalg.eigvalsh(laplacian)[1])

    case = enumerate_worst(gap, connected_graphs(5), parameters={"nodes": 5})
    assert case.bound == pytest.approx(case.worst, rel=1e-12)
    assert math.isnan(enumerate_worst(lambda x: (x, 1), [0.0, math.nan], parameters={}).worst)


def test_quadrature_gives_gaussian_moments_within_its_own_error():
    def density(x):
        return math.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)

    for function, known in [(abs, math.sqrt(2 / math.pi)), (lambda x: x**4, 3.0)]:
        found, error = integral(lambda x, f=function: f(x) * density(x), breaks=[0.0])
        assert abs(found - known) <= error < 1e-9


def test_algebra_tells_true_from_false():
    cosine = "b**2 + c**2 - 2*b*c*k"  # the law of cosines, k in place of the cosine
    assert is_identity(f"{cosine} + 2*b*c*(k - 1)", "(b - c)**2")
    assert not is_identity(cosine, "(b - c)**2")
    assert is_identity("1/(1 - q) - 1", "q/(1 - q)")
    with pytest.raises(ValueError, match="must be exact"):
        is_identity("0.1*x", "x/10")
    pieces = squares("2*x**2 + 2*x*y + y**2 - 2*y + 5")
    assert pieces is not None
    assert all(weight > 0 for weight, _ in pieces)
    total = " + ".join(f"({weight})*({square})**2" for weight, square in pieces)
    assert is_identity(total, "2*x**2 + 2*x*y + y**2 - 2*y + 5")
    assert squares("x*y") is None
    assert squares("x**2 - 1") is None
    wrong = at_rationals("x*(1 - x)", "6/25", {"x": ["0", "1/2", "1"]}, parameters={})
    assert wrong.worst == pytest.approx(0.01)
    assert wrong.parameters == {"x": "1/2"}


@pytest.mark.parametrize(
    ("mu", "smoothness"), [(0.0, 2.0), (0.5, 2.0), (0.0, np.inf), (0.5, np.inf)]
)
def test_an_interpolant_belongs_to_its_class_and_meets_its_data(mu, smoothness, seed):
    """Data of a quadratic come back; elsewhere the inequalities of the class hold."""
    rng = np.random.default_rng(seed)
    curvature = np.array([mu, 1.0, min(smoothness, 5.0)])
    points = rng.normal(size=(4, 3))
    f = Interpolant(points, points * curvature, points**2 @ curvature / 2, smoothness, mu)
    for x, g, v in zip(f.points, f.gradients, f.values, strict=True):
        assert f.value(x) == pytest.approx(v, rel=1e-9)
        if smoothness < np.inf:
            np.testing.assert_allclose(f.gradient(x), g, atol=1e-6)
    for x, y in itertools.pairwise(rng.normal(size=(6, 3))):
        step = 0.7
        end = f.proximal(x, step)
        slope = (x - end) / step  # a subgradient at the proximal point
        assert (
            f.value(y) >= f.value(end) + slope @ (y - end) + mu / 2 * (y - end) @ (y - end) - 1e-9
        )
        if smoothness < np.inf:
            np.testing.assert_allclose(slope, f.gradient(end), atol=1e-5)
            line = f.value(x) + f.gradient(x) @ (y - x)
            square = (y - x) @ (y - x) / 2
            assert line + mu * square - 1e-9 <= f.value(y) <= line + smoothness * square + 1e-9

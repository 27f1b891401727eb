"""False theorems on matrices and on finite problems, most with sorting, pivots or ties in them.

They belong to the bench of ``benchmarks/false_theorems.py``, which measures what breaks them. The
keyword argument ``factor`` of a conclusion restores the true theorem.
"""

import functools
import itertools

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array

from jaxlab.claims import Claim, Comparison, at_most, at_most_in_ratio
from jaxlab.problems.sites import log_uniform, normal, site

false = functools.partial(Claim, expected="refuted", tightness="tight")


def is_finite(matrices: Array) -> Array:
    """All that is assumed of real matrices."""
    return jnp.isfinite(matrices).all()


def bottcher_wenzel(pair: Array, *, factor: float = 0.97) -> Comparison:
    """Equality: two matrix units, E_12 and E_21."""
    a, b = pair
    norms = jnp.sqrt(jnp.sum(a**2) * jnp.sum(b**2))
    commutator = jnp.sqrt(jnp.sum((a @ b - b @ a) ** 2))
    return at_most_in_ratio(commutator, factor * jnp.sqrt(2.0) * norms)


def bounded_matrix() -> Array:
    """Eight by eight, with entries in [-1, 1]."""
    return site("entries", dist.Uniform(-1.0, 1.0).expand([8, 8]))


def hadamard(matrix: Array, *, factor: float = 0.95) -> Comparison:
    """Equality: Hadamard matrices."""
    return at_most_in_ratio(jnp.abs(jnp.linalg.det(matrix)), factor * 8.0**4)


def growth(matrix: Array) -> Array:
    """The largest entry that elimination with partial pivoting meets, over the largest at first."""
    first = largest = jnp.abs(matrix).max()
    for step in range(len(matrix) - 1):
        pivot = step + jnp.argmax(jnp.abs(matrix[step:, step]))
        row, other = matrix[pivot], matrix[step]
        matrix = matrix.at[pivot].set(other).at[step].set(row)
        below = matrix[step + 1 :] - jnp.outer(matrix[step + 1 :, step] / row[step], row)
        matrix = matrix.at[step + 1 :].set(below)
        largest = jnp.maximum(largest, jnp.abs(below).max())
    return largest / first


def pivot_growth(matrix: Array, *, factor: float = 0.94) -> Comparison:
    """Equality: Wilkinson's matrix, 1 on the diagonal and in the last column, -1 below."""
    return at_most_in_ratio(growth(matrix), factor * 2.0 ** (len(matrix) - 1))


def two_positive() -> tuple[Array, Array]:
    """Two positive semidefinite matrices."""
    factors = normal("factors", 2, 5, 5)
    return factors[0] @ factors[0].T, factors[1] @ factors[1].T


def are_positive(matrices: tuple[Array, Array]) -> Array:
    """The least eigenvalue, relative to the largest; rounding makes it slightly negative."""
    values = jnp.linalg.eigvalsh(jnp.stack(matrices))
    return (values[:, 0] / values[:, -1]).min() + 1e-14


def square_is_monotone(matrices: tuple[Array, Array]) -> Comparison:
    """``(A + B)^2 - A^2`` would be positive semidefinite."""
    a, b = matrices
    total = a + b
    values = jnp.linalg.eigvalsh(total @ total - a @ a)
    return at_most(-values[0], 0.0, scale=values[-1])


def matrix_exponential(matrix: Array) -> Array:
    """Of a symmetric matrix."""
    values, frame = jnp.linalg.eigh(matrix)
    return (frame * jnp.exp(values)) @ frame.T


def three_symmetric() -> Array:
    """Three symmetric matrices of size 3."""
    raw = log_uniform("scale", 0.1, 3.0) * normal("raw", 3, 3, 3)
    return (raw + raw.transpose(0, 2, 1)) / 2


def are_symmetric(matrices: Array) -> Array:
    """Up to the rounding of a fused multiplication."""
    skew = jnp.abs(matrices - matrices.transpose(0, 2, 1)).max()
    return 1e-14 - skew / jnp.abs(matrices).max()


def golden_thompson_of_three(matrices: Array) -> Comparison:
    """For two matrices this is the theorem; for three even the right side's sign is free."""
    of_sum = jnp.trace(matrix_exponential(matrices.sum(0)))
    first, second, third = (matrix_exponential(matrix) for matrix in matrices)
    product = jnp.trace(first @ second @ third)
    return at_most(of_sum, product, scale=of_sum + jnp.abs(product))


def top_k_contraction(x: Array, *, factor: float = 1.05) -> Comparison:
    """Equality: all entries have one size. The four largest of twenty are kept."""
    lost = jnp.sort(x**2)[:-4].sum()
    return at_most_in_ratio(lost, (1 - factor * 4 / 20) * jnp.sum(x**2))


MACHINES = np.array([(0, *rest) for rest in itertools.product(range(3), repeat=6)])
"""All assignments of seven jobs to three machines, up to names."""


def makespan_of_lpt(jobs: Array) -> Array:
    """Longest processing time first, each to the machine that is free first."""
    loads = jnp.zeros(3)
    for job in jnp.sort(jobs)[::-1]:
        loads = loads.at[jnp.argmin(loads)].add(job)
    return loads.max()


def longest_first(jobs: Array, *, factor: float = 0.99) -> Comparison:
    """Equality: jobs of length 5, 5, 4, 4, 3, 3, 3."""
    best = (jnp.asarray(np.eye(3)[MACHINES]) * jobs[:, None]).sum(1).max(1).min()
    return at_most_in_ratio(makespan_of_lpt(jobs), factor * 11 / 9 * best)


def points_and_direction() -> tuple[Array, Array]:
    """Fifteen points in four dimensions, and a direction."""
    return normal("points", 15, 4), normal("direction", 4)


def median_in_hull(problem: tuple[Array, Array]) -> Comparison:
    """A point of the hull is nowhere below all points, in no direction."""
    points, direction = problem
    heights = points @ direction
    median = jnp.sort(points, axis=0)[7] @ direction
    width = jnp.maximum(heights.max(), median) - jnp.minimum(heights.min(), median)
    return at_most(heights.min(), median, scale=width)


TOO_GOOD = {
    "false/bottcher_wenzel": "3 %",
    "false/hadamard": "5 %",
    "false/pivot_growth": "6 %",
    "false/top_k": "5 %",
    "false/longest_first": "1 %",
}
"""By how much the constants are too good; the other claims are folklore."""

CLAIMS = (
    false(
        name="false/bottcher_wenzel",
        statement="|A B - B A|_F <= 0.97 sqrt(2) |A|_F |B|_F, n = 4",
        source="Bottcher and Wenzel 2008, with 1 in place of 0.97",
        families={"normal": lambda: normal("pair", 2, 4, 4)},
        conclusion=bottcher_wenzel,
        assumptions=is_finite,
    ),
    false(
        name="false/hadamard",
        statement="entries in [-1, 1]: |det A| <= 0.95 n^(n/2), n = 8",
        source="Hadamard 1893, with 1 in place of 0.95",
        families={"uniform": bounded_matrix},
        conclusion=hadamard,
        assumptions=lambda matrix: 1 - jnp.abs(matrix).max(),
    ),
    false(
        name="false/pivot_growth",
        statement="partial pivoting grows entries at most 0.94 * 2^(n-1) times, n = 4",
        source="Wilkinson 1961, with 1 in place of 0.94",
        families={"normal": lambda: normal("matrix", 4, 4)},
        conclusion=pivot_growth,
        assumptions=is_finite,
    ),
    false(
        name="false/square_is_monotone",
        statement="0 <= A <= B implies A^2 <= B^2, n = 5",
        source="folklore; Lowner 1934: t^2 is not operator monotone",
        families={"wishart": two_positive},
        conclusion=square_is_monotone,
        assumptions=are_positive,
    ),
    false(
        name="false/golden_thompson_of_three",
        statement="tr exp(A + B + C) <= tr exp(A) exp(B) exp(C) for symmetric matrices, n = 3",
        source="folklore; Lieb 1973: Golden and Thompson's inequality stops at two matrices",
        families={"symmetric": three_symmetric},
        conclusion=golden_thompson_of_three,
        assumptions=are_symmetric,
    ),
    false(
        name="false/top_k",
        statement="the 4 largest of 20 entries: |x - top(x)|^2 <= (1 - 1.05 * 4/20) |x|^2",
        source="Stich, Cordonnier and Jaggi 2018, with 1 in place of 1.05",
        families={"normal": lambda: normal("x", 20)},
        conclusion=top_k_contraction,
        assumptions=is_finite,
    ),
    false(
        name="false/longest_first",
        statement="7 jobs, 3 machines: longest first takes at most 0.99 * 11/9 of the optimum",
        source="Graham 1969, Theorem 2: 4/3 - 1/(3m), with 1 in place of 0.99",
        families={"uniform": lambda: site("jobs", dist.Uniform(0.0, 1.0).expand([7]))},
        conclusion=longest_first,
        assumptions=lambda jobs: jobs.min(),
    ),
    false(
        name="false/median_in_hull",
        statement="the coordinate-wise median of 15 points in R^4 lies in their convex hull",
        source="folklore; Small 1990: true in two dimensions, false from three on",
        families={"normal": points_and_direction},
        conclusion=median_in_hull,
        assumptions=lambda problem: jnp.linalg.norm(problem[1]),
    ),
)

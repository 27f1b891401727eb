"""Claims on memorization: what the concentration of the posterior does, exactly where it is known.

Shells and coverage are in ``memorization_coverage.py``, denoisers in ``memorization_denoisers.py``,
trajectories in ``memorization_trajectories.py``.
"""

import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from hypothesis import strategies as st
from jax.scipy.stats import norm
from jaxtyping import Array, Float

from jaxlab.claims import Claim, Comparison, Expectation, at_most, at_most_in_ratio, close_to
from jaxlab.core.locate import load_companion
from jaxlab.diffusion.memorization_bounds import capacity, posterior_weight_bounds
from jaxlab.diffusion.memorization_neighbours import (
    Neighbours,
    NoisyQueries,
    no_neighbours,
    observe_rows,
)
from jaxlab.problems.sites import log_uniform, normal, uniform
from jaxlab.stats.quadrature import gauss_legendre, normal_grid

NUM_TRIALS = 4000


class Cloud(NamedTuple):
    """Rows in any dimension, a level, and which side of an equality is asked about."""

    rows: Float[Array, "rows dim"]
    sigma: Float[Array, ""]
    side: Float[Array, ""]


def cloud(rows: int, dim: int) -> Cloud:
    """A NumPyro model: levels from a single row that matters to all of them."""
    side = jnp.sign(uniform("side", -1.0, 1.0))
    return Cloud(normal("rows", rows, dim), log_uniform("sigma", 0.1, 3.0), side)


def are_distinct(instance: Cloud) -> Array:
    """No two rows are equal, and the level is positive."""
    gaps = instance.rows[:, None] - instance.rows[None, :]
    squares = jnp.sum(gaps**2, axis=-1) + jnp.eye(len(instance.rows))
    return jnp.minimum(squares.min() - 1e-12, instance.sigma)


def met(rows: Array, queries: NoisyQueries, sigmas: Array) -> Neighbours:
    """What the library says that the queries know of all rows."""
    return observe_rows(no_neighbours(queries, sigmas), queries, sigmas, rows)


def two_estimates(
    instance: Cloud, *, key: Array, loud: float = 1.0, away: float = 0.0
) -> Expectation:
    """M2: the largest weight less whether the nearest row is the own one, moved to [0, 2].

    ``loud`` noise of twice the variance is a forgotten factor 2 in ``2 sigma^2``; queries that lie
    ``away`` from their rows are held out.
    """
    key_row, key_noise = jax.random.split(key)
    own = jax.random.randint(key_row, (NUM_TRIALS,), 0, len(instance.rows))
    signals = instance.rows[own] + away
    noise = loud * jax.random.normal(key_noise, signals.shape)
    seen = met(instance.rows, NoisyQueries(signals, noise), instance.sigma[None])
    difference = 1 / seen.total[0] - (seen.row[0] == own)
    two = jnp.asarray(2.0)
    return Expectation(1 + instance.side * difference, two / 2, two * 0, two)


class Line(NamedTuple):
    """Rows on a line of any direction, where the concentration is known in closed form."""

    gaps: Float[Array, " gaps"]
    direction: Float[Array, " dim"]
    sigma: Float[Array, ""]

    @property
    def positions(self) -> Array:
        """Along the line, in units of sigma."""
        return jnp.append(jnp.zeros(1), jnp.cumsum(self.gaps))

    @property
    def rows(self) -> Array:
        """In space."""
        unit = self.direction / jnp.sqrt(jnp.sum(self.direction**2))
        return self.sigma * self.positions[:, None] * unit[None, :]


def line(rows: int, dim: int) -> Line:
    """A NumPyro model."""
    gaps = uniform("gaps", 0.3, 6.0, rows - 1)
    return Line(gaps, normal("direction", dim) + 3.0, log_uniform("sigma", 0.01, 100.0))


def even_line(rows: int, dim: int) -> Line:
    """Equal gaps."""
    return Line(jnp.full(rows - 1, 4.0), jnp.ones(dim), jnp.asarray(1.0))


def is_line(instance: Line) -> Array:
    """Positions increase, and directions and levels are not 0."""
    return jnp.minimum(instance.gaps.min(), jnp.minimum(instance.sigma, jnp.ptp(instance.rows)))


def misidentified(instance: Line) -> Array:
    """``1 - W``: the row's noise carries it past the middle to a neighbour."""
    left = jnp.append(jnp.inf, instance.gaps)
    right = jnp.append(instance.gaps, jnp.inf)
    return jnp.mean(norm.cdf(-left / 2) + norm.cdf(-right / 2))


def degraded(instance: Line, *, ratio: float = 2.0, per_query: float = 1.0) -> Comparison:
    """M3, by a sum over an even grid of noise along the line, at five levels and in the limits.

    ``per_query`` divides by the sum over queries instead of that over rows.
    """
    rows = instance.positions[:, None]
    grid = normal_grid(161, reach=7.0)
    levels = jnp.append(ratio ** jnp.arange(-1.0, 4.0), jnp.array([0.02, 3e4]))
    queries = NoisyQueries(jnp.repeat(rows, 161, axis=0), jnp.tile(grid.nodes, len(rows))[:, None])
    seen = met(rows, queries, levels)
    weights = (1 / seen.total).reshape(len(levels), len(rows), -1)
    share = weights.sum(axis=1, keepdims=True) / len(rows)
    weights = jnp.where(per_query > 0, weights, weights / share)
    curve = (weights @ grid.weights).mean(axis=1)
    # Kinks in the middle between rows cost the grid the square of its spacing.
    slack, least = 1e-3, 1 / len(rows)
    left = jnp.concatenate([curve[1:5], curve, jnp.full(7, least), jnp.ones(1), curve[-1:]])
    right = jnp.concatenate([curve[:4], jnp.ones(7), curve, curve[-2:-1], jnp.full(1, least)])
    return at_most(left, right + slack)


class Pair(NamedTuple):
    """Two rows and a level."""

    first: Float[Array, " dim"]
    second: Float[Array, " dim"]
    ratio: Float[Array, ""]


def pair(dim: int) -> Pair:
    """A NumPyro model; the distance is ``ratio`` levels."""
    return Pair(normal("first", dim), normal("second", dim) + 4.0, log_uniform("ratio", 0.05, 8.0))


def are_two(instance: Pair) -> Array:
    """Apart, by a positive number of levels."""
    return jnp.minimum(jnp.abs(instance.first - instance.second).max(), instance.ratio)


def two_rows(instance: Pair, *, squared: float = 0.0) -> Comparison:
    """M4, by Gauss's rule on both sides of the middle; only noise along the difference matters."""
    apart = instance.second - instance.first
    distance = jnp.sqrt(jnp.sum(apart**2))
    sigma = distance / instance.ratio
    level = jnp.where(squared > 0, sigma**2, sigma)  # a mutant takes the variance for the level
    rule = gauss_legendre(60)
    middle = instance.ratio / 2

    def panel(low: Array, high: Array) -> tuple[Array, Array]:
        nodes = low + (high - low) * (rule.nodes + 1) / 2
        return nodes, rule.weights * (high - low) * norm.pdf(nodes)

    ends = [jnp.asarray(-9.0), middle - 1.0, middle, middle + 1.0, middle + 9.0]
    parts = [panel(low, high) for low, high in itertools.pairwise(ends)]
    nodes, weights = (jnp.concatenate(part) for part in zip(*parts, strict=True))
    rows = jnp.stack([instance.first, instance.second])
    signals = jnp.broadcast_to(instance.first, (len(nodes), len(apart)))
    queries = NoisyQueries(signals, nodes[:, None] * apart[None, :] / distance)
    largest = 1 / met(rows, queries, sigma[None]).total[0]
    return close_to(weights @ largest, norm.cdf(distance / (2 * level)), allowance=1e-8)


def bhattacharyya(instance: Line, *, eight: float = 8.0) -> Comparison:
    """M5 for what is lost, ``1 - W``; another constant is another level."""
    levels = instance.sigma[None] * jnp.sqrt(eight / 8)
    lower = posterior_weight_bounds(instance.rows, levels).lower[0]
    return at_most_in_ratio(misidentified(instance), 1 - lower)


class Corners(NamedTuple):
    """A regular simplex with ``side * sqrt(2)`` between any two rows, in units of the level."""

    side: Float[Array, ""]


def corners() -> Corners:
    """A NumPyro model, around where concentration turns."""
    return Corners(uniform("side", 0.2, 8.0))


def fano(instance: Corners, *, rows: int, two: float = 2.0, variance: float = 1.0) -> Comparison:
    """M6, for rows ``side e_i``: ``W = P(Z_1 + side > all of Z_2, ..., Z_n)`` is one integral."""
    grid = normal_grid(201)
    weight = grid.mean(lambda z: norm.cdf(z + instance.side) ** (rows - 1))
    eigenvalues = jnp.full(rows - 1, instance.side**2 / rows) * variance
    most = (capacity(eigenvalues, jnp.ones(1))[0] + jnp.log(two)) / jnp.log(rows)
    return at_most_in_ratio(weight, most)


def fano_on_a_line(
    instance: Line, *, rows: int, two: float = 2.0, variance: float = 1.0
) -> Comparison:
    """M6, for rows on a line, with the library's own covariance."""
    levels = instance.sigma[None] / jnp.sqrt(variance)
    least = posterior_weight_bounds(instance.rows, levels).upper[0]
    least = least + jnp.log(two / 2) / jnp.log(rows)
    return at_most_in_ratio(1 - misidentified(instance), least)


def fano_anywhere(
    instance: Corners | Line, *, rows: int, two: float = 2.0, variance: float = 1.0
) -> Comparison:
    """M6 for both families."""
    if isinstance(instance, Line):
        return fano_on_a_line(instance, rows=rows, two=two, variance=variance)
    return fano(instance, rows=rows, two=two, variance=variance)


CLAIMS = (
    Claim(
        name="memorization/identification",
        statement="W = E max_i w_i = P(the row nearest to x_I + sigma Z is x_I), rows distinct",
        source="derived: w is the posterior of I; the best guess of it is the nearest row",
        families={"cloud": cloud},
        conclusion=two_estimates,
        assumptions=are_distinct,
        sizes={"rows": st.just(6), "dim": st.just(3)},
        typical={"rows": 6, "dim": 3},
        stochastic=True,
        samples=12,
        rungs=("sample",),
        tightness="tight",
        mutants={
            "2 forgotten in 2 sigma^2": {"loud": 2**0.5},
            "held-out queries": {"away": 1.0},
        },
    ),
    Claim(
        name="memorization/degradation",
        statement="1/n <= W <= 1; W does not rise with sigma; W -> 1 at 0 and 1/n at infinity",
        source="derived: more noise is a worse channel, and W is the best guess's success",
        families={"line": line},
        conclusion=degraded,
        assumptions=is_line,
        sizes={"rows": st.sampled_from([2, 5]), "dim": st.just(1)},
        typical={"rows": 5, "dim": 1},
        samples=200,
        restarts=2,
        rungs=("explore", "sample"),
        mutants={"weights sum to 1 over queries": {"per_query": 0.0}},
    ),
    Claim(
        name="memorization/two_rows",
        statement="n = 2: W = Phi(|x_1 - x_2| / (2 sigma))",
        source="derived: noise along the difference must not pass the middle",
        families={"pair": pair},
        conclusion=two_rows,
        assumptions=are_two,
        sizes={"dim": st.sampled_from([1, 5])},
        typical={"dim": 5},
        samples=300,
        restarts=4,
        rungs=("explore", "sample"),
        tightness="tight",
        mutants={"sigma^2 for sigma": {"squared": 1.0}},
    ),
    Claim(
        name="memorization/bhattacharyya",
        statement="W >= 1 - (1/2n) sum_{i != j} exp(-|x_i - x_j|^2 / (8 sigma^2))",
        source="derived: w_j <= w_j/(w_i + w_j) <= sqrt(w_j/w_i)/2, and its expectation",
        families={"line": line},
        conclusion=bhattacharyya,
        assumptions=is_line,
        sizes={"rows": st.sampled_from([2, 4]), "dim": st.sampled_from([1, 3])},
        typical={"rows": 4, "dim": 3},
        boundary={"equal gaps": even_line},
        tolerance=1e6,  # 1 - W is 1e-3 or more, and squared distances lose five digits
        samples=4000,
        restarts=8,
        mutants={"4 for 8": {"eight": 4.0}, "2 for 8": {"eight": 2.0}},
    ),
    Claim(
        name="memorization/fano",
        statement="W <= (log det(I + Sigma/sigma^2)/2 + log 2) / log n",
        source="derived: Fano's inequality; the index tells no more than a Gaussian of covariance",
        families={"simplex": corners, "line": line},
        conclusion=fano_anywhere,
        assumptions=lambda instance: (
            is_line(instance) if isinstance(instance, Line) else instance.side
        ),
        sizes={"rows": st.sampled_from([3, 2000]), "dim": st.just(2)},
        typical={"rows": 2000, "dim": 2},
        samples=1000,
        restarts=8,
        rungs=("explore", "sample", "attack"),
        mutants={"Sigma / (2 sigma^2)": {"variance": 0.5}, "log 2 forgotten": {"two": 1.0}},
    ),
    *load_companion("proofs_checks", "memorization_coverage").CLAIMS,
    *load_companion("proofs_checks", "memorization_denoisers").CLAIMS,
    *load_companion("proofs_checks", "memorization_trajectories").CLAIMS,
)

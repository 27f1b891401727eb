"""Claims of the paper on shells and coverage: M1, M7, M8 and M12."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jax.scipy.special import gammainc, gammaincc
from jaxtyping import Array, Float

from jaxlab.claims import Claim, Comparison, ExactCase, Expectation, at_most, at_most_in_ratio
from jaxlab.diffusion.memorization_neighbours import (
    Neighbours,
    NoisyQueries,
    no_neighbours,
    observe_rows,
)
from jaxlab.diffusion.memorization_shells import ShellRadii, shell_probability, shell_radii
from jaxlab.problems.sites import log_uniform, normal, uniform

WIDTH = 0.5
"""Of shells where balls must show: an inner ball of noise is then likely."""
NUM_TRIALS = 4000


class Width(NamedTuple):
    """``c`` as a fraction of its largest value, and a level."""

    fraction: Float[Array, ""]
    sigma: Float[Array, ""]


def width() -> Width:
    """A NumPyro model."""
    return Width(uniform("fraction", 1e-4, 1.0), log_uniform("sigma", 0.1, 10.0))


def widest() -> Width:
    """The inner radius is 0."""
    return Width(jnp.asarray(1.0), jnp.asarray(1.0))


def is_width(instance: Width) -> Array:
    """Inside of (0, 1], at a positive level."""
    fraction, sigma = instance
    return jnp.minimum(jnp.minimum(fraction, 1 - fraction + 1e-300), sigma)


def tails(
    instance: Width, *, dim: int, outer: float = 1.0, swapped: float = 0.0, scaled: float = 1.0
) -> Comparison:
    """M1, both tails of the noise's length against ``exp(-c)``.

    ``outer`` multiplies the term ``2c``; ``scaled`` is the power of the level in the radii.
    """
    c = instance.fraction * dim / 4
    radii = shell_radii(dim, c)
    inner = jnp.where(swapped > 0, radii.outer, radii.inner)
    largest = jnp.where(swapped > 0, radii.inner, radii.outer)
    largest = jnp.sqrt(jnp.maximum(largest**2 - 2 * c * (1 - outer), 0.0))
    # |sigma Z| against sigma r is |Z| against r.
    factor = instance.sigma ** (scaled - 1)
    low, high = ((factor * radius) ** 2 for radius in (inner, largest))
    half = dim / 2
    left = jnp.stack([gammainc(half, low / 2), gammaincc(half, high / 2)])
    return at_most_in_ratio(left, jnp.exp(-c) * (1 + 1e-12))


def exact_tails(
    *, outer: float = 1.0, swapped: float = 0.0, scaled: float = 1.0
) -> list[ExactCase]:
    """M1 at a grid of dimensions and widths, by SciPy's chi-squared law."""
    import scipy.stats

    cases = []
    for dim in (2, 3, 10, 64, 625, 3072):
        for c in sorted({0.1 * dim / 4, dim / 4, min(5.0, dim / 4)}):
            low, high = (float(radius) for radius in shell_radii(dim, np.float64(c)))
            high = math.sqrt(max(high**2 - 2 * c * (1 - outer), 0.0))
            low, high = (high, low) if swapped else (low, high)
            factor = 3.0 ** (scaled - 1)
            below = scipy.stats.chi2.cdf((factor * low) ** 2, dim)
            above = scipy.stats.chi2.sf((factor * high) ** 2, dim)
            worst = max(float(below), float(above))
            cases.append(ExactCase({"dim": dim, "c": c}, worst, math.exp(-c), tolerance=1e-12))
    return cases


class Held(NamedTuple):
    """Rows, a held-out signal, a level, and which side of the sandwich is asked about."""

    rows: Float[Array, "rows dim"]
    signal: Float[Array, " dim"]
    sigma: Float[Array, ""]
    side: Float[Array, ""]


def held(rows: int, dim: int) -> Held:
    """A NumPyro model: one row is near, and the others are from near to out of reach."""
    side = jnp.sign(uniform("side", -1.0, 1.0))
    sigma = log_uniform("sigma", 0.3, 5.0)
    table = log_uniform("spread", 0.5, 20.0) * sigma * normal("rows", rows, dim)
    signal = table[0] + log_uniform("reach", 0.05, 1.0) * sigma * normal("signal", dim)
    return Held(table, signal, sigma, side)


def is_held_out(instance: Held) -> Array:
    """No row is the signal."""
    apart = jnp.sum((instance.rows - instance.signal[None]) ** 2, axis=1).min()
    return jnp.minimum(apart - 1e-12, instance.sigma)


def meet(rows: Array, queries: NoisyQueries, sigmas: Array, radii: ShellRadii) -> Neighbours:
    """What the library says that the queries know of all rows."""
    return observe_rows(no_neighbours(queries, sigmas), queries, sigmas, rows, radii=radii)


def sandwich(
    instance: Held, *, dim: int, key: Array, inner: float = 1.0, noise: float = 1.0
) -> Expectation:
    """M7, given one held-out signal: below the union bound, or above the likeliest shell."""
    signals = jnp.broadcast_to(instance.signal, (NUM_TRIALS, dim))
    queries = NoisyQueries(signals, noise * jax.random.normal(key, signals.shape))
    radii = shell_radii(dim, WIDTH)
    radii = radii._replace(inner=inner * radii.inner)
    sigmas = instance.sigma[None]
    covered = meet(instance.rows, queries, sigmas, radii).covered[0].astype(float)
    squares = jnp.sum((instance.rows - instance.signal) ** 2, axis=1)
    reached = shell_probability(squares / instance.sigma**2, dim, WIDTH)
    lower, upper = reached.max(), jnp.minimum(1.0, reached.sum())
    above = instance.side > 0
    values = jnp.where(above, covered, 1 - covered)
    bound = jnp.where(above, upper, 1 - lower)
    return Expectation(values, bound, jnp.zeros(()), jnp.ones(()))


class Crowd(NamedTuple):
    """Rows, held-out signals and their noise."""

    rows: Float[Array, "rows dim"]
    signals: Float[Array, "signals dim"]
    noise: Float[Array, "signals dim"]
    sigma: Float[Array, ""]
    scale: Float[Array, ""]
    axis: Float[Array, "two dim"]


def crowd(rows: int, dim: int) -> Crowd:
    """A NumPyro model."""
    return Crowd(
        normal("rows", rows, dim),
        normal("signals", 6, dim),
        normal("noise", 6, dim),
        log_uniform("sigma", 0.3, 5.0),
        log_uniform("scale", 0.1, 10.0),
        normal("axis", 2, dim) + 0.1,
    )


def are_apart(instance: Crowd) -> Array:
    """No signal is a row, numbers are positive, and no axis of reflection is 0."""
    gaps = instance.signals[:, None] - instance.rows[None, :]
    apart = jnp.sum(gaps**2, axis=-1).min() - 1e-9
    positive = jnp.minimum(instance.sigma, instance.scale)
    return jnp.minimum(jnp.minimum(apart, positive), jnp.abs(instance.axis).max(axis=1).min())


def union(instance: Crowd, *, dim: int, every: float = 0.0) -> Comparison:
    """M8, for the same noise: a query is covered if one of the rows covers it, and in the limits.

    A mutant wants every row to cover it.
    """
    radii = shell_radii(dim, WIDTH)
    queries = NoisyQueries(instance.signals, instance.noise)
    levels = jnp.stack([instance.sigma, jnp.asarray(1e-7), jnp.asarray(1e9)])

    whole = meet(instance.rows, queries, levels, radii)
    places = instance.signals + levels[:, None, None] * instance.noise
    gaps = places[:, None] - instance.rows[:, None]  # [levels, rows, signals, dim]
    lengths = jnp.sqrt(jnp.sum(gaps**2, axis=-1)) / levels[:, None, None]
    alone = ((lengths >= radii.inner) & (lengths <= radii.outer)).swapaxes(0, 1)
    union = jnp.where(every > 0, alone.all(axis=0), whole.covered).astype(float)
    # Rows add up in the posterior just so.
    nearest = whole.nearest[0] / levels[0] ** 2
    added = jnp.exp((nearest - lengths[0] ** 2) / 2).sum(axis=0)
    added = jnp.abs(added / whole.total[0] - 1)
    own = jnp.sqrt(jnp.sum(instance.noise**2, axis=1))
    in_own = ((own >= radii.inner) & (own <= radii.outer)).astype(float)
    any_row = alone.any(axis=0).astype(float)
    left = jnp.concatenate([any_row.ravel(), union.ravel(), union[1], in_own, added])
    right = jnp.concatenate([union.ravel(), any_row.ravel(), jnp.zeros(6), union[2], jnp.zeros(6)])
    return at_most(left, right + 1e-9)


def exact_union(*, every: float = 0.0) -> list[ExactCase]:
    """M8 for one row, ``C = q_d``, and in both limits of it, by SciPy's noncentral chi-squared."""
    import scipy.stats

    del every
    cases = []
    for dim, c in ((64, 3.0),):
        low, high = (float(radius) ** 2 for radius in shell_radii(dim, np.float64(c)))
        places = dim * np.array([1e-12, 0.3, 1.0, 3.0, 100.0])
        expected = np.diff(scipy.stats.ncx2.cdf([[low], [high]], dim, places), axis=0)[0]
        found = np.asarray(shell_probability(jnp.asarray(places), dim, c))
        for place, error in zip(places, np.abs(found - expected), strict=True):
            parameters = {"dim": dim, "noncentrality": float(place)}
            cases.append(ExactCase(parameters, float(error), 0.0, tolerance=1e-10))
    return cases


def reflect(table: Array, axis: Array) -> Array:
    """Householder's reflection of every row."""
    return table - 2 * (table @ axis / (axis @ axis))[:, None] * axis[None, :]


def moved(instance: Crowd, *, dim: int, absolute: float = 0.0) -> Comparison:
    """M12: turned, moved and scaled with the level, everything stays."""
    scale, shift = instance.scale, 3 * instance.axis[0]
    radii = shell_radii(dim, WIDTH)

    def turned(table: Array) -> Array:
        return reflect(reflect(table, instance.axis[0]), instance.axis[1])

    before = meet(
        instance.rows,
        NoisyQueries(instance.signals, instance.noise),
        instance.sigma[None],
        radii,
    )
    # A mutant keeps the shells' radii in units of the data.
    kept = scale**-absolute
    after = meet(
        scale * turned(instance.rows) + shift[None, :],
        NoisyQueries(scale * turned(instance.signals) + shift[None, :], turned(instance.noise)),
        scale * instance.sigma[None],
        ShellRadii(kept * radii.inner, kept * radii.outer),
    )
    weights = jnp.abs(1 / after.total - 1 / before.total)
    covered = jnp.abs(after.covered.astype(float) - before.covered)
    distances = jnp.abs(after.nearest / (scale**2 * before.nearest) - 1)
    return at_most(jnp.stack([weights, covered, distances]), 1e-9)


DIMS = st.sampled_from([3, 8])
CLAIMS = (
    Claim(
        name="memorization/shell_mass",
        statement="0 < c <= d/4: P(|Z| < r_in) <= exp(-c) and P(|Z| > r_out) <= exp(-c)",
        source="arXiv:2602.17846, Lemma 4.5; Laurent and Massart 2000, Lemma 1",
        families={"width": width},
        conclusion=tails,
        assumptions=is_width,
        sizes={"dim": st.sampled_from([2, 64, 3072])},
        typical={"dim": 64},
        boundary={"inner radius 0": widest},
        exact=exact_tails,
        tolerance=1e4,  # incomplete gamma functions of large arguments
        samples=2000,
        rungs=("explore", "sample", "exact"),
        mutants={
            "2c dropped": {"outer": 0.0},
            "radii swapped": {"swapped": 1.0},
            "radii not times sigma": {"scaled": 0.0},
        },
    ),
    Claim(
        name="memorization/coverage_sandwich",
        statement="E max_i q_d(|X - x_i|^2/sigma^2) <= C <= E min(1, sum_i q_d(.))",
        source="derived: one event of the union, and the union bound; each is noncentral chi2",
        families={"held out": held},
        conclusion=sandwich,
        assumptions=is_held_out,
        sizes={"rows": st.just(3), "dim": st.just(12)},
        typical={"rows": 3, "dim": 12},
        stochastic=True,
        samples=24,
        rungs=("sample",),
        mutants={"balls for shells": {"inner": 0.0}, "noise forgotten": {"noise": 0.0}},
    ),
    Claim(
        name="memorization/coverage_union",
        statement=(
            "covered by one row = covered; sigma -> 0 covers nobody; sigma -> infinity leaves "
            "|Z| in the shell; n = 1: C = E q_d"
        ),
        source="derived: the event is a union, and distances over sigma tend to infinity or |Z|",
        families={"crowd": crowd},
        conclusion=union,
        assumptions=are_apart,
        sizes={"rows": st.sampled_from([1, 4]), "dim": DIMS},
        typical={"rows": 4, "dim": 8},
        exact=exact_union,
        samples=1000,
        rungs=("explore", "sample", "exact"),
        mutants={"intersection for union": {"every": 1.0}},
    ),
    Claim(
        name="memorization/invariance",
        statement="turning, moving and scaling rows and sigma together changes neither W nor C",
        source="derived: only distances over sigma enter",
        families={"crowd": crowd},
        conclusion=moved,
        assumptions=are_apart,
        sizes={"rows": st.just(4), "dim": DIMS},
        typical={"rows": 4, "dim": 8},
        samples=1000,
        rungs=("explore", "sample"),
        tightness="tight",
        mutants={"absolute radii": {"absolute": 1.0}},
    ),
)

"""Inequalities whose constant was made a few per cent too good: every claim here is false.

They belong to the bench of ``benchmarks/false_theorems.py``, which measures what breaks them. The
keyword argument of each conclusion restores the true theorem, which holds with equality somewhere
or comes arbitrarily close.
"""

import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array

from jaxlab.claims import Claim, Comparison, at_most_in_ratio
from jaxlab.problems.sites import log_uniform, normal, site

false = functools.partial(Claim, expected="refuted", tightness="tight")


def simplex(name: str, size: int) -> Array:
    """A point that is uniform on the simplex."""
    weights = site(name, dist.Exponential(1.0).expand([size]))
    return weights / weights.sum()


def is_finite(instance: object) -> Array:
    """All that is assumed of real numbers."""
    return jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(instance)]).all()


def spectrum_and_vector() -> tuple[Array, Array]:
    """Twenty eigenvalues that reach both ends of [1, kappa], and a vector in that basis."""
    kappa = log_uniform("kappa", 10.0, 1e3)
    position = site("position", dist.Uniform(0.0, 1.0).expand([20])).at[0].set(0).at[-1].set(1)
    return 1 + (kappa - 1) * position, normal("x", 20)


def kantorovich(problem: tuple[Array, Array], *, factor: float = 0.98) -> Comparison:
    """Equality: the energy is halved between the two ends of the spectrum."""
    values, x = problem
    low, high = values.min(), values.max()
    product = jnp.sum(values * x**2) * jnp.sum(x**2 / values) / jnp.sum(x**2) ** 2
    return at_most_in_ratio(product, factor * (low + high) ** 2 / (4 * low * high))


def two_vectors() -> tuple[Array, Array]:
    """Twelve numbers each between 1 and 3."""
    between = dist.Uniform(1.0, 3.0).expand([12])
    return site("a", between), site("b", between)


def within_one_and_three(vectors: tuple[Array, Array]) -> Array:
    """How far inside the interval all entries are."""
    both = jnp.stack(vectors)
    return jnp.minimum(both - 1, 3 - both).min()


def polya_szego(vectors: tuple[Array, Array], *, factor: float = 0.98) -> Comparison:
    """Equality: one half has a = 3 and b = 1, the other a = 1 and b = 3."""
    a, b = vectors
    ratio = jnp.sum(a**2) * jnp.sum(b**2) / jnp.sum(a * b) ** 2
    return at_most_in_ratio(ratio, factor * (3 + 1 / 3) ** 2 / 4)


def tilted_atoms() -> tuple[Array, Array, Array]:
    """A variable with twelve values in [0, 1], its law, and a point of its generating function."""
    atoms = site("atoms", dist.Uniform(0.0, 1.0).expand([12]))
    return atoms, simplex("law", 12), log_uniform("tilt", 0.1, 10.0)


def law_on_unit_interval(problem: tuple[Array, Array, Array]) -> Array:
    """Values in [0, 1], and a law that sums to 1."""
    atoms, law, tilt = problem
    sums_to_one = 1e-12 - jnp.abs(law.sum() - 1)
    return jnp.stack([atoms.min(), 1 - atoms.max(), law.min(), tilt, sums_to_one]).min()


def hoeffding_lemma(problem: tuple[Array, Array, Array], *, factor: float = 0.95) -> Comparison:
    """Equality in the limit of small tilts: half of the mass at each end."""
    atoms, law, tilt = problem
    power = tilt * (atoms - law @ atoms)
    # The linear term has mean zero; leaving it out keeps the difference exact for small tilts.
    generating = jnp.log1p(jnp.maximum(law @ (jnp.expm1(power) - power), 0))
    return at_most_in_ratio(generating, factor * tilt**2 / 8)


def two_laws() -> tuple[Array, Array]:
    """Two laws on twelve symbols."""
    return simplex("p", 12), simplex("q", 12)


def total_variation(p: Array, q: Array) -> Array:
    """Half of the distance in the sum norm."""
    return jnp.abs(p - q).sum() / 2


def divergence(p: Array, q: Array) -> Array:
    """Kullback and Leibler's, as a sum of non-negative terms."""
    excess = p / q - 1
    return jnp.sum(q * jnp.maximum((1 + excess) * jnp.log1p(excess) - excess, 0))


def apart(laws: tuple[Array, Array]) -> Array:
    """Nearly equal laws are left out: rounding would decide about them."""
    return total_variation(*laws) - 1e-4


def pinsker(laws: tuple[Array, Array], *, factor: float = 1.02) -> Comparison:
    """Equality in the limit q -> p: p / q takes two values, each on half of the mass."""
    return at_most_in_ratio(2 * factor * total_variation(*laws) ** 2, divergence(*laws))


def values_and_law() -> tuple[Array, Array]:
    """A variable with twenty values."""
    return normal("atoms", 20), simplex("law", 20)


def cantelli(problem: tuple[Array, Array], *, factor: float = 0.97) -> Comparison:
    """Equality: two values. Each value is a threshold, if it is one deviation above the mean."""
    atoms, law = problem
    centred = atoms - law @ atoms
    variance = law @ centred**2
    tails = jnp.where(atoms >= atoms[:, None], law, 0).sum(1)
    is_high = centred >= jnp.sqrt(variance)
    return at_most_in_ratio(
        jnp.where(is_high, tails, 0), factor * variance / (variance + centred**2)
    )


def mean_median(x: Array, *, factor: float = 0.95) -> Comparison:
    """Equality for 2m + 1 numbers: m + 1 of them coincide, and so do the others."""
    half = len(x) // 2
    distance = jnp.abs(x.mean() - jnp.sort(x)[half])
    return at_most_in_ratio(distance, factor * math.sqrt(half / (half + 1)) * x.std())


def samuelson(x: Array, *, factor: float = 0.95) -> Comparison:
    """Equality: all numbers but one coincide."""
    return at_most_in_ratio(jnp.abs(x - x.mean()).max(), factor * math.sqrt(len(x) - 1) * x.std())


def logits_and_direction() -> tuple[Array, Array]:
    """A point and a direction in twelve dimensions."""
    return 3 * normal("logits", 12), normal("direction", 12)


def log_sum_exp(problem: tuple[Array, Array], *, factor: float = 0.96) -> Comparison:
    """Equality in the limit: two symbols share the mass, and the direction tells them apart."""
    logits, direction = problem
    law = jax.nn.softmax(logits)
    curvature = law @ (direction - law @ direction) ** 2
    return at_most_in_ratio(curvature, factor * 0.5 * jnp.sum(direction**2))


def hardy(a: Array, *, constant: float = 2.17) -> Comparison:
    """Equality: the first singular vector of the matrix of averages."""
    averages = jnp.cumsum(a) / jnp.arange(1, len(a) + 1)
    return at_most_in_ratio(jnp.sum(averages**2), constant * jnp.sum(a**2))


SIGNS = np.array([(1, *rest) for rest in itertools.product((-1, 1), repeat=9)], dtype=float)


def khintchine(a: Array, *, factor: float = 1.02) -> Comparison:
    """Equality: two equal coefficients, and zeros."""
    mean = jnp.abs(jnp.asarray(SIGNS) @ a).mean()
    return at_most_in_ratio(factor * jnp.sqrt(jnp.sum(a**2) / 2), mean)


CUBE = np.array(list(itertools.product((0, 1), repeat=4)))
WALSH = (-1.0) ** (CUBE @ CUBE.T)
"""The characters of the cube {0, 1}^4."""


def hypercontractivity(f: Array, *, noise: float = 0.6) -> Comparison:
    """Equality: constants; the true noise is 1 / sqrt(3)."""
    smoothed = jnp.asarray(WALSH) @ (noise ** CUBE.sum(1) * (jnp.asarray(WALSH) @ f)) / len(f)
    return at_most_in_ratio(jnp.mean(smoothed**4) ** 0.25, jnp.sqrt(jnp.mean(f**2)))


TOO_GOOD = {
    "false/kantorovich": "2 %",
    "false/polya_szego": "2 %",
    "false/hoeffding_lemma": "5 %",
    "false/pinsker": "2 %",
    "false/cantelli": "3 %",
    "false/mean_median": "5 %",
    "false/samuelson": "5 %",
    "false/log_sum_exp": "4 %",
    "false/hardy": "2.6 %",
    "false/khintchine": "2 %",
    "false/hypercontractivity": "4 %",
}
"""By how much the constants are too good."""

CLAIMS = (
    false(
        name="false/kantorovich",
        statement="<x, A x> <x, A^-1 x> <= 0.98 (m + M)^2 / (4 m M) |x|^4, n = 20",
        source="Kantorovich 1948, with 1 in place of 0.98",
        families={"spectrum": spectrum_and_vector},
        conclusion=kantorovich,
        assumptions=lambda problem: problem[0].min(),
    ),
    false(
        name="false/polya_szego",
        statement="a_i, b_i in [1, 3]: |a|^2 |b|^2 <= 0.98 (3 + 1/3)^2 / 4 <a, b>^2, n = 12",
        source="Polya and Szego 1925, with 1 in place of 0.98",
        families={"uniform": two_vectors},
        conclusion=polya_szego,
        assumptions=within_one_and_three,
    ),
    false(
        name="false/hoeffding_lemma",
        statement="X in [0, 1]: log E exp(t (X - E X)) <= 0.95 t^2 / 8, 12 values",
        source="Hoeffding 1963, (4.16), with 1 in place of 0.95",
        families={"atoms": tilted_atoms},
        conclusion=hoeffding_lemma,
        assumptions=law_on_unit_interval,
    ),
    false(
        name="false/pinsker",
        statement="KL(p, q) >= 2.04 TV(p, q)^2, 12 symbols",
        source="Pinsker 1960, Csiszar 1967, with 2 in place of 2.04",
        families={"simplex": two_laws},
        conclusion=pinsker,
        assumptions=apart,
    ),
    false(
        name="false/cantelli",
        statement="t >= sd X: P(X - E X >= t) <= 0.97 Var X / (Var X + t^2), 20 values",
        source="Cantelli 1928, with 1 in place of 0.97",
        families={"atoms": values_and_law},
        conclusion=cantelli,
        assumptions=lambda problem: 1e-12 - jnp.abs(problem[1].sum() - 1),
    ),
    false(
        name="false/mean_median",
        statement="21 numbers: |mean - median| <= 0.95 sqrt(10/11) standard deviations",
        source="Hotelling and Solomons 1932; with 1 in place of 0.95 it is Cantelli's inequality",
        families={"normal": lambda: normal("x", 21)},
        conclusion=mean_median,
        assumptions=is_finite,
    ),
    false(
        name="false/samuelson",
        statement="20 numbers: |x_i - mean| <= 0.95 sqrt(19) standard deviations",
        source="Samuelson 1968, with 1 in place of 0.95",
        families={"normal": lambda: normal("x", 20)},
        conclusion=samuelson,
        assumptions=is_finite,
    ),
    false(
        name="false/log_sum_exp",
        statement="log-sum-exp of 12 numbers is 0.48-smooth",
        source="Popoviciu 1935 on variances, which gives 1/2 in place of 0.48",
        families={"normal": logits_and_direction},
        conclusion=log_sum_exp,
        assumptions=is_finite,
    ),
    false(
        name="false/hardy",
        statement="a >= 0: sum_k ((a_1 + ... + a_k) / k)^2 <= 2.17 sum_k a_k^2, n = 20",
        source="Hardy 1920 with 4 for all n; for n = 20 a squared matrix norm, 2.2272",
        families={"exponential": lambda: site("a", dist.Exponential(1.0).expand([20]))},
        conclusion=hardy,
        assumptions=lambda a: a.min(),
    ),
    false(
        name="false/khintchine",
        statement="random signs: E |sum_i s_i a_i| >= 1.02 |a| / sqrt(2), n = 10",
        source="Szarek 1976, with 1 in place of 1.02",
        families={"normal": lambda: normal("a", 10)},
        conclusion=khintchine,
        assumptions=is_finite,
    ),
    false(
        name="false/hypercontractivity",
        statement="f on {-1, 1}^4: |T_rho f|_4 <= |f|_2 for rho = 0.6",
        source="Bonami 1970, with rho <= 1 / sqrt(3) = 0.577",
        families={"normal": lambda: normal("f", 16)},
        conclusion=hypercontractivity,
        assumptions=is_finite,
    ),
)

"""Claims on what no adaptive learner can do, and on what more samples or tasks change.

Small families are enumerated: every sequence of tasks, so that the Bayes rule's error is exact.
"""

import itertools

import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jaxtyping import Array

from jaxlab.claims import Claim, Comparison, at_most, at_most_in_ratio, close_to
from jaxlab.core.locate import load_companion
from jaxlab.problems.sites import log_uniform, uniform
from jaxlab.theory.multitask_laws import (
    bernstein_constant,
    chi2_divergence,
    count_cells,
    hellinger_squared,
    kl_divergence,
    task_probabilities,
    transfer_constant,
)
from jaxlab.theory.multitask_limits import TaskFamily, adaptive_error_bounds, mixture_pmf


def families(tasks: int = 3) -> TaskFamily:
    """A NumPyro model: few tasks, of any quality."""
    return TaskFamily(
        uniform("beta", 0.1, 0.9),
        uniform("eps_good", 0.01, 0.95),
        log_uniform("eps_bad", 1e-4, 0.5),
        tasks * uniform("share", 0.05, 0.95),
        jnp.asarray(float(tasks)),
    )


def legal(family: TaskFamily) -> Array:
    """Exponents and risks inside (0, 1), and no more good tasks than tasks."""
    inside = jnp.stack([family.beta, family.eps_good, family.eps_bad])
    ends = jnp.minimum(inside.min(), 1 - inside.max())
    return jnp.minimum(ends, family.num_tasks - family.num_good)


def product_laws(n: int, family: TaskFamily, tasks: int) -> tuple[Array, Array]:
    """The laws of every sequence of tasks' counts, under both signs."""
    law, excess = mixture_pmf(n, family)
    rows = np.array(list(itertools.product(range(len(law)), repeat=tasks)))
    return law[rows].prod(axis=1), (law - excess)[rows].prod(axis=1)


def in_the_class(family: TaskFamily, *, exponent: float = 1.0, rank: float = 1.0) -> Comparison:
    """1: Bernstein's constant is 1 for both types, and so is that of transfer from bad to good."""
    found = []
    for eps in (family.eps_good, family.eps_bad):
        p, margin = task_probabilities(eps, family.beta)
        wrong = jnp.where(exponent > 0, margin, eps**family.beta)
        found.append(bernstein_constant(p, wrong, family.beta))
    rho = rank * jnp.log(family.eps_bad) / jnp.log(family.eps_good)
    found.append(transfer_constant(family.eps_good, family.eps_bad, rho))
    return close_to(jnp.stack(found), jnp.ones(3), allowance=1e-9)


def enclosed(
    family: TaskFamily, *, n: int, tasks: int, power: float = 2.0, above: float = 0.5
) -> Comparison:
    """2: the Bayes rule's error over all sequences is between both bounds, whoever learns."""
    plus, minus = product_laws(n, family, tasks)
    exact = jnp.minimum(plus, minus).sum() / 2
    bounds = adaptive_error_bounds(n, family)
    affinity = 2 * bounds.upper
    below = jnp.where(power == 2, bounds.lower, affinity**power / 4)
    left = jnp.stack([bounds.le_cam, below, exact])
    right = jnp.stack([bounds.lower, exact, above * affinity])
    return at_most(left, right + 1e-13, scale=exact + 1e-13)


def tensorised(
    family: TaskFamily, *, n: int, tasks: int, times: float = 1.0, denominator: float = 1.0
) -> Comparison:
    """3: the affinity of all tasks is one task's to their number; and its exponential bound."""
    plus, minus = product_laws(n, family, tasks)
    own = jnp.sum(jnp.sqrt(plus * minus))
    h = adaptive_error_bounds(n, family).hellinger
    power = jnp.exp(times * tasks * jnp.log1p(-h))
    low = jnp.exp(-tasks * h / (1 - denominator * h))
    left, right = jnp.stack([own, power, low]), jnp.stack([power, own, own])
    return at_most(left, right, scale=own + 1e-12)._replace(margin=(right - left) / own + 1e-10)


def helped(family: TaskFamily, *, n: int, tasks: int, fading: float = 0.0) -> Comparison:
    """7: with twice the samples no family is harder; the mutant lets good tasks fade with n."""
    del tasks
    less = adaptive_error_bounds(n, family).hellinger
    faded = family._replace(
        eps_good=family.eps_good * 4.0**-fading, num_good=family.num_good * 0.5**fading
    )
    more = adaptive_error_bounds(2 * n, faded).hellinger
    return at_most(less, more * (1 + 1e-12), scale=more)


def merged(family: TaskFamily, *, n: int, tasks: int, total: float = 1.0) -> Comparison:
    """9: merging cells, here all with one lead, does not make the signs easier to tell apart."""
    del tasks
    law, excess = mixture_pmf(n, family)
    lead = count_cells(n) @ np.array([1, -1])
    member = jnp.asarray((lead[None] == np.arange(-n, n + 1)[:, None]).astype(float))
    weight = jnp.where(total > 0, 1.0, 1 / member.sum(axis=1))
    coarse = jnp.sum(jnp.sqrt((member @ law) * (member @ (law - excess))) * weight)
    return at_most(jnp.sum(jnp.sqrt(law * (law - excess))), coarse + 1e-13)


def divergences(
    family: TaskFamily, *, n: int, tasks: int, half: float = 0.5, own: float = 1.0
) -> Comparison:
    """Distances of both signs' laws, each within the next."""
    del tasks
    law, excess = mixture_pmf(n, family)
    h, kl = hellinger_squared(law, excess) * own, kl_divergence(law, excess)
    variation = half * jnp.sum(jnp.abs(excess))
    root = jnp.sqrt(1 - (1 - hellinger_squared(law, excess)) ** 2)
    left = jnp.stack([h, variation, 2 * h, kl])
    right = jnp.stack([variation, root, kl, jnp.log1p(chi2_divergence(law, excess))])
    return at_most_in_ratio(left, right * (1 + 1e-9))


SMALL = {
    "families": {"few tasks": families},
    "assumptions": legal,
    "sizes": {"n": st.sampled_from([1, 2]), "tasks": st.sampled_from([1, 3])},
    "typical": {"n": 2, "tasks": 3},
    "samples": 2000,
    "restarts": 16,
}

CLAIMS = (
    Claim(
        name="multitask_limits/in_the_class",
        statement="eps^beta, eps^(1-beta): Bernstein with constant 1, transfer with constant 1",
        source="derived: P(h != h*) = p = (p m)^beta; eps_G = eps_B^(1 / rho)",
        families={"few tasks": families},
        conclusion=in_the_class,
        assumptions=legal,
        tightness="tight",
        rungs=("explore", "sample"),
        samples=2000,
        mutants={"margin eps^beta": {"exponent": 0.0}, "twice the exponent": {"rank": 2.0}},
    ),
    Claim(
        name="multitask_limits/le_cam",
        statement="BC^2/4 <= (1 - sqrt(1 - BC^2))/2 <= Bayes error <= BC/2, BC = (1 - H^2)^N",
        source="Le Cam 1973; every sequence of tasks enumerated",
        conclusion=enclosed,
        mutants={"BC without the square": {"power": 1.0}, "half the upper end": {"above": 0.25}},
        **SMALL,
    ),
    Claim(
        name="multitask_limits/tensor",
        statement="BC of N tasks is (1 - H^2)^N >= exp(-N H^2 / (1 - H^2))",
        source="derived: log(1 - u) >= -u / (1 - u)",
        conclusion=tensorised,
        mutants={"twice the tasks": {"times": 2.0}, "exp(-N H^2)": {"denominator": 0.0}},
        **SMALL,
    ),
    Claim(
        name="multitask_limits/samples_help",
        statement="a fixed family: H^2 of 2n samples is at least that of n",
        source="derived: n of 2n samples can be thrown away",
        conclusion=helped,
        mutants={"good tasks that fade with n": {"fading": 1.0}},
        **SMALL,
    ),
    Claim(
        name="multitask_limits/merging",
        statement="merging cells of counts does not lower BC",
        source="data processing; Cauchy and Schwarz",
        conclusion=merged,
        mutants={"means of cells for sums": {"total": 0.0}},
        **SMALL,
    ),
    Claim(
        name="multitask_limits/divergences",
        statement="H^2 <= TV <= sqrt(1 - (1 - H^2)^2) and 2 H^2 <= KL <= log(1 + chi^2)",
        source="textbook: Cauchy and Schwarz, Jensen",
        conclusion=divergences,
        mutants={"TV without its half": {"half": 1.0}, "H^2 without its half": {"own": 2.0}},
        **SMALL,
    ),
    *load_companion("proofs_checks", "multitask_regimes").CLAIMS,
)

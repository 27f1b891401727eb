"""What a thousand bounds cost, against a loop over SciPy's multinomial law; and their digits.

Run from the repository's root::

    pytest benchmarks/multitask_limits.py -n 0

Times are printed and decide nothing; equal answers come first, to fifty digits of mpmath where
float64 in the plain form has none left.
"""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from mpmath import mp, mpf

from jaxlab.theory.multitask_laws import count_cells
from jaxlab.theory.multitask_limits import TaskFamily, adaptive_error_bounds, noisy_gap

SAMPLES, CONFIGURATIONS, REPETITIONS = 4, 10_000, 3

pytestmark = pytest.mark.usefixtures("as_users_run")


def seconds(function: Callable[[], Any]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def plain(family: Any) -> float:
    """Affinities as one would write them, by SciPy."""
    beta, good, bad, num_good, num = (float(x) for x in family)
    cells = count_cells(SAMPLES)
    counts = np.column_stack([cells, SAMPLES - cells.sum(axis=1)])
    laws = []
    for sign in (1, -1):
        law = np.zeros(len(cells))
        for eps, share in ((good, num_good / num), (bad, 1 - num_good / num)):
            p, m = eps**beta, eps ** (1 - beta)
            shares = [p * (1 + sign * m) / 2, p * (1 - sign * m) / 2, 1 - p]
            law += share * scipy.stats.multinomial.pmf(counts, SAMPLES, shares)
        laws.append(law)
    return float(((np.sqrt(laws[0]) - np.sqrt(laws[1])) ** 2).sum() / 2)


def exact(family: Any) -> Any:
    """The same with fifty digits."""
    mp.dps = 50
    beta, good, bad, num_good, num = (mpf(float(x)) for x in family)
    total = mpf(0)
    for i, j in count_cells(SAMPLES).tolist():
        law = [mpf(0), mpf(0)]
        ways = mp.binomial(SAMPLES, i) * mp.binomial(SAMPLES - i, j)
        for eps, share in ((good, num_good / num), (bad, 1 - num_good / num)):
            p, m = eps**beta, eps ** (1 - beta)
            rest = ways * (1 - p) ** (SAMPLES - i - j)
            for k, sign in enumerate((1, -1)):
                right, wrong = p * (1 + sign * m) / 2, p * (1 - sign * m) / 2
                law[k] += share * rest * right**i * wrong**j
        total += (mp.sqrt(law[0]) - mp.sqrt(law[1])) ** 2
    return total / 2


def test_bounds(report):
    sizes = jnp.linspace(6.0, 30.0, CONFIGURATIONS)
    families = jax.vmap(lambda size: noisy_gap(SAMPLES, 10.0**size))(sizes)
    bounds = jax.jit(jax.vmap(lambda family: adaptive_error_bounds(SAMPLES, family).hellinger))
    found = np.asarray(bounds(families))
    shown = {"1e10": 0.0, "1e30": 0.0}
    for name in shown:
        family = noisy_gap(SAMPLES, float(name))
        truth = exact(family)
        ours = float(adaptive_error_bounds(SAMPLES, family).hellinger)
        assert abs(ours / float(truth) - 1) < 1e-11
        report(f"H^2 of 1 task of {name}: relative error", f"{abs(ours / float(truth) - 1):.0e}")
        report(
            f"the same by SciPy in float64, of {name}",
            f"{abs(plain(family) / float(truth) - 1):.0e}",
        )
    # Where the plain form has digits left, both agree.
    some = range(0, CONFIGURATIONS // 4, CONFIGURATIONS // 40)
    rows = [TaskFamily(*(leaf[i] for leaf in families)) for i in some]
    np.testing.assert_allclose(found[list(some)], [plain(row) for row in rows], rtol=1e-3)
    ours = min(seconds(lambda: jax.block_until_ready(bounds(families))) for _ in range(REPETITIONS))
    theirs = min(seconds(lambda: [plain(row) for row in rows]) for _ in range(REPETITIONS))
    report(f"{CONFIGURATIONS} bounds", f"{ours * 1e3:.0f} ms")
    ratio = theirs / len(rows) / (ours / CONFIGURATIONS)
    report("a bound: SciPy's loop / jaxlab", f"{ratio:.0f}")

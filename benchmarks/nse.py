"""What threshold curves and AMP steps cost, against SciPy's quadrature and plain NumPy.

Run from the repository's root::

    pytest benchmarks/nse.py -n 0

Times are printed and decide nothing; equal answers come first. Double integrals by SciPy's ``quad``
take too long for a whole curve: they are timed on a few points, and the ratio is per point.
"""

import functools
import itertools
import math
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.special

from jaxlab.core import run
from jaxlab.theory import nse, nse_replica
from jaxlab.theory import nse_amp as amp
from jaxlab.theory.nse_activations import smooth, step_activation

NUM_SNRS, NUM_Y, NUM_V, NUM_Q = 200, 801, 351, 240
ORDER, SCALE = 2, 0.2
DIM, SAMPLES, ITERATIONS, NODES, SNR = 2000, 6000, 30, 61, 4.0
REPETITIONS = 3


pytestmark = pytest.mark.usefixtures("as_users_run")


def seconds(function: Callable[[], Any]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


@functools.cache
def pieces() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Thresholds, values, masses and second moments of the step function, by SciPy alone."""
    activation = step_activation(ORDER, SCALE)
    edges = np.array([0.0, *np.asarray(activation.thresholds), np.inf])
    mass = 2 * np.diff(scipy.special.ndtr(edges))
    finite = np.where(np.isfinite(edges), edges, 0.0)
    second = -2 * np.diff(finite * np.exp(-(finite**2) / 2)) / math.sqrt(2 * math.pi)
    return edges, np.asarray(activation.values), mass, second


def normal(x: Any) -> Any:
    return np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)


def weak_by_quad(snr: float) -> float:
    """``alpha_alg`` by adaptive quadrature over the output, with exact shells."""
    _, values, mass, second = pieces()
    centres = math.sqrt(snr) * values

    def integrand(y: float) -> float:
        like = normal(y - centres)
        return float((second @ like) ** 2 / (mass @ like))

    ends = (centres.min() - 9, *sorted(centres), centres.max() + 9)
    parts = [
        scipy.integrate.quad(integrand, low, high, epsabs=0, epsrel=1e-9)[0]
        for low, high in itertools.pairwise(ends)
    ]
    return 1 / sum(parts)


def masses(mean: float, variance: float) -> np.ndarray:
    edges = pieces()[0]
    deviation = math.sqrt(variance)
    right = np.diff(scipy.special.ndtr((edges - mean) / deviation))
    return right + np.diff(scipy.special.ndtr((edges + mean) / deviation))


def information_by_quad(snr: float, overlap: float) -> float:
    """``Psi(q) - Psi(0)`` by one adaptive integral inside another."""
    _, values, mass, _ = pieces()
    centres = math.sqrt(snr) * values
    low, high = centres.min() - 9, centres.max() + 9

    def inner(v: float) -> float:
        given = masses(math.sqrt(overlap) * v, 1 - overlap)

        def integrand(y: float) -> float:
            like = normal(y - centres)
            p, p0 = given @ like, mass @ like
            return float(p * np.log(p / p0) - p + p0)

        return scipy.integrate.quad(integrand, low, high, epsabs=1e-12, epsrel=1e-7)[0]

    total = scipy.integrate.quad(lambda v: normal(v) * inner(v), 0, 8, epsabs=1e-11, epsrel=1e-6)
    return 2 * total[0]


def information_by_numpy(snr: float, overlaps: np.ndarray) -> np.ndarray:
    """``Psi(q) - Psi(0)`` on the library's grids, one overlap after the other."""
    _, values, mass, _ = pieces()
    centres = math.sqrt(snr) * values
    y = np.linspace(centres.min() - 9, centres.max() + 9, NUM_Y)
    like = normal(y[None] - centres[:, None])
    p0 = mass @ like
    v = np.linspace(0, 8, NUM_V)
    weights = np.exp(-(v**2) / 2)
    weights[[0, -1]] /= 2
    weights /= weights.sum()
    edges = pieces()[0]
    out = []
    for q in overlaps:
        means, deviation = math.sqrt(q) * v[:, None], math.sqrt(1 - q)
        given = np.diff(scipy.special.ndtr((edges - means) / deviation)) + np.diff(
            scipy.special.ndtr((edges + means) / deviation)
        )
        excess = (given @ (like / p0)) - 1
        terms = (1 + excess) * np.log1p(excess) - excess
        out.append((weights @ terms) @ p0 * (y[1] - y[0]))
    return np.array(out)


def test_weak_recovery_curve(report):
    activation, snrs = step_activation(ORDER, SCALE), np.logspace(-2, 0, NUM_SNRS)
    ours = jax.jit(jax.vmap(lambda s: nse.weak_recovery_threshold(activation, s, num_y=NUM_Y)))
    grid = jnp.asarray(snrs)
    report(f"{NUM_SNRS} first-order thresholds: first call", f"{seconds(lambda: ours(grid)):.2f} s")
    theirs = np.array([weak_by_quad(snr) for snr in snrs])
    np.testing.assert_allclose(ours(grid), theirs, rtol=1e-7)
    mine = min(seconds(lambda: jax.block_until_ready(ours(grid))) for _ in range(REPETITIONS))
    peer = seconds(lambda: [weak_by_quad(snr) for snr in snrs])
    report(f"{NUM_SNRS} first-order thresholds", f"{mine * 1e3:.1f} ms")
    report("first-order thresholds: SciPy / jaxlab", f"{peer / mine:.1f}")


def test_information_curve(report):
    activation, snrs = step_activation(ORDER, SCALE), np.logspace(-2, 0, NUM_SNRS)
    overlaps = nse_replica.overlap_grid(NUM_Q)

    def threshold(snr: jax.Array) -> jax.Array:
        return nse_replica.information_threshold(
            activation, snr, overlaps=overlaps, num_y=NUM_Y, num_v=NUM_V
        ).alpha

    ours = jax.jit(lambda grid: jax.lax.map(threshold, grid))
    few, grid = snrs[:: NUM_SNRS // 4], np.asarray(overlaps)
    for snr in few[:2]:
        told = information_by_numpy(snr, grid)
        least = (-(grid + np.log1p(-grid)) / (2 * told)).min()
        np.testing.assert_allclose(ours(jnp.array([snr]))[0], least, rtol=1e-6)
    points = [(float(few[0]), 0.5), (float(few[-1]), 0.9)]
    for snr, overlap in points:
        library = nse_replica.channel_information(
            activation, overlap, snr, num_y=NUM_Y, num_v=NUM_V
        )
        np.testing.assert_allclose(library, information_by_quad(snr, overlap), rtol=1e-4)
    warm = jnp.asarray(snrs)
    report(f"{NUM_SNRS} information thresholds: first call", f"{seconds(lambda: ours(warm)):.1f} s")
    mine = seconds(lambda: jax.block_until_ready(ours(warm)))
    report(f"{NUM_SNRS} information thresholds", f"{mine:.1f} s")
    numpy = seconds(lambda: information_by_numpy(float(few[0]), grid)) * NUM_SNRS
    report("information thresholds: NumPy on the same grids / jaxlab", f"{numpy / mine:.1f}")
    quad = seconds(lambda: [information_by_quad(*point) for point in points]) / len(points)
    ratio = quad * NUM_Q * NUM_SNRS / mine
    report("information thresholds: SciPy's double integrals / jaxlab, per point", f"{ratio:.0f}")


def numpy_amp(features: np.ndarray, labels: np.ndarray, start: np.ndarray) -> np.ndarray:
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    logs = np.log(weights / weights.sum())
    n, d = features.shape
    what, g, v = start, np.zeros(n), 1 - np.mean(start**2)
    for _ in range(ITERATIONS):
        omega = features @ what - v * g
        z = omega[:, None] + math.sqrt(v) * nodes
        scores = logs - (labels[:, None] - math.sqrt(SNR) * np.abs(z)) ** 2 / 2
        w = np.exp(scores - scores.max(axis=1, keepdims=True))
        w /= w.sum(axis=1, keepdims=True)
        mean, square = w @ nodes, w @ nodes**2
        g = mean / math.sqrt(v)
        slope = (square - mean**2 - 1) / v
        precision = max(-(n / d) * slope.mean(), 0.0)
        what = (g @ features + precision * what) / (1 + precision)
        v = 1 / (1 + precision)
    return what


def test_amp(report):
    link = smooth(jnp.abs, num_nodes=NODES)
    data = amp.sample_single_index(jax.random.key(0), link, SNR, num_samples=SAMPLES, dim=DIM)
    start = amp.informed_start(jax.random.key(1), data.teacher, 0.1)
    problem = amp.AMPProblem(data.features, data.labels, link, start)
    compiled = jax.jit(
        lambda p, h: run(nse.amp(), p, h, jax.random.key(0), num_steps=ITERATIONS).state.estimate
    )
    hyper = amp.AMPHyper(jnp.array(SNR))
    arrays = [np.asarray(x) for x in (data.features, data.labels, start)]
    report("AMP: first call", f"{seconds(lambda: compiled(problem, hyper)):.2f} s")
    expected = numpy_amp(*arrays)
    np.testing.assert_allclose(compiled(problem, hyper), expected, rtol=0, atol=1e-7)
    mine = min(
        seconds(lambda: jax.block_until_ready(compiled(problem, hyper))) for _ in range(REPETITIONS)
    )
    peer = min(seconds(lambda: numpy_amp(*arrays)) for _ in range(REPETITIONS))
    report(f"AMP, {DIM} dimensions: one iteration", f"{mine / ITERATIONS * 1e3:.1f} ms")
    report("AMP: NumPy / jaxlab", f"{peer / mine:.2f}")

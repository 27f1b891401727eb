"""Curves and copies in constant memory, against diffusionlab's empirical denoiser and plain NumPy.

Run from the repository's root::

    pytest benchmarks/memorization.py -n 0

Times and memory are printed and decide nothing. What decides: equal answers, and that XLA's own
count of temporary memory does not depend on the number of rows. diffusionlab prints a number in
every call of its denoiser, which is switched off here in its favour; it sums exponentials without a
shift and cuts their sum off at the machine epsilon, so that the race is in float64 and at a level
where that does no harm, and a further test says what happens where it does.
Memory is what the process grows by while a program runs, as Linux tells it. First calls include
compilation; times are the best of several runs after that.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlab.core.locate import load_companion
from jaxlab.diffusion.empirical import empirical_prior
from jaxlab.diffusion.memorization import concentration_of, coverage_of
from jaxlab.diffusion.memorization_neighbours import (
    Neighbours,
    NoisyQueries,
    no_neighbours,
    observe_rows,
)
from jaxlab.diffusion.memorization_shells import shell_radii

_diffusion = load_companion("benchmarks", "diffusion")
growth, seconds = _diffusion.growth, _diffusion.seconds

COUNTS = (2_000, 10_000, 50_000)
DIM, NUM_QUERIES, SIGMA = 64, 64, 1.5
# Exponents of about |x|^2 / sigma^2 / 2 = 400 are rounded, and a mean over rows keeps that.
TOLERANCE = 400 * float(np.finfo(np.float64).eps)
CURVE_ROWS, CURVE_DIM, C = 1000, 3072, 5.0
LEVELS = np.geomspace(0.002, 80.0, 20)
REPETITIONS = 3

pytestmark = pytest.mark.usefixtures("as_users_run")


@functools.cache
def table(num_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of unit variance in few directions, and noisy ones."""
    generator = np.random.default_rng(0)
    loads = generator.normal(size=(4, DIM)) / 2
    rows = generator.normal(size=(num_rows, 4)) @ loads
    rows += 0.02 * generator.normal(size=rows.shape)
    queries = rows[:NUM_QUERIES] + generator.normal(size=(NUM_QUERIES, DIM)) / 2
    return rows, queries


def exact(rows: np.ndarray, queries: np.ndarray, sigma: float) -> np.ndarray:
    """One query after the other, in float64."""
    answers = []
    for query in queries:
        exponents = -((rows - query) ** 2).sum(axis=1) / (2 * sigma**2)
        weights = np.exp(exponents - exponents.max())
        answers.append(weights @ rows / weights.sum())
    return np.stack(answers)


def ours(rows: np.ndarray, queries: np.ndarray, sigma: float) -> Callable[[], np.ndarray]:
    """The library's denoiser of a batch."""
    prior, x = empirical_prior(jnp.asarray(rows)), jnp.asarray(queries)
    compiled = jax.jit(lambda prior, x: jax.vmap(lambda x: prior.denoise(x, sigma))(x))
    return lambda: np.asarray(compiled(prior, x))


def peer(
    monkeypatch: pytest.MonkeyPatch, rows: np.ndarray, queries: np.ndarray, sigma: float
) -> Callable[[], np.ndarray]:
    """The denoiser of diffusionlab for a batch."""
    reason = "diffusionlab needs Python 3.12 and pip install 'jaxlab[bench]'"
    empirical = pytest.importorskip("diffusionlab.distributions.empirical", reason=reason)
    dynamics = pytest.importorskip("diffusionlab.dynamics", reason=reason)
    monkeypatch.setattr(jax.debug, "print", lambda *args, **kwargs: None)
    process = dynamics.VarianceExplodingProcess(sigma=lambda t: t)
    x, level = jnp.asarray(queries), jnp.asarray(sigma)

    @jax.jit
    def compiled(rows: jax.Array, x: jax.Array) -> jax.Array:
        law = empirical.EmpiricalDistribution([(rows, None)])
        return jax.vmap(lambda x: law.x0(x, level, process))(x)

    data = jnp.asarray(rows)
    return lambda: np.asarray(compiled(data, x))


@pytest.mark.parametrize("count", COUNTS)
def test_denoiser(monkeypatch, report, count):
    rows, queries = table(count)
    truth, best = exact(rows, queries, SIGMA), {}
    programs = {
        "jaxlab": ours(rows, queries, SIGMA),
        "diffusionlab": peer(monkeypatch, rows, queries, SIGMA),
    }
    for name, program in programs.items():
        first = seconds(program)
        assert np.abs(program() - truth).max() < TOLERANCE * np.abs(rows).max()
        best[name] = min(seconds(program) for _ in range(REPETITIONS))
        report(f"{count} rows, {name}: first call", f"{first:.2f} s")
        report(f"{count} rows, {name}: one call", f"{best[name] * 1e3:.1f} ms")
        report(f"{count} rows, {name}: memory", f"{growth(program) / 2**20:.1f} MiB")
    ratio = best["diffusionlab"] / best["jaxlab"]
    report(f"{count} rows, diffusionlab / jaxlab: time", f"{ratio:.2f}")


def test_where_exponentials_vanish(monkeypatch, report):
    """Rows with noise of 0.5, denoised at the level 0.1: exponents are near -800."""
    rows, queries = table(COUNTS[0])
    truth = exact(rows, queries, 0.1)
    mine = np.abs(ours(rows, queries, 0.1)() - truth).max()
    assert mine < 1e-9
    report("far from all rows, jaxlab: largest error", f"{mine:.1e}")
    theirs = np.abs(peer(monkeypatch, rows, queries, 0.1)() - truth).max()
    report("far from all rows, diffusionlab: largest error", f"{theirs:.1e}")


def curves_by_numpy(
    rows: np.ndarray, signals: np.ndarray, noise: np.ndarray, levels: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """``W`` if the signals are the rows, and ``C``, from a matrix of distances for each level."""
    low, high = (CURVE_DIM + s * 2 * np.sqrt(C * CURVE_DIM) + max(s, 0) * 2 * C for s in (-1, 1))
    norms = (rows**2).sum(axis=1)
    weights, shares = [], []
    for level in levels:
        queries = signals + level * noise
        squares = (queries**2).sum(axis=1)[:, None] + norms[None] - 2 * queries @ rows.T
        squares = np.maximum(squares, 0) / level**2
        scaled = np.exp((squares.min(axis=1, keepdims=True) - squares) / 2)
        weights.append((1 / scaled.sum(axis=1)).mean())
        shares.append(((squares >= low) & (squares <= high)).any(axis=1).mean())
    return np.array(weights), np.array(shares)


def test_curves(report):
    """The 20 levels of a curve at the sizes of CIFAR-10's: one noise for each of 1000 queries."""
    generator = np.random.default_rng(1)
    # Images have few directions of large variance; a power law stands for them.
    scales = np.arange(1, CURVE_DIM + 1) ** -0.5
    tables = [generator.normal(size=(CURVE_ROWS, CURVE_DIM)) * scales * 3 for _ in range(2)]
    noise = generator.normal(size=(CURVE_ROWS, CURVE_DIM))
    levels, radii = jnp.asarray(LEVELS), shell_radii(CURVE_DIM, C)

    @jax.jit
    def compiled(rows: jax.Array, signals: jax.Array, noise: jax.Array) -> Any:
        queries = NoisyQueries(signals, noise)
        none = no_neighbours(queries, levels)
        seen = observe_rows(none, queries, levels, rows, radii=radii)
        own = jnp.arange(CURVE_ROWS)
        weight = concentration_of(seen, own, num_noise=1).weight
        return weight, coverage_of(seen, num_noise=1).share

    rows, others = tables
    arguments = [tuple(map(jnp.asarray, (rows, s, noise))) for s in (rows, others)]

    def library() -> tuple[np.ndarray, np.ndarray]:
        return (
            np.asarray(compiled(*arguments[0])[0]), np.asarray(compiled(*arguments[1])[1])
        )  # fmt: skip

    def plain() -> tuple[np.ndarray, np.ndarray]:
        weight = curves_by_numpy(rows, rows, noise, LEVELS)[0]
        return weight, curves_by_numpy(rows, others, noise, LEVELS)[1]

    first = seconds(library)
    for found, expected in zip(library(), plain(), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-6)
    times = [min(seconds(f) for _ in range(REPETITIONS)) for f in (library, plain)]
    name = f"{len(LEVELS)} levels, {CURVE_ROWS} rows in {CURVE_DIM} dimensions"
    report(f"{name}: first call", f"{first:.2f} s")
    report("both curves, jaxlab", f"{times[0]:.2f} s")
    report("both curves, NumPy", f"{times[1]:.2f} s")
    report("both curves, NumPy / jaxlab", f"{times[1] / times[0]:.2f}")


def test_compiled_memory(report):
    """XLA's own count of temporary bytes while a block of rows passes."""
    used = {}
    signals = jnp.zeros((NUM_QUERIES, DIM))
    levels, radii = jnp.asarray(LEVELS), shell_radii(DIM, 3.0)
    queries = NoisyQueries(signals, signals)

    @jax.jit
    def compiled(rows: jax.Array) -> Neighbours:
        none = no_neighbours(queries, levels)
        return observe_rows(none, queries, levels, rows, radii=radii, chunk_size=1000)

    for count in COUNTS:
        shape = jax.ShapeDtypeStruct((count, DIM), jnp.float64)
        memory = compiled.lower(shape).compile().memory_analysis()
        assert memory is not None
        used[count] = memory.temp_size_in_bytes
        report(f"{count} rows: temporary memory", f"{used[count] / 2**20:.2f} MiB")
        stored = len(LEVELS) * NUM_QUERIES * count * 8
        report(f"{count} rows: [levels, queries, rows]", f"{stored / 2**20:.2f} MiB")
    # Which rows are no filling takes a byte for each.
    assert max(used.values()) - min(used.values()) <= 2 * max(COUNTS)

"""The empirical denoiser in constant memory, against the plain ones that store distances.

Run from the repository's root::

    pytest benchmarks/diffusion.py -n 0

Times and memory are printed and decide nothing. What decides: all programs give the same answers
in float32, those of NumPy in float64, and the compiled program's memory does not depend on the
number of rows. "Materialised" programs store every difference ``[queries, rows, dim]``, "expanded"
ones the matrix ``[queries, rows]`` of squared distances; like ``empirical_prior`` they centre the
rows and compute norms beforehand. Memory is what the process grows by while a program runs, as
Linux tells it. First calls include compilation; times are the best of several runs after that.
"""

import ctypes
import functools
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch  # pyright: ignore[reportMissingImports]

from jaxlab.diffusion.empirical import empirical_prior

NUM_ROWS, DIM, NUM_QUERIES = 50_000, 64, 64
SIGMAS = (0.3, 1.5)
# float32 rounds exponents of about |x|^2 / sigma^2 / 2 = 400, of which a mean over rows keeps this.
TOLERANCE = 400 * float(np.finfo(np.float32).eps)
REPETITIONS = 3
PAGE = 4096


pytestmark = pytest.mark.usefixtures("as_users_run", "in_default_precision")


class Setting(NamedTuple):
    """One problem for all programs.

    Attributes:
        rows: ``[rows, dim]`` in float32, of unit variance around a mean that is not 0.
        queries: ``[queries, dim]``, rows with noise.
        sigma: The noise.
    """

    rows: np.ndarray
    queries: np.ndarray
    sigma: float


@functools.cache
def setting(sigma: float) -> Setting:
    generator = np.random.default_rng(0)
    # Few dimensions carry the data, so that many rows compete at both levels.
    loads = generator.normal(size=(4, DIM)) / 2
    rows = generator.normal(size=(NUM_ROWS, 4)) @ loads
    rows += 0.02 * generator.normal(size=rows.shape)
    noise = generator.normal(size=(NUM_QUERIES, DIM))
    queries = rows[:NUM_QUERIES] + sigma * noise
    return Setting((rows + 0.5).astype(np.float32), (queries + 0.5).astype(np.float32), sigma)


@functools.cache
def exact(sigma: float) -> np.ndarray:
    """One query after the other, in float64."""
    rows, queries, _ = setting(sigma)
    rows, answers = rows.astype(np.float64), []
    for query in queries.astype(np.float64):
        exponents = -((rows - query) ** 2).sum(axis=1) / (2 * sigma**2)
        weights = np.exp(exponents - exponents.max())
        answers.append(weights @ rows / weights.sum())
    return np.stack(answers)


def jaxlab_program(given: Setting) -> Callable[[], np.ndarray]:
    prior = empirical_prior(jnp.asarray(given.rows))
    queries, sigma = jnp.asarray(given.queries), jnp.float32(given.sigma)
    compiled = jax.jit(lambda prior, x: jax.vmap(lambda x: prior.denoise(x, sigma))(x))
    return lambda: np.asarray(compiled(prior, queries))


def numpy_materialised(given: Setting) -> Callable[[], np.ndarray]:
    rows, queries, sigma = given

    def program() -> np.ndarray:
        exponents = -((queries[:, None] - rows[None]) ** 2).sum(axis=2) / (2 * sigma**2)
        weights = np.exp(exponents - exponents.max(axis=1, keepdims=True))
        return weights @ rows / weights.sum(axis=1, keepdims=True)

    return program


def numpy_expanded(given: Setting) -> Callable[[], np.ndarray]:
    rows, queries, sigma = given
    centre = rows.mean(axis=0)
    rows, queries = rows - centre, queries - centre
    half_norms = (rows**2).sum(axis=1) / 2

    def program() -> np.ndarray:
        exponents = (queries @ rows.T - half_norms) / sigma**2
        weights = np.exp(exponents - exponents.max(axis=1, keepdims=True))
        return centre + weights @ rows / weights.sum(axis=1, keepdims=True)

    return program


def torch_materialised(given: Setting) -> Callable[[], np.ndarray]:
    rows, queries = torch.from_numpy(given.rows), torch.from_numpy(given.queries)

    @torch.no_grad()
    def program() -> np.ndarray:
        squares = ((queries[:, None] - rows[None]) ** 2).sum(dim=2)
        return (torch.softmax(-squares / (2 * given.sigma**2), dim=1) @ rows).numpy()

    return program


def torch_expanded(given: Setting) -> Callable[[], np.ndarray]:
    rows, queries = torch.from_numpy(given.rows), torch.from_numpy(given.queries)
    centre = rows.mean(dim=0)
    rows, queries = rows - centre, queries - centre
    half_norms = (rows**2).sum(dim=1) / 2

    @torch.no_grad()
    def program() -> np.ndarray:
        exponents = (queries @ rows.T - half_norms) / given.sigma**2
        return (centre + torch.softmax(exponents, dim=1) @ rows).numpy()

    return program


PROGRAMS = {
    "jaxlab": jaxlab_program,
    "numpy expanded": numpy_expanded,
    "torch expanded": torch_expanded,
    "numpy materialised": numpy_materialised,
    "torch materialised": torch_materialised,
}


def seconds(function: Callable[[], Any]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def resident() -> int:
    """Bytes of this process in memory, from Linux."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def growth(function: Callable[[], Any]) -> int:
    """By how many bytes the process grows while ``function`` runs, looked at every millisecond."""
    ctypes.CDLL(None).malloc_trim(0)  # else a heap that earlier calls left hides the growth
    done, before = threading.Event(), resident()
    peak = before

    def watch() -> None:
        nonlocal peak
        while not done.is_set():
            peak = max(peak, resident())
            time.sleep(0.001)

    watcher = threading.Thread(target=watch)
    watcher.start()
    function()
    done.set()
    watcher.join()
    return peak - before


@pytest.mark.parametrize("sigma", SIGMAS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_denoiser(benchmark, report, name, sigma):
    given = setting(sigma)
    program = PROGRAMS[name](given)
    benchmark.extra_info["first_call_seconds"] = first = seconds(program)
    error = np.abs(program() - exact(sigma)).max()
    assert error < TOLERANCE * np.abs(given.rows).max()
    benchmark.group = f"{NUM_QUERIES} queries, {NUM_ROWS} rows, sigma {sigma}"
    benchmark.pedantic(program, rounds=REPETITIONS)
    best = benchmark.stats.stats.min
    label = f"sigma {sigma}, {name}"
    report(f"{label}: largest error", f"{error:.1e}")
    report(f"{label}: first call", f"{first:.2f} s")
    report(f"{label}: one call", f"{best * 1e3:.0f} ms")
    report(f"{label}: memory", f"{growth(program) / 2**20:.0f} MiB")
    if name != "jaxlab":
        ours = jaxlab_program(given)
        ours()
        ratio = best / min(seconds(ours) for _ in range(REPETITIONS))
        report(f"sigma {sigma}, {name} / jaxlab: time", f"{ratio:.2f}")


def test_compiled_memory(report):
    """XLA's own count of temporary bytes; both numbers of rows make chunks of 2000."""
    rows, queries, sigma = setting(SIGMAS[0])
    used = {}
    for num_rows in (NUM_ROWS // 5, NUM_ROWS):
        prior = empirical_prior(jnp.asarray(rows[:num_rows]))
        compiled = jax.jit(lambda prior, x: jax.vmap(lambda x: prior.denoise(x, sigma))(x))
        memory = compiled.lower(prior, jnp.asarray(queries)).compile().memory_analysis()
        assert memory is not None
        used[num_rows] = memory.temp_size_in_bytes
        stored = NUM_QUERIES * num_rows * queries.itemsize
        report(f"{num_rows} rows: temporary memory", f"{used[num_rows] / 2**20:.2f} MiB")
        report(f"{num_rows} rows: a matrix [queries, rows]", f"{stored / 2**20:.2f} MiB")
    assert len(set(used.values())) == 1

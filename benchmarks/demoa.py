"""What robust means cost, against ByzFL's on the same matrices.

Run from the repository's root::

    pytest benchmarks/demoa.py -n 0

Times are printed and decide nothing; equal answers come first. ByzFL takes NumPy arrays and PyTorch
tensors; the faster of both is what ours is compared with. It has no ``vmap``: a batch is a loop.
"""

import functools
import importlib.util
import sys
import time
import types
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlab.optim import byzantine_aggregators as rules
from jaxlab.optim import byzantine_selection as selection

torch = pytest.importorskip("torch", reason="the race needs pip install 'jaxlab[bench]'")

CLIENTS, DIM, BYZANTINE, SEEDS, SMALL_DIM = 50, 100_000, 10, 64, 650
REPETITIONS = 5
TOLERANCE = 1e-4  # float32: sums of fifty numbers, and distances of 1e5 coordinates

pytestmark = pytest.mark.usefixtures("as_users_run", "in_default_precision")


@functools.cache
def byzfl() -> types.ModuleType:
    """ByzFL's aggregators without its training loop, which needs torchvision."""
    spec = importlib.util.find_spec("byzfl")
    if spec is None or spec.submodule_search_locations is None:
        pytest.skip("the race needs pip install 'jaxlab[bench]'")
    package = types.ModuleType("byzfl")
    package.__path__ = list(spec.submodule_search_locations)
    sys.modules["byzfl"] = package
    from byzfl import aggregators  # pyright: ignore[reportMissingImports]

    return aggregators


def ours(name: str) -> Callable[[Any], Any]:
    """A rule of ``[clients, dim]``."""
    return {
        "mean": rules.mean,
        "median": rules.coordinate_median,
        "trimmed mean": functools.partial(rules.trimmed_mean, num_byzantine=BYZANTINE),
        "geometric median": lambda v: rules.geometric_median(
            v, start=jnp.zeros_like(v[0]), num_iters=3, smoothing=0.1
        ),
        "Krum": functools.partial(selection.krum, num_byzantine=BYZANTINE),
        "multi-Krum": functools.partial(selection.multi_krum, num_byzantine=BYZANTINE),
        "centred clipping": lambda v: rules.centered_clipping(v, jnp.zeros_like(v[0]), radius=10.0),
        "NNM": functools.partial(selection.nearest_neighbour_mixing, num_byzantine=BYZANTINE),
    }[name]


def theirs(name: str) -> Callable[[Any], Any]:
    """The same rule, made anew at every call: centred clipping remembers."""
    peer = byzfl()
    return {
        "mean": lambda v: peer.Average()(v),
        "median": lambda v: peer.Median()(v),
        "trimmed mean": lambda v: peer.TrMean(f=BYZANTINE)(v),
        "geometric median": lambda v: peer.GeometricMedian(nu=0.1, T=3)(v),
        "Krum": lambda v: peer.Krum(f=BYZANTINE)(v),
        "multi-Krum": lambda v: peer.MultiKrum(f=BYZANTINE)(v),
        "centred clipping": lambda v: peer.CenteredClipping(L=1, tau=10.0)(v),
        "NNM": lambda v: peer.NNM(f=BYZANTINE)(v),
    }[name]


NAMES = (
    "mean", "median", "trimmed mean", "geometric median", "Krum", "multi-Krum",
    "centred clipping", "NNM",
)  # fmt: skip


def seconds(function: Callable[[], Any]) -> float:
    """The least of a few repetitions."""
    times = []
    for _ in range(REPETITIONS):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def matrices(*shape: int) -> np.ndarray:
    """Honest vectors around 1 and liars ten times as far."""
    vectors = 1 + np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    vectors[..., :BYZANTINE, :] *= -10
    return vectors


@pytest.mark.parametrize("name", NAMES)
def test_one_large_matrix(name: str, report: Callable[[str, str], None]) -> None:
    vectors = matrices(CLIENTS, DIM)
    compiled, on_device = jax.jit(ours(name)), jnp.asarray(vectors)
    tensor, peer = torch.from_numpy(vectors), theirs(name)
    expected = peer(vectors.copy())
    np.testing.assert_allclose(compiled(on_device), expected, rtol=0, atol=TOLERANCE)
    # PyTorch's median of an even number is the lower one; NumPy's is that of ours.
    by = {"NumPy": seconds(lambda: peer(vectors)), "PyTorch": seconds(lambda: peer(tensor))}
    best = min(by, key=lambda engine: by[engine])
    mine = seconds(lambda: compiled(on_device).block_until_ready())
    report(
        f"{name}, n = {CLIENTS}, d = {DIM}: ByzFL ({best}) / ours",
        f"{by[best] / mine:.2f} ({1e3 * mine:.1f} ms)",
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_of_seeds(name: str, report: Callable[[str, str], None]) -> None:
    vectors = matrices(SEEDS, CLIENTS, SMALL_DIM)
    compiled, on_device = jax.jit(jax.vmap(ours(name))), jnp.asarray(vectors)
    tensors, peer = torch.from_numpy(vectors), theirs(name)
    expected = np.stack([peer(one.copy()) for one in vectors])
    np.testing.assert_allclose(compiled(on_device), expected, rtol=0, atol=TOLERANCE)
    by = {
        "NumPy": seconds(lambda: [peer(one) for one in vectors]),
        "PyTorch": seconds(lambda: [peer(one) for one in tensors]),
    }
    best = min(by, key=lambda engine: by[engine])
    mine = seconds(lambda: compiled(on_device).block_until_ready())
    report(
        f"{name}, {SEEDS} seeds, d = {SMALL_DIM}: ByzFL ({best}) / ours",
        f"{by[best] / mine:.2f} ({1e3 * mine:.1f} ms)",
    )

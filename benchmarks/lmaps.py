"""Inpainting patches with one exact denoiser: jaxlab against deepinv's DPS, DDRM and DiffPIR.

Run from the repository's root::

    pytest benchmarks/lmaps.py -n 0

What decides: PyTorch's denoiser gives jaxlab's numbers, and so does LMAPS as a plain loop in
PyTorch. Then the race: the same patches, mask, noise, denoiser and, but for DiffPIR, which has its
own, the same 50 levels; in float32, a batch of 200. Each DPS has the best of its own grid of step
sizes, DiffPIR the best of its penalties. PSNR and seconds a batch are printed and decide nothing;
seconds are the best of several runs after the first.
"""

import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlab.core import Method, run
from jaxlab.data.images import load_images, random_patches
from jaxlab.diffusion.lmaps import dps, lmaps
from jaxlab.diffusion.mixture import MixturePrior, fit_mixture, posterior_mean
from jaxlab.diffusion.operators import mask
from jaxlab.diffusion.restoration import (
    LMAPSHyper,
    Restoration,
    ancestral_rho,
    gaussian,
    tweedie,
)
from jaxlab.diffusion.schedule import edm_sigmas

torch = pytest.importorskip("torch", reason="the race needs pip install 'jaxlab[bench]'")
deepinv = pytest.importorskip("deepinv", reason="the race needs pip install 'jaxlab[bench]'")

BATCH, DIM, KEPT, NOISE, LEVELS = 200, 64, 24, 0.05, 50
REPETITIONS = 2
SCALES = (0.01, 0.03, 0.1)

pytestmark = pytest.mark.usefixtures("as_users_run", "in_default_precision")


class Setting(NamedTuple):
    """One problem for all: prior, patches, the shared mask, noisy pixels and levels."""

    prior: MixturePrior
    truth: np.ndarray
    kept: np.ndarray
    measured: np.ndarray
    sigmas: np.ndarray


@functools.cache
def setting() -> Setting:
    rows = random_patches(
        jax.random.key(0), load_images("camera").pixels, size=8, num_patches=3000
    ).reshape(-1, DIM)
    prior = fit_mixture(jax.random.key(1), rows.astype(np.float32), 20, num_iterations=10)
    truth = random_patches(
        jax.random.key(2), load_images("astronaut").pixels, size=8, num_patches=BATCH
    )
    truth = truth.reshape(-1, DIM).astype(np.float32)
    generator = np.random.default_rng(3)
    kept = np.sort(generator.permutation(DIM)[:KEPT])
    noise = generator.normal(size=(BATCH, KEPT)).astype(np.float32)
    sigmas = edm_sigmas(LEVELS, smallest=0.01, largest=10.0, end_at_zero=True)
    return Setting(prior, truth, kept, truth[:, kept] + NOISE * noise, np.asarray(sigmas))


class TorchMixture(torch.nn.Module):
    """The denoiser in PyTorch, for pixels in [-1, 1]."""

    def __init__(self, prior: MixturePrior):
        super().__init__()
        parts = prior.components
        arrays = (prior.log_weights, parts.mean, parts.eigenvalues, parts.eigenvectors)
        self.logs, self.means, self.values, self.axes = (
            torch.from_numpy(np.array(part)) for part in arrays
        )
        self.centres = torch.einsum("kd,kde->ke", self.means, self.axes)

    def denoise(self, x: Any, sigma: Any) -> Any:
        """``[batch, 64] -> [batch, 64]``."""
        along = torch.einsum("bd,kde->bke", x, self.axes) - self.centres
        total = self.values + sigma**2
        joint = self.logs - ((along**2 / total + torch.log(total)).sum(-1)) / 2
        shares = torch.softmax(joint, dim=1)
        moved = shares[:, :, None] * (along * (self.values / total))
        return torch.einsum("bke,kde->bd", moved, self.axes) + shares @ self.means

    def forward(self, x: Any, sigma: Any, **_: Any) -> Any:
        """As deepinv calls it: images ``[batch, 1, 8, 8]`` with pixels in [0, 1]."""
        sigma = torch.as_tensor(sigma, dtype=torch.float32).reshape(-1, 1, 1)
        flat = 2 * x.to(torch.float32).reshape(len(x), -1) - 1
        return ((1 + self.denoise(flat, 2 * sigma)) / 2).reshape(x.shape)


@functools.cache
def mixture() -> TorchMixture:
    return TorchMixture(setting().prior)


def psnr(found: Any) -> float:
    return float(10 * np.log10(4 / np.mean((np.asarray(found) - setting().truth) ** 2)))


def seconds(function: Callable[[], Any]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def jaxlab_program(method: Method, scale: float = 1.0, rho: Any = 1.0) -> Callable[[], np.ndarray]:
    given = setting()
    sigmas, operator = jnp.asarray(given.sigmas), mask(jnp.asarray(given.kept), DIM)
    rho = ancestral_rho(sigmas) if isinstance(rho, str) else jnp.full(LEVELS, rho)
    hyper = LMAPSHyper(jnp.asarray(NOISE), jnp.asarray(scale), rho.astype(jnp.float32))

    @jax.jit
    def program(prior: MixturePrior, measured: jax.Array, start: jax.Array, keys: jax.Array) -> Any:
        def one(y: jax.Array, x: jax.Array, key: jax.Array) -> jax.Array:
            problem = Restoration(prior.denoise, operator, y, sigmas, x)
            return run(method, problem, hyper, key, num_steps=LEVELS).state.x0

        return jax.vmap(one)(measured, start, keys)

    starts, keys = jnp.asarray(beginnings()), jax.random.split(jax.random.key(7), BATCH)
    return lambda: np.asarray(program(given.prior, jnp.asarray(given.measured), starts, keys))


@functools.cache
def beginnings() -> np.ndarray:
    generator = np.random.default_rng(5)
    return 10 * generator.normal(size=(BATCH, DIM)).astype(np.float32)


def torch_lmaps() -> np.ndarray:
    """LMAPS without fresh noise, with a spherical covariance, as a plain loop."""
    given, denoise = setting(), mixture().denoise
    x, y = torch.from_numpy(beginnings()), torch.from_numpy(given.measured)
    kept = torch.from_numpy(given.kept)
    x0 = x
    with torch.no_grad():
        for sigma, after in zip(given.sigmas[:-1], given.sigmas[1:], strict=True):
            x0 = denoise(x, float(sigma))
            variance = 0.25 * float(sigma) ** 2 / (0.25 + float(sigma) ** 2)
            gain = variance / (variance + NOISE**2)
            x0[:, kept] += gain * (y - x0[:, kept])
            x = x0 + float(after) * (x - x0) / float(sigma)
    return x0.numpy()


def test_equal_denoisers(report):
    given = setting()
    for sigma in (0.01, 0.3, 10.0):
        x = given.truth + sigma * beginnings() / 10
        ours = jax.jit(jax.vmap(lambda x, s=sigma: given.prior.denoise(x, s)))(jnp.asarray(x))
        theirs = mixture().denoise(torch.from_numpy(x), sigma).numpy()
        np.testing.assert_allclose(ours, theirs, atol=2e-3)
        report(
            f"largest difference of denoisers, sigma {sigma:g}",
            f"{np.abs(ours - theirs).max():.1e}",
        )


def test_equal_answers_of_lmaps(report):
    """Without fresh noise a chaotic patch may leave another's path: all but a few agree."""
    program = jaxlab_program(lmaps(gaussian(0.5)), rho=0.0)
    report("LMAPS, gaussian: first call", f"{seconds(program):.2f} s")
    ours, theirs = program(), torch_lmaps()
    apart = np.abs(ours - theirs).max(axis=1)
    assert np.median(apart) < 1e-3
    assert (apart < 1e-2).mean() > 0.95
    assert abs(psnr(ours) - psnr(theirs)) < 0.05
    mine = min(seconds(program) for _ in range(REPETITIONS))
    peer = min(seconds(torch_lmaps) for _ in range(REPETITIONS))
    report("LMAPS, gaussian: one batch", f"{mine:.3f} s")
    report("LMAPS, gaussian: plain PyTorch / jaxlab", f"{peer / mine:.2f}")


def physics() -> tuple[Any, Any]:
    """The mask and the measurement as deepinv takes them, in units of [0, 1]."""
    given = setting()
    pixels = torch.zeros(1, 1, 8, 8)
    pixels.view(-1)[torch.from_numpy(given.kept)] = 1.0
    model = deepinv.physics.Inpainting(
        img_size=(1, 8, 8), mask=pixels, noise_model=deepinv.physics.GaussianNoise(NOISE / 2)
    )
    y = torch.zeros(BATCH, DIM)
    y[:, torch.from_numpy(given.kept)] = (1 + torch.from_numpy(given.measured)) / 2
    return model, y.reshape(-1, 1, 8, 8)


def deepinv_dps(weight: float) -> Callable[[], np.ndarray]:
    """Its DPS on the shared levels: the VE process, whose time is the level's logarithm."""
    smallest, largest = 0.001, 80.0
    levels = np.append(setting().sigmas[:-1], smallest)
    times = torch.from_numpy(np.log(levels / smallest) / np.log(largest / smallest)).float()
    sampling = deepinv.sampling
    model = sampling.PosteriorDiffusion(
        data_fidelity=sampling.DPSDataFidelity(denoiser=mixture(), weight=weight),
        denoiser=mixture(),
        sde=sampling.VarianceExplodingDiffusion(
            sigma_min=smallest, sigma_max=largest, alpha=1.0, dtype=torch.float32
        ),
        solver=sampling.DDPMSolver(timesteps=times, rng=torch.Generator()),
        dtype=torch.float32,
    )
    return lambda: unit(model(physics()[1], physics()[0], seed=1))


def deepinv_ddrm() -> Callable[[], np.ndarray]:
    model = deepinv.sampling.DDRM(denoiser=mixture(), sigmas=setting().sigmas[:-1] / 2)
    return lambda: unit(model(physics()[1], physics()[0], seed=1))


def deepinv_diffpir(penalty: float) -> Callable[[], np.ndarray]:
    model = deepinv.sampling.DiffPIR(
        model=mixture(), data_fidelity=deepinv.optim.data_fidelity.L2(), sigma=NOISE / 2,
        max_iter=LEVELS, lambda_=penalty,
    )  # fmt: skip
    return lambda: unit(model(physics()[1], physics()[0], seed=1))


def unit(images: Any) -> np.ndarray:
    """From images in [0, 1] to patches in [-1, 1]."""
    return 2 * images.detach().to(torch.float32).numpy().reshape(BATCH, DIM) - 1


def best(
    programs: dict[str, Callable[[], np.ndarray]],
) -> tuple[str, Callable[[], np.ndarray], float]:
    """The setting of the highest PSNR; every program runs once here, which also compiles it."""
    scores = {name: psnr(program()) for name, program in programs.items()}
    name = max(scores, key=lambda key: (np.nan_to_num(scores[key], nan=-np.inf), key))
    return name, programs[name], scores[name]


def test_race(report):
    given = setting()
    matrix = jnp.eye(DIM)[given.kept]
    mean = jax.jit(lambda ys: jax.lax.map(
        lambda y: posterior_mean(given.prior, matrix, y, NOISE), ys, batch_size=20
    ))(jnp.asarray(given.measured))  # fmt: skip
    limit = psnr(mean)
    report("exact posterior mean: PSNR", f"{limit:.2f} dB")
    race = {
        "jaxlab, LMAPS tweedie": {"rho 1": jaxlab_program(lmaps(tweedie()))},
        "jaxlab, LMAPS gaussian": {"rho 1": jaxlab_program(lmaps(gaussian(0.5)))},
        "jaxlab, DPS": {
            f"scale {s:g}": jaxlab_program(dps(normalized=False), s, "ancestral") for s in SCALES
        },
        "deepinv, DPS": {f"weight {w:g}": deepinv_dps(w) for w in (1.0, 10.0, 100.0, 1000.0)},
        "deepinv, DDRM": {"defaults": deepinv_ddrm()},
        "deepinv, DiffPIR": {f"lambda {x:g}": deepinv_diffpir(x) for x in (1.0, 3.0, 7.0, 25.0)},
    }  # fmt: skip
    times = {}
    for name, programs in race.items():
        chosen, program, score = best(programs)
        times[name] = min(seconds(program) for _ in range(REPETITIONS))
        report(f"{name}, {chosen}: PSNR", f"{score:.2f} dB")
        report(f"{name}, {chosen}: one batch", f"{times[name]:.3f} s")
        assert score < limit + 0.05, "nothing is better than the posterior's mean"
    for rival in ("DPS", "DDRM", "DiffPIR"):
        ours = "jaxlab, DPS" if rival == "DPS" else "jaxlab, LMAPS gaussian"
        report(
            f"deepinv, {rival} / {ours}: time", f"{times[f'deepinv, {rival}'] / times[ours]:.2f}"
        )

"""Measures at which noise levels diffusion models copy digits and faces, and how to keep them off.

Run it by ``jaxlab run memorization`` or ``python experiments/memorization.py``; ``--help`` lists
the flags.
"""

import functools
import sys
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import scipy.spatial.distance
from flax import nnx

from jaxlab.data.images import Images, load_images
from jaxlab.diffusion.empirical import empirical_prior
from jaxlab.diffusion.learned import LearnedDenoiser, Training
from jaxlab.diffusion.memorization import (
    Concentration,
    Coverage,
    max_posterior_weight,
    shell_coverage,
)
from jaxlab.diffusion.memorization_bounds import (
    Bounds,
    capacity_level,
    coverage_level,
    posterior_weight_bounds,
    shell_coverage_bounds,
    spectrum,
)
from jaxlab.diffusion.memorization_copies import distance_ratios, nearest_rows
from jaxlab.diffusion.memorization_shells import shell_radii
from jaxlab.diffusion.memorization_training import (
    CoverageGated,
    denoising_errors,
    gap_hyper,
    gap_training,
)
from jaxlab.diffusion.mixture import MixturePrior, mixture_prior
from jaxlab.diffusion.networks import DenseNetwork, split_network
from jaxlab.diffusion.sample import sample, swap_window
from jaxlab.diffusion.schedule import edm_sigmas
from jaxlab.experiment import CommonArgs, Experiment, Row, Session, main, seed_keys
from jaxlab.experiment.memorization_report import VARIANTS, WINDOWS, draw, judge
from jaxlab.stats.energy import energy_distance

WIDTHS = {"digits": 3.0, "faces": 5.0}
"""The shells' ``c``: 5 as in the paper where the dimension allows it."""
NUM_STEPS, LARGEST, SMALLEST = 18, 20.0, 0.01
SIZE = 200
"""Digits that the gated learner has for training."""
NETWORK = {"width": 128, "num_blocks": 2}
DATA_SCALE, LOG_MEAN, LOG_DEVIATION = 0.75, -0.7, 1.3
PEAK_RATE, DECAY, BATCH_SIZE = 3e-3, 0.99, 32
SHOWN = 6
"""Samples of each variant that the figure shows."""
QUANTILES = (0.1, 0.5, 0.9)


@dataclass(frozen=True)
class Args(CommonArgs):
    """Flags of the experiment."""

    seeds: int = 5
    """How many independent repetitions: splits, latents, networks."""
    levels: int = 25
    """Levels of the curves between 0.05 and 12."""
    train_rows: int = 20
    """Digits that the networks are trained on."""
    steps: int = 3000
    """Training steps; with --smoke at most 150, which is too few to copy."""
    samples: int = 256
    """Samples of every model; with --smoke at most 64."""

    def __post_init__(self) -> None:
        """Check what the types leave open."""
        super().__post_init__()
        least = {"seeds": 2, "levels": 5, "train_rows": 2, "steps": 30, "samples": 16}
        for name, number in least.items():
            if getattr(self, name) < number:
                raise ValueError(f"{name} must be at least {number}, got {getattr(self, name)}")
        if self.train_rows > 200:
            raise ValueError(f"train_rows must be at most 200, got {self.train_rows}")


class Inputs(NamedTuple):
    """What ``prepare`` hands to ``run``: sizes, and images as rows in the order of a seed."""

    levels: np.ndarray
    steps: int
    samples: int
    digits: np.ndarray
    labels: np.ndarray
    faces: np.ndarray


def prepare(args: Args) -> Inputs:
    """Load the images; faces are the first label of their set."""
    digits, crops = load_images("digits"), load_images("faces")
    faces = Images(crops.pixels[crops.labels == 1], crops.labels[crops.labels == 1])
    generator = np.random.default_rng(args.seed)
    order, face_order = (generator.permutation(len(s.labels)) for s in (digits, faces))
    steps, samples = args.steps, args.samples
    if args.smoke:
        steps, samples = min(steps, 150), min(samples, 64)
    return Inputs(
        np.geomspace(0.05, 12.0, args.levels),
        steps - steps % 3,
        samples,
        digits.pixels.reshape(len(order), -1)[order],
        digits.labels[order],
        faces.pixels.reshape(len(face_order), -1)[face_order],
    )


def run(args: Args, inputs: Inputs, session: Session) -> list[Row]:
    """All measurements."""
    digits, faces, few = inputs.digits, inputs.faces, args.train_rows
    tables = {
        "digits": (digits[:500], digits[-500:]),
        "faces": (faces[:50], faces[50:]),
        f"{few} digits": (digits[:few], digits[-500:]),
    }
    if args.smoke:  # each shape is a program of its own
        tables.pop(f"{few} digits")
    # First what takes longest and has checkpoints.
    rows = training_rows(args, session, inputs)
    for name, (data, held_out) in tables.items():
        rows += curve_rows(args, session, name, inputs.levels, data, held_out)
    return rows + swap_rows(args, session, inputs)


@functools.partial(jax.jit, static_argnames="c")
def curves(
    key: jax.Array, data: jax.Array, held_out: jax.Array, sigmas: jax.Array, c: float
) -> tuple[Concentration, Coverage, Bounds, Bounds]:
    """Both curves and their bounds."""
    key_weight, key_share = jax.random.split(key)
    return (
        max_posterior_weight(key_weight, data, sigmas, num_noise=4),
        shell_coverage(key_share, held_out, data, sigmas, c, num_noise=8),
        posterior_weight_bounds(data, sigmas),
        shell_coverage_bounds(held_out, data, sigmas, c),
    )


def curve_rows(
    args: Args,
    session: Session,
    name: str,
    levels: np.ndarray,
    data: np.ndarray,
    held_out: np.ndarray,
) -> list[Row]:
    """Curves with standard errors, of one split."""
    c = WIDTHS["faces" if name == "faces" else "digits"]
    with session.timed(f"curves {name}"):
        measured = curves(
            jax.random.key(args.seed), *map(jnp.asarray, (data, held_out, levels)), c=c
        )
        weight, share, weight_bounds, share_bounds = jax.device_get(measured)
    found = {**weight._asdict(), **share._asdict()}
    for curve, bounds in (("weight", weight_bounds), ("share", share_bounds)):
        found |= {f"{curve}_{end}": values for end, values in bounds._asdict().items()}
    nearest = jnp.asarray(scipy.spatial.distance.cdist(held_out, data).min(axis=1))
    scales = {
        "coverage_level": jnp.median(coverage_level(nearest, data.shape[1], c)),
        "capacity_level": capacity_level(spectrum(jnp.asarray(data)), len(data)),
    }
    rows = [Row("scale", key, float(level), dataset=name) for key, level in scales.items()]
    return rows + [
        Row("curve", metric, float(value), step=sigma, seed=args.seed, dataset=name)
        for metric, values in found.items()
        for sigma, value in zip(levels, values, strict=True)
    ]


def grid() -> jax.Array:
    """The levels of every trajectory."""
    return edm_sigmas(NUM_STEPS, smallest=SMALLEST, largest=LARGEST, end_at_zero=True)


def class_mixture(digits: np.ndarray, labels: np.ndarray) -> MixturePrior:
    """One Gaussian for each digit."""
    groups = [digits[labels == label] for label in range(10)]
    shares = np.array([len(group) / len(digits) for group in groups])
    covariances = [np.cov(g.T, ddof=0) + 0.02 * np.eye(g.shape[1]) for g in groups]
    means = [group.mean(axis=0) for group in groups]
    return mixture_prior(*(jnp.asarray(np.array(part)) for part in (shares, means, covariances)))


@jax.jit
def swapped(
    rows: jax.Array, population: MixturePrior, starts: jax.Array, choices: jax.Array
) -> jax.Array:
    """The share of copies for each choice of denoisers: empirical, gated, population."""
    memory = empirical_prior(rows)
    gated = CoverageGated(memory, population.denoise, shell_radii(rows.shape[1], WIDTHS["digits"]))
    denoisers = (memory.denoise, gated, population.denoise)

    def share(choice: jax.Array) -> jax.Array:
        def follow(start: jax.Array) -> jax.Array:
            key = jax.random.key(0)  # nothing is drawn on the way
            return sample(denoisers, grid(), start, key, choice=choice).state.x

        found = nearest_rows(jax.lax.map(follow, starts, batch_size=100), rows)
        return (distance_ratios(found) < 1 / 3).mean(dtype=rows.dtype)

    return jax.lax.map(share, choices)


def swap_rows(args: Args, session: Session, inputs: Inputs) -> list[Row]:
    """Which part of a trajectory carries the copying: windows of two denoisers, by seed."""
    choices = jnp.stack(
        [
            jnp.full(NUM_STEPS, base)
            if window is None
            else swap_window(NUM_STEPS, *window, base=base, donor=donor)
            for window, base, donor in WINDOWS.values()
        ]
    )
    rows = []
    with session.timed("swaps"):
        for s, key in enumerate(seed_keys(args)):
            digits = np.roll(inputs.digits, -SIZE * s, axis=0)
            labels = np.roll(inputs.labels, -SIZE * s)
            population = class_mixture(digits[SIZE:], labels[SIZE:])
            starts = LARGEST * jax.random.normal(key, (inputs.samples, digits.shape[1]))
            shares = swapped(jnp.asarray(digits[:SIZE]), population, starts, choices)
            rows += [
                Row(name, "swap_copies", float(value), seed=args.seed + s)
                for name, value in zip(WINDOWS, shares, strict=True)
            ]
    return rows


def training_rows(args: Args, session: Session, inputs: Inputs) -> list[Row]:
    """Networks without a gap, with one in the middle, and with dummies; in float32."""
    with jax.enable_x64(False):
        return _training_rows(args, session, inputs)


def _training_rows(args: Args, session: Session, inputs: Inputs) -> list[Row]:
    num_rows, dim = args.train_rows, inputs.digits.shape[1]

    def network(key: jax.Array) -> DenseNetwork:
        return DenseNetwork(dim, **NETWORK, rngs=nnx.Rngs(key))

    apply, _ = split_network(network(jax.random.key(0)))
    schedule: Any = optax.cosine_decay_schedule(PEAK_RATE, inputs.steps)  # pyright: ignore
    method = gap_training(apply, optax.adam(schedule), batch_size=BATCH_SIZE, decay=DECAY)
    digits = inputs.digits.astype(np.float32)
    # One program trains every variant from every seed.
    pairs = [(gap, s) for gap in VARIANTS.values() for s in range(args.seeds)]
    keys = [jax.random.split(key, 3) for key in seed_keys(args)]
    starts = [split_network(network(key[0]))[1] for key in keys]
    data = [digits[num_rows * s : num_rows * (s + 1)] for s in range(args.seeds)]
    hypers = [
        gap_hyper(DATA_SCALE, gap=gap, mean=LOG_MEAN, deviation=LOG_DEVIATION) for gap, _ in pairs
    ]
    problems = Training(
        jax.tree.map(lambda *leaves: jnp.stack(leaves), *(starts[s] for _, s in pairs)),
        jnp.stack([data[s] for _, s in pairs]),
    )
    done = session.run(
        "training",
        method,
        problems,
        jax.tree.map(lambda *leaves: jnp.stack(leaves), *hypers),
        jnp.stack([keys[s][1] for _, s in pairs]),
        num_steps=inputs.steps,
        chunk_size=inputs.steps // 3,
        every=inputs.steps // 3,
        in_axes=(0, 0, 0),
    )
    latents = LARGEST * jnp.stack(
        [jax.random.normal(keys[s][2], (inputs.samples, dim)) for _, s in pairs]
    )
    held_out = jnp.asarray(digits[-500:])
    levels = jnp.asarray(np.geomspace(0.05, 12.0, 9), jnp.float32)

    def look(params: Any, rows: jax.Array, latents: jax.Array) -> tuple[jax.Array, ...]:
        denoise = LearnedDenoiser(apply, params, jnp.float32(DATA_SCALE))
        key = jax.random.key(0)

        def follow(start: jax.Array) -> jax.Array:
            return sample(denoise, grid(), start, key).state.x

        ends = jax.vmap(follow)(latents)
        found = nearest_rows(ends, rows)
        errors = [
            denoising_errors(key, denoise, signals, levels, num_noise=num_noise)
            for signals, num_noise in ((rows, 8), (held_out, 1))
        ]
        return (
            ends[:SHOWN],
            rows[found.row[:SHOWN]],
            distance_ratios(found),
            energy_distance(ends, held_out),
            *errors,
        )

    with session.timed("samples"):
        # One after the other: a trajectory of all models at once is no faster.
        compiled = jax.jit(lambda inputs: jax.lax.map(lambda one: look(*one), inputs))
        seen = jax.device_get(compiled((done.state.average, problems.rows, latents)))
    places = [(name, s) for name in VARIANTS for s in range(args.seeds)]
    rows = []
    for (name, s), ends, nearest, ratios, energy, own, other in zip(places, *seen, strict=True):
        where = {"seed": args.seed + s}
        rows.append(Row(name, "copies", float((ratios < 1 / 3).mean()), **where))
        rows.append(Row(name, "energy", float(energy), **where))
        rows += [Row(name, "ratio", float(np.quantile(ratios, q)), step=q, **where)
                 for q in QUANTILES]  # fmt: skip
        for metric, values in (("train_error", own), ("held_out_error", other)):
            rows += [
                Row(name, metric, float(value), step=float(sigma), **where)
                for sigma, value in zip(levels, values, strict=True)
            ]
        if s == 0:
            for metric, images in (("sample_pixel", ends), ("nearest_pixel", nearest)):
                rows += [
                    Row(name, metric, float(pixel), step=i, seed=image)
                    for image, pixels in enumerate(images)
                    for i, pixel in enumerate(pixels)
                ]
    spread = jax.jit(energy_distance)
    for s in range(args.seeds):
        own = float(spread(jnp.asarray(data[s]), held_out))
        rows.append(Row("training set", "energy", own, seed=args.seed + s))
    return rows


EXPERIMENT = Experiment("memorization", Args, prepare, run, judge, draw)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))

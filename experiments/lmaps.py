"""Restores patches of a photograph by local MAP sampling and its rivals, with an exact denoiser.

The prior is a Gaussian mixture fitted to patches of another photograph, so that the posterior's
mean and samples are known exactly. Run it by ``jaxlab run lmaps`` or ``python
experiments/lmaps.py``; ``--help`` lists the flags.
"""

import sys
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlab.core import Method
from jaxlab.core.files import load_leaves, save_leaves
from jaxlab.data.images import load_images, random_patches
from jaxlab.diffusion import nonlinear_operators as nonlinear
from jaxlab.diffusion import operators
from jaxlab.diffusion.gaussian import fit_gaussian
from jaxlab.diffusion.lmaps import daps, dps, lmaps, pigdm
from jaxlab.diffusion.lmaps_solvers import descent, langevin, posterior_draw
from jaxlab.diffusion.mixture import (
    MixturePrior,
    fit_mixture,
    mixture_prior,
    posterior_mean,
    posterior_sample,
)
from jaxlab.diffusion.restoration import (
    LMAPSHyper,
    Restoration,
    ancestral_rho,
    flat,
    gaussian,
    ode_denoiser,
    tweedie,
)
from jaxlab.diffusion.schedule import edm_sigmas
from jaxlab.experiment import CommonArgs, Experiment, Row, Session, main
from jaxlab.experiment.lmaps_problems import (
    DIM,
    NOISE,
    SIDE,
    Batch,
    linear_batch,
    posteriors,
    predicted,
    tiles,
)
from jaxlab.experiment.lmaps_report import (
    DPS_STEPS,
    MODES,
    TASKS,
    TILE,
    draw,
    judge,
    toy_measurement,
)

TRAIN, TEST, CORNER = "camera", "astronaut", (88, 192)
RHOS = (0.0, 0.5, 0.8, 0.95, 1.0)
TILE_PATCHES = (TILE // SIDE) ** 2
STEP_SIZES = (0.1, 0.3, 1.0)
METHODS = {
    "tweedie": lmaps(tweedie()),
    "gaussian": lmaps(gaussian(0.5)),
    "flat": lmaps(flat()),
    "DPS": dps(),
    "PiGDM": pigdm(),
    "DAPS": daps(),
    "exact draw": lmaps(flat(), posterior_draw()),
    "descent": lmaps(gaussian(0.5), descent()),
}
"""One object per method, so that a second run of it does not compile again."""

COARSENESS = 2.0
_DRAWN = lmaps(gaussian(0.5), langevin())
_FINEST = COARSENESS * float(nonlinear.JPEG_LUMINANCE.min()) / 127.5
RIVALS = {
    "blur": _DRAWN,
    "quantised": _DRAWN,
    "JPEG": lmaps(gaussian(0.5), langevin(norm=1 / _FINEST)),
}
"""Draws by Langevin steps where LMAPS descends, of the same covariance: DAPS."""


@dataclass(frozen=True)
class Args(CommonArgs):
    """Flags of the experiment."""

    patches: int = 192
    """Patches per task, split evenly between the seeds; with --smoke the 16 of the picture."""
    rows: int = 5000
    """Patches that the prior is fitted to; with --smoke at most 1500."""
    components: int = 20
    """Gaussians of the prior; with --smoke at most 4."""

    def __post_init__(self) -> None:
        """Check what the types leave open."""
        super().__post_init__()
        if self.patches < TILE_PATCHES or self.patches % self.seeds:
            raise ValueError(
                f"patches must be at least {TILE_PATCHES} and a multiple of seeds = {self.seeds}, "
                f"got {self.patches}"
            )
        if not 1 <= self.components <= self.rows:
            raise ValueError(
                f"components must be between 1 and rows = {self.rows}, got {self.components}"
            )


class Inputs(NamedTuple):
    """What ``prepare`` hands to ``run``: patches ``[count, 64]`` and sizes."""

    rows: np.ndarray
    truth: np.ndarray
    components: int
    steps: int


def prepare(args: Args) -> Inputs:
    """Cut patches: those of the picture first, then random ones."""
    key_train, key_test = jax.random.split(jax.random.key(args.seed))
    count, patches = (
        (min(args.rows, 1500), TILE_PATCHES) if args.smoke else (args.rows, args.patches)
    )
    pixels = load_images(TRAIN).pixels
    rows = random_patches(key_train, pixels, size=SIDE, num_patches=count).reshape(-1, DIM)
    (image,) = load_images(TEST).pixels
    more = random_patches(
        key_test, image[None], size=SIDE, num_patches=max(patches - TILE_PATCHES, 1)
    )
    truth = np.concatenate([tiles(image, CORNER, TILE), more.reshape(-1, DIM)])[:patches]
    components = min(args.components, 4) if args.smoke else args.components
    return Inputs(rows, truth, components, 12 if args.smoke else 50)


def fitted(session: Session, args: Args, inputs: Inputs) -> MixturePrior:
    """The prior; kept, since a fit on several threads does not repeat itself to the last bit."""
    file = session.folder / "checkpoints" / "prior" / "prior.npz"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        with session.timed("prior"):
            key = jax.random.key(args.seed + 2 * 10**6)
            save_leaves(file, fit_mixture(key, inputs.rows, inputs.components, num_iterations=15))
    count = inputs.components
    shapes = ((count,), (count, DIM), (count, DIM, DIM))
    like = jax.eval_shape(mixture_prior, *(jax.ShapeDtypeStruct(s, float) for s in shapes))
    return jax.tree.map(jnp.asarray, load_leaves(file, like)[0])


def run(args: Args, inputs: Inputs, session: Session) -> list[Row]:
    """All measurements."""
    prior = fitted(session, args, inputs)
    batch = linear_batch(jax.random.key(args.seed + 10**6), jnp.asarray(inputs.truth))
    rows = exact_rows(args, session, prior, batch)
    rows += solver_rows(args, session, prior, inputs, batch)
    rows += prediction_rows(args, session, inputs, batch)
    rows += nonlinear_rows(args, session, prior, inputs)
    return rows + toy_rows(args, session)


def nothing(*_: Any) -> None:
    """Record nothing."""


def restored(
    session: Session,
    piece: str,
    method: Method,
    denoise: Any,
    batch: Batch,
    *,
    steps: int,
    scale: float = 1.0,
    rho: Any = 1.0,
    shared: bool = False,
    noise: float = NOISE,
) -> jax.Array:
    """The estimates of a batch; ``shared`` operators are one for all."""
    sigmas = edm_sigmas(steps, smallest=0.01, largest=10.0, end_at_zero=True)
    problem = Restoration(
        denoise, batch.operators, batch.measurements, sigmas, sigmas[0] * batch.start
    )
    if isinstance(rho, str):
        rho = ancestral_rho(sigmas)
    hyper = LMAPSHyper(
        jnp.asarray(noise), jnp.asarray(scale), jnp.broadcast_to(jnp.asarray(rho, float), (steps,))
    )
    axes = Restoration._make((None, None if shared else 0, 0, None, 0))
    done = session.run(
        piece, method, problem, hyper, batch.keys, num_steps=steps, chunk_size=steps // 2,
        in_axes=(axes, None, 0), trace_fn=nothing,
    )  # fmt: skip
    return done.state.x0


def error_rows(
    args: Args, method: str, tasks: tuple[str, ...], truth: jax.Array, found: jax.Array,
    step: float = 1.0,
) -> list[Row]:  # fmt: skip
    """Mean squared errors by task and seed."""
    squares = np.square(np.asarray(found - truth)).reshape(len(tasks), args.seeds, -1)
    return [
        Row(method, "mse", float(squares[t, s].mean()), step=step, seed=args.seed + s, dataset=task)
        for t, task in enumerate(tasks)
        for s in range(args.seeds)
    ]


def picture_rows(what: str, task: str, pixels: Any) -> list[Row]:
    """The pixels of the picture's patches."""
    flat = np.asarray(pixels)[:TILE_PATCHES].reshape(-1)
    return [Row(what, "pixel", float(v), step=i, dataset=task) for i, v in enumerate(flat)]


LINEAR = TASKS[:2]


def exact_rows(args: Args, session: Session, prior: MixturePrior, batch: Batch) -> list[Row]:
    """What cannot be beaten on average, and what posterior samplers aim at."""

    @jax.jit
    def exact(prior: MixturePrior, given: tuple[Any, ...]) -> tuple[jax.Array, jax.Array]:
        def one(given: tuple[Any, ...]) -> tuple[jax.Array, jax.Array]:
            matrix, y, key = given
            mean = posterior_mean(prior, matrix, y, NOISE)
            return mean, posterior_sample(key, prior, matrix, y, NOISE)

        return jax.lax.map(one, given, batch_size=16)

    with session.timed("exact posterior"):
        given = (batch.operators.entries, batch.measurements, batch.keys)
        mean, draw = jax.block_until_ready(exact(prior, given))
    rows = error_rows(args, "posterior mean", LINEAR, batch.truth, mean)
    return rows + error_rows(args, "posterior sample", LINEAR, batch.truth, draw)


def solver_rows(
    args: Args, session: Session, prior: MixturePrior, inputs: Inputs, batch: Batch
) -> list[Row]:
    """The table of solvers, and the picture of both linear tasks."""
    steps, rows, plan = inputs.steps, [], []
    estimates: dict[str, jax.Array] = {}
    for rho in (1.0, 0.0) if args.smoke else (1.0, 0.8, 0.0):
        plan.append(("LMAPS, tweedie", "tweedie", {"rho": rho}, rho))
    for rho in () if args.smoke else RHOS:
        plan.append(("LMAPS, gaussian", "gaussian", {"rho": rho}, rho))
    many = 2 * steps if args.smoke else DPS_STEPS
    for size in STEP_SIZES[-1:] if args.smoke else STEP_SIZES:
        more = {"scale": size, "rho": "ancestral", "steps": many}
        plan.append((f"DPS, {size:g}", "DPS", more, 1.0))
    if not args.smoke:
        plan += [
            ("LMAPS, flat", "flat", {}, 1.0),
            ("LMAPS, flat, k = 0.3", "flat", {"scale": 0.3}, 1.0),
            ("TMPD", "tweedie", {"rho": "ancestral"}, 1.0),
            ("PiGDM", "PiGDM", {"rho": "ancestral", "steps": many}, 1.0),
            ("DAPS", "DAPS", {}, 1.0),
            ("DAPS, exact draws", "exact draw", {}, 1.0),
        ]
    for name, kind, options, rho in plan:
        denoise = ode_denoiser(prior.denoise) if kind == "DAPS" else prior.denoise
        piece = f"{name} {rho:g}"
        found = restored(
            session, piece, METHODS[kind], denoise, batch, **{"steps": steps, **options}
        )
        rows += error_rows(args, name, LINEAR, batch.truth, found, rho)
        estimates[piece] = found
    count = len(inputs.truth)
    masked = jnp.einsum("bmd,bm->bd", batch.operators.entries, batch.measurements)[:count]
    hidden = batch.operators.entries[:count].sum(axis=1) == 0
    pooled = batch.measurements[count:, : DIM // 4].reshape(-1, SIDE // 2, 1, SIDE // 2, 1)
    enlarged = jnp.broadcast_to(pooled, (count, SIDE // 2, 2, SIDE // 2, 2)).reshape(-1, DIM)
    rows += picture_rows("seen", LINEAR[0], jnp.where(hidden, jnp.nan, masked))
    rows += picture_rows("seen", LINEAR[1], enlarged)
    for t, task in enumerate(LINEAR):
        rows += picture_rows("restored", task, estimates["LMAPS, tweedie 1"][t * count :])
    return rows + picture_rows("true", "", inputs.truth)


def prediction_rows(args: Args, session: Session, inputs: Inputs, batch: Batch) -> list[Row]:
    """A Gaussian prior, under which the law of LMAPS on these very patches is known exactly."""
    prior, steps = fit_gaussian(jnp.asarray(inputs.rows)), inputs.steps
    with session.timed("prediction"):
        offsets, values = posteriors(prior, batch)
    sigmas, rows = edm_sigmas(steps, smallest=0.01, largest=10.0, end_at_zero=True), []
    for rho in RHOS[::4] if args.smoke else RHOS:
        piece = f"Gaussian prior {rho:g}"
        found = restored(
            session, piece, METHODS["tweedie"], prior.denoise, batch, steps=steps, rho=rho
        )
        rows += error_rows(args, "Gaussian prior", LINEAR, batch.truth, found, rho)
        expected, deviation = predicted(offsets, values, sigmas, rho)
        for metric, numbers in (("predicted", expected), ("deviation", deviation)):
            rows += [
                Row("Gaussian prior", metric, float(value), step=rho, dataset=task)
                for task, value in zip(LINEAR, numbers, strict=True)
            ]
    fine = np.linspace(0, 1, 3 if args.smoke else 21)
    for rho in fine:
        expected, _ = predicted(offsets, values, sigmas, rho)
        rows += [
            Row("Gaussian prior", "curve", float(value), step=rho, dataset=task)
            for task, value in zip(LINEAR, expected, strict=True)
        ]
    return rows


def nonlinear_rows(args: Args, session: Session, prior: MixturePrior, inputs: Inputs) -> list[Row]:
    """Blur by the closed form; rounding, JPEG and lost phases by descent."""
    shape, truth = (SIDE, SIDE), jnp.asarray(inputs.truth)
    step = 0.25
    blurred = operators.blur(shape, operators.motion_kernel(5, np.pi / 4))
    jpeg = nonlinear.block_quantizer(shape, coarseness=COARSENESS)
    phase = nonlinear.phase_retrieval(shape)
    cases = {
        "blur": (blurred, "gaussian", NOISE, lambda y: y),
        # What rounding leaves is uniform; this is its standard deviation.
        "quantised": (nonlinear.quantizer(step), "descent", step / 12**0.5, lambda y: y),
        "JPEG": (jpeg, "descent", 1 / 12**0.5, jpeg.decode),
        "phase": (phase, "descent", NOISE, lambda y: jnp.full(DIM, jnp.nan)),
    }
    rows: list[Row] = []
    for task, (operator, kind, noise, show) in cases.items():
        if args.smoke and task != "quantised":
            continue
        key_noise, key_start, key_run = jax.random.split(jax.random.key(args.seed + 3 * 10**6), 3)
        clean = jax.jit(jax.vmap(operator))(truth)
        fresh = noise * jax.random.normal(key_noise, clean.shape)
        measured = clean + fresh if task in ("blur", "phase") else clean
        batch = Batch(
            truth, operator, measured, jax.random.normal(key_start, truth.shape),
            jax.random.split(key_run, len(truth)),
        )  # fmt: skip
        found = restored(
            session, task, METHODS[kind], prior.denoise, batch, steps=inputs.steps, shared=True,
            noise=noise,
        )  # fmt: skip
        if task == "phase":  # half a turn cannot be told from the measurement
            turned = found[:, ::-1]
            nearer = jnp.square(found - truth).sum(1) <= jnp.square(turned - truth).sum(1)
            found = jnp.where(nearer[:, None], found, turned)
        seen = jax.vmap(show)(measured)
        rows += error_rows(args, "LMAPS, descent", (task,), truth, found)
        if task in RIVALS and not args.smoke:
            drawn = restored(
                session, f"{task} DAPS", RIVALS[task], prior.denoise, batch, steps=inputs.steps,
                shared=True, noise=noise,
            )  # fmt: skip
            rows += error_rows(args, "DAPS", (task,), truth, drawn)
        rows += error_rows(args, "seen", (task,), truth, seen)
        rows += picture_rows("seen", task, seen) + picture_rows("restored", task, found)
    return rows


def last_estimate(state: Any, info: Any) -> jax.Array:
    """Record the estimate."""
    del info
    return state.x0


def toy_rows(args: Args, session: Session) -> list[Row]:
    """Three modes in two dimensions: paths of the estimates from the same starts."""
    weights, means, deviations, matrix, y, noise = (jnp.asarray(part) for part in toy_measurement())
    spreads = deviations[:, None, None] ** 2 * jnp.eye(2)
    prior, steps, count = mixture_prior(weights, means, spreads), 40, 6
    sigmas = edm_sigmas(steps, smallest=0.01, largest=10.0, end_at_zero=True)
    starts = sigmas[0] * jax.random.normal(jax.random.key(args.seed + 4 * 10**6), (count, 2))
    problem = Restoration(prior.denoise, operators.MatrixOperator(matrix), y, sigmas, starts)
    keys = jax.random.split(jax.random.key(args.seed + 5 * 10**6), count)
    plan = {
        "LMAPS": (METHODS["tweedie"], 1.0, jnp.ones(steps)),
        "DAPS": (METHODS["exact draw"], 1.0, jnp.ones(steps)),
        "DPS": (METHODS["DPS"], 0.3, ancestral_rho(sigmas)),
    }
    rows: list[Row] = []
    for name, (method, scale, rho) in plan.items():
        if args.smoke and name != "LMAPS":
            continue
        done = session.run(
            f"{MODES} modes {name}", method, problem, LMAPSHyper(noise, jnp.asarray(scale), rho),
            keys, num_steps=steps, chunk_size=steps // 2, trace_fn=last_estimate,
            in_axes=(Restoration._make((None, None, None, None, 0)), None, 0),
        )  # fmt: skip
        for start, path in enumerate(np.asarray(done.trace)):
            for axis, metric in enumerate(("path_x", "path_y")):
                rows += [
                    Row(name, metric, float(value), step=t, seed=start)
                    for t, value in enumerate(path[:, axis])
                ]
    return rows


EXPERIMENT = Experiment("lmaps", Args, prepare, run, judge, draw)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))

r"""Models between copying and generalising: a learner in closed form, and training with a gap.

The *coverage-gated learner* is the paper's mechanism without a network [reconstructed]: inside of
the shells around the training rows, where training supervises it, it says what the empirical
denoiser says, and elsewhere what the population's denoiser says.

*Gap training* leaves levels out of training: where a drawn level falls into :math:`[a, b]`, the row
has weight 0. The network interpolates across the gap by its features of the level, which must be
smooth (``networks`` takes low frequencies). With the danger zone as the gap it does not learn to
copy; with another gap of the same kind, a *dummy*, it does.

Source: arXiv:2602.17846, section on gap training; the rule for dropping is reconstructed.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float

from jaxlab.core.checks import check_count, check_key, check_value
from jaxlab.core.types import Method, Scalar
from jaxlab.diffusion.denoise import Denoiser
from jaxlab.diffusion.edm import NoiseSampler, log_normal_noise
from jaxlab.diffusion.empirical import EmpiricalPrior
from jaxlab.diffusion.learned import (
    Training,
    TrainingHyper,
    TrainingInfo,
    TrainingState,
    denoiser_training,
)
from jaxlab.diffusion.memorization_shells import ShellRadii
from jaxlab.diffusion.schedule import check_level

__all__ = [
    "CoverageGated",
    "GapHyper",
    "denoising_errors",
    "gap_hyper",
    "gap_noise",
    "gap_training",
    "in_shells",
]


def in_shells(
    prior: EmpiricalPrior, x: Float[Array, " dim"], sigma: Scalar, radii: ShellRadii
) -> Bool[Array, ""]:
    """Whether a noisy signal lies in the shell of any row, in the chunks of ``prior``.

    Example:
        >>> from jaxlab.diffusion.empirical import empirical_prior
        >>> from jaxlab.diffusion.memorization_shells import shell_radii
        >>> prior, radii = empirical_prior(jnp.zeros((1, 16))), shell_radii(16, 1.0)
        >>> [bool(in_shells(prior, r * jnp.ones(16), 1.0, radii)) for r in (0.5, 1.0, 2.0)]
        [False, True, False]
    """
    check_level(sigma)
    query = x - prior.centre
    low, high = (jnp.square(sigma * radius) for radius in radii)

    def add(covered: Array, chunk: tuple[Array, Array, Array]) -> tuple[Array, None]:
        rows, half_norms, log_weights = chunk
        # By default accelerators multiply float32 with the precision of shorter formats.
        products = jnp.matmul(rows, query, precision=jax.lax.Precision.HIGHEST)
        squares = query @ query - 2 * (products - half_norms)
        inside = (squares >= low) & (squares <= high) & (log_weights > -jnp.inf)
        return covered | inside.any(), None

    chunks = (prior.rows, prior.half_norms, prior.log_weights)
    return jax.lax.scan(add, jnp.asarray(False), chunks)[0]


class CoverageGated(eqx.Module):
    """The coverage-gated learner, a denoiser; give it float64 below ``sigma = 0.1``.

    Attributes:
        memory: The prior on the training rows.
        population: The denoiser outside of the shells, such as a mixture's.
        radii: Of the shells, ``shell_radii(dim, c)``.

    Example:
        >>> from jaxlab.diffusion.empirical import empirical_prior
        >>> from jaxlab.diffusion.memorization_shells import shell_radii
        >>> gated = CoverageGated(
        ...     empirical_prior(jnp.zeros((1, 16))), lambda x, sigma: x, shell_radii(16, 1.0)
        ... )
        >>> [float(gated(r * jnp.ones(16), 1.0)[0]) for r in (0.5, 1.0, 2.0)]
        [0.5, 0.0, 2.0]
    """

    memory: EmpiricalPrior
    population: Denoiser
    radii: ShellRadii

    def __call__(self, x: Float[Array, " dim"], sigma: Scalar) -> Float[Array, " dim"]:
        """The estimate of the clean signal."""
        covered = in_shells(self.memory, x, sigma, self.radii)
        return jnp.where(covered, self.memory.denoise(x, sigma), self.population(x, sigma))


def gap_noise(
    mean: Scalar, deviation: Scalar, low: Scalar, high: Scalar, keep: Scalar = 0.0
) -> NoiseSampler:
    """Levels as ``log_normal_noise``, of weight 0 inside of ``[low, high]``.

    Args:
        mean: Of the levels' logarithm.
        deviation: Of the levels' logarithm.
        low: The gap's lower end, positive; 0 and 0 are the ends of no gap.
        high: The gap's upper end.
        keep: The probability that a level inside of the gap keeps its weight of 1, in [0, 1].

    Raises:
        ValueError: The ends are not in order, or something is out of range.

    Example:
        >>> sigma, weight = gap_noise(-1.2, 1.2, 0.2, 0.5)(jax.random.key(0), (1000,))
        >>> bool((weight == ((sigma < 0.2) | (sigma > 0.5))).all())
        True
    """
    draw = log_normal_noise(mean, deviation)
    check_value("low", low, lambda a: a >= 0, "non-negative")
    check_value("high", high, lambda b: b >= low, f"at least low = {low}")
    check_value("keep", keep, lambda p: (p >= 0) & (p <= 1), "in [0, 1]")

    def with_gap(key: Array, shape: tuple[int, ...]) -> tuple[Array, Array]:
        check_key("key", key)
        key_level, key_keep = jax.random.split(key)
        sigma, weight = draw(key_level, shape)
        inside = (sigma >= low) & (sigma <= high)
        kept = jax.random.uniform(key_keep, shape) < keep
        return sigma, jnp.where(inside & ~kept, 0.0, weight)

    return with_gap


class GapHyper(NamedTuple):
    """Hyper-parameters of ``gap_training``; made by ``gap_hyper``.

    Attributes:
        data_scale: The standard deviation of the data's entries around 0.
        mean: Of the levels' logarithm.
        deviation: Of the levels' logarithm.
        low: The gap's lower end; 0 and 0 are the ends of no gap.
        high: The gap's upper end.
        keep: The probability that a level inside of the gap counts.
    """

    data_scale: Float[Array, ""]
    mean: Float[Array, ""]
    deviation: Float[Array, ""]
    low: Float[Array, ""]
    high: Float[Array, ""]
    keep: Float[Array, ""]


def gap_hyper(
    data_scale: Scalar,
    *,
    gap: tuple[Scalar, Scalar] = (0.0, 0.0),
    mean: Scalar = -1.2,
    deviation: Scalar = 1.2,
    keep: Scalar = 0.0,
) -> GapHyper:
    """Hyper-parameters of ``gap_training``, without a gap by default; the defaults are EDM's.

    Example:
        >>> float(gap_hyper(0.5, gap=(0.2, 1.0)).high)
        1.0
    """
    numbers = (data_scale, mean, deviation, *gap, keep)
    return GapHyper(*(jnp.asarray(number, dtype=float) for number in numbers))


def gap_training(
    apply: Callable[[Any, Any, Any], Any],
    optimizer: optax.GradientTransformation,
    *,
    batch_size: int,
    decay: float = 0.999,
) -> Method:
    """Training of a denoiser whose gap is data, so that one program trains all variants.

    As ``learned.denoiser_training``: the problem is a ``Training``, the state a ``TrainingState``
    and the info a ``TrainingInfo``; the hyper-parameters are a ``GapHyper``.

    Args:
        apply: The network, ``(params, scaled signal, noise label) -> output``.
        optimizer: Of optax.
        batch_size: Rows per step.
        decay: Of the average of parameters, in [0, 1).

    Raises:
        TypeError: ``batch_size`` is not an integer.
        ValueError: It is less than 1, or ``decay`` is out of range. ``init`` raises it for rows
            that are missing or not finite, and for a gap whose ends are not in order.

    Example:
        >>> from jaxlab.core import run
        >>> apply = lambda params, x, noise: params * x
        >>> method = gap_training(apply, optax.sgd(0.1), batch_size=4)
        >>> problem = Training(jnp.zeros(()), jnp.ones((8, 2)))
        >>> hyper = gap_hyper(0.5, gap=(1e-9, 1e9))  # no level is left
        >>> run(method, problem, hyper, jax.random.key(0), num_steps=2).trace.loss.tolist()
        [0.0, 0.0]
    """

    def with_gap(hyper: GapHyper) -> tuple[Method, TrainingHyper]:
        noise = gap_noise(*hyper[1:])
        method = denoiser_training(
            apply, optimizer, batch_size=batch_size, noise=noise, decay=decay
        )
        return method, TrainingHyper(hyper.data_scale)

    def init(problem: Training, hyper: GapHyper, key: Array) -> TrainingState:
        method, scale = with_gap(hyper)
        return method.init(problem, scale, key)

    def step(
        problem: Training, hyper: GapHyper, state: TrainingState, key: Array
    ) -> tuple[TrainingState, TrainingInfo]:
        method, scale = with_gap(hyper)
        return method.step(problem, scale, state, key)

    # Speaks of bad sizes here and not when the training begins.
    denoiser_training(
        apply, optimizer, batch_size=batch_size, noise=log_normal_noise(), decay=decay
    )
    return Method(init, step)


def denoising_errors(
    key: Array,
    denoise: Denoiser,
    signals: Float[Array, "signals dim"],
    sigmas: Float[Array, " levels"],
    *,
    num_noise: int = 1,
) -> Float[Array, " levels"]:
    """The mean squared error ``E |D(x + sigma z, sigma) - x|^2`` at every level, of whole signals.

    The difference between held-out and training signals at one level is not memorization, which is
    about whole trajectories. All levels share their noise.

    Args:
        key: Of the noise.
        denoise: ``(x, sigma) -> E[x0 | x]`` of one signal.
        signals: Clean signals.
        sigmas: Positive, in any order.
        num_noise: Draws per signal.

    Raises:
        TypeError: ``key`` is not a typed key, or ``num_noise`` no integer.

    Example:
        >>> perfect = lambda x, sigma: jnp.zeros_like(x)
        >>> denoising_errors(jax.random.key(0), perfect, jnp.zeros((4, 2)), jnp.ones(1)).tolist()
        [0.0]
    """
    check_key("key", key)
    check_count("num_noise", num_noise)
    noise = jax.random.normal(key, (num_noise, *signals.shape), signals.dtype)

    def error(sigma: Array, signal: Array, noise: Array) -> Array:
        return jnp.sum(jnp.square(denoise(signal + sigma * noise, sigma) - signal))

    over_signals = jax.vmap(error, in_axes=(None, 0, 0))
    over_noise = jax.vmap(over_signals, in_axes=(None, None, 0))
    return jax.lax.map(lambda sigma: over_noise(sigma, signals, noise).mean(), sigmas)

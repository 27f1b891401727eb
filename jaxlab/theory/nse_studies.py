"""What the experiment ``nse`` measures with, beside the theory and the algorithms."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special

from jaxlab.core.types import Method
from jaxlab.data.tabular import standardize
from jaxlab.problems.consensus import stack_agents
from jaxlab.theory import nse_amp as amp
from jaxlab.theory.nse_activations import StepActivation, step_activation, step_scale_limit

__all__ = [
    "Taught",
    "chance",
    "cosine_with",
    "normalized",
    "recovery",
    "ridge_direction",
    "step_functions",
    "taught",
    "whiten",
]


def whiten(features: np.ndarray) -> np.ndarray:
    """Principal components of mean 0 and variance ``1 / dim``; null directions are dropped."""
    left, values, _ = np.linalg.svd(standardize(features), full_matrices=False)
    kept = values > 1e-8 * values[0]
    return left[:, kept] * np.sqrt(len(features) / kept.sum())


def step_functions(scales: dict[int, float], fraction: float | None = None) -> StepActivation:
    """One step function per exponent, stacked: of these scales, or this fraction of the largest.

    They get jumps of no height where no normal number is, so that all have one shape.

    Example:
        >>> with jax.enable_x64(True):
        ...     step_functions({1: 0.3, 2: 0.2}).values.tolist()
        [[0.0, 1.0, 1.0], [2.0, 0.0, 1.0]]
    """

    def padded(order: int) -> StepActivation:
        scale = scales[order] if fraction is None else fraction * step_scale_limit(order)
        bare = step_activation(order, scale)
        extra = max(scales) - order
        return StepActivation(
            jnp.append(bare.thresholds, 30.0 + jnp.arange(extra, dtype=float)),
            jnp.append(bare.values, jnp.full(extra, bare.values[-1])),
        )

    return jax.jit(lambda: stack_agents(*map(padded, scales)))()


class Taught(NamedTuple):
    """A problem whose answer is known."""

    problem: amp.AMPProblem
    teacher: jax.Array


def taught(method: Method) -> Method:
    """The same method on ``Taught`` problems; the info is overlap, mean square and variance."""

    def init(problem: Taught, hyper: Any, key: jax.Array) -> Any:
        return method.init(problem.problem, hyper, key)

    def step(problem: Taught, hyper: Any, state: Any, key: jax.Array) -> tuple[Any, jax.Array]:
        state, info = method.step(problem.problem, hyper, state, key)
        overlap = amp.overlap_with(state.estimate, problem.teacher)
        cosine = overlap / jnp.sqrt(info.self_overlap)
        return state, jnp.stack([overlap, info.self_overlap, info.variance, cosine])

    return Method(init, step)


def ridge_direction(features: jax.Array, labels: jax.Array, penalties: jax.Array) -> jax.Array:
    """Ridge on all products of two features, as a matrix; its top eigenvector per penalty."""
    gram = (features @ features.T) ** 2
    values, vectors = jnp.linalg.eigh(gram)
    centred = vectors.T @ (labels - labels.mean())

    def top(penalty: jax.Array) -> jax.Array:
        dual = vectors @ (centred / (values + penalty))
        levels, directions = jnp.linalg.eigh(features.T @ (features * dual[:, None]))
        return directions[:, jnp.argmax(jnp.abs(levels))]

    return jax.lax.map(top, penalties)


def cosine_with(estimate: jax.Array, teacher: jax.Array) -> jax.Array:
    """The cosine of the angle, without its sign."""
    return jnp.abs(estimate @ teacher) / (jnp.linalg.norm(estimate) * jnp.linalg.norm(teacher))


def normalized(bare: StepActivation) -> StepActivation:
    """Of mean 0 and variance 1, so that the signal-to-noise ratio means the same for all."""
    moments = bare.moments(0.0, 1.0)
    mean = moments.mass @ moments.values
    deviation = jnp.sqrt(moments.mass @ (moments.values - mean) ** 2)
    return StepActivation(bare.thresholds, (bare.values - mean) / deviation)


def recovery(table: jax.Array, link: StepActivation, snr: jax.Array, key: jax.Array) -> jax.Array:
    """The cosine of the spectral method for labels of one random direction."""
    key_teacher, key_noise = jax.random.split(key)
    teacher = jax.random.normal(key_teacher, (table.shape[1],))
    teacher = teacher * jnp.sqrt(table.shape[1] / jnp.sum(teacher**2))
    noise = jax.random.normal(key_noise, (table.shape[0],))
    labels = jnp.sqrt(snr) * link(table @ teacher) + noise
    return cosine_with(amp.spectral_estimator(table, labels, link, snr).direction, teacher)


def chance(dim: int) -> float:
    """The mean cosine of a random direction, ``E |u_1|`` on the sphere."""
    ratio = scipy.special.gammaln(dim / 2) - scipy.special.gammaln((dim + 1) / 2)
    return float(np.exp(ratio) / np.sqrt(np.pi))

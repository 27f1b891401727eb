"""Patches measured in two ways, and what a Gaussian prior predicts for them.

A part of the experiment ``lmaps``.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from jaxlab.diffusion import operators
from jaxlab.diffusion.gaussian import GaussianPrior
from jaxlab.diffusion.lmaps_theory import gaussian_lmaps_moments

__all__ = [
    "DIM",
    "KEPT",
    "NOISE",
    "SIDE",
    "Batch",
    "linear_batch",
    "posteriors",
    "predicted",
    "tiles",
]

SIDE = 8
"""The side of a patch, in pixels."""

DIM = SIDE**2
"""Pixels of a patch."""

KEPT = 24
"""Pixels that a mask keeps."""

NOISE = 0.05
"""The standard deviation of measurements of pixels in [-1, 1]."""


def tiles(
    image: Float[np.ndarray, "rows columns"], corner: tuple[int, int], side: int
) -> Float[np.ndarray, "patches pixels"]:
    """The patches that a square of an image consists of, row by row."""
    row, column = corner
    square = image[row : row + side, column : column + side]
    across = side // SIDE
    return square.reshape(across, SIDE, across, SIDE).transpose(0, 2, 1, 3).reshape(-1, DIM)


class Batch(NamedTuple):
    """Measured patches of several tasks, as one batch of problems.

    Attributes:
        truth: The patches, once per task.
        operators: A matrix each; the smaller measurements have rows of zeros.
        measurements: With noise.
        start: Normal numbers.
        keys: Of the runs.
    """

    truth: jax.Array
    operators: operators.MatrixOperator
    measurements: jax.Array
    start: jax.Array
    keys: jax.Array


@jax.jit
def linear_batch(key: jax.Array, truth: jax.Array) -> Batch:
    """Every patch with a random mask of its own, then every patch pooled."""
    key_mask, key_noise, key_start, key_run = jax.random.split(key, 4)
    count = len(truth)
    order = jax.vmap(lambda key: jax.random.permutation(key, DIM))(
        jax.random.split(key_mask, count)
    )
    masks = jnp.eye(DIM)[order[:, :KEPT]]
    pool = operators.average_pool((SIDE, SIDE), 2).matrix(truth.dtype)
    pools = jnp.broadcast_to(jnp.pad(pool, ((0, KEPT - len(pool)), (0, 0))), masks.shape)
    matrices, both = jnp.concatenate([masks, pools]), jnp.concatenate([truth, truth])
    exists = jnp.abs(matrices).sum(axis=2) > 0
    noise = NOISE * jax.random.normal(key_noise, exists.shape)
    measured = jnp.einsum("bmd,bd->bm", matrices, both) + jnp.where(exists, noise, 0.0)
    start = jax.random.normal(key_start, both.shape)
    keys = jax.random.split(key_run, len(both))
    return Batch(both, operators.MatrixOperator(matrices), measured, start, keys)


def posteriors(prior: GaussianPrior, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
    """Along the axes of each posterior: ``[batch, 2, dim]`` offsets, and variances.

    The offsets are those of the truth and of 0 from the posterior's mean.
    """
    covariance, centre = np.asarray(prior.covariance), np.asarray(prior.mean)
    offsets, values = [], []
    for matrix, y, x0 in zip(*map(np.asarray, (batch.operators.entries, batch.measurements,
                                               batch.truth)), strict=True):  # fmt: skip
        gain = np.linalg.solve(
            matrix @ covariance @ matrix.T + NOISE**2 * np.eye(KEPT), matrix @ covariance
        ).T
        mean = centre + gain @ (y - matrix @ centre)
        s, axes = np.linalg.eigh(covariance - gain @ matrix @ covariance)
        offsets.append(np.stack([x0 - mean, -mean]) @ axes)
        values.append(np.maximum(s, 0))
    return np.stack(offsets), np.stack(values)


@jax.jit
def predicted(
    offsets: jax.Array, values: jax.Array, sigmas: jax.Array, rho: float | jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The mean squared error of each task over the runs' randomness, and its deviation."""
    mean, variance = gaussian_lmaps_moments(offsets[:, 1], sigmas[0] ** 2, values, sigmas, rho)
    bias = jnp.square(mean - offsets[:, 0])
    expected = (bias + variance).reshape(2, -1)
    # Of a square of a normal number with this mean; directions and problems are independent.
    spread = (2 * variance**2 + 4 * bias * variance).reshape(2, -1)
    return expected.mean(axis=1), jnp.sqrt(spread.sum(axis=1)) / spread.shape[1]

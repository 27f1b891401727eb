"""Mixtures of kernels around many centres: their densities, draws and local scales."""

import math
from typing import Literal, TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxlab.core.types import Scalar
from jaxlab.stats.whitening import whiten

__all__ = [
    "STUDENT_DF",
    "Kernel",
    "kernel_draws",
    "kernel_mixture_log_prob",
    "local_scale",
    "log_mix",
    "reference_bandwidth",
    "student_log_norm",
]

Kernel: TypeAlias = Literal["student_t", "gaussian"]
"""The shape of a kernel."""

STUDENT_DF = 10
"""The degrees of freedom of Student kernels; even, so that chi-squares are sums of exponentials."""

_ROWS = 1024
"""Points whose distances to all centres are held at once."""

_ANCHORS = 32
"""How many centres are asked for their neighbours."""

_SHRINKAGE = 0.1
"""How much of the local covariance's off-diagonal entries is dropped."""


def kernel_mixture_log_prob(
    points: Float[Array, "num dim"],
    centres: Float[Array, "centres dim"],
    scale_tril: Float[Array, "dim dim"],
    kernel: Kernel,
) -> Float[Array, " num"]:
    """The log density of equally weighted kernels of one scale, at a cost of ``num centres dim``.

    Squared distances come from a matrix product of centred, whitened points: without the centring
    they would lose all digits in float32 where points are far from the origin.

    Args:
        points: Where.
        centres: The kernels' centres.
        scale_tril: A Cholesky factor of the common scale matrix.
        kernel: ``"student_t"`` or ``"gaussian"``.

    Example:
        >>> origin = jnp.zeros((1, 1))
        >>> out = kernel_mixture_log_prob(origin, origin, jnp.eye(1), "gaussian")
        >>> round(float(out[0]), 4)  # -log(2 pi)/2
        -0.9189
    """
    dim, middle = points.shape[1], centres.mean(axis=0)
    white = whiten(centres - middle[None], scale_tril)
    sizes = jnp.sum(white**2, axis=1)
    log_norm = _log_norm(dim, kernel) - jnp.sum(jnp.log(jnp.diagonal(scale_tril)))

    def chunk(rows: Array) -> Array:
        distances = jnp.sum(rows**2, axis=1)[:, None] + sizes[None] - 2 * rows @ white.T
        distances = jnp.maximum(distances, 0.0)
        if kernel == "gaussian":
            return jax.nn.logsumexp(-distances / 2, axis=1)
        return _log_sum_of_powers(1 + distances / STUDENT_DF, STUDENT_DF + dim)

    num = points.shape[0]
    padded = jnp.pad(
        whiten(points - middle[None], scale_tril), ((0, -num % min(_ROWS, num)), (0, 0))
    )
    sums = jax.lax.map(chunk, padded.reshape(-1, min(_ROWS, num), dim)).reshape(-1)[:num]
    return sums + log_norm - math.log(centres.shape[0])


def _log_sum_of_powers(base: Array, power: int) -> Array:
    """``log sum_j base_j^(-power / 2)`` by products: a logarithm per row instead of per pair."""
    least = base.min(axis=1)
    ratio = least[:, None] / base  # the largest term is 1, so that none that matters underflows
    terms = ratio ** (power // 2)
    if power % 2:
        terms = terms * jnp.sqrt(ratio)
    return jnp.log(terms.sum(axis=1)) - power / 2 * jnp.log(least)


def _log_norm(dim: int, kernel: Kernel) -> float:
    if kernel == "gaussian":
        return -dim / 2 * math.log(2 * math.pi)
    return student_log_norm(STUDENT_DF, dim)


def student_log_norm(df: int, dim: int) -> float:
    """The log density of the standard Student law at its centre.

    Example:
        >>> round(student_log_norm(1, 1), 4)  # Cauchy: -log(pi)
        -1.1447
    """
    return math.lgamma((df + dim) / 2) - math.lgamma(df / 2) - dim / 2 * math.log(df * math.pi)


def kernel_draws(
    key: Array, centres: Float[Array, "num dim"], scale_tril: Float[Array, "dim dim"],
    kernel: Kernel,
) -> Float[Array, "num dim"]:  # fmt: skip
    """One draw from the kernel around each centre.

    Example:
        >>> kernel_draws(jax.random.key(0), jnp.zeros((4, 2)), jnp.eye(2), "student_t").shape
        (4, 2)
    """
    key_normal, key_chi = jax.random.split(key)
    # Flat draws: XLA takes ten times as long to compile the generator for two axes.
    noise = jax.random.normal(key_normal, (centres.size,), centres.dtype).reshape(centres.shape)
    if kernel == "student_t":
        num, pairs = centres.shape[0], STUDENT_DF // 2
        halves = jax.random.exponential(key_chi, (num * pairs,), centres.dtype)
        chi_square = 2 * halves.reshape(num, pairs).sum(axis=1)
        noise = noise * jnp.sqrt(STUDENT_DF / chi_square)[:, None]
    return centres + noise @ scale_tril.T


def log_mix(
    defensive: Float[Array, ""], log_global: Float[Array, " num"], log_kernels: Float[Array, " num"]
) -> Float[Array, " num"]:
    """``log(e g + (1 - e) k)``, with the kernels left out where ``e`` is 1.

    Example:
        >>> log_mix(jnp.ones(()), jnp.zeros(1), jnp.ones(1)).tolist()
        [0.0]
    """
    local = jnp.where(defensive < 1, 1 - defensive, 1.0)
    mixed = jnp.logaddexp(jnp.log(defensive) + log_global, jnp.log(local) + log_kernels)
    return jnp.where(defensive < 1, mixed, log_global)


def local_scale(
    centres: Float[Array, "num dim"], origin: Int[Array, " num"]
) -> tuple[Float[Array, "dim dim"], Bool[Array, ""]]:
    """A Cholesky factor of how centres spread around their nearest neighbours.

    The ``5 dim`` nearest distinct centres of each of 32 centres give its outer products; those of
    the half with the nearest neighbours are averaged, so that far modes and stragglers do not blow
    the scale up. Off-diagonal entries shrink by a tenth.

    Args:
        centres: Resampled points.
        origin: Which point each centre is a copy of, in increasing order.

    Returns:
        The factor, and whether there were distinct centres to make it from; if not, it is the
        identity.

    Example:
        >>> x = jnp.stack([jnp.linspace(0, 9, 50), jnp.linspace(0, 9, 50) ** 2], axis=1)
        >>> factor, usable = local_scale(x, jnp.arange(50))
        >>> factor.shape, bool(usable)
        ((2, 2), True)
    """
    num, dim = centres.shape
    centred = centres - centres.mean(axis=0, keepdims=True)
    spread = jnp.sqrt(jnp.mean(centred**2, axis=0))
    unit = centred / jnp.where(spread > 0, spread, 1.0)[None]
    anchors = jnp.linspace(0, num - 1, min(num, _ANCHORS)).astype(int)
    sizes = jnp.sum(unit**2, axis=1)
    distances = sizes[anchors][:, None] + sizes[None] - 2 * unit[anchors] @ unit.T
    copy = jnp.concatenate([jnp.zeros(1, bool), origin[1:] == origin[:-1]])
    unusable = copy[None] | (origin[anchors][:, None] == origin[None])
    found, neighbour = jax.lax.top_k(
        jnp.where(unusable, -jnp.inf, -distances), min(5 * dim, num - 1)
    )
    valid = found > -jnp.inf
    radius = jnp.where(valid, -found, 0.0).max(axis=1)
    chosen = valid & (radius <= jnp.median(radius))[:, None]
    steps = centred[neighbour] - centred[anchors][:, None]
    steps = jnp.where(chosen[:, :, None], steps, 0.0)
    steps = steps.reshape(-1, dim)
    usable = valid.any()
    covariance = steps.T @ steps / jnp.maximum(chosen.sum(), 1)
    diagonal = jnp.diag(jnp.diagonal(covariance) + 1e-6 * jnp.trace(covariance) / dim)
    shrunk = (1 - _SHRINKAGE) * covariance + _SHRINKAGE * diagonal
    eye = jnp.eye(dim, dtype=centres.dtype)
    return jnp.linalg.cholesky(jnp.where(usable, shrunk, eye)), usable


def reference_bandwidth(dim: int, num_points: int) -> Scalar:
    """Silverman's factor ``(4/(d+2))^(1/(d+4)) n^(-1/(d+4))`` of a Gaussian's scale.

    Example:
        >>> round(float(reference_bandwidth(1, 1000)), 4)
        0.2661
    """
    return (4 / (dim + 2)) ** (1 / (dim + 4)) * num_points ** (-1 / (dim + 4))

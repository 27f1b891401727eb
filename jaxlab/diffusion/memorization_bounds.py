r"""What can be said of the two curves without noise: bounds, and the scales at which they turn.

For the concentration :math:`W_\sigma` of :math:`n` rows with covariance :math:`\Sigma` (divided by
:math:`n`), [derived]

.. math::
    1 - \frac{1}{2n} \sum_{i \ne j} e^{-|x_i - x_j|^2 / 8\sigma^2} \;\le\; W_\sigma \;\le\;
    \frac{\frac12 \log\det(I + \Sigma/\sigma^2) + \log 2}{\log n} .

Left: :math:`w_j \le w_j/(w_i + w_j) \le \frac12 \sqrt{w_j/w_i}`, whose expectation is
Bhattacharyya's coefficient. Right: Fano's inequality, since the index says as much of the noisy row
as a Gaussian channel of the same covariance carries at most.

For the coverage, with the noncentral chi-squared probability :math:`q_d` of
``memorization_shells``, [derived] one shell's event and the union bound over all of them,

.. math::
    E_X \max_i q_d(|X - x_i|^2/\sigma^2) \;\le\; C_\sigma \;\le\;
    E_X \min\Bigl(1, \sum_i q_d(|X - x_i|^2/\sigma^2)\Bigr).

Bounds that say nothing are cut at what always holds, :math:`1/n \le W \le 1` and
:math:`0 \le C \le 1`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxlab.core.checks import check_count, check_value
from jaxlab.core.types import Scalar
from jaxlab.diffusion.memorization_chunks import check_levels, check_rows, fold_rows
from jaxlab.diffusion.memorization_shells import shell_probability, shell_radii

__all__ = [
    "Bounds",
    "capacity",
    "capacity_level",
    "coverage_level",
    "posterior_weight_bounds",
    "shell_coverage_bounds",
    "spectrum",
]


class Bounds(NamedTuple):
    """What a curve lies between.

    Attributes:
        lower: The lower bound.
        upper: The upper bound.
    """

    lower: Float[Array, " levels"]
    upper: Float[Array, " levels"]


def posterior_weight_bounds(
    data: Float[Array, "rows dim"], sigmas: Float[Array, " levels"], *, chunk_size: int = 1024
) -> Bounds:
    """Bounds of the concentration (``max_posterior_weight``).

    Raises:
        TypeError: ``chunk_size`` is not an integer, or the data are not float64.
        ValueError: There are fewer than two rows, a level is not positive, or NaN or infinity.

    Example:
        >>> with jax.enable_x64(True):
        ...     bounds = posterior_weight_bounds(4 * jnp.eye(4), jnp.array([1.0, 100.0]))
        ...     [part.round(3).tolist() for part in bounds]
        [[0.973, 0.25], [1.0, 0.5]]
    """
    check_levels(sigmas)
    check_count("chunk_size", chunk_size)
    check_rows("data", data)
    count = len(data)
    if count < 2:
        raise ValueError(f"data must hold at least 2 rows, got {count}")

    def coefficients(squares: Array) -> Array:
        return jax.lax.map(lambda s: jnp.exp(-squares / (8 * s**2)).sum(axis=1), sigmas)

    # Every row meets itself, at distance 0, which the sum leaves out.
    total = fold_rows(data, data, coefficients, jnp.add, chunk_size=chunk_size)
    lower = 1 - jnp.maximum(total - 1, 0.0).sum(axis=1) / (2 * count)
    upper = (capacity(spectrum(data), sigmas) + jnp.log(2.0)) / jnp.log(count)
    return Bounds(jnp.maximum(lower, 1 / count), jnp.minimum(upper, 1.0))


def shell_coverage_bounds(
    held_out: Float[Array, "signals dim"],
    data: Float[Array, "rows dim"],
    sigmas: Float[Array, " levels"],
    c: float = 5.0,
    *,
    chunk_size: int = 1024,
) -> Bounds:
    """Bounds of the coverage (``shell_coverage``) of these very held-out signals, without noise.

    Args:
        held_out: Signals that are no rows of ``data``.
        data: The training set.
        sigmas: Positive, in any order.
        c: The width of the shells, in (0, dim / 4].
        chunk_size: How many signals meet how many rows at a time.

    Raises:
        TypeError: ``chunk_size`` is not an integer, or a table is not float64.
        ValueError: ``c`` is out of range, a level is not positive, lengths differ, or NaN or
            infinity.

    Example:
        >>> with jax.enable_x64(True):
        ...     rows = jnp.zeros((2, 20))
        ...     bounds = shell_coverage_bounds(rows + 1, rows, jnp.array([1.0, 100.0]), 1.0)
        ...     [part.round(3).tolist() for part in bounds]
        [[0.21, 0.889], [0.421, 1.0]]
    """
    check_levels(sigmas)
    check_count("chunk_size", chunk_size)
    check_rows("held_out", held_out)
    check_rows("data", data)
    dim = data.shape[1]
    if held_out.shape[1] != dim:
        raise ValueError(f"held_out must have length {dim} like data, got {held_out.shape[1]}")
    shell_radii(dim, c)

    def reached(squares: Array) -> tuple[Array, Array]:
        def at_level(sigma: Array) -> tuple[Array, Array]:
            reached = shell_probability(squares / sigma**2, dim, c)
            return reached.max(axis=1), reached.sum(axis=1)

        return jax.lax.map(at_level, sigmas)

    def merge(first: tuple[Array, Array], second: tuple[Array, Array]) -> tuple[Array, Array]:
        return jnp.maximum(first[0], second[0]), first[1] + second[1]

    most, sums = fold_rows(held_out, data, reached, merge, chunk_size=chunk_size)
    return Bounds(most.mean(axis=1), jnp.minimum(sums, 1.0).mean(axis=1))


def spectrum(data: Float[Array, "rows dim"]) -> Float[Array, " directions"]:
    """The eigenvalues of the data's covariance (divided by the number of rows), largest last.

    There are ``min(rows, dim)``; those that are left out are 0.

    Raises:
        TypeError: The data are not float64.
        ValueError: There is no row, or NaN or infinity.

    Example:
        >>> with jax.enable_x64(True):
        ...     spectrum(jnp.array([[-1.0, 2.0], [1.0, 2.0]])).tolist()
        [0.0, 1.0]
    """
    check_rows("data", data)
    rows, dim = data.shape
    centred = data - data.mean(axis=0)[None, :]
    gram = centred.T @ centred if dim <= rows else centred @ centred.T
    return jnp.maximum(jnp.linalg.eigvalsh(gram / rows), 0.0)


def capacity(
    eigenvalues: Float[Array, " directions"], sigmas: Float[Array, " levels"]
) -> Float[Array, " levels"]:
    r"""What a noisy signal can tell at most, in nats: :math:`\frac12\log\det(I + \Sigma/\sigma^2)`.

    Args:
        eigenvalues: Of the covariance, not negative; zeros may be left out.
        sigmas: Positive, in any order.

    Raises:
        ValueError: An eigenvalue is negative, or a level is not positive.

    Example:
        >>> round(float(capacity(jnp.array([3.0, 3.0]), jnp.array([1.0]))[0]), 4)  # log 4
        1.3863
    """
    check_value("eigenvalues", eigenvalues, lambda e: e >= 0, "non-negative")
    check_levels(sigmas)
    ratios = eigenvalues[None, :] / jnp.square(sigmas)[:, None]
    return jnp.log1p(ratios).sum(axis=1) / 2


def capacity_level(eigenvalues: Float[Array, " directions"], num_rows: int) -> Float[Array, ""]:
    r"""The level at which the capacity falls to ``log num_rows``: concentration ends near there.

    A scale and no bound [derived]. For white data, :math:`\sigma^2 = \lambda / (n^{2/d} - 1)`.

    Args:
        eigenvalues: Of the covariance, not negative and not all 0.
        num_rows: The size of the training set, at least 2.

    Raises:
        TypeError: ``num_rows`` is not an integer.
        ValueError: It is less than 2, or the eigenvalues are negative or all 0.

    Example:
        >>> round(float(capacity_level(jnp.ones(2), 5)), 4)  # sigma^2 = 1 / (5 - 1)
        0.5
    """
    check_count("num_rows", num_rows, least=2)
    check_value(
        "eigenvalues",
        eigenvalues,
        lambda e: (e >= 0).all() & (e > 0).any(),
        "non-negative and not all 0",
    )
    wanted = jnp.log(jnp.asarray(num_rows, dtype=eigenvalues.dtype))
    # log(1 + x) <= x for all of them gives the upper end, the largest alone the lower one.
    low = jnp.log(eigenvalues.max() / (num_rows**2 - 1)) / 2
    high = jnp.log(eigenvalues.sum() / (2 * wanted)) / 2

    def halve(_: Array, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = (low + high) / 2
        too_low = capacity(eigenvalues, jnp.exp(middle)[None])[0] > wanted
        return jnp.where(too_low, middle, low), jnp.where(too_low, high, middle)

    low, high = jax.lax.fori_loop(0, 60, halve, (low, high))
    return jnp.exp((low + high) / 2)


def coverage_level(
    distance: Scalar | Float[Array, "*points"], dim: int, c: Scalar = 5.0
) -> Float[Array, "*points"]:
    r"""The level at which a point's noise begins to reach the shell around another.

    :math:`\delta / \sqrt{2\sqrt{cd} + 2c}`, where the mean of :math:`|Z + \delta/\sigma|^2` comes
    down to :math:`r_{\text{out}}^2` [derived]. A scale and no bound; a danger zone needs it below
    ``capacity_level``.

    Args:
        distance: ``delta``, such as from a held-out signal to its nearest row.
        dim: The length of a signal.
        c: The width of the shells, in (0, dim / 4].

    Raises:
        ValueError: ``c`` is out of range, or a distance is negative.

    Example:
        >>> round(float(coverage_level(10.0, 64, 4.0)), 4)  # 10 / sqrt(32 + 8)
        1.5811
    """
    check_value("distance", distance, lambda d: d >= 0, "non-negative")
    outer = shell_radii(dim, c).outer
    return jnp.asarray(distance) / jnp.sqrt(jnp.square(outer) - dim)

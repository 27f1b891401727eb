r"""At which noise levels does a diffusion model copy its training set? Two curves of the data.

No network is trained for them.

Rows :math:`x_1, \dots, x_n` are the training set, :math:`y = x + \sigma z` is a noisy query.

* *Concentration* :math:`W_\sigma = E \max_i w_i(y)` of noisy **training** rows, with the posterior
  weights :math:`w = \mathrm{softmax}(-|y - x_i|^2 / 2\sigma^2)`: near 1 a single row decides what
  the best denoiser says. :math:`w` is the posterior of the row's index, so that the rate at which
  the nearest row is the right one estimates the same number [derived].
* *Coverage* :math:`C_\sigma = P(y \in \bigcup_i S_\sigma(x_i))` of noisy **held-out** signals, with
  Gaussian shells :math:`S_\sigma`: near 1 training supervises the places where generation goes.

Small noise has concentration without coverage, large noise coverage without concentration. Where
both are high is the *danger zone*.

float64 is required; ``memorization_neighbours`` says why, and how the rows may come in blocks.

Source: arXiv:2602.17846, equation 3 and Definitions 4.1 and 4.6.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxlab.core.checks import check_count, check_key, check_value
from jaxlab.core.types import Scalar
from jaxlab.diffusion.memorization_chunks import check_rows
from jaxlab.diffusion.memorization_neighbours import (
    Neighbours,
    no_neighbours,
    noisy_queries,
    observe_rows,
)
from jaxlab.diffusion.memorization_shells import shell_radii
from jaxlab.diffusion.memorization_training import gap_training

__all__ = [
    "Concentration",
    "Coverage",
    "concentration_of",
    "coverage_of",
    "danger_zone",
    "gap_training",
    "max_posterior_weight",
    "shell_coverage",
    "zone_ends",
]


class Concentration(NamedTuple):
    """Two estimates of ``W`` at every level, with standard errors.

    Errors are over signals, so that repeated noise of a signal does not count twice; they are NaN
    for one signal.

    Attributes:
        weight: The mean of the largest posterior weight.
        weight_error: Its standard error.
        identified: How often the nearest row is the query's own.
        identified_error: Its standard error.
    """

    weight: Float[Array, " levels"]
    weight_error: Float[Array, " levels"]
    identified: Float[Array, " levels"]
    identified_error: Float[Array, " levels"]


class Coverage(NamedTuple):
    """An estimate of ``C`` at every level.

    Attributes:
        share: The share of noisy queries inside of the union of shells.
        error: Its standard error, over signals; NaN for one signal.
    """

    share: Float[Array, " levels"]
    error: Float[Array, " levels"]


def concentration_of(
    seen: Neighbours, own: Int[Array, " signals"], *, num_noise: int
) -> Concentration:
    """The concentration, from what noisy training rows know of all rows.

    Args:
        seen: Of ``noisy_queries`` with the same ``num_noise``.
        own: The index of every signal among the rows.
        num_noise: Draws per signal.

    Raises:
        ValueError: The sizes do not fit.

    Example:
        >>> seen = Neighbours(  # four queries of two rows, one of which is nearer to the other row
        ...     nearest=jnp.ones((1, 4)), row=jnp.array([[0, 0, 1, 0]]), total=jnp.ones((1, 4)),
        ...     covered=jnp.zeros((1, 4), bool), num_rows=jnp.array(2),
        ... )
        >>> concentration_of(seen, jnp.arange(2), num_noise=2).identified.tolist()
        [0.75]
    """
    weight, weight_error = _mean_over_signals(1 / seen.total, num_noise)
    if len(own) * num_noise != seen.row.shape[1]:
        raise ValueError(
            f"own must hold {seen.row.shape[1] // num_noise} indices, one for each signal, "
            f"got {len(own)}"
        )
    hits = seen.row == jnp.repeat(own, num_noise)[None, :]
    identified, identified_error = _mean_over_signals(hits.astype(weight.dtype), num_noise)
    return Concentration(weight, weight_error, identified, identified_error)


def coverage_of(seen: Neighbours, *, num_noise: int) -> Coverage:
    """The coverage, from what noisy held-out signals know of all rows (with ``radii``).

    Raises:
        ValueError: The number of queries is no multiple of ``num_noise``.

    Example:
        >>> covered = jnp.array([[True, False, True, True]])
        >>> seen = Neighbours(
        ...     nearest=jnp.ones((1, 4)), row=jnp.zeros((1, 4), int), total=jnp.ones((1, 4)),
        ...     covered=covered, num_rows=jnp.array(1),
        ... )
        >>> coverage_of(seen, num_noise=2).share.tolist()
        [0.75]
    """
    return Coverage(*_mean_over_signals(seen.covered.astype(seen.total.dtype), num_noise))


def _mean_over_signals(values: Array, num_noise: int) -> tuple[Array, Array]:
    check_count("num_noise", num_noise)
    levels, queries = values.shape
    if queries % num_noise:
        raise ValueError(f"num_noise must divide the number of queries, {queries}, got {num_noise}")
    means = values.reshape(levels, -1, num_noise).mean(axis=2)
    count = means.shape[1]
    spread = means.std(axis=1, ddof=1) if count > 1 else jnp.full(levels, jnp.nan, values.dtype)
    return means.mean(axis=1), spread / count**0.5


def max_posterior_weight(
    key: Array,
    data: Float[Array, "rows dim"],
    sigmas: Float[Array, " levels"],
    *,
    num_noise: int = 4,
    num_signals: int | None = None,
    chunk_size: int = 1024,
) -> Concentration:
    """The concentration curve ``W`` of a training set (arXiv:2602.17846, Definition 4.1).

    Args:
        key: Of the noise, and of the choice of rows.
        data: The training set, without repeated rows, which share their weight.
        sigmas: Positive, in any order.
        num_noise: Draws per row.
        num_signals: Noise so many rows, chosen without replacement; all of them by default.
        chunk_size: How many queries meet how many rows at a time.

    Raises:
        TypeError: ``key`` is not a typed key, a size no integer, or the data are not float64.
        ValueError: A level is not positive, there is no row, NaN or infinity, or ``num_signals`` is
            above the number of rows.

    Example:
        >>> with jax.enable_x64(True):  # two rows: Phi(distance / (2 sigma)) = Phi(1)
        ...     rows = jnp.array([[-1.0], [1.0]])
        ...     curve = max_posterior_weight(
        ...         jax.random.key(0), rows, jnp.array([1.0]), num_noise=20_000
        ...     )
        ...     round(float(curve.weight[0]), 2), round(float(curve.identified[0]), 2)
        (0.84, 0.84)
    """
    check_key("key", key)
    check_rows("data", data)
    key_rows, key_noise = jax.random.split(key)
    own = jnp.arange(len(data))
    if num_signals is not None:
        check_count("num_signals", num_signals)
        if num_signals > len(data):
            raise ValueError(
                f"num_signals must be at most the number of rows, {len(data)}, got {num_signals}"
            )
        own = jax.random.permutation(key_rows, own)[:num_signals]
    queries = noisy_queries(key_noise, data[own], num_noise=num_noise)
    none = no_neighbours(queries, sigmas)
    seen = observe_rows(none, queries, sigmas, data, chunk_size=chunk_size)
    return concentration_of(seen, own, num_noise=num_noise)


def shell_coverage(
    key: Array,
    held_out: Float[Array, "signals dim"],
    data: Float[Array, "rows dim"],
    sigmas: Float[Array, " levels"],
    c: Scalar = 5.0,
    *,
    num_noise: int = 8,
    chunk_size: int = 1024,
) -> Coverage:
    """The coverage curve ``C`` of a training set (arXiv:2602.17846, Definition 4.6).

    Args:
        key: Of the noise.
        held_out: Signals of the data's distribution that are no rows of ``data``: a row covers its
            own noise at every level.
        data: The training set.
        sigmas: Positive, in any order.
        c: The width of the shells, in (0, dim / 4].
        num_noise: Draws per signal.
        chunk_size: How many queries meet how many rows at a time.

    Raises:
        TypeError: ``key`` is not a typed key, a size no integer, or a table is not float64.
        ValueError: ``c`` is out of range, a level is not positive, lengths differ, a table is
            empty, or NaN or infinity.

    Example:
        >>> with jax.enable_x64(True):
        ...     rows, sigmas = jnp.zeros((1, 64)), jnp.array([0.1, 10.0])
        ...     key = jax.random.key(0)
        ...     shell_coverage(key, rows + 1, rows, sigmas, 3.0).share.tolist()
        [0.0, 1.0]
    """
    check_rows("data", data)
    queries = noisy_queries(key, held_out, num_noise=num_noise)
    radii = shell_radii(data.shape[1], c)
    none = no_neighbours(queries, sigmas)
    seen = observe_rows(none, queries, sigmas, data, radii=radii, chunk_size=chunk_size)
    return coverage_of(seen, num_noise=num_noise)


def danger_zone(
    weight: Float[Array, " levels"],
    share: Float[Array, " levels"],
    *,
    least_weight: Scalar = 0.8,
    least_share: Scalar = 0.8,
) -> Bool[Array, " levels"]:
    """The levels at which both concentration and coverage are high.

    The source reads the zone off the curves; thresholds of 0.8 are customary, and 0.7 and 0.9 show
    how much they matter.

    Args:
        weight: The concentration, in [0, 1].
        share: The coverage at the same levels, in [0, 1].
        least_weight: From where on concentration is high.
        least_share: From where on coverage is high.

    Raises:
        ValueError: The curves are of different lengths, or something is outside of [0, 1].

    Example:
        >>> danger_zone(jnp.array([1.0, 0.9, 0.1]), jnp.array([0.0, 0.9, 1.0])).tolist()
        [False, True, False]
    """
    if jnp.shape(weight) != jnp.shape(share):
        raise ValueError(
            f"weight and share must be of one shape, got {jnp.shape(weight)} and {jnp.shape(share)}"
        )
    parts = {"weight": weight, "share": share}
    parts |= {"least_weight": least_weight, "least_share": least_share}
    for name, value in parts.items():
        # Shares are means of at most 1, but for rounding.
        check_value(name, value, lambda v: (v >= 0) & (v <= 1 + 1e-6), "in [0, 1]")
    return (weight >= least_weight) & (share >= least_share)


def zone_ends(
    sigmas: Float[Array, " levels"], zone: Bool[Array, " levels"]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The least and the largest level of a zone, NaN twice if there is none.

    Example:
        >>> low, high = zone_ends(jnp.array([4.0, 2.0, 1.0]), jnp.array([False, True, True]))
        >>> float(low), float(high)
        (1.0, 2.0)
    """
    if jnp.shape(sigmas) != jnp.shape(zone):
        raise ValueError(
            f"zone must have the shape of sigmas, {jnp.shape(sigmas)}, got {jnp.shape(zone)}"
        )
    low = jnp.where(zone, sigmas, jnp.inf).min()
    high = jnp.where(zone, sigmas, -jnp.inf).max()
    return jnp.where(zone.any(), low, jnp.nan), jnp.where(zone.any(), high, jnp.nan)

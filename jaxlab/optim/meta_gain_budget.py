r"""How many steps of adaptation pay, told by the first few.

The gain follows :math:`G_k \approx A (1 - e^{-\beta k})`. Three probe steps give :math:`A` and
:math:`\beta` by Aitken's extrapolation, more of them by least squares. Then

.. math::
    K_\epsilon = \lceil \log(1/\epsilon) / \beta \rceil, \qquad
    K_c = \max(0, \log(A\beta/c)/\beta)

are the steps to a share :math:`1 - \epsilon` of :math:`A`, and those that maximise
:math:`A(1 - e^{-\beta K}) - cK`. On sums of exponentials, which gradient descent on quadratics
gives, Aitken's limit never exceeds the true one.

Source: arXiv:2601.18973. The law is the source's; the protocol is known from the abstract (three to
five probe steps, errors of the budget of 3 to 19 %) and reconstructed.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optimistix
from jaxtyping import Array, Bool, Float, PyTree

from jaxlab.core.checks import check_count, check_value
from jaxlab.core.types import Scalar
from jaxlab.optim.meta_gain import LossFn, adaptation_curves, adaptation_gain

__all__ = [
    "Budget",
    "Saturation",
    "aitken_limit",
    "budget",
    "fit_saturation",
    "probe_budget",
    "probe_fit",
    "saturating_gain",
    "steps_for_cost",
    "steps_to_share",
]

_CURVED = 0.5
_GRID = 96
_FASTEST = 30.0
_FEWEST_FOR_SQUARES = 4


class Saturation(NamedTuple):
    """The law ``A (1 - exp(-beta k))``.

    Attributes:
        limit: ``A``.
        rate: ``beta``, per step.
        slope: ``A beta``, what the first step is worth; finite also where ``A`` is not.
        r2: The share of the variance of the gains that the law explains; 1 where it interpolates.
        curved: Whether the gains show a limit at all. If not (``beta`` times the last step is below
            0.5, or increments do not fall), ``A`` is an extrapolation without foundation.
    """

    limit: Float[Array, ""]
    rate: Float[Array, ""]
    slope: Float[Array, ""]
    r2: Float[Array, ""]
    curved: Bool[Array, ""]


def saturating_gain(
    limit: Scalar, rate: Scalar, num_steps: Scalar | Float[Array, "*steps"]
) -> Float[Array, "*steps"]:
    """``A (1 - exp(-beta k))``.

    Example:
        >>> round(float(saturating_gain(2.0, 0.1, 10.0)), 4)
        1.2642
    """
    return jnp.asarray(-limit) * jnp.expm1(-jnp.asarray(rate, dtype=float) * num_steps)


def fit_saturation(gains: Float[Array, " steps_and_one"]) -> Saturation:
    """Least squares of ``A (1 - exp(-beta k))`` with ``A >= 0`` and ``beta > 0``.

    For each ``beta`` the best ``A`` is a ratio of inner products, so that the search is over one
    number: a grid of logarithms from ``1e-3 / K`` to 30, and golden sections around its best.

    Args:
        gains: ``G_0 = 0, G_1, ..., G_K`` with ``K >= 2``.

    Raises:
        ValueError: There are fewer than three gains.

    Example:
        >>> found = fit_saturation(saturating_gain(2.0, 0.1, jnp.arange(31.0)))
        >>> round(float(found.limit), 3), round(float(found.rate), 3), bool(found.curved)
        (2.0, 0.1, True)
    """
    last = _last_step(gains, least=2)
    gains = jnp.asarray(gains)
    steps = jnp.arange(last + 1, dtype=gains.dtype)

    def best_limit(log_rate: Array) -> tuple[Array, Array]:
        shape = saturating_gain(1.0, jnp.exp(log_rate), steps).astype(gains.dtype)
        limit = jnp.maximum(shape @ gains / (shape @ shape), 0.0)
        return limit, jnp.sum((gains - limit * shape) ** 2)

    scale = jnp.maximum(jnp.sum(gains**2), jnp.finfo(gains.dtype).tiny)

    def misfit(above: Array, lowest: Array) -> Array:
        return best_limit(lowest + above)[1] / scale

    ends = jnp.log(jnp.array([1e-3 / last, _FASTEST], gains.dtype))
    grid = jnp.linspace(ends[0], ends[1], _GRID)
    width = grid[1] - grid[0]
    values = jax.vmap(misfit, in_axes=(0, None))(grid - ends[0], ends[0])
    lowest = grid[jnp.argmin(values)] - width
    eps = float(jnp.finfo(gains.dtype).eps) ** 0.5
    # Counted from 0, for the solver's first point is right only there (optimistix 0.1).
    found = optimistix.minimise(
        misfit, optimistix.GoldenSearch(rtol=eps, atol=eps), width, lowest,
        options={"lower": 0.0, "upper": 2 * width}, max_steps=64, throw=False,
    )  # fmt: skip
    limit, residual = best_limit(lowest + found.value)
    rate = jnp.exp(lowest + found.value)
    total = jnp.sum((gains - gains.mean()) ** 2)
    r2 = 1 - residual / jnp.maximum(total, jnp.finfo(gains.dtype).tiny)
    return Saturation(limit, rate, limit * rate, r2, (rate * last >= _CURVED) & (limit > 0))


def aitken_limit(first: Scalar, second: Scalar, third: Scalar) -> tuple[Array, Array]:
    """``A`` and ``beta`` from three consecutive gains, by the ratio of their increments.

    Exact if the gains tend to their limit geometrically; if they are a mixture of geometric
    approaches with weights of one sign, ``A`` never exceeds the limit [derived]. Where increments
    do not fall there is no limit to be seen: ``A`` is infinite and ``beta`` 0.

    Example:
        >>> limit, rate = aitken_limit(0.0, 1.0, 1.5)
        >>> float(limit), round(float(rate), 4)
        (2.0, 0.6931)
    """
    before, after = jnp.asarray(second - first), jnp.asarray(third - second)
    falls = (before > 0) & (after < before) & (after > 0)
    ratio = jnp.where(falls, after / jnp.where(before > 0, before, 1.0), 0.5)
    limit = jnp.where(falls, first + before / (1 - ratio), jnp.inf)
    return limit, jnp.where(falls, -jnp.log(ratio), 0.0)


def probe_fit(gains: Float[Array, " probes_and_one"]) -> Saturation:
    """The law from a few probe steps: Aitken's for two or three of them, else least squares.

    Args:
        gains: ``G_0, ..., G_N`` with ``N >= 2``.

    Raises:
        ValueError: There are fewer than three gains.

    Example:
        >>> found = probe_fit(saturating_gain(2.0, 0.1, jnp.arange(4.0)))
        >>> round(float(found.limit), 3), round(float(found.rate), 3)
        (2.0, 0.1)
    """
    last = _last_step(gains, least=2)
    limit, rate = aitken_limit(*gains[-3:])
    if last >= _FEWEST_FOR_SQUARES:
        # A few probes are nearly straight by design; what matters is whether increments fall.
        return fit_saturation(gains)._replace(curved=rate > 0)
    slope = jnp.where(rate > 0, rate * jnp.where(rate > 0, limit, 0.0), gains[-1] - gains[-2])
    return Saturation(limit, rate, slope, jnp.ones_like(limit), rate > 0)


def steps_to_share(rate: Scalar, shortfall: Scalar) -> Float[Array, ""]:
    """The least K with a gain of ``(1 - shortfall) A``.

    Args:
        rate: ``beta``; 0 gives infinity.
        shortfall: ``epsilon`` in (0, 1).

    Raises:
        ValueError: ``shortfall`` is out of range.

    Example:
        >>> float(steps_to_share(0.1, 0.1))
        24.0
    """
    check_value("shortfall", shortfall, lambda e: (e > 0) & (e < 1), "in (0, 1)")
    return jnp.ceil(-jnp.log(shortfall) / jnp.asarray(rate, dtype=float))


def steps_for_cost(limit: Scalar, rate: Scalar, cost: Scalar) -> Float[Array, ""]:
    """The K >= 0, a real number, that maximises ``A (1 - exp(-beta K)) - cost K``.

    Args:
        limit: ``A``, at least 0.
        rate: ``beta``, positive.
        cost: Of one step, in the unit of the loss; positive.

    Raises:
        ValueError: ``cost`` is not positive.

    Example:
        >>> round(float(steps_for_cost(1.0, 0.1, 0.01)), 3), float(steps_for_cost(1.0, 0.1, 0.2))
        (23.026, 0.0)
    """
    check_value("cost", cost, lambda c: c > 0, "positive")
    slope = jnp.asarray(limit, dtype=float) * rate
    return jnp.where(slope > cost, jnp.log(jnp.maximum(slope, cost) / cost) / rate, 0.0)


class Budget(NamedTuple):
    """Whether to adapt, and for how long.

    Attributes:
        fit: The law.
        steps: To the wanted share of the limit; NaN if the gains show none.
        steps_paid: The number of steps worth its cost; NaN if the gains show no limit, though
            adaptation may still be worth it.
        adapt: Whether the first step gains more than it costs.
    """

    fit: Saturation
    steps: Float[Array, ""]
    steps_paid: Float[Array, ""]
    adapt: Bool[Array, ""]


def budget(fit: Saturation, *, shortfall: Scalar, cost: Scalar) -> Budget:
    """The budget of a law.

    Args:
        fit: As of ``probe_fit``.
        shortfall: Which share of the limit may be missed, in (0, 1).
        cost: Of one step, in the unit of the loss; positive.

    Raises:
        ValueError: ``shortfall`` or ``cost`` is out of range.

    Example:
        >>> law = fit_saturation(saturating_gain(1.0, 0.1, jnp.arange(31.0)))
        >>> found = budget(law, shortfall=0.1, cost=0.05)
        >>> float(found.steps), round(float(found.steps_paid), 2), bool(found.adapt)
        (24.0, 6.93, True)
    """
    check_value("shortfall", shortfall, lambda e: (e > 0) & (e < 1), "in (0, 1)")
    check_value("cost", cost, lambda c: c > 0, "positive")
    limit, rate = (jnp.where(fit.curved, value, 1.0) for value in (fit.limit, fit.rate))
    steps = jnp.where(fit.curved, steps_to_share(rate, shortfall), jnp.nan)
    paid = jnp.where(fit.curved, steps_for_cost(limit, rate, cost), jnp.nan)
    return Budget(fit, steps, paid, fit.slope > cost)


def probe_budget(
    loss_fn: LossFn,
    start: PyTree,
    tasks: PyTree,
    step_size: Scalar,
    *,
    num_probe: int,
    shortfall: Scalar,
    cost: Scalar,
) -> Budget:
    """The budget from ``num_probe`` steps on a few tasks.

    Args:
        loss_fn: ``(params, task) -> loss``.
        start: The common start.
        tasks: The probe tasks, leaves ``[tasks, ...]``.
        step_size: ``eta`` of the adaptation, positive.
        num_probe: ``N >= 2``; three to five do.
        shortfall: Which share of the limit may be missed, in (0, 1).
        cost: Of one step, in the unit of the loss; positive.

    Raises:
        TypeError: ``num_probe`` is not an integer.
        ValueError: An argument is out of range, or the tasks have no common leading axis.

    Example:
        >>> loss = lambda x, t: (x - t) ** 2 / 2
        >>> tasks = jnp.array([-1.0, 0.0, 1.0])
        >>> found = probe_budget(
        ...     loss, jnp.array(0.0), tasks, 0.1, num_probe=3, shortfall=0.1, cost=1e-3
        ... )
        >>> float(found.steps), bool(found.adapt)
        (11.0, True)
    """
    check_count("num_probe", num_probe, least=2)
    curves = adaptation_curves(loss_fn, start, tasks, step_size, num_steps=num_probe)
    return budget(probe_fit(adaptation_gain(curves)), shortfall=shortfall, cost=cost)


def _last_step(gains: Array, least: int) -> int:
    if jnp.ndim(gains) != 1 or jnp.shape(gains)[0] <= least:
        raise ValueError(
            f"gains must be one row of at least {least + 1}, from G_0 = 0 on, got shape "
            f"{jnp.shape(gains)}"
        )
    return jnp.shape(gains)[0] - 1

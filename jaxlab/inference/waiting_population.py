r"""Particles with importance weights as waiting times, and a proposal that follows them.

Each of :math:`N` particles at :math:`x` waits an exponential time of mean
:math:`w(x) = \gamma(x)/q(x)` and is then drawn again from

.. math::
    q = \epsilon g + (1 - \epsilon)\, t_5(m, s^2 C),

where :math:`m` and :math:`C` are the mean and covariance of all particles at the beginning of the
period. After :math:`R` units of time :math:`q` is fitted again. While :math:`q` stays, the target
is the stationary law of every particle, whatever :math:`q` is; ``waiting_times`` has that theory.

Source: the population form of weights as sojourn times (Malefaki and Iliopoulos 2008,
arXiv:math/0505045); the fit is a choice of ours.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxlab.core.checks import check_count, check_key, check_value
from jaxlab.core.types import Method, Scalar
from jaxlab.inference.mixtures import log_mix
from jaxlab.inference.target import StudentLaw, Target, log_ratio
from jaxlab.inference.waiting_times import WaitingPath, state_at
from jaxlab.stats.weights import log_evidence

__all__ = [
    "WaitingHyper",
    "WaitingInfo",
    "WaitingState",
    "waiting_hyper",
    "waiting_population",
]

_DF = 5  # Of the fitted law; heavier tails than a Gaussian's keep weights bounded.


class WaitingHyper(NamedTuple):
    """Hyper-parameters; ``waiting_hyper`` checks them.

    Attributes:
        period: ``R > 0``, the time between two fits, in units of ``exp(log_unit)``.
        log_unit: The logarithm of the unit of time; near the log evidence, waits are of order 1.
        defensive: ``epsilon`` in (0, 1], the share of the global law.
        inflation: ``s > 0``, by how much the fitted law is wider than the particles.
    """

    period: Float[Array, ""]
    log_unit: Float[Array, ""]
    defensive: Float[Array, ""]
    inflation: Float[Array, ""]


class WaitingState(NamedTuple):
    """Attributes: points: Where the particles are."""

    points: Float[Array, "particles dim"]


class WaitingInfo(NamedTuple):
    """Diagnostics of one period, all scalars.

    Attributes:
        log_evidence: From this period's draws; the exponential is unbiased given the past.
        moved: The share of particles that left their place.
        short: The share whose ``num_jumps`` draws did not last for the period; they stay where
            their last draw is. More than a few bias the law towards small weights.
    """

    log_evidence: Float[Array, ""]
    moved: Float[Array, ""]
    short: Float[Array, ""]


def waiting_hyper(
    *,
    period: Scalar = 1.0,
    log_unit: Scalar = 0.0,
    defensive: Scalar = 0.1,
    inflation: Scalar = 1.0,
) -> WaitingHyper:
    """Hyper-parameters, checked.

    Raises:
        ValueError: One is out of range.

    Example:
        >>> float(waiting_hyper(period=2.0).period)
        2.0
    """
    for name, value in (("period", period), ("inflation", inflation)):
        check_value(name, value, lambda v: (v > 0) & (v < math.inf), "positive and finite")
    check_value("log_unit", log_unit, lambda u: abs(u) < math.inf, "finite")
    check_value("defensive", defensive, lambda e: (e > 0) & (e <= 1), "in (0, 1]")
    values = (period, log_unit, defensive, inflation)
    return WaitingHyper(*(jnp.asarray(value, dtype=float) for value in values))


def waiting_population(*, num_particles: int = 256, num_jumps: int = 8) -> Method:
    """Particles that wait their weights, under a proposal fitted to them after every period.

    The problem is a ``Target``, the hyper-parameters a ``WaitingHyper``, the state a
    ``WaitingState`` and the info a ``WaitingInfo``. A step calls the log density
    ``num_particles * (num_jumps + 1)`` times.

    Args:
        num_particles: At least 2.
        num_jumps: How often a particle can be drawn again within a period, at least 1.

    Raises:
        TypeError: A count is not an integer.
        ValueError: A count is out of range. ``init`` raises it for hyper-parameters out of range.

    Example:
        >>> from jaxlab.core import run
        >>> from jaxlab.inference.target import heavy_tailed, make_target
        >>> target = make_target(
        ...     lambda x: -jnp.sum((x - 3) ** 2) / 2, heavy_tailed(jnp.zeros(2), 4.0)
        ... )
        >>> method, hyper = waiting_population(), waiting_hyper(log_unit=1.8)
        >>> done = run(method, target, hyper, jax.random.key(0), num_steps=10)
        >>> abs(float(done.state.points.mean()) - 3) < 0.3
        True
    """
    check_count("num_particles", num_particles, least=2)
    check_count("num_jumps", num_jumps)

    def init(problem: Target, hyper: WaitingHyper, key: Array) -> WaitingState:
        check_key("key", key)
        waiting_hyper(**hyper._asdict())
        return WaitingState(problem.draw(key, num_particles))

    def step(
        problem: Target, hyper: WaitingHyper, state: WaitingState, key: Array
    ) -> tuple[WaitingState, WaitingInfo]:
        hyper = jax.tree.map(lambda leaf: jnp.asarray(leaf, problem.dtype), hyper)
        key_global, key_fitted, key_which, key_clock = jax.random.split(key, 4)
        law, num_draws = _fitted(state.points, hyper.inflation), num_particles * num_jumps
        local = Target(problem.logdensity_fn, law, problem.unravel)

        from_global = jax.random.uniform(key_which, (num_draws, 1), problem.dtype)
        drawn = problem.draw(key_global, num_draws), local.draw(key_fitted, num_draws)
        new = jnp.where(from_global < hyper.defensive, *drawn)
        visits = jnp.concatenate([state.points, new])
        log_q = log_mix(hyper.defensive, problem.log_proposal(visits), local.log_proposal(visits))
        log_w = log_ratio(problem.log_density(visits), log_q)

        def paths(flat: Array) -> Array:  # [particles, 1 + jumps, ...]: first where each one is
            own = flat[:num_particles, None]
            return jnp.concatenate(
                [own, flat[num_particles:].reshape(num_particles, num_jumps, *flat.shape[1:])],
                axis=1,
            )

        clocks = jax.random.exponential(key_clock, log_w.shape, problem.dtype)
        waits = clocks * jnp.exp(log_w - hyper.log_unit)
        path = WaitingPath(paths(visits), paths(log_w), paths(waits))
        points, reached = jax.vmap(state_at, in_axes=(0, None))(path, hyper.period)
        info = WaitingInfo(
            log_evidence(log_w[num_particles:]),
            (path.waits[:, 0] <= hyper.period).mean(dtype=problem.dtype),
            (~reached).mean(dtype=problem.dtype),
        )
        return WaitingState(points), info

    return Method(init, step)


def _fitted(points: Array, inflation: Array) -> StudentLaw:
    """The Student law of the particles' mean and covariance."""
    mean = points.mean(axis=0)
    offsets = points - mean[None]
    covariance = offsets.T @ offsets / len(points)
    # Particles that have met in few places span no volume.
    floor = 1e-6 * jnp.trace(covariance) / points.shape[1] + jnp.finfo(points.dtype).tiny
    covariance = covariance + floor * jnp.eye(points.shape[1], dtype=points.dtype)
    return StudentLaw(_DF, mean, inflation * jnp.linalg.cholesky(covariance))

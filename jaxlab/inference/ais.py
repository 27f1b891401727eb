r"""Delayed-weight adaptive importance sampling: evidence and expectations of multimodal densities.

What are the normalising constant and the expectations of an unnormalised, multimodal density, given
batches of calls of its logarithm and no tuned Markov chain? A population of :math:`W` blocks of
:math:`M` points is weighted by mixtures of the proposals that drew it. With the block proposal

.. math::
    q_t(x) = \epsilon g(x) + (1 - \epsilon) \frac1M \sum_j K(x - c_{t,j}), \qquad
    m_s = \frac1W \sum_{r = s-W+1}^{s} q_r ,

one step resamples the centres :math:`c_{t+1}` by the **delayed weights** :math:`\gamma / m_{t-L}`,
draws one point per centre (or, with probability :math:`\epsilon`, from the global law :math:`g`),
and drops the oldest block. The delayed denominator does not yet know the last :math:`L` proposals,
so a newborn point in a thinly covered region has a large weight and is followed up at once.
Estimates always use :math:`L = 0`: delayed weights are biased.

* ``num_blocks=1, lag=0`` is population Monte Carlo, ``lag=0`` the sliding-window deterministic
  mixture (AMIS).
* :math:`\gamma / q_t \le \gamma / (\epsilon g)`: weights are bounded if :math:`g` dominates.
* ``ais_theory`` has the mean-field recursion, its rate and the stability limit of the lag.

Source: "adaptive importance sampling with global sampling mechanisms and a delayed weighting
procedure", ICML 2026, known from its abstract alone. Global sampling, delayed weights and quick
resampling where the proposal is thin are the source's; the form above is a reconstruction (its
nearest public relative is PARIS, arXiv:2603.21249). Claims: ``proofs_checks/ais.py``.
"""

import math
from collections.abc import Callable
from typing import Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxlab.core.checks import check_count, check_key, check_value
from jaxlab.core.types import Method, Scalar
from jaxlab.inference.ais_population import (
    NUM_RECENT,
    AISState,
    block_log_weights,
    delayed_log_weights,
    mixture_log_prob,
)
from jaxlab.inference.mixtures import (
    Kernel,
    kernel_draws,
    kernel_mixture_log_prob,
    local_scale,
    log_mix,
)
from jaxlab.inference.target import Target, lowest
from jaxlab.stats import weights as lw
from jaxlab.stats.resampling import systematic_resample

__all__ = [
    "AISHyper",
    "AISInfo",
    "AISState",
    "ScaleRule",
    "ais_hyper",
    "block_log_weights",
    "delayed_ais",
    "delayed_log_weights",
    "evidence_settled",
    "mixture_log_prob",
    "resample_points",
]

ScaleRule = Literal["local", "identity"]
"""What the kernels' scale matrix is: the spread of neighbouring centres, or the identity."""


class AISHyper(NamedTuple):
    """Hyper-parameters; ``ais_hyper`` checks them.

    Attributes:
        defensive: ``epsilon`` in (0, 1], the share of the global law.
        bandwidth: ``h > 0``, the factor of the kernels' scale.
        tempering: The exponent of adaptation weights, in (0, 1].
    """

    defensive: Float[Array, ""]
    bandwidth: Float[Array, ""]
    tempering: Float[Array, ""]


class AISInfo(NamedTuple):
    """Diagnostics of one step, all scalars.

    Attributes:
        log_evidence: By the window's mixture weights: accurate, asymptotically unbiased.
        block_log_evidence: By the newest block alone: the exponential is unbiased at every step.
        ess: The effective sample size of the window, from 1 to its number of points.
        khat: The Pareto shape of the window's weights; above 0.7 estimates are unreliable.
        largest_share: The largest normalised weight.
        global_share: The share of the newest block that was drawn from the global law.
    """

    log_evidence: Float[Array, ""]
    block_log_evidence: Float[Array, ""]
    ess: Float[Array, ""]
    khat: Float[Array, ""]
    largest_share: Float[Array, ""]
    global_share: Float[Array, ""]


def ais_hyper(
    *, defensive: Scalar = 0.1, bandwidth: Scalar = 1.0, tempering: Scalar = 1.0
) -> AISHyper:
    """Hyper-parameters, checked.

    Args:
        defensive: ``epsilon``, the share of the global law.
        bandwidth: With the local scale about 1; with the identity the kernels' width itself, see
            ``mixtures.reference_bandwidth``.
        tempering: Below 1 flattens the adaptation weights.

    Raises:
        ValueError: One is out of range; without any global law weights are unbounded.

    Example:
        >>> float(ais_hyper(defensive=0.25).defensive)
        0.25
    """
    check_value("defensive", defensive, lambda e: (e > 0) & (e <= 1), "in (0, 1]")
    check_value("bandwidth", bandwidth, lambda h: (h > 0) & (h < math.inf), "positive and finite")
    check_value("tempering", tempering, lambda r: (r > 0) & (r <= 1), "in (0, 1]")
    return AISHyper(*(jnp.asarray(v, dtype=float) for v in (defensive, bandwidth, tempering)))


def delayed_ais(
    *,
    num_blocks: int = 5,
    block_size: int = 256,
    lag: int = 1,
    kernel: Kernel = "student_t",
    scale: ScaleRule = "local",
    truncate: bool = True,
) -> Method:
    """Adaptive importance sampling whose centres are resampled by delayed weights.

    The problem is a ``Target``, the hyper-parameters an ``AISHyper``, the state an ``AISState`` and
    the info an ``AISInfo``. ``init`` calls the log density ``num_blocks * block_size`` times and a
    step ``block_size`` times; a step costs ``O(num_blocks block_size^2 dim)`` besides.

    Args:
        num_blocks: ``W >= 1`` blocks in the window.
        block_size: ``M >= 2`` points per block.
        lag: ``L`` from 0 to ``W - 1``; 1 finds modes a little sooner, more oscillates.
        kernel: ``"student_t"`` with 10 degrees of freedom, or ``"gaussian"``.
        scale: ``"local"`` or ``"identity"``.
        truncate: Whether no adaptation weight may exceed one over the root of the population.

    Raises:
        TypeError: A count is not an integer.
        ValueError: A count or a choice is out of range, or the lag is beyond the window. ``init``
            raises it for hyper-parameters out of range.

    Example:
        >>> from jaxlab.core import run
        >>> from jaxlab.inference.target import heavy_tailed, make_target
        >>> def logdensity(x):  # two bumps of mass 2 pi each
        ...     return jnp.logaddexp(-jnp.sum((x - 4) ** 2) / 2, -jnp.sum((x + 4) ** 2) / 2)
        >>> target = make_target(logdensity, heavy_tailed(jnp.zeros(2), 5.0))
        >>> method, hyper = delayed_ais(block_size=128), ais_hyper()
        >>> done = jax.jit(
        ...     lambda key: run(method, target, hyper, key, num_steps=30)
        ... )(jax.random.key(0))
        >>> abs(float(done.trace.log_evidence[-1]) - math.log(4 * math.pi)) < 0.1
        True
    """
    check_count("num_blocks", num_blocks)
    check_count("block_size", block_size, least=2)
    check_count("lag", lag, least=0)
    if lag >= num_blocks:
        raise ValueError(f"lag must be less than num_blocks = {num_blocks}, got {lag}")
    _check_choice("kernel", kernel, get_args(Kernel))
    _check_choice("scale", scale, get_args(ScaleRule))
    kept, population = num_blocks + lag, num_blocks * block_size

    def init(problem: Target, hyper: AISHyper, key: Array) -> AISState:
        check_key("key", key)
        ais_hyper(**hyper._asdict())
        dtype, dim = problem.dtype, problem.dim
        points = problem.draw(key, population)
        log_density, log_global = problem.log_density(points), problem.log_proposal(points)
        wide = jnp.asarray(hyper.bandwidth, dtype) * jnp.eye(dim, dtype=dtype)
        state = AISState(
            points.reshape(num_blocks, block_size, dim),
            log_density.reshape(num_blocks, block_size),
            jnp.zeros((kept, block_size, dim), dtype),
            jnp.broadcast_to(wide, (kept, dim, dim)),
            jnp.ones(kept, dtype),
            jnp.broadcast_to(log_global, (kept, population)),
            jnp.zeros(NUM_RECENT, dtype),
            jnp.zeros((), dtype),
        )
        evidence = _finite(lw.log_evidence(delayed_log_weights(state, 0)))
        return state._replace(recent_log_evidence=jnp.broadcast_to(evidence, (NUM_RECENT,)))

    def step(
        problem: Target, hyper: AISHyper, state: AISState, key: Array
    ) -> tuple[AISState, AISInfo]:
        hyper = jax.tree.map(lambda leaf: jnp.asarray(leaf, problem.dtype), hyper)
        key_centres, key_which, key_global, key_kernel = jax.random.split(key, 4)
        log_w = _adaptation_weights(state, lag, hyper.tempering, truncate)
        origin = systematic_resample(key_centres, log_w, block_size)
        centres = state.points.reshape(population, -1)[origin]
        tril = hyper.bandwidth * jnp.eye(problem.dim, dtype=problem.dtype)
        if scale == "local":
            factor, usable = local_scale(centres, origin)
            tril = jnp.where(usable, hyper.bandwidth * factor, state.scale_tril[-1])

        from_global = jax.random.uniform(key_which, (block_size,), problem.dtype) < hyper.defensive
        near = kernel_draws(key_kernel, centres, tril, kernel)
        new = jnp.where(from_global[:, None], problem.draw(key_global, block_size), near)
        after = _append(problem, state, kernel, new, centres, tril, hyper.defensive)
        info = _diagnose(after, from_global)
        recent = jnp.append(state.recent_log_evidence[1:], _finite(info.log_evidence))
        return after._replace(recent_log_evidence=recent), info

    return Method(init, step)


def _append(
    problem: Target, state: AISState, kernel: Kernel, new: Array, centres: Array, tril: Array,
    defensive: Array,
) -> AISState:  # fmt: skip
    """Drop the oldest block for a new one, and fill in its row and its columns of the table."""
    size = new.shape[0]

    def shifted(old: Array, newest: Array) -> Array:
        return jnp.concatenate([old[1:], newest[None]])

    points = shifted(state.points, new)
    flat = points.reshape(-1, points.shape[-1])
    row = log_mix(
        defensive, problem.log_proposal(flat), kernel_mixture_log_prob(flat, centres, tril, kernel)
    )
    log_global = problem.log_proposal(new)

    def column(block: tuple[Array, Array, Array]) -> Array:
        old_centres, old_tril, old_defensive = block
        log_kernels = kernel_mixture_log_prob(new, old_centres, old_tril, kernel)
        return log_mix(old_defensive, log_global, log_kernels)

    blocks = (state.centres[1:], state.scale_tril[1:], state.defensive[1:])
    kept = state.block_log_prob[1:, size:]
    columns = jax.lax.map(column, blocks) if len(kept) else jnp.zeros((0, size), row.dtype)
    table = jnp.concatenate([kept, columns], axis=1)
    return AISState(
        points,
        shifted(state.log_density, problem.log_density(new)),
        shifted(state.centres, centres),
        shifted(state.scale_tril, tril),
        jnp.append(state.defensive[1:], defensive),
        jnp.concatenate([table, row[None]]),
        state.recent_log_evidence,
        state.num_steps + 1,
    )


def _adaptation_weights(state: AISState, lag: int, tempering: Array, truncate: bool) -> Array:
    log_w = tempering * delayed_log_weights(state, lag)
    if truncate:
        log_w = lw.truncate_log_weights(log_w, 1 / math.sqrt(log_w.shape[0]))
    # Where no point has any density yet, all are as good as each other.
    return jnp.where((log_w > -jnp.inf).any(), log_w, jnp.zeros_like(log_w))


def _diagnose(state: AISState, from_global: Array) -> AISInfo:
    log_w = delayed_log_weights(state, 0)
    return AISInfo(
        lw.log_evidence(log_w),
        lw.log_evidence(block_log_weights(state)[-1]),
        lw.effective_sample_size(log_w),
        lw.pareto_khat(log_w),
        jnp.exp(lw.normalized_log_weights(log_w).max()),
        from_global.mean(dtype=log_w.dtype),
    )


def evidence_settled(
    tolerance: Scalar, *, largest_khat: Scalar = 0.7
) -> Callable[[AISState, AISInfo], Array]:
    """A ``stop_fn`` for ``run_until``: three log evidences agree, and the weights' tail is light.

    Neither sees a mode that no point has reached.

    Args:
        tolerance: Positive; the largest difference among the last three log evidences.
        largest_khat: What the Pareto shape must stay below.

    Raises:
        ValueError: ``tolerance`` is not positive.
    """
    check_value("tolerance", tolerance, lambda t: t > 0, "positive")

    def stop(state: AISState, info: AISInfo) -> Array:
        recent = state.recent_log_evidence
        known = (state.num_steps >= NUM_RECENT) & (info.log_evidence > -jnp.inf)
        return known & (jnp.ptp(recent) <= tolerance) & (info.khat < largest_khat)

    return stop


def resample_points(key: Array, state: AISState, num: int) -> Float[Array, "{num} dim"]:
    """Equally weighted points of the window, by systematic resampling with the weights of lag 0.

    Raises:
        TypeError: ``key`` is not a typed key, or ``num`` not an integer.
        ValueError: ``num`` is less than 1.
    """
    index = systematic_resample(key, delayed_log_weights(state, 0), num)
    return state.points.reshape(-1, state.points.shape[-1])[index]


def _finite(log_evidence: Array) -> Array:
    # A state holds no infinity, which runners report.
    return jnp.maximum(log_evidence, lowest(log_evidence.dtype))


def _check_choice(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r}")

r"""Samplers of the probability-flow ODE, with a denoiser of one's choice at every step.

From one level to the next, :math:`\sigma \to \sigma_+`, with
:math:`d(x, \sigma) = (x - D(x, \sigma))/\sigma`,

.. math::
    \text{Euler:}\quad x_+ &= x + (\sigma_+ - \sigma)\, d(x, \sigma) \\
    \text{Heun:}\quad x_+ &= x + (\sigma_+ - \sigma)
        \tfrac12 \left( d(x, \sigma) + d(x_{\text{Euler}}, \sigma_+) \right) .

A last step to 0 is Euler's and returns :math:`D(x, \sigma)` itself. *Churn* raises the noise from
:math:`\sigma` to :math:`(1 + \gamma)\sigma` before a step, which makes the sampler stochastic.

Signals are VE (``alpha = 1``) and of any shape. The samplers are ``Method`` s on a ``Sampling``
problem, so that the runners of ``jaxlab.core`` trace, resume and batch them; ``sample`` is the
short way. Source: Karras et al. 2022 (arXiv:2206.00364), algorithms 1 and 2.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxlab.core.checks import check_count, check_finite, check_key, check_value
from jaxlab.core.iterate import run
from jaxlab.core.roots import safe_sqrt
from jaxlab.core.types import Method, Run, Scalar
from jaxlab.diffusion.denoise import Denoiser
from jaxlab.diffusion.schedule import check_level, check_sigmas

__all__ = [
    "SampleHyper",
    "SampleInfo",
    "SampleState",
    "Sampling",
    "euler",
    "heun",
    "renoise",
    "sample",
    "sample_hyper",
    "swap_window",
]


class Sampling(NamedTuple):
    """Where a trajectory starts and who may denoise it.

    Attributes:
        denoisers: Each ``(x, sigma) -> E[x0 | x]``; steps choose among them.
        start: The noisy signal at the first level, such as ``sigmas[0]`` times normal numbers.
    """

    denoisers: tuple[Denoiser, ...]
    start: Float[Array, "*shape"]


class SampleHyper(NamedTuple):
    """The levels and what happens between them; made by ``sample_hyper``.

    Attributes:
        sigmas: Decreasing; the last may be 0.
        choice: The index of the denoiser of every step.
        churn: ``gamma`` of every step, not negative.
        noise_scale: The standard deviation of the churn's normal numbers.
    """

    sigmas: Float[Array, " levels"]
    choice: Int[Array, " steps"]
    churn: Float[Array, " steps"]
    noise_scale: Float[Array, ""]


class SampleState(NamedTuple):
    """A trajectory.

    Attributes:
        x: The noisy signal at level ``sigmas[step]``.
        denoised: What the denoiser said at the start of the step before.
        step: Steps taken.
    """

    x: Float[Array, "*shape"]
    denoised: Float[Array, "*shape"]
    step: Int[Array, ""]


class SampleInfo(NamedTuple):
    """Diagnostics of one step.

    Attributes:
        sigma: The level that was reached.
        evaluations: Calls of a denoiser.
    """

    sigma: Float[Array, ""]
    evaluations: Int[Array, ""]


def sample_hyper(
    sigmas: Float[Array, " levels"],
    *,
    choice: Int[Array, " steps"] | None = None,
    churn: Scalar | Float[Array, " steps"] = 0.0,
    noise_scale: Scalar = 1.0,
) -> SampleHyper:
    """Hyper-parameters of ``euler`` and ``heun``.

    Args:
        sigmas: Strictly decreasing; the last may be 0 (``schedule.edm_sigmas``).
        choice: The index of the denoiser of every step (``swap_window``); the first by default.
        churn: ``gamma`` of every step or of all; 0 follows the ODE. The source takes
            ``min(S_churn / steps, sqrt(2) - 1)`` inside of an interval of levels and 0 outside.
        noise_scale: ``S_noise`` of the source.

    Raises:
        ValueError: The levels do not decrease, or a length does not fit or a number is negative.

    Example:
        >>> hyper = sample_hyper(jnp.array([2.0, 1.0, 0.0]), churn=0.25)
        >>> hyper.choice.tolist(), hyper.churn.tolist()
        ([0, 0], [0.25, 0.25])
    """
    check_sigmas(sigmas)
    num_steps = len(sigmas) - 1
    choice = jnp.zeros(num_steps, jnp.int32) if choice is None else jnp.asarray(choice)
    churn = jnp.asarray(churn, sigmas.dtype)
    for name, value in (("choice", choice), ("churn", churn)):
        if value.shape != (num_steps,) and not (name == "churn" and value.ndim == 0):
            raise ValueError(
                f"{name} must have shape ({num_steps},), one number per step between the "
                f"{len(sigmas)} sigmas, got {value.shape}"
            )
    check_value("churn", churn, lambda g: (g >= 0) & (g < jnp.inf), "non-negative and finite")
    check_value("noise_scale", noise_scale, lambda s: s >= 0, "non-negative")
    return SampleHyper(
        jnp.asarray(sigmas),
        choice,
        jnp.broadcast_to(churn, (num_steps,)),
        jnp.asarray(noise_scale, sigmas.dtype),
    )


def swap_window(
    num_steps: int, first: int, last: int, *, base: int = 0, donor: int = 1
) -> Int[Array, " steps"]:
    """The choice of denoisers that takes ``donor`` at the steps ``first`` to ``last``, both in.

    Raises:
        ValueError: The window is not inside of the steps.

    Example:
        >>> swap_window(6, 2, 3).tolist()
        [0, 0, 1, 1, 0, 0]
    """
    check_count("num_steps", num_steps)
    if not 0 <= first <= last < num_steps:
        raise ValueError(
            f"first and last must satisfy 0 <= first <= last < num_steps = {num_steps}, "
            f"got {first} and {last}"
        )
    step = jnp.arange(num_steps)
    return jnp.where((step >= first) & (step <= last), donor, base).astype(jnp.int32)


def euler() -> Method:
    """Euler's method, one call of a denoiser per step.

    The problem is a ``Sampling``, the hyper-parameters a ``SampleHyper``, the state a
    ``SampleState`` and the info a ``SampleInfo``. ``init`` raises ``ValueError`` if the levels do
    not decrease, a choice is no index of a denoiser, or a denoiser does not keep the shape and
    dtype of the start. A run takes ``len(sigmas) - 1`` steps; further ones give NaN.

    Example:
        >>> problem = Sampling((lambda x, sigma: jnp.zeros_like(x),), jnp.array([8.0]))
        >>> hyper = sample_hyper(jnp.array([8.0, 4.0, 2.0]))
        >>> run(euler(), problem, hyper, jax.random.key(0), num_steps=2).state.x.tolist()
        [2.0]
    """
    return _sampler(lambda direction, x, ahead, gap, level: (direction, 0))


def heun() -> Method:
    """Heun's method, of second order, two calls of a denoiser per step (one in a step to 0).

    Both calls of a step go to the same denoiser. Otherwise as ``euler``.

    Example:
        >>> problem = Sampling((lambda x, sigma: x / (1 + sigma**2),), jnp.array([2.0]))
        >>> hyper = sample_hyper(jnp.array([1.0, 0.9]))
        >>> done = run(heun(), problem, hyper, jax.random.key(0), num_steps=1)
        >>> round(float(done.state.x[0]), 4)  # the solution is 2 sqrt(1.81 / 2) = 1.9026
        1.9028
    """

    def corrected(
        direction: Array, x: Array, ahead: Callable, gap: Array, level: Array
    ) -> tuple[Array, Array]:
        # Under vmap over levels both branches run: the one that is not taken must stay finite.
        safe = jnp.where(level > 0, level, 1.0)
        mean = jax.lax.cond(
            level > 0,
            lambda: (direction + ahead(x + gap * direction, safe)) / 2,
            lambda: direction,
        )
        return mean, (level > 0).astype(jnp.int32)

    return _sampler(corrected)


def _sampler(slope: Callable) -> Method:
    def init(problem: Sampling, hyper: SampleHyper, key: Array) -> SampleState:
        check_key("key", key)
        check_finite("problem.start", problem.start)
        check_sigmas(hyper.sigmas)
        _check_denoisers(problem, hyper)
        return SampleState(
            problem.start, jnp.zeros_like(problem.start), jnp.zeros((), dtype=jnp.int32)
        )

    def step(
        problem: Sampling, hyper: SampleHyper, state: SampleState, key: Array
    ) -> tuple[SampleState, SampleInfo]:
        num_steps = len(hyper.sigmas) - 1
        x, sigma = _churned(hyper, state, key)
        next_sigma = hyper.sigmas[state.step + 1]
        dtype = x.dtype

        # Methods of priors do not hash, as the branches of a switch must.
        branches = [lambda x, sigma, d=d: d(x, sigma) for d in problem.denoisers]

        def denoise(x: Array, sigma: Array) -> Array:
            return jax.lax.switch(hyper.choice[state.step], branches, x, sigma)

        def direction_at(x: Array, sigma: Array) -> Array:
            return ((x - denoise(x, sigma)) / sigma).astype(dtype)

        denoised = denoise(x, sigma)
        direction = ((x - denoised) / sigma).astype(dtype)
        gap = (next_sigma - sigma).astype(dtype)
        mean, more = slope(direction, x, direction_at, gap, next_sigma)
        # Returned as it is: x + (0 - sigma) (x - D) / sigma would round.
        x = jnp.where(next_sigma > 0, x + gap * mean, denoised)
        # Indices beyond the grid clamp, and the result would pass for a sample.
        x = jnp.where(state.step < num_steps, x, jnp.nan)
        info = SampleInfo(next_sigma, jnp.asarray(1 + more, jnp.int32))
        return SampleState(x, denoised, state.step + 1), info

    return Method(init, step)


def _check_denoisers(problem: Sampling, hyper: SampleHyper) -> None:
    count = len(problem.denoisers)
    if not count:
        raise ValueError("denoisers must hold at least one denoiser, got none")
    check_value(
        "choice",
        hyper.choice,
        lambda index: (index >= 0) & (index < count),
        f"an index of the {count} denoisers, from 0",
    )
    start, level = problem.start, hyper.sigmas[0]
    for i, denoise in enumerate(problem.denoisers):
        out = jax.eval_shape(lambda x, sigma, d=denoise: d(x, sigma), start, level)
        if (jnp.shape(out), out.dtype) != (start.shape, start.dtype):
            raise ValueError(
                f"denoisers[{i}] must keep the shape and dtype of start, {start.shape} "
                f"{start.dtype}, got {out.shape} {out.dtype}"
            )


def _churned(hyper: SampleHyper, state: SampleState, key: Array) -> tuple[Array, Array]:
    sigma, churn = hyper.sigmas[state.step], hyper.churn[state.step]
    spread = safe_sqrt(churn * (2 + churn))  # sqrt((1 + g)^2 - 1)
    noise = jax.random.normal(key, state.x.shape, state.x.dtype)
    added = (hyper.noise_scale * sigma * spread).astype(state.x.dtype) * noise
    return state.x + added, (1 + churn) * sigma


def sample(
    denoisers: Denoiser | tuple[Denoiser, ...],
    sigmas: Float[Array, " levels"],
    start: Float[Array, "*shape"],
    key: Array,
    *,
    method: Method | None = None,
    choice: Int[Array, " steps"] | None = None,
    churn: Scalar | Float[Array, " steps"] = 0.0,
) -> Run:
    """Follow one trajectory from the first level to the last; ``vmap`` over starts and keys.

    Under ``vmap`` over ``choice`` all denoisers are called at every step.

    Args:
        denoisers: One denoiser, or several for ``choice``.
        sigmas: Strictly decreasing; end with 0 to get the denoised signal.
        start: The noisy signal at ``sigmas[0]``.
        key: Used by churn alone.
        method: ``euler()`` (the default) or ``heun()``.
        choice: The index of the denoiser of every step.
        churn: ``gamma`` of every step; 0 follows the ODE.

    Returns:
        A ``core.Run``: ``state.x`` is the sample, ``trace`` a ``SampleInfo`` of all steps.

    Raises:
        ValueError: As ``sample_hyper`` and ``euler``.

    Example:
        >>> from jaxlab.diffusion.empirical import empirical_prior
        >>> from jaxlab.diffusion.schedule import edm_sigmas
        >>> prior = empirical_prior(jnp.array([[-1.0], [1.0]]))
        >>> sigmas = edm_sigmas(20, smallest=0.01, largest=10.0, end_at_zero=True)
        >>> starts = sigmas[0] * jnp.array([[-1.0], [0.5]])
        >>> one = lambda start: sample(prior.denoise, sigmas, start, jax.random.key(0)).state.x
        >>> jax.vmap(one)(starts).tolist()
        [[-1.0], [1.0]]
    """
    if not isinstance(denoisers, tuple):
        denoisers = (denoisers,)
    hyper = sample_hyper(sigmas, choice=choice, churn=churn)
    problem = Sampling(denoisers, start)
    return run(method or euler(), problem, hyper, key, num_steps=len(hyper.sigmas) - 1)


def renoise(
    key: Array,
    x0: Float[Array, "*shape"],
    x: Float[Array, "*shape"],
    sigma: Scalar,
    next_sigma: Scalar,
    rho: Scalar = 1.0,
    alpha: Scalar = 1.0,
    next_alpha: Scalar = 1.0,
) -> Float[Array, "*shape"]:
    r"""Take an estimate of the clean signal to the next level (arXiv:2510.07343, equation 6).

    :math:`\alpha_+ x_0 + \sigma_+ (\sqrt{1 - \rho^2}\,(x - \alpha x_0)/\sigma + \rho\,\epsilon)`:
    the noise that the estimate leaves in ``x`` is kept in part and drawn afresh in part.

    Args:
        key: Of the fresh noise.
        x0: The estimate, after all corrections.
        x: The noisy signal at the present level.
        sigma: The present level.
        next_sigma: The next level; may be 0.
        rho: In [0, 1]; 1 draws all noise afresh, 0 is deterministic.
        alpha: The present factor of the signal.
        next_alpha: The next factor of the signal.

    Raises:
        TypeError: ``key`` is not a typed key.
        ValueError: ``rho`` is outside of [0, 1], or a level is out of range.

    Example:
        >>> renoise(jax.random.key(0), jnp.array([1.0]), jnp.array([3.0]), 2.0, 1.0, 0.0).tolist()
        [2.0]
    """
    check_key("key", key)
    check_level(sigma, alpha)
    check_value("next_alpha", next_alpha, lambda a: a > 0, "positive")
    check_value("next_sigma", next_sigma, lambda s: s >= 0, "non-negative")
    check_value("rho", rho, lambda r: (r >= 0) & (r <= 1), "in [0, 1]")
    rho, sigma, next_sigma = (jnp.asarray(part) for part in (rho, sigma, next_sigma))
    alpha, next_alpha = jnp.asarray(alpha), jnp.asarray(next_alpha)
    kept = safe_sqrt(1 - rho**2)
    fresh = jax.random.normal(key, x.shape, x.dtype)
    return next_alpha * x0 + next_sigma * (kept * (x - alpha * x0) / sigma + rho * fresh)

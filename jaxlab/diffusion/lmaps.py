r"""Local MAP sampling, and DPS, PiGDM, TMPD and DAPS as choices of the same four parts.

The question: there is a denoiser :math:`m(x, \sigma) = E[x_0 \mid x]` and a measurement
:math:`y = H(x_0) + \sigma_y n`; what is *one* accurate estimate of :math:`x_0`? From a level to the
next,

.. math::
    x_0^* &= \operatorname{argmax} p(y \mid x_0)\, N(x_0; m(x, \sigma), \Sigma) \\
    x_+ &= x_0^* + \sigma_+ \left( \sqrt{1 - \rho^2}\,(x - x_0^*)/\sigma + \rho\,\epsilon \right)

The four parts are the denoiser (of the problem), the covariance model :math:`\Sigma`
(``restoration``), the solver of the first line (``lmaps_solvers``) and the re-noising of the second
(``rho`` of the hyper-parameters). Posterior sampling in two steps (DAPS) draws :math:`x_0` where
LMAPS takes the mode; DPS, PiGDM and TMPD take gradient steps, and were written for the ancestral
``rho``. Measurements may come from linear, nonlinear and non-differentiable ``operators``.

float32 suffices for levels down to 1e-3: nothing of the prior's is inverted. Take float64 for
comparisons below 1e-4 with mixtures.

Source: arXiv:2510.07343, equations 6 and 11 to 14, as its abstracts and public reviews quote them;
see ``docs/papers/lmaps.md`` for what is reconstructed.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxlab.core.checks import check_finite, check_key, check_value
from jaxlab.core.iterate import run, trace_info
from jaxlab.core.types import Method, Run, Scalar
from jaxlab.diffusion.denoise import Denoiser
from jaxlab.diffusion.lmaps_solvers import (
    LocalSolver,
    closed_form,
    langevin,
    likelihood_step,
    pseudo_inverse_step,
)
from jaxlab.diffusion.operators import Operator
from jaxlab.diffusion.restoration import (
    CovarianceModel,
    LMAPSHyper,
    Local,
    Restoration,
    flat,
    gaussian_variance,
    lmaps_hyper,
    tweedie,
)
from jaxlab.diffusion.sample import renoise
from jaxlab.diffusion.schedule import check_sigmas

__all__ = ["LMAPSInfo", "LMAPSState", "daps", "dps", "lmaps", "pigdm", "restore", "tmpd"]


class LMAPSState(NamedTuple):
    """A trajectory.

    Attributes:
        x: The noisy signal at level ``sigmas[step]``.
        x0: The estimate of the step before, the answer after the last one.
        step: Steps taken.
    """

    x: Float[Array, " dim"]
    x0: Float[Array, " dim"]
    step: Int[Array, ""]


class LMAPSInfo(NamedTuple):
    """Diagnostics of one step.

    Attributes:
        sigma: The level that was reached.
        misfit: The root mean square of ``y - H(x0)``; ``noise`` is what to expect at the end.
    """

    sigma: Float[Array, ""]
    misfit: Float[Array, ""]


def lmaps(covariance: CovarianceModel | None = None, solver: LocalSolver | None = None) -> Method:
    """Local MAP sampling with a covariance model and a solver of one's choice.

    The problem is a ``Restoration``, the hyper-parameters an ``LMAPSHyper``, the state an
    ``LMAPSState`` and the info an ``LMAPSInfo``. ``init`` raises ``ValueError`` if shapes, levels
    or numbers do not fit. A run takes ``len(sigmas) - 1`` steps; further ones give NaN.

    Args:
        covariance: ``restoration.flat()`` by default; ``gaussian(s)`` and ``tweedie()`` know more.
        solver: ``lmaps_solvers.closed_form()`` by default, for linear operators; ``descent()`` for
            any.

    Example:
        >>> from jaxlab.diffusion.gaussian import gaussian_prior
        >>> from jaxlab.diffusion.operators import mask
        >>> prior = gaussian_prior(jnp.zeros(2), jnp.array([[1.0, 0.9], [0.9, 1.0]]))
        >>> problem = Restoration(
        ...     prior.denoise, mask(jnp.array([0]), 2), jnp.array([1.0]),
        ...     jnp.array([3.0, 1.0, 0.3, 0.1, 0.0]), jnp.array([3.0, -3.0]),
        ... )
        >>> method, hyper = lmaps(tweedie()), lmaps_hyper(0.1, rho=0.0)
        >>> done = run(method, problem, hyper, jax.random.key(0), num_steps=4)
        >>> done.state.x0.shape, bool(done.trace.misfit[-1] < 0.1)
        ((2,), True)
    """
    model = flat() if covariance is None else covariance
    solve = closed_form() if solver is None else solver

    def init(problem: Restoration, hyper: LMAPSHyper, key: Array) -> LMAPSState:
        check_key("key", key)
        _check(problem, hyper)
        return LMAPSState(
            problem.start, jnp.zeros_like(problem.start), jnp.zeros((), dtype=jnp.int32)
        )

    def step(
        problem: Restoration, hyper: LMAPSHyper, state: LMAPSState, key: Array
    ) -> tuple[LMAPSState, LMAPSInfo]:
        num_steps, dtype = len(problem.sigmas) - 1, state.x.dtype
        key_covariance, key_solver, key_noise = jax.random.split(key, 3)
        sigma, next_sigma = problem.sigmas[state.step], problem.sigmas[state.step + 1]
        rho = jnp.broadcast_to(hyper.rho, (num_steps,))[state.step]
        mean = problem.denoise(state.x, sigma)
        local = Local(problem, state.x, mean, sigma, next_sigma, rho, hyper.noise, hyper.scale)
        x0 = solve(local, model(local, key_covariance), key_solver).astype(dtype)
        x = renoise(key_noise, x0, state.x, sigma, next_sigma, rho).astype(dtype)
        # Indices beyond the grid clamp, and the result would pass for an estimate.
        inside = state.step < num_steps
        state = LMAPSState(
            jnp.where(inside, x, jnp.nan), jnp.where(inside, x0, jnp.nan), state.step + 1
        )
        misfit = jnp.sqrt(jnp.mean(jnp.square(local.error(x0))))
        return state, LMAPSInfo(next_sigma, misfit)

    return Method(init, step)


def dps(*, normalized: bool = True) -> Method:
    """Diffusion posterior sampling (Chung et al., arXiv:2209.14687): one likelihood step a level.

    ``scale`` of the hyper-parameters is the step, and ``rho`` should be ``ancestral_rho(sigmas)``.
    Otherwise as ``lmaps``.

    Args:
        normalized: As in ``lmaps_solvers.likelihood_step``; steps then do not need the noise.
    """
    return lmaps(tweedie(), likelihood_step(normalized=normalized))


def pigdm(*, prior_scale: Scalar = 1.0) -> Method:
    """Pseudo-inverse guidance (Song et al. 2023), with ``r^2`` of a white Gaussian prior.

    ``rho`` should be ``ancestral_rho(sigmas)``. Otherwise as ``lmaps``, for linear operators.

    Args:
        prior_scale: The standard deviation of the entries of clean signals; 1 in the source.
    """
    check_value("prior_scale", prior_scale, lambda s: (s > 0) & (s < jnp.inf), "positive")

    def variance(sigma: Scalar) -> Array:
        return gaussian_variance(sigma, prior_scale=prior_scale)

    return lmaps(tweedie(), pseudo_inverse_step(variance))


def tmpd() -> Method:
    """Tweedie moment projected diffusion (Boys et al., arXiv:2310.06721).

    It is ``lmaps(tweedie())``; the source runs it with ``rho = ancestral_rho(sigmas)``.
    """
    return lmaps(tweedie())


def daps(*, num_steps: int = 100, step_size: Scalar = 0.1) -> Method:
    """Decoupled annealing posterior sampling (Zhang et al., arXiv:2407.01521), with ``rho = 1``.

    The source denoises by the probability-flow ODE: hand ``restoration.ode_denoiser(denoise)`` to
    the problem for that. Otherwise as ``lmaps``, for any operator.

    Args:
        num_steps: Langevin steps per level.
        step_size: As in ``lmaps_solvers.langevin``.
    """
    return lmaps(flat(), langevin(num_steps=num_steps, step_size=step_size))


def restore(
    denoise: Denoiser,
    operator: Operator,
    measurement: Float[Array, " measurements"],
    sigmas: Float[Array, " levels"],
    start: Float[Array, " dim"],
    key: Array,
    *,
    noise: Scalar,
    scale: Scalar = 1.0,
    rho: Scalar | Float[Array, " steps"] = 1.0,
    method: Method | None = None,
    trace_fn: Callable[[Any, Any], Any] = trace_info,
) -> Run:
    """Restore one signal; ``jax.vmap`` over measurements, starts and keys restores many.

    Args:
        denoise: ``(x, sigma) -> E[x0 | x]``.
        operator: What was measured.
        measurement: Its noisy value.
        sigmas: The levels; the last should be 0.
        start: ``sigmas[0]`` times normal numbers, from another key than ``key``.
        key: Of the fresh noise.
        noise: The standard deviation of the measurement's noise.
        scale: A factor of the covariance.
        rho: How much noise is drawn afresh.
        method: ``lmaps()`` by default.
        trace_fn: As for ``core.run``; the infos by default.

    Returns:
        ``Run.state.x0`` is the estimate.

    Raises:
        TypeError: ``key`` is not a typed key, or an operator is not linear where it must be.
        ValueError: Shapes, levels or numbers do not fit.

    Example:
        >>> from jaxlab.diffusion.empirical import empirical_prior
        >>> from jaxlab.diffusion.operators import mask
        >>> memory = empirical_prior(jnp.array([[-1.0, -1.0], [1.0, 1.0]]))  # two signals
        >>> done = restore(
        ...     memory.denoise, mask(jnp.array([0]), 2), jnp.array([0.8]),
        ...     jnp.array([5.0, 1.0, 0.2, 0.0]), jnp.array([1.0, -4.0]), jax.random.key(0),
        ...     noise=0.1,
        ... )
        >>> [round(float(entry), 2) for entry in done.state.x0]
        [0.84, 1.0]
    """
    hyper = lmaps_hyper(noise, scale=scale, rho=rho)
    hyper = jax.tree.map(lambda leaf: leaf.astype(start.dtype), hyper)
    problem = Restoration(denoise, operator, measurement, sigmas, start)
    num_steps = len(sigmas) - 1
    return run(method or lmaps(), problem, hyper, key, num_steps=num_steps, trace_fn=trace_fn)


def _check(problem: Restoration, hyper: LMAPSHyper) -> None:
    check_finite("problem.start", problem.start)
    check_finite("problem.measurement", problem.measurement)
    check_sigmas(problem.sigmas)
    if jnp.ndim(problem.start) != 1:
        raise ValueError(
            f"start must be one signal of shape [dim], got shape {jnp.shape(problem.start)}; "
            "vmap over a batch"
        )
    num_steps = len(problem.sigmas) - 1
    if jnp.shape(hyper.rho) not in ((), (num_steps,)):
        raise ValueError(
            f"rho must be one number or one for each of {num_steps} steps, got shape "
            f"{jnp.shape(hyper.rho)}"
        )
    check_value("noise", hyper.noise, lambda s: s > 0, "positive")
    check_value("scale", hyper.scale, lambda k: k > 0, "positive")
    start, level = problem.start, problem.sigmas[0]
    measured = jax.eval_shape(lambda x: problem.operator(x), start)
    if measured.shape != jnp.shape(problem.measurement):
        raise ValueError(
            f"measurement must have the shape {measured.shape} of operator(start), got "
            f"{jnp.shape(problem.measurement)}"
        )
    out = jax.eval_shape(lambda x, sigma: problem.denoise(x, sigma), start, level)
    if (out.shape, out.dtype) != (start.shape, start.dtype):
        raise ValueError(
            f"denoise must keep the shape and dtype of start, {start.shape} {start.dtype}, got "
            f"{out.shape} {out.dtype}"
        )

r"""Restoring a signal from a measurement: the problem, one step of it, and models of covariance.

Given a denoiser :math:`m(x, \sigma) = E[x_0 \mid x]` and :math:`y = H(x_0) + \sigma_y n`, a step at
level :math:`\sigma` replaces :math:`p(x_0 \mid x)` by :math:`N(m, \Sigma)`. What :math:`\Sigma` is,
is up to a *covariance model*:

.. math::
    \text{flat:}\quad \Sigma &= k \sigma^2 I \\
    \text{Gaussian prior of variance } s^2\text{:}\quad
        \Sigma &= k \frac{s^2 \sigma^2}{s^2 + \sigma^2} I \\
    \text{Tweedie:}\quad \Sigma &= k \sigma^2 \frac{\partial m}{\partial x}

Signals are vectors and VE (``alpha = 1``). Source: arXiv:2510.07343, equations 11 to 14; the second
model is reconstructed as the one that is exact for a white Gaussian prior.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxlab.core.checks import check_count, check_value
from jaxlab.core.types import Scalar
from jaxlab.diffusion.denoise import Denoiser, tweedie_diagonal
from jaxlab.diffusion.operators import Operator
from jaxlab.diffusion.sample import sample
from jaxlab.diffusion.schedule import check_level, edm_sigmas

__all__ = [
    "Covariance",
    "CovarianceModel",
    "FlowDenoiser",
    "LMAPSHyper",
    "Local",
    "Restoration",
    "ancestral_rho",
    "flat",
    "flat_variance",
    "gaussian",
    "gaussian_variance",
    "lmaps_hyper",
    "multiply",
    "ode_denoiser",
    "tweedie",
    "tweedie_variances",
]

Covariance: TypeAlias = Any
"""A variance ``[]``, variances ``[dim]``, a matrix ``[dim, dim]`` or a product ``v -> Sigma v``."""

CovarianceModel: TypeAlias = Callable[[Any, Any], Covariance]
"""``(Local, key) -> Covariance``."""


class Restoration(NamedTuple):
    """A measured signal, and the denoiser that knows such signals.

    Attributes:
        denoise: ``(x, sigma) -> E[x0 | x]``.
        operator: What was measured.
        measurement: Its noisy value.
        sigmas: The levels, strictly decreasing; the last is usually 0, so that the last step ends
            in its estimate (``schedule.edm_sigmas`` with ``end_at_zero=True``).
        start: The noisy signal at the first level, ``sigmas[0]`` times normal numbers.
    """

    denoise: Denoiser
    operator: Operator
    measurement: Float[Array, " measurements"]
    sigmas: Float[Array, " levels"]
    start: Float[Array, " dim"]


class LMAPSHyper(NamedTuple):
    """Hyper-parameters; made by ``lmaps_hyper``.

    Attributes:
        noise: ``sigma_y``, the standard deviation of the measurement's noise.
        scale: ``k``, a factor of the covariance of the clean signal.
        rho: How much of the noise is drawn afresh after a step, of all steps or of each.
    """

    noise: Float[Array, ""]
    scale: Float[Array, ""]
    rho: Float[Array, "*steps"]


class Local(NamedTuple):
    """What a covariance model and an inner solver see of one step.

    Attributes:
        problem: The restoration.
        x: The noisy signal.
        mean: Its denoised value.
        sigma: Its level.
        next_sigma: The level after the step.
        rho: The fresh share of the noise in this step.
        noise: ``sigma_y``.
        scale: ``k``.
    """

    problem: Restoration
    x: Float[Array, " dim"]
    mean: Float[Array, " dim"]
    sigma: Float[Array, ""]
    next_sigma: Float[Array, ""]
    rho: Float[Array, ""]
    noise: Float[Array, ""]
    scale: Float[Array, ""]

    def error(self, x0: Float[Array, " dim"]) -> Float[Array, " measurements"]:
        """``y - H(x0)``."""
        return self.problem.measurement - self.problem.operator(x0)


def lmaps_hyper(
    noise: Scalar, *, scale: Scalar = 1.0, rho: Scalar | Float[Array, " steps"] = 1.0
) -> LMAPSHyper:
    """Hyper-parameters of all methods of ``jaxlab.diffusion.lmaps``.

    Args:
        noise: The standard deviation of the measurement's noise, positive.
        scale: A factor of the covariance; of the step, in DPS.
        rho: In [0, 1]: 1 draws all noise afresh and 0 none; one number, or one per step.

    Raises:
        ValueError: A number is out of range.

    Example:
        >>> float(lmaps_hyper(0.05).rho)
        1.0
    """
    check_value("noise", noise, lambda s: (s > 0) & (s < jnp.inf), "positive and finite")
    check_value("scale", scale, lambda k: (k > 0) & (k < jnp.inf), "positive and finite")
    check_value("rho", rho, lambda r: (r >= 0) & (r <= 1), "in [0, 1]")
    dtype = jnp.result_type(noise, scale, rho, float)
    return LMAPSHyper(*(jnp.asarray(part, dtype) for part in (noise, scale, rho)))


def ancestral_rho(sigmas: Float[Array, " levels"]) -> Float[Array, " steps"]:
    r"""The shares of fresh noise of ancestral sampling, :math:`\sqrt{1 - \sigma_+^2/\sigma^2}`.

    With them a step draws from :math:`q(x_+ \mid x, x_0)` (Ho et al. 2020, as VE), which is what
    DPS, PiGDM and TMPD were written for [derived].

    Example:
        >>> [round(float(rho), 4) for rho in ancestral_rho(jnp.array([5.0, 4.0, 0.0]))]
        [0.6, 1.0]
    """
    ratio = sigmas[1:] / sigmas[:-1]
    return jnp.sqrt((1 - ratio) * (1 + ratio))


def flat_variance(sigma: Scalar, alpha: Scalar = 1.0) -> Float[Array, ""]:
    """``sigma^2 / alpha^2``: the variance without knowledge of the signal.

    It is an upper bound for priors with a log-concave density, and for no others.

    Example:
        >>> float(flat_variance(1.0, 0.5))
        4.0
    """
    check_level(sigma, alpha)
    return jnp.square(jnp.asarray(sigma) / alpha)


def gaussian_variance(
    sigma: Scalar, alpha: Scalar = 1.0, *, prior_scale: Scalar
) -> Float[Array, ""]:
    """The posterior variance under a white Gaussian prior of standard deviation ``prior_scale``.

    Example:
        >>> float(gaussian_variance(1.0, prior_scale=1.0))
        0.5
    """
    flat = flat_variance(sigma, alpha)
    # Not 1 / (1 / s^2 + 1 / flat), which loses small levels in float32.
    return flat * (jnp.square(prior_scale) / (jnp.square(prior_scale) + flat))


def flat() -> CovarianceModel:
    """``k sigma^2``, which is a Gaussian prior's without end.

    Example:
        >>> local = Local(*[None] * 3, 2.0, None, None, None, 0.5)
        >>> float(flat()(local, jax.random.key(0)))
        2.0
    """
    return lambda local, key: local.scale * flat_variance(local.sigma)


def gaussian(prior_scale: Scalar) -> CovarianceModel:
    """``k s^2 sigma^2 / (s^2 + sigma^2)``.

    Args:
        prior_scale: ``s``, the standard deviation of the entries of clean signals.

    Raises:
        ValueError: ``prior_scale`` is not positive.

    Example:
        >>> local = Local(*[None] * 3, 1.0, None, None, None, 1.0)
        >>> float(gaussian(1.0)(local, jax.random.key(0)))
        0.5
    """
    check_value("prior_scale", prior_scale, lambda s: (s > 0) & (s < jnp.inf), "positive")

    def model(local: Local, key: Array) -> Covariance:
        del key
        return local.scale * gaussian_variance(local.sigma, prior_scale=prior_scale)

    return model


def tweedie() -> CovarianceModel:
    """``k sigma^2 dm/dx`` as products, one reverse derivative of the denoiser each.

    Exact denoisers have symmetric derivatives. A learned one's is transposed here, so that a
    product with ``H' e`` is a gradient of the measurement's likelihood, as in DPS.

    Example:
        >>> from jaxlab.diffusion.gaussian import gaussian_prior
        >>> prior = gaussian_prior(jnp.zeros(1), jnp.eye(1))
        >>> problem = Restoration(prior.denoise, *[None] * 4)
        >>> local = Local(problem, jnp.ones(1), None, 1.0, None, None, None, 1.0)
        >>> tweedie()(local, jax.random.key(0))(jnp.array([2.0])).round(4).tolist()
        [1.0]
    """

    def model(local: Local, key: Array) -> Covariance:
        del key
        _, pull = jax.vjp(lambda x: local.problem.denoise(x, local.sigma), local.x)
        return lambda v: local.scale * jnp.square(local.sigma) * pull(v)[0]

    return model


def tweedie_variances(*, num_probes: int, shared: bool = False) -> CovarianceModel:
    """The diagonal of ``k sigma^2 dm/dx`` by random signs, cut off below at 0.

    Args:
        num_probes: How many; more are nearer to the diagonal.
        shared: Whether the mean over the diagonal serves all entries: a spherical covariance.

    Raises:
        TypeError: ``num_probes`` is not an integer.
        ValueError: ``num_probes`` is less than 1.

    Example:
        >>> from jaxlab.diffusion.gaussian import gaussian_prior
        >>> prior = gaussian_prior(jnp.zeros(2), jnp.diag(jnp.array([1.0, 3.0])))
        >>> problem = Restoration(prior.denoise, *[None] * 4)
        >>> local = Local(problem, jnp.ones(2), None, 1.0, None, None, None, 1.0)
        >>> found = tweedie_variances(num_probes=1)(local, jax.random.key(0))
        >>> [round(float(variance), 4) for variance in found]
        [0.5, 0.75]
    """
    check_count("num_probes", num_probes)

    def model(local: Local, key: Array) -> Covariance:
        denoise, sigma = local.problem.denoise, local.sigma
        found = tweedie_diagonal(key, denoise, local.x, sigma, num_probes=num_probes)
        found = found.mean() if shared else found
        return local.scale * jnp.maximum(found, 0.0)

    return model


def multiply(covariance: Covariance, vector: Float[Array, " dim"]) -> Float[Array, " dim"]:
    """``Sigma v`` of a covariance in any of its forms.

    Example:
        >>> multiply(jnp.array([1.0, 2.0]), jnp.array([3.0, 3.0])).tolist()
        [3.0, 6.0]
    """
    if callable(covariance):
        return jnp.asarray(covariance(vector))
    return covariance @ vector if jnp.ndim(covariance) == 2 else covariance * vector


class FlowDenoiser(eqx.Module):
    """The end of the probability-flow ODE; made by ``ode_denoiser``.

    Attributes:
        denoise: The denoiser of the flow.
        num_steps: Of Euler's method.
        smallest: The last positive level, as a share of the first.
    """

    denoise: Denoiser
    num_steps: int = eqx.field(static=True)
    smallest: float = eqx.field(static=True)

    def __call__(self, x: Float[Array, " dim"], sigma: Scalar) -> Float[Array, " dim"]:
        """Where the flow from ``x`` ends."""
        shares = edm_sigmas(self.num_steps, smallest=self.smallest, largest=1.0, end_at_zero=True)
        sigmas = jnp.asarray(sigma) * shares.astype(x.dtype)
        # The flow is deterministic: its key is never drawn from.
        return sample(self.denoise, sigmas, x, jax.random.key(0)).state.x


def ode_denoiser(denoise: Denoiser, *, num_steps: int = 5, smallest: float = 0.01) -> FlowDenoiser:
    """The end of the probability-flow ODE instead of the mean, as DAPS takes it.

    Args:
        denoise: The denoiser of the flow.
        num_steps: Of Euler's method, from the level down to ``smallest``, then to 0.
        smallest: The last positive level, as a share of the first.

    Raises:
        TypeError: ``num_steps`` is not an integer.
        ValueError: ``num_steps`` is less than 2, or ``smallest`` is not in (0, 1).

    Example:
        >>> ode = ode_denoiser(lambda x, sigma: x / (1 + sigma**2), num_steps=100)
        >>> end = jax.jit(lambda x: ode(x, 1.0))(jnp.array([2.0]))
        >>> round(float(end[0]), 2)  # exactly 2 / sqrt(2)
        1.41
    """
    check_count("num_steps", num_steps, least=2)
    check_value("smallest", smallest, lambda s: (s > 0) & (s < 1), "in (0, 1)")
    return FlowDenoiser(denoise, num_steps, smallest)

r"""What a denoiser is, the prior that it comes from, and what its derivative tells.

A *denoiser* is a callable ``denoise(x, sigma)`` that returns the mean of the clean signal
:math:`E[x_0 \mid x]` at one noise level, for one signal; batches come from ``jax.vmap``. A
``Prior`` whose denoiser is known in closed form has ``prior.denoise`` (also with ``alpha``), which
is a pytree, so that it passes through ``jax.jit`` as an argument.

Tweedie's formulas (Efron 2011; second order: Boys et al., arXiv:2310.06721) hold for exact ones:

.. math::
    \nabla \log p(x) = \frac{\alpha E[x_0 \mid x] - x}{\sigma^2}, \qquad
    \mathrm{Cov}(x_0 \mid x) = \frac{\sigma^2}{\alpha} \frac{\partial E[x_0 \mid x]}{\partial x} .
"""

import abc
from collections.abc import Callable
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxlab.core.checks import check_count, check_key, check_value
from jaxlab.core.types import Scalar
from jaxlab.diffusion.schedule import check_level, to_ve

__all__ = [
    "Denoiser",
    "Prior",
    "check_weights",
    "score",
    "tweedie_covariance",
    "tweedie_diagonal",
    "tweedie_product",
    "tweedie_trace",
]

Denoiser: TypeAlias = Callable[[Any, Any], Any]
"""``(x, sigma) -> E[x0 | x]``, of the shape of ``x``."""


class Prior(eqx.Module):
    """A distribution of clean signals whose noisy marginals and posteriors are known exactly.

    Signals are vectors ``[dim]``. Every method that takes a noisy signal takes one of
    ``x = alpha x0 + sigma eps``, and raises ``ValueError`` if the signal has another shape, or
    ``sigma`` or ``alpha`` is not positive. Methods do not hash: write ``jax.jit(lambda x:
    prior.denoise(x, sigma))``, or pass ``prior.denoise`` as an argument.
    """

    @property
    @abc.abstractmethod
    def dim(self) -> int:
        """The length of a signal."""

    def denoise(
        self, x: Float[Array, " dim"], sigma: Scalar, alpha: Scalar = 1.0
    ) -> Float[Array, " dim"]:
        """The posterior mean ``E[x0 | x]``."""
        self._check(x, sigma, alpha)
        return self._denoise(*to_ve(x, sigma, alpha))

    def log_density(
        self, x: Float[Array, " dim"], sigma: Scalar, alpha: Scalar = 1.0
    ) -> Float[Array, ""]:
        """The log density of the noisy signal; ``sigma`` may be 0 if the prior has a density."""
        self._check(x, 1.0, alpha)
        check_value("sigma", sigma, lambda s: (s >= 0) & (s < jnp.inf), "not negative and finite")
        return self._log_density(*to_ve(x, sigma, alpha)) - self.dim * jnp.log(alpha)

    def posterior_covariance(
        self, x: Float[Array, " dim"], sigma: Scalar, alpha: Scalar = 1.0
    ) -> Float[Array, "dim dim"]:
        """The posterior covariance ``Cov(x0 | x)``, without derivatives."""
        self._check(x, sigma, alpha)
        return self._posterior_covariance(*to_ve(x, sigma, alpha))

    @abc.abstractmethod
    def sample(self, key: Array) -> Float[Array, " dim"]:
        """One clean signal; ``jax.vmap`` over keys gives more."""

    @abc.abstractmethod
    def _denoise(self, x: Float[Array, " dim"], sigma: Scalar) -> Float[Array, " dim"]:
        """``denoise`` of a VE signal."""

    @abc.abstractmethod
    def _log_density(self, x: Float[Array, " dim"], sigma: Scalar) -> Float[Array, ""]:
        """``log_density`` of a VE signal."""

    @abc.abstractmethod
    def _posterior_covariance(
        self, x: Float[Array, " dim"], sigma: Scalar
    ) -> Float[Array, "dim dim"]:
        """``posterior_covariance`` of a VE signal."""

    def _check(self, x: Array, sigma: Scalar, alpha: Scalar) -> None:
        if jnp.shape(x) != (self.dim,):
            raise ValueError(
                f"x must be one signal of shape ({self.dim},), got shape {jnp.shape(x)}; "
                "vmap over a batch"
            )
        check_level(sigma, alpha)


def check_weights(name: str, weights: Array, count: int) -> None:
    """Raise ``ValueError`` unless these are ``count`` probabilities that sum to 1.

    Example:
        >>> check_weights("weights", jnp.array([0.5, 0.25]), 2)
        Traceback (most recent call last):
        ValueError: weights must be probabilities with sum 1 (their sum), got 0.75
    """
    if jnp.shape(weights) != (count,):
        raise ValueError(f"{name} must have shape ({count},), got {jnp.shape(weights)}")
    check_value(name, weights, lambda w: w >= 0, "non-negative")
    slack = 8 * count * float(jnp.finfo(jnp.result_type(weights)).eps)
    expected = "probabilities with sum 1 (their sum)"
    check_value(name, jnp.sum(weights), lambda total: abs(total - 1) <= slack, expected)


def score(
    denoised: Float[Array, "*shape"],
    x: Float[Array, "*shape"],
    sigma: Scalar,
    alpha: Scalar = 1.0,
) -> Float[Array, "*shape"]:
    """The gradient of the noisy log density by Tweedie's formula, ``(alpha m - x) / sigma^2``.

    Example:
        >>> score(jnp.array([0.5]), jnp.array([1.0]), 1.0).tolist()  # prior and noise N(0, 1)
        [-0.5]
    """
    check_level(sigma, alpha)
    return (jnp.asarray(alpha) * denoised - x) / jnp.asarray(sigma) ** 2


def tweedie_covariance(
    denoise: Denoiser, x: Float[Array, " dim"], sigma: Scalar, alpha: Scalar = 1.0
) -> Float[Array, "dim dim"]:
    """The posterior covariance ``(sigma^2 / alpha) dm/dx`` by ``dim`` forward derivatives.

    The covariance is symmetric if the denoiser is exact; a learned one's Jacobian is not, and is
    returned as it is, with ``dm_i/dx_j`` in row ``i``. In float32 the entries' relative error is
    that of the denoiser's derivative, which mixtures with far components amplify: use float64.

    Args:
        denoise: At the level's ``alpha``, such as ``lambda x, s: prior.denoise(x, s, alpha)``.
        x: The noisy signal.
        sigma: Its noise.
        alpha: Its signal factor.

    Example:
        >>> from jaxlab.diffusion.gaussian import gaussian_prior
        >>> prior = gaussian_prior(jnp.zeros(2), jnp.eye(2))
        >>> tweedie_covariance(prior.denoise, jnp.ones(2), 1.0).round(4).tolist()
        [[0.5, 0.0], [0.0, 0.5]]
    """
    check_level(sigma, alpha)
    return jnp.square(jnp.asarray(sigma)) / alpha * jax.jacfwd(lambda x: denoise(x, sigma))(x)


def tweedie_product(
    denoise: Denoiser,
    x: Float[Array, "*shape"],
    sigma: Scalar,
    vector: Float[Array, "*shape"],
    alpha: Scalar = 1.0,
) -> Float[Array, "*shape"]:
    """The posterior covariance times ``vector``, by one forward derivative.

    Example:
        >>> from jaxlab.diffusion.gaussian import gaussian_prior
        >>> prior = gaussian_prior(jnp.zeros(2), jnp.eye(2))
        >>> x, vector = jnp.ones(2), jnp.array([1.0, -1.0])
        >>> tweedie_product(prior.denoise, x, 1.0, vector).round(4).tolist()
        [0.5, -0.5]
    """
    check_level(sigma, alpha)
    along = jax.jvp(lambda x: denoise(x, sigma), (x,), (vector,))[1]
    return jnp.square(sigma) / alpha * along


def tweedie_diagonal(
    key: Array,
    denoise: Denoiser,
    x: Float[Array, "*shape"],
    sigma: Scalar,
    alpha: Scalar = 1.0,
    *,
    num_probes: int,
) -> Float[Array, "*shape"]:
    """An unbiased estimate of the posterior variances: Hutchinson's, with random signs.

    The variance of an entry is the sum of the squares of its row off the diagonal (for a symmetric
    covariance), divided by ``num_probes``; diagonal covariances come out exactly.

    Raises:
        TypeError: ``key`` is not a typed key, or ``num_probes`` no integer.
        ValueError: ``num_probes`` is less than 1.

    Example:
        >>> from jaxlab.diffusion.gaussian import gaussian_prior
        >>> prior = gaussian_prior(jnp.zeros(2), jnp.eye(2))
        >>> key = jax.random.key(0)
        >>> tweedie_diagonal(key, prior.denoise, jnp.ones(2), 1.0, num_probes=1).round(4).tolist()
        [0.5, 0.5]
    """
    check_key("key", key)
    check_count("num_probes", num_probes)

    def probe(key: Array) -> Float[Array, "*shape"]:
        signs = jax.random.rademacher(key, x.shape, x.dtype)
        return signs * tweedie_product(denoise, x, sigma, signs, alpha)

    return jax.vmap(probe)(jax.random.split(key, num_probes)).mean(axis=0)


def tweedie_trace(
    key: Array,
    denoise: Denoiser,
    x: Float[Array, "*shape"],
    sigma: Scalar,
    alpha: Scalar = 1.0,
    *,
    num_probes: int,
) -> Float[Array, ""]:
    """An unbiased estimate of the posterior covariance's trace, with the probes of the diagonal.

    Example:
        >>> from jaxlab.diffusion.gaussian import gaussian_prior
        >>> prior = gaussian_prior(jnp.zeros(2), jnp.eye(2))
        >>> trace = tweedie_trace(
        ...     jax.random.key(0), prior.denoise, jnp.ones(2), 1.0, num_probes=1
        ... )
        >>> round(float(trace), 4)
        1.0
    """
    return tweedie_diagonal(key, denoise, x, sigma, alpha, num_probes=num_probes).sum()

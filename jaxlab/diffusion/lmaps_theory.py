r"""What can be said of local MAP sampling exactly: its law, its risk, and the global MAP.

Under a Gaussian posterior :math:`N(\mu_y, \Sigma_y)` (a Gaussian prior, a linear operator) and the
exact local MAP, the deviation :math:`u = x - \mu_y` along an eigenvector of :math:`\Sigma_y` of
eigenvalue :math:`s` is a scalar Gaussian chain [derived]:

.. math::
    u_+ = \frac{s + \sqrt{1 - \rho^2}\, \sigma \sigma_+}{s + \sigma^2} u + \sigma_+ \rho\, \epsilon,
    \qquad x_0^* - \mu_y = \frac{s}{s + \sigma^2} u .

So the estimate is unbiased once the start is forgotten, and its spread lies below the posterior's
for every schedule and every :math:`\rho`; in slow schedules the ratio of the variances tends to
:math:`(1 + \sqrt{1 - \rho^2})/2`. ``rho = 0`` is a posterior sampler, ``rho = 1`` halves the
variance.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxlab.core.checks import check_value
from jaxlab.core.types import Scalar
from jaxlab.diffusion.denoise import Prior
from jaxlab.diffusion.operators import Operator
from jaxlab.diffusion.schedule import check_level, check_sigmas

__all__ = [
    "affine_risk",
    "gaussian_lmaps_moments",
    "global_objective",
    "local_density_objective",
    "spread_limit",
]


def gaussian_lmaps_moments(
    mean: Float[Array, "*directions"],
    variance: Scalar | Float[Array, "*directions"],
    eigenvalues: Float[Array, "*directions"],
    sigmas: Float[Array, " levels"],
    rho: Scalar | Float[Array, " steps"] = 1.0,
) -> tuple[Float[Array, "*directions"], Float[Array, "*directions"]]:
    """Mean and variance of the last estimate minus ``mu_y``, along eigenvectors of ``Sigma_y``.

    Args:
        mean: Of ``start - mu_y``.
        variance: Of the start, ``sigmas[0] ** 2`` as a rule.
        eigenvalues: ``s``, not negative.
        sigmas: The levels; the last must be 0, as a run's last estimate is at the one before.
        rho: Of all steps, or of each.

    Raises:
        ValueError: The levels do not decrease or do not end at 0, or ``rho`` is not in [0, 1].

    Example:
        >>> from jaxlab.diffusion.schedule import edm_sigmas
        >>> sigmas = edm_sigmas(1000, smallest=0.002, largest=80.0, end_at_zero=True)
        >>> mean, variance = gaussian_lmaps_moments(jnp.zeros(1), 80.0**2, jnp.ones(1), sigmas)
        >>> round(float(variance[0]), 3)
        0.496
    """
    check_sigmas(sigmas)
    check_value("sigmas", sigmas[-1], lambda last: last == 0, "zero at the end (the last level)")
    check_value("rho", rho, lambda r: (r >= 0) & (r <= 1), "in [0, 1]")
    rhos = jnp.broadcast_to(rho, (len(sigmas) - 1,))

    def step(
        carry: tuple[Array, Array], levels: tuple[Array, Array, Array]
    ) -> tuple[tuple[Array, Array], None]:
        mean, variance = carry
        sigma, after, rho = levels
        kept = jnp.sqrt(1 - rho**2)
        factor = (eigenvalues + kept * sigma * after) / (eigenvalues + sigma**2)
        return (factor * mean, factor**2 * variance + (after * rho) ** 2), None

    dtype = jnp.result_type(eigenvalues, sigmas)
    start = (
        jnp.broadcast_to(jnp.asarray(mean, dtype), eigenvalues.shape),
        jnp.broadcast_to(jnp.asarray(variance, dtype), eigenvalues.shape),
    )
    # The last step to 0 is the estimate itself.
    return jax.lax.scan(step, start, (sigmas[:-1], sigmas[1:], rhos.astype(dtype)))[0]


def spread_limit(rho: Scalar) -> Float[Array, ""]:
    """The variance of the estimate over the posterior's, in the limit of slow schedules.

    Example:
        >>> [round(float(spread_limit(rho)), 3) for rho in (0.0, 0.7, 1.0)]
        [1.0, 0.857, 0.5]
    """
    check_value("rho", rho, lambda r: (r >= 0) & (r <= 1), "in [0, 1]")
    return (1 + jnp.sqrt(1 - jnp.square(jnp.asarray(rho)))) / 2


def affine_risk(
    gain: Float[Array, "dim measurements"],
    covariance: Float[Array, "dim dim"],
    matrix: Float[Array, "measurements dim"],
    noise: Scalar,
) -> Float[Array, ""]:
    r"""The mean squared error of :math:`m + B(y - Hm)` given ``x``, for any law of mean ``m``.

    :math:`\mathrm{tr}\,\Sigma - 2\,\mathrm{tr}(BH\Sigma) + \mathrm{tr}(B(H\Sigma H^T +
    \sigma_y^2 I)B^T)`; the gain of the local MAP with the true covariance has the least.

    Example:
        >>> half, one = jnp.full((1, 1), 0.5), jnp.ones((1, 1))
        >>> float(affine_risk(half, one, one, 1.0))
        0.5
    """
    crossed = matrix @ covariance
    total = crossed @ matrix.T + jnp.square(noise) * jnp.eye(len(matrix), dtype=crossed.dtype)
    return jnp.trace(covariance) - 2 * jnp.sum(gain.T * crossed) + jnp.sum(gain @ total * gain)


def global_objective(
    prior: Prior,
    x0: Float[Array, " dim"],
    operator: Operator,
    measurement: Float[Array, " measurements"],
    noise: Scalar,
) -> Float[Array, ""]:
    """``-log p(x0 | y)`` without its constant; the global MAP minimises it.

    The prior must have a density.

    Example:
        >>> from jaxlab.diffusion.gaussian import gaussian_prior
        >>> prior = gaussian_prior(jnp.zeros(1), jnp.eye(1))
        >>> at = jax.grad(lambda x0: global_objective(prior, x0, lambda x: x, jnp.ones(1), 1.0))
        >>> at(jnp.full(1, 0.5)).tolist()
        [0.0]
    """
    misfit = measurement - operator(x0)
    return misfit @ misfit / (2 * jnp.square(noise)) - prior.log_density(x0, 0.0)


def local_density_objective(
    prior: Prior,
    x0: Float[Array, " dim"],
    x: Float[Array, " dim"],
    sigma: Scalar,
    operator: Operator,
    measurement: Float[Array, " measurements"],
    noise: Scalar,
    alpha: Scalar = 1.0,
) -> Float[Array, ""]:
    """``-log p(x0 | x, y)`` without its constant: the local MAP before any Gaussian approximation.

    Its gradient differs from that of ``global_objective`` by ``alpha (alpha x0 - x) / sigma^2``, so
    that local MAPs go to the global one as ``sigma`` grows and to ``x / alpha`` as it vanishes.

    Example:
        >>> from jaxlab.diffusion.gaussian import gaussian_prior
        >>> prior, one = gaussian_prior(jnp.zeros(1), jnp.eye(1)), jnp.ones(1)
        >>> at = jax.grad(
        ...     lambda x0: local_density_objective(prior, x0, one, 1.0, lambda x: x, one, 1.0)
        ... )
        >>> at(jnp.full(1, 1.0)).tolist()
        [1.0]
    """
    check_level(sigma, alpha)
    gap = jnp.asarray(alpha) * x0 - x
    return global_objective(prior, x0, operator, measurement, noise) + gap @ gap / (
        2 * jnp.square(jnp.asarray(sigma))
    )

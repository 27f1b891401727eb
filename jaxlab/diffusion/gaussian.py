r"""The Gaussian prior, whose denoiser is linear (Wiener's filter).

With :math:`C = V \Lambda V^T` computed once, every level costs two products with :math:`V`:

.. math::
    E[x_0 \mid x] = \mu + V \frac{\Lambda}{\Lambda + \sigma^2} V^T (x - \mu), \qquad
    \mathrm{Cov}(x_0 \mid x) = V \frac{\sigma^2 \Lambda}{\Lambda + \sigma^2} V^T .

float32 is enough at every level: the filter is evaluated between 0 and 1 and nothing is inverted.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxlab.core.checks import check_finite, check_key, check_value
from jaxlab.core.types import Scalar
from jaxlab.diffusion.denoise import Prior

__all__ = ["GaussianPrior", "fit_gaussian", "flow_map", "gaussian_prior"]


class GaussianPrior(Prior):
    """``N(mean, eigenvectors diag(eigenvalues) eigenvectors')``; made by ``gaussian_prior``.

    Attributes:
        mean: The mean.
        eigenvalues: Of the covariance, not negative.
        eigenvectors: In columns, orthonormal.
    """

    mean: Float[Array, "*components dim"]
    eigenvalues: Float[Array, "*components dim"]
    eigenvectors: Float[Array, "*components dim dim"]

    @property
    def dim(self) -> int:
        """The length of a signal."""
        return self.mean.shape[-1]

    @property
    def covariance(self) -> Float[Array, "dim dim"]:
        """The covariance matrix."""
        return self._assemble(self.eigenvalues)

    def sample(self, key: Array) -> Float[Array, " dim"]:
        """One clean signal; ``jax.vmap`` over keys gives more."""
        check_key("key", key)
        normal = jax.random.normal(key, self.mean.shape, self.mean.dtype)
        return self.mean + self.eigenvectors @ (jnp.sqrt(self.eigenvalues) * normal)

    def _denoise(self, x: Float[Array, " dim"], sigma: Scalar) -> Float[Array, " dim"]:
        gains = self.eigenvalues / (self.eigenvalues + jnp.square(sigma))
        return self.mean + self.eigenvectors @ (gains * self._coordinates(x))

    def _log_density(self, x: Float[Array, " dim"], sigma: Scalar) -> Float[Array, ""]:
        variances = self.eigenvalues + jnp.square(sigma)
        logs = jnp.log(2 * jnp.pi * variances)
        return -jnp.sum(self._coordinates(x) ** 2 / variances + logs) / 2

    def _posterior_covariance(
        self, x: Float[Array, " dim"], sigma: Scalar
    ) -> Float[Array, "dim dim"]:
        del x
        noise = jnp.square(sigma)
        return self._assemble(self.eigenvalues * (noise / (self.eigenvalues + noise)))

    def _coordinates(self, x: Float[Array, " dim"]) -> Float[Array, " dim"]:
        return (x - self.mean) @ self.eigenvectors

    def _assemble(self, eigenvalues: Float[Array, " dim"]) -> Float[Array, "dim dim"]:
        return (self.eigenvectors * eigenvalues[None, :]) @ self.eigenvectors.T


def gaussian_prior(
    mean: Float[Array, " dim"], covariance: Float[Array, "dim dim"]
) -> GaussianPrior:
    """A Gaussian prior, with its covariance decomposed once.

    Singular covariances are allowed. Eigenvalues that are negative by rounding become 0.

    Raises:
        ValueError: The covariance is not symmetric and positive semidefinite, a shape does not fit,
            or something is NaN or infinite.

    Example:
        >>> prior = gaussian_prior(jnp.zeros(2), jnp.diag(jnp.array([3.0, 1.0])))
        >>> prior.denoise(jnp.array([4.0, 4.0]), 1.0).round(4).tolist()
        [3.0, 2.0]
    """
    mean, covariance = jnp.asarray(mean), jnp.asarray(covariance)
    if mean.ndim != 1 or not mean.size:
        raise ValueError(f"mean must have shape [dim] with dim >= 1, got {mean.shape}")
    if covariance.shape != (mean.size, mean.size):
        raise ValueError(
            f"covariance must have shape ({mean.size}, {mean.size}) like mean, "
            f"got {covariance.shape}"
        )
    check_finite("mean", mean)
    check_finite("covariance", covariance)
    # What dim products of numbers of the covariance's size may be off by.
    slack = 8 * mean.size * jnp.finfo(covariance.dtype).eps * jnp.abs(covariance).max()
    asymmetry = jnp.abs(covariance - covariance.T).max()
    check_value(
        "covariance", asymmetry, lambda gap: gap <= slack, "symmetric (difference to its transpose)"
    )
    eigenvalues, eigenvectors = jnp.linalg.eigh(covariance)
    check_value(
        "covariance",
        eigenvalues[0],
        lambda least: least >= -slack,
        "positive semidefinite (least eigenvalue)",
    )
    return GaussianPrior(mean, jnp.maximum(eigenvalues, 0.0), eigenvectors)


def fit_gaussian(rows: Float[Array, "rows dim"]) -> GaussianPrior:
    """The Gaussian with the mean and the covariance (divided by the number) of the rows.

    It is the best linear denoiser of the rows' own distribution.

    Raises:
        ValueError: There is no row, or NaN or infinity.

    Example:
        >>> fit_gaussian(jnp.array([[0.0], [2.0]])).covariance.tolist()
        [[1.0]]
    """
    rows = jnp.asarray(rows)
    if rows.ndim != 2 or not rows.size:
        raise ValueError(f"rows must have shape [rows, dim] with entries, got {rows.shape}")
    check_finite("rows", rows)
    mean = rows.mean(axis=0)
    centred = rows - mean[None, :]
    return gaussian_prior(mean, centred.T @ centred / len(rows))


def flow_map(
    prior: GaussianPrior, x: Float[Array, " dim"], sigma: Scalar, sigma_next: Scalar
) -> Float[Array, " dim"]:
    r"""The probability-flow ODE :math:`dx/d\sigma = (x - E[x_0 \mid x])/\sigma`, solved exactly.

    Along every eigenvector the distance to the mean scales with the standard deviation of the
    noisy signal, :math:`\sqrt{(\lambda + \sigma_+^2)/(\lambda + \sigma^2)}` [derived].

    Raises:
        ValueError: ``sigma`` is not positive.

    Example:
        >>> prior = gaussian_prior(jnp.zeros(1), jnp.eye(1))
        >>> flow_map(prior, jnp.array([2.0]), jnp.sqrt(3.0), 0.0).tolist()
        [1.0]
    """
    prior._check(x, sigma, 1.0)
    after = prior.eigenvalues + jnp.square(sigma_next)
    ratio = jnp.sqrt(after / (prior.eigenvalues + jnp.square(sigma)))
    return prior.mean + prior.eigenvectors @ (ratio * prior._coordinates(x))

r"""Gaussian mixtures as priors: one eigendecomposition per component serves every noise level.

The responsibilities :math:`r_k \propto w_k N(x; \mu_k, C_k + \sigma^2 I)` are a softmax of log
densities, and mean and covariance of the posterior are those of the mixture of the components'
posteriors. Given a noisy linear measurement a mixture is again one (``condition_mixture``). float32
is enough for the mean; differences of log densities grow like
:math:`|x|^2/\sigma^2`, so take float64 for covariances and for comparisons below 1e-4.
"""

import warnings
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxlab.core.checks import check_count, check_finite, check_key, check_value
from jaxlab.core.locate import missing_package
from jaxlab.core.types import Scalar
from jaxlab.diffusion.denoise import Prior, check_weights
from jaxlab.diffusion.gaussian import GaussianPrior, gaussian_prior
from jaxlab.stats.elimination import eliminate

__all__ = [
    "MixturePrior",
    "condition_mixture",
    "fit_mixture",
    "mixture_prior",
    "posterior_mean",
    "posterior_sample",
]


class MixturePrior(Prior):
    """A mixture of Gaussians; made by ``mixture_prior`` or ``fit_mixture``.

    Attributes:
        log_weights: ``[components]``; minus infinity for weight 0.
        components: Gaussian priors, stacked along a leading axis.
    """

    log_weights: Float[Array, " components"]
    components: GaussianPrior

    @property
    def dim(self) -> int:
        """The length of a signal."""
        return self.components.dim

    @property
    def mean(self) -> Float[Array, " dim"]:
        """The mean of clean signals."""
        return jnp.exp(self.log_weights) @ self.components.mean

    @property
    def covariance(self) -> Float[Array, "dim dim"]:
        """The covariance of clean signals."""
        inside = jax.vmap(lambda component: component.covariance)(self.components)
        return _total_covariance(jnp.exp(self.log_weights), self.components.mean, inside)

    def responsibilities(
        self, x: Float[Array, " dim"], sigma: Scalar, alpha: Scalar = 1.0
    ) -> Float[Array, " components"]:
        """The posterior probability of every component, given a noisy signal."""
        self._check(x, sigma, alpha)
        joint = jax.vmap(lambda component: component.log_density(x, sigma, alpha))
        return jax.nn.softmax(self.log_weights + joint(self.components))

    def sample(self, key: Array) -> Float[Array, " dim"]:
        """One clean signal; ``jax.vmap`` over keys gives more."""
        check_key("key", key)
        key_component, key_signal = jax.random.split(key)
        chosen = jax.random.categorical(key_component, self.log_weights)
        return jax.tree.map(lambda leaf: leaf[chosen], self.components).sample(key_signal)

    def _denoise(self, x: Float[Array, " dim"], sigma: Scalar) -> Float[Array, " dim"]:
        means = jax.vmap(lambda component: component.denoise(x, sigma))(self.components)
        return self.responsibilities(x, sigma) @ means

    def _log_density(self, x: Float[Array, " dim"], sigma: Scalar) -> Float[Array, ""]:
        joint = jax.vmap(lambda component: component.log_density(x, sigma))(self.components)
        return jax.nn.logsumexp(self.log_weights + joint)

    def _posterior_covariance(
        self, x: Float[Array, " dim"], sigma: Scalar
    ) -> Float[Array, "dim dim"]:
        means = jax.vmap(lambda component: component.denoise(x, sigma))(self.components)
        inside = jax.vmap(lambda component: component.posterior_covariance(x, sigma))(
            self.components
        )
        return _total_covariance(self.responsibilities(x, sigma), means, inside)


def _total_covariance(
    weights: Float[Array, " components"],
    means: Float[Array, "components dim"],
    covariances: Float[Array, "components dim dim"],
) -> Float[Array, "dim dim"]:
    deviations = means - (weights @ means)[None, :]
    inside = jnp.einsum("k,kij->ij", weights, covariances)
    return inside + jnp.einsum("k,ki,kj->ij", weights, deviations, deviations)


def mixture_prior(
    weights: Float[Array, " components"],
    means: Float[Array, "components dim"],
    covariances: Float[Array, "components dim dim"],
) -> MixturePrior:
    """A mixture of Gaussians, with every covariance decomposed once.

    Raises:
        ValueError: The weights are not probabilities that sum to 1, a covariance is not symmetric
            and positive semidefinite, shapes do not fit, or something is NaN or infinite.

    Example:
        >>> prior = mixture_prior(
        ...     jnp.array([0.5, 0.5]), jnp.array([[-2.0], [2.0]]), jnp.full((2, 1, 1), 0.01)
        ... )
        >>> round(float(prior.denoise(jnp.array([1.0]), 1.0)[0]), 3)
        1.916
    """
    weights, means, covariances = (jnp.asarray(part) for part in (weights, means, covariances))
    if means.ndim != 2 or not means.size:
        raise ValueError(f"means must have shape [components, dim], got {means.shape}")
    count, dim = means.shape
    if covariances.shape != (count, dim, dim):
        raise ValueError(
            f"covariances must have shape ({count}, {dim}, {dim}) like means, "
            f"got {covariances.shape}"
        )
    check_finite("weights", weights)
    check_weights("weights", weights, count)
    # A few components, each checked by itself: a Python loop over a static size.
    parts = [gaussian_prior(means[k], covariances[k]) for k in range(count)]
    components = jax.tree.map(lambda *leaves: jnp.stack(leaves), *parts)
    return MixturePrior(jnp.log(weights), components)


def fit_mixture(
    key: Array,
    rows: Float[np.ndarray, "rows dim"] | Float[Array, "rows dim"],
    num_components: int,
    *,
    ridge: float = 1e-4,
    num_iterations: int = 25,
) -> MixturePrior:
    """Full covariances by EM, from scikit-learn's ``GaussianMixture``; not differentiable.

    It runs on the host in float64; the prior has the dtype of the rows.

    Args:
        key: Decides the start of EM, which is k-means.
        rows: The data.
        num_components: How many Gaussians.
        ridge: Added to every covariance's diagonal, in squared units of the data.
        num_iterations: The largest number of EM steps; an unfinished fit is no error.

    Raises:
        ImportError: scikit-learn is not installed.
        ValueError: There are fewer rows than components, or NaN or infinity.

    Example:
        >>> prior = fit_mixture(jax.random.key(0), np.array([[-2.0], [-2.1], [2.0], [2.1]]), 2)
        >>> sorted(round(float(m), 2) for m in prior.components.mean[:, 0])
        [-2.05, 2.05]
    """
    check_key("key", key)
    check_count("num_components", num_components)
    check_count("num_iterations", num_iterations)
    table = np.asarray(rows)
    if table.ndim != 2 or len(table) < num_components:
        raise ValueError(
            f"rows must have shape [rows, dim] with at least num_components = {num_components} "
            f"rows, got {table.shape}"
        )
    check_finite("rows", table)
    try:
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.mixture import GaussianMixture
    except ImportError as error:
        raise missing_package("fit_mixture", "scikit-learn", error) from error
    model = GaussianMixture(
        num_components,
        reg_covar=ridge,
        max_iter=num_iterations,
        random_state=int(jax.random.bits(key, dtype=jnp.uint32)),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(table.astype(np.float64))
    dtype = jnp.asarray(table[0]).dtype
    weights, means, covariances = (
        jnp.asarray(part, dtype) for part in (model.weights_, model.means_, model.covariances_)
    )
    return mixture_prior(weights / weights.sum(), means, covariances)


def posterior_mean(
    prior: MixturePrior,
    matrix: Float[Array, "measurements dim"],
    measurement: Float[Array, " measurements"],
    noise: Scalar | Float[Array, " measurements"],
) -> Float[Array, " dim"]:
    """``E[x0 | y]`` for ``y = H x0 + noise``: the estimate of least squared error.

    Args:
        prior: Of ``x0``.
        matrix: ``H``.
        measurement: ``y``.
        noise: The standard deviation of the noise, of all entries or of each.

    Raises:
        ValueError: Shapes do not fit, or ``noise`` is not positive.

    Example:
        >>> prior = mixture_prior(jnp.ones(1), jnp.zeros((1, 1)), jnp.ones((1, 1, 1)))
        >>> posterior_mean(prior, jnp.ones((1, 1)), jnp.ones(1), 1.0).round(4).tolist()
        [0.5]
    """
    gained = _gains(prior, matrix, measurement, noise)
    return jnp.exp(gained.log_weights) @ gained.means


def posterior_sample(
    key: Array,
    prior: MixturePrior,
    matrix: Float[Array, "measurements dim"],
    measurement: Float[Array, " measurements"],
    noise: Scalar | Float[Array, " measurements"],
) -> Float[Array, " dim"]:
    """One draw from ``p(x0 | y)``, by Matheron's rule inside of a component.

    Arguments and errors are those of ``posterior_mean``.

    Example:
        >>> prior = mixture_prior(jnp.ones(1), jnp.zeros((1, 1)), jnp.ones((1, 1, 1)))
        >>> key = jax.random.key(0)
        >>> x = posterior_sample(key, prior, jnp.ones((1, 1)), jnp.ones(1), 1e-3)
        >>> bool(abs(x[0] - 1) < 0.01)
        True
    """
    check_key("key", key)
    gained = _gains(prior, matrix, measurement, noise)
    key_component, key_signal, key_noise = jax.random.split(key, 3)
    chosen = jax.random.categorical(key_component, gained.log_weights)
    signal = jax.tree.map(lambda leaf: leaf[chosen], prior.components).sample(key_signal)
    fresh = jnp.asarray(noise) * jax.random.normal(key_noise, measurement.shape, measurement.dtype)
    return signal + gained.gains[chosen] @ (measurement - matrix @ signal - fresh)


def condition_mixture(
    prior: MixturePrior,
    matrix: Float[Array, "measurements dim"],
    measurement: Float[Array, " measurements"],
    noise: Scalar | Float[Array, " measurements"],
) -> MixturePrior:
    """The law of ``x0`` given ``y = H x0 + noise``, which is a mixture of as many components.

    Arguments and errors are those of ``posterior_mean``.

    Example:
        >>> prior = mixture_prior(jnp.ones(1), jnp.zeros((1, 1)), jnp.ones((1, 1, 1)))
        >>> after = condition_mixture(prior, jnp.ones((1, 1)), jnp.ones(1), 1.0)
        >>> after.covariance.round(4).tolist()
        [[0.5]]
    """
    gained = _gains(prior, matrix, measurement, noise)
    noises = jnp.broadcast_to(jnp.asarray(noise), measurement.shape)

    def component(mean: Array, covariance: Array, gain: Array) -> GaussianPrior:
        # Joseph's form, which stays positive semidefinite under rounding.
        rest = jnp.eye(prior.dim, dtype=gain.dtype) - gain @ matrix
        spread = gain * noises[None, :]
        after = rest @ covariance @ rest.T + spread @ spread.T
        eigenvalues, eigenvectors = jnp.linalg.eigh(after)
        return GaussianPrior(mean, jnp.maximum(eigenvalues, 0.0), eigenvectors)

    covariances = jax.vmap(lambda part: part.covariance)(prior.components)
    components = jax.vmap(component)(gained.means, covariances, gained.gains)
    return MixturePrior(gained.log_weights, components)


class _Gained(NamedTuple):
    """Of every component: its log probability, mean and gain, given the measurement."""

    log_weights: Float[Array, " components"]
    means: Float[Array, "components dim"]
    gains: Float[Array, "components dim measurements"]


def _gains(prior: MixturePrior, matrix: Array, measurement: Array, noise: Any) -> _Gained:
    if jnp.ndim(matrix) != 2 or matrix.shape != (jnp.size(measurement), prior.dim):
        raise ValueError(
            f"matrix must have shape [measurements, dim] = ({jnp.size(measurement)}, {prior.dim}) "
            f"like measurement and prior, got {jnp.shape(matrix)}"
        )
    if jnp.shape(noise) not in ((), jnp.shape(measurement)):
        raise ValueError(
            f"noise must be one number or have the shape {jnp.shape(measurement)} of measurement, "
            f"got {jnp.shape(noise)}"
        )
    check_value("noise", noise, lambda s: (s > 0) & (s < jnp.inf), "positive and finite")
    noises = jnp.broadcast_to(jnp.square(jnp.asarray(noise)), measurement.shape)

    def component(part: GaussianPrior) -> tuple[Array, Array, Array]:
        crossed = matrix @ part.covariance
        total = crossed @ matrix.T + jnp.diag(noises)
        error = measurement - matrix @ part.mean
        solved = eliminate(total, jnp.concatenate([crossed, error[:, None]], axis=1))
        gain, white = solved.solution[:, :-1].T, solved.solution[:, -1]
        logs = (solved.log_determinant + len(noises) * jnp.log(2 * jnp.pi)) / 2
        return -error @ white / 2 - logs, part.mean + gain @ error, gain

    joint, means, gains = jax.vmap(component)(prior.components)
    return _Gained(jax.nn.log_softmax(prior.log_weights + joint), means, gains)

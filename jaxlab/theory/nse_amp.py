r"""Approximate message passing for a noisy single index, its rivals, and data of the model.

With features :math:`X` of entries :math:`N(0, 1/d)` and a direction :math:`w` of mean square 1, one
step from the estimate :math:`\hat w` of variance :math:`v` is

.. math::
    \omega &= X \hat w - v\, g_{prev}, \qquad g = E[z - \omega \mid y]/v,
        \quad z \sim N(\omega, v) \\
    \Lambda &= \max(-\tfrac{n}{d}\, \mathrm{mean}(\partial g/\partial\omega),\ 0), \qquad
        \hat w \leftarrow (X^T g + \Lambda \hat w)/(1 + \Lambda), \qquad
        v \leftarrow 1/(1 + \Lambda) .

Source: Rangan 2011 (arXiv:1010.5141) for the algorithm, Barbier et al. 2019 (arXiv:1708.03395) for
its optimality and state evolution.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxlab.core.checks import check_count, check_finite, check_key, check_leading_axis, check_value
from jaxlab.core.types import Method, Scalar
from jaxlab.stats.sphere import unit_vector
from jaxlab.theory.nse_activations import Activation, check_activation
from jaxlab.theory.nse_channel import check_snr, posterior

__all__ = [
    "AMPHyper",
    "AMPInfo",
    "AMPProblem",
    "AMPState",
    "SingleIndexData",
    "SpectralEstimate",
    "amp",
    "informed_start",
    "overlap_with",
    "sample_committee",
    "sample_hierarchical",
    "sample_single_index",
    "spectral_estimator",
    "uninformed_start",
]


class AMPProblem(NamedTuple):
    """What AMP is given.

    Attributes:
        features: ``X``, of entries of variance ``1 / dim``.
        labels: ``y``.
        activation: The known link function.
        start: The first estimate; ``uninformed_start`` makes one.
    """

    features: Float[Array, "samples dim"]
    labels: Float[Array, " samples"]
    activation: Activation
    start: Float[Array, " dim"]


class AMPHyper(NamedTuple):
    """Attributes: snr: ``lambda > 0``, the signal-to-noise ratio that is believed in."""

    snr: Float[Array, ""]


class AMPState(NamedTuple):
    """Attributes: estimate: ``w``; score: the last ``g``; variance: ``v`` of an entry of ``w``."""

    estimate: Float[Array, " dim"]
    score: Float[Array, " samples"]
    variance: Float[Array, ""]


class AMPInfo(NamedTuple):
    """Diagnostics of a step that need no teacher.

    Attributes:
        self_overlap: The mean square of the estimate; equals the overlap where the model is right.
        variance: ``v``; equals 1 minus the overlap where the model is right.
        precision: ``Lambda``, what the data add to the prior's precision of 1.
    """

    self_overlap: Float[Array, ""]
    variance: Float[Array, ""]
    precision: Float[Array, ""]


def amp() -> Method:
    """Approximate message passing with a Gaussian prior.

    The problem is an ``AMPProblem``, the hyper-parameters an ``AMPHyper``, the state an
    ``AMPState`` and the info an ``AMPInfo``. Its overlap with the teacher is
    ``overlap_with(state.estimate, teacher)``; ``nse_evolution.state_evolution`` predicts it.

    Raises:
        ValueError: The method's ``init`` raises it for a problem whose shapes do not fit, or whose
            start has a mean square of 1 or more.

    Example:
        >>> from jaxlab.core import run
        >>> from jaxlab.theory.nse_activations import smooth
        >>> link = smooth(lambda z: z**2 - 1, num_nodes=40)
        >>> data = sample_single_index(jax.random.key(0), link, 4.0, num_samples=900, dim=200)
        >>> start = informed_start(jax.random.key(1), data.teacher, 0.2)
        >>> problem = AMPProblem(data.features, data.labels, link, start)
        >>> done = run(amp(), problem, AMPHyper(jnp.array(4.0)), jax.random.key(2), num_steps=12)
        >>> bool(overlap_with(done.state.estimate, data.teacher) > 0.8)
        True
    """

    def init(problem: AMPProblem, hyper: AMPHyper, key: Array) -> AMPState:
        check_key("key", key)
        check_snr(hyper.snr)
        samples, dim = problem.features.shape
        check_leading_axis("problem.labels", problem.labels, samples, "samples")
        check_leading_axis("problem.start", problem.start, dim, "dimensions")
        check_finite("problem.features", problem.features)
        check_finite("problem.labels", problem.labels)
        square = jnp.mean(problem.start**2)
        check_value("the mean square of problem.start", square, lambda s: s < 1, "below 1")
        return AMPState(problem.start, jnp.zeros_like(problem.labels), 1 - square)

    def step(
        problem: AMPProblem, hyper: AMPHyper, state: AMPState, key: Array
    ) -> tuple[AMPState, AMPInfo]:
        del key
        samples, dim = problem.features.shape
        variance = state.variance
        # Without the correction by the last score the estimate would see its own echo.
        field = problem.features @ state.estimate - variance * state.score

        def score(mean: Array, label: Array) -> tuple[Array, Array]:
            told = posterior(problem.activation.moments(mean, variance), hyper.snr, label)
            return told.first / jnp.sqrt(variance), (told.second - told.first**2) / variance

        scores, slopes = jax.vmap(score)(field, problem.labels)
        # In the limit it is not negative; few samples can make it so, and the variance with it.
        precision = jnp.maximum(-(samples / dim) * jnp.mean(slopes), 0)
        estimate = (scores @ problem.features + precision * state.estimate) / (1 + precision)
        after = AMPState(estimate, scores, 1 / (1 + precision))
        return after, AMPInfo(jnp.mean(estimate**2), after.variance, precision)

    return Method(init, step)


def uninformed_start(
    key: Array, dim: int, *, square: float = 1e-3, dtype: jnp.dtype | None = None
) -> Float[Array, " dim"]:
    """A random start that knows nothing of the teacher; its overlap is of order ``dim ** -0.5``.

    Args:
        key: A typed PRNG key.
        dim: The number of entries.
        square: Their variance.
        dtype: JAX's default float if not given.

    Raises:
        TypeError: ``key`` is not a typed key.

    Example:
        >>> uninformed_start(jax.random.key(0), 5).shape
        (5,)
    """
    check_key("key", key)
    check_value("square", square, lambda s: (s > 0) & (s < 1), "in (0, 1)")
    return square**0.5 * jax.random.normal(key, (dim,), dtype or float)


def informed_start(key: Array, teacher: Float[Array, " dim"], overlap: Scalar) -> Array:
    """A start of known overlap, ``q w + sqrt(q (1 - q)) N(0, I)``, as state evolution has it.

    Args:
        key: A typed PRNG key.
        teacher: ``w``.
        overlap: ``q`` in ``[0, 1)``.

    Raises:
        TypeError: ``key`` is not a typed key.
        ValueError: ``overlap`` is not in ``[0, 1)``.

    Example:
        >>> start = informed_start(jax.random.key(0), jnp.ones(20_000), 0.25)
        >>> round(float(jnp.mean(start)), 2), round(float(jnp.mean(start**2)), 2)
        (0.25, 0.25)
    """
    check_key("key", key)
    check_value("overlap", overlap, lambda q: (q >= 0) & (q < 1), "in [0, 1)")
    noise = jax.random.normal(key, teacher.shape, teacher.dtype)
    known = jnp.asarray(overlap, teacher.dtype)
    return known * teacher + jnp.sqrt(known * (1 - known)) * noise


def overlap_with(estimate: Float[Array, " dim"], teacher: Float[Array, " dim"]) -> Float[Array, ""]:
    """``|<estimate, teacher>| / dim``: an even activation leaves the sign open.

    Example:
        >>> float(overlap_with(jnp.array([-1.0, 0.0]), jnp.array([1.0, 1.0])))
        0.5
    """
    return jnp.abs(jnp.mean(estimate * teacher))


class SingleIndexData(NamedTuple):
    """Simulated data with its answer.

    Attributes:
        features: ``X``, of entries ``N(0, 1 / dim)``.
        labels: ``y``.
        teacher: ``w``, uniform on the sphere of mean square 1; one row per hidden unit if there are
            several.
    """

    features: Float[Array, "samples dim"]
    labels: Float[Array, " samples"]
    teacher: Float[Array, "*units dim"]


def sample_single_index(
    key: Array, activation: Activation, snr: Scalar, *, num_samples: int, dim: int
) -> SingleIndexData:
    """``y = sqrt(snr) sigma(X w) + N(0, 1)``.

    Args:
        key: A typed PRNG key.
        activation: ``sigma``.
        snr: ``lambda > 0``, a ratio of powers.
        num_samples: Rows of ``X``.
        dim: Columns of ``X``.

    Raises:
        TypeError: ``key`` is not a typed key, or a count is not an integer.
        ValueError: ``snr`` is not positive, or a count is less than 1.

    Example:
        >>> from jaxlab.theory.nse_activations import smooth
        >>> data = sample_single_index(
        ...     jax.random.key(0), smooth(jnp.cos), 1.0, num_samples=6, dim=3
        ... )
        >>> data.features.shape, data.labels.shape
        ((6, 3), (6,))
    """
    check_snr(snr)
    features, teacher, noise = _draw(key, num_samples, dim, ())
    return SingleIndexData(
        features, jnp.sqrt(snr) * activation(features @ teacher) + noise, teacher
    )


def sample_committee(
    key: Array, activation: Activation, noise: Scalar, *, num_samples: int, dim: int, num_units: int
) -> SingleIndexData:
    """``y = num_units^-1/2 sum_k sigma(X w_k) + sqrt(noise) N(0, 1)``, with independent ``w_k``.

    Args:
        key: A typed PRNG key.
        activation: ``sigma`` of every unit.
        noise: ``Delta >= 0``, a variance.
        num_samples: Rows of ``X``.
        dim: Columns of ``X``.
        num_units: The width ``p``.

    Raises:
        TypeError: ``key`` is not a typed key, or a count is not an integer.
        ValueError: ``noise`` is negative, or a count is less than 1.
    """
    amplitudes = jnp.full(num_units, num_units**-0.5)
    return _sample_units(key, activation, noise, amplitudes, num_samples, dim)


def sample_hierarchical(
    key: Array,
    activation: Activation,
    noise: Scalar,
    decay: Scalar,
    *,
    num_samples: int,
    dim: int,
    num_units: int,
) -> SingleIndexData:
    """``y = sum_k k^-decay sigma(X w_k) + sqrt(noise) N(0, 1)``, with independent ``w_k``.

    Args:
        key: A typed PRNG key.
        activation: ``sigma`` of every unit.
        noise: ``Delta >= 0``, a variance.
        decay: ``gamma > 1/2``, of the amplitudes.
        num_samples: Rows of ``X``.
        dim: Columns of ``X``.
        num_units: The number of features ``p``.

    Raises:
        TypeError: ``key`` is not a typed key, or a count is not an integer.
        ValueError: ``noise`` is negative, ``decay`` is at most 1/2, or a count is less than 1.
    """
    check_value("decay", decay, lambda gamma: gamma > 0.5, "above 1/2")
    amplitudes = jnp.arange(1.0, num_units + 1) ** -jnp.asarray(decay)
    return _sample_units(key, activation, noise, amplitudes, num_samples, dim)


def _sample_units(
    key: Array, activation: Activation, noise: Scalar, amplitudes: Array, num_samples: int, dim: int
) -> SingleIndexData:
    check_value("noise", noise, lambda variance: variance >= 0, "at least 0")
    features, teacher, error = _draw(key, num_samples, dim, amplitudes.shape)
    signal = activation(features @ teacher.T) @ amplitudes
    return SingleIndexData(features, signal + jnp.sqrt(noise) * error, teacher)


def _draw(
    key: Array, num_samples: int, dim: int, units: tuple[int, ...]
) -> tuple[Array, Array, Array]:
    check_key("key", key)
    check_count("num_samples", num_samples)
    check_count("dim", dim)
    key_features, key_teacher, key_noise = jax.random.split(key, 3)
    features = jax.random.normal(key_features, (num_samples, dim)) / dim**0.5
    # Directions of exact length: that of Gaussian ones fluctuates, and overlaps with it.
    keys = jax.random.split(key_teacher, units)
    teacher = jnp.vectorize(unit_vector, excluded=(1,), signature="()->(d)")(keys, dim)
    return features, dim**0.5 * teacher, jax.random.normal(key_noise, (num_samples,))


class SpectralEstimate(NamedTuple):
    """Attributes: direction: of mean square 1, with either sign; eigenvalues: all, increasing."""

    direction: Float[Array, " dim"]
    eigenvalues: Float[Array, " dim"]


def spectral_estimator(
    features: Float[Array, "samples dim"],
    labels: Float[Array, " samples"],
    activation: Activation,
    snr: Scalar,
) -> SpectralEstimate:
    """The top eigenvector of ``X^T diag(T) X``, ``T = a(y) / (1 + a(y))``, ``a = E[z^2 - 1 | y]``.

    It has a positive overlap exactly above the weak-recovery threshold (Mondelli and Montanari
    2019, arXiv:1708.05932; the form of ``T`` is that of Lu and Li 2020, arXiv:1702.06435). The
    matrix is decomposed, which takes of the order of ``dim ** 3`` operations.

    Args:
        features: ``X``, of entries of variance ``1 / dim``.
        labels: ``y``.
        activation: The known link function, even and not constant.
        snr: ``lambda > 0``.

    Raises:
        TypeError: The activation is in float32.
        ValueError: The activation is constant or not even, or ``snr`` is not positive.
    """
    moments = check_activation("activation", activation)
    check_snr(snr)
    told = jax.vmap(posterior, in_axes=(None, None, 0))(moments, snr, labels).second
    weighted = features * (told / (1 + told))[:, None]
    values, vectors = jnp.linalg.eigh(features.T @ weighted)
    return SpectralEstimate(vectors[:, -1] * features.shape[1] ** 0.5, values)

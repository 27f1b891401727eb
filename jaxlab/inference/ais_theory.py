r"""Exact theory of mixtures of proposals: variances, and the mean-field recursion with its lag.

On a finite space the population of ``delayed_ais`` with infinitely many points per block, of which
a share :math:`a \approx 1/W` is renewed in a step, follows

.. math::
    \mu_t \propto m_t \pi / m_{t-L}, \qquad q_{t+1} = \epsilon g + (1-\epsilon) \mu_t K, \qquad
    m_{t+1} = (1 - a) m_t + a q_{t+1} .

Its fixed point :math:`q^* = \epsilon g + (1-\epsilon) \pi K` has :math:`\mu = \pi`. A relative
error on a mode of the backward kernel with eigenvalue :math:`\theta` obeys
:math:`\rho^{L+1} - (1 - a + a\theta) \rho^L + a\theta = 0`.
"""

import math

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxlab.core.checks import check_count
from jaxlab.core.types import Scalar

__all__ = [
    "lag_spectral_radius",
    "lag_stability_limit",
    "mean_field_fixed_point",
    "mean_field_step",
    "mixture_variance",
    "second_moment_ratio",
    "self_normalized_error_bound",
    "separate_variance",
]


def mean_field_step(
    history: Float[Array, "kept states"],
    target: Float[Array, " states"],
    proposal: Float[Array, " states"],
    kernel: Float[Array, "states states"],
    refresh: Scalar,
    defensive: Scalar,
) -> tuple[Float[Array, "kept states"], Float[Array, " states"], Float[Array, " states"]]:
    """One step of the recursion; the lag is one less than the number of laws kept.

    Args:
        history: The population's laws ``m_{t-L}, ..., m_t``, the newest last.
        target: ``pi``.
        proposal: The global law ``g``.
        kernel: ``K``, a stochastic matrix whose rows are the kernels around each state.
        refresh: ``a`` in (0, 1], the share renewed.
        defensive: ``epsilon`` in [0, 1].

    Returns:
        The new history, the proposal ``q`` and the law ``mu`` of the centres.

    Example:
        >>> half = jnp.full((1, 2), 0.5)
        >>> history, q, mu = mean_field_step(half, half[0], half[0], jnp.eye(2), 0.2, 0.1)
        >>> mu.tolist()
        [0.5, 0.5]
    """
    centres = history[-1] * target / history[0]
    centres = centres / centres.sum()
    proposed = jnp.asarray(defensive * proposal + (1 - defensive) * centres @ kernel)
    newest = (1 - refresh) * history[-1] + refresh * proposed
    return jnp.concatenate([history[1:], newest[None]]), proposed, centres


def mean_field_fixed_point(
    target: Float[Array, " states"],
    proposal: Float[Array, " states"],
    kernel: Float[Array, "states states"],
    defensive: Scalar,
) -> Float[Array, " states"]:
    """``q* = epsilon g + (1 - epsilon) pi K``."""
    return jnp.asarray(defensive * proposal + (1 - defensive) * target @ kernel)


def lag_spectral_radius(refresh: Scalar, eigenvalue: Scalar, lag: int) -> Float[Array, ""]:
    r"""The largest modulus of a root of :math:`\rho^{L+1} - (1-a+a\theta)\rho^L + a\theta`.

    Below 1 the lagged recursion is stable. The eigenvalues of a general matrix need a CPU.

    Args:
        refresh: ``a``.
        eigenvalue: ``theta`` of the backward kernel, in [0, 1]; 1 is the most dangerous.
        lag: ``L``.

    Raises:
        ValueError: ``lag`` is negative.

    Example:
        >>> round(float(lag_spectral_radius(1.0, 1.0, 1)), 5)  # the limit for a lag of 1
        1.0
    """
    check_count("lag", lag, least=0)
    first = 1 - refresh + refresh * jnp.asarray(eigenvalue, dtype=float)
    last = jnp.asarray(refresh * eigenvalue, dtype=float)
    companion = jnp.eye(lag + 1, k=-1, dtype=first.dtype)
    companion = companion.at[0, 0].add(first).at[0, lag].add(-last)
    return jnp.abs(jnp.linalg.eigvals(companion)).max()


def lag_stability_limit(lag: int) -> float:
    r"""The refresh share up to which a lag is stable for :math:`\theta = 1`.

    :math:`2\cos(L\pi/(2L+1))`, by Levin and May (1976). It exceeds :math:`1/(L+1)`, so that a lag
    below the number of blocks, with a share of one block, is always stable.

    Raises:
        ValueError: ``lag`` is negative.

    Example:
        >>> [round(lag_stability_limit(lag), 3) for lag in range(5)]
        [2.0, 1.0, 0.618, 0.445, 0.347]
    """
    check_count("lag", lag, least=0)
    return 2 * math.cos(lag * math.pi / (2 * lag + 1))


def separate_variance(
    integrand: Float[Array, " states"], proposals: Float[Array, "proposals states"]
) -> Float[Array, ""]:
    r"""The variance of :math:`\frac1W \sum_r h(x_r)/q_r(x_r)`, one draw from each proposal.

    Args:
        integrand: ``h``, whose sum over the states is estimated.
        proposals: ``q_r`` in rows, positive where ``h`` is.
    """
    return _variance(integrand[None] / proposals, proposals)


def mixture_variance(
    integrand: Float[Array, " states"], proposals: Float[Array, "proposals states"]
) -> Float[Array, ""]:
    r"""The variance with the deterministic mixture below: :math:`h(x_r) / \bar q(x_r)`.

    At most ``separate_variance`` (Elvira et al. 2019, Theorem 1); the difference is even at least
    the spread of the terms' means, which sum to the right value but differ [derived].

    Example:
        >>> h, q = jnp.array([1.0, 1.0]), jnp.array([[0.9, 0.1], [0.1, 0.9]])
        >>> float(mixture_variance(h, q)) < 1e-6 < float(separate_variance(h, q))
        True
    """
    ratio = integrand / proposals.mean(axis=0)
    return _variance(jnp.broadcast_to(ratio[None], proposals.shape), proposals)


def _variance(values: Array, proposals: Array) -> Array:
    """Of the mean of one value per proposal; by deviations, which do not cancel."""
    means = jnp.sum(proposals * values, axis=1)
    squares = jnp.sum(proposals * (values - means[:, None]) ** 2, axis=1)
    return squares.sum() / proposals.shape[0] ** 2


def second_moment_ratio(
    density: Float[Array, " states"], proposal: Float[Array, " states"]
) -> Float[Array, ""]:
    r""":math:`\rho = E_q w^2 / (E_q w)^2` of ``w = gamma / q``; the ESS tends to ``N / rho``.

    Example:
        >>> round(float(second_moment_ratio(jnp.array([3.0, 1.0]), jnp.array([0.5, 0.5]))), 6)
        1.25
    """
    return jnp.sum(density**2 / proposal) / density.sum() ** 2


def self_normalized_error_bound(ratio: Scalar, num_points: int) -> Scalar:
    """``4 rho / N``: the mean squared error of self-normalised averages of functions up to 1.

    Agapiou et al. 2017 (arXiv:1511.06196), Theorem 2.1; for every number of points.
    """
    return 4 * ratio / num_points

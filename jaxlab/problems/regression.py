"""Logistic and least-squares regression on rows that are shared out among agents."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optimistix
from jaxtyping import Array, Float

from jaxlab.core.checks import check_count, check_value

__all__ = [
    "Shards",
    "centralized_optimum",
    "least_squares_loss",
    "least_squares_smoothness",
    "logistic_loss",
    "logistic_smoothness",
    "weighted_minibatch_gradient",
    "with_condition",
]


class Shards(NamedTuple):
    """Rows of a regression problem, of one agent or of all agents (a leading axis).

    Rows of weight 0 are padding: agents may have different numbers of rows.

    Attributes:
        features: One row per example.
        targets: -1 or 1 for logistic regression, a number for least squares.
        weights: At least 0; the weights of an agent sum to 1.
        ridge: The factor of ``|params|^2 / 2`` in the loss.
    """

    features: Float[Array, "*agents rows dim"]
    targets: Float[Array, "*agents rows"]
    weights: Float[Array, "*agents rows"]
    ridge: Float[Array, "*agents"]


def logistic_loss(params: Float[Array, " dim"], shard: Shards) -> Float[Array, ""]:
    r"""``sum_i w_i log(1 + exp(-t_i <a_i, x>)) + ridge |x|^2 / 2`` of one agent.

    Example:
        >>> shard = Shards(jnp.ones((1, 2)), jnp.ones(1), jnp.ones(1), jnp.zeros(()))
        >>> round(float(logistic_loss(jnp.zeros(2), shard)), 4)
        0.6931
    """
    margins = shard.targets * (shard.features @ params)
    return shard.weights @ jax.nn.softplus(-margins) + shard.ridge / 2 * params @ params


def least_squares_loss(params: Float[Array, " dim"], shard: Shards) -> Float[Array, ""]:
    """``sum_i w_i (<a_i, x> - t_i)^2 / 2 + ridge |x|^2 / 2`` of one agent.

    Example:
        >>> shard = Shards(jnp.ones((1, 2)), jnp.ones(1), jnp.ones(1), jnp.zeros(()))
        >>> float(least_squares_loss(jnp.zeros(2), shard))
        0.5
    """
    residuals = shard.features @ params - shard.targets
    return shard.weights @ residuals**2 / 2 + shard.ridge / 2 * params @ params


def least_squares_smoothness(shards: Shards) -> Float[Array, " agents"]:
    """Every agent's ``L``, the largest eigenvalue of ``A' diag(w) A`` plus the ridge: exact.

    Example:
        >>> shards = Shards(jnp.ones((1, 1, 2)), jnp.ones((1, 1)), jnp.ones((1, 1)), jnp.ones(1))
        >>> least_squares_smoothness(shards).round(4).tolist()
        [3.0]
    """
    return _largest_curvature(shards) + shards.ridge


def logistic_smoothness(shards: Shards) -> Float[Array, " agents"]:
    """Every agent's ``L``: a quarter of the least-squares curvature plus the ridge, a bound.

    The second derivative of ``log(1 + exp(-u))`` is at most 1/4, at 0.
    """
    return _largest_curvature(shards) / 4 + shards.ridge


def _largest_curvature(shards: Shards) -> Float[Array, " agents"]:
    gram = jnp.einsum("mri,mr,mrj->mij", shards.features, shards.weights, shards.features)
    return jnp.linalg.eigvalsh(gram)[:, -1]


def with_condition(
    shards: Shards, smoothness_fn: Callable[[Shards], Float[Array, " agents"]], condition: float
) -> Shards:
    """Give all agents the ridge that makes the condition number ``condition``.

    ``mu = L_max / (condition - 1)`` with ``L_max`` the largest smoothness without a ridge. The
    ridge is then the strong convexity of every agent, and ``condition * mu`` its smoothness.

    Raises:
        ValueError: ``condition`` is not above 1.

    Example:
        >>> shards = Shards(jnp.ones((1, 1, 2)), jnp.ones((1, 1)), jnp.ones((1, 1)), jnp.ones(1))
        >>> with_condition(shards, least_squares_smoothness, 5.0).ridge.round(4).tolist()
        [0.5]
    """
    check_value("condition", condition, lambda kappa: kappa > 1, "above 1")
    bare = shards._replace(ridge=jnp.zeros_like(shards.ridge))
    ridge = smoothness_fn(bare).max() / (condition - 1)
    return bare._replace(ridge=jnp.broadcast_to(ridge, shards.ridge.shape))


def centralized_optimum(
    loss_fn: Callable[[Any, Any], Any], shards: Shards, *, max_steps: int = 64
) -> Float[Array, " dim"]:
    """The minimiser of the agents' mean loss, by Newton's method on its gradient.

    Args:
        loss_fn: ``logistic_loss`` or ``least_squares_loss``.
        shards: Of all agents; the mean loss must be strongly convex.
        max_steps: The largest number of Newton steps.

    Raises:
        equinox.EquinoxRuntimeError: Newton's method did not converge.

    Example:
        >>> shards = Shards(jnp.ones((1, 1, 1)), jnp.ones((1, 1)), jnp.ones((1, 1)), jnp.ones(1))
        >>> centralized_optimum(least_squares_loss, shards).round(4).tolist()
        [0.5]
    """
    tolerance = 32 * float(jnp.finfo(shards.features.dtype).eps)
    newton = optimistix.Newton(rtol=tolerance, atol=tolerance)
    start = jnp.zeros(shards.features.shape[-1], shards.features.dtype)
    return optimistix.root_find(
        _mean_gradient, newton, start, args=(loss_fn, shards), max_steps=max_steps
    ).value


def _mean_gradient(params: Array, args: tuple[Callable[[Any, Any], Any], Shards]) -> Array:
    loss_fn, shards = args
    return jax.vmap(jax.grad(loss_fn), in_axes=(None, 0))(params, shards).mean(axis=0)


def weighted_minibatch_gradient(
    loss_fn: Callable[[Any, Any], Any], *, batch_size: int
) -> Callable[[Any, Shards, Array], Array]:
    """A stochastic ``gradient_fn``: rows drawn with replacement, each as often as it weighs.

    It is unbiased, and rows of weight 0 are never drawn.

    Raises:
        ValueError: ``batch_size`` is less than 1.
    """
    check_count("batch_size", batch_size)

    def gradient(params: Array, shard: Shards, key: Array) -> Array:
        rows = jax.random.choice(key, len(shard.targets), (batch_size,), p=shard.weights)
        batch = Shards(
            shard.features[rows],
            shard.targets[rows],
            jnp.full(batch_size, 1 / batch_size, shard.weights.dtype),
            shard.ridge,
        )
        return jax.grad(loss_fn)(params, batch)

    return gradient

"""Problems that agents solve together: minimise the sum of private losses over a graph."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from jaxlab.core.checks import check_count, check_finite, check_leading_axis
from jaxlab.problems.mixing import DenseMixing, Mixing

__all__ = [
    "Consensus",
    "ConsensusInfo",
    "broadcast_to_agents",
    "consensus_error",
    "full_gradient",
    "make_consensus",
    "minibatch_gradient",
    "stack_agents",
]


class ConsensusInfo(NamedTuple):
    """Diagnostics of one step of any method on a ``Consensus`` problem, all scalars.

    Attributes:
        consensus_error: The mean over agents of the squared distance to the agents' mean.
        num_gradients: Stochastic gradients that each agent took.
        num_communications: Rounds in which every agent talked to its neighbours.
    """

    consensus_error: Float[Array, ""]
    num_gradients: Float[Array, ""]
    num_communications: Float[Array, ""]


class Consensus(eqx.Module):
    """Minimise ``sum_m f_m(x)``, each ``f_m`` known to agent ``m`` through its gradients alone.

    Make it by ``make_consensus``, which checks its parts.

    Attributes:
        gradient_fn: ``(params, data, key) -> gradient`` of one agent, unbiased.
        data: What ``gradient_fn`` is given; leaves are ``[agents, ...]``.
        start: The first parameters, common to all agents, any pytree of arrays.
        mixing: How agents exchange vectors.
    """

    gradient_fn: Callable[[Any, Any, Any], Any] = eqx.field(static=True)
    data: PyTree
    start: PyTree
    mixing: Mixing

    @property
    def num_agents(self) -> int:
        """The number of agents held here (all of them, unless they live on several devices)."""
        return len(self.mixing.agent_ids())

    def gradients(self, params: PyTree, key: Array) -> PyTree:
        """One stochastic gradient per agent, each from its own key; leaves ``[agents, ...]``."""
        keys = jax.vmap(lambda agent: jax.random.fold_in(key, agent))(self.mixing.agent_ids())
        return jax.vmap(self.gradient_fn)(params, self.data, keys)


def make_consensus(
    gradient_fn: Callable[[Any, Any, Any], Any],
    data: PyTree,
    start: PyTree,
    gossip: Float[Array, "agents agents"] | Mixing,
) -> Consensus:
    """Check the parts of a consensus problem and put them together.

    Args:
        gradient_fn: ``(params, data, key) -> gradient`` of one agent; see ``full_gradient`` and
            ``minibatch_gradient``.
        data: Private data; leaves are ``[agents, ...]``.
        start: The first parameters, without an agents axis.
        gossip: A gossip matrix (``graphs.metropolis_weights``) or any ``Mixing``.

    Raises:
        ValueError: The matrix cannot serve for gossip, ``data`` is for another number of agents,
            ``data`` or ``start`` holds NaN or infinity, or the gradient has another structure or
            shape than ``start``.

    Example:
        >>> from jaxlab.problems import graphs
        >>> def loss(x, target):
        ...     return 0.5 * jnp.sum((x - target) ** 2)
        >>> gossip = graphs.metropolis_weights(graphs.ring_graph(4))
        >>> targets = jnp.arange(8.0).reshape(4, 2)
        >>> problem = make_consensus(full_gradient(loss), targets, jnp.zeros(2), gossip)
        >>> problem.num_agents
        4
    """
    mixing = gossip if isinstance(gossip, Mixing) else DenseMixing(gossip=gossip)
    problem = Consensus(gradient_fn, data, start, mixing)
    check_leading_axis("data", data, problem.num_agents, "agents (the size of gossip)")
    check_finite("data", data)
    check_finite("start", start)
    start = jax.tree.map(jnp.asarray, start)
    one_agent = jax.tree.map(lambda leaf: leaf[0], data)
    gradient = jax.eval_shape(gradient_fn, start, one_agent, jax.random.key(0))
    if jax.tree.structure(gradient) != jax.tree.structure(start):
        raise ValueError(
            f"gradient_fn must return the structure of start, {jax.tree.structure(start)}, got "
            f"{jax.tree.structure(gradient)}"
        )
    for leaf, like in zip(jax.tree.leaves(gradient), jax.tree.leaves(start), strict=True):
        if leaf.shape != like.shape:
            raise ValueError(
                f"gradient_fn must return leaves shaped as in start, {like.shape}, got {leaf.shape}"
            )
    return Consensus(gradient_fn, data, start, mixing)


def full_gradient(loss_fn: Callable[[Any, Any], Any]) -> Callable[[Any, Any, Any], Any]:
    """The exact gradient of ``loss_fn(params, data)`` as a ``gradient_fn``."""

    def gradient(params: PyTree, data: PyTree, key: Array) -> PyTree:
        del key
        return jax.grad(loss_fn)(params, data)

    return gradient


def minibatch_gradient(
    loss_fn: Callable[[Any, Any], Any], *, batch_size: int
) -> Callable[[Any, Any, Any], Any]:
    """A stochastic ``gradient_fn``: rows drawn with replacement from each agent's own data.

    It is unbiased when ``loss_fn(params, rows)`` averages over the leading axis of every leaf.

    Raises:
        ValueError: ``batch_size`` is less than 1.
    """
    check_count("batch_size", batch_size)

    def gradient(params: PyTree, data: PyTree, key: Array) -> PyTree:
        num_rows = jax.tree.leaves(data)[0].shape[0]
        rows = jax.random.randint(key, (batch_size,), 0, num_rows)
        return jax.grad(loss_fn)(params, jax.tree.map(lambda leaf: leaf[rows], data))

    return gradient


def stack_agents(*shards: PyTree) -> PyTree:
    """Stack one tree per agent into one tree with a leading agents axis."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *shards)


def broadcast_to_agents(problem: Consensus, params: PyTree) -> PyTree:
    """Give every agent a copy of ``params``."""
    num_agents = problem.num_agents
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (num_agents, *leaf.shape)), params)


def consensus_error(mixing: Mixing, params: PyTree) -> Float[Array, ""]:
    """The mean over agents of the squared distance to the agents' mean."""

    def spread(leaf: Array, mean: Array) -> Array:
        return jnp.sum((leaf - mean[None]) ** 2, axis=tuple(range(1, leaf.ndim)))

    distances = jax.tree.leaves(jax.tree.map(spread, params, mixing.average(params)))
    return mixing.average(sum(distances[1:], start=distances[0]))

"""Communication graphs by name, for flags."""

import math
from typing import NamedTuple

import jax
from jaxtyping import Array, Float

from jaxlab.problems import graphs

__all__ = ["Network", "named_network"]

_ATTEMPTS = 100


class Network(NamedTuple):
    """A graph by its weights.

    Attributes:
        name: As in ``named_network``.
        gossip: The gossip matrix.
        spectrum: Its spectrum.
    """

    name: str
    gossip: Float[Array, "agents agents"]
    spectrum: graphs.GossipSpectrum


def named_network(name: str, num_agents: int, seed: int = 0) -> Network:
    """The graph of this name with Metropolis weights.

    Args:
        name: ``"ring"``, ``"star"``, ``"complete"``, ``"grid"`` (as square as the number of agents
            lets it be) or ``"erdos_renyi"`` (edges twice as likely as connectedness asks for,
            redrawn until connected).
        num_agents: At least 2.
        seed: Of the random graph; the others do not depend on it.

    Raises:
        ValueError: There are too few agents, or 100 random graphs were not connected.

    Example:
        >>> named_network("grid", 6).gossip.shape
        (6, 6)
    """
    if name == "grid":
        rows = max(r for r in range(1, math.isqrt(num_agents) + 1) if num_agents % r == 0)
        return _network(
            name, graphs.metropolis_weights(graphs.grid_graph(rows, num_agents // rows))
        )
    if name == "erdos_renyi":
        return _random_network(num_agents, seed)
    return _network(name, graphs.metropolis_weights(getattr(graphs, f"{name}_graph")(num_agents)))


def _network(name: str, gossip: Array) -> Network:
    return Network(name, gossip, graphs.gossip_spectrum(gossip))


def _random_network(num_agents: int, seed: int) -> Network:
    probability = min(1.0, 2 * math.log(num_agents) / num_agents)
    for attempt in range(_ATTEMPTS):
        key = jax.random.fold_in(jax.random.key(seed), attempt)
        adjacency = graphs.erdos_renyi_graph(key, num_agents, probability)
        try:
            return _network("erdos_renyi", graphs.metropolis_weights(adjacency))
        except ValueError:
            continue
    raise ValueError(
        f"the random graph must be connected, got {_ATTEMPTS} draws of {num_agents} agents "
        "that are not; give another seed"
    )

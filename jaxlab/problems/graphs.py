"""Communication graphs, their gossip matrices and condition numbers.

A graph is its adjacency matrix, a Boolean NumPy array ``[agents, agents]``: graphs are made once,
before anything is compiled. Networkx graphs and plain matrices come in through ``adjacency_of``.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxlab.core.checks import check_count, check_finite, check_key, check_value, is_concrete

__all__ = [
    "GossipSpectrum",
    "adjacency_of",
    "check_gossip",
    "complete_graph",
    "erdos_renyi_graph",
    "gossip_spectrum",
    "grid_graph",
    "metropolis_weights",
    "ring_graph",
    "star_graph",
]

Adjacency = Bool[np.ndarray, "agents agents"]


class GossipSpectrum(NamedTuple):
    """The non-zero eigenvalues of ``I - W`` that decide how fast a graph mixes.

    Attributes:
        largest: The largest eigenvalue, in (0, 2).
        smallest: The smallest non-zero eigenvalue, in (0, 2).
        condition: Their ratio, the graph's condition number; 1 on the complete graph.
    """

    largest: Float[Array, ""]
    smallest: Float[Array, ""]
    condition: Float[Array, ""]


def ring_graph(num_agents: int) -> Adjacency:
    """Every agent talks to the next and to the one before.

    Example:
        >>> ring_graph(4).sum(axis=1).tolist()
        [2, 2, 2, 2]
    """
    check_count("num_agents", num_agents)
    neighbour = np.roll(np.eye(num_agents, dtype=bool), 1, axis=1)
    return (neighbour | neighbour.T) & ~np.eye(num_agents, dtype=bool)


def complete_graph(num_agents: int) -> Adjacency:
    """Every agent talks to every other, or all talk to a server."""
    check_count("num_agents", num_agents)
    return ~np.eye(num_agents, dtype=bool)


def star_graph(num_agents: int) -> Adjacency:
    """Agent 0 talks to all others, which talk to it alone."""
    check_count("num_agents", num_agents)
    adjacency = np.zeros((num_agents, num_agents), dtype=bool)
    adjacency[0, 1:] = adjacency[1:, 0] = True
    return adjacency


def grid_graph(rows: int, columns: int, *, periodic: bool = False) -> Adjacency:
    """Agents on a rectangle, numbered row by row; ``periodic`` makes it a torus.

    Example:
        >>> int(grid_graph(2, 3).sum()) // 2  # edges
        7
    """
    check_count("rows", rows)
    check_count("columns", columns)

    def line(length: int) -> np.ndarray:
        if periodic:
            return ring_graph(length)
        step = np.eye(length, k=1, dtype=bool)
        return step | step.T

    down = np.kron(line(rows), np.eye(columns, dtype=bool))
    across = np.kron(np.eye(rows, dtype=bool), line(columns))
    return (down | across).astype(bool)


def erdos_renyi_graph(key: Array, num_agents: int, edge_probability: float) -> Adjacency:
    """Each pair of agents is joined independently with ``edge_probability`` in [0, 1].

    The graph may be disconnected; ``metropolis_weights`` refuses it then.
    """
    check_key("key", key)
    check_count("num_agents", num_agents)
    check_value("edge_probability", edge_probability, lambda p: (p >= 0) & (p <= 1), "in [0, 1]")
    joined = np.asarray(jax.random.bernoulli(key, edge_probability, (num_agents, num_agents)))
    upper = np.triu(joined, k=1)
    return upper | upper.T


def adjacency_of(graph: Any) -> Adjacency:
    """The adjacency of a networkx graph or of a square matrix whose non-zeros are edges.

    Raises:
        ValueError: The matrix is not square or not symmetric, or the graph is directed.
    """
    if hasattr(graph, "is_directed"):
        import networkx

        if graph.is_directed():
            raise ValueError("graph must be undirected, got a directed networkx graph")
        weightless = graph.__class__(graph.edges())
        weightless.add_nodes_from(graph)
        matrix = networkx.to_numpy_array(weightless, nodelist=list(graph))
    else:
        matrix = np.asarray(graph)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"graph must be a square matrix, got shape {matrix.shape}")
    adjacency = (matrix != 0) & ~np.eye(len(matrix), dtype=bool)
    if (adjacency != adjacency.T).any():
        first, second = (int(i) for i in np.argwhere(adjacency != adjacency.T)[0])
        raise ValueError(
            f"graph must be symmetric, got an edge between agents {first} and {second} in one "
            "direction only"
        )
    return adjacency


def metropolis_weights(graph: Any) -> Float[Array, "agents agents"]:
    """Symmetric gossip weights ``1 / (1 + max(degree_i, degree_j))`` on the edges.

    On the complete graph this is exact averaging.

    Args:
        graph: An adjacency, a networkx graph or a square matrix.

    Raises:
        ValueError: The graph is not symmetric or not connected.

    Example:
        >>> metropolis_weights(ring_graph(3)).round(3).tolist()[0]
        [0.3330000042915344, 0.3330000042915344, 0.3330000042915344]
    """
    adjacency = adjacency_of(graph)
    reached = _component_of_first(adjacency)
    if not reached.all():
        cut_off = np.flatnonzero(~reached)
        raise ValueError(
            f"graph must be connected, got {len(adjacency)} agents of which {cut_off.size} cannot "
            f"be reached from agent 0, agent {int(cut_off[0])} among them"
        )
    degree = adjacency.sum(axis=1)
    weights = np.where(adjacency, 1.0 / (1.0 + np.maximum.outer(degree, degree)), 0.0)
    np.fill_diagonal(weights, 1.0 - weights.sum(axis=1))
    return jnp.asarray(weights)


def check_gossip(name: str, gossip: Any) -> None:
    """Raise ``ValueError`` unless a concrete matrix can serve for gossip.

    It must be square and symmetric, its rows must sum to 1, and its eigenvalue 1 must be simple
    (the graph is connected) with all others above -1. A traced matrix is checked for its shape.
    """
    shape = jnp.shape(gossip)
    if len(shape) != 2 or shape[0] != shape[1]:
        raise ValueError(f"{name} must be a square matrix [agents, agents], got shape {shape}")
    if not is_concrete(gossip):
        return
    check_finite(name, gossip)
    matrix = np.asarray(gossip, dtype=np.float64)
    slack = 8 * len(matrix) * np.finfo(np.asarray(gossip).dtype).eps
    asymmetry = np.abs(matrix - matrix.T)
    if asymmetry.max() > slack:
        i, j = (int(k) for k in np.unravel_index(asymmetry.argmax(), asymmetry.shape))
        raise ValueError(
            f"{name} must be symmetric, got {matrix[i, j]:.6g} at ({i}, {j}) and "
            f"{matrix[j, i]:.6g} at ({j}, {i})"
        )
    rows = matrix.sum(axis=1)
    worst = int(np.abs(rows - 1).argmax())
    if abs(rows[worst] - 1) > slack:
        raise ValueError(
            f"{name} must be doubly stochastic, got a sum of {rows[worst]:.6g} in row {worst}"
        )
    eigenvalues = np.linalg.eigvalsh(matrix)
    if len(matrix) > 1 and eigenvalues[-2] > 1 - slack:
        raise ValueError(
            f"{name} must belong to a connected graph (eigenvalue 1 simple), got the two largest "
            f"eigenvalues {eigenvalues[-1]:.9g} and {eigenvalues[-2]:.9g}"
        )
    if eigenvalues[0] <= -1 + slack:
        raise ValueError(
            f"{name} must have eigenvalues above -1, got {eigenvalues[0]:.9g}; use lazy weights "
            "(I + W) / 2"
        )


def gossip_spectrum(gossip: Float[Array, "agents agents"]) -> GossipSpectrum:
    """The extreme non-zero eigenvalues of ``I - W``, for at least two agents.

    Take it of the matrix that is really applied: lazy weights halve both eigenvalues.

    Raises:
        ValueError: As ``check_gossip``, or there is one agent only.

    Example:
        >>> spectrum = gossip_spectrum(metropolis_weights(complete_graph(5)))
        >>> [round(float(x), 6) for x in spectrum]
        [1.0, 1.0, 1.0]
    """
    check_gossip("gossip", gossip)
    if len(gossip) < 2:
        raise ValueError("gossip must join at least 2 agents, got 1: there is nothing to agree on")
    eigenvalues = jnp.linalg.eigvalsh(jnp.eye(len(gossip), dtype=gossip.dtype) - gossip)
    return GossipSpectrum(eigenvalues[-1], eigenvalues[1], eigenvalues[-1] / eigenvalues[1])


def _component_of_first(adjacency: np.ndarray) -> np.ndarray:
    reached = np.zeros(len(adjacency), dtype=bool)
    reached[0] = True
    for _ in range(len(adjacency)):
        reached |= adjacency[reached].any(axis=0)
    return reached

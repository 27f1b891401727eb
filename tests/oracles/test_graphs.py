"""Graphs, gossip matrices and Chebyshev exchanges against networkx, NumPy and closed forms."""

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest

from jaxlab.problems import graphs, mixing
from jaxlab.problems.mixing import ChebyshevMixing, DenseMixing

EPS = np.finfo(float).eps
# An eigenvalue of a symmetric matrix of norm 2 is found to a few epsilon times its size.
EIGENVALUE_ERRORS = 8

PAIRS = {
    "ring": (graphs.ring_graph(9), nx.cycle_graph(9)),
    "star": (graphs.star_graph(7), nx.star_graph(6)),
    "complete": (graphs.complete_graph(6), nx.complete_graph(6)),
    "grid": (graphs.grid_graph(3, 4), nx.convert_node_labels_to_integers(nx.grid_2d_graph(3, 4))),
    "torus": (
        graphs.grid_graph(3, 4, periodic=True),
        nx.convert_node_labels_to_integers(nx.grid_2d_graph(3, 4, periodic=True)),
    ),
}


def metropolis_by_definition(graph):
    """1 / (1 + max degree) on edges, the rest on the diagonal."""
    nodes = list(graph)
    W = np.zeros((len(nodes), len(nodes)))
    for a, b in graph.edges():
        i, j = nodes.index(a), nodes.index(b)
        W[i, j] = W[j, i] = 1 / (1 + max(graph.degree(a), graph.degree(b)))
    return W + np.diag(1 - W.sum(axis=1))


@pytest.mark.parametrize("name", PAIRS)
def test_graphs_are_those_of_networkx(name):
    ours, theirs = PAIRS[name]
    np.testing.assert_array_equal(ours, nx.to_numpy_array(theirs, nodelist=sorted(theirs)) != 0)
    np.testing.assert_array_equal(graphs.adjacency_of(theirs), ours)


@pytest.mark.parametrize("name", PAIRS)
def test_weights_and_spectra(name):
    ours, theirs = PAIRS[name]
    expected = metropolis_by_definition(theirs)
    weights = graphs.metropolis_weights(ours)
    np.testing.assert_allclose(weights, expected, rtol=0, atol=4 * EPS)
    eigenvalues = np.linalg.eigvalsh(np.eye(len(ours)) - expected)
    spectrum = graphs.gossip_spectrum(weights)
    error = EIGENVALUE_ERRORS * len(ours) * EPS
    np.testing.assert_allclose(spectrum.largest, eigenvalues[-1], rtol=0, atol=error)
    np.testing.assert_allclose(spectrum.smallest, eigenvalues[1], rtol=0, atol=error)
    ratio = eigenvalues[-1] / eigenvalues[1]
    np.testing.assert_allclose(spectrum.condition, ratio, rtol=2 * error / eigenvalues[1])


@pytest.mark.parametrize("name", ["ring", "torus"])
def test_on_regular_graphs_the_laplacian_tells_the_spectrum(name):
    """All degrees are d, so that I - W is networkx' Laplacian over 1 + d."""
    ours, theirs = PAIRS[name]
    degree = int(ours.sum(axis=1)[0])
    laplacian = np.linalg.eigvalsh(nx.laplacian_matrix(theirs).toarray().astype(float))
    spectrum = graphs.gossip_spectrum(graphs.metropolis_weights(ours))
    error = EIGENVALUE_ERRORS * len(ours) * EPS
    found = [float(spectrum.smallest), float(spectrum.largest)]
    np.testing.assert_allclose(found, laplacian[[1, -1]] / (1 + degree), rtol=0, atol=error)


@pytest.mark.parametrize("size", [3, 4, 9, 16])
def test_ring_spectrum_in_closed_form(size):
    eigenvalues = 2 / 3 * (1 - np.cos(2 * np.pi * np.arange(size) / size))
    spectrum = graphs.gossip_spectrum(graphs.metropolis_weights(graphs.ring_graph(size)))
    error = EIGENVALUE_ERRORS * size * EPS
    np.testing.assert_allclose(spectrum.smallest, eigenvalues[1], rtol=0, atol=error)
    np.testing.assert_allclose(spectrum.largest, eigenvalues.max(), rtol=0, atol=error)


def test_random_graphs_through_networkx(seed):
    adjacency = graphs.erdos_renyi_graph(jax.random.key(seed), 20, 0.4)
    graph = nx.from_numpy_array(adjacency)
    assert nx.is_connected(graph)
    np.testing.assert_allclose(
        graphs.metropolis_weights(graph), metropolis_by_definition(graph), rtol=0, atol=4 * EPS
    )
    pairs = 200
    edges = sum(
        int(graphs.erdos_renyi_graph(jax.random.key(i), 5, 0.3).sum()) // 2 for i in range(pairs)
    )
    # 2000 pairs; five standard deviations of the binomial.
    assert abs(edges - 600) <= 5 * np.sqrt(2000 * 0.3 * 0.7)


def test_weighted_networkx_graphs_lose_their_weights():
    graph = nx.path_graph(3)
    graph.edges[0, 1]["weight"] = 0.0
    np.testing.assert_array_equal(graphs.adjacency_of(graph), nx.to_numpy_array(nx.path_graph(3)))


def chebyshev_of(eigenvalues, degree):
    """1 - T_J(x) / T_J(x_0), T by NumPy, x mapping the spectrum onto [-1, 1]."""
    low, high = eigenvalues[1], eigenvalues[-1]
    polynomial = np.polynomial.chebyshev.Chebyshev([0] * degree + [1])
    centre = (high + low) / (high - low)
    position = centre - 2 * eigenvalues / (high - low)
    return 1 - polynomial(position) / polynomial(centre)


@pytest.mark.parametrize("num_exchanges", [1, 2, 5])
def test_chebyshev_exchanges_are_the_polynomial_of_the_matrix(num_exchanges, seed):
    gossip = graphs.metropolis_weights(graphs.ring_graph(9))
    spectrum = graphs.gossip_spectrum(gossip)
    exchange = ChebyshevMixing(DenseMixing(gossip), spectrum, num_exchanges)
    values = jax.random.normal(jax.random.key(seed), (9, 2))
    eigenvalues, vectors = np.linalg.eigh(np.eye(9) - np.asarray(gossip))
    polynomial = vectors @ np.diag(chebyshev_of(eigenvalues, num_exchanges)) @ vectors.T
    error = 64 * num_exchanges * 9 * EPS
    np.testing.assert_allclose(
        exchange.disagreement(values), polynomial @ np.asarray(values), rtol=0, atol=error
    )
    applied = np.asarray(exchange.disagreement(jnp.eye(9)))
    reached = np.linalg.eigvalsh((applied + applied.T) / 2)
    bound = mixing.chebyshev_spectrum(spectrum, num_exchanges)
    assert abs(reached[0]) <= error
    assert float(bound.smallest) - error <= reached[1]
    assert reached[-1] <= float(bound.largest) + error
    # Both bounds are reached at the ends of the spectrum.
    np.testing.assert_allclose(reached[1], bound.smallest, rtol=0, atol=error)


@pytest.mark.parametrize("size", [8, 16, 40])
def test_enough_exchanges_flatten_any_ring(size):
    spectrum = graphs.gossip_spectrum(graphs.metropolis_weights(graphs.ring_graph(size)))
    enough = int(np.sqrt(float(spectrum.condition)))
    contraction = (np.sqrt(float(spectrum.condition)) - 1) / (
        np.sqrt(float(spectrum.condition)) + 1
    )
    power = contraction**enough
    bound = mixing.chebyshev_spectrum(spectrum, enough).condition
    np.testing.assert_allclose(bound, ((1 + power) / (1 - power)) ** 2, rtol=1e3 * EPS)
    assert float(bound) < 2.4


def test_one_exchange_averages_on_the_complete_graph():
    gossip = graphs.metropolis_weights(graphs.complete_graph(5))
    exchange = ChebyshevMixing(DenseMixing(gossip), graphs.gossip_spectrum(gossip), 1)
    values = jnp.arange(10.0).reshape(5, 2)
    expected = np.asarray(values) - np.asarray(values).mean(axis=0)
    np.testing.assert_allclose(exchange.disagreement(values), expected, rtol=0, atol=1e-6)

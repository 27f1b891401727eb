"""Claims on tournaments and orders: row sums without a matrix, potentials, sorts, best orders."""

import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jaxtyping import Array, Float

from jaxlab.claims import Claim, Comparison, at_most, close_to
from jaxlab.optim.lie_bracket import (
    borda_order,
    borda_scores,
    edge_matrix,
    streamed_scores,
    tournament,
)
from jaxlab.optim.lie_bracket_orders import best_order, hodge_residual, linear_ordering_cost
from jaxlab.problems.sites import normals


class League(NamedTuple):
    """Smooth sources, a target and parameters."""

    weights: Float[Array, "sources dim dim"]
    target: Float[Array, "dim dim"]
    start: Float[Array, " dim"]


def leagues(dim: int, sources: int) -> League:
    """A NumPyro model."""
    return League(*normals("league", (sources, dim, dim), (dim, dim), (dim,)))


def finite(instance: NamedTuple) -> Array:
    """All numbers are finite: nothing else is assumed."""
    return jnp.where(jnp.all(jnp.array([jnp.isfinite(leaf).all() for leaf in instance])), 1.0, -1.0)


def league_loss(x: Array, weights: Array) -> Array:
    """A loss whose Hessian changes with the parameters."""
    return jnp.mean(jnp.tanh(weights @ x)) + jnp.sum((weights @ x) ** 2) / 10


def row_sums(instance: League, *, own: float = 0.0, transposed: float = 0.0) -> Comparison:
    """5: three ways to the row sums of the matrix by dense Hessians, which is antisymmetric."""
    x, sources = instance.start, instance.weights
    slope = jax.grad(league_loss)(x, instance.target)
    grads = jax.vmap(lambda w: jax.grad(league_loss)(x, w))(sources)
    hessians = jax.vmap(lambda w: jax.hessian(league_loss)(x, w))(sources)
    # sigma_ij = g_E' (H_j g_i - H_i g_j); mutants multiply g_i itself, or exchange i and j.
    products = jnp.einsum("jab,ib->jia", hessians, grads)
    edges = jnp.einsum("a,jia->ij", slope, products)
    edges = edges - edges.T
    wrong = jnp.einsum("iab,ib,ja->ij", hessians, grads, grads)
    edges = (1 - own) * edges + own * (wrong - wrong.T)
    edges = (1 - 2 * transposed) * edges
    table = tournament(league_loss, x, sources, instance.target)
    scale = 1e-9 + jnp.abs(edges).max() + jnp.abs(products).max() * jnp.abs(slope).max()
    scores = borda_scores(table)
    streamed = streamed_scores(league_loss, x, sources, instance.target)
    left = jnp.concatenate([edge_matrix(table).ravel(), scores, streamed, jnp.sum(scores)[None]])
    right = jnp.concatenate([edges.ravel(), edges.sum(axis=1), edges.sum(axis=1), jnp.zeros(1)])
    return close_to(left / scale, right / scale, allowance=1e-10)


class Edges(NamedTuple):
    """Any flow, a potential, and a perturbation of it."""

    raw: Float[Array, "sources sources"]
    potential: Float[Array, " sources"]
    push: Float[Array, " sources"]


def flows(sources: int) -> Edges:
    """A NumPyro model."""
    return Edges(*normals("flow", (sources, sources), (sources,), (sources,)))


def least_squares(instance: Edges, *, count: float = 0.0) -> Comparison:
    """6: row means are the least-squares potential: ``f(s + t) = f(s) + N |t|^2``, sum t = 0."""
    edges = instance.raw - instance.raw.T
    number = edges.shape[0]
    s = edges.sum(axis=1) / (number + count)
    t = instance.push - instance.push.mean()

    def objective(s: Array) -> Array:
        return jnp.sum((edges - (s[:, None] - s[None, :])) ** 2) / 2

    scale = objective(s) + number * jnp.sum(t**2) + 1e-9
    share = hodge_residual(edges) * jnp.sum(edges**2) / 2
    left = jnp.stack([objective(s + t), share]) / scale
    right = jnp.stack([objective(s) + number * jnp.sum(t**2), objective(s)]) / scale
    return close_to(left, right, allowance=1e-10)


def all_orders(count: int) -> Array:
    """Every permutation."""
    return jnp.asarray(np.array(list(itertools.permutations(range(count)))))


def sorted_is_best(instance: Edges, *, sign: float = 1.0) -> Comparison:
    """7: where the flow is a gradient, the ascending sort is the best of all orders."""
    s = instance.potential
    edges = s[:, None] - s[None, :]
    order = borda_order(sign * edges.sum(axis=1))
    costs = jax.vmap(lambda other: linear_ordering_cost(edges, other))(all_orders(len(s)))
    return at_most(linear_ordering_cost(edges, order), costs.min() + 1e-12)


def program_is_best(instance: Edges, *, sign: float = 1.0) -> Comparison:
    """Dynamic programming over subsets finds the least cost of any flow."""
    edges = instance.raw - instance.raw.T
    costs = jax.vmap(lambda order: linear_ordering_cost(edges, order))(all_orders(len(edges)))
    found = linear_ordering_cost(edges, best_order(sign * edges))
    return at_most(found, costs.min() + 1e-12)


FLOWS = {
    "families": {"normal": flows},
    "assumptions": finite,
    "tightness": "tight",
    "rungs": ("explore", "sample"),
    "samples": 1000,
}

CLAIMS = (
    Claim(
        name="lie_bracket/row_sums",
        statement="S_i = <V, g_i> - <v_i, G> = sum_j sigma_ij, with v_i = H_i g_E; they sum to 0",
        source="arXiv:2606.24993, tournaments; the streamed form derived: symmetric Hessians",
        families={"tanh and squares": leagues},
        conclusion=row_sums,
        assumptions=finite,
        sizes={"dim": st.sampled_from([2]), "sources": st.sampled_from([2, 5])},
        typical={"dim": 3, "sources": 4},
        samples=1000,
        tightness="tight",
        rungs=("explore", "sample"),
        mutants={
            "H_i g_i instead of H_i g_E": {"own": 1.0},
            "edges transposed": {"transposed": 1.0},
        },
    ),
    Claim(
        name="lie_bracket/potential",
        statement="row means minimise sum_{i<j} (sigma_ij - s_i + s_j)^2",
        source="derived: normal equations of the complete graph",
        conclusion=least_squares,
        sizes={"sources": st.sampled_from([2, 5])},
        typical={"sources": 4},
        mutants={"divided by one more": {"count": 1.0}},
        **FLOWS,
    ),
    Claim(
        name="lie_bracket/sort",
        statement="sigma_ij = s_i - s_j: the ascending sort has the least cost of all orders",
        source="derived: an adjacent inversion costs s_i - s_j > 0",
        conclusion=sorted_is_best,
        sizes={"sources": st.sampled_from([2, 4])},
        typical={"sources": 4},
        mutants={"descending": {"sign": -1.0}},
        **FLOWS,
    ),
    Claim(
        name="lie_bracket/best_order",
        statement="dynamic programming over subsets finds the least cost of all orders",
        source="Held and Karp (1962) for linear orderings; all orders enumerated",
        conclusion=program_is_best,
        sizes={"sources": st.sampled_from([1, 4])},
        typical={"sources": 4},
        mutants={"edges transposed": {"sign": -1.0}},
        **FLOWS,
    ),
)

r"""In which order to train on several sources, from gradients and Hessians before any training.

The question: SGD will see source A and then B, or B and then A. Which order leaves the lower loss
on a target E, and by how much? For one step of size :math:`\eta` on each,

.. math::
    \theta_{AB} - \theta_{BA} &= \eta^2 b_{AB} + O(\eta^3), \qquad b_{AB} = H_B g_A - H_A g_B, \\
    L_E(\theta_{AB}) - L_E(\theta_{BA}) &= \eta^2 \sigma_{AB} + O(\eta^3), \qquad
    \sigma_{AB} = \langle g_E, b_{AB} \rangle ,

the Lie bracket of both update fields, projected on the target's gradient. A positive score says
that A first ends higher, so that B should be first.

**Tournament.** Hessians are symmetric: with one product :math:`v_i = H_i g_E` a source,
:math:`\sigma_{ij} = \langle v_j, g_i\rangle - \langle v_i, g_j\rangle`, and a source's score
against all others needs no matrix of pairs,

.. math::
    S_i = \sum_j \sigma_{ij} = \langle V, g_i \rangle - \langle v_i, G \rangle, \qquad
    V = \sum_j v_j, \quad G = \sum_j g_j .

The schedule is ascending in S, and ``ordered_sgd`` trains in it. All functions take any
``loss(params, batch)`` and any tree of parameters; ``restricted`` of ``jaxlab.core.derivatives``
makes a loss of some of them.

Source: arXiv:2606.24993 (Sweeney), Lemma 2.1, Propositions 2.3 and 2.5, Remark 2.2; the same
bracket on a target's gradient is in arXiv:2501.15556. The k-step block, the least-squares view of
the row sums and the streamed form were derived here.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from jaxlab.core.checks import check_count, check_leading_axis, check_value
from jaxlab.core.derivatives import curvature, gradient_and_hvp, hvp
from jaxlab.core.trees import tree_combine, tree_dot
from jaxlab.core.types import Method, Scalar

__all__ = [
    "Loss",
    "Ordered",
    "OrderedHyper",
    "OrderedInfo",
    "OrderedState",
    "PairScore",
    "Totals",
    "Tournament",
    "add_source",
    "borda_order",
    "borda_scores",
    "bracket",
    "bracket_fields",
    "edge_matrix",
    "no_sources",
    "ordered",
    "ordered_sgd",
    "pair_score",
    "source_score",
    "streamed_scores",
    "tournament",
]

Loss = Callable[[Any, Any], Array]
"""``(params, batch) -> scalar``, twice differentiable."""


class PairScore(NamedTuple):
    """What a pair's order is worth.

    Attributes:
        score: ``sigma_AB``; positive if A first ends with the higher target loss.
        gap: The predicted loss of A first less that of B first, ``(steps * step_size)^2 sigma``.
        bracket_norm: ``||b_AB||``.
    """

    score: Float[Array, ""]
    gap: Float[Array, ""]
    bracket_norm: Float[Array, ""]


class Tournament(NamedTuple):
    """Every source's gradient and its Hessian's product with the target's gradient.

    Attributes:
        grads: ``g_i``, trees with a leading axis of sources.
        hvps: ``v_i = H_i g_E``, likewise.
        target_grad: ``g_E``.
    """

    grads: PyTree
    hvps: PyTree
    target_grad: PyTree


class Totals(NamedTuple):
    """Sums over sources: all that a source's score needs besides the source.

    Attributes:
        grad_sum: ``G``.
        hvp_sum: ``V``.
        target_grad: ``g_E``.
    """

    grad_sum: PyTree
    hvp_sum: PyTree
    target_grad: PyTree


def bracket_fields(
    first: Callable[[Any], PyTree], second: Callable[[Any], PyTree], params: PyTree
) -> PyTree:
    """The Lie bracket ``D second · first - D first · second`` of two fields of updates.

    Example:
        >>> turn, grow = lambda x: jnp.array([-x[1], x[0]]), lambda x: jnp.array([x[0], 0.0])
        >>> bracket_fields(turn, grow, jnp.array([1.0, 2.0])).tolist()
        [-2.0, -1.0]
    """
    at_first, at_second = first(params), second(params)
    along_first = jax.jvp(second, (params,), (at_first,))[1]
    along_second = jax.jvp(first, (params,), (at_second,))[1]
    return tree_combine((1, -1), along_first, along_second)


def bracket(loss: Loss, params: PyTree, batch_a: Any, batch_b: Any) -> PyTree:
    """``b_AB = H_B g_A - H_A g_B``; a step on A and then B, less B and then A, is ``eta^2 b_AB``.

    Example:
        >>> bracket(lambda x, b: jnp.sum(b[0] * (x - b[1]) ** 2) / 2, jnp.zeros(1),
        ...         (1.0, 1.0), (2.0, 3.0)).tolist()
        [4.0]
    """
    grad_a = jax.grad(loss)(params, batch_a)
    grad_b = jax.grad(loss)(params, batch_b)
    return tree_combine(
        (1, -1), hvp(loss, params, batch_b, grad_a), hvp(loss, params, batch_a, grad_b)
    )


def pair_score(
    loss: Loss,
    params: PyTree,
    batch_a: Any,
    batch_b: Any,
    target: Any,
    *,
    step_size: Scalar = 0.0,
    steps: int = 1,
    reference: Literal["origin", "trotter"] = "trotter",
) -> PairScore:
    """Whether A before B, or B before A, ends with the lower target loss.

    Args:
        loss: Of parameters and a batch.
        params: Before training.
        batch_a: The batch that A's steps will use.
        batch_b: That of B.
        target: The target's batch.
        step_size: ``eta``, at least 0; 0 makes both references equal, and the gap 0.
        steps: Steps on each source, A^k B^k against B^k A^k; ``k * eta`` must stay small.
        reference: Where the target's gradient is taken: at ``params``, or where both orders drift
            to in first order, ``params - k eta (g_A + g_B)``.

    Raises:
        ValueError: A negative step size, no steps, or an unknown reference.

    Example:
        >>> loss = lambda x, b: jnp.sum(b[0] * (x - b[1]) ** 2) / 2
        >>> scored = pair_score(loss, jnp.zeros(1), (1.0, 1.0), (2.0, 3.0), (1.0, 5.0))
        >>> float(scored.score)  # A first moves further towards the target
        -20.0
    """
    check_value("step_size", step_size, lambda x: x >= 0, "at least 0")
    check_count("steps", steps)
    if reference not in ("origin", "trotter"):
        raise ValueError(f"reference must be 'origin' or 'trotter', got {reference!r}")
    grad_a = jax.grad(loss)(params, batch_a)
    grad_b = jax.grad(loss)(params, batch_b)
    time = steps * jnp.asarray(step_size)
    at = params
    if reference == "trotter":
        at = tree_combine((1, -time, -time), params, grad_a, grad_b)
    difference = tree_combine(
        (1, -1), hvp(loss, params, batch_b, grad_a), hvp(loss, params, batch_a, grad_b)
    )
    score = tree_dot(jax.grad(loss)(at, target), difference)
    return PairScore(score, time**2 * score, jnp.sqrt(tree_dot(difference, difference)))


def tournament(loss: Loss, params: PyTree, sources: Any, target: Any) -> Tournament:
    """One gradient and one Hessian product a source, one source after the other.

    Args:
        loss: Of parameters and a batch.
        params: Before training.
        sources: Batches, stacked along a leading axis.
        target: The target's batch.

    Example:
        >>> loss = lambda x, b: jnp.sum(b[0] * (x - b[1]) ** 2) / 2
        >>> sources = (jnp.array([1.0, 2.0]), jnp.array([1.0, 3.0]))
        >>> table = tournament(loss, jnp.zeros(1), sources, (1.0, 5.0))
        >>> borda_scores(table).tolist(), borda_order(borda_scores(table)).tolist()
        ([-20.0, 20.0], [0, 1])
    """
    target_grad = jax.grad(loss)(params, target)
    grads, hvps = jax.lax.map(
        lambda batch: gradient_and_hvp(loss, params, batch, target_grad), sources
    )
    return Tournament(grads, hvps, target_grad)


def edge_matrix(table: Tournament) -> Float[Array, "sources sources"]:
    """All pairs, ``sigma_ij = <v_j, g_i> - <v_i, g_j>``; antisymmetric."""
    products = jax.tree.map(
        lambda g, v: g.reshape(g.shape[0], -1) @ v.reshape(v.shape[0], -1).T,
        table.grads,
        table.hvps,
    )
    inner = jax.tree.reduce(jnp.add, products)  # <g_i, v_j>
    return inner - inner.T


def borda_scores(table: Tournament) -> Float[Array, " sources"]:
    """``S_i``, the row sums of ``edge_matrix`` without the matrix; they sum to 0."""
    totals = Totals(
        jax.tree.map(lambda g: g.sum(axis=0), table.grads),
        jax.tree.map(lambda v: v.sum(axis=0), table.hvps),
        table.target_grad,
    )

    def score(grad: PyTree, product: PyTree) -> Array:
        return tree_dot(totals.hvp_sum, grad) - tree_dot(product, totals.grad_sum)

    return jax.vmap(score)(table.grads, table.hvps)


def borda_order(scores: Float[Array, " sources"]) -> Int[Array, " sources"]:
    """The schedule: ascending scores, ties in the order given.

    Example:
        >>> borda_order(jnp.array([1.0, -2.0, 1.0])).tolist()
        [1, 0, 2]
    """
    return jnp.argsort(scores, stable=True).astype(jnp.int32)


def no_sources(loss: Loss, params: PyTree, target: Any) -> Totals:
    """Totals before any source; ``add_source`` each, then ask ``source_score`` of each.

    Two passes over the sources in place of all their gradients: memory does not grow with them, and
    they may come from files.

    Example:
        >>> loss = lambda x, b: jnp.sum(b[0] * (x - b[1]) ** 2) / 2
        >>> sources, x = [(1.0, 1.0), (2.0, 3.0)], jnp.zeros(1)
        >>> totals = no_sources(loss, x, (1.0, 5.0))
        >>> for batch in sources:
        ...     totals = add_source(totals, loss, x, batch)
        >>> [float(source_score(totals, loss, x, batch)) for batch in sources]
        [-20.0, 20.0]
    """
    zeros = jax.tree.map(jnp.zeros_like, params)
    return Totals(zeros, zeros, jax.grad(loss)(params, target))


def add_source(totals: Totals, loss: Loss, params: PyTree, batch: Any) -> Totals:
    """The totals with one more source: one gradient and one Hessian product."""
    grad, product = gradient_and_hvp(loss, params, batch, totals.target_grad)
    return Totals(
        tree_combine((1, 1), totals.grad_sum, grad),
        tree_combine((1, 1), totals.hvp_sum, product),
        totals.target_grad,
    )


def source_score(totals: Totals, loss: Loss, params: PyTree, batch: Any) -> Float[Array, ""]:
    """``S_i`` of a source among those of the totals, in forward mode alone.

    ``<v_i, G>`` is the curvature of its loss along ``g_E`` and ``G``, and ``<V, g_i>`` a slope.
    """
    _, bent = curvature(loss, params, batch, totals.target_grad, totals.grad_sum)
    slope = jax.jvp(lambda p: loss(p, batch), (params,), (totals.hvp_sum,))[1]
    return slope - bent


def streamed_scores(
    loss: Loss, params: PyTree, sources: Any, target: Any
) -> Float[Array, " sources"]:
    """``S_i`` of stacked sources in two passes, with memory for three trees of parameters.

    ``borda_scores(tournament(...))`` keeps two trees a source and passes once.
    """

    def add(totals: Totals, batch: Any) -> tuple[Totals, None]:
        return add_source(totals, loss, params, batch), None

    totals, _ = jax.lax.scan(add, no_sources(loss, params, target), sources)
    return jax.lax.map(lambda batch: source_score(totals, loss, params, batch), sources)


class Ordered(NamedTuple):
    """A problem: what to train on, in which order; made by ``ordered``.

    Attributes:
        loss: Of parameters and a batch, a tree without leaves or with its own constants.
        params: Before training.
        sources: Batches with a leading axis.
        order: Indices along that axis, one a step.
    """

    loss: Any
    params: PyTree
    sources: Any
    order: Int[Array, " steps"]


class OrderedHyper(NamedTuple):
    """Attributes: step_size: ``eta``, at least 0."""

    step_size: Float[Array, ""]


class OrderedState(NamedTuple):
    """Attributes: params; place: how many steps were taken."""

    params: PyTree
    place: Int[Array, ""]


class OrderedInfo(NamedTuple):
    """Attributes: loss: of the step's source, before the step."""

    loss: Float[Array, ""]


def ordered(
    loss: Loss, params: PyTree, sources: Any, order: Int[Array, " sources"], *, steps: int = 1
) -> Ordered:
    """The problem of training in an order.

    Args:
        loss: Of parameters and a batch.
        params: Before training.
        sources: Batches with a leading axis.
        order: Indices along that axis; a shorter list trains on some only, and twice the same
            index on one twice.
        steps: Steps on each source before the next.

    Raises:
        ValueError: No steps, sources of different numbers, or an index that none of them has.
    """
    check_count("steps", steps)
    count = jax.tree.leaves(sources)[0].shape[0]
    check_leading_axis("sources", sources, count, "sources")
    check_value(
        "order", order, lambda i: (i >= 0) & (i < count), f"indices of sources, 0 to {count - 1}"
    )
    wrapped = loss if isinstance(loss, jax.tree_util.Partial) else jax.tree_util.Partial(loss)
    return Ordered(wrapped, params, sources, jnp.repeat(jnp.asarray(order), steps))


def ordered_sgd() -> Method:
    """Plain SGD in an order, one step of the runner a step on the next source.

    Brackets predict what it does; steps beyond the order's end stay on its last source.

    Example:
        >>> from jaxlab.core import run
        >>> loss = lambda x, b: jnp.sum((x - b) ** 2) / 2
        >>> problem = ordered(loss, jnp.zeros(1), jnp.array([[1.0], [3.0]]), jnp.array([1, 0]))
        >>> done = run(ordered_sgd(), problem, OrderedHyper(jnp.array(0.5)), jax.random.key(0),
        ...            num_steps=2)
        >>> done.state.params.tolist(), done.trace.loss.tolist()
        ([1.25], [4.5, 0.125])
    """

    def init(problem: Ordered, hyper: OrderedHyper, key: Array) -> OrderedState:
        del key
        check_value("step_size", hyper.step_size, lambda x: x >= 0, "at least 0")
        return OrderedState(problem.params, jnp.zeros((), jnp.int32))

    def step(
        problem: Ordered, hyper: OrderedHyper, state: OrderedState, key: Array
    ) -> tuple[OrderedState, OrderedInfo]:
        del key
        now = problem.order[state.place]
        batch = jax.tree.map(lambda leaf: leaf[now], problem.sources)
        value, grad = jax.value_and_grad(problem.loss)(state.params, batch)
        params = tree_combine((1, -hyper.step_size), state.params, grad)
        return OrderedState(params, state.place + 1), OrderedInfo(value)

    return Method(init, step)

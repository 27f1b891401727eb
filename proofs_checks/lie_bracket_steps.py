"""Claims on more than two steps, as exponents: schedules, blocks, and optimizers with memory."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array

from jaxlab.claims import Claim, Scaling
from jaxlab.claims.families import distinct_keys
from jaxlab.optim.lie_bracket import bracket, edge_matrix, tournament
from jaxlab.optim.lie_bracket_orders import linear_ordering_cost
from jaxlab.optim.lie_bracket_schedules import run_schedule, run_schedule_optax

DIM, UNITS, SOURCES, REPLICAS = 6, 5, 4, 24
# Powers of two: the ends of a fit over them differ eightfold.
STEP_SIZES = 0.04 / 2.0 ** jnp.arange(5)


def keys(key: Array) -> Array:
    """One key an instance; everything is drawn from it."""
    return jax.random.split(key, REPLICAS)


def loss(x: Array, batch: tuple[Array, Array]) -> Array:
    """A small net of tanh units, not quadratic."""
    weights, shifts = batch
    return jnp.mean(jnp.tanh(weights @ x + shifts)) + jnp.mean((weights @ x) ** 2) / 20


def problem(key: Array) -> tuple[Array, tuple[Array, Array], tuple[Array, Array]]:
    """Parameters, sources and a target."""
    one, two, three = jax.random.split(key, 3)
    weights = jax.random.normal(one, (SOURCES + 1, UNITS, DIM))
    shifts = jax.random.normal(two, (SOURCES + 1, UNITS))
    sources = weights[:-1], shifts[:-1]
    return jax.random.normal(three, (DIM,)), sources, (weights[-1], shifts[-1])


def pick(sources: tuple[Array, Array], i: int) -> tuple[Array, Array]:
    """One source."""
    return sources[0][i], sources[1][i]


def norm(x: Array) -> Array:
    """The Euclidean norm."""
    return jnp.sqrt(jnp.sum(x**2))


def fitted(
    instance: Array, residual: Callable[[Array, Array], Array], exponent: float, allowance: float
) -> Scaling:
    """Residuals of every key at every step size."""
    values = jax.vmap(lambda key: jax.lax.map(lambda eta: residual(key, eta), STEP_SIZES))(instance)
    return Scaling(STEP_SIZES, values, exponent, allowance)


def schedules_differ(instance: Array, *, key: Array, factor: float = 1.0) -> Scaling:
    """8: two orders of four sources differ by their costs; the mutant forgets the half."""
    del key

    def residual(key: Array, eta: Array) -> Array:
        start, sources, target = problem(key)
        edges = edge_matrix(tournament(loss, start, sources, target))
        orders = jax.vmap(lambda k: jax.random.permutation(k, SOURCES))(
            jax.random.split(jax.random.fold_in(key, 1), 2)
        )
        ends = [loss(run_schedule(loss, start, sources, o, eta), target) for o in orders]
        costs = [linear_ordering_cost(edges, o) for o in orders]
        # Two equal orders leave nothing; a reversed one is as good.
        same = jnp.all(orders[0] == orders[1])
        other = orders[0][::-1]
        end = jnp.where(same, loss(run_schedule(loss, start, sources, other, eta), target), ends[1])
        cost = jnp.where(same, linear_ordering_cost(edges, other), costs[1])
        return jnp.abs(ends[0] - end - factor * eta**2 * (costs[0] - cost)) + 1e-18

    return fitted(instance, residual, 3.0, 0.2)


def blocks_differ(
    instance: Array, *, key: Array, power: float = 2.0, interleaved: float = 0.0
) -> Scaling:
    """9: k steps on A, then k on B, differ by ``(k eta)^2 b``; taking turns by ``k eta^2 b``."""
    del key
    k = 4
    block, turns = jnp.array([0] * k + [1] * k), jnp.array([0, 1] * k)
    orders = jnp.where(interleaved > 0, turns, block)

    def residual(key: Array, eta: Array) -> Array:
        start, sources, _ = problem(key)
        ends = [run_schedule(loss, start, sources, o, eta) for o in (orders, 1 - orders)]
        own = bracket(loss, start, pick(sources, 0), pick(sources, 1))
        return norm(ends[0] - ends[1] - k**power * eta**2 * own)

    return fitted(instance, residual, 3.0, 0.2)


def turns_differ(instance: Array, *, key: Array, power: float = 1.0) -> Scaling:
    """9 with alternating steps."""
    return blocks_differ(instance, key=key, power=power, interleaved=1.0)


def memory_differs(
    instance: Array, *, key: Array, first: float = 1.0, decay: float = 0.9
) -> Scaling:
    """11: with averaged gradients orders differ in first order; the mutant claims the bracket."""
    del key

    def residual(key: Array, eta: Array) -> Array:
        start, sources, _ = problem(key)
        tx = optax.chain(optax.ema(decay, debias=False), optax.scale(-eta))
        ends = [
            run_schedule_optax(loss, start, sources, jnp.array(o), tx, allow_memory=True)
            for o in ((0, 1), (1, 0))
        ]
        a, b = (jax.grad(loss)(start, pick(sources, i)) for i in range(2))
        return norm(ends[0] - ends[1] + first * eta * decay * (1 - decay) * (a - b))

    return fitted(instance, residual, 2.0, 0.15)


def flows_differ(instance: Array, *, key: Array, factor: float = 1.0) -> Scaling:
    """Swapped gradient flows of quadratics differ by ``t^2 b``; the mutant halves it."""
    del key

    def residual(key: Array, time: Array) -> Array:
        one, two, three = jax.random.split(key, 3)
        factors = jax.random.normal(one, (2, DIM, DIM)) / DIM**0.5
        hessians = jnp.einsum("kij,kil->kjl", factors, factors)
        centres, x = jax.random.normal(two, (2, DIM)), jax.random.normal(three, (DIM,))

        def flow(x: Array, i: int) -> Array:
            return centres[i] + jax.scipy.linalg.expm(-time * hessians[i]) @ (x - centres[i])

        def source(x: Array, batch: tuple[Array, Array]) -> Array:
            return (x - batch[1]) @ batch[0] @ (x - batch[1]) / 2

        own = bracket(source, x, *((hessians[i], centres[i]) for i in range(2)))
        return norm(flow(flow(x, 0), 1) - flow(flow(x, 1), 0) - factor * time**2 * own)

    return fitted(instance, residual, 3.0, 0.2)


COMMON = {
    "families": {"tanh units": keys},
    "assumptions": distinct_keys,
    "stochastic": True,
    "tightness": "order",
    "rungs": ("sample",),
    "samples": 20,
}

CLAIMS = (
    Claim(
        name="lie_bracket/schedules",
        statement="L_E(pi) - L_E(pi') = eta^2 (sum_pi sigma - sum_pi' sigma) / 2 + O(eta^3)",
        source="derived: theta_pi = theta_0 - eta G + eta^2 sum_{i before j} H_j g_i + O(eta^3)",
        conclusion=schedules_differ,
        mutants={"each pair counted twice": {"factor": 2.0}},
        **COMMON,
    ),
    Claim(
        name="lie_bracket/blocks",
        statement="theta_{A^k B^k} - theta_{B^k A^k} = (k eta)^2 b + O(eta^3)",
        source="derived: k^2 pairs of steps change places",
        conclusion=blocks_differ,
        mutants={"k eta^2 b": {"power": 1.0}},
        **COMMON,
    ),
    Claim(
        name="lie_bracket/turns",
        statement="theta_{(AB)^k} - theta_{(BA)^k} = k eta^2 b + O(eta^3)",
        source="derived: all but k pairs of steps cancel",
        conclusion=turns_differ,
        mutants={"(k eta)^2 b": {"power": 2.0}},
        **COMMON,
    ),
    Claim(
        name="lie_bracket/flows",
        statement="gradient flows for a time t, exchanged: they differ by t^2 b + O(t^3)",
        source="the commutator of two flows",
        conclusion=flows_differ,
        mutants={"half the bracket": {"factor": 0.5}},
        **COMMON,
    ),
    Claim(
        name="lie_bracket/memory",
        statement="averages: theta_AB - theta_BA = -eta beta (1 - beta)(g_A - g_B) + O(eta^2)",
        source="derived: the second step still carries the first gradient",
        conclusion=memory_differs,
        mutants={"no first order, as without memory": {"first": 0.0}},
        **COMMON,
    ),
)

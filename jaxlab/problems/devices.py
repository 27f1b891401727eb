"""Agents on devices: the same methods with one agent per device, talking along edges only.

``run_on_devices`` takes an ordinary ``Consensus`` problem and runs it inside ``jax.shard_map`` over
the mesh axis ``agent``. The edges of the gossip matrix are cut into matchings, and every matching
is one ``jax.lax.ppermute``, so that no device ever hears of an agent that is not its neighbour.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Int, PyTree

from jaxlab.core.checks import check_key, check_leading_axis, is_concrete
from jaxlab.core.iterate import run, trace_info
from jaxlab.core.types import Method, Run, Status
from jaxlab.problems.consensus import Consensus
from jaxlab.problems.mixing import DenseMixing, Mixing

__all__ = ["AGENT_AXIS", "DeviceMixing", "device_mixing", "edge_matchings", "run_on_devices"]

AGENT_AXIS = "agent"
"""The mesh axis that the agents are spread over."""

Matching = tuple[tuple[int, int], ...]


class DeviceMixing(Mixing):
    """One agent per device; to be used inside ``jax.shard_map`` over the axis ``agent``.

    ``device_mixing`` makes it from a gossip matrix. Outside ``shard_map`` its arrays describe all
    agents; inside, the one of this device.

    Attributes:
        own_weight: The diagonal of ``W``.
        edge_weights: For every matching, the weight of each agent's partner; 0 without a partner.
        matchings: The edges, in sets in which no agent occurs twice.
        averaging: Whether ``W`` is plain averaging, which one all-reduce does.
    """

    own_weight: Float[Array, " agents"]
    edge_weights: Float[Array, "matchings agents"]
    matchings: tuple[Matching, ...] = eqx.field(static=True)
    averaging: bool = eqx.field(static=True)
    num_exchanges: int = eqx.field(static=True, default=1)

    def agent_ids(self) -> Int[Array, " agents"]:
        """The one agent of this device."""
        return jax.lax.axis_index(AGENT_AXIS)[None]

    def average(self, values: PyTree) -> PyTree:
        """The mean over all devices, known to all of them."""
        return jax.tree.map(lambda leaf: jax.lax.pmean(leaf.mean(axis=0), AGENT_AXIS), values)

    def disagreement(self, values: PyTree) -> PyTree:
        """``(I - W) values``, by one exchange per matching."""
        if self.averaging:
            return jax.tree.map(lambda leaf: leaf - jax.lax.pmean(leaf, AGENT_AXIS), values)

        def differ(leaf: Array) -> Array:
            result = leaf - _scaled(self.own_weight, leaf)
            for weights, matching in zip(self.edge_weights, self.matchings, strict=True):
                both_ways = [*matching, *((receiver, sender) for sender, receiver in matching)]
                result = result - _scaled(weights, jax.lax.ppermute(leaf, AGENT_AXIS, both_ways))
            return result

        return jax.tree.map(differ, values)


def edge_matchings(adjacency: np.ndarray) -> tuple[Matching, ...]:
    """Cut the edges of a graph into matchings, greedily: at most ``2 * max degree - 1`` of them.

    Example:
        >>> from jaxlab.problems.graphs import ring_graph
        >>> edge_matchings(ring_graph(4))
        (((0, 1), (2, 3)), ((0, 3), (1, 2)))
    """
    matchings: list[list[tuple[int, int]]] = []
    for i, j in np.argwhere(np.triu(adjacency, k=1)).tolist():
        for matching in matchings:
            if all({i, j}.isdisjoint(edge) for edge in matching):
                matching.append((i, j))
                break
        else:
            matchings.append([(i, j)])
    return tuple(tuple(matching) for matching in matchings)


def device_mixing(gossip: Float[Array, "agents agents"]) -> DeviceMixing:
    """Turn a gossip matrix into exchanges between devices.

    Raises:
        ValueError: The matrix is traced: its edges decide the program.
    """
    if not is_concrete(gossip):
        raise ValueError("gossip must be known before compilation, got a traced matrix")
    matrix = np.asarray(gossip)
    size = len(matrix)
    slack = size * np.finfo(matrix.dtype).eps
    averaging = bool(np.abs(matrix - 1 / size).max() <= slack)
    matchings = () if averaging else edge_matchings(matrix != 0)
    weights = np.zeros((len(matchings), size), matrix.dtype)
    for row, matching in zip(weights, matchings, strict=True):
        for i, j in matching:
            row[i], row[j] = matrix[i, j], matrix[j, i]
    return DeviceMixing(
        own_weight=jnp.asarray(np.diagonal(matrix)),
        edge_weights=jnp.asarray(weights),
        matchings=matchings,
        averaging=averaging,
    )


def run_on_devices(
    method: Method,
    problem: Consensus,
    hyper: Any,
    key: Array,
    *,
    mesh: Mesh,
    num_steps: int,
    trace_fn: Callable[[Any, Any], Any] = trace_info,
    every: int = 1,
    state: Any = None,
    first_step: int | Int[Array, ""] = 0,
    divergence_threshold: float | None = None,
) -> Run:
    """Run like ``core.run`` with agent ``m`` on device ``m`` of the mesh.

    The keys are those of the run on one device, so that the results agree to rounding: the sums
    over neighbours are taken in another order, which is a few machine epsilons per step. Every call
    compiles anew; to call it often, put it under ``jax.jit`` with the problem closed over.

    Args:
        method: Any method whose state leaves are ``[agents, ...]`` and which talks through
            ``problem.mixing`` alone. The exact local solver is not one: its root finder does not
            trace inside ``shard_map``.
        problem: With a ``DenseMixing``; in a job of several processes all of them pass the same.
        hyper: The hyper-parameters.
        key: A typed PRNG key.
        mesh: Its axis ``agent`` has as many devices as there are agents.
        num_steps: The number of steps.
        trace_fn: ``(state, info) -> pytree``, given this device's agent alone: what it returns must
            be equal on all devices, so reduce by ``jax.lax.pmean(value, "agent")``.
        every: Record the last of every ``every`` steps.
        state: Where to start, leaves ``[agents, ...]``.
        first_step: The number of the first step.
        divergence_threshold: As in ``core.run``.

    Returns:
        A ``Run`` whose state is sharded over ``agent``; everything else is on all devices.

    Raises:
        TypeError: ``key`` is not a typed key.
        ValueError: The mesh does not fit the agents, the mixing is not dense, or ``trace_fn``
            returns values that differ between devices.
    """
    check_key("key", key)
    mixing = device_mixing(_dense_gossip(problem))
    _check_mesh(mesh, problem.num_agents)
    check_leading_axis("problem.data", problem.data, problem.num_agents, "agents")
    check_leading_axis("state", state, problem.num_agents, "agents")

    def one_agent(
        own: Array, edges: Array, data: Any, state: Any, start: Any, hyper: Any, key: Array
    ) -> Run:
        here = eqx.tree_at(lambda m: (m.own_weight, m.edge_weights), mixing, (own, edges))
        done = run(
            _per_device(method), Consensus(problem.gradient_fn, data, start, here), hyper, key,
            num_steps=num_steps, trace_fn=trace_fn, every=every, state=state,
            first_step=first_step, divergence_threshold=divergence_threshold,
        )  # fmt: skip
        _check_equal_on_devices(done.trace)
        status, first_bad_step = _joint_status(done)
        return done._replace(status=status, first_bad_step=first_bad_step)

    sharded, replicated = PartitionSpec(AGENT_AXIS), PartitionSpec()
    in_specs = (sharded, PartitionSpec(None, AGENT_AXIS), sharded, sharded, *(replicated,) * 3)
    out_specs = Run(sharded, *(replicated,) * 4)  # pyright: ignore[reportArgumentType]
    arguments = (
        mixing.own_weight, mixing.edge_weights, problem.data, state, problem.start, hyper, key
    )  # fmt: skip
    placed = tuple(
        _placed(argument, NamedSharding(mesh, spec))
        for argument, spec in zip(arguments, in_specs, strict=True)
    )
    program = jax.shard_map(one_agent, mesh=mesh, in_specs=in_specs, out_specs=out_specs)
    return jax.jit(program)(*placed)


def _placed(tree: PyTree, sharding: NamedSharding) -> PyTree:
    """Spread a tree that every process holds whole over the devices of all processes."""

    def place(leaf: Any) -> Array:
        if sharding.is_fully_addressable or not is_concrete(leaf):
            return jax.device_put(leaf, sharding)
        if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
            return leaf
        if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            data = place(jax.random.key_data(leaf))
            return jax.random.wrap_key_data(data, impl=str(jax.random.key_impl(leaf)))
        value = np.asarray(leaf)
        return jax.make_array_from_callback(value.shape, sharding, lambda index: value[index])

    return jax.tree.map(place, tree)


def _scaled(weight: Array, leaf: Array) -> Array:
    """Each agent's leaf times its weight."""
    return weight.astype(leaf.dtype).reshape(-1, *(1,) * (leaf.ndim - 1)) * leaf


def _dense_gossip(problem: Consensus) -> Array:
    if not isinstance(problem.mixing, DenseMixing):
        raise ValueError(
            "problem.mixing must be a DenseMixing, whose matrix tells which devices talk, got "
            f"{type(problem.mixing).__name__}"
        )
    return problem.mixing.gossip


def _check_mesh(mesh: Mesh, num_agents: int) -> None:
    if AGENT_AXIS not in mesh.axis_names:
        raise ValueError(f"mesh must have an axis {AGENT_AXIS!r}, got axes {mesh.axis_names}")
    size = mesh.shape[AGENT_AXIS]
    if size != num_agents:
        raise ValueError(
            f"mesh must have one device per agent, {num_agents} along {AGENT_AXIS!r}, got {size}"
        )


def _differs_between_devices(leaf: Array) -> bool:
    kind = jax.typeof(leaf)
    # JAX 0.10 moved the set of varying axes.
    axes = kind.vma if hasattr(kind, "vma") else kind.manual_axis_type.varying
    return AGENT_AXIS in axes


def _per_agent(tree: PyTree) -> PyTree:
    """Mark every leaf as one agent's own, even if it is equal on all devices so far."""

    def mark(leaf: Array) -> Array:
        known = _differs_between_devices(leaf)
        return leaf if known else jax.lax.pcast(leaf, AGENT_AXIS, to="varying")

    return jax.tree.map(mark, tree)


def _per_device(method: Method) -> Method:
    """The same method, with a state that a loop can carry: every leaf is one agent's own."""

    def init(problem: Consensus, hyper: Any, key: Array) -> Any:
        return _per_agent(method.init(problem, hyper, key))

    def step(problem: Consensus, hyper: Any, state: Any, key: Array) -> tuple[Any, Any]:
        state, info = method.step(problem, hyper, state, key)
        return _per_agent(state), info

    return Method(init, step)


def _check_equal_on_devices(trace: PyTree) -> None:
    for path, leaf in jax.tree_util.tree_leaves_with_path(trace):
        if _differs_between_devices(leaf):
            where = jax.tree_util.keystr(path) or "value"
            raise ValueError(
                f"trace_fn must return values that are equal on all devices, got a {where} that "
                f"differs; reduce it by jax.lax.pmean(value, {AGENT_AXIS!r})"
            )


def _joint_status(done: Run) -> tuple[Int[Array, ""], Int[Array, ""]]:
    """The status of all agents together, as one device would have told it.

    Each agent knows its own state only. Among bad statuses the smaller number comes first, as in
    ``core.run``.
    """
    own_status, own_step = _per_agent((done.status, done.first_bad_step))
    good, never = own_status == Status.OK, jnp.iinfo(jnp.int32).max
    status = jax.lax.pmin(jnp.where(good, never, own_status), AGENT_AXIS)
    first = jax.lax.pmin(jnp.where(good, never, own_step), AGENT_AXIS)
    all_good = status == never
    return jnp.where(all_good, Status.OK, status), jnp.where(all_good, -1, first)

"""Instances of consensus problems whose solution is known, as NumPyro models.

Agent ``m`` holds ``f_m(x) = g_m(x) - <grad g_m(x°) + z_m, x>`` with ``sum_m z_m = 0``. Then ``x°``
solves the problem and ``z`` is the dual optimum, both free to choose.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxlab.problems import graphs, objectives
from jaxlab.problems.consensus import Consensus, stack_agents
from jaxlab.problems.mixing import DenseMixing
from jaxlab.problems.sites import log_uniform, normal

__all__ = [
    "Agents",
    "agents_problem",
    "agents_slack",
    "dual_gap",
    "graph_gossip",
    "loss_offsets",
    "make_agents_family",
    "minimizers",
    "zero_sum",
]

Stacked = Float[Array, "agents dim"]


class Agents(NamedTuple):
    """A problem with its solution, and any state of a dual method on it.

    Attributes:
        objectives: ``g_m``, stacked.
        optimum: ``x°``.
        dual_optimum: ``z``, zero-sum.
        p: A zero-sum array.
        q: Another one.
        params: Any primal point.
        bias: What is added to every gradient; 0 for exact gradients.
        gossip: The gossip matrix.
    """

    objectives: objectives.Objective
    optimum: Float[Array, " dim"]
    dual_optimum: Stacked
    p: Stacked
    q: Stacked
    params: Stacked
    bias: Stacked
    gossip: Float[Array, "agents agents"]

    @property
    def strong_convexity(self) -> Float[Array, ""]:
        """``mu``, common to all agents."""
        return self.objectives.strong_convexity[0]

    @property
    def smoothness(self) -> Float[Array, ""]:
        """``L``, common to all agents."""
        return self.objectives.smoothness[0]


def zero_sum(values: Stacked) -> Stacked:
    """``values`` less their mean over agents."""
    return values - values.mean(axis=0)


def graph_gossip(graph: str, agents: int) -> Float[Array, "agents agents"]:
    """Metropolis weights of a named graph: ``"ring"``, ``"complete"`` or ``"star"``."""
    builders = {
        "ring": graphs.ring_graph,
        "complete": graphs.complete_graph,
        "star": graphs.star_graph,
    }
    return graphs.metropolis_weights(builders[graph](agents))


def make_agents_family(
    draw_objective: Callable[..., objectives.Objective],
    *,
    largest_condition: float = 100.0,
    identical: bool = False,
    at_start: bool = False,
) -> Callable[..., Agents]:
    """A NumPyro model of ``Agents`` whose sizes are ``agents``, ``dim`` and ``graph``.

    Args:
        draw_objective: One of the ``draw_*`` functions of ``jaxlab.problems.objectives``.
        largest_condition: A bound on ``L / mu``.
        identical: Whether all agents share one ``g`` (their linear terms still differ).
        at_start: Whether the duals are zero and all agents stand at one point without bias.
    """

    def model(agents: int, dim: int, graph: str) -> Agents:
        mu = log_uniform("mu", 1e-1, 1e1)
        kappa = log_uniform("kappa", 1.0, largest_condition)
        names = ["g0"] * agents if identical else [f"g{m}" for m in range(agents)]
        drawn = {name: draw_objective(name, dim, mu, mu * kappa) for name in dict.fromkeys(names)}
        optimum = normal("optimum", dim)
        points = normal("points", 5, agents, dim)
        size = mu * log_uniform("dual_size", 1e-2, 1e2)
        dual, p, q, params, bias = points
        if at_start:
            params, p, q, bias = jnp.zeros_like(params) + params[0], 0 * p, 0 * q, 0 * bias
        stacked = stack_agents(*(drawn[name] for name in names))
        dual, p, q = (size * zero_sum(part) for part in (dual, p, q))
        gossip = graph_gossip(graph, agents)
        return Agents(stacked, optimum, dual, p, q, params, mu * bias, gossip)

    return model


def agents_slack(instance: Agents) -> Float[Array, ""]:
    """Slack of the assumptions: curvature, a gossip matrix, zero-sum duals; all relative."""
    points = jnp.concatenate([instance.optimum[None], instance.params])
    curvature = jax.vmap(lambda g: objectives.curvature_slack(g, *points))(instance.objectives)
    gossip = instance.gossip
    eigenvalues = jnp.linalg.eigvalsh(gossip)
    duals = jnp.stack([instance.dual_optimum, instance.p, instance.q])
    drift = jnp.abs(duals.sum(axis=1)).max() / (1e-300 + jnp.abs(duals).max())
    return jnp.stack(
        [
            curvature.min(),
            -jnp.abs(gossip - gossip.T).max(),
            -jnp.abs(gossip.sum(axis=1) - 1).max(),
            1 - 1e-9 - eigenvalues[-2],
            eigenvalues[0] + 1 - 1e-9,
            -drift,
        ]
    ).min()


def tilts(instance: Agents) -> Stacked:
    """The linear terms ``grad g_m(x°) + z_m``."""
    gradients = jax.vmap(lambda g: g.gradient(instance.optimum))(instance.objectives)
    return gradients + instance.dual_optimum


def _gradient(params: Array, data: Any, key: Array) -> Array:
    del key
    objective, tilt, bias = data
    return objective.gradient(params) - tilt + bias


def agents_problem(instance: Agents, *, exact: bool = False) -> Consensus:
    """The consensus problem, its gradients biased unless ``exact``."""
    bias = jnp.zeros_like(instance.bias) if exact else instance.bias
    data = (instance.objectives, tilts(instance), bias)
    return Consensus(_gradient, data, instance.params[0], DenseMixing(gossip=instance.gossip))


def minimizers(instance: Agents, *shifts: Stacked) -> Float[Array, "shifts agents dim"]:
    """``argmin_x f_m(x) + <shift_m, x>`` for every agent, at each of the shifts.

    Damped Newton steps, a fixed number of them: independent of the library's ``exact_minimizer``,
    and cheap to compile. The line search takes the best of a few step lengths, so that the norm of
    the gradient never grows.
    """
    lengths = 2.0 ** -jnp.arange(8.0)

    def one(objective: objectives.Objective, linear: Array, start: Array) -> Array:
        def residual(x: Array) -> Array:
            return objective.gradient(x) - linear

        def newton(x: Array, _: None) -> tuple[Array, None]:
            direction = jnp.linalg.solve(jax.hessian(objective.value)(x), residual(x))
            trials = x - lengths[:, None] * direction
            sizes = jax.vmap(lambda trial: jnp.sum(residual(trial) ** 2))(trials)
            return trials[jnp.argmin(sizes)], None

        return jax.lax.scan(newton, start, length=20)[0]

    over_agents = jax.vmap(one)
    linear = tilts(instance) - jnp.stack(shifts)
    return jax.vmap(over_agents, in_axes=(None, 0, None))(
        instance.objectives, linear, instance.params
    )


def loss_offsets(instance: Agents, params: Stacked) -> Float[Array, " agents"]:
    """``f_m(x_m) - f_m(x°)`` of every agent."""
    gaps = jax.vmap(lambda g, x: objectives.gap(g, x, instance.optimum))(
        instance.objectives, params
    )
    return gaps - jnp.sum(instance.dual_optimum * (params - instance.optimum), axis=1)


def dual_gap(instance: Agents, shift: Stacked, minimizers: Stacked) -> Float[Array, ""]:
    """``D(shift) - D*`` of the negative dual, from the minimisers at a zero-sum ``shift``."""
    linear = jnp.sum(shift * (minimizers - instance.optimum))
    return -(loss_offsets(instance, minimizers).sum() + linear)

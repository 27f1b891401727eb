"""Rivals of ``dual_sgd`` on the same problems, runner and diagnostics.

All take a ``Consensus`` problem and return states with a field ``params`` of leaves
``[agents, ...]`` and a ``ConsensusInfo``. The server methods (FedAvg, SCAFFOLD, Scaffnew) average
over all agents whatever the graph; gradient tracking and SSDA talk along its edges.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

from jaxlab.core.checks import check_count
from jaxlab.core.trees import tree_combine
from jaxlab.core.types import Method, Scalar
from jaxlab.optim.dual_sgd import DualSGDHyper, dual_constants, dual_sgd
from jaxlab.optim.local_solvers import exact_solver
from jaxlab.problems.consensus import (
    Consensus,
    ConsensusInfo,
    broadcast_to_agents,
    consensus_error,
)
from jaxlab.problems.graphs import GossipSpectrum

__all__ = [
    "ControlState",
    "FedAvgState",
    "LocalHyper",
    "ScaffnewHyper",
    "TrackingState",
    "fedavg",
    "gradient_tracking",
    "scaffnew",
    "scaffnew_hyper",
    "scaffold",
    "ssda",
    "ssda_hyper",
]


class LocalHyper(NamedTuple):
    """Hyper-parameters of FedAvg, SCAFFOLD and gradient tracking.

    Attributes:
        step_size: Of the gradient steps.
    """

    step_size: Float[Array, ""]


class FedAvgState(NamedTuple):
    """Attributes: params: The agents' copies, equal after every round."""

    params: PyTree


class ControlState(NamedTuple):
    """State of SCAFFOLD and Scaffnew.

    Attributes:
        params: Every agent's parameters.
        control: Every agent's control variate; the agents' mean is zero.
    """

    params: PyTree
    control: PyTree


class TrackingState(NamedTuple):
    """State of gradient tracking.

    Attributes:
        params: Every agent's parameters.
        direction: Every agent's estimate of the mean gradient.
        gradients: The private gradients that the estimate has absorbed.
    """

    params: PyTree
    direction: PyTree
    gradients: PyTree


class ScaffnewHyper(NamedTuple):
    """Hyper-parameters of Scaffnew.

    Attributes:
        step_size: Of the gradient steps, at most ``1/L``.
        communication_probability: The chance that a step ends with an exchange, in (0, 1].
    """

    step_size: Float[Array, ""]
    communication_probability: Float[Array, ""]


def _info(
    problem: Consensus, params: PyTree, gradients: int | float, rounds: Scalar
) -> ConsensusInfo:
    error = consensus_error(problem.mixing, params)
    return ConsensusInfo(
        error, jnp.full_like(error, gradients), jnp.asarray(rounds, dtype=error.dtype)
    )


def _server_average(problem: Consensus, params: PyTree) -> PyTree:
    return broadcast_to_agents(problem, problem.mixing.average(params))


def _corrected_sgd(
    problem: Consensus,
    step_size: Array,
    params: PyTree,
    correction: PyTree,
    key: Array,
    num_local_steps: int,
) -> PyTree:
    """Local steps along ``gradient + correction``."""

    def local_step(params: PyTree, index: Array) -> tuple[PyTree, None]:
        gradients = problem.gradients(params, jax.random.fold_in(key, index))
        return tree_combine((1.0, -step_size, -step_size), params, gradients, correction), None

    return jax.lax.scan(local_step, params, jnp.arange(num_local_steps))[0]


def fedavg(*, num_local_steps: int) -> Method:
    """Local SGD from a common point, then averaging (McMahan et al. 2017, arXiv:1602.05629).

    With different losses it stops at a distance from the solution (client drift).

    Raises:
        ValueError: ``num_local_steps`` is less than 1.
    """
    check_count("num_local_steps", num_local_steps)

    def init(problem: Consensus, hyper: LocalHyper, key: Array) -> FedAvgState:
        del hyper, key
        return FedAvgState(broadcast_to_agents(problem, problem.start))

    def step(
        problem: Consensus, hyper: LocalHyper, state: FedAvgState, key: Array
    ) -> tuple[FedAvgState, ConsensusInfo]:
        zero = jax.tree.map(jnp.zeros_like, state.params)
        local = _corrected_sgd(problem, hyper.step_size, state.params, zero, key, num_local_steps)
        info = _info(problem, local, num_local_steps, 1.0)
        return FedAvgState(_server_average(problem, local)), info

    return Method(init, step)


def scaffold(*, num_local_steps: int) -> Method:
    """Local SGD with control variates (Karimireddy et al. 2020, arXiv:1910.06378, option II).

    A round sends two vectors each way. ``control`` is ``c_i - c`` of the paper, whose mean is zero.

    Raises:
        ValueError: ``num_local_steps`` is less than 1.
    """
    check_count("num_local_steps", num_local_steps)

    def init(problem: Consensus, hyper: LocalHyper, key: Array) -> ControlState:
        del hyper, key
        params = broadcast_to_agents(problem, problem.start)
        return ControlState(params, jax.tree.map(jnp.zeros_like, params))

    def step(
        problem: Consensus, hyper: LocalHyper, state: ControlState, key: Array
    ) -> tuple[ControlState, ConsensusInfo]:
        correction = jax.tree.map(jnp.negative, state.control)
        local = _corrected_sgd(
            problem, hyper.step_size, state.params, correction, key, num_local_steps
        )
        moved = optax.tree.sub(state.params, local)
        scale = 1 / (num_local_steps * hyper.step_size)
        control = tree_combine((1.0, scale), state.control, moved)
        control = optax.tree.sub(control, _server_average(problem, control))
        info = _info(problem, local, num_local_steps, 1.0)
        return ControlState(_server_average(problem, local), control), info

    return Method(init, step)


def scaffnew() -> Method:
    """ProxSkip for consensus (Mishchenko et al. 2022, arXiv:2202.09357, Algorithm 2).

    One ``step`` is one local gradient step, which ends with an exchange by a coin that all agents
    share; ``ConsensusInfo.num_communications`` says whether it did.
    """

    def init(problem: Consensus, hyper: ScaffnewHyper, key: Array) -> ControlState:
        del hyper, key
        params = broadcast_to_agents(problem, problem.start)
        return ControlState(params, jax.tree.map(jnp.zeros_like, params))

    def step(
        problem: Consensus, hyper: ScaffnewHyper, state: ControlState, key: Array
    ) -> tuple[ControlState, ConsensusInfo]:
        key_gradient, key_coin = jax.random.split(key)
        step_size, probability = hyper.step_size, hyper.communication_probability
        gradients = problem.gradients(state.params, key_gradient)
        local = tree_combine((1.0, -step_size, step_size), state.params, gradients, state.control)
        # The controls sum to zero, so that averaging the prox point averages the local points.
        mean = _server_average(problem, local)
        talk = jax.random.bernoulli(key_coin, probability)
        params = jax.tree.map(lambda a, b: jnp.where(talk, a, b), mean, local)
        control = tree_combine(
            (1.0, probability / step_size, -probability / step_size), state.control, params, local
        )
        return ControlState(params, control), _info(problem, local, 1.0, talk)

    return Method(init, step)


def scaffnew_hyper(strong_convexity: float, smoothness: float) -> ScaffnewHyper:
    """The optimal choice: step ``1/L``, an exchange every ``sqrt(kappa)`` steps on average."""
    return ScaffnewHyper(
        jnp.asarray(1 / smoothness, dtype=float),
        jnp.sqrt(jnp.asarray(strong_convexity / smoothness, dtype=float)),
    )


def gradient_tracking() -> Method:
    """DIGing: a gradient step along a tracked mean gradient (Nedic et al. 2017, arXiv:1607.03218).

    A round sends two vectors along every edge.
    """

    def init(problem: Consensus, hyper: LocalHyper, key: Array) -> TrackingState:
        del hyper
        params = broadcast_to_agents(problem, problem.start)
        gradients = problem.gradients(params, key)
        return TrackingState(params, gradients, gradients)

    def step(
        problem: Consensus, hyper: LocalHyper, state: TrackingState, key: Array
    ) -> tuple[TrackingState, ConsensusInfo]:
        mixing = problem.mixing
        params = tree_combine(
            (1.0, -1.0, -hyper.step_size),
            state.params, mixing.disagreement(state.params), state.direction,
        )  # fmt: skip
        gradients = problem.gradients(params, key)
        direction = tree_combine(
            (1.0, -1.0, 1.0, -1.0),
            state.direction, mixing.disagreement(state.direction), gradients, state.gradients,
        )  # fmt: skip
        return TrackingState(params, direction, gradients), _info(problem, params, 1.0, 1.0)

    return Method(init, step)


def ssda(*, max_newton_steps: int = 256) -> Method:
    """Accelerated dual ascent with exact local solves (Scaman et al. 2017, arXiv:1702.08704).

    Its hyper-parameters come from ``ssda_hyper``; its local cost is counted in Newton steps.
    """
    return dual_sgd(local_solver=exact_solver(max_steps=max_newton_steps))


def ssda_hyper(
    strong_convexity: Scalar, smoothness: Scalar, spectrum: GossipSpectrum
) -> DualSGDHyper:
    """The accelerated dual step sizes; exact solves are always local work enough."""
    constants = dual_constants(strong_convexity, smoothness, spectrum)
    return DualSGDHyper(1 / constants.smoothness, constants.rate, jnp.zeros_like(constants.rate))

r"""Steering a language model's activations by linear optimal control of its layers (A-LQR).

The question: how to move the residual stream so that a feature (a tone, a topic) arrives at a
chosen strength, with small additions and with feedback from what the layers really did?

.. math::
    A_k &= \partial\varphi_k/\partial z \text{ at contrast prompts}, \qquad
    S_L = q_L I, \\
    K_k &= (S_{k+1} + r I)^{-1} S_{k+1} A_k, \qquad
    S_k = q I + A_k^T S_{k+1} (A_k - K_k), \\
    u_k &= (\beta^*_k - v_k^T z_k) K_k v_k, \qquad
    z_{k+1} = \varphi_k(z_k) + u_k .

The correction :math:`(\beta^*_k - v_k^T z_k) v_k` is the shortest that puts the feature on its
setpoint, and the regulator's gain carries it through layer :math:`k`. A prompt that already has the
feature is left alone.

Beside the paper's method there is the true optimum of tracking the feature alone, without a single
``dim x dim`` matrix (``feature_lqr``), and the bounds of ``jaxlab.control.tracking``.

Source: arXiv:2604.19018 (Skifstad, Yang, Chou), with the additions where its code has them: at the
output of a layer.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxlab.control.lqr import LinearSystem, Weights, riccati
from jaxlab.core.checks import check_finite, check_key, check_leading_axis, check_value
from jaxlab.core.types import Method, Scalar
from jaxlab.language.controllers import alqr, low_rank, steer
from jaxlab.language.feature_lqr import feature_lqr, plant_feature_lqr
from jaxlab.language.plants import Plant, layer_jacobians, model_plant, trajectory
from jaxlab.language.policies import LowRankPolicy, alqr_policy
from jaxlab.language.setpoints import FeatureSetpoint, contrast_setpoint, setpoint_values

__all__ = [
    "SteeringHyper",
    "SteeringInfo",
    "SteeringProblem",
    "SteeringState",
    "alqr",
    "contrast_setpoint",
    "feature_lqr",
    "layer_jacobians",
    "lqr_steering",
    "model_plant",
    "plant_feature_lqr",
    "steer",
    "steering_hyper",
    "trajectory",
]


class SteeringProblem(NamedTuple):
    """A state to steer through layers.

    Attributes:
        plant: The layers and the state at their input, one state.
        jacobians: Of the layers, at prompts like this one: ``layer_jacobians``.
        setpoint: The feature: ``contrast_setpoint``.
    """

    plant: Plant
    jacobians: Float[Array, "layers dim dim"]
    setpoint: FeatureSetpoint


class SteeringHyper(NamedTuple):
    """Hyper-parameters; made by ``steering_hyper``.

    Attributes:
        strength: ``lambda``; 1 asks for the positive set's feature, -1 for its opposite.
        state_cost: ``q >= 0``, the price of a deviation.
        input_cost: ``r > 0``, the price of an addition.
        final_cost: ``q_L >= 0``, the price of a deviation after the last layer.
    """

    strength: Float[Array, ""]
    state_cost: Float[Array, ""]
    input_cost: Float[Array, ""]
    final_cost: Float[Array, ""]


class SteeringState(NamedTuple):
    """Attributes: z: the input of the next layer; layer: its number; policy: with ``K_k v_k``."""

    z: Float[Array, " dim"]
    layer: Int[Array, ""]
    policy: LowRankPolicy


class SteeringInfo(NamedTuple):
    """Diagnostics of a layer.

    Attributes:
        feature: ``beta_k`` at its input.
        error: ``beta*_k - beta_k``.
        energy: ``||u_k||^2``.
    """

    feature: Float[Array, ""]
    error: Float[Array, ""]
    energy: Float[Array, ""]


def steering_hyper(
    strength: Scalar,
    *,
    state_cost: Scalar = 0.1,
    input_cost: Scalar = 10.0,
    final_cost: Scalar = 1.0,
) -> SteeringHyper:
    """Hyper-parameters as arrays; the weights are those of the paper's code for Qwen2.5-3B.

    Raises:
        ValueError: A weight out of its range.

    Example:
        >>> steering_hyper(1.5, input_cost=3.0).input_cost.item()
        3.0
    """
    check_value("state_cost", state_cost, lambda x: x >= 0, "at least 0")
    check_value("input_cost", input_cost, lambda x: x > 0, "positive")
    check_value("final_cost", final_cost, lambda x: x >= 0, "at least 0")
    values = (strength, state_cost, input_cost, final_cost)
    return SteeringHyper(*(jnp.asarray(value, dtype=float) for value in values))


def lqr_steering() -> Method:
    """A-LQR, one layer a step: take as many steps as the plant has layers.

    The problem is a ``SteeringProblem``, the hyper-parameters a ``SteeringHyper``, the state a
    ``SteeringState`` and the info a ``SteeringInfo``. ``init`` solves the Riccati recursion, in
    ``layers * dim ** 3`` operations. For many prompts or tokens solve it once, and steer by
    ``steer(plant, alqr(policy, setpoint, strength))`` or, inside generation, ``decoding_control``.

    Raises:
        ValueError: The method's ``init`` raises it for shapes that do not fit each other.

    Example:
        >>> from jaxlab.core import run
        >>> from jaxlab.language.plants import linear_plant
        >>> A, v = jnp.tile(jnp.eye(2), (5, 1, 1)), jnp.tile(jnp.eye(2)[0], (6, 1))
        >>> plant = linear_plant(LinearSystem(A), jnp.array([1.0, 3.0]))
        >>> point = FeatureSetpoint(v, jnp.zeros(6), jnp.ones(6))
        >>> problem = SteeringProblem(plant, A, point)
        >>> hyper = steering_hyper(2.0, state_cost=1.0, input_cost=0.1)
        >>> done = run(lqr_steering(), problem, hyper, jax.random.key(0), num_steps=5)
        >>> done.state.z.round(2).tolist()
        [2.0, 3.0]
    """

    def init(problem: SteeringProblem, hyper: SteeringHyper, key: Array) -> SteeringState:
        check_key("key", key)
        layers = problem.jacobians.shape[0]
        check_leading_axis("problem.plant.layers", problem.plant.layers, layers, "layers")
        check_leading_axis("problem.setpoint", problem.setpoint, layers + 1, "states")
        check_finite("problem.jacobians", problem.jacobians)
        check_finite("problem.setpoint", problem.setpoint)
        weights = Weights(hyper.state_cost, hyper.input_cost, hyper.final_cost)
        policy = riccati(LinearSystem(problem.jacobians), weights).policy
        start = problem.plant.start, jnp.asarray(0, jnp.int32)
        return SteeringState(*start, alqr_policy(policy, problem.setpoint))

    def step(
        problem: SteeringProblem, hyper: SteeringHyper, state: SteeringState, key: Array
    ) -> tuple[SteeringState, SteeringInfo]:
        del key
        k = state.layer
        _, u = low_rank(state.policy, hyper.strength).step((), k, state.z)
        feature = state.z @ problem.setpoint.directions[k]
        error = setpoint_values(problem.setpoint, hyper.strength)[k] - feature
        layer = jax.tree.map(lambda leaf: leaf[k], problem.plant.layers)
        after = problem.plant.advance(layer, state.z) + u
        return SteeringState(after, k + 1, state.policy), SteeringInfo(
            feature, error, jnp.sum(u**2)
        )

    return Method(init, step)

r"""Controllers of a residual stream: what to add after a layer, given the state before it.

All have one shape: ``state = init()``, ``state, u = step(state, k, z)`` with the layer's number
``k`` and the states ``z`` of shape ``[*batch, dim]``. They are pytrees of arrays, so that strengths
are vmapped and one compilation serves every controller of a kind. With the error
:math:`e_k = \beta^*_k - v_k^T z_k` of the feature,

.. math::
    \text{A-LQR:}\quad u_k &= e_k K_k v_k & \text{proportional:}\quad u_k &= \kappa e_k v_k \\
    \text{PID:}\quad u_k &= (k_p e_k + k_i \textstyle\sum e + k_d \Delta e)\, v_k &
    \text{open loop:}\quad u_k &\text{ whatever } z

Since the correction has one direction per layer, A-LQR needs no gain matrix while it steers, but
the vectors :math:`K_k v_k` alone: two products of ``dim`` numbers a layer and token.

Source: arXiv:2604.19018 for A-LQR; Turner et al. 2023 (arXiv:2308.10248) for constant additions.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.tree_util import Partial
from jaxtyping import Array, Float

from jaxlab.control.lqr import AffinePolicy
from jaxlab.core.checks import check_count, check_leading_axis
from jaxlab.core.types import Scalar
from jaxlab.language.plants import Plant
from jaxlab.language.policies import LowRankPolicy, alqr_policy, feedback_policy
from jaxlab.language.setpoints import FeatureSetpoint, setpoint_values
from jaxlab.models.cache import Control

__all__ = [
    "Controller",
    "Steered",
    "act_add",
    "alqr",
    "combine",
    "decoding_control",
    "fixed_inputs",
    "low_rank",
    "proportional",
    "s_pid",
    "steer",
    "trajectory_tracking",
]


class Controller(NamedTuple):
    """A controller. Attributes: init: ``() -> state``; step: ``(state, k, z) -> (state, u)``."""

    init: Partial
    step: Partial


class Steered(NamedTuple):
    """A plant under control.

    Attributes:
        states: ``z``, controls included.
        inputs: ``u``, added to the output of each layer.
    """

    states: Float[Array, "layers_and_one *batch dim"]
    inputs: Float[Array, "layers *batch dim"]


def steer(plant: Plant, controller: Controller) -> Steered:
    """Run a plant under a controller, layer by layer.

    Example:
        >>> from jaxlab.control.lqr import LinearSystem
        >>> from jaxlab.language.plants import linear_plant
        >>> plant = linear_plant(LinearSystem(jnp.ones((2, 1, 1))), jnp.array([1.0]))
        >>> point = FeatureSetpoint(jnp.ones((3, 1)), jnp.zeros(3), jnp.ones(3))
        >>> steer(plant, proportional(0.5, point, 3.0)).states.ravel().tolist()
        [1.0, 2.0, 2.5]
    """
    count = jax.tree.leaves(plant.layers)[0].shape[0]

    def layer(carry: tuple[Any, Array], now: Any) -> tuple[Any, tuple[Array, Array]]:
        state, z = carry
        k, entry = now
        state, u = controller.step(state, k, z)
        after = plant.advance(entry, z) + u
        return (state, after), (after, u)

    batch = plant.start.shape[:-1]
    init = jax.tree.map(lambda s: jnp.broadcast_to(s, batch + s.shape), controller.init())
    start = (init, plant.start)
    _, (states, inputs) = jax.lax.scan(layer, start, (jnp.arange(count), plant.layers))
    return Steered(jnp.concatenate([plant.start[None], states]), inputs)


def decoding_control(controller: Controller) -> Control:
    """The controller for ``jaxlab.models.generate.generate`` and ``decode_step``.

    It acts on the newest token of every sequence; its state starts anew with each token. Build it
    inside the jitted function, so that its arrays are arguments and not constants.
    """

    def apply(state: Any, i: int, before: Array, after: Array) -> tuple[Any, Array]:
        state, u = controller.step(state, i, before)
        return state, after + u.astype(after.dtype)

    return Control(controller.init, apply)


def low_rank(policy: LowRankPolicy, strength: Scalar) -> Controller:
    """The controller of a policy: ``feature_lqr``'s, or one of ``jaxlab.language.policies``."""
    offsets = policy.base + strength * policy.slope
    step = Partial(_low_rank_step, policy.left, policy.right, offsets)
    return Controller(Partial(_no_state), step)


def alqr(policy: AffinePolicy, setpoint: FeatureSetpoint, strength: Scalar) -> Controller:
    """The paper's controller: the shortest correction of the feature, through the LQR's gains.

    Args:
        policy: ``riccati(LinearSystem(jacobians), weights).policy``; its offsets are not used.
        setpoint: The feature.
        strength: ``lambda``.

    Example:
        >>> point = FeatureSetpoint(jnp.ones((2, 1)), jnp.zeros(2), jnp.ones(2))
        >>> policy = AffinePolicy(jnp.full((1, 1, 1), 0.25), jnp.zeros((1, 1)))
        >>> _, u = alqr(policy, point, 3.0).step((), 0, jnp.array([1.0]))
        >>> u.tolist()
        [0.5]
    """
    return low_rank(alqr_policy(policy, setpoint), strength)


def proportional(gain: Scalar, setpoint: FeatureSetpoint, strength: Scalar) -> Controller:
    """``u_k = kappa (beta*_k - v_k^T z_k) v_k`` at every layer; see ``steer`` for an example."""
    return low_rank(feedback_policy(setpoint.directions[:-1] * gain, setpoint), strength)


def s_pid(
    setpoint: FeatureSetpoint,
    strength: Scalar,
    *,
    proportional: Scalar = 0.5,
    integral: Scalar = 0.5,
    derivative: Scalar = 0.1,
    reset_every: int = 10,
) -> Controller:
    """Proportional, integral and derivative feedback over layers.

    Args:
        setpoint: The feature.
        strength: ``lambda``.
        proportional: ``k_p``.
        integral: ``k_i``.
        derivative: ``k_d``, on the difference from the layer before; none at the first.
        reset_every: After so many layers the sum starts anew.

    Raises:
        ValueError: ``reset_every`` is below 1.

    Example:
        >>> point = FeatureSetpoint(jnp.ones((3, 1)), jnp.zeros(3), jnp.ones(3))
        >>> pid = s_pid(point, 1.0)
        >>> state, u = pid.step(pid.init(), 0, jnp.zeros(1))
        >>> u.tolist(), pid.step(state, 1, jnp.zeros(1))[1].tolist()
        ([1.0], [1.5])
    """
    check_count("reset_every", reset_every)
    targets = setpoint_values(setpoint, strength)[:-1]
    gains = jnp.stack([jnp.asarray(g, targets.dtype) for g in (proportional, integral, derivative)])
    resets = jnp.arange(targets.shape[0]) % reset_every == 0
    step = Partial(_pid_step, gains, setpoint.directions[:-1], targets, resets)
    zero = jnp.zeros((), targets.dtype)
    return Controller(Partial(_given_state, (zero, zero)), step)


def fixed_inputs(inputs: Float[Array, "layers dim"]) -> Controller:
    """Open loop: given vectors are added, whatever the state.

    Example:
        >>> fixed_inputs(jnp.array([[2.0], [3.0]])).step((), 1, jnp.zeros((4, 1)))[1].shape
        (4, 1)
    """
    return Controller(Partial(_no_state), Partial(_fixed_step, inputs))


def act_add(
    vectors: Float[Array, "layers_and_one dim"], coefficients: Float[Array, " layers"]
) -> Controller:
    """Constant activation addition: ``coefficients[k] * vectors[k + 1]`` after layer ``k``.

    Args:
        vectors: Contrast vectors ``e`` at the inputs of layers, so that ``k + 1`` is the output.
        coefficients: 0 for the layers that are left alone.

    Raises:
        ValueError: Not one coefficient per layer.

    Example:
        >>> added = act_add(jnp.array([[1.0], [2.0], [3.0]]), jnp.array([0.0, 0.5]))
        >>> added.step((), 1, jnp.zeros(1))[1].tolist()
        [1.5]
    """
    check_leading_axis("coefficients", coefficients, vectors.shape[0] - 1, "layers")
    return fixed_inputs(coefficients[:, None] * vectors[1:])


def trajectory_tracking(
    policy: AffinePolicy, nominal: Float[Array, "layers_and_one dim"]
) -> Controller:
    """The exact regulator of a whole trajectory, ``u_k = -K_k (z_k - nominal_k)``.

    Raises:
        ValueError: Not one nominal state per layer, and one more.
    """
    check_leading_axis("nominal", nominal, policy.gains.shape[0] + 1, "states")
    return Controller(Partial(_no_state), Partial(_tracking_step, policy.gains, nominal))


def combine(*controllers: Controller) -> Controller:
    """The sum of what several controllers add, for several features at once.

    Raises:
        ValueError: No controller.

    Example:
        >>> both = combine(fixed_inputs(jnp.ones((1, 1))), fixed_inputs(jnp.ones((1, 1))))
        >>> both.step(both.init(), 0, jnp.zeros(1))[1].tolist()
        [2.0]
    """
    if not controllers:
        raise ValueError("controllers must be at least one, got none")
    return Controller(
        Partial(_init_all, tuple(c.init for c in controllers)),
        Partial(_step_all, tuple(c.step for c in controllers)),
    )


def _no_state() -> tuple[()]:
    return ()


def _given_state(state: Any) -> Any:
    return state


def _pid_step(
    gains: Array,
    directions: Array,
    targets: Array,
    resets: Array,
    state: tuple[Array, Array],
    k: Any,
    z: Array,
) -> tuple[Any, Array]:
    total, last = state
    error = targets[k] - z @ directions[k]
    total = jnp.where(resets[k], 0, total) + error
    change = jnp.where(k == 0, 0, error - last)
    strength = gains[0] * error + gains[1] * total + gains[2] * change
    return (total, error), jnp.einsum("...,d->...d", strength, directions[k])


def _fixed_step(inputs: Array, state: Any, k: Any, z: Array) -> tuple[Any, Array]:
    return state, jnp.broadcast_to(inputs[k], z.shape)


def _tracking_step(gains: Array, nominal: Array, state: Any, k: Any, z: Array) -> tuple[Any, Array]:
    away = jnp.broadcast_to(nominal[k], z.shape) - z
    return state, jnp.einsum("ij,...j->...i", gains[k], away)


def _low_rank_step(
    left: Array, right: Array, offsets: Array, state: Any, k: Any, z: Array
) -> tuple[Any, Array]:
    return state, jnp.broadcast_to(offsets[k], z.shape) - (z @ right[k]) @ left[k].T


def _init_all(inits: tuple[Partial, ...]) -> tuple[Any, ...]:
    return tuple(init() for init in inits)


def _step_all(
    steps: tuple[Partial, ...], states: tuple[Any, ...], k: Any, z: Array
) -> tuple[Any, Array]:
    done = [step(state, k, z) for step, state in zip(steps, states, strict=True)]
    total = done[0][1]
    for _, u in done[1:]:
        total = total + u
    return tuple(state for state, _ in done), total

"""Claims on tracking a feature: the low-rank optimum, linearity in strength, and real blocks."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jax.tree_util import Partial
from jaxtyping import Array, Float, Int

from jaxlab.claims import Claim, Comparison, close_to
from jaxlab.control.lqr import LinearSystem, Rollout, Weights, quadratic_cost, riccati
from jaxlab.language.controllers import alqr, fixed_inputs, low_rank, steer
from jaxlab.language.feature_lqr import feature_lqr
from jaxlab.language.plants import (
    layer_jacobians,
    linear_plant,
    model_plant,
    trajectory,
    transpose_product,
)
from jaxlab.language.policies import dense_policy
from jaxlab.language.setpoints import FeatureSetpoint, setpoint_values
from jaxlab.models.config import LlamaConfig
from jaxlab.models.llama import CausalLM, Params
from jaxlab.problems.sites import log_uniform, normals


class Tracking(NamedTuple):
    """A plant with drift, a feature, weights and a strength."""

    transitions: Float[Array, "steps dim dim"]
    drifts: Float[Array, "steps dim"]
    start: Float[Array, " dim"]
    setpoint: FeatureSetpoint
    weights: Weights
    strength: Float[Array, ""]
    push: Float[Array, "steps dim"]


def trackings(dim: int, steps: int) -> Tracking:
    """A NumPyro model."""
    noise, drifts, start, v, offsets, scales, strength, push = normals(
        "tracking",
        (steps, dim, dim),
        (steps, dim),
        (dim,),
        (steps + 1, dim),
        (steps + 1,),
        (steps + 1,),
        (),
        (steps, dim),
    )
    spread = log_uniform("spread", 0.05, 1.0)
    q, r, final = (log_uniform(name, 0.1, 10.0) for name in ("state", "input", "final"))
    directions = v / jnp.sqrt(jnp.sum(v**2, axis=1, keepdims=True))
    point = FeatureSetpoint(directions, offsets, scales)
    return Tracking(
        jnp.eye(dim) + spread * noise / dim**0.5,
        drifts,
        start,
        point,
        Weights(q, r, final),
        strength,
        push,
    )


def legal_tracking(instance: Tracking) -> Array:
    """Directions of norm 1 and positive prices."""
    norms = jnp.sum(instance.setpoint.directions**2, axis=1)
    prices = jnp.stack(list(instance.weights)).min()
    return jnp.minimum(1e-12 - jnp.abs(norms - 1).max(), prices)


def rank_one(instance: Tracking) -> tuple[Weights, Array]:
    """The cost of the feature as a cost of the state, and targets that have it."""
    v, (q, r, final) = instance.setpoint.directions, instance.weights
    outer = v[:, :, None] * v[:, None, :]
    aims = setpoint_values(instance.setpoint, instance.strength)
    return Weights(q * outer[:-1], r, final * outer[-1]), aims[:, None] * v


def low_rank_is_dense(
    instance: Tracking, *, drift: float = 1.0, transposed: float = 1.0
) -> Comparison:
    """Gains, offsets, and the gradient of the cost; mutants forget the drift or transpose."""
    A, c = instance.transitions, instance.drifts
    system, plant = LinearSystem(A, c), linear_plant(LinearSystem(A, c), instance.start)

    def transpose(A: Array, y: Array) -> Array:
        return (transposed * A.T + (1 - transposed) * A) @ y

    policy = feature_lqr(transpose, A, drift * c, instance.setpoint, instance.weights)
    found = dense_policy(policy, instance.strength)
    weights, targets = rank_one(instance)
    dense = riccati(system, weights, targets).policy
    done = steer(plant, low_rank(policy, instance.strength))

    def cost(inputs: Array) -> Array:
        path = steer(plant, fixed_inputs(inputs))
        return quadratic_cost(Rollout(path.states, path.inputs), weights, targets)

    value, slope = jax.value_and_grad(cost)(done.inputs)
    scale = 1 + jnp.abs(dense.offsets).max()
    return close_to(
        jnp.concatenate(
            [
                (found.gains - dense.gains).ravel(),
                (found.offsets - dense.offsets).ravel() / scale,
                slope.ravel() / (1 + value),
            ]
        ),
        jnp.zeros(found.gains.size + 2 * found.offsets.size),
        allowance=1e-9,
    )


def odd_in_strength(instance: Tracking, *, as_gain: float = 0.0) -> Comparison:
    """On a linear plant inputs are linear in the strength; a mutant multiplies gains by it too."""
    A = instance.transitions
    weights = Weights(*instance.weights)
    policy = riccati(LinearSystem(A), weights).policy
    point = instance.setpoint._replace(offsets=jnp.zeros_like(instance.setpoint.offsets))

    def inputs(strength: Array) -> Array:
        gains = (1 - as_gain + as_gain * strength) * policy.gains
        controller = alqr(policy._replace(gains=gains), point, strength)
        return steer(linear_plant(LinearSystem(A), instance.start), controller).inputs

    at = jax.vmap(inputs)(instance.strength * jnp.array([0.0, 1.0, -1.0, 2.0]))
    moved = at[1:] - at[0]
    scale = jnp.abs(at).max() + 1e-30
    return close_to(
        jnp.stack([moved[0] + moved[1], 2 * moved[0] - moved[2]]) / scale,
        jnp.zeros((2, *moved[0].shape)),
        allowance=1e-9,
    )


LM = CausalLM(
    LlamaConfig(vocab_size=11, dim=8, num_layers=2, num_heads=2, num_kv_heads=1, mlp_dim=12)
)
"""A small transformer with random weights, in double precision."""


class Prompt(NamedTuple):
    """Weights, a prompt, and directions at the input and output of a block."""

    params: Params
    tokens: Int[Array, " time"]
    inputs: Float[Array, "dim columns"]
    outputs: Float[Array, "dim columns"]


def prompts(key: Array) -> Prompt:
    """Weights so large that attention looks at single tokens."""
    key_normal, key_tokens = jax.random.split(key)
    shapes, structure = jax.tree.flatten(LM.shapes())
    ends = np.cumsum([leaf.size for leaf in shapes])
    # One draw for all weights: each would be a program for the compiler.
    *weights, ways = jnp.split(jax.random.normal(key_normal, (ends[-1] + 32,)), ends)
    params = [w.reshape(leaf.shape) / 2 for w, leaf in zip(weights, shapes, strict=True)]
    tokens = jax.random.randint(key_tokens, (5,), 0, 11)
    return Prompt(jax.tree.unflatten(structure, params), tokens, *ways.reshape(2, 8, 2))


def legal_prompt(instance: Prompt) -> Array:
    """Tokens of the vocabulary, and directions that are not 0."""
    tokens = instance.tokens
    lengths = jnp.minimum(jnp.sum(instance.inputs**2), jnp.sum(instance.outputs**2))
    return jnp.minimum(jnp.minimum(tokens.min(), 10 - tokens.max()), lengths)


def _stale(layer: tuple, z: Array) -> Array:
    # The bug: the token's own key and value as if they had been in the cache already.
    weights, past = layer

    def place(keys: Array, values: Array):
        keys, values = jax.lax.stop_gradient((keys, values))
        present = type(past)(
            jnp.concatenate([past.keys, keys], axis=-3),
            jnp.concatenate([past.values, values], axis=-3),
            jnp.concatenate([past.mask, jnp.ones(1, bool)]),
        )
        return present, present.mask[None]

    positions = past.mask.sum()[None]
    return LM.advance(weights, z[None], positions, place)[0][0]


def blocks_are_linearised(instance: Prompt, *, stale: bool = False) -> Comparison:
    """Jacobians against central differences, and products with the transpose against both."""
    params, tokens, x, w = instance
    plant = model_plant(LM, params, tokens)
    states = trajectory(plant)
    used = plant._replace(advance=Partial(_stale)) if stale else plant
    A = layer_jacobians(used, states)
    width = 1e-6

    def one(entry: tuple) -> tuple[Array, Array]:
        layer, z = entry
        ends = [
            jax.vmap(lambda d, s=s: plant.advance(layer, z + s * width * d), 1, 1)(x)
            for s in (1, -1)
        ]
        return (ends[0] - ends[1]) / (2 * width), transpose_product(used, layer, z, w)

    slopes, pulled = jax.lax.map(one, (plant.layers, states[:-1]))
    forward = A @ x
    scale = jnp.abs(slopes).max()
    dual = jnp.einsum("di,kdj->kij", w, forward) - jnp.einsum("kdi,dj->kij", pulled, x)
    return close_to(
        jnp.concatenate([(forward - slopes).ravel(), dual.ravel()]) / scale,
        jnp.zeros(forward.size + dual.size),
        allowance=1e-6,
    )


SIZES = {"dim": st.sampled_from([1, 3]), "steps": st.sampled_from([1, 4])}
TYPICAL = {"dim": 3, "steps": 4}
CLAIMS = (
    Claim(
        name="lqr_steering/low_rank",
        statement="the recursion without dim x dim matrices gives the dense optimum's K_k and f_k",
        source="derived: S_k = M_k M_k' and Woodbury's identity",
        families={"with drift": trackings},
        conclusion=low_rank_is_dense,
        assumptions=legal_tracking,
        sizes=SIZES,
        typical=TYPICAL,
        samples=1000,
        tightness="tight",
        rungs=("explore", "sample"),
        mutants={
            "drift forgotten": {"drift": 0.0},
            "A instead of A'": {"transposed": 0.0},
        },
    ),
    Claim(
        name="lqr_steering/blocks",
        statement="every block: A_k x = central differences, and w'(A_k x) = (A_k'w)'x",
        source="the identity of adjoints; the token's own key and value depend on its state",
        families={"random transformer": prompts},
        conclusion=blocks_are_linearised,
        assumptions=legal_prompt,
        samples=20,
        tightness="tight",
        rungs=("sample",),
        mutants={"own key and value taken as cached": {"stale": True}},
    ),
    Claim(
        name="lqr_steering/odd_in_strength",
        statement="linear plant without drift: u(lambda) - u(0) is linear in lambda",
        source="derived: the loop is affine in the setpoint",
        families={"with drift": trackings},
        conclusion=odd_in_strength,
        assumptions=legal_tracking,
        sizes=SIZES,
        typical=TYPICAL,
        samples=1000,
        tightness="tight",
        rungs=("explore", "sample"),
        mutants={"strength multiplies the gains as well": {"as_gain": 1.0}},
    ),
)

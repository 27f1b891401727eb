r"""A stack of layers as a dynamic system: the state of a prompt's last token, from layer to layer.

With the tokens before it fixed, the last token's residual stream obeys

.. math::  z_{k+1} = \varphi_k(z_k) + u_k, \qquad k = 0, \dots, L - 1,

where a control :math:`u_k` is added to the output of layer :math:`k`. The token's own key and value
come from :math:`z_k` and are differentiated with it. Near a trajectory this is a linear system with
:math:`A_k = \partial\varphi_k/\partial z` and the identity as input matrix; products with
:math:`A_k` and its transpose need no matrix at all.

Source: arXiv:2604.19018, Section 3; the products are this library's.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.tree_util import Partial
from jaxtyping import Array, Bool, Float, Int, PyTree

from jaxlab.control.lqr import LinearSystem
from jaxlab.models.blocks import KeyValues
from jaxlab.models.llama import CausalLM, Params

__all__ = [
    "Plant",
    "forward_product",
    "jacobian_alignment",
    "layer_jacobians",
    "linear_plant",
    "linearization_residuals",
    "linearize",
    "model_plant",
    "trajectory",
    "transpose_product",
]


class Plant(NamedTuple):
    """Layers that act on one state or a batch; a pytree whose arrays may be vmapped or traced.

    Attributes:
        advance: ``(layer, z) -> z``, a ``jax.tree_util.Partial``.
        layers: A tree of arrays with a leading axis of layers; ``advance`` gets one entry.
        start: The state at the input of the first layer, or those of a batch that is independent.
    """

    advance: Partial
    layers: PyTree
    start: Float[Array, "*batch dim"]


def model_plant(
    lm: CausalLM,
    params: Params,
    tokens: Int[Array, "*batch time"],
    *,
    mask: Bool[Array, "*batch time"] | None = None,
) -> Plant:
    """The last token of a prompt or of each of a batch, with keys and values of those before it.

    Args:
        lm: The model.
        params: Its parameters, which become part of the plant.
        tokens: The prompt, of at least two tokens; one padded length serves many prompts.
        mask: Which tokens are real, padding standing at the left.

    Raises:
        ValueError: Fewer than two tokens.

    Example:
        >>> from jaxlab.models.config import LlamaConfig
        >>> lm = CausalLM(LlamaConfig(vocab_size=9, dim=8, num_layers=2, num_heads=2, mlp_dim=8))
        >>> params = lm.init(jax.random.key(0))
        >>> tokens = jnp.array([3, 1, 4, 1])
        >>> states = trajectory(model_plant(lm, params, tokens))
        >>> bool(jnp.allclose(states, lm.hidden_states(params, tokens)[:, -1], atol=1e-6))
        True
    """
    if jnp.shape(tokens)[-1] < 2:
        raise ValueError(
            f"tokens must be at least 2, the steered one and one before it, got {tokens.shape[-1]}"
        )
    before = None if mask is None else mask[..., :-1]
    past = lm.key_values(params, tokens[..., :-1], mask=before)
    start = lm.embed(params, tokens[..., -1:])[..., 0, :]
    return Plant(Partial(_TokenLayer(lm)), (params["layers"], past), start)


@dataclass(frozen=True)
class _TokenLayer:
    # Compared by the model, so that all plants of a model share their compilations.
    lm: CausalLM

    def __call__(self, layer: tuple[Params, KeyValues], z: Array) -> Array:
        weights, past = layer
        # A stack of one layer: `lm.layer` picks its layer by a number.
        stack = {"layers": jax.tree.map(lambda leaf: leaf[None], weights)}
        return self.lm.layer(stack, 0, z[..., None, :], past=past)[..., 0, :]


def linear_plant(system: LinearSystem, start: Float[Array, "*batch dim"]) -> Plant:
    """The plant that is its own linearisation; the inputs' matrix is the identity.

    Example:
        >>> plant = linear_plant(LinearSystem(2 * jnp.ones((3, 1, 1))), jnp.array([1.0]))
        >>> trajectory(plant).ravel().tolist()
        [1.0, 2.0, 4.0, 8.0]
    """
    A = system.transitions
    drifts = jnp.zeros(A.shape[:2], A.dtype) if system.drifts is None else system.drifts
    return Plant(Partial(_advance_linear), (A, drifts), start)


def _advance_linear(layer: tuple[Array, Array], z: Array) -> Array:
    return jnp.einsum("ij,...j->...i", layer[0], z) + jnp.broadcast_to(layer[1], z.shape)


def trajectory(plant: Plant) -> Float[Array, "layers_and_one *batch dim"]:
    """The states without any control; see ``linear_plant`` for an example."""

    def step(z: Array, layer: Any) -> tuple[Array, Array]:
        return plant.advance(layer, z), z

    last, states = jax.lax.scan(step, plant.start, plant.layers)
    return jnp.concatenate([states, last[None]])


def layer_jacobians(
    plant: Plant, states: Float[Array, "layers_and_one *batch dim"]
) -> Float[Array, "layers dim dim"]:
    """``A_k`` at each state, all columns of a layer at once; the mean over a batch of states.

    Example:
        >>> plant = linear_plant(LinearSystem(2 * jnp.ones((3, 1, 1))), jnp.array([1.0]))
        >>> layer_jacobians(plant, trajectory(plant)).ravel().tolist()
        [2.0, 2.0, 2.0]
    """
    identity = jnp.eye(states.shape[-1], dtype=states.dtype)

    def one(entry: tuple[Any, Array]) -> Array:
        return forward_product(plant, *entry, identity)

    return jax.lax.map(one, (plant.layers, states[:-1]))


def forward_product(
    plant: Plant, layer: Any, z: Float[Array, "*batch dim"], directions: Float[Array, "dim columns"]
) -> Float[Array, "dim columns"]:
    """``A_k Y`` by Jacobian-vector products, the mean over a batch of states.

    Args:
        plant: The plant.
        layer: The entry of one layer in ``plant.layers``.
        z: States at the input of that layer.
        directions: ``Y``.

    Example:
        >>> plant = linear_plant(LinearSystem(jnp.array([[[1.0, 2.0], [0.0, 1.0]]])), jnp.ones(2))
        >>> layer = jax.tree.map(lambda leaf: leaf[0], plant.layers)
        >>> forward_product(plant, layer, plant.start, jnp.eye(2)).tolist()
        [[1.0, 2.0], [0.0, 1.0]]
    """
    _, linear = jax.linearize(lambda z: plant.advance(layer, z), z)

    def column(y: Array) -> Array:
        # States of a batch do not see each other: one tangent serves them all.
        return _mean(linear(jnp.broadcast_to(y, z.shape)))

    return jax.vmap(column, in_axes=1, out_axes=1)(directions)


def transpose_product(
    plant: Plant, layer: Any, z: Float[Array, "*batch dim"], directions: Float[Array, "dim columns"]
) -> Float[Array, "dim columns"]:
    """``A_k^T Y`` by vector-Jacobian products, the mean over a batch; see ``forward_product``.

    Example:
        >>> plant = linear_plant(LinearSystem(jnp.array([[[1.0, 2.0], [0.0, 1.0]]])), jnp.ones(2))
        >>> layer = jax.tree.map(lambda leaf: leaf[0], plant.layers)
        >>> transpose_product(plant, layer, plant.start, jnp.eye(2)).tolist()
        [[1.0, 0.0], [2.0, 1.0]]
    """
    _, pull = jax.vjp(lambda z: plant.advance(layer, z), z)

    def column(y: Array) -> Array:
        return _mean(pull(jnp.broadcast_to(y, z.shape))[0])

    return jax.vmap(column, in_axes=1, out_axes=1)(directions)


def linearize(
    jacobians: Float[Array, "layers dim dim"], states: Float[Array, "layers_and_one dim"]
) -> LinearSystem:
    """The linear system whose trajectory from ``states[0]`` is ``states``.

    Both may be means over prompts; the drift is ``c_k = z_{k+1} - A_k z_k``.

    Example:
        >>> system = linearize(jnp.full((1, 1, 1), 2.0), jnp.array([[1.0], [5.0]]))
        >>> system.drifts.tolist()
        [[3.0]]
    """
    moved = jnp.einsum("kij,kj->ki", jacobians, states[:-1])
    return LinearSystem(jacobians, states[1:] - moved)


def linearization_residuals(
    plant: Plant, system: LinearSystem, states: Float[Array, "layers_and_one *batch dim"]
) -> Float[Array, "layers *batch dim"]:
    """``phi_k(z_k) - A_k z_k - c_k``, what the linear system misses at each state.

    Example:
        >>> plant = linear_plant(LinearSystem(2 * jnp.ones((1, 1, 1))), jnp.ones(1))
        >>> guess = LinearSystem(jnp.ones((1, 1, 1)))
        >>> linearization_residuals(plant, guess, trajectory(plant)).tolist()
        [[1.0]]
    """
    linear = linear_plant(system, plant.start)

    def advance(advance: Partial, layers: PyTree) -> Array:
        return jax.lax.map(lambda entry: advance(*entry), (layers, states[:-1]))

    return advance(plant.advance, plant.layers) - advance(linear.advance, linear.layers)


def _mean(vectors: Array) -> Array:
    return vectors.reshape(-1, vectors.shape[-1]).mean(axis=0)


def jacobian_alignment(
    first: Float[Array, "layers dim dim"],
    second: Float[Array, "layers dim dim"],
    *,
    rank: int | None = None,
) -> Float[Array, " layers"]:
    r"""How alike the leading parts of two Jacobians of each layer are, in [0, 1].

    With the ``rank`` largest singular values and left vectors of both,
    :math:`\|\mathrm{diag}(s_1) U_1^T U_2\, \mathrm{diag}(s_2)\|_* / (\|s_1\| \|s_2\|)`.

    Args:
        first: Jacobians at one prompt.
        second: Jacobians at another.
        rank: How many; a twentieth of the dimension if not given, at least 1.

    Example:
        >>> A = jnp.diag(jnp.array([3.0, 1.0]))[None]
        >>> turned = jnp.array([[[0.0, 0.0], [3.0, 0.0]]])
        >>> jacobian_alignment(A, A).round(4).tolist(), jacobian_alignment(A, turned).tolist()
        ([1.0], [0.0])
    """
    count = max(1, first.shape[1] // 20) if rank is None else rank

    def leading(matrix: Array) -> tuple[Array, Array]:
        # Of the smaller problem A A^T: only its left vectors are asked for.
        values, vectors = jnp.linalg.eigh(matrix @ matrix.T)
        return jnp.sqrt(jnp.maximum(values[-count:], 0)), vectors[:, -count:]

    def one(pair: tuple[Array, Array]) -> Array:
        (s1, u1), (s2, u2) = leading(pair[0]), leading(pair[1])
        between = s1[:, None] * (u1.T @ u2) * s2[None, :]
        nuclear = jnp.linalg.svd(between, compute_uv=False).sum()
        return nuclear / (jnp.linalg.norm(s1) * jnp.linalg.norm(s2))

    return jax.lax.map(one, (first, second))

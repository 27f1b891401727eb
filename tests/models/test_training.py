"""Adapters, losses and the small sibling."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.stats

from jaxlab.data.text import encode_bytes, python_manual
from jaxlab.models.llama import CausalLM
from jaxlab.models.lora import init_lora, merge_lora
from jaxlab.models.losses import (
    PreferenceBatch,
    TokenBatch,
    dpo_loss,
    next_token_loss,
    prompt_mask,
    with_reference,
)
from jaxlab.models.small import SMALL, draw_windows, train, train_small
from tests.models.prompts import TINY, long_tokens, tiny_params

CONFIG = TINY["qwen2"]
LM = CausalLM(CONFIG)
PARAMS = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), tiny_params(CONFIG))
TOKENS = jnp.asarray(long_tokens(CONFIG.vocab_size, 40).reshape(4, 10))


def pairs():
    lengths = jnp.array([2, 3, 4, 5])
    mask = prompt_mask(lengths, jnp.array([10, 9, 8, 10]), time=10)
    return PreferenceBatch(
        TokenBatch(TOKENS, mask), TokenBatch((TOKENS * 3 + 1) % 61, mask[::-1]), jnp.zeros(4)
    )


def test_the_loss_is_cross_entropy_over_scored_tokens():
    mask = prompt_mask(jnp.array([0, 3, 9, 1]), jnp.array([10, 8, 10, 2]), time=10)
    loss = jax.jit(next_token_loss(LM))(PARAMS, TokenBatch(TOKENS, mask))
    logits = jax.jit(LM.logits)(PARAMS, TOKENS)
    terms = optax.softmax_cross_entropy_with_integer_labels(logits[:, :-1], TOKENS[:, 1:])
    scored = np.asarray(mask)[:, 1:]
    np.testing.assert_allclose(loss, np.asarray(terms)[scored].mean(), rtol=1e-12)
    assert scored.sum() == 9 + 5 + 1 + 1


def test_padding_at_the_right_does_not_change_the_loss():
    short = TokenBatch(TOKENS[:, :6], jnp.ones((4, 6), bool))
    long = TokenBatch(TOKENS, jnp.arange(10)[None] < jnp.full((4, 1), 6))
    loss = jax.jit(next_token_loss(LM))
    np.testing.assert_allclose(loss(PARAMS, short), loss(PARAMS, long), rtol=1e-12)


def test_dpo_is_the_logistic_loss_of_the_margin():
    batch = pairs()
    loss = jax.jit(dpo_loss(LM, beta=0.3))

    def answer(part):
        scores = np.asarray(LM.log_prob(PARAMS, part.tokens))
        return np.where(np.asarray(part.mask), scores, 0).sum(axis=1)

    margin = answer(batch.chosen) - answer(batch.rejected)
    expected = np.log1p(np.exp(-0.3 * margin)).mean()
    np.testing.assert_allclose(loss(PARAMS, batch), expected, rtol=1e-10)
    # At the reference itself nothing is preferred yet.
    referred = with_reference(LM, PARAMS, batch)
    np.testing.assert_allclose(referred.reference_margin, margin, rtol=1e-10)
    np.testing.assert_allclose(loss(PARAMS, referred), np.log(2), rtol=1e-12)


def test_a_step_on_dpo_prefers_the_chosen():
    batch = with_reference(LM, PARAMS, pairs())
    loss = jax.jit(jax.value_and_grad(dpo_loss(LM)))
    _, grads = loss(PARAMS, batch)
    moved = jax.tree.map(lambda leaf, g: leaf - 1e-3 * g, PARAMS, grads)
    assert float(loss(moved, batch)[0]) < np.log(2)


def test_adapters_add_a_low_rank_product():
    adapters = init_lora(jax.random.key(0), PARAMS, rank=2)
    assert sorted(adapters) == [
        "layers/attention/query/kernel",
        "layers/attention/value/kernel",
    ]
    key = jax.random.key(1)
    for path in adapters:
        b = adapters[path]["b"]
        adapters[path]["b"] = jax.random.normal(key, b.shape, b.dtype)
    merged = merge_lora(PARAMS, adapters, alpha=6.0)
    change = np.asarray(
        merged["layers"]["attention"]["query"]["kernel"]
        - PARAMS["layers"]["attention"]["query"]["kernel"]
    )
    pair = adapters["layers/attention/query/kernel"]
    for layer in range(CONFIG.num_layers):
        expected = 3.0 * np.asarray(pair["a"][layer]) @ np.asarray(pair["b"][layer])
        np.testing.assert_allclose(change[layer], expected, atol=1e-14)
        assert np.linalg.matrix_rank(change[layer]) == 2
    np.testing.assert_array_equal(
        merged["layers"]["mlp"]["up"]["kernel"], PARAMS["layers"]["mlp"]["up"]["kernel"]
    )


def test_only_adapters_are_trained():
    batch = TokenBatch(TOKENS, jnp.ones((4, 10), bool))
    loss = next_token_loss(LM)
    grads = jax.jit(jax.grad(lambda a: loss(merge_lora(PARAMS, a), batch)))(
        init_lora(jax.random.key(0), PARAMS, rank=2, targets=["gate", "down/kernel"])
    )
    # At the start b = 0, so that only b moves.
    assert all(float(jnp.abs(pair["a"]).max()) == 0 for pair in grads.values())
    assert all(float(jnp.abs(pair["b"]).max()) > 0 for pair in grads.values())


@pytest.mark.usefixtures("without_type_checks")
def test_bad_adapters_and_losses_are_named():
    adapters = init_lora(jax.random.key(0), PARAMS, rank=2)
    wrong = {"layers/attention/query/kernel": adapters["layers/attention/value/kernel"]}
    for call, message in (
        (lambda: init_lora(jax.random.key(0), PARAMS, rank=0), "rank must be at least 1"),
        (
            lambda: init_lora(jax.random.key(0), PARAMS, rank=1, targets=["nothing"]),
            "targets must each match a path of params, got 'nothing'",
        ),
        (
            lambda: init_lora(jax.random.key(0), PARAMS, rank=1, targets=["^norm/scale"]),
            r"targets must match kernels .* 'norm/scale'",
        ),
        (lambda: merge_lora(PARAMS, {"gone": {}}), "adapters must be for paths of params"),
        (lambda: merge_lora(PARAMS, wrong), "must multiply to the shape"),
        (lambda: dpo_loss(LM, beta=0.0), "beta must be positive, got 0.0"),
        (
            lambda: next_token_loss(LM)(
                PARAMS, TokenBatch(TOKENS, jnp.arange(10) < jnp.ones((4, 1)))
            ),
            "mask must be true at a token after the first",
        ),
        (
            lambda: draw_windows(jax.random.key(0), jnp.arange(3), batch_size=1, length=4),
            "tokens must be at least one window of 4, got 3",
        ),
        (lambda: train_small(jax.random.key(0), config=CONFIG), "a vocabulary of 256 bytes"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_training_is_the_loop_of_optax():
    tx = optax.adam(1e-2)
    loss = next_token_loss(LM)
    whole = jnp.asarray(long_tokens(CONFIG.vocab_size, 200))

    def draw(key):
        return draw_windows(key, whole, batch_size=2, length=8)

    key = jax.random.key(3)
    got, losses = jax.jit(lambda p: train(key, loss, p, draw, tx=tx, num_steps=3))(PARAMS)
    params, state = PARAMS, tx.init(PARAMS)
    step = jax.jit(jax.value_and_grad(loss))
    for i, draw_key in enumerate(jax.random.split(key, 3)):
        value, grads = step(params, draw(draw_key))
        updates, state = tx.update(grads, state, params)
        params = optax.apply_updates(params, updates)
        np.testing.assert_allclose(losses[i], value, rtol=1e-10)
    for one, two in zip(jax.tree.leaves(got), jax.tree.leaves(params), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-8, atol=1e-10)


def test_windows_begin_anywhere():
    batch = draw_windows(jax.random.key(0), jnp.arange(6), batch_size=64, length=4)
    assert batch.mask.all()
    assert {tuple(row) for row in batch.tokens.tolist()} == {
        (0, 1, 2, 3),
        (1, 2, 3, 4),
        (2, 3, 4, 5),
    }


def test_the_small_sibling_learns_english():
    lm, params, losses = train_small(jax.random.key(0), num_steps=60)
    count = sum(leaf.size for leaf in jax.tree.leaves(params))
    assert 200_000 < count < 500_000
    assert lm.config == SMALL
    frequencies = np.bincount(encode_bytes(python_manual()), minlength=256)
    entropy = scipy.stats.entropy(frequencies)
    assert losses[0] > 5
    # Better than the best that looks at one byte at a time.
    assert losses[-5:].mean() < entropy - 0.3

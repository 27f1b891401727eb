"""The model against itself seen another way, and against finite differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlab.core.checks import checked
from jaxlab.models.blocks import KeyValues
from jaxlab.models.cache import Control, decode_step, prefill
from jaxlab.models.config import LlamaConfig
from jaxlab.models.llama import CausalLM, unstack_layers
from jaxlab.models.losses import TokenBatch, next_token_loss
from tests.models.prompts import TINY, long_tokens, tiny_params

CONFIG = TINY["qwen2"]
LM = CausalLM(CONFIG)


@pytest.fixture(scope="module")
def params():
    return jax.tree.map(lambda leaf: leaf.astype(jnp.float64), tiny_params(CONFIG))


@pytest.fixture(scope="module")
def tokens():
    return jnp.asarray(long_tokens(CONFIG.vocab_size, 12))


@pytest.fixture(scope="module")
def logits(params, tokens):
    return jax.jit(LM.logits)(params, tokens)


def test_layers_one_by_one_are_the_scan(params, tokens, logits):
    states = LM.hidden_states(params, tokens)
    h = LM.embed(params, tokens)
    for i in range(CONFIG.num_layers):
        np.testing.assert_allclose(states[i], h, rtol=1e-12)
        h = LM.layer(params, i, h)
    np.testing.assert_allclose(states[-1], h, rtol=1e-12)
    np.testing.assert_allclose(LM.unembed(params, h), logits, rtol=1e-11)


@pytest.mark.parametrize("remat", [False, True])
def test_layers_apart_are_the_stack(params, tokens, remat):
    lm, apart = CausalLM(CONFIG, remat=remat), unstack_layers(params)
    assert unstack_layers(apart) is apart
    batch = TokenBatch(tokens, jnp.ones(12, bool))
    loss = next_token_loss(lm)

    @jax.jit
    def everything(params):
        product = jax.jvp(jax.grad(lambda p: loss(p, batch)), (params,), (params,))
        return product, lm.hidden_states(params, tokens), lm.key_values(params, tokens)

    (grad, product), *states = everything(apart)
    (expected_grad, expected_product), *expected_states = everything(params)
    for found, expected in (
        (grad, unstack_layers(expected_grad)),
        (product, unstack_layers(expected_product)),
        (states, expected_states),
    ):
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12), found, expected
        )
    h = lm.embed(apart, tokens)
    np.testing.assert_allclose(lm.layer(apart, 1, h), lm.layer(params, 1, h), rtol=1e-12)


def test_logits_do_not_see_later_tokens(params, tokens, logits):
    other = tokens.at[7].set((tokens[7] + 1) % CONFIG.vocab_size)
    changed = jax.jit(LM.logits)(params, other)
    np.testing.assert_array_equal(changed[:7], logits[:7])
    assert (jnp.abs(changed[7:] - logits[7:]).max(axis=-1) > 1e-6).all()


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_padded_batch_is_its_sequences_alone(params, tokens, logits, side):
    lengths = (12, 5, 1)
    rows, masks = [], []
    for length in lengths:
        pad = [jnp.full(12 - length, 3, tokens.dtype), tokens[:length]]
        real = [jnp.zeros(12 - length, bool), jnp.ones(length, bool)]
        rows.append(jnp.concatenate(pad if side == "left" else pad[::-1]))
        masks.append(jnp.concatenate(real if side == "left" else real[::-1]))
    batch = jax.jit(LM.logits)(params, jnp.stack(rows), mask=jnp.stack(masks))
    for row, mask, length in zip(batch, masks, lengths, strict=True):
        np.testing.assert_allclose(row[mask], logits[:length], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("before", [0, 1, 9])
def test_decoding_with_a_cache_is_the_forward_pass(params, tokens, logits, before):
    cache = prefill(LM, params, tokens[:before], slots=14)
    apart = unstack_layers(params)
    step = jax.jit(lambda p, cache, token: decode_step(LM, p, cache, token))
    for t in range(before, 12):
        got, cache = step(apart, cache, tokens[t])
        np.testing.assert_allclose(got, logits[t], rtol=1e-10, atol=1e-12)
    assert int(cache.length) == 12
    np.testing.assert_array_equal(cache.mask, jnp.arange(14) < 12)


def test_a_last_token_jacobian_differentiates_its_own_key_and_value(params, tokens):
    h = LM.embed(params, tokens)
    past: KeyValues = jax.tree.map(lambda leaf: leaf[0], LM.key_values(params, tokens[:-1]))

    @jax.jit
    def from_past(z):
        return LM.layer(params, 0, z[None], past=past)[0]

    @jax.jit
    def from_all(z):
        return LM.layer(params, 0, h.at[-1].set(z))[-1]

    np.testing.assert_allclose(from_past(h[-1]), from_all(h[-1]), rtol=1e-12)
    jacobian = jax.jit(jax.jacfwd(from_past))(h[-1])
    np.testing.assert_allclose(
        jacobian, jax.jit(jax.jacfwd(from_all))(h[-1]), rtol=1e-9, atol=1e-12
    )
    step = 1e-5
    differences = jax.vmap(lambda e: (from_all(h[-1] + e) - from_all(h[-1] - e)) / (2 * step))(
        step * jnp.eye(CONFIG.dim)
    ).T
    np.testing.assert_allclose(jacobian, differences, atol=1e-7)
    # A stale key and value of the token give another matrix: the test above can tell.
    stale: KeyValues = jax.tree.map(lambda leaf: leaf[0], LM.key_values(params, tokens))

    def with_stale(z):
        attended = LM.advance(
            jax.tree.map(lambda leaf: leaf[0], params["layers"]),
            z[None],
            jnp.array([11]),
            lambda keys, values: (stale, jnp.ones((1, 12), bool)),
        )
        return attended[0][0]

    assert jnp.abs(jax.jit(jax.jacfwd(with_stale))(h[-1]) - jacobian).max() > 1e-3


def test_hessian_vector_products_are_differences_of_gradients(params, tokens):
    batch = TokenBatch(tokens[None], jnp.ones((1, 12), bool))
    gradient = jax.jit(jax.grad(lambda p: next_token_loss(LM)(p, batch)))
    keys = iter(jax.random.split(jax.random.key(0), len(jax.tree.leaves(params))))
    v = jax.tree.map(lambda leaf: jax.random.normal(next(keys), leaf.shape, leaf.dtype), params)
    product = jax.jit(lambda p, v: jax.jvp(gradient, (p,), (v,))[1])(params, v)

    def moved(step):
        return gradient(jax.tree.map(lambda leaf, d: leaf + step * d, params, v))

    differences = jax.tree.map(lambda a, b: (a - b) / 2e-5, moved(1e-5), moved(-1e-5))
    for got, expected in zip(jax.tree.leaves(product), jax.tree.leaves(differences), strict=True):
        np.testing.assert_allclose(got, expected, atol=2e-6 * float(jnp.abs(got).max() + 1))


def test_rematerialisation_changes_memory_only(params, tokens):
    batch = TokenBatch(jnp.tile(tokens, (2, 4)), jnp.ones((2, 48), bool))
    gradients, bytes_used = {}, {}
    for remat in (False, True):
        loss = next_token_loss(CausalLM(CONFIG, remat=remat))
        compiled = jax.jit(jax.grad(loss)).lower(params, batch).compile()
        gradients[remat] = compiled(params, batch)
        bytes_used[remat] = compiled.memory_analysis().temp_size_in_bytes
    for one, two in zip(*map(jax.tree.leaves, gradients.values()), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-9, atol=1e-12)
    assert bytes_used[True] < 0.7 * bytes_used[False]


def test_log_probabilities_are_those_of_a_softmax(params, tokens, logits):
    table = np.asarray(jax.nn.log_softmax(logits))
    expected = [0.0] + [table[t, int(tokens[t + 1])] for t in range(11)]
    np.testing.assert_allclose(LM.log_prob(params, tokens), expected, rtol=1e-10)
    mask = jnp.arange(12) > 8
    np.testing.assert_allclose(
        LM.log_prob(params, tokens, mask), np.where(mask, expected, 0), rtol=1e-10
    )


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32, jnp.float64])
def test_parameters_decide_the_precision(params, tokens, logits, dtype):
    cast = jax.tree.map(lambda leaf: leaf.astype(dtype), params)
    assert jax.eval_shape(LM.hidden_states, cast, tokens).dtype == dtype
    got = jax.jit(LM.logits)(cast, tokens)
    assert got.dtype == jnp.promote_types(dtype, jnp.float32)
    error = jnp.abs(got - logits).max() / jnp.abs(logits).max()
    assert error < 30 * float(jnp.finfo(dtype).eps)


def test_rotary_factors_slow_the_frequencies(params, tokens, logits):
    ones = CausalLM(LlamaConfig(**{**vars(CONFIG), "rope_factors": (1.0,) * 3}))
    np.testing.assert_allclose(ones.logits(params, tokens), logits, rtol=1e-12)
    # Positions stretched by 2 with frequencies halved are the same angles.
    halved = CausalLM(LlamaConfig(**{**vars(CONFIG), "rope_factors": (2.0,) * 3}))
    h = LM.embed(params, tokens)
    layer = jax.tree.map(lambda leaf: leaf[0], params["layers"])

    def place(keys, values):
        present = KeyValues(keys, values, jnp.ones(12, bool))
        return present, jnp.tril(jnp.ones((12, 12), bool))

    at = jnp.arange(12)
    expected, _ = LM.advance(layer, h, at, place)
    got, _ = halved.advance(layer, h, 2 * at, place)
    np.testing.assert_allclose(got, expected, rtol=1e-9)
    assert jnp.abs(halved.layer(params, 0, h) - expected).max() > 1e-3


def test_control_sees_each_layer_and_changes_what_follows(params, tokens, logits):
    seen = []

    def note(state, i, before, after):
        seen.append((i, state, before.shape))
        return state + 1, after

    cache = prefill(LM, params, tokens[:-1], slots=12)
    got, _ = decode_step(LM, params, cache, tokens[-1], control=Control(lambda: 0, note))
    np.testing.assert_allclose(got, logits[-1], rtol=1e-10)
    assert seen == [(i, i, (CONFIG.dim,)) for i in range(CONFIG.num_layers)]

    def shift(state, i, before, after):
        return state, after + (1.0 if i == 1 else 0.0)

    got, _ = decode_step(LM, params, cache, tokens[-1], control=Control(lambda: 0, shift))
    h = LM.hidden_states(params, tokens)[2]
    expected = LM.unembed(params, LM.layer(params, 2, h.at[-1].add(1.0))[-1])
    np.testing.assert_allclose(got, expected, rtol=1e-10)


@pytest.mark.usefixtures("without_type_checks")
def test_bad_tokens_are_named(params):
    for call, message in (
        (lambda: LM.logits(params, jnp.zeros((2, 0), int)), "tokens must be 1 to 64"),
        (lambda: LM.logits(params, jnp.zeros(65, int)), r"context length\) .* got 65"),
        (lambda: LM.logits(params, jnp.array([1, 61])), "tokens must be in 0 to 60, got"),
        (lambda: LM.logits(params, jnp.array([-1])), "tokens must be in 0 to 60, got"),
        (lambda: prefill(LM, params, jnp.zeros(9, int), slots=8), "slots must be at least the 9"),
        (lambda: prefill(LM, params, jnp.zeros(9, int), slots=65), "at most the context length"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(Exception, match="tokens must be in 0 to 60"):
        checked(jax.jit(LM.logits))(params, jnp.array([1, 61]))


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"dim": 25}, "dim must be a multiple of num_heads = 4"),
        ({"num_kv_heads": 3}, "num_heads must be a multiple of num_kv_heads = 3, got 4"),
        ({"head_dim": 5}, "head_dim must be even for rotation, got 5"),
        ({"num_layers": 0}, "num_layers must be at least 1, got 0"),
        ({"rope_factors": (1.0,)}, "rope_factors must be 3 numbers, half of head_dim, got 1"),
        ({"rope_theta": 0.0}, "rope_theta must be positive, got 0.0"),
        ({"norm_eps": 0.0}, "norm_eps must be positive, got 0.0"),
    ],
)
def test_sizes_that_do_not_fit_are_named(sizes, message):
    whole = {"vocab_size": 61, "dim": 24, "num_layers": 3, "num_heads": 4, "mlp_dim": 40}
    with pytest.raises(ValueError, match=message):
        LlamaConfig(**{**whole, **sizes})

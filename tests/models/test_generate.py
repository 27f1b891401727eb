"""Generation against slow loops, and the laws of its draws."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlab.models.cache import Control
from jaxlab.models.generate import choose_token, generate, pad_prompts
from jaxlab.models.llama import CausalLM
from tests.models.prompts import TINY, tiny_params

CONFIG = TINY["llama"]
LM = CausalLM(CONFIG)
PARAMS = tiny_params(CONFIG)
PROMPTS = [[5, 3, 8, 60, 2, 9], [7], [1, 1, 44]]
LOGITS = jnp.array([0.3, 2.0, -1.0, 1.5, 0.1])


def slow_greedy(prompt, new):
    """A forward pass over everything for every token."""
    forward = jax.jit(LM.logits)
    padded = np.zeros(16, np.int32)
    padded[: len(prompt)] = prompt
    for length in range(len(prompt), len(prompt) + new):
        padded[length] = int(jnp.argmax(forward(PARAMS, jnp.asarray(padded))[length - 1]))
    return padded[len(prompt) : len(prompt) + new].tolist()


def law(**options):
    """The relative frequencies of 20 000 draws."""
    keys = jax.random.split(jax.random.key(1), 20_000)
    draws = jax.jit(jax.vmap(lambda key: choose_token(key, LOGITS, **options)))(keys)
    return np.bincount(np.asarray(draws), minlength=5) / 20_000


@pytest.fixture(scope="module")
def continued():
    tokens, mask = pad_prompts(PROMPTS, shortest=8)
    return jax.jit(functools.partial(generate, LM, max_new_tokens=8))(PARAMS, tokens, mask=mask)


def test_greedy_batches_are_the_slow_loop(continued):
    expected = [slow_greedy(prompt, 8) for prompt in PROMPTS]
    np.testing.assert_array_equal(continued.tokens, expected)
    assert continued.mask.all()


def test_scores_are_log_probabilities(continued):
    for row, prompt in enumerate(PROMPTS):
        whole = jnp.asarray(prompt + continued.tokens[row].tolist())
        expected = LM.log_prob(PARAMS, whole)[len(prompt) :]
        np.testing.assert_allclose(continued.log_probs[row], expected, atol=1e-5)


def test_stop_tokens_end_a_sequence(continued):
    stop = int(continued.tokens[0, 2])
    tokens, mask = pad_prompts(PROMPTS, shortest=8)
    stopped = generate(LM, PARAMS, tokens, max_new_tokens=8, mask=mask, stop_tokens=(stop, 61))
    for row in range(3):
        free = continued.tokens[row].tolist()
        length = free.index(stop) + 1 if stop in free else 8
        assert stopped.tokens[row].tolist() == free[:length] + [0] * (8 - length)
        assert stopped.mask[row].tolist() == [True] * length + [False] * (8 - length)
        assert (stopped.log_probs[row, length:] == 0).all()
    assert 1 <= int(stopped.mask[0].sum()) <= 3


def test_draws_follow_the_softmax_at_a_temperature():
    for temperature in (0.5, 2.0):
        expected = np.exp(np.asarray(LOGITS) / temperature)
        expected /= expected.sum()
        np.testing.assert_allclose(law(temperature=temperature), expected, atol=0.015)


def test_top_k_and_top_p_keep_the_likeliest():
    softmax = np.exp(np.asarray(LOGITS)) / np.exp(np.asarray(LOGITS)).sum()
    two = np.where(np.arange(5) % 2 == 1, softmax, 0)
    np.testing.assert_allclose(law(temperature=1.0, top_k=2), two / two.sum(), atol=0.015)
    # 1 and 3 have 0.808 together: 0.78 needs no third, 0.83 does.
    assert 0.78 < two.sum() < 0.83
    np.testing.assert_allclose(law(temperature=1.0, top_p=0.78), two / two.sum(), atol=0.015)
    three = np.where(np.isin(np.arange(5), [0, 1, 3]), softmax, 0)
    np.testing.assert_allclose(law(temperature=1.0, top_p=0.83), three / three.sum(), atol=0.015)
    assert law(temperature=1.0, top_p=1e-6)[1] == 1
    # After top-k the kept tokens are renormalised: the first alone has 0.62 of two.
    assert law(temperature=1.0, top_k=2, top_p=0.6)[1] == 1


def test_a_traced_temperature_of_zero_is_greedy():
    choose = jax.jit(lambda key, t: choose_token(key, LOGITS, temperature=t, top_k=3))
    assert all(int(choose(jax.random.key(i), 0.0)) == 1 for i in range(5))
    assert len({int(choose(jax.random.key(i), 3.0)) for i in range(30)}) == 3


def test_keys_decide_the_draws():
    tokens = jnp.array([[5, 3], [5, 3]])
    draw = jax.jit(
        lambda key: generate(LM, PARAMS, tokens, key, max_new_tokens=12, temperature=1.0)
    )
    first, again, other = (draw(jax.random.key(i)).tokens for i in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    assert (first[0] != first[1]).any()


def test_steps_are_drawn_independently():
    # Without a last norm all logits are 0, and every token is as likely as any other.
    flat = {**PARAMS, "norm": {"scale": jnp.zeros(CONFIG.dim, jnp.float32)}}
    go = jax.jit(
        lambda key: (
            generate(
                LM, flat, jnp.array([1]), key, max_new_tokens=40, top_k=2, temperature=1.0
            ).tokens
        )
    )
    ones = int(go(jax.random.key(0)).sum())
    assert 8 <= ones <= 32  # a fair coin is outside once in 10 000 times


def test_one_compilation_serves_a_bucket():
    traces = []

    @jax.jit
    def run(tokens, mask):
        traces.append(tokens.shape)
        return generate(LM, PARAMS, tokens, mask=mask, max_new_tokens=2).tokens

    for length in (2, 3, 8, 9, 16):
        run(*pad_prompts([list(range(length))], shortest=8))
    assert traces == [(1, 8), (1, 16)]


def test_control_steers_every_new_token():
    target = 17
    row = PARAMS["embed"]["embedding"][target] / PARAMS["norm"]["scale"]

    def push(state, i, before, after):
        last = i == CONFIG.num_layers - 1
        return state, after + (1e4 * row if last else 0.0)

    control = Control(lambda: None, push)
    steered = generate(LM, PARAMS, jnp.array([1, 2]), max_new_tokens=3, control=control)
    h = LM.hidden_states(PARAMS, jnp.array([1, 2]))[-1, -1]
    expected = int(jnp.argmax(LM.unembed(PARAMS, h + 1e4 * row)))
    assert steered.tokens.tolist() == [expected] * 3


@pytest.mark.usefixtures("without_type_checks")
def test_bad_calls_are_named():
    go = functools.partial(generate, LM, PARAMS)
    one = jnp.array([1, 2])
    for call, error, message in (
        (lambda: go(jnp.zeros(0, int), max_new_tokens=2), ValueError, "tokens must be 1 to 62"),
        (lambda: go(jnp.zeros(63, int), max_new_tokens=2), ValueError, "got 63"),
        (lambda: go(one, max_new_tokens=0), ValueError, "max_new_tokens must be at least 1"),
        (lambda: go(one, max_new_tokens=2, temperature=1.0), TypeError, "key must be a typed"),
        (
            lambda: go(one, max_new_tokens=2, mask=jnp.array([True, False])),
            ValueError,
            r"mask must be true at the last token \(pad left\)",
        ),
        (lambda: choose_token(None, LOGITS, temperature=-1.0), ValueError, "at least 0, got -1"),
        (
            lambda: choose_token(jax.random.key(0), LOGITS, temperature=1.0, top_p=0.0),
            ValueError,
            r"top_p must be in \(0, 1\], got 0.0",
        ),
        (
            lambda: choose_token(jax.random.key(0), LOGITS, temperature=1.0, top_k=0),
            ValueError,
            "top_k must be at least 1, got 0",
        ),
        (lambda: pad_prompts([]), ValueError, "prompts must each have a token, got 0 prompts"),
        (lambda: pad_prompts([[1], []]), ValueError, r"lengths \[1, 0\]"),
    ):
        with pytest.raises(error, match=message):
            call()

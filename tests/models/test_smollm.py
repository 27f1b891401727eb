"""SmolLM2-135M-Instruct: the ids and log probabilities that transformers gives.

The numbers are written by ``tests/peers/tokenizer_parity.py`` and ``tests/peers/model_files.py``.
"""

import json
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlab.models.config import LlamaConfig
from tests.peers.texts import digest, texts

pytestmark = pytest.mark.lm

DATA = Path(__file__).parent / "golden"


@pytest.mark.parametrize("special", [False, True])
def test_ids_of_a_thousand_texts(smollm, special):
    golden = np.load(DATA / "smollm2_ids.npz")
    some = texts()
    assert digest(some) == str(golden["digest"])
    name = "special" if special else "plain"
    ends = np.cumsum(golden[f"{name}_sizes"].astype(int))
    expected = np.split(golden[name], ends[:-1])
    wrong = [
        text
        for text, ids in zip(some, expected, strict=True)
        if smollm.tokenizer.encode(text, special=special) != ids.tolist()
    ]
    assert not wrong
    assert len(expected) == 1000


def test_a_thousand_texts_come_back(smollm):
    encode, decode = smollm.tokenizer.encode, smollm.tokenizer.decode
    assert [text for text in texts(seed=1) if decode(encode(text)) != text] == []


def test_bytes_that_the_vocabulary_lacks_are_dropped(smollm):
    # As the model's own tokenizer does.
    encode, decode = smollm.tokenizer.encode, smollm.tokenizer.decode
    assert decode(encode("(\x04)")) == "()"
    assert decode(encode("(\x05)")) == "(\x05)"


def test_special_tokens(smollm):
    tokenizer = smollm.tokenizer
    assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.pad_id) == (1, 2, 2)
    assert not tokenizer.adds_bos
    assert len(tokenizer.special_ids) == 17
    assert tokenizer.encode("<|im_end|>", special=True) == [2]
    assert len(tokenizer.encode("<|im_end|>")) > 1


def test_a_conversation(smollm):
    text = smollm.tokenizer.chat([{"role": "user", "content": "Hi <|im_end|>"}])
    assert text == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
        "<|im_end|>\n<|im_start|>user\nHi <|im_end|><|im_end|>\n<|im_start|>assistant\n"
    )


def test_the_sizes(smollm):
    assert smollm.lm.config == LlamaConfig(
        vocab_size=49152,
        dim=576,
        num_layers=30,
        num_heads=9,
        num_kv_heads=3,
        mlp_dim=1536,
        context_length=8192,
        rope_theta=100_000.0,
        norm_eps=1e-5,
    )
    assert sum(leaf.size for leaf in jax.tree.leaves(smollm.params)) == 134_515_008
    assert {leaf.dtype.name for leaf in jax.tree.leaves(smollm.params)} == {"float32"}


def test_log_probabilities(smollm):
    golden = json.loads((DATA / "smollm2_log_probs.json").read_text())
    assert len(golden) == 2
    ids = [smollm.tokenizer.encode(entry["text"]) for entry in golden]
    padded = np.zeros((2, max(map(len, ids))), int)
    for row, some in zip(padded, ids, strict=True):
        row[: len(some)] = some
    got = jax.jit(smollm.lm.log_prob)(smollm.params, jnp.asarray(padded))
    for row, entry, some in zip(got, golden, ids, strict=True):
        assert row[0] == 0
        np.testing.assert_allclose(row[1 : len(some)], entry["log_probs"], atol=1e-3)
        assert np.min(entry["log_probs"]) < -5


@pytest.mark.parametrize("page", ["README.md", "docs/language-models.md"])
def test_examples_of_the_pages(page):
    # Sybil skips them, since they need the weights.
    text = (Path(__file__).parents[2] / page).read_text()
    code = re.search(r"<!-- skip: next -->\s+```python\n(.*?)```", text, re.DOTALL)
    assert code is not None
    names = {}
    exec(compile(code[1], page, "exec"), names)
    if "texts" in names:
        assert len(names["texts"]) == 2
        assert all(len(text) > 40 for text in names["texts"])

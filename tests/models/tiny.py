"""Tiny models and their files, written without the code under test."""

import gguf
import jax
import jax.numpy as jnp
import numpy as np

from jaxlab.models import CausalLM, LlamaConfig

# A vocabulary of all bytes and two merges, as GPT-2 writes bytes.
BYTES = [chr(c) for c in (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))]
OTHERS = [chr(0x100 + i) for i in range(256 - len(BYTES))]
TOKENS = ["<|end|>", "<|user|>", *BYTES, *OTHERS, "th", "the", "Ġthe"]
MERGES = ["t h", "th e", "Ġ the"]
CONTROL = 3


def model(**sizes):
    """A model whose arrays all differ, and its parameters."""
    defaults = {
        "vocab_size": len(TOKENS),
        "dim": 16,
        "num_layers": 2,
        "num_heads": 4,
        "mlp_dim": 12,
    }
    lm = CausalLM(LlamaConfig(**(defaults | {"num_kv_heads": 2} | sizes)))
    random = np.random.default_rng(0)
    return lm, jax.tree.map(
        lambda leaf: jnp.asarray(random.normal(size=leaf.shape), leaf.dtype), lm.shapes()
    )


def named(lm, params, names):
    """Tensors by their names in a file, linear maps as [out, in]."""
    tensors = {names["embed"]: params["embed"]["embedding"], names["norm"]: params["norm"]["scale"]}
    if not lm.config.tied_embeddings:
        tensors[names["head"]] = params["head"]["kernel"].T
    layers = params["layers"]
    for i in range(lm.config.num_layers):
        at = names["layer"].format(i)
        tensors[at + names["attention_norm"]] = layers["attention_norm"]["scale"][i]
        tensors[at + names["mlp_norm"]] = layers["mlp_norm"]["scale"][i]
        for group, parts in (("attention", "query key value output"), ("mlp", "gate up down")):
            for part in parts.split():
                tensors[at + names[part] + ".weight"] = layers[group][part]["kernel"][i].T
                if "bias" in layers[group][part]:
                    tensors[at + names[part] + ".bias"] = layers[group][part]["bias"][i]
    return {name: np.asarray(tensor) for name, tensor in tensors.items()}


GGUF_NAMES = {
    "embed": "token_embd.weight",
    "norm": "output_norm.weight",
    "head": "output.weight",
    "layer": "blk.{}.",
    "attention_norm": "attn_norm.weight",
    "mlp_norm": "ffn_norm.weight",
    "query": "attn_q",
    "key": "attn_k",
    "value": "attn_v",
    "output": "attn_output",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
}
HUGGING_FACE_NAMES = {
    "embed": "model.embed_tokens.weight",
    "norm": "model.norm.weight",
    "head": "lm_head.weight",
    "layer": "model.layers.{}.",
    "attention_norm": "input_layernorm.weight",
    "mlp_norm": "post_attention_layernorm.weight",
    "query": "self_attn.q_proj",
    "key": "self_attn.k_proj",
    "value": "self_attn.v_proj",
    "output": "self_attn.o_proj",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
}


def interleaved(rows, head_dim):
    """Rows ``i`` and ``i + head_dim / 2`` of every head next to each other, as in GGUF of Llama."""
    order = [half * (head_dim // 2) + i for i in range(head_dim // 2) for half in (0, 1)]
    heads = range(0, len(rows), head_dim)
    return np.concatenate([rows[start : start + head_dim][order] for start in heads])


def gguf_tensors(lm, params, architecture="llama"):
    """The tensors of a model under the names, and in the order of rows, of GGUF."""
    tensors = named(lm, params, GGUF_NAMES)
    if architecture == "llama":
        for name in tensors:
            if "attn_q." in name or "attn_k." in name:
                tensors[name] = interleaved(tensors[name], lm.config.head_dim)
    return tensors


def write_gguf(
    path, config, tensors, *, architecture="llama", kinds=None, drop=(), tokenizer=True, **extra
):
    """Write a GGUF file.

    ``kinds`` gives tensors that are bytes already their quantisation, ``drop`` leaves keys out, and
    ``extra`` adds or replaces keys of the architecture, by their names with ``__`` for a dot.
    """
    writer = gguf.GGUFWriter(path, architecture)
    keys = {
        "block_count": config.num_layers,
        "context_length": config.context_length,
        "embedding_length": config.dim,
        "feed_forward_length": config.mlp_dim,
        "attention.head_count": config.num_heads,
        "attention.head_count_kv": config.num_kv_heads,
        "rope.freq_base": config.rope_theta,
        "attention.layer_norm_rms_epsilon": config.norm_eps,
    } | {key.replace("__", "."): value for key, value in extra.items()}
    add = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
    for key, value in keys.items():
        if key not in drop:
            add[type(value)](f"{architecture}.{key}", value)
    if tokenizer:
        write_gguf_tokenizer(writer, drop)
    for name, tensor in tensors.items():
        writer.add_tensor(name, tensor, raw_dtype=(kinds or {}).get(name))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_gguf_tokenizer(writer, drop=()):
    values = {
        "model": "gpt2",
        "pre": "gpt-2",
        "tokens": TOKENS,
        "token_type": [CONTROL, CONTROL, *[1] * (len(TOKENS) - 2)],
        "merges": MERGES,
        "eos_token_id": 0,
        "bos_token_id": 1,
    }
    add = {str: writer.add_string, list: writer.add_array, int: writer.add_uint32}
    for key, value in values.items():
        if key not in drop:
            add[type(value)](f"tokenizer.ggml.{key}", value)


def assert_equal(a, b):
    """Trees are equal in structure, dtypes and every bit."""
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for (path, x), y in zip(
        jax.tree_util.tree_leaves_with_path(a), jax.tree.leaves(b), strict=True
    ):
        assert x.dtype == y.dtype, path
        np.testing.assert_array_equal(np.asarray(x), np.asarray(y), err_msg=str(path))

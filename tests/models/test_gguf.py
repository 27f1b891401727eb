"""Weights from GGUF files that the package gguf writes."""

import gguf
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Kind

from jaxlab.models.blocks import rotate
from jaxlab.models.gguf_files import gguf_model
from jaxlab.models.gguf_header import open_gguf
from tests.models import blocks, tiny

# Where the half-precision scales of blocks are that only llama.cpp itself can write.
SCALES = {
    Kind.Q2_K: (80, 82),
    Kind.Q3_K: (108,),
    Kind.Q4_K: (0, 2),
    Kind.Q5_K: (0, 2),
    Kind.Q6_K: (208,),
}
WRITTEN = ("F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1")


def read(path, **options):
    return gguf_model(open_gguf(path), **options)


@pytest.mark.parametrize("architecture", ["llama", "qwen2"])
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_a_model_comes_back(tmp_path, architecture, tied, bias):
    lm, params = tiny.model(
        tied_embeddings=tied, attention_bias=bias, rope_theta=5e5, norm_eps=1e-6
    )
    tensors = tiny.gguf_tensors(lm, params, architecture)
    tiny.write_gguf(tmp_path / "m.gguf", lm.config, tensors, architecture=architecture)
    loaded, got = read(tmp_path / "m.gguf")
    assert loaded == lm
    tiny.assert_equal(got, params)


@pytest.mark.parametrize(("architecture", "step"), [("llama", 2), ("qwen2", 1)])
def test_scores_are_those_of_the_rotation_that_the_file_is_meant_for(tmp_path, architecture, step):
    # Llama's files rotate neighbours, Qwen2's the two halves.
    lm, params = tiny.model()
    config = lm.config
    tensors = tiny.gguf_tensors(lm, params, architecture)
    tiny.write_gguf(tmp_path / "m.gguf", config, tensors, architecture=architecture)
    x = np.random.default_rng(0).normal(size=(2, config.dim))
    half = config.head_dim // 2
    first = np.arange(0, config.head_dim, 2) if step == 2 else np.arange(half)
    second = first + (1 if step == 2 else half)

    def by_hand(part, position, head):
        rows = tensors[f"blk.1.attn_{part}.weight"].astype(float).reshape(-1, config.head_dim, 16)
        vector = rows[head] @ x[0 if part == "q" else 1]
        turn = np.exp(1j * position * config.rope_theta ** (-np.arange(half) / half))
        return (vector[first] + 1j * vector[second]) * turn

    layer = jax.tree.map(lambda leaf: leaf[1], read(tmp_path / "m.gguf")[1]["layers"]["attention"])

    def ours(part, row, position, head):
        vector = jnp.asarray(x[row]) @ layer[part]["kernel"].astype(float)
        heads = vector.reshape(1, -1, config.head_dim)
        return rotate(heads, jnp.array([position]), config)[0, head]

    for head in range(config.num_heads):
        expected = np.vdot(by_hand("k", 3, head // 2), by_hand("q", 7, head)).real
        got = ours("query", 0, 7, head) @ ours("key", 1, 3, head // 2)
        np.testing.assert_allclose(got, expected, rtol=1e-6)


@pytest.mark.parametrize("kind", [*WRITTEN, *(kind.name for kind in SCALES)])
def test_quantised_weights(tmp_path, kind):
    lm, params = tiny.model(dim=256, mlp_dim=256, num_layers=1, num_heads=2, num_kv_heads=1)
    tensors = tiny.gguf_tensors(lm, params, "qwen2")
    random = np.random.default_rng(0)
    quantisation = Kind[kind]
    kinds = {}
    for name, tensor in tensors.items():
        if tensor.ndim < 2:
            continue
        kinds[name] = quantisation
        if quantisation in SCALES:
            size = gguf.GGML_QUANT_SIZES[quantisation][1]
            data = random.integers(0, 256, (len(tensor), size), np.uint8)
            for at in SCALES[quantisation]:
                scales = random.normal(size=(len(tensor), 1)).astype("<f2")
                data[:, at : at + 2] = scales.view(np.uint8)
            tensors[name] = data
        else:
            tensors[name] = gguf.quants.quantize(tensor, quantisation)
    path = tmp_path / "m.gguf"
    tiny.write_gguf(path, lm.config, tensors, architecture="qwen2", kinds=kinds)
    got = read(path)[1]["layers"]
    for part, name in (("attention.key", "attn_k"), ("mlp.down", "ffn_down")):
        group, leaf = part.split(".")
        stored = tensors[f"blk.0.{name}.weight"]
        if kind == "F16":
            expected = stored.astype(np.float32)
        elif kind == "BF16":
            expected = stored.view("<u2").astype(np.uint32) << 16
            expected = expected.view(np.float32)
        else:
            size = gguf.GGML_QUANT_SIZES[quantisation][1]
            expected = getattr(blocks, kind.lower())(stored.reshape(-1, size))
        expected = expected.reshape(len(stored), 256).T
        np.testing.assert_allclose(got[group][leaf]["kernel"][0], expected, rtol=1e-6, atol=1e-6)


def test_the_header_reads_what_the_package_reads(tmp_path):
    lm, params = tiny.model()
    tiny.write_gguf(tmp_path / "m.gguf", lm.config, tiny.gguf_tensors(lm, params))
    ours, peer = open_gguf(tmp_path / "m.gguf"), gguf.GGUFReader(tmp_path / "m.gguf")
    fields = {k: f.contents() for k, f in peer.fields.items() if not k.startswith("GGUF.")}
    assert dict(ours.metadata) == fields
    assert list(ours.tensors) == [tensor.name for tensor in peer.tensors]
    for tensor in peer.tensors:
        np.testing.assert_array_equal(ours.tensors[tensor.name].data, tensor.data.view(np.uint8))


def test_factors_of_the_frequencies(tmp_path):
    lm, params = tiny.model(rope_factors=(1.0, 8.0))
    tensors = tiny.gguf_tensors(lm, params)
    factors = {"rope_freqs.weight": np.array([1.0, 8.0], np.float32)}
    tiny.write_gguf(tmp_path / "m.gguf", lm.config, tensors | factors)
    assert read(tmp_path / "m.gguf")[0].config == lm.config
    tiny.write_gguf(tmp_path / "l.gguf", lm.config, tensors, rope__scaling__type="linear",
                    rope__scaling__factor=4.0)  # fmt: skip
    assert read(tmp_path / "l.gguf")[0].config.rope_factors == (4.0, 4.0)


def test_other_dtypes(tmp_path):
    lm, params = tiny.model()
    tiny.write_gguf(tmp_path / "m.gguf", lm.config, tiny.gguf_tensors(lm, params))
    for dtype in (jnp.bfloat16, jnp.float16, jnp.float64):
        _, got = read(tmp_path / "m.gguf", dtype=dtype)
        tiny.assert_equal(got, jax.tree.map(lambda leaf, to=dtype: leaf.astype(to), params))


def test_remat_is_passed_on(tmp_path):
    lm, params = tiny.model()
    tiny.write_gguf(tmp_path / "m.gguf", lm.config, tiny.gguf_tensors(lm, params))
    assert read(tmp_path / "m.gguf", remat=True)[0].remat

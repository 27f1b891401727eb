"""Weights from and into the folders of Hugging Face."""

import json
import math

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from jaxlab.models.safetensors_folders import export_safetensors, folder_model
from tests.models import tiny

DTYPES = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}


def write_folder(folder, lm, params, *, dtype=np.float32, shards=1, **config):
    """A folder as transformers saves it, without the code under test."""
    c = lm.config
    written = {
        "architectures": ["Qwen2ForCausalLM" if c.attention_bias else "LlamaForCausalLM"],
        "hidden_size": c.dim,
        "intermediate_size": c.mlp_dim,
        "max_position_embeddings": c.context_length,
        "num_attention_heads": c.num_heads,
        "num_hidden_layers": c.num_layers,
        "num_key_value_heads": c.num_kv_heads,
        "rms_norm_eps": c.norm_eps,
        "rope_theta": c.rope_theta,
        "tie_word_embeddings": c.tied_embeddings,
        "vocab_size": c.vocab_size,
    } | config
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(written))
    tensors = tiny.named(lm, params, tiny.HUGGING_FACE_NAMES)
    tensors = {name: np.ascontiguousarray(t.astype(dtype)) for name, t in tensors.items()}
    if shards == 1:
        save_file(tensors, folder / "model.safetensors")
        return tensors
    where = {}
    for i in range(shards):
        file = f"model-{i + 1:05}-of-{shards:05}.safetensors"
        part = {name: tensors[name] for name in list(tensors)[i::shards]}
        save_file(part, folder / file)
        where |= dict.fromkeys(part, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    return tensors


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("tied", "bias", "shards"), [(True, False, 1), (False, True, 3)])
def test_a_model_comes_back(tmp_path, dtype, tied, bias, shards):
    lm, params = tiny.model(tied_embeddings=tied, attention_bias=bias)
    write_folder(tmp_path, lm, params, dtype=DTYPES[dtype], shards=shards)
    loaded, got = folder_model(tmp_path, dtype=dtype)
    assert loaded == lm
    tiny.assert_equal(
        got, jax.tree.map(lambda leaf: np.asarray(leaf).astype(DTYPES[dtype]), params)
    )
    _, single = folder_model(tmp_path)
    rounded = jax.tree.map(
        lambda leaf: np.asarray(leaf).astype(DTYPES[dtype]).astype(np.float32), params
    )
    tiny.assert_equal(single, rounded)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "sizes",
    [
        {},
        {"tied_embeddings": False, "attention_bias": True},
        {"rope_factors": (1.0, 7.3), "rope_theta": 5e5, "norm_eps": 1e-6, "head_dim": 4},
        {"num_kv_heads": 4, "head_dim": 6, "context_length": 99},
    ],
)
def test_an_exported_model_comes_back_bit_by_bit(tmp_path, sizes, dtype):
    lm, params = tiny.model(**sizes)
    params = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), params)
    export_safetensors(tmp_path / "out", lm, params)
    loaded, got = folder_model(tmp_path / "out", dtype=dtype)
    assert loaded == lm
    tiny.assert_equal(got, params)


def test_an_exported_file_holds_what_transformers_expects(tmp_path):
    lm, params = tiny.model(attention_bias=True)
    expected = write_folder(tmp_path / "by hand", lm, params)
    export_safetensors(tmp_path / "out", lm, params)
    written = load_file(tmp_path / "out" / "model.safetensors")
    assert written.keys() == expected.keys()
    for name, tensor in expected.items():
        np.testing.assert_array_equal(written[name], tensor)
    by_hand, config = (
        json.loads((tmp_path / folder / "config.json").read_text()) for folder in ("by hand", "out")
    )
    assert by_hand.items() <= config.items()


def test_export_is_whole_or_not_at_all(tmp_path):
    lm, params = tiny.model()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("keep me")
    with pytest.raises(ValueError, match="folder must not exist or be empty, got"):
        export_safetensors(tmp_path / "full", lm, params)
    wrong = {**params, "norm": {"scale": params["norm"]["scale"][:-1]}}
    with pytest.raises(
        ValueError, match=r"params: model\.norm\.weight must have the shape \(16,\)"
    ):
        export_safetensors(tmp_path / "out", lm, wrong)
    with pytest.raises(ValueError, match=r"params must have norm\.scale"):
        export_safetensors(tmp_path / "out", lm, {**params, "norm": {}})
    assert [path.name for path in tmp_path.iterdir()] == ["full"]


class Unwritable:
    """Fails as a tokenizer does whose file cannot be written, when the weights are."""

    bos_id = eos_id = pad_id = None

    @property
    def backend(self):
        raise OSError("the disk is full")


@pytest.mark.usefixtures("without_type_checks")
def test_a_failure_leaves_nothing(tmp_path):
    lm, params = tiny.model()
    with pytest.raises(OSError, match="the disk is full"):
        export_safetensors(tmp_path / "out", lm, params, Unwritable())  # pyright: ignore
    assert not list(tmp_path.iterdir())


def llama3_frequency(frequency, *, factor, low, high, context):
    """The rule of Llama 3.1, one frequency at a time."""
    wavelength = 2 * math.pi / frequency
    if wavelength > context / low:
        return frequency / factor
    if wavelength < context / high:
        return frequency
    smooth = (context / wavelength - low) / (high - low)
    return (1 - smooth) * frequency / factor + smooth * frequency


@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
def test_factors_of_llama_3(tmp_path, key):
    lm, params = tiny.model(head_dim=64, num_heads=2, num_kv_heads=1, rope_theta=500_000.0)
    rope = {
        "rope_type": "llama3",
        "rope_theta": 500_000.0,
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    write_folder(tmp_path, lm, params, head_dim=64, **{key: rope})
    config = folder_model(tmp_path)[0].config
    frequencies = [500_000.0 ** (-i / 32) for i in range(32)]
    expected = [
        frequency / llama3_frequency(frequency, factor=32, low=1, high=4, context=8192)
        for frequency in frequencies
    ]
    np.testing.assert_allclose(config.rope_factors, expected, rtol=1e-12)
    assert expected[0] == 1
    assert expected[-1] == 32
    assert sum(1 < x < 32 for x in expected) > 1


def test_other_factors(tmp_path):
    lm, params = tiny.model()
    for i, (rope, expected) in enumerate(
        (
            ({"type": "linear", "factor": 2.0}, (2.0, 2.0)),
            ({"rope_type": "default", "rope_theta": 10_000.0}, None),
        )
    ):
        write_folder(tmp_path / str(i), lm, params, rope_scaling=rope)
        assert folder_model(tmp_path / str(i))[0].config.rope_factors == expected


@pytest.mark.parametrize("same", [True, False])
def test_a_head_that_is_stored_although_it_is_tied(tmp_path, same):
    lm, params = tiny.model()
    tensors = write_folder(tmp_path, lm, params)
    head = tensors["model.embed_tokens.weight"] + (not same)
    save_file(tensors | {"lm_head.weight": head}, tmp_path / "model.safetensors")
    if same:
        tiny.assert_equal(folder_model(tmp_path)[1], params)
    else:
        with pytest.raises(ValueError, match=r"lm_head\.weight differs"):
            folder_model(tmp_path)


CONFIGS = {
    "architectures": (["GemmaForCausalLM"], "the architecture must be one of Llama.*Gemma"),
    "hidden_size": ("wide", "config.json: "),
    "hidden_act": ("gelu", "hidden_act = gelu is not supported"),
    "mlp_bias": (True, "mlp_bias = True is not supported"),
    "use_sliding_window": (True, "use_sliding_window = True"),
    "quantization_config": ({"bits": 4}, "quantization_config = .*bits"),
    "rope_scaling": ({"rope_type": "yarn", "factor": 2.0}, "rope_type must be .* got 'yarn'"),
    "num_hidden_layers": (3, r"lacks the tensor model\.layers\.2\..* and 6 more"),
    "num_key_value_heads": (3, "num_heads must be a multiple"),
    "intermediate_size": (13, r"tensor model\.layers\.\d\.mlp\.\w+\.weight must have the shape"),
}


@pytest.mark.parametrize("key", CONFIGS)
def test_configurations_that_do_not_fit(tmp_path, key):
    lm, params = tiny.model()
    value, message = CONFIGS[key]
    write_folder(tmp_path, lm, params, **{key: value})
    with pytest.raises(ValueError, match=message) as caught:
        folder_model(tmp_path)
    assert str(tmp_path) in str(caught.value)


def test_folders_that_are_damaged(tmp_path):
    lm, params = tiny.model()
    tensors = write_folder(tmp_path / "a", lm, params)

    def refuse(message):
        with pytest.raises(ValueError, match=message) as caught:
            folder_model(tmp_path / "a")
        assert str(tmp_path / "a") in str(caught.value)

    weights = tmp_path / "a" / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-8])
    refuse("model.safetensors is missing or is no safetensors file")
    weights.write_bytes(b"\x00" * 5)
    refuse("model.safetensors is missing or is no safetensors file")
    name = "model.layers.1.mlp.up_proj.weight"
    save_file(tensors | {name: tensors[name].astype(np.int8)}, weights)
    refuse(f"the tensor {name} must be one of BF16, .*, got I8")
    save_file(tensors | {"model.layers.0.self_attn.o_proj.bias": np.ones(4)}, weights)
    refuse(r"no place in the model: model\.layers\.0\.self_attn\.o_proj\.bias")
    weights.write_bytes(whole)
    config = (tmp_path / "a" / "config.json").read_text()
    for content, message in (
        ("{", "config.json is no JSON"),
        ("[]", "must hold a JSON object, got list"),
        (config.replace("hidden_size", "width"), "lacks the key 'hidden_size'"),
    ):
        (tmp_path / "a" / "config.json").write_text(content)
        refuse(message)
    (tmp_path / "a" / "config.json").unlink()
    refuse("config.json cannot be read: No such file")


def test_shards_that_are_damaged(tmp_path):
    lm, params = tiny.model()
    write_folder(tmp_path, lm, params, shards=2)
    index = tmp_path / "model.safetensors.index.json"
    where = json.loads(index.read_text())["weight_map"]
    for weight_map, message in (
        ({**where, "model.norm.weight": "../other.safetensors"}, "points out of its folder"),
        ({**where, "model.norm.weight": "gone.safetensors"}, "gone.safetensors is missing"),
        ({k: v for k, v in where.items() if "norm.weight" not in k}, "lacks the tensor"),
        ([], "lacks the key 'weight_map'"),
    ):
        index.write_text(json.dumps({"weight_map": weight_map}))
        with pytest.raises(ValueError, match=message):
            folder_model(tmp_path)


def test_pickles_are_not_read(tmp_path):
    lm, params = tiny.model()
    write_folder(tmp_path, lm, params)
    with pytest.raises(ValueError, match=r"holds neither model\.safetensors nor"):
        folder_model(tmp_path.parent / "nothing")
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"only as pickles \(pytorch_model\.bin\), which may run"):
        folder_model(tmp_path)

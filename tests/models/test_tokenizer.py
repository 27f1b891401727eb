"""Tokenizers out of their parts, out of GGUF metadata and out of tokenizer.json."""

import json
from datetime import datetime

import numpy as np
import pytest
import tokenizers

from jaxlab.models.tokenizer import Tokenizer, byte_alphabet
from jaxlab.models.tokenizer_files import (
    byte_pair_tokenizer,
    folder_tokenizer,
    gguf_tokenizer,
    write_tokenizer,
)
from tests.models import tiny
from tests.peers.texts import texts

TEMPLATE = (
    "{%- for m in messages %}\n    {%- if m.role == 'robot' %}\n"
    "        {{ raise_exception('no robots') }}\n    {%- endif %}\n"
    "{{ '<|user|>' + m['content'] + eos_token }}\n{%- endfor %}"
    "{% if add_generation_prompt %}{{ '<|user|>' }}{% endif %}"
)


@pytest.fixture(scope="module")
def tokenizer():
    return byte_pair_tokenizer(
        tiny.TOKENS,
        tiny.MERGES,
        "gpt-2",
        special=tiny.TOKENS[:2],
        eos_id=0,
        bos_id=1,
        chat_template=TEMPLATE,
    )


def pieces(cut, text):
    """How a text is cut, with each piece's bytes spelled as characters."""
    spelled = {ord(b): a for a, b in zip(map(chr, range(256)), byte_alphabet(), strict=True)}
    backend = byte_pair_tokenizer(tiny.TOKENS, [], cut).backend
    found = [piece for piece, _ in backend.pre_tokenizer.pre_tokenize_str(text)]
    return [piece.translate(spelled).encode("latin-1").decode() for piece in found]


def test_the_alphabet_is_that_of_the_package():
    assert sorted(byte_alphabet()) == sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    spelled = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    every = "".join(map(chr, range(0x800)))  # all bytes that two-byte characters have
    expected = "".join(piece for piece, _ in spelled.pre_tokenize_str(every))
    assert "".join(byte_alphabet()[b] for b in every.encode()) == expected


@pytest.mark.parametrize("cut", ["gpt-2", "smollm"])
def test_cuts_are_those_built_into_the_package(cut):
    byte_level = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    digits = tokenizers.pre_tokenizers.Digits(individual_digits=True)
    peer = tokenizers.pre_tokenizers.Sequence(
        [digits, byte_level] if cut == "smollm" else [byte_level]
    )
    ours = byte_pair_tokenizer(tiny.TOKENS, [], cut).backend.pre_tokenizer
    for text in texts(200, seed=1):
        assert ours.pre_tokenize_str(text) == peer.pre_tokenize_str(text)


@pytest.mark.parametrize(
    ("cut", "expected"),
    [
        ("gpt-2", "I|'m|IT|'|S| 12345|--|go|  | (|x|)!|\n\n"),
        ("smollm", "I|'m|IT|'|S| |1|2|3|4|5|--|go|  | (|x|)!|\n\n"),
        ("llama-bpe", "I|'m|IT|'S| |123|45|--|go|  | (|x|)!\n\n"),
        ("qwen2", "I|'m|IT|'S| |1|2|3|4|5|--|go|  | (|x|)!\n\n"),
        ("default", "I|'|mIT|'|S| |123|45|--|go|   |(|x|)!|\n\n"),
    ],
)
def test_known_cuts(cut, expected):
    assert pieces(cut, "I'mIT'S 12345--go   (x)!\n\n") == expected.split("|")


def test_pairs_are_merged_within_the_cuts(tokenizer):
    ids = tokenizer.encode("the the")
    assert [tiny.TOKENS[i] for i in ids] == ["the", "Ġthe"]
    assert tokenizer.encode(b"the the") == ids
    assert tokenizer.encode("") == []


def test_every_text_comes_back(tokenizer):
    for text in [*texts(300), "\x00\x04\x7f", "é" * 3, "\U0010fffd"]:
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        assert tokenizer.decode_bytes(np.array(ids, np.uint16)) == text.encode()


def test_cut_characters_keep_their_bytes(tokenizer):
    ids = tokenizer.encode("é")
    assert tokenizer.decode_bytes(ids[:1]) == b"\xc3"
    assert tokenizer.decode(ids[:1]) == "\ufffd"
    assert tokenizer.decode_bytes(ids[1:]) == b"\xa9"


def test_special_tokens_are_parsed_only_on_request(tokenizer):
    text = "a<|end|>b"
    assert 0 not in tokenizer.encode(text)
    assert tokenizer.decode(tokenizer.encode(text)) == text
    ids = tokenizer.encode(text, special=True)
    assert [tiny.TOKENS[i] for i in ids] == ["a", "<|end|>", "b"]
    assert tokenizer.decode(ids) == text
    assert tokenizer.decode(ids, skip_special=True) == "ab"
    assert tokenizer.special_ids == {0: "<|end|>", 1: "<|user|>"}
    assert 0 not in tokenizer.encode(text)


def test_the_opening_token(tokenizer):
    assert tokenizer.encode("a", bos=True)[0] == 1
    assert tokenizer.encode("a", bos=True)[1:] == tokenizer.encode("a")
    adding = byte_pair_tokenizer(tiny.TOKENS, [], "gpt-2", bos_id=1, adds_bos=True)
    assert adding.encode("a") == [1, *adding.encode("a", bos=False)]
    bare = byte_pair_tokenizer(tiny.TOKENS, [], "gpt-2")
    with pytest.raises(ValueError, match="bos must be False: this tokenizer has no token"):
        bare.encode("a", bos=True)
    with pytest.raises(ValueError, match="adds_bos needs bos_id, got None"):
        byte_pair_tokenizer(tiny.TOKENS, [], "gpt-2", adds_bos=True)


def test_user_defined_tokens_are_found_first():
    made = byte_pair_tokenizer(
        [*tiny.TOKENS, "<tool>"], tiny.MERGES, "gpt-2", user_defined=["<tool>"]
    )
    assert made.encode("a<tool>b")[1] == len(tiny.TOKENS)
    assert made.decode(made.encode("a<tool>b"), skip_special=True) == "a<tool>b"


def test_a_whole_word_of_llama_3_needs_no_merges():
    tokens = [*tiny.TOKENS, "zq"]
    assert byte_pair_tokenizer(tokens, [], "llama-bpe").encode("zq") == [len(tiny.TOKENS)]
    assert len(byte_pair_tokenizer(tokens, [], "gpt-2").encode("zq")) == 2


def test_qwen_composes_characters():
    composed, apart = "\u00e9", "e\u0301"
    qwen, gpt = (byte_pair_tokenizer(tiny.TOKENS, [], cut) for cut in ("qwen2", "gpt-2"))
    assert qwen.encode(apart) == qwen.encode(composed)
    assert gpt.encode(apart) != gpt.encode(composed)


@pytest.mark.usefixtures("without_type_checks")
@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        (b"ab\xff", ValueError, "text must be UTF-8, got the byte 0xff at position 2"),
        (b"ab\xc3", ValueError, "text must be UTF-8, got the byte 0xc3 at position 2"),
        ("ab\ud800", ValueError, r"text must be valid Unicode, got the lone surrogate U\+D800 at"),
        (7, TypeError, "text must be a str or bytes, got int"),
        (["a"], TypeError, "text must be a str or bytes, got list"),
    ],
)
def test_texts_that_are_none(tokenizer, text, error, message):
    with pytest.raises(error, match=message):
        tokenizer.encode(text)


@pytest.mark.usefixtures("without_type_checks")
def test_ids_that_are_none(tokenizer):
    for ids, error, message in (
        (np.ones((1, 2), int), TypeError, r"ids must be integers, got \[1, 1\]"),
        ([1.5], TypeError, "ids must be integers, got 1.5"),
        (["a"], TypeError, "ids must be integers, got 'a'"),
        ([-1], ValueError, "ids must be in 0 to 260, got -1"),
        ([261], ValueError, "ids must be in 0 to 260, got 261"),
    ):
        with pytest.raises(error, match=message):
            tokenizer.decode(ids)


def test_a_conversation(tokenizer):
    messages = [{"role": "user", "content": "the <b>"}, {"role": "assistant", "content": "é"}]
    text = tokenizer.chat(messages)
    assert text == "<|user|>the <b><|end|><|user|>é<|end|><|user|>"
    assert tokenizer.chat(messages, add_generation_prompt=False) == text.removesuffix("<|user|>")
    assert tokenizer.encode_chat(messages) == tokenizer.encode(text, special=True)


def test_templates_have_the_functions_that_models_rely_on():
    def chat(template):
        made = byte_pair_tokenizer(tiny.TOKENS, [], "gpt-2", chat_template=template)
        return made.chat([{"role": "user", "content": "é<"}])

    assert chat("{{ messages | tojson }}") == '[{"role": "user", "content": "é<"}]'
    assert chat("{{ strftime_now('%Y') }}") == str(datetime.now().year)
    assert chat("{% for i in [1, 2] %}{% break %}{% endfor %}{{ tools is none }}") == "True"
    with pytest.raises(ValueError, match=r"the chat template refuses the messages: .*unsafe"):
        chat("{{ ''.__class__.__mro__ }}")
    with pytest.raises(ValueError, match="the chat template refuses the messages"):
        chat("{{ messages.append(1) }}")
    with pytest.raises(ValueError, match="the chat template refuses the messages"):
        chat("{% if %}")


@pytest.mark.usefixtures("without_type_checks")
@pytest.mark.parametrize(
    ("messages", "error", "message"),
    [
        ("Hi", TypeError, "messages must be a list of mappings .*, got str"),
        ({"role": "user"}, TypeError, "messages must be a list of mappings .*, got dict"),
        ([], ValueError, "messages must hold one at least, got none"),
        (["Hi"], TypeError, r"messages\[0\] must be a mapping, got str"),
        (
            [{"role": "user"}],
            ValueError,
            r"messages\[0\] must have the key 'content', got \['role'",
        ),
        (
            [{"content": "x"}],
            ValueError,
            r"messages\[0\] must have the key 'role', got \['content'",
        ),
        ([{"role": "user", "content": 3}], TypeError, r"\[0\]\['content'\] must be a str, got int"),
        ([{"role": "robot", "content": ""}], ValueError, "refuses the messages: no robots"),
    ],
)
def test_conversations_that_are_none(tokenizer, messages, error, message):
    with pytest.raises(error, match=message):
        tokenizer.chat(messages)


def test_no_template():
    with pytest.raises(ValueError, match="this tokenizer has no chat template"):
        byte_pair_tokenizer(tiny.TOKENS, [], "gpt-2").chat([{"role": "user", "content": ""}])


METADATA = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "llama-bpe",
    "tokenizer.ggml.tokens": tiny.TOKENS,
    "tokenizer.ggml.token_type": [tiny.CONTROL] * 2 + [1] * (len(tiny.TOKENS) - 2),
    "tokenizer.ggml.merges": tiny.MERGES,
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 0,
    "tokenizer.chat_template": TEMPLATE,
}


def test_out_of_gguf_metadata(tmp_path):
    made = gguf_tokenizer(tmp_path, METADATA)
    assert (made.bos_id, made.eos_id, made.pad_id, made.vocab_size) == (1, 0, None, 261)
    assert made.special_ids == {0: "<|end|>", 1: "<|user|>"}
    assert made.chat_template == TEMPLATE
    assert made.adds_bos
    for stated in (False, True):
        changed = METADATA | {"tokenizer.ggml.add_bos_token": stated}
        assert gguf_tokenizer(tmp_path, changed).adds_bos is stated
    assert not gguf_tokenizer(tmp_path, METADATA | {"tokenizer.ggml.pre": "qwen2"}).adds_bos


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": "llama"}, r"tokenizer\.ggml\.model must be 'gpt2', .* got 'llama'"),
        ({"model": None}, r"has no tokenizer: it lacks the key tokenizer\.ggml\.model"),
        ({"tokens": None}, r"has no tokenizer: it lacks the key tokenizer\.ggml\.tokens"),
        ({"merges": None}, r"has no tokenizer: it lacks the key tokenizer\.ggml\.merges"),
        ({"pre": None}, r"has no tokenizer: it lacks the key tokenizer\.ggml\.pre"),
        ({"pre": "poro"}, "cut must be one of 'gpt-2', .*, got 'poro'"),
        ({"merges": ["the"]}, "merges must be two parts separated by a space, got 'the'"),
        ({"merges": ["q zq"]}, "merges must be of tokens: .*`zq`"),
        ({"token_type": [1]}, "has 261 tokens, but the kinds of 1"),
    ],
)
def test_gguf_metadata_that_do_not_fit(tmp_path, change, message):
    changed = {f"tokenizer.ggml.{key}": value for key, value in change.items()}
    with pytest.raises(ValueError, match=message) as caught:
        gguf_tokenizer(tmp_path / "m.gguf", METADATA | changed)
    assert "m.gguf" in str(caught.value)


def test_a_written_tokenizer_comes_back(tmp_path, tokenizer):
    write_tokenizer(tmp_path, tokenizer)
    back = folder_tokenizer(tmp_path)
    ids = ("bos_id", "eos_id", "pad_id", "adds_bos", "special_ids")
    for name in (*ids, "chat_template", "vocab_size"):
        assert getattr(back, name) == getattr(tokenizer, name), name
    for text in texts(50):
        for special in (False, True):
            assert back.encode(text, special=special) == tokenizer.encode(text, special=special)


def test_out_of_a_folder(tmp_path):
    backend = tokenizers.Tokenizer(tokenizers.models.BPE({"a": 0, "b": 1, "ab": 2}, [("a", "b")]))
    backend.add_special_tokens(["<s>", "</s>"])
    opening = tokenizers.processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 3)])
    backend.post_processor = opening
    backend.save(str(tmp_path / "tokenizer.json"))
    config = {"bos_token": {"content": "<s>"}, "eos_token": "</s>", "pad_token": None}
    templates = {"tool_use": "x", "default": "d"}
    config["chat_template"] = [{"name": k, "template": t} for k, t in templates.items()]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    made = folder_tokenizer(tmp_path)
    assert (made.bos_id, made.eos_id, made.pad_id, made.adds_bos) == (3, 4, None, True)
    assert made.encode("ab") == [3, 2]
    assert made.encode("ab</s>", special=True, bos=False) == [2, 4]
    assert made.chat_template == "d"
    assert made.decode([2, 1]) == "ab b"  # no decoder is given: the package's own way
    with pytest.raises(ValueError, match="decode_bytes needs a byte-level tokenizer"):
        made.decode_bytes([2])
    (tmp_path / "chat_template.jinja").write_text("j")
    assert folder_tokenizer(tmp_path).chat_template == "j"
    (tmp_path / "tokenizer_config.json").unlink()
    (tmp_path / "config.json").write_text(json.dumps({"bos_token_id": 3, "eos_token_id": [4, 1]}))
    made = folder_tokenizer(tmp_path)
    assert (made.bos_id, made.eos_id, made.adds_bos) == (3, 4, True)


def test_folders_without_a_tokenizer(tmp_path):
    with pytest.raises(ValueError, match=r"has no tokenizer: it lacks tokenizer\.json"):
        folder_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match=r"tokenizer\.json is no tokenizer"):
        folder_tokenizer(tmp_path)


def test_a_tokenizer_is_of_the_package(tokenizer):
    assert isinstance(tokenizer.backend, tokenizers.Tokenizer)
    assert isinstance(Tokenizer(tokenizer.backend), Tokenizer)

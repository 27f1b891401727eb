"""Finding files, reading texts, and drawing sequences of them."""

import json

import jax
import numpy as np
import pytest

from jaxlab.order.model import ByteReader, batch_of, losses_of, make_learner
from jaxlab.order.sources import draw, find_sources, open_source, read_documents


class Counting(ByteReader):
    """Counts what it reads."""

    def __init__(self):
        self.texts = []

    def encode(self, text, *, special=False):
        self.texts.append(text)
        return super().encode(text, special=special)


class Chatty(ByteReader):
    """Writes conversations as roles and contents."""

    def encode_chat(self, messages, add_generation_prompt):
        assert not add_generation_prompt
        return self.encode("".join(f"{m['role']}:{m['content']};" for m in messages))


def saved(folder, name, content):
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def drawn(path, reader=None, name="x", **options):
    source = open_source(name, path, "text")
    settings = {"seed": 0, "sequences": 4, "tokens": 10} | options
    return draw(source, read_documents(source, "text"), reader or ByteReader(), **settings)


def texts_of(found):
    return [
        bytes(row[real].astype(np.uint8)).decode(errors="replace")
        for row, real in zip(found.tokens.reshape(-1, 10), found.mask.reshape(-1, 10), strict=True)
    ]


def test_files_of_a_folder_and_of_its_folders(tmp_path):
    for name in ("b.txt", "a.JSONL", "c.md", "d.py", "sub/e.txt", ".hidden.txt", ".dir/f.txt"):
        saved(tmp_path, name, "x")
    (tmp_path / "sub/deeper").mkdir()
    saved(tmp_path, "sub/deeper/g.txt", "x")
    (tmp_path / "folder.txt").mkdir()
    target = saved(tmp_path.parent, "target.txt", "x")
    found, inside = find_sources(tmp_path, (".txt", ".jsonl", ".md"), target)
    names = [path.relative_to(tmp_path).as_posix() for path in found]
    assert names == ["a.JSONL", "b.txt", "c.md", "sub/e.txt"]
    assert not inside
    (tmp_path / "link.txt").symlink_to(target)
    found, inside = find_sources(tmp_path, (".TXT", ".py"), target)
    assert [path.name for path in found] == ["b.txt", "d.py", "e.txt"]
    assert inside


def test_sequences_are_disjoint_pieces_of_the_text(tmp_path):
    text = "".join(f"{i:05d}" for i in range(40))  # no piece of ten comes twice
    found = drawn(saved(tmp_path, "x.txt", text))
    assert found.tokens.shape == found.mask.shape == (2, 2, 10)
    assert found.mask.all()
    assert found.scored.tolist() == [18, 18]
    pieces = texts_of(found)
    assert len(set(pieces)) == 4
    for piece in pieces:
        assert text.index(piece) % 10 == 0


def test_the_content_and_the_seed_decide_and_the_name_does_not(tmp_path):
    text = "".join(f"{i:05d}" for i in range(400))
    one = drawn(saved(tmp_path, "x.txt", text))
    other = drawn(saved(tmp_path, "y.md", text), name="other")
    np.testing.assert_array_equal(one.tokens, other.tokens)
    assert (drawn(tmp_path / "x.txt", seed=1).tokens != one.tokens).any()


def test_only_what_is_drawn_is_tokenised(tmp_path):
    path = saved(tmp_path, "x.txt", "word " * 100_000)
    reader = Counting()
    drawn(path, reader)
    assert sum(map(len, reader.texts)) == 40


def test_short_files_are_padded_in_both_halves(tmp_path):
    found = drawn(saved(tmp_path, "three.txt", "0123456789" * 2 + "abc"))
    assert sorted(texts_of(found)) == ["", "0123456789", "0123456789", "abc"]
    assert found.scored.sum() == 9 + 9 + 2
    assert (found.scored > 0).all()
    # A single sequence is cut in two.
    assert sorted(texts_of(drawn(saved(tmp_path, "one.txt", "abcdefg")))) == ["", "", "abc", "defg"]
    assert (found.tokens[~found.mask] == 0).all()
    for text in ("abc", "é"):  # three bytes and two
        with pytest.raises(ValueError, match="must have at least 4 tokens"):
            drawn(saved(tmp_path, "none.txt", text))


def test_lines_are_documents_of_their_own(tmp_path):
    rows = [{"text": "first one!"}, {"text": ""}, {"text": "the\u2028second"}, {"text": "third"}]
    lines = "\r\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n\n"
    path = saved(tmp_path, "x.jsonl", b"\xef\xbb\xbf" + lines.encode())
    source = open_source("x", path, "text")
    assert (source.documents, source.characters) == (4, 10 + 10 + 5)
    pieces = set(filter(None, texts_of(drawn(path))))
    assert {"first one!", "third"} <= pieces
    # The same bytes are something else as plain text.
    plain = open_source("y", saved(tmp_path, "x.txt", path.read_bytes()), "text")
    assert plain.digest != source.digest


def test_conversations_go_through_the_model_s_format(tmp_path):
    rows = [
        {"messages": [{"role": "user", "content": "hi"}, {"role": "bot", "content": "yo"}]},
        {"messages": [{"role": "user", "content": "a much longer question"}]},
    ]
    path = saved(tmp_path, "x.jsonl", "\n".join(map(json.dumps, rows)))
    assert sorted(filter(None, texts_of(drawn(path, Chatty())))) == ["user:a muc", "user:hi;bo"]
    with pytest.raises(ValueError, match=r"line [12]: this tokenizer has no chat template"):
        drawn(path)


def test_a_file_that_changes_is_noticed(tmp_path):
    path = saved(tmp_path, "x.txt", "some text")
    source = open_source("x", path, "text")
    path.write_text("other text")
    with pytest.raises(ValueError, match="must stay as it is during a run"):
        read_documents(source, "text")


@pytest.mark.lm
def test_a_real_model_reads_conversations_and_is_cut_below_its_last_block(tmp_path, smollm):
    lm, params, tokenizer = smollm
    messages = [{"role": "user", "content": "Where?"}, {"role": "assistant", "content": "Here."}]
    rows = [{"messages": messages}, {"text": "The capital of France is"}]
    path = saved(tmp_path, "x.jsonl", "\n".join(map(json.dumps, rows)))
    found = drawn(path, tokenizer, sequences=2, tokens=6)
    rows = zip(found.tokens[:, 0], found.mask[:, 0], strict=True)
    chat, plain = sorted(tokenizer.decode(ids[real]) for ids, real in rows)
    assert plain == "The capital of France is"
    assert chat.startswith("<|im_start|>system\n")  # one token, and not its characters
    assert len(chat) > 6 * 4
    learner = make_learner(lm, params, tokenizer, 1)
    batch = batch_of(learner, *found)
    expected = jax.jit(lm.log_prob)(params, found.tokens, found.mask)[..., 1:]
    np.testing.assert_allclose(losses_of(learner, batch), -expected, atol=1e-4)
    assert learner.size == sum(leaf[-1].size for leaf in jax.tree.leaves(params["layers"]))

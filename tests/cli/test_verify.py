"""``jaxlab verify`` and ``jaxlab replay`` on a file of one's own."""

import json
import math
import re

import pytest

from jaxlab import cli

THEOREMS = """
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from hypothesis import strategies as st
from jaxlab.claims import Claim, at_most_in_ratio


def vector(dim):
    return numpyro.sample("x", dist.Normal(0.0, 1.0).expand([dim]))


def norms(x, *, dim, factor=1.0):
    return at_most_in_ratio(jnp.abs(x).sum(), factor * jnp.sqrt(dim) * jnp.linalg.norm(x))


def wrong(x, *, dim, factor=0.9):
    return norms(x, dim=dim, factor=factor)


COMMON = dict(
    source="a textbook", families={"normal": vector},
    assumptions=lambda x: jnp.isfinite(x).all(),
    sizes={"dim": st.sampled_from([1, 3])}, typical={"dim": 3},
)
RIGHT = Claim(
    name="mine/right", statement="|x|_1 <= sqrt(d) |x|_2", conclusion=norms,
    mutants={"10% less": {"factor": 0.9}}, **COMMON,
)
WRONG = Claim(
    name="mine/wrong", statement="|x|_1 <= 0.9 sqrt(d) |x|_2", conclusion=wrong,
    mutants={"worse": {"factor": 0.5}}, **COMMON,
)
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("theorems") / "theorems.py"
    path.write_text(THEOREMS)
    return path


def test_a_true_theorem_of_ones_own(file, tmp_path, capsys):
    out, told = tmp_path / "out", tmp_path / "told.json"
    words = ["verify", str(file), "--only", "right", "--out", str(out), "--json", str(told)]
    assert cli.main(words) == 0
    captured = capsys.readouterr()
    assert "1 of 1 claims came out as they should" in captured.out
    # One line per rung while it goes, the mutant's too.
    for line in ("right: explore: held", "right: attack: held", "10% less: explore: refuted"):
        assert line in captured.err
    stored = json.loads((out / "theorems.json").read_text())
    assert stored["about"]["source"] == str(file)
    assert stored["claims"] == json.loads(told.read_text())
    assert stored["claims"][0]["families"] == ["normal"]
    assert [rung["rung"] for rung in stored["claims"][0]["rungs"]] == [
        "explore",
        "sample",
        "attack",
    ]


def test_a_false_theorem_leaves_a_counterexample_that_replays(file, tmp_path, capsys):
    words = ["verify", str(file), "--only", "wrong", "--budget", "40", "--out", str(tmp_path)]
    assert cli.main(words) == 1
    shown = capsys.readouterr().out
    command = re.search(r"jaxlab (replay \S+explore\S+\.npz)", shown)
    assert command
    figure = tmp_path / "figure.png"
    assert cli.main([*command[1].split(), "--figure", str(figure)]) == 0
    shown = capsys.readouterr().out
    assert figure.read_bytes().startswith(b"\x89PNG")
    # Hypothesis went down to one dimension, where both norms agree.
    assert "sizes {'dim': 1}" in shown
    left = float(re.search(r"left side\s+(\S+)", shown)[1])
    right = float(re.search(r"right side\s+(\S+)", shown)[1])
    assert left / right == pytest.approx(1 / 0.9)
    margin = float(re.search(r"margin\s+(\S+) in NumPy", shown)[1])
    assert margin == pytest.approx(math.log(0.9), abs=1e-5)


def test_a_file_that_moved_is_named(file, tmp_path, capsys):
    copy = tmp_path / "moved.py"
    copy.write_text(THEOREMS)
    words = ["verify", str(copy), "--only", "wrong", "--out", str(tmp_path)]
    assert cli.main(words) == 1
    (found,) = tmp_path.glob("mine_wrong-claim-explore-*.npz")
    copy.unlink()
    capsys.readouterr()
    assert cli.main(["replay", str(found)]) == 2
    assert f"claims must be the file that defines the claim, got none at '{copy}'" in (
        capsys.readouterr().err
    )
    assert cli.main(["replay", str(found), "--claims", str(file)]) == 0


@pytest.mark.parametrize(
    ("content", "words", "complaint"),
    [
        (None, [], "got no file"),
        ("x = 1\n", [], "SOURCES must define at least one Claim at top level"),
        ("import nothing_like_it\n", [], "got ModuleNotFoundError: No module named"),
        ("raise RuntimeError('why')\n", [], "RuntimeError: why (mine.py:1)"),
        (THEOREMS + "AGAIN = [WRONG, Claim(**vars(WRONG))]\n", [], "got 'mine/wrong' twice"),
        (THEOREMS, ["--only", "none"], "only must be part of a claim's name, got 'none'"),
        (THEOREMS, ["--budget", "-1"], "budget must be at least 0 seconds, got -1.0"),
        (THEOREMS, ["--error", "2"], "error must be in (0, 1), got 2.0"),
        (THEOREMS, ["--effort", "much"], "much"),
        (THEOREMS, ["--out", "/proc/none"], "out must be a folder that can be written"),
    ],
)
def test_wrong_usage_is_one_line_and_code_2(content, words, complaint, tmp_path, capsys):
    path = tmp_path / "mine.py"
    if content is not None:
        path.write_text(content)
    assert cli.main(["verify", str(path), "--out", str(tmp_path / "out"), *words]) == 2
    captured = capsys.readouterr()
    assert complaint in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_two_files_of_one_name_are_refused(file, tmp_path, capsys):
    other = tmp_path / "theorems.py"
    other.write_text(THEOREMS)
    assert cli.main(["verify", str(file), str(other), "--out", str(tmp_path / "out")]) == 2
    assert "SOURCES must have different names" in capsys.readouterr().err

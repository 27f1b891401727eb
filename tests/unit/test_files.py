import json
import math
import os
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlab.core import files


def test_text_arrives_whole(tmp_path):
    files.write_text(tmp_path / "a.txt", "naïve\n")
    assert (tmp_path / "a.txt").read_text() == "naïve\n"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.parametrize("broken", ["fsync", "replace"])
def test_failure_in_the_middle_leaves_the_old_file(tmp_path, monkeypatch, broken):
    path = tmp_path / "a.txt"
    files.write_text(path, "old")

    def fail(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, broken, fail)
    with pytest.raises(OSError, match="No space left"):
        files.write_text(path, "new")
    monkeypatch.undo()
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.txt"]


def test_unwritable_folders_are_named(tmp_path):
    blocker = tmp_path / "file"
    blocker.write_text("")
    with pytest.raises(ValueError, match=r"out must be a folder that can be written, got .*file"):
        files.usable_directory(blocker / "results")


class Answer(NamedTuple):
    value: float
    where: Path


def test_json_is_readable_everywhere(tmp_path):
    content = {
        "nan": math.nan, "inf": np.float64(np.inf), "array": jnp.arange(2), "flag": np.bool_(True),
        "answer": Answer(0.5, Path("x")), "nothing": None, 3: {1},
    }  # fmt: skip
    files.write_json(tmp_path / "a.json", content)

    def refuse(constant):
        raise AssertionError(constant)

    stored = json.loads((tmp_path / "a.json").read_text(), parse_constant=refuse)
    assert stored == {
        "nan": "nan", "inf": "inf", "array": [0, 1], "flag": True,
        "answer": {"value": 0.5, "where": "x"}, "nothing": None, "3": [1],
    }  # fmt: skip
    with pytest.raises(TypeError, match="cannot write object as JSON"):
        files.write_json(tmp_path / "b.json", {"x": object()})


def tree():
    return {"key": jax.random.key(5), "x": jnp.arange(3.0), "n": jnp.int32(7)}


def test_leaves_come_back_with_keys_and_header(tmp_path):
    files.save_leaves(tmp_path / "a.npz", tree(), note="hello")
    back, header = files.load_leaves(tmp_path / "a.npz", tree())
    assert header == {"note": "hello"}
    np.testing.assert_array_equal(back["x"], [0.0, 1.0, 2.0])
    drawn = jax.random.normal(back["key"], (2,))
    np.testing.assert_array_equal(drawn, jax.random.normal(jax.random.key(5), (2,)))


def test_the_template_may_depend_on_the_header(tmp_path):
    files.save_leaves(tmp_path / "a.npz", jnp.ones(4), size=4)
    back, _ = files.load_leaves(
        tmp_path / "a.npz", lambda header: jax.ShapeDtypeStruct((header["size"],), jnp.float64)
    )
    assert back.shape == (4,)


def test_files_that_do_not_fit_are_refused(tmp_path):
    path = tmp_path / "a.npz"
    files.save_leaves(path, tree())
    with pytest.raises(ValueError, match="holds 3 arrays where 1 were expected"):
        files.load_leaves(path, jnp.ones(3))
    with pytest.raises(ValueError, match=r"shape \(3,\) and dtype float64 where shape \(2,\)"):
        files.load_leaves(path, {**tree(), "x": jnp.ones(2)})
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ValueError, match="path must be a file of saved leaves"):
        files.load_leaves(path, tree())

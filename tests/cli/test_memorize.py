"""``jaxlab memorize`` as a user meets it."""

import json
import subprocess
import sys

import numpy as np
import pytest

from jaxlab import cli

SMALL = ["--queries", "24", "--sigmas", "6", "--width", "3", "--block-rows", "16"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files good and bad."""
    place = tmp_path_factory.mktemp("files")
    generator = np.random.default_rng(1)
    rows = generator.normal(size=(60, 8, 8))
    flat, unfinished = rows.reshape(60, 64), rows.copy()
    unfinished[7, 0, 0], unfinished[9, 1] = np.nan, np.inf
    repeated = np.concatenate([rows, rows[[2, 2]]])
    repeated[52] = 0.5
    arrays = {
        "rows": rows,
        "flat": flat,
        "unfinished": unfinished,
        "repeated": repeated,
        "samples": np.concatenate([rows[:6], generator.normal(size=(6, 8, 8))]),
        "held": np.concatenate([generator.normal(size=(3, 8, 8)), rows[[8, 5]]]),
        "equal": np.ones((5, 16)),
        "pair": flat[[0, 1, 1]],
        "single": flat[:1],
        "line": flat[:, 0],
        "nothing": flat[:0],
        "short": flat[:, :12],
        "channels": rows.reshape(60, 2, 32),
        "complex": rows * 1j,
        "words": np.array([["a", "b"]]),
    }
    for name, array in arrays.items():
        np.save(place / f"{name}.npy", array)
    np.save(place / "ragged.npy", np.array([[1], [2, 3]], dtype=object), allow_pickle=True)
    np.savez(place / "several.npz", first=rows, second=flat)
    np.savez(place / "none.npz")
    (place / "text.npy").write_text("1 2 3")
    (place / "cut.npy").write_bytes((place / "rows.npy").read_bytes()[:3000])
    (place / "cut.npz").write_bytes((place / "several.npz").read_bytes()[:3000])
    return place


def test_everything_is_written_and_told(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    words = ["memorize", str(folder / "repeated.npy"), "--samples", str(folder / "samples.npy")]
    assert cli.main([*words, *SMALL, "--json", "told.json"]) == 0
    shown = capsys.readouterr().out
    out = tmp_path / "results/memorize/repeated"
    assert (out / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in (out / "figure.svg").read_bytes()
    told = json.loads((out / "summary.json").read_text())
    assert told == json.loads((tmp_path / "told.json").read_text())
    assert told["data"]["repeated_rows"] == 2
    assert told["data"]["first_repeated"] == [[60, 2], [61, 2]]
    assert told["data"]["first_constant"] == [52]
    assert told["training_rows"] + told["held_out"]["rows"] == 60
    assert told["samples"]["equal_to_a_training_row"] == 6
    low, high = told["gap"]
    for line in (
        "2 repeat an earlier row and are left out (the first: 60 = 2); 1 constant (the first: 52)",
        "auto: as stored; numbers from",
        "12 rows at random (seed 0); 48 remain for training",
        "width c = 3 of at most 16",
        "W and C are both at least 0.8, ends to",
        f"gap_hyper({told['data_scale']:.4g}, gap=({low:.4g}, {high:.4g}))",
        "6 of 12 are training rows, number for number",
        "50.00% of 12 have a nearest row closer than 1/3 of the second nearest",
        "wrote summary.json, figure.png and figure.svg to results/memorize/repeated",
    ):
        assert line in shown


def test_json_on_standard_output_is_alone_there(folder, tmp_path, capsys):
    words = ["memorize", str(folder / "several.npz"), "--key", "second", "--no-figure", *SMALL]
    assert cli.main([*words, "--out", str(tmp_path), "--json", "-"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["data"]["shape"] == [60, 64]
    assert "danger zone" in captured.err
    assert [path.name for path in tmp_path.iterdir()] == ["summary.json"]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["absent.npy"], "DATA must be an npy or npz file, got nothing at"),
        (["."], "DATA must be an npy or npz file, got a folder at"),
        (["text.npy"], "DATA must be an npy or npz file as written by numpy.save"),
        (["cut.npy"], "DATA must be an npy file that is whole"),
        (["cut.npz"], "DATA must be an npz file that is whole"),
        (["none.npz"], "DATA must hold an array, got"),
        (["several.npz"], "first, second, got none"),
        (["several.npz", "--key", "third"], "key must be one of the arrays of"),
        (["rows.npy", "--key", "a"], "key must be left out"),
        (["rows.npy", "--holdout-key", "a"], "holdout-key must come with a holdout, got 'a'"),
        (["rows.npy", "--samples-key", "a"], "samples-key must come with samples, got 'a'"),
        (["ragged.npy"], "DATA must hold numbers, got Python objects"),
        (["complex.npy"], "DATA must hold integers or floats, got dtype complex128"),
        (["words.npy"], "DATA must hold integers or floats, got dtype <U1"),
        (["line.npy"], "DATA must have shape (rows, ...) with at least two axes"),
        (["nothing.npy"], "and no empty one, got (0, 64)"),
        (
            ["unfinished.npy"],
            "DATA must be finite, also in float32, got 2 of 60 rows with NaN or infinity, the first"
            " at index 7",
        ),
        (["rows.npy", "--samples", "unfinished.npy"], "samples must be finite"),
        (["rows.npy", "--holdout", "unfinished.npy"], "holdout must be finite"),
        (["equal.npy"], "DATA must have rows that differ, got 5 rows that are all the same"),
        (["single.npy"], "DATA must have rows that differ, got a single row"),
        (
            ["pair.npy"],
            "DATA must have at least 3 different rows, one of them to hold out, got 2 among its 3",
        ),
        (
            ["rows.npy", "--holdout", "held.npy"],
            "got 2 of 5 rows that are in both (index in holdout = index in DATA): 3 = 8, 4 = 5",
        ),
        (
            ["rows.npy", "--samples", "short.npy"],
            "samples must have rows of shape (8, 8) like DATA, got (12,)",
        ),
        (
            ["rows.npy", "--holdout", "channels.npy"],
            "holdout must have rows of shape (8, 8) like DATA, got (2, 32)",
        ),
        (
            ["rows.npy", "--width", "17"],
            "width must be in (0, 16], a quarter of a row's 64 numbers",
        ),
        (["rows.npy", "--width", "nan"], "width must be in (0, 16]"),
        (["rows.npy", "--threshold", "1"], "threshold must be in (0.1, 1), got 1.0"),
        (["rows.npy", "--sigmas", "5"], "sigmas must be at least 6, got 5"),
        (["rows.npy", "--queries", "1"], "queries must be at least 2, got 1"),
        (["rows.npy", "--seed", "-1"], "seed must be at least 0, got -1"),
        (["rows.npy", "--block-rows", "0"], "block-rows must be at least 1, got 0"),
        (["rows.npy", "--sigma-max", "0"], "sigma-max must be positive and finite, got 0.0"),
        (
            ["rows.npy", "--sigma-min", "2", "--sigma-max", "1"],
            "sigma-min must be below sigma-max, got 2.0 and 1.0",
        ),
        (["rows.npy", "--image", "4", "5"], "image must be the height, width and colours"),
        (["rows.npy", "--scale", "log"], "log"),
        (["rows.npy", "--sample", "x"], "--sample"),
        (["rows.npy", "--out", "/proc/none"], "out must be a folder that can be written"),
        (["rows.npy", "--json", "."], "json must be a file, got '.', which is a folder"),
        ([], "DATA"),
    ],
)
def test_bad_input_is_one_line_and_code_2(folder, words, complaint, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    # Where a case names no folder of its own.
    options = [] if "--out" in words else ["--out", str(tmp_path / "out")]
    assert cli.main(["memorize", *words, *options]) == 2
    captured = capsys.readouterr()
    assert complaint in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""
    assert not (tmp_path / "out/summary.json").exists()


def test_matplotlib_is_missed_before_the_work(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    words = ["memorize", str(folder / "rows.npy"), "--out", str(tmp_path / "out")]
    assert cli.main(words) == 2
    assert "pip install 'jaxlab[experiments]'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert cli.main([*words, "--no-figure", *SMALL]) == 0


GROWTH = """
import resource, sys
from jaxlab import cli

def peak(path):
    words = ["--queries", "8", "--sigmas", "6", "--block-rows", "512", "--no-figure"]
    assert cli.main(["memorize", path, "--out", sys.argv[3], *words]) == 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # MB

print("grown", peak(sys.argv[1]), peak(sys.argv[2]))
"""


def test_memory_does_not_grow_with_the_file(tmp_path):
    generator = np.random.default_rng(0)
    sizes = (1024 + 8, 16 * 1024 + 8)  # of whole blocks, when 8 rows are held out
    for name, count in zip(("small", "large"), sizes, strict=True):
        images = generator.integers(0, 256, size=(count, 32, 32, 3), dtype=np.uint8)
        np.save(tmp_path / f"{name}.npy", images)
    paths = [str(tmp_path / name) for name in ("small.npy", "large.npy", "out")]
    done = subprocess.run(
        [sys.executable, "-c", GROWTH, *paths], capture_output=True, text=True, check=True
    )
    before, after = map(float, done.stdout.rpartition("grown ")[2].split())
    # The file grows by 47 MB, which would be 380 MB in float64.
    assert after - before < 60

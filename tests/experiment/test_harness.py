import csv
import json
import os
import random
import signal
import sys
from pathlib import Path

import numpy as np
import pytest

from jaxlab.experiment import Criterion, Row, read_metrics
from jaxlab.experiment.figures import save_figure
from jaxlab.experiment.measure import Measured, cost_to_accuracy
from jaxlab.experiment.metrics import write_metrics
from jaxlab.experiment.verdict import verdict

sys.path.insert(0, str(Path(__file__).parent))
toy = __import__("toy")
TOY = Path(toy.__file__)

FILES = {
    "args.json", "env.json", "metrics.csv", "summary.json", "figure.png", "figure.svg",
    "timings.json",
}  # fmt: skip


def run_here(*words):
    return toy.main(toy.EXPERIMENT, [str(word) for word in words], prog="toy")


def numbers(folder):
    return (folder / "metrics.csv").read_bytes(), (folder / "summary.json").read_bytes()


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "whole"
    assert run_here("--out", out, "--seeds", 3) == 0
    return out


def test_a_run_writes_all_its_files(finished, capsys):
    assert {path.name for path in finished.iterdir()} == FILES | {"checkpoints"}
    args = json.loads((finished / "args.json").read_text())
    assert args["experiment"] == "dual_sgd"
    assert args["args"]["seeds"] == 3
    environment = json.loads((finished / "env.json").read_text())
    assert environment["x64"] is True
    assert environment["packages"]["jax"]
    assert environment["cpu_count"] == os.cpu_count()
    timings = json.loads((finished / "timings.json").read_text())
    assert timings["compile_seconds"] > 0
    assert set(timings["pieces"]) == {"slow", "fast"}
    summary = json.loads((finished / "summary.json").read_text())
    assert summary["verdict"] == "reproduced"
    assert summary["criteria"][0]["threshold"] == "at most 10"
    with (finished / "metrics.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 2 * 3 * 100
    assert {"seed", "step", "method", "metric", "value"} <= set(rows[0])


def test_the_figure_needs_metrics_and_nothing_else(finished, tmp_path):
    (tmp_path / "metrics.csv").write_bytes((finished / "metrics.csv").read_bytes())
    save_figure(toy.draw, tmp_path)
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "figure.svg").read_bytes() == (finished / "figure.svg").read_bytes()


def test_metrics_read_back_bit_for_bit(tmp_path):
    values = [*np.random.default_rng(0).standard_normal(50).tolist(), float("inf"), 5e-324]
    rows = [Row("a, b", "error", value, step=0.1, seed=3) for value in values]
    write_metrics(tmp_path / "metrics.csv", rows)
    assert read_metrics(tmp_path / "metrics.csv") == rows
    (tmp_path / "other.csv").write_text("x,y\n1,2\n")
    with pytest.raises(ValueError, match="must have the columns method, metric, value"):
        read_metrics(tmp_path / "other.csv")


def test_killed_runs_go_on_to_the_same_numbers(finished, program, tmp_path, seed):
    draw = random.Random(seed)
    out = tmp_path / "killed"
    words = [TOY, "--out", out, "--seeds", 3]
    for count in sorted(draw.sample(range(1, 38), 2)):
        code = program.kill_after_chunks(count, out, *words, "--resume")
        assert code == -signal.SIGKILL
        assert not (out / "metrics.csv").exists()
    done = program.run(*words, "--resume", "--no-progress")
    assert done.returncode == 0, done.stderr
    assert numbers(out) == numbers(finished)


def test_resume_loads_finished_pieces_and_needs_the_same_flags(finished, tmp_path, capsys):
    out = tmp_path / "again"
    assert run_here("--out", out, "--resume") == 0  # nothing there: it just starts
    first = numbers(out)
    stored = next((out / "checkpoints" / "fast").iterdir())
    before = stored.stat().st_mtime_ns
    assert run_here("--out", out, "--resume") == 0
    assert stored.stat().st_mtime_ns == before
    assert numbers(out) == first
    capsys.readouterr()
    assert run_here("--out", out, "--resume", "--seed", 1) == 2
    complaint = capsys.readouterr().err
    assert complaint.startswith("error: resume must have the flags of the run")
    assert "seed 1 where it was 0" in complaint
    assert complaint.count("\n") == 1
    assert numbers(out) == first


def test_without_resume_a_run_is_replaced(tmp_path):
    out = tmp_path / "twice"
    assert run_here("--out", out) == 0
    (out / "mine.txt").write_text("a file of the user's")
    assert run_here("--out", out, "--chunks", 2, "--seeds", 1) == 0
    assert len(list((out / "checkpoints" / "slow").iterdir())) == 2
    assert len(read_metrics(out / "metrics.csv")) == 2 * 10
    assert (out / "mine.txt").exists()


def test_foreign_checkpoints_are_not_removed(tmp_path, capsys):
    precious = tmp_path / "checkpoints" / "model.bin"
    precious.parent.mkdir()
    precious.write_text("weights")
    assert run_here("--out", tmp_path) == 2
    assert "without a readable args.json" in capsys.readouterr().err
    assert precious.read_text() == "weights"


@pytest.mark.parametrize("place", ["/proc/nowhere", "{file}"])
def test_an_unusable_folder_is_refused_before_any_work(place, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    out = place.format(file=tmp_path / "file")
    assert run_here("--out", out) == 2
    complaint = capsys.readouterr().err
    assert complaint.startswith(f"error: out must be a folder that can be written, got {out!r}")
    assert complaint.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--chunk", "3"], "--chunks"),
        (["--chunks", "three"], "three"),
        (["--seeds", "0"], "seeds must be at least 1, got 0"),
        (["--chunks", "2000"], "chunks must be at most 1000, got 2000"),
    ],
)
def test_bad_flags_give_one_line_and_code_2(words, complaint, tmp_path, capsys):
    assert run_here("--out", tmp_path / "out", *words) == 2
    captured = capsys.readouterr()
    assert complaint in captured.err
    assert captured.err.count("\n") == 1
    assert not (tmp_path / "out" / "args.json").exists()


def test_stopping_by_hand_says_how_to_go_on(tmp_path, capsys):
    assert run_here("--out", tmp_path, "--fail") == 130
    told = capsys.readouterr().err
    assert f"to go on: toy --out {tmp_path} --fail --resume" in told


def test_summary_goes_to_a_file_or_to_standard_output(tmp_path, capsys):
    small = ["--chunks", 1, "--seeds", 1, "--no-progress", "--out", tmp_path / "out"]
    assert run_here(*small, "--json", "-") == 0
    assert json.loads(capsys.readouterr().out)["experiment"] == "dual_sgd"
    assert run_here(*small, "--json", tmp_path / "summary.json") == 0
    assert "verdict: reproduced" in capsys.readouterr().out
    assert (tmp_path / "summary.json").read_bytes() == numbers(tmp_path / "out")[1]
    assert run_here(*small, "--json", tmp_path) == 2


def test_verdicts():
    shape, size = Criterion("a", 1.0, at_least=0.5, shape=True), Criterion("b", 1.0, at_most=2.0)
    assert verdict([shape, size]) == "reproduced"
    assert verdict([shape, size._replace(measured=3.0)]) == "shape only"
    assert verdict([shape._replace(measured=0.0), size]) == "not reproduced"
    assert verdict([size._replace(measured=float("nan"))]) == "not reproduced"
    assert verdict([]) == "not reproduced"


def test_costs_are_counted_up_to_the_first_hit():
    trace = Measured(
        error=np.array([[1.0, 0.1, 1.0, 0.1], [1.0, np.nan, 1.0, 1.0]]),
        num_gradients=np.full((2, 4), 3.0),
        num_communications=np.array([[0.0, 1.0, 1.0, 1.0]] * 2),
    )
    rounds, gradients = cost_to_accuracy(trace, 0.5)
    assert rounds.tolist() == [1.0, np.inf]
    assert gradients.tolist() == [6.0, np.inf]

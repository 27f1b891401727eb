import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jaxlab.experiment.figures import save_figure

ROOT = Path(__file__).parents[2]


class Program:
    """Runs programs of the repository, which share one compilation cache."""

    def __init__(self, cache: Path):
        self.environment = os.environ | {
            "JAX_COMPILATION_CACHE_DIR": str(cache),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
            "COLUMNS": "120",
        }

    def start(self, *words: object) -> subprocess.Popen:
        return subprocess.Popen(
            [sys.executable, *map(str, words)],
            cwd=ROOT, env=self.environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def run(self, *words: object) -> subprocess.CompletedProcess:
        with self.start(*words) as process:
            out, err = process.communicate(timeout=300)
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def kill_after_chunks(self, count: int, out: Path, *words: object) -> int:
        """Kill a run once ``count`` chunks are stored; returns its exit code."""
        with self.start(*words) as process:
            while process.poll() is None:
                if len(list((out / "checkpoints").glob("*/chunk-*.npz"))) >= count:
                    process.send_signal(signal.SIGKILL)
                time.sleep(0.002)
            process.communicate()
        return process.returncode

    def resume_killed(self, slug: str, flags: tuple, count: int, out: Path) -> Any:
        """Kill a script once ``count`` chunks are stored, and end the run by the command."""
        self._kill(slug, flags, count, out)
        done = self.run("-m", "jaxlab.cli", "run", slug, *flags, "--out", out, "--resume")
        assert done.returncode == 0, done.stderr
        return done

    def check_same_after_kill(
        self, slug: str, flags: tuple, count: int, killed: Path, out: Path
    ) -> None:
        """The script, killed and resumed, ends with the numbers of an uninterrupted run."""
        done = self.run(*self._kill(slug, flags, count, killed), "--resume")
        assert done.returncode == 0, done.stderr
        for name in ("metrics.csv", "summary.json"):
            assert (killed / name).read_bytes() == (out / name).read_bytes()

    def _kill(self, slug: str, flags: tuple, count: int, out: Path) -> list[object]:
        words = [f"experiments/{slug}.py", *flags, "--out", out]
        assert self.kill_after_chunks(count, out, *words) == -signal.SIGKILL
        return words


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    return Program(tmp_path_factory.mktemp("compiled"))


@pytest.fixture
def check_reference() -> Callable[..., None]:
    """The smoke run stays within the bands that stand beside the paper's page."""

    def check(slug: str, out: Path, besides: tuple[str, ...] = ()) -> None:
        summary = json.loads((out / "summary.json").read_text())
        reference = json.loads((ROOT / f"docs/papers/{slug}_reference.json").read_text())["smoke"]
        for row, criterion in zip(reference, summary["criteria"], strict=True):
            assert row["name"] == criterion["name"]
            if not any(word in row["name"] for word in besides):
                assert row["low"] <= criterion["measured"] <= row["high"], criterion

    return check


@pytest.fixture
def check_redrawing() -> Callable[..., None]:
    """The numbers that a run has kept are enough for its figure."""

    def check(draw: Callable[..., Any], out: Path, folder: Path) -> None:
        folder.mkdir()
        (folder / "metrics.csv").write_bytes((out / "metrics.csv").read_bytes())
        save_figure(draw, folder)
        assert (folder / "figure.png").read_bytes().startswith(b"\x89PNG")
        assert (folder / "figure.svg").read_bytes() == (out / "figure.svg").read_bytes()

    return check

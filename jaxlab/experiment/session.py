"""A run in progress: its pieces, their checkpoints, the bar on the screen and the clock."""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from jaxlab.core.chunks import ChunkProgress, run_chunks
from jaxlab.core.types import Method, Run
from jaxlab.core.usage import UsageError

__all__ = ["Session", "open_session"]


class Session:
    """What an experiment's ``run`` function computes through.

    Attributes:
        folder: The run's folder.
        seconds: Compile and run seconds by piece.
    """

    def __init__(self, folder: Path, progress: Progress):
        self.folder = folder
        self.seconds: dict[str, dict[str, float]] = {}
        self._progress = progress
        self._task = progress.add_task("starting", total=None)
        self._compiling = 0.0

    def run(
        self, piece: str, method: Method, problem: Any, hyper: Any, key: jax.Array, **options: Any
    ) -> Run:
        """``core.run_chunks`` with a checkpoint of the piece's own name and a progress bar.

        Args:
            piece: A name that no other piece of the experiment has; punctuation does not count.
            method: The algorithm.
            problem: What is solved.
            hyper: The hyper-parameters.
            key: A typed PRNG key, or several.
            **options: As for ``core.run_chunks``.

        Raises:
            ValueError: The piece's name was used before.
            UsageError: Stored chunks belong to another version of the program.
        """
        if piece in self.seconds:
            raise ValueError(f"piece must be a new name, got {piece!r} for the second time")
        checkpoint = self.folder / "checkpoints" / re.sub("[^A-Za-z0-9_.]+", "-", piece)
        goes_on = checkpoint.exists() and any(checkpoint.iterdir())

        def show(chunk: ChunkProgress) -> None:
            self._progress.update(self._task, completed=chunk.step, total=chunk.num_steps)

        with self.timed(piece):
            try:
                return run_chunks(
                    method, problem, hyper, key, checkpoint=checkpoint, on_chunk=show, **options
                )
            except ValueError as error:
                if not goes_on:
                    raise
                raise UsageError(
                    f"cannot go on with the stored piece {piece!r}: {error}"
                ) from error

    @contextmanager
    def timed(self, piece: str) -> Iterator[None]:
        """Count what happens inside as ``piece`` and show its name."""
        self._progress.reset(self._task, description=piece, total=None)
        compiling, started = self._compiling, time.perf_counter()
        yield
        compile_seconds = self._compiling - compiling
        total = time.perf_counter() - started
        self.seconds[piece] = {"compile": compile_seconds, "run": total - compile_seconds}

    def add_compile_seconds(self, event: str, seconds: float, **_: Any) -> None:
        """A listener for JAX's own measurements."""
        if event.startswith("/jax/core/compile/"):
            self._compiling += seconds

    @property
    def compile_seconds(self) -> float:
        """Seconds spent on tracing and compiling so far, inside pieces and between them."""
        return self._compiling


@contextmanager
def open_session(folder: Path, *, progress: bool) -> Iterator[Session]:
    """A session with its progress bar on standard error, and JAX's compile clock running."""
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
    )  # fmt: skip
    console = Console(stderr=True)
    shown = progress and console.is_terminal
    bar = Progress(*columns, console=console, transient=True, disable=not shown)
    with bar:
        session = Session(folder, bar)
        listener: Callable[..., None] = session.add_compile_seconds
        jax.monitoring.register_event_duration_secs_listener(listener)
        try:
            yield session
        finally:
            jax.monitoring.unregister_event_duration_listener(listener)

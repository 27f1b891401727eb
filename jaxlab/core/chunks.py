"""Long runs in chunks: progress between compiled pieces, and checkpoints that survive a kill."""

import functools
import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxlab.core.checks import check_count
from jaxlab.core.files import UnreadableFileError, load_leaves, save_leaves, usable_directory
from jaxlab.core.iterate import init_key, run, trace_info
from jaxlab.core.types import Method, Run, Status

__all__ = ["ChunkProgress", "run_chunks"]


class ChunkProgress(NamedTuple):
    """What ``on_chunk`` is told after every chunk.

    Attributes:
        step: Steps taken so far.
        num_steps: Steps in all.
        resumed: Whether the chunk came from a checkpoint.
        trace: The chunk's trace, on the host.
    """

    step: int
    num_steps: int
    resumed: bool
    trace: Any


def run_chunks(
    method: Method,
    problem: Any,
    hyper: Any,
    key: Array,
    *,
    num_steps: int,
    chunk_size: int,
    trace_fn: Callable[[Any, Any], Any] = trace_info,
    every: int = 1,
    in_axes: tuple[Any, Any, Any] | None = None,
    divergence_threshold: float | None = None,
    stop_fn: Callable[[Any], bool] | None = None,
    on_chunk: Callable[[ChunkProgress], None] | None = None,
    checkpoint: Path | None = None,
) -> Run:
    """Run like ``core.run``, in compiled chunks with the host in between.

    With ``checkpoint`` every chunk is stored when it ends, and a later call with the same arguments
    goes on from the last one that is whole. The result is bit-identical to that of an uninterrupted
    call of the same ``chunk_size``: a step depends on the problem, the key and its number alone.

    Args:
        method: The algorithm.
        problem: What is solved.
        hyper: The hyper-parameters.
        key: A typed PRNG key, or an array of keys when ``in_axes`` batches over them.
        num_steps: The number of steps; a multiple of ``chunk_size``.
        chunk_size: Steps per chunk; a multiple of ``every``.
        trace_fn: ``(state, info) -> pytree`` to record.
        every: Record the last of every ``every`` steps.
        in_axes: Batch axes of ``(problem, hyper, key)`` as in ``jax.vmap``; ``(None, None, 0)``
            runs one copy per key. The batch axis comes first in the results.
        divergence_threshold: As in ``core.run``.
        stop_fn: Asked after every chunk with the chunk's trace on the host; true ends the run
            early, with ``Run.num_steps`` telling where.
        on_chunk: Told of every chunk, for progress bars.
        checkpoint: A folder of this run's own.

    Raises:
        TypeError: A count is not an integer.
        ValueError: The sizes do not divide, or ``checkpoint`` holds another run's files.
    """
    check_count("num_steps", num_steps)
    check_count("chunk_size", chunk_size)
    if num_steps % chunk_size:
        raise ValueError(
            f"num_steps must be a multiple of chunk_size = {chunk_size}, got {num_steps}"
        )
    if chunk_size % every:
        raise ValueError(f"chunk_size must be a multiple of every = {every}, got {chunk_size}")

    programs = _programs
    try:
        hash((method, trace_fn, in_axes))
    except TypeError:  # axes given as dictionaries, say: compiled for this call alone
        programs = _programs.__wrapped__
    start, advance = programs(method, trace_fn, chunk_size, every, in_axes, divergence_threshold)
    state = start(problem, hyper, key)
    store = None
    if checkpoint is not None:
        arguments = (problem, hyper, key, state, jnp.int32(0))
        program, shapes = jax.make_jaxpr(advance, return_shape=True)(*arguments)
        mark = _fingerprint(problem, hyper, key, num_steps, str(program), program.consts)
        store = _Store(usable_directory(checkpoint, "checkpoint"), mark, shapes)
    done = store.load() if store else []
    traces, marks = [chunk.trace for chunk in done], [_health(chunk) for chunk in done]
    if done:
        state = jax.tree.map(jnp.asarray, done[-1].state)
    for index in range(num_steps // chunk_size):
        resumed = index < len(done)
        if not resumed:
            first_step = jnp.int32(index * chunk_size)
            piece = jax.device_get(advance(problem, hyper, key, state, first_step))
            state = jax.tree.map(jnp.asarray, piece.state)
            traces.append(piece.trace)
            marks.append(_health(piece))
            if store:
                store.save(index, piece)
        if on_chunk:
            steps = (index + 1) * chunk_size
            on_chunk(ChunkProgress(steps, num_steps, resumed, traces[index]))
        if stop_fn and stop_fn(traces[index]):
            break
    return _joined(state, traces, marks, 0 if in_axes is None else 1, chunk_size)


@functools.lru_cache(maxsize=32)
def _programs(
    method: Method,
    trace_fn: Callable[[Any, Any], Any],
    chunk_size: int,
    every: int,
    in_axes: tuple[Any, Any, Any] | None,
    divergence_threshold: float | None,
) -> tuple[Callable, Callable]:
    """The two compiled functions of a run, kept so that a second call does not compile again."""

    def batched(function: Callable, extra_axes: tuple = ()) -> Callable:
        return function if in_axes is None else jax.vmap(function, in_axes=(*in_axes, *extra_axes))

    @jax.jit
    def start(problem: Any, hyper: Any, key: Array) -> Any:
        return batched(lambda p, h, k: method.init(p, h, init_key(k)))(problem, hyper, key)

    @functools.partial(jax.jit, donate_argnums=3)
    def advance(problem: Any, hyper: Any, key: Array, state: Any, first_step: Array) -> Run:
        def chunk(problem: Any, hyper: Any, key: Array, state: Any) -> Run:
            return run(
                method, problem, hyper, key, num_steps=chunk_size, trace_fn=trace_fn, every=every,
                state=state, first_step=first_step, divergence_threshold=divergence_threshold,
            )  # fmt: skip

        return batched(chunk, (0,))(problem, hyper, key, state)

    return start, advance


def _health(piece: Run) -> tuple[np.ndarray, np.ndarray]:
    return np.asarray(piece.status), np.asarray(piece.first_bad_step)


def _joined(state: Any, traces: list, marks: list, axis: int, chunk_size: int) -> Run:
    """The chunks as one run: the first chunk that went bad says how."""
    trace = jax.tree.map(lambda *leaves: np.concatenate(leaves, axis=axis), *traces)
    status, bad = marks[0]
    for later_status, later_bad in marks[1:]:
        good = status == Status.OK
        # A chunk that starts from a bad state calls its input bad; the chunk before told it first.
        status, bad = np.where(good, later_status, status), np.where(good, later_bad, bad)
    steps = np.full(status.shape, len(traces) * chunk_size, dtype=np.int32)
    return Run(
        state,
        trace,
        jnp.asarray(status, jnp.int32),
        jnp.asarray(bad, jnp.int32),
        jnp.asarray(steps),
    )


class _Store:
    """One file per chunk, with the state at its end."""

    def __init__(self, folder: Path, mark: str, shapes: Run):
        self.folder, self.mark, self.shapes = folder, mark, shapes

    def _path(self, index: int) -> Path:
        return self.folder / f"chunk-{index:06d}.npz"

    def save(self, index: int, piece: Run) -> None:
        save_leaves(self._path(index), piece, mark=self.mark)

    def load(self) -> list[Run]:
        """The chunks that are there, up to the first one that is missing or damaged."""
        pieces = []
        while self._path(len(pieces)).exists():
            try:
                pieces.append(load_leaves(self._path(len(pieces)), self._shapes_of_same_run)[0])
            except UnreadableFileError:
                break
        return pieces

    def _shapes_of_same_run(self, header: dict[str, Any]) -> Run:
        if header.get("mark") != self.mark:
            raise ValueError(
                f"checkpoint must be empty or hold the same run (problem, hyper-parameters, "
                f"key and sizes), got another run's files in {str(self.folder)!r}"
            )
        return self.shapes


def _fingerprint(problem: Any, hyper: Any, key: Array, num_steps: int, *program: Any) -> str:
    """A digest of everything that decides the numbers: the arguments and the traced program."""
    parts = (problem, hyper, key, num_steps, program)
    text = [repr(jax.tree.structure(parts))]
    text += [leaf for leaf in jax.tree.leaves(parts) if isinstance(leaf, str)]
    # Both show static functions with their addresses, which differ between processes.
    digest = hashlib.sha256(re.sub(r" at 0x[0-9a-f]+", "", "".join(text)).encode())
    for leaf in jax.tree.leaves(parts):
        if isinstance(leaf, str):
            continue
        if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        array = np.asarray(leaf)
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()

import random
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlab.core import Method, Status, run, run_chunks

KEY = jax.random.key(21)
SIZES = {"num_steps": 12, "chunk_size": 3}


def step(problem, hyper, state, key):
    state = hyper * state + problem * jax.random.normal(key, state.shape)
    return state, {"total": state.sum()}


WALK = Method(lambda problem, hyper, key: jax.random.normal(key, (3,)), step)
NOISE, FACTOR = jnp.asarray(0.5), jnp.asarray(0.9)


def chunked(folder=None, *, method=WALK, noise=NOISE, factor=FACTOR, key=KEY, **options):
    return run_chunks(method, noise, factor, key, **{**SIZES, "checkpoint": folder, **options})


def assert_identical(one, other):
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


@pytest.mark.parametrize("every", [1, 3])
def test_chunks_equal_the_run_bit_for_bit(every):
    whole = jax.jit(lambda key: run(WALK, NOISE, FACTOR, key, num_steps=12, every=every))(KEY)
    assert_identical(chunked(every=every), whole)


def test_a_batch_of_keys_equals_single_runs():
    keys = jax.random.split(KEY, 3)
    batch = chunked(key=keys, in_axes=(None, None, 0))
    assert batch.trace["total"].shape == (3, 12)
    for i in range(3):
        single = chunked(key=keys[i])
        # The batch is another program; one rounding per operation, three operations per step.
        tolerance = 3 * 12 * np.finfo(float).eps * np.abs(single.state).max()
        np.testing.assert_allclose(batch.state[i], single.state, rtol=0, atol=tolerance)


@pytest.mark.parametrize("damage", ["none", "delete last", "delete first", "truncate", "empty"])
def test_a_damaged_checkpoint_is_repaired(tmp_path, damage):
    whole = chunked(tmp_path)
    stored = sorted(tmp_path.glob("chunk-*.npz"))
    assert len(stored) == 4
    if damage == "delete last":
        stored[-1].unlink()
    elif damage == "delete first":
        stored[0].unlink()
    elif damage == "truncate":
        stored[2].write_bytes(stored[2].read_bytes()[:-40])
    elif damage == "empty":
        stored[1].write_bytes(b"")
    resumed = []
    again = chunked(tmp_path, on_chunk=lambda progress: resumed.append(progress.resumed))
    assert_identical(again, whole)
    good = {"none": 4, "delete last": 3, "delete first": 0, "truncate": 2, "empty": 1}[damage]
    assert resumed == [True] * good + [False] * (4 - good)


@pytest.mark.parametrize(
    "change",
    [
        {"noise": NOISE + 1},
        {"factor": FACTOR / 2},
        {"key": jax.random.key(22)},
        {"num_steps": 15},
        {"chunk_size": 6},
        {"method": Method(WALK.init, lambda p, h, state, key: step(p, h, state + 1, key))},
        {"divergence_threshold": 1e9},
    ],
    ids=lambda change: next(iter(change)),
)
def test_the_checkpoint_of_another_run_is_refused(tmp_path, change):
    chunked(tmp_path)
    with pytest.raises(ValueError, match=r"checkpoint must be empty or hold the same run.*got"):
        chunked(tmp_path, **change)


def test_a_kill_at_any_moment_loses_nothing(tmp_path, seed):
    script = [sys.executable, str(Path(__file__).with_name("chunked_run.py"))]

    def finish(folder):
        done = subprocess.run(
            [*script, str(folder)], capture_output=True, text=True, timeout=120, check=True
        )
        return done.stdout

    moments = random.Random(seed)
    whole, killed_after = finish(tmp_path / "whole"), 0
    for _ in range(2):
        process = subprocess.Popen([*script, str(tmp_path / "killed")], stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while not list((tmp_path / "killed").glob(f"chunk-{killed_after:06d}.npz")):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(moments.uniform(0.0, 0.2))
        process.kill()
        process.wait()
        killed_after = len(list((tmp_path / "killed").glob("chunk-*.npz")))
    assert 0 < killed_after < 20, "the kills came too late"
    assert finish(tmp_path / "killed") == whole


def test_statuses_come_from_the_chunk_that_went_bad():
    def grow(problem, hyper, state, key):
        del problem, key
        return hyper * state, state

    doubling = Method(lambda problem, hyper, key: problem, grow)
    options = {"num_steps": 8, "chunk_size": 2}
    # 2**(t + 1) exceeds 20 at step 4; the overflow of 1e300 * 1e3**t comes at step 2.
    done = run_chunks(
        doubling, jnp.asarray(1.0), jnp.asarray(2.0), KEY, divergence_threshold=20.0, **options
    )
    assert (int(done.status), int(done.first_bad_step)) == (Status.DIVERGED, 4)
    done = run_chunks(doubling, jnp.asarray(1e300), jnp.asarray(1e3), KEY, **options)
    assert (int(done.status), int(done.first_bad_step)) == (Status.NONFINITE, 2)


def test_a_rule_on_the_trace_ends_the_run():
    done = chunked(stop_fn=lambda trace: True)
    assert int(done.num_steps) == 3
    assert done.trace["total"].shape == (3,)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"chunk_size": 5}, "num_steps must be a multiple of chunk_size = 5, got 12"),
        ({"every": 2}, "chunk_size must be a multiple of every = 2, got 3"),
        ({"chunk_size": 0}, "chunk_size must be at least 1, got 0"),
    ],
)
def test_sizes_that_do_not_divide_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        chunked(**options)

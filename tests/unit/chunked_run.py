"""A run in chunks that the test kills: ``python chunked_run.py CHECKPOINT``; prints its digest."""

import hashlib
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp

from jaxlab.core import Method, run_chunks

jax.config.update("jax_enable_x64", True)


def step(problem, hyper, state, key):
    state = hyper * state + problem * jax.random.normal(key, state.shape)
    return state, state.sum()


done = run_chunks(
    Method(lambda problem, hyper, key: jax.random.normal(key, (4,)), step),
    jnp.asarray(0.5),
    jnp.asarray(0.9),
    jax.random.key(3),
    num_steps=40,
    chunk_size=2,
    checkpoint=Path(sys.argv[1]),
    # Slow enough that a kill falls between, into or before the writes.
    on_chunk=lambda progress: progress.resumed or time.sleep(0.05),
)
print(hashlib.sha256(done.state.tobytes() + done.trace.tobytes()).hexdigest())

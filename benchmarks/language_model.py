"""The language model against PyTorch's `transformers`, on the weights of SmolLM2-135M in float32.

Run from the repository's root, with the weights and `pip install 'jaxlab[bench]'`::

    pytest benchmarks/language_model.py -n 0

Times are printed and decide nothing; equal answers do, and that rematerialisation at least halves
the memory of a gradient, which XLA counts itself. PyTorch has as many threads as this process has
cores. First calls include compilation; times are the best of several runs after that.
"""

import functools
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch  # pyright: ignore[reportMissingImports]

from jaxlab.core.locate import load_companion
from jaxlab.models.generate import generate
from jaxlab.models.llama import CausalLM, unstack_layers
from jaxlab.models.load import load
from jaxlab.models.losses import TokenBatch, next_token_loss
from jaxlab.models.safetensors_folders import export_safetensors

seconds = load_companion("benchmarks", "diffusion").seconds

NAME = "smollm2-135m-instruct"
REPETITIONS = 5
LOGIT_TOLERANCE = 2e-3
NEW_TOKENS = 128
MEMORY_LENGTH = 512

pytestmark = pytest.mark.usefixtures("as_users_run", "in_default_precision")


@pytest.fixture(scope="module")
def ours() -> Any:
    """The model as we load it."""
    with jax.enable_x64(False):
        return load(NAME)


@pytest.fixture(scope="module")
def apart(ours: Any) -> Any:
    """Its parameters with layers apart, as PyTorch keeps them."""
    with jax.enable_x64(False):
        return unstack_layers(ours.params)


@pytest.fixture(scope="module")
def theirs(ours: Any) -> Any:
    """The model as `transformers` opens our export."""
    transformers = pytest.importorskip("transformers", reason="needs pip install 'jaxlab[bench]'")
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    with tempfile.TemporaryDirectory() as folder:
        export_safetensors(Path(folder) / "model", ours.lm, ours.params)
        model = transformers.AutoModelForCausalLM.from_pretrained(
            Path(folder) / "model", dtype=torch.float32
        )
    return model.eval()


@functools.cache
def text(length: int) -> np.ndarray:
    """Token ids; which ones does not matter for time."""
    return np.random.default_rng(0).integers(0, 49_152, length).astype(np.int32)


def race(report: Callable[[str, str], None], what: str, programs: dict[str, Callable]) -> None:
    """Take turns, and report the best time of each and the ratio."""
    first = {name: seconds(program) for name, program in programs.items()}
    best = dict.fromkeys(programs, float("inf"))
    for _ in range(REPETITIONS):
        for name, program in programs.items():
            best[name] = min(best[name], seconds(program))
    report(f"{what}, jaxlab: first call", f"{first['jaxlab']:.2f} s")
    for name, value in best.items():
        report(f"{what}, {name}", f"{value * 1e3:.0f} ms")
    report(f"{what}, transformers / jaxlab", f"{best['transformers'] / best['jaxlab']:.2f}")


def test_load(report):
    begin = time.perf_counter()
    jax.block_until_ready(load(NAME).params)
    report("load SmolLM2 from GGUF, tokenizer included", f"{time.perf_counter() - begin:.2f} s")


@pytest.mark.parametrize("length", [64, 256])
def test_forward(report, ours, apart, theirs, length):
    tokens, ids = jnp.asarray(text(length)), torch.tensor(text(length))[None].long()
    forward = jax.jit(ours.lm.logits)

    def peer() -> np.ndarray:
        with torch.no_grad():
            return theirs(ids).logits[0].numpy()

    programs = {
        "jaxlab": lambda: np.asarray(forward(apart, tokens)),
        "jaxlab, stacked": lambda: np.asarray(forward(ours.params, tokens)),
        "transformers": peer,
    }
    assert np.abs(programs["jaxlab"]() - peer()).max() < LOGIT_TOLERANCE
    race(report, f"forward, {length} tokens", programs)


def peer_loss(model: Any, ids: Any) -> Any:
    """Mean next-token loss of one sequence."""
    logits = model(ids[None]).logits[0, :-1]
    return torch.nn.functional.cross_entropy(logits, ids[1:])


def test_gradient(report, ours, apart, theirs):
    batch, ids = _batch(64), torch.tensor(text(64)).long()
    gradient = jax.jit(jax.grad(next_token_loss(ours.lm)))
    weights = list(theirs.parameters())

    def peer() -> tuple[Any, ...]:
        return torch.autograd.grad(peer_loss(theirs, ids), weights)

    programs = {
        "jaxlab": lambda: jax.block_until_ready(gradient(apart, batch)),
        "jaxlab, stacked": lambda: jax.block_until_ready(gradient(ours.params, batch)),
        "transformers": peer,
    }
    mine, other = programs["jaxlab"](), peer()
    _assert_close(mine["embed"]["embedding"], other[0])
    race(report, "gradient, 64 tokens", programs)


def test_hessian_vector_product(report, ours, apart, theirs):
    batch, ids = _batch(64), torch.tensor(text(64)).long()
    loss = next_token_loss(ours.lm)
    theirs.set_attn_implementation("eager")  # the fused one has no second derivative
    weights = list(theirs.parameters())

    @jax.jit
    def product(params: Any, batch: TokenBatch) -> Any:
        # Along the parameters themselves, which both sides have.
        return jax.jvp(jax.grad(lambda p: loss(p, batch)), (params,), (params,))[1]

    def peer() -> tuple[Any, ...]:
        first = torch.autograd.grad(peer_loss(theirs, ids), weights, create_graph=True)
        along = [(g * w.detach()).sum() for g, w in zip(first, weights, strict=True)]
        return torch.autograd.grad(torch.stack(along).sum(), weights)

    programs = {
        "jaxlab": lambda: jax.block_until_ready(product(apart, batch)),
        "jaxlab, stacked": lambda: jax.block_until_ready(product(ours.params, batch)),
        "transformers": peer,
    }
    _assert_close(programs["jaxlab"]()["embed"]["embedding"], peer()[0])
    race(report, "Hessian-vector product, 64 tokens", programs)


def test_decode(report, ours, theirs):
    tokens, ids = jnp.asarray(text(8)), torch.tensor(text(8))[None].long()
    decode = jax.jit(functools.partial(generate, ours.lm, max_new_tokens=NEW_TOKENS))

    def peer() -> list[int]:
        with torch.no_grad():
            out = theirs.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=NEW_TOKENS,
                min_new_tokens=NEW_TOKENS,
                do_sample=False,
                pad_token_id=0,
                eos_token_id=None,
            )
        return out[0, 8:].tolist()

    programs = {
        "jaxlab": lambda: decode(ours.params, tokens).tokens.tolist(),
        "transformers": peer,
    }
    assert programs["jaxlab"]() == peer()
    race(report, f"decode {NEW_TOKENS} tokens", programs)
    best = min(seconds(programs["jaxlab"]) for _ in range(2)) / NEW_TOKENS
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(ours.params))
    read = jax.jit(lambda params: sum(leaf.sum() for leaf in jax.tree.leaves(params)))
    seconds(lambda: read(ours.params).block_until_ready())
    speed = max(
        size / seconds(lambda: read(ours.params).block_until_ready()) for _ in range(REPETITIONS)
    )
    report("decode, jaxlab: weights read", f"{size / best / 1e9:.1f} GB/s")
    report("summing all weights once", f"{speed / 1e9:.1f} GB/s")
    report("decode, jaxlab: fraction of that", f"{size / best / speed:.2f}")


def test_memory_of_a_gradient(report, ours):
    batch, bytes_used = _batch(MEMORY_LENGTH), {}
    for remat in (False, True):
        gradient = jax.jit(jax.grad(next_token_loss(CausalLM(ours.lm.config, remat=remat))))
        compiled = gradient.lower(ours.params, batch).compile()
        analysis = compiled.memory_analysis()
        assert analysis is not None
        bytes_used[remat] = analysis.temp_size_in_bytes
        jax.block_until_ready(compiled(ours.params, batch))
        best = min(
            seconds(lambda run=compiled: jax.block_until_ready(run(ours.params, batch)))
            for _ in range(2)
        )
        name = "with rematerialisation" if remat else "as it is"
        report(
            f"gradient, {MEMORY_LENGTH} tokens, {name}: memory besides the parameters'",
            f"{bytes_used[remat] / 2**20:.0f} MiB",
        )
        report(f"gradient, {MEMORY_LENGTH} tokens, {name}", f"{best:.2f} s")
    assert bytes_used[True] <= bytes_used[False] / 2


def _batch(length: int) -> TokenBatch:
    return TokenBatch(jnp.asarray(text(length))[None], jnp.ones((1, length), bool))


def _assert_close(mine: Any, other: Any) -> None:
    other_values = other.numpy()
    assert np.abs(np.asarray(mine) - other_values).max() < 2e-3 * np.abs(other_values).max()

"""What Hessian products and a tournament cost, against PyTorch, curvlinops and all pairs.

Run from the repository's root::

    pytest benchmarks/lie_bracket.py -n 0

Times are printed and decide nothing; equal answers come first. The model is the experiment's
network over bytes, with 85 sources of random bytes.
"""

import importlib
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch  # pyright: ignore[reportMissingImports]

from jaxlab.core.derivatives import hvp
from jaxlab.core.trees import tree_dot
from jaxlab.models.byte_mlp import ByteMlp, Contexts, byte_mlp_loss, init_byte_mlp
from jaxlab.optim import lie_bracket as lb

SOURCES, BATCH, REPETITIONS = 85, 128, 5

pytestmark = [
    pytest.mark.usefixtures("as_users_run", "in_default_precision"),
    # PyTorch's own, on the first use of forward mode.
    pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning"),
]


def best(function: Callable[[], Any]) -> float:
    times = []
    for _ in range(REPETITIONS):
        start = time.perf_counter()
        jax.block_until_ready(function())
        times.append(time.perf_counter() - start)
    return min(times)


def setting() -> tuple[ByteMlp, Contexts, Contexts]:
    draws = np.random.default_rng(0).integers(0, 256, (SOURCES + 1, BATCH, 9))
    batches = Contexts(jnp.asarray(draws[..., :8]), jnp.asarray(draws[..., 8]))
    sources, target = (
        jax.tree.map(lambda leaf, at=at: leaf[at], batches) for at in (slice(SOURCES), SOURCES)
    )
    return init_byte_mlp(jax.random.key(0)), sources, target


def torch_loss(params: tuple[torch.Tensor, ...], batch: tuple[torch.Tensor, ...]) -> torch.Tensor:
    embedding, hidden, hidden_bias, head, head_bias = params
    flat = embedding[batch[0]].reshape(len(batch[0]), -1)
    logits = torch.tanh(flat @ hidden + hidden_bias) @ head + head_bias
    return torch.nn.functional.cross_entropy(logits, batch[1])


def torch_scores(params: Any, sources: Any, target: Any) -> np.ndarray:
    """The tournament by PyTorch's forward mode over its gradients."""
    grad = torch.func.grad(torch_loss)
    along = grad(params, target)
    pairs = [
        torch.func.jvp(lambda p, i=i: grad(p, (sources[0][i], sources[1][i])), (params,), (along,))
        for i in range(SOURCES)
    ]
    flat = [[torch.cat([leaf.ravel() for leaf in tree]) for tree in pair] for pair in pairs]
    grads, products = (torch.stack(list(column)) for column in zip(*flat, strict=True))
    scores = grads @ products.sum(0) - products @ grads.sum(0)
    return scores.detach().numpy()


class TorchMlp(torch.nn.Module):
    """The same network as a module, which curvlinops asks for."""

    def __init__(self, params: tuple[torch.Tensor, ...]) -> None:
        super().__init__()
        self.leaves = torch.nn.ParameterList(torch.nn.Parameter(leaf) for leaf in params)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Logits."""
        embedding, hidden, hidden_bias, head, head_bias = self.leaves
        flat = embedding[inputs].reshape(len(inputs), -1)
        return torch.tanh(flat @ hidden + hidden_bias) @ head + head_bias


def test_products_with_a_hessian(report):
    params, sources, target = setting()
    one = jax.tree.map(lambda leaf: leaf[0], sources)
    along = jax.grad(byte_mlp_loss)(params, target)
    leaves, aim = (
        tuple(torch.tensor(np.asarray(leaf)) for leaf in tree) for tree in (params, along)
    )
    batch = tuple(torch.tensor(np.asarray(leaf)).long() for leaf in one)
    # Its dependencies warn on import, where a mark of this file does not reach.
    operators = importlib.import_module("curvlinops")
    operator = operators.HessianLinearOperator(
        (model := TorchMlp(leaves)), torch.nn.CrossEntropyLoss(), list(model.parameters()),
        [batch], check_deterministic=False,
    )  # fmt: skip

    def twice_backward(params: Any, batch: Any, v: Any) -> Any:
        return jax.grad(lambda p: tree_dot(jax.grad(byte_mlp_loss)(p, batch), v))(params)

    ours = jax.jit(lambda p, b, v: hvp(byte_mlp_loss, p, b, v))
    backward = jax.jit(twice_backward)
    grad = torch.func.grad(torch_loss)
    rivals = {
        "ours, twice backward": lambda: backward(params, one, along),
        "torch.func, forward over reverse": lambda: torch.func.jvp(
            lambda p: grad(p, batch), (leaves,), (aim,)
        )[1],
        "torch.autograd, twice backward": lambda: torch.autograd.functional.hvp(
            lambda *p: torch_loss(p, batch), leaves, aim
        )[1],
        "curvlinops": lambda: operator @ list(aim),
    }
    answer = ours(params, one, along)
    expected = [np.asarray(leaf) for leaf in answer]
    size = max(np.abs(leaf).max() for leaf in expected)
    here = best(lambda: ours(params, one, along))
    for name, rival in rivals.items():
        for found, leaf in zip(rival(), expected, strict=True):
            if isinstance(found, torch.Tensor):
                found = found.detach().numpy()
            np.testing.assert_allclose(np.asarray(found), leaf, atol=1e-5 * size)
        report(f"Hessian product: {name} / ours", f"{best(rival) / here:.1f}")


def test_tournament(report):
    params, sources, target = setting()
    ours = jax.jit(lambda *args: lb.borda_scores(lb.tournament(byte_mlp_loss, *args)))
    theirs = jax.tree.map(lambda leaf: torch.tensor(np.asarray(leaf)), tuple(params))
    batches, aim = (
        tuple(torch.tensor(np.asarray(leaf)).long() for leaf in batch)
        for batch in (sources, target)
    )
    scores = np.asarray(ours(params, sources, target))
    peer = torch_scores(theirs, batches, aim)
    np.testing.assert_allclose(scores, peer, atol=1e-4 * np.abs(peer).max())
    with jax.enable_x64(True):
        wide = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf), jnp.float64), params)
        table = jax.jit(lambda *args: lb.tournament(byte_mlp_loss, *args))(wide, sources, target)
        exact = np.asarray(lb.borda_scores(table))
    error = np.abs(scores - exact).max() / np.abs(exact).max()
    report("tournament of 85: error of float32, of the largest", f"{error:.1e}")
    here = best(lambda: ours(params, sources, target))
    report(
        "tournament of 85: PyTorch / ours",
        f"{best(lambda: torch_scores(theirs, batches, aim)) / here:.1f}",
    )

    # Two products a pair; the matrix costs 85 rows, of which one is timed.
    def row(params: Any, sources: Any, target: Any) -> jax.Array:
        aim = jax.grad(byte_mlp_loss)(params, target)
        first = jax.tree.map(lambda leaf: leaf[0], sources)
        return jax.lax.map(
            lambda other: tree_dot(aim, lb.bracket(byte_mlp_loss, params, first, other)), sources
        )

    naive = jax.jit(row)
    edges = np.asarray(naive(params, sources, target))
    np.testing.assert_allclose(edges.sum(), scores[0], atol=1e-4 * np.abs(scores).max())
    pairs = SOURCES / 2 * best(lambda: naive(params, sources, target))
    report("tournament of 85: all pairs / ours", f"{pairs / here:.0f}")

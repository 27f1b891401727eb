"""Learned quantisers and steps of unlearning against PyTorch and Brevitas, in float32.

Run from the repository's root::

    pytest benchmarks/oeu.py -n 0

Equal answers come first; times are printed and decide nothing. PyTorch's quantiser is the usual one
of detached terms, its step is written with ``torch.autograd.grad``; both run eagerly, as their
users run them. Brevitas' integer quantiser has no scale on the gradient of the step, and clips
after it rounds, which is allowed for. Times are the best of several runs, after compilation.
"""

import itertools
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch  # pyright: ignore[reportMissingImports]

from jaxlab.optim.lsq import lsq_init_step, lsq_quantize, signed_range
from jaxlab.optim.oeu import (
    Labelled,
    OEUState,
    Unlearning,
    classification_losses,
    oeu,
    oeu_hyper,
)

SIZE, BITS, WIDTHS, ROWS, REPETITIONS = 1024, 4, (64, 96, 96, 10), 64, 10
BOUNDS = signed_range(BITS)
TOLERANCE = 1e-6

pytestmark = pytest.mark.usefixtures("as_users_run", "in_default_precision")


def seconds(function: Callable[[], Any]) -> float:
    """Of the best call."""
    times = []
    for _ in range(REPETITIONS):
        start = time.perf_counter()
        jax.block_until_ready(function())
        times.append(time.perf_counter() - start)
    return min(times)


def tell(
    report: Callable[[str, str], None], name: str, ours: Any, peers: dict[str, Callable[[], Any]]
) -> None:
    """Times and ratios."""
    best = seconds(ours)
    report(f"{name}, jaxlab", f"{1e3 * best:.2f} ms")
    for peer, function in peers.items():
        theirs = seconds(function)
        report(f"{name}, {peer}", f"{1e3 * theirs:.2f} ms, {theirs / best:.1f} times")


def torch_lsq(v: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
    """The rule through detached terms."""
    scale = (v.numel() * BOUNDS.q_p) ** -0.5
    step = (step - step * scale).detach() + step * scale
    ratio = torch.clamp(v / step, -BOUNDS.q_n, BOUNDS.q_p)
    return step * ((ratio.round() - ratio).detach() + ratio)


def test_quantiser(report):
    generator = np.random.default_rng(0)
    v, cotangent = generator.normal(size=(2, SIZE, SIZE)).astype(np.float32)
    step = np.asarray(lsq_init_step(jnp.asarray(v), BOUNDS))

    @jax.jit
    def both(v: jax.Array, step: jax.Array, cotangent: jax.Array) -> tuple[jax.Array, ...]:
        out, pull = jax.vjp(lambda v, step: lsq_quantize(v, step, BOUNDS), v, step)
        return (out, *pull(cotangent))

    arguments = jax.device_put((v, step, cotangent))
    tensors = [torch.tensor(x) for x in (v, step, cotangent)]
    peers = {"PyTorch": torch_lsq}
    try:
        from brevitas.core.quant.int_base import IntQuant  # pyright: ignore
    except ImportError:
        report("quantiser, Brevitas", "not installed")
    else:
        module = IntQuant(narrow_range=False, signed=True, input_view_impl=torch.nn.Identity())
        zero, bits = torch.tensor(0.0), torch.tensor(float(BITS))
        peers["Brevitas"] = lambda v, step: module(step, zero, bits, v)

    def with_gradients(function: Callable[..., Any]) -> tuple[Any, ...]:
        inputs = [tensor.detach().requires_grad_() for tensor in tensors[:2]]
        out = function(*inputs)
        return (out.detach(), *torch.autograd.grad(out, inputs, tensors[2]))

    ours = [np.asarray(x) for x in both(*arguments)]
    ratio = v / step
    band = np.maximum(-BOUNDS.q_n - ratio, ratio - BOUNDS.q_p)
    band = (band >= 0) & (band <= 0.5)
    for name, function in peers.items():
        out, grad_v, grad_step = (x.numpy() for x in with_gradients(function))
        np.testing.assert_allclose(ours[0], out, rtol=0, atol=TOLERANCE)
        differs = np.abs(ours[1] - grad_v) > TOLERANCE
        assert not (differs & ~band).any()
        if name == "PyTorch":
            assert not differs.any()
            # A sum of a million terms, in another order.
            np.testing.assert_allclose(ours[2], grad_step, rtol=1e-3)
        share = (differs & band).mean()
        report(f"quantiser, {name}: gradients that differ", f"{100 * share:.2f} %")
    tell(
        report,
        f"quantiser, {SIZE} x {SIZE}, forward and backward",
        lambda: both(*arguments),
        {
            name: lambda function=function: with_gradients(function)
            for name, function in peers.items()
        },
    )


def apply_ours(params: list[tuple[jax.Array, jax.Array]], x: jax.Array) -> jax.Array:
    for i, (kernel, step) in enumerate(params):
        x = (jax.nn.relu(x) if i else x) @ lsq_quantize(kernel, step, BOUNDS)
    return x


def apply_torch(params: list[torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    for i, (kernel, step) in enumerate(zip(params[::2], params[1::2], strict=True)):
        x = (torch.relu(x) if i else x) @ torch_lsq(kernel, step)
    return x


def torch_step(
    params: list[torch.Tensor], forget: torch.Tensor, retain: torch.Tensor, labels: torch.Tensor
) -> list[torch.Tensor]:
    """One step of the method on all rows."""
    params = [p.detach().requires_grad_() for p in params]
    logs = torch.log_softmax(apply_torch(params, forget), dim=-1)
    forgetting = (logs.exp() * logs).sum(dim=-1).mean()
    retaining = torch.nn.functional.cross_entropy(apply_torch(params, retain), labels)
    g_forget = torch.autograd.grad(forgetting, params)
    g_retain = torch.autograd.grad(retaining, params)
    inner = sum((a * b).sum() for a, b in zip(g_forget, g_retain, strict=True))
    square = sum((b * b).sum() for b in g_retain)
    return [
        (p - 0.05 * (b + (a - inner / square * b))).detach()
        for p, a, b in zip(params, g_forget, g_retain, strict=True)
    ]


def test_step(report):
    generator = np.random.default_rng(1)
    kernels = [
        (generator.normal(size=shape) / shape[0] ** 0.5).astype(np.float32)
        for shape in itertools.pairwise(WIDTHS)
    ]
    params = [(k, np.asarray(lsq_init_step(jnp.asarray(k), BOUNDS))) for k in kernels]
    forget, retain = generator.uniform(size=(2, ROWS, WIDTHS[0])).astype(np.float32)
    labels = generator.integers(0, WIDTHS[-1], ROWS)
    problem = jax.device_put(Unlearning(params, Labelled(forget, labels), Labelled(retain, labels)))
    method, hyper, key = oeu(*classification_losses(apply_ours)), oeu_hyper(0.05), jax.random.key(0)
    state: OEUState = method.init(problem, hyper, key)
    step = jax.jit(method.step)
    flat = [torch.tensor(x) for pair in params for x in pair]
    data = torch.tensor(forget), torch.tensor(retain), torch.tensor(labels)
    ours = jax.tree.leaves(step(problem, hyper, state, key)[0].params)
    for a, b in zip(ours, torch_step(flat, *data), strict=True):
        np.testing.assert_allclose(a, b.numpy(), rtol=0, atol=TOLERANCE)
    tell(
        report,
        f"a step on {ROWS} + {ROWS} rows",
        lambda: step(problem, hyper, state, key),
        {"PyTorch": lambda: torch_step(flat, *data)},
    )

"""Keep what PyTorch and Brevitas give for learned step sizes, for ``tests/oracles/test_lsq.py``.

    pip install 'jaxlab[peers]'
    python tests/peers/quantizers.py [--write]

PyTorch's autograd differentiates the rule as LSQ's paper states it, through detached terms.
Brevitas clips after it rounds, so that numbers up to half a step beyond the bounds still count as
inside.
"""

import argparse
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import torch
from brevitas.core.quant.int_base import IntQuant

from jaxlab.optim.lsq import QuantRange, lsq_quantize, signed_range, unsigned_range

GOLDEN = Path(__file__).parents[1] / "oracles" / "golden" / "lsq.npz"
CASES = {f"signed_{bits}": (signed_range(bits), bits) for bits in (2, 3, 4, 8)}
CASES |= {f"unsigned_{bits}": (unsigned_range(bits), bits) for bits in (2, 4)}


def torch_lsq(v: torch.Tensor, step: torch.Tensor, bounds: QuantRange) -> torch.Tensor:
    """The rule in PyTorch: a scaled gradient, a clip, and a rounding that is not seen."""
    scale = (v.numel() * bounds.q_p) ** -0.5
    step = (step - step * scale).detach() + step * scale
    ratio = torch.clamp(v / step, -bounds.q_n, bounds.q_p)
    return step * ((ratio.round() - ratio).detach() + ratio)


def brevitas_int(v: torch.Tensor, step: torch.Tensor, bounds: QuantRange, bits: int):
    """Brevitas' integer quantiser with a learned scale."""
    signed = bounds.q_n > 0
    module = IntQuant(narrow_range=False, signed=signed, input_view_impl=torch.nn.Identity())
    return module(step, torch.tensor(0.0), torch.tensor(float(bits)), v)


def with_gradients(function, v: np.ndarray, step: float, cotangent: np.ndarray):
    """Values and both gradients in float64."""
    v_torch = torch.tensor(v, requires_grad=True)
    step_torch = torch.tensor(step, dtype=torch.float64, requires_grad=True)
    out = function(v_torch, step_torch)
    out.backward(torch.tensor(cotangent))
    return out.detach().numpy(), v_torch.grad.numpy(), step_torch.grad.numpy()


def main() -> None:
    """Print the greatest differences to ours."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"write {GOLDEN.name}")
    write = parser.parse_args().write
    jax.config.update("jax_enable_x64", True)
    generator = np.random.default_rng(0)
    v, cotangent, step = generator.normal(size=64), generator.normal(size=64), 0.3
    kept: dict[str, np.ndarray] = {"v": v, "cotangent": cotangent, "step": np.array(step)}
    for name, (bounds, bits) in CASES.items():
        expected = with_gradients(
            lambda x, s, bounds=bounds: torch_lsq(x, s, bounds), v, step, cotangent
        )
        ours, pull = jax.vjp(
            lambda x, s, bounds=bounds: lsq_quantize(x, s, bounds),
            jnp.asarray(v),
            jnp.asarray(step),
        )
        found = (ours, *pull(jnp.asarray(cotangent)))
        errors = [float(np.abs(a - b).max()) for a, b in zip(found, expected, strict=True)]
        peer = with_gradients(
            lambda x, s, b=bounds, n=bits: brevitas_int(x, s, b, n), v, step, cotangent
        )
        inside = (v / step > -bounds.q_n) & (v / step < bounds.q_p)
        apart = (peer[1] != expected[1]).sum()
        print(
            f"{name:<12} PyTorch {max(errors):.1e}; Brevitas: values "
            f"{np.abs(peer[0] - expected[0]).max():.1e}, gradients inside "
            f"{np.abs(peer[1] - expected[1])[inside].max():.1e}, differ in {apart} of {v.size}"
        )
        for part, value in zip(("out", "grad_v", "grad_step"), expected, strict=True):
            kept[f"{name}_{part}"] = value
        kept[f"{name}_brevitas_out"], kept[f"{name}_brevitas_grad_v"], _ = peer
    if write:
        np.savez_compressed(GOLDEN, **kept)


if __name__ == "__main__":
    main()

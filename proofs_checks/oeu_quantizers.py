"""Claims of the paper on learned quantisers: O10 and O11."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from hypothesis import strategies as st
from jaxtyping import Array, Float

from jaxlab.claims import Claim, Comparison, at_most
from jaxlab.optim import lsq
from jaxlab.problems.sites import log_uniform, normals

ALLOWANCE = 1e-12
HIDDEN, CLASSES, ROWS, INPUTS = 5, 3, 6, 4


class Numbers(NamedTuple):
    """Numbers to quantise, the step, and a cotangent."""

    v: Float[Array, " numbers"]
    step: Float[Array, ""]
    cotangent: Float[Array, " numbers"]


def numbers(numel: int, bits: int) -> Numbers:
    """A NumPyro model: some numbers are beyond the bounds, some not."""
    v, cotangent = normals("numbers", (numel,), (numel,))
    step = log_uniform("step", 0.02, 2.0)
    return Numbers(2 ** (bits - 1) * step * v, step, cotangent)


def is_off_boundaries(instance: Numbers, *, bits: int) -> Array:
    """No number sits where a derivative jumps, and the step is positive."""
    ratio = instance.v / instance.step
    half = 2 ** (bits - 1)
    to_clips = jnp.minimum(jnp.abs(ratio + half), jnp.abs(ratio - half + 1)).min()
    to_halves = jnp.abs(ratio - jnp.floor(ratio) - 0.5).min()
    return jnp.minimum(jnp.minimum(to_clips, to_halves) - 1e-9, instance.step)


def quantizer(
    instance: Numbers, *, numel: int, bits: int, top: float = 0.0, scaled: float = 1.0
) -> Comparison:
    """O10. Mutants have one level too many, or a gradient of the step without its scale."""
    v, step, cotangent = instance
    bounds = lsq.signed_range(bits)
    high = bounds.q_p + top

    def quantize(v: Array, step: Array) -> Array:
        low = lsq.lsq_quantize(v, step, bounds)
        # What the mutant does to numbers above the highest level.
        return low + jax.lax.stop_gradient(step * top * (v / step > bounds.q_p + 0.5))

    out, pull = jax.vjp(quantize, v, step)
    grad_v, grad_step = pull(cotangent)
    ratio = v / step
    half = 2 ** (bits - 1)
    inside = (ratio > -half) & (ratio < half - 1)
    scale = (numel * (half - 1)) ** (-scaled / 2)
    slope = jnp.where(inside, jnp.round(ratio) - ratio, jnp.where(ratio < 0, -half, half - 1))
    codes = out / step
    level = jnp.stack([codes.max() - (half - 1), -half - codes.min()])
    left = jnp.concatenate(
        [
            jnp.abs(quantize(out, step) - out) / step,
            jnp.where(inside, jnp.abs(out - v) / step - 0.5, 0.0),
            jnp.abs(codes - jnp.round(codes)),
            level,
            jnp.abs(grad_v - jnp.where(inside, cotangent, 0.0)),
            jnp.abs(grad_step - scale * cotangent @ slope)[None] / (1 + jnp.abs(scale * high)),
        ]
    )
    return at_most(left, ALLOWANCE)


class Network(NamedTuple):
    """A network of four bits, rows, and a direction of its latent weights."""

    kernels: tuple[Array, Array]
    inputs: Array
    direction: tuple[Array, Array]
    share: Array


def network() -> Network:
    """A NumPyro model."""
    first, second, inputs, one, other = normals(
        "numbers",
        (INPUTS, HIDDEN),
        (HIDDEN, CLASSES),
        (ROWS, INPUTS),
        (INPUTS, HIDDEN),
        (HIDDEN, CLASSES),
    )
    return Network((first, second), inputs, (one, other), log_uniform("share", 1e-6, 1.0))


def moves(instance: Network) -> Array:
    """Some weight moves, and a part of the way to the first boundary is asked about."""
    sizes = [jnp.abs(leaf).max() for leaf in instance.direction]
    return jnp.minimum(jnp.stack(sizes).max() - 1e-6, 1 - instance.share + 1e-300)


def piecewise_constant(instance: Network, *, unquantised: float = 0.0) -> Comparison:
    """O11: nothing before the first boundary, another level behind it.

    The mutant looks at the latent weights instead.
    """
    bounds = lsq.signed_range(4)
    steps = [lsq.lsq_init_step(kernel, bounds) for kernel in instance.kernels]

    def levels(t: Array) -> list[Array]:
        moved = [k + t * d for k, d in zip(instance.kernels, instance.direction, strict=True)]
        low = [lsq.lsq_quantize(k, s, bounds) for k, s in zip(moved, steps, strict=True)]
        return [jnp.where(unquantised > 0, k, q) for k, q in zip(moved, low, strict=True)]

    def loss(t: Array) -> Array:
        first, second = levels(t)
        logits = jnp.tanh(instance.inputs @ first) @ second
        return -jax.nn.log_softmax(logits)[:, 0].mean()

    far = [
        (lsq.rounding_distance(k, s, bounds) / jnp.maximum(jnp.abs(d), 1e-300)).min()
        for k, s, d in zip(instance.kernels, steps, instance.direction, strict=True)
    ]
    first = jnp.stack(far).min()
    just_before = instance.share * first * (1 - 1e-9)
    zero = jnp.zeros(())
    change = jnp.abs(loss(just_before) - loss(zero))
    # A level changes by a whole step; which way the nearest boundary lies is not known.
    behind = [
        jnp.abs(after - before).max() / s
        for sign in (1, -1)
        for after, before, s in zip(
            levels(sign * first * (1 + 1e-9)), levels(zero), steps, strict=True
        )
    ]
    jump = 1 - jnp.stack(behind).max()
    return at_most(jnp.stack([change, jump]), jnp.array([0.0, 1e-6]))


CLAIMS = (
    Claim(
        name="oeu/quantizer",
        statement=(
            "q(q(v)) = q(v); |q(v) - v| <= s/2 inside; levels -2^(b-1)..2^(b-1)-1; dq/dv = 1 "
            "inside, 0 outside; dq/ds = round(v/s) - v/s, -Q_n or Q_p, over sqrt(numel Q_p)"
        ),
        source="arXiv:1902.08153, equations 1 to 5",
        families={"numbers": numbers},
        conclusion=quantizer,
        assumptions=is_off_boundaries,
        sizes={"numel": st.just(12), "bits": st.sampled_from([2, 3, 8])},
        typical={"numel": 12, "bits": 3},
        tolerance=1e3,
        samples=2000,
        rungs=("explore", "sample"),
        mutants={
            "Q_p = 2^(b-1)": {"top": 1.0},
            "scale of the step's gradient missing": {"scaled": 0.0},
        },
    ),
    Claim(
        name="oeu/piecewise_constant",
        statement=(
            "steps and biases fixed: the quantised loss is exactly constant along latent weights "
            "until the first rounding boundary, where a level changes"
        ),
        source="derived: rounding is piecewise constant; the limit of the paper's guarantee",
        families={"network": network},
        conclusion=piecewise_constant,
        assumptions=moves,
        samples=1000,
        rungs=("explore", "sample"),
        tightness="tight",
        mutants={"evaluated with latent weights": {"unquantised": 1.0}},
    ),
)

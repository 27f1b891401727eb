"""Learned step-size quantisation against PyTorch, Brevitas, finite differences and real models."""

from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxlab.optim import lsq

GOLDEN = np.load(Path(__file__).parent / "golden" / "lsq.npz")
RANGES = {
    "signed_2": lsq.signed_range(2),
    "signed_3": lsq.signed_range(3),
    "signed_4": lsq.signed_range(4),
    "signed_8": lsq.signed_range(8),
    "unsigned_2": lsq.unsigned_range(2),
    "unsigned_4": lsq.unsigned_range(4),
}
V, STEP, COTANGENT = (jnp.asarray(GOLDEN[name]) for name in ("v", "step", "cotangent"))


@pytest.mark.parametrize("name", RANGES)
def test_values_and_gradients_equal_pytorch(name):
    """The golden file is written by ``tests/peers/quantizers.py``."""
    out, pull = jax.vjp(lambda v, s: lsq.lsq_quantize(v, s, RANGES[name]), V, STEP)
    grad_v, grad_step = pull(COTANGENT)
    np.testing.assert_allclose(out, GOLDEN[f"{name}_out"], rtol=0, atol=1e-12)
    np.testing.assert_allclose(grad_v, GOLDEN[f"{name}_grad_v"], rtol=0, atol=1e-12)
    np.testing.assert_allclose(grad_step, GOLDEN[f"{name}_grad_step"], rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", RANGES)
def test_values_equal_brevitas(name):
    """And gradients, but in the half steps that Brevitas takes to the inside."""
    bounds = RANGES[name]
    grad_v = jax.grad(lambda v: lsq.lsq_quantize(v, STEP, bounds) @ COTANGENT)(V)
    out = lsq.lsq_quantize(V, STEP, bounds)
    np.testing.assert_allclose(out, GOLDEN[f"{name}_brevitas_out"], rtol=0, atol=1e-12)
    ratio = np.asarray(V / STEP)
    outside = np.maximum(-bounds.q_n - ratio, ratio - bounds.q_p)
    band = (outside > 0) & (outside < 0.5)
    peer = GOLDEN[f"{name}_brevitas_grad_v"]
    np.testing.assert_allclose(np.asarray(grad_v)[~band], peer[~band], rtol=0, atol=1e-12)
    np.testing.assert_array_equal(np.asarray(grad_v)[band], 0.0)


@pytest.mark.parametrize("bits", [2, 4])
def test_the_rule_differentiates_the_surrogate(bits):
    """Forward and backward, against finite differences with the rounding error held fixed."""
    bounds = lsq.signed_range(bits)
    v, step, cotangent = (np.asarray(a) for a in (V, STEP, COTANGENT))
    clipped = np.clip(v / step, -bounds.q_n, bounds.q_p)
    error = np.round(clipped) - clipped

    def surrogate(v, step):
        return step * (np.clip(v / step, -bounds.q_n, bounds.q_p) + error)

    generator = np.random.default_rng(1)
    v_dot, step_dot, width = generator.normal(size=v.shape), 0.7, 1e-6
    numeric = (
        surrogate(v + width * v_dot, step + width * step_dot)
        - surrogate(v - width * v_dot, step - width * step_dot)
    ) / (2 * width)
    # What the surrogate does not have is the scale of the step's gradient.
    scale = (v.size * bounds.q_p) ** -0.5

    def quantize(v, step):
        return lsq.lsq_quantize(v, step, bounds)

    out, tangent = jax.jvp(quantize, (V, STEP), (jnp.asarray(v_dot), jnp.asarray(step_dot / scale)))
    np.testing.assert_allclose(out, surrogate(v, step), atol=1e-12)
    np.testing.assert_allclose(tangent, numeric, rtol=0, atol=1e-8)
    _, pull = jax.vjp(quantize, V, STEP)
    pulled_v, pulled_step = pull(jnp.asarray(cotangent))
    expected = cotangent @ numeric
    found = pulled_v @ v_dot + pulled_step * step_dot / scale
    np.testing.assert_allclose(found, expected, rtol=1e-7)


def test_channels_have_steps_of_their_own():
    steps = jnp.array([0.2, 0.5, 1.0])
    table = V[:60].reshape(20, 3)
    whole = jax.vjp(lambda v, s: lsq.lsq_quantize(v, s, RANGES["signed_4"]), table, steps)
    grads = whole[1](table)
    for i in range(3):
        column = jax.vjp(
            lambda v, s: lsq.lsq_quantize(v, s, RANGES["signed_4"]), table[:, i], steps[i]
        )
        np.testing.assert_array_equal(whole[0][:, i], column[0])
        one = column[1](table[:, i])
        np.testing.assert_array_equal(grads[0][:, i], one[0])
        np.testing.assert_allclose(grads[1][i], one[1], rtol=1e-12)


def test_rounding_distance_is_where_the_level_changes():
    bounds, width = lsq.signed_range(3), 1e-9
    distance = np.asarray(lsq.rounding_distance(V, STEP, bounds))
    level = np.asarray(lsq.lsq_quantize(V, STEP, bounds))
    changed = []
    for sign in (1, -1):
        just_before = lsq.lsq_quantize(V + sign * (distance - width), STEP, bounds)
        np.testing.assert_array_equal(just_before, level)
        changed.append(lsq.lsq_quantize(V + sign * (distance + width), STEP, bounds) != level)
    assert np.all(changed[0] | changed[1])


def test_layer_equals_integers_times_steps():
    """What runs on a device: integer products, and one multiplication by both steps."""
    key_layer, key_x = jax.random.split(jax.random.key(0))
    layer = lsq.init_quant_dense(key_layer, 6, 4, bits=4)
    x = jax.random.uniform(key_x, (5, 6))
    weights = np.clip(np.round(np.asarray(layer.kernel / layer.kernel_step)), -8, 7).astype(int)
    inputs = np.clip(np.round(np.asarray(x / layer.input_step)), 0, 15).astype(int)
    expected = (inputs @ weights) * float(layer.kernel_step * layer.input_step)
    found = lsq.fake_quant_dense(layer, x, weight_bits=4, input_bits=4)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    flipped = layer._replace(kernel_step=-layer.kernel_step)
    again = lsq.fake_quant_dense(flipped, x, weight_bits=4, input_bits=4)
    np.testing.assert_array_equal(again, found)
    floating = lsq.fake_quant_dense(layer, x, weight_bits=None, input_bits=None)
    np.testing.assert_allclose(floating, np.asarray(x) @ np.asarray(layer.kernel), atol=1e-12)


def flax_model():
    model = nnx.Sequential(
        nnx.Linear(3, 8, rngs=nnx.Rngs(0), dtype=float),
        jnp.tanh,
        nnx.Linear(8, 2, rngs=nnx.Rngs(1)),
    )
    graph, params = nnx.split(model, nnx.Param)
    return params, lambda params, x: nnx.merge(graph, params)(x)


def equinox_model():
    model = eqx.nn.MLP(3, 2, 8, 1, key=jax.random.key(0))
    params, static = eqx.partition(model, eqx.is_inexact_array)
    return params, lambda params, x: jax.vmap(eqx.combine(params, static))(x)


@pytest.mark.parametrize("make", [flax_model, equinox_model])
def test_any_model_is_quantised(make):
    """Weights become multiples of their steps, biases stay, and gradients reach both."""
    params, apply = make()
    steps = lsq.step_sizes(params, bits=4)
    quantised = lsq.quantize_params(params, steps, bits=4)
    leaves = [jax.tree.leaves(tree) for tree in (params, steps, quantised)]
    for leaf, step, low in zip(*leaves, strict=True):
        if leaf.ndim == 1:
            np.testing.assert_array_equal(low, leaf)
            assert step == 0
        else:
            codes = np.asarray(low / step)
            np.testing.assert_allclose(codes, np.round(codes), atol=1e-6)
            assert -8 <= codes.min() < codes.max() <= 7
    x = jax.random.normal(jax.random.key(1), (5, 3))

    @jax.jit
    @jax.grad
    def gradient(both):
        return jnp.sum(apply(lsq.quantize_params(*both, bits=4), x) ** 2)

    for leaf, slope, step_slope in zip(
        leaves[0], *map(jax.tree.leaves, gradient((params, steps))), strict=True
    ):
        assert np.abs(slope).max() > 0
        assert (step_slope != 0) == (leaf.ndim > 1)

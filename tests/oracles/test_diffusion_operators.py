"""Measurement operators against NumPy and SciPy, and adjoints against inner products."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.fft
import scipy.ndimage

from jaxlab.diffusion.nonlinear_operators import (
    JPEG_LUMINANCE,
    block_quantizer,
    phase_retrieval,
    quantizer,
    straight_through,
)
from jaxlab.diffusion.operators import (
    average_pool,
    blur,
    mask,
    matrix_operator,
    motion_kernel,
    operator_norm,
    scattering,
)

GENERATOR = np.random.default_rng(5)
SHAPE = (4, 6)
DIM = 24
KERNEL = GENERATOR.uniform(size=(3, 5))
KEPT = np.array([7, 0, 20, 3])
WAVES = np.array([0.5, 2.0, 7.0])
LINEAR = {
    "mask": mask(jnp.asarray(KEPT), DIM),
    "average pool": average_pool(SHAPE, 2),
    "blur": blur(SHAPE, jnp.asarray(KERNEL)),
    "scattering": scattering(jnp.asarray(WAVES), DIM),
    "matrix": matrix_operator(jnp.asarray(GENERATOR.normal(size=(5, DIM)))),
}
X = GENERATOR.normal(size=DIM)


def by_numpy(name, x):
    image = x.reshape(SHAPE)
    if name == "mask":
        return x[KEPT]
    if name == "average pool":
        rows = [[image[i : i + 2, j : j + 2].mean() for j in (0, 2, 4)] for i in (0, 2)]
        return np.ravel(rows)
    if name == "blur":
        return scipy.ndimage.convolve(image, KERNEL, mode="constant").ravel()
    if name == "scattering":
        field = np.exp(2j * np.outer(WAVES, (np.arange(DIM) + 0.5) / DIM)) @ x / np.sqrt(DIM)
        return np.concatenate([field.real, field.imag])
    return np.asarray(LINEAR[name].entries) @ x


@pytest.mark.parametrize("name", LINEAR)
def test_linear_operators(name):
    operator = LINEAR[name]

    @jax.jit
    def parts(x, y):
        return operator(x), operator.matrix(jnp.float64), operator.adjoint(y)

    expected = by_numpy(name, X)
    y = GENERATOR.normal(size=expected.shape)
    value, matrix, back = parts(jnp.asarray(X), jnp.asarray(y))
    np.testing.assert_allclose(value, expected, rtol=0, atol=1e-13)
    columns = np.stack([by_numpy(name, unit) for unit in np.eye(DIM)], axis=1)
    np.testing.assert_allclose(matrix, columns, rtol=0, atol=1e-13)
    assert back @ X == pytest.approx(y @ expected, rel=1e-12)
    np.testing.assert_allclose(back, columns.T @ y, rtol=0, atol=1e-13)
    norm = np.linalg.norm(columns, ord=2)
    np.testing.assert_allclose(operator_norm(operator, jnp.float64), norm, rtol=1e-12)


def test_motion_kernels_are_lines():
    along, across = motion_kernel(5, 0.0), motion_kernel(5, np.pi / 2)
    expected = np.zeros((5, 5))
    expected[2] = 0.2
    np.testing.assert_allclose(along, expected, atol=1e-15)
    np.testing.assert_allclose(across, expected.T, atol=1e-15)
    rising = np.asarray(motion_kernel(5, np.pi / 4))
    # Anticlockwise on the screen: from the lower left to the upper right.
    assert rising[1, 3] == rising[3, 1] > 0
    assert rising[1, 1] == rising[3, 3] == 0
    assert rising.sum() == pytest.approx(1.0)


def test_the_quantizer_rounds_and_passes_gradients_on():
    value, pull = jax.vjp(quantizer(0.25), jnp.asarray(X))
    np.testing.assert_array_equal(value, 0.25 * np.round(X / 0.25))
    np.testing.assert_array_equal(pull(jnp.asarray(X))[0], X)


def test_block_quantizer_is_the_core_of_jpeg():
    image = GENERATOR.uniform(-1, 1, size=(8, 16))
    operator = block_quantizer((8, 16), coarseness=0.5)
    steps = JPEG_LUMINANCE / 127.5 / 2
    blocks = [scipy.fft.dctn(image[:, i : i + 8], norm="ortho") for i in (0, 8)]
    expected = np.stack([np.round(block / steps) for block in blocks])
    value, pull = jax.vjp(operator, jnp.asarray(image.ravel()))
    np.testing.assert_array_equal(value, expected.ravel())

    def show(parts):
        return np.concatenate([scipy.fft.idctn(part, norm="ortho") for part in parts], axis=1)

    np.testing.assert_allclose(operator.decode(value), show(steps * expected).ravel(), atol=1e-13)
    # The derivative is that of the transform without the rounding, which is orthonormal.
    np.testing.assert_allclose(pull(value)[0], show(expected / steps).ravel(), rtol=1e-12)


def test_phase_retrieval_has_the_magnitudes_of_numpy():
    image = GENERATOR.uniform(-1, 1, size=(4, 4))
    operator = phase_retrieval((4, 4), oversampling=2, softening=1e-12)
    padded = np.zeros((8, 8))
    padded[:4, :4] = (1 + image) / 2
    expected = np.abs(np.fft.fft2(padded, norm="ortho"))[:, :5]
    value, slope = jax.jit(lambda x, v: jax.jvp(operator, (x,), (v,)))(
        jnp.asarray(image.ravel()), jnp.ones(16)
    )
    np.testing.assert_allclose(value, expected.ravel(), atol=1e-6)
    moved = np.zeros((8, 8))
    moved[:4, :4] = (1 + image) / 2 + 5e-6
    numeric = (np.abs(np.fft.fft2(moved, norm="ortho"))[:, :5] - expected) / 1e-5
    np.testing.assert_allclose(slope, numeric.ravel(), atol=1e-4)


def test_straight_through_has_the_value_of_one_and_the_derivative_of_the_other():
    operator = straight_through(jnp.floor, jnp.sin)
    value, pull = jax.vjp(operator, jnp.asarray(X))
    np.testing.assert_array_equal(value, np.floor(X))
    np.testing.assert_allclose(pull(jnp.ones(DIM))[0], np.cos(X), rtol=1e-15)
    single = jax.jit(jax.vmap(operator))(jnp.asarray(X[:, None], jnp.float32))
    assert single.dtype == jnp.float32


def test_one_program_serves_a_mask_per_image():
    kept = jnp.array([[0, 3], [2, 1]])
    x = jnp.arange(8.0).reshape(2, 4)
    seen = jax.jit(jax.vmap(lambda kept, x: mask(kept, 4)(x)))(kept, x)
    np.testing.assert_array_equal(seen, [[0.0, 3.0], [6.0, 5.0]])

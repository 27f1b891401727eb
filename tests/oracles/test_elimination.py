"""Elimination against LAPACK as NumPy calls it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlab.stats.elimination import eliminate


def test_solutions_and_determinants_are_those_of_lapack():
    generator = np.random.default_rng(2)
    matrices = generator.normal(size=(50, 6, 6))
    matrices[0, 0, 0] = 0.0  # needs a pivot
    rights = generator.normal(size=(50, 6, 2))
    found = jax.jit(jax.vmap(eliminate))(jnp.asarray(matrices), jnp.asarray(rights))
    scale = np.linalg.cond(matrices)[:, None, None] * np.finfo(float).eps
    expected = np.linalg.solve(matrices, rights)
    assert (np.abs(found.solution - expected) < 100 * scale * np.abs(expected).max()).all()
    determinants = np.linalg.slogdet(matrices).logabsdet
    np.testing.assert_allclose(found.log_determinant, determinants, atol=1e-12)


def test_the_derivative_is_that_of_the_inverse():
    matrix, right = jnp.array([[0.0, 2.0], [1.0, 3.0]]), jnp.array([1.0, -2.0])
    slope = jax.grad(lambda m: eliminate(m, right).solution[0])(matrix)
    inverse = np.linalg.inv(matrix)
    np.testing.assert_allclose(slope, -np.outer(inverse[0], inverse @ right), atol=1e-14)


@pytest.mark.usefixtures("without_type_checks")
def test_shapes_are_checked():
    with pytest.raises(ValueError, match="matrix must be square with a row for every row of right"):
        eliminate(jnp.ones((2, 2)), jnp.ones(3))

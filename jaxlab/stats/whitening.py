"""Points in units of a law's scale."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

__all__ = ["whiten"]


def whiten(
    offsets: Float[Array, "*points dim"], scale_tril: Float[Array, "dim dim"]
) -> Float[Array, "*points dim"]:
    """``L^-1 x`` of every point, for a Cholesky factor ``L``.

    By the inverse of one small factor: on CPUs a batch of factors, each with many right-hand sides
    (as ``jax.vmap`` over seeds makes it), is slow to solve, and two such solves at once have been
    seen to wait for each other for ever (jaxlib 0.10.2).

    Args:
        offsets: Points minus the law's location.
        scale_tril: Lower triangular, with positive diagonal.

    Example:
        >>> whiten(jnp.array([[2.0, 4.0]]), jnp.array([[2.0, 0.0], [1.0, 3.0]])).tolist()
        [[1.0, 1.0]]
    """
    unit = jnp.eye(scale_tril.shape[0], dtype=scale_tril.dtype)
    return offsets @ jax.scipy.linalg.solve_triangular(scale_tril, unit, lower=True).T

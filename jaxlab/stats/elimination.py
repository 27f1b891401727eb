"""Small linear systems without LAPACK, for batches of many of them.

On CPU, large batches of small LAPACK calls inside of one compiled program were seen to wait forever
in XLA (jaxlib 0.10.2). Elimination by plain array operations does not, and it runs on accelerators
as it is; it costs more than LAPACK from some hundred unknowns on.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

__all__ = ["Eliminated", "eliminate"]


class Eliminated(NamedTuple):
    """What elimination finds.

    Attributes:
        solution: Of the system.
        log_determinant: The logarithm of the determinant's absolute value.
    """

    solution: Float[Array, "size *columns"]
    log_determinant: Float[Array, ""]


def eliminate(
    matrix: Float[Array, "size size"], right: Float[Array, "size *columns"]
) -> Eliminated:
    """Solve ``matrix @ solution = right`` by Gauss and Jordan's elimination with pivots by rows.

    It is differentiable in both modes; a singular matrix gives infinity or NaN.

    Raises:
        ValueError: Shapes do not fit.

    Example:
        >>> found = eliminate(jnp.array([[0.0, 2.0], [1.0, 0.0]]), jnp.array([2.0, 3.0]))
        >>> found.solution.tolist(), round(float(jnp.exp(found.log_determinant)), 4)
        ([3.0, 1.0], 2.0)
    """
    matrix, right = jnp.asarray(matrix), jnp.asarray(right)
    size = matrix.shape[0] if matrix.ndim else 0
    if matrix.shape != (size, size) or right.shape[:1] != (size,):
        raise ValueError(
            "matrix must be square with a row for every row of right, got shapes "
            f"{matrix.shape} and {right.shape}"
        )
    table = jnp.concatenate([matrix, right.reshape(size, -1)], axis=1)
    places = jnp.arange(size)

    def step(carry: tuple[Array, Array], k: Array) -> tuple[tuple[Array, Array], None]:
        table, logs = carry
        column = table[:, k]
        pivot = jnp.argmax(jnp.where(places >= k, jnp.abs(column), -1.0))
        order = jnp.where(places == k, pivot, jnp.where(places == pivot, k, places))
        table = table[order]
        row = table[k] / table[k, k]
        logs = logs + jnp.log(jnp.abs(table[k, k]))
        rest = jnp.where(places == k, 0.0, table[:, k])
        table = table - rest[:, None] * row[None, :]
        return (jnp.where((places == k)[:, None], row[None, :], table), logs), None

    start = (table, jnp.zeros((), table.dtype))
    (table, logs), _ = jax.lax.scan(step, start, places)
    return Eliminated(table[:, size:].reshape(right.shape), logs)

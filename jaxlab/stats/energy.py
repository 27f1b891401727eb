"""The energy distance between two samples of vectors."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

__all__ = ["energy_distance"]


def energy_distance(
    first: Float[Array, "points dim"], second: Float[Array, "others dim"]
) -> Float[Array, ""]:
    r""":math:`2 E|X - Y| - E|X - X'| - E|Y - Y'|` of the two empirical laws (Szekely and Rizzo).

    0 exactly for equal laws. For two samples of one law its expectation is about
    :math:`E|X - X'| (1/n + 1/m)`, so compare samples of equal sizes.

    Raises:
        ValueError: The vectors are of different lengths, or a sample is empty.

    Example:
        >>> float(energy_distance(jnp.array([[0.0]]), jnp.array([[3.0]])))
        6.0
    """
    for name, sample in (("first", first), ("second", second)):
        if jnp.ndim(sample) != 2 or not jnp.size(sample):
            raise ValueError(
                f"{name} must have shape [points, dim] with entries, got {jnp.shape(sample)}"
            )
    if first.shape[1] != second.shape[1]:
        raise ValueError(
            f"second must have length {first.shape[1]} like first, got {second.shape[1]}"
        )

    def mean_distance(a: Array, b: Array) -> Array:
        # One row at a time: no [points, others, dim].
        def from_row(row: Array) -> Array:
            return jnp.sqrt(jnp.square(b - row[None, :]).sum(axis=1)).mean()

        return jax.lax.map(from_row, a).mean()

    between = mean_distance(first, second)
    return 2 * between - mean_distance(first, first) - mean_distance(second, second)

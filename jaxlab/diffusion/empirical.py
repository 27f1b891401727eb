r"""The empirical prior: the denoiser that has memorised its data, in constant memory.

For rows :math:`x_i` with weights :math:`p_i` the posterior of the row is a softmax,

.. math::
    w_i \propto p_i \exp(-|x - x_i|^2 / 2\sigma^2), \qquad E[x_0 \mid x] = \sum_i w_i x_i .

Rows pass in chunks with a running log-sum-exp (Milakov and Gimelshein 2018, arXiv:1805.02867), so
that a batch of queries needs ``[queries, chunk_size]`` numbers for any number of rows, and never
``[queries, rows, dim]``; reverse-mode derivatives recompute the chunks instead of storing them.
Distances come from the expansion :math:`x^T x_i - |x_i|^2/2` of *centred* rows (what they share of
:math:`|x|^2` cancels in the softmax), one matrix product that is exact to about
``eps |x_i|^2 / sigma^2`` in the exponent. In float32 that is below 1e-2 down to
``sigma = 0.003 max|x_i - mean|``, and only rows that are within a few ``sigma`` of each other feel
it; take float64 for curves below that.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxlab.core.checks import check_count, check_finite, check_key, check_value
from jaxlab.core.types import Scalar
from jaxlab.diffusion.denoise import Prior, check_weights
from jaxlab.diffusion.schedule import to_ve

__all__ = ["EmpiricalPrior", "empirical_prior"]


class EmpiricalPrior(Prior):
    """Finitely many clean signals with probabilities; made by ``empirical_prior``.

    Attributes:
        centre: The weighted mean of the rows.
        rows: The rows minus the centre, in chunks; rows of zeros fill the last one.
        half_norms: Half of the rows' squared norms.
        log_weights: Minus infinity for weight 0 and for the filling.
        num_rows: How many rows there are, without the filling.
    """

    centre: Float[Array, " dim"]
    rows: Float[Array, "chunks size dim"]
    half_norms: Float[Array, "chunks size"]
    log_weights: Float[Array, "chunks size"]
    num_rows: int = eqx.field(static=True)

    @property
    def dim(self) -> int:
        """The length of a signal."""
        return self.centre.shape[-1]

    def posterior_weights(
        self, x: Float[Array, " dim"], sigma: Scalar, alpha: Scalar = 1.0
    ) -> Float[Array, " rows"]:
        """The posterior probability of every row; ``[rows]`` numbers per query."""
        self._check(x, sigma, alpha)
        query, sigma = self._query(x, sigma, alpha)
        chunk = jax.vmap(lambda *chunk: _exponents(query, sigma, *chunk))
        exponents = chunk(self.rows, self.half_norms, self.log_weights)
        return jax.nn.softmax(exponents.reshape(-1))[: self.num_rows]

    def largest_weight(
        self, x: Float[Array, " dim"], sigma: Scalar, alpha: Scalar = 1.0
    ) -> Float[Array, ""]:
        """The largest posterior probability of a row, in chunks."""
        self._check(x, sigma, alpha)
        query, sigma = self._query(x, sigma, alpha)
        largest, log_total, _ = self._pass(query, sigma)
        return jnp.exp(largest - log_total)

    def sample(self, key: Array) -> Float[Array, " dim"]:
        """One of the rows; ``jax.vmap`` over keys gives more."""
        check_key("key", key)
        chosen = jax.random.categorical(key, self.log_weights.reshape(-1))
        return self.centre + self.rows.reshape(-1, self.dim)[chosen]

    def _denoise(self, x: Float[Array, " dim"], sigma: Scalar) -> Float[Array, " dim"]:
        return self.centre + self._pass(x - self.centre, sigma)[2]

    def _log_density(self, x: Float[Array, " dim"], sigma: Scalar) -> Float[Array, ""]:
        check_value("sigma", sigma, lambda s: s > 0, "positive, since rows have no density")
        query, noise = x - self.centre, jnp.square(sigma)
        _, log_total, _ = self._pass(query, sigma)
        return log_total - query @ query / (2 * noise) - self.dim / 2 * jnp.log(2 * jnp.pi * noise)

    def _posterior_covariance(
        self, x: Float[Array, " dim"], sigma: Scalar
    ) -> Float[Array, "dim dim"]:
        query = x - self.centre
        _, log_total, mean = self._pass(query, sigma)

        def add(total: Array, chunk: tuple[Array, Array, Array]) -> tuple[Array, None]:
            weights = jnp.exp(_exponents(query, sigma, *chunk) - log_total)
            deviations = chunk[0] - mean[None, :]
            return total + deviations.T @ (weights[:, None] * deviations), None

        # A second pass around the mean: differences of second moments would cancel.
        start = jnp.zeros((self.dim, self.dim), mean.dtype)
        return jax.lax.scan(add, start, (self.rows, self.half_norms, self.log_weights))[0]

    def _query(self, x: Array, sigma: Scalar, alpha: Scalar) -> tuple[Array, Scalar]:
        x, sigma = to_ve(x, sigma, alpha)
        return x - self.centre, sigma

    def _pass(self, query: Array, sigma: Scalar) -> tuple[Array, Array, Array]:
        """The largest exponent, the log of the sum of all exponentials, and the rows' mean."""
        dtype = jnp.result_type(query, self.rows, self.log_weights, sigma)

        @jax.checkpoint
        def add(
            carry: tuple[Array, Array, Array], chunk: tuple[Array, Array, Array]
        ) -> tuple[tuple[Array, Array, Array], None]:
            largest, total, moment = carry
            exponents = _exponents(query, sigma, *chunk)
            new = jnp.maximum(largest, exponents.max())
            # The shift cancels in the results, so that its derivative may be left out.
            shift = jax.lax.stop_gradient(new)
            shrink = jnp.exp(jax.lax.stop_gradient(largest) - shift)
            shares = jnp.exp(exponents - shift)
            return (
                new,
                shrink * total + shares.sum(),
                shrink * moment + shares @ chunk[0],
            ), None

        # Not minus infinity, whose difference to itself is NaN.
        start = (jnp.finfo(dtype).min, 0.0, jnp.zeros(self.dim))
        start = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), start)
        chunks = (self.rows, self.half_norms, self.log_weights)
        (largest, total, moment), _ = jax.lax.scan(add, start, chunks)
        return largest, jax.lax.stop_gradient(largest) + jnp.log(total), moment / total


def _exponents(
    query: Float[Array, " dim"],
    sigma: Scalar,
    rows: Float[Array, "size dim"],
    half_norms: Float[Array, " size"],
    log_weights: Float[Array, " size"],
) -> Float[Array, " size"]:
    """``log p_i - |query - row|^2 / (2 sigma^2)`` without the query's own ``|query|^2``."""
    # By default accelerators multiply float32 with the precision of shorter formats.
    products = jnp.matmul(rows, query, precision=jax.lax.Precision.HIGHEST)
    return log_weights + (products - half_norms) / jnp.square(sigma)


def empirical_prior(
    rows: Float[Array, "rows dim"] | Float[np.ndarray, "rows dim"],
    weights: Float[Array, " rows"] | None = None,
    *,
    chunk_size: int = 2048,
) -> EmpiricalPrior:
    """A prior on the rows of a table.

    Args:
        rows: One clean signal per row.
        weights: Their probabilities; equal ones by default.
        chunk_size: How many rows are compared with a query at a time; memory grows and the number
            of passes falls with it.

    Raises:
        TypeError: ``chunk_size`` is not an integer.
        ValueError: There is no row, NaN or infinity, or the weights are not probabilities that sum
            to 1.

    Example:
        >>> prior = empirical_prior(jnp.array([[-1.0], [1.0]]))
        >>> round(float(prior.denoise(jnp.array([0.5]), 1.0)[0]), 4)  # tanh(0.5)
        0.4621
    """
    check_count("chunk_size", chunk_size)
    rows = jnp.asarray(rows)
    if rows.ndim != 2 or not rows.size:
        raise ValueError(f"rows must have shape [rows, dim] with entries, got {rows.shape}")
    check_finite("rows", rows)
    count, dim = rows.shape
    if weights is None:
        weights = jnp.full(count, 1 / count, rows.dtype)
    else:
        weights = jnp.asarray(weights)
        check_finite("weights", weights)
        check_weights("weights", weights, count)
    centre = weights @ rows
    # Chunks of nearly one size, so that the filling is shorter than the number of chunks.
    num_chunks = -(-count // chunk_size)
    size = -(-count // num_chunks)
    filling = num_chunks * size - count
    centred = jnp.pad(rows - centre[None, :], ((0, filling), (0, 0)))
    log_weights = jnp.pad(jnp.log(weights), (0, filling), constant_values=-jnp.inf)
    return EmpiricalPrior(
        centre,
        centred.reshape(num_chunks, size, dim),
        (jnp.square(centred).sum(axis=1) / 2).reshape(num_chunks, size),
        log_weights.reshape(num_chunks, size),
        count,
    )

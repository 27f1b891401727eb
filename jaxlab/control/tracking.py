r"""How far a closed loop strays from where it is to go, with exact norms.

A closed loop :math:`\delta_{k+1} = \bar A_k \delta_k + r_k` of deviations contracts in the norms
:math:`\|x\|_{P_k} = \sqrt{x^T P_k x}` of :math:`P_k = \bar A_k^T P_{k+1} \bar A_k + I`, from
:math:`P_T = I`:

.. math::
    \|\bar A_k\|_{P_k \to P_{k+1}}^2 = 1 - 1/\lambda_{max}(P_k) < 1 .

This is an equality, whatever the loop, since :math:`\bar A_k^T P_{k+1} \bar A_k = P_k - I`. With
a remainder of second order, :math:`\|r_k\|_{P_{k+1}} \le (\ell_k/2) \|\delta_k\|_{P_k}^2`,
variation of constants bounds every deviation.

Source: arXiv:2604.19018, Theorem 4.2, whose exact form is derived here.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxlab.core.checks import check_leading_axis, check_value
from jaxlab.core.roots import safe_sqrt
from jaxlab.core.types import Scalar

__all__ = [
    "apriori_bound",
    "chained_norms",
    "lyapunov_contractions",
    "lyapunov_weights",
    "tracking_bound",
    "transition_norms",
    "weighted_norms",
]


def lyapunov_weights(
    closed: Float[Array, "steps dim dim"],
) -> Float[Array, "steps_and_one dim dim"]:
    """``P_k`` of a closed loop ``A - B K``.

    Example:
        >>> lyapunov_weights(jnp.full((2, 1, 1), 0.5)).ravel().tolist()
        [1.3125, 1.25, 1.0]
    """
    identity = jnp.eye(closed.shape[-1], dtype=closed.dtype)

    def back(P: Array, A: Array) -> tuple[Array, Array]:
        before = A.T @ P @ A + identity
        before = (before + before.T) / 2
        return before, before

    _, weights = jax.lax.scan(back, identity, closed, reverse=True)
    return jnp.concatenate([weights, identity[None]])


def lyapunov_contractions(
    weights: Float[Array, "steps_and_one dim dim"],
) -> Float[Array, " steps"]:
    """The induced norms of the steps, ``sqrt(1 - 1 / lambda_max(P_k))``, all below 1.

    Example:
        >>> weights = lyapunov_weights(jnp.full((2, 1, 1), 0.5))
        >>> [round(float(norm) ** 2, 4) for norm in lyapunov_contractions(weights)]
        [0.2381, 0.2]
    """
    # At least 1 but for rounding, which would make a NaN of the root.
    largest = jnp.maximum(jnp.linalg.eigvalsh(weights[:-1])[:, -1], 1)
    return jnp.sqrt(1 - 1 / largest)


def transition_norms(
    closed: Float[Array, "steps dim dim"], weights: Float[Array, "steps_and_one dim dim"]
) -> Float[Array, "steps_and_one steps_and_one"]:
    """Norms of ``Phi(k, i) = A_{k-1} ... A_i`` from ``P_i`` to ``P_k``; 0 above the diagonal.

    Example:
        >>> loop = jnp.full((2, 1, 1), 0.5)
        >>> round(float(transition_norms(loop, lyapunov_weights(loop))[2, 0]), 4)
        0.2182
    """
    steps = closed.shape[0]
    check_leading_axis("weights", weights, steps + 1, "states")
    # With P = C C^T the norm of x is that of C^T x, and a map M becomes C'^T M C^{-T}.
    factors = jnp.linalg.cholesky(weights)
    before = jnp.swapaxes(factors[:-1], 1, 2)
    scaled = jnp.swapaxes(factors[1:], 1, 2) @ jnp.swapaxes(
        jnp.linalg.solve(jnp.swapaxes(before, 1, 2), jnp.swapaxes(closed, 1, 2)), 1, 2
    )
    identity = jnp.eye(closed.shape[1], dtype=closed.dtype)
    indices = jnp.arange(steps + 1)

    def forward(maps: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        A, k = now
        maps = jnp.where((indices < k)[:, None, None], A @ maps, maps)
        norms = jnp.where(indices <= k, jnp.linalg.norm(maps, ord=2, axis=(1, 2)), 0.0)
        return maps, norms

    start = jnp.broadcast_to(identity, (steps + 1, *identity.shape))
    first = jnp.where(indices == 0, 1.0, 0.0).astype(closed.dtype)
    _, rest = jax.lax.scan(forward, start, (scaled, indices[1:]))
    return jnp.concatenate([first[None], rest])


def weighted_norms(
    weights: Float[Array, "steps_and_one dim dim"], vectors: Float[Array, "steps_and_one dim"]
) -> Float[Array, " steps_and_one"]:
    """``sqrt(x_k^T P_k x_k)`` for each ``k``.

    Example:
        >>> weighted_norms(jnp.full((1, 1, 1), 4.0), jnp.full((1, 1), 3.0)).tolist()
        [6.0]
    """
    # Deviations of 0 are usual, and the derivative of the root there is infinite.
    return safe_sqrt(jnp.einsum("ki,kij,kj->k", vectors, weights, vectors))


def tracking_bound(
    norms: Float[Array, "steps_and_one steps_and_one"],
    start: Float[Array, ""],
    remainders: Float[Array, " steps"],
) -> Float[Array, " steps_and_one"]:
    r"""What ``||delta_k||`` cannot exceed, by variation of constants.

    .. math::
        \|\delta_k\|_{P_k} \le \|\Phi(k, 0)\| \|\delta_0\|
            + \sum_{i<k} \|\Phi(k, i+1)\| \|r_i\|_{P_{i+1}}

    Args:
        norms: ``transition_norms``, or ``chained_norms``.
        start: ``||delta_0||``.
        remainders: ``||r_i||`` in the norm after the step, or bounds of them; where the remainder
            is of second order, ``l_i / 2 * ||delta_i|| ** 2``.

    Raises:
        ValueError: Shapes do not fit, or a negative remainder.

    Example:
        >>> norms = jnp.array([[1.0, 0.0], [0.5, 1.0]])
        >>> tracking_bound(norms, jnp.array(2.0), jnp.array([1.0])).tolist()
        [2.0, 2.0]
    """
    check_leading_axis("remainders", remainders, norms.shape[0] - 1, "steps")
    check_value("remainders", remainders, lambda x: x >= 0, "at least 0")
    # Row k takes Phi(k, i + 1) for i < k: the columns after the first, 0 above the diagonal.
    return norms[:, 0] * start + norms[:, 1:] @ remainders


def apriori_bound(
    rate: Scalar, curvature: Scalar, start: Scalar, *, num_steps: int
) -> Float[Array, " steps_and_one"]:
    r"""Before any deviation is known: geometric decay from a small enough start.

    If :math:`V_{k+1} \le \rho V_k + (\ell/2) V_k^2` and :math:`V_0 \le 2c(1-\rho)/\ell` with
    :math:`c < 1`, then :math:`V_k \le (\rho + c(1-\rho))^k V_0`, by induction. The bound is
    infinite after the start where ``start`` is too large for any ``c < 1``.

    Args:
        rate: ``rho`` in [0, 1), for instance the largest of ``lyapunov_contractions``.
        curvature: ``l >= 0``.
        start: ``V_0 >= 0``.
        num_steps: Number of steps.

    Raises:
        ValueError: A value out of range.

    Example:
        >>> apriori_bound(0.5, 1.0, 0.5, num_steps=2).tolist()
        [0.5, 0.375, 0.28125]
    """
    check_value("rate", rate, lambda x: (x >= 0) & (x < 1), "in [0, 1)")
    check_value("curvature", curvature, lambda x: x >= 0, "at least 0")
    check_value("start", start, lambda x: x >= 0, "at least 0")
    share = curvature * start / 2 / (1 - rate)
    factor = jnp.where(share < 1, rate + share * (1 - rate), jnp.inf)
    powers = jnp.arange(num_steps + 1)
    return jnp.asarray(start) * jnp.where(powers == 0, 1.0, factor**powers)


def chained_norms(
    contractions: Float[Array, " steps"],
) -> Float[Array, "steps_and_one steps_and_one"]:
    """Products of the steps' norms: upper bounds of ``transition_norms`` at a fraction of the cost.

    Example:
        >>> chained_norms(jnp.array([0.5, 0.25])).tolist()
        [[1.0, 0.0, 0.0], [0.5, 1.0, 0.0], [0.125, 0.25, 1.0]]
    """
    steps = contractions.shape[0]
    indices = jnp.arange(steps + 1)

    def forward(row: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        norm, k = now
        row = jnp.where(indices < k, norm * row, jnp.where(indices == k, 1.0, row))
        return row, row

    first = jnp.where(indices == 0, 1.0, 0.0).astype(contractions.dtype)
    _, rest = jax.lax.scan(forward, first, (contractions, indices[1:]))
    return jnp.concatenate([first[None], rest])

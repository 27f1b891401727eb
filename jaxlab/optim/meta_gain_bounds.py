r"""What adaptation is sure to gain, and what it gains exactly on quadratics.

With :math:`\mu` the Polyak-Łojasiewicz (PL) constant of every task's loss, ``step_size`` at most
one over its smoothness, and :math:`G_\infty = E[L_\xi(\theta_0) - L^*_\xi]`, for any start
:math:`\theta_0`:

.. math::
    G_K \ge (1 - (1 - \eta\mu)^K)\, G_\infty ,\qquad
    G_\infty \ge \frac\mu2 E\|\theta_0 - \theta^*_\xi\|^2 \ge \frac{\mu c^2}{2} \sigma_\tau^2 ,

where :math:`c\|\gamma - \gamma'\| \le \|\theta^*_\xi - \theta^*_{\xi'}\|` separates the minimisers
and :math:`\sigma_\tau^2 = E\|\gamma - E\gamma\|^2`.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxlab.core.checks import check_value
from jaxlab.core.types import Scalar

__all__ = ["gain_lower_bound", "pl_gain_bound", "quadratic_gain"]


def pl_gain_bound(
    pl_constant: Scalar, step_size: Scalar, limit: Scalar, num_steps: Scalar
) -> Float[Array, "*batch"]:
    """``(1 - (1 - eta mu)^K) G_inf``, at most the gain of K steps from any start [derived].

    Args:
        pl_constant: ``mu`` of every task: ``|grad L|^2 >= 2 mu (L - L*)``.
        step_size: ``eta``, in (0, 1/L]; here only ``eta mu <= 1`` can be checked.
        limit: ``G_inf``, the mean of ``L(theta_0) - L*``.
        num_steps: ``K``, at least 0.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> float(pl_gain_bound(1.0, 0.5, 8.0, 2))
        6.0
    """
    check_value("pl_constant", pl_constant, lambda mu: mu > 0, "positive")
    check_value(
        "step_size", step_size, lambda s: (s > 0) & (s * pl_constant <= 1), "in (0, 1/pl_constant]"
    )
    check_value("num_steps", num_steps, lambda k: k >= 0, "at least 0")
    left = 1 - jnp.asarray(step_size, dtype=float) * pl_constant
    return (1 - left**num_steps) * limit


def gain_lower_bound(
    pl_constant: Scalar,
    step_size: Scalar,
    separation: Scalar,
    variance: Scalar,
    num_steps: Scalar,
) -> Float[Array, "*batch"]:
    """``(mu c^2 / 2) sigma^2 (1 - (1 - eta mu)^K)``, at most the gain from any start [derived].

    Args:
        pl_constant: ``mu``, as for ``pl_gain_bound``.
        step_size: ``eta``.
        separation: ``c >= 0``, the least distance of two tasks' minimisers over that of the tasks.
            If minimisers are not unique it is the distance of their sets: those nearest to the
            start are as far apart as that at least, and the bound stands.
        variance: ``sigma^2`` of the tasks, as of ``task_variance``.
        num_steps: ``K``.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> float(gain_lower_bound(1.0, 0.5, 2.0, 1.0, 1))
        1.0
    """
    check_value("separation", separation, lambda c: c >= 0, "at least 0")
    check_value("variance", variance, lambda v: v >= 0, "at least 0")
    limit = pl_constant * separation**2 * variance / 2
    return pl_gain_bound(pl_constant, step_size, limit, num_steps)


def quadratic_gain(
    hessian: Float[Array, "dim dim"],
    covariance: Float[Array, "dim dim"],
    step_size: Scalar,
    num_steps: Scalar,
) -> Float[Array, ""]:
    """The gain on quadratics of one Hessian, from the mean of their minimisers, exactly [derived].

    ``tr[(H - M H M) Cov] / 2`` with ``M = (I - eta H)^K``. In one dimension it is
    ``(h/2) sigma^2 (1 - (1 - eta h)^(2K))``: linear in the variance, of rate
    ``-2 log(1 - eta h)``.

    Args:
        hessian: Symmetric.
        covariance: Of the minimisers.
        step_size: ``eta``.
        num_steps: ``K``, at least 0.

    Raises:
        ValueError: Shapes do not fit, or ``num_steps`` is negative.

    Example:
        >>> float(quadratic_gain(jnp.array([[1.0]]), jnp.array([[4.0]]), 0.5, 1))
        1.5
    """
    check_value("num_steps", num_steps, lambda k: k >= 0, "at least 0")
    shape = jnp.shape(hessian)
    if len(shape) != 2 or shape[0] != shape[1] or jnp.shape(covariance) != shape:
        raise ValueError(
            "hessian and covariance must be square and of one shape, got "
            f"{shape} and {jnp.shape(covariance)}"
        )
    eigenvalues, vectors = jnp.linalg.eigh(hessian)
    weights = jnp.einsum("ji,jk,ki->i", vectors, covariance, vectors)
    left = (1 - step_size * eigenvalues) ** (2 * num_steps)
    return jnp.sum(eigenvalues * (1 - left) * weights) / 2

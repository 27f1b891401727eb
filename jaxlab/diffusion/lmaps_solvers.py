r"""From a local Gaussian and a measurement to one estimate of the clean signal.

A *solver* takes a ``Local``, its covariance and a key. With :math:`e = y - H m`, linear :math:`H`:

.. math::
    \text{local MAP (LMAPS; TMPD with Tweedie's covariance):}\quad
        & m + \Sigma H^T (H \Sigma H^T + \sigma_y^2 I)^{-1} e \\
    \text{PiGDM:}\quad & m + \Sigma H^T (r^2 H H^T + \sigma_y^2 I)^{-1} e \\
    \text{DPS:}\quad & m + \Sigma H^T e / \sigma_y^2

The local MAP minimises :math:`|y - H(x)|^2/(2 \sigma_y^2) + (x - m)^T \Sigma^{-1} (x - m)/2`. For
a nonlinear :math:`H` it is descended on in the variable :math:`z` of
:math:`x = m + \Sigma^{1/2} z`, whose part of the Hessian is the identity at every level. DAPS draws
from the local posterior.

Sources: arXiv:2510.07343, equations 11 to 14 (LMAPS); Boys et al., arXiv:2310.06721 (TMPD); Song et
al. 2023 (PiGDM); Chung et al., arXiv:2209.14687 (DPS); Zhang et al., arXiv:2407.01521 (DAPS). That
they are one family is derived; claim ``lmaps/family`` attacks it.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import lineax
import optax
from jaxtyping import Array, Float

from jaxlab.core.checks import check_count, check_value
from jaxlab.core.roots import safe_sqrt
from jaxlab.core.types import Scalar
from jaxlab.diffusion.operators import LinearOperator, Operator, operator_norm
from jaxlab.diffusion.restoration import Covariance, Local, multiply
from jaxlab.stats.elimination import eliminate

__all__ = [
    "LocalSolver",
    "closed_form",
    "conjugate_gradient",
    "descent",
    "gradient_descent",
    "langevin",
    "likelihood_step",
    "local_map",
    "local_objective",
    "posterior_draw",
    "pseudo_inverse_step",
]

_MOST_UNKNOWNS = 128
"""Systems up to this size come in batches as a rule, which LAPACK is not made for."""

LocalSolver: TypeAlias = Callable[[Any, Any, Any], Any]
"""``(Local, covariance, key) -> x0``, the estimate of the clean signal."""


def local_map(
    mean: Float[Array, " dim"],
    covariance: Covariance,
    operator: Operator,
    measurement: Float[Array, " measurements"],
    noise: Scalar,
) -> Float[Array, " dim"]:
    """The mode and mean of ``p(x0 | x, y)`` for ``x0 | x ~ N(mean, covariance)``, in gain form.

    The covariance is not inverted: it may be singular, and small levels need no float64.

    Args:
        mean: ``m``.
        covariance: Symmetric, in any form of ``restoration.Covariance``. If it is not symmetric
            (``restoration.tweedie`` of a learned denoiser), ``Sigma H'`` is what is multiplied.
        operator: ``H``, a ``LinearOperator``.
        measurement: ``y``.
        noise: ``sigma_y``.

    Raises:
        TypeError: ``operator`` is not linear.

    Example:
        >>> from jaxlab.diffusion.operators import mask
        >>> x = local_map(jnp.zeros(2), jnp.array(1.0), mask(jnp.array([0]), 2), jnp.ones(1), 1.0)
        >>> x.tolist()
        [0.5, 0.0]
    """
    spread, total = _spread_and_total(mean, covariance, _linear(operator), noise)
    error = measurement - operator(mean)
    return mean + spread @ _solve(total, error, shared=not callable(covariance))


def _linear(operator: Operator) -> LinearOperator:
    if not isinstance(operator, LinearOperator):
        raise TypeError(
            f"operator must be a LinearOperator for this solver, got {type(operator).__name__}; "
            "descent and langevin take any"
        )
    return operator


def _spread_and_total(
    mean: Array, covariance: Covariance, operator: LinearOperator, noise: Scalar
) -> tuple[Array, Array]:
    """``Sigma H'`` and ``H Sigma H' + sigma_y^2 I``."""
    rows = operator.matrix(mean.dtype)
    spread = jax.vmap(lambda row: multiply(covariance, row))(rows).T
    identity = jnp.eye(len(rows), dtype=mean.dtype)
    return spread, rows @ spread + jnp.square(noise) * identity


def _solve(total: Array, error: Array, *, shared: bool) -> Array:
    if len(total) > _MOST_UNKNOWNS:
        return jnp.linalg.solve(total, error)
    if shared:  # by all signals of one operator and level: under vmap one inverse serves the batch
        return eliminate(total, jnp.eye(len(total), dtype=total.dtype)).solution @ error
    return eliminate(total, error).solution


def local_objective(
    x0: Float[Array, " dim"],
    mean: Float[Array, " dim"],
    covariance: Float[Array, "*shape"],
    operator: Operator,
    measurement: Float[Array, " measurements"],
    noise: Scalar,
) -> Float[Array, ""]:
    """What the local MAP minimises; the covariance is a variance, variances or a matrix.

    Example:
        >>> one, zero = jnp.ones(1), jnp.zeros(1)
        >>> float(local_objective(one, zero, jnp.array(1.0), lambda x: x, one, 1.0))
        0.5
    """
    gap, misfit = x0 - mean, measurement - operator(x0)
    solved = jnp.linalg.solve(covariance, gap) if jnp.ndim(covariance) == 2 else gap / covariance
    return misfit @ misfit / (2 * jnp.square(noise)) + gap @ solved / 2


def closed_form() -> LocalSolver:
    """``local_map``: one linear system of the measurement's size, for linear operators."""

    def solve(local: Local, covariance: Covariance, key: Array) -> Array:
        del key
        problem = local.problem
        return local_map(local.mean, covariance, problem.operator, problem.measurement, local.noise)

    return solve


def conjugate_gradient(*, rtol: float = 1e-6, max_steps: int | None = None) -> LocalSolver:
    """The local MAP of a linear operator without its matrix, by Lineax's conjugate gradients.

    The covariance must be symmetric positive semidefinite: exact denoisers' are. A system that is
    not solved in ``max_steps`` (10 times its size by default) gives its last iterate.

    Raises:
        ValueError: ``rtol`` is not positive.
    """
    check_value("rtol", rtol, lambda r: r > 0, "positive")

    def solve(local: Local, covariance: Covariance, key: Array) -> Array:
        del key
        operator = _linear(local.problem.operator)

        def total(v: Array) -> Array:
            spread = multiply(covariance, operator.adjoint(v))
            return operator(spread) + jnp.square(local.noise) * v

        error = local.error(local.mean)
        system = lineax.FunctionLinearOperator(
            total, jax.eval_shape(lambda: error), lineax.positive_semidefinite_tag
        )
        steps = 10 * error.size if max_steps is None else max_steps
        solver = lineax.CG(rtol=rtol, atol=0.0, max_steps=steps)
        weights = lineax.linear_solve(system, error, solver, throw=False).value
        return local.mean + multiply(covariance, operator.adjoint(weights))

    return solve


def gradient_descent(*, num_steps: int = 50, step_size: Scalar = 1.0) -> LocalSolver:
    """Gradient steps of size ``step_size / L`` from the mean, for linear operators.

    ``L = 1 + r^2 |H|^2 / sigma_y^2`` in the variable ``z``, with the largest variance ``r^2``. The
    error falls by ``1 - 1/L`` a step: where the measurement is sharp, fifty steps are few.

    Raises:
        TypeError: ``num_steps`` is not an integer, or the operator is not linear.
        ValueError: ``num_steps`` is less than 1, ``step_size`` is not in (0, 2), or the covariance
            is not a variance or variances.
    """
    check_count("num_steps", num_steps)
    check_value("step_size", step_size, lambda s: (s > 0) & (s < 2), "in (0, 2)")

    def solve(local: Local, covariance: Covariance, key: Array) -> Array:
        del key
        root = _root(covariance)
        norm = operator_norm(_linear(local.problem.operator), local.x.dtype)
        curvature = 1 + jnp.max(jnp.square(root)) * jnp.square(norm / local.noise)
        gradient = jax.grad(lambda z: _objective(local, root, z))

        def step(z: Array, _: None) -> tuple[Array, None]:
            return (z - step_size * gradient(z) / curvature).astype(z.dtype), None

        z, _ = jax.lax.scan(step, jnp.zeros_like(local.mean), length=num_steps)
        return local.mean + root * z

    return solve


def descent(
    *, num_steps: int = 50, optimizer: optax.GradientTransformation | None = None
) -> LocalSolver:
    """Steps of an optimizer from the mean, for any operator.

    Args:
        num_steps: How many; the source takes about 200 for images.
        optimizer: Of ``z`` in units of the covariance's root; ``optax.adam(0.1)`` by default.

    Raises:
        TypeError: ``num_steps`` is not an integer.
        ValueError: ``num_steps`` is less than 1, or the covariance is not a variance or variances.
    """
    check_count("num_steps", num_steps)
    update = optax.adam(0.1) if optimizer is None else optimizer

    def solve(local: Local, covariance: Covariance, key: Array) -> Array:
        del key
        root = _root(covariance)
        gradient = jax.grad(lambda z: _objective(local, root, z))

        def step(carry: tuple[Array, Any], _: None) -> tuple[tuple[Array, Any], None]:
            z, memory = carry
            change, memory = update.update(gradient(z), memory, z)
            return (jnp.asarray(optax.apply_updates(z, change), z.dtype), memory), None

        z = jnp.zeros_like(local.mean)
        (z, _), _ = jax.lax.scan(step, (z, update.init(z)), length=num_steps)
        return local.mean + root * z

    return solve


def langevin(*, num_steps: int = 100, step_size: Scalar = 0.1, norm: Scalar = 1.0) -> LocalSolver:
    r"""A draw from the local posterior instead of its mode, by unadjusted Langevin steps: DAPS.

    :math:`z \leftarrow z - \eta \nabla J(z) + \sqrt{2 \eta}\, \xi`, with :math:`\eta` the step
    size over :math:`1 + r^2 |H|^2/\sigma_y^2`.

    Args:
        num_steps: How many.
        step_size: In (0, 1]; the bias falls with it.
        norm: ``|H|`` of a nonlinear operator's derivative; that of linear ones is computed.

    Raises:
        TypeError: ``num_steps`` is not an integer.
        ValueError: ``num_steps`` is less than 1, ``step_size`` or ``norm`` is out of range, or the
            covariance is not a variance or variances.
    """
    check_count("num_steps", num_steps)
    check_value("step_size", step_size, lambda s: (s > 0) & (s <= 1), "in (0, 1]")
    check_value("norm", norm, lambda n: n > 0, "positive")

    def solve(local: Local, covariance: Covariance, key: Array) -> Array:
        root, operator = _root(covariance), local.problem.operator
        dtype = local.mean.dtype
        largest = operator_norm(operator, dtype) if isinstance(operator, LinearOperator) else norm
        size = step_size / (1 + jnp.max(jnp.square(root)) * jnp.square(largest / local.noise))
        gradient = jax.grad(lambda z: _objective(local, root, z))

        def step(z: Array, key: Array) -> tuple[Array, None]:
            fresh = jnp.sqrt(2 * size) * jax.random.normal(key, z.shape, dtype)
            return (z - size * gradient(z) + fresh).astype(dtype), None

        keys = jax.random.split(key, num_steps)
        z, _ = jax.lax.scan(step, jnp.zeros_like(local.mean), keys)
        return local.mean + root * z

    return solve


def posterior_draw() -> LocalSolver:
    """An exact draw from the local posterior of a linear operator: what DAPS's Langevin aims at.

    Mean and measurement are perturbed by their own noise, and the local MAP is taken (Papandreou
    and Yuille 2010).

    Raises:
        TypeError: The operator is not linear.
        ValueError: The covariance is not a variance or variances.
    """

    def solve(local: Local, covariance: Covariance, key: Array) -> Array:
        key_mean, key_measurement = jax.random.split(key)
        measurement, dtype = local.problem.measurement, local.mean.dtype
        moved = _root(covariance) * jax.random.normal(key_mean, local.mean.shape, dtype)
        noisy = local.noise * jax.random.normal(key_measurement, measurement.shape, dtype)
        return local_map(
            local.mean + moved, covariance, local.problem.operator, measurement + noisy,
            local.noise,
        )  # fmt: skip

    return solve


def likelihood_step(*, normalized: bool = False) -> LocalSolver:
    r"""One step along the likelihood's gradient: DPS, with Tweedie's covariance.

    Args:
        normalized: Divide the gradient of :math:`|e|` instead of that of
            :math:`|e|^2/(2\sigma_y^2)`, as DPS's code does: then the next noisy signal moves by
            ``-scale`` times it, whatever the noise. Only for ``restoration.tweedie``.
    """

    def solve(local: Local, covariance: Covariance, key: Array) -> Array:
        del key
        value, pull = jax.vjp(local.problem.operator, local.mean)
        error = local.problem.measurement - value
        push = multiply(covariance, pull(error)[0])
        if not normalized:
            return local.mean + push / jnp.square(local.noise)
        size = jnp.sqrt(jnp.sum(jnp.square(error)) + jnp.finfo(error.dtype).tiny)
        kept = safe_sqrt(1 - jnp.square(local.rho))
        # By how much the next noisy signal follows the estimate.
        follows = 1 - kept * local.next_sigma / local.sigma
        return local.mean + push / (jnp.square(local.sigma) * size * follows)

    return solve


def pseudo_inverse_step(variance: Callable[[Any], Any]) -> LocalSolver:
    """The gain of one variance with the covariance of another model: PiGDM, with Tweedie's.

    Args:
        variance: ``sigma -> r^2``, of the spherical model inside the inverse.
    """

    def solve(local: Local, covariance: Covariance, key: Array) -> Array:
        del key
        operator = _linear(local.problem.operator)
        _, total = _spread_and_total(local.mean, variance(local.sigma), operator, local.noise)
        weights = _solve(total, local.error(local.mean), shared=True)
        return local.mean + multiply(covariance, operator.adjoint(weights))

    return solve


def _objective(local: Local, root: Array, z: Array) -> Array:
    misfit = local.error(local.mean + root * z)
    return (z @ z + misfit @ misfit / jnp.square(local.noise)) / 2


def _root(covariance: Covariance) -> Array:
    if callable(covariance) or jnp.ndim(covariance) > 1:
        raise ValueError(
            "covariance must be a variance or variances for this solver (flat, gaussian, "
            "tweedie_variances), got a matrix or its products"
        )
    return safe_sqrt(covariance)

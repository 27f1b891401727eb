r"""Accelerated gradient descent that is driven by a wrong gradient.

How far does a bias of size :math:`\delta` in every gradient move the answer? With
:math:`q = \sqrt{\mu/L}` and the query point :math:`y = (x + q z)/(1 + q)`,

.. math::
    x^+ = y - \tfrac1L g, \qquad
    z^+ = (1 - q) z + q y - \tfrac{q}{\mu} g, \qquad g = \nabla f(y) + e .

For every error :math:`e`, adversarial or random, the energy
:math:`V = f(x) - f^* + \frac\mu2 \|z - x^*\|^2` obeys
:math:`V^+ \le (1 - q) V - q \langle e, z^+ - x^* \rangle` [derived], so that errors of norm
:math:`\delta` move the answer by at most :math:`2\delta/\mu`, without a factor
:math:`\sqrt{L/\mu}`. That makes two runs under different biases end close together:
``reproducible_agd``. The dual method ``jaxlab.optim.dual_sgd`` is this step on a dual function.

Source: ICML 2026, "Accelerated Dual Method for Distributed Optimization" [existence of the
result]; form and proof are reconstructed.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

from jaxlab.core.checks import check_value, is_concrete
from jaxlab.core.trees import tree_combine
from jaxlab.core.types import Method, Scalar

__all__ = [
    "AGDHyper",
    "AGDInfo",
    "AGDState",
    "Oracle",
    "accelerated_update",
    "agd_hyper",
    "check_curvature",
    "energy_factor",
    "energy_floor",
    "inexact_agd",
    "query_point",
    "reproducible_agd",
    "reproducible_hyper",
    "reproducible_steps",
]


class AGDHyper(NamedTuple):
    """Hyper-parameters; ``agd_hyper`` computes them.

    Attributes:
        step_size: The gradient step, ``1/L``.
        rate: ``q = sqrt(mu/L)`` in (0, 1]; 1 is plain gradient descent.
    """

    step_size: Float[Array, ""]
    rate: Float[Array, ""]


class AGDState(NamedTuple):
    """The pair of sequences.

    Attributes:
        x: The answer.
        z: The slow sequence; the gradient is asked at a mean of both.
    """

    x: PyTree
    z: PyTree


class AGDInfo(NamedTuple):
    """Diagnostics of one step.

    Attributes:
        gradient_norm: The norm of the gradient that was used.
    """

    gradient_norm: Float[Array, ""]


class Oracle(NamedTuple):
    """The problem of ``inexact_agd``.

    Attributes:
        start: The first point, any pytree of arrays.
        data: What the gradient function is given.
    """

    start: PyTree
    data: PyTree = None


def query_point(x: PyTree, z: PyTree, rate: Scalar) -> PyTree:
    """``(x + q z) / (1 + q)``, where the gradient is asked.

    Example:
        >>> float(query_point(jnp.array(0.0), jnp.array(3.0), 0.5))
        1.0
    """
    return tree_combine((1 / (1 + rate), rate / (1 + rate)), x, z)


def accelerated_update(
    z: PyTree, query: PyTree, gradient: PyTree, hyper: AGDHyper
) -> tuple[PyTree, PyTree]:
    """The two sequences after a gradient at ``query``: ``(x+, z+)``.

    With ``rate = 1`` both equal ``query - step_size * gradient``.
    """
    step, rate = hyper.step_size, hyper.rate
    x = tree_combine((1.0, -step), query, gradient)
    return x, tree_combine((1 - rate, rate, -step / rate), z, query, gradient)


def agd_hyper(strong_convexity: Scalar, smoothness: Scalar) -> AGDHyper:
    """The theory's hyper-parameters for a strongly convex and smooth function.

    Args:
        strong_convexity: ``mu > 0``.
        smoothness: ``L >= mu``.

    Raises:
        ValueError: ``mu`` is not positive, or ``L < mu``.

    Example:
        >>> hyper = agd_hyper(1.0, 4.0)
        >>> float(hyper.step_size), float(hyper.rate)
        (0.25, 0.5)
    """
    check_curvature(strong_convexity, smoothness)
    return AGDHyper(
        jnp.asarray(1 / smoothness, dtype=float),
        jnp.asarray(jnp.sqrt(strong_convexity / smoothness), dtype=float),
    )


def inexact_agd(gradient_fn: Callable[[Any, Any, Array], Any]) -> Method:
    """Accelerated gradient descent on whatever ``gradient_fn(point, data, key)`` returns.

    The problem is an ``Oracle``, the hyper-parameters an ``AGDHyper``.

    Example:
        >>> import jax
        >>> from jaxlab.core import run
        >>> method = inexact_agd(lambda x, scale, key: scale * x)
        >>> problem = Oracle(start=jnp.ones(2), data=jnp.array([1.0, 4.0]))
        >>> done = run(method, problem, agd_hyper(1.0, 4.0), jax.random.key(0), num_steps=60)
        >>> bool(jnp.abs(done.state.x).max() < 1e-6)
        True
    """

    def init(problem: Oracle, hyper: AGDHyper, key: Array) -> AGDState:
        del hyper, key
        return AGDState(problem.start, problem.start)

    def step(
        problem: Oracle, hyper: AGDHyper, state: AGDState, key: Array
    ) -> tuple[AGDState, AGDInfo]:
        query = query_point(state.x, state.z, hyper.rate)
        gradient = gradient_fn(query, problem.data, key)
        x, z = accelerated_update(state.z, query, gradient, hyper)
        return AGDState(x, z), AGDInfo(optax.tree.norm(gradient))

    return Method(init, step)


def energy_factor(rate: Scalar) -> Float[Array, ""]:
    r"""The factor :math:`\rho = (1 - q)/(1 - q/2)` per step under bounded errors [derived].

    :math:`V_K \le \rho^K V_0 + 2\delta^2/\mu` when every error has norm at most ``delta``.
    """
    return jnp.asarray((1 - rate) / (1 - rate / 2), dtype=float)


def energy_floor(error_norm: Scalar, strong_convexity: Scalar) -> Float[Array, ""]:
    r""":math:`2\delta^2/\mu`, where the energy of ``energy_factor`` ends at the latest."""
    return jnp.asarray(2 * error_norm**2 / strong_convexity, dtype=float)


def reproducible_agd(gradient_fn: Callable[[Any, Any, Array], Any]) -> Method:
    r"""Minimise a convex function so that runs under different biases agree.

    ``inexact_agd`` on :math:`f + \frac r2 \|x - x_0\|^2`. The problem's data is the pair
    ``(r, data)``; take ``r`` and the number of steps from ``reproducible_hyper`` and
    ``reproducible_steps``. Two runs with biases of norm at most ``delta`` end within
    :math:`2\sqrt{2\rho^T V_0/r} + 4\delta/r` of each other [derived], where plain gradient descent
    needs the square of the number of gradients for the same deviation.
    """

    def regularized(method_start: PyTree) -> Callable[[Any, Any, Array], Any]:
        def gradient(point: PyTree, data: tuple[Array, Any], key: Array) -> PyTree:
            ridge, inner = data
            return tree_combine(
                (1.0, ridge, -ridge), gradient_fn(point, inner, key), point, method_start
            )

        return gradient

    def step(problem: Oracle, hyper: AGDHyper, state: AGDState, key: Array) -> tuple:
        return inexact_agd(regularized(problem.start)).step(problem, hyper, state, key)

    return Method(inexact_agd(gradient_fn).init, step)


def reproducible_hyper(
    smoothness: Scalar, radius: Scalar, accuracy: Scalar
) -> tuple[Float[Array, ""], AGDHyper]:
    """The ridge ``r = accuracy / radius**2`` and the step sizes of the regularised function.

    Args:
        smoothness: ``L > 0`` of the convex function.
        radius: A bound on the distance from the start to a minimiser.
        accuracy: The wanted gap in function value.

    Raises:
        ValueError: An argument is not positive.
    """
    for name, value in (("smoothness", smoothness), ("radius", radius), ("accuracy", accuracy)):
        check_value(name, value, lambda v: v > 0, "positive")
    ridge = jnp.asarray(accuracy / radius**2, dtype=float)
    return ridge, agd_hyper(ridge, smoothness + ridge)


def reproducible_steps(
    smoothness: float, radius: float, accuracy: float, *, energy: float, error_norm: float
) -> int:
    r"""How many steps make the start's share of the deviation as small as :math:`\delta/r`.

    Then two runs end within :math:`5\delta/r` of each other.

    Args:
        smoothness: ``L``.
        radius: A bound on the distance from the start to a minimiser.
        accuracy: The wanted gap in function value.
        energy: A bound on the energy ``V_0`` at the start.
        error_norm: The bound ``delta > 0`` on the bias.

    Example:
        >>> reproducible_steps(1.0, 1.0, 1e-2, energy=1.0, error_norm=1e-3)
        227
    """
    ridge = accuracy / radius**2
    rate = math.sqrt(ridge / (smoothness + ridge))
    log_ratio = math.log(max(8 * energy * ridge / error_norm**2, math.e))
    return math.ceil(2 * log_ratio / rate)


def check_curvature(strong_convexity: Any, smoothness: Any) -> None:
    """Raise ``ValueError`` unless ``0 < strong_convexity <= smoothness``, both finite."""
    check_value("strong_convexity", strong_convexity, lambda mu: mu > 0, "positive")
    check_value(
        "smoothness", smoothness, lambda big: (big > 0) & (big < jnp.inf), "positive and finite"
    )
    expected = "at least strong_convexity"
    if is_concrete(strong_convexity):
        expected += f" = {float(strong_convexity):g}"
    check_value("smoothness", smoothness, lambda big: big >= strong_convexity, expected)

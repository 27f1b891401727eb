r"""Noise sensitivity exponent: how wide the statistical-to-computational gap opens in noise.

How many samples per dimension must a learner see before it learns anything of a direction
:math:`w` from :math:`y = \sqrt\lambda\, \sigma(\langle w, x\rangle) + \xi`, with Gaussian
:math:`x` and :math:`\xi`? Information suffices from :math:`\alpha_{IT}` on, the best first-order
method needs :math:`\alpha_{alg}`. For even :math:`\sigma` one integer tells how their ratio grows
as the signal-to-noise ratio :math:`\lambda` falls:

.. math::
    \beta_\star &= \min\{b \ge 1: c_b \ne 0\}, \qquad
        c_b = E[\sigma(z)^b (z^2 - 1)], \quad z \sim N(0, 1) \\
    1/\alpha_{alg} &= E_y[a(y)^2], \qquad a(y) = E[z^2 - 1 \mid y] \\
    \alpha_{alg} &\sim (\beta_\star!/c_{\beta_\star}^2)\, \lambda^{-\beta_\star}, \qquad
        \alpha_{IT} \sim \kappa(\sigma)\, \lambda^{-1} .

This module holds the exponent and the first-order threshold. ``nse_multi`` has wide committees and
hierarchical models, ``nse_replica`` the information threshold, ``nse_evolution`` state evolution,
``nse_amp`` the algorithms and the data, ``nse_activations`` the activations.

Source: arXiv:2603.17896 (Definition 2.1, Theorem 3.2); the constants of both limits are derived and
are attacked in ``proofs_checks/nse.py``. The stability formula is that of Mondelli and Montanari
2019 (arXiv:1708.05932). AMP is the best of the first-order methods (Celentano, Montanari, Wu 2020,
arXiv:2002.12903); that no method of polynomial time does better is a conjecture.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln
from jaxtyping import Array, Float, Int

from jaxlab.core.checks import check_count, check_float64, check_value
from jaxlab.core.types import Scalar
from jaxlab.theory.nse_activations import (
    Activation,
    Moments,
    check_activation,
)
from jaxlab.theory.nse_amp import amp
from jaxlab.theory.nse_channel import check_resolution, check_snr, output_grid, posterior

__all__ = [
    "NoiseSensitivity",
    "amp",
    "inverse_threshold",
    "large_noise_weak_recovery",
    "noise_sensitivity",
    "noise_sensitivity_exponent",
    "nse_coefficients",
    "weak_recovery_threshold",
]


class NoiseSensitivity(NamedTuple):
    """The exponent and the coefficient that goes with it.

    Attributes:
        exponent: ``beta*``; 0 if none was found up to the largest order.
        coefficient: ``c`` at the exponent, of the centred activation; 0 if there is none.
    """

    exponent: Int[Array, ""]
    coefficient: Float[Array, ""]


def nse_coefficients(activation: Activation, *, max_order: int = 8) -> Float[Array, " max_order"]:
    """``c_b = E[sigma(z)^b (z^2 - 1)]`` for ``b = 1, ..., max_order``.

    Args:
        activation: Any function; it is neither centred nor scaled.
        max_order: The last order, static.

    Raises:
        TypeError: The activation is in float32, or ``max_order`` is not an integer.
        ValueError: ``max_order`` is less than 1.

    Example:
        >>> from jaxlab.theory.nse_activations import smooth
        >>> with jax.enable_x64(True):
        ...     nse_coefficients(smooth(lambda z: z**2), max_order=2).round(6).tolist()
        [2.0, 12.0]
    """
    check_float64("activation", activation, _CANCELS)
    return _coefficients(activation.moments(0.0, 1.0), max_order)


_CANCELS = "coefficients of 0 are told from small ones"


def _coefficients(moments: Moments, max_order: int) -> Float[Array, " max_order"]:
    return _powers(moments.values, max_order) @ moments.second


def _powers(values: Array, max_order: int) -> Float[Array, "max_order values"]:
    check_count("max_order", max_order)
    return jnp.cumprod(jnp.tile(values[None], (max_order, 1)), axis=0)


def noise_sensitivity(
    activation: Activation, *, max_order: int = 8, tolerance: float = 1e-8
) -> NoiseSensitivity:
    """The exponent ``beta*`` with its coefficient [Definition 2.1].

    A coefficient counts as 0 below ``tolerance`` times ``E |sigma^b (z^2 - 1)|``.

    Args:
        activation: Even and not constant.
        max_order: The last order that is looked at, static.
        tolerance: Relative.

    Raises:
        TypeError: The activation is in float32, where small coefficients and 0 look alike.
        ValueError: The activation is constant or not even, or its ``num_nodes`` is too small.

    Example:
        >>> from jaxlab.theory.nse_activations import step_activation
        >>> with jax.enable_x64(True):
        ...     found = noise_sensitivity(step_activation(3, 0.08))
        >>> int(found.exponent), round(float(found.coefficient), 6)  # 3! * 0.08
        (3, 0.48)
    """
    moments = check_activation("activation", activation)
    centred = moments.values - moments.mass @ moments.values
    deviation = jnp.sqrt(moments.mass @ centred**2)
    scaled = moments._replace(values=centred / deviation)
    coefficients = _coefficients(scaled, max_order)
    sizes = jnp.abs(_powers(scaled.values, max_order)) @ jnp.abs(scaled.second)
    counts = jnp.abs(coefficients) > tolerance * sizes
    order = jnp.where(counts.any(), jnp.argmax(counts) + 1, 0).astype(jnp.int32)
    found = jnp.where(counts.any(), coefficients[order - 1] * deviation**order, 0.0)
    return NoiseSensitivity(order, found)


def noise_sensitivity_exponent(
    activation: Activation, *, max_order: int = 8, tolerance: float = 1e-8
) -> Int[Array, ""]:
    """``beta*`` alone; 0 stands for "none up to ``max_order``". See ``noise_sensitivity``.

    Example:
        >>> from jaxlab.theory.nse_activations import smooth
        >>> with jax.enable_x64(True):
        ...     he4 = smooth(lambda z: z**4 - 6 * z**2 + 3)
        ...     int(noise_sensitivity_exponent(he4))
        2
    """
    return noise_sensitivity(activation, max_order=max_order, tolerance=tolerance).exponent


def inverse_threshold(moments: Moments, snr: Scalar, *, num_y: int = 401) -> Float[Array, ""]:
    """``E_y[a(y)^2]`` with ``a(y) = E[z^2 - 1 | y]``, between 0 and 2."""
    grid = output_grid(moments, snr, num_y)
    told = jax.vmap(posterior, in_axes=(None, None, 0))(moments, snr, grid.nodes)
    return grid.weights @ (jnp.exp(told.log_density) * told.second**2)


def weak_recovery_threshold(
    activation: Activation, snr: Scalar, *, num_y: int = 401
) -> Float[Array, ""]:
    r"""Samples per dimension from which on first-order methods learn a single index.

    :math:`1/\alpha_{alg} = E_y[a(y)^2]`; the threshold is at least 1/2, with equality if the output
    tells :math:`|z|`.

    Args:
        activation: Even and not constant.
        snr: ``lambda > 0``, a ratio of powers; ``vmap`` over it.
        num_y: Points of the grid over outputs, static.

    Raises:
        TypeError: The activation is in float32.
        ValueError: ``snr`` is not positive, ``num_y`` is too small for the activation's range, or
            ``activation`` is constant, not even or on too few nodes.

    Example:
        >>> from jaxlab.theory.nse_activations import step_activation
        >>> with jax.enable_x64(True):
        ...     round(float(weak_recovery_threshold(step_activation(2, 0.2), 0.01)))
        125906
    """
    moments = check_activation("activation", activation)
    check_snr(snr)
    snr = jnp.asarray(snr, dtype=float)
    check_resolution(activation, moments, snr)
    return 1 / inverse_threshold(moments, snr, num_y=num_y)


def large_noise_weak_recovery(
    coefficient: Scalar, order: int | Int[Array, ""], snr: Scalar
) -> Float[Array, ""]:
    r"""The limit of ``weak_recovery_threshold`` as ``snr`` falls [derived].

    :math:`(\beta_\star!/c^2)\,\lambda^{-\beta_\star}`, from expanding the likelihood in Hermite
    polynomials of the output.

    Args:
        coefficient: ``c`` of the centred activation, not 0.
        order: ``beta*``, at least 1.
        snr: ``lambda > 0``.

    Raises:
        ValueError: Something is out of range.

    Example:
        >>> round(float(large_noise_weak_recovery(0.4, 2, 0.1)))  # 2 / 0.16 * 100
        1250
    """
    check_value("coefficient", coefficient, lambda c: c != 0, "other than 0")
    check_value("order", order, lambda b: b >= 1, "at least 1")
    check_snr(snr)
    power = jnp.asarray(order, dtype=float)
    factorial = jnp.exp(gammaln(power + 1))
    return factorial / coefficient**2 * jnp.asarray(snr, dtype=float) ** -power

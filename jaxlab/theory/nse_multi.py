r"""Several directions: wide committees and hierarchical models.

A committee's first-order threshold grows with its width like :math:`p^{\beta_\star}` and its
information threshold like :math:`p`, since every unit sees the others as noise. In a hierarchical
model with amplitudes :math:`k^{-\gamma}` the k-th feature needs of the order of
:math:`k^{2\gamma\beta_\star}` samples per dimension by first-order methods.

Source: arXiv:2603.17896, the section on multi-index models, and Theorem 5.2 of its first version;
the exact formula for committees and all constants are derived. The stability formula for several
indices is that of Troiani et al. 2024 (arXiv:2405.15480). The dimension goes to infinity before the
width does.
"""

import math

import jax
import jax.numpy as jnp
from jax.scipy.special import zeta
from jaxtyping import Array, Float, Int

from jaxlab.core.checks import check_count, check_value
from jaxlab.core.types import Scalar
from jaxlab.theory.nse import inverse_threshold, large_noise_weak_recovery
from jaxlab.theory.nse_activations import Moments, StepActivation, check_activation

__all__ = [
    "committee_moments",
    "committee_threshold",
    "hierarchical_error",
    "hierarchical_snr",
    "hierarchical_thresholds",
    "large_noise_committee",
]


def committee_moments(activation: StepActivation, *, num_units: int) -> Moments:
    """How one hidden unit's input splits by the sum of all units, over ``sqrt(num_units)``.

    Exact, by convolution on the lattice of sums: the activation's values must be integers from 0 to
    their number less 1, as those of ``step_activation`` are.

    Args:
        activation: Of every unit.
        num_units: The width ``p``, static.

    Raises:
        ValueError: The values are off the lattice, or ``num_units`` is less than 1.
    """
    check_count("num_units", num_units)
    size = activation.values.shape[0]
    check_value(
        "activation.values", activation.values,
        lambda v: ((v == jnp.round(v)) & (v >= 0) & (v < size)).all(),
        f"integers from 0 to {size - 1}",
    )  # fmt: skip
    unit = activation.moments(0.0, 1.0)
    places = unit.values.astype(int)
    mass = jnp.zeros(size, unit.mass.dtype).at[places].add(unit.mass)
    second = jnp.zeros(size, unit.mass.dtype).at[places].add(unit.second)
    length = num_units * (size - 1) + 1
    start = jnp.zeros(length, unit.mass.dtype).at[0].set(1.0)

    def add_unit(sums: Array, _: None) -> tuple[Array, None]:
        return _convolve(sums, mass), None

    others, _ = jax.lax.scan(add_unit, start, length=num_units - 1)
    sums = jnp.arange(length, dtype=unit.mass.dtype) / math.sqrt(num_units)
    nothing = jnp.zeros_like(sums)
    return Moments(sums, _convolve(others, mass), nothing, _convolve(others, second))


def _convolve(sums: Array, unit: Array) -> Array:
    """The first entries of the convolution, as many as there are sums."""
    shifted = [jnp.pad(sums, (k, 0))[: sums.shape[0]] for k in range(unit.shape[0])]
    return unit @ jnp.stack(shifted)


def committee_threshold(
    activation: StepActivation, noise: Scalar, *, num_units: int, num_y: int = 401
) -> Float[Array, ""]:
    r"""Samples per dimension from which on AMP learns anything of a committee machine [derived].

    :math:`y = p^{-1/2} \sum_{k \le p} \sigma(\langle w_k, x\rangle) + \sqrt\Delta\,\xi` with
    orthonormal :math:`w_k`. By symmetry :math:`E[zz^T - I \mid y]` is a multiple of the identity,
    and the stability formula for several indices collapses to that for one.

    Args:
        activation: Even, with integer values; see ``committee_moments``.
        noise: ``Delta > 0``, the noise's variance.
        num_units: The width ``p``, static.
        num_y: Points of the grid over outputs, static.

    Raises:
        TypeError: The activation is in float32.
        ValueError: As ``committee_moments`` and ``weak_recovery_threshold``, or ``noise`` is not
            positive.

    Example:
        >>> from jaxlab.theory import nse
        >>> from jaxlab.theory.nse_activations import step_activation
        >>> with jax.enable_x64(True):
        ...     alone = committee_threshold(step_activation(2, 0.2), 10.0, num_units=1)
        ...     single = nse.weak_recovery_threshold(step_activation(2, 0.2), 0.1)
        >>> round(float(alone / single), 9)
        1.0
    """
    check_activation("activation", activation)
    check_value("noise", noise, lambda variance: variance > 0, "positive")
    moments = committee_moments(activation, num_units=num_units)
    return 1 / inverse_threshold(moments, 1 / jnp.asarray(noise, dtype=float), num_y=num_y)


def large_noise_committee(
    coefficient: Scalar,
    order: int | Int[Array, ""],
    variance: Scalar,
    noise: Scalar,
    num_units: Scalar,
) -> Float[Array, ""]:
    r"""The limit of ``committee_threshold`` for wide committees [derived].

    :math:`(\beta_\star!/c^2)\,[p\,(\mathrm{Var}\,\sigma + \Delta)]^{\beta_\star}`: the other units
    act as noise.

    Args:
        coefficient: ``c`` of the centred activation, not 0.
        order: ``beta*``, at least 1.
        variance: ``Var sigma(z)``.
        noise: ``Delta``.
        num_units: The width ``p``.

    Example:
        >>> round(float(large_noise_committee(0.5, 1, 0.25, 0.75, 10)))
        40
    """
    check_value("noise", noise, lambda value: value > 0, "positive")
    check_value("num_units", num_units, lambda count: count >= 1, "at least 1")
    total = jnp.asarray(num_units, dtype=float) * (variance + noise)
    return large_noise_weak_recovery(coefficient, order, 1 / total)


def hierarchical_error(feature: Scalar, decay: Scalar, variance: Scalar = 1.0) -> Float[Array, ""]:
    r"""What is left of the signal when all features up to one are known [exact].

    :math:`\mathrm{Var}\,\sigma \sum_{j > k} j^{-2\gamma}`, a Hurwitz zeta value.

    Args:
        feature: ``k >= 0``.
        decay: ``gamma > 1/2``, of the amplitudes ``k^-gamma``.
        variance: ``Var sigma(z)``.

    Raises:
        ValueError: ``feature`` is negative or ``decay`` is at most 1/2.

    Example:
        >>> round(float(hierarchical_error(0, 1.0)), 4)  # pi^2 / 6
        1.6449
    """
    check_value("feature", feature, lambda k: k >= 0, "at least 0")
    check_value("decay", decay, lambda gamma: gamma > 0.5, "above 1/2")
    after = jnp.asarray(feature, dtype=float) + 1
    return jnp.asarray(variance) * zeta(2 * jnp.asarray(decay, dtype=float), after)


def hierarchical_snr(
    feature: Scalar, decay: Scalar, noise: Scalar, variance: Scalar = 1.0
) -> Float[Array, ""]:
    r"""The signal-to-noise ratio of one feature of a hierarchical model, [Eq. 6 of v1].

    :math:`y = \sum_k k^{-\gamma} \sigma(\langle w_k, x\rangle) + \sqrt\Delta\,\xi`. The features
    before it are known, those after it are noise: :math:`k^{-2\gamma}/(\Delta + \mathrm{tail}_k)`.

    Args:
        feature: ``k >= 1``.
        decay: ``gamma > 1/2``.
        noise: ``Delta > 0``.
        variance: ``Var sigma(z)``.

    Raises:
        ValueError: Something is out of range.
    """
    check_value("feature", feature, lambda k: k >= 1, "at least 1")
    check_value("noise", noise, lambda value: value > 0, "positive")
    tail = hierarchical_error(feature, decay, variance)
    return jnp.asarray(feature, dtype=float) ** (-2 * decay) / (noise + tail)


def hierarchical_thresholds(
    feature: Scalar,
    decay: Scalar,
    coefficient: Scalar,
    noise: Scalar,
    *,
    order: int,
    variance: Scalar = 1.0,
) -> Float[Array, ""]:
    r"""Samples per dimension that first-order methods need for one feature [heuristic].

    Of order :math:`k^{2\gamma\beta_\star}` [Theorem 5.2 of v1]; ``order=1`` gives the conjectured
    order of the information threshold.

    Args:
        feature: ``k >= 1``; ``vmap`` over more.
        decay: ``gamma > 1/2``.
        coefficient: ``c`` of the centred activation, not 0.
        noise: ``Delta > 0``.
        order: ``beta*``, static.
        variance: ``Var sigma(z)``.

    Raises:
        ValueError: Something is out of range.

    Example:
        >>> ratio = hierarchical_thresholds(400, 1.0, 1.0, 1.0, order=2) / hierarchical_thresholds(
        ...     200, 1.0, 1.0, 1.0, order=2
        ... )
        >>> round(float(jnp.log2(ratio)), 2)  # 2 * decay * order
        3.99
    """
    snr = hierarchical_snr(feature, decay, noise, variance)
    return large_noise_weak_recovery(coefficient, order, snr)

"""Claims on the noise sensitivity exponent that hold at every noise level.

N1, N2 and N3 stand here, N6 to N8 in ``nse_replica.py``, the asymptotic ones in ``nse_scaling.py``.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from hypothesis import strategies as st
from jaxtyping import Array, Float

from jaxlab.claims import Claim, Comparison, ExactCase, at_most, close_to
from jaxlab.core.locate import load_companion
from jaxlab.problems.sites import site
from jaxlab.stats.quadrature import gauss_legendre
from jaxlab.theory import nse
from jaxlab.theory.nse_activations import (
    Activation,
    PiecewiseActivation,
    smooth,
    step_activation,
    step_scale_limit,
)
from jaxlab.theory.nse_channel import log_likelihood, output_grid, posterior
from jaxlab.theory.nse_instances import (
    Affine,
    Channel,
    Waves,
    is_channel,
    link,
    random_steps,
    two_valued,
)

NUM_Y = 121  # The outputs here span at most 29 standard deviations.


class Family(NamedTuple):
    """A step function of the family, moved; ``fraction`` of the largest scale."""

    fraction: Float[Array, ""]
    slope: Float[Array, ""]
    shift: Float[Array, ""]


class Polynomial(NamedTuple):
    """``weights . (He_2, He_4)``, moved."""

    weights: Float[Array, "2"]
    slope: Float[Array, ""]
    shift: Float[Array, ""]


def moved() -> tuple[Array, Array]:
    """A slope that is not 0, of either sign, and a shift."""
    sign = 2.0 * site("sign", dist.Bernoulli(0.5)) - 1
    size = site("size", dist.Uniform(0.3, 3.0))
    return sign * size, site("shift", dist.Uniform(-3.0, 3.0))


def step_family() -> Family:
    """A NumPyro model of the family of step functions."""
    return Family(site("fraction", dist.Uniform(0.05, 0.95)), *moved())


def hermite_two() -> Polynomial:
    """``He_2`` with some ``He_4``."""
    rest = site("rest", dist.Uniform(-0.2, 0.2))
    return Polynomial(jnp.stack([jnp.ones_like(rest), rest]), *moved())


def hermite_four() -> Polynomial:
    """``He_4`` alone, whose first coefficient vanishes."""
    return Polynomial(jnp.array([0.0, 1.0]), *moved())


def activation_of(instance: Family | Polynomial, order: int) -> Activation:
    """The activation before it is moved."""
    if isinstance(instance, Family):
        return step_activation(order, instance.fraction * step_scale_limit(order))

    def polynomial(z: Array, weights: Array) -> Array:
        return weights[0] * (z**2 - 1) + weights[1] * (z**4 - 6 * z**2 + 3) / 24

    return smooth(polynomial, instance.weights, num_nodes=40)


def affine_invariance(
    instance: Family | Polynomial, *, order: int, projection: float = 1.0
) -> Comparison:
    """N1: the exponent does not change, and its coefficient scales with the slope's power."""
    activation = activation_of(instance, order)
    after = Affine(activation, instance.slope, instance.shift, projection)
    before = Affine(activation, 1.0, 0.0, projection)
    exponent = nse.noise_sensitivity_exponent(activation, max_order=4)
    change = nse.noise_sensitivity_exponent(after, max_order=4) - exponent
    power = instance.slope**exponent
    old = nse.nse_coefficients(before, max_order=4)
    new = nse.nse_coefficients(after, max_order=4)
    scale = power * old[exponent - 1]
    below = jnp.arange(1, 5) < exponent
    errors = jnp.where(below, new, new[exponent - 1] - scale) / scale
    kept = jnp.where(jnp.arange(1, 5) <= exponent, errors, 0.0)
    return close_to(jnp.append(kept, change.astype(float)), 0.0, allowance=1e-9)


def exact_affine_invariance(*, projection: float = 1.0) -> list[ExactCase]:
    """N1 in symbols: lower coefficients vanish, so that one term of the binomial is left."""
    from jaxlab.claims.exact import identity_case

    # E[z^2 - projection] is the coefficient of order 0.
    rest = Fraction(1) - Fraction(projection)
    return [
        identity_case(f"a**{k}*c + b**{k}*({rest})", f"a**{k}*c", parameters={"order": k})
        for k in range(1, 9)
    ]


def is_moved(instance: Family | Polynomial, *, order: int) -> Array:
    """The slope is not 0; the step functions exist, as their thresholds increase."""
    slack = jnp.abs(instance.slope)
    if isinstance(instance, Family):
        return jnp.minimum(slack, jnp.diff(thresholds_of(instance, order), prepend=0.0).min())
    return slack


def thresholds_of(instance: Family, order: int) -> Array:
    """Where the step function jumps."""
    return step_activation(order, instance.fraction * step_scale_limit(order)).thresholds


def step_coefficients(instance: Family, *, order: int, tails: float = 2.0) -> Comparison:
    """N2, with the coefficients by quadrature between the jumps instead of in closed form."""
    scale = instance.fraction * step_scale_limit(order)
    # Solving with one tail instead of two is solving for another scale.
    wrong = step_activation(order, jnp.minimum(2 / tails, 1 / instance.fraction - 1e-6) * scale)
    places = wrong.thresholds
    both = jnp.concatenate([-places[::-1], places])
    by_panels = PiecewiseActivation(_apply, (wrong,), both, gauss_legendre(40))
    found = nse.nse_coefficients(by_panels, max_order=order)
    expected = jnp.zeros(order).at[-1].set((-1) ** (order + 1) * math.factorial(order) * scale)
    return close_to(found, expected, allowance=1e-9)


def _apply(z: Array, activation: Activation) -> Array:
    return activation(z)


def exact_step_coefficients(*, tails: float = 2.0) -> list[ExactCase]:
    """N2 in fractions, per unit of the scale: finite differences of powers."""
    cases = []
    for order in range(1, 9):
        moments = [Fraction(2) / Fraction(tails) * (-1) ** (v + 1) * math.comb(order, v)
                   for v in range(order + 1)]  # fmt: skip
        for k in range(1, order + 1):
            total = sum(m * v**k for v, m in enumerate(moments))
            expected = (-1) ** (order + 1) * math.factorial(order) if k == order else 0
            parameters = {"order": order, "power": k}
            cases.append(ExactCase(parameters, float(abs(total - expected)), 0.0))
    return cases


def informed(activation: Activation, snr: Array) -> Array:
    """``1 / alpha_alg``, as the library has it."""
    return 1 / nse.weak_recovery_threshold(activation, snr, num_y=NUM_Y)


def weighted_at_zero(activation: Activation, snr: Array) -> Array:
    """Bug: outputs weighted by ``p(y | z = 0)`` instead of the marginal."""
    moments = activation.moments(0.0, 1.0)
    grid = output_grid(moments, snr, NUM_Y)
    told = jax.vmap(posterior, in_axes=(None, None, 0))(moments, snr, grid.nodes).second
    weights = jnp.exp(log_likelihood(activation(jnp.zeros(())), snr, grid.nodes))
    return grid.weights @ (weights * told**2)


def degradation(
    instance: Channel | Waves, *, inverse: Callable[..., Array] = informed
) -> Comparison:
    """N3: between 0 and 2, and more noise is never better."""
    activation = link(instance)
    values = [inverse(activation, snr) for snr in (instance.snr, instance.ratio * instance.snr)]
    steps = jnp.stack([jnp.zeros(()), *values, jnp.array(2.0)])
    return at_most(steps[:-1], steps[1:] + 1e-12)


ORDERS: dict[str, Any] = {"order": st.sampled_from([1, 2, 4])}
CLAIMS = (
    Claim(
        name="nse/affine_invariance",
        statement="a != 0: beta*(a sigma + b) = beta*(sigma), c(a sigma + b) = a^beta* c(sigma)",
        source="derived: binomial expansion; lower coefficients and E He_2 vanish",
        families={"steps": step_family, "He_2": hermite_two, "He_4": hermite_four},
        conclusion=affine_invariance,
        assumptions=is_moved,
        sizes=ORDERS,
        typical={"order": 3},
        exact=exact_affine_invariance,
        tightness="tight",
        samples=100,
        rungs=("explore", "sample", "exact"),
        mutants={"z^2 instead of z^2 - 1": {"projection": 0.0}},
    ),
    Claim(
        name="nse/step_family",
        statement="step functions of order b, scale c: c_k = 0 for k < b, c_b = (-1)^(b+1) b! c",
        source="derived: sum_v (-1)^(v+1) binom(b,v) v^k is 0 for k < b, (-1)^(b+1) b! for k = b",
        families={"steps": step_family},
        conclusion=step_coefficients,
        assumptions=is_moved,
        sizes=ORDERS,
        typical={"order": 3},
        exact=exact_step_coefficients,
        tightness="tight",
        samples=100,
        rungs=("explore", "sample", "exact"),
        mutants={"one tail instead of two": {"tails": 1.0}},
    ),
    Claim(
        name="nse/degradation",
        statement="even sigma: 0 <= 1/alpha_alg <= 2, and 1/alpha_alg does not fall with the snr",
        source="derived: E[E[He_2 | y]^2] <= E He_2^2 = 2; more noise is a worse channel (Jensen)",
        families={"steps": random_steps},
        conclusion=degradation,
        assumptions=is_channel,
        boundary={"two values": two_valued},
        samples=200,
        restarts=2,
        rungs=("sample", "attack"),
        mutants={"weighted by p(y | 0)": {"inverse": weighted_at_zero}},
    ),
    *load_companion("proofs_checks", "nse_replica").CLAIMS,
    *load_companion("proofs_checks", "nse_scaling").CLAIMS,
)

"""Claims on the noise sensitivity exponent that hold at every noise level.

N1, N2, N3, N6, N7 and N8 stand here; the asymptotic ones are in ``nse_scaling.py``.
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
from jaxlab.problems.sites import log_uniform, site
from jaxlab.stats.quadrature import gauss_legendre
from jaxlab.theory import nse, nse_replica
from jaxlab.theory.nse_activations import (
    Activation,
    Moments,
    PiecewiseActivation,
    StepActivation,
    smooth,
    step_activation,
    step_scale_limit,
)
from jaxlab.theory.nse_channel import log_likelihood, output_grid, posterior

NUM_Y = 101  # The outputs here span at most 25 standard deviations.


class Affine(Activation):
    """``slope * sigma + shift``, with the square of ``z`` projected on ``z^2 - projection``."""

    activation: Activation
    slope: Any
    shift: Any
    projection: Any = 1.0

    def __call__(self, z: Array) -> Array:
        """The activation's values."""
        return self.slope * self.activation(z) + self.shift

    def moments(self, mean: Any, variance: Any) -> Moments:
        """Of the same pieces."""
        inner = self.activation.moments(mean, variance)
        return inner._replace(
            values=self.slope * inner.values + self.shift,
            second=inner.second + (1 - self.projection) * inner.mass,
        )


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


class Channel(NamedTuple):
    """A step function, or a sum of cosines, in noise."""

    gaps: Float[Array, " jumps"]
    values: Float[Array, " shells"]
    snr: Float[Array, ""]
    ratio: Float[Array, ""]


class Waves(NamedTuple):
    """``weights . (cos(rate z), exp(-z^2), -tanh(z)^2)`` in noise."""

    weights: Float[Array, "3"]
    rate: Float[Array, ""]
    snr: Float[Array, ""]
    ratio: Float[Array, ""]


def noise(low: float, high: float) -> tuple[Array, Array]:
    """A signal-to-noise ratio, and by how much a second one is larger."""
    return log_uniform("snr", low, high), log_uniform("ratio", 1.0, 10.0)


def random_steps() -> Channel:
    """Three jumps, four values."""
    gaps = site("gaps", dist.Uniform(0.1, 1.0).expand([3]).to_event(1))
    values = site("values", dist.Uniform(-1.0, 1.0).expand([4]).to_event(1))
    return Channel(gaps, values, *noise(0.01, 1.0))


def random_waves() -> Waves:
    """Smooth bounded even functions."""
    weights = site("weights", dist.Uniform(0.1, 0.5).expand([3]).to_event(1))
    return Waves(weights, site("rate", dist.Uniform(0.5, 1.5)), *noise(0.3, 2.0))


def weak_signal() -> Channel:
    """Noise up to a hundred times the signal."""
    return random_steps()._replace(snr=log_uniform("weak_snr", 0.01, 1.0))


def two_valued() -> Channel:
    """An indicator: ties between the other values."""
    return Channel(jnp.full(3, 0.5), jnp.array([0.0, 1.0, 1.0, 1.0]), jnp.ones(()), jnp.ones(()))


def link(instance: Channel | Waves) -> Activation:
    """The activation of an instance."""
    if isinstance(instance, Channel):
        return StepActivation(jnp.cumsum(instance.gaps), instance.values)

    def waves(z: Array, weights: Array, rate: Array) -> Array:
        stacked = jnp.stack([jnp.cos(rate * z), jnp.exp(-(z**2)), -(jnp.tanh(z) ** 2)])
        return jnp.tensordot(weights, stacked, axes=1)

    return smooth(waves, instance.weights, instance.rate, num_nodes=40)


def is_channel(instance: Channel | Waves) -> Array:
    """Positive noise, a signal, and jumps in order."""
    slack = jnp.minimum(instance.snr, instance.ratio - 1)
    if isinstance(instance, Channel):
        return jnp.minimum(slack, jnp.minimum(instance.gaps.min(), jnp.ptp(instance.values)))
    return jnp.minimum(slack, jnp.abs(instance.weights).max())


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


def library_threshold(activation: Activation, snr: Array, overlaps: Array) -> Array:
    """The information threshold of the library."""
    return nse_replica.information_threshold(
        activation, snr, overlaps=overlaps, num_y=NUM_Y, num_v=41
    ).alpha


def threshold_with(cost: Callable[[Array], Array]) -> Callable[..., Array]:
    """The information threshold with another cost of an overlap."""

    def threshold(activation: Activation, snr: Array, overlaps: Array) -> Array:
        def needed(q: Array) -> Array:
            told = nse_replica.channel_information(activation, q, snr, num_y=NUM_Y, num_v=41)
            return -cost(q) / told

        return jax.lax.map(needed, overlaps).min()

    return threshold


def wrong_sign(q: Array) -> Array:
    """Bug: ``q - log(1 - q)``."""
    return (q - jnp.log1p(-q)) / 2


def without_half(q: Array) -> Array:
    """Bug: the factor 1/2 dropped."""
    return q + jnp.log1p(-q)


def threshold_order(
    instance: Channel, *, information: Callable[..., Array] = library_threshold
) -> Comparison:
    """N6: information suffices from fewer samples on than first-order methods need."""
    activation = link(instance)
    least = information(activation, instance.snr, nse_replica.overlap_grid(16))
    needed = nse.weak_recovery_threshold(activation, instance.snr, num_y=NUM_Y)
    # The grid's first overlap is not 0, which costs up to half a percent.
    left, right = jnp.stack([0 * least, least]), jnp.stack([least, 1.005 * needed])
    return at_most(left, right, scale=needed)


class Overlap(NamedTuple):
    """A channel at an overlap."""

    channel: Channel | Waves
    overlap: Float[Array, ""]
    alpha: Float[Array, ""]


def at_overlap(family: Callable[[], Channel | Waves]) -> Callable[[], Overlap]:
    """A NumPyro model of channels at overlaps, with not too weak a signal."""

    def model() -> Overlap:
        channel = family()._replace(snr=log_uniform("visible_snr", 0.3, 2.0))
        alpha = log_uniform("alpha", 0.5, 5.0)
        return Overlap(channel, site("overlap", dist.Uniform(0.1, 0.9)), alpha)

    return model


class Swapped(Activation):
    """Bug: the prior's variance is ``q`` instead of ``1 - q``."""

    activation: Activation

    def __call__(self, z: Array) -> Array:
        """The activation's values."""
        return self.activation(z)

    def moments(self, mean: Any, variance: Any) -> Moments:
        """With the other variance, except of the marginal."""
        return self.activation.moments(mean, jnp.where(variance < 1, 1 - variance, variance))


def nishimori(
    instance: Overlap, *, wrap: Callable[[Activation], Activation] = lambda activation: activation
) -> Comparison:
    """N7: the derivative of the information is half the mean squared score."""
    channel, q = instance.channel, instance.overlap
    sizes = {"num_y": NUM_Y, "num_v": 61}
    slope = jax.grad(
        lambda q: nse_replica.channel_information(link(channel), q, channel.snr, **sizes)
    )(q)
    half = nse_replica.squared_score(wrap(link(channel)), q, channel.snr, **sizes) / 2
    return close_to(slope, half, allowance=1e-4, scale=jnp.abs(half))


def small_overlap_slope(instance: Overlap, *, projection: float = 1.0) -> Comparison:
    """N8: state evolution leaves 0 with the slope ``alpha / alpha_alg``."""
    activation, snr = link(instance.channel), instance.channel.snr
    tiny = jnp.array(1e-4)
    after = nse_replica.state_evolution_step(
        activation, tiny, instance.alpha, snr, num_y=NUM_Y, num_v=81
    )
    projected = Affine(activation, 1.0, 0.0, projection).moments(0.0, 1.0)
    expected = instance.alpha * nse.inverse_threshold(projected, snr, num_y=NUM_Y)
    # What is left is of the order of alpha q.
    return close_to(after / tiny, expected, allowance=1e-2, scale=expected + 0.01 * instance.alpha)


def is_overlap(instance: Overlap) -> Array:
    """The channel's assumptions, and an overlap between 0 and 1."""
    inside = jnp.minimum(instance.overlap, 1 - instance.overlap)
    return jnp.minimum(is_channel(instance.channel), jnp.minimum(inside, instance.alpha))


ORDERS: dict[str, Any] = {"order": st.sampled_from([1, 2, 4])}
BOTH = {"steps": at_overlap(random_steps), "waves": at_overlap(random_waves)}

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
    Claim(
        name="nse/threshold_order",
        statement="even sigma, every snr: 0 <= alpha_IT <= alpha_alg",
        source="derived: the infimum over overlaps has alpha_alg as its limit at overlap 0",
        families={"steps": weak_signal},
        conclusion=threshold_order,
        assumptions=is_channel,
        samples=20,
        rungs=("sample",),
        mutants={
            "sign of log(1 - q)": {"information": threshold_with(wrong_sign)},
            "factor 1/2 of the prior": {"information": threshold_with(without_half)},
        },
    ),
    Claim(
        name="nse/nishimori",
        statement="d Psi_out / dq = E g_out^2 / 2 at every overlap",
        source="Barbier et al. 2019 (arXiv:1708.03395); integration by parts",
        families=BOTH,
        conclusion=nishimori,
        assumptions=is_overlap,
        tightness="tight",
        samples=12,
        rungs=("sample",),
        mutants={"variance q instead of 1 - q": {"wrap": Swapped}},
    ),
    Claim(
        name="nse/small_overlap_slope",
        statement="even sigma: state evolution F has F(q)/q -> alpha/alpha_alg as q -> 0",
        source="derived: g_out = omega a(y) + O(omega^3)",
        families=BOTH,
        conclusion=small_overlap_slope,
        assumptions=is_overlap,
        tightness="tight",
        samples=12,
        rungs=("sample",),
        mutants={"z^2 instead of z^2 - 1": {"projection": 0.0}},
    ),
    *load_companion("proofs_checks", "nse_scaling").CLAIMS,
)

"""Claims on information and state evolution at every noise level: N6, N7 and N8."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array, Float

from jaxlab.claims import Claim, Comparison, at_most, close_to
from jaxlab.problems.sites import log_uniform, site
from jaxlab.theory import nse, nse_evolution, nse_replica
from jaxlab.theory.nse_activations import Activation, Moments
from jaxlab.theory.nse_instances import (
    Affine,
    Channel,
    Waves,
    is_channel,
    link,
    random_steps,
    random_waves,
    weak_signal,
)

NUM_Y = 101  # The outputs here span at most 25 standard deviations.


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
    after = nse_evolution.state_evolution_step(
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


BOTH = {"steps": at_overlap(random_steps), "waves": at_overlap(random_waves)}

CLAIMS = (
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
)

"""Claims of the paper on limits: N4, N5, N9, N10 and N11, as exponents with intervals."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from hypothesis import strategies as st
from jaxtyping import Array, Float

from jaxlab.claims import Claim, Comparison, at_most
from jaxlab.claims.families import distinct_keys
from jaxlab.core import run
from jaxlab.core.types import Method
from jaxlab.problems.sites import site
from jaxlab.stats.intervals import slope_interval
from jaxlab.theory import nse, nse_evolution, nse_multi, nse_replica
from jaxlab.theory import nse_amp as amp
from jaxlab.theory.nse_activations import Activation, piecewise, step_activation, step_scale_limit

SNRS = (1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
LARGER_SNRS = (0.01, 0.02, 0.04, 0.08)
OVERLAPS = (0.5, 0.8, 0.9, 0.94, 0.96, 0.97, 0.975, 0.98, 0.985, 0.99, 0.995, 0.999)
WIDTHS = (16, 32, 64, 128)
FEATURES = (50.0, 90.0, 160.0, 280.0, 500.0)
REPLICAS = 3


def interval_misses(sizes: Any, values: Array, exponent: Any = 0.0) -> Array:
    """The largest distance to the exponent inside the 95% interval of the fitted one."""
    middle, half = slope_interval(jnp.asarray(sizes), values)
    return jnp.abs(middle - exponent) + half


class Steps(NamedTuple):
    """Step functions of one order; fractions of the largest scale."""

    fractions: Float[Array, " replicas"]

    def activations(self, order: int) -> Activation:
        """All of them, with a leading axis."""
        return jax.vmap(lambda f: step_activation(order, f * step_scale_limit(order)))(
            self.fractions
        )


class Powers(NamedTuple):
    """``|z|^power`` near the absolute value, of exponent 1."""

    powers: Float[Array, " replicas"]

    def activations(self, order: int) -> Activation:
        """All of them, with a leading axis."""
        del order
        return jax.vmap(lambda p: piecewise(_power, p, breaks=(0.0,)))(self.powers)


def _power(z: Array, power: Array) -> Array:
    return jnp.abs(z) ** power


def steps() -> Steps:
    """A NumPyro model: replicas of one order."""
    fractions = dist.Uniform(0.5, 0.9).expand([REPLICAS]).to_event(1)
    return Steps(site("fractions", fractions))


def powers() -> Powers:
    """A NumPyro model: replicas around the absolute value."""
    return Powers(site("powers", dist.Uniform(0.95, 1.05).expand([REPLICAS]).to_event(1)))


def are_spread(instance: Any) -> Array:
    """Replicas differ, so that their interval means something, and are in range."""
    (values,) = instance
    return jnp.minimum(jnp.ptp(values), jnp.minimum(values.min(), 1.1 - values.max()))


def own_coefficient(activation: Activation) -> Array:
    """``c`` at the exponent."""
    return nse.noise_sensitivity(activation, max_order=4).coefficient


def first_coefficient(activation: Activation) -> Array:
    """Bug: ``c_1`` whatever the exponent, kept off 0."""
    return nse.nse_coefficients(activation, max_order=1)[0] + 1e-6


def exponent_of(instance: Any, order: int) -> int:
    """The exponent by construction."""
    return order if isinstance(instance, Steps) else 1


def large_noise(
    instance: Any,
    *,
    order: int,
    coefficient: Callable[[Activation], Array] = own_coefficient,
    without_factorial: float = 0.0,
) -> Comparison:
    """N4: the exponent over four decades of noise, and the constant at the end."""
    activations, snrs = instance.activations(order), jnp.array(SNRS)
    exponent = exponent_of(instance, order)

    def ratios(activation: Activation) -> tuple[Array, Array]:
        alphas = jax.vmap(lambda s: nse.weak_recovery_threshold(activation, s, num_y=161))(snrs)
        c = coefficient(activation)
        limits = jax.vmap(lambda s: nse.large_noise_weak_recovery(c, exponent, s))(snrs)
        factorial = nse.large_noise_weak_recovery(1.0, exponent, 1.0)
        return alphas, alphas / limits * factorial**without_factorial

    alphas, ratio = jax.vmap(ratios)(activations)
    misses = interval_misses(snrs, alphas, -exponent)
    off = jnp.abs(ratio[:, 0] - 1).max()
    return at_most(jnp.stack([misses / 0.05, off / 0.01]), 1.0)


def library_limit(activation: Activation, overlaps: Array) -> Array:
    """``kappa`` of the library."""
    return nse_replica.large_noise_information(activation, overlaps=overlaps, num_v=101).alpha


def with_the_mean(activation: Activation, overlaps: Array) -> Array:
    """Bug: the mean is left in the covariance."""
    moments = activation.moments(0.0, 1.0)
    square = (moments.mass @ moments.values) ** 2

    def needed(q: Array) -> Array:
        covariance = nse_replica.noise_covariance(activation, q, num_v=101)
        return -2 * nse_replica.prior_entropy(q) / (covariance + square)

    return jax.lax.map(needed, overlaps).min()


def large_noise_information(
    instance: Steps, *, order: int, limit: Callable[..., Array] = library_limit
) -> Comparison:
    """N5: the information threshold falls like ``1 / snr`` whatever the exponent."""
    overlaps, snrs = jnp.array(OVERLAPS), jnp.array(LARGER_SNRS)

    def thresholds(activation: Activation) -> tuple[Array, Array]:
        alphas = jax.lax.map(
            lambda s: (
                nse_replica.information_threshold(
                    activation, s, overlaps=overlaps, num_y=101, num_v=101
                ).alpha
            ),
            snrs,
        )
        return alphas, alphas[0] * snrs[0] / limit(activation, overlaps)

    alphas, ratio = jax.lax.map(thresholds, instance.activations(order))
    off = jnp.abs(ratio - 1).max()
    return at_most(jnp.stack([interval_misses(snrs, alphas, -1) / 0.05, off / 0.01]), 1.0)


def wide_committee(instance: Steps, *, order: int, noise_power: float = 0.0) -> Comparison:
    """N9: the other units of a committee act as noise. The bug sums without ``1/sqrt(p)``."""

    def ratios(activation: Any) -> tuple[Array, Array]:
        moments = activation.moments(0.0, 1.0)
        variance = moments.mass @ (moments.values - moments.mass @ moments.values) ** 2
        c = own_coefficient(activation)
        exact, limits = [], []
        for width in WIDTHS:
            noise = 0.5 / width**noise_power
            exact.append(
                nse_multi.committee_threshold(activation, noise, num_units=width, num_y=201)
            )
            limits.append(nse_multi.large_noise_committee(c, order, variance, 0.5, width))
        return jnp.stack(exact), jnp.stack(exact) / jnp.stack(limits)

    alphas, ratio = jax.vmap(ratios)(instance.activations(order))
    misses = interval_misses(WIDTHS, alphas, order)
    off = jnp.abs(ratio[:, -1] - 1).max()
    return at_most(jnp.stack([misses / 0.05, off / 0.02]), 1.0)


def runs() -> Callable[..., Array]:
    """Keys of independent runs."""

    def family(key: Array, runs: int) -> Array:
        return jax.random.split(key, runs)

    return family


def without_memory(method: Method) -> Method:
    """Bug: the last score is not subtracted."""

    def step(problem: Any, hyper: Any, state: amp.AMPState, key: Array) -> Any:
        return method.step(problem, hyper, state._replace(score=0 * state.score), key)

    return Method(method.init, step)


def state_evolution(
    keys: Array,
    *,
    dim: int,
    runs: int,
    wrap: Callable[[Method], Method] = lambda method: method,
) -> Comparison:
    """N10: overlap, mean square and 1 - variance all follow state evolution."""
    del runs
    alpha, snr, start, steps = 3.0, jnp.array(4.0), 0.1, 12
    link = piecewise(jnp.abs, breaks=(0.0,), num_nodes=16)
    method = wrap(amp.amp())

    def measured(key: Array) -> Array:
        key_data, key_start, key_run = jax.random.split(key, 3)
        data = amp.sample_single_index(key_data, link, snr, num_samples=int(alpha * dim), dim=dim)
        begin = amp.informed_start(key_start, data.teacher, start)
        problem = amp.AMPProblem(data.features, data.labels, link, begin)
        done = run(method, problem, amp.AMPHyper(snr), key_run, num_steps=steps)
        state = done.state
        overlap = amp.overlap_with(state.estimate, data.teacher)
        return jnp.stack([overlap, jnp.mean(state.estimate**2), 1 - state.variance])

    path = nse_evolution.state_evolution(
        link, start, alpha, snr, num_steps=steps, num_y=161, num_v=61
    )
    found = jax.lax.map(measured, keys)
    error = found.std(axis=0, ddof=1) / jnp.sqrt(len(keys))
    # Four standard errors: what 400 dimensions and so few runs leave open.
    return at_most(jnp.abs(found.mean(axis=0) - path[-1]), 0.02 + 4 * jnp.minimum(error, 0.005))


class Hierarchy(NamedTuple):
    """Hierarchical models."""

    decay: Float[Array, " replicas"]


def hierarchies() -> Hierarchy:
    """A NumPyro model; below a decay of 1 the tail is still felt at these features."""
    return Hierarchy(site("decay", dist.Uniform(1.0, 1.5).expand([REPLICAS]).to_event(1)))


def features_in_order(
    instance: Hierarchy, *, order: int, amplitude_power: float = 1.0
) -> Comparison:
    """N11: a power of the feature's number in samples, and of the samples in the error."""
    sizes = jnp.array(FEATURES)

    def relative(decay: Array) -> tuple[Array, Array]:
        # The bug takes k^-gamma for the power instead of the amplitude.
        used = amplitude_power * decay + (1 - amplitude_power) * decay / 2
        alphas = jax.vmap(
            lambda k: nse_multi.hierarchical_thresholds(k, used, 1.0, 1.0, order=order)
        )(sizes)
        errors = jax.vmap(lambda k: nse_multi.hierarchical_error(k, decay))(sizes)
        left = alphas / sizes ** (2 * decay * order)
        exponent = (1 - 1 / (2 * decay)) / order
        return left, errors * alphas**exponent

    samples, errors = jax.vmap(relative)(instance.decay)
    misses = jnp.stack([interval_misses(sizes, samples), interval_misses(sizes, errors)])
    return at_most(misses, jnp.array([0.05, 0.05]))


def decays_in_range(instance: Hierarchy) -> Array:
    """Where the features are asymptotic, and different."""
    low, high = instance.decay.min(), instance.decay.max()
    return jnp.minimum(jnp.minimum(low - 1, 1.5 - high), high - low)


CLAIMS = (
    Claim(
        name="nse/large_noise",
        statement="snr -> 0: alpha_alg = (beta*!/c^2) snr^-beta* (1 + o(1))",
        source="arXiv:2603.17896, Theorem 3.2; the constant is derived. 1e-3 <= snr <= 0.1",
        families={"steps": steps, "powers of |z|": powers},
        conclusion=large_noise,
        assumptions=are_spread,
        sizes={"order": st.sampled_from([2, 3])},
        typical={"order": 3},
        tightness="order",
        samples=10,
        rungs=("explore", "sample"),
        mutants={
            "b! dropped": {"without_factorial": 1.0},
            "c_1 whatever the exponent": {"coefficient": first_coefficient},
        },
    ),
    Claim(
        name="nse/large_noise_information",
        statement="snr -> 0: alpha_IT snr -> inf_q -[q + log(1-q)] / g(q)",
        source="arXiv:2603.17896, Theorem 3.2; the constant is derived. 0.01 <= snr <= 0.08",
        families={"steps": steps},
        conclusion=large_noise_information,
        assumptions=are_spread,
        sizes={"order": st.just(2)},
        typical={"order": 2},
        tightness="order",
        samples=2,
        rungs=("sample",),
        mutants={"mean left in the covariance": {"limit": with_the_mean}},
    ),
    Claim(
        name="nse/wide_committee",
        statement="p -> inf: alpha_c(p) = (beta*!/c^2) [p (Var sigma + Delta)]^beta* (1 + o(1))",
        source="arXiv:2603.17896, multi-index models; the constant is derived. 16 <= p <= 128",
        families={"steps": steps},
        conclusion=wide_committee,
        assumptions=are_spread,
        sizes={"order": st.just(2)},
        typical={"order": 2},
        tightness="order",
        samples=10,
        rungs=("sample",),
        mutants={"1/sqrt(p) forgotten": {"noise_power": 1.0}},
    ),
    Claim(
        name="nse/state_evolution",
        statement="d -> inf: AMP's overlap, mean square and 1 - v follow state evolution",
        source="Barbier et al. 2019 (arXiv:1708.03395); here d = 400, |z|, snr 4, 3 samples per d",
        families={"runs": runs()},
        conclusion=state_evolution,
        assumptions=distinct_keys,
        sizes={"dim": st.just(400), "runs": st.just(8)},
        typical={"dim": 400, "runs": 8},
        tightness="tight",
        samples=1,
        rungs=("sample",),
        mutants={"the last score is not subtracted": {"wrap": without_memory}},
    ),
    Claim(
        name="nse/hierarchical",
        statement=(
            "alpha_k ~ k^(2 gamma beta*), and the error left ~ alpha^(-(1 - 1/(2 gamma))/beta*)"
        ),
        source="arXiv:2603.17896v1, Theorem 5.2; heuristic. 50 <= k <= 500, gamma in [1, 1.5]",
        families={"hierarchies": hierarchies},
        conclusion=features_in_order,
        assumptions=decays_in_range,
        sizes={"order": st.sampled_from([1, 2])},
        typical={"order": 2},
        tightness="order",
        samples=200,
        rungs=("explore", "sample"),
        mutants={"k^-gamma is a power": {"amplitude_power": 0.0}},
    ),
)

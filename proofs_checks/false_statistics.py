"""False theorems of probability, statistics and machine learning: folklore and misread results.

They belong to the bench of ``benchmarks/false_theorems.py``, which measures what breaks them.
"""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array, Float

from jaxlab.claims import Claim, Comparison, Expectation, Probability, at_most, at_most_in_ratio
from jaxlab.problems.sites import log_uniform, normal, simplex, site

false = functools.partial(Claim, expected="refuted", tightness="tight")


def sums_to_one(laws: tuple[Array, ...]) -> Array:
    """Non-negative, and a sum of 1 up to rounding."""
    return jnp.stack([jnp.minimum(p.min(), 1e-12 - jnp.abs(p.sum() - 1)) for p in laws]).min()


class Mixture(NamedTuple):
    """A mixture of round Gaussians, and a noisy observation of a draw."""

    weights: Float[Array, " parts"]
    means: Float[Array, "parts dim"]
    variance: Float[Array, ""]
    noise: Float[Array, ""]
    observed: Float[Array, " dim"]


def mixture() -> Mixture:
    """A NumPyro model of four parts in three dimensions."""
    means, observed = normal("means", 4, 3), normal("observed", 3)
    variance, noise = log_uniform("variance", 1e-2, 1.0), log_uniform("noise", 1e-1, 1e1)
    return Mixture(simplex("weights", 4), means, variance, noise, observed)


def flat_covariance(problem: Mixture) -> Comparison:
    """The posterior covariance of what was observed against that of the noise."""
    weights, means, variance, noise, observed = problem
    total = variance + noise**2
    distances = jnp.sum((observed - means) ** 2, axis=1)
    posterior = jax.nn.softmax(jnp.log(weights) - distances / (2 * total))
    centres = (noise**2 * means + variance * observed) / total
    centred = centres - posterior @ centres
    between = (centred.T * posterior) @ centred
    largest = jnp.linalg.eigvalsh(between)[-1] + variance * noise**2 / total
    return at_most_in_ratio(largest, noise**2)


class Proposal(NamedTuple):
    """A Student law, a wider Gaussian, and a point that the Gaussian may propose."""

    freedom: Float[Array, ""]
    scale: Float[Array, ""]
    point: Float[Array, ""]


def proposal() -> Proposal:
    """A NumPyro model."""
    scale = log_uniform("scale", 1.5, 4.0)
    return Proposal(log_uniform("freedom", 2.0, 30.0), scale, scale * normal("draw"))


def is_wider(problem: Proposal) -> Array:
    """The Gaussian's scale is at least 1.5, the Student law's is 1."""
    return jnp.minimum(problem.scale - 1.5, problem.freedom - 2)


def bounded_weights(problem: Proposal) -> Comparison:
    """The importance weight of a point; its logarithm grows like the point's square."""
    target = dist.StudentT(problem.freedom).log_prob(problem.point)
    proposed = dist.Normal(0.0, problem.scale).log_prob(problem.point)
    return at_most(jnp.asarray(target) - jnp.asarray(proposed), math.log(1e4))


def router() -> Array:
    """The logits of 64 tokens for 8 experts."""
    return log_uniform("scale", 0.1, 3.0) * normal("logits", 64, 8)


def switch_loss(logits: Array) -> Comparison:
    """Shares of tokens times mean gates; the claim would follow if both had one order."""
    gates = jax.nn.softmax(logits)
    num_experts = logits.shape[1]
    share = jax.nn.one_hot(jnp.argmax(gates, axis=1), num_experts).mean(0)
    return at_most_in_ratio(1.0, num_experts * share @ gates.mean(0))


def divergence(p: Array, q: Array) -> Array:
    """Kullback and Leibler's."""
    return jnp.sum(p * (jnp.log(p) - jnp.log(q)))


def three_laws() -> tuple[Array, Array, Array]:
    """On ten symbols."""
    return simplex("p", 10), simplex("q", 10), simplex("r", 10)


def divergence_triangle(laws: tuple[Array, Array, Array]) -> Comparison:
    """What a triangle inequality of the square root would imply."""
    p, q, r = laws
    return at_most_in_ratio(divergence(p, r), 2 * (divergence(p, q) + divergence(q, r)))


def jeffreys_triangle(laws: tuple[Array, Array, Array]) -> Comparison:
    """The root of the symmetric divergence, which is no metric either."""
    p, q, r = laws

    def distance(a: Array, b: Array) -> Array:
        return jnp.sqrt(jnp.sum((a - b) * (jnp.log(a) - jnp.log(b))))

    return at_most_in_ratio(distance(p, r), distance(p, q) + distance(q, r))


def power_law() -> Array:
    """The exponent of ``U^a`` for a uniform ``U``."""
    return log_uniform("exponent", 0.3, 3.0)


def deviation_is_unbiased(exponent: Array, *, key: Array) -> Expectation:
    """The sample standard deviation of five draws; its square is unbiased, it is not."""
    draws = jax.random.uniform(key, (20_000, 5)) ** exponent
    truth = jnp.sqrt(1 / (2 * exponent + 1) - 1 / (exponent + 1) ** 2)
    largest = jnp.asarray(math.sqrt(5 / 4) / 2)
    return Expectation(-draws.std(axis=1, ddof=1), -truth, -largest, jnp.zeros(()))


class Sampling(NamedTuple):
    """A target, a proposal and a function on five symbols."""

    target: Float[Array, " symbols"]
    proposal: Float[Array, " symbols"]
    values: Float[Array, " symbols"]


def sampling() -> Sampling:
    """A NumPyro model."""
    values = site("values", dist.Uniform(0.0, 1.0).expand([5]))
    return Sampling(simplex("target", 5), simplex("proposal", 5), values)


def self_normalised_is_unbiased(problem: Sampling, *, key: Array) -> Expectation:
    """Four draws; a ratio of unbiased estimates is biased."""
    target, proposed, values = problem
    drawn = jax.random.categorical(key, jnp.log(proposed), shape=(20_000, 4))
    weights = (target / proposed)[drawn]
    estimates = jnp.sum(weights * values[drawn], axis=1) / weights.sum(1)
    # A mean of weights that sum to 1 only up to rounding can leave the interval by as much.
    estimates = jnp.clip(estimates, 0.0, 1.0)
    return Expectation(estimates, target @ values, jnp.zeros(()), jnp.ones(()))


class Contaminated(NamedTuple):
    """Standard normal draws, of which a share is stretched."""

    share: Float[Array, ""]
    stretch: Float[Array, ""]


def contaminated() -> Contaminated:
    """A NumPyro model of symmetric laws with heavy tails."""
    share = site("share", dist.Uniform(0.0, 0.5))
    return Contaminated(share, log_uniform("stretch", 1.0, 10.0))


def normal_interval(problem: Contaminated, *, key: Array) -> Probability:
    """How often the 1.96 interval of five draws misses their mean, 0."""
    key_normal, key_share = jax.random.split(key)
    draws = jax.random.normal(key_normal, (20_000, 5))
    is_wide = jax.random.uniform(key_share, draws.shape) < problem.share
    draws = jnp.where(is_wide, problem.stretch, 1) * draws
    misses = jnp.abs(draws.mean(1)) > 1.96 * draws.std(axis=1, ddof=1) / math.sqrt(5)
    return Probability(misses, 0.05)


def peeking(probability: Array, *, key: Array) -> Probability:
    """How often Hoeffding's 95 % interval for one size misses at some size up to 1000."""
    draws = jax.random.uniform(key, (4000, 1000)) < probability
    sizes = jnp.arange(1, 1001)
    means = jnp.cumsum(draws.astype(float), axis=1) / sizes
    radius = jnp.sqrt(math.log(2 / 0.05) / (2 * sizes))
    misses = (jnp.abs(means - probability) > radius).any(axis=1)
    return Probability(misses, 0.05)


TOO_GOOD: dict[str, str] = {}
"""None of these has a constant that could be mended."""

CLAIMS = (
    false(
        name="false/flat_covariance",
        statement="x = x0 + s e with normal e: Cov(x0 | x) <= s^2 I for every law of x0",
        source="folklore; Brascamp and Lieb 1976: true if the law is log-concave",
        families={"mixture": mixture},
        conclusion=flat_covariance,
        assumptions=lambda problem: sums_to_one((problem.weights,)),
    ),
    false(
        name="false/bounded_weights",
        statement="weights of a Student target under a wider Gaussian proposal are at most 10^4",
        source="folklore; Robert and Casella 2004, 3.3.2: a proposal needs heavier tails",
        families={"student": proposal},
        conclusion=bounded_weights,
        assumptions=is_wider,
    ),
    false(
        name="false/switch_loss",
        statement="the load balancing loss E sum_e f_e P_e is at least 1, 64 tokens, 8 experts",
        source="folklore on Fedus, Zoph and Shazeer 2022, (4), where uniform routing gives 1",
        families={"router": router},
        conclusion=switch_loss,
        assumptions=lambda logits: jnp.isfinite(logits).all(),
    ),
    false(
        name="false/divergence_triangle",
        statement="KL(p, r) <= 2 KL(p, q) + 2 KL(q, r), 10 symbols",
        source="folklore; Cover and Thomas 2006, 2.3: the divergence is no metric",
        families={"simplex": three_laws},
        conclusion=divergence_triangle,
        assumptions=sums_to_one,
    ),
    false(
        name="false/jeffreys_triangle",
        statement="the root of KL(p, q) + KL(q, p) obeys the triangle inequality, 10 symbols",
        source="folklore; Endres and Schindelin 2003 prove it for Jensen and Shannon's divergence",
        families={"simplex": three_laws},
        conclusion=jeffreys_triangle,
        assumptions=sums_to_one,
    ),
    false(
        name="false/deviation_is_unbiased",
        statement="five draws in [0, 1]: the sample standard deviation has mean at least sigma",
        source="folklore; Jensen 1906",
        families={"power": power_law},
        conclusion=deviation_is_unbiased,
        assumptions=lambda exponent: exponent,
        stochastic=True,
        samples=16,
        restarts=4,
    ),
    false(
        name="false/self_normalised_is_unbiased",
        statement="four draws: the self-normalised importance estimate has mean at most the truth",
        source="folklore; Owen 2013, 9.2: its bias is of order 1/n",
        families={"symbols": sampling},
        conclusion=self_normalised_is_unbiased,
        assumptions=lambda problem: sums_to_one(problem[:2]),
        stochastic=True,
        samples=16,
        restarts=4,
    ),
    false(
        name="false/normal_interval",
        statement="five draws: mean +- 1.96 s / sqrt(5) misses with probability at most 0.05",
        source="folklore; Student 1908: the quantile is 2.78",
        families={"contaminated": contaminated},
        conclusion=normal_interval,
        assumptions=lambda problem: jnp.minimum(problem.share, problem.stretch - 1),
        stochastic=True,
        samples=16,
        restarts=4,
    ),
    false(
        name="false/peeking",
        statement="Hoeffding's 95 % interval holds at all sizes up to 1000 at once, coin flips",
        source="folklore; Darling and Robbins 1967: the radius must grow by log log n",
        families={"coin": lambda: site("p", dist.Uniform(0.0, 1.0))},
        conclusion=peeking,
        assumptions=lambda p: p * (1 - p),
        stochastic=True,
        samples=16,
        restarts=2,
    ),
)

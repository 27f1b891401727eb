"""Claims of the paper on entropy as a forgetting loss: O1 to O4."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jaxtyping import Array, Float

from jaxlab.claims import Claim, Comparison, ExactCase, at_most, close_to
from jaxlab.optim.oeu import entropy, entropy_forget_loss, retain_loss, uniform_kl_loss
from jaxlab.problems.sites import log_uniform, normal

ALLOWANCE = 1e-12
LARGEST = 60.0
"""Spread of logits up to which probabilities stay far from the smallest numbers."""


def logits(classes: int) -> Array:
    """A NumPyro model: from nearly uniform to nearly certain."""
    return log_uniform("scale", 0.01, 10.0) * normal("logits", classes)


def equal_logits(*, classes: int) -> Array:
    """The maximum of the entropy."""
    return jnp.zeros(classes)


def tied_logits(*, classes: int) -> Array:
    """Two classes share all that there is."""
    return jnp.zeros(classes).at[:2].set(30.0)


def is_moderate(instance: Array) -> Array:
    """Finite logits of a spread that is far from the range of numbers."""
    spread = instance.max() - instance.min()
    return jnp.where(jnp.isfinite(spread), 2 * LARGEST - spread, -1.0)


def gradient(instance: Array, *, base: float = 1.0, height: float = 1.0) -> Comparison:
    """O1. Mutants take another base of logarithms or leave the entropy out."""
    p, logs = jax.nn.softmax(instance), jax.nn.log_softmax(instance)
    found = jax.grad(entropy)(instance)
    expected = -p * (logs + height * jnp.sum(-p * logs)) / base
    return close_to(jnp.append(found, found.sum()), jnp.append(expected, 0.0), ALLOWANCE)


class Margin(NamedTuple):
    """By how much the true class leads all others, which are equal."""

    value: Float[Array, ""]


def margin() -> Margin:
    """A NumPyro model."""
    return Margin(log_uniform("margin", 0.1, 20.0))


def is_margin(instance: Margin) -> Array:
    """The true class leads."""
    return jnp.minimum(instance.value, LARGEST - instance.value)


def led(instance: Margin, classes: int) -> Array:
    """The logits; the true class is the first."""
    return jnp.zeros(classes).at[0].set(instance.value)


def unbiased(instance: Margin, *, classes: int, only_wrong: float = 0.0) -> Comparison:
    """O2, over all labels by enumeration. The mutant never draws the true label."""
    z = led(instance, classes)
    up = -jax.grad(entropy_forget_loss)(z)
    by_label = jax.vmap(lambda label: jax.grad(lambda z: retain_loss(z[None], label[None]))(z))(
        jnp.arange(classes)
    )
    weights = jnp.where(jnp.arange(classes) > 0, 1.0, 1 - only_wrong)
    expected = weights @ by_label / weights.sum()
    # A single wrong label is pushed by one more than every other.
    single = -by_label[1]
    spread = up[1:].max() - up[1:].min()
    size = jnp.abs(up[0])
    left = jnp.concatenate(
        [
            jnp.abs(expected - jax.grad(uniform_kl_loss)(z)),
            jnp.abs(expected - (jax.nn.softmax(z) - 1 / classes)),
            jnp.abs(jnp.delete(single[1] - single, 1, assume_unique_indices=True)[1:] - 1),
            jnp.stack([spread / size, up[0] / size + 1]),
        ]
    )
    return at_most(left, ALLOWANCE)


def exact_unbiased(*, only_wrong: float = 0.0) -> list[ExactCase]:
    """O2's expectation at three margins, in NumPy's long doubles."""
    cases = []
    for classes in (2, 3, 10, 50):
        for value in (1.0, 3.0, 5.0):
            z = np.zeros(classes, np.longdouble)
            z[0] = value
            p = np.exp(z) / np.exp(z).sum()
            slopes = p[None, :] - np.eye(classes)
            weights = np.where(np.arange(classes) > 0, 1.0, 1 - only_wrong)
            mean = weights @ slopes / weights.sum()
            found = jax.grad(uniform_kl_loss)(jnp.zeros(classes).at[0].set(value))
            worst = float(np.abs(mean - np.asarray(found)).max())
            parameters = {"classes": classes, "margin": value}
            cases.append(ExactCase(parameters, worst, 0.0, tolerance=ALLOWANCE))
    return cases


def largest(instance: Array, *, classes: int, sign: float = 1.0) -> Comparison:
    """O3; that only the uniform law attains it is Pinsker's inequality."""
    height, p = entropy(instance), jax.nn.softmax(instance)
    to_uniform = jnp.sum(p * (jax.nn.log_softmax(instance) + jnp.log(classes)))
    away = jnp.abs(p - 1 / classes).sum()
    loss = sign * entropy_forget_loss(instance)
    left = jnp.stack([height + away**2 / 2, jnp.abs(loss - (to_uniform - jnp.log(classes)))])
    return at_most(left, jnp.stack([jnp.log(classes), jnp.zeros(())]) + ALLOWANCE)


def saturation(instance: Margin, *, classes: int, clip: float = 0.0) -> Comparison:
    """O4 in closed form: ``m p(1-p) sqrt(C/(C-1))`` vanishes, ``(p-1/C) sqrt(C/(C-1))`` does not.

    The mutant clips logits before the entropy, at 1000 times the largest margin if ``clip`` is 0.
    """
    m = instance.value
    limit = jnp.where(clip > 0, clip, 1e3 * LARGEST)
    z = led(instance, classes)
    slope = jax.grad(lambda z: entropy_forget_loss(limit * jnp.tanh(z / limit)))(z)
    other = jax.grad(uniform_kl_loss)(z)
    p = 1 / (1 + (classes - 1) * jnp.exp(-m))
    rest = (classes - 1) * jnp.exp(-m) * p
    root = jnp.sqrt(classes / (classes - 1))
    found = jnp.stack([jnp.linalg.norm(slope), jnp.linalg.norm(other)])
    expected = jnp.stack([m * p * rest * root, (p - 1 / classes) * root])
    # The smooth clip at 60000 changes the margin by (m/60000)^2/3.
    return close_to(found, expected, 1e-6, scale=expected)


def exact_saturation(*, clip: float = 0.0) -> list[ExactCase]:
    """O4's listed values, C = 10."""
    del clip
    cases = []
    for value, listed in ((2.0, 0.522), (5.0, 0.284), (10.0, 4.31e-3), (20.0, 3.91e-7)):
        z = jnp.zeros(10).at[0].set(value)
        found = float(jnp.linalg.norm(jax.grad(entropy_forget_loss)(z)))
        worst = abs(found / listed - 1)
        cases.append(ExactCase({"margin": value}, worst, 0.01))
    top = float(jnp.linalg.norm(jax.grad(uniform_kl_loss)(jnp.zeros(10).at[0].set(50.0))))
    cases.append(ExactCase({"margin": 50.0}, abs(top - 0.9**0.5), 0.0, tolerance=ALLOWANCE))
    return cases


SIZES = {"classes": st.sampled_from([2, 10])}
TYPICAL = {"classes": 10}
BOUNDARY = {"uniform": equal_logits, "two classes tied": tied_logits}
CLAIMS = (
    Claim(
        name="oeu/entropy_gradient",
        statement="dH/dz_j = -p_j (log p_j + H), and the components sum to 0",
        source="derived: dp_i/dz_j = p_i (1[i = j] - p_j)",
        families={"logits": logits},
        conclusion=gradient,
        assumptions=is_moderate,
        sizes=SIZES,
        typical=TYPICAL,
        boundary=BOUNDARY,
        samples=2000,
        restarts=16,
        mutants={
            "logarithm of base 2": {"base": 0.6931471805599453},
            "H forgotten": {"height": 0.0},
        },
    ),
    Claim(
        name="oeu/unbiased",
        statement=(
            "wrong logits equal: entropy's ascent lowers the true class and treats all wrong ones "
            "alike; a random label singles out one, and over uniform labels the gradient is "
            "p - 1/C, that of KL(u|p)"
        ),
        source="derived: symmetry; the gradient of cross-entropy is linear in the label",
        families={"margin": margin},
        conclusion=unbiased,
        assumptions=is_margin,
        sizes=SIZES,
        typical=TYPICAL,
        exact=exact_unbiased,
        samples=1000,
        rungs=("explore", "sample", "exact"),
        mutants={"labels from the wrong classes only": {"only_wrong": 1.0}},
    ),
    Claim(
        name="oeu/largest_entropy",
        statement="H + |p - u|_1^2 / 2 <= log C, and L_f = KL(p|u) - log C",
        source="derived: Pinsker's inequality",
        families={"logits": logits},
        conclusion=largest,
        assumptions=is_moderate,
        sizes=SIZES,
        typical=TYPICAL,
        boundary=BOUNDARY,
        tightness="tight",
        samples=2000,
        restarts=16,
        mutants={"entropy descends": {"sign": -1.0}},
    ),
    Claim(
        name="oeu/saturation",
        statement=(
            "margin m over equal logits: |dH/dz| = m p (1-p) sqrt(C/(C-1)) -> 0, whereas "
            "|dKL(u|p)/dz| = (p - 1/C) sqrt(C/(C-1)) -> sqrt(1 - 1/C)"
        ),
        source="derived: log p_1 + H = m (1 - p), log p_j + H = -m p",
        families={"margin": margin},
        conclusion=saturation,
        assumptions=is_margin,
        sizes=SIZES,
        typical=TYPICAL,
        exact=exact_saturation,
        samples=1000,
        rungs=("explore", "sample", "exact"),
        mutants={"logits clipped": {"clip": 4.0}},
    ),
)

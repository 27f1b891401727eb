"""Claims on the Lie bracket of two sources of training, with explicit constants.

Smooth losses are means of ``a tanh(w x + b)``, whose derivatives are bounded everywhere: the terms
of higher order are then bounded by numbers that can be computed, and "O(eta^3)" becomes an
inequality for every step size. Tournaments are in ``lie_bracket_orders.py``, several steps in
``lie_bracket_steps.py``.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from hypothesis import strategies as st
from jaxtyping import Array, Float

from jaxlab.claims import Claim, Comparison, at_most, close_to
from jaxlab.core.locate import load_companion
from jaxlab.optim.lie_bracket import bracket, pair_score, restricted
from jaxlab.optim.lie_bracket_schedules import (
    bracket_only_step,
    order_statistic,
    ordering_gap,
    run_schedule,
)
from jaxlab.problems.sites import log_uniform, normals

# The largest values of |tanh''| and |tanh'''|.
SECOND, THIRD = 4 / 27**0.5, 2.0


class Units(NamedTuple):
    """A loss: the mean of ``heights tanh(weights x + shifts)``."""

    weights: Float[Array, "*sources units dim"]
    shifts: Float[Array, "*sources units"]
    heights: Float[Array, "*sources units"]


class Nets(NamedTuple):
    """Sources A and B and a target E, smooth; parameters and a step size."""

    units: Units
    start: Float[Array, " dim"]
    step_size: Float[Array, ""]

    def loss_of(self, i: int) -> Units:
        """Source 0 or 1, or the target, 2."""
        return Units(*(leaf[i] for leaf in self.units))


def net_loss(x: Array, units: Units) -> Array:
    """The loss of parameters and a batch."""
    return jnp.mean(units.heights * jnp.tanh(units.weights @ x + units.shifts))


def nets(dim: int, units: int) -> Nets:
    """A NumPyro model."""
    weights, shifts, heights, start = normals(
        "nets", (3, units, dim), (3, units), (3, units), (dim,)
    )
    return Nets(Units(weights, shifts, heights), start, log_uniform("step_size", 1e-3, 2.0))


def legal_nets(instance: Nets) -> Array:
    """A positive step size."""
    return instance.step_size


class Bounds(NamedTuple):
    """Bounds of second and third derivatives, from the weights alone."""

    second: Array
    third: Array


def bounds_of(units: Units) -> Bounds:
    """Of one loss."""
    norms = jnp.sqrt(jnp.sum(units.weights**2, axis=-1))
    sizes = jnp.abs(units.heights)
    return Bounds(SECOND * jnp.mean(sizes * norms**2), THIRD * jnp.mean(sizes * norms**3))


def norm(x: Array) -> Array:
    """The Euclidean norm."""
    return jnp.sqrt(jnp.sum(x**2))


class Pair(NamedTuple):
    """Everything about one instance that the bounds need."""

    grad_a: Array
    grad_b: Array
    reference: Array
    ab: Array
    ba: Array
    remainder: Array
    drift: Array


def both_orders(instance: Nets) -> Pair:
    """Run both, and bound what Taylor's series leave.

    ``theta_AB = ref + eta^2 H_B g_A - eta R_B`` with ``|R_B| <= M_B (eta |g_A|)^2 / 2``, and
    ``|theta_AB - ref| <= eta^2 Lambda_B |g_A|``.
    """
    a, b, eta = instance.loss_of(0), instance.loss_of(1), instance.step_size
    grad_a, grad_b = jax.grad(net_loss)(instance.start, a), jax.grad(net_loss)(instance.start, b)
    sources = Units(*(leaf[:2] for leaf in instance.units))
    ab, ba = (
        run_schedule(net_loss, instance.start, sources, jnp.array(order), eta)
        for order in ((0, 1), (1, 0))
    )
    bound_a, bound_b = bounds_of(a), bounds_of(b)
    squares = bound_b.third * jnp.sum(grad_a**2) + bound_a.third * jnp.sum(grad_b**2)
    drift = eta**2 * (bound_b.second * norm(grad_a) + bound_a.second * norm(grad_b))
    reference = instance.start - eta * (grad_a + grad_b)
    # Both ends are rounded, which counts where the third order is smaller.
    rounding = 4 * jnp.finfo(ab.dtype).eps * (norm(instance.start) + norm(ab) + norm(ba))
    remainder = eta**3 * squares / 2 + rounding
    return Pair(grad_a, grad_b, reference, ab, ba, remainder, drift)


def displaced(
    instance: Nets, *, sign: float = -1.0, factor: float = 1.0, swapped: float = 0.0
) -> Comparison:
    """1: both orders differ by ``eta^2 b`` within the third order; mutants change the bracket."""
    a, b, pair = instance.loss_of(0), instance.loss_of(1), both_orders(instance)
    x, eta = instance.start, instance.step_size
    right = bracket(net_loss, x, a, b)
    hessian_a, hessian_b = jax.hessian(net_loss)(x, a), jax.hessian(net_loss)(x, b)
    wrong_sign = hessian_b @ pair.grad_a + hessian_a @ pair.grad_b
    wrong_source = hessian_a @ pair.grad_a - hessian_b @ pair.grad_b
    guess = jnp.where(sign < 0, right, wrong_sign) * (1 - swapped) + swapped * wrong_source
    left = norm(pair.ab - pair.ba - factor * eta**2 * guess)
    return at_most(left, pair.remainder, scale=pair.drift)


def midpoint(instance: Nets, *, share: float = 0.5) -> Comparison:
    """3: linear at the middle of both ends, the target's gap is exact to third order in them."""
    pair, target = both_orders(instance), instance.loss_of(2)
    apart = pair.ab - pair.ba
    middle = share * pair.ab + (1 - share) * pair.ba
    gap = net_loss(pair.ab, target) - net_loss(pair.ba, target)
    left = jnp.abs(gap - jax.grad(net_loss)(middle, target) @ apart)
    bound = bounds_of(target).third * norm(apart) ** 3 / 24
    return at_most(left, bound + 1e-15, scale=norm(apart) ** 2)


def trotter_reference(
    instance: Nets, *, sign: float = -1.0, second: float = 1.0, moved: float = 1.0
) -> Comparison:
    """3: linear where both orders drift to, the error is of fourth order."""
    pair, target, eta = both_orders(instance), instance.loss_of(2), instance.step_size
    drift = sign * eta * (pair.grad_a + second * pair.grad_b)
    at = instance.start + moved * drift
    apart, bound = pair.ab - pair.ba, bounds_of(target)
    gap = net_loss(pair.ab, target) - net_loss(pair.ba, target)
    left = jnp.abs(gap - jax.grad(net_loss)(at, target) @ apart)
    right = bound.second * pair.drift / 2 * norm(apart) + bound.third * norm(apart) ** 3 / 24
    return at_most(left, right + 1e-15, scale=norm(apart) * pair.drift**0.5)


def gap_is_predicted(instance: Nets, *, factor: float = 1.0, order: float = 3.0) -> Comparison:
    """4: the score predicts the gap to third order, and no better: ``order`` 4 forgets a term."""
    a, b, target = (instance.loss_of(i) for i in range(3))
    pair, eta, bound = both_orders(instance), instance.step_size, bounds_of(target)
    scored = pair_score(net_loss, instance.start, a, b, target, step_size=eta)
    gap = ordering_gap(net_loss, instance.start, a, b, target, eta)
    slope = norm(jax.grad(net_loss)(pair.reference, target))
    fourth = bound.second * pair.drift**2 / 2 + bound.third * pair.drift**3 / 24
    third = jnp.where(order > 3, 0, slope * pair.remainder)
    left = jnp.abs(gap - factor * scored.gap)
    return at_most(left, third + fourth + 1e-15, scale=slope * pair.drift + fourth)


def corrected(instance: Nets, *, sign: float = 1.0) -> Comparison:
    """10: the bracket-only step ends below both orders by ``eta^2 mu``, to third order."""
    a, b, target = (instance.loss_of(i) for i in range(3))
    x, eta, pair = instance.start, instance.step_size, both_orders(instance)
    bound, own = bounds_of(target), bracket(net_loss, x, a, b)
    slope = jax.grad(net_loss)(pair.reference, target)
    hessian_a, hessian_b = jax.hessian(net_loss)(x, a), jax.hessian(net_loss)(x, b)
    mu = slope @ (hessian_b @ pair.grad_a + hessian_a @ pair.grad_b) / 2
    step = bracket_only_step(net_loss, x, a, b, target, eta)
    step = pair.reference + sign * (step - pair.reference)
    both = jnp.minimum(net_loss(pair.ab, target), net_loss(pair.ba, target))
    left = jnp.abs(net_loss(step, target) - both + eta**2 * mu)
    furthest = jnp.maximum(norm(pair.ab - pair.reference), norm(pair.ba - pair.reference))
    right = norm(slope) * pair.remainder + bound.second / 2 * (
        furthest**2 + (eta**2 * norm(own) / 2) ** 2
    )
    return at_most(left, right + 1e-15, scale=norm(slope) * pair.drift + right)


def forensic(instance: Nets, *, sign: float = 1.0) -> Comparison:
    """12: ``<theta_AB - theta_BA, b>`` tells the order, with the value ``eta^2 |b|^2``."""
    pair = both_orders(instance)
    own = bracket(net_loss, instance.start, instance.loss_of(0), instance.loss_of(1))
    told = sign * order_statistic(pair.ab, pair.ba, own)
    left = jnp.abs(told - instance.step_size**2 * jnp.sum(own**2))
    return at_most(left, norm(own) * pair.remainder, scale=norm(own) * pair.drift)


class Quadratics(NamedTuple):
    """Sources A, B and a target, quadratic: factors of their Hessians, and centres."""

    factors: Float[Array, "3 dim dim"]
    centres: Float[Array, "3 dim"]
    start: Float[Array, " dim"]
    step_size: Float[Array, ""]
    mask: Float[Array, " dim"]


def quadratics(dim: int) -> Quadratics:
    """A NumPyro model."""
    factors, centres, start, mask = normals("quadratics", (3, dim, dim), (3, dim), (dim,), (dim,))
    eta = log_uniform("step_size", 1e-3, 1.0)
    return Quadratics(factors, centres, start, eta, jnp.where(mask > 0, 1.0, 0.0))


def legal_quadratics(instance: Quadratics) -> Array:
    """A positive step size, and a mask of zeros and ones."""
    mask = instance.mask
    return jnp.minimum(instance.step_size, -jnp.abs(mask * (1 - mask)).max())


def quadratic_loss(x: Array, batch: tuple[Array, Array]) -> Array:
    """The loss of parameters and a source."""
    factor, centre = batch
    return jnp.sum((factor @ (x - centre)) ** 2) / 2


def exact_on_quadratics(instance: Quadratics, *, wrong: float = 0.0) -> Comparison:
    """2: Hessians are constant, so nothing is left; the mutant multiplies by the wrong Hessian."""
    x, eta = instance.start, instance.step_size
    a, b = ((instance.factors[i], instance.centres[i]) for i in range(2))
    sources = instance.factors[:2], instance.centres[:2]
    ends = [
        run_schedule(quadratic_loss, x, sources, jnp.array(order), eta)
        for order in ((0, 1), (1, 0))
    ]
    grads = [jax.grad(quadratic_loss)(x, batch) for batch in (a, b)]
    hessians = [factor.T @ factor for factor in instance.factors[:2]]
    guess = bracket(quadratic_loss, x, a, b) + wrong * (
        (hessians[0] - hessians[1]) @ (grads[0] + grads[1])
    )
    scale = norm(ends[0]) + norm(ends[1]) + norm(x) + eta**2 * norm(guess)
    return close_to(norm(ends[0] - ends[1] - eta**2 * guess) / scale, 0.0, allowance=1e-12)


def restricted_bracket(instance: Quadratics, *, masked: float = 1.0) -> Comparison:
    """13: the bracket of losses of some parameters; the mutant multiplies whole gradients."""
    mask, x = instance.mask, instance.start
    a, b = ((instance.factors[i], instance.centres[i]) for i in range(2))
    part = restricted(quadratic_loss, lambda y, fixed: fixed + mask * y, (1 - mask) * x)
    found = bracket(part, x, a, b)
    hessian_a, hessian_b = (factor.T @ factor for factor in instance.factors[:2])
    grad_a, grad_b = (jax.grad(quadratic_loss)(x, batch) for batch in (a, b))
    keep = jnp.where(masked > 0, mask, 1.0)
    expected = mask * (hessian_b @ (keep * grad_a) - hessian_a @ (keep * grad_b))
    scale = 1 + norm(hessian_b @ grad_a) + norm(hessian_a @ grad_b)
    return close_to((found - expected) / scale, 0.0, allowance=1e-12)


def shared_curvature(instance: Quadratics, *, sign: float = 1.0) -> Comparison:
    """14: Hessians ``h I``: ``sigma = h <g_E, g_A - g_B>``, the most aligned source last."""
    h, x = jnp.abs(instance.factors[0, 0, 0]) + 0.1, instance.start
    root = jnp.sqrt(h) * jnp.eye(len(x))
    a, b, target = ((root, centre) for centre in instance.centres)
    scored = pair_score(quadratic_loss, x, a, b, target, reference="origin")
    slope = jax.grad(quadratic_loss)(x, target)
    step = jax.grad(quadratic_loss)(x, a) - jax.grad(quadratic_loss)(x, b)
    expected = sign * h * slope @ step
    scale = 1e-9 + h * norm(slope) * norm(step)
    return close_to(scored.score / scale, expected / scale, allowance=1e-12)


def alignment_agrees(instance: Quadratics) -> Comparison:
    """A rule of first order, most target-aligned source last, orders as the bracket does."""
    x = instance.start
    a, b, target = ((instance.factors[i], instance.centres[i]) for i in range(3))
    scored = pair_score(quadratic_loss, x, a, b, target, reference="origin")
    slope = jax.grad(quadratic_loss)(x, target)

    def cosine(batch: tuple[Array, Array]) -> Array:
        grad = jax.grad(quadratic_loss)(x, batch)
        return grad @ slope / (norm(grad) * norm(slope))

    # A first is worse (a positive score) where A is the more aligned.
    unit = norm(slope) * scored.bracket_norm
    return at_most(0.0, scored.score / unit * (cosine(a) - cosine(b)))


SIZES = {
    "sizes": {"dim": st.sampled_from([1, 3]), "units": st.sampled_from([4])},
    "typical": {"dim": 3, "units": 4},
    "samples": 2000,
    "restarts": 16,
}
SMALL = {
    "sizes": {"dim": st.sampled_from([2, 4])},
    "typical": {"dim": 3},
    "samples": 2000,
    "restarts": 16,
}

CLAIMS = (
    Claim(
        name="lie_bracket/displacement",
        statement="|theta_AB - theta_BA - eta^2 b| <= eta^3 (M_B |g_A|^2 + M_A |g_B|^2) / 2",
        source="arXiv:2606.24993, Lemma 2.1; the constant derived: Taylor's remainder of g_B, g_A",
        families={"tanh units": nets},
        conclusion=displaced,
        assumptions=legal_nets,
        mutants={
            "H_B g_A + H_A g_B": {"sign": 1.0},
            "H_A g_A - H_B g_B": {"swapped": 1.0},
            "half the bracket": {"factor": 0.5},
        },
        **SIZES,
    ),
    Claim(
        name="lie_bracket/quadratic",
        statement="quadratic sources: theta_AB - theta_BA = eta^2 b exactly",
        source="derived: g_B(x - eta g_A) = g_B - eta H_B g_A",
        families={"factors": quadratics},
        conclusion=exact_on_quadratics,
        assumptions=legal_quadratics,
        tightness="tight",
        rungs=("explore", "sample"),
        mutants={"products with the wrong source's Hessian": {"wrong": 1.0}},
        **SMALL,
    ),
    Claim(
        name="lie_bracket/midpoint",
        statement="|gap - <g_E(middle), theta_AB - theta_BA>| <= M_E |theta_AB - theta_BA|^3 / 24",
        source="derived: the even terms cancel at the middle",
        families={"tanh units": nets},
        conclusion=midpoint,
        assumptions=legal_nets,
        mutants={"linear at the end": {"share": 1.0}},
        **SIZES,
    ),
    Claim(
        name="lie_bracket/trotter",
        statement="|gap - <g_E(ref), d>| <= Lambda_E eta^2 c |d| / 2 + M_E |d|^3 / 24",
        source="arXiv:2606.24993, Proposition 2.5; constants derived; d = theta_AB - theta_BA",
        families={"tanh units": nets},
        conclusion=trotter_reference,
        assumptions=legal_nets,
        mutants={
            "uphill": {"sign": 1.0},
            "drift of A alone": {"second": 0.0},
            "linear at the origin": {"moved": 0.0},
        },
        **SIZES,
    ),
    Claim(
        name="lie_bracket/gap",
        statement="|gap - eta^2 sigma| <= |g_E(ref)| O(eta^3) + O(eta^4), all constants explicit",
        source="arXiv:2606.24993, Proposition 2.3",
        families={"tanh units": nets},
        conclusion=gap_is_predicted,
        assumptions=legal_nets,
        mutants={"half the score": {"factor": 0.5}, "of fourth order": {"order": 4.0}},
        **SIZES,
    ),
    Claim(
        name="lie_bracket/bracket_only",
        statement="|L_E(theta_BO) - min(L_E(theta_AB), L_E(theta_BA)) + eta^2 mu| <= O(eta^3)",
        source="arXiv:2606.24993, equations 28 and 29; derived: both orders about the reference",
        families={"tanh units": nets},
        conclusion=corrected,
        assumptions=legal_nets,
        mutants={"towards the worse order": {"sign": -1.0}},
        **SIZES,
    ),
    Claim(
        name="lie_bracket/forensics",
        statement="|<theta_AB - theta_BA, b> - eta^2 |b|^2| <= |b| eta^3 sum M_i |g_j|^2 / 2",
        source="the author's follow-up, Theorem 1; the constant derived",
        families={"tanh units": nets},
        conclusion=forensic,
        assumptions=legal_nets,
        mutants={"endpoints exchanged": {"sign": -1.0}},
        **SIZES,
    ),
    Claim(
        name="lie_bracket/restricted",
        statement="losses of some parameters: b = P (H_B P g_A - H_A P g_B)",
        source="arXiv:2606.24993, Remark 2.2",
        families={"factors": quadratics},
        conclusion=restricted_bracket,
        assumptions=legal_quadratics,
        tightness="tight",
        rungs=("explore", "sample"),
        mutants={"products with whole gradients": {"masked": 0.0}},
        **SMALL,
    ),
    Claim(
        name="lie_bracket/shared_curvature",
        statement="H_A = H_B = h I: sigma_AB = h <g_E, g_A - g_B>",
        source="derived: the bracket's definition",
        families={"factors": quadratics},
        conclusion=shared_curvature,
        assumptions=legal_quadratics,
        tightness="tight",
        rungs=("explore", "sample"),
        mutants={"most aligned source first": {"sign": -1.0}},
        **SMALL,
    ),
    Claim(
        name="lie_bracket/alignment_is_enough",
        statement="the more target-aligned source last, by cosines, is the bracket's order",
        source="a rule of first order, kept as a finding: it is false where curvatures differ",
        families={"factors": quadratics},
        conclusion=alignment_agrees,
        assumptions=legal_quadratics,
        expected="refuted",
        **SMALL,
    ),
    *load_companion("proofs_checks", "lie_bracket_orders").CLAIMS,
    *load_companion("proofs_checks", "lie_bracket_steps").CLAIMS,
)

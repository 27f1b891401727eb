"""Claims on the Lie bracket of two sources of training, with explicit constants.

Smooth losses are means of ``a tanh(w x + b)``, whose derivatives are bounded everywhere: the terms
of higher order are then bounded by numbers that can be computed, and "O(eta^3)" becomes an
inequality for every step size. Quadratic losses are in ``lie_bracket_quadratics.py``, tournaments
in ``lie_bracket_orders.py``, several steps in ``lie_bracket_steps.py``.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from hypothesis import strategies as st
from jaxtyping import Array, Float

from jaxlab.claims import Claim, Comparison, at_most
from jaxlab.core.locate import load_companion
from jaxlab.optim.lie_bracket import bracket, pair_score
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


def rounded(target: Units, slope: Array, pair: "Pair") -> Array:
    """What rounding may add to a difference of target losses, and to its linearisation."""
    eps = jnp.finfo(slope.dtype).eps
    moved = norm(pair.reference) + norm(pair.ab) + norm(pair.ba)
    return 8 * eps * (jnp.mean(jnp.abs(target.heights)) + norm(slope) * moved)


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
    return at_most(left, pair.remainder, scale=pair.drift + pair.remainder)


def midpoint(instance: Nets, *, share: float = 0.5) -> Comparison:
    """3: linear at the middle of both ends, the target's gap is exact to third order in them."""
    pair, target = both_orders(instance), instance.loss_of(2)
    apart = pair.ab - pair.ba
    middle = share * pair.ab + (1 - share) * pair.ba
    gap = net_loss(pair.ab, target) - net_loss(pair.ba, target)
    slope, bound = jax.grad(net_loss)(middle, target), bounds_of(target)
    left, rounding = jnp.abs(gap - slope @ apart), rounded(target, slope, pair)
    right = bound.third * norm(apart) ** 3 / 24 + rounding
    return at_most(left, right, scale=bound.second * norm(apart) ** 2 + rounding)


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
    at_reference = jax.grad(net_loss)(pair.reference, target)
    slope, rounding = norm(at_reference), rounded(target, at_reference, pair)
    fourth = bound.second * pair.drift**2 / 2 + bound.third * pair.drift**3 / 24
    third = jnp.where(order > 3, 0, slope * pair.remainder)
    left = jnp.abs(gap - factor * scored.gap)
    right = third + fourth + rounding
    return at_most(left, right, scale=slope * pair.drift + fourth + rounding)


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
    right = right + rounded(target, slope, pair)
    return at_most(left, right, scale=norm(slope) * pair.drift + right)


def forensic(instance: Nets, *, sign: float = 1.0) -> Comparison:
    """12: ``<theta_AB - theta_BA, b>`` tells the order, with the value ``eta^2 |b|^2``."""
    pair = both_orders(instance)
    own = bracket(net_loss, instance.start, instance.loss_of(0), instance.loss_of(1))
    told = sign * order_statistic(pair.ab, pair.ba, own)
    left = jnp.abs(told - instance.step_size**2 * jnp.sum(own**2))
    tiny = jnp.finfo(left.dtype).tiny
    return at_most(left, norm(own) * pair.remainder, scale=norm(own) * pair.drift + tiny)


SIZES = {
    "sizes": {"dim": st.sampled_from([1, 3]), "units": st.sampled_from([4])},
    "typical": {"dim": 3, "units": 4},
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
    *load_companion("proofs_checks", "lie_bracket_quadratics").CLAIMS,
    *load_companion("proofs_checks", "lie_bracket_orders").CLAIMS,
    *load_companion("proofs_checks", "lie_bracket_steps").CLAIMS,
)

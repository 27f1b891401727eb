"""Claims on the Lie bracket of quadratic losses: it is exact there; and a rule that fails."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from hypothesis import strategies as st
from jaxtyping import Array, Float

from jaxlab.claims import Claim, Comparison, at_most, close_to
from jaxlab.core.derivatives import restricted
from jaxlab.optim.lie_bracket import bracket, pair_score
from jaxlab.optim.lie_bracket_schedules import run_schedule
from jaxlab.problems.sites import log_uniform, normals


def norm(x: Array) -> Array:
    """The Euclidean norm."""
    return jnp.sqrt(jnp.sum(x**2))


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


def equal_gradients(dim: int) -> Quadratics:
    """Gradients of norm 1, so that cosines are inner products; A is flatter or steeper than B."""
    grads, start = normals("unit", (3, dim), (dim,))
    grads = grads / jnp.sqrt(jnp.sum(grads**2, axis=1, keepdims=True))
    steep = jnp.stack([log_uniform("first", 0.3, 3.0), log_uniform("second", 0.3, 3.0), 1.0])
    # The gradient h (x - c) is the one asked for.
    centres = start - grads / steep[:, None]
    factors = jnp.sqrt(steep)[:, None, None] * jnp.eye(dim)
    return Quadratics(factors, centres, start, jnp.asarray(0.1), jnp.ones(dim))


def invariances(instance: Quadratics, *, sign: float = -1.0, moved: float = 0.0) -> Comparison:
    """Exchanged sources, turned parameters, added constants and scaled losses."""
    x = instance.start
    a, b, target = ((instance.factors[i], instance.centres[i]) for i in range(3))
    # A reflection is orthogonal, whatever its normal.
    normal = instance.centres[0] - instance.centres[1]
    mirror = jnp.eye(len(x)) - 2 * jnp.outer(normal, normal) / jnp.sum(normal**2)
    turned = [(factor @ mirror, mirror @ centre) for factor, centre in (a, b, target)]

    def score(loss: Callable, x: Array, a: Any, b: Any, target: Any) -> Array:
        return pair_score(loss, x, a, b, target, reference="origin").score

    def scaled(x: Array, batch: Any) -> Array:
        return 3 * quadratic_loss(x, batch) + 7

    first = score(quadratic_loss, x, a, b, target)
    left = jnp.stack(
        [
            score(quadratic_loss, x, b, a, target),
            score(quadratic_loss, mirror @ x + moved, *turned),
            score(scaled, x, a, b, target),
        ]
    )
    right = jnp.stack([sign * first, first, 27 * first])
    slope = jax.grad(quadratic_loss)(x, target)
    size = pair_score(quadratic_loss, x, a, b, target, reference="origin").bracket_norm
    grads = sum(norm(jax.grad(quadratic_loss)(x, batch)) for batch in (a, b))
    scale = norm(slope) * (size + grads * jnp.sum(instance.factors[:2] ** 2)) + 1e-12
    return close_to(left / scale, right / scale, allowance=1e-11)


SMALL = {
    "sizes": {"dim": st.sampled_from([2, 4])},
    "typical": {"dim": 3},
    "samples": 2000,
    "restarts": 16,
}

CLAIMS = (
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
        families={"factors": quadratics, "equal gradients": equal_gradients},
        conclusion=alignment_agrees,
        assumptions=legal_quadratics,
        expected="refuted",
        **SMALL,
    ),
    Claim(
        name="lie_bracket/invariances",
        statement="sigma_BA = -sigma_AB; invariant to orthogonal maps and constants; c^3 for c L",
        source="derived: the bracket's definition",
        families={"factors": quadratics},
        conclusion=invariances,
        assumptions=legal_quadratics,
        tightness="tight",
        rungs=("explore", "sample"),
        mutants={"symmetric in A and B": {"sign": 1.0}, "turned and moved": {"moved": 0.5}},
        **SMALL,
    ),
)

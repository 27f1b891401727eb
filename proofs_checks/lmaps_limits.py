"""Claims on bounds and limits of local MAP sampling: L2, L13 and L14."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from hypothesis import strategies as st
from jaxtyping import Array, Float, Int

from jaxlab.claims import Claim, Comparison, at_most, close_to
from jaxlab.diffusion import lmaps_solvers as solvers
from jaxlab.diffusion.mixture import MixturePrior, mixture_prior
from jaxlab.diffusion.nonlinear_operators import quantizer
from jaxlab.diffusion.operators import mask
from jaxlab.diffusion.restoration import flat_variance
from jaxlab.problems.sites import between, log_uniform, normal, normals, uniform


def spreads(roots: Array) -> Array:
    """Covariances that are away from singular."""
    dim = roots.shape[-1]
    return roots @ jnp.swapaxes(roots, -1, -2) / dim + 0.1 * jnp.eye(dim)


class TwoModes(NamedTuple):
    """Two equal Gaussians on a line, ``separation`` standard deviations from their middle."""

    deviation: Float[Array, ""]
    separation: Float[Array, ""]
    x: Float[Array, ""]
    sigma: Float[Array, ""]


def one_hump() -> TwoModes:
    """A NumPyro model: the mixture is log-concave if the separation is at most 1."""
    return TwoModes(
        log_uniform("deviation", 0.05, 2.0),
        uniform("separation", 0.0, 1.0),
        normal("x"),
        log_uniform("sigma", 0.05, 5.0),
    )


def two_humps() -> TwoModes:
    """A NumPyro model that reaches the bound's counterexamples."""
    return one_hump()._replace(separation=log_uniform("far", 2.0, 30.0))


def line_prior(instance: TwoModes, factor: Any = 1.0) -> MixturePrior:
    """The mixture."""
    mode = factor * instance.separation * instance.deviation
    variance = jnp.broadcast_to(instance.deviation**2, (2, 1, 1))
    return mixture_prior(jnp.full(2, 0.5), jnp.stack([-mode, mode])[:, None], variance)


def is_log_concave(instance: TwoModes) -> Array:
    """The second derivative of the log density on a grid, in units of the inverse variance."""
    prior = line_prior(instance)
    bend = jax.vmap(jax.hessian(lambda x: prior.log_density(x, 0.0)))
    grid = instance.deviation * jnp.linspace(-3, 3, 25)
    return -(bend(grid[:, None]) * instance.deviation**2).max()


def flat_bound(instance: TwoModes, *, factor: float = 1.0) -> Comparison:
    """L2: the posterior variance against ``sigma^2``; a mutant moves the modes apart."""
    prior = line_prior(instance, factor)
    variance = prior.posterior_covariance(instance.x[None], instance.sigma)[0, 0]
    bound = flat_variance(instance.sigma)
    return at_most(variance, bound, scale=bound)


class Masked(NamedTuple):
    """A local Gaussian and a measurement of half of its entries."""

    mean: Float[Array, " dim"]
    root: Float[Array, "dim dim"]
    order: Int[Array, " dim"]
    y: Float[Array, " kept"]
    noise: Float[Array, ""]
    radius: Float[Array, ""]


def masked(half: int) -> Masked:
    """A NumPyro model."""
    dim = 2 * half
    mean, root, order, y = normals("normals", (dim,), (dim, dim), (dim,), (half,))
    noise, radius = between(0.05, 2.0, uniform("shares", 0.0, 1.0, 2))
    return Masked(mean, root, jnp.argsort(order), y, noise, radius)


def is_masked(instance: Masked) -> Array:
    """Every index once; positive numbers."""
    once = (jnp.sort(instance.order) == jnp.arange(len(instance.order))).all()
    return jnp.where(once, jnp.minimum(instance.noise, instance.radius), -1.0)


def limits(instance: Masked, *, inverted: float = 0.0) -> Comparison:
    """L13; a mutant hides what was measured."""
    half, dim = len(instance.y), len(instance.mean)
    kept, hidden = instance.order[:half], instance.order[half:]
    used = jnp.where(inverted > 0, hidden, kept)
    operator, mean, y = mask(used, dim), instance.mean, instance.y
    found = solvers.local_map(mean, instance.radius**2, operator, y, instance.noise)
    weight = instance.radius**2 / (instance.radius**2 + instance.noise**2)
    pixels = jnp.concatenate(
        [found[kept] - (mean[kept] + weight * (y - mean[kept])), found[hidden] - mean[hidden]]
    )
    covariance = spreads(instance.root)
    nothing = solvers.local_map(mean, covariance, operator, y, 1e8) - mean
    sharp = solvers.local_map(mean, covariance, operator, y, 1e-8)
    # The projection: all of it measured, and no force on what is hidden.
    force = jnp.linalg.solve(covariance, sharp - mean)
    apart = jnp.stack([pixels, nothing, jnp.concatenate([sharp[kept] - y, force[hidden]])])
    return close_to(apart, 0.0, allowance=1e-6, scale=1 + jnp.abs(force).max())


def smooth_quantizer(step: Array) -> Callable[[Array], Array]:
    """Bug: the surrogate's value."""
    del step
    return lambda x: x


def stationary(instance: Masked, *, operator: Callable[..., Any] = quantizer) -> Comparison:
    """L14 at a point that is made stationary by the choice of the measurement."""
    x0, step = 3 * instance.root[0], instance.radius
    ratio = instance.noise**2 / instance.radius**2
    rounded = step * jnp.round(x0 / step)
    y = rounded + ratio * (x0 - instance.mean)

    def objective(x0: Array) -> Array:
        return solvers.local_objective(
            x0, instance.mean, instance.radius**2, operator(step), y, instance.noise
        )

    slope = jax.grad(objective)(x0) * instance.noise**2
    value, pull = jax.vjp(operator(step), x0)
    apart = jnp.stack([slope, value - rounded, pull(y)[0] - y])
    bound = jnp.abs(value - y) - ratio * jnp.abs(x0 - instance.mean)
    left = jnp.concatenate([jnp.abs(apart).ravel(), bound])
    return at_most(left, 1e-9, scale=1 + jnp.abs(y).max())


CLAIMS = (
    Claim(
        name="lmaps/flat_bound",
        statement="p(x0) log-concave  =>  Cov(x0 | x) <= (sigma^2/alpha^2) I",
        source="derived: Brascamp-Lieb; -log p(x0 | x) bends by at least alpha^2/sigma^2",
        families={"one hump": one_hump},
        conclusion=flat_bound,
        assumptions=is_log_concave,
        samples=1000,
        restarts=8,
        mutants={"two modes": {"factor": 20.0}},
    ),
    Claim(
        name="lmaps/flat_bound_of_any_prior",
        statement="any p(x0)  =>  Cov(x0 | x) <= (sigma^2/alpha^2) I",
        source="the spherical covariance is offered with this bound; between two modes it fails",
        families={"two humps": two_humps},
        conclusion=flat_bound,
        assumptions=lambda instance: jnp.minimum(instance.deviation, instance.sigma),
        samples=1000,
        rungs=("sample",),
        expected="refuted",
    ),
    Claim(
        name="lmaps/limits",
        statement="sigma_y -> inf: x0* = m; -> 0: Sigma-projection on Hx = y; masks: by pixels",
        source="derived",
        families={"masks": masked},
        conclusion=limits,
        assumptions=is_masked,
        sizes={"half": st.sampled_from([1, 3])},
        typical={"half": 2},
        tightness="tight",
        samples=500,
        rungs=("explore", "sample"),
        mutants={"inverted mask": {"inverted": 1.0}},
    ),
    Claim(
        name="lmaps/straight_through",
        statement="grad J = 0 with a straight-through Q  =>  |Q(x) - y| <= (sigma_y^2/r^2)|x - m|",
        source="derived: the surrogate's gradient is (Q(x) - y)/sigma_y^2 + (x - m)/r^2",
        families={"masks": masked},
        conclusion=stationary,
        assumptions=is_masked,
        sizes={"half": st.sampled_from([1, 3])},
        typical={"half": 2},
        samples=500,
        rungs=("explore", "sample"),
        mutants={"value of the surrogate": {"operator": smooth_quantizer}},
    ),
)

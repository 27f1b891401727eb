"""Claims on one step of local MAP sampling: covariances, gains and gradients.

L1, L3 to L7 and L12 stand here, bounds and limits in ``lmaps_limits.py``, what whole runs do and
what estimates risk in ``lmaps_posterior.py``.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from hypothesis import strategies as st
from jaxtyping import Array, Float

from jaxlab.claims import Claim, Comparison, at_most, close_to
from jaxlab.core.locate import load_companion
from jaxlab.diffusion import lmaps_solvers as solvers
from jaxlab.diffusion.denoise import tweedie_covariance
from jaxlab.diffusion.gaussian import gaussian_prior
from jaxlab.diffusion.lmaps_theory import local_density_objective
from jaxlab.diffusion.mixture import MixturePrior, condition_mixture, mixture_prior
from jaxlab.diffusion.operators import MatrixOperator
from jaxlab.diffusion.restoration import Local, Restoration, flat_variance, tweedie
from jaxlab.problems.sites import between, normals, simplex, uniform

LIMITS = load_companion("proofs_checks", "lmaps_limits")


class Step(NamedTuple):
    """A mixture prior, a noisy signal of it and a measurement."""

    weights: Float[Array, " components"]
    means: Float[Array, "components dim"]
    roots: Float[Array, "components dim dim"]
    x: Float[Array, " dim"]
    sigma: Float[Array, ""]
    alpha: Float[Array, ""]
    matrix: Float[Array, "measurements dim"]
    y: Float[Array, " measurements"]
    noise: Float[Array, ""]

    @property
    def prior(self) -> MixturePrior:
        """The prior, whose covariances are ``A A'/dim + I/10``."""
        return mixture_prior(self.weights, self.means, LIMITS.spreads(self.roots))


def steps(components: int, dim: int, measurements: int) -> Step:
    """A NumPyro model."""
    means, roots, x, matrix, y = normals(
        "normals", (components, dim), (components, dim, dim), (dim,), (measurements, dim),
        (measurements,),
    )  # fmt: skip
    share = uniform("shares", 0.0, 1.0, 3)
    sigma, alpha, noise = between(0.2, 5.0, share[0]), (1 + share[1]) / 2, 0.1 * 20 ** share[2]
    return Step(simplex("weights", components), means, roots, x, sigma, alpha, matrix, y, noise)


def is_step(instance: Step) -> Array:
    """Probabilities, positive definite covariances, positive levels."""
    least = jnp.linalg.eigvalsh(LIMITS.spreads(instance.roots)).min()
    positive = jnp.stack([instance.sigma, instance.alpha, instance.noise, instance.weights.min()])
    off = 1e-12 - jnp.abs(instance.weights.sum() - 1)
    return jnp.minimum(jnp.minimum(least, positive.min()), off)


def second_tweedie(
    instance: Step, *, sigma_power: float = 2.0, alpha_power: float = 1.0
) -> Comparison:
    """L1: derivatives of the denoiser against the mixture's own formula; mutants lose powers."""
    prior, sigma, alpha = instance.prior, instance.sigma, instance.alpha
    found = tweedie_covariance(
        lambda x, s: prior.denoise(x, s, alpha), instance.x, sigma, alpha
    ) * (sigma ** (sigma_power - 2) * alpha ** (1 - alpha_power))
    expected = prior.posterior_covariance(instance.x, sigma, alpha)
    scale = jnp.abs(expected).max()
    least = -jnp.linalg.eigvalsh((found + found.T) / 2)[0]
    apart = jnp.stack([jnp.abs(found - expected).max(), jnp.abs(found - found.T).max(), least])
    return at_most(apart, 1e-9 * scale, scale=scale)


def gain_form(instance: Step, *, sign: float = 1.0, noise_power: float = 2.0) -> Comparison:
    """L3: ``local_map`` against the information form; mutants turn the residual, lose a square."""
    mean, covariance = instance.x, LIMITS.spreads(instance.roots)[0]
    operator, at_mean = MatrixOperator(instance.matrix), instance.matrix @ instance.x
    y = at_mean + sign * (instance.y - at_mean)
    found = solvers.local_map(mean, covariance, operator, y, instance.noise ** (noise_power / 2))
    expected = information_form(mean, covariance, instance.matrix, instance.y, instance.noise)
    return close_to(found, expected, allowance=1e-9, scale=1 + jnp.abs(expected).max())


def information_form(
    mean: Array, covariance: Array, matrix: Array, y: Array, noise: Array
) -> Array:
    """``(Sigma^-1 + H'H/s^2)^-1 (Sigma^-1 m + H'y/s^2)``."""
    precision = jnp.linalg.inv(covariance)
    total = precision + matrix.T @ matrix / noise**2
    return jnp.linalg.solve(total, precision @ mean + matrix.T @ y / noise**2)


def gaussian_exactness(instance: Step, *, factor: float = 1.0) -> Comparison:
    """L4, for the first component alone; a mutant takes the covariance of another prior."""
    x, sigma, alpha = instance.x, instance.sigma, instance.alpha
    mean, covariance = instance.means[0], LIMITS.spreads(instance.roots)[0]
    prior = gaussian_prior(mean, covariance)
    local = factor * prior.posterior_covariance(x, sigma, alpha)
    found = solvers.local_map(
        prior.denoise(x, sigma, alpha), local, MatrixOperator(instance.matrix), instance.y,
        instance.noise,
    )  # fmt: skip
    identity = jnp.eye(len(x))
    posterior = jnp.linalg.inv(
        jnp.linalg.inv(covariance) + instance.matrix.T @ instance.matrix / instance.noise**2
    )
    centre = information_form(mean, covariance, instance.matrix, instance.y, instance.noise)
    both = information_form(centre, posterior, alpha * identity, x, sigma)
    noisy = alpha**2 * posterior + sigma**2 * identity
    slope = -jnp.linalg.solve(noisy, x - alpha * centre)
    score = (alpha * found - x) / sigma**2
    apart = jnp.stack([found - both, (score - slope) * sigma**2])
    return close_to(apart, 0.0, allowance=1e-9, scale=1 + jnp.abs(both).max())


def forward_products() -> Callable[[Any, Any], Any]:
    """Bug: forward derivatives, which multiply by the Jacobian and not by its transpose."""

    def model(local: Local, key: Array) -> Callable[[Array], Array]:
        del key

        def product(v: Array) -> Array:
            along = jax.jvp(lambda x: local.problem.denoise(x, local.sigma), (local.x,), (v,))[1]
            return local.scale * local.sigma**2 * along

        return product

    return model


def family(
    instance: Step, *, products: Callable[[], Any] = tweedie, power: float = 2.0
) -> Comparison:
    """L5: DPS, PiGDM and LMAPS as one step with different gains."""
    prior, key = instance.prior, jax.random.key(0)
    operator, one = MatrixOperator(instance.matrix), jnp.ones(())
    lost = instance.sigma ** (power - 2)

    def local_of(denoise: Callable[[Any, Any], Any]) -> Local:
        problem = Restoration(denoise, operator, instance.y, jnp.ones(2), instance.x)
        mean = denoise(instance.x, instance.sigma)
        return Local(problem, instance.x, mean, instance.sigma, one, one, instance.noise, one)

    def gradient_step(denoise: Callable[[Any, Any], Any]) -> Array:
        def log_likelihood(x: Array) -> Array:
            error = instance.y - instance.matrix @ denoise(x, instance.sigma)
            return -error @ error / (2 * instance.noise**2)

        return instance.sigma**2 * jax.grad(log_likelihood)(instance.x)

    def dps_step(local: Local) -> Array:
        moved = solvers.likelihood_step()(local, products()(local, key), key)
        return lost * (moved - local.mean)

    local = local_of(prior.denoise)
    covariance = prior.posterior_covariance(instance.x, instance.sigma)

    def objective(x0: Array) -> Array:
        return solvers.local_objective(
            x0, local.mean, covariance, operator, instance.y, instance.noise
        )

    descended = -covariance @ jax.grad(objective)(local.mean)
    # A denoiser as a network could be one: its Jacobian is not symmetric.
    skewed = local_of(lambda x, sigma: instance.roots[0] @ x)
    variance = instance.sigma**2 / (1 + instance.sigma**2)
    white = local_of(lambda x, sigma: x / (1 + sigma**2))
    pigdm = solvers.pseudo_inverse_step(lambda sigma: sigma**2 / (1 + sigma**2))
    found = pigdm(white, products()(white, key), key)
    expected = solvers.local_map(white.mean, variance, operator, instance.y, instance.noise)
    moved = dps_step(local)
    left = jnp.stack([moved, moved, dps_step(skewed), found])
    right = jnp.stack(
        [gradient_step(prior.denoise), descended, gradient_step(skewed.problem.denoise), expected]
    )
    return close_to(left, right, allowance=1e-9, scale=1 + jnp.abs(right).max())


def two_constants(instance: Step, *, power: float = 2.0) -> Comparison:
    """L6: the minimiser by its normal equations; a mutant scales ``k2`` by ``c``."""
    k, c = instance.weights[0], 1 + instance.sigma
    k1, k2 = instance.alpha, k / (2 * instance.noise**2)

    def minimiser(k1: Array, k2: Array) -> Array:
        def objective(x0: Array) -> Array:
            error, gap = instance.y - instance.matrix @ x0, x0 - instance.x
            return k1**2 / (2 * instance.sigma**2) * gap @ gap + k2 * error @ error

        origin = jnp.zeros_like(instance.x)
        return -jnp.linalg.solve(jax.hessian(objective)(origin), jax.grad(objective)(origin))

    first, second = minimiser(k1, k2), minimiser(c * k1, c**power * k2)
    variance = k * flat_variance(instance.sigma, instance.alpha)
    expected = solvers.local_map(
        instance.x, variance, MatrixOperator(instance.matrix), instance.y, instance.noise
    )
    left = jnp.stack([second, expected])
    return close_to(left, first[None], allowance=1e-9, scale=1 + jnp.abs(first).max())


def descent_error(instance: Step, *, step_size: float = 1.0) -> Comparison:
    """L7: the error after K steps and its contraction; a mutant takes longer steps."""
    count, variance = 6, instance.sigma**2
    problem = Restoration(
        lambda x, sigma: x, MatrixOperator(instance.matrix), instance.y, jnp.ones(2), instance.x
    )
    one = jnp.ones(())
    local = Local(problem, instance.x, instance.x, one, one, one, instance.noise, one)
    solve = solvers.gradient_descent(num_steps=count, step_size=step_size)
    found = solve(local, variance, jax.random.key(0))
    hessian = jnp.eye(len(instance.x)) / variance + (
        instance.matrix.T @ instance.matrix / instance.noise**2
    )
    spectrum, vectors = jnp.linalg.eigh(hessian)
    best = jnp.linalg.solve(
        hessian, instance.x / variance + instance.matrix.T @ instance.y / instance.noise**2
    )
    start = (instance.x - best) @ vectors
    expected = best + vectors @ ((1 - spectrum / spectrum[-1]) ** count * start)
    scale = 1 + jnp.abs(best).max()
    bound = (1 - spectrum[0] / spectrum[-1]) ** count * jnp.linalg.norm(start)
    left = jnp.stack([jnp.abs(found - expected).max(), jnp.linalg.norm(found - best)])
    right = jnp.stack([1e-9 * scale, bound + 1e-9 * scale])
    return at_most(left, right, scale=scale)


def objectives(instance: Step, *, prior_weight: float = 1.0) -> Comparison:
    """L12, with ``p(x0 | x, y)`` as a mixture conditioned on both; a mutant drops the prior."""
    prior, x0 = instance.prior, instance.means[0] + 0.5
    identity = instance.alpha * jnp.eye(len(instance.x))
    matrix = jnp.concatenate([instance.matrix, identity])
    seen = jnp.concatenate([instance.y, instance.x])
    noises = jnp.concatenate(
        [jnp.full_like(instance.y, instance.noise), jnp.full_like(instance.x, instance.sigma)]
    )
    conditioned = condition_mixture(prior, matrix, seen, noises)
    local = -jax.grad(conditioned.log_density)(x0, 0.0)
    library = jax.grad(
        lambda x0: local_density_objective(
            prior, x0, instance.x, instance.sigma, MatrixOperator(instance.matrix), instance.y,
            instance.noise, instance.alpha,
        )
    )(x0)  # fmt: skip
    likelihood = instance.matrix.T @ (instance.matrix @ x0 - instance.y) / instance.noise**2
    everywhere = likelihood - prior_weight * jax.grad(prior.log_density)(x0, 0.0)
    pull = instance.alpha * (instance.alpha * x0 - instance.x) / instance.sigma**2
    left = jnp.stack([local - everywhere, library - everywhere])
    return close_to(left, pull[None], allowance=1e-9, scale=1 + jnp.abs(pull).max())


SIZES: dict[str, Any] = {
    "components": st.sampled_from([1, 2]),
    "dim": st.sampled_from([1, 3]),
    "measurements": st.just(2),  # more than entries, and fewer
}
TYPICAL = {"components": 2, "dim": 3, "measurements": 2}


def on_steps(name: str, statement: str, source: str, conclusion: Any, **more: Any) -> Claim:
    """An equality on random steps, which searchers need not descend on."""
    return Claim(
        name=f"lmaps/{name}", statement=statement, source=source, families={"mixtures": steps},
        conclusion=conclusion, assumptions=is_step, sizes=SIZES, typical=TYPICAL,
        tightness="tight", samples=500, rungs=("explore", "sample"), **more,
    )  # fmt: skip


CLAIMS = (
    on_steps(
        "second_order_tweedie",
        "Cov(x0 | x) = (sigma^2/alpha) dm/dx, symmetric and positive semidefinite",
        "derived: differentiate E[x0 | x] under the integral",
        second_tweedie,
        mutants={"sigma/alpha": {"sigma_power": 1.0}, "alpha forgotten": {"alpha_power": 0.0}},
    ),
    on_steps(
        "gain_form",
        "m + S H'(H S H' + s^2 I)^-1 (y - Hm) = (S^-1 + H'H/s^2)^-1 (S^-1 m + H'y/s^2)",
        "derived: Woodbury",
        gain_form,
        mutants={
            "sign of the residual": {"sign": -1.0},
            "sigma_y not squared": {"noise_power": 1.0},
        },
    ),
    on_steps(
        "gaussian_prior",
        "Gaussian prior: x0* = E[x0 | x, y], (alpha x0* - x)/sigma^2 = grad log p(x | y)",
        "derived: p(x0 | x, y) is Gaussian; Tweedie under p(x0 | y)",
        gaussian_exactness,
        mutants={"covariance of a wider prior": {"factor": 1.3}},
    ),
    on_steps(
        "family",
        "DPS is one Sigma-preconditioned step on J from m; PiGDM = LMAPS if Sigma = r^2 I",
        "derived: chain rule and Tweedie; the prior's gradient vanishes at m",
        family,
        mutants={
            "Jacobian transposed": {"products": forward_products},
            "sigma instead of sigma^2": {"power": 1.0},
        },
    ),
    on_steps(
        "two_constants",
        "argmin k1^2|x0 - m|^2/(2 sigma^2) + k2|y - Hx0|^2 is J's if 2 k2/k1^2 = k/(alpha s)^2",
        "the relation is the paper's; derived: scaling an objective",
        two_constants,
        mutants={"k2 scaled by c": {"power": 1.0}},
    ),
    on_steps(
        "gradient_descent",
        "K steps of 1/L: x_K - x* = (I - A/L)^K (m - x*), |x_K - x*| <= (1 - mu/L)^K |m - x*|",
        "derived: a quadratic with A = I/r^2 + H'H/sigma_y^2",
        descent_error,
        mutants={"steps of 1.9/L": {"step_size": 1.9}},
    ),
    *load_companion("proofs_checks", "lmaps_posterior").CLAIMS,
    on_steps(
        "global_map",
        "grad of -log p(x0 | x, y) minus grad of -log p(x0 | y) is alpha(alpha x0 - x)/sigma^2",
        "derived: p(x0 | x) ~ p(x0) N(x; alpha x0, sigma^2 I)",
        objectives,
        mutants={"prior's score dropped": {"prior_weight": 0.0}},
    ),
    *LIMITS.CLAIMS,
)

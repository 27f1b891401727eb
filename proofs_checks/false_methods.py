"""False theorems on optimisation methods: rates a little too good, and folklore.

They belong to the bench of ``benchmarks/false_theorems.py``, which measures what breaks them. The
methods are written here from their definitions. The keyword argument of a conclusion restores the
true theorem.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array, Float

from jaxlab.claims import Claim, Comparison, at_most, at_most_in_ratio
from jaxlab.problems.sites import log_uniform, normal, site

false = functools.partial(Claim, expected="refuted", tightness="tight")


def is_finite(instance: object) -> Array:
    """All that is assumed of real numbers."""
    return jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(instance)]).all()


class Bowl(NamedTuple):
    """``sum_i h_i x_i^2 / 2`` and where a method starts."""

    curvature: Float[Array, " dim"]
    start: Float[Array, " dim"]


def bowl(dim: int, largest: float = 1e3) -> Bowl:
    """A NumPyro model: condition numbers from 10 up; the spectrum reaches 1 and kappa."""
    kappa = log_uniform("kappa", 10.0, largest)
    position = site("position", dist.Uniform(0.0, 1.0).expand([dim])).at[0].set(0).at[-1].set(1)
    return Bowl(1 + (kappa - 1) * position, normal("start", dim))


def is_strongly_convex(problem: Bowl) -> Array:
    """No curvature is below 1."""
    return problem.curvature.min() - 1


def contraction(curvature: Array) -> Array:
    """``(kappa - 1) / (kappa + 1)``."""
    kappa = curvature.max() / curvature.min()
    return (kappa - 1) / (kappa + 1)


def gradient_descent(problem: Bowl, *, factor: float = 0.99) -> Comparison:
    """Equality: a start between the two extreme eigenvectors; ten steps."""
    curvature, start = problem
    end = (1 - 2 / (curvature.min() + curvature.max()) * curvature) ** 10 * start
    bound = factor * contraction(curvature) ** 10 * jnp.linalg.norm(start)
    return at_most_in_ratio(jnp.linalg.norm(end), bound)


def steepest_descent(problem: Bowl, *, factor: float = 0.97) -> Comparison:
    """Equality: equal gradients along both extreme eigenvectors; six steps zigzag for ever."""
    curvature, x = problem
    before = jnp.sum(curvature * x**2)
    for _ in range(6):
        gradient = curvature * x
        x = x - jnp.sum(gradient**2) / jnp.sum(curvature * gradient**2) * gradient
    return at_most_in_ratio(
        jnp.sum(curvature * x**2), factor * contraction(curvature) ** 12 * before
    )


def conjugate_gradients(problem: Bowl, num_steps: int) -> tuple[Array, Array]:
    """The errors and the residuals after each step, with the start's; the solution is 0."""
    curvature, x = problem
    direction = residual = -curvature * x
    errors, residuals = [x], [residual]
    for _ in range(num_steps):
        length = residual @ residual / (curvature * direction @ direction)
        x, new = x + length * direction, residual - length * curvature * direction
        direction = new + new @ new / (residual @ residual) * direction
        residual = new
        errors.append(x)
        residuals.append(residual)
    return jnp.stack(errors), jnp.stack(residuals)


def chebyshev_bound(problem: Bowl, *, factor: float = 0.98) -> Comparison:
    """Equality: eigenvalues at the four extrema of a Chebyshev polynomial, rightly weighted."""
    errors, _ = conjugate_gradients(problem, 3)
    energies = jnp.sqrt(jnp.sum(problem.curvature * errors**2, axis=1))
    point = 1 / contraction(problem.curvature)
    return at_most_in_ratio(energies[-1], factor * energies[0] / (4 * point**3 - 3 * point))


def residuals_decrease(problem: Bowl) -> Comparison:
    """The error's energy does decrease, the residual's norm need not."""
    _, residuals = conjugate_gradients(problem, 5)
    norms = jnp.sum(residuals**2, axis=1)
    return at_most_in_ratio(norms[1:], norms[:-1])


def nesterov_descends(problem: Bowl) -> Comparison:
    """Twenty steps with constant momentum; the value does not fall in each of them."""
    curvature, x = problem
    ratio = jnp.sqrt(curvature.min() / curvature.max())
    momentum, y, values = (1 - ratio) / (1 + ratio), x, [jnp.sum(curvature * x**2)]
    for _ in range(20):
        new = y - curvature * y / curvature.max()
        x, y = new, new + momentum * (new - x)
        values.append(jnp.sum(curvature * x**2))
    return at_most_in_ratio(jnp.stack(values[1:]), jnp.stack(values[:-1]))


class Hubers(NamedTuple):
    """A sum of Huber functions of one coordinate each, which are minimal at 0."""

    curvature: Float[Array, " dim"]
    threshold: Float[Array, " dim"]
    start: Float[Array, " dim"]


def hubers() -> Hubers:
    """A NumPyro model of 1-smooth convex functions in ten dimensions."""
    curvature = site("curvature", dist.Uniform(0.0, 1.0).expand([10]))
    threshold = site("threshold", dist.LogUniform(1e-2, 1e1).expand([10]))
    return Hubers(curvature, threshold, normal("start", 10))


def smooth_convex(problem: Hubers, *, summand: float = 2.4) -> Comparison:
    """Equality: curvature 1, and thresholds that the tenth step does not reach yet."""
    curvature, threshold, x = problem
    for _ in range(10):
        x = x - curvature * jnp.clip(x, -threshold, threshold)
    inside = jnp.minimum(jnp.abs(x), threshold)
    value = jnp.sum(curvature * (inside * jnp.abs(x) - inside**2 / 2))
    return at_most_in_ratio(value, jnp.sum(problem.start**2) / (4 * 10 + summand))


class Saddle(NamedTuple):
    """``<x, A x> / 2 + <x, B y> - <y, C y> / 2`` and a start."""

    operator: Float[Array, "dim dim"]
    start: Float[Array, " dim"]


def saddle() -> Saddle:
    """A NumPyro model: eight against eight dimensions, coupled more strongly than curved."""
    scale, coupling = log_uniform("scale", 0.1, 1.0), log_uniform("coupling", 3.0, 30.0)
    first, second, raw = normal("matrices", 3, 8, 8)
    between = coupling * raw / jnp.linalg.norm(raw)
    a = jnp.eye(8) + scale * first @ first.T / 8
    c = jnp.eye(8) + scale * second @ second.T / 8
    return Saddle(jnp.block([[a, between], [-between.T, c]]), normal("start", 16))


def monotonicity(operator: Array) -> Array:
    """The least eigenvalue of the symmetric part."""
    return jnp.linalg.eigvalsh((operator + operator.T) / 2)[0]


def descent_ascent(problem: Saddle, *, factor: float = 2.1) -> Comparison:
    """Equality: a start that the operator stretches most and turns most."""
    operator, start = problem
    smoothness = jnp.linalg.svd(operator, compute_uv=False)[0]
    end = start - factor * monotonicity(operator) / smoothness**2 * operator @ start
    return at_most_in_ratio(jnp.linalg.norm(end), jnp.linalg.norm(start))


class Kinked(NamedTuple):
    """A function of one variable whose derivative is piecewise linear, and a start."""

    kinks: Float[Array, " pieces-1"]
    slopes: Float[Array, " pieces"]
    start: Float[Array, ""]


def kinked() -> Kinked:
    """A NumPyro model: four pieces, curvatures in [1, 25], the minimum at 0."""
    slopes = site("slopes", dist.Uniform(1.0, 25.0).expand([4]))
    return Kinked(jnp.sort(normal("kinks", 3)), slopes, 3 * normal("start"))


def curvatures_between(problem: Kinked) -> Array:
    """1-strongly convex and 25-smooth."""
    return jnp.minimum(problem.slopes.min() - 1, 25 - problem.slopes.max())


def heavy_ball(problem: Kinked) -> Comparison:
    """A hundred steps of Polyak's method with the parameters that are best on quadratics."""
    kinks, slopes, start = problem

    def derivative(x: Array) -> Array:
        bends = jnp.maximum(x - kinks, 0) - jnp.maximum(-kinks, 0)
        return slopes[0] * x + jnp.diff(slopes) @ bends

    def step(carry: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
        x, before = carry
        return (x - derivative(x) / 9 + 4 / 9 * (x - before), x), None

    (x, _), _ = jax.lax.scan(step, (start, start), length=100)
    return at_most_in_ratio(jnp.abs(x), 1000 * 100 * (2 / 3) ** 100 * jnp.abs(start))


class OnlineLosses(NamedTuple):
    """Linear losses on [-1, 1] that repeat, and Adam's parameters."""

    slopes: Float[Array, " period"]
    start: Float[Array, ""]
    step_size: Float[Array, ""]
    beta1: Float[Array, ""]
    beta2: Float[Array, ""]
    decay: Float[Array, ""]


def online_losses() -> OnlineLosses:
    """A NumPyro model: period 6, and all parameters that the theorem allows."""
    beta2, share, decay = site("rates", dist.Uniform(0.0, 1.0).expand([3]))
    slopes, start = normal("slopes", 6), site("start", dist.Uniform(-1.0, 1.0))
    step_size = log_uniform("step_size", 1e-2, 1e1)
    return OnlineLosses(slopes, start, step_size, share * beta2**0.25, beta2, decay)


def rates_are_allowed(problem: OnlineLosses) -> Array:
    """``beta1^2 < sqrt(beta2) < 1``, and the momentum decays."""
    first = jnp.sqrt(problem.beta2) - problem.beta1**2
    return jnp.stack([first, 1 - problem.beta2, problem.decay, 1 - problem.decay]).min()


def adam_regret(problem: OnlineLosses) -> Comparison:
    """Six hundred rounds against the better end of the interval, whose diameter is 2."""
    slopes, start, step_size, beta1, beta2, decay = problem
    gradients, rounds = jnp.tile(slopes, 100), jnp.arange(600.0)

    def step(carry: tuple[Array, Array, Array], now: tuple[Array, Array]) -> tuple:
        x, mean, square = carry
        gradient, before = now
        rate = beta1 * decay**before
        mean = rate * mean + (1 - rate) * gradient
        square = beta2 * square + (1 - beta2) * gradient**2
        corrected = square / (1 - beta2 ** (before + 1))
        # The first moment's correction, as in the paper's algorithm, uses beta1 itself.
        direction = mean / (1 - beta1 ** (before + 1)) / jnp.sqrt(corrected + 1e-16)
        new = jnp.clip(x - step_size / jnp.sqrt(before + 1) * direction, -1, 1)
        return (new, mean, square), (gradient * x, corrected)

    zero = jnp.zeros(())
    _, (losses, corrected) = jax.lax.scan(step, (start, zero, zero), (gradients, rounds))
    regret = losses.sum() + jnp.abs(gradients.sum())
    largest, noise = jnp.abs(slopes).max(), jnp.sqrt(1 - beta2)
    gamma = beta1**2 / jnp.sqrt(beta2)
    bound = (
        4 / (2 * step_size * (1 - beta1)) * jnp.sqrt(600 * corrected[-1])
        + step_size * (1 + beta1) * largest * jnp.sqrt(jnp.sum(gradients**2))
        / ((1 - beta1) * noise * (1 - gamma) ** 2)
        + 4 * largest * noise / (2 * step_size * (1 - beta1) * (1 - decay) ** 2)
    )  # fmt: skip
    return at_most(regret, bound, scale=jnp.abs(gradients).sum())


class Classification(NamedTuple):
    """A logistic loss with a small ridge, and a point."""

    rows: Float[Array, "rows dim"]
    start: Float[Array, " dim"]


def newton_descends(problem: Classification) -> Comparison:
    """One full step."""
    rows, start = problem

    def loss(x: Array) -> Array:
        return jax.nn.softplus(rows @ x).sum() + 0.005 * jnp.sum(x**2)

    weights = jax.nn.sigmoid(rows @ start)
    hessian = (rows.T * (weights * (1 - weights))) @ rows + 0.01 * jnp.eye(len(start))
    end = start - jnp.linalg.solve(hessian, rows.T @ weights + 0.01 * start)
    return at_most_in_ratio(loss(end), loss(start))


TOO_GOOD = {
    "false/gradient_descent": "1 %",
    "false/steepest_descent": "3 %",
    "false/chebyshev_bound": "2 %",
    "false/smooth_convex": "1 %",
    "false/descent_ascent": "5 %",
}
"""By how much the constants are too good; the other claims are folklore or published mistakes."""

CLAIMS = (
    false(
        name="false/gradient_descent",
        statement="step 2/(m + L): |x_10| <= 0.99 ((L - m)/(L + m))^10 |x_0| on quadratics, n = 20",
        source="Nesterov 2004, Theorem 2.1.15, with 1 in place of 0.99",
        families={"quadratic": lambda: bowl(20)},
        conclusion=gradient_descent,
        assumptions=is_strongly_convex,
    ),
    false(
        name="false/steepest_descent",
        statement="exact line search, quadratics: f(x_6) <= 0.97 ((L-m)/(L+m))^12 f(x_0), n = 10",
        source="Kantorovich 1948, Akaike 1959, with 1 in place of 0.97",
        families={"quadratic": lambda: bowl(10)},
        conclusion=steepest_descent,
        assumptions=is_strongly_convex,
    ),
    false(
        name="false/chebyshev_bound",
        statement="conjugate gradients: |x_3|_A <= 0.98 |x_0|_A / T_3((L + m)/(L - m)), n = 10",
        source="Greenbaum 1979: with 1 in place of 0.98, reached for every number of steps",
        families={"quadratic": lambda: bowl(10, 100.0)},
        conclusion=chebyshev_bound,
        assumptions=is_strongly_convex,
    ),
    false(
        name="false/smooth_convex",
        statement="step 1/L, f convex: f(x_N) - f* <= L |x_0 - x*|^2 / (4 N + 2.4), N = 10",
        source="Drori and Teboulle 2014, with 2 in place of 2.4",
        families={"huber": hubers},
        conclusion=smooth_convex,
        assumptions=lambda problem: 1 - problem.curvature.max(),
    ),
    false(
        name="false/descent_ascent",
        statement="m-strongly monotone, L-Lipschitz: steps 2.1 m/L^2 do not expand, n = 8 + 8",
        source="Facchinei and Pang 2003, 12.1, with 2 in place of 2.1",
        families={"saddle": saddle},
        conclusion=descent_ascent,
        assumptions=lambda problem: monotonicity(problem.operator),
    ),
    false(
        name="false/heavy_ball",
        statement="curvatures in [1, 25], steps 1/9, momentum 4/9: |x_k| <= 1000 k (2/3)^k |x_0|",
        source="Polyak 1964 on quadratics; Lessard, Recht and Packard 2016 beyond",
        families={"kinked": kinked},
        conclusion=heavy_ball,
        assumptions=curvatures_between,
    ),
    false(
        name="false/adam",
        statement="Adam's regret over T = 600 linear losses is at most the bound of its paper",
        source="Kingma and Ba 2015, Theorem 4.1; refuted by Reddi, Kale and Kumar 2018, Theorem 1",
        families={"periodic": online_losses},
        conclusion=adam_regret,
        assumptions=rates_are_allowed,
    ),
    false(
        name="false/residuals_decrease",
        statement="conjugate gradients shorten the residual in each of 5 steps, n = 10",
        source="folklore; Hestenes and Stiefel 1952 prove it for the error only",
        families={"quadratic": lambda: bowl(10)},
        conclusion=residuals_decrease,
        assumptions=is_strongly_convex,
    ),
    false(
        name="false/nesterov_descends",
        statement="Nesterov's method with constant momentum lowers a quadratic in each of 20 steps",
        source="folklore; O'Donoghue and Candes 2015",
        families={"quadratic": lambda: bowl(10)},
        conclusion=nesterov_descends,
        assumptions=is_strongly_convex,
    ),
    false(
        name="false/newton_descends",
        statement="a full Newton step lowers a strongly convex logistic loss, n = 4",
        source="folklore; Boyd and Vandenberghe 2004, Exercise 9.10",
        families={"normal": lambda: Classification(normal("rows", 8, 4), normal("start", 4))},
        conclusion=newton_descends,
        assumptions=is_finite,
    ),
)

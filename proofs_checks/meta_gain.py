"""Claims on adaptation per task: what it is sure to gain, and what a few probes say of it."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from hypothesis import strategies as st
from jaxtyping import Array, Float

from jaxlab.claims import Claim, Comparison, at_most, close_to
from jaxlab.core.locate import load_companion
from jaxlab.optim import meta_gain, meta_gain_budget
from jaxlab.problems.sites import log_uniform, normals, uniform

NUM_TASKS = 6


class Bowls(NamedTuple):
    """Diagonal quadratics, one per task; curvatures of 0 leave sets of minimisers."""

    start: Float[Array, " dim"]
    curvatures: Float[Array, "tasks dim"]
    centres: Float[Array, "tasks dim"]
    share: Float[Array, ""]

    @property
    def tasks(self) -> tuple[Array, Array]:
        """As ``bowl`` takes them."""
        return self.curvatures, self.centres

    @property
    def pl_constant(self) -> Array:
        """The least positive curvature."""
        return jnp.where(self.curvatures > 0, self.curvatures, jnp.inf).min()

    @property
    def step_size(self) -> Array:
        """A share of one over the smoothness."""
        return self.share / self.curvatures.max()


class Waves(NamedTuple):
    """``x^2 + 3 sin(x)^2``, moved: PL with 1/32 and 8-smooth, but not convex."""

    start: Float[Array, ""]
    tasks: Float[Array, " tasks"]
    share: Float[Array, ""]

    @property
    def pl_constant(self) -> float:
        """Karimi, Nutini and Schmidt 2016."""
        return 1 / 32

    @property
    def step_size(self) -> Array:
        """A share of one over the smoothness."""
        return self.share / 8


def bowl(x: Array, task: tuple[Array, Array]) -> Array:
    """A quadratic of minimum 0."""
    curvature, centre = task
    return jnp.sum(curvature * (x - centre) ** 2) / 2


def wave(x: Array, shift: Array) -> Array:
    """A wave of minimum 0."""
    return (x - shift) ** 2 + 3 * jnp.sin(x - shift) ** 2


def bowls(dim: int) -> Bowls:
    """A NumPyro model: curvatures within a hundredfold, and one direction that is flat."""
    start, centres = normals("bowls", (dim + 1,), (NUM_TASKS, dim + 1))
    steep = jnp.exp(uniform("logs", -4.6, 0.0, NUM_TASKS, dim))
    flat = jnp.zeros((NUM_TASKS, 1))
    curvatures = jnp.concatenate([steep, flat], axis=1)
    return Bowls(start, curvatures, centres, uniform("share", 0.05, 1.0))


def waves() -> Waves:
    """A NumPyro model."""
    start, shifts = normals("waves", (), (NUM_TASKS,))
    spread = log_uniform("spread", 0.1, 10.0)
    return Waves(3 * start, spread * shifts, uniform("share", 0.05, 1.0))


def unequal_starts(dim: int) -> Bowls:
    """Equal curvatures and a step that ends at the minimum at once."""
    centres = jnp.linspace(-1.0, 1.0, NUM_TASKS * (dim + 1)).reshape(NUM_TASKS, dim + 1)
    curvatures = jnp.ones((NUM_TASKS, dim + 1)).at[:, -1].set(0.0)
    return Bowls(jnp.ones(dim + 1), curvatures, centres, jnp.ones(()))


def legal_task(instance: Bowls | Waves) -> Array:
    """Step sizes in (0, 1/L], and the PL inequality along a line through the start."""
    loss = wave if isinstance(instance, Waves) else bowl
    points = jnp.linspace(-4.0, 4.0, 9)

    def slack(task: Any, t: Array) -> Array:
        value, slope = jax.value_and_grad(loss)(instance.start + t, task)
        scale = jnp.maximum(value, 1e-12)
        return (jnp.sum(slope**2) - 2 * instance.pl_constant * value) / scale

    slacks = jax.vmap(jax.vmap(slack, in_axes=(None, 0)), in_axes=(0, None))(instance.tasks, points)
    return jnp.minimum(slacks.min() + 1e-9, jnp.minimum(instance.share, 1 - instance.share + 1e-12))


def pl_gain(
    instance: Bowls | Waves, steps: int, *, moved: float = 1.0, more: float = 0.0
) -> Comparison:
    """Both bounds; mutants do not apply the step, or count one step too many."""
    loss = wave if isinstance(instance, Waves) else bowl
    eta, mu = instance.step_size, instance.pl_constant
    curves = meta_gain.adaptation_curves(
        loss, instance.start, instance.tasks, eta * moved + 1e-300, num_steps=steps
    )
    gain, limit = meta_gain.adaptation_gain(curves)[-1], curves[:, 0].mean()
    bound = meta_gain.pl_gain_bound(mu, eta, limit, steps + more)
    weaker = -limit * jnp.expm1(-eta * mu * steps)
    return at_most(jnp.stack([bound, weaker]) / limit, jnp.stack([gain, bound]) / limit + 1e-10)


class Linear(NamedTuple):
    """Minimisers that are a linear map of the tasks' parameters."""

    start: Float[Array, " dim"]
    parameters: Float[Array, "tasks 2"]
    map: Float[Array, "dim 2"]
    curvatures: Float[Array, "tasks dim"]
    share: Float[Array, ""]

    @property
    def singular(self) -> tuple[Array, Array]:
        """The least and the largest singular value of the map."""
        gram = self.map.T @ self.map
        middle, half = jnp.trace(gram) / 2, jnp.hypot((gram[0, 0] - gram[1, 1]) / 2, gram[0, 1])
        least = (gram[0, 0] * gram[1, 1] - gram[0, 1] ** 2) / (middle + half)
        return jnp.sqrt(jnp.maximum(least, 0.0)), jnp.sqrt(middle + half)


def linear(dim: int) -> Linear:
    """A NumPyro model."""
    start, parameters, matrix = normals("linear", (dim,), (NUM_TASKS, 2), (dim, 2))
    curvatures = jnp.exp(uniform("logs", -2.3, 0.0, NUM_TASKS, dim))
    return Linear(start, parameters, matrix, curvatures, uniform("share", 0.05, 1.0))


def is_separated(instance: Linear) -> Array:
    """Every pair of minimisers is as far apart as the constant says."""
    least, _ = instance.singular
    apart = instance.parameters[:, None] - instance.parameters[None]
    moved = jnp.einsum("ij,abj->abi", instance.map, apart)
    slack = jnp.sum(moved**2, axis=-1) - least**2 * jnp.sum(apart**2, axis=-1)
    return slack.min() / jnp.maximum(jnp.sum(moved**2), 1e-12) + 1e-9


def separated_gain(
    instance: Linear, steps: int, *, largest: float = 0.0, off: float = 0.0
) -> Comparison:
    """Two bounds; mutants take the largest singular value, or the spread about another task."""
    centres = instance.parameters @ instance.map.T
    eta = instance.share / instance.curvatures.max()
    mu = instance.curvatures.min()
    curves = meta_gain.adaptation_curves(
        bowl, instance.start, (instance.curvatures, centres), eta, num_steps=steps
    )
    gain = meta_gain.adaptation_gain(curves)[-1]
    least, most = instance.singular
    variance = meta_gain.task_variance(instance.parameters)
    middle = instance.parameters.mean(axis=0)
    variance = variance + off * jnp.sum((instance.parameters[0] - middle) ** 2)
    separation = least + largest * (most - least)
    distance = jnp.mean(jnp.sum((instance.start - centres) ** 2, axis=1))
    between = meta_gain.pl_gain_bound(mu, eta, mu / 2 * distance, steps)
    bound = meta_gain.gain_lower_bound(mu, eta, separation, variance, steps)
    scale = mu / 2 * distance
    return at_most(jnp.stack([between, bound]) / scale, jnp.stack([gain, between]) / scale + 1e-10)


class Family(NamedTuple):
    """Tasks of one Hessian, ``Q'diag(h)Q``, and how tasks might differ from it."""

    curvatures: Float[Array, " dim"]
    mixing: Float[Array, "dim dim"]
    centres: Float[Array, "tasks dim"]
    other: Float[Array, " tasks"]
    share: Float[Array, ""]

    @property
    def hessian(self) -> Array:
        """Symmetric and positive definite."""
        return jnp.diag(self.curvatures) + self.mixing.T @ self.mixing / 4

    @property
    def step_size(self) -> Array:
        """At most one over the trace."""
        return self.share / jnp.trace(self.hessian)


def families(dim: int) -> Family:
    """A NumPyro model."""
    mixing, centres = normals("family", (dim, dim), (NUM_TASKS, dim))
    curvatures = jnp.exp(uniform("logs", -2.3, 0.0, dim))
    other = uniform("other", 0.0, 1.0, NUM_TASKS)
    return Family(curvatures, mixing, centres, other, uniform("share", 0.1, 0.9))


def is_family(instance: Family) -> Array:
    """A positive definite Hessian, and tasks that differ."""
    spread = jnp.sum((instance.centres - instance.centres.mean(axis=0, keepdims=True)) ** 2)
    return jnp.minimum(instance.curvatures.min(), jnp.minimum(spread, 1 - instance.share))


def tilted(x: Array, task: tuple[Array, Array]) -> Array:
    """A quadratic of any Hessian."""
    hessian, centre = task
    return (x - centre) @ hessian @ (x - centre) / 2


def hessians(instance: Family, spread: Any) -> Array:
    """Of all tasks; the same unless a mutant spreads them."""
    return (1 + spread * instance.other)[:, None, None] * instance.hessian


def exact_gain(
    instance: Family, steps: int, *, offset: float = 0.0, power: float = 2.0
) -> Comparison:
    """The closed form; mutants start off the mean, or forget the square of the contraction."""
    mean = instance.centres.mean(axis=0)
    away = instance.centres - mean[None]
    covariance = away.T @ away / NUM_TASKS
    tasks = (hessians(instance, 0.0), instance.centres)
    eta = instance.step_size
    curves = meta_gain.adaptation_curves(tilted, mean + offset, tasks, eta, num_steps=steps)
    told = meta_gain.quadratic_gain(instance.hessian, covariance, eta, steps * power / 2)
    return close_to(
        meta_gain.adaptation_gain(curves)[-1], told, allowance=1e-10, scale=curves[:, 0].mean()
    )


def maml_start(instance: Family, steps: int, *, spread: float = 0.0) -> Comparison:
    """The objective after adaptation is flat at the mean; a mutant's Hessians differ."""
    tasks = (hessians(instance, spread), instance.centres)
    eta = instance.step_size / (1 + spread)

    def after(start: Array) -> Array:
        curves = meta_gain.adaptation_curves(tilted, start, tasks, eta, num_steps=steps)
        return curves[:, -1].mean()

    mean = instance.centres.mean(axis=0)
    slope = jax.grad(after)(mean)
    robust = jax.grad(lambda x: meta_gain.mean_loss(tilted, x, tasks))(mean)
    scale = jnp.trace(instance.hessian) * jnp.sqrt(jnp.sum(instance.centres**2))
    return at_most(jnp.abs(jnp.stack([slope, robust])) / scale, 1e-12)


class Mixture(NamedTuple):
    """``sum_i w_i (1 - q_i^k)``."""

    weights: Float[Array, " modes"]
    ratios: Float[Array, " modes"]

    def gain(self, k: Any) -> Array:
        """At step ``k``, without cancellation for ratios near 1."""
        return jnp.sum(self.weights * -jnp.expm1(k * jnp.log(self.ratios)))


def mixtures(modes: int) -> Mixture:
    """A NumPyro model."""
    weights = jnp.exp(uniform("weights", -3.0, 3.0, modes))
    return Mixture(weights, uniform("ratios", 0.02, 0.98, modes))


def one_mode(modes: int) -> Mixture:
    """The case of equality."""
    return Mixture(jnp.ones(modes), jnp.full(modes, 0.7))


def aitken_below(
    instance: Mixture, first: int, *, gap: float = 0.0, late: float = 0.0
) -> Comparison:
    """Never above the limit; mutants take points that are not consecutive, or add to the wrong."""
    one, two, three = (instance.gain(first + k) for k in (0.0, 1.0, 2.0 + gap))
    limit, _ = meta_gain_budget.aitken_limit(one, two, three)
    total = instance.weights.sum()
    return at_most(limit + late * (two - one), total * (1 + 1e-9), scale=total)


class Prices(NamedTuple):
    """A law, what a step costs, and which share may be missed."""

    limit: Float[Array, ""]
    rate: Float[Array, ""]
    cost: Float[Array, ""]
    shortfall: Float[Array, ""]


def prices() -> Prices:
    """A NumPyro model: costs on both sides of what the first step is worth."""
    limit, rate = log_uniform("limit", 1e-4, 10.0), log_uniform("rate", 1e-2, 1.0)
    relative = log_uniform("relative", 1e-2, 3.0)
    return Prices(limit, rate, relative * limit * rate, uniform("shortfall", 0.01, 0.5))


def best_budget(instance: Prices, *, stretch: float = 1.0, fewer: float = 0.0) -> Comparison:
    """Optimal on a grid and sufficient; mutants take decimal logarithms, or a step too few."""
    limit, rate, cost, shortfall = instance
    paid = stretch * meta_gain_budget.steps_for_cost(limit, rate, cost)
    grid = jnp.linspace(0.0, 8.0, 161) / rate

    def net(steps: Array) -> Array:
        return meta_gain_budget.saturating_gain(limit, rate, steps) - cost * steps

    enough = meta_gain_budget.steps_to_share(rate, shortfall) - fewer
    gained = meta_gain_budget.saturating_gain(limit, rate, enough)
    before = meta_gain_budget.saturating_gain(limit, rate, enough - 1)
    return at_most(
        jnp.stack([net(grid).max(), (1 - shortfall) * limit, before]) / limit,
        jnp.stack([net(paid), gained, (1 - shortfall) * limit]) / limit + 1e-12,
    )


STEPS = st.sampled_from([0, 6])
SIZES: dict[str, Any] = {
    "sizes": {"dim": st.just(3), "steps": STEPS},
    "typical": {"dim": 3, "steps": 6},
    "samples": 1000,
    "restarts": 8,
}
CLAIMS = (
    Claim(
        name="meta_gain/pl_gain",
        statement="mu-PL, L-smooth, eta <= 1/L, any start => G_K >= (1 - (1 - eta mu)^K) G_inf",
        source="arXiv:2601.18973, the scaling law; derived: (1 - eta mu) per step, then the mean",
        families={"quadratic with a flat direction": bowls, "not convex": waves},
        conclusion=pl_gain,
        assumptions=legal_task,
        boundary={"one step": unequal_starts},
        mutants={"the step is not applied": {"moved": 0.0}, "K + 1 for K": {"more": 1.0}},
        **SIZES,
    ),
    Claim(
        name="meta_gain/separation",
        statement="|theta* - theta*'| >= c |gamma - gamma'| => "
        "G_K >= mu c^2/2 (1 - (1 - eta mu)^K) Var gamma, from any start",
        source="derived: PL gives quadratic growth, and E|theta_0 - theta*|^2 >= tr Cov theta*",
        families={"linear": linear},
        conclusion=separated_gain,
        assumptions=is_separated,
        mutants={
            "the largest singular value": {"largest": 1.0},
            "spread about another task": {"off": 10.0},
        },
        **SIZES,
    ),
    Claim(
        name="meta_gain/quadratic_gain",
        statement="one Hessian, theta_0 = E theta*: "
        "G_K = tr[(H - M H M) Cov theta*]/2 with M = (I - eta H)^K",
        source="derived: cross terms vanish at the mean",
        families={"one Hessian": families},
        conclusion=exact_gain,
        assumptions=is_family,
        tightness="tight",
        rungs=("explore", "sample"),
        mutants={"off the mean": {"offset": 0.1}, "M without its square": {"power": 1.0}},
        **SIZES,
    ),
    Claim(
        name="meta_gain/maml_start",
        statement="one Hessian: the best start before K steps is the robust one, E theta*",
        source="derived: both objectives are quadratics about the same point",
        families={"one Hessian": families},
        conclusion=maml_start,
        assumptions=is_family,
        tightness="tight",
        rungs=("explore", "sample"),
        mutants={"Hessians differ": {"spread": 0.5}},
        **SIZES,
    ),
    Claim(
        name="meta_gain/aitken_below",
        statement="g_k = sum w_i (1 - q_i^k), w_i >= 0: Aitken's limit <= sum w_i; one mode: equal",
        source="derived: increments are convex in logarithms, so that later ratios are larger",
        families={"mixture": mixtures},
        conclusion=aitken_below,
        assumptions=lambda instance: jnp.minimum(
            instance.weights.min(), jnp.minimum(instance.ratios, 1 - instance.ratios).min()
        ),
        boundary={"one mode": one_mode},
        sizes={"modes": st.sampled_from([1, 3]), "first": st.sampled_from([0, 4])},
        typical={"modes": 4, "first": 0},
        samples=2000,
        restarts=16,
        tightness="tight",
        mutants={"points 0, 1, 3": {"gap": 1.0}, "added to the second gain": {"late": 1.0}},
    ),
    Claim(
        name="meta_gain/budgets",
        statement="K_c = max(0, log(A beta/c)/beta) maximises A(1 - exp(-beta K)) - c K; "
        "ceil(log(1/eps)/beta) is the least K with (1 - eps) A",
        source="arXiv:2601.18973; derived: calculus",
        families={"law": prices},
        conclusion=best_budget,
        assumptions=lambda instance: jnp.stack(instance).min(),
        samples=5000,
        restarts=8,
        tightness="tight",
        rungs=("explore", "sample"),
        mutants={"decimal logarithm": {"stretch": 0.4342944819}, "a step too few": {"fewer": 1.0}},
    ),
    *load_companion("proofs_checks", "meta_gain_devices").CLAIMS,
)

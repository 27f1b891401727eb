"""Claims on rates and stability of the dual method (C7, C10, C11, C13)."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from hypothesis import strategies as st
from jaxtyping import Array, Float

from jaxlab.claims import Claim, Comparison, Expectation, at_most, close_to
from jaxlab.claims.families import distinct_keys
from jaxlab.core import run_until
from jaxlab.core.types import Method
from jaxlab.optim import dual_sgd as ds
from jaxlab.optim.federated import ssda
from jaxlab.optim.local_solvers import sgd_solver
from jaxlab.optim.quadratic_solver import diagonal_gradient, diagonalize, quadratic_solver
from jaxlab.problems import graphs, objectives
from jaxlab.problems.agents import (
    Agents,
    agents_problem,
    agents_slack,
    make_agents_family,
    zero_sum,
)
from jaxlab.problems.consensus import Consensus, stack_agents
from jaxlab.problems.mixing import DenseMixing
from jaxlab.problems.quadratic import (
    iteration_matrix,
    quadratic_optimum,
    random_quadratics,
    spectral_radius,
)
from jaxlab.problems.sites import log_uniform, normal, site
from jaxlab.stats.intervals import slope_interval
from jaxlab.stats.sphere import unit_vector

KEY = jax.random.key(0)

SIZES = {
    "agents": st.sampled_from([2, 3, 5]),
    "dim": st.sampled_from([1, 2]),
    "graph": st.sampled_from(["ring", "complete"]),
}
TYPICAL = {"agents": 4, "dim": 2, "graph": "ring"}


def on_zero_sum(method: Method) -> Method:
    """The method on zero-sum duals, where it lives; elsewhere the sum is conserved (factor 1)."""

    def step(problem: Any, hyper: Any, state: ds.DualSGDState, key: Array) -> Any:
        legal = ds.DualSGDState(zero_sum(state.p), zero_sum(state.q), state.params)
        return method.step(problem, hyper, legal, key)

    return Method(method.init, step)


def radius_of(instance: Agents, method: Method, hyper: ds.DualSGDHyper) -> Array:
    """The spectral radius of one round on quadratics."""
    problem = agents_problem(instance, exact=True)
    return spectral_radius(iteration_matrix(on_zero_sum(method), problem, hyper, KEY))


def constants_of(instance: Agents) -> tuple[ds.DualConstants, graphs.GossipSpectrum]:
    """The dual function's constants, and the graph's."""
    spectrum = graphs.gossip_spectrum(instance.gossip)
    constants = ds.dual_constants(instance.strong_convexity, instance.smoothness, spectrum)
    return constants, spectrum


def exact_factor(
    instance: Agents, *, momentum_scale: float = 1.0, mu_exponent: float = 1.0
) -> Comparison:
    """C7: exact solves and one common Hessian give exactly the factors of the theory."""
    constants, spectrum = constants_of(instance)
    tau = instance.strong_convexity**mu_exponent / spectrum.largest
    eta = jnp.zeros_like(tau)
    momenta = jnp.stack([momentum_scale * constants.rate, jnp.ones_like(tau)])
    radii = jax.vmap(lambda q: radius_of(instance, ssda(), ds.DualSGDHyper(tau, q, eta)))(momenta)
    expected = jnp.stack([1 - constants.rate, 1 - 1 / constants.condition])
    # The accelerated factor is a double root, which rounding splits by the square root of epsilon.
    return close_to(radii, expected, allowance=1e-5)


def factor_bound(instance: Agents, *, dual_step_scale: float = 1.0) -> Comparison:
    """C7 for different Hessians: the factor is at most that of the theory."""
    constants, _ = constants_of(instance)
    tau = dual_step_scale / constants.smoothness
    hyper = ds.DualSGDHyper(tau, constants.rate, jnp.zeros_like(tau))
    return at_most(radius_of(instance, ssda(), hyper), 1 - constants.rate + 1e-5)


def plain_stability(
    instance: Agents, *, local_steps: int, step_exponent: float = 1.0, dual_step_scale: float = 1.0
) -> Comparison:
    """C11: without momentum every number of local steps is stable with its own dual step."""
    _, spectrum = constants_of(instance)
    hyper = ds.dual_sgd_hyper(
        instance.strong_convexity, instance.smoothness, spectrum,
        num_local_steps=local_steps, mode="plain",
    )  # fmt: skip
    # With exponent 0 the local steps are forgotten: tau = mu / lambda_max for every K.
    forgotten = instance.strong_convexity / spectrum.largest
    used = hyper.dual_step_size**step_exponent * forgotten ** (1 - step_exponent)
    method = ds.dual_sgd(num_local_steps=local_steps)
    radius = radius_of(instance, method, hyper._replace(dual_step_size=dual_step_scale * used))
    return at_most(radius, 1 - 1e-12)


class Descent(NamedTuple):
    """One agent's local descent with noise of one size."""

    objective: objectives.Objective
    start: Float[Array, " dim"]
    noise: Float[Array, ""]
    step_size: Float[Array, ""]


def descent(dim: int) -> Descent:
    """A NumPyro model of local descents on quadratics."""
    mu = log_uniform("mu", 1e-1, 1e1)
    kappa = log_uniform("kappa", 1.0, 3e1)
    objective = objectives.draw_diagonal("f", dim, mu, mu * kappa)
    noise = mu * log_uniform("noise", 1e-1, 1e1)
    start = normal("start", dim)
    fraction = site("fraction", dist.Uniform(0.05, 1.0))
    return Descent(objective, start, noise, fraction * 2 / (mu + mu * kappa))


def round_bowl(dim: int) -> Descent:
    """Condition number 1, where the noise term is an equality."""
    instance = descent(dim)
    mu = instance.objective.strong_convexity
    bowl = objectives.DiagonalQuadratic(mu * jnp.ones(dim), mu, mu)
    fraction = site("fraction_of_bowl", dist.Uniform(0.05, 0.9))
    return instance._replace(objective=bowl, step_size=fraction / mu)


def squared_distances(
    instance: Descent, local_steps: int, chains: int, key: Array, noise: Array
) -> tuple[Array, Array]:
    """``|x_K|^2`` of independent chains of the library's local solver, and its largest value."""
    dim = instance.start.shape[0]

    def gradient(x: Array, data: Array, key: Array) -> Array:
        del data
        return instance.objective.gradient(x) + noise * unit_vector(key, dim)

    problem = Consensus(
        gradient, jnp.zeros(1), instance.start, DenseMixing(gossip=jnp.ones((1, 1)))
    )
    solver = sgd_solver(local_steps)

    def chain(key: Array) -> Array:
        start = instance.start[None]
        end = solver.solve(problem, instance.step_size, jnp.zeros_like(start), start, key)
        return jnp.sum(end**2)

    kept = (1 - instance.step_size * instance.objective.strong_convexity) ** local_steps
    spread = noise / instance.objective.strong_convexity * (1 - kept)
    reach = kept * jnp.sqrt(jnp.sum(instance.start**2)) + spread
    return jax.vmap(chain)(jax.random.split(key, chains)), reach**2 * (1 + 1e-9)


def local_descent(
    instance: Descent, *, local_steps: int, chains: int, key: Array, noise_exponent: float = 0.0
) -> Expectation:
    """C10: contraction and noise of K local steps."""
    mu, eta = instance.objective.strong_convexity, instance.step_size
    noise = instance.noise * eta**-noise_exponent
    values, largest = squared_distances(instance, local_steps, chains, key, noise)
    start = jnp.sum(instance.start**2)
    floor = eta * instance.noise**2 / (mu * (2 - eta * mu))
    bound = (1 - eta * mu) ** (2 * local_steps) * start + floor
    return Expectation(values, bound, jnp.zeros(()), largest)


def noise_is_exact(
    instance: Descent, *, local_steps: int, chains: int, key: Array, noise_scale: float = 1.0
) -> Expectation:
    """C10 with equality: on a round bowl the noise term is reached, so the mean is no smaller."""
    mu, eta = instance.objective.strong_convexity, instance.step_size
    values, largest = squared_distances(
        instance, local_steps, chains, key, noise_scale * instance.noise
    )
    kept = (1 - eta * mu) ** (2 * local_steps)
    floor = eta * instance.noise**2 / (mu * (2 - eta * mu)) * (1 - kept)
    bound = kept * jnp.sum(instance.start**2) + floor
    return Expectation(-values, -bound, -largest, jnp.zeros(()))


KAPPAS = (25.0, 50.0, 100.0, 200.0, 400.0)
AGENTS, DIM, SEEDS, TARGET = 8, 6, 8, 1e-8


def seeds(key: Array) -> Array:
    """Independent keys, one per seed and condition number."""
    return jax.random.split(key, (SEEDS, len(KAPPAS)))


def rounds_needed(key: Array, kappa: Array, local_steps: Array, hyper: ds.DualSGDHyper) -> Array:
    """Rounds until the squared distance has shrunk to the target, on the complete graph.

    Local steps are taken in closed form, so that one compilation serves every number of them.
    """
    quadratics = random_quadratics(
        key, num_agents=AGENTS, dim=DIM, strong_convexity=1.0, smoothness=kappa
    )
    gossip = jnp.full((AGENTS, AGENTS), 1 / AGENTS)
    problem = Consensus(
        diagonal_gradient, diagonalize(quadratics, local_steps), jnp.zeros(DIM),
        DenseMixing(gossip=gossip),
    )  # fmt: skip
    optimum = quadratic_optimum(quadratics)
    goal = TARGET * AGENTS * jnp.sum(optimum**2)
    done = run_until(
        ds.dual_sgd(local_solver=quadratic_solver()), problem, hyper, key, max_steps=20_000,
        stop_fn=lambda state, info: jnp.sum((state.params - optimum) ** 2) < goal,
    )  # fmt: skip
    return done.num_steps


def scaling(keys: Array, *, acceleration: float = 1.0) -> Comparison:
    """C13: the exponent of rounds in the condition number, three ways."""
    kappas = jnp.array(KAPPAS)
    one = jnp.ones_like(kappas)
    many, few = jnp.ceil(1.5 * kappas), jnp.round(jnp.sqrt(kappas))
    rate = acceleration / jnp.sqrt(kappas) + (1 - acceleration)
    seen = 1 - (1 - 1 / kappas) ** few  # s_K for mu = 1 and eta = 1/L
    schemes = [
        (many, ds.DualSGDHyper(one, rate, 1 / kappas)),
        (many, ds.DualSGDHyper(one, one, 1 / kappas)),
        (few, ds.DualSGDHyper(1 / seen, one, 1 / kappas)),
    ]
    stacked = stack_agents(*schemes)
    over_kappas = jax.vmap(rounds_needed)
    over_seeds = jax.vmap(over_kappas, in_axes=(0, None, None, None))
    over_schemes = jax.vmap(over_seeds, in_axes=(None, None, 0, 0))
    middle, half = slope_interval(kappas, over_schemes(keys, kappas, *stacked))
    # The whole interval must be inside the band.
    miss = jnp.abs(middle - jnp.array([0.5, 1.0, 0.5])) + half
    return at_most(miss, jnp.array([0.1, 0.1, 0.1]))


IDENTICAL = {
    "diagonal": make_agents_family(
        objectives.draw_diagonal, largest_condition=1000.0, identical=True
    )
}
DIFFERENT = {"quadratic": make_agents_family(objectives.draw_quadratic)}

CLAIMS = (
    Claim(
        name="dual_sgd/exact_factor",
        statement=(
            "exact solves, one Hessian with eigenvalues mu and L: the factor per round is "
            "1 - 1/sqrt(kappa chi) accelerated and 1 - 1/(kappa chi) plain"
        ),
        source="derived: mode polynomial r^2 - (1+b)(1 - s/L_D) r + b (1 - s/L_D)",
        families=IDENTICAL,
        conclusion=exact_factor,
        assumptions=agents_slack,
        sizes={**SIZES, "dim": st.just(2)},
        typical=TYPICAL,
        tightness="tight",
        tolerance=1e5,
        samples=500,
        rungs=("explore", "sample"),
        mutants={
            "momentum 10% off": {"momentum_scale": 1.1},
            "mu forgotten in the dual step": {"mu_exponent": 0.0},
        },
    ),
    Claim(
        name="dual_sgd/factor_bound",
        statement="exact solves, any quadratics: the factor is at most 1 - 1/sqrt(kappa chi)",
        source="derived: all dual curvatures lie in [mu_D, L_D]",
        families=DIFFERENT,
        conclusion=factor_bound,
        assumptions=agents_slack,
        sizes=SIZES,
        typical=TYPICAL,
        tolerance=1e5,
        samples=500,
        rungs=("explore", "sample"),
        mutants={"dual step three times too large": {"dual_step_scale": 3.0}},
    ),
    Claim(
        name="dual_sgd/local_descent",
        statement=(
            "eta <= 2/(mu+L): E|x_K - x°|^2 <= (1 - eta mu)^(2K) |x_0 - x°|^2 "
            "+ eta sigma^2 / (mu (2 - eta mu))"
        ),
        source="derived: contraction and the sum of variances",
        families={"quadratic": descent},
        conclusion=local_descent,
        assumptions=lambda instance: objectives.curvature_slack(instance.objective, instance.start),
        sizes={
            "dim": st.sampled_from([1, 3]),
            "local_steps": st.sampled_from([1, 10]),
            "chains": st.just(500),
        },
        typical={"dim": 1, "local_steps": 10, "chains": 4000},
        stochastic=True,
        samples=200,
        rungs=("explore", "sample"),
        mutants={"noise scaled by the root of the step": {"noise_exponent": 0.5}},
    ),
    Claim(
        name="dual_sgd/local_noise_is_exact",
        statement=(
            "f = (mu/2)|x|^2: E|x_K|^2 >= (1 - eta mu)^(2K) |x_0|^2 "
            "+ (1 - (1 - eta mu)^(2K)) eta sigma^2 / (mu (2 - eta mu))"
        ),
        source="derived: every step of local_descent is an equality",
        families={"bowl": round_bowl},
        conclusion=noise_is_exact,
        assumptions=lambda instance: objectives.curvature_slack(instance.objective, instance.start),
        sizes={
            "dim": st.just(2),
            "local_steps": st.sampled_from([1, 10]),
            "chains": st.just(500),
        },
        typical={"dim": 2, "local_steps": 10, "chains": 4000},
        stochastic=True,
        tightness="tight",
        samples=200,
        rungs=("explore", "sample"),
        mutants={"noise 20% too small": {"noise_scale": 0.8}},
    ),
    Claim(
        name="dual_sgd/plain_stability",
        statement="q = 1, tau = 1/(lambda_max s_K): spectral radius below 1 for every K >= 1",
        source="derived for a common eigenbasis (Jury conditions), numerical beyond it",
        families=DIFFERENT,
        conclusion=plain_stability,
        assumptions=agents_slack,
        sizes={**SIZES, "local_steps": st.sampled_from([1, 2, 20])},
        typical={**TYPICAL, "local_steps": 2},
        samples=2000,
        rungs=("explore", "sample"),
        mutants={
            "dual step four times too large": {"dual_step_scale": 4.0},
            "dual step of 16 exact solves": {"step_exponent": 0.0, "dual_step_scale": 16.0},
        },
    ),
    Claim(
        name="dual_sgd/scaling",
        statement=(
            "rounds to fixed accuracy grow as kappa^0.5 accelerated, kappa plain, and kappa^0.5 "
            "plain with K = sqrt(kappa) and its own dual step"
        ),
        source="derived; the fitted exponent's 95% interval lies within 0.1",
        families={"seeds": seeds},
        conclusion=scaling,
        assumptions=distinct_keys,
        tightness="order",
        samples=2,
        rungs=("sample",),
        mutants={"acceleration off": {"acceleration": 0.0}},
    ),
)

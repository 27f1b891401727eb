"""Claims of the paper on the accelerated dual method.

C6, C8, C9 and C12 stand here: what one round does to the dual function. C1 to C5 are in
``inexact_agd.py`` and ``reproducible_agd.py``, the rates C7, C10, C11 and C13 in
``dual_sgd_rates.py``.
"""

import jax
import jax.numpy as jnp
from hypothesis import strategies as st
from jaxtyping import Array

from jaxlab.claims import Claim, Comparison, at_most, at_most_in_ratio, close_to
from jaxlab.core import run
from jaxlab.core.locate import load_companion
from jaxlab.core.types import Scalar
from jaxlab.optim import dual_sgd as ds
from jaxlab.optim.inexact_agd import query_point
from jaxlab.optim.local_solvers import LocalSolver, sgd_solver
from jaxlab.problems import graphs, objectives
from jaxlab.problems.agents import (
    Agents,
    agents_problem,
    agents_slack,
    dual_gap,
    graph_gossip,
    loss_offsets,
    make_agents_family,
    minimizers,
)
from jaxlab.problems.consensus import stack_agents

RATES = load_companion("proofs_checks", "dual_sgd_rates")
KEY = jax.random.key(0)  # The methods here are deterministic: errors are part of the instance.

FAMILIES = {
    "quadratic": make_agents_family(objectives.draw_quadratic),
    "logistic": make_agents_family(objectives.draw_logistic),
}

SIZES = {
    "agents": st.sampled_from([2, 4]),
    "dim": st.sampled_from([1, 2]),
    "graph": st.sampled_from(["ring", "complete", "star"]),
}
TYPICAL = {"agents": 4, "dim": 2, "graph": "ring"}

# Rounding grows with the condition numbers of objective (100) and graph (below 10).
TOLERANCE = 100 * 1e3
TINY = 1e-300  # Added to scales that vanish at the solution.


def energy(instance: Agents, p: Array, q: Array, at_p: Array) -> Array:
    """``V`` of the dual pair, from ``X*(p)``."""
    gap = jnp.maximum(dual_gap(instance, p, at_p), 0.0)
    constants, _ = RATES.constants_of(instance)
    return ds.dual_energy(gap, q, instance.dual_optimum, instance.gossip, constants)


def signed_solver(local_steps: int, sign: Scalar, reset: Scalar) -> LocalSolver:
    """The library's local steps; a mutant turns the dual's sign or forgets the warm start."""
    solver = sgd_solver(local_steps)

    def solve(problem, step_size, shift, params, key):
        start = (1 - reset) * params + reset * problem.start
        return solver.solve(problem, step_size, sign * shift, start, key)

    return LocalSolver(solve, local_steps)


def accelerated_hyper(instance: Agents) -> ds.DualSGDHyper:
    """The accelerated step sizes for full gradients, whatever the local work."""
    constants, _ = RATES.constants_of(instance)
    return ds.DualSGDHyper(1 / constants.smoothness, constants.rate, 1 / instance.smoothness)


def round_decrease(
    instance: Agents,
    *,
    local_steps: int,
    mixing_scale: float = 1.0,
    shift_sign: float = 1.0,
    dual_step_scale: float = 1.0,
) -> Comparison:
    """C6, pathwise: one round from any state, any number of local steps, any gradient error."""
    hyper = accelerated_hyper(instance)
    rate, mu = hyper.rate, instance.strong_convexity
    mixed = instance._replace(gossip=mixing_scale * instance.gossip)
    method = ds.dual_sgd(local_solver=signed_solver(local_steps, shift_sign, 0.0))
    state = ds.DualSGDState(instance.p, instance.q, instance.params)
    used = hyper._replace(dual_step_size=dual_step_scale * hyper.dual_step_size)
    after, _ = method.step(agents_problem(mixed), used, state, KEY)
    shift = query_point(instance.p, instance.q, rate)
    at_shift, at_before, at_after = minimizers(instance, shift, instance.p, after.p)
    error = after.params - at_shift
    before_energy = energy(instance, instance.p, instance.q, at_before)
    after_energy = energy(instance, after.p, after.q, at_after)
    work = rate * jnp.sum(error * (after.q - instance.dual_optimum))
    pathwise = (1 - rate) * before_energy + work
    averaged = (1 - rate / 2) * before_energy + 2 * mu / rate * jnp.sum(error**2)
    scale = before_energy + after_energy + jnp.abs(work) + TINY
    return at_most(after_energy, jnp.stack([pathwise, averaged]), scale=scale)


def linear_rate(
    instance: Agents,
    *,
    local_steps: int,
    rounds: int,
    reset: float = 0.0,
    momentum_scale: float = 1.0,
) -> Comparison:
    """C6, the rate: enough local steps give ``V_t <= C (1 - q/4)^t`` from zero duals."""
    hyper = accelerated_hyper(instance)
    problem = agents_problem(instance, exact=True)
    method = ds.dual_sgd(local_solver=signed_solver(local_steps, 1.0, reset))
    used = hyper._replace(rate=momentum_scale * hyper.rate)
    every = rounds // 4
    at_start, *_ = minimizers(instance, instance.p)
    done = run(
        method, problem, used, KEY, num_steps=rounds, every=every, trace_fn=lambda s, i: (s.p, s.q)
    )
    start = energy(instance, instance.p, instance.q, at_start)
    offset = instance.params - at_start
    mu, rate = instance.strong_convexity, hyper.rate
    constant = jnp.maximum(start, mu * rate * jnp.sum(offset**2) / 21)
    ps, qs = done.trace
    at_ps = minimizers(instance, *ps)
    energies = jax.vmap(lambda p, q, at_p: energy(instance, p, q, at_p))(ps, qs, at_ps)
    times = every * jnp.arange(1, 5)
    # The dual gap cannot be computed below the rounding of the losses that it is made of.
    size = jnp.sum(instance.optimum**2) + jnp.sum(instance.params**2)
    floor = 1e-24 * instance.smoothness * size + 1e-13 * constant
    return at_most_in_ratio(energies, constant * (1 - rate / 4) ** times + floor)


def enough_local_steps(instance: Agents, *, local_steps: int) -> Array:
    """The premise of the rate, with the other assumptions."""
    spectrum = graphs.gossip_spectrum(instance.gossip)
    needed = ds.sufficient_local_steps(instance.strong_convexity, instance.smoothness, spectrum)
    return jnp.minimum(agents_slack(instance), local_steps - needed)


def oracle_bounds(instance: Agents, *, use_mu: float = 1.0) -> Comparison:
    """C8: an inexact primal solve gives a model of the dual with curvature ``2 L_D``."""
    mu, smoothness = instance.strong_convexity, instance.smoothness
    largest = graphs.gossip_spectrum(instance.gossip).largest
    curvature = largest * (use_mu / mu + (1 - use_mu) / smoothness)
    here, there, x = instance.p, instance.q, instance.params

    at_here, at_there = minimizers(instance, here, there)
    dual_here = dual_gap(instance, here, at_here)
    dual_there = dual_gap(instance, there, at_there)
    value = loss_offsets(instance, x).sum()
    error = value + jnp.sum(here * (x - instance.optimum)) + dual_here
    model = -(value + jnp.sum(there * (x - instance.optimum)))
    laplacian = jnp.eye(len(instance.gossip)) - instance.gossip + 1 / len(instance.gossip)
    step = there - here
    distance = jnp.sum(step * jnp.linalg.solve(laplacian, step))
    left = jnp.stack([model, dual_there])
    right = jnp.stack([dual_there, model + curvature * distance + 2 * error])
    return at_most(left, right, scale=jnp.abs(left) + jnp.abs(right) + error + TINY)


def primal_distance(instance: Agents, *, mean_shift: float = 0.0) -> Comparison:
    """C9: the dual gap is between the squared primal distances, for zero-sum duals."""
    shift = instance.p + mean_shift * instance.smoothness
    (x,) = minimizers(instance, shift)
    distance = jnp.sum((x - instance.optimum) ** 2)
    # The last term vanishes for zero-sum duals; dual_gap leaves it out for precision.
    value = dual_gap(instance, shift, x) - shift.sum(axis=0) @ instance.optimum
    low = instance.strong_convexity / 2 * distance
    high = instance.smoothness / 2 * distance
    left, right = jnp.stack([low, value]), jnp.stack([value, high])
    return at_most(left, right, scale=high + TINY)


def no_drift(
    instance: Agents, *, local_steps: int, asymmetry: float = 0.0, shift_sign: float = 1.0
) -> Comparison:
    """C12: duals stay zero-sum from any state, and the solution is a fixed point."""
    skewed = instance.gossip.at[0, 0].add(asymmetry).at[0, -1].add(-asymmetry)
    method = ds.dual_sgd(local_solver=signed_solver(local_steps, shift_sign, 0.0))
    hyper = accelerated_hyper(instance)
    anywhere = ds.DualSGDState(instance.p, instance.q, instance.params)
    biased = agents_problem(instance._replace(gossip=skewed))
    after, _ = method.step(biased, hyper, anywhere, KEY)
    sums = jnp.abs(jnp.stack([after.p.sum(axis=0), after.q.sum(axis=0)]))
    sizes = 1e-300 + jnp.abs(jnp.stack([after.p, after.q])).max()
    exact = agents_problem(instance._replace(gossip=skewed), exact=True)
    solution = jnp.zeros_like(instance.params) + instance.optimum
    fixed = ds.DualSGDState(instance.dual_optimum, instance.dual_optimum, solution)
    stayed, _ = method.step(exact, hyper, fixed, KEY)
    moves = jax.tree.map(lambda a, b: jnp.abs(a - b).max(), stayed, fixed)
    scales = [jnp.abs(leaf).max() + 1e-300 for leaf in fixed]
    relative = jnp.stack([move / scale for move, scale in zip(moves, scales, strict=True)])
    return close_to(jnp.append(sums.ravel() / sizes, relative), 0.0, allowance=1e-10)


def corner(*, agents: int, dim: int, graph: str) -> Agents:
    """Condition number 1, at the solution, without bias."""
    one = jnp.ones(())
    bowls = stack_agents(*[objectives.DiagonalQuadratic(jnp.ones(dim), one, one)] * agents)
    zero = jnp.zeros((agents, dim))
    return Agents(bowls, jnp.ones(dim), zero, zero, zero, zero, zero, graph_gossip(graph, agents))


CLAIMS = (
    *load_companion("proofs_checks", "inexact_agd").CLAIMS,
    *load_companion("proofs_checks", "reproducible_agd").CLAIMS,
    Claim(
        name="dual_sgd/round_decrease",
        statement=(
            "any K, any gradient error: V+ <= (1-q) V + q <X - X*(R), Q+ - Z*> "
            "and V+ <= (1-q/2) V + (2 mu/q) |X - X*(R)|^2"
        ),
        source="derived: the inexact energy decrease on the dual, e = -U (X - X*(R)); AM-GM",
        families=FAMILIES,
        conclusion=round_decrease,
        assumptions=agents_slack,
        sizes={**SIZES, "local_steps": st.sampled_from([1, 3, 50])},
        typical={**TYPICAL, "local_steps": 3},
        boundary={"condition number 1": corner},
        tolerance=TOLERANCE,
        tightness="tight",
        samples=2000,
        restarts=16,
        mutants={
            "no gossip in the dual step": {"mixing_scale": 0.0},
            "dual step of twice the size": {"dual_step_scale": 2.0},
        },
    ),
    Claim(
        name="dual_sgd/linear_rate",
        statement=(
            "eta = 1/L, K >= log(13 (kappa chi)^(3/4)) / -log(1 - 1/kappa): "
            "V_t <= max(V_0, mu q |X_0 - X*(R_0)|^2 / 21) (1 - q/4)^t"
        ),
        source="derived: round_decrease with the warm start a_t <= theta (a_{t-1} + |dX*|)",
        families={
            "quadratic": make_agents_family(
                objectives.draw_quadratic, largest_condition=6.0, at_start=True
            )
        },
        conclusion=linear_rate,
        assumptions=enough_local_steps,
        sizes={**SIZES, "local_steps": st.just(30), "rounds": st.sampled_from([4, 40])},
        typical={**TYPICAL, "local_steps": 30, "rounds": 200},
        tolerance=TOLERANCE,
        samples=300,
        restarts=8,
        mutants={
            "warm start forgotten": {"reset": 1.0},
            "momentum of a far worse problem": {"momentum_scale": 0.05},
        },
    ),
    Claim(
        name="dual_sgd/inexact_oracle",
        statement=("any X: -F(X) - <Z',X> <= D(Z') <= -F(X) - <Z',X> + L_D |Y'-Y|^2 + 2 gap(X, Z)"),
        source="derived: the Lagrangian is affine in Y; smoothness of D and AM-GM",
        families=FAMILIES,
        conclusion=oracle_bounds,
        assumptions=agents_slack,
        sizes=SIZES,
        typical=TYPICAL,
        boundary={"condition number 1": corner},
        tolerance=TOLERANCE,
        samples=2000,
        restarts=16,
        mutants={"1/L instead of 1/mu": {"use_mu": 0.0}},
    ),
    Claim(
        name="dual_sgd/primal_distance",
        statement="(mu/2) |X*(Z) - X°|^2 <= D(Z) - D* <= (L/2) |X*(Z) - X°|^2 for zero-sum Z",
        source="derived: strong convexity of F + <Z, .> at its minimiser; <Z, X°> = 0",
        families=FAMILIES,
        conclusion=primal_distance,
        assumptions=agents_slack,
        sizes=SIZES,
        typical=TYPICAL,
        tolerance=TOLERANCE,
        tightness="tight",
        samples=2000,
        restarts=16,
        mutants={"duals that do not sum to zero": {"mean_shift": 1.0}},
    ),
    Claim(
        name="dual_sgd/no_client_drift",
        statement="sum_m z_m = 0 is invariant, and (X°, z_m = -grad f_m(x*)) is a fixed point",
        source="derived: the columns of I - W sum to zero",
        families=FAMILIES,
        conclusion=no_drift,
        assumptions=agents_slack,
        sizes={**SIZES, "local_steps": st.sampled_from([1, 5])},
        typical={**TYPICAL, "local_steps": 5},
        tolerance=TOLERANCE,
        samples=2000,
        restarts=8,
        mutants={
            "row-stochastic asymmetric gossip": {"asymmetry": 0.1},
            "sign of the dual in local steps": {"shift_sign": -1.0},
        },
    ),
    *RATES.CLAIMS,
)

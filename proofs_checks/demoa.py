"""Claims on DeMoA's rounds: what is aggregated, how far it is off, and where that leads.

Claims on the momenta stand in ``demoa_momenta.py``, on robust means in ``demoa_robustness.py``, on
convergence to a common minimiser in ``demoa_interpolation.py``.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from hypothesis import strategies as st
from jaxtyping import Array, Bool, Float, Int

from jaxlab.claims import Claim, Comparison, ExactCase, at_most, at_most_in_ratio, close_to
from jaxlab.core import run
from jaxlab.core.iterate import step_key
from jaxlab.core.locate import load_companion
from jaxlab.optim import byzantine_aggregators as rules
from jaxlab.optim import byzantine_attacks as attacks
from jaxlab.optim import byzantine_selection as selection
from jaxlab.optim import demoa as dm
from jaxlab.optim.byzantine_theory import Rule, robustness_coefficient
from jaxlab.problems import objectives
from jaxlab.problems.consensus import stack_agents
from jaxlab.problems.federation import Federation
from jaxlab.problems.sites import log_uniform, normals, site, uniform

Over = Literal["cache", "sampled"]
TINY = 1e-300
MEDIAN = dm.without_history(rules.coordinate_median)


class Server(NamedTuple):
    """Quadratics or logistic losses with shifted minimisers, hyper-parameters, a lie and a seed."""

    objectives: Any
    centers: Float[Array, "clients dim"]
    start: Float[Array, " dim"]
    participation: Float[Array, ""]
    momentum: Float[Array, ""]
    share: Float[Array, ""]
    far: Float[Array, ""]
    seed: Int[Array, ""]


def server_family(draw: Callable[..., objectives.Objective]) -> Callable[..., Server]:
    """A NumPyro model of servers whose clients have losses from one family."""

    def model(clients: int, dim: int) -> Server:
        mu, kappa = log_uniform("mu", 0.1, 10.0), log_uniform("kappa", 1.0, 50.0)
        losses = [draw(f"f{i}", dim, mu, mu * kappa) for i in range(clients)]
        centers, start = normals("points", (clients, dim), (dim,))
        numbers = uniform("numbers", 0.05, 0.95, 3)
        seed = site("seed", dist.DiscreteUniform(0, 1_000_000))
        far = log_uniform("far", 1.0, 1e6)
        participation, momentum, share = numbers
        losses = stack_agents(*losses)
        return Server(losses, centers, start, participation, momentum, share, far, seed)

    return model


QUADRATIC = {"quadratic": server_family(objectives.draw_quadratic)}
FAMILIES = {**QUADRATIC, "logistic": server_family(objectives.draw_logistic)}
"""What is about the path alone needs one family; what is about the losses needs both."""


def value(instance: Server, x: Array) -> Array:
    """The loss of every client at one point."""
    return jax.vmap(lambda f, c: f.value(x - c))(instance.objectives, instance.centers)


def every_gradient(instance: Server, x: Array) -> Array:
    """The gradient of every client at one point."""
    return jax.vmap(lambda f, c: f.gradient(x - c))(instance.objectives, instance.centers)


def gradient(params: Array, data: Any, key: Array) -> Array:
    """Of one client, without noise."""
    del key
    objective, center = data
    return objective.gradient(params - center)


def federation(instance: Server, byzantine: Bool[Array, " clients"]) -> Federation:
    """The problem with these liars."""
    return Federation(gradient, (instance.objectives, instance.centers), instance.start, byzantine)


def liars_of(instance: Server, byzantine: int) -> Array:
    """The first clients lie."""
    return jnp.arange(len(instance.centers)) < byzantine


def legal_server(instance: Server) -> Array:
    """Weights in (0, 1), and curvatures as they are stated."""
    numbers = jnp.stack([instance.participation, instance.momentum, instance.share])
    points = instance.start[None] - instance.centers[:2]
    curvature = jax.vmap(lambda f: objectives.curvature_slack(f, *points))(instance.objectives)
    return jnp.minimum(jnp.minimum(numbers.min(), 1 - numbers.max()), curvature.min())


def hyper_of(instance: Server, step_size: Any) -> dm.DeMoAHyper:
    """With this step."""
    return dm.DeMoAHyper(instance.participation, instance.momentum, jnp.asarray(step_size))


def full_participation(instance: Server, *, rounds: int, average: float = 0.0) -> Comparison:
    """D2: with p = 1 the path is that of momentum SGD under a robust mean, written apart."""
    clients, dim = instance.centers.shape
    liars, alpha = liars_of(instance, 2), instance.momentum
    step_size = instance.share / instance.objectives.smoothness.mean()

    def attack(vectors: Array, byzantine: Array, key: Array) -> Array:
        return attacks.far_away(vectors, byzantine, scale=instance.far)

    hyper = hyper_of(instance, step_size)._replace(participation=jnp.ones(()))
    method = dm.demoa(MEDIAN, attack=attack)
    key = jax.random.key(instance.seed)
    done = run(method, federation(instance, liars), hyper, key, num_steps=rounds)
    lie = jnp.zeros((2, dim)).at[:, 0].set(instance.far)

    def one_round(carry: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
        m, x = carry
        m = ((1 - alpha) * m + alpha * every_gradient(instance, x)).at[:2].set(lie)
        found = (1 - average) * jnp.median(m, axis=0) + average * m[2:].mean(axis=0)
        return (m, x - step_size * found), None

    first = jnp.zeros((clients, dim)), instance.start
    (_, x), _ = jax.lax.scan(one_round, first, length=rounds)
    scale = jnp.abs(instance.start).max() + jnp.abs(x).max()
    return close_to(done.state.params, x, allowance=1e-11, scale=scale)


def latest_gradients(instance: Server, *, rounds: int, over: Over = "cache") -> Comparison:
    """D2: without momentum and with the mean it averages every client's latest gradient."""
    clients, dim = instance.centers.shape
    honest = jnp.zeros(clients, dtype=bool)
    step_size = instance.share / instance.objectives.smoothness.mean()
    hyper = hyper_of(instance, step_size)._replace(momentum=jnp.ones(()))
    method = dm.demoa(dm.without_history(rules.mean), over=over)
    key = jax.random.key(instance.seed)
    done = run(method, federation(instance, honest), hyper, key, num_steps=rounds)

    def one_round(carry: tuple[Array, Array], t: Array) -> tuple[tuple[Array, Array], None]:
        latest, x = carry
        coins = jax.random.split(step_key(key, t), 4)[0]
        heard = dm.sample_clients(coins, instance.participation, num_clients=clients)
        latest = jnp.where(heard[:, None], every_gradient(instance, x), latest)
        return (latest, x - step_size * latest.sum(axis=0) / clients), None

    first = jnp.zeros((clients, dim)), instance.start
    (_, x), _ = jax.lax.scan(one_round, first, jnp.arange(rounds))
    scale = jnp.abs(instance.start).max() + jnp.abs(x).max()
    return close_to(done.state.params, x, allowance=1e-11, scale=scale)


def aggregates(byzantine: int, mean: bool) -> dict[Rule, Callable[..., Array]]:
    """The rules of known robustness."""
    if mean:
        return {"coordinate_median": rules.mean}
    return {
        "coordinate_median": rules.coordinate_median,
        "geometric_median": lambda v, m: rules.geometric_median(
            v, m, num_iters=100, smoothing=1e-12
        ),
        "trimmed_mean": lambda v, m: rules.trimmed_mean(v, m, num_byzantine=byzantine),
        "krum": lambda v, m: selection.krum(v, m, num_byzantine=byzantine),
    }


def transfer(
    instance: Server, *, rounds: int, over: Over = "cache", fewer: int = 0, mean: bool = False
) -> Comparison:
    """D8: after every round the aggregate is robust to the liars of the population."""
    byzantine, clients = 2, len(instance.centers)
    liars = liars_of(instance, byzantine)

    def attack(vectors: Array, byzantine: Array, key: Array) -> Array:
        return attacks.far_away(vectors, byzantine, scale=instance.far)

    # One path under the median; the other rules are asked about the same caches.
    method = dm.demoa(MEDIAN, attack=attack, over=over)
    step_size = instance.share / instance.objectives.smoothness.mean()
    states = run(
        method, federation(instance, liars), hyper_of(instance, step_size),
        jax.random.key(instance.seed), num_steps=rounds, trace_fn=lambda state, info: state,
    ).trace  # fmt: skip
    comparisons = []
    for name, rule in aggregates(byzantine - fewer, mean).items():
        found = jax.vmap(lambda cache, rule=rule: rule(cache, None))(states.cache)
        if name == "coordinate_median" and not mean:
            found = states.direction
        honest = states.cache[:, byzantine:]
        center = honest.mean(axis=1)
        spread = jnp.sum((honest - center[:, None]) ** 2, axis=(1, 2)) / honest.shape[1]
        kappa = robustness_coefficient(name, num_clients=clients, num_byzantine=byzantine)
        size = jnp.sum(states.cache**2, axis=(1, 2))
        error = jnp.sum((found - center) ** 2, axis=1)
        comparisons.append(at_most_in_ratio(error, kappa * spread + 1e-20 * size + TINY))
    return Comparison(*(jnp.concatenate(parts) for parts in zip(*comparisons, strict=True)))


class Round(NamedTuple):
    """What honest clients hold, and how far the liars go."""

    honest: Float[Array, "honest dim"]
    far: Float[Array, ""]


def bad_round(honest: int, dim: int) -> Round:
    """A NumPyro model."""
    (vectors,) = normals("vectors", (honest, dim))
    return Round(vectors, log_uniform("far", 1.0, 1e6))


def breakdown(instance: Round, *, byzantine: int, over: Over = "sampled") -> Comparison:
    """D8: where most senders lie, both medians go where the liars want."""
    honest, dim = instance.honest.shape
    lies = jnp.zeros((byzantine, dim)).at[:, 0].set(instance.far)
    vectors = jnp.concatenate([lies, instance.honest])
    heard = jnp.arange(byzantine + honest) < 2 * byzantine - 1  # a strict majority of liars
    participants = heard if over == "sampled" else None
    found = [
        rules.coordinate_median(vectors, participants),
        rules.geometric_median(vectors, participants, num_iters=400, smoothing=1e-12),
    ]
    norms = jnp.stack([jnp.linalg.norm(vector) for vector in found])
    reach = instance.far - jnp.linalg.norm(instance.honest, axis=1).max()
    return at_most(reach, norms, scale=instance.far)


def descent(instance: Server, *, rounds: int, sign: float = 1.0, least: float = 0.0) -> Comparison:
    """D9 in every round, and the average over rounds; mutants ascend, or take the least ``L``."""
    liars = liars_of(instance, 2)
    honest = ~liars
    count = honest.sum()

    def attack(vectors: Array, byzantine: Array, key: Array) -> Array:
        return attacks.sign_flip(vectors, byzantine, scale=instance.far)

    each = instance.objectives.smoothness
    smoothness = (1 - least) * (honest @ each) / count
    step_size = 2 * instance.share / each.mean()
    hyper = hyper_of(instance, sign * step_size)
    states = run(
        dm.demoa(MEDIAN, attack=attack), federation(instance, liars), hyper,
        jax.random.key(instance.seed), num_steps=rounds, trace_fn=lambda state, info: state,
    ).trace  # fmt: skip
    path = jnp.concatenate([instance.start[None], states.params])
    values, slopes = jax.vmap(jax.value_and_grad(lambda x: honest @ value(instance, x) / count))(
        path
    )
    u, g = states.direction, slopes[:-1]
    u2, g2, off = (jnp.sum(v**2, axis=1) for v in (u, g, u - g))
    before, after = values[:-1], values[1:]
    gain = step_size / 2 * (g2 + (1 - smoothness * step_size) * u2 - off)
    size = jnp.abs(before) + jnp.abs(after) + step_size * (g2 + u2 + off) + TINY
    one = at_most(after, before - gain, scale=size)
    # Only steps up to 1/L promise a mean: the term with |u|^2 is dropped.
    short = smoothness * step_size <= 1
    total = 2 * (values[0] - values[-1]) / (step_size * rounds) + off.mean()
    scale = g2.mean() + off.mean() + jnp.abs(values).max() / step_size + TINY
    mean = at_most(jnp.where(short, g2.mean(), total - scale), total, scale=scale)
    return Comparison(*(jnp.append(a, b) for a, b in zip(one, mean, strict=True)))


def exact_descent(*, sign: float = 1.0, least: float = 0.0) -> list[ExactCase]:
    """D9 in symbols: the quadratic upper bound is the right side exactly."""
    from jaxlab.claims.exact import identity_case

    step, factor = f"({int(sign)})*h", f"({int(1 - least)})"
    bound = f"-{step}*(g*u + c*v) + L*h**2*(u**2 + v**2)/2"
    told = f"-h/2*(g**2 + c**2) - h/2*(1 - {factor}*L*h)*(u**2 + v**2) + h/2*((u-g)**2 + (v-c)**2)"
    return [identity_case(bound, told, parameters={"dim": 2})]


SHARED: dict[str, Any] = {
    "assumptions": legal_server,
    "sizes": {
        "clients": st.sampled_from([5, 7]),
        "dim": st.just(2),
        "rounds": st.just(6),
    },
    "typical": {"clients": 7, "dim": 2, "rounds": 6},
    "tolerance": 1e5,  # the losses' condition number, at most 50, and six rounds of rounding
    "samples": 500,
    "restarts": 8,
}
CLAIMS = (
    *load_companion("proofs_checks", "demoa_momenta").CLAIMS,
    *load_companion("proofs_checks", "demoa_robustness").CLAIMS,
    Claim(
        name="demoa/full_participation",
        statement="p = 1: the path is that of momentum SGD with a robust mean of all clients",
        source="derived: S_t is everybody",
        families=QUADRATIC,
        conclusion=full_participation,
        tightness="tight",
        rungs=("explore", "sample"),
        mutants={"the honest mean instead": {"average": 1.0}},
        **SHARED,
    ),
    Claim(
        name="demoa/latest_gradients",
        statement="alpha = 1 and the mean: x+ = x - (eta/n) times the sum of all latest gradients",
        source="derived: definitions; the method is then MIFA (Gu et al. 2021, arXiv:2106.04159)",
        families=QUADRATIC,
        conclusion=latest_gradients,
        tightness="tight",
        rungs=("explore", "sample"),
        mutants={"only those who were heard": {"over": "sampled"}},
        **SHARED,
    ),
    Claim(
        name="demoa/transfer",
        statement=(
            "every round, sample and attack: |u - mean_G m|^2 <= kappa (1/(n-B)) sum_G |m_i - "
            "mean_G m|^2, for both medians, trimmed mean and Krum with f = B"
        ),
        source="derived: (f, kappa)-robustness on all n cached vectors",
        families=QUADRATIC,
        conclusion=transfer,
        rungs=("explore", "sample"),
        mutants={
            "only the sample is aggregated": {"over": "sampled"},
            "f = B - 1": {"fewer": 1},
            "the mean": {"mean": True},
        },
        **SHARED,
    ),
    Claim(
        name="demoa/naive_breakdown",
        statement="most senders send A e_1: |u| >= A - max |m_i|, for both medians of the senders",
        source="derived: a strict majority at one point is the median of every coordinate",
        families={"bad round": bad_round},
        conclusion=breakdown,
        assumptions=lambda instance: instance.far - 1,
        sizes={
            "honest": st.sampled_from([4, 7]),
            "dim": st.sampled_from([1, 3]),
            "byzantine": st.sampled_from([2, 3]),
        },
        typical={"honest": 5, "dim": 2, "byzantine": 3},
        tolerance=1e5,
        tightness="order",
        samples=500,
        rungs=("explore", "sample"),
        mutants={"the cache is aggregated": {"over": "cache"}},
    ),
    Claim(
        name="demoa/descent",
        statement=(
            "f L-smooth: f(x+) <= f(x) - (eta/2) |grad f|^2 - (eta/2) (1 - L eta) |u|^2 + (eta/2) "
            "|u - grad f|^2; eta <= 1/L: mean |grad f|^2 <= 2 (f(x_0) - f(x_T))/(eta T) + mean "
            "|u - grad f|^2"
        ),
        source="derived: smoothness and polarisation; the sum telescopes",
        families=FAMILIES,
        conclusion=descent,
        exact=exact_descent,
        rungs=("explore", "sample", "exact"),
        mutants={"ascent": {"sign": -1.0}, "no L": {"least": 1.0}},
        **SHARED,
    ),
    *load_companion("proofs_checks", "demoa_interpolation").CLAIMS,
)

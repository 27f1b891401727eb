"""Claims on who is heard and on what the cache holds, by enumerating every possible history.

Coins of few clients over few rounds have few outcomes: expectations here are sums and have no
sampling error.
"""

import itertools
import math
from fractions import Fraction
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jaxtyping import Array, Float

from jaxlab.claims import Claim, Comparison, ExactCase, close_to
from jaxlab.optim import byzantine_theory as theory
from jaxlab.optim import demoa as dm
from jaxlab.problems.sites import normal, uniform


class Client(NamedTuple):
    """How one client is heard, what it holds, and how noisy it is."""

    participation: Float[Array, ""]
    momentum: Float[Array, ""]
    first: Float[Array, ""]
    gradient: Float[Array, ""]
    deviation: Float[Array, ""]


def client() -> Client:
    """A NumPyro model."""
    numbers = uniform("weights", 0.01, 1.0, 3)
    points = normal("points", 2)
    return Client(numbers[0], numbers[1], points[0], points[1], numbers[2])


def always() -> Client:
    """Heard in every round, with no memory."""
    one = jnp.ones(())
    return Client(one, one, 2 * one, -one, one)


def legal_client(instance: Client) -> Array:
    """Weights in (0, 1]."""
    weights = jnp.stack([instance.participation, instance.momentum])
    return jnp.minimum(weights.min(), 1 - weights.max())


def histories(rounds: int, outcomes: int) -> np.ndarray:
    """All sequences of outcomes, ``[histories, rounds]``."""
    return np.array(list(itertools.product(range(outcomes), repeat=rounds)), dtype=np.int32)


def momenta(instance: Client, history: Array, decay: Any, fresh_scale: Any) -> Array:
    """The last momentum; outcome 0 is not heard, 1 and 2 are gradients with noise of each sign."""
    alpha = instance.momentum
    scale = 1 + fresh_scale * (1 / instance.participation - 1)

    def one_round(cache: Array, outcome: Array) -> tuple[Array, None]:
        noise = jnp.where(outcome == 2, -1.0, 1.0) * instance.deviation
        fresh = (scale * (instance.gradient + noise)).reshape(1, 1)
        kept = dm.refresh_momentum(cache, fresh, (outcome > 0).reshape(1), alpha)
        return jnp.where(outcome > 0, kept, (1 - decay * alpha) * kept), None

    return jax.lax.scan(one_round, instance.first.reshape(1, 1), history)[0][0, 0]


def expected(instance: Client, rounds: int, decay: Any, fresh_scale: Any) -> tuple[Array, Array]:
    """Mean error and mean squared error of the momentum."""
    past = histories(rounds, 3)
    p = instance.participation
    chances = jnp.stack([1 - p, p / 2, p / 2])[past].prod(axis=1)
    ends = jax.vmap(lambda h: momenta(instance, h, decay, fresh_scale))(jnp.asarray(past))
    errors = ends - instance.gradient
    return chances @ errors, chances @ errors**2


def bias(
    instance: Client, *, rounds: int, decay: float = 0.0, every_round: float = 0.0
) -> Comparison:
    """D3; mutants let unheard clients forget, or take the rate of full participation."""
    found, _ = expected(instance, rounds, decay, 0.0)
    p = instance.participation + every_round * (1 - instance.participation)
    offset = instance.first - instance.gradient
    told = dm.momentum_bias(p, instance.momentum, rounds) * offset
    scale = jnp.abs(offset) + instance.deviation
    return close_to(found, told, allowance=1e-13, scale=scale)


def variance(
    instance: Client, *, rounds: int, fresh_scale: float = 0.0, decay: float = 0.0
) -> Comparison:
    """D4 at every round, not in the limit alone; a mutant reweights fresh gradients by ``1/p``."""
    _, found = expected(instance, rounds, decay, fresh_scale)
    offset, noise = instance.first - instance.gradient, instance.deviation**2
    told = dm.momentum_variance(
        instance.participation, instance.momentum, rounds, noise=noise, first=offset**2
    )
    return close_to(found, told, allowance=1e-13, scale=offset**2 + noise)


def exact_law(*, power: int, **variant: Any) -> list[ExactCase]:
    """D3 and D4 in symbols, history by history, for up to three rounds."""
    from jaxlab.claims.exact import identity_case

    decay, scale = (Fraction(variant.get(name, 0.0)) for name in ("decay", "fresh_scale"))
    cases = []
    for rounds in (1, 2, 3):
        terms = []
        for history in histories(rounds, 3):
            error, chance = "e", "1"
            for outcome in history:
                # Errors m - g; the noise is +s or -s, and g is the gradient.
                if outcome:
                    noise = f"({'-' if outcome == 2 else ''}s)"
                    fresh = f"((1 + ({scale})*(1/p - 1))*(g + {noise}) - g)"
                    error, chance = f"((1-a)*{error} + a*{fresh})", f"{chance}*p/2"
                else:
                    error, chance = f"((1-({decay})*a)*({error}+g) - g)", f"{chance}*(1-p)"
            terms.append(f"{chance}*({error})**{power}")
        if power == 1:
            p = "1" if variant.get("every_round") else "p"
            told = f"(1-{p}*a)**{rounds}*e"
        else:
            limit, rate = "(a*s**2/(2-a))", "(1-p*(1-(1-a)**2))"
            told = f"{limit} + (e**2-{limit})*{rate}**{rounds}"
        cases.append(identity_case(" + ".join(terms), told, parameters={"rounds": rounds}))
    return cases


def exact_bias(**variant: Any) -> list[ExactCase]:
    """D3."""
    return exact_law(power=1, **variant)


def exact_variance(**variant: Any) -> list[ExactCase]:
    """D4."""
    return exact_law(power=2, **variant)


def staleness(instance: Client, *, rounds: int, together: float = 0.0) -> Comparison:
    """D5, of the first of two clients; a mutant resets both when one is heard."""
    past = np.stack(np.divmod(histories(rounds, 4), 2), axis=-1) > 0
    p = instance.participation

    def last(history: Array) -> Array:
        def one_round(ages: Array, sampled: Array) -> tuple[Array, None]:
            reset = jnp.where(together > 0, sampled.any(), sampled)
            return dm.increase_ages(ages, reset), None

        return jax.lax.scan(one_round, jnp.zeros(2, dtype=jnp.int32), history)[0][0]

    ages = jax.vmap(last)(jnp.asarray(past))
    chances = jnp.where(past, p, 1 - p).prod(axis=(1, 2))
    found = jnp.zeros(rounds + 1).at[ages].add(chances)
    told = dm.staleness_pmf(jnp.arange(rounds + 1), p, rounds)
    return close_to(found, told, allowance=1e-13)


class Coin(NamedTuple):
    """The chance that a client is heard."""

    participation: Float[Array, ""]


def coin() -> Coin:
    """A NumPyro model."""
    return Coin(uniform("participation", 0.02, 0.98))


def majority(
    instance: Coin, *, clients: int, byzantine: int, strict: bool = True, fixed: bool = False
) -> Comparison:
    """D1 by all sets of heard clients; mutants count ties, or hear a fixed number of clients."""
    heard = histories(clients, 2) > 0
    p = instance.participation
    chances = jnp.where(heard, p, 1 - p).prod(axis=1)
    lies = heard[:, :byzantine].sum(axis=1) > heard[:, byzantine:].sum(axis=1)
    told = theory.byzantine_majority_probability(clients, byzantine, p, strict=strict)
    if fixed:
        size = jnp.round(p * clients)
        equal = heard.sum(axis=1) == size
        told = (equal & lies).sum() / equal.sum()
    return close_to(told, chances @ lies, allowance=1e-13)


def exact_majority(*, strict: bool = True, fixed: bool = False) -> list[ExactCase]:
    """D1 in fractions, for every minority of four and of seven clients and three chances."""
    cases = []
    for clients in (4, 7):
        heard = histories(clients, 2) > 0
        for byzantine in range((clients + 1) // 2):
            lies = heard[:, :byzantine].sum(axis=1) > heard[:, byzantine:].sum(axis=1)
            for p in (Fraction(1, 10), Fraction(1, 3), Fraction(9, 10)):
                counts = [math.comb(clients, k) for k in range(clients + 1)]
                size = round(p * clients)
                true, drawn = Fraction(0), Fraction(0)
                for chosen in heard[lies]:
                    k = int(chosen.sum())
                    true += p**k * (1 - p) ** (clients - k)
                    drawn += Fraction(int(k == size), counts[size])
                told = float(
                    drawn
                    if fixed
                    else theory.byzantine_majority_probability(
                        clients, byzantine, float(p), strict=strict
                    )
                )
                parameters = {"clients": clients, "byzantine": byzantine, "p": str(p)}
                off = abs(told - float(true))
                cases.append(ExactCase(parameters, off, 0.0, tolerance=1e-13))
    return cases


def heard_sometimes(instance: Coin) -> Array:
    """A chance strictly between 0 and 1."""
    return jnp.minimum(instance.participation, 1 - instance.participation)


ROUNDS: dict[str, Any] = {"rounds": st.sampled_from([1, 2, 4])}
CLAIMS = (
    Claim(
        name="demoa/majority_probability",
        statement=(
            "independent coins: P(more Byzantine than honest heard) = "
            "sum_(a<b) Bin(n-B,p)(a) Bin(B,p)(b)"
        ),
        source="derived: independence of the two binomials",
        families={"coin": coin},
        conclusion=majority,
        assumptions=heard_sometimes,
        sizes={"clients": st.sampled_from([5, 7]), "byzantine": st.sampled_from([1, 2])},
        typical={"clients": 7, "byzantine": 3},
        exact=exact_majority,
        tightness="tight",
        samples=200,
        rungs=("explore", "sample", "exact"),
        mutants={"ties counted": {"strict": False}, "a fixed number heard": {"fixed": True}},
    ),
    Claim(
        name="demoa/momentum_bias",
        statement="fixed x, honest i: E m_i^t - grad f_i = (1 - p alpha)^t (m_i^0 - grad f_i)",
        source="derived: the expectation over the coin of one round",
        families={"client": client},
        boundary={"always heard": always},
        conclusion=bias,
        assumptions=legal_client,
        sizes=ROUNDS,
        typical={"rounds": 4},
        exact=exact_bias,
        tightness="tight",
        samples=200,
        rungs=("explore", "sample", "exact"),
        mutants={
            "momenta decay unheard": {"decay": 1.0},
            "(1 - alpha)^t": {"every_round": 1.0},
        },
    ),
    Claim(
        name="demoa/momentum_variance",
        statement=(
            "fixed x, honest i: E |m_i^t - grad f_i|^2 - V = (1 - p (1 - (1-alpha)^2))^t "
            "(|m_i^0 - grad f_i|^2 - V), V = alpha sigma^2/(2 - alpha) whatever p is"
        ),
        source="derived: the second moment over coin and noise of one round",
        families={"client": client},
        boundary={"always heard": always},
        conclusion=variance,
        assumptions=legal_client,
        sizes=ROUNDS,
        typical={"rounds": 4},
        exact=exact_variance,
        tightness="tight",
        samples=200,
        rungs=("explore", "sample", "exact"),
        mutants={
            "fresh gradients over p": {"fresh_scale": 1.0},
            "momenta decay unheard": {"decay": 1.0},
        },
    ),
    Claim(
        name="demoa/staleness",
        statement="P(age = k) = p (1-p)^k for k < t, (1-p)^t for k = t",
        source="derived: the last head of t coins",
        families={"client": client},
        boundary={"always heard": always},
        conclusion=staleness,
        assumptions=legal_client,
        sizes=ROUNDS,
        typical={"rounds": 4},
        tightness="tight",
        samples=200,
        rungs=("explore", "sample"),
        mutants={"everybody's age is reset": {"together": 1.0}},
    ),
)

r"""Does robust averaging survive rounds in which most of the sampled clients lie?

A server that hears few clients per round meets Byzantine majorities sooner or later, and no robust
mean survives one. DeMoA keeps the last momentum of every client and aggregates all of them, so that
the share of liars is that of the population in every round. With :math:`S_t` the clients sampled in
round :math:`t`, each with probability :math:`p`,

.. math::

    m_i^t &= (1 - \alpha)\, m_i^{t-1} + \alpha\, g_i(x^t), \quad i \in S_t, \qquad
    m_i^t = m_i^{t-1} \quad \text{else} \\
    x^{t+1} &= x^t - \eta\, \mathrm{Agg}(m_1^t, \dots, m_n^t),

where liars in :math:`S_t` send what they like. What is cached is one vector per client, ``n d``
numbers on the server; a round sends ``p n d``. arXiv:2509.02970, reconstructed from its abstracts
(v1 calls the method D-Byz-SGDM).

At a fixed point :math:`x`, the mean and variance of an honest momentum are known exactly, and so is
its age; see ``momentum_bias``, ``momentum_variance`` and ``staleness_pmf`` [derived].
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int, PyTree

from jaxlab.core.checks import check_count, check_key, check_value
from jaxlab.core.types import Method, Scalar
from jaxlab.problems.federation import Federation

__all__ = [
    "Aggregate",
    "Attack",
    "DeMoAHyper",
    "DeMoAInfo",
    "DeMoAState",
    "demoa",
    "demoa_hyper",
    "increase_ages",
    "momentum_bias",
    "momentum_variance",
    "refresh_momentum",
    "sample_clients",
    "sample_clients_fixed",
    "staleness_pmf",
    "without_history",
]

Aggregate: TypeAlias = Callable[[Any, Any, Any, Any], Any]
"""``(vectors, participants, previous, key) -> vector``, with the last round's result."""

Attack: TypeAlias = Callable[[Any, Any, Any], Any]
"""``(vectors, byzantine, key) -> vectors``; the rows of Byzantine clients count."""


class DeMoAHyper(NamedTuple):
    """Hyper-parameters, from ``demoa_hyper``.

    Attributes:
        participation: The probability that a client is sampled in a round, in (0, 1].
        momentum: The weight of the fresh gradient, in (0, 1]; 1 is no momentum.
        step_size: Of the server.
    """

    participation: Float[Array, ""]
    momentum: Float[Array, ""]
    step_size: Float[Array, ""]


class DeMoAState(NamedTuple):
    """Attributes of the server.

    Attributes:
        params: Parameters, a pytree as ``Federation.start``.
        cache: The last momentum of every client.
        direction: The last aggregate.
        ages: Rounds since each client was sampled, or since the start.
    """

    params: PyTree
    cache: Float[Array, "clients dim"]
    direction: Float[Array, " dim"]
    ages: Int[Array, " clients"]


class DeMoAInfo(NamedTuple):
    """Diagnostics of a round; some need to know the liars, as only a simulation does.

    Attributes:
        num_sampled: Clients that the round heard.
        byzantine_sampled: Their share of liars; 0 if nobody was heard.
        byzantine_aggregated: The share of liars among the vectors that were aggregated.
        aggregation_error: The squared distance of the aggregate to the honest momenta's mean.
        honest_variance: The mean squared distance of honest momenta to their mean.
        mean_age: Of all clients' momenta, in rounds.
    """

    num_sampled: Float[Array, ""]
    byzantine_sampled: Float[Array, ""]
    byzantine_aggregated: Float[Array, ""]
    aggregation_error: Float[Array, ""]
    honest_variance: Float[Array, ""]
    mean_age: Float[Array, ""]


def demoa(
    aggregate: Aggregate,
    *,
    attack: Attack | None = None,
    over: Literal["cache", "sampled"] | Callable[[Any], Any] = "cache",
    start: Literal["zeros", "full_round"] = "zeros",
    attack_unsampled: bool = False,
) -> Method:
    """The method on ``Federation`` problems.

    Without an attack, liars follow the protocol: poison their data instead. With one they see all
    honest momenta of the round, sampled or not.

    Args:
        aggregate: ``(vectors, participants, previous, key) -> vector``; ``without_history`` makes
            one of a rule from ``byzantine_aggregators`` or ``byzantine_selection``.
        attack: ``(vectors, byzantine, key) -> vectors``, as in ``byzantine_attacks``.
        over: ``"cache"`` aggregates all cached momenta. ``"sampled"`` aggregates those of the
            round's sample, the combination that fails, for comparison; it stays where it is in a
            round that hears nobody. A function of the sample may name any other participants.
        start: What the cache holds at first. Zeros slow the first ``log(n) / p`` rounds down;
            ``"full_round"`` asks every client once, and liars then lie.
        attack_unsampled: Let liars rewrite the cache in every round, which is more than the
            threat model allows.

    Raises:
        ValueError: ``over`` or ``start`` is unknown.

    Example:
        >>> from jaxlab.core import run
        >>> from jaxlab.optim.byzantine_aggregators import coordinate_median
        >>> from jaxlab.optim.byzantine_attacks import sign_flip
        >>> from jaxlab.problems.consensus import full_gradient
        >>> from jaxlab.problems.federation import make_federation
        >>> def loss(x, target):
        ...     return 0.5 * jnp.sum((x - target) ** 2)
        >>> liars = jnp.arange(10) < 2
        >>> targets = jnp.ones((10, 3))
        >>> problem = make_federation(full_gradient(loss), targets, jnp.zeros(3), liars)
        >>> method = demoa(
        ...     without_history(coordinate_median), attack=lambda v, liars, key: sign_flip(v, liars)
        ... )
        >>> hyper = demoa_hyper(0.2, momentum=0.5, step_size=0.1)
        >>> done = run(method, problem, hyper, jax.random.key(0), num_steps=300)
        >>> bool(abs(done.state.params - 1).max() < 1e-3)
        True
    """
    if not callable(over) and over not in ("cache", "sampled"):
        raise ValueError(f"over must be 'cache', 'sampled' or a function, got {over!r}")
    if start not in ("zeros", "full_round"):
        raise ValueError(f"start must be 'zeros' or 'full_round', got {start!r}")

    def flat_gradients(problem: Federation, params: PyTree, key: Array) -> Array:
        gradients = problem.gradients(params, key)
        return jax.vmap(lambda one: ravel_pytree(one)[0])(gradients)

    def lie(vectors: Array, byzantine: Array, key: Array) -> Array:
        if attack is None:
            return vectors
        sent = attack(vectors, byzantine, key)
        if sent.shape != vectors.shape:
            raise ValueError(f"attack must return shape {vectors.shape}, got {sent.shape}")
        return jnp.where(byzantine[:, None], sent, vectors)

    def init(problem: Federation, hyper: DeMoAHyper, key: Array) -> DeMoAState:
        flat, _ = ravel_pytree(problem.start)
        cache = jnp.zeros((problem.num_clients, flat.size), dtype=flat.dtype)
        if start == "full_round":
            key_gradient, key_attack = jax.random.split(key)
            honest = flat_gradients(problem, problem.start, key_gradient)
            cache = lie(honest, problem.byzantine, key_attack)
        ages = jnp.zeros(problem.num_clients, dtype=jnp.int32)
        return DeMoAState(problem.start, cache, jnp.zeros_like(flat), ages)

    def step(
        problem: Federation, hyper: DeMoAHyper, state: DeMoAState, key: Array
    ) -> tuple[DeMoAState, DeMoAInfo]:
        key_sample, key_gradient, key_attack, key_aggregate = jax.random.split(key, 4)
        byzantine = problem.byzantine
        sampled = sample_clients(key_sample, hyper.participation, num_clients=problem.num_clients)
        fresh = flat_gradients(problem, state.params, key_gradient)
        honest = refresh_momentum(state.cache, fresh, sampled, hyper.momentum)
        written = jnp.ones_like(sampled) if attack_unsampled else sampled
        cache = jnp.where(written[:, None], lie(honest, byzantine, key_attack), honest)

        if callable(over):
            participants = over(sampled)
        else:
            participants = jnp.ones_like(sampled) if over == "cache" else sampled
        found = aggregate(cache, participants, state.direction, key_aggregate)
        if found.shape != state.direction.shape:
            raise ValueError(
                f"aggregate must return shape {state.direction.shape}, got {found.shape}"
            )
        direction = jnp.where(participants.any(), found, 0).astype(cache.dtype)
        flat, unravel = ravel_pytree(state.params)
        params = unravel(flat - hyper.step_size * direction)
        ages = increase_ages(state.ages, sampled)
        info = _info(cache, direction, byzantine, sampled, participants, ages)
        return DeMoAState(params, cache, direction, ages), info

    return Method(init, step)


def _info(
    cache: Array, direction: Array, byzantine: Array, sampled: Array, used: Array, ages: Array
) -> DeMoAInfo:
    honest = ~byzantine[:, None]
    center = jnp.where(honest, cache, 0).sum(axis=0) / honest.sum()
    spread = jnp.where(honest, (cache - center[None]) ** 2, 0).sum() / honest.sum()

    def share(mask: Array) -> Array:
        count = (mask & byzantine).sum() / jnp.maximum(mask.sum(), 1)
        return count.astype(cache.dtype)

    return DeMoAInfo(
        sampled.sum().astype(cache.dtype),
        share(sampled),
        share(used),
        jnp.sum((direction - center) ** 2),
        spread,
        ages.mean(dtype=cache.dtype),
    )


def demoa_hyper(
    participation: Scalar = 0.1, *, momentum: Scalar = 0.1, step_size: Scalar
) -> DeMoAHyper:
    """Check hyper-parameters; ``participation=1`` is Byzantine SGD with momentum.

    Args:
        participation: The probability that a client is sampled, in (0, 1].
        momentum: The weight of the fresh gradient, in (0, 1].
        step_size: Of the server, positive; ``1 / L`` at most for the descent of ``demoa/descent``.

    Raises:
        ValueError: Something is out of range.

    Example:
        >>> float(demoa_hyper(0.25, step_size=0.5).participation)
        0.25
    """
    for name, value in (("participation", participation), ("momentum", momentum)):
        check_value(name, value, lambda v: (v > 0) & (v <= 1), "in (0, 1]")
    check_value("step_size", step_size, lambda s: s > 0, "positive")
    return DeMoAHyper(*(jnp.asarray(v, dtype=float) for v in (participation, momentum, step_size)))


def without_history(rule: Callable[..., Any]) -> Aggregate:
    """A rule of ``(vectors, participants)`` as an ``Aggregate`` without memory and chance.

    Example:
        >>> from jaxlab.optim.byzantine_aggregators import mean
        >>> vectors, everyone = jnp.array([[1.0], [3.0]]), jnp.array([True, True])
        >>> without_history(mean)(vectors, everyone, None, None).tolist()
        [2.0]
    """
    return lambda vectors, participants, previous, key: rule(vectors, participants)


def sample_clients(
    key: Array, participation: Scalar, *, num_clients: int
) -> Bool[Array, " clients"]:
    """A coin for every client.

    Args:
        key: A typed key.
        participation: The probability of heads, in [0, 1].
        num_clients: How many.

    Raises:
        TypeError: ``key`` is not a typed key.
        ValueError: ``participation`` is not in [0, 1], or ``num_clients`` is less than 1.

    Example:
        >>> sample_clients(jax.random.key(0), 1.0, num_clients=3).tolist()
        [True, True, True]
    """
    check_key("key", key)
    check_count("num_clients", num_clients)
    check_value("participation", participation, lambda p: (p >= 0) & (p <= 1), "in [0, 1]")
    return jax.random.bernoulli(key, participation, (num_clients,))


def sample_clients_fixed(
    key: Array, *, num_clients: int, num_sampled: int
) -> Bool[Array, " clients"]:
    """Exactly ``num_sampled`` clients, every set of them equally likely.

    Raises:
        TypeError: ``key`` is not a typed key.
        ValueError: ``num_sampled`` is not between 0 and ``num_clients``.

    Example:
        >>> int(sample_clients_fixed(jax.random.key(0), num_clients=9, num_sampled=4).sum())
        4
    """
    check_key("key", key)
    check_count("num_clients", num_clients)
    check_count("num_sampled", num_sampled, least=0)
    if num_sampled > num_clients:
        raise ValueError(
            f"num_sampled must be at most num_clients = {num_clients}, got {num_sampled}"
        )
    return jax.random.permutation(key, num_clients) < num_sampled


def refresh_momentum(
    cache: Float[Array, "clients dim"],
    fresh: Float[Array, "clients dim"],
    sampled: Bool[Array, " clients"],
    momentum: Scalar,
) -> Float[Array, "clients dim"]:
    """Mix fresh gradients into the momenta of sampled clients; the others keep theirs.

    Example:
        >>> cache, fresh = jnp.ones((2, 1)), jnp.full((2, 1), 3.0)
        >>> refresh_momentum(cache, fresh, jnp.array([True, False]), 0.5).tolist()
        [[2.0], [1.0]]
    """
    mixed = (1 - momentum) * cache + momentum * fresh
    return jnp.where(sampled[:, None], mixed, cache).astype(cache.dtype)


def increase_ages(
    ages: Int[Array, " clients"], sampled: Bool[Array, " clients"]
) -> Int[Array, " clients"]:
    """One round more for every client, and 0 for those that were sampled.

    Example:
        >>> increase_ages(jnp.array([4, 4]), jnp.array([True, False])).tolist()
        [0, 5]
    """
    return jnp.where(sampled, 0, ages + 1).astype(ages.dtype)


def momentum_bias(participation: Scalar, momentum: Scalar, rounds: Scalar) -> Float[Array, ""]:
    r"""What is left of a momentum's first error in expectation: :math:`(1 - p\alpha)^t` [derived].

    Example:
        >>> round(float(momentum_bias(0.1, 0.1, 100)), 4)
        0.366
    """
    return (1 - jnp.asarray(participation, dtype=float) * momentum) ** rounds


def momentum_variance(
    participation: Scalar,
    momentum: Scalar,
    rounds: Scalar,
    *,
    noise: Scalar,
    first: Scalar = 0.0,
) -> Float[Array, ""]:
    r"""``E |m - grad|^2`` of an honest client after some rounds at a fixed point [derived].

    Its limit :math:`\alpha\sigma^2 / (2 - \alpha)` does not depend on the participation, which only
    sets the rate :math:`1 - p(1 - (1 - \alpha)^2)`.

    Args:
        participation: ``p``.
        momentum: ``alpha``, the weight of the fresh gradient.
        rounds: ``t``; infinity gives the limit.
        noise: ``sigma^2``, the variance of a stochastic gradient.
        first: The squared error at the start.

    Example:
        >>> round(float(momentum_variance(0.1, 0.2, jnp.inf, noise=1.0)), 4)
        0.1111
    """
    alpha = jnp.asarray(momentum, dtype=float)
    limit = alpha * noise / (2 - alpha)
    rate = 1 - participation * (1 - (1 - alpha) ** 2)
    return limit + (first - limit) * rate**rounds


def staleness_pmf(
    age: Int[Array, "*shape"], participation: Scalar, rounds: Scalar
) -> Float[Array, "*shape"]:
    r"""The probability of a momentum's age after some rounds: geometric, cut off at the start.

    :math:`p (1 - p)^k` for :math:`k < t` and :math:`(1 - p)^t` for :math:`k = t` [derived].

    Example:
        >>> staleness_pmf(jnp.arange(3), 0.5, 2).tolist()
        [0.5, 0.25, 0.25]
    """
    p = jnp.asarray(participation, dtype=float)
    inside = jnp.where(age < rounds, p, jnp.where(age == rounds, 1.0, 0.0))
    return inside * (1 - p) ** age

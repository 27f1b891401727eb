r"""What robust means guarantee, and how often a round of few clients has a Byzantine majority.

A rule is :math:`(f, \kappa)`-robust if for any ``n`` vectors and every set :math:`S` of ``n - f``
of them the squared distance from its output to the mean of :math:`S` is at most :math:`\kappa`
times the variance of :math:`S` (Allouah et al. 2023, arXiv:2302.01772, Definition 2).
"""

import itertools
from typing import Literal, TypeAlias

import jax.numpy as jnp
import numpy as np
import scipy.special
from jax.scipy.special import xlog1py, xlogy
from jaxtyping import Array, Float

from jaxlab.core.checks import check_count, check_value
from jaxlab.core.types import Scalar

__all__ = [
    "MOST_CLIENTS",
    "Rule",
    "byzantine_majority_probability",
    "empirical_robustness",
    "robustness_coefficient",
    "rounds_until_majority",
]

MOST_CLIENTS = 14
"""Of ``empirical_robustness``, which looks at every set."""

Rule: TypeAlias = Literal["coordinate_median", "geometric_median", "krum", "trimmed_mean"]
"""The rules of known robustness."""


def robustness_coefficient(
    rule: Rule, *, num_clients: int, num_byzantine: int, mixed: bool = False
) -> float:
    r"""The :math:`\kappa` that a rule is proven to have.

    With :math:`r = 1 + f / (n - 2f)`: :math:`4 r^2` for the exact geometric median, and for the
    coordinates' median, which is a geometric median in one dimension [derived]; :math:`6 r f / (n -
    2f)` for the trimmed mean and :math:`6 r` for Krum; :math:`8 f (\kappa + 1) / (n - f)` after
    nearest-neighbour mixing (Allouah et al. 2023, Table 1 and Lemma 1).

    Args:
        rule: Which.
        num_clients: ``n``, with the Byzantine ones.
        num_byzantine: ``f``, fewer than half.
        mixed: Whether ``nearest_neighbour_mixing`` goes before.

    Raises:
        ValueError: The rule is unknown, or half of the clients or more are Byzantine.

    Example:
        >>> robustness_coefficient("krum", num_clients=10, num_byzantine=2)
        8.0
    """
    _check_minority(num_clients, num_byzantine)
    honest = num_clients - num_byzantine
    r = 1 + num_byzantine / (num_clients - 2 * num_byzantine)
    known = {
        "coordinate_median": 4 * r**2,
        "geometric_median": 4 * r**2,
        "krum": 6 * r,
        "trimmed_mean": 6 * r * num_byzantine / (num_clients - 2 * num_byzantine),
    }
    if rule not in known:
        raise ValueError(f"rule must be one of {', '.join(known)}, got {rule!r}")
    return 8 * num_byzantine / honest * (known[rule] + 1) if mixed else known[rule]


def empirical_robustness(
    vectors: Float[Array, "clients dim"], output: Float[Array, " dim"], *, num_byzantine: int
) -> Float[Array, ""]:
    r"""The least :math:`\kappa` for which ``output`` is as a robust rule's, over all sets.

    It is infinite if a set of equal vectors is missed, and 0 if every such set is met.

    Raises:
        ValueError: Half of the clients or more are Byzantine, or there are more than
            ``MOST_CLIENTS``.

    Example:
        >>> vectors = jnp.array([[0.0], [2.0], [10.0]])
        >>> float(empirical_robustness(vectors, jnp.array([2.0]), num_byzantine=1))
        1.0
    """
    clients = len(vectors)
    _check_minority(clients, num_byzantine)
    if clients > MOST_CLIENTS:
        raise ValueError(f"vectors must be of at most {MOST_CLIENTS} clients, got {clients}")
    sets = itertools.combinations(range(clients), clients - num_byzantine)
    chosen = vectors[jnp.asarray(np.array(list(sets)))]
    means = chosen.mean(axis=1)
    variance = jnp.sum((chosen - means[:, None]) ** 2, axis=(1, 2)) / (clients - num_byzantine)
    missed = jnp.sum((output[None] - means) ** 2, axis=1)
    ratio = missed / jnp.where(variance > 0, variance, 1)
    return jnp.where(variance > 0, ratio, jnp.where(missed > 0, jnp.inf, 0)).max()


def byzantine_majority_probability(
    num_clients: int, num_byzantine: int, participation: Scalar, *, strict: bool = True
) -> Float[Array, ""]:
    """The chance that a round's sample holds more Byzantine clients than honest ones.

    Every client takes part by a coin of its own [derived: two independent binomials].

    Args:
        num_clients: With the Byzantine ones.
        num_byzantine: Fewer than half.
        participation: The coin's probability, in [0, 1].
        strict: Whether a tie, such as an empty sample, does not count.

    Raises:
        ValueError: ``participation`` is not in [0, 1], or half of the clients or more are
            Byzantine.

    Example:
        >>> round(float(byzantine_majority_probability(20, 4, 0.1)), 4)
        0.082
    """
    _check_minority(num_clients, num_byzantine)
    check_value("participation", participation, lambda p: (p >= 0) & (p <= 1), "in [0, 1]")
    honest = num_clients - num_byzantine
    p = jnp.asarray(participation, dtype=float)
    of_honest, of_byzantine = _binomial(honest, p), _binomial(num_byzantine, p)
    liars, others = np.arange(num_byzantine + 1)[:, None], np.arange(honest + 1)[None]
    fewer = others < liars if strict else others <= liars
    return of_byzantine @ (fewer.astype(float) @ of_honest)


def rounds_until_majority(
    num_clients: int, num_byzantine: int, participation: Scalar, *, probability: Scalar = 0.5
) -> Float[Array, ""]:
    """Rounds after which a Byzantine majority has come up with at least this probability.

    Infinite without Byzantine clients.

    Raises:
        ValueError: ``probability`` is not in (0, 1), or as ``byzantine_majority_probability``.

    Example:
        >>> float(rounds_until_majority(100, 20, 0.1, probability=0.99))
        415.0
    """
    check_value("probability", probability, lambda q: (q > 0) & (q < 1), "in (0, 1)")
    each = byzantine_majority_probability(num_clients, num_byzantine, participation)
    return jnp.ceil(jnp.log1p(-jnp.asarray(probability, dtype=float)) / jnp.log1p(-each))


def _binomial(trials: int, p: Array) -> Array:
    """Probabilities of 0 to ``trials`` heads."""
    heads = np.arange(trials + 1)
    ways = -np.log(trials + 1) - scipy.special.betaln(heads + 1, trials - heads + 1)
    return jnp.exp(ways + xlogy(heads, p) + xlog1py(trials - heads, -p))


def _check_minority(num_clients: int, num_byzantine: int) -> None:
    check_count("num_clients", num_clients)
    check_count("num_byzantine", num_byzantine, least=0)
    if 2 * num_byzantine >= num_clients:
        raise ValueError(
            f"num_byzantine must be fewer than half of num_clients = {num_clients}, got "
            f"{num_byzantine}"
        )

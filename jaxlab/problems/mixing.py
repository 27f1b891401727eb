"""How agents exchange vectors: by a matrix on one device, or by Chebyshev-accelerated rounds.

``jaxlab.problems.devices`` adds the exchange between devices. An algorithm asks only for
``disagreement``, ``average`` and ``agent_ids``, so the choice is the user's.
"""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from jaxlab.core.checks import check_count
from jaxlab.core.trees import tree_combine
from jaxlab.problems.graphs import GossipSpectrum, check_gossip

__all__ = ["ChebyshevMixing", "DenseMixing", "Mixing", "chebyshev_spectrum"]


class Mixing(eqx.Module):
    """What an algorithm over agents may ask of the network. Leaves are ``[agents, ...]``."""

    num_exchanges: eqx.AbstractVar[int]

    @abc.abstractmethod
    def agent_ids(self) -> Int[Array, " agents"]:
        """The numbers of the agents held here."""

    @abc.abstractmethod
    def disagreement(self, values: PyTree) -> PyTree:
        """``(I - W) values``: what each agent differs from its neighbourhood by."""

    @abc.abstractmethod
    def average(self, values: PyTree) -> PyTree:
        """The mean over all agents, without the agents axis."""


class DenseMixing(Mixing):
    """All agents on one device, exchanging by one matrix product.

    Attributes:
        gossip: The gossip matrix ``W``, symmetric with unit row sums.
    """

    gossip: Float[Array, "agents agents"]
    num_exchanges: int = eqx.field(static=True, default=1)

    def __check_init__(self) -> None:
        check_gossip("gossip", self.gossip)

    def agent_ids(self) -> Int[Array, " agents"]:
        """All agents."""
        return jnp.arange(len(self.gossip))

    def disagreement(self, values: PyTree) -> PyTree:
        """``(I - W) values``."""

        def differ(leaf: Array) -> Array:
            return leaf - jnp.tensordot(self.gossip.astype(leaf.dtype), leaf, axes=1)

        return jax.tree.map(differ, values)

    def average(self, values: PyTree) -> PyTree:
        """The mean over the leading axis."""
        return jax.tree.map(lambda leaf: leaf.mean(axis=0), values)


class ChebyshevMixing(Mixing):
    """Several exchanges per round through the Chebyshev polynomial that flattens the spectrum.

    With ``floor(sqrt(condition))`` exchanges the polynomial's condition number is at most about 2.3
    on any graph (Scaman et al. 2017, arXiv:1702.08704, Algorithm 2). Tune step sizes to
    ``chebyshev_spectrum``, not to the graph's own.

    Attributes:
        mixing: A single exchange.
        spectrum: The spectrum of that exchange.
        num_exchanges: Exchanges per round.
    """

    mixing: DenseMixing
    spectrum: GossipSpectrum
    num_exchanges: int = eqx.field(static=True)

    def __check_init__(self) -> None:
        check_count("num_exchanges", self.num_exchanges)

    def agent_ids(self) -> Int[Array, " agents"]:
        """All agents."""
        return self.mixing.agent_ids()

    def average(self, values: PyTree) -> PyTree:
        """The mean over all agents."""
        return self.mixing.average(values)

    def disagreement(self, values: PyTree) -> PyTree:
        """``P(I - W) values`` for the polynomial ``P(s) = 1 - T(c2 (1 - c3 s)) / T(c2)``."""
        _, centre, scale = _chebyshev_constants(self.spectrum)

        def shrink(current: PyTree) -> PyTree:
            return tree_combine((1.0, -scale), current, self.mixing.disagreement(current))

        def exchange(carry: tuple, _: None) -> tuple:
            older, old, current_older, current = carry
            newer = 2 * centre * old - older
            following = tree_combine((2 * centre, -1.0), shrink(current), current_older)
            return (old, newer, current, following), None

        first = tree_combine((centre,), shrink(values))
        carry = (jnp.ones_like(centre), centre, values, first)
        (_, last, _, mixed), _ = jax.lax.scan(exchange, carry, length=self.num_exchanges - 1)
        return tree_combine((1.0, -1.0 / last), values, mixed)


def chebyshev_spectrum(spectrum: GossipSpectrum, num_exchanges: int) -> GossipSpectrum:
    """Bounds on the spectrum of ``num_exchanges`` Chebyshev exchanges.

    Example:
        >>> import jaxlab.problems.graphs as graphs
        >>> ring = graphs.gossip_spectrum(graphs.metropolis_weights(graphs.ring_graph(16)))
        >>> bool(ring.condition > 26), bool(chebyshev_spectrum(ring, 5).condition < 2.3)
        (True, True)
    """
    check_count("num_exchanges", num_exchanges)
    contraction, _, _ = _chebyshev_constants(spectrum)
    power = contraction**num_exchanges
    spread = 2 * power / (1 + power**2)
    return GossipSpectrum(1 + spread, 1 - spread, (1 + spread) / (1 - spread))


def _chebyshev_constants(spectrum: GossipSpectrum) -> tuple[Array, Array, Array]:
    inverse = 1 / spectrum.condition
    root = jnp.sqrt(inverse)
    # On the complete graph one exchange already averages exactly; the centre would be infinite.
    inverse = jnp.minimum(inverse, 1 - jnp.finfo(inverse.dtype).eps ** 0.5)
    centre = (1 + inverse) / (1 - inverse)
    return (1 - root) / (1 + root), centre, 2 / ((1 + inverse) * spectrum.largest)

"""From files and a model to margins and scores: everything that ``jaxlab order`` computes.

Gradients of all sources come first and go to disk. Then every source's products with the target's
gradient are multiplied with all gradients at once and dropped, so that memory does not grow with
the sources. Everything is done for two disjoint halves of the sequences as well.
"""

import dataclasses
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int
from scipy import stats

from jaxlab.core.files import UnreadableFileError
from jaxlab.core.progress import Track, untracked
from jaxlab.optim.lie_bracket import borda_order
from jaxlab.optim.lie_bracket_orders import hodge_residual, linear_ordering_cost
from jaxlab.order.model import Batch, Learner, batch_of, gradients, products
from jaxlab.order.sources import Drawn, Source
from jaxlab.order.store import Store, inner_products

__all__ = [
    "Noise",
    "Settings",
    "Study",
    "Target",
    "batch_at",
    "describe",
    "study",
    "target_batches",
]


@dataclasses.dataclass(frozen=True)
class Settings:
    """What decides the numbers, besides the files."""

    model: str = "smollm2-135m-instruct"
    """A name or a path as for jaxlab.models.load, or small, a byte-level model that is trained on
    the spot and needs no weights."""
    layers: int = 1
    """How many of the last blocks learn; embeddings and head stay."""
    tokens: int = 64
    """The length of a sequence."""
    sequences: int = 8
    """How many sequences of each source are looked at, an even number."""
    target_sequences: int = 64
    """The same of the target, which all scores depend on."""
    seed: int = 0
    """Of the choice of sequences."""
    field: str = "text"
    """The key of the text in a line of JSONL."""


class Target(NamedTuple):
    """The target's gradients.

    Attributes:
        halves: Of the halves of its sequences.
        whole: Of all of them together.
        shares: The halves' shares of the scored tokens.
    """

    halves: Float[np.ndarray, "2 size"]
    whole: Float[np.ndarray, " size"]
    shares: Float[np.ndarray, " 2"]


class Noise(NamedTuple):
    """Whether another sample would give the same order.

    Attributes:
        scores: By halves of all sequences, those of the target included.
        rank_correlation: Spearman's, between both; NaN where one half's are all equal.
        chance: Its standard deviation if the order were noise alone.
        same_sign: The share of pairs whose margins have one sign in both.
        target_cosine: Between the target's gradients of both halves.
    """

    scores: Float[np.ndarray, "2 sources"]
    rank_correlation: float
    chance: float
    same_sign: float
    target_cosine: float


class Study(NamedTuple):
    """All findings; sources are in the order of their names.

    Attributes:
        edges: ``sigma_ij``, what i before j costs the target over the squared step size, in nats.
        scores: Row sums of it.
        order: The schedule, first trained first.
        costs: Of the schedule and of its reverse, over the squared step size.
        cyclic_share: The part of ``edges`` that no scores explain.
        alignment: Cosines of the sources' gradients with the target's.
        norms: Of the sources' gradients.
        tokens: How many were scored of each source.
        noise: How far to trust the order.
        seconds: By kind of work, of earlier runs too.
        stored: How many gradients and products an earlier run had left.
    """

    edges: Float[np.ndarray, "sources sources"]
    scores: Float[np.ndarray, " sources"]
    order: Int[np.ndarray, " sources"]
    costs: tuple[float, float]
    cyclic_share: float
    alignment: Float[np.ndarray, " sources"]
    norms: Float[np.ndarray, " sources"]
    tokens: Int[np.ndarray, " sources"]
    noise: Noise
    seconds: dict[str, float]
    stored: tuple[int, int]


def target_batches(drawn: Drawn, sequences: int) -> list[Drawn]:
    """Parts of a target's sequences in the shape of a source's; the last one is padded."""
    half = sequences // 2
    count = -(-drawn.tokens.shape[1] // half)
    missing = ((0, 0), (0, count * half - drawn.tokens.shape[1]), (0, 0))
    padded = [np.pad(part, missing) for part in drawn]
    return [Drawn(*(part[:, i * half : (i + 1) * half] for part in padded)) for i in range(count)]


def study(
    sources: list[Source],
    drawn: dict[str, Drawn],
    target: list[Drawn],
    learner: Learner,
    store: Store,
    track: Track = untracked,
) -> Study:
    """Compute everything.

    Args:
        sources: Files; some may be the same.
        drawn: Their sequences by digest.
        target: The target's, as ``target_batches`` gives them.
        learner: The model.
        store: Where gradients and finished products are.
        track: Shows progress.

    Raises:
        ValueError: A gradient or a product is not finite.
    """
    digests = sorted(drawn)
    names = {source.digest: source.name for source in sources}
    # Every source's products are with the gradients of all, so that a finished run needs no more.
    shape = {"inner": np.zeros((3, len(digests))), "own": np.zeros(2)}
    finished = {digest: store.products(digest, shape) for digest in digests}
    missing = [digest for digest in digests if finished[digest] is None]
    kept = [digest for digest in digests if store.has_gradients(digest)] if missing else digests
    stored = (len(kept), len(digests) - len(missing))
    began = time.monotonic()
    goal = _target(learner, target, track)
    seconds = {"target": time.monotonic() - began, "gradients": 0.0, "products": 0.0}
    if missing:
        for digest in track([d for d in digests if d not in kept], "gradients"):
            _keep_gradients(learner, drawn[digest], digest, names[digest], store)
        seconds["gradients"] = sum(store.batch(digest)[1] for digest in digests)
        grads = [store.gradients(digest) for digest in digests]
        shares = np.stack([_shares(drawn[digest]) for digest in digests])
        for digest in track(missing, "Hessian products"):
            began = time.monotonic()
            batch = batch_at(learner, drawn[digest], digest, store)
            place = digests.index(digest)
            found = _reduced(learner, batch, goal, grads, shares, place, names[digest])
            store.save_products(digest, found, time.monotonic() - began)
            finished[digest] = store.products(digest, shape)
    seconds["products"] = sum(entry[1] for entry in finished.values() if entry)
    table = [entry[0] for entry in finished.values() if entry]
    where = [digests.index(source.digest) for source in sources]
    inner = np.stack([entry["inner"] for entry in table], axis=-1)[:, where][:, :, where]
    own = np.stack([entry["own"] for entry in table])[where]
    counts = np.array([drawn[source.digest].scored.sum() for source in sources])
    return _findings(inner, own, counts, goal, seconds, stored)


def batch_at(learner: Learner, drawn: Drawn, digest: str, store: Store) -> Batch:
    """A source's batch, from the disk if it is there."""
    try:
        return jax.tree.map(jnp.asarray, store.batch(digest)[0])
    except UnreadableFileError:
        return batch_of(learner, *drawn)


def _shares(drawn: Drawn) -> np.ndarray:
    return drawn.scored / drawn.scored.sum()


def _target(learner: Learner, batches: list[Drawn], track: Track) -> Target:
    total, counts = np.zeros((2, learner.size)), np.zeros(2)
    for drawn in track(batches, "target"):
        grads = np.asarray(gradients(learner, batch_of(learner, *drawn)))
        total += drawn.scored[:, None] * grads
        counts += drawn.scored
    halves = total / counts[:, None]
    shares = counts / counts.sum()
    return Target(_finite("the target", halves), shares @ halves, shares)


def _finite(name: str, array: np.ndarray) -> np.ndarray:
    if not np.isfinite(array).all():
        raise ValueError(f"derivatives of the loss of {name} must be finite, got NaN or infinity")
    return array


def _keep_gradients(learner: Learner, drawn: Drawn, digest: str, name: str, store: Store) -> None:
    began = time.monotonic()
    batch = batch_of(learner, *drawn)
    grads = _finite(name, np.asarray(gradients(learner, batch)))
    store.save_gradients(digest, jax.device_get(batch), grads, time.monotonic() - began)


def _reduced(
    learner: Learner,
    batch: Batch,
    goal: Target,
    grads: list[np.ndarray],
    shares: Float[np.ndarray, "sources 2"],
    place: int,
    name: str,
) -> dict[str, np.ndarray]:
    """``<g_i, v_j>`` of one j for all i: of all sequences, and of either half alone."""
    own_shares = shares[place]
    vectors = jnp.asarray(goal.halves, grads[0].dtype)
    found = _finite(name, np.asarray(products(learner, batch, vectors)))
    weights = np.outer(own_shares, goal.shares).astype(found.dtype)
    whole = np.tensordot(weights, found, axes=2)
    inner = inner_products(grads, np.stack([whole, found[0, 0], found[1, 1]]))
    own = own_shares @ np.asarray(grads[place], np.float64)
    return {
        "inner": np.stack([(shares * inner[:, :, 0]).sum(axis=1), inner[:, 0, 1], inner[:, 1, 2]]),
        "own": np.array([own @ goal.whole, own @ own]),
    }


def _findings(
    inner: Float[np.ndarray, "3 sources sources"],
    own: Float[np.ndarray, "sources 2"],
    counts: np.ndarray,
    goal: Target,
    seconds: dict[str, float],
    stored: tuple[int, int],
) -> Study:
    margins = inner - inner.swapaxes(1, 2)
    scores = margins.sum(axis=2)
    with jax.enable_x64(True):
        edges = jnp.asarray(margins[0])
        order = borda_order(jnp.asarray(scores[0]))
        costs = [float(linear_ordering_cost(edges, part)) for part in (order, order[::-1])]
        cyclic = float(hodge_residual(edges))
    norms = np.sqrt(own[:, 1])
    size = np.linalg.norm(goal.whole)
    alignment = own[:, 0] / np.where(norms > 0, norms * size, 1)
    return Study(
        margins[0],
        scores[0],
        np.asarray(order),
        (costs[0], costs[1]),
        cyclic,
        alignment,
        norms,
        counts,
        _noise(margins[1:], scores[1:], goal.halves),
        seconds,
        stored,
    )


def _noise(margins: np.ndarray, scores: np.ndarray, target: np.ndarray) -> Noise:
    count = scores.shape[1]
    above = np.triu_indices(count, 1)
    signs = np.sign(margins[:, above[0], above[1]])
    differ = (signs != 0).all(axis=0)  # equal sources have no margin
    ranks = stats.rankdata(scores, axis=1)
    constant = np.ptp(ranks, axis=1).min() == 0
    correlation = np.nan if constant else float(np.corrcoef(ranks)[0, 1])
    same = float((signs[0] == signs[1])[differ].mean()) if differ.any() else np.nan
    sizes = np.linalg.norm(target, axis=1).prod()
    cosine = float(target[0] @ target[1] / sizes) if sizes > 0 else np.nan
    return Noise(scores, correlation, (count - 1) ** -0.5, same, cosine)


def describe(
    settings: Settings, learner: Learner, target: Source, sources: list[Source]
) -> dict[str, Any]:
    """What decides the numbers, for the store."""
    named = dataclasses.asdict(settings)
    return {
        "settings": {name: value for name, value in named.items() if name != "model"},
        "model": {"name": settings.model, "digest": learner.digest},
        "target": target.digest,
        "sources": {source.name: source.digest for source in sources},
    }

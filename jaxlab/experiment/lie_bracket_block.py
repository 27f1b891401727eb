"""The last block of a language model as what ``lie_bracket`` trains: six languages, all pairs."""

import inspect
import itertools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxlab.core.trees import tree_combine, tree_dot
from jaxlab.data.languages import code_examples, module_sources
from jaxlab.experiment.lie_bracket_inputs import archive_at
from jaxlab.experiment.lie_bracket_report import BLOCK_STEPS
from jaxlab.experiment.measure import sweep
from jaxlab.experiment.metrics import Row
from jaxlab.experiment.session import Session
from jaxlab.models.llama import CausalLM, token_log_probs
from jaxlab.models.load import load
from jaxlab.optim import lie_bracket as lb
from jaxlab.optim.lie_bracket_orders import cosines

__all__ = ["BlockBatch", "BlockInputs", "block_inputs", "block_loss", "block_rows"]

SPOKEN = ("c", "haskell", "java", "php", "ruby", "rust", "lua", "perl", "go", "js")
SEQUENCES, TOKENS = 3, 48


class BlockBatch(NamedTuple):
    """Sequences before the last block. Attributes: hidden: states; tokens: ids."""

    hidden: Float[Array, "*batch time dim"]
    tokens: Int[Array, "*batch time"]


class BlockInputs(NamedTuple):
    """A language model whose last block is trained.

    Attributes:
        lm: Its functions.
        block: The last layer's parameters, with a leading axis of one.
        fixed: Norm and embeddings.
        sources: Batches, with a leading axis of languages.
        target: The target's batch.
    """

    lm: CausalLM
    block: Any
    fixed: Any
    sources: BlockBatch
    target: BlockBatch


def block_inputs(data: Path | None, *, languages: int = 6) -> BlockInputs:
    """SmolLM2 before its last block, on sequences of code; other layers run once, here.

    Raises:
        FileNotFoundError: The weights are missing; the message names the ways to get them.
    """
    lm, params, tokenizer = load("smollm2-135m-instruct")
    found = code_examples(archive_at(data))
    texts = dict(zip(found.names, found.texts, strict=True))
    chosen = [texts[name] for name in (*SPOKEN, *texts) if name in texts][:languages]
    chosen.append(module_sources((json.decoder, inspect)))
    need = SEQUENCES * TOKENS

    def ids(text: np.ndarray) -> np.ndarray:
        words = tokenizer.encode(bytes(text[:4000].astype(np.uint8)).decode(errors="replace"))
        return np.array(words[:need]).reshape(SEQUENCES, TOKENS)

    tokens = jnp.asarray(np.stack([ids(text) for text in chosen]))
    before = jax.jit(lambda p, t: lm.hidden_states(p, t)[-2])
    hidden = jnp.stack([before(params, t) for t in tokens])
    batches = BlockBatch(hidden, tokens)
    block = jax.tree.map(lambda leaf: leaf[-1:], params["layers"])
    fixed = {name: value for name, value in params.items() if name != "layers"}
    sources, target = (
        jax.tree.map(lambda leaf, at=at: leaf[at], batches) for at in (slice(languages), languages)
    )
    return BlockInputs(lm, block, fixed, sources, target)


def block_loss(lm: CausalLM, block: Any, fixed: Any, batch: BlockBatch) -> Float[Array, ""]:
    """Mean cross-entropy of next tokens, summed in float64 where it is on."""
    params = {**fixed, "layers": block}
    logits = lm.unembed(params, lm.layer(params, 0, batch.hidden))[..., :-1, :]
    losses = -token_log_probs(logits, batch.tokens[..., 1:])
    wide = jnp.promote_types(logits.dtype, jnp.asarray(0.0).dtype)
    return jnp.mean(losses.astype(wide))


@jax.tree_util.register_static
@dataclass(frozen=True)
class Static:
    """A hashable object as a tree without leaves."""

    value: Any


def block_gaps(context: Any, pair: jax.Array) -> jax.Array:
    """Measured gaps of two languages at every step size; first steps are known already."""
    (lm, block, fixed, sources, target, grads) = context

    def loss(p: Any, batch: Any) -> jax.Array:
        return block_loss(lm.value, p, fixed, batch)

    def end(order: jax.Array, size: jax.Array) -> jax.Array:
        one = jax.tree.map(lambda p, g: p - size.astype(p.dtype) * g[order[0]], block, grads)
        grad = jax.grad(loss)(one, jax.tree.map(lambda leaf: leaf[order[1]], sources))
        return loss(tree_combine((1, -size.astype(jnp.float32)), one, grad), target)

    sizes = jnp.array(BLOCK_STEPS)
    return jax.lax.map(lambda size: end(pair, size) - end(pair[::-1], size), sizes)


def block_rows(session: Session, inputs: BlockInputs, seed: int) -> list[Row]:
    """All pairs of languages for the last block of a language model."""
    lm, block, fixed, sources, target = inputs

    def scores(block: Any, fixed: Any, sources: Any, target: Any) -> Any:
        return lb.tournament(lambda p, b: block_loss(lm, p, fixed, b), block, sources, target)

    with session.timed("block tournament"):
        table = jax.jit(scores)(block, fixed, sources, target)
        edges = np.asarray(lb.edge_matrix(table))
        norms = np.asarray(jax.vmap(tree_dot)(table.grads, table.grads))
        along = np.asarray(cosines(table.grads, table.target_grad))
    pairs = np.array(list(itertools.combinations(range(len(norms)), 2)))
    context = (Static(lm), block, fixed, sources, target, table.grads)
    done = session.run(
        "block pairs", sweep(block_gaps), (context, jnp.asarray(pairs)), (), jax.random.key(0),
        num_steps=len(pairs), chunk_size=5,
    )  # fmt: skip
    rows = []
    for i, ((a, b), gaps) in enumerate(zip(pairs, np.asarray(done.trace), strict=True)):
        rows.append(Row("block", "score", float(edges[a, b]), step=i, seed=seed))
        firsts = {"gradient norm": norms[b] - norms[a], "recency alignment": along[a] - along[b]}
        rows += [
            Row("block", name, float(value), step=i, seed=seed) for name, value in firsts.items()
        ]
        rows += [
            Row("block", "gap", float(gap), step=i, seed=seed, dataset=f"{size:g}")
            for size, gap in zip(BLOCK_STEPS, gaps, strict=True)
        ]
    return rows

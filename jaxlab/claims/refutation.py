"""A counterexample as a file, and its replay outside JAX."""

import importlib.metadata
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlab.claims.claim import Claim
from jaxlab.claims.conclusions import Comparison, Expectation, Probability
from jaxlab.claims.evaluate import Evaluation, evaluate, precise, sides
from jaxlab.claims.families import accepted, draw
from jaxlab.claims.outside import evaluate_outside
from jaxlab.claims.search import tolerance_of
from jaxlab.claims.verdict import Candidate
from jaxlab.core.files import load_leaves, read_header, save_leaves, write_json

__all__ = ["Recheck", "Replay", "origin_of", "recheck", "replay", "write_refutation"]


class Recheck(NamedTuple):
    """A candidate's second opinion.

    Attributes:
        confirmed: Whether the violation stands.
        margin: Outside JAX.
        slack: Of the assumptions, outside JAX.
        reason: Why it does not stand.
    """

    confirmed: bool
    margin: float
    slack: float
    reason: str = ""


class Replay(NamedTuple):
    """A refutation recomputed from its file.

    Attributes:
        left: The left side where the margin is least.
        right: The right side there.
        recheck: The verdict outside JAX.
        header: What the file says of itself.
        claim: The theorem.
        candidate: The instance, and how it was found.
        variant: The mutant's keyword arguments.
    """

    left: float
    right: float
    recheck: Recheck
    header: Mapping[str, Any]
    claim: Claim
    candidate: Candidate
    variant: Mapping[str, Any]


def recheck(claim: Claim, candidate: Candidate, variant: Mapping[str, Any]) -> Recheck:
    """Recompute a violation outside JAX, its assumptions more strictly than the violation.

    A stochastic claim is drawn anew with a fresh key.
    """
    key = jax.random.fold_in(candidate.key, 1) if claim.stochastic else candidate.key

    def judge(instance: Any, key: Any) -> Evaluation:
        return evaluate(claim, instance, key, claim.error, candidate.sizes, variant)

    seen = evaluate_outside(judge, candidate.instance, key)
    margin, slack = float(seen.margin), float(seen.slack)
    tolerance = tolerance_of(claim)
    if not margin < -tolerance:
        reason = f"margin {candidate.margin:.3g} in JAX, {margin:.3g} outside it"
        return Recheck(False, margin, slack, reason)
    if not slack >= -min(tolerance, abs(margin) / 100):
        reason = f"the assumptions hold only to {slack:.3g} for a violation of {margin:.3g}"
        return Recheck(False, margin, slack, reason)
    return Recheck(True, margin, slack)


def write_refutation(
    folder: Path,
    claim: Claim,
    candidate: Candidate,
    rung: str,
    mutant: str | None,
    confirmed: Recheck,
    *,
    origin: str = "",
) -> Path:
    """Write the instance (npz) and a readable account of it (JSON); returns the npz file."""
    parts = [claim.name, mutant or "claim", rung, candidate.family]
    stem = "-".join(re.sub(r"[^A-Za-z0-9]+", "_", part) for part in parts)
    path = folder / f"{stem}.npz"
    header = {
        "claim": claim.name,
        "origin": origin,
        "statement": claim.statement,
        "mutant": mutant,
        "rung": rung,
        "family": candidate.family,
        "sizes": dict(candidate.sizes),
        "dtype": "float64",
        "margin": candidate.margin,
        "margin_outside_jax": confirmed.margin,
        "slack_of_assumptions": confirmed.slack,
        "versions": {
            name: importlib.metadata.version(name) for name in ("jax", "numpy", "numpyro", "scipy")
        },
        "replay": f"jaxlab replay {path}",
    }
    save_leaves(path, (candidate.instance, candidate.key), **header)
    named = {
        jax.tree_util.keystr(where): np.asarray(leaf).tolist()
        for where, leaf in jax.tree_util.tree_leaves_with_path(candidate.instance)
        if not jnp.issubdtype(getattr(leaf, "dtype", float), jax.dtypes.prng_key)
    }
    write_json(path.with_suffix(".json"), {**header, "instance": named})
    return path


def replay(path: Path, claims: Mapping[str, Claim]) -> Replay:
    """Recompute a refutation from its file alone.

    Args:
        path: The npz file that ``write_refutation`` wrote.
        claims: Claims by name, with the file's one among them.

    Raises:
        ValueError: The file is no refutation, or its claim, family or mutant is not known.
    """
    with precise():
        (instance, key), header = load_leaves(path, lambda header: _shape(path, header, claims))
        claim = claims[header["claim"]]
        variant = claim.mutants[header["mutant"]] if header["mutant"] else {}
        candidate = Candidate(header["family"], header["sizes"], instance, key, header["margin"])
        settings = {**header["sizes"], **variant}
        said = evaluate_outside(lambda i, k: sides(claim, i, k, settings), instance, key)
        left, right = _worst_sides(said)
        second = recheck(claim, candidate, variant)
        return Replay(left, right, second, header, claim, candidate, variant)


def origin_of(path: Path) -> str:
    """The paper or the file that defined a refutation's claim; empty if the file does not say.

    Raises:
        ValueError: It is no refutation.
    """
    return str(read_header(path).get("origin", ""))


def _shape(path: Path, header: Mapping[str, Any], claims: Mapping[str, Claim]) -> Any:
    for field in ("claim", "family", "mutant", "sizes", "margin"):
        if field not in header:
            raise ValueError(f"FILE must be a refutation, got {str(path)!r} without {field!r}")
    if header["claim"] not in claims:
        known = ", ".join(sorted(claims))
        raise ValueError(f"the claim of {path} must be one of {known}, got {header['claim']!r}")
    claim, family, sizes = claims[header["claim"]], header["family"], header["sizes"]
    if header["mutant"] is not None and header["mutant"] not in claim.mutants:
        known = ", ".join(sorted(claim.mutants))
        raise ValueError(f"the mutant of {path} must be one of {known}, got {header['mutant']!r}")
    key = jax.random.key(0)
    if family in claim.boundary:
        boundary = claim.boundary[family]
        return jax.eval_shape(lambda: boundary(**accepted(boundary, sizes))), key
    if family not in claim.families:
        known = ", ".join(sorted([*claim.families, *claim.boundary]))
        raise ValueError(f"the family of {path} must be one of {known}, got {family!r}")
    return jax.eval_shape(lambda key: draw(claim.families[family], key, sizes), key), key


def _worst_sides(said: Any) -> tuple[float, float]:
    if isinstance(said, Expectation):
        return float(np.mean(said.values)), float(said.bound)
    if isinstance(said, Probability):
        return float(np.mean(said.events)), float(said.bound)
    if isinstance(said, Comparison):
        left, right, margin = np.broadcast_arrays(said.left, said.right, said.margin)
        worst = int(np.argmin(margin))
        return float(left.ravel()[worst]), float(right.ravel()[worst])
    return float(-np.min(said)), 0.0

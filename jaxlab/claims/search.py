"""What the searchers share: how hard they try, and what they count."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array

from jaxlab.claims.claim import Claim
from jaxlab.claims.evaluate import Batch, Evaluation
from jaxlab.claims.verdict import Candidate

__all__ = ["Effort", "Findings", "Tally", "at_most_allowed", "tolerance_of"]


_ENOUGH = 20
"""So many equal margins in a row are no accident."""


class Effort(NamedTuple):
    """How hard to try.

    Attributes:
        examples: Hypothesis examples of ``explore``.
        samples: Instances per family of ``sample``.
        restarts: Descents per family of ``attack``.
        steps: Steps of each descent.
        shrink: Whether Hypothesis makes its counterexample small.
        methods: What ``attack`` descends with, in this order until one finds a violation:
            ``"adam"``, ``"lbfgs"`` from the best points so far, ``"evolution"``, which needs no
            gradient. Evolution also steps in unasked where gradients turn out to be useless.
    """

    examples: int = 30
    samples: int = 10_000
    restarts: int = 64
    steps: int = 300
    shrink: bool = True
    methods: tuple[str, ...] = ("adam", "lbfgs", "evolution")


class Findings(NamedTuple):
    """What a searcher saw.

    Attributes:
        num_instances: How many were tried.
        least: The least estimated margin by family.
        candidate: The worst violation, if any.
        nan: A description of an instance whose margin is NaN, if any.
        vacuous: A description of an instance outside its assumptions, if any.
        constant: A description of a margin that never changes, if it does not.
        note: Anything a reader should know.
    """

    num_instances: int = 0
    least: Mapping[str, float] = {}
    candidate: Candidate | None = None
    nan: str = ""
    vacuous: str = ""
    constant: str = ""
    note: str = ""


def tolerance_of(claim: Claim) -> float:
    """How far below 0 a margin may be for rounding alone."""
    return claim.tolerance * float(np.finfo(np.float64).eps)


def at_most_allowed(wanted: int, limit: int | None) -> int:
    """An effort, capped where the claim says that its instances are expensive."""
    return wanted if limit is None else min(wanted, limit)


class Tally:
    """Counts, least margins and the first thing that went wrong."""

    def __init__(self, claim: Claim):
        self.claim, self.tolerance = claim, tolerance_of(claim)
        self.count, self.least = 0, {}
        self.candidate: Candidate | None = None
        self.nan = self.vacuous = ""
        self._looked, self._seen = 0, set()

    @property
    def stopped(self) -> bool:
        """Whether anything went wrong."""
        return bool(self.candidate or self.nan or self.vacuous)

    def absorb(self, example: "Tally") -> None:
        """Count an example; a bad one replaces an earlier one, since Hypothesis shrinks."""
        self.count += example.count
        for name, margin in example.least.items():
            self._lower(name, margin)
        if example.stopped:
            self.candidate = example.candidate
            self.nan, self.vacuous = example.nan, example.vacuous
        self._note_margins(example._looked, example._seen)

    def findings(self, note: str = "") -> Findings:
        """The result."""
        constant = ""
        if self._looked >= _ENOUGH and len(self._seen) == 1:
            constant = f"the margin is {next(iter(self._seen)):.6g} at all {self._looked} instances"
        return Findings(
            self.count, self.least, self.candidate, self.nan, self.vacuous, constant, note
        )

    def take(
        self, name: str, sizes: Mapping[str, Any], instance: Any, key: Array, seen: Any
    ) -> None:
        """Judge one evaluation. Everything is asked so that NaN fails."""
        self.count += 1
        margin, estimate, slack = (float(value) for value in seen)
        where = f"{name} at {dict(sizes)}" if sizes else name
        if not slack >= -self.tolerance:
            self.vacuous = self.vacuous or f"{where}: slack of the assumptions {slack:.3g}"
        elif math.isnan(margin):
            self.nan = self.nan or f"{where}: the margin is NaN"
        else:
            self._lower(name, estimate)
            self._note_margins(1, {margin})
            if not margin >= -self.tolerance and self._is_worst(margin):
                self.candidate = Candidate(name, dict(sizes), instance, key, margin)

    def take_batch(self, name: str, batch: Batch, seen: Evaluation) -> None:
        """Judge a batch; the first offender of each kind is looked at alone."""
        margin, estimate, slack = (np.asarray(value) for value in seen)
        self.count += len(margin)
        outside = ~(slack >= -self.tolerance)
        if outside.any():
            share = f"{int(outside.sum())} of {len(margin)} instances"
            worst = float(np.min(np.where(np.isnan(slack), -np.inf, slack)))
            self.vacuous = (
                f"{name}: {share} violate the assumptions, the least slack is {worst:.3g}"
            )
            return
        unknown = np.isnan(margin)
        if unknown.any():
            self.nan = f"{name}: {int(unknown.sum())} of {len(margin)} margins are NaN"
        if unknown.all():
            return
        known = np.where(unknown, np.inf, margin)
        self._lower(name, float(np.min(np.where(np.isnan(estimate), np.inf, estimate))))
        ends = {float(margin[0]), float(margin.min()), float(margin.max())}
        self._note_margins(len(margin), ends)
        worst = int(known.argmin())
        if not known[worst] >= -self.tolerance and self._is_worst(float(known[worst])):
            instance = jax.tree.map(lambda leaf: leaf[worst], batch.instances)
            self.candidate = Candidate(
                name, dict(self.claim.typical), instance, batch.keys[worst], float(known[worst])
            )

    def _note_margins(self, number: int, margins: set[float]) -> None:
        self._looked += number
        if len(self._seen) < 2:
            self._seen |= margins

    def _lower(self, name: str, margin: float) -> None:
        self.least = {**self.least, name: min(margin, self.least.get(name, math.inf))}

    def _is_worst(self, margin: float) -> bool:
        return self.candidate is None or margin < self.candidate.margin

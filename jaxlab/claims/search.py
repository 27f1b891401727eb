"""Three searchers for a violation: Hypothesis, random instances, and descent on the margin."""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from jaxlab.claims.claim import Claim
from jaxlab.claims.evaluate import Evaluation, Evaluator
from jaxlab.claims.families import accepted, from_unconstrained, is_model, unconstrained
from jaxlab.claims.verdict import Candidate

__all__ = ["Effort", "Findings", "attack", "explore", "sample", "tolerance_of"]


class Effort(NamedTuple):
    """How hard to try.

    Attributes:
        examples: Hypothesis examples of ``explore``.
        samples: Instances per family of ``sample``.
        restarts: Descents per family of ``attack``.
        steps: Adam steps of each descent.
        shrink: Whether Hypothesis makes its counterexample small.
    """

    examples: int = 30
    samples: int = 10_000
    restarts: int = 64
    steps: int = 300
    shrink: bool = True


class Findings(NamedTuple):
    """What a searcher saw.

    Attributes:
        num_instances: How many were tried.
        least: The least estimated margin by family.
        candidate: The worst violation, if any.
        nan: A description of an instance whose margin is NaN, if any.
        vacuous: A description of an instance outside its assumptions, if any.
        note: Anything a reader should know.
    """

    num_instances: int = 0
    least: Mapping[str, float] = {}
    candidate: Candidate | None = None
    nan: str = ""
    vacuous: str = ""
    note: str = ""


def tolerance_of(claim: Claim) -> float:
    """How far below 0 a margin may be for rounding alone."""
    return claim.tolerance * float(np.finfo(np.float64).eps)


# Compilation is slow and instances are large; neither says anything against the search.
_SLOW_IS_FINE = (
    hypothesis.HealthCheck.too_slow,
    hypothesis.HealthCheck.data_too_large,
    hypothesis.HealthCheck.large_base_example,
    hypothesis.HealthCheck.nested_given,
)


class _Stop(Exception):  # noqa: N818 - control flow for Hypothesis, not an error of the user's
    """An example that ends the search."""


def explore(
    claim: Claim, evaluator: Evaluator, variant: Mapping[str, Any], effort: Effort, seed: int
) -> Findings:
    """Let Hypothesis draw and shrink sizes and seeds, after every boundary instance was tried.

    Examples are computed outside JAX: many shapes are tried, and none is worth a compilation.
    """
    state = _Tally(claim)
    sources = {**claim.boundary, **claim.families}

    def look(name: str, sizes: Mapping[str, Any], instance_seed: int) -> None:
        key_instance, key_claim = jax.random.split(jax.random.key(instance_seed))
        family = sources[name]
        if name in claim.boundary:
            instance = family(**accepted(family, sizes))
        else:
            instance = evaluator.draw_outside(name, sizes, key_instance)
        error = claim.error / (effort.examples + len(sources))
        seen = evaluator.outside(instance, key_claim, error, sizes, variant)
        example = _Tally(claim)
        example.take(name, sizes, instance, key_claim, seen)
        state.absorb(example)
        if example.stopped:
            raise _Stop

    sizes_strategy = st.fixed_dictionaries(dict(claim.sizes))

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=effort.examples,
        deadline=None,
        database=None,
        print_blob=False,
        verbosity=hypothesis.Verbosity.quiet,
        suppress_health_check=_SLOW_IS_FINE,
        phases=[hypothesis.Phase.generate, *[hypothesis.Phase.shrink] * effort.shrink],
    )
    @hypothesis.given(st.sampled_from(sorted(sources)), sizes_strategy, st.integers(0, 2**16))
    def search(name: str, sizes: Mapping[str, Any], instance_seed: int) -> None:
        look(name, sizes, instance_seed)

    try:
        for name in claim.boundary:
            look(name, claim.typical, seed)
        search()
    except _Stop:
        pass
    return state.findings()


def sample(
    claim: Claim, evaluator: Evaluator, variant: Mapping[str, Any], effort: Effort, seed: int
) -> Findings:
    """Evaluate many random instances of each family in one compiled call."""
    state = _Tally(claim)
    num_samples = _at_most(effort.samples, claim.samples)
    error = claim.error / (num_samples * len(claim.families))
    for index, name in enumerate(claim.families):
        keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), index), num_samples)
        batch = _drawn(evaluator, name, keys)
        seen = _judged(evaluator, name, variant, error, batch)
        state.take_batch(name, batch, seen)
    return state.findings()


def attack(
    claim: Claim, evaluator: Evaluator, variant: Mapping[str, Any], effort: Effort, seed: int
) -> Findings:
    """Descend on the margin over the unconstrained space of each NumPyro family.

    Half of the restarts begin at the worst of as many random instances as ``sample`` draws, half
    anywhere. What is found is judged outside JAX, for a stochastic claim with a fresh key, since a
    descent with fixed keys fits their noise.
    """
    state = _Tally(claim)
    notes = []
    restarts = _at_most(effort.restarts, claim.restarts)
    models = [name for name, family in claim.families.items() if is_model(family)]
    for index, name in enumerate(models):
        root = jax.random.fold_in(jax.random.key(seed), 1000 + index)
        key_starts, key_fresh = jax.random.split(root)
        starts = _starts(claim, evaluator, name, variant, effort, restarts, key_starts)
        descend = _descent(claim, evaluator, name, variant, effort.steps)
        worst, margins = descend(starts, evaluator.numbers(variant))
        margins = np.asarray(margins)
        dead = int((~np.isfinite(margins)).sum())
        if dead:
            notes.append(f"{name}: {dead} of {restarts} restarts never saw a finite margin")
        if dead < restarts:
            best = int(np.nanargmin(np.where(np.isfinite(margins), margins, np.nan)))
            numbers = {site: values[best] for site, values in worst.items()}
            instance = evaluator.rebuild(name, numbers, starts[best])
            error = claim.error / len(models)
            seen = evaluator.outside(instance, key_fresh, error, claim.typical, variant)
            state.take(name, claim.typical, instance, key_fresh, seen)
        state.count += restarts * effort.steps
    if not models:
        notes.append("no NumPyro family to descend in")
    return state.findings("; ".join(notes))


class _Tally:
    """Counts, least margins and the first thing that went wrong."""

    def __init__(self, claim: Claim):
        self.claim, self.tolerance = claim, tolerance_of(claim)
        self.count, self.least = 0, {}
        self.candidate: Candidate | None = None
        self.nan = self.vacuous = ""

    @property
    def stopped(self) -> bool:
        return bool(self.candidate or self.nan or self.vacuous)

    def absorb(self, example: "_Tally") -> None:
        """Count an example; a bad one replaces an earlier one, since Hypothesis shrinks."""
        self.count += example.count
        for name, margin in example.least.items():
            self._lower(name, margin)
        if example.stopped:
            self.candidate = example.candidate
            self.nan, self.vacuous = example.nan, example.vacuous

    def findings(self, note: str = "") -> Findings:
        return Findings(self.count, self.least, self.candidate, self.nan, self.vacuous, note)

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
            if not margin >= -self.tolerance and self._is_worst(margin):
                self.candidate = Candidate(name, dict(sizes), instance, key, margin)

    def take_batch(self, name: str, batch: "_Batch", seen: Evaluation) -> None:
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
        worst = int(known.argmin())
        if not known[worst] >= -self.tolerance and self._is_worst(float(known[worst])):
            instance = jax.tree.map(lambda leaf: leaf[worst], batch.instances)
            self.candidate = Candidate(
                name, dict(self.claim.typical), instance, batch.keys[worst], float(known[worst])
            )

    def _lower(self, name: str, margin: float) -> None:
        self.least = {**self.least, name: min(margin, self.least.get(name, math.inf))}

    def _is_worst(self, margin: float) -> bool:
        return self.candidate is None or margin < self.candidate.margin


_PIECE = 500
"""Instances that are judged at once."""


class _Batch(NamedTuple):
    """Instances, the keys that drew them and the keys of their conclusions."""

    origins: Array
    instances: Any
    keys: Array


def _drawn(evaluator: Evaluator, name: str, keys: Array) -> _Batch:
    pairs = jax.vmap(jax.random.split)(keys)
    return _Batch(pairs[:, 0], evaluator.draw_batch(name, pairs[:, 0]), pairs[:, 1])


def _judged(
    evaluator: Evaluator, name: str, variant: Mapping[str, Any], error: float, batch: _Batch
) -> Evaluation:
    """Judge a batch in pieces of one size: one compilation, and memory for one piece.

    The pieces go one after the other from the host. ``lax.map`` with a remainder would put two
    loops into one program, which XLA runs side by side on CPU and, with LAPACK calls in both, can
    wait for itself forever.
    """

    def make(one: Callable[..., Evaluation]) -> Callable[..., Evaluation]:
        return jax.vmap(one, in_axes=(0, 0, None, None))

    program = evaluator.program(f"judge {name}", make, variant)
    numbers, total = evaluator.numbers(variant), len(batch.keys)
    size, seen = min(_PIECE, total), []
    for start in range(0, total, size):
        # A last piece is filled up with the first instances, and cut off again.
        rows = np.arange(start, start + size) % total
        piece = jax.tree.map(lambda leaf, rows=rows: leaf[rows], (batch.instances, batch.keys))
        seen.append(jax.device_get(program(*piece, error, numbers)))
    return Evaluation(*(np.concatenate(parts)[:total] for parts in zip(*seen, strict=True)))


def _at_most(wanted: int, limit: int | None) -> int:
    return wanted if limit is None else min(wanted, limit)


def _starts(
    claim: Claim,
    evaluator: Evaluator,
    name: str,
    variant: Mapping[str, Any],
    effort: Effort,
    restarts: int,
    key: Array,
) -> Array:
    """Keys to descend from: half the worst of a batch, half the others in their order."""
    num_samples = max(_at_most(effort.samples, claim.samples), restarts)
    batch = _drawn(evaluator, name, jax.random.split(key, num_samples))
    # The error does not enter the estimate; the sample rung's program is used again.
    margins = np.asarray(_judged(evaluator, name, variant, 1.0, batch).estimate)
    order = np.argsort(np.where(np.isfinite(margins), margins, np.inf), kind="stable")
    worst = order[: restarts - restarts // 2]
    others = np.setdiff1d(order, worst)[: restarts // 2]
    return batch.origins[np.resize(np.concatenate([worst, others]), restarts)]


def _descent(
    claim: Claim, evaluator: Evaluator, name: str, variant: Mapping[str, Any], steps: int
) -> Callable[..., Any]:
    """Adam on the margin from every start at once; keeps each restart's least finite margin."""
    model, sizes = claim.families[name], claim.typical
    tolerance = tolerance_of(claim)
    optimizer = optax.adam(optax.cosine_decay_schedule(0.1, steps, alpha=0.01))

    def make(one: Callable[..., Evaluation]) -> Callable[..., Any]:
        def margin(point: dict, key: Array, numbers: dict[str, Any]) -> tuple[Array, Array]:
            instance = from_unconstrained(model, point, key, sizes)
            seen = one(instance, jax.random.fold_in(key, 1), 0.5, numbers)
            usable = jnp.isfinite(seen.estimate) & (seen.slack >= -tolerance)
            estimate = jnp.asarray(seen.estimate)
            return estimate, jnp.where(usable, estimate, jnp.inf)

        def descend(key: Array, numbers: dict[str, Any]) -> tuple[dict, Array]:
            point = unconstrained(model, key, sizes)

            def step(carry: tuple, _: None) -> tuple[tuple, None]:
                point, memory, best, least = carry
                (_, value), slope = jax.value_and_grad(margin, has_aux=True)(point, key, numbers)
                slope = jax.tree.map(jnp.nan_to_num, slope)
                better = value < least
                best = jax.tree.map(lambda new, old: jnp.where(better, new, old), point, best)
                updates, memory = optimizer.update(slope, memory, point)
                point = optax.apply_updates(point, updates)
                return (point, memory, best, jnp.minimum(value, least)), None

            start = (point, optimizer.init(point), point, jnp.array(jnp.inf))
            return jax.lax.scan(step, start, length=steps)[0][2:]

        return lambda keys, numbers: jax.vmap(descend, in_axes=(0, None))(keys, numbers)

    return evaluator.program(f"attack {name} {steps}", make, variant)

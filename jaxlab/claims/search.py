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
from jaxlab.claims.families import accepted, draw, from_unconstrained, is_model, unconstrained
from jaxlab.claims.verdict import Candidate

__all__ = ["Effort", "Findings", "attack", "explore", "sample", "tolerance_of"]


class Effort(NamedTuple):
    """How hard to try.

    Attributes:
        examples: Hypothesis examples of ``explore``.
        samples: Instances per family of ``sample``.
        restarts: Descents per family of ``attack``.
        steps: Adam steps of each descent.
    """

    examples: int = 30
    samples: int = 10_000
    restarts: int = 64
    steps: int = 300


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
    """Let Hypothesis draw and shrink sizes and seeds, after every boundary instance was tried."""
    state = _Tally(claim)
    sources = {**claim.boundary, **claim.families}

    def look(name: str, sizes: Mapping[str, Any], instance_seed: int) -> None:
        key_instance, key_claim = jax.random.split(jax.random.key(instance_seed))
        family = sources[name]
        if name in claim.boundary:
            instance = family(**accepted(family, sizes))
        else:
            instance = evaluator.draw(name, sizes)(key_instance)
        program = evaluator.program("one", lambda one: one, sizes, variant)
        error = claim.error / (effort.examples + len(sources))
        seen = program(instance, key_claim, error, evaluator.numbers(variant))
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
        phases=[hypothesis.Phase.generate, hypothesis.Phase.shrink],
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
    num_samples = claim.samples or effort.samples
    error = claim.error / (num_samples * len(claim.families))
    for index, name in enumerate(claim.families):
        keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), index), num_samples)
        seen = _sampled(claim, evaluator, name, variant)(keys, error, evaluator.numbers(variant))
        state.take_batch(name, keys, jax.device_get(seen), evaluator)
    return state.findings()


def attack(
    claim: Claim, evaluator: Evaluator, variant: Mapping[str, Any], effort: Effort, seed: int
) -> Findings:
    """Descend on the margin over the unconstrained space of each NumPyro family.

    Half of the restarts begin at the worst of as many random instances as ``sample`` would draw in
    a tenth of its effort, half anywhere. What is found for a stochastic claim is judged again with
    a fresh key, since a descent with fixed keys fits their noise.
    """
    state = _Tally(claim)
    notes = []
    restarts = claim.restarts or effort.restarts
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
            build = evaluator.rebuild(name)
            instance = build(numbers, starts[best])
            program = evaluator.program("one", lambda one: one, claim.typical, variant)
            error = claim.error / len(models)
            seen = program(instance, key_fresh, error, evaluator.numbers(variant))
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

    def take_batch(self, name: str, keys: Array, seen: Evaluation, evaluator: Evaluator) -> None:
        """Judge a batch; the first offender of each kind is looked at alone."""
        self.count += len(keys)
        margin, estimate, slack = (np.asarray(value) for value in seen)
        outside = ~(slack >= -self.tolerance)
        if outside.any():
            share = f"{int(outside.sum())} of {len(keys)} instances"
            worst = float(np.min(np.where(np.isnan(slack), -np.inf, slack)))
            self.vacuous = (
                f"{name}: {share} violate the assumptions, the least slack is {worst:.3g}"
            )
            return
        unknown = np.isnan(margin)
        if unknown.any():
            self.nan = f"{name}: {int(unknown.sum())} of {len(keys)} margins are NaN"
        if unknown.all():
            return
        known = np.where(unknown, np.inf, margin)
        self._lower(name, float(np.min(np.where(np.isnan(estimate), np.inf, estimate))))
        worst = int(known.argmin())
        if not known[worst] >= -self.tolerance and self._is_worst(float(known[worst])):
            key_instance, key_claim = jax.random.split(keys[worst])
            instance = evaluator.draw(name, self.claim.typical)(key_instance)
            self.candidate = Candidate(
                name, dict(self.claim.typical), instance, key_claim, float(known[worst])
            )

    def _lower(self, name: str, margin: float) -> None:
        self.least = {**self.least, name: min(margin, self.least.get(name, math.inf))}

    def _is_worst(self, margin: float) -> bool:
        return self.candidate is None or margin < self.candidate.margin


def _sampled(
    claim: Claim, evaluator: Evaluator, name: str, variant: Mapping[str, Any]
) -> Callable[..., Evaluation]:
    family = claim.families[name]

    def make(one: Callable[..., Evaluation]) -> Callable[..., Evaluation]:
        def batch(keys: Array, error: Array, numbers: dict[str, Any]) -> Evaluation:
            def draw_and_judge(key: Array) -> Evaluation:
                key_instance, key_claim = jax.random.split(key)
                instance = draw(family, key_instance, claim.typical)
                return one(instance, key_claim, error, numbers)

            return jax.lax.map(draw_and_judge, keys, batch_size=min(len(keys), 1024))

        return batch

    return evaluator.program(f"sample {name}", make, claim.typical, variant)


def _starts(
    claim: Claim,
    evaluator: Evaluator,
    name: str,
    variant: Mapping[str, Any],
    effort: Effort,
    restarts: int,
    key: Array,
) -> Array:
    """Keys to descend from: half the worst of a batch, half its first."""
    num_samples = max(claim.samples or effort.samples // 10, restarts)
    keys = jax.random.split(key, num_samples)
    seen = _sampled(claim, evaluator, name, variant)(keys, 1.0, evaluator.numbers(variant))
    margins = np.asarray(seen.estimate)
    order = np.argsort(np.where(np.isfinite(margins), margins, np.inf), kind="stable")
    half = restarts // 2
    chosen = np.concatenate(
        [order[: restarts - half], np.setdiff1d(order, order[: restarts - half])[:half]]
    )
    # As in ``_sampled``: the first half of a split key draws the instance.
    return jax.vmap(lambda k: jax.random.split(k)[0])(keys[np.resize(chosen, restarts)])


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
            return seen.estimate, jnp.where(usable, seen.estimate, jnp.inf)

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

    return evaluator.program(f"attack {name} {steps}", make, sizes, variant)

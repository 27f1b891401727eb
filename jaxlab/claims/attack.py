"""The third searcher: descent on the margin over the unconstrained space of each NumPyro family."""

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxlab.claims.approach import approach_boundary
from jaxlab.claims.claim import Claim
from jaxlab.claims.descend import DESCENTS, Population
from jaxlab.claims.evaluate import Evaluation, Evaluator
from jaxlab.claims.families import from_unconstrained, is_model, unconstrained
from jaxlab.claims.sample import judged_pieces
from jaxlab.claims.search import Effort, Findings, Tally, at_most_allowed, tolerance_of

__all__ = ["attack"]

_LOOKS = 3
"""How many of the best points are judged outside JAX, in case the first is not confirmed."""


def attack(
    claim: Claim,
    evaluator: Evaluator,
    variant: Mapping[str, Any],
    effort: Effort,
    seed: int,
    *,
    deadline: float = math.inf,
) -> Findings:
    """Descend from the worst of random instances, from what Hypothesis found, and from anywhere.

    What is found is judged outside JAX, for a stochastic claim with a fresh key, since a descent
    with fixed keys fits their noise. What is after ``deadline`` (on the clock of
    ``time.monotonic``) is not begun.
    """
    state, notes, start = Tally(claim), [], jax.random.key(seed)
    models = [
        name
        for name, family in claim.families.items()
        if is_model(family) and _continuous(family, start, claim.typical)
    ]
    for index, name in enumerate(models):
        root = jax.random.fold_in(start, 1000 + index)
        _attack_family(claim, evaluator, name, variant, effort, root, deadline, state, notes)
        if state.candidate or time.monotonic() > deadline:
            break
    if not models:
        notes.append("no NumPyro family with continuous numbers to descend in")
    return state.findings("; ".join(notes))


def _continuous(family: Callable[..., Any], key: Array, sizes: Mapping[str, Any]) -> bool:
    """Whether a model draws any number that can be moved."""
    return bool(jax.eval_shape(lambda key: unconstrained(family, key, sizes), key))


def _attack_family(
    claim: Claim,
    evaluator: Evaluator,
    name: str,
    variant: Mapping[str, Any],
    effort: Effort,
    root: Array,
    deadline: float,
    state: Tally,
    notes: list[str],
) -> None:
    key_starts, key_descent, key_fresh = jax.random.split(root, 3)
    population = _starts(claim, evaluator, name, variant, effort, key_starts)
    restarts = len(population.margins)
    before = np.asarray(population.margins)
    methods = list(effort.methods)
    while methods and time.monotonic() <= deadline:
        method = methods.pop(0)
        program = _program(claim, evaluator, name, variant, method, effort.steps)
        population = program(population, key_descent, evaluator.numbers(variant))
        margins = np.asarray(population.margins)
        state.count += restarts * effort.steps
        if method == "adam":
            # An unusable start has no margin to improve on: a finite one after it is progress.
            stuck = int((~(margins < before)).sum())
            if stuck > restarts // 2:
                notes.append(f"{name}: gradients moved {restarts - stuck} of {restarts} restarts")
                methods = list(dict.fromkeys([*methods, "evolution"]))
        if _judge_best(claim, evaluator, name, variant, population, key_fresh, state):
            break
    dead = int((~np.isfinite(np.asarray(population.margins))).sum())
    if dead:
        notes.append(f"{name}: {dead} of {restarts} restarts never saw a finite margin")


def _judge_best(
    claim: Claim,
    evaluator: Evaluator,
    name: str,
    variant: Mapping[str, Any],
    population: Population,
    key_fresh: Array,
    state: Tally,
) -> bool:
    """Recompute the best points outside JAX; true if one violates the claim."""
    margins = np.asarray(population.margins)
    finite = [int(i) for i in np.argsort(margins)[:_LOOKS] if np.isfinite(margins[i])]
    tolerance = tolerance_of(claim)
    for place, index in enumerate(finite):
        # Only a violation that was not confirmed gives reason to look at the next best.
        if place > 0 and not margins[index] < -tolerance:
            break
        numbers = evaluator.unflattener(name)(population.points[index])
        instance = evaluator.rebuild(name, numbers, population.keys[index])
        key = key_fresh if claim.stochastic else jax.random.fold_in(population.keys[index], 1)
        seen = evaluator.outside(instance, key, claim.error / _LOOKS, claim.typical, variant)
        state.take(name, claim.typical, instance, key, seen)
        if state.candidate is not None:
            return True
    return False


def _starts(
    claim: Claim,
    evaluator: Evaluator,
    name: str,
    variant: Mapping[str, Any],
    effort: Effort,
    key: Array,
) -> Population:
    """Where to descend from, with the margins there.

    The boundary instances' nearest points and what Hypothesis found come first, then half the worst
    of a batch of random instances and half any others.
    """
    key_batch, key_boundary = jax.random.split(key)
    restarts = at_most_allowed(effort.restarts, claim.restarts)
    num_samples = max(at_most_allowed(effort.samples, claim.samples), restarts)
    # The error does not enter the estimate; the sample rung's program is used again.
    pieces = list(judged_pieces(evaluator, name, variant, 1.0, num_samples, key_batch))
    margins = np.concatenate([seen.estimate for _, seen in pieces])
    origins = jnp.concatenate([batch.origins for batch, _ in pieces])
    order = np.argsort(np.where(np.isfinite(margins), margins, np.inf), kind="stable")
    worst = order[: restarts - restarts // 2]
    others = np.setdiff1d(order, worst)[: restarts // 2]
    chosen = np.resize(np.concatenate([worst, others]), restarts)
    keys, values = origins[chosen], np.where(np.isfinite(margins), margins, np.inf)[chosen]
    remembered = evaluator.remembered(name, variant)[: restarts // 4]
    if remembered:
        keys = keys.at[-len(remembered) :].set(jnp.stack(remembered))
        values[-len(remembered) :] = np.inf  # at these sizes it is measured when the descent begins
    points = evaluator.flattener(name)(keys)
    if "lbfgs" in effort.methods and claim.boundary:
        near = approach_boundary(claim, evaluator, name, key_boundary)[: restarts // 4]
        if len(near):
            points = points.at[: len(near)].set(near)
            values[: len(near)] = np.inf
    return Population(points, keys, jnp.asarray(values))


def _program(
    claim: Claim,
    evaluator: Evaluator,
    name: str,
    variant: Mapping[str, Any],
    method: str,
    steps: int,
) -> Callable[..., Population]:
    """The compiled descent ``(population, key, numbers) -> population``."""
    model, sizes = claim.families[name], claim.typical
    tolerance, unflatten = tolerance_of(claim), evaluator.unflattener(name)
    descend = DESCENTS[method]

    def make(one: Callable[..., Evaluation]) -> Callable[..., Population]:
        def run(start: Population, key: Array, numbers: dict[str, Any]) -> Population:
            def margin(point: Array, key: Array) -> tuple[Array, Array]:
                instance = from_unconstrained(model, unflatten(point), key, sizes)
                seen = one(instance, jax.random.fold_in(key, 1), 0.5, numbers)
                usable = jnp.isfinite(seen.estimate) & (seen.slack >= -tolerance)
                estimate = jnp.asarray(seen.estimate)
                return estimate, jnp.where(usable, estimate, jnp.inf)

            return descend(margin, start, key, steps=steps)

        return run

    return evaluator.program(f"attack {name} {method} {steps}", make, variant)

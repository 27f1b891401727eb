"""How fast the ladder searches, against its own parts and against plain Hypothesis.

Run from the repository's root::

    pytest benchmarks/claims.py -n 0

The claim is Nesterov's rate on quadratics in six dimensions after 20 steps. Times are printed and
decide nothing. What decides: the searchers count what they were asked for, find nothing on the true
claim, and compile one program per family and size.
"""

import time
from collections.abc import Callable

import hypothesis
import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlab.claims import Claim, Effort
from jaxlab.claims.descend import Population, adam
from jaxlab.claims.evaluate import Evaluator, precise
from jaxlab.claims.families import from_unconstrained
from jaxlab.claims.sample import sample
from jaxlab.claims.search import Findings
from jaxlab.core.locate import load_companion

NUM_INSTANCES = 1_000_000
NUM_RESTARTS, NUM_STEPS = 256, 500
NUM_EXAMPLES = 1000
DIM, STEPS = 6, 20

CLAIM: Claim = load_companion("proofs_checks", "textbook").NESTEROV


@pytest.fixture(scope="module")
def evaluator():
    with precise():
        yield Evaluator(CLAIM)


def timed(search: Callable[[], Findings]) -> tuple[Findings, float]:
    begin = time.perf_counter()
    return search(), time.perf_counter() - begin


def test_sample(evaluator, report):
    """A million random instances; the first call compiles."""
    effort = Effort(samples=NUM_INSTANCES)
    with precise():
        _, first = timed(lambda: sample(CLAIM, evaluator, {}, effort, 0))
        found, seconds = timed(lambda: sample(CLAIM, evaluator, {}, effort, 1))
    assert found.num_instances >= NUM_INSTANCES
    assert found.candidate is None
    judge = evaluator.program("judge quadratic", lambda one: one, {})
    assert judge._cache_size() == 1
    report(
        f"sample, {NUM_INSTANCES:,} instances: seconds (first call)", f"{seconds:.2f} ({first:.2f})"
    )
    report("sample: instances per second", f"{found.num_instances / seconds:,.0f}")


def test_attack_step(evaluator, report):
    """A step of all restarts against the margin's forward evaluation, one by one and batched.

    The goal is a step of at most 4 forward costs times the restarts. A batched forward pass of this
    short loop is little else than the overhead of its operations, of which reverse mode has more.
    """
    with precise():
        keys = jax.random.split(jax.random.key(0), NUM_RESTARTS)
        points = evaluator.flattener("quadratic")(keys)
        step = best_seconds(descent(evaluator), points, keys)
        alone = NUM_RESTARTS * best_seconds(forwards(evaluator), points[:1], keys[:1])
        batched = best_seconds(forwards(evaluator), points, keys)
    report("attack: step / (forward x restarts) (goal: at most 4)", f"{step / alone:.2f}")
    report("attack: step / forward of all restarts in one batch", f"{step / batched:.2f}")
    report("attack: steps of a restart per second", f"{NUM_STEPS * NUM_RESTARTS / step:,.0f}")


def margin_at(evaluator, point, key):
    """The margin over the unconstrained space, as the descent sees it."""
    numbers = evaluator.unflattener("quadratic")(point)
    instance = from_unconstrained(CLAIM.families["quadratic"], numbers, key, CLAIM.typical)
    seen = evaluator.judge({}, CLAIM.typical)(instance, key, 0.5, evaluator.numbers({}))
    return jnp.asarray(seen.estimate)


def descent(evaluator):
    def margin(point, key):
        value = margin_at(evaluator, point, key)
        return value, value

    def run(points, keys):
        start = Population(points, keys, jnp.full(NUM_RESTARTS, jnp.inf))
        return adam(margin, start, keys[0], steps=NUM_STEPS).margins

    return jax.jit(run)


def forwards(evaluator):
    """``NUM_STEPS`` evaluations of every point, one after the other as in the descent."""

    def again(carry, _):
        points, keys, total = carry
        values = jax.vmap(lambda point, key: margin_at(evaluator, point, key))(points, keys)
        return (points + 1e-12 * values[:, None], keys, total + values), None

    def run(points, keys):
        start = (points, keys, jnp.zeros(len(points)))
        return jax.lax.scan(again, start, length=NUM_STEPS)[0][2]

    return jax.jit(run)


def best_seconds(program, *args):
    jax.block_until_ready(program(*args))
    times = []
    for _ in range(7):
        begin = time.perf_counter()
        jax.block_until_ready(program(*args))
        times.append(time.perf_counter() - begin)
    return min(times)


def test_hypothesis_alone(evaluator, report):
    """The same claim as a plain Hypothesis test in NumPy, as one would write it without us."""
    count = 0

    @hypothesis.settings(max_examples=NUM_EXAMPLES, deadline=None, database=None, derandomize=True)
    @hypothesis.given(
        st.floats(1e-3, 1.0), st.floats(1.0, 1e3),
        hnp.arrays(float, DIM, elements=st.floats(0, 1)),
        hnp.arrays(float, DIM, elements=st.floats(-3, 3).filter(lambda x: abs(x) > 1e-6)),
    )  # fmt: skip
    def claim(mu, kappa, position, start):
        nonlocal count
        count += 1
        position[0], position[-1] = 0.0, 1.0
        curvature = mu * (1 + (kappa - 1) * position)
        q = np.sqrt(curvature.min() / curvature.max())
        x, y = start, start
        for _ in range(STEPS):
            new = y - curvature * y / curvature.max()
            x, y = new, new + (1 - q) / (1 + q) * (new - x)
        energy = 0.5 * np.sum((curvature + curvature.min()) * start**2)
        assert 0.5 * np.sum(curvature * x**2) <= (1 - q) ** STEPS * energy * (1 + 1e-9)

    begin = time.perf_counter()
    claim()
    alone = count / (time.perf_counter() - begin)
    with precise():
        found, seconds = timed(
            lambda: sample(CLAIM, evaluator, {}, Effort(samples=NUM_INSTANCES), 2)
        )
    report("Hypothesis alone: instances per second", f"{alone:,.0f}")
    report("sample / Hypothesis alone", f"{found.num_instances / seconds / alone:,.0f}")

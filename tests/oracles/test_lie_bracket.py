"""Brackets, tournaments and schedules against loops in NumPy and differences of gradients."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxlab.core.derivatives import restricted
from jaxlab.models.lora import init_lora, merge_lora
from jaxlab.optim import lie_bracket as lb
from jaxlab.optim import lie_bracket_orders as orders
from jaxlab.optim import lie_bracket_schedules as schedules

SOURCES, DIM = 5, 3


def loss(params, batch):
    """Two leaves of different rank, not quadratic."""
    inputs, targets = batch
    hidden = jnp.tanh(inputs @ params["w"] + params["b"])
    return jnp.mean((hidden.sum(axis=-1) - targets) ** 2)


@pytest.fixture(scope="module")
def problem():
    keys = jax.random.split(jax.random.key(0), 5)
    params = {
        "w": jax.random.normal(keys[0], (DIM, 4)) / 2,
        "b": jax.random.normal(keys[1], (1, 4)) / 2,
    }
    sources = (
        jax.random.normal(keys[2], (SOURCES, 6, DIM)),
        jax.random.normal(keys[3], (SOURCES, 6)),
    )
    target = jax.random.normal(keys[4], (9, DIM)), jnp.ones(9)
    return params, sources, target


def flat(tree):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def pick(sources, i):
    return jax.tree.map(lambda leaf: leaf[i], sources)


GRADIENT = jax.jit(jax.grad(loss))


def moved(params, direction, step):
    return jax.tree.map(lambda leaf, d: leaf + step * d, params, direction)


def difference_hvp(params, batch, v):
    step = 1e-5
    ahead = flat(GRADIENT(moved(params, v, step), batch))
    behind = flat(GRADIENT(moved(params, v, -step), batch))
    return (ahead - behind) / (2 * step)


def test_brackets_are_differences_of_gradients(problem):
    params, sources, target = problem
    a, b = pick(sources, 0), pick(sources, 1)
    grad_a, grad_b = GRADIENT(params, a), GRADIENT(params, b)
    expected = difference_hvp(params, b, grad_a) - difference_hvp(params, a, grad_b)
    found = jax.jit(lambda p: lb.bracket(loss, p, a, b))(params)
    np.testing.assert_allclose(flat(found), expected, atol=1e-8)
    fields = lb.bracket_fields(
        lambda p: jax.tree.map(jnp.negative, jax.grad(loss)(p, a)),
        lambda p: jax.tree.map(jnp.negative, jax.grad(loss)(p, b)),
        params,
    )
    np.testing.assert_allclose(flat(fields), expected, atol=1e-8)
    scored = jax.jit(lambda p: lb.pair_score(loss, p, a, b, target, step_size=0.1, steps=3))(params)
    reference = jax.tree.map(lambda p, x, y: p - 0.3 * (x + y), params, grad_a, grad_b)
    score = flat(GRADIENT(reference, target)) @ expected
    np.testing.assert_allclose(scored.score, score, atol=1e-7)
    np.testing.assert_allclose(scored.gap, 0.09 * score, atol=1e-8)
    np.testing.assert_allclose(scored.bracket_norm, np.linalg.norm(expected), atol=1e-7)


def test_tournaments_are_all_pairs(problem):
    params, sources, target = problem
    slope = flat(GRADIENT(params, target))
    edges = np.zeros((SOURCES, SOURCES))
    for i, j in itertools.permutations(range(SOURCES), 2):
        a, b = pick(sources, i), pick(sources, j)
        edges[i, j] = slope @ (
            difference_hvp(params, b, GRADIENT(params, a))
            - difference_hvp(params, a, GRADIENT(params, b))
        )
    table = jax.jit(lambda p: lb.tournament(loss, p, sources, target))(params)
    np.testing.assert_allclose(lb.edge_matrix(table), edges, atol=1e-7)
    np.testing.assert_allclose(lb.borda_scores(table), edges.sum(axis=1), atol=1e-7)
    streamed = jax.jit(lambda p: lb.streamed_scores(loss, p, sources, target))(params)
    np.testing.assert_allclose(streamed, edges.sum(axis=1), atol=1e-7)
    order = lb.borda_order(streamed)
    assert order.tolist() == sorted(range(SOURCES), key=lambda i: edges[i].sum())


def test_memory_does_not_grow_with_the_sources(problem):
    params, sources, target = problem

    def bytes_used(count):
        many = jax.tree.map(lambda leaf: jnp.tile(leaf, (count,) + (1,) * (leaf.ndim - 1)), sources)
        run = jax.jit(lambda p, s: lb.streamed_scores(loss, p, s, target))
        analysis = run.lower(params, many).compile().memory_analysis()
        assert analysis is not None
        return analysis.temp_size_in_bytes

    assert bytes_used(40) <= bytes_used(4) + 64


def test_adapters_alone_are_ordered(problem):
    params, sources, target = problem
    adapters = init_lora(jax.random.key(1), params, rank=1, targets=["^w$"])
    adapters["w"]["b"] = jnp.ones_like(adapters["w"]["b"]) / 3
    part = restricted(loss, lambda trained, fixed: merge_lora(fixed, trained), params)
    table = jax.jit(lambda a: lb.tournament(part, a, sources, target))(adapters)
    assert table.grads["w"]["a"].shape == (SOURCES, DIM, 1)
    # The chain rule: the gradient of the factor a is that of w times b.
    whole = GRADIENT(merge_lora(params, adapters), pick(sources, 2))["w"]
    np.testing.assert_allclose(table.grads["w"]["a"][2], whole @ adapters["w"]["b"].T, atol=1e-12)
    step = 1e-5
    slope = jax.grad(part)(adapters, target)
    ahead, behind = (
        flat(jax.grad(part)(moved(adapters, slope, s), pick(sources, 2))) for s in (step, -step)
    )
    product = flat(pick(table.hvps, 2))
    np.testing.assert_allclose(product, (ahead - behind) / (2 * step), atol=1e-8)


def test_schedules_are_a_loop(problem):
    params, sources, _ = problem
    order = [3, 0, 4]
    expected = params
    for i in np.repeat(order, 2):
        expected = moved(expected, GRADIENT(expected, pick(sources, int(i))), -0.1)
    found = jax.jit(
        lambda p: schedules.run_schedule(loss, p, sources, jnp.array(order), 0.1, steps=2)
    )(params)
    np.testing.assert_allclose(flat(found), flat(expected), atol=1e-13)


@pytest.mark.parametrize("reset", [False, True])
def test_optimizers_keep_or_lose_their_memory(problem, reset):
    params, sources, _ = problem
    order, velocity, expected = [1, 2, 0], None, params
    for i in order:
        for step in range(2):
            grad = GRADIENT(expected, pick(sources, i))
            if velocity is None or (reset and step == 0):
                velocity = jax.tree.map(jnp.zeros_like, params)
            velocity = jax.tree.map(lambda v, g: 0.9 * v + g, velocity, grad)
            expected = moved(expected, velocity, -0.05)
    found = jax.jit(
        lambda p: schedules.run_schedule_optax(
            loss,
            p,
            sources,
            jnp.array(order),
            optax.sgd(0.05, momentum=0.9),
            steps=2,
            reset=reset,
            allow_memory=True,
        )
    )(params)
    np.testing.assert_allclose(flat(found), flat(expected), atol=1e-13)


def test_an_average_of_one_gradient_is_plain_sgd(problem):
    params, sources, _ = problem
    order = jnp.array([1, 2, 0])
    tx = optax.chain(optax.ema(0.0, debias=False), optax.scale(-0.05))
    plain, averaged = jax.jit(
        lambda p: (
            schedules.run_schedule(loss, p, sources, order, 0.05),
            schedules.run_schedule_optax(loss, p, sources, order, tx, allow_memory=True),
        )
    )(params)
    np.testing.assert_allclose(flat(averaged), flat(plain), atol=1e-14)


def test_rules_of_first_order_sort_what_they_name(problem):
    params, sources, target = problem
    rows = np.stack([flat(GRADIENT(params, pick(sources, i))) for i in range(SOURCES)])
    aim = flat(GRADIENT(params, target))
    norms = np.linalg.norm(rows, axis=1)
    expected = rows @ aim / norms / np.linalg.norm(aim)
    table = jax.jit(lambda p: lb.tournament(loss, p, sources, target))(params)
    found = orders.cosines(table.grads, table.target_grad)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    last = orders.recency_alignment_order(table.grads, table.target_grad)
    assert last.tolist() == np.argsort(expected).tolist()
    assert orders.gradient_norm_order(table.grads).tolist() == np.argsort(-norms).tolist()


def test_percentiles_of_a_known_rank():
    # The loss is where source 0 stands: uniform over 5 places.
    def place(order):
        return jnp.argmax(order == 0).astype(float)

    for rank in (0, 2, 4):
        order = jnp.array([1, 2, 3, 4]).tolist()
        order.insert(rank, 0)
        found = orders.sampled_percentile(jax.random.key(0), place, jnp.array(order), num=4000)
        # 4 standard errors of a share.
        assert abs(float(found) - 20 * (4 - rank)) < 400 * np.sqrt(0.25 / 4000)


def test_the_calibrated_step_leaves_little():
    # In one dimension: slopes c x^2 / 2 + d, so that both ends are polynomials of the step size.
    def cubic(x, batch):
        c, d = batch
        return jnp.sum(c * x**3 / 6 + d * x)

    sources = jnp.array([2.0, -1.0]), jnp.array([1.0, 3.0])
    grid = jnp.geomspace(0.001, 1.0, 13)
    x, target = jnp.array([1.5]), (jnp.asarray(1.0), jnp.asarray(0.5))
    report = jax.jit(
        lambda x: schedules.calibrate_step_size(jax.random.key(0), cubic, x, sources, target, grid)
    )(x)

    def step(x, i, eta):
        return x - eta * (np.array([2.0, -1.0])[i] * x**2 / 2 + np.array([1.0, 3.0])[i])

    slopes = [step(0.0, i, 0) - step(1.5, i, 1) + 1.5 for i in (0, 1)]
    bent = 1.5 * (-1.0 * slopes[0] - 2.0 * slopes[1])
    expected = []
    for eta in np.asarray(grid):
        apart = step(step(1.5, 0, eta), 1, eta) - step(step(1.5, 1, eta), 0, eta)
        expected.append(abs(apart - eta**2 * bent) / (eta**2 * abs(bent)))
    np.testing.assert_allclose(report.remainder, expected, rtol=1e-6, atol=1e-9)
    assert float(report.step_size) == max(
        eta for eta, left in zip(grid.tolist(), expected, strict=True) if left <= 0.25
    )
    assert bool(report.above_floor)
    np.testing.assert_allclose(report.signal, grid**2 * abs(bent) * (1.5**2 / 2 + 0.5), rtol=1e-9)


@pytest.mark.usefixtures("without_type_checks")
def test_bad_calls_are_named(problem):
    params, sources, target = problem
    a = pick(sources, 0)
    for call, message in (
        (
            lambda: lb.pair_score(loss, params, a, a, target, step_size=-1.0),
            "step_size must be at least 0, got -1.0",
        ),
        (lambda: lb.pair_score(loss, params, a, a, target, steps=0), "steps must be at least 1"),
        (
            lambda: lb.pair_score(
                loss,
                params,
                a,
                a,
                target,
                reference="middle",  # pyright: ignore[reportArgumentType]
            ),
            "reference must be 'origin' or 'trotter', got 'middle'",
        ),
        (lambda: orders.best_order(jnp.zeros((17, 17))), "edges must be of at most 16 sources"),
        (
            lambda: schedules.run_schedule(loss, params, sources, jnp.array([0]), 0.1, steps=0),
            "steps must be at least 1",
        ),
        (
            lambda: schedules.run_schedule(loss, params, sources, jnp.array([0, 5]), 0.1),
            "order must be indices of sources, 0 to 4, got",
        ),
        (
            lambda: schedules.run_schedule(loss, params, sources, jnp.array([0]), -0.1),
            "step_size must be at least 0, got -0.1",
        ),
        (
            lambda: schedules.run_schedule(
                loss, params, (sources[0], sources[1][:3]), jnp.array([0]), 0.1
            ),
            "sources",
        ),
        (
            lambda: schedules.run_schedule_optax(
                loss, params, sources, jnp.array([0]), optax.adam(0.1)
            ),
            "tx must not remember gradients",
        ),
        (
            lambda: schedules.bracket_only_step(loss, params, a, a, target, -1.0),
            "step_size must be at least 0",
        ),
        (
            lambda: schedules.calibrate_step_size(
                jax.random.key(0), loss, params, sources, target, jnp.array([0.1, 0.0])
            ),
            "grid must be positive",
        ),
        (
            lambda: schedules.calibrate_step_size(
                jax.random.key(0),
                loss,
                params,
                jax.tree.map(lambda leaf: leaf[:1], sources),
                target,
                jnp.array([0.1]),
            ),
            "sources must be at least 2, got 1",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            call()

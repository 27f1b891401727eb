"""Every method keeps the same promises; a new one joins by a row in ``cases.py``."""

import functools
import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlab.core import Method, Status, papers, run
from tests.conformance.cases import BASELINE_CASES, CASES, PAPER_CASES, consensus_problem

NUM_STEPS = 4
NOISE = 0.3
KEY = jax.random.key(9)
EPS = float(np.finfo(np.float64).eps)
EPS32 = float(np.finfo(np.float32).eps)
# Four steps of at most twelve local ones with some ten operations each; the condition number of
# the problem is 6 and the largest entry of a state about 10.
OPERATIONS = NUM_STEPS * 12 * 10
every_method = pytest.mark.parametrize("name", CASES)


def noise_of(name):
    return NOISE if CASES[name].noise else 0.0


@functools.cache
def pieces(name):
    """The method, a problem, its hyper-parameters and the compiled run, shared by the tests."""
    case = CASES[name]
    method = case.make()
    compiled = jax.jit(lambda p, h, k: run(method, p, h, k, num_steps=NUM_STEPS))
    return method, case.problem(noise_of(name), False), case.hyper, compiled


def cast(tree, dtype):
    def leaf(x):
        return jnp.asarray(x, dtype) if jnp.issubdtype(jnp.result_type(x), jnp.floating) else x

    return jax.tree.map(leaf, tree)


def assert_close(one, other, tolerance):
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * max(1.0, np.abs(b).max()))


def test_every_method_of_every_paper_has_a_case():
    expected = {f"{paper.slug}.{name}" for paper in papers() for name in paper.methods}
    assert expected == set(PAPER_CASES)


@pytest.mark.parametrize("module", ["federated", "inexact_agd"])
def test_every_baseline_has_a_case(module):
    """A factory is a public function that is annotated to return a ``Method``."""
    code = importlib.import_module(f"jaxlab.optim.{module}")
    factories = {
        f"{module}.{name}"
        for name in code.__all__
        if getattr(getattr(code, name), "__annotations__", {}).get("return") is Method
    }
    assert factories == {name for name in BASELINE_CASES if name.startswith(module)}


@every_method
def test_jit_equals_eager(name):
    method, problem, hyper, compiled = pieces(name)
    done = compiled(problem, hyper, KEY)
    assert int(done.status) == Status.OK
    key_init = jax.random.fold_in(jax.random.fold_in(KEY, 0), 0)
    state = method.init(problem, hyper, key_init)
    for t in range(NUM_STEPS):
        key_step = jax.random.fold_in(jax.random.fold_in(KEY, 1), t)
        state, info = method.step(problem, hyper, state, key_step)
    assert_close(done.state, state, OPERATIONS * EPS)
    last = jax.tree.map(lambda leaf: leaf[-1], done.trace)
    assert_close(last, info, OPERATIONS * EPS)


@every_method
def test_vmap_over_hyper_equals_a_loop(name):
    method, problem, hyper, compiled = pieces(name)
    scales = jnp.array([1.0, 0.8, 0.5])
    grid = jax.tree.map(lambda leaf: leaf * scales, hyper)
    batch = jax.jit(jax.vmap(lambda h: run(method, problem, h, KEY, num_steps=NUM_STEPS).state))(
        grid
    )
    states = []
    for i in range(len(scales)):
        single = compiled(problem, jax.tree.map(lambda leaf, i=i: leaf[i], grid), KEY).state
        assert_close(jax.tree.map(lambda leaf, i=i: leaf[i], batch), single, OPERATIONS * EPS)
        states.append(np.asarray(jax.tree.leaves(single)[0]))
    assert not np.allclose(states[0], states[1]), "the hyper-parameters do nothing"


@every_method
def test_one_trace_serves_all_hyper_parameters(name):
    method, problem, hyper, _ = pieces(name)
    traces = 0

    def counted(problem, hyper, state, key):
        nonlocal traces
        traces += 1
        return method.step(problem, hyper, state, key)

    compiled = jax.jit(lambda h: run(Method(method.init, counted), problem, h, KEY, num_steps=1))
    compiled(hyper)
    after_the_first = traces
    for scale in (0.9, 0.7):
        compiled(jax.tree.map(lambda leaf, s=scale: leaf * s, hyper))
    assert traces == after_the_first > 0


@every_method
def test_gradient_in_hyper_equals_finite_differences(name):
    method, problem, hyper, compiled = pieces(name)

    def loss_of(done):
        return sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(done.state))

    def loss(hyper):
        return loss_of(run(method, problem, hyper, KEY, num_steps=NUM_STEPS))

    gradient = jax.jit(jax.grad(loss))(hyper)
    width = EPS ** (1 / 3)
    for field in CASES[name].smooth:
        slope, value = float(getattr(gradient, field)), getattr(hyper, field)
        step = width * float(value)
        high, low = (
            float(loss_of(compiled(problem, hyper._replace(**{field: value + sign * step}), KEY)))
            for sign in (1, -1)
        )
        numeric = (high - low) / (2 * step)
        # Truncation and rounding both err by about width**2, with the loss's relative third
        # derivative (the power of the step size in the result, up to 50 cubed) as the constant.
        scale = max(abs(high), abs(slope) * float(value)) / float(value)
        assert np.isfinite(slope)
        assert slope != 0
        assert abs(slope - numeric) <= 50**3 / 6 * width**2 * scale


@every_method
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_state_keeps_its_type(name, dtype):
    method, problem, hyper, _ = pieces(name)
    problem, hyper = cast(problem, dtype), cast(hyper, dtype)
    before = jax.eval_shape(method.init, problem, hyper, KEY)
    after, _ = jax.eval_shape(method.step, problem, hyper, before, KEY)
    assert jax.tree.structure(before) == jax.tree.structure(after)
    for a, b in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        assert (a.shape, a.dtype, a.weak_type) == (b.shape, b.dtype, b.weak_type)
        assert not a.weak_type
        if jnp.issubdtype(a.dtype, jnp.floating):  # counters are integers in any precision
            assert a.dtype == dtype


# A sampler draws other numbers in another precision.
@pytest.mark.parametrize("name", [name for name in CASES if not CASES[name].sampler])
def test_float32_agrees_with_float64(name):
    """On gradients without noise and coins without doubt: the two draw different numbers."""
    _, _, hyper, compiled = pieces(name)
    if "communication_probability" in hyper._fields:
        hyper = hyper._replace(communication_probability=jnp.ones(()))
    problem = CASES[name].problem(0.0, False)
    double = compiled(problem, hyper, KEY)
    single = compiled(cast(problem, jnp.float32), cast(hyper, jnp.float32), KEY)
    leaves = jax.tree.leaves(single.state)
    floats = [leaf for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.floating)]
    assert floats
    assert all(leaf.dtype == jnp.float32 for leaf in floats)
    assert_close(single.state, double.state, OPERATIONS * EPS32)


@pytest.mark.parametrize("name", [name for name in CASES if CASES[name].trees])
def test_parameter_trees_equal_flat_parameters(name):
    _, problem, hyper, compiled = pieces(name)
    flat = compiled(problem, hyper, KEY).state
    tree = compiled(CASES[name].problem(noise_of(name), True), hyper, KEY).state
    for field, leaf in zip(flat._fields, flat, strict=True):
        parts = getattr(tree, field)
        joined = jnp.concatenate([parts["head"], parts["tail"]["rest"]], axis=-1)
        assert_close(joined, leaf, OPERATIONS * EPS)


@every_method
def test_the_key_decides_everything(name):
    _, problem, hyper, compiled = pieces(name)
    first = jax.tree.leaves(compiled(problem, hyper, KEY).state)
    again = jax.tree.leaves(compiled(problem, hyper, KEY).state)
    other = jax.tree.leaves(compiled(problem, hyper, jax.random.key(10)).state)
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a, b)
    same = all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))
    assert same != CASES[name].noise


@every_method
def test_no_key_is_used_twice(name):
    method, problem, hyper, _ = pieces(name)
    with jax.debug_key_reuse(True):
        jax.jit(lambda k: run(method, problem, hyper, k, num_steps=2))(jax.random.key(1))


def test_the_key_reuse_checker_is_awake():
    def twice(key):
        return jax.random.normal(key) + jax.random.normal(key)

    with jax.debug_key_reuse(True), pytest.raises(jax.errors.KeyReuseError):
        jax.jit(twice)(jax.random.key(1))


@pytest.mark.parametrize("name", [name for name in CASES if CASES[name].agents])
def test_renumbered_agents_give_renumbered_answers(name):
    _, _, hyper, compiled = pieces(name)
    order = np.array([2, 0, 3, 1])
    plain = compiled(consensus_problem(0.0, False), hyper, KEY)
    moved = compiled(consensus_problem(0.0, False, order), hyper, KEY)
    expected = jax.tree.map(lambda leaf: leaf[order], plain.state)
    assert_close(moved.state, expected, OPERATIONS * EPS)
    assert_close(moved.trace, plain.trace, OPERATIONS * EPS)

"""Orthogonal entropy unlearning against NumPy transcriptions, SciPy and closed forms."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.special
import scipy.stats
from flax import nnx

from jaxlab.core import run
from jaxlab.optim import oeu as unlearning
from jaxlab.optim import oeu_projection as projection
from jaxlab.optim import unlearning_baselines as rivals
from jaxlab.optim.oeu import Labelled, Unlearning, oeu, oeu_hyper

KEY = jax.random.key(0)


def gradients(seed=0):
    """Two trees of two leaves."""
    generator = np.random.default_rng(seed)
    return tuple(
        {"kernel": jnp.asarray(generator.normal(size=(3, 4))), "bias": jnp.asarray(part)}
        for part in generator.normal(size=(2, 4))
    )


def flat(tree):
    return np.concatenate([np.asarray(leaf, np.float64).ravel() for leaf in jax.tree.leaves(tree)])


def residual(forget, *retained):
    """By NumPy's least squares."""
    table = np.stack([flat(tree) for tree in retained], axis=1)
    return flat(forget) - table @ np.linalg.lstsq(table, flat(forget), rcond=1e-12)[0]


def test_losses_equal_scipy():
    logits = 3 * np.random.default_rng(0).normal(size=(7, 5))
    p = scipy.special.softmax(logits, axis=1)
    np.testing.assert_allclose(
        unlearning.entropy(jnp.asarray(logits)), scipy.stats.entropy(p, axis=1), rtol=1e-12
    )
    kl = scipy.special.rel_entr(1 / 5, p).sum(axis=1).mean()
    np.testing.assert_allclose(unlearning.uniform_kl_loss(jnp.asarray(logits)), kl, rtol=1e-12)
    warm = unlearning.warm_forget_loss
    height = scipy.stats.entropy(p, axis=1).mean()
    for level, expected in ((height + 0.01, kl), (height - 0.01, -height)):
        np.testing.assert_allclose(warm(jnp.asarray(logits), least_entropy=level), expected)


@pytest.mark.parametrize(("margin", "known"), [(2, 0.522), (5, 0.284), (10, 4.3e-3), (20, 3.9e-7)])
def test_the_entropy_has_no_gradient_where_the_model_is_certain(margin, known):
    logits = jnp.zeros(10).at[0].set(margin)
    slope = jnp.linalg.norm(jax.grad(unlearning.entropy_forget_loss)(logits))
    np.testing.assert_allclose(slope, known, rtol=1e-2)
    other = jnp.linalg.norm(jax.grad(unlearning.uniform_kl_loss)(logits))
    top = np.exp(margin) / (np.exp(margin) + 9)
    np.testing.assert_allclose(other, (top - 0.1) * np.sqrt(10 / 9), rtol=1e-12)


def test_projection_equals_least_squares():
    forget, retain = gradients()
    found = projection.project_orthogonal(forget, retain)
    np.testing.assert_allclose(flat(found), residual(forget, retain), atol=1e-14)
    per_leaf = projection.project_orthogonal(forget, retain, per_leaf=True)
    for name in forget:
        expected = residual(forget[name], retain[name])
        np.testing.assert_allclose(flat(per_leaf[name]), expected, atol=1e-14)


def test_orthogonal_in_all_is_not_orthogonal_in_each():
    forget = {"a": jnp.array([1.0]), "b": jnp.array([-1.0])}
    retain = {"a": jnp.array([1.0]), "b": jnp.array([1.0])}
    found = projection.project_orthogonal(forget, retain)
    assert found == forget
    assert found["a"] * retain["a"] == 1.0
    assert flat(projection.project_orthogonal(forget, retain, per_leaf=True)).tolist() == [0, 0]


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("size", [1e-25, 1.0, 1e20])
def test_projection_in_low_precision(dtype, size):
    """A retain gradient whose square is 0 or infinite in float32 still counts."""
    forget, retain = gradients(1)
    forget, retain = (jax.tree.map(lambda x: x.astype(dtype), tree) for tree in (forget, retain))
    scaled = jax.tree.map(lambda x: (x.astype(jnp.float32) * size).astype(dtype), retain)
    found = projection.project_orthogonal(forget, scaled)
    assert all(leaf.dtype == dtype for leaf in jax.tree.leaves(found))
    cosine = flat(found) @ flat(scaled) / np.linalg.norm(flat(found)) / np.linalg.norm(flat(scaled))
    assert abs(cosine) < 4 * float(jnp.finfo(dtype).eps)


def test_subspace_projection_equals_least_squares():
    forget, first = gradients()
    _, second = gradients(1)
    both = jax.tree.map(lambda a, b: 2 * a - b, first, second)  # adds no dimension
    tiny = jax.tree.map(lambda a: 1e-9 * a, gradients(2)[0])
    stack = jax.tree.map(lambda *leaves: jnp.stack(leaves), first, second, both, tiny)
    found = jax.jit(projection.project_subspace)(forget, stack)
    expected = residual(forget, first, second, gradients(2)[0])
    np.testing.assert_allclose(flat(found), expected, atol=1e-12)
    one = projection.project_subspace(forget, jax.tree.map(lambda x: x[None], first))
    np.testing.assert_allclose(flat(one), residual(forget, first), atol=1e-12)


X = np.random.default_rng(2).normal(size=(9, 3))
Y = np.random.default_rng(3).integers(0, 4, 9)
W = np.random.default_rng(4).normal(size=(3, 4))


def logistic_problem(labels=Y, mask=None):
    """Softmax regression whose first three rows are to be forgotten."""
    x, y = jnp.asarray(X), jnp.asarray(labels)
    forget, retain = (Labelled(x[part], y[part]) for part in (slice(3), slice(3, None)))
    return Unlearning(jnp.asarray(W), forget, retain, mask)


def linear(w, x):
    return x @ w


def numpy_gradients(w, labels, forget):
    """Both gradients by hand."""
    p = scipy.special.softmax(X @ w, axis=1)
    cross = p - np.eye(4)[labels]
    if forget == "entropy":
        height = -(p * np.log(p)).sum(axis=1, keepdims=True)
        slope = p * (np.log(p) + height)
    else:
        slope = -cross if forget == "ascent" else cross
    return X[:3].T @ slope[:3] / 3, X[3:].T @ cross[3:] / 6


def numpy_direction(rule, forget, retain, strength):
    inner, square = (forget * retain).sum(), (retain**2).sum()
    orthogonal = forget - inner / square * retain
    if rule == "retain":
        return retain
    if rule == "forget":
        return strength * orthogonal
    if rule == "matched":
        return retain + strength * np.sqrt(square / (forget**2).sum()) * forget
    if rule == "plain" or (rule == "pcgrad" and inner >= 0):
        return retain + strength * forget
    return retain + strength * orthogonal


RULES = {
    "orthogonal": unlearning.orthogonal_sum,
    "plain": rivals.plain_sum,
    "retain": rivals.retain_alone,
    "forget": rivals.forget_alone,
    "pcgrad": rivals.pcgrad_sum,
    "matched": rivals.matched_sum,
}


class Choice(NamedTuple):
    """A rule as data, so that one program runs all."""

    step_size: float
    strength: float
    rule: Any


def choose(forget, retain, hyper):
    return jax.lax.switch(
        hyper.rule, [lambda f, r, rule=rule: rule(f, r, hyper) for rule in RULES.values()],
        forget, retain,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["entropy", "ascent", "relabel"])
def test_steps_equal_numpy(name):
    """Two steps of every rule; cosines of ascent and of relabelling have both signs."""
    entropy_loss, retain_loss = unlearning.classification_losses(linear)
    loss = {
        "entropy": entropy_loss,
        "ascent": rivals.ascent_loss(linear),
        "relabel": rivals.relabel_loss(linear),
    }[name]
    labels = np.concatenate([(Y[:3] + 1) % 4, Y[3:]])
    method = oeu(loss, retain_loss, combine=choose)

    @jax.jit
    @jax.vmap
    def runs(rule):
        hyper = Choice(0.3, 0.7, rule)
        return run(method, logistic_problem(labels), hyper, KEY, num_steps=2)

    done = runs(jnp.arange(len(RULES)))
    for i, rule in enumerate(RULES):
        w = W
        for _ in range(2):
            forget, retain = numpy_gradients(w, labels, name)
            direction = numpy_direction(rule, forget, retain, 0.7)
            w = w - 0.3 * direction
        np.testing.assert_allclose(done.state.params[i], w, atol=1e-12)
        norms = [np.linalg.norm(g) for g in (forget, retain, direction)]
        info = jax.tree.map(lambda leaf, i=i: leaf[i, -1], done.trace)
        np.testing.assert_allclose(info[3:], norms, rtol=1e-9)
        cosine = (forget * retain).sum() / norms[0] / norms[1]
        np.testing.assert_allclose(info.cosine, cosine, rtol=1e-9)


def test_masks_penalties_and_optimizers():
    entropy_loss, retain_loss = unlearning.classification_losses(linear)
    forget, retain = numpy_gradients(W, Y, "entropy")
    direction = numpy_direction("orthogonal", forget, retain, 1.0)
    mask = rivals.saliency_mask(jnp.asarray(forget), 0.25)
    least = np.sort(np.abs(forget).ravel())[-3]
    np.testing.assert_array_equal(mask, np.abs(forget) >= least)
    method = oeu(entropy_loss, retain_loss)
    done = run(method, logistic_problem(mask=mask), oeu_hyper(0.3), KEY, num_steps=1)
    np.testing.assert_allclose(done.state.params, W - 0.3 * np.asarray(mask) * direction)

    sparse = rivals.with_l1(retain_loss, 0.2)
    method = oeu(entropy_loss, sparse, combine=rivals.retain_alone)
    done = run(method, logistic_problem(), oeu_hyper(0.3), KEY, num_steps=1)
    np.testing.assert_allclose(done.state.params, W - 0.3 * (retain + 0.2 * np.sign(W)))

    method = oeu(entropy_loss, retain_loss, optimizer=optax.sgd(1.0, momentum=0.9))
    done = run(method, logistic_problem(), oeu_hyper(0.3), KEY, num_steps=2)
    w = W - 0.3 * direction
    second = numpy_direction("orthogonal", *numpy_gradients(w, Y, "entropy"), 1.0)
    np.testing.assert_allclose(done.state.params, w - 0.3 * (second + 0.9 * direction))


def test_the_transformation_of_optax_is_the_projection():
    forget, retain = gradients()
    optimizer = optax.chain(projection.orthogonal_to(), optax.sgd(0.5))
    update, _ = optimizer.update(forget, optimizer.init(forget), forget, retain_gradient=retain)
    np.testing.assert_allclose(flat(update), -0.5 * residual(forget, retain), atol=1e-14)


def test_batches_are_of_different_rows():
    """The gradient of a sum of coordinates tells which rows were drawn."""
    x = jnp.eye(10)
    problem = Unlearning(jnp.zeros(10), x, x)

    def value(w, rows):
        return (rows @ w).sum()

    method = oeu(value, value, batch_size=4, combine=lambda f, r, h: f + 10 * r)
    done = run(method, problem, oeu_hyper(1.0), KEY, num_steps=40, trace_fn=lambda s, i: s.params)
    drawn = -np.diff(np.asarray(done.trace), axis=0, prepend=0.0).round()
    forget, retain = drawn % 10, drawn // 10
    assert set(forget.ravel()) == set(retain.ravel()) == {0, 1}
    assert (forget.sum(axis=1) == 4).all()
    assert (retain.sum(axis=1) == 4).all()
    assert (forget != retain).any(axis=1).mean() > 0.9
    assert len(np.unique(forget, axis=0)) > 30


def changes(params, apply, problem, rates):
    """Of the retain loss, along both gradients."""
    forget_loss, retain_loss = unlearning.classification_losses(apply)

    def loss(p):
        return retain_loss(p, problem.retain)

    forget = jax.grad(lambda p: forget_loss(p, problem.forget))(params)
    projected = projection.project_orthogonal(forget, jax.grad(loss)(params))

    def change(direction, rate):
        return loss(jax.tree.map(lambda p, d: p - rate * d, params, direction)) - loss(params)

    return [jax.vmap(change, in_axes=(None, 0))(d, rates) for d in (projected, forget)]


def flax_model():
    model = nnx.Sequential(
        nnx.Linear(4, 10, rngs=nnx.Rngs(0), param_dtype=float),
        jnp.tanh,
        nnx.Linear(10, 3, rngs=nnx.Rngs(1), param_dtype=float),
    )
    graph, params = nnx.split(model, nnx.Param)
    return params, lambda params, x: nnx.merge(graph, params)(x)


def equinox_model():
    model = eqx.nn.MLP(4, 3, 10, 1, activation=jnp.tanh, key=jax.random.key(0))
    params, static = eqx.partition(model, eqx.is_inexact_array)
    return params, lambda params, x: jax.vmap(eqx.combine(params, static))(x)


@pytest.mark.parametrize("make", [flax_model, equinox_model])
def test_any_model_forgets_without_a_first_order_loss(make):
    params, apply = make()
    params = jax.tree.map(lambda leaf: 3 * leaf, params)  # certain of something
    x = 2 * jax.random.normal(jax.random.key(1), (20, 4))
    y = jnp.argmax(x[:, :3], axis=1)
    problem = Unlearning(params, Labelled(x[:3], y[:3]), Labelled(x[3:], y[3:]))
    rates = np.geomspace(1e-3, 3e-2, 5)
    method = oeu(*unlearning.classification_losses(apply))

    @jax.jit
    def forget(problem):
        done = run(method, problem, oeu_hyper(0.3), KEY, num_steps=300)
        heights = [unlearning.entropy(apply(p, x[:3])).mean() for p in (params, done.state.params)]
        return changes(params, apply, problem, jnp.asarray(rates)), done.trace, heights

    changed, trace, heights = forget(problem)
    orders = [np.polyfit(np.log(rates), np.log(np.abs(change)), 1)[0] for change in changed]
    np.testing.assert_allclose(orders, [2, 1], atol=0.05)
    assert heights[1] > 0.9 > heights[0]
    assert trace.retain_loss[-1] < trace.retain_loss[0]


def test_labels_are_uniform_or_wrong_or_similar():
    true = jnp.asarray(np.arange(6000) % 5)
    for only_wrong, classes in ((False, range(5)), (True, range(1, 5))):
        drawn = rivals.random_labels(KEY, true, num_classes=5, only_wrong=only_wrong)
        counts = np.bincount(np.asarray(drawn - true) % 5, minlength=5)
        assert counts.sum() == counts[list(classes)].sum()
        assert scipy.stats.chisquare(counts[list(classes)]).pvalue > 1e-6
    logits = np.random.default_rng(0).normal(size=(50, 4))
    labels = np.random.default_rng(1).integers(0, 4, 50)
    found = rivals.similar_labels(jnp.asarray(logits), jnp.asarray(labels))
    for row, label, answer in zip(logits, labels, found, strict=True):
        wrong = [c for c in range(4) if c != label]
        assert answer == max(wrong, key=lambda c, row=row: row[c])


def test_safe_steps_are_the_descent_lemmas():
    """At the step size itself the bound is an equality for a quadratic of curvature L."""
    found = projection.safe_step_size(4.0, 3.0, 2.0, 0.5)
    direction = np.array([3.0, 0.5 * 2.0])  # along the gradient, and orthogonal to it
    start = np.array([3.0 / 4.0, 0.0])  # gradient 4 x = (3, 0)
    after = start - float(found) * direction
    np.testing.assert_allclose(2 * after @ after, 2 * start @ start)

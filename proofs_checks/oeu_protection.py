"""Claims of the paper on what orthogonal steps protect and what they forget: O6, O7 and O9."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from hypothesis import strategies as st
from jaxtyping import Array, Float

from jaxlab.claims import Claim, Comparison, Scaling, at_most
from jaxlab.core import run
from jaxlab.optim import oeu as unlearning
from jaxlab.optim.oeu import Labelled, OEUHyper, Unlearning
from jaxlab.optim.oeu_projection import (
    inner_product,
    project_orthogonal,
    safe_step_size,
    tree_norm,
)
from jaxlab.optim.unlearning_baselines import forget_alone
from jaxlab.problems.sites import log_uniform, normals, uniform

KEY = jax.random.key(0)  # The methods here take all rows: nothing is drawn.
ALLOWANCE = 1e-12
Tree = dict[str, Array]


class Regression(NamedTuple):
    """Softmax regression with a penalty, and rows to forget."""

    weights: Float[Array, "inputs classes"]
    retain: Float[Array, "rows inputs"]
    forget: Float[Array, "few inputs"]
    penalty: Float[Array, ""]
    strength: Float[Array, ""]
    share: Float[Array, ""]


CLASSES, INPUTS, ROWS = 3, 2, 6


def regression() -> Regression:
    """A NumPyro model; the share is of the largest step for which the bound says anything."""
    weights, retain, forget = normals("numbers", (INPUTS, CLASSES), (ROWS, INPUTS), (2, INPUTS))
    return Regression(
        log_uniform("scale", 0.1, 5.0) * weights,
        retain,
        3 * forget,
        log_uniform("penalty", 1e-3, 1.0),
        log_uniform("strength", 0.1, 10.0),
        log_uniform("share", 1e-4, 1.0),
    )


def is_regression(instance: Regression) -> Array:
    """Positive numbers, and a share of at most 1."""
    least = jnp.minimum(instance.penalty, instance.strength)
    return jnp.minimum(least, jnp.minimum(instance.share, 1 + 1e-12 - instance.share))


LABELS = jnp.arange(ROWS) % CLASSES


def regression_losses(instance: Regression):
    """Functions of the weights: what is forgotten, what is retained."""

    def forget(w: Array) -> Array:
        return unlearning.entropy_forget_loss(instance.forget @ w)

    def retain(w: Array) -> Array:
        loss = unlearning.retain_loss(instance.retain @ w, LABELS)
        return loss + instance.penalty / 2 * jnp.sum(w**2)

    return forget, retain


def descent(instance: Regression, *, projected: float = 1.0, curvature: float = 1.0) -> Comparison:
    """O7: the descent lemma at any step size, and no rise up to ``safe_step_size``."""
    forget, retain = regression_losses(instance)
    w, strength = instance.weights, instance.strength
    gram = instance.retain.T @ instance.retain
    smoothness = curvature * (jnp.linalg.eigvalsh(gram)[-1] / (2 * ROWS) + instance.penalty)
    forget_gradient, retain_gradient = jax.grad(forget)(w), jax.grad(retain)(w)
    orthogonal = project_orthogonal(forget_gradient, retain_gradient)
    used = jnp.where(projected > 0, orthogonal, forget_gradient)
    squares = jnp.sum(retain_gradient**2), jnp.sum(used**2)
    safe = safe_step_size(smoothness, jnp.sqrt(squares[0]), jnp.sqrt(squares[1]), strength)

    def after(eta: Array) -> Array:
        return retain(w - eta * (retain_gradient + strength * used))

    eta = 2 * instance.share / smoothness
    start = retain(w)
    bound = start - eta * (1 - smoothness * eta / 2) * squares[0]
    bound = bound + smoothness * (eta * strength) ** 2 / 2 * squares[1]
    left = jnp.stack([after(eta), after(instance.share * safe)])
    right = jnp.stack([bound, start])
    return at_most(left, right, scale=1 + jnp.abs(left) + jnp.abs(right))


class Setting(NamedTuple):
    """Which direction is asked about, and how large weights are."""

    side: Float[Array, ""]
    scale: Float[Array, ""]


def setting() -> Setting:
    """A NumPyro model."""
    return Setting(jnp.sign(uniform("side", -1.0, 1.0)), log_uniform("scale", 0.5, 1.0))


def is_setting(instance: Setting) -> Array:
    """A side, and a positive scale."""
    return jnp.minimum(jnp.abs(instance.side) - 0.5, instance.scale)


RATES = tuple(10.0 ** (-3 + i / 3) for i in range(6))
NETWORK_INPUTS, HIDDEN, NETWORK_CLASSES, NETWORK_ROWS = 4, 10, 3, 24


def sample_network(key: Array, scale: Array) -> tuple[Tree, Array]:
    """A tanh network, and retained rows, rows to forget and other retained rows."""
    shapes = (
        (NETWORK_INPUTS, HIDDEN),
        (HIDDEN, NETWORK_CLASSES),
        (3, NETWORK_ROWS, NETWORK_INPUTS),
    )
    counts = [math.prod(shape) for shape in shapes]
    # One draw, since every draw is compiled.
    parts = jnp.split(jax.random.normal(key, (sum(counts),)), [counts[0], counts[0] + counts[1]])
    first, second, rows = (part.reshape(shape) for part, shape in zip(parts, shapes, strict=True))
    return {"first": scale * first, "second": scale * second}, rows


def network(params: Tree, x: Array) -> Array:
    """Logits."""
    return jnp.tanh(x @ params["first"]) @ params["second"]


def first_order(instance: Setting, *, replicas: int, key: Array, other: float = 0.0) -> Scaling:
    """O6: the change of the retain loss is of second order along ``g_perp``, of first along g.

    The mutant projects against another batch. Squared changes are averaged over ten networks, since
    a single one may hardly change at one of the rates.
    """
    forget_loss, retain_loss = unlearning.classification_losses(network)
    rates = jnp.array(RATES)

    def changes(key: Array) -> Array:
        params, rows = sample_network(key, instance.scale)
        labels = jnp.arange(NETWORK_ROWS) % NETWORK_CLASSES
        retain, forget, another = (Labelled(x, labels) for x in rows)

        def loss(p: Tree, x: Array) -> Array:
            return retain_loss(p, Labelled(x, labels))

        wrong = jnp.where(other > 0, another.inputs, retain.inputs)
        start, gradients = jax.vmap(jax.value_and_grad(loss), in_axes=(None, 0))(
            params, jnp.stack([retain.inputs, wrong])
        )
        gradient, along = ({n: g[i] for n, g in gradients.items()} for i in range(2))
        full = jax.grad(forget_loss)(params, forget)
        # Both along the loss' own gradient in part, so that the first order shows.
        full = optax.tree.add_scale(full, 0.5, gradient)
        rest = project_orthogonal(full, along)
        used = {n: jnp.where(instance.side > 0, rest[n], full[n]) for n in full}

        def change(rate: Array) -> Array:
            return loss(optax.tree.add_scale(params, -rate, used), retain.inputs) - start[0]

        return jax.vmap(change)(rates)

    keys = jax.random.split(key, replicas * 10)
    squares = jax.vmap(changes)(keys).reshape(replicas, 10, -1) ** 2
    exponent = jnp.where(instance.side > 0, 2.0, 1.0)
    allowance = jnp.where(instance.side > 0, 0.1, 0.05)
    return Scaling(rates, jnp.sqrt(squares.mean(axis=1)), exponent, allowance)


class Forgetting(NamedTuple):
    """A tanh network with rows to retain and to forget."""

    params: Tree
    retain: Float[Array, "rows inputs"]
    forget: Float[Array, "rows inputs"]
    strength: Float[Array, ""]


def forgetting() -> Forgetting:
    """A NumPyro model."""
    first, second, retain, forget = normals(
        "numbers", (INPUTS, 4), (4, CLASSES), (ROWS, INPUTS), (ROWS, INPUTS)
    )
    params = {"first": first, "second": second}
    return Forgetting(params, retain, forget, log_uniform("strength", 0.1, 10.0))


def forgetting_gradients(instance: Forgetting) -> tuple[Tree, Tree]:
    """Of both losses."""
    forget_loss, retain_loss = unlearning.classification_losses(network)
    labels = LABELS
    return (
        jax.grad(forget_loss)(instance.params, Labelled(instance.forget, labels)),
        jax.grad(retain_loss)(instance.params, Labelled(instance.retain, labels)),
    )


def has_a_way(instance: Forgetting) -> Array:
    """What is left of the forgetting gradient, by Gram and Schmidt on flat arrays, and weights."""
    forget, retain = (
        jnp.concatenate([leaf.ravel() for leaf in tree.values()])
        for tree in forgetting_gradients(instance)
    )
    rest = forget - forget @ retain / (retain @ retain) * retain
    largest = jnp.stack([jnp.abs(leaf).max() for leaf in instance.params.values()]).max()
    size = jnp.maximum(largest, jnp.abs(instance.forget).max())
    return jnp.minimum(rest @ rest - 1e-3, 5 - size)


def progress(instance: Forgetting, *, sign: float = 1.0) -> Comparison:
    """O9: one step of ``forget_alone`` lowers the forgetting loss, by the method itself."""
    forget_loss, retain_loss = unlearning.classification_losses(network)
    data = [Labelled(rows, LABELS) for rows in (instance.forget, instance.retain)]
    rate = jnp.asarray(1e-4)
    method = unlearning.oeu(
        lambda p, rows: sign * forget_loss(p, rows), retain_loss, combine=forget_alone
    )
    problem = Unlearning(instance.params, *data)
    done = run(method, problem, OEUHyper(rate, jnp.ones(())), KEY, num_steps=1)
    forget, retain = forgetting_gradients(instance)
    rest = project_orthogonal(forget, retain)
    square = inner_product(rest, rest)
    fall = forget_loss(instance.params, data[0]) - forget_loss(done.state.params, data[0])
    hyper = OEUHyper(rate, instance.strength)
    direction = unlearning.orthogonal_sum(optax.tree.scale(sign, forget), retain, hyper)
    derivative = -inner_product(forget, direction)
    expected = -(inner_product(forget, retain) + instance.strength * square)
    scale = tree_norm(forget) * (tree_norm(retain) + instance.strength * tree_norm(forget))
    left = jnp.stack([0.5 - fall / (rate * square), jnp.abs(derivative - expected) / scale])
    return at_most(left, jnp.array([0.0, ALLOWANCE]))


CLAIMS = (
    Claim(
        name="oeu/first_order",
        statement=(
            "smooth network, full batches: the retain loss changes by O(eta^2) along g_perp and "
            "by O(eta) along g_f"
        ),
        source="arXiv:2602.00567, abstract: a guarantee under first-order approximation",
        families={"setting": setting},
        conclusion=first_order,
        assumptions=is_setting,
        sizes={"replicas": st.just(6)},
        typical={"replicas": 6},
        stochastic=True,
        samples=4,
        rungs=("sample",),
        mutants={"projected against another batch": {"other": 1.0}},
    ),
    Claim(
        name="oeu/descent",
        statement=(
            "L_r L-smooth: L_r(w - eta (g_r + lam g_perp)) <= L_r - eta (1 - L eta/2) |g_r|^2 + "
            "L eta^2 lam^2 |g_perp|^2 / 2; no rise up to eta = 2|g_r|^2/(L(|g_r|^2 + lam^2 "
            "|g_perp|^2))"
        ),
        source="derived: descent lemma and orthogonality",
        families={"regression": regression},
        conclusion=descent,
        assumptions=is_regression,
        samples=2000,
        restarts=16,
        mutants={"no projection": {"projected": 0.0}, "L a tenth": {"curvature": 0.1}},
    ),
    Claim(
        name="oeu/progress",
        statement=(
            "the forgetting loss falls at the rate <g_f, g_r> + lam |g_perp|^2, so along g_perp "
            "alone whenever it is not 0"
        ),
        source="derived: <g_f, g_perp> = |g_perp|^2",
        families={"network": forgetting},
        conclusion=progress,
        assumptions=has_a_way,
        samples=1000,
        rungs=("explore", "sample"),
        mutants={"entropy descends": {"sign": -1.0}},
    ),
)

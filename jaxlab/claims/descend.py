"""Three ways to go down a margin: Adam, L-BFGS, and evolution where there is no gradient.

All work on a batch of flat points at once and keep, for each restart, the least finite margin that
it ever saw. A margin that is NaN, or whose point leaves the assumptions, is infinite here: it is
walked away from and never reported.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key

__all__ = ["DESCENTS", "Population", "adam", "evolution", "lbfgs"]

Margin = Callable[[Array, Array], tuple[Array, Array]]
"""``(point, key) -> (margin, usable margin)``; the second is infinite where it does not count."""


class Population(NamedTuple):
    """The best of every restart.

    Attributes:
        points: In unconstrained coordinates.
        keys: Of what is not continuous: discrete sites, and the noise of a stochastic claim.
        margins: The least usable margin; infinite if there was none.
    """

    points: Float[Array, "restarts numbers"]
    keys: Key[Array, " restarts"]
    margins: Float[Array, " restarts"]


def adam(margin: Margin, start: Population, key: Array, *, steps: int) -> Population:
    """Adam with a cosine schedule, at three step sizes in turn."""
    del key
    optimizer = optax.adam(optax.cosine_decay_schedule(0.1, steps, alpha=0.01))
    scales = jnp.resize(jnp.array([1.0, 0.3, 3.0]), start.margins.shape)

    def descend(point: Array, key: Array, scale: Array) -> tuple[Array, Array]:
        def step(carry: tuple, _: None) -> tuple[tuple, None]:
            point, memory, best, least = carry
            (_, value), slope = jax.value_and_grad(margin, has_aux=True)(point, key)
            best = jnp.where(value < least, point, best)
            changed: Any = optimizer.update(jnp.nan_to_num(slope), memory, point)
            updates, memory = changed
            return (point + scale * updates, memory, best, jnp.minimum(value, least)), None

        begin = (point, optimizer.init(point), point, jnp.array(jnp.inf))
        return jax.lax.scan(step, begin, length=steps)[0][2:]

    return _better(start, *jax.vmap(descend)(start.points, start.keys, scales))


def lbfgs(
    margin: Margin, start: Population, key: Array, *, steps: int, survivors: int = 8
) -> Population:
    """L-BFGS with a backtracking line search, from the best points only."""
    del key
    order = jnp.argsort(start.margins)[:survivors]
    chosen = jax.tree.map(lambda leaf: leaf[order], start)
    search = optax.scale_by_backtracking_linesearch(max_backtracking_steps=12, store_grad=True)
    optimizer = optax.lbfgs(linesearch=search)

    def descend(point: Array, key: Array) -> tuple[Array, Array]:
        def value_of(point: Array) -> Array:
            # The line search needs numbers; a step to where there are none is refused by it.
            value = margin(point, key)[0]
            return jnp.where(jnp.isfinite(value), value, 1e30)

        value_and_slope = optax.value_and_grad_from_state(value_of)

        def step(carry: tuple, _: None) -> tuple[tuple, None]:
            point, memory, best, least = carry
            value, slope = value_and_slope(point, state=memory)
            slope = jnp.nan_to_num(jnp.asarray(slope))  # pyright: ignore[reportArgumentType]
            changed: Any = optimizer.update(
                slope, memory, point, value=value, grad=slope, value_fn=value_of
            )
            updates, memory = changed
            point = point + jnp.nan_to_num(updates)
            usable = margin(point, key)[1]
            best = jnp.where(usable < least, point, best)
            return (point, memory, best, jnp.minimum(usable, least)), None

        begin = (point, optimizer.init(point), point, jnp.array(jnp.inf))
        return jax.lax.scan(step, begin, length=steps)[0][2:]

    points, least = jax.vmap(descend)(chosen.points, chosen.keys)
    polished = _better(chosen, points, least)
    return jax.tree.map(lambda all_, new: all_.at[order].set(new), start, polished)


def evolution(margin: Margin, start: Population, key: Array, *, steps: int) -> Population:
    """Differential evolution with Gaussian mutations: values alone, no gradient.

    Each restart is an individual. A child moves towards a good individual and along the difference
    of two others (Zhang and Sanderson 2009, "current to p-best"), or takes a Gaussian step of a
    random size, in a random subset of the coordinates. Some draw new discrete sites. A child that
    is not worse replaces its parent.
    """
    number, dim = start.points.shape
    values = jax.vmap(lambda point, key: margin(point, key)[1])(start.points, start.keys)
    parents = start._replace(margins=jnp.minimum(values, start.margins))

    def generation(parents: Population, key: Array) -> tuple[Population, None]:
        keys = jax.random.split(key, 8)
        order = jax.random.permutation(keys[0], number)
        elite = jnp.argsort(parents.margins)[: max(1, number // 8)]
        good = parents.points[jax.random.choice(keys[1], elite, (number,))]
        difference = parents.points[order] - parents.points[jnp.roll(order, 1)]
        weight = jax.random.uniform(keys[2], (number, 1), minval=0.2, maxval=1.0)
        towards = parents.points + weight * (good - parents.points + difference)
        size = 10.0 ** jax.random.uniform(keys[3], (number, 1), minval=-4.0, maxval=0.5)
        near = parents.points + size * jax.random.normal(keys[4], (number, dim))
        kind, taken, forced, fresh = jax.random.split(keys[5], 4)
        child = jnp.where(jax.random.bernoulli(kind, 0.5, (number, 1)), towards, near)
        share = jax.random.uniform(taken, (number, 1))
        mask = jax.random.bernoulli(keys[6], share, (number, dim))
        mask |= jnp.arange(dim) == jax.random.randint(forced, (number, 1), 0, max(dim, 1))
        child = jnp.where(mask, child, parents.points)
        renewed = jax.random.bernoulli(fresh, 0.1, (number,))
        child_keys = jnp.where(renewed, jax.random.split(keys[7], number), parents.keys)
        margins = jax.vmap(lambda point, key: margin(point, key)[1])(child, child_keys)
        taken_over = margins <= parents.margins
        return Population(
            jnp.where(taken_over[:, None], child, parents.points),
            jnp.where(taken_over, child_keys, parents.keys),
            jnp.where(taken_over, margins, parents.margins),
        ), None

    return jax.lax.scan(generation, parents, jax.random.split(key, steps))[0]


def _better(start: Population, points: Array, margins: Array) -> Population:
    """The new points where they are better."""
    better = margins < start.margins
    kept = jnp.where(better[:, None], points, start.points)
    return Population(kept, start.keys, jnp.where(better, margins, start.margins))


DESCENTS = {"adam": adam, "lbfgs": lbfgs, "evolution": evolution}
"""By the names that ``Effort.methods`` uses."""

"""Points of an open family near instances that it does not reach."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from jaxlab.claims.claim import Claim
from jaxlab.claims.evaluate import Evaluator
from jaxlab.claims.families import accepted, draw, from_unconstrained
from jaxlab.core.trees import is_key

__all__ = ["approach_boundary"]

_STEPS = 200


def approach_boundary(
    claim: Claim, evaluator: Evaluator, name: str, key: Array
) -> Float[Array, "boundary numbers"]:
    """The family's points nearest to those boundary instances that look like its own.

    A NumPyro model cannot be inverted, so that the points are found by descent on the distance.
    """
    model, sizes = claim.families[name], claim.typical
    shape = jax.eval_shape(lambda key: draw(model, key, sizes), key)
    targets = [
        instance
        for boundary in claim.boundary.values()
        if _look_alike(instance := boundary(**accepted(boundary, sizes)), shape)
    ]
    flatten = evaluator.flattener(name)
    keys = jax.random.split(key, max(len(targets), 1))
    if not targets:
        return flatten(keys)[:0]
    unflatten = evaluator.unflattener(name)
    optimizer = optax.adam(optax.cosine_decay_schedule(0.3, _STEPS))

    def make(_: Callable[..., Any]) -> Callable[..., Any]:
        def approach(point: Array, key: Array, target: list[Array]) -> Array:
            def distance(point: Array) -> Array:
                found = _numbers(from_unconstrained(model, unflatten(point), key, sizes))
                parts = [
                    jnp.mean((a - b) ** 2) / (jnp.mean(b**2) + 1e-6)
                    for a, b in zip(found, target, strict=True)
                    if a.size
                ]
                return jnp.stack(parts).sum() if parts else jnp.zeros(())

            def step(carry: tuple, _: None) -> tuple[tuple, None]:
                point, memory = carry
                slope = jnp.nan_to_num(jax.grad(distance)(point))
                updates, memory = optimizer.update(slope, memory, point)
                return (point + updates, memory), None

            return jax.lax.scan(step, (point, optimizer.init(point)), length=_STEPS)[0][0]

        return jax.vmap(approach)

    program = evaluator.program(f"approach {name}", make, {})
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *[_numbers(t) for t in targets])
    near = program(flatten(keys), keys, stacked)
    return near[np.asarray(jnp.isfinite(near).all(axis=1))]


def _numbers(instance: Any) -> list[Array]:
    leaves = [jnp.asarray(leaf) for leaf in jax.tree.leaves(instance) if not is_key(leaf)]
    return [leaf for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.floating)]


def _look_alike(instance: Any, shape: Any) -> bool:
    def mark(tree: Any) -> tuple:
        return jax.tree.structure(tree), tuple(leaf.shape for leaf in jax.tree.leaves(tree))

    return mark(jax.tree.map(jnp.asarray, instance)) == mark(shape)

"""Claims of the paper on orthogonal unlearning.

O5 and O8 stand here: what the projection is. O6, O7 and O9, on what it protects, are in
``oeu_protection.py``, O1 to O4, on entropy, in ``oeu_entropy.py``, O10 and O11, on quantisers, in
``oeu_quantizers.py``.
"""

from typing import NamedTuple

import jax.numpy as jnp
from hypothesis import strategies as st
from jaxtyping import Array, Float

from jaxlab.claims import Claim, Comparison, at_most
from jaxlab.core.locate import load_companion
from jaxlab.optim.oeu_projection import inner_product, project_orthogonal, tree_norm
from jaxlab.problems.sites import log_uniform, normals, uniform

ALLOWANCE = 1e-12
TINY = 1e-300
Tree = dict[str, Array]


class Pair(NamedTuple):
    """Two gradients of two leaves each, of equal shape."""

    forget: Tree
    retain: Tree
    factor: Float[Array, ""]


def pair(dim: int) -> Pair:
    """A NumPyro model: from nearly parallel to independent, the retain gradient of any size."""
    a, b, c, d = normals("numbers", (dim,), (dim,), (dim,), (dim,))
    mix = uniform("mix", -1.0, 1.0)
    size, factor = log_uniform("size", 1e-12, 1e3), log_uniform("factor", 1e-6, 1e6)
    retain = {"a": size * a, "b": size * b}
    forget = {"a": mix * a + (1 - jnp.abs(mix)) * c, "b": mix * b + (1 - jnp.abs(mix)) * d}
    return Pair(forget, retain, factor)


def no_retain_gradient(*, dim: int) -> Pair:
    """The retain loss is at its minimum."""
    ones, zeros = jnp.ones(dim), jnp.zeros(dim)
    return Pair({"a": ones, "b": -2 * ones}, {"a": zeros, "b": zeros}, jnp.ones(()))


def parallel(*, dim: int) -> Pair:
    """Nothing is left."""
    ones = jnp.ones(dim)
    return Pair({"a": ones, "b": -ones}, {"a": -3 * ones, "b": 3 * ones}, jnp.ones(()))


def is_forgetting(instance: Pair) -> Array:
    """The forgetting gradient is not zero, and the factor is positive."""
    return jnp.minimum(tree_norm(instance.forget) - 1e-9, instance.factor)


def times(factor: Array | float, tree: Tree) -> Tree:
    """Every leaf."""
    return {name: factor * leaf for name, leaf in tree.items()}


def minus(one: Tree, other: Tree) -> Tree:
    """Leaf by leaf."""
    return {name: one[name] - other[name] for name in one}


def projection(
    instance: Pair, *, dim: int, swapped: float = 0.0, once: float = 0.0, guard: float = 0.0
) -> Comparison:
    """O5. Mutants project the wrong gradient, divide by its norm once, or guard the denominator."""
    del dim
    forget, retain, factor = instance

    def project(forget: Tree, retain: Tree) -> Tree:
        square = inner_product(retain, retain)
        removed = minus(forget, project_orthogonal(forget, retain))
        # With a norm of 0 nothing is removed, whatever the bug.
        kept = jnp.where(once > 0, jnp.sqrt(square), 1.0)
        kept = kept * jnp.where(guard > 0, square / jnp.maximum(square + guard, TINY), 1.0)
        ours = minus(forget, times(kept, removed))
        wrong = project_orthogonal(retain, forget)
        return {n: jnp.where(swapped > 0, wrong[n], ours[n]) for n in ours}

    rest = project(forget, retain)
    sizes = [tree_norm(tree) for tree in (forget, retain, rest)]
    unit = times(1 / jnp.maximum(sizes[1], TINY), retain)
    left = jnp.stack(
        [
            jnp.abs(inner_product(rest, unit)) / sizes[0],
            sizes[2] / sizes[0] - 1,
            tree_norm(minus(project(rest, retain), rest)) / sizes[0],
            jnp.abs(inner_product(rest, forget) - sizes[2] ** 2) / sizes[0] ** 2,
            tree_norm(minus(project(forget, times(factor, retain)), rest)) / sizes[0],
            jnp.where(sizes[1] > 0, 0.0, tree_norm(minus(rest, forget)) / sizes[0]),
        ]
    )
    return at_most(left, ALLOWANCE)


def low_precision(instance: Pair, *, dim: int, type_name: str, own: float = 0.0) -> Comparison:
    """O5 for gradients in a lower precision; the mutant adds up in bfloat16."""
    del dim
    dtype = jnp.dtype(type_name)
    forget, retain = (
        {name: leaf.astype(dtype) for name, leaf in tree.items()}
        for tree in (instance.forget, instance.retain)
    )
    rest = project_orthogonal(forget, retain)
    square = sum(jnp.sum((leaf * leaf).astype(jnp.bfloat16)) for leaf in retain.values())
    inner = sum(
        jnp.sum((a * b).astype(jnp.bfloat16))
        for a, b in zip(forget.values(), retain.values(), strict=True)
    )
    ratio = (inner / jnp.where(square > 0, square, 1)).astype(dtype)
    rough = {name: forget[name] - ratio * retain[name] for name in forget}
    wide = [
        {name: leaf.astype(float) for name, leaf in tree.items()}
        for tree in (forget, retain, rest, rough)
    ]
    used = {name: jnp.where(own > 0, wide[3][name], wide[2][name]) for name in forget}
    unit = times(1 / jnp.maximum(tree_norm(wide[1]), TINY), wide[1])
    # Every entry of the result is rounded once, and the share of all once.
    allowed = 1e-5 if type_name == "float32" else 4 * float(jnp.finfo(dtype).eps)
    found = jnp.abs(inner_product(used, unit)) / tree_norm(wide[0])
    return at_most(found, allowed, scale=allowed)


def per_leaf(instance: Pair, *, dim: int, reordered: float = 0.0) -> Comparison:
    """O8. The mutant pairs leaves in another order."""
    del dim
    forget, retain = instance.forget, instance.retain
    other = {"a": retain["b"], "b": retain["a"]}
    used = {name: jnp.where(reordered > 0, other[name], retain[name]) for name in retain}
    rest = project_orthogonal(forget, used, per_leaf=True)
    size = tree_norm(forget)
    unit = times(1 / jnp.maximum(tree_norm(retain), TINY), retain)
    own = [
        jnp.abs(rest[name] @ unit[name]) / jnp.maximum(jnp.linalg.norm(unit[name]), TINY)
        for name in rest
    ]
    whole = tree_norm(project_orthogonal(forget, retain))
    left = [jnp.abs(inner_product(rest, unit)), *own, tree_norm(rest) - whole]
    return at_most(jnp.stack(left) / size, ALLOWANCE)


SIZES = {"dim": st.sampled_from([1, 40])}
TYPICAL = {"dim": 40}
BOUNDARY = {"retain gradient 0": no_retain_gradient, "parallel": parallel}
CLAIMS = (
    *load_companion("proofs_checks", "oeu_entropy").CLAIMS,
    Claim(
        name="oeu/projection",
        statement=(
            "<g_perp, g_r> = 0, |g_perp| <= |g_f|, idempotent, <g_perp, g_f> = |g_perp|^2, "
            "invariant to the size of g_r, g_f itself if g_r = 0"
        ),
        source="derived: an orthogonal projection",
        families={"pair": pair},
        conclusion=projection,
        assumptions=is_forgetting,
        sizes=SIZES,
        typical=TYPICAL,
        boundary=BOUNDARY,
        samples=2000,
        rungs=("explore", "sample"),
        mutants={
            "g_r projected off g_f": {"swapped": 1.0},
            "divided by |g_r| once": {"once": 1.0},
            "|g_r|^2 + 1e-12": {"guard": 1e-12},
        },
    ),
    Claim(
        name="oeu/projection_low_precision",
        statement="|<g_perp, g_r>| <= 1e-5 |g_f| |g_r| in float32, <= 4 eps in bfloat16",
        source="derived: one rounding per entry; inner products are added up in float32",
        families={"pair": pair},
        conclusion=low_precision,
        assumptions=is_forgetting,
        sizes={**SIZES, "type_name": st.sampled_from(["float32", "bfloat16"])},
        typical={**TYPICAL, "type_name": "float32"},
        samples=1000,
        rungs=("explore", "sample"),
        rounds=True,
        mutants={"inner products in bfloat16": {"own": 1.0}},
    ),
    Claim(
        name="oeu/per_leaf",
        statement="orthogonal leaf by leaf => orthogonal in all, and no longer than g_perp",
        source="derived: a sum of zeros; the complement of a larger space",
        families={"pair": pair},
        conclusion=per_leaf,
        assumptions=is_forgetting,
        sizes=SIZES,
        typical=TYPICAL,
        boundary=BOUNDARY,
        samples=2000,
        rungs=("explore", "sample"),
        mutants={"leaves in another order": {"reordered": 1.0}},
    ),
    *load_companion("proofs_checks", "oeu_protection").CLAIMS,
    *load_companion("proofs_checks", "oeu_quantizers").CLAIMS,
)

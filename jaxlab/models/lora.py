r"""Low-rank adapters as a transformation of parameters.

.. math:: W \mapsto W + \frac{\alpha}{r} A B, \quad A \in R^{in \times r}, B \in R^{r \times out}.

A loss of parameters becomes a loss of adapters, which any optimizer or derivative takes:
``lambda adapters: loss(merge_lora(params, adapters), batch)``. Hu et al., arXiv:2106.09685.
"""

import re
from collections.abc import Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from jaxlab.core.checks import check_count, check_key
from jaxlab.core.types import Scalar

__all__ = ["Adapters", "init_lora", "merge_lora"]

Adapters: TypeAlias = dict[str, dict[str, Array]]
"""Factors ``{"a": ..., "b": ...}`` by the path of the kernel that they change."""


def init_lora(
    key: Array,
    params: PyTree,
    *,
    rank: int,
    targets: Sequence[str] = ("query/kernel", "value/kernel"),
) -> Adapters:
    """Adapters that change nothing yet: ``a`` is normal with variance 1 / rank, ``b`` is zero.

    Args:
        key: A typed key.
        params: Any tree of arrays; those whose path, joined by "/", matches a target must be
            kernels ``[..., in, out]``, whose leading axes (stacked layers) stay.
        rank: The rank ``r``.
        targets: Regular expressions, searched for in the path.

    Raises:
        ValueError: A target that no path matches, or that matches an array without two axes.

    Example:
        >>> params = {"query": {"kernel": jnp.ones((3, 4, 6))}, "norm": jnp.ones(4)}
        >>> adapters = init_lora(jax.random.key(0), params, rank=2, targets=["query"])
        >>> adapters["query/kernel"]["a"].shape, adapters["query/kernel"]["b"].shape
        ((3, 4, 2), (3, 2, 6))
        >>> merged = merge_lora(params, adapters)
        >>> bool((merged["query"]["kernel"] == 1).all())
        True
    """
    check_key("key", key)
    check_count("rank", rank)
    leaves = {_path(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(params)}
    for target in targets:
        if not any(re.search(target, path) for path in leaves):
            raise ValueError(
                f"targets must each match a path of params, got {target!r} for paths "
                f"such as {sorted(leaves)[0]!r}"
            )
    chosen = [path for path in leaves if any(re.search(target, path) for target in targets)]
    adapters = {}
    for path, draw in zip(chosen, jax.random.split(key, len(chosen)), strict=True):
        leaf = leaves[path]
        if leaf.ndim < 2:
            raise ValueError(
                f"targets must match kernels [..., in, out], got {path!r} of shape {leaf.shape}"
            )
        *stack, inputs, outputs = leaf.shape
        spread = jnp.asarray(rank, leaf.dtype) ** -0.5
        adapters[path] = {
            "a": spread * jax.random.normal(draw, (*stack, inputs, rank), leaf.dtype),
            "b": jnp.zeros((*stack, rank, outputs), leaf.dtype),
        }
    return adapters


def merge_lora(params: PyTree, adapters: Adapters, *, alpha: Scalar | None = None) -> PyTree:
    """The parameters that the adapters stand for, of the structure of ``params``.

    Args:
        params: The parameters that stay as they are.
        adapters: As ``init_lora`` returns them.
        alpha: The product is scaled by ``alpha / rank``; the rank itself if not given.

    Raises:
        ValueError: An adapter whose path or shape does not fit ``params``.
    """
    paths = [_path(path) for path, _ in jax.tree_util.tree_leaves_with_path(params)]
    for path in adapters:
        if path not in paths:
            raise ValueError(f"adapters must be for paths of params, got {path!r}")

    def add(path: Any, leaf: Array) -> Array:
        pair = adapters.get(_path(path))
        if pair is None:
            return leaf
        a, b = pair["a"], pair["b"]
        if (*a.shape[:-1], b.shape[-1]) != leaf.shape:
            raise ValueError(
                f"adapters of {_path(path)!r} must multiply to the shape {leaf.shape}"
                f", got {a.shape} and {b.shape}"
            )
        scale = 1 if alpha is None else alpha / a.shape[-1]
        return leaf + (scale * (a @ b)).astype(leaf.dtype)

    return jax.tree_util.tree_map_with_path(add, params)


def _path(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")

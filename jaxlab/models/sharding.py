"""Where the parameters of a language model live on a mesh of devices: one table of rules.

Heads and hidden units are split over the mesh's ``model`` axis, so that a layer needs one sum over
devices after attention and one after the perceptron; sequences of a batch are split over ``data``.
"""

import re
from collections.abc import Sequence
from typing import Any, TypeAlias

import jax
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import PyTree

from jaxlab.core.checks import check_count

__all__ = ["RULES", "Rules", "batch_sharding", "device_mesh", "param_shardings"]

Rules: TypeAlias = Sequence[tuple[str, P]]
"""Pairs of a regular expression for a parameter's path and its axes; the first match counts."""

RULES: Rules = (
    (r"layers/.*/(query|key|value|gate|up)/kernel", P(None, None, "model")),
    (r"layers/.*/(query|key|value)/bias", P(None, "model")),
    (r"layers/.*/(output|down)/kernel", P(None, "model", None)),
    (r"embed/embedding", P("model", None)),
    (r"head/kernel", P(None, "model")),
    (r"norm", P()),
)
"""The rules for ``CausalLM``: heads, hidden units and the vocabulary over ``model``."""


def device_mesh(*, data: int, model: int) -> Mesh:
    """A mesh of ``data * model`` devices, over which XLA splits computations by itself.

    Raises:
        ValueError: There are fewer devices.

    Example:
        >>> device_mesh(data=1, model=1).axis_names
        ('data', 'model')
    """
    check_count("data", data)
    check_count("model", model)
    if data * model > len(jax.devices()):
        raise ValueError(
            f"data * model must be at most the {len(jax.devices())} devices, got {data * model}"
        )
    return jax.make_mesh((data, model), ("data", "model"), axis_types=(AxisType.Auto,) * 2)


def param_shardings(mesh: Mesh, params: PyTree, rules: Rules = RULES) -> PyTree:
    """The sharding of every parameter, for ``jax.device_put`` or ``jax.jit``.

    An axis that the mesh lacks, or whose size does not divide the array's, is not split.

    Args:
        mesh: Devices with axes such as ``data`` and ``model`` (``device_mesh``).
        params: Arrays, or their shapes (``CausalLM.shapes``).
        rules: The table.

    Raises:
        ValueError: A parameter that no rule matches.

    Example:
        >>> mesh = device_mesh(data=1, model=1)
        >>> shardings = param_shardings(mesh, {"embed": {"embedding": jax.numpy.ones((4, 2))}})
        >>> tuple(shardings["embed"]["embedding"].spec)
        ('model', None)
    """

    def place(path: Any, leaf: Any) -> NamedSharding:
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        for pattern, spec in rules:
            if re.search(pattern, name):
                return NamedSharding(mesh, _fitting(mesh, spec, leaf.shape))
        raise ValueError(f"rules must match every parameter, got none for {name!r}")

    return jax.tree_util.tree_map_with_path(place, params)


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Sequences over the ``data`` axis."""
    return NamedSharding(mesh, P("data"))


def _fitting(mesh: Mesh, spec: P, shape: tuple[int, ...]) -> P:
    axes = [
        axis if axis in mesh.shape and size % mesh.shape[axis] == 0 else None
        for axis, size in zip(spec, shape, strict=False)
    ]
    return P(*axes)

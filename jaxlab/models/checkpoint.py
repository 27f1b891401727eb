"""How checkpoints name the parameters of ``CausalLM``, and how they are gathered from them.

Files keep each layer apart and linear maps as [out, in]; the parameters are stacked along a leading
axis of layers, with kernels of [in, out].
"""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlab.models.llama import CausalLM, Params

__all__ = ["Leaf", "Slot", "assemble", "check_dtype", "layout", "take"]


class Leaf(NamedTuple):
    """One array of the parameters and its names elsewhere, with ``{}`` for the layer.

    Attributes:
        path: Keys of the nested dictionaries.
        gguf: Its name in GGUF files.
        hugging_face: Its name in the folders of Hugging Face.
    """

    path: tuple[str, ...]
    gguf: str
    hugging_face: str


class Slot(NamedTuple):
    """A tensor of a file and its place among the parameters.

    Attributes:
        name: The tensor's name in the file.
        shape: Its shape there.
        path: Keys of the nested dictionaries.
        layer: Index along the leading axis; ``None`` where there are no layers.
        transposed: Whether the file holds the transpose.
    """

    name: str
    shape: tuple[int, ...]
    path: tuple[str, ...]
    layer: int | None
    transposed: bool


_LEAVES = (
    Leaf(("embed", "embedding"), "token_embd.weight", "model.embed_tokens.weight"),
    Leaf(("norm", "scale"), "output_norm.weight", "model.norm.weight"),
    Leaf(("head", "kernel"), "output.weight", "lm_head.weight"),
)
_LAYER_LEAVES = (
    Leaf(("attention_norm", "scale"), "attn_norm.weight", "input_layernorm.weight"),
    Leaf(("attention", "query", "kernel"), "attn_q.weight", "self_attn.q_proj.weight"),
    Leaf(("attention", "query", "bias"), "attn_q.bias", "self_attn.q_proj.bias"),
    Leaf(("attention", "key", "kernel"), "attn_k.weight", "self_attn.k_proj.weight"),
    Leaf(("attention", "key", "bias"), "attn_k.bias", "self_attn.k_proj.bias"),
    Leaf(("attention", "value", "kernel"), "attn_v.weight", "self_attn.v_proj.weight"),
    Leaf(("attention", "value", "bias"), "attn_v.bias", "self_attn.v_proj.bias"),
    Leaf(("attention", "output", "kernel"), "attn_output.weight", "self_attn.o_proj.weight"),
    Leaf(("mlp_norm", "scale"), "ffn_norm.weight", "post_attention_layernorm.weight"),
    Leaf(("mlp", "gate", "kernel"), "ffn_gate.weight", "mlp.gate_proj.weight"),
    Leaf(("mlp", "up", "kernel"), "ffn_up.weight", "mlp.up_proj.weight"),
    Leaf(("mlp", "down", "kernel"), "ffn_down.weight", "mlp.down_proj.weight"),
)
_NAMES = {leaf.path: leaf for leaf in _LEAVES} | {
    ("layers", *leaf.path): Leaf(
        ("layers", *leaf.path), "blk.{}." + leaf.gguf, "model.layers.{}." + leaf.hugging_face
    )
    for leaf in _LAYER_LEAVES
}


def layout(lm: CausalLM, name: Callable[[Leaf], str]) -> list[Slot]:
    """All tensors of a file that holds a model, in the order of the layers.

    Args:
        lm: The model.
        name: Which of the names.

    Example:
        >>> from jaxlab.models.config import LlamaConfig
        >>> lm = CausalLM(LlamaConfig(vocab_size=8, dim=4, num_layers=1, num_heads=1, mlp_dim=6))
        >>> slot = layout(lm, lambda leaf: leaf.gguf)[-2]
        >>> slot.name, slot.shape, slot.transposed
        ('blk.0.ffn_norm.weight', (4,), False)
    """
    slots = []
    for keys, leaf in jax.tree_util.tree_leaves_with_path(lm.shapes()):
        path = tuple(entry.key for entry in keys)
        stacked = path[0] == "layers"
        transposed = path[-1] == "kernel"
        shape = leaf.shape[1:] if stacked else leaf.shape
        slots.extend(
            Slot(
                name=name(_NAMES[path]).format(layer),
                shape=shape[::-1] if transposed else shape,
                path=path,
                layer=layer,
                transposed=transposed,
            )
            for layer in (range(lm.config.num_layers) if stacked else (None,))
        )
    return slots


def assemble(
    file: str,
    slots: list[Slot],
    *,
    num_layers: int,
    shapes: Mapping[str, tuple[int, ...]],
    unused: Callable[[str], bool],
    read: Callable[[Slot], np.ndarray],
    dtype: Any,
) -> Params:
    """Read tensors straight into stacked arrays.

    Args:
        file: The file's name, for messages.
        slots: The model's tensors.
        num_layers: How many layers it has.
        shapes: Shapes of the tensors in the file.
        unused: Which names may be left aside; another is an error, since the model would compute
            something else than it was trained for.
        read: The tensor of a slot, in the file's layout.
        dtype: Of the parameters.

    Raises:
        ValueError: A tensor is missing, has another shape, or has no place in the model.
    """
    names = {slot.name for slot in slots}
    if missing := sorted(names - shapes.keys()):
        raise ValueError(f"{file} lacks the tensor {_some(missing)}")
    if foreign := sorted(name for name in shapes.keys() - names if not unused(name)):
        raise ValueError(f"{file} holds a tensor that has no place in the model: {_some(foreign)}")
    for slot in slots:
        if shapes[slot.name] != slot.shape:
            raise ValueError(
                f"{file}: the tensor {slot.name} must have the shape {slot.shape}, got "
                f"{shapes[slot.name]}"
            )
    arrays: dict[tuple[str, ...], np.ndarray] = {}
    for slot in slots:
        shape = slot.shape[::-1] if slot.transposed else slot.shape
        stack = () if slot.layer is None else (num_layers,)
        if slot.path not in arrays:
            arrays[slot.path] = np.empty((*stack, *shape), dtype)

    def fill(slot: Slot) -> None:
        tensor = read(slot)
        target = arrays[slot.path] if slot.layer is None else arrays[slot.path][slot.layer]
        target[...] = tensor.T if slot.transposed else tensor

    with ThreadPoolExecutor() as pool:
        for _ in pool.map(fill, slots):
            pass
    params: dict[str, Any] = {}
    for path in list(arrays):
        node = params
        for key in path[:-1]:
            node = node.setdefault(key, {})
        node[path[-1]] = jnp.asarray(arrays.pop(path))
    return params


def take(params: Params, slot: Slot) -> np.ndarray:
    """The tensor of a slot, in the file's layout.

    Raises:
        ValueError: The parameters lack it, or it has another shape.
    """
    tensor: Any = params
    for key in slot.path:
        if key not in tensor:
            raise ValueError(f"params must have {'.'.join(slot.path)}, got none")
        tensor = tensor[key]
    tensor = np.asarray(tensor if slot.layer is None else tensor[slot.layer])
    tensor = tensor.T if slot.transposed else tensor
    if tensor.shape != slot.shape:
        raise ValueError(
            f"params: {slot.name} must have the shape {slot.shape}, got {tensor.shape}"
        )
    return tensor


def check_dtype(dtype: Any) -> None:
    """Raise unless parameters can have this dtype.

    Raises:
        TypeError: No dtype of floats.
        ValueError: float64 without JAX's switch for it.

    Example:
        >>> check_dtype(jnp.int32)
        Traceback (most recent call last):
        TypeError: dtype must be one of floats, got int32
    """
    if not jnp.issubdtype(dtype, jnp.floating):
        raise TypeError(f"dtype must be one of floats, got {jnp.dtype(dtype)}")
    if jax.dtypes.canonicalize_dtype(dtype) != jnp.dtype(dtype):
        raise ValueError(
            f"dtype {jnp.dtype(dtype)} needs jax.config.update('jax_enable_x64', True)"
        )


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"

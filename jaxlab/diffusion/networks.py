"""Small networks of Flax NNX for denoisers, and their pure form.

A network takes one scaled signal and its noise label (see ``edm.preconditioned``); batches come
from ``jax.vmap``.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, PyTree

from jaxlab.core.checks import check_count

__all__ = ["ConvNetwork", "DenseNetwork", "split_network"]

_NUM_FREQUENCIES = 8


def _noise_features(noise: Float[Array, ""]) -> Float[Array, " features"]:
    # Low frequencies: the highest turns once while sigma grows 500-fold, so that the network is
    # smooth across levels at which it was not trained.
    angles = noise * jnp.arange(1, _NUM_FREQUENCIES + 1) / 2
    return jnp.concatenate([noise[None], jnp.cos(angles), jnp.sin(angles)])


class DenseNetwork(nnx.Module):
    """Residual blocks of two dense layers, for vectors; the last layer starts at zero.

    Args:
        dim: The length of a signal.
        width: Of the hidden layers.
        num_blocks: How many blocks.
        rngs: Such as ``nnx.Rngs(jax.random.key(0))``.

    Example:
        >>> network = DenseNetwork(2, width=8, num_blocks=1, rngs=nnx.Rngs(jax.random.key(0)))
        >>> network(jnp.ones(2), jnp.zeros(())).tolist()
        [0.0, 0.0]
    """

    def __init__(self, dim: int, *, width: int = 256, num_blocks: int = 2, rngs: nnx.Rngs):
        check_count("dim", dim)
        check_count("width", width)
        check_count("num_blocks", num_blocks)
        zeros = nnx.initializers.zeros_init()
        self.first = nnx.Linear(dim, width, rngs=rngs)
        self.level = nnx.Linear(2 * _NUM_FREQUENCIES + 1, width, rngs=rngs)
        self.norms = nnx.List([nnx.LayerNorm(width, rngs=rngs) for _ in range(num_blocks)])
        self.inner = nnx.List([nnx.Linear(width, width, rngs=rngs) for _ in range(num_blocks)])
        self.outer = nnx.List([nnx.Linear(width, width, rngs=rngs) for _ in range(num_blocks)])
        self.last = nnx.Linear(width, dim, kernel_init=zeros, rngs=rngs)

    def __call__(self, x: Float[Array, " dim"], noise: Float[Array, ""]) -> Float[Array, " dim"]:
        """The output for one scaled signal and its noise label."""
        level = nnx.silu(self.level(_noise_features(noise)))
        hidden = self.first(x)
        for norm, inner, outer in zip(self.norms, self.inner, self.outer, strict=True):
            hidden = hidden + outer(nnx.silu(inner(norm(hidden) + level)))
        return self.last(nnx.silu(hidden))


class ConvNetwork(nnx.Module):
    """Residual blocks of 3 x 3 convolutions at full resolution, for grey images of any size.

    Args:
        width: The number of channels.
        num_blocks: How many blocks.
        rngs: Such as ``nnx.Rngs(jax.random.key(0))``.

    Example:
        >>> network = ConvNetwork(width=4, num_blocks=1, rngs=nnx.Rngs(jax.random.key(0)))
        >>> network(jnp.ones((8, 8)), jnp.zeros(())).shape
        (8, 8)
    """

    def __init__(self, *, width: int = 32, num_blocks: int = 3, rngs: nnx.Rngs):
        check_count("width", width)
        check_count("num_blocks", num_blocks)
        zeros = nnx.initializers.zeros_init()

        def conv(channels_in: int, channels_out: int, **options: Any) -> nnx.Conv:
            return nnx.Conv(channels_in, channels_out, (3, 3), rngs=rngs, **options)

        self.first = conv(1, width)
        self.level = nnx.Linear(2 * _NUM_FREQUENCIES + 1, width, rngs=rngs)
        self.norms = nnx.List([nnx.LayerNorm(width, rngs=rngs) for _ in range(num_blocks)])
        self.inner = nnx.List([conv(width, width) for _ in range(num_blocks)])
        self.outer = nnx.List([conv(width, width) for _ in range(num_blocks)])
        self.last = conv(width, 1, kernel_init=zeros)

    def __call__(
        self, x: Float[Array, "height width"], noise: Float[Array, ""]
    ) -> Float[Array, "height width"]:
        """The output for one scaled image and its noise label."""
        level = nnx.silu(self.level(_noise_features(noise)))[None, None, :]
        hidden = self.first(x[:, :, None])
        for norm, inner, outer in zip(self.norms, self.inner, self.outer, strict=True):
            hidden = hidden + outer(nnx.silu(inner(norm(hidden) + level)))
        return self.last(nnx.silu(hidden))[:, :, 0]


def split_network(network: nnx.Module) -> tuple[Callable[[Any, Any, Any], Any], PyTree]:
    """A pure function ``apply(params, x, noise)`` and its parameters; ``network`` has only these.

    Raises:
        ValueError: The network holds other variables, such as running means.

    Example:
        >>> network = DenseNetwork(2, width=8, num_blocks=1, rngs=nnx.Rngs(jax.random.key(0)))
        >>> apply, params = split_network(network)
        >>> apply(params, jnp.ones(2), jnp.zeros(())).shape
        (2,)
    """
    graph, params, rest = nnx.split(network, nnx.Param, ...)
    if jax.tree.leaves(rest):
        raise ValueError(
            f"network must hold parameters alone, got {len(jax.tree.leaves(rest))} other variables"
        )

    def apply(params: PyTree, x: Array, noise: Array) -> Array:
        return nnx.merge(graph, params)(x, noise)

    return apply, params

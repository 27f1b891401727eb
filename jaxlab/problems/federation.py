"""Problems that clients solve through a server, some of which lie to it."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PyTree

from jaxlab.core.checks import check_finite, check_leading_axis, check_value

__all__ = ["Federation", "make_federation"]


class Federation(eqx.Module):
    """Minimise the mean of the honest clients' losses, each known through its gradients alone.

    Make it by ``make_federation``, which checks its parts.

    Attributes:
        gradient_fn: ``(params, data, key) -> gradient`` of one client, unbiased. Statistics that a
            network keeps outside its parameters, as batch normalisation does, are not sent.
        data: What ``gradient_fn`` is given; leaves are ``[clients, ...]``.
        start: The server's first parameters, any pytree of arrays.
        byzantine: Who lies; the server does not know it.
    """

    gradient_fn: Callable[[Any, Any, Any], Any] = eqx.field(static=True)
    data: PyTree
    start: PyTree
    byzantine: Bool[Array, " clients"]

    @property
    def num_clients(self) -> int:
        """The number of clients, liars included."""
        return len(self.byzantine)

    def gradients(self, params: PyTree, key: Array) -> PyTree:
        """What each client's gradient is at the server's ``params``; leaves ``[clients, ...]``."""
        keys = jax.vmap(lambda client: jax.random.fold_in(key, client))(
            jnp.arange(self.num_clients)
        )
        return jax.vmap(self.gradient_fn, in_axes=(None, 0, 0))(params, self.data, keys)


def make_federation(
    gradient_fn: Callable[[Any, Any, Any], Any],
    data: PyTree,
    start: PyTree,
    byzantine: Bool[Array, " clients"],
) -> Federation:
    """Check the parts of a federated problem and put them together.

    Args:
        gradient_fn: ``(params, data, key) -> gradient`` of one client; see
            ``consensus.full_gradient`` and ``consensus.minibatch_gradient``.
        data: Private data; leaves are ``[clients, ...]``.
        start: The server's first parameters, without a clients axis.
        byzantine: Who lies; fewer than half.

    Raises:
        ValueError: Half of the clients or more lie, ``data`` is for another number of clients,
            ``data`` or ``start`` holds NaN or infinity, or the gradient has another structure or
            shape than ``start``.

    Example:
        >>> from jaxlab.problems.consensus import full_gradient
        >>> def loss(x, target):
        ...     return 0.5 * jnp.sum((x - target) ** 2)
        >>> liars = jnp.array([True, False, False])
        >>> federation = make_federation(full_gradient(loss), jnp.eye(3), jnp.zeros(3), liars)
        >>> federation.gradients(federation.start, jax.random.key(0))[1].tolist()
        [0.0, -1.0, 0.0]
    """
    byzantine = jnp.asarray(byzantine)
    if byzantine.ndim != 1 or not len(byzantine) or byzantine.dtype != bool:
        raise ValueError(
            "byzantine must be a mask of shape [clients], got dtype "
            f"{byzantine.dtype} and shape {byzantine.shape}"
        )
    check_value("byzantine", byzantine, lambda b: 2 * b.sum() < len(b), "fewer than half")
    check_leading_axis("data", data, len(byzantine), "clients (the length of byzantine)")
    check_finite("data", data)
    check_finite("start", start)
    start = jax.tree.map(jnp.asarray, start)
    one_client = jax.tree.map(lambda leaf: leaf[0], data)
    gradient = jax.eval_shape(gradient_fn, start, one_client, jax.random.key(0))
    found, expected = (jax.tree.map(lambda leaf: leaf.shape, tree) for tree in (gradient, start))
    if found != expected:
        raise ValueError(
            f"gradient_fn must return the structure and shapes of start, {expected}, got {found}"
        )
    return Federation(gradient_fn, data, start, byzantine)

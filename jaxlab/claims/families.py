"""Instances from NumPyro models: drawn from keys, or from unconstrained numbers."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import jax
from jaxtyping import Array, Bool
from numpyro import handlers
from numpyro.distributions.transforms import biject_to

__all__ = ["accepted", "distinct_keys", "draw", "from_unconstrained", "is_model", "unconstrained"]


def accepted(function: Callable[..., Any], sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Those sizes that a function names among its parameters."""
    parameters = inspect.signature(function).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return dict(sizes)
    return {name: value for name, value in sizes.items() if name in parameters}


def is_model(family: Callable[..., Any]) -> bool:
    """Whether a family is a NumPyro model; a plain function takes ``key`` first."""
    parameters = list(inspect.signature(family).parameters)
    return not parameters or parameters[0] != "key"


def draw(family: Callable[..., Any], key: Array, sizes: Mapping[str, Any]) -> Any:
    """One instance.

    Example:
        >>> import jax, numpyro, numpyro.distributions as dist
        >>> def model(dim):
        ...     return numpyro.sample("x", dist.Normal(0.0, 1.0).expand([dim]))
        >>> draw(model, jax.random.key(0), {"dim": 3}).shape
        (3,)
    """
    if is_model(family):
        return handlers.seed(family, key)(**accepted(family, sizes))
    return family(key, **accepted(family, sizes))


def distinct_keys(keys: Array) -> Bool[Array, ""]:
    """Whether no key comes twice: the assumption of claims whose instances are keys.

    Example:
        >>> keys = jax.random.split(jax.random.key(0), 3)
        >>> bool(distinct_keys(keys)), bool(distinct_keys(keys[jax.numpy.array([0, 0])]))
        (True, False)
    """
    data = jax.random.key_data(keys).reshape(keys.size, -1)
    same = (data[:, None] == data[None]).all(axis=-1).sum()
    return same == len(data)


def unconstrained(
    model: Callable[..., Any], key: Array, sizes: Mapping[str, Any]
) -> dict[str, Array]:
    """The continuous sites of a draw, mapped to all of Euclidean space by NumPyro's bijections."""
    trace = handlers.trace(handlers.seed(model, key)).get_trace(**accepted(model, sizes))
    return {
        name: biject_to(site["fn"].support).inv(site["value"])
        for name, site in trace.items()
        if _is_continuous(site)
    }


def from_unconstrained(
    model: Callable[..., Any], numbers: Mapping[str, Array], key: Array, sizes: Mapping[str, Any]
) -> Any:
    """The instance of unconstrained numbers; discrete sites are drawn from ``key``."""

    def value(site: dict[str, Any]) -> Array | None:
        if site["name"] not in numbers:
            return None
        return biject_to(site["fn"].support)(numbers[site["name"]])

    return handlers.seed(handlers.substitute(model, substitute_fn=value), key)(
        **accepted(model, sizes)
    )


def _is_continuous(site: dict[str, Any]) -> bool:
    if site["type"] != "sample" or site["is_observed"]:
        return False
    return not site["fn"].support.is_discrete

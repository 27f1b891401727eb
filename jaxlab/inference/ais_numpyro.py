"""From a NumPyro model to a target, and from a population to named draws and ArviZ data."""

import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PyTree
from numpyro.infer.util import initialize_model

from jaxlab.core.checks import check_key
from jaxlab.core.locate import missing_package
from jaxlab.core.types import Scalar
from jaxlab.inference.ais import AISState, resample_points
from jaxlab.inference.target import Target, heavy_tailed, make_target

__all__ = ["NumpyroPosterior", "named_draws", "numpyro_target", "to_arviz"]


class NumpyroPosterior(NamedTuple):
    """A NumPyro model as a target.

    Attributes:
        target: The joint density over unconstrained, flattened latent sites; its evidence is the
            marginal likelihood of the observed sites.
        constrain: From a flat vector to the model's latent and deterministic sites by name.
    """

    target: Target
    constrain: Callable[[Array], dict[str, Any]]


def numpyro_target(
    model: Callable[..., Any],
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    key: Array,
    location: PyTree = None,
    scale: Scalar | PyTree = 2.0,
) -> NumpyroPosterior:
    """The posterior of a NumPyro model on its unconstrained space.

    Args:
        model: With continuous latent sites.
        args: Its positional arguments.
        kwargs: Its named arguments.
        key: A typed PRNG key, for the model's own initialisation.
        location: The global law's centre: unconstrained latent sites by name; zeros by default.
        scale: Its scale: a number, or unconstrained latent sites by name.

    Raises:
        TypeError: ``key`` is not a typed key.
        ValueError: The model has no continuous latent site, or ``location`` or ``scale`` are for
            other sites.

    Example:
        >>> import numpyro, numpyro.distributions as dist
        >>> def model(observed):
        ...     rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
        ...     numpyro.sample("counts", dist.Poisson(rate), obs=observed)
        >>> posterior = numpyro_target(model, (jnp.array([3, 5]),), key=jax.random.key(0))
        >>> posterior.target.dim, list(posterior.constrain(jnp.zeros(1)))
        (1, ['rate'])
    """
    check_key("key", key)
    keywords = dict(kwargs or {})
    info = initialize_model(key, model, model_args=args, model_kwargs=keywords)
    example = info.param_info.z
    flat, unravel = ravel_pytree(example)
    if flat.size == 0:
        raise ValueError("model must have a continuous latent site, got none")
    centre = jnp.zeros_like(flat) if location is None else _flat_like("location", location, example)
    width = scale
    if isinstance(scale, Mapping) or jnp.ndim(scale) > 0:
        width = _flat_like("scale", scale, example)
    law = heavy_tailed(centre, width)

    def logdensity(position: dict[str, Array]) -> Array:
        return -info.potential_fn(position)

    target = make_target(logdensity, law, position=example)
    return NumpyroPosterior(target, lambda point: dict(info.postprocess_fn(unravel(point))))


def _flat_like(name: str, values: Any, example: Any) -> Array:
    shapes = jax.tree.map(jnp.shape, example)
    if not isinstance(values, Mapping) or jax.tree.map(jnp.shape, dict(values)) != shapes:
        told = jax.tree.map(jnp.shape, dict(values)) if isinstance(values, Mapping) else values
        raise ValueError(f"{name} must have sites of the shapes {shapes}, got {told}")
    floats = jax.tree.map(lambda leaf, like: jnp.asarray(leaf, like.dtype), dict(values), example)
    return ravel_pytree(floats)[0]


def named_draws(
    key: Array, state: AISState, posterior: NumpyroPosterior, num: int
) -> dict[str, Array]:
    """Equally weighted posterior draws of the model's own sites, ``[num, ...]`` each.

    Args:
        key: A typed PRNG key.
        state: Of a run of ``delayed_ais`` on ``posterior.target``.
        posterior: Of ``numpyro_target``.
        num: How many; more than the effective sample size repeat points.

    Raises:
        TypeError: ``key`` is not a typed key, or ``num`` not an integer.
        ValueError: ``num`` is less than 1.
    """
    key_points, key_order = jax.random.split(key)
    points = resample_points(key_points, state, num)
    # Resampling sorts the points; draws come in no order.
    return jax.vmap(posterior.constrain)(jax.random.permutation(key_order, points))


def to_arviz(draws: Mapping[str, Array], **attributes: Any) -> Any:
    """Draws as ArviZ data with one chain: a data tree in ArviZ 1, ``InferenceData`` before.

    Args:
        draws: Arrays ``[num, ...]`` by name, from ``named_draws``.
        **attributes: Kept with the posterior: ``log_evidence=...``, ``khat=...``.

    Raises:
        ImportError: ArviZ is not installed.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # ArviZ 0.23 announces ArviZ 1
            import arviz
    except ImportError as error:
        raise missing_package("to_arviz", "ArviZ", error) from error
    posterior = {name: jax.device_get(values)[None] for name, values in draws.items()}
    told = {name: float(value) for name, value in attributes.items()}
    if int(arviz.__version__.split(".")[0]) >= 1:
        return arviz.from_dict({"posterior": posterior}, attrs={"posterior": told})
    return arviz.from_dict(posterior=posterior, posterior_attrs=told)

"""What an importance sampler is given: a log density, and a global law that covers it."""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, ArrayLike, Float, PyTree
from numpyro.distributions.util import validate_sample

from jaxlab.core.checks import check_count, check_finite, check_value
from jaxlab.core.trees import is_inexact
from jaxlab.core.types import Scalar
from jaxlab.inference.mixtures import student_log_norm
from jaxlab.stats.whitening import whiten

__all__ = ["StudentLaw", "Target", "heavy_tailed", "log_ratio", "lowest", "make_target"]


class Target(eqx.Module):
    """An unnormalised density on R^d. Make it by ``make_target``, which checks its parts.

    Points are flat vectors everywhere; a log density that takes a tree sees it through ``unravel``.

    Attributes:
        logdensity_fn: ``position -> log gamma``, minus infinity where the density is 0.
        proposal: The global law ``g``, a NumPyro distribution over flat vectors.
        unravel: From a flat vector to a position.
    """

    logdensity_fn: Callable[[Any], Any] = eqx.field(static=True)
    proposal: dist.Distribution
    unravel: Callable[[Array], Any] = eqx.field(static=True)

    @property
    def dim(self) -> int:
        """The number of coordinates."""
        return self.proposal.event_shape[0]

    @property
    def dtype(self) -> Any:
        """The type of points and densities: that of the global law's parameters."""
        leaves = [leaf for leaf in jax.tree.leaves(self.proposal) if is_inexact(leaf)]
        return jnp.result_type(*leaves) if leaves else jnp.result_type(float)

    def draw(self, key: Array, num: int) -> Float[Array, "num dim"]:
        """Independent draws from the global law."""
        with jax.numpy_rank_promotion("allow"):  # as NumPyro does
            return jnp.asarray(self.proposal.sample(key, (num,)), dtype=self.dtype)

    def log_proposal(self, points: Float[Array, "num dim"]) -> Float[Array, " num"]:
        """``log g``; ``lowest(dtype)`` outside its support."""
        with jax.numpy_rank_promotion("allow"):
            log_g = jnp.asarray(self.proposal.log_prob(points), dtype=self.dtype)
            support: Any = self.proposal.support
            inside = jnp.asarray(support(points))
        return jnp.maximum(jnp.where(inside, log_g, lowest(self.dtype)), lowest(self.dtype))

    def log_density(self, points: Float[Array, "num dim"]) -> Float[Array, " num"]:
        """``log gamma``, called once per point in one batch; ``lowest(dtype)`` where it is 0.

        Under ``checked``, NaN and plus infinity are errors that name ``logdensity_fn``; otherwise
        they stay, so that a runner reports the step at which they came.
        """
        values = jax.vmap(lambda x: self.logdensity_fn(self.unravel(x)))(points)
        values = jnp.asarray(values, dtype=self.dtype)
        check_value("logdensity_fn's value", values, lambda v: v < jnp.inf, _EXPECTED)
        return jnp.maximum(values, lowest(self.dtype))


_EXPECTED = "a number or minus infinity"


def lowest(dtype: Any) -> float:
    """The finite stand-in for the logarithm of 0: its weight is 0, and sums with it stay finite.

    Example:
        >>> lowest(jnp.float32) < -1e37
        True
    """
    return float(jnp.finfo(dtype).min) / 8


def log_ratio(
    log_density: Float[Array, "*shape"], log_proposal: Float[Array, "*shape"]
) -> Float[Array, "*shape"]:
    """The log weight ``log(gamma / q)``, minus infinity where a target's log density is ``lowest``.

    Example:
        >>> log_ratio(jnp.array([2.0, lowest(jnp.float32)]), jnp.ones(2)).tolist()
        [1.0, -inf]
    """
    empty = log_density <= lowest(log_density.dtype)
    return jnp.where(empty, -jnp.inf, log_density - log_proposal)


def make_target(
    logdensity_fn: Callable[[Any], Any], proposal: dist.Distribution, *, position: PyTree = None
) -> Target:
    """Check the parts of a target and put them together.

    Args:
        logdensity_fn: ``position -> log gamma`` up to a constant, traceable, as BlackJAX takes it.
        proposal: The global law ``g`` over vectors ``[dim]``. It must dominate the target's tails,
            or the weights have no finite variance: see ``heavy_tailed``.
        position: An example of what ``logdensity_fn`` takes, if that is not a vector ``[dim]``.

    Raises:
        TypeError: ``proposal`` is not a NumPyro distribution.
        ValueError: It is not over vectors, its parameters or ``position`` are not finite,
            ``position`` has another number of entries, or ``logdensity_fn`` does not return one
            real number.

    Example:
        >>> target = make_target(lambda x: -jnp.sum(x**2) / 2, heavy_tailed(jnp.zeros(2), 3.0))
        >>> target.dim, target.log_density(jnp.ones((1, 2))).tolist()
        (2, [-1.0])
    """
    if not isinstance(proposal, dist.Distribution):
        raise TypeError(f"proposal must be a NumPyro distribution, got {type(proposal).__name__}")
    if proposal.batch_shape or len(proposal.event_shape) != 1:
        raise ValueError(
            "proposal must have batch_shape () and event_shape (dim,), got "
            f"{proposal.batch_shape} and {proposal.event_shape}; try .to_event(1)"
        )
    check_finite("proposal", jax.tree.leaves(proposal))
    dim = proposal.event_shape[0]
    unravel: Callable[[Array], Any] = _itself
    if position is not None:
        check_finite("position", position)
        flat, unravel = ravel_pytree(position)
        if flat.shape != (dim,):
            raise ValueError(f"position must have {dim} entries like proposal, got {flat.shape[0]}")
    target = Target(logdensity_fn, proposal, unravel)
    point = jax.ShapeDtypeStruct((dim,), target.dtype)
    out = jax.eval_shape(lambda x: logdensity_fn(unravel(x)), point)
    if getattr(out, "shape", None) != () or not is_inexact(out):
        raise ValueError(f"logdensity_fn must return one real number, got {out}")
    return target


def _itself(point: Array) -> Array:
    return point


class StudentLaw(dist.MultivariateStudentT):
    """A multivariate Student law whose degrees of freedom are a static integer.

    Draws are made of normals instead of gamma variates, whose rejection loop takes JAX seconds to
    compile, and densities by ``stats.whitening``. Everything else is NumPyro's.

    Attributes:
        num_df: The degrees of freedom.
    """

    pytree_aux_fields = ("num_df",)

    def __init__(self, num_df: int, loc: Array, scale_tril: Array, **options: Any):
        self.num_df = num_df
        df = jnp.asarray(num_df, jnp.result_type(loc))
        super().__init__(df, loc, scale_tril, **options)

    @classmethod
    def gather_pytree_data_fields(cls) -> tuple[str, ...]:
        """The arrays in a fixed order: NumPyro's is a set's, which differs between processes."""
        return ("df", "loc", "scale_tril")

    @classmethod
    def gather_pytree_aux_fields(cls) -> tuple[str, ...]:
        """The static parts in a fixed order, so that stored runs are known again."""
        return tuple(sorted(super().gather_pytree_aux_fields()))

    def sample(
        self, key: jax.Array | None, sample_shape: tuple[int, ...] = ()
    ) -> Float[Array, "..."]:
        """Independent draws."""
        assert key is not None
        shape = (*sample_shape, self.num_df + self.event_shape[0])
        # Flat draws: XLA takes ten times as long to compile the generator for several axes.
        flat = jax.random.normal(key, (math.prod(shape),), jnp.result_type(self.loc))
        normals = flat.reshape(shape)
        chi_square = jnp.sum(normals[..., : self.num_df] ** 2, axis=-1, keepdims=True)
        direction = normals[..., self.num_df :] * jnp.sqrt(self.num_df / chi_square)
        location, factor = jnp.asarray(self.loc), jnp.asarray(self.scale_tril)
        return jnp.broadcast_to(location, direction.shape) + direction @ factor.T

    @validate_sample
    def log_prob(self, value: ArrayLike) -> Float[Array, "*points"]:
        """The log density of points ``[*points, dim]``."""
        df, dim, factor = self.num_df, self.event_shape[0], jnp.asarray(self.scale_tril)
        white = whiten(jnp.asarray(value) - jnp.asarray(self.loc), factor)
        log_norm = student_log_norm(df, dim) - jnp.sum(jnp.log(jnp.diagonal(factor)))
        return log_norm - (df + dim) / 2 * jnp.log1p(jnp.sum(jnp.square(white), axis=-1) / df)


def heavy_tailed(
    location: Float[Array, " dim"], scale: Scalar | Float[Array, " dim"], *, df: int = 5
) -> StudentLaw:
    """A multivariate Student law, the usual global law.

    Args:
        location: Its centre.
        scale: Positive, one number or one per coordinate. Too wide costs points, too narrow costs
            modes.
        df: Degrees of freedom; fewer mean heavier tails.

    Raises:
        TypeError: ``df`` is not an integer.
        ValueError: ``scale`` or ``df`` is not positive.

    Example:
        >>> heavy_tailed(jnp.zeros(3), 2.0).event_shape
        (3,)
    """
    location = jnp.asarray(location)
    check_value("scale", scale, lambda s: s > 0, "positive")
    check_count("df", df)
    diagonal = jnp.broadcast_to(jnp.asarray(scale, location.dtype), location.shape)
    return StudentLaw(df, location, jnp.diag(diagonal))

"""From an instance to a margin, compiled once per family and sizes."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxlab.claims.claim import Claim, Comparison, Expectation
from jaxlab.claims.families import accepted, draw, from_unconstrained
from jaxlab.core.types import Scalar
from jaxlab.stats.intervals import empirical_bernstein

__all__ = ["Evaluation", "Evaluator", "evaluate", "precise", "sides"]


class Evaluation(NamedTuple):
    """What one instance says of a claim.

    Attributes:
        margin: Decides: negative beyond the tolerance is a violation. For expectations it includes
            the confidence bound.
        estimate: The margin without the confidence bound, which the attack descends on.
        slack: Of the assumptions.
    """

    margin: Float[Array, ""]
    estimate: Float[Array, ""]
    slack: Float[Array, ""]


@contextlib.contextmanager
def precise() -> Iterator[None]:
    """Claims are decided in float64 with exact matrix products."""
    with jax.enable_x64(True), jax.default_matmul_precision("highest"):
        yield


def sides(claim: Claim, instance: Any, key: Array, settings: Mapping[str, Any]) -> Any:
    """The conclusion as it is written, at one instance."""
    extra = {"key": key} if claim.stochastic else {}
    return claim.conclusion(instance, **extra, **accepted(claim.conclusion, settings))


def evaluate(
    claim: Claim,
    instance: Any,
    key: Array,
    error: Scalar,
    sizes: Mapping[str, Any],
    variant: Mapping[str, Any],
) -> Evaluation:
    """Margin, estimate and slack of one instance; NaN anywhere makes them NaN."""
    said = sides(claim, instance, key, {**sizes, **variant})
    slack = _least(
        jnp.asarray(
            _slack(claim.assumptions(instance, **accepted(claim.assumptions, sizes))), dtype=float
        )
    )
    if isinstance(said, Expectation):
        margin, estimate = _expectation_margins(said, error)
    else:
        margin = said.margin if isinstance(said, Comparison) else jnp.asarray(said, dtype=float)
        margin = estimate = _least(margin)
    return Evaluation(margin, estimate, slack)


class Evaluator:
    """The compiled evaluations of one claim.

    Numbers that mutants change are traced, so that a claim and its mutants share programs.
    """

    def __init__(self, claim: Claim):
        self.claim = claim
        self._programs: dict[Any, Callable[..., Any]] = {}

    def program(
        self,
        name: str,
        make: Callable[[Callable[..., Evaluation]], Callable[..., Any]],
        sizes: Mapping[str, Any],
        variant: Mapping[str, Any],
    ) -> Callable[..., Any]:
        """The compiled program ``make`` builds from ``(instance, key, error, numbers) -> ...``.

        Call it with the traced numbers of ``self.numbers(variant)`` as first argument.
        """
        fixed = {k: v for k, v in variant.items() if k not in self.claim.numbers()}
        mark = (name, tuple(sorted(sizes.items())), tuple(sorted(fixed.items(), key=str)))
        if mark not in self._programs:

            def one(instance: Any, key: Array, error: Any, numbers: dict) -> Evaluation:
                return evaluate(self.claim, instance, key, error, sizes, {**fixed, **numbers})

            self._programs[mark] = jax.jit(make(one))
        return self._programs[mark]

    def draw(self, name: str, sizes: Mapping[str, Any]) -> Callable[[Array], Any]:
        """The compiled generator of a family's instances."""
        mark = ("draw", name, tuple(sorted(sizes.items())))
        if mark not in self._programs:
            family, fixed = self.claim.families[name], dict(sizes)
            self._programs[mark] = jax.jit(lambda key: draw(family, key, fixed))
        return self._programs[mark]

    def rebuild(self, name: str) -> Callable[[Mapping[str, Array], Array], Any]:
        """The compiled map from unconstrained numbers to an instance, at the typical sizes."""
        model, sizes = self.claim.families[name], self.claim.typical
        return jax.jit(lambda numbers, key: from_unconstrained(model, numbers, key, sizes))

    def numbers(self, variant: Mapping[str, Any]) -> dict[str, float]:
        """The values of the traced numbers in a variant."""
        return {name: variant.get(name, value) for name, value in self.claim.numbers().items()}


def _slack(slack: Any) -> Any:
    """A Boolean assumption becomes a slack of 0 where it holds and -1 where it does not."""
    slack = jnp.asarray(slack)
    return jnp.where(slack, 0.0, -1.0) if slack.dtype == bool else slack


def _least(values: Array) -> Float[Array, ""]:
    # A minimum alone drops NaN on CPU from 4096 elements up.
    return jnp.where(jnp.isnan(values).any(), jnp.nan, values.min(initial=jnp.inf))


def _expectation_margins(said: Expectation, error: Scalar) -> tuple[Array, Array]:
    inside = ((said.values >= said.lower) & (said.values <= said.upper)).all()
    spread = said.upper - said.lower
    scale = jnp.maximum(jnp.abs(said.bound), jnp.finfo(said.values.dtype).tiny)
    estimate = (said.bound - said.values.mean()) / scale
    allowance = empirical_bernstein(said.values, spread, error) / scale
    return jnp.where(inside, estimate + allowance, jnp.nan), estimate

"""From an instance to a margin, compiled once per family and sizes."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from jaxlab.claims.claim import Claim
from jaxlab.claims.conclusions import Comparison, Expectation, Probability, Scaling, margins
from jaxlab.claims.examine import (
    calls_lapack,
    check_memory,
    examine,
    memory_of,
    user_errors_named,
)
from jaxlab.claims.families import accepted, draw, from_unconstrained, unconstrained
from jaxlab.claims.outside import trace_outside
from jaxlab.core.types import Scalar

__all__ = ["Batch", "Evaluation", "Evaluator", "evaluate", "precise", "sides"]


class Evaluation(NamedTuple):
    """What one instance says of a claim.

    Attributes:
        margin: Decides: negative beyond the tolerance is a violation. For statements on a
            distribution it includes the confidence bound.
        estimate: The margin without the confidence bound, which the attack descends on.
        slack: Of the assumptions.
    """

    margin: Array | np.ndarray
    estimate: Array | np.ndarray
    slack: Array | np.ndarray


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
    """Margin, estimate and slack of one instance; NaN anywhere makes them NaN.

    Raises:
        ClaimError: The conclusion or the assumptions raised something.
    """
    settings = {**sizes, **variant}
    said = user_errors_named("the conclusion", lambda: sides(claim, instance, key, settings))
    assumed = user_errors_named(
        "the assumptions",
        lambda: claim.assumptions(instance, **accepted(claim.assumptions, sizes)),
    )
    slack = _least(jnp.asarray(_slack(assumed), dtype=float))
    if isinstance(said, Comparison):
        margin = estimate = _least(said.margin)
    elif isinstance(said, (Expectation, Probability, Scaling)):
        margin, estimate = margins(said, error)
    else:
        margin = estimate = _least(jnp.asarray(said, dtype=float))
    return Evaluation(margin, estimate, slack)


_PIECE = 8192
"""The largest number of instances that are judged at once; fewer if they are large."""

_PIECE_BYTES = 2**26
"""How much memory an intermediate array of a piece may take."""

_LAPACK_PIECE = 500
"""Larger batches of LAPACK calls were seen to wait forever inside XLA on CPU (jaxlib 0.10.2)."""


class Batch(NamedTuple):
    """Instances, the keys that drew them and the keys of their conclusions, all stacked."""

    origins: Array
    instances: Any
    keys: Array


@functools.lru_cache(maxsize=64)
def _drawer(
    family: Callable[..., Any], sizes: tuple[tuple[str, Any], ...], number: int
) -> Callable[..., Batch]:
    """The compiled batch of draws, which all claims on a family share."""

    def one(key: Array) -> Batch:
        key_instance, key_claim = jax.random.split(key)
        return Batch(key_instance, draw(family, key_instance, dict(sizes)), key_claim)

    return jax.jit(lambda key: jax.vmap(one)(jax.random.split(key, number)))


class Evaluator:
    """The compiled and the traced evaluations of one claim.

    Numbers that mutants change are traced, so that a claim and its mutants share programs.
    """

    def __init__(self, claim: Claim):
        self.claim = claim
        self._programs: dict[Any, Any] = {}
        self._bad: dict[Any, list[Array]] = {}

    def draw_batch(self, name: str, key: Array, number: int) -> Batch:
        """Instances of a family at the typical sizes."""
        family = self.claim.families[name]
        sizes = accepted(family, self.claim.typical)
        return _drawer(family, tuple(sorted(sizes.items())), number)(key)

    def instance_shape(self, name: str, sizes: Mapping[str, Any]) -> Any:
        """What an instance of a family looks like.

        Raises:
            ClaimError: The family cannot be drawn, or is too large.
        """
        return self._traced_draw(name, sizes)[1]

    def largest_piece(self, name: str) -> int:
        """How many instances at the typical sizes may be drawn and judged at once.

        Raises:
            ClaimError: Not even one fits into memory.
        """
        mark = ("piece", name)
        if mark not in self._programs:
            drawing, shape = self._traced_draw(name, self.claim.typical)
            judge = self.judge({}, self.claim.typical)
            judging = jax.make_jaxpr(judge)(shape, jax.random.key(0), 0.5, self.numbers({}))
            needed = max(memory_of(drawing), memory_of(judging), 1)
            check_memory(needed, self.claim.typical)
            lapack = calls_lapack(drawing) or calls_lapack(judging)
            limit = _LAPACK_PIECE if lapack else _PIECE
            self._programs[mark] = max(1, min(limit, _PIECE_BYTES // needed))
        return self._programs[mark]

    def _traced_draw(self, name: str, sizes: Mapping[str, Any]) -> tuple[Any, Any]:
        family, key = self.claim.families[name], jax.random.key(0)

        def trace() -> tuple[Any, Any]:
            return jax.make_jaxpr(lambda key: draw(family, key, sizes), return_shape=True)(key)

        closed, shape = user_errors_named(f"family {name!r}", trace)
        check_memory(memory_of(closed), sizes)
        return closed, shape

    def examine(self) -> None:
        """Look at the claim itself.

        Raises:
            ClaimError: It cannot be judged as it is written.
        """
        sizes = self.claim.typical
        shapes = {name: self.instance_shape(name, sizes) for name in self.claim.families}
        examine(self.claim, shapes, sides)
        for name in self.claim.boundary:
            self.boundary(name, sizes)
        for name in self.claim.families:
            self.largest_piece(name)

    def boundary(self, name: str, sizes: Mapping[str, Any]) -> Any:
        """A boundary instance.

        Raises:
            ClaimError: It cannot be computed, or is too large.
        """
        family, what = self.claim.boundary[name], f"boundary instance {name!r}"
        settings = accepted(family, sizes)
        try:
            needed = memory_of(jax.make_jaxpr(lambda: family(**settings))())
        except Exception:  # computed by NumPy, or wrong, which is told below
            needed = 0
        check_memory(needed, sizes)
        return user_errors_named(what, lambda: family(**settings), must="be computable")

    def flattener(self, name: str) -> Callable[[Array], Array]:
        """The compiled ``keys -> unconstrained numbers`` of a model, each draw a flat row."""
        model, sizes = self.claim.families[name], self.claim.typical
        mark = ("flatten", name)
        if mark not in self._programs:
            self._programs[mark] = jax.jit(
                jax.vmap(lambda key: ravel_pytree(unconstrained(model, key, sizes))[0])
            )
        return self._programs[mark]

    def unflattener(self, name: str) -> Callable[[Array], dict[str, Array]]:
        """From a flat row to the numbers of each site."""
        model, sizes = self.claim.families[name], self.claim.typical
        mark = ("unflatten", name)
        if mark not in self._programs:
            numbers = unconstrained(model, jax.random.key(0), sizes)
            self._programs[mark] = ravel_pytree(numbers)[1]
        return self._programs[mark]

    def remember(self, name: str, variant: Mapping[str, Any], keys: list[Array]) -> None:
        """Keep the keys of bad instances for a later searcher."""
        self._bad[name, self._mark({}, variant)] = keys

    def remembered(self, name: str, variant: Mapping[str, Any]) -> list[Array]:
        """The keys that an earlier searcher kept."""
        return self._bad.get((name, self._mark({}, variant)), [])

    def program(
        self,
        name: str,
        make: Callable[[Callable[..., Evaluation]], Callable[..., Any]],
        variant: Mapping[str, Any],
    ) -> Callable[..., Any]:
        """The compiled program that ``make`` builds at the typical sizes.

        ``make`` is given ``(instance, key, error, numbers) -> Evaluation``, where ``numbers`` are
        those of ``self.numbers(variant)``.
        """
        mark = ("compiled", name, *self._mark(self.claim.typical, variant))
        if mark not in self._programs:
            self._programs[mark] = jax.jit(make(self.judge(variant, self.claim.typical)))
        return self._programs[mark]

    def outside(
        self,
        instance: Any,
        key: Array,
        error: float,
        sizes: Mapping[str, Any],
        variant: Mapping[str, Any],
    ) -> Evaluation:
        """The evaluation by NumPy, which costs a trace per shape and no compilation."""
        structure = jax.tree.structure(instance)
        shapes = tuple((np.shape(x), x.dtype) for x in jax.tree.leaves(instance))
        mark = ("traced", structure, shapes, *self._mark(sizes, variant))
        args = (instance, key, error, self.numbers(variant))
        if mark not in self._programs:
            self._programs[mark] = trace_outside(
                self.judge(variant, sizes),
                *args,
                look=lambda program: check_memory(memory_of(program), sizes),
            )
        return self._programs[mark](*args)

    def draw_outside(self, name: str, sizes: Mapping[str, Any], key: Array) -> Any:
        """An instance of a family, drawn by NumPy."""
        family = self.claim.families[name]
        mark = ("drawn", name, tuple(sorted(accepted(family, sizes).items())))
        if mark not in self._programs:
            self.instance_shape(name, sizes)
            self._programs[mark] = trace_outside(lambda key: draw(family, key, sizes), key)
        return self._programs[mark](key)

    def rebuild(self, name: str, numbers: Mapping[str, Array], key: Array) -> Any:
        """The instance of unconstrained numbers at the typical sizes."""
        model, sizes = self.claim.families[name], self.claim.typical
        return from_unconstrained(model, numbers, key, sizes)

    def numbers(self, variant: Mapping[str, Any]) -> dict[str, float]:
        """The values of the traced numbers in a variant."""
        return {name: variant.get(name, value) for name, value in self.claim.numbers().items()}

    def _fixed(self, variant: Mapping[str, Any]) -> dict[str, Any]:
        return {k: v for k, v in variant.items() if k not in self.claim.numbers()}

    def _mark(self, sizes: Mapping[str, Any], variant: Mapping[str, Any]) -> tuple:
        fixed = self._fixed(variant)
        return tuple(sorted(sizes.items())), tuple(sorted(fixed.items(), key=str))

    def judge(
        self, variant: Mapping[str, Any], sizes: Mapping[str, Any]
    ) -> Callable[..., Evaluation]:
        """The function ``(instance, key, error, numbers) -> Evaluation``, not compiled."""
        fixed = self._fixed(variant)

        def one(instance: Any, key: Array, error: Any, numbers: dict) -> Evaluation:
            return evaluate(self.claim, instance, key, error, sizes, {**fixed, **numbers})

        return one


def _slack(slack: Any) -> Any:
    """A Boolean assumption becomes a slack of 0 where it holds and -1 where it does not."""
    slack = jnp.asarray(slack)
    return jnp.where(slack, 0.0, -1.0) if slack.dtype == bool else slack


def _least(values: Array) -> Float[Array, ""]:
    # A minimum alone drops NaN on CPU from 4096 elements up.
    return jnp.where(jnp.isnan(values).any(), jnp.nan, values.min(initial=jnp.inf))

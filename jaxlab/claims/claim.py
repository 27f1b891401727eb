"""A theorem as data: who satisfies the assumptions, and what must hold for them."""

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

__all__ = ["RUNGS", "Claim", "ExactCase", "RungName"]

RungName = Literal["explore", "sample", "attack", "exact"]
"""A searcher, from the quickest to fool to the hardest."""

RUNGS: tuple[RungName, ...] = ("explore", "sample", "attack", "exact")
"""All of them, in the order in which they are climbed."""


class ExactCase(NamedTuple):
    """The worst case over a whole class of instances, found by a solver or in closed form.

    Attributes:
        parameters: What was fixed (a condition number, a number of steps).
        worst: The largest value of the left side.
        bound: The right side.
        gap: How far the solver's two values (primal and dual) are apart.
        replayed: What the reconstructed worst instance attains; None if there is none to replay.
        tolerance: By how much rounding alone may lift the worst value above the bound, relative to
            the larger side or 1; by default, what interior-point solvers deliver.
    """

    parameters: Mapping[str, Any]
    worst: float
    bound: float
    gap: float = 0.0
    replayed: float | None = None
    tolerance: float = 1e-5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Claim:
    """For every instance that satisfies the assumptions, the conclusion holds.

    Attributes:
        name: ``"slug/what"``.
        statement: The theorem in one line, as a person would write it.
        source: Where it stands, or ``"derived: ..."`` with the argument.
        families: Named generators of instances. Each is a NumPyro model ``(**sizes) -> instance``,
            or a function ``(key, **sizes) -> instance``, which the attack cannot follow. It is
            given those of the sizes that it names; so are the other functions of a claim.
        conclusion: ``(instance, **sizes, **variant) -> Comparison``, or a bare scalar margin. If
            the claim is ``stochastic`` it also takes ``key`` and gives an ``Expectation``, a
            ``Probability`` or a ``Scaling``.
        assumptions: ``(instance, **sizes) -> slack``, at least 0 exactly where the assumptions
            hold, computed independently of the families. Relative where that makes sense.
        sizes: Hypothesis strategies for the static sizes, integers or strings; few distinct values,
            since each combination is a compilation.
        typical: The sizes of the sample and attack rungs.
        mutants: Realistic bugs: names to keyword arguments of ``conclusion``. Each must be refuted.
            A number replaces a default number without another compilation. Only a claim that is
            ``expected`` to be refuted needs none.
        boundary: Named instances ``(**sizes) -> instance`` that no open set reaches: ties, rank
            loss, zero noise.
        exact: ``(**variant) -> [ExactCase]``, the true worst case. It may raise ``ImportError``.
        tolerance: Margins are compared with minus this many machine epsilons.
        stochastic: Whether ``conclusion`` takes a key.
        error: The probability that a true stochastic claim is called refuted.
        tightness: Whether equality is reached on some instance.
        rounds: Whether the theorem is about a lower precision than float64; elsewhere a cast to one
            is a fault of the claim.
        expected: ``"refuted"`` for a statement of a paper that is false and kept as a finding.
        rungs: The rungs that apply.
        samples: The largest number of instances per family, where they are expensive.
        restarts: The largest number of restarts of the attack, likewise.
    """

    name: str
    statement: str
    source: str
    families: Mapping[str, Callable[..., Any]]
    conclusion: Callable[..., Any]
    assumptions: Callable[..., Any]
    sizes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    typical: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    mutants: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    boundary: Mapping[str, Callable[..., Any]] = dataclasses.field(default_factory=dict)
    exact: Callable[..., Any] | None = None
    tolerance: float = 64.0
    stochastic: bool = False
    error: float = 1e-6
    tightness: Literal["tight", "upper", "lower", "order"] = "upper"
    rounds: bool = False
    expected: Literal["held", "refuted"] = "held"
    rungs: tuple[RungName, ...] = RUNGS
    samples: int | None = None
    restarts: int | None = None

    def __post_init__(self) -> None:
        if not self.families:
            raise ValueError(f"claim {self.name}: families must name at least one family, got none")
        if not self.mutants and self.expected == "held":
            raise ValueError(
                f"claim {self.name}: mutants must name at least one bug that refutes the claim, "
                "got none: a check that cannot fail is no check"
            )
        if set(self.sizes) != set(self.typical):
            raise ValueError(
                f"claim {self.name}: typical must give a value for each of sizes "
                f"{sorted(self.sizes)}, got {sorted(self.typical)}"
            )
        known = inspect.signature(self.conclusion).parameters
        takes_any = any(p.kind is p.VAR_KEYWORD for p in known.values())
        for mutant, variant in self.mutants.items():
            unknown = set(variant) - set(known)
            if not variant or (unknown and not takes_any):
                raise ValueError(
                    f"claim {self.name}: mutant {mutant!r} must change keyword arguments of the "
                    f"conclusion ({', '.join(known)}), got {sorted(variant)}"
                )
            for name, value in variant.items():
                default = known[name].default if name in known else None
                if type(default) is type(value) and default == value:
                    raise ValueError(
                        f"claim {self.name}: mutant {mutant!r} must differ from the original, got "
                        f"{name} = {value!r}, the default"
                    )

    def numbers(self) -> dict[str, float]:
        """The mutable numbers of the conclusion and their defaults, which stay traced."""
        parameters = inspect.signature(self.conclusion).parameters
        touched = {name for variant in self.mutants.values() for name in variant}
        defaults = {name: parameters[name].default for name in touched if name in parameters}
        return {name: value for name, value in defaults.items() if isinstance(value, float)}

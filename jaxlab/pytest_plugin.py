"""``pytest --claims``: one test per rung and per mutant of every claim that a file defines.

``pytest --claims FILE`` looks at FILE; without one, at test files and at ``*_claims.py``. The
options are declared in ``_jaxlab_pytestplugin``, which loads this module only for ``--claims``.
"""

import functools
import math
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from jaxlab.claims.claim import Claim
    from jaxlab.claims.evaluate import Evaluator
    from jaxlab.claims.verdict import RungReport

__all__ = ["ClaimFailedError", "ClaimItem", "ClaimNode", "ClaimsFile", "ClaimsPlugin"]


class ClaimFailedError(AssertionError):
    """A claim did not come out as it should; the message is for the reader, without a traceback."""


class ClaimsPlugin:
    """What is registered with pytest for ``--claims``."""

    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> "ClaimsFile | None":
        """Take Python files that are named, test files and ``*_claims.py``."""
        if file_path.suffix != ".py":
            return None
        patterns = [*parent.config.getini("python_files"), "*_claims.py"]
        named = parent.session.isinitpath(file_path)
        if named or any(file_path.match(pattern) for pattern in patterns):
            return ClaimsFile.from_parent(parent, path=file_path)
        return None

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Split one error probability, the least that is stated, over all stochastic claims."""
        nodes = list(dict.fromkeys(i.parent for i in items if isinstance(i, ClaimItem)))
        claims = [node.claim for node in nodes]
        errors = [claim.error for claim in claims if claim.stochastic]
        if errors:
            from jaxlab.claims.ladder import share_error

            for node, claim in zip(nodes, share_error(claims, min(errors)), strict=True):
                node.claim = claim


class ClaimsFile(pytest.Module):
    """A Python file with claims at its top level, alone or in tuples and lists."""

    def collect(self) -> Iterator["ClaimNode"]:
        """One node per claim, however often the claim is found."""
        from jaxlab.claims.sources import claims_in

        try:
            claims = claims_in(self.obj)
        except ValueError as error:
            raise self.CollectError(f"{self.path}: {error}") from error
        for claim in claims:
            yield ClaimNode.from_parent(self, name=claim.name, claim=claim)


class ClaimNode(pytest.Collector):
    """A claim, with what its tests share: the compiled programs and the look at the claim itself.

    Attributes:
        claim: The theorem.
    """

    def __init__(self, *, claim: "Claim", **kwargs: Any):
        super().__init__(**kwargs)
        self.claim = claim

    def collect(self) -> Iterator["ClaimItem"]:
        """The claim itself, its rungs or that one of them refutes it, and its mutants."""
        from jaxlab.claims.ladder import rungs_of

        refuted = self.claim.expected == "refuted"
        for name in ("check", *(("refuted",) if refuted else rungs_of(self.claim))):
            yield ClaimItem.from_parent(self, name=name)
        for mutant in self.claim.mutants:
            yield ClaimItem.from_parent(self, name=f"mutant[{mutant}]", mutant=mutant)

    @functools.cached_property
    def evaluator(self) -> "Evaluator":
        """The programs of all tests of this claim; use it inside ``precise()``."""
        from jaxlab.claims.evaluate import Evaluator

        return Evaluator(self.claim)

    @functools.cached_property
    def fault(self) -> str:
        """Why the claim cannot be judged as it is written; empty if it can."""
        from jaxlab.claims.examine import ClaimError

        try:
            self.evaluator.examine()
        except ClaimError as error:
            return str(error)
        return ""


class ClaimItem(pytest.Item):
    """One test: the look at the claim, a rung, or a mutant, which must be refuted."""

    parent: ClaimNode

    def __init__(self, *, mutant: str | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        self.mutant = mutant

    def runtest(self) -> None:
        """Climb. A fault of the claim itself fails all of its tests: none can be green."""
        from jaxlab.claims.evaluate import precise

        with precise():
            if self.parent.fault:
                raise ClaimFailedError(self._told("invalid", [self.parent.fault]))
            if self.mutant is not None:
                self._judge_mutant(self.mutant)
            elif self.name == "refuted":
                self._must_be_refuted()
            elif self.name != "check":
                self._judge_rung(self._climb(self.name))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """A claim's failure speaks for itself."""
        if isinstance(excinfo.value, ClaimFailedError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, None, str]:
        """Where the test stands and what it is called."""
        return self.path, None, f"{self.parent.name}: {self.name}"

    def _settings(self) -> dict[str, Any]:
        from jaxlab.claims.command import EFFORTS
        from jaxlab.core.files import usable_directory

        option = self.config.option
        folder = self.config.invocation_params.dir / option.claims_out
        try:
            usable_directory(folder, "--claims-out")
        except (ValueError, OSError) as error:
            raise ClaimFailedError(str(error)) from error
        return {
            "effort": EFFORTS[option.claims_effort],
            "seed": option.claims_seed,
            "folder": folder,
            "origin": str(self.path),
        }

    def _climb(self, rung: str) -> "RungReport":
        from jaxlab.claims.ladder import climb_rung

        claim = self.parent.claim
        return climb_rung(claim, self.parent.evaluator, rung, {}, None, **self._settings())

    def _judge_rung(self, report: "RungReport") -> None:
        if report.verdict == "skipped":
            pytest.skip(report.note or "the rung tried nothing")
        if report.verdict not in ("held", "certified"):
            raise ClaimFailedError(self._told(str(report.verdict), _account(report)))

    def _must_be_refuted(self) -> None:
        from jaxlab.claims.ladder import rungs_of

        reports = []
        for rung in rungs_of(self.parent.claim):
            reports.append(self._climb(rung))
            if reports[-1].verdict == "refuted":
                return
        self._not_refuted("not refuted, though that is expected", reports)

    def _judge_mutant(self, mutant: str) -> None:
        from jaxlab.claims.ladder import climb_mutant

        claim = self.parent.claim
        report = climb_mutant(claim, self.parent.evaluator, mutant, **self._settings())
        if report.killed_by is None:
            self._not_refuted("no rung refutes this mutant", list(report.rungs))

    def _not_refuted(self, verdict: str, reports: "list[RungReport]") -> None:
        if all(report.verdict == "skipped" for report in reports):
            pytest.skip("; ".join(f"{report.rung}: {report.note}" for report in reports))
        lines = [
            ", ".join(
                filter(None, (f"{report.rung}: {report.verdict}", _least(report), report.note))
            )
            for report in reports
        ]
        raise ClaimFailedError(self._told(verdict, lines))

    def _told(self, verdict: str, lines: list[str]) -> str:
        option = self.config.option
        path = os.path.relpath(self.path, self.config.invocation_params.dir)
        again = [
            "pytest --claims",
            f"--claims-effort {option.claims_effort}",
            f"--claims-seed {option.claims_seed}",
            shlex.quote(f"{path}::{self.parent.name}::{self.name}"),
        ]
        told = [
            f"{self.parent.name}: {self.name}: {verdict}",
            self.parent.claim.statement,
            *lines,
            f"seed {option.claims_seed}, effort {option.claims_effort}",
            f"run again with: {' '.join(again)}",
        ]
        return "\n  ".join(told)


def _least(report: "RungReport") -> str:
    least = report.least_margin
    return "" if math.isnan(least) else f"least margin {least:.6g}"


def _account(report: "RungReport") -> list[str]:
    lines = [f"note: {report.note}" if report.note else "", _least(report)]
    found = report.candidate
    if found is not None:
        outside = "" if math.isnan(report.outside) else f", {report.outside:.6g} outside JAX"
        lines.append(
            f"instance of {found.family!r} at sizes {dict(found.sizes)}: margin "
            f"{found.margin:.6g}{outside}"
        )
    if report.file:
        lines.append(f"file {report.file}")
        lines.append(f"replay with: jaxlab replay {shlex.quote(report.file)}")
    return [line for line in lines if line]

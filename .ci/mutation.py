"""Do the tests notice when the code is wrong? Mutation testing of core, claims and the papers.

Run from the repository's root, at night::

    pip install -e '.[test,nightly]'
    python .ci/mutation.py --sample 20
    python .ci/mutation.py --modules jaxlab/optim/dual_sgd.py --out results/dual_sgd

Each mutant is the last commit with one operator or number changed by Cosmic Ray. The module's own
tests run in a fresh process, in a copy outside the working tree; a mutant is killed if they fail or
take too long. Results are kept one by one, so that the same command goes on where it was stopped.
"""

import argparse
import difflib
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from mutants import Change, changes_of, sort_changes
from mutation_scores import Result, Score, describe_result, survivors, table

ROOT = Path(__file__).parents[1]
FOLDERS = ("jaxlab/core", "jaxlab/claims", "jaxlab/optim", "jaxlab/inference", "jaxlab/theory")


class Tests(NamedTuple):
    """The tests that are a module's own, besides the examples of its docstrings.

    Attributes:
        quick: Arguments of pytest, the fastest first.
        slow: Arguments of a second pytest, with the claims, for what the first leaves alive.
    """

    quick: tuple[str, ...]
    slow: tuple[str, ...] = ()


CONFORMANCE, LADDER = "tests/conformance", "proofs_checks/test_ladder.py"
META = ("tests/meta/test_bad_claims.py", "tests/meta/test_ladder.py", "tests/meta/test_minimise.py")

OWN_TESTS = {
    "jaxlab/core": Tests(("tests/unit",)),
    "jaxlab/core/iterate.py": Tests(
        ("tests/unit/test_iterate.py",), ("tests/unit/test_chunks.py",)
    ),
    "jaxlab/claims": Tests(META, ("tests/meta/test_attack.py", "tests/cli/test_verify.py")),
    "jaxlab/claims/command.py": Tests(("tests/cli/test_verify.py",), META),
    "jaxlab/claims/conclusions.py": Tests(
        ("tests/unit/test_conclusions.py",),
        ("tests/meta/test_ladder.py", "tests/meta/test_calibration.py"),
    ),
    "jaxlab/claims/control.py": Tests(("tests/meta/test_exact.py",)),
    "jaxlab/claims/numpy_rules.py": Tests(META, ("tests/meta/test_exact.py",)),
    "jaxlab/optim": Tests(("tests/oracles", "tests/unit/test_bad_input.py"), (CONFORMANCE, LADDER)),
    "jaxlab/optim/dual_sgd.py": Tests(
        ("tests/oracles/test_dual_sgd.py", "tests/unit/test_bad_input.py"),
        (CONFORMANCE, LADDER, "-k", "dual_sgd"),
    ),
    "jaxlab/optim/inexact_agd.py": Tests(
        ("tests/oracles/test_baselines.py", "tests/unit/test_bad_input.py"),
        (CONFORMANCE, LADDER, "-k", "inexact or reproducib or bias"),
    ),
    **dict.fromkeys(
        [
            "jaxlab/optim/lsq.py",
            "jaxlab/optim/oeu.py",
            "jaxlab/optim/oeu_projection.py",
            "jaxlab/optim/unlearning_baselines.py",
            "jaxlab/optim/unlearning_metrics.py",
        ],
        Tests(
            (
                "tests/oracles/test_lsq.py",
                "tests/oracles/test_oeu.py",
                "tests/oracles/test_unlearning_metrics.py",
                "tests/unit/test_bad_input_oeu.py",
            ),
            (CONFORMANCE, LADDER, "-k", "oeu"),
        ),
    ),
    "jaxlab/inference": Tests(
        (
            "tests/oracles/test_ais.py",
            "tests/oracles/test_ais_companions.py",
            "tests/oracles/test_waiting_population.py",
            "tests/unit/test_bad_input_ais.py",
        ),
        (CONFORMANCE, LADDER, "-k", "ais"),
    ),
    "jaxlab/control": Tests(
        (
            "tests/oracles/test_lqr.py",
            "tests/oracles/test_continuous.py",
            "tests/unit/test_bad_input_lqr.py",
        ),
        (LADDER, "-k", "lqr or meta_gain"),
    ),
    "jaxlab/language": Tests(
        (
            "tests/oracles/test_lqr_steering.py",
            "tests/language",
            "tests/unit/test_bad_input_lqr.py",
        ),
        (CONFORMANCE, LADDER, "-k", "lqr"),
    ),
    **dict.fromkeys(
        (
            "jaxlab/optim/byzantine_aggregators.py",
            "jaxlab/optim/byzantine_attacks.py",
            "jaxlab/optim/byzantine_selection.py",
            "jaxlab/optim/byzantine_theory.py",
            "jaxlab/optim/demoa.py",
        ),
        Tests(
            (
                "tests/oracles/test_byzantine.py",
                "tests/oracles/test_demoa.py",
                "tests/unit/test_bad_input_demoa.py",
            ),
            (CONFORMANCE, LADDER, "-k", "demoa"),
        ),
    ),
    **dict.fromkeys(
        (
            "jaxlab/optim/meta_gain.py",
            "jaxlab/optim/meta_gain_bounds.py",
            "jaxlab/optim/meta_gain_budget.py",
        ),
        Tests(
            ("tests/oracles/test_meta_gain.py", "tests/unit/test_bad_input_meta_gain.py"),
            (CONFORMANCE, LADDER, "-k", "meta_gain"),
        ),
    ),
    **dict.fromkeys(
        (
            "jaxlab/optim/lie_bracket.py",
            "jaxlab/optim/lie_bracket_orders.py",
            "jaxlab/optim/lie_bracket_schedules.py",
            "jaxlab/core/derivatives.py",
        ),
        Tests(("tests/oracles/test_lie_bracket.py",), (CONFORMANCE, LADDER, "-k", "lie_bracket")),
    ),
    **dict.fromkeys(
        (
            "jaxlab/theory/multitask_em.py",
            "jaxlab/theory/multitask_laws.py",
            "jaxlab/theory/multitask_learners.py",
            "jaxlab/theory/multitask_limits.py",
        ),
        Tests(
            ("tests/oracles/test_multitask_limits.py",),
            (CONFORMANCE, LADDER, "-k", "multitask_limits"),
        ),
    ),
    "jaxlab/order": Tests(("tests/order",)),
    "jaxlab/quantum": Tests(
        ("tests/quantum", "tests/unit/test_bad_input_meta_gain.py"), (LADDER, "-k", "meta_gain")
    ),
    "jaxlab/theory": Tests(
        ("tests/oracles/test_nse.py", "tests/unit/test_bad_input_nse.py"),
        (CONFORMANCE, LADDER, "-k", "nse"),
    ),
}
"""By module or folder; the longest name that fits counts."""


class Checkout:
    """A copy of the last commit, in which one module at a time is wrong."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self.root = folder
        self.cache = cache.resolve()
        archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True)
        if archive.returncode:
            raise SystemExit(f"git archive HEAD failed: {archive.stderr.decode().strip()}")
        with tempfile.TemporaryFile() as file:
            file.write(archive.stdout)
            file.seek(0)
            with tarfile.open(fileobj=file) as tar:
                tar.extractall(folder, filter="data")
        self._check_import()

    def pytest(self, words: Sequence[str], timeout: float, *, bytecode: bool) -> tuple[str, str]:
        """Run tests; the outcome, and the line on what failed."""
        options = ["-x", "-q", "-n", "0", "-p", "no:randomly", "-o", f"cache_dir={self.cache}"]
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", *options, *words], cwd=self.root,
            env=self._environment(bytecode), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, start_new_session=True,
        )  # fmt: skip
        try:
            output, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            return "timeout", f"more than {timeout:.0f} s"
        finally:
            if process.poll() is None:
                _end(process)
        if process.returncode == 0:
            return "survived", ""
        if process.returncode in (-signal.SIGKILL, -signal.SIGTERM):
            # By a person or for want of memory, which is no verdict.
            raise SystemExit(f"the tests were ended from outside: {' '.join(words)}")
        return "killed", what_failed(output) or f"exit code {process.returncode}"

    def forget_bytecode(self, module: str) -> None:
        """Python takes a file for unchanged if its size and the second of its change are."""
        path = self.root / module
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
            compiled.unlink()

    def _environment(self, bytecode: bool) -> dict[str, str]:
        environment = {**os.environ, "PYTHONPATH": str(self.root)}
        environment.pop("PYTEST_ADDOPTS", None)
        if not bytecode:
            environment["PYTHONDONTWRITEBYTECODE"] = "1"
        return environment

    def _check_import(self) -> None:
        """An installed jaxlab must not come before the copy."""
        code = "import jaxlab; print(jaxlab.__file__)"
        found = subprocess.run(
            [sys.executable, "-c", code], cwd=self.root, env=self._environment(bytecode=True),
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        if not Path(found.stdout.strip()).is_relative_to(self.root.resolve()):
            raise SystemExit(f"the tests would run {found.stdout.strip()}, not the copy")


def _end(process: subprocess.Popen) -> None:
    """End what the tests have started, too."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def what_failed(output: str) -> str:
    """The first line of pytest's summary that names a failure."""
    lines = output.splitlines()
    named = [line for line in lines if line.startswith(("FAILED ", "ERROR "))]
    return (named or [line for line in lines if line.strip()][-1:] or [""])[0][:200]


def main(words: Sequence[str] | None = None) -> int:
    """Run the mutants and print the scores; 1 if the unchanged tree fails or a score is too low."""
    args = parse(words)
    args.out.mkdir(parents=True, exist_ok=True)
    file = args.out / "results.jsonl"
    scores = []
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        checkout = Checkout(Path(folder), args.out / "cache")
        for module in args.modules or all_modules(checkout.root):
            score = measure(checkout, module, file, args)
            if score is None:
                return 1
            scores.append(score)
            print(table([score]), flush=True)
    text = f"{table(scores)}\n\n{survivors(scores)}"
    (args.out / "summary.txt").write_text(text + "\n")
    print(text)
    low = [score for score in scores if score.percent < args.fail_under]
    return 1 if low else 0


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--modules", nargs="+", default=[], metavar="FILE")
    parser.add_argument("--sample", type=int, default=0, help="mutants per module (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--out", type=Path, default=ROOT / "results/mutation", metavar="DIR")
    parser.add_argument(
        "--timeout", type=float, default=0.0,
        help="seconds for one run of tests (default: thrice the unchanged tree's, plus 60)",
    )  # fmt: skip
    parser.add_argument(
        "--retry", action="store_true",
        help="after a change of tests alone, run the survivors only",
    )  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="without the slow tests and claims")
    parser.add_argument("--fail-under", type=float, default=0.0, metavar="PERCENT")
    return parser.parse_args(words)


def all_modules(root: Path) -> list[str]:
    """The modules of ``FOLDERS``."""
    paths = [path for folder in FOLDERS for path in sorted((root / folder).rglob("*.py"))]
    return [str(path.relative_to(root)) for path in paths]


def own_tests(module: str) -> Tests:
    """The row of ``OWN_TESTS``."""
    names = [name for name in OWN_TESTS if module == name or module.startswith(f"{name}/")]
    if not names:
        raise SystemExit(f"{module} has no tests in OWN_TESTS of {__file__}")
    return OWN_TESTS[max(names, key=len)]


def measure(checkout: Checkout, module: str, file: Path, args: argparse.Namespace) -> Score | None:
    """Run a module's mutants; ``None`` if its tests fail without one."""
    path = checkout.root / module
    source = path.read_text()
    mutants, left_out = sort_changes(source, changes_of(source))
    print(f"{module}: {len(mutants)} mutants; {describe(left_out)}", flush=True)
    chosen = choose(mutants, args.sample, f"{args.seed} {module}")
    runs = runs_of(module, quick=args.quick)
    digests = digest([path]), digest(files_of(checkout.root, runs), str(runs))
    known = read_results(file, module, *digests, retry=args.retry)
    todo = [mutant for mutant in chosen if (mutant.operator, mutant.occurrence) not in known]
    limits = baseline(checkout, runs, args.timeout) if todo else []
    if limits is None:
        return None
    checkout.forget_bytecode(module)
    for number, mutant in enumerate(todo, 1):
        path.write_text(mutant.code)
        try:
            ended = run_tests(checkout, runs, limits)
        finally:
            path.write_text(source)
        place = module, mutant.operator, mutant.occurrence, mutant.line
        result = Result(*place, diff(source, mutant.code), *ended, *digests)
        append(file, result)
        known[mutant.operator, mutant.occurrence] = result
        print(f"[{number}/{len(todo)}] {describe_result(result)}", flush=True)
    results = [known[mutant.operator, mutant.occurrence] for mutant in chosen]
    return Score(module, results, len(mutants))


def runs_of(module: str, *, quick: bool) -> list[tuple[str, ...]]:
    """The arguments of each run of pytest; the first has the module's examples, too."""
    tests = own_tests(module)
    # Pytest imports a module that is named first a second time, after its package has.
    runs = [(*tests.quick, module)]
    return runs if quick or not tests.slow else [*runs, tests.slow]


def baseline(
    checkout: Checkout, runs: Iterable[Sequence[str]], timeout: float
) -> list[float] | None:
    """The time limit of each run; ``None`` if one fails on the unchanged tree."""
    limits = []
    for words in runs:
        begin = time.monotonic()
        outcome, by = checkout.pytest(words, 3600, bytecode=True)
        seconds = time.monotonic() - begin
        print(f"unchanged: {seconds:.0f} s for pytest {' '.join(words)}", flush=True)
        if outcome != "survived":
            print(f"the unchanged tree fails, so that nothing can be measured: {by}")
            return None
        limits.append(timeout or 60 + 3 * seconds)
    return limits


def run_tests(
    checkout: Checkout, runs: Sequence[Sequence[str]], limits: Sequence[float]
) -> tuple[str, str, float]:
    """The outcome, what killed the mutant, and the seconds; the runs end with the first failure."""
    begin = time.monotonic()
    outcome, by = "survived", ""
    for words, limit in zip(runs, limits, strict=True):
        outcome, by = checkout.pytest(words, limit, bytecode=False)
        if outcome != "survived":
            break
    return outcome, by, round(time.monotonic() - begin, 1)


def choose(mutants: Sequence[Change], sample: int, seed: str) -> list[Change]:
    """A random sample; a larger one contains it. All if ``sample`` is 0."""
    order = list(mutants)
    if sample:
        random.Random(seed).shuffle(order)
        order = order[:sample]
    return sorted(order, key=lambda mutant: (mutant.line, mutant.operator, mutant.occurrence))


def describe(left_out: Counter[str]) -> str:
    """How many changes are not counted, and why."""
    reasons = ", ".join(f"{count} ({reason})" for reason, count in left_out.most_common())
    return f"left out {left_out.total()}: {reasons}" if left_out else "none left out"


def files_of(root: Path, runs: Iterable[Sequence[str]]) -> list[Path]:
    """The Python files in the folders of the tests, and the settings of all tests."""
    paths = [root / word for words in runs for word in words if (root / word).exists()]
    folders = {path if path.is_dir() else path.parent for path in paths}
    inside = {file for folder in folders for file in folder.rglob("*.py")}
    return sorted({*inside, root / "conftest.py", root / "tests/conftest.py"})


def digest(files: Iterable[Path], more: str = "") -> str:
    """A short hash of contents."""
    total = hashlib.sha256(more.encode())
    for file in files:
        total.update(file.read_bytes())
    return total.hexdigest()[:16]


def read_results(
    file: Path, module: str, source: str, tests: str, *, retry: bool = False
) -> dict[tuple[str, int], Result]:
    """What is known of this very module under these very tests, by operator and occurrence.

    With ``retry`` what other tests have killed counts as killed.
    """
    known = {}
    for line in file.read_text().splitlines() if file.exists() else []:
        try:
            result = Result(**json.loads(line))
        except (json.JSONDecodeError, TypeError):  # cut off, or of an older version
            continue
        same = result.tests == tests or (retry and result.outcome != "survived")
        if (result.module, result.source) == (module, source) and same:
            known[result.operator, result.occurrence] = result
    return known


def append(file: Path, result: Result) -> None:
    """Add a line, after the rest of one that was cut off."""
    text = file.read_text() if file.exists() else ""
    with file.open("a") as stream:
        stream.write("\n" * (text != "" and not text.endswith("\n")))
        stream.write(json.dumps(result._asdict()) + "\n")


def diff(before: str, after: str) -> str:
    """The changed lines."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm="")
    return "\n".join(line for line in list(lines)[2:] if not line.startswith("@@"))


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))  # the library need not be installed
    try:
        sys.exit(main())
    except ImportError as error:
        from jaxlab.core.locate import missing_extra

        message = missing_extra(error)
        if message is None:
            raise
        sys.exit(message)

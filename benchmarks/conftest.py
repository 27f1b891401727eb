"""Collect the benchmarks' numbers, print them as one table, and keep them for ``jaxlab report``."""

from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import jaxtyping
import pytest
from jax.experimental.compilation_cache import compilation_cache

from jaxlab.core.environment import describe_measurement
from jaxlab.core.files import usable_directory, write_json

_ROWS = pytest.StashKey[dict[str, list[tuple[str, str]]]]()


@pytest.fixture
def report(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Add a line to the table that is printed at the end."""
    files = request.config.stash.setdefault(_ROWS, {})
    rows = files.setdefault(request.path.stem, [])
    return lambda name, value: rows.append((name, value))


@pytest.fixture
def as_users_run() -> Iterator[None]:
    """Without the run-time type checker and without programs compiled by earlier sessions."""
    jaxtyping.config.update("jaxtyping_disable", True)
    jax.config.update("jax_enable_compilation_cache", False)
    compilation_cache.reset_cache()  # JAX looks at the switch once
    yield
    jax.config.update("jax_enable_compilation_cache", True)
    compilation_cache.reset_cache()
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def in_default_precision() -> Iterator[None]:
    """JAX's float32."""
    with jax.enable_x64(False):
        yield


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print the table and write each file's rows to ``results/benchmarks``."""
    files = config.stash.get(_ROWS, {})
    if any(files.values()):
        terminalreporter.section("ratios")
    failed = _failed(terminalreporter)
    for stem, rows in files.items():
        for name, value in rows:
            terminalreporter.write_line(f"{name:<56}{value:>24}")
        _keep(config.rootpath, stem, rows, failed.get(stem, []))


def _failed(terminalreporter: pytest.TerminalReporter) -> dict[str, list[str]]:
    """The tests that did not pass, by the stem of their file."""
    found: dict[str, list[str]] = {}
    for outcome in ("failed", "error"):
        for told in terminalreporter.stats.get(outcome, []):
            path, _, test = told.nodeid.partition("::")
            found.setdefault(Path(path).stem, []).append(test)
    return found


def _keep(root: Path, stem: str, rows: list[tuple[str, str]], failed: list[str]) -> None:
    content = {
        "about": {"source": stem, **describe_measurement("torch")},
        "rows": [{"name": name, "value": value} for name, value in rows],
        "failed": failed,
    }
    write_json(usable_directory(root / "results/benchmarks") / f"{stem}.json", content)

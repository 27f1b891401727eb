"""Collect the benchmarks' numbers, print them as one table, and keep them for ``jaxlab report``."""

import datetime
import importlib.metadata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jaxlab.core.files import usable_directory, write_json
from jaxlab.experiment.folder import describe_environment

_ROWS = pytest.StashKey[dict[str, list[tuple[str, str]]]]()
_CPU_INFO = Path("/proc/cpuinfo")


@pytest.fixture
def report(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Add a line to the table that is printed at the end."""
    files = request.config.stash.setdefault(_ROWS, {})
    rows = files.setdefault(request.path.stem, [])
    return lambda name, value: rows.append((name, value))


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
        "about": _about(stem),
        "rows": [{"name": name, "value": value} for name, value in rows],
        "failed": failed,
    }
    write_json(usable_directory(root / "results/benchmarks") / f"{stem}.json", content)


def _about(stem: str) -> dict[str, Any]:
    """When and where the numbers were measured: they are worth little elsewhere."""
    environment = describe_environment()
    packages = environment["packages"]
    return {
        "source": stem,
        "when": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": {
            "cpu": _cpu_model(),
            "cpus": environment["cpu_count"],
            "platform": environment["platform"],
            "python": environment["python"],
            "devices": environment["devices"],
        },
        "versions": {
            "jaxlab": packages.pop("this package"),
            **packages,
            "torch": _version("torch"),
            "commit": environment["git_commit"],
        },
    }


def _cpu_model() -> str | None:
    """The processor's name, where Linux tells it."""
    if not _CPU_INFO.is_file():
        return None
    lines = _CPU_INFO.read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else None


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None

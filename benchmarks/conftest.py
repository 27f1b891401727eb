"""Collect the benchmarks' numbers and print them as one table at the end."""

from collections.abc import Callable

import pytest

_ROWS = pytest.StashKey[list[tuple[str, str]]]()


@pytest.fixture
def report(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Add a line to the table that is printed at the end."""
    rows = request.config.stash.setdefault(_ROWS, [])
    return lambda name, value: rows.append((name, value))


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print the table."""
    rows = config.stash.get(_ROWS, [])
    if rows:
        terminalreporter.section("ratios")
    for name, value in rows:
        terminalreporter.write_line(f"{name:<56}{value:>24}")

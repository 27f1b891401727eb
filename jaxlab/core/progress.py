"""Lists that show on the terminal how far one is."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

__all__ = ["Track", "progress", "untracked"]

Track: TypeAlias = Callable[[list[Any], str], Iterable[Any]]
"""Goes through a list while it shows how far it is: ``(items, description) -> items``."""


def untracked(items: list[Any], description: str) -> Iterable[Any]:
    """Go through a list silently."""
    return items


@contextmanager
def progress() -> Iterator[Track]:
    """A ``Track`` with bars on standard error, if that is a terminal."""
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
    )  # fmt: skip
    console = Console(stderr=True)
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:

        def track(items: list[Any], description: str) -> Iterable[Any]:
            return bar.track(items, description=description)

        yield track

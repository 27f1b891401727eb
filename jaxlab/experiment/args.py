"""The flags that every experiment has, and their parsing."""

import contextlib
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["CommonArgs", "UsageError", "parse_args"]


class UsageError(ValueError):
    """Something that the user can put right; the message is one line and says all."""


@dataclass(frozen=True)
class CommonArgs:
    """Flags of every experiment; each experiment adds its own."""

    seed: int = 0
    """The first random seed; everything random follows from it."""
    seeds: int = 4
    """How many independent repetitions, for medians and confidence intervals."""
    smoke: bool = False
    """A small version that ends within a minute; its verdict says little."""
    out: Path | None = None
    """The folder to write, results/SLUG if not given; an earlier run's files are replaced."""
    resume: bool = False
    """Go on with an interrupted run in the same folder, of the same flags."""
    progress: bool = True
    """Show a progress bar on standard error."""
    json: str | None = None
    """Write the summary to this file as well; "-" means standard output."""

    def __post_init__(self) -> None:
        """Check the values that the types leave open."""
        if self.seeds < 1:
            raise ValueError(f"seeds must be at least 1, got {self.seeds}")
        if not 0 <= self.seed < 2**31:
            raise ValueError(f"seed must be in [0, 2**31), got {self.seed}")


def parse_args(args_type: type, argv: Sequence[str], *, prog: str, description: str) -> Any:
    """Parse flags into ``args_type``.

    Raises:
        UsageError: A flag is unknown or its value is unusable.
        SystemExit: With code 0, after ``--help`` was answered.
    """
    import tyro

    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(args_type, args=argv, prog=prog, description=description)
    except SystemExit as stop:
        if not stop.code:
            raise
        raise UsageError(_one_line(complaint.getvalue(), prog)) from None


def _one_line(box: str, prog: str) -> str:
    """Tyro's message as one line, without its title and frame, which some terminals get blank."""
    lines = [line.strip("╭╮╰╯│|+ ") for line in re.sub("\x1b\\[[0-9;]*m", "", box).splitlines()]
    lines = [line for line in lines if line.strip("─- ")]
    told = [line for line in lines[1:] if not line.startswith("For full help")]
    return f"{' '.join(told)}; see {prog} --help"

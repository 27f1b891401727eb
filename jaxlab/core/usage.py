"""Command lines: flags parsed into dataclasses, and mistakes told in one line."""

import contextlib
import io
import re
from collections.abc import Sequence
from typing import Any

__all__ = ["UsageError", "parse_args"]


class UsageError(ValueError):
    """Something that the user can put right; the message is one line and says all."""


def parse_args(
    args_type: type, argv: Sequence[str], *, prog: str, description: str | None = None
) -> Any:
    """Parse flags into ``args_type``, whose docstring is the description by default.

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
    told = [
        line
        for line in lines[1:]
        if not line.startswith("For full help") and line != f"{prog} --help"
    ]
    return f"{' '.join(told)}; see {prog} --help"

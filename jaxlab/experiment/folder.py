"""The folder of a run: what it may replace, what it goes on from, and what it says of itself."""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

from jaxlab.core.environment import describe_environment
from jaxlab.core.files import usable_directory, write_json
from jaxlab.core.usage import UsageError
from jaxlab.experiment.args import CommonArgs

__all__ = ["RESULT_FILES", "claim_folder", "inspect_folder"]

RESULT_FILES = ("metrics.csv", "summary.json", "figure.png", "figure.svg", "timings.json")
"""What a finished run leaves behind, next to ``args.json`` and ``env.json``."""

_NOT_COMPARED = ("json", "out", "progress", "resume")


def inspect_folder(slug: str, args: CommonArgs) -> Path:
    """The folder to write to, proven to be writable and fit for this run; nothing is changed in it.

    Raises:
        UsageError: It cannot be written, or ``resume`` was asked and it holds a run of other
            flags, or it holds a ``checkpoints`` folder that no run of an experiment made.
    """
    folder = Path("results") / slug if args.out is None else args.out
    try:
        usable_directory(folder)
        if args.json not in (None, "-"):
            usable_directory(Path(args.json).parent, "json's folder")
            if Path(args.json).is_dir():
                raise ValueError(f"json must be a file or '-', got the folder {args.json!r}")
    except ValueError as error:
        raise UsageError(str(error)) from error
    stored = _stored_args(folder)
    if stored is None and (folder / "checkpoints").exists():
        raise UsageError(
            f"out must be a new folder or that of an earlier run, got {str(folder)!r} with a "
            "checkpoints folder but without a readable args.json"
        )
    if args.resume and stored is not None:
        _check_same(stored, _described(slug, args), folder)
    return folder


def claim_folder(folder: Path, slug: str, args: CommonArgs) -> None:
    """Remove an earlier run's files, except for the checkpoints to go on from, and sign the folder.

    Checkpoints go first and the signature last, so that a kill in between leaves a folder that can
    be claimed again.
    """
    if not args.resume:
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    for name in RESULT_FILES:
        (folder / name).unlink(missing_ok=True)
    write_json(folder / "args.json", _described(slug, args))
    write_json(folder / "env.json", describe_environment())


def _described(slug: str, args: CommonArgs) -> dict[str, Any]:
    return {"experiment": slug, "args": _plain(dataclasses.asdict(args))}


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps(values, default=str))


def _stored_args(folder: Path) -> dict[str, Any] | None:
    try:
        stored = json.loads((folder / "args.json").read_text())
    except (OSError, ValueError):
        return None
    is_ours = isinstance(stored, dict) and isinstance(stored.get("args"), dict)
    return stored if is_ours and "experiment" in stored else None


def _check_same(stored: dict[str, Any], wanted: dict[str, Any], folder: Path) -> None:
    if stored["experiment"] != wanted["experiment"]:
        raise UsageError(
            f"resume must find a run of {wanted['experiment']!r} in {str(folder)!r}, got one of "
            f"{stored['experiment']!r}"
        )
    before, now = stored["args"], wanted["args"]
    names = [name for name in {**now, **before} if name not in _NOT_COMPARED]
    changed = [name for name in names if before.get(name) != now.get(name)]
    if changed:
        told = ", ".join(f"{n} {now.get(n)!r} where it was {before.get(n)!r}" for n in changed)
        raise UsageError(
            f"resume must have the flags of the run in {str(folder)!r}, got {told}; repeat its "
            "flags, or leave out --resume to start anew"
        )

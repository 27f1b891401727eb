"""Read a folder of results; what is missing is left out, and what is damaged is named."""

import datetime
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jaxlab.core.registry import papers
from jaxlab.report.results import (
    About,
    Benchmark,
    ClaimResult,
    ClaimsFile,
    CriterionResult,
    Damage,
    ExperimentRun,
    Figure,
    MutantResult,
    Results,
    RungResult,
    Section,
)

__all__ = ["collect"]

_FIGURES = (("figure.svg", "image/svg+xml"), ("figure.png", "image/png"))


def collect(folder: Path) -> Results:
    """Everything that ``jaxlab verify``, ``jaxlab run`` and the benchmarks left in a folder.

    Every paper of the registry gets a section, even an empty one; so does every other source.

    Raises:
        ValueError: There is no such folder.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as empty:
        ...     results = collect(Path(empty))
        >>> results.sections[0].title, results.sections[0].is_empty
        ('dual_sgd', True)
    """
    if not folder.is_dir():
        raise ValueError(f"results must be a folder, got {str(folder)!r}")
    reader = _Reader(folder)
    claims = [reader.read(path, _claims_file) for path in _claims_paths(folder)]
    runs = [_run(reader, path) for path in _run_folders(folder)]
    benchmarks = [
        reader.read(path, _benchmark) for path in sorted((folder / "benchmarks").glob("*.json"))
    ]
    sections = {paper.slug: Section(paper.slug, paper) for paper in papers()}

    def put(title: str, part: str, found: Any) -> None:
        section = sections.setdefault(title, Section(title, None))
        sections[title] = section._replace(**{part: (*getattr(section, part), found)})

    for part, founds in (("claims", claims), ("experiments", runs), ("benchmarks", benchmarks)):
        for found in founds:
            if found is not None:
                put(found.about.source, part, found)
    when = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return Results(str(folder), when, tuple(sections.values()), tuple(reader.damage))


class _Reader:
    """Reads files below a folder and remembers those that could not be used."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.damage: list[Damage] = []

    def name(self, path: Path) -> str:
        return path.relative_to(self.folder).as_posix()

    def read(self, path: Path, parse: Callable[[str, Any], Any]) -> Any:
        """What ``parse`` makes of a JSON file, or None."""
        try:
            return parse(self.name(path), json.loads(path.read_text(encoding="utf-8")))
        except KeyError as error:
            self._hurt(path, f"lacks {error}")
        except (OSError, ValueError, TypeError, OverflowError, RecursionError) as error:
            self._hurt(path, str(error))
        return None

    def figure(self, path: Path, media_type: str) -> Figure | None:
        """An image that is there and whole, or None."""
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            return self._hurt(path, str(error))
        if not _is_whole(content, media_type):
            return self._hurt(path, f"is not a whole {media_type} file")
        return Figure(self.name(path), media_type, content)

    def _hurt(self, path: Path, reason: str) -> None:
        self.damage.append(Damage(self.name(path), reason))


def _claims_paths(folder: Path) -> list[Path]:
    """The reports of verify; the other JSON files there describe a counterexample beside them."""
    paths = sorted((folder / "claims").glob("*.json"))
    return [path for path in paths if not path.with_suffix(".npz").exists()]


def _run_folders(folder: Path) -> list[Path]:
    signs = {path.parent for name in ("summary", "args") for path in folder.glob(f"*/{name}.json")}
    return sorted(signs - {folder / "claims", folder / "benchmarks"})


def _run(reader: _Reader, path: Path) -> ExperimentRun | None:
    """A run with a summary, or one that was begun; None if its files are damaged."""
    parses = {"summary": _summary, "args": _args, "env": _environment}
    found = {
        part: reader.read(path / f"{part}.json", parse)
        for part, parse in parses.items()
        if (path / f"{part}.json").exists()
    }
    run, begun = found.get("summary"), found.get("args")
    if run is None and "summary" not in found:
        run = begun
    if run is None:
        return None
    figures = (reader.figure(path / name, media_type) for name, media_type in _FIGURES)
    about = found.get("env") or About()
    return run._replace(
        folder=reader.name(path),
        figure=next((figure for figure in figures if figure is not None), None),
        flags={} if begun is None else begun.flags,
        about=about._replace(source=run.experiment),
    )


def _args(name: str, data: Any) -> ExperimentRun:
    slug, flags = _text(_mapping(data)["experiment"]), _facts(data.get("args"))
    return ExperimentRun(name, slug, "unfinished", False, (), (), None, flags, About())


def _summary(name: str, data: Any) -> ExperimentRun:
    data = _mapping(data)
    return ExperimentRun(
        folder=name,
        experiment=_text(data["experiment"]),
        verdict=_text(data["verdict"]),
        smoke=bool(data["smoke"]),
        criteria=tuple(_criterion(criterion) for criterion in _list(data["criteria"])),
        notes=tuple(_text(note) for note in _list(data["notes"])),
        figure=None,
        flags={},
        about=About(),
    )


def _criterion(data: Any) -> CriterionResult:
    data = _mapping(data)
    return CriterionResult(
        name=_text(data["name"]),
        measured=_number(data["measured"]),
        threshold=_text(data["threshold"]),
        holds=bool(data["holds"]),
        about=_text(data.get("about", "")),
    )


def _environment(name: str, data: Any) -> About:
    names = {"platform": "platform", "python": "python", "cpu_count": "cpus", "devices": "devices"}
    machine = {names[key]: value for key, value in _mapping(data).items() if key in names}
    versions = {
        "jaxlab" if name == "this package" else name: version
        for name, version in _mapping(data.get("packages") or {}).items()
    }
    versions["commit"] = data.get("git_commit")
    return About(machine=_facts(machine), versions=_facts(versions))


def _claims_file(name: str, data: Any) -> ClaimsFile | None:
    stem = Path(name).stem
    if isinstance(data, list):  # what ``jaxlab verify --json`` prints
        return ClaimsFile(name, About(stem), tuple(_claim(claim) for claim in data))
    if "claims" not in _mapping(data) and "instance" in data:
        return None  # a counterexample whose npz file is gone
    claims = tuple(_claim(claim) for claim in _list(data["claims"]))
    return ClaimsFile(name, _about(stem, data.get("about")), claims)


def _claim(data: Any) -> ClaimResult:
    data = _mapping(data)
    return ClaimResult(
        name=_text(data["name"]),
        statement=_text(data["statement"]),
        source=_text(data.get("source") or ""),
        families=tuple(_text(family) for family in _list(data.get("families") or [])),
        expected=_text(data["expected"]),
        verdict=_text(data["verdict"]),
        tightness=_text(data["tightness"]),
        note=_text(data.get("note") or ""),
        seconds=_number(data.get("seconds")),
        rungs=tuple(_rung(rung) for rung in _list(data["rungs"])),
        mutants=tuple(_mutant(mutant) for mutant in _list(data["mutants"])),
    )


def _rung(data: Any) -> RungResult:
    data = _mapping(data)
    return RungResult(
        rung=_text(data["rung"]),
        verdict=_text(data["verdict"]),
        num_instances=int(data.get("num_instances") or 0),
        least={name: _number(margin) for name, margin in _mapping(data["least"]).items()},
        note=_text(data.get("note") or ""),
        file=_text(data.get("file") or ""),
    )


def _mutant(data: Any) -> MutantResult:
    data = _mapping(data)
    return MutantResult(
        name=_text(data["name"]),
        killed_by=_text(data["killed_by"] or ""),
        margin=_number(data["margin"]),
        rungs=tuple(_rung(rung) for rung in _list(data["rungs"])),
    )


def _benchmark(name: str, data: Any) -> Benchmark:
    found = [_mapping(row) for row in _list(_mapping(data)["rows"])]
    rows = tuple((_text(row["name"]), _text(row["value"])) for row in found)
    failed = tuple(_text(test) for test in _list(data.get("failed") or []))
    return Benchmark(name, _about(Path(name).stem, data.get("about")), rows, failed)


def _about(stem: str, data: Any) -> About:
    data = _mapping(data or {})
    return About(
        source=_text(data.get("source") or stem),
        when=_text(data.get("when") or ""),
        effort=_text(data.get("effort") or ""),
        seed=str(data.get("seed", "")),
        seconds=_number(data.get("seconds")),
        machine=_facts(data.get("machine")),
        versions=_facts(data.get("versions")),
    )


def _is_whole(content: bytes, media_type: str) -> bool:
    if media_type == "image/png":
        return content.startswith(b"\x89PNG\r\n\x1a\n") and b"IEND" in content[-12:]
    return b"<svg" in content and content.rstrip().endswith(b"</svg>")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"holds {value!r:.60} where text was expected")
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"holds {value!r:.60} where a list was expected")
    return value


def _mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError(f"holds {value!r:.60} where an object was expected")
    return value


def _number(value: Any) -> float:
    """A float; null is NaN, and ``json_text`` writes infinities and NaN as strings."""
    return math.nan if value is None else float(value)


def _facts(data: Any) -> dict[str, str]:
    """Facts by name, without those that are not known."""
    known = {key: value for key, value in _mapping(data or {}).items() if value is not None}
    return {
        str(key): ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        for key, value in known.items()
    }

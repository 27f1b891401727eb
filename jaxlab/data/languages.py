"""Code in many languages: the example files of Pygments' source distribution, and Python's library.

Example files carry licences of their own, so that they are read where they are and never copied
here: from an archive or an unpacked folder that the user names, or from one that pip fetches.
"""

import hashlib
import inspect
import io
import subprocess
import sys
import tarfile
import tempfile
import zlib
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from jaxlab.core.files import usable_directory

__all__ = ["CodeExamples", "code_examples", "fetch_code_archive", "module_sources"]

VERSION = "2.21.0"
DIGEST = "610ca751c9bc2492b38eb9a38a7fbc93edbbb2d7182edaf34e66ae493dee5c8c"
_ARCHIVE = f"pygments-{VERSION}.tar.gz"
_FOLDER = "tests/examplefiles/"
# No languages: dumps of bytes and logs.
_SKIPPED = ("hexdump", "pypylog", "python")


class CodeExamples(NamedTuple):
    """Texts by language.

    Attributes:
        names: Languages, in alphabetical order, as Pygments calls them.
        texts: The bytes of all example files of each.
    """

    names: tuple[str, ...]
    texts: tuple[Int[np.ndarray, " bytes"], ...]


def code_examples(path: str | Path, *, least_bytes: int = 4000) -> CodeExamples:
    """The example files of every language that has enough of them.

    Args:
        path: Pygments' source distribution, ``pygments-2.21.0.tar.gz``, or its unpacked folder.
        least_bytes: Languages with fewer are left out.

    Raises:
        FileNotFoundError: No such file or folder.
        ValueError: No source distribution of Pygments.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"there is no file or folder {str(path)!r}")
    files = _files_of_folder(path) if path.is_dir() else _files_of_archive(path)
    found: dict[str, list[bytes]] = {}
    for name in sorted(files):
        language = name.split("/")[0]
        if language not in _SKIPPED and not name.endswith(".output"):
            found.setdefault(language, []).append(files[name])
    if not found:
        raise ValueError(f"{str(path)!r} must hold Pygments' {_FOLDER}, got no file of it")
    joined = {language: b"\n".join(texts) for language, texts in sorted(found.items())}
    kept = {name: text for name, text in joined.items() if len(text) >= least_bytes}
    return CodeExamples(
        tuple(kept), tuple(np.frombuffer(text, np.uint8).astype(np.int32) for text in kept.values())
    )


def fetch_code_archive(folder: str | Path) -> Path:
    """Have pip fetch Pygments' source distribution into a folder, unless it is there.

    Raises:
        OSError: It cannot be fetched; the message says what to do instead.
        ValueError: It is not the file that was expected.
    """
    folder = usable_directory(Path(folder))
    path = folder / _ARCHIVE
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=folder) as temporary:
            words = ["-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", "pygments"]
            done = subprocess.run(
                [sys.executable, *words, "--dest", temporary, f"pygments=={VERSION}"],
                capture_output=True,
                text=True,
                check=False,
            )
            fetched = Path(temporary) / path.name
            if done.returncode or not fetched.exists():
                raise OSError(
                    f"pip could not fetch {path.name}: {done.stderr.strip()[-300:]}\nFetch it "
                    "where there is a network, and name it by --data"
                )
            fetched.replace(path)
    _check_archive(path)
    return path


def module_sources(modules: tuple[ModuleType, ...]) -> Int[np.ndarray, " bytes"]:
    """The source of modules of the running interpreter, as bytes.

    Example:
        >>> import json.decoder
        >>> len(module_sources((json.decoder,))) > 10_000
        True
    """
    text = "\n".join(inspect.getsource(module) for module in modules)
    return np.frombuffer(text.encode(), np.uint8).astype(np.int32)


def _check_archive(path: Path) -> None:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != DIGEST:
        raise ValueError(f"{str(path)!r} must have the sha256 {DIGEST}, got {digest}; remove it")


def _files_of_archive(path: Path) -> dict[str, bytes]:
    if path.name == _ARCHIVE:
        _check_archive(path)
    try:
        with tarfile.open(path) as archive:
            return {
                member.name.split(_FOLDER, 1)[1]: _content(archive, member)
                for member in archive
                if member.isfile() and _FOLDER in member.name
            }
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise ValueError(f"{str(path)!r} must be a whole tar archive: {error}") from error


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    return (archive.extractfile(member) or io.BytesIO()).read()


def _files_of_folder(path: Path) -> dict[str, bytes]:
    root = path / _FOLDER
    return {
        file.relative_to(root).as_posix(): file.read_bytes()
        for file in root.rglob("*")
        if file.is_file()
    }

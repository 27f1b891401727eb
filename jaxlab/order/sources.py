"""The files of one ordering: found, read as texts, and drawn from.

What is drawn depends on a file's bytes and on the seed, never on its name or on other files. A
file's text is cut into slots of about as many characters as a sequence holds; some are drawn at
random, tokenised and cut to length. So the work does not grow with the file.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from jaxlab.models.tokenizer import Tokenizer
from jaxlab.order.model import ByteReader

__all__ = ["Document", "Drawn", "Source", "draw", "find_sources", "open_source", "read_documents"]

_MESSAGES = "messages"


class Source(NamedTuple):
    """A file.

    Attributes:
        name: Its path within the folder.
        path: Where it is.
        digest: Of its bytes.
        documents: How many texts it has.
        characters: Of all of them.
    """

    name: str
    path: Path
    digest: str
    documents: int
    characters: int


class Document(NamedTuple):
    """A text.

    Attributes:
        content: Characters, or a conversation.
        place: Where it is, for messages.
    """

    content: str | list[Any]
    place: str


class Drawn(NamedTuple):
    """Sequences of a source in two halves.

    Attributes:
        tokens: Ids, padded at the right.
        mask: Which are no padding; each half has a token to be told.
    """

    tokens: Int[np.ndarray, "2 sequences time"]
    mask: Bool[np.ndarray, "2 sequences time"]

    @property
    def scored(self) -> Int[np.ndarray, " 2"]:
        """How many tokens of each half are told from those before them."""
        return self.mask[..., 1:].sum(axis=(1, 2))


def find_sources(folder: Path, suffixes: Sequence[str], target: Path) -> tuple[list[Path], bool]:
    """Files directly in a folder and one level deeper, by name; hidden ones do not count.

    Returns:
        The files but for the target, and whether the target was among them.

    Raises:
        ValueError: There is no such folder, or fewer than two files.
    """
    if not folder.is_dir():
        got = "a file" if folder.exists() else "nothing"
        raise ValueError(f"sources must be a folder, got {got} at {str(folder)!r}")
    wanted = {suffix.lower() for suffix in suffixes}
    every = [*folder.glob("*"), *folder.glob("*/*")]
    found = sorted(
        path
        for path in every
        if path.suffix.lower() in wanted and path.is_file()
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )  # fmt: skip
    others = [path for path in found if not path.samefile(target)]
    if len(others) < 2:
        but = " besides the target" if len(others) < len(found) else ""
        raise ValueError(
            f"sources must hold at least two files that end in {', '.join(suffixes)}{but}, got "
            f"{len(others)} in {str(folder)!r} and its folders"
        )
    return others, len(others) < len(found)


def open_source(name: str, path: Path, field: str) -> Source:
    """Read a file once, to see that it can be.

    Raises:
        ValueError: It is missing, binary or damaged; the message names the file and the line.
    """
    digest, documents = _read(path, field)
    sizes = [_size(document) for document in documents]
    if not any(sizes):
        raise ValueError(f"{path} must hold text, got {'no text' if documents else 'nothing'}")
    return Source(name, path, digest, len(sizes), sum(sizes))


def read_documents(source: Source, field: str) -> list[Document]:
    """The texts of a file.

    Raises:
        ValueError: It is not what it was when it was opened.
    """
    digest, documents = _read(source.path, field)
    if digest != source.digest:
        raise ValueError(f"{source.path} must stay as it is during a run, got other bytes")
    return documents


def _size(document: Document) -> int:
    if isinstance(document.content, str):
        return len(document.content.strip())
    return sum(len(message["content"]) for message in document.content)


def _read(path: Path, field: str) -> tuple[str, list[Document]]:
    if not path.is_file():
        got = "a folder" if path.is_dir() else "nothing"
        raise ValueError(f"a file of text was expected, got {got} at {str(path)!r}")
    content = path.read_bytes()
    is_lines = path.suffix.lower() == ".jsonl"
    kind = b"lines" if is_lines else b"text"  # the same bytes are read in two ways
    digest = hashlib.blake2b(content, digest_size=16, person=kind).hexdigest()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} must be text in UTF-8, got the byte {content[error.start]:#04x} at position "
            f"{error.start}"
        ) from None
    if "\0" in text:
        raise ValueError(f"{path} must be text, got a byte 0x00 at position {content.index(0)}")
    if not is_lines:
        return digest, [Document(text, str(path))] if text.strip() else []
    # Not splitlines, which also splits at characters that JSON allows within strings.
    lines = text.split("\n")
    return digest, [
        _parsed(line, f"{path}, line {number}", field)
        for number, line in enumerate(lines, start=1)
        if line.strip()
    ]


def _parsed(line: str, place: str, field: str) -> Document:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise ValueError(f"{place}: must be JSON, got {line[:40]!r}: {error}") from None
    if not isinstance(row, dict) or not (field in row or _MESSAGES in row):
        keys = f"keys {', '.join(map(repr, row))}" if isinstance(row, dict) else repr(line[:40])
        raise ValueError(
            f"{place}: must be an object with the key {field!r} (--field) or {_MESSAGES!r}, got "
            f"{keys}"
        )
    if field in row and field != _MESSAGES:
        if not isinstance(row[field], str):
            raise ValueError(f"{place}: {field!r} must be text, got {line[:40]!r}")
        return Document(row[field], place)
    messages = row[_MESSAGES]
    fine = isinstance(messages, list) and messages and all(map(_is_message, messages))
    if not fine:
        raise ValueError(
            f"{place}: {_MESSAGES!r} must be a list of objects with the texts 'role' and "
            f"'content', got {line[:40]!r}"
        )
    return Document(messages, place)


def _is_message(message: Any) -> bool:
    return isinstance(message, dict) and all(
        isinstance(message.get(key), str) for key in ("role", "content")
    )


def draw(
    source: Source,
    documents: Sequence[Document],
    reader: Tokenizer | ByteReader,
    *,
    seed: int,
    sequences: int,
    tokens: int,
) -> Drawn:
    """At most so many sequences of at most so many tokens, in two halves.

    A file of a single sequence gives half of it to each half; the rest is padding.

    Args:
        source: The file.
        documents: Its texts.
        reader: A tokenizer.
        seed: Of the choice.
        sequences: How many, an even number.
        tokens: Their length.

    Raises:
        ValueError: The file has fewer than four tokens, or a conversation without a format.
    """
    found: list[list[int]] = []
    for slot in _shuffled_slots(source, documents, reader, tokens, seed):
        ids = _encoded(slot, reader)[:tokens]
        if len(ids) > 1:  # the first token is not told from others
            found.append(ids)
        if len(found) == sequences:
            break
    if len(found) == 1:
        middle = len(found[0]) // 2
        found = [ids for ids in (found[0][:middle], found[0][middle:]) if len(ids) > 1]
    if len(found) < 2:
        raise ValueError(
            f"{source.path} must have at least 4 tokens, two sequences of two, got fewer in "
            f"{source.characters} characters"
        )
    ids = np.full((sequences, tokens), reader.pad_id or 0, np.int32)
    mask = np.zeros((sequences, tokens), bool)
    for row, sequence in enumerate(found):
        ids[row, : len(sequence)], mask[row, : len(sequence)] = sequence, True
    # In turns, so that both halves have their share of a short file.
    halves = [np.stack([part[::2], part[1::2]]) for part in (ids, mask)]
    return Drawn(*halves)


def _shuffled_slots(
    source: Source,
    documents: Sequence[Document],
    reader: Tokenizer | ByteReader,
    tokens: int,
    seed: int,
) -> Iterable[Document]:
    # English and code have about four characters a token.
    width = tokens * (1 if isinstance(reader, ByteReader) else 4)
    slots = [
        (i, start)
        for i, document in enumerate(documents)
        # A conversation stays whole, since its format has no middle.
        for start in range(0, max(1, len(document.content)), width)
        if start == 0 or isinstance(document.content, str)
    ]
    generator = np.random.default_rng([seed, int(source.digest, 16)])
    for k in generator.permutation(len(slots)):
        i, start = slots[k]
        content, place = documents[i]
        yield (
            Document(content[start : start + width], place)
            if isinstance(content, str)
            else documents[i]
        )


def _encoded(document: Document, reader: Tokenizer | ByteReader) -> list[int]:
    if isinstance(document.content, str):
        return reader.encode(document.content)
    try:
        return reader.encode_chat(document.content, add_generation_prompt=False)
    except ValueError as error:
        raise ValueError(f"{document.place}: {error}") from error

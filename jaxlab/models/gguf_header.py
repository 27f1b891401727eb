"""The header of GGUF files: keys and values, and where the tensors are.

The package ``gguf`` reads it as well, but makes several NumPy arrays for every string of the
vocabulary, which takes longer than all the weights.
"""

import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxlab.core.locate import missing_package

__all__ = ["GgufFile", "GgufTensor", "open_gguf"]

_VERSIONS = (2, 3)
_ALIGNMENT = 32
# Numbers by the format's codes of types; the codes of the two others.
_NUMBERS = {
    0: "<u1",
    1: "<i1",
    2: "<u2",
    3: "<i2",
    4: "<u4",
    5: "<i4",
    6: "<f4",
    7: "?",
    10: "<u8",
    11: "<i8",
    12: "<f8",
}
_TEXT, _ARRAY = 8, 9


class GgufTensor(NamedTuple):
    """A tensor as it is stored.

    Attributes:
        shape: Its shape, rows first.
        quantisation: A ``gguf.GGMLQuantizationType``.
        data: Its bytes, mapped from the file, [..., bytes of a row].
    """

    shape: tuple[int, ...]
    quantisation: Any
    data: np.ndarray


class GgufFile(NamedTuple):
    """What a GGUF file holds.

    Attributes:
        path: Where it is.
        metadata: Its keys and values.
        tensors: Its tensors by name.
    """

    path: Path
    metadata: Mapping[str, Any]
    tensors: Mapping[str, GgufTensor]


def open_gguf(path: Path) -> GgufFile:
    """Read a file's metadata and map its tensors.

    Raises:
        ImportError: The package ``gguf`` is not installed.
        OSError: The file cannot be read.
        ValueError: It is no GGUF file, is damaged or cut short, or has an unknown quantisation.
    """
    try:
        from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
    except ImportError as error:
        raise missing_package("a GGUF file", "gguf", error, extra="models") from error
    with path.open("rb") as stream:
        magic = stream.read(4)
    if magic != b"GGUF":
        raise ValueError(f"{path} is no GGUF file: it starts with {magic!r} instead of b'GGUF'")
    data = np.memmap(path, np.uint8, mode="r")
    cursor = _Cursor(path, memoryview(data), 4)
    if (version := cursor.number("<u4")) not in _VERSIONS:
        raise ValueError(f"{path} has the version {version} of GGUF; known are 2 and 3")
    num_tensors, num_keys = cursor.number("<u8"), cursor.number("<u8")
    metadata = {}
    for _ in range(num_keys):
        key = cursor.text()
        metadata[key] = cursor.value(cursor.number("<u4"))
    entries = [cursor.tensor() for _ in range(num_tensors)]
    alignment = metadata.get("general.alignment", _ALIGNMENT)
    if not isinstance(alignment, int) or alignment < 1:
        raise ValueError(f"{path}: general.alignment must be positive, got {alignment!r}")
    start = -(-cursor.at // alignment) * alignment
    tensors = {}
    for name, shape, code, offset in entries:
        try:
            quantisation = GGMLQuantizationType(code)
        except ValueError:
            raise ValueError(
                f"{path}: the tensor {name} has the unknown quantisation {code}"
            ) from None
        block, size = GGML_QUANT_SIZES[quantisation]
        row, rest = divmod(shape[-1], block)
        end = start + offset + math.prod(shape[:-1]) * row * size
        if rest or name in tensors:
            raise ValueError(f"{path} is damaged: the tensor {name} has {shape} or comes twice")
        if end > len(data):
            raise ValueError(
                f"{path} is cut short: the tensor {name} ends at byte {end} of {len(data)}"
            )
        stored = data[start + offset : end].reshape(*shape[:-1], row * size)
        tensors[name] = GgufTensor(shape, quantisation, stored)
    return GgufFile(path, metadata, tensors)


class _Cursor:
    # Reads one thing after another and notices the end of the file.

    def __init__(self, path: Path, data: memoryview, at: int):
        self.path, self.data, self.at = path, data, at

    def take(self, count: int) -> memoryview:
        if self.at + count > len(self.data):
            raise ValueError(
                f"{self.path} is cut short: {count} bytes were expected from byte {self.at} on, "
                f"got {len(self.data) - self.at}"
            )
        taken = self.data[self.at : self.at + count]
        self.at += count
        return taken

    def number(self, kind: str) -> Any:
        return self.numbers(kind, 1)[0]

    def numbers(self, kind: str, count: int) -> list[Any]:
        dtype = np.dtype(kind)
        return np.frombuffer(self.take(count * dtype.itemsize), dtype).tolist()

    def text(self) -> str:
        return self.texts(1)[0]

    def texts(self, count: int) -> list[str]:
        # Inlined, since vocabularies have a hundred thousand of them.
        data, at, end, texts = self.data, self.at, len(self.data), []
        for _ in range(count):
            length = struct.unpack_from("<Q", data, at)[0] if at + 8 <= end else end
            if at + 8 + length > end:
                raise ValueError(f"{self.path} is cut short: a text at byte {at} does not end")
            try:
                texts.append(str(data[at + 8 : at + 8 + length], "utf-8"))
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"{self.path} is damaged: the text at byte {at} is not UTF-8"
                ) from error
            at += 8 + length
        self.at = at
        return texts

    def value(self, code: int) -> Any:
        if code == _TEXT:
            return self.text()
        if code == _ARRAY:
            item, count = self.number("<u4"), self.number("<u8")
            if item == _TEXT:
                return self.texts(count)
            if item in _NUMBERS:
                return self.numbers(_NUMBERS[item], count)
            return [self.value(item) for _ in range(count)]
        if code not in _NUMBERS:
            raise ValueError(f"{self.path} is damaged: no type of values has the code {code}")
        return self.number(_NUMBERS[code])

    def tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        name = self.text()
        shape = tuple(self.numbers("<u8", self.number("<u4"))[::-1])
        if not shape:
            raise ValueError(f"{self.path} is damaged: the tensor {name} has no shape")
        return name, shape, self.number("<u4"), self.number("<u8")

"""Text to token ids and back, and conversations to text, as a model was trained with them."""

import json
import operator
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, SupportsIndex

import jax
import numpy as np

__all__ = ["Tokenizer", "byte_alphabet"]


class Tokenizer:
    """A tokenizer of the package ``tokenizers`` with what a language model needs around it.

    ``encode`` gives the ids of the model's own tokenizer; where its vocabulary lacks a byte (that
    of SmolLM2 lacks a few control characters), the byte is dropped, as there.

    Attributes:
        vocab_size: Number of tokens, special ones included.
        bos_id: The token that opens a text, or ``None``.
        eos_id: The token that ends a text or a turn, or ``None``.
        pad_id: The token that fills up a batch, or ``None``.
        adds_bos: Whether the model expects ``bos_id`` before every text.
        special_ids: The tokens that are control codes and not text, with their names.
        chat_template: The Jinja template of conversations, or ``None``.

    Example:
        >>> from jaxlab.models.tokenizer_files import byte_pair_tokenizer
        >>> tokens = ["<|end|>", "a", "b", "ab"]
        >>> tokenizer = byte_pair_tokenizer(tokens, ["a b"], "gpt-2", special=["<|end|>"])
        >>> tokenizer.encode("abba"), tokenizer.decode([3, 2, 1])
        ([3, 2, 1], 'abba')
        >>> tokenizer.encode("ab<|end|>", special=True)
        [3, 0]
    """

    def __init__(
        self,
        backend: Any,
        *,
        bos_id: int | None = None,
        eos_id: int | None = None,
        pad_id: int | None = None,
        adds_bos: bool = False,
        chat_template: str | None = None,
    ):
        """Wrap a ``tokenizers.Tokenizer``, which must not be changed afterwards."""
        if adds_bos and bos_id is None:
            raise ValueError("adds_bos needs bos_id, got None")
        # Two copies, since whether special tokens are parsed is a switch of the object.
        self.backend = backend
        self._plain = type(backend).from_str(backend.to_str())
        self._plain.encode_special_tokens = True
        self.bos_id, self.eos_id, self.pad_id = bos_id, eos_id, pad_id
        self.adds_bos = adds_bos
        self.chat_template = chat_template
        self.vocab_size: int = backend.get_vocab_size(with_added_tokens=True)
        added = backend.get_added_tokens_decoder()
        self.special_ids = {i: token.content for i, token in added.items() if token.special}
        self._added = {i: token.content.encode() for i, token in added.items()}
        self._byte_level = _is_byte_level(json.loads(backend.to_str())["decoder"])

    def encode(
        self, text: str | bytes, *, special: bool = False, bos: bool | None = None
    ) -> list[int]:
        """Token ids of a text.

        Args:
            text: The text; bytes must be UTF-8.
            special: Whether names of special tokens such as ``<|im_end|>`` in the text become
                these tokens. Not by default: text from outside must not end a turn.
            bos: Whether ``bos_id`` comes first; by default as the model expects, ``adds_bos``.

        Raises:
            TypeError: ``text`` is neither.
            ValueError: It is not valid Unicode, or there is no ``bos_id`` to put first.
        """
        text = _checked_text("text", text)
        encoding = (self.backend if special else self._plain).encode(text, add_special_tokens=False)
        if not (self.adds_bos if bos is None else bos):
            return encoding.ids
        if self.bos_id is None:
            raise ValueError("bos must be False: this tokenizer has no token that opens a text")
        return [self.bos_id, *encoding.ids]

    def decode(self, ids: Iterable[SupportsIndex], *, skip_special: bool = False) -> str:
        """The text of tokens; bytes that are no UTF-8 (a cut character) become U+FFFD.

        Args:
            ids: Token ids, or an array of them.
            skip_special: Whether special tokens are left out rather than shown by name.

        Raises:
            TypeError: An id is no integer.
            ValueError: An id is not in the vocabulary.
        """
        if self._byte_level:
            return self.decode_bytes(ids, skip_special=skip_special).decode(errors="replace")
        return self.backend.decode(self._checked_ids(ids), skip_special_tokens=skip_special)

    def decode_bytes(self, ids: Iterable[SupportsIndex], *, skip_special: bool = False) -> bytes:
        """The bytes of tokens, exactly, where the vocabulary is one of bytes.

        Raises:
            TypeError: An id is no integer.
            ValueError: An id is not in the vocabulary, or the vocabulary is not one of bytes.
        """
        if not self._byte_level:
            raise ValueError("decode_bytes needs a byte-level tokenizer; use decode")
        skipped = self.special_ids if skip_special else ()
        return b"".join(self._token_bytes(i) for i in self._checked_ids(ids) if i not in skipped)

    def chat(
        self, messages: Sequence[Mapping[str, Any]], add_generation_prompt: bool = True
    ) -> str:
        """The text of a conversation in the model's format; encode it with ``special=True``.

        Args:
            messages: Mappings with a ``"role"`` (``"system"``, ``"user"``, ``"assistant"``) and a
                ``"content"``, both text.
            add_generation_prompt: Whether the text ends with the opening of the assistant's turn.

        Raises:
            ImportError: The package ``jinja2`` is not installed.
            TypeError: Messages are no sequence of mappings, or hold something else than text.
            ValueError: The model has no format of conversations, or it refuses these messages.
        """
        if self.chat_template is None:
            raise ValueError("this tokenizer has no chat template")
        from jaxlab.models.chat import render

        names = {
            "bos_token": self.bos_id,
            "eos_token": self.eos_id,
            "pad_token": self.pad_id,
        }
        return render(
            self.chat_template,
            messages,
            add_generation_prompt=add_generation_prompt,
            names={name: self.backend.id_to_token(i) for name, i in names.items() if i is not None},
        )

    def encode_chat(
        self, messages: Sequence[Mapping[str, Any]], add_generation_prompt: bool = True
    ) -> list[int]:
        """Token ids of a conversation; as ``chat``, special tokens in the messages included."""
        return self.encode(self.chat(messages, add_generation_prompt), special=True, bos=False)

    def _checked_ids(self, ids: Iterable[SupportsIndex]) -> list[int]:
        checked = []
        for i in ids.tolist() if isinstance(ids, np.ndarray | jax.Array) else ids:
            try:
                checked.append(operator.index(i))
            except TypeError:
                raise TypeError(f"ids must be integers, got {i!r}") from None
            if not 0 <= checked[-1] < self.vocab_size:
                raise ValueError(f"ids must be in 0 to {self.vocab_size - 1}, got {checked[-1]}")
        return checked

    def _token_bytes(self, i: int) -> bytes:
        if i in self._added:
            return self._added[i]
        token = self.backend.id_to_token(i)
        if token is None:
            raise ValueError(f"ids must be in the vocabulary, got {i}, which it leaves out")
        alphabet = _byte_of_character()
        try:
            return bytes(alphabet[character] for character in token)
        except KeyError:  # a placeholder that is not written in the alphabet of bytes
            return token.encode()


@cache
def byte_alphabet() -> str:
    """The 256 characters by which byte-level vocabularies write bytes; GPT-2's choice.

    Printable Latin-1 stands for itself, the other bytes for the characters from U+0100 on.

    Example:
        >>> byte_alphabet()[ord("a")], byte_alphabet()[ord(" ")]
        ('a', 'Ġ')
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = (chr(code) for code in range(0x100, 0x200))
    return "".join(chr(byte) if byte in printable else next(others) for byte in range(256))


@cache
def _byte_of_character() -> dict[str, int]:
    return {character: byte for byte, character in enumerate(byte_alphabet())}


def _is_byte_level(decoder: Mapping[str, Any] | None) -> bool:
    if decoder is None:
        return False
    parts = decoder.get("decoders", [decoder])
    return any(part["type"] == "ByteLevel" for part in parts)


def _checked_text(name: str, text: Any) -> str:
    if isinstance(text, bytes):
        try:
            return text.decode()
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{name} must be UTF-8, got the byte {text[error.start]:#04x} at position "
                f"{error.start}: {error.reason}"
            ) from error
    if not isinstance(text, str):
        raise TypeError(f"{name} must be a str or bytes, got {type(text).__name__}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{name} must be valid Unicode, got the lone surrogate "
            f"U+{ord(text[error.start]):04X} at position {error.start}"
        ) from error
    return text

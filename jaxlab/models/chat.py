"""Conversations to text by a model's Jinja template, which is run in a sandbox."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any

from jaxlab.core.locate import missing_package

__all__ = ["render"]


def render(
    template: str,
    messages: Sequence[Mapping[str, Any]],
    *,
    add_generation_prompt: bool,
    names: Mapping[str, str],
) -> str:
    """Render a conversation, with the functions and filters that templates of models rely on.

    Args:
        template: The template.
        messages: Mappings with a role and a content.
        add_generation_prompt: Whether the text ends with the opening of the assistant's turn.
        names: Special tokens by the names that templates know, such as ``eos_token``.

    Raises:
        ImportError: The package ``jinja2`` is not installed.
        TypeError: Messages are no sequence of mappings, or hold something else than text.
        ValueError: The template is none, or refuses these messages.

    Example:
        >>> template = "{% for m in messages %}{{ m.role }}: {{ m.content }}{{ end }}{% endfor %}"
        >>> messages = [{"role": "user", "content": "Hi"}]
        >>> render(template, messages, add_generation_prompt=True, names={"end": "<|end|>"})
        'user: Hi<|end|>'
    """
    _check_messages(messages)
    try:
        import jinja2
    except ImportError as error:
        raise missing_package("a chat template", "jinja2", error, extra="models") from error
    try:
        return _compiled(template).render(
            messages=[dict(message) for message in messages],
            tools=None,
            documents=None,
            add_generation_prompt=add_generation_prompt,
            **names,
        )
    except jinja2.TemplateError as error:
        raise ValueError(f"the chat template refuses the messages: {error}") from error


def _check_messages(messages: Any) -> None:
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Sequence):
        raise TypeError(
            "messages must be a list of mappings with 'role' and 'content', got "
            f"{type(messages).__name__}"
        )
    if not messages:
        raise ValueError("messages must hold one at least, got none")
    for i, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise TypeError(f"messages[{i}] must be a mapping, got {type(message).__name__}")
        for key in ("role", "content"):
            if key not in message:
                raise ValueError(f"messages[{i}] must have the key {key!r}, got {list(message)}")
            if not isinstance(message[key], str):
                raise TypeError(
                    f"messages[{i}][{key!r}] must be a str, got {type(message[key]).__name__}"
                )


@cache
def _compiled(template: str) -> Any:
    from jinja2.exceptions import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def raise_exception(message: str) -> None:
        raise TemplateError(message)

    def tojson(
        value: Any,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        # Jinja's own escapes for HTML.
        return json.dumps(
            value,
            ensure_ascii=ensure_ascii,
            indent=indent,
            separators=separators,
            sort_keys=sort_keys,
        )

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment.from_string(template)

"""Markup that escapes by construction: text becomes HTML only through ``tag``."""

import html
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Column", "Html", "join", "table", "tag"]

_VOID = ("img", "meta")


class Html(str):
    """Markup; every other string is text and is escaped."""

    __slots__ = ()


class Column(NamedTuple):
    """A column's label, and whether its cells are numbers."""

    label: str
    numeric: bool = False


def tag(name: str, /, *content: str, **attributes: str) -> Html:
    """An element.

    Args:
        name: Of the element.
        content: Text, which is escaped, or ``Html``.
        attributes: ``class_`` stands for ``class`` and ``data_label`` for ``data-label``.

    Example:
        >>> tag("b", "<script>", class_="name")
        '<b class="name">&lt;script&gt;</b>'
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_escaped(value)}"'
        for key, value in attributes.items()
    )
    if name in _VOID:
        return Html(f"<{name}{written}>")
    return Html(f"<{name}{written}>{join(*content)}</{name}>")


def join(*content: str) -> Html:
    """Pieces in a row; text among them is escaped.

    Example:
        >>> join("1 < 2, ", tag("i", "so"))
        '1 &lt; 2, <i>so</i>'
    """
    return Html("".join(item if isinstance(item, Html) else _escaped(item) for item in content))


def table(caption: str, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> Html:
    """A table that style.css turns into cards on a narrow screen.

    A card shows each cell's label; its first cell is its title. Roles are written out, because
    browsers forget them where the display is changed.

    Example:
        >>> "<div>&lt;1</div>" in table("claims", [Column("margin", numeric=True)], [["<1"]])
        True
    """
    classes = ["number" if column.numeric else "words" for column in columns]
    head = [
        tag("th", column.label, scope="col", role="columnheader", class_=class_)
        for column, class_ in zip(columns, classes, strict=True)
    ]
    body = [
        tag("tr", *(
            tag("td", tag("div", cell), role="cell", class_=class_, data_label=column.label)
            for column, class_, cell in zip(columns, classes, row, strict=True)
        ), role="row")
        for row in rows
    ]  # fmt: skip
    return tag(
        "div",
        tag(
            "table",
            tag("caption", caption),
            tag("thead", tag("tr", *head, role="row"), role="rowgroup"),
            tag("tbody", *body, role="rowgroup"),
            role="table",
        ),
        class_="scroll",
    )


def _escaped(text: str) -> str:
    # A file may hold half of a surrogate pair, which no encoding can write.
    return html.escape(text.encode("utf-8", "replace").decode())

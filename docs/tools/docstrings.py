"""A Griffe extension: docstrings of this repository, as mkdocstrings knows them."""

import re
import textwrap

import griffe

ROLE = re.compile(r":math:`([^`]*)`")
BLOCK = re.compile(r"^( *)\.\. math::\n((?:\1 +\S.*\n?|\s*\n)+)", re.MULTILINE)
EXAMPLE = re.compile(r"^( *)Example:$", re.MULTILINE)


class Docstrings(griffe.Extension):
    """Turns Sphinx's formulas into TeX between dollars, and one example into examples."""

    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        """Rewrite one object's docstring."""
        if obj.docstring is not None:
            text = BLOCK.sub(_block, obj.docstring.value)
            text = ROLE.sub(_role, text)
            obj.docstring.value = EXAMPLE.sub(r"\1Examples:", text)


def _role(found: re.Match[str]) -> str:
    return f"${' '.join(found[1].split())}$"


def _block(found: re.Match[str]) -> str:
    body = textwrap.dedent(found[2]).strip()
    if "&" in body:
        body = rf"\begin{{align*}} {body} \end{{align*}}"
    return textwrap.indent(f"\n$$\n{body}\n$$\n\n", found[1])

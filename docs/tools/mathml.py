"""A hook of mkdocs: formulas become MathML, which browsers draw without scripts or a network."""

import html
import re

from latex2mathml.converter import convert

FORMULA = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">\\[(\[](?P<latex>.*?)\\[)\]]</(?P=tag)>', re.DOTALL
)


def on_page_content(content: str, **_: object) -> str:
    """Replace what ``pymdownx.arithmatex`` has marked."""
    return FORMULA.sub(_formula, content)


def _formula(found: re.Match[str]) -> str:
    display = "block" if found["tag"] == "div" else "inline"
    latex = html.unescape(found["latex"]).strip()
    return convert(latex.replace("&&", "&"), display=display)

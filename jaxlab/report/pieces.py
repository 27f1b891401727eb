"""The small pieces that every part of the page is made of."""

import math
import shlex
from collections.abc import Mapping
from datetime import UTC, datetime

from jaxlab.report.markup import Html, join, tag
from jaxlab.report.results import About

__all__ = ["about_line", "badge", "command", "count", "details", "moment", "number", "replay"]

_TONES = {
    "good": ("held", "certified", "reproduced", "yes", "as expected"),
    "quiet": ("skipped", "not run"),
    "unsure": ("shape only", "candidate", "loose here", "smoke", "unfinished"),
}


def badge(word: str) -> Html:
    """A verdict: its word, coloured; a word that is not known to be good is shown as bad.

    Example:
        >>> badge("held"), badge("no such verdict")
        ('<span class="badge good">held</span>', '<span class="badge bad">no such verdict</span>')
    """
    tone = next((tone for tone, words in _TONES.items() if word in words), "bad")
    return tag("span", word, class_=f"badge {tone}")


def number(value: float, digits: int = 2) -> Html:
    """A number in few digits, on one line; a dash for NaN.

    Example:
        >>> number(-6.3136e-09), number(float("nan"))
        ('<span class="value">-6.3e-09</span>', '–')
    """
    if math.isnan(value):
        return join("–")
    return tag("span", f"{value:.{digits}g}", class_="value")


def count(amount: int, noun: str) -> str:
    """So many of something.

    Example:
        >>> count(1, "claim"), count(16, "claim")
        ('1 claim', '16 claims')
    """
    return f"{amount} {noun}" if amount == 1 else f"{amount} {noun}s"


def command(line: str) -> Html:
    """A command to copy."""
    return tag("code", line, class_="command")


def replay(file: str) -> Html:
    """How to look again at a counterexample.

    Example:
        >>> replay("my claims/a.npz")
        '<code class="command">jaxlab replay &#x27;my claims/a.npz&#x27;</code>'
    """
    return command(f"jaxlab replay {shlex.quote(file)}")


def details(summary: str, *content: str) -> Html:
    """Content that opens on a click or a tap."""
    return tag("details", tag("summary", summary), *content)


def moment(iso: str) -> str:
    """An ISO time to the minute, in UTC if it names a zone; other text as it is.

    Example:
        >>> moment("2026-11-30T14:05:09+01:00"), moment("last week")
        ('2026-11-30 13:05 UTC', 'last week')
    """
    try:
        time = datetime.fromisoformat(iso)
    except ValueError:
        return iso
    if time.tzinfo is None:
        return f"{time:%Y-%m-%d %H:%M}"
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def about_line(file: str, about: About) -> Html:
    """Where numbers come from: time, effort and machine in a line, versions behind a click."""
    took = "" if math.isnan(about.seconds) else f"{about.seconds:.0f} s"
    effort = f"effort {about.effort}" if about.effort else ""
    seed = f"seed {about.seed}" if about.seed else ""
    told = [moment(about.when), effort, seed, took, _machine(about.machine)]
    line = join(" · ".join(item for item in told if item) or "time and machine unknown")
    parts = [tag("p", tag("code", file), " · ", line, class_="about")]
    if about.versions:
        versions = ", ".join(f"{name} {version}" for name, version in about.versions.items())
        parts.append(details("versions", tag("p", versions, class_="about")))
    return join(*parts)


def _machine(facts: Mapping[str, str]) -> str:
    units = {"cpus": "{} cores", "python": "Python {}"}
    return " · ".join(units.get(name, "{}").format(value) for name, value in facts.items())

"""Escapes text from outside so that it cannot imitate a line of our own output."""

from __future__ import annotations

import re
from typing import Final

_CONTROLS: Final = re.compile(
    # Line ends and terminal commands; changes of writing direction; lone surrogates.
    "[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def one_line(text: str) -> str:
    r"""Returns the text as one line, with control characters as Python writes them (`\n`, `\x1b`)."""
    return _CONTROLS.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def indented(text: str) -> str:
    """Indents multi-line text, such as a traceback, so that no line begins like one of ours."""
    return "\n".join(f"  {one_line(line)}" for line in text.splitlines())


def shortened(text: str, characters: int) -> str:
    """Cuts a text to at most `characters` characters, the last of which says so."""
    return text if len(text) <= characters else text[: characters - 1] + "…"

"""Text for people, so that nothing in it looks like a line of ours that we did not print."""

from __future__ import annotations

import re
from typing import Final

_CONTROLS: Final = re.compile(
    # Line ends and terminals' commands; what turns the direction of writing; halves of characters.
    "[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def one_line(text: str) -> str:
    r"""The text with control characters as Python writes them (`\n`, `\x1b`): one line, whatever it holds."""
    return _CONTROLS.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def indented(text: str) -> str:
    """Text that is of several lines, such as a traceback: none of them begins where ours begin."""
    return "\n".join(f"  {one_line(line)}" for line in text.splitlines())


def shortened(text: str, characters: int) -> str:
    """At most so many characters."""
    return text if len(text) <= characters else text[: characters - 1] + "…"

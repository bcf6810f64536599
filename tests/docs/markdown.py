"""Code blocks of a Markdown page as one program, with what it should print."""

from __future__ import annotations

import contextlib
import doctest
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

_BLOCK: Final = re.compile(r"^```(\w*)\n(.*?)^```\s*$", re.MULTILINE | re.DOTALL)


class Block(Struct, frozen=True):
    line: int
    """Of the page, where its code begins, from 1."""
    code: str
    printed: str | None
    """None: nothing is said of it."""


def python_blocks(text: str) -> Iterator[Block]:
    """Blocks of Python; a block of text with nothing but space between is what the one before prints."""
    found = list(_BLOCK.finditer(text))
    for block, after in zip(found, [*found[1:], None], strict=True):
        if block[1] == "python":
            between = "" if after is None else text[block.end() : after.start()]
            follows = after is not None and after[1] == "text" and not between.strip()
            line = text.count("\n", 0, block.start(2)) + 1
            yield Block(line, block[2], after[2] if after is not None and follows else None)


def run_page(page: Path, text: str) -> int:
    """Runs all blocks in one namespace, in the current folder; how many.

    Raises what they raise, at the page's lines, and AssertionError for output that is another (`...` is any).
    """
    namespace: dict[str, Any] = {"__name__": "__page__"}
    count = 0
    for block in python_blocks(text):
        # As many empty lines before, so that tracebacks name those of the page.
        code = compile("\n" * (block.line - 1) + block.code, str(page), "exec")
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(code, namespace)
        if block.printed is not None:
            checker = doctest.OutputChecker()
            assert checker.check_output(block.printed, printed.getvalue(), doctest.ELLIPSIS), (
                f"{page}, line {block.line}: printed\n{printed.getvalue()}"
            )
        count += 1
    return count

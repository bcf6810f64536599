"""Puts rows of text files that can't be taken into a file of their own, with reasons, after those of earlier
runs."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from compactor.common.counts import counted
from compactor.errors import InputError, UsageError
from compactor.files.source import BadRow
from compactor.files.whole import append_lines, check_target

DEFAULT_MAX_REJECTS: Final = 1000


class Rejects:
    """The rejected rows of an ingest, held in memory, and a file with them."""

    def __init__(self, path: str, limit: int = DEFAULT_MAX_REJECTS) -> None:
        """limit: maximum rows of all files. Raises `UsageError` for a path that cannot be written."""
        check_target(path)
        if Path(path).exists() and not os.access(path, os.R_OK | os.W_OK):
            raise UsageError(f"{path}: can't be written: allow that, or choose another file")
        self.path = path
        self.limit = limit
        self._lines: list[str] = []
        self._written: int | None = None
        """How many of the rows the file has; None before the first write."""

    def __len__(self) -> int:
        return len(self._lines)

    def add(self, path: str, rows: Sequence[BadRow]) -> None:
        """Adds the rejected rows of a file. Raises `InputError` for more than allowed."""
        if len(self) + len(rows) > self.limit:
            raise InputError(
                f"{path}: with it, more than {counted(self.limit, 'row')} can't be taken, such as "
                f"{rows[0].reason}; or raise --max-rejects"
            )
        self._lines += [_line(path, row) for row in rows]

    def forget_after(self, count: int) -> None:
        """Forgets all rows but the first ones, because their files are read again, or not added."""
        del self._lines[count:]
        if self._written is not None:
            self._written = min(self._written, count)  # those may come again

    def write(self) -> None:
        """Adds the rows to the file, before a commit makes the other rows visible.

        Raises `UsageError` and `JobError`.
        """
        new = self._lines[self._written or 0 :]
        if new or self._written is None:
            append_lines(self.path, "".join(new).encode(errors="replace"))
            self._written = len(self)


def _line(path: str, row: BadRow) -> str:
    said = {"file": path, "row": row.ordinal + 1, "reason": row.reason, "text": row.text}
    return f"{json.dumps(said, ensure_ascii=False)}\n"

"""Puts rows of text files that can't be taken into a file of their own, with reasons, after those of earlier
runs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Final

from compactor.common.counts import counted
from compactor.errors import InputError
from compactor.files.source import BadRow
from compactor.files.whole import check_target, write_pieces

DEFAULT_MAX_REJECTS: Final = 1000


class Rejects:
    """The rejected rows of an ingest, held in memory, and a file with them."""

    def __init__(self, path: str, limit: int = DEFAULT_MAX_REJECTS) -> None:
        """limit: maximum rows of all files. Raises `UsageError` for a path that cannot be a file."""
        check_target(path)
        self.path = path
        file = Path(path)
        self._earlier_bytes = file.stat().st_size if file.exists() else 0
        self.limit = limit
        self._lines: list[str] = []
        self._is_written = False

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
        self._is_written = self._is_written and not rows

    def forget_after(self, count: int) -> None:
        """Forgets all rows but the first ones, because their files are read again, or not added."""
        if len(self) > count:
            del self._lines[count:]
            self._is_written = False

    def write(self) -> None:
        """Writes the file, before a commit makes the other rows visible.

        Raises `UsageError` and `JobError`.
        """
        if not self._is_written:
            new = dict.fromkeys(line.encode(errors="replace") for line in self._lines)
            write_pieces(self.path, chain(self._earlier(new), new))
            self._is_written = True

    def _earlier(self, new: Mapping[bytes, None]) -> Iterator[bytes]:
        """Yields the lines that the file had before, without those of a run that was repeated."""
        left = self._earlier_bytes
        if not left:
            return
        with Path(self.path).open("rb") as file:
            for line in file:
                if left <= 0:
                    return
                left -= len(line)
                whole = line if line.endswith(b"\n") else line + b"\n"
                if whole not in new:
                    yield whole


def _line(path: str, row: BadRow) -> str:
    said = {"file": path, "row": row.ordinal + 1, "reason": row.reason, "text": row.text}
    return f"{json.dumps(said, ensure_ascii=False)}\n"

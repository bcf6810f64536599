"""The outputs of a merge: all open from their first row group to the end, since column c of every output
comes before column c + 1 of any."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from compactor.merge.row_numbers import RowNumbers
from compactor.merge.skips import OutputSkips
from compactor.resources.disk import LocalDisk
from compactor.resources.stopwatch import Stopwatch
from compactor.resources.tape import Tape
from compactor.resources.upload_memory import UploadMemory
from compactor.rows.flags import NONE_SEEN, RowStatistics
from format.blocks import ByteSink
from format.emitter import FragmentEmitter


class OutputSink(ByteSink, Protocol):
    """Where one output goes; not visible to anybody before `complete`."""

    def complete(self) -> object: ...

    def abort(self) -> None: ...

    def spill(self, disk: LocalDisk) -> None:
        """Puts what is held back on local disk."""
        ...


class TimedSink:
    """A sink whose writing is timed."""

    def __init__(self, sink: ByteSink, watch: Stopwatch) -> None:
        self._sink = sink
        self._watch = watch

    def write(self, data: bytes, /) -> None:
        with self._watch.on("upload wait"):
            self._sink.write(data)


OpenOutput = Callable[[UploadMemory], OutputSink]


class Page(NamedTuple):
    """Of one row group."""

    number: int
    """Of its rows as they were taken, in `row_numbers`."""
    folded: int | None
    """Of its rows as they are written, in `folded`; None if they are some of those taken."""


@dataclass(slots=True)
class OutputFragment:
    """One open output."""

    emitter: FragmentEmitter
    sink: OutputSink
    row_numbers: RowNumbers
    shelf: Tape
    skips: OutputSkips
    folded: RowNumbers
    """Of rows that others were folded into: a page a row group where there are such."""
    pages: list[Page | None] = field(default_factory=list)
    """Of each row group, where its numbers are; None if it was copied."""
    groups: int = 0
    """Row groups written; some of `pages` are of rows that are all left out."""
    row_statistics: RowStatistics = NONE_SEEN
    copied_from: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Of each written row group that was copied: the input, and the row group's number there."""

    def close(self) -> None:
        """Gives back the memory and the disk space of what is kept beside the sink."""
        self.row_numbers.close()
        self.folded.close()
        self.skips.close()
        self.shelf.close()

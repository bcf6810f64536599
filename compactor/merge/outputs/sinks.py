"""Holds the outputs of a merge. All are open until the end, since column c of every output comes before
column c + 1 of any."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from msgspec import Struct, field

from compactor.merge.outputs.skips import OutputSkips
from compactor.resources.disk import LocalDisk
from compactor.resources.record_buffer import NumberArrays, RecordBuffer
from compactor.resources.stopwatch import Stopwatch
from compactor.resources.upload_memory import UploadMemory
from compactor.rows.flags import NONE_SEEN, RowStatistics
from lsm_fragment.container.chunk import ByteSink
from lsm_fragment.container.emitter import FragmentEmitter


class OutputSink(ByteSink, Protocol):
    """A sink for one output, which readers cannot see before `complete`."""

    def complete(self) -> object: ...

    def abort(self) -> None: ...

    def spill(self, disk: LocalDisk) -> None:
        """Moves bytes that are held back to local disk."""
        ...


class TimedSink:
    """A sink that measures the time of its writes."""

    def __init__(self, sink: ByteSink, watch: Stopwatch) -> None:
        self._sink = sink
        self._watch = watch

    def write(self, data: bytes, /) -> None:
        with self._watch.on("upload wait"):
            self._sink.write(data)


OpenOutput = Callable[[UploadMemory], OutputSink]


class GroupNumbers(NamedTuple):
    """The row numbers of one row group."""

    number: int
    """Place of its rows' numbers as they were taken, in `row_numbers`."""
    folded: int | None
    """Place of its rows' numbers as they are written, in `folded`; None if these are among the rows taken."""


class OutputFragment(Struct, kw_only=True):
    """One open output."""

    emitter: FragmentEmitter
    sink: OutputSink
    row_numbers: NumberArrays
    """Numbers of the rows taken: an array for each row group that is not copied."""
    footer_records: RecordBuffer
    skips: OutputSkips
    folded: NumberArrays
    """Numbers of rows into which others were folded: an array for each row group that has such rows."""
    row_groups: list[GroupNumbers | None] = field(default_factory=list)
    """Where each row group's numbers are; None if the row group was copied."""
    groups: int = 0
    """Number of row groups written; `row_groups` also has those whose rows are all left out."""
    row_statistics: RowStatistics = NONE_SEEN
    copied_from: dict[int, tuple[int, int]] = field(default_factory=dict)
    """For each copied row group, by its number: the input, and the row group's number there."""

    def close(self) -> None:
        """Releases the memory and the disk space of everything that is kept beside the sink."""
        self.row_numbers.close()
        self.folded.close()
        self.skips.close()
        self.footer_records.close()

"""The outputs of a merge: all open from their first row group to the end, since column c of every output
comes before column c + 1 of any."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from compactor.flow.disk import LocalDisk
from compactor.flow.stopwatch import Stopwatch
from compactor.flow.tape import Tape
from compactor.flow.upload_memory import UploadMemory
from compactor.merge.row_numbers import RowNumbers
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


@dataclass(slots=True)
class Output:
    """One open output."""

    emitter: FragmentEmitter
    sink: OutputSink
    row_numbers: RowNumbers
    shelf: Tape
    pages: list[int | None] = field(default_factory=list)
    """Of each row group, its page of `row_numbers`; None if it was passed on."""

"""The codec floor: the decompression and compression of a merge that copies no chunk."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from bench.peers.contract import Task, Used
from bench.peers.with_ours import LEVEL, Ours
from compactor.common.heap import set_up_heap
from lsm_fragment.blocks.compression import Part, compress, decompress
from lsm_fragment.blocks.layout import Codec
from lsm_fragment.container.block import Block
from lsm_fragment.container.stream_reader import FragmentStream


class Payload(Struct, frozen=True):
    """A stored chunk, in memory."""

    codec: Codec
    stored: bytes
    raw_bytes: int

    def raw(self) -> bytes | memoryview:
        return decompress(self.codec, self.stored, self.raw_bytes)


class CodecFloor:
    """Decompresses every chunk of the inputs and compresses every chunk of the output, nothing else.

    Payloads are in memory beforehand. Holds one raw chunk at a time, as a merge would at most, with the
    merge's allocator settings.
    """

    settings = (
        f"our own chunks: the inputs' decompressed, the output's compressed, zstd {LEVEL}, nothing else; "
        "in memory before and dropped after"
    )

    def version(self) -> str:
        return Ours().version()

    def prepare(self, task: Task) -> None:
        """Prepares the fragments, and the output of compacting them."""
        ours = Ours()
        ours.prepare(task)
        ours.start(task)
        ours.compact(task)
        for number, path in enumerate(ours.output_files(task)):
            shutil.move(path, task.prepared / f"output-{number:03d}.frag")

    def start(self, task: Task) -> None:
        set_up_heap()
        inputs = (task.prepared / "table").rglob("*.frag")
        self._inputs = [_payload(b) for path in sorted(inputs) for b in _chunks(path)]
        outputs = sorted(task.prepared.glob("output-*.frag"))
        self._outputs = [_payload(b) for path in outputs for b in _chunks(path)]
        self._rows = sum(_rows(path) for path in outputs)
        self._bytes = 0

    def compact(self, task: Task) -> Used:
        wall, cpu = time.perf_counter(), time.process_time()
        for payload in self._inputs:
            payload.raw()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        for payload in self._outputs:
            raw = payload.raw()  # as the encoder would pass it: not counted
            cpu_before, before = time.process_time(), time.perf_counter()
            _, stored = compress((Part(memoryview(raw)),), LEVEL)
            wall += time.perf_counter() - before
            cpu += time.process_time() - cpu_before
            self._bytes += len(stored)
        return Used(wall, cpu)

    def output_bytes(self, task: Task) -> int:
        return self._bytes

    def output_rows(self, task: Task) -> int:
        return self._rows

    def sort_columns(self, task: Task) -> None:
        return None


def _payload(block: Block) -> Payload:
    return Payload(block.header.codec, block.stored, block.header.raw_bytes)


def _chunks(path: Path) -> Iterator[Block]:
    """Yields the chunks of the sort columns, then those of the others."""
    with path.open("rb") as source:
        stream = FragmentStream(source, path.name)
        while (blocks := stream.next_key_group()) is not None:
            yield from blocks
        while stream.next_column() is not None:
            for _ in stream.row_group_rows:
                yield stream.next_chunk()
        stream.finish()


def _rows(path: Path) -> int:
    with path.open("rb") as source:
        stream = FragmentStream(source, path.name)
        while stream.next_key_group() is not None:
            pass
        return sum(stream.row_group_rows)

"""Claim: a few columns of a very wide fragment are found by reading kilobytes, in milliseconds.

    python -m bench.bench_footer                            10,000 columns, 1,000 row groups: a file of 1 GB
    python -m bench.bench_footer --columns 1000 --row-groups 100
    python -m bench.bench_footer --small                    opens of an ordinary small fragment

Every chunk holds one row, so that what is measured is the footer. Each phase runs in a process of its own,
since its peak of memory counts. Reading takes the statistics of three columns and one chunk of each.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pyarrow as pa

from compactor.common.counts import counted
from lsm_fragment.blocks.layout import BlockKind
from lsm_fragment.container.chunk import make_chunk
from lsm_fragment.container.emitter import FragmentEmitter
from lsm_fragment.container.header import FragmentHeader
from lsm_fragment.container.reader import FragmentReader
from lsm_fragment.container.writer import FragmentWriter, WriterOptions
from lsm_fragment.keys.sort_schema import parse_sort_schema

_WANTED: Final = 3
_OPENS: Final = 2000


class CountedFile:
    """Ranges of a file, with the number of requests and of bytes that were read."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb", buffering=0)
        self.requests = 0
        self.bytes_read = 0

    def read_range(self, start: int, length: int, /) -> bytes:
        self._file.seek(start)
        data = self._file.read(length)
        self.requests += 1
        self.bytes_read += len(data)
        return data


def write(path: Path, columns: int, row_groups: int) -> str:
    """Writes a fragment of one-row chunks. Returns what it took."""
    names = [f"measurement_{number:06}" for number in range(columns)]
    schema = pa.schema([("key", pa.int64()), *((name, pa.int64()) for name in names)])
    with path.open("wb", buffering=1 << 20) as sink:
        emitter = FragmentEmitter(
            sink, FragmentHeader(schema=schema, sort=parse_sort_schema("key"), max_rows=1)
        )
        for group in range(row_groups):
            key = make_chunk(pa.array([group]), level=0)
            emitter.key_group([key], (group,), (group,))
        chunks = [make_chunk(pa.array([group * 7919 % 1009]), level=0) for group in range(100)]
        blocks = [chunk.block(BlockKind.DATA) for chunk in chunks]
        stats = [
            chunk.stats(offset=0, stored_bytes=len(block))
            for chunk, block in zip(chunks, blocks, strict=True)
        ]
        for number, name in enumerate(names):
            emitter.begin_column(name)
            for group in range(row_groups):
                place = (number + group) % len(blocks)
                emitter.copy_block((blocks[place],), stats[place])
        before, at = time.process_time(), emitter.bytes_written
        emitter.finish([0] * row_groups)
        seconds = time.process_time() - before
    return (
        f"{emitter.bytes_written:,} bytes; footer {emitter.bytes_written - at:,} bytes, "
        f"{seconds:.2f} s of CPU"
    )


def read(path: Path, columns: int, row_groups: int) -> str:
    """Opens the fragment for a few of its columns. Returns what it took."""
    source = CountedFile(path)
    names = [f"measurement_{columns * place // _WANTED:06}" for place in range(_WANTED)]
    before, clock = time.process_time(), time.perf_counter()
    reader = FragmentReader(source, path.stat().st_size, path.name)
    greatest = [max(chunk.max for chunk in reader.footer.columns[name]) for name in names]
    seconds, elapsed = time.process_time() - before, time.perf_counter() - clock
    asked, fetched = source.requests, source.bytes_read
    assert len(greatest) == len(reader.read_storage(names, [row_groups // 2])[0]) == _WANTED
    return (
        f"{counted(asked, 'request')}, {fetched:,} bytes, {seconds * 1000:.1f} ms of CPU, "
        f"{elapsed * 1000:.1f} ms"
    )


def open_small(path: Path, columns: int, row_groups: int) -> str:
    """Opens an ordinary small fragment again and again. Returns what one opening takes."""
    rows = 1000 * row_groups
    table = pa.table(
        {"key": range(rows)}
        | {
            f"c{number}": [f"text {(row * number) % 97}" for row in range(rows)]
            if number % 2
            else [row * number % 1000 for row in range(rows)]
            for number in range(1, columns)
        }
    )
    with path.open("wb") as sink:
        options = WriterOptions(max_rows=1000)
        with FragmentWriter(sink, table.schema, parse_sort_schema("key"), options) as writer:
            for batch in table.to_batches():
                writer.write(batch)
            writer.finish()
    size, source, best = path.stat().st_size, CountedFile(path), float("inf")
    for _ in range(5):
        before = time.process_time()
        for _ in range(_OPENS // 5):
            reader = FragmentReader(source, size, path.name)
            assert len(reader.footer.columns["c1"]) == len(reader.footer.columns["c2"])
        best = min(best, (time.process_time() - before) / (_OPENS // 5))
    return (
        f"{size:,} bytes, {counted(columns, 'column')}, {counted(row_groups, 'row group')}, two columns "
        f"asked for: {source.requests / _OPENS:g} requests each, {best * 1e6:.0f} µs of CPU"
    )


def measured(
    what: str, act: Callable[[Path, int, int], str], path: Path, columns: int, row_groups: int
) -> None:
    """Prints what a phase says of itself, and the memory that its process came to need."""
    context = multiprocessing.get_context("spawn")
    answers = context.SimpleQueue()
    process = context.Process(target=_phase, args=(answers, act, path, columns, row_groups))
    process.start()
    text, before, peak = answers.get()
    process.join()
    print(f"  {what}: {text}, {peak - before:,} KiB of memory above the {before:,} at the start")


def _phase(
    answers: multiprocessing.queues.SimpleQueue[tuple[str, int, int]],
    act: Callable[[Path, int, int], str],
    path: Path,
    columns: int,
    row_groups: int,
) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    text = act(path, columns, row_groups)
    answers.put((text, before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--columns", type=int, default=10_000)
    parser.add_argument("--row-groups", type=int, default=1_000)
    parser.add_argument("--small", action="store_true", help="measure ordinary small fragments")
    parser.add_argument(
        "--folder", help="where the file is written (default: the temporary folder)"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        path = Path(folder) / "wide.frag"
        if arguments.small:
            for columns, row_groups in ((10, 1), (10, 8), (50, 1)):
                measured("open", open_small, path, columns, row_groups)
            return
        columns, row_groups = arguments.columns, arguments.row_groups
        print(f"{counted(columns, 'column')}, {counted(row_groups, 'row group')}")
        measured("write", write, path, columns, row_groups)
        measured("open", read, path, columns, row_groups)


if __name__ == "__main__":
    main()

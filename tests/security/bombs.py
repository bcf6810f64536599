"""Small inputs that stand for large ones, each read in this process: `python -m tests.security.bombs FOLDER`.

Prints for each case what came of it and by how much the process has grown so far.
"""

from __future__ import annotations

import gzip
import io
import json
import resource
import struct
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import zstandard

from compactor.entities.spec import spec_of
from compactor.errors import CompactorError
from compactor.files.read import open_table_file
from compactor.pipelines.config import parse_pipeline
from compactor.settings.document import Document
from compactor.table.checkpoint import read_checkpoint
from compactor.table.version import Version
from lsm_fragment.blocks.layout import BlockKind, Codec, checksum64, pack_block_header
from lsm_fragment.container.block_reader import BlockReader
from lsm_fragment.errors import FormatError

GIB = 1 << 30
_ADDRESS_BYTES = 2 * GIB
"""More than the process has when it begins: what is asked for and never touched counts here."""


def zeros(folder: Path, name: str) -> str:
    """256 MiB of zeros, compressed."""
    path, block = folder / name, bytes(16 << 20)
    opener = gzip.open if name.endswith(".gz") else zstandard.open
    with opener(path, "wb") as file:
        for _ in range(GIB // 4 // len(block)):
            file.write(block)
    assert path.stat().st_size < 6 << 20
    return str(path)


def rows_of(path: str) -> None:
    with open_table_file(path) as file:
        for _ in file:
            pass


def node(
    encoding: int, length: int, *, width: int = 0, children: int = 0, nulls: int = 0, param: int = 0
) -> bytes:
    return struct.pack("<BBBBIQQq", encoding, 0, width, 0, children, length, nulls, param)


def decode(meta: bytes, raw: bytes, rows: int, dtype: pa.DataType, **lies: object) -> None:
    """A chunk whose checksums are right."""
    stored, codec, raw_bytes = raw, Codec.NONE, len(raw)
    if "stored" in lies:
        stored, codec, raw_bytes = lies["stored"], Codec.ZSTD, lies["raw_bytes"]  # type: ignore[assignment]
    head = pack_block_header(
        BlockKind.DATA, codec, rows=rows, meta=meta, stored_bytes=len(stored), raw_bytes=raw_bytes,
        payload_checksum=checksum64(stored),
    )  # fmt: skip
    BlockReader(io.BytesIO(head + meta + stored), "mem").read_block().decode(dtype)


def frame(size: int) -> bytes:
    """Returns a frame of zeros. size: in bytes, whole MiB; a MiB is in memory at a time, because the limit of
    this process holds here too."""
    compressor, block = zstandard.ZstdCompressor(level=1).compressobj(size=size), bytes(1 << 20)
    parts = [compressor.compress(block) for _ in range(size >> 20)]
    return b"".join([*parts, compressor.flush()])


LISTS = pa.list_(pa.int64())
ELEMENTS = 1 << 20
ALIASES = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


def cases(folder: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    for name in ("z.ndjson.zst", "z.ndjson.gz", "z.csv.zst", "z.csv.gz"):
        path = zeros(folder, name)
        yield f"256 MiB in {name}", partial(rows_of, path)
    yield (
        "a frame of a GiB where 1,000 bytes were stated",
        lambda: decode(
            node(1, 125, param=8), b"", 125, pa.int64(), stored=frame(GIB), raw_bytes=1000
        ),
    )
    yield (
        "a frame of a GiB where 20 MiB were stated",
        lambda: decode(
            node(1, 125, param=8), b"", 125, pa.int64(), stored=frame(GIB), raw_bytes=20 << 20
        ),
    )
    # A list of a million constants, named 1,000 times: 8 GB.
    yield "a dictionary of one huge list", lambda: decode(
        node(5, 1000, children=2) + node(2, 1000)
        + node(7, 1, children=2) + node(2, 1, param=ELEMENTS) + node(2, ELEMENTS, param=7),
        b"", 1000, LISTS,
    )  # fmt: skip
    yield "a dictionary of one long text", lambda: decode(
        node(5, 100_000, children=2) + node(2, 100_000)
        + node(6, 1, param=1 << 20, children=1) + node(2, 1, param=1 << 20),
        bytes(1 << 20), 100_000, pa.string(),
    )  # fmt: skip
    many = pa.struct([(f"f{n}", pa.int64()) for n in range(200)])
    yield (
        "200 fields of 2^26 constants each",
        lambda: decode(
            node(9, 1 << 26, children=200) + node(2, 1 << 26, param=7) * 200, b"", 1 << 26, many
        ),
    )
    yield "aliases of aliases", lambda: Document.parse(ALIASES, "a.yaml")
    yield (
        "aliases in a pipeline",
        lambda: parse_pipeline(ALIASES + "nodes: {x: {source: {path: *i}}}\n", "p.yaml"),
    )
    yield (
        "aliases in rules",
        lambda: spec_of(Document.parse(ALIASES + "datasets: [a b]\nequality: *i\n", "s.yaml")),
    )
    yield "what contains itself", lambda: Document.parse("a: &a [*a]\n", "a.yaml")
    yield "deep YAML", lambda: Document.parse("[" * 100_000, "a.yaml")
    yield "deep JSON", lambda: Document.parse('{"a":' * 100_000, "a.json")
    yield "a deep log file", lambda: Version.from_bytes(b"[" * 1_000_000, name="log")
    (folder / "deep.ndjson").write_bytes(b'{"a":' * 200_000 + b"\n")
    yield "deep NDJSON", lambda: rows_of(str(folder / "deep.ndjson"))
    yield "a checkpoint that is none", lambda: read_checkpoint(bytes(1000), name="c")


def main(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    made = list(cases(folder))
    rows_of(_small(folder))
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + _ADDRESS_BYTES, used + _ADDRESS_BYTES))
    before = _peak_bytes()
    for name, read in made:
        try:
            read()
            said = "read"
        except (CompactorError, FormatError) as error:
            said = f"{type(error).__name__}: {error}"
        except BaseException as error:  # noqa: BLE001 - told to who started this
            said = f"not foreseen: {error!r}"[:500]
        line = {"case": name, "said": said, "grown_bytes": _peak_bytes() - before}
        sys.stdout.write(json.dumps(line) + "\n")


def _small(folder: Path) -> str:
    """Read once, so that what is imported and started by the way does not count."""
    (folder / "small.ndjson").write_text('{"a": 1}\n')
    return str(folder / "small.ndjson")


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main(Path(sys.argv[1]))

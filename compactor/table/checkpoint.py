"""Checkpoints: the table at one version in one object, so that opening a table reads no long log.

A checkpoint is an Arrow IPC stream with a column for each field of an entry, then the 16 bytes of XXH3-128
over it. The rest of the snapshot is JSON in the schema's metadata. Equal snapshots give equal bytes, so it
does not matter which process writes a checkpoint, or how many do.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import xxhash

from compactor.common.ipc import READING, writing
from compactor.errors import DataError
from compactor.table.entry_table import MAY_MISS, EntryTable
from compactor.table.fragments import FragmentMap
from compactor.table.ipc_sizes import unpacked_bytes
from compactor.table.json_text import from_json_text, to_json_text
from compactor.table.object_names import FRAGMENT_PATTERN
from compactor.table.protocol import PROTOCOL
from compactor.table.snapshot import HEADER, Snapshot, check_header
from lsm_fragment import compute as pc
from lsm_fragment.errors import SchemaError, cause_of

_DIGEST_BYTES: Final = 16
_HEADER: Final = b"compactor"
_UNPACKED_BYTES: Final = 64 << 20
_MAX_RATIO: Final = 16
"""Bounds of a checkpoint in memory: this many bytes, or this many times its stored size.

A checkpoint that compresses better is stored uncompressed.
"""


def checkpoint_bytes(snapshot: Snapshot) -> bytes:
    table = snapshot.fragments.table().combine_chunks().sort_by("key")
    unused = [name for name in MAY_MISS if table.column(name).null_count == len(table)]
    # Columns that no fragment uses are left out: most tables have neither windows nor deletions.
    table = table.drop_columns(unused) if unused else table
    header = HEADER.to_json(snapshot) | {"protocol": PROTOCOL}
    schema = table.schema.with_metadata({_HEADER: to_json_text(header).encode()})
    table = table.cast(schema)
    body = _stream(table, "zstd")
    if unpacked_bytes(body) > _max_unpacked(
        body.size
    ):  # readers would refuse it as a decompression bomb
        body = _stream(table, None)
    data: bytes = body.to_pybytes()
    return data + xxhash.xxh3_128_digest(data)


def _stream(table: pa.Table, compression: str | None) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=writing(compression)) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _max_unpacked(stored_bytes: int) -> int:
    return max(_UNPACKED_BYTES, _MAX_RATIO * stored_bytes)


def read_checkpoint(data: bytes, *, name: str) -> Snapshot:
    """Reads a checkpoint. Raises `DataError` naming it if it is damaged, or newer than this program."""
    view = memoryview(data)
    body, digest = view[:-_DIGEST_BYTES], view[-_DIGEST_BYTES:]
    try:
        if xxhash.xxh3_128_digest(body) != digest:
            raise ValueError("its checksum does not match")
        stream = pa.py_buffer(body)
        if (unpacked := unpacked_bytes(stream)) > (most := _max_unpacked(stream.size)):
            raise ValueError(
                f"it would unpack to {unpacked:,} bytes, and {most:,} are allowed for one of {stream.size:,}"
            )
        table = pa.ipc.open_stream(stream, options=READING).read_all()
        # A checksum does not prove who wrote the bytes, and Arrow follows any offset.
        table.validate(full=True)
        header = from_json_text(table.schema.metadata[_HEADER])
        if header["protocol"] > PROTOCOL:
            raise DataError(
                f"{name}: the checkpoint is of protocol {header['protocol']}, this program knows "
                f"{PROTOCOL}: upgrade the program"
            )
        _check_keys(table)
        return _snapshot(header, table)
    except (
        AttributeError,
        KeyError,
        TypeError,
        ValueError,
        OSError,  # Arrow raises it for bytes that it cannot parse
        RecursionError,
        pa.ArrowException,
        SchemaError,
    ) as error:
        raise DataError(f"{name}: the checkpoint is damaged ({cause_of(error)})") from error


def _check_keys(table: pa.Table) -> None:
    """Raises ValueError unless all keys name fragments, since entries are made much later."""
    named = pc.match_substring_regex(table.column("key"), f"^(?:{FRAGMENT_PATTERN})$")
    if not pc.all(named, skip_nulls=False, min_count=0).as_py():
        raise ValueError("a key is not the name of a fragment")


def _snapshot(header: dict[str, Any], table: pa.Table) -> Snapshot:
    snapshot = HEADER.from_json(header, fragments=FragmentMap(EntryTable(table)))
    check_header(snapshot)
    return snapshot

"""Checkpoints that stand for far more than they are are refused before anything is unpacked."""

from __future__ import annotations

import struct
from pathlib import Path

import pyarrow as pa
import pytest
import xxhash

from compactor.errors import DataError
from compactor.stores.local import LocalStore
from compactor.table import checkpoint as module
from compactor.table.checkpoint import checkpoint_bytes, read_checkpoint
from compactor.table.ipc_sizes import unpacked_bytes
from compactor.table.snapshot import Snapshot
from tests.support.tables import ingest_tables, log_rows
from tests.support.wording import refuses


def signed(body: bytes) -> bytes:
    return body + xxhash.xxh3_128_digest(body)


@pytest.fixture
def snapshot(tmp_path: Path) -> Snapshot:
    store = LocalStore(tmp_path / "t")
    log = ingest_tables(store, [log_rows(5, seed) for seed in range(20)], tmp_path)
    return log.latest


def test_the_sizes_that_a_stream_states_are_those_that_it_unpacks_to(snapshot: Snapshot) -> None:
    table = snapshot.fragments.table().combine_chunks()
    plain, packed = (module._stream(table, codec) for codec in (None, "zstd"))
    assert packed.size < plain.size
    # Padding is part of what is stored, and not of what is stated.
    assert unpacked_bytes(packed) <= unpacked_bytes(plain) <= plain.size
    assert unpacked_bytes(packed) >= table.nbytes * 0.9


def test_a_small_checkpoint_that_unpacks_to_much_is_refused_unread(
    snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = checkpoint_bytes(snapshot)
    table = pa.ipc.open_stream(pa.py_buffer(data[:-16])).read_all()
    place = table.schema.get_field_index("columns")
    heavy = table.slice(0, 1).set_column(place, "columns", pa.array([" " * (80 << 20)]))
    body = module._stream(heavy, "zstd").to_pybytes()
    assert len(body) < 64 << 10
    monkeypatch.setattr(pa.ipc, "open_stream", None)
    with refuses(DataError):
        read_checkpoint(signed(body), name="c")


def test_what_compresses_too_well_is_written_so_that_it_is_read(
    snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = checkpoint_bytes(snapshot)
    monkeypatch.setattr(module, "_max_unpacked", lambda stored_bytes: stored_bytes)
    with pytest.raises(DataError, match="it would unpack to"):  # its sizes differ from run to run
        read_checkpoint(packed, name="c")
    again = read_checkpoint(checkpoint_bytes(snapshot), name="c")
    assert checkpoint_bytes(again) == checkpoint_bytes(snapshot)


def test_no_flipped_byte_of_a_stream_is_more_than_an_error(snapshot: Snapshot) -> None:
    body = checkpoint_bytes(snapshot)[:-16]
    for place in range(0, len(body), 7):
        for value in (0, 0x7F, 0xFF):
            forged = body[:place] + bytes([value]) + body[place + 1 :]
            try:
                read_checkpoint(signed(forged), name="c")
            except DataError:
                continue


def test_a_stream_of_an_older_format_is_refused() -> None:
    """There a message's metadata may name the compression, where nobody adds it up."""
    options = pa.ipc.IpcWriteOptions(metadata_version=pa.ipc.MetadataVersion.V4)
    sink = pa.BufferOutputStream()
    table = pa.table({"x": [1, 2]})
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    with refuses(ValueError):
        unpacked_bytes(sink.getvalue())


def test_a_length_below_zero_or_outside_of_its_message_is_damage() -> None:
    batch = pa.record_batch({"x": list(range(1000))})
    body = bytearray(module._stream(pa.Table.from_batches([batch]), "zstd").to_pybytes())
    at = bytes(body).index(struct.pack("<q", 8000))
    body[at : at + 8] = struct.pack("<q", -2)
    with refuses(ValueError):
        unpacked_bytes(pa.py_buffer(bytes(body)))

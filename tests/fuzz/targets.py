"""What reads the inputs, and what must hold of what comes out.

Of damage that nothing was made to match: an error, or the rows that were written. Of a forgery, whose
checksums are true: an error, or the rows that all readers agree on, the one made from SPEC.md alone included.
Errors are those that the modules document; anything else is a finding.
"""

from __future__ import annotations

import contextlib
import decimal
import json
import random
import struct
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash
from click.testing import CliRunner
from msgspec.structs import replace

from compactor.cli.look import inspect_command
from compactor.errors import CompactorError
from compactor.read.read_reports import ScanReport
from compactor.read.scan import scan
from compactor.read.scan_tasks import tasks_of
from compactor.read.verify import verify
from compactor.report.gather import ReportOptions, gather
from compactor.table.commit_log import CommitLog
from compactor.table.conditions import condition_on
from compactor.table.describe import fragments_table, history_table
from lsm_fragment.arrays.hashing import column_contributions, fold_rows
from lsm_fragment.arrays.storage import plain, to_storage
from lsm_fragment.arrays.types import storage_type
from lsm_fragment.container.reader import FragmentReader
from lsm_fragment.container.template_chunk import TemplateChunk
from lsm_fragment.errors import FormatError
from tests.fuzz import anatomy, mutations
from tests.fuzz.seeds import Seed, fragments, tables
from tests.merge.test_oracle import Merged
from tests.support.fragments import BytesSource, read_random, read_stream
from tests.support.memory_store import MemoryStore
from tests.support.spec_reader import Fragment
from tests.support.tables import compact_table

_MAX_SPEC_ROWS = 3000
"""The reader made from SPEC.md goes value by value."""
_PIECES = (1, 39, 41, *[1000] * 9, *[1 << 20] * 9)

sys.set_int_max_str_digits(0)  # an affair of Python, and of the reader made from SPEC.md


class FindingError(AssertionError):
    """A reader did what it must not."""


def one(seed: int, number: int) -> None:
    """Makes an input and has it read. Raises `FindingError`, or whatever a reader wrongly raised."""
    rng = random.Random(f"{seed} {number}")
    share = rng.random()
    if share < 0.988:
        _fragment(rng)
    elif share < 0.994:
        merge(rng)
    elif share < 0.995:
        inspect(rng)
    else:
        table(rng)


# --- fragments --------------------------------------------------------------------------------


def _fragment(rng: random.Random) -> None:
    seed = rng.choice(fragments())
    if rng.random() < 0.45:
        check_damaged(seed, mutations.damaged(rng, seed.data), rng.choice(_PIECES))
    else:
        check_forged(mutations.forged(rng, seed.data), rng.choice(_PIECES))


def check_damaged(seed: Seed, data: bytes, piece_bytes: int = 1000) -> None:
    """An error, or the rows that were written."""
    expected = expected_rows(seed.name)
    for rows in (_rows_by_stream(data, piece_bytes), _rows_by_footer(data)):
        if rows is not None and not same_rows(rows, expected):
            raise FindingError("damage changed the rows and was not noticed")


def check_forged(data: bytes, piece_bytes: int = 1000) -> None:
    """Errors, or rows that all readers agree on."""
    streamed, random_access = _rows_by_stream(data, piece_bytes), _rows_by_footer(data)
    both = streamed is not None and random_access is not None
    if both and not same_rows(streamed, random_access):
        raise FindingError("the two readers read other rows")
    for rows in (streamed, random_access):
        if rows is not None:
            check_values(rows)
    _check_templates(data)
    if streamed is not None and streamed.num_rows <= _MAX_SPEC_ROWS:
        _check_against_specification(data, streamed)


def _check_templates(data: bytes) -> None:
    """Chunks of templates say the same in part and as a whole, or are refused."""
    with _refusing():
        reader = FragmentReader(BytesSource(data), len(data), "forged")
        for name in reader.schema.names:
            for group in reader.templated_groups(name):
                reader.template_sizes(name, group)
                chunk = reader.read_lazily(name, group)
                if isinstance(chunk, TemplateChunk):
                    chosen = np.arange(chunk.rows) % 2 == 0
                    some = chunk.texts(chosen)
                    if not chunk.texts().filter(pa.array(chosen)).equals(some):
                        raise FindingError("some rows of templates are not those of all")


def check_values(rows: pa.Table) -> None:
    """Asserts that Arrow's interface takes what was read."""
    for column in rows.columns:
        for chunk in column.chunks:
            try:
                chunk.validate(full=True)
            except pa.ArrowInvalid as error:
                # Numbers that a type has no meaning for are a writer's affair; they do no harm.
                if "acceptable range" in str(error) or "whole number of days" in str(error):
                    continue
                raise FindingError(f"not a valid array: {error}") from error


def _check_against_specification(data: bytes, rows: pa.Table) -> None:
    try:
        other = Fragment(data)
        row_hash = other.row_hash()
    except decimal.InvalidOperation:
        return  # of a scale that Python's decimals do not have
    except Exception as error:
        raise FindingError(f"SPEC.md's reader refuses it: {error!r}") from error
    if other.rows != rows.num_rows or row_hash != hash_of(rows):
        raise FindingError("SPEC.md's reader reads other rows")


def hash_of(rows: pa.Table) -> int:
    """The row hash of SPEC section 7."""
    total = None
    for name in rows.schema.names:
        numbers = column_contributions(name, _storage(rows[name]))
        total = numbers if total is None else total + numbers
    return 0 if total is None else fold_rows(total)


def _storage(column: pa.ChunkedArray) -> pa.Array:
    parts = [plain(to_storage(chunk)) for chunk in column.chunks]
    return pa.concat_arrays([pa.array([], storage_type(column.type)), *parts])


@cache
def expected_rows(name: str) -> pa.Table:
    """Of an undamaged fragment."""
    return read_stream(next(seed.data for seed in fragments() if seed.name == name))


def same_rows(one: pa.Table, other: pa.Table) -> bool:
    """Whether types and values are the same; NaN is NaN."""
    if one.schema != other.schema or one.num_rows != other.num_rows:
        return False
    if one.equals(other):
        return True
    return all(
        a.null_count == b.null_count
        and bool(
            (column_contributions("v", _storage(a)) == column_contributions("v", _storage(b)))
            .all()
        )
        for a, b in zip(one.columns, other.columns, strict=True)
    )  # fmt: skip


def _rows_by_stream(data: bytes, piece_bytes: int) -> pa.Table | None:
    with _refusing():
        return read_stream(data, piece_bytes=piece_bytes)
    return None


def _rows_by_footer(data: bytes) -> pa.Table | None:
    with _refusing():
        return read_random(data)
    return None


@contextlib.contextmanager
def _refusing():
    """Errors that a reader may raise; not those behind which there is memory that was asked for."""
    try:
        yield
    except (FormatError, CompactorError) as error:
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, MemoryError):
                raise FindingError(f"more memory was asked for than there is: {error}") from error
            cause = cause.__cause__ or cause.__context__


# --- merges, and commands that look ------------------------------------------------------------


def merge(rng: random.Random) -> None:
    """A merge of a mutated fragment and an undamaged one."""
    seed = rng.choice(fragments())
    is_forged = rng.random() < 0.7
    data = (mutations.forged if is_forged else mutations.damaged)(rng, seed.data)
    check_merge(seed, data, is_forged=is_forged)


def check_merge(seed: Seed, data: bytes, *, is_forged: bool) -> None:
    """An error, or the rows of both inputs."""
    whole = expected_rows(seed.name)
    with _refusing():
        sort = FragmentReader(BytesSource(seed.data), len(seed.data), seed.name).header.sort
        clean = read_random(seed.data)
        mutated = None if is_forged else clean
        if is_forged:
            mutated = read_random(data)
        merged = Merged([seed.data, data], whole.schema, sort)
        merged.run()
        tables = merged.tables()
        assert mutated is not None
        expected = sum(hash_of(t) for t in (clean, mutated)) % 2**64
        found = sum(hash_of(t) for t in tables) % 2**64
        if expected != found and mutated.schema == clean.schema:
            raise FindingError("a merge made other rows")


def inspect(rng: random.Random) -> None:
    """`compactor inspect FRAGMENT`."""
    seed = rng.choice(fragments())
    data = mutations.forged(rng, seed.data)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.frag"
        path.write_bytes(data)
        for options in ([], ["--json"]):
            result = CliRunner().invoke(inspect_command, [str(path), *options])
            error = result.exception
            if error is not None and not isinstance(error, FormatError | CompactorError):
                raise FindingError(f"inspect: {error!r}") from error


# --- tables -------------------------------------------------------------------------------------


def table(rng: random.Random) -> None:
    """A table of which one object is mutated: opened, read, verified, queried, compacted."""
    name = rng.choice(sorted(tables()))
    objects = dict(tables()[name])
    key = rng.choice(sorted(objects))
    is_forged = rng.random() < 0.7
    objects[key] = mutated_object(rng, key, objects[key], is_forged=is_forged)
    expected = None if is_forged else _expected_table(name)
    check_table(objects, expected, is_compacted=rng.random() < 0.1)


def mutated_object(rng: random.Random, key: str, data: bytes, *, is_forged: bool) -> bytes:
    if not is_forged:
        return mutations.damaged(rng, data)
    if key.endswith(".json"):
        forge = rng.choice((mutations.forged_json, mutations.huge_numbers))
        return log_file(forge(rng, data.partition(b"\n")[0]))
    if key.endswith(".arrow"):
        return checkpoint(rng, data)
    if key.endswith(".frag"):
        return mutations.forged(rng, data)
    return blocks(rng, data)


def log_file(text: bytes) -> bytes:
    """With the checksum of its text."""
    text = text.replace(b"\n", b" ")
    return text + b"\n" + xxhash.xxh3_64_hexdigest(text).encode() + b"\n"


def checkpoint(rng: random.Random, data: bytes) -> bytes:
    """Another table of entries, another header, or other bytes; with their digest."""
    body = data[:-16]
    if rng.random() < 0.4:
        body = mutations.damaged(rng, body)
    else:
        rows = pa.ipc.open_stream(body).read_all()
        header = rows.schema.metadata[b"compactor"]
        columns = {name: rows[name].to_pylist() for name in rows.column_names}
        if rng.random() < 0.5:
            header = rng.choice((mutations.forged_json, mutations.huge_numbers))(rng, header)
        else:
            name = rng.choice(list(columns))
            values = columns[name]
            at = rng.randrange(len(values))
            odd: dict[pa.DataType, list[Any]] = {
                pa.string(): [
                    None,
                    "",
                    "{",
                    "[1e400]",
                    "null",
                    "[]",
                    "[[" * 2000,
                    '{"x":[1,2]}',
                    '"a"',
                ],
                pa.uint64(): [None, 0, 2**64 - 1],
            }
            dtype = rows.schema.field(name).type
            most = 2**31 - 1 if pa.types.is_int32(dtype) else 2**63 - 1
            values[at] = rng.choice(odd.get(dtype, [None, 0, -1, 1, 65, 10**9, most // 2, most]))
        schema = rows.schema.with_metadata({b"compactor": header})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, schema) as writer:
            writer.write_table(pa.table(columns, schema=schema))
        body = sink.getvalue().to_pybytes()
    return body + xxhash.xxh3_128_digest(body)


def blocks(rng: random.Random, data: bytes) -> bytes:
    """Deletions or skip indexes with one block changed, where that keeps its length if it can."""
    found, at = [], 0
    while at < len(data):
        block, end = anatomy.read_block(data, at)
        found.append(block)
        at = end
    at = rng.randrange(len(found))
    block = found[at]
    # An earlier change may have left no frame or nodes to be taken apart; not every object is made of blocks.
    with contextlib.suppress(ValueError, struct.error):
        found[at] = _changed(rng, block)
    return b"".join(block.to_bytes() for block in found)


def _changed(rng: random.Random, block: anatomy.RawBlock) -> anatomy.RawBlock:
    match rng.randrange(4):
        case 0:
            return mutations.lying_node(rng, block)
        case 1:
            raw = bytearray(block.raw())
            for _ in range(rng.choice((1, 2, 8))):
                raw[rng.randrange(len(raw))] = rng.randrange(256)
            return block.with_raw(bytes(raw))
        case 2:
            return mutations.lying_frame(rng, block)
        case _:
            return replace(block, rows=mutations.number(rng, block.rows) & 0xFFFFFFFF)


@cache
def _expected_table(name: str) -> list[dict[str, object]]:
    store = MemoryStore(dict(tables()[name]))
    return [row for batch in scan(store, CommitLog(store).current()) for row in batch.to_pylist()]


def check_table(
    objects: dict[str, bytes], expected: list[dict[str, object]] | None, *, is_compacted: bool
) -> None:
    """Errors, or the rows expected, where any are. What is counted by the log is not counted for ever."""
    store = MemoryStore(objects)
    with _refusing():
        log = CommitLog(store)
        snapshot = log.current()
        repr(snapshot.by_age())
        with _refusing():
            batches = list(scan(store, snapshot))
            # Forged times are beyond those of Python, which is no fault of the scan.
            if expected is not None and [r for b in batches for r in b.to_pylist()] != expected:
                raise FindingError("damage changed the rows of a table and was not noticed")
        with _refusing():
            where = condition_on(snapshot.table, "trace = '0' AND service LIKE '%-1'")
            found = [batch.num_rows for batch in scan(store, snapshot, where=where)]
            if expected is not None and sum(found):
                raise FindingError("a query found rows that are not there")
        with _refusing():
            for task_bytes in (1, 64 << 20):
                tasks_of(snapshot, None, task_bytes, ScanReport())
        with _refusing():
            fragments_table(snapshot)
            history_table([log.history.read(number + 1) for number in range(snapshot.version)])
        with _refusing():
            json.dumps(gather(CommitLog(store), ReportOptions()).to_json(), allow_nan=False)
        with _refusing():
            verify(store, snapshot)
        if is_compacted:
            compact_table(store)

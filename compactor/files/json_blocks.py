"""Parses a block of JSON lines to columns, with the checks that Arrow's parser lacks."""

from __future__ import annotations

import codecs
import re
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
from pyarrow import types as pt

from compactor.common.shortage import no_thread
from compactor.files.json_fields import count_of
from compactor.files.json_in_python import rows_of
from lsm_fragment.arrays.batches import one_batch
from lsm_fragment.arrays.types import MAX_NESTING

# Arrow recurses once per level: some ten thousand levels overflow the stack.
_SAFE_BRACKETS: Final = 2_000

_NOT_BRACKETS: Final = bytes(sorted(set(range(256)) - set(b"[{\n")))
_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"?')
"""A string. An unclosed one extends to the end of its line; otherwise the search would be quadratic."""
_NULL_AT_START: Final = re.compile(rb"[ \t\r\n]*null")
_NULL_AT_LINE_START: Final = re.compile(rb"\n[ \t\r]*null")


class NestingError(ValueError):
    """A value is nested deeper than a fragment allows."""

    def __init__(self) -> None:
        super().__init__(f"is nested more than {MAX_NESTING} levels deep: flatten it")


def parse_block(
    block: bytes, types: pa.Schema, *, rows: int | None = None, other_fields: str = "infer"
) -> pa.RecordBatch:
    """Parses `block`: first the columns of `types`, then, unless ignored, the other fields.

    rows: expected number of objects; None expects one per non-blank line.
    other_fields: "infer", "ignore" or "error", for fields not in `types`.
    Raises one of `PROBLEMS` for anything but rows that fit.
    """
    _check_bytes(block)
    table = _read(block, types, other_fields)
    if _lost_nulls(table):
        found = [field.with_type(typed_nulls(field.type)) for field in table.schema]
        table = _read(block, pa.schema(found), other_fields)
    if table.num_rows != (_line_count(block, table.num_rows) if rows is None else rows):
        raise ValueError("Not one JSON object per line")
    batch = one_batch(table)
    if _depth(batch.schema.types) > MAX_NESTING:
        raise NestingError
    return batch


def typed_nulls(dtype: pa.DataType) -> pa.DataType:
    """Replaces null types by boolean at any level.

    Arrow drops leading nulls of a list whose type is unknown (apache/arrow#51305); any known type avoids
    that.
    """
    if pt.is_null(dtype):
        return pa.bool_()
    if pt.is_list(dtype):
        return pa.list_(typed_nulls(dtype.value_type))
    if pt.is_struct(dtype):
        return pa.struct([(field.name, typed_nulls(field.type)) for field in dtype.fields])
    return dtype


def _read(block: bytes, types: pa.Schema, other_fields: str) -> pa.Table:
    try:
        return _read_by_arrow(block, types, other_fields)
    except pa.ArrowException as error:
        if not no_thread(error):
            raise
    try:
        return pa.Table.from_batches([rows_of(block, types, other_fields)])
    except RecursionError:
        raise NestingError from None


def _read_by_arrow(block: bytes, types: pa.Schema, other_fields: str) -> pa.Table:
    rows = pj.open_json(
        _native_reader(block),
        # One chunk, so that what Arrow accepts does not depend on where it would cut.
        read_options=pj.ReadOptions(use_threads=False, block_size=len(block) + 1),
        parse_options=pj.ParseOptions(
            explicit_schema=types, unexpected_field_behavior=other_fields
        ),
    )
    return rows.read_all()


def _lost_nulls(table: pa.Table) -> bool:
    try:
        table.validate()
    except pa.ArrowInvalid:
        return True
    return False


def _check_bytes(block: bytes) -> None:
    if b"\0" in block:
        raise ValueError("It has a NUL byte, as in UTF-16")
    # Arrow skips it at the start of a block, and so accepts a line alone that it refuses among others.
    if block.startswith(codecs.BOM_UTF8):
        raise ValueError("It starts with a byte order mark")
    # Arrow crashes on a null before the first object (apache/arrow#47409), and turns a later one into a row.
    if _NULL_AT_START.match(block) or _NULL_AT_LINE_START.search(block):
        raise ValueError("It is null")
    offsets = pa.py_buffer(b"".join(n.to_bytes(8, "little") for n in (0, len(block))))
    whole = pa.Array.from_buffers(pa.large_binary(), 1, [None, offsets, pa.py_buffer(block)])
    pc.cast(whole, pa.large_string())
    brackets = block.translate(None, _NOT_BRACKETS)
    if len(brackets) > _SAFE_BRACKETS and max(map(len, brackets.split(b"\n"))) > _SAFE_BRACKETS:
        _check_nesting(block)


def _check_nesting(block: bytes) -> None:
    for line in block.split(b"\n"):
        if line.count(b"[") + line.count(b"{") > _SAFE_BRACKETS:
            depth = 0
            for bracket in re.findall(rb"[\[{]+|[\]}]+", _STRING.sub(b"", line)):
                depth += len(bracket) if bracket[:1] in b"[{" else -len(bracket)
                if depth > MAX_NESTING:
                    raise NestingError


def _depth(types: list[pa.DataType]) -> int:
    depth = 0
    while types:
        depth += 1
        types = [dtype.field(i).type for dtype in types for i in range(dtype.num_fields)]
    return depth


def _line_count(block: bytes, expected: int) -> int:
    """Returns the number of non-blank lines; does not look for blank ones if there are `expected` lines."""
    lines = count_of(b"\n", block) + (not block.endswith(b"\n"))
    return lines if lines == expected else sum(bool(line.strip()) for line in block.split(b"\n"))


def _native_reader(block: bytes) -> pa.BufferReader:
    """Returns a source of the block in Arrow's memory.

    Arrow's threads that read ahead may let go of their source last, after it was closed. If that is an object
    of Python's, and the interpreter ends at that moment, the process aborts.
    """
    buffer = pa.allocate_buffer(len(block))
    with memoryview(buffer).cast("B") as room:
        room[:] = block
    return pa.BufferReader(buffer)

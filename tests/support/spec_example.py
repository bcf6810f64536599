"""Rewrites the worked example at the end of SPEC.md: `python -m tests.support.spec_example`.

To be run when the format changes, and its result read before it is committed.
"""

from __future__ import annotations

import struct
from pathlib import Path

import pyarrow as pa

import lsm_fragment
from lsm_fragment.blocks.layout import (
    BLOCK_HEADER_BYTES,
    PROLOGUE_BYTES,
    TRAILER_BYTES,
    unpack_block_header,
)
from lsm_fragment.encodings.node import NODE_BYTES, Encoding
from tests.support.fragments import write_fragment
from tests.support.spec_footer import COUNTS, DIRECTORY, RECORD, Table, read_values

SPEC = Path(lsm_fragment.__file__).parents[1] / "SPEC.md"
MARK = "<!-- example -->"


def example_table() -> pa.Table:
    return pa.table(
        {
            "host": ["a", "a", "b"],
            "ts": pa.array([3, 1, 2], pa.timestamp("s")),
            "msg": ["hi", None, "ho"],
        }
    )


def example_fragment() -> bytes:
    return write_fragment(example_table(), "host,ts:desc")


def annotated(data: bytes) -> str:
    """Returns a hex dump with a comment line before each part."""
    lines = dump(data, 0, PROLOGUE_BYTES, "prologue: magic, version, reserved, checksum")
    at = PROLOGUE_BYTES
    while at < len(data) - TRAILER_BYTES:
        head = unpack_block_header(data[at : at + BLOCK_HEADER_BYTES], name="", offset=at)
        lines += dump(
            data,
            at,
            at + BLOCK_HEADER_BYTES,
            f"block '{chr(head.kind)}' at {at}: codec {head.codec.name.lower()}, rows {head.rows}, "
            f"meta {head.meta_bytes}, stored {head.stored_bytes}, raw {head.raw_bytes}",
        )
        meta_end = at + BLOCK_HEADER_BYTES + head.meta_bytes
        for start in range(at + BLOCK_HEADER_BYTES, meta_end, NODE_BYTES):
            lines += dump(data, start, start + NODE_BYTES, node_comment(data[start:][:NODE_BYTES]))
        for size, comment in parts_of(chr(head.kind), data[meta_end:][: head.stored_bytes]):
            lines += dump(data, meta_end, meta_end + size, f"  {comment}")
            meta_end += size
        at += head.block_bytes
    return "\n".join(
        lines
        + dump(
            data,
            at,
            len(data),
            "trailer: directory offset, length, version, reserved, checksum, magic",
        )
    )


def parts_of(kind: str, payload: bytes) -> list[tuple[int, str]]:
    """Returns the sizes of a payload's parts, and what they are."""
    if kind == "S":
        parts, table = [], Table(payload)
        while table.at < len(payload):
            parts += record_parts(table)
        return parts
    return directory_parts(payload) if kind == "F" else [(len(payload), "payload")]


def record_parts(table: Table) -> list[tuple[int, str]]:
    begin = table.at
    size, name_bytes, field_bytes, count, _, start, end = RECORD.unpack(table.raw(RECORD.size))
    name = table.raw(name_bytes).decode()
    parts = [
        (
            RECORD.size,
            f"record of {name!r}: {size} bytes, name {name_bytes}, field {field_bytes}, chunks {count}, "
            f"reserved 0, from {start} to {end}",
        ),
        (table.at - begin - RECORD.size, "name"),
        skipped(table, field_bytes, "field"),
    ]
    if count:
        parts += [skipped(table, 8 * count, what.replace("_", " ")) for what in COUNTS]
        parts.append(skipped(table, count, "encoding"))
        parts += [values_part(table, count, what) for what in ("min", "max")]
    return parts


def directory_parts(payload: bytes) -> list[tuple[int, str]]:
    rows, _, groups, columns, pages, function, json_bytes, end = DIRECTORY.unpack_from(payload)
    table = Table(payload, DIRECTORY.size)
    parts = [
        (
            DIRECTORY.size,
            f"rows {rows}, row hash, row groups {groups}, columns {columns}, pages {pages}, row hash "
            f"function {function}, JSON {json_bytes}, columns end at {end}",
        ),
        skipped(table, json_bytes, "JSON"),
        skipped(table, 4 * groups, "rows of row groups"),
        skipped(table, 8 * groups, "row hashes of row groups"),
    ]
    parts += [part for _ in range(2) for part in record_parts(table)]
    for what in ("first key", "last key"):
        parts += [values_part(table, groups, f"{what}: {name}") for name in ("host", "ts")]
    parts += [skipped(table, 8 * pages, f"page table: {what}") for what in ("offset", "start")]
    parts.append(skipped(table, 4 * pages, "page table: end of name"))
    parts.append((len(payload) - table.at, "page table: names"))
    return parts


def skipped(table: Table, size: int, what: str) -> tuple[int, str]:
    begin = table.at
    table.raw(size)
    return table.at - begin, what


def values_part(table: Table, count: int, what: str) -> tuple[int, str]:
    begin = table.at
    read_values(table, count)
    return table.at - begin, f"{what}: kind, states, values"


def node_comment(node: bytes) -> str:
    encoding, flags, width, _, children, length, nulls, param = struct.unpack("<BBBBIQQq", node)
    return (
        f"  node {Encoding(encoding).name}: flags {flags}, width {width}, {children} children, "
        f"length {length}, nulls {nulls}, param {param}"
    )


def dump(data: bytes, start: int, stop: int, comment: str) -> list[str]:
    lines = [f"; {comment}"]
    for at in range(start, stop, 16):
        row = data[at : min(at + 16, stop)]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{at:04x}  {' '.join(f'{byte:02x}' for byte in row):<47}  {text}")
    return lines


def main() -> None:
    before, _, after = SPEC.read_text().split(MARK)
    SPEC.write_text(f"{before}{MARK}\n```\n{annotated(example_fragment())}\n```\n{MARK}{after}")


if __name__ == "__main__":
    main()

"""Rewrites the worked example at the end of SPEC.md: `python -m tests.support.spec_example`.

To be run when the format changes, and its result read before it is committed.
"""

from __future__ import annotations

import struct
from pathlib import Path

import pyarrow as pa

import format
from format.layout import BLOCK_HEADER_BYTES, PROLOGUE_BYTES, TRAILER_BYTES, unpack_block_header
from format.nodes import NODE_BYTES, Encoding
from tests.support.fragments import write_fragment

SPEC = Path(format.__file__).parent / "SPEC.md"
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
        lines += dump(data, meta_end, meta_end + head.stored_bytes, "  payload")
        at += head.block_bytes
    return "\n".join(
        lines + dump(data, at, len(data), "trailer: footer offset, length, checksum, magic")
    )


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

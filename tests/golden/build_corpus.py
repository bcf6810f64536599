"""Forged fragments that readers once did something wrong with: crashed, asked for gigabytes, believed them.

`python -m tests.golden.build_corpus` adds those that are not there yet. All checksums are true; the name says
what the lie is. Every reader must refuse them.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from msgspec.structs import replace

from lsm_fragment.container.writer import WriterOptions
from tests.fuzz.anatomy import NODE, Anatomy, RawBlock
from tests.support.fragments import write_fragment

FOLDER = Path(__file__).parent / "corpus"
PLAIN, CONSTANT, PACKED, DICTIONARY, VARLEN, LIST = 1, 2, 3, 5, 6, 7


def of(array: pa.Array) -> Anatomy:
    """Of a fragment with a column v beside its keys."""
    table = pa.table({"k": range(len(array)), "v": array})
    return Anatomy.of(write_fragment(table, "k", WriterOptions(compression_level=0)))


def with_chunk(array: pa.Array, meta: bytes, raw: bytes) -> Anatomy:
    """The same with another chunk in place of v's."""
    anatomy = of(array)
    padded = raw + bytes(-len(raw) % 8)
    anatomy.blocks[-3] = RawBlock(
        kind=ord("D"), codec=0, rows=len(array), meta=meta, stored=padded, raw_bytes=len(padded)
    )
    return anatomy


def node(encoding: int, length: int, *, flags=0, width=0, children=0, nulls=0, param=0) -> bytes:
    return NODE.pack(encoding, flags, width, 0, children, length, nulls, param)


def with_type(array: pa.Array, dtype: dict[str, Any]) -> Anatomy:
    """The same of which the header says that v is of another type."""
    anatomy = of(array)
    header = json.loads(anatomy.blocks[0].raw())
    header["schema"]["fields"][1]["type"] = dtype
    anatomy.blocks[0] = anatomy.blocks[0].with_raw(json.dumps(header).encode())
    return anatomy


def with_footer(edit: Callable[[dict[str, Any]], None], *, is_linked: bool = True) -> Anatomy:
    anatomy = of(pa.array([1, 2, 3]))
    anatomy.is_linked = is_linked
    anatomy.edit_footer.append(edit)
    return anatomy


def map_with_a_null_key() -> Anatomy:
    array = pa.array([[("a", 1), ("b", 2)]], pa.map_(pa.string(), pa.int64()))
    anatomy = of(array)
    chunk = anatomy.blocks[-3]
    nodes = list(NODE.iter_unpack(chunk.meta))
    key = next(place for place, found in enumerate(nodes) if found[0] == VARLEN)
    nodes[key] = (VARLEN, 1, 0, 0, 1, 2, 1, nodes[key][7])
    before = b"".join(NODE.pack(*found) for found in nodes)
    anatomy.blocks[-3] = replace(chunk, meta=before).with_raw(b"\1" + bytes(7) + chunk.raw())
    return anatomy


def another_number_of_nulls() -> Anatomy:
    meta = node(PLAIN, 3, flags=1, nulls=1, param=8)
    return with_chunk(pa.array([1.5, 2.5, None]), meta, b"\1" + bytes(7) + bytes(24))


def text_that_is_no_utf8() -> Anatomy:
    meta = node(VARLEN, 2, children=1, param=2) + node(CONSTANT, 2, param=1)
    return with_chunk(pa.array(["a", "b"]), meta, b"\xc3\xa9")


def a_dictionary_of_one_huge_list() -> Anatomy:
    rows, items = 4096, 1 << 20
    meta = node(DICTIONARY, rows, children=2) + node(CONSTANT, rows) + node(LIST, 1, children=2)
    meta += node(CONSTANT, 1, param=items) + node(CONSTANT, items, param=7)
    return with_chunk(pa.array([[1]] * rows), meta, b"")


def a_dictionary_of_one_long_text() -> Anatomy:
    rows, size = 65_536, 10_000
    meta = node(DICTIONARY, rows, children=2) + node(CONSTANT, rows)
    meta += node(VARLEN, 1, children=1, param=size) + node(CONSTANT, 1, param=size)
    anatomy = with_chunk(pa.array(["a"] * rows), meta, b"a" * size)
    chunk = anatomy.blocks[-3]
    anatomy.blocks[-3] = replace(chunk, codec=1).with_raw(chunk.stored)
    return anatomy


def nulls_of_a_wide_type() -> Anatomy:
    wide = {"kind": "fixed_size_binary", "byte_width": 2**31 - 1}
    return with_type(pa.nulls(1000, pa.int8()), wide)


def nulls_of_a_long_fixed_list() -> Anatomy:
    item = {"name": "item", "type": {"kind": "int64"}, "nullable": True}
    return with_type(
        pa.nulls(1000, pa.int8()), {"kind": "fixed_size_list", "item": item, "size": 2**24}
    )


def a_width_below_zero() -> Anatomy:
    return with_type(pa.array([b"ab"]), {"kind": "fixed_size_binary", "byte_width": -1})


def a_type_nested_a_hundred_deep() -> Anatomy:
    dtype: dict[str, Any] = {"kind": "int8"}
    for _ in range(100):
        dtype = {"kind": "list", "item": {"name": "i", "type": dtype, "nullable": True}}
    return with_type(pa.nulls(3, pa.int8()), dtype)


def a_header_nested_too_deeply_for_json() -> Anatomy:
    anatomy = of(pa.array([1]))
    anatomy.blocks[0] = replace(anatomy.blocks[0], codec=1).with_raw(b"[" * 100_000)
    return anatomy


def max_rows_without_end() -> Anatomy:
    anatomy = of(pa.array([1]))
    raw = anatomy.blocks[0].raw().replace(b'"max_rows":131072', b'"max_rows":1e999')
    anatomy.blocks[0] = anatomy.blocks[0].with_raw(raw)
    return anatomy


def a_footer_of_another_column_s_chunk() -> Anatomy:
    def swap(footer: dict[str, Any]) -> None:
        one, other = footer["columns"][1:]
        for name in ("offset", "stored_bytes", "raw_bytes"):
            one[name], other[name] = other[name], one[name]

    table = pa.table({"k": [1, 2], "v": [3, 4], "w": [5, 7]})
    anatomy = Anatomy.of(write_fragment(table, "k", WriterOptions(compression_level=0)))
    anatomy.edit_footer.append(swap)
    return anatomy


def a_footer_with_an_offset_below_zero() -> Anatomy:
    return with_footer(lambda footer: footer["columns"][1]["offset"].__setitem__(0, -8))


def a_footer_with_a_bound_of_another_type() -> Anatomy:
    def edit(footer: dict[str, Any]) -> None:
        footer["row_groups"]["first_key"][0] = {"kind": 5, "states": [1], "values": ["x"]}

    return with_footer(edit)


def a_footer_without_a_column() -> Anatomy:
    return with_footer(lambda footer: footer["columns"].pop())


def a_footer_with_a_column_of_nulls_that_has_chunks() -> Anatomy:
    def edit(footer: dict[str, Any]) -> None:
        footer["columns"][1] |= {"start": 0, "end": 0, "offset": []}

    return with_footer(edit)


def a_record_of_more_chunks_than_bytes() -> Anatomy:
    anatomy = of(pa.array([1, 2, 3]))
    anatomy.is_linked = False
    page = bytearray(anatomy.blocks[-2].raw())
    struct.pack_into("<I", page, 16, 2**32 - 1)
    anatomy.blocks[-2] = anatomy.blocks[-2].with_raw(bytes(page))
    return anatomy


def a_record_that_is_longer_than_its_page() -> Anatomy:
    anatomy = of(pa.array([1, 2, 3]))
    anatomy.is_linked = False
    page = bytearray(anatomy.blocks[-2].raw())
    struct.pack_into("<Q", page, 0, 2**63)
    anatomy.blocks[-2] = anatomy.blocks[-2].with_raw(bytes(page))
    return anatomy


def a_directory_of_more(at: int) -> Anatomy:
    """With another number in its head. at: 16 for row groups, 24 for pages, 32 for bytes of JSON."""
    anatomy = of(pa.array([1, 2, 3]))
    anatomy.is_linked = False
    directory = bytearray(anatomy.blocks[-1].raw())
    struct.pack_into("<I", directory, at, 2**32 - 1)
    anatomy.blocks[-1] = anatomy.blocks[-1].with_raw(bytes(directory))
    return anatomy


def a_directory_of_four_billion_row_groups() -> Anatomy:
    return a_directory_of_more(16)


def a_directory_of_four_billion_pages() -> Anatomy:
    return a_directory_of_more(24)


def a_directory_of_four_billion_bytes_of_json() -> Anatomy:
    return a_directory_of_more(32)


def a_page_where_the_header_is() -> Anatomy:
    return with_footer(lambda footer: footer["pages"][0].__setitem__("offset", 16), is_linked=False)


def a_bomb_for_a_directory() -> Anatomy:
    anatomy = of(pa.array([1]))
    anatomy.is_linked = False
    anatomy.blocks[-1] = replace(anatomy.blocks[-1], codec=1).with_raw(bytes(64 << 20))
    return anatomy


def a_bomb_for_a_page() -> Anatomy:
    anatomy = of(pa.array([1]))
    anatomy.is_linked = False
    anatomy.blocks[-2] = replace(anatomy.blocks[-2], codec=1).with_raw(bytes(64 << 20))
    return anatomy


def a_small_decimal_of_too_many_digits() -> Anatomy:
    array = pa.array([1, 2], pa.decimal64(3, 0))
    raw = struct.pack("<qq", 99_999, 1)
    return with_chunk(array, node(PLAIN, 2, param=8), raw)


def runs_of_a_dictionary_index_out_of_range() -> Anatomy:
    array = pa.array(["a", "b", "a"])
    entry = struct.pack("<QBBHB3x", 0, 8, 0, 0, 0)
    codes = entry + bytes([0, 2, 1]) + bytes(5)
    meta = node(DICTIONARY, 3, children=2) + node(PACKED, 3, width=8, param=3)
    meta += node(VARLEN, 2, children=1, param=2) + node(CONSTANT, 2, param=1)
    return with_chunk(array, meta, codes + b"ab")


CORPUS: dict[str, Callable[[], Anatomy]] = {
    make.__name__: make
    for make in (
        map_with_a_null_key, another_number_of_nulls, text_that_is_no_utf8, a_dictionary_of_one_huge_list,
        a_dictionary_of_one_long_text, nulls_of_a_wide_type, nulls_of_a_long_fixed_list, a_width_below_zero,
        a_type_nested_a_hundred_deep, a_header_nested_too_deeply_for_json, max_rows_without_end,
        a_footer_of_another_column_s_chunk, a_footer_with_an_offset_below_zero,
        a_footer_with_a_bound_of_another_type, a_footer_without_a_column,
        a_footer_with_a_column_of_nulls_that_has_chunks, a_record_of_more_chunks_than_bytes,
        a_record_that_is_longer_than_its_page, a_directory_of_four_billion_row_groups,
        a_directory_of_four_billion_pages, a_directory_of_four_billion_bytes_of_json,
        a_page_where_the_header_is, a_bomb_for_a_directory, a_bomb_for_a_page,
        a_small_decimal_of_too_many_digits, runs_of_a_dictionary_index_out_of_range,
    )
}  # fmt: skip


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, make in CORPUS.items():
        path = FOLDER / f"{name}.frag"
        if not path.exists():
            path.write_bytes(make().to_bytes())


if __name__ == "__main__":
    main()

"""A second reader and writer of footers, made from SPEC.md section 7 alone: pages and directory in one.

Plain Python that shares no code with `format`. What it reads it writes again byte for byte, so that tests can
change anything in between.
"""

from __future__ import annotations

import json
import struct
from typing import Any

RECORD = struct.Struct("<QIIIIQQ")
DIRECTORY = struct.Struct("<QQIIIIQQ")
U64 = (1 << 64) - 1
CODES = {1: "q", 2: "Q", 3: "d", 4: "B"}
COUNTS = ("offset", "stored_bytes", "raw_bytes", "decoded_bytes", "null_count")
NULL, VALUE, LEFT_OUT = 0, 1, 2


class Table:
    """Arrays one after the other, each padded to a multiple of 8."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data, self.at = data, at

    def raw(self, size: int) -> bytes:
        found = self.data[self.at : self.at + size]
        if len(found) < size:
            raise ValueError("the table ends early")
        self.at += size + -size % 8
        return found

    def array(self, code: str, count: int) -> list[Any]:
        return list(struct.unpack(f"<{count}{code}", self.raw(struct.calcsize(code) * count)))


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 8)


def array(code: str, values: list[Any]) -> bytes:
    if code in "QI":
        values = [value & (U64 if code == "Q" else 2**32 - 1) for value in values]
    return padded(struct.pack(f"<{len(values)}{code}", *values))


def text_of(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode(
        errors="surrogatepass"
    )


def read_values(table: Table, count: int) -> dict[str, Any]:
    """A column of VALUEs: its kind, the state of each, the values as they are stored."""
    kind, *reserved = table.array("B", 8)
    assert not any(reserved)
    if kind == 0:
        return {"kind": 0, "states": [NULL] * count, "values": [None] * count}
    states = list(table.raw(count))
    if kind in CODES:
        return {"kind": kind, "states": states, "values": table.array(CODES[kind], count)}
    lengths = table.array("I", count)
    data, values, at = table.raw(sum(lengths)), [], 0
    for length in lengths:
        values.append(data[at : at + length].decode("latin-1"))
        at += length
    return {"kind": kind, "states": states, "values": values}


def values_bytes(column: dict[str, Any]) -> bytes:
    kind, values = column["kind"], column["values"]
    head = bytes([kind]) + bytes(7)
    if kind == 0:
        return head
    head += padded(bytes(list(column["states"])))
    if kind in CODES:
        return head + array(CODES[kind], values)
    texts = [value.encode("latin-1") for value in values]
    return head + array("I", [len(text) for text in texts]) + padded(b"".join(texts))


def read_record(table: Table) -> dict[str, Any]:
    """What a footer says of one column."""
    begin = table.at
    size, name_bytes, field_bytes, count, reserved, start, end = RECORD.unpack(
        table.raw(RECORD.size)
    )
    assert reserved == 0
    record = {
        "name": table.raw(name_bytes).decode(),
        "field": json.loads(table.raw(field_bytes)),
        "start": start,
        "end": end,
    }
    record |= {name: table.array("Q", count) for name in COUNTS}
    record["encoding"] = list(table.raw(count))
    if count:
        record |= {name: read_values(table, count) for name in ("min", "max")}
    assert table.at == begin + size
    return record


def record_bytes(record: dict[str, Any]) -> bytes:
    name, field = record["name"].encode(errors="surrogatepass"), text_of(record["field"])
    parts = [padded(name), padded(field)]
    count = len(record["offset"])
    if count:
        parts += [array("Q", record[name]) for name in COUNTS]
        parts += [padded(bytes(list(record["encoding"])))]
        parts += [values_bytes(record["min"]), values_bytes(record["max"])]
    body = b"".join(parts)
    places = record["start"] & U64, record["end"] & U64
    head = RECORD.pack(RECORD.size + len(body), len(name), len(field), count, 0, *places)
    return head + body


def read_footer(pages: list[bytes], directory: bytes) -> dict[str, Any]:
    """The whole footer. pages, directory: the payloads of its blocks."""
    rows, row_hash, groups, columns, page_count, function, json_bytes, end = DIRECTORY.unpack_from(
        directory
    )
    table = Table(directory, DIRECTORY.size)
    document: dict[str, Any] = {"rows": rows, "row_hash": f"{row_hash:016x}"}
    document |= {"schema_columns": columns, "row_hash_function": function, "columns_end": end}
    document |= json.loads(table.raw(json_bytes))
    document["row_groups"] = {
        "rows": table.array("I", groups),
        "row_hash": table.array("Q", groups),
    }
    document["columns"] = [read_record(table) | {"page": None} for _ in document["sort"]]
    ordering = [column for column in document["sort"] if column["order"] != "none"]
    for name in ("first_key", "last_key"):
        document["row_groups"][name] = [read_values(table, groups) for _ in ordering]
    offsets, starts = table.array("Q", page_count), table.array("Q", page_count)
    ends = table.array("I", page_count)
    names = table.raw(ends[-1] if ends else 0)
    begins = [0, *ends][: len(ends)]
    document["pages"] = [
        {"offset": offset, "start": start, "name": names[begin:end].decode()}
        for offset, start, begin, end in zip(offsets, starts, begins, ends, strict=True)
    ]
    assert table.at == len(directory)
    assert len(pages) == page_count
    for number, page in enumerate(pages):
        assert page
        records = Table(page)
        while records.at < len(page):
            document["columns"].append(read_record(records) | {"page": number})
    return document


def page_bytes(document: dict[str, Any], number: int) -> bytes:
    """The payload of one page."""
    return b"".join(record_bytes(c) for c in document["columns"] if c["page"] == number)


def directory_bytes(document: dict[str, Any]) -> bytes:
    """The payload of the directory."""
    groups, pages = document["row_groups"], document["pages"]
    text = text_of({name: document[name] for name in ("sort", "max_rows", "required_features")})
    head = DIRECTORY.pack(
        document["rows"] & U64, int(document["row_hash"], 16), len(groups["rows"]),
        document["schema_columns"] & 0xFFFFFFFF, len(pages), document["row_hash_function"] & 0xFFFFFFFF,
        len(text), document["columns_end"] & U64,
    )  # fmt: skip
    names = [page["name"].encode(errors="surrogatepass") for page in pages]
    ends = [sum(map(len, names[: place + 1])) for place in range(len(names))]
    return b"".join(
        [
            head, padded(text), array("I", groups["rows"]), array("Q", groups["row_hash"]),
            *(record_bytes(column) for column in document["columns"] if column["page"] is None),
            *map(values_bytes, groups["first_key"]), *map(values_bytes, groups["last_key"]),
            array("Q", [page["offset"] for page in pages]),
            array("Q", [page["start"] for page in pages]),
            array("I", ends), padded(b"".join(names)),
        ]
    )  # fmt: skip

"""A second reader of the format, made from SPEC.md alone.

Plain Python, one value at a time, sharing no code with `format`: if it agrees with the real
reader, the specification says enough. Covers the types whose values have an obvious Python form.
"""

from __future__ import annotations

import decimal
import json
import struct
from collections.abc import Iterator
from itertools import product
from string import ascii_lowercase, ascii_uppercase, digits
from typing import Any

import xxhash
import zstandard

from tests.support.spec_footer import read_footer

MASK = (1 << 64) - 1
INT_KINDS = {
    **{f"int{b}": (b, True) for b in (8, 16, 32, 64)},
    **{f"uint{b}": (b, False) for b in (8, 16, 32, 64)},
    "date32": (32, True), "date64": (64, True), "time32": (32, True), "time64": (64, True),
    "timestamp": (64, True), "duration": (64, True), "decimal32": (32, True), "decimal64": (64, True),
}  # fmt: skip
CHILDREN = {0: 0, 1: 0, 2: 0, 3: 0, 4: 2, 5: 2, 6: 1, 7: 2, 8: 1, 10: 1, 11: 1, 12: 5, 13: 2, 14: 2}
FLOATS = {"float16": "<e", "float32": "<f", "float64": "<d"}
STORED_AS = {"string_view": "string", "binary_view": "binary", "list_view": "list",
             "large_list_view": "large_list"}  # fmt: skip


def xxh3(data: bytes) -> int:
    return xxhash.xxh3_64_intdigest(data)


class Block:
    def __init__(self, data: bytes, at: int) -> None:
        head = data[at : at + 40]
        (kind, codec, reserved, self.rows, meta_bytes, check, stored, raw, payload_check) = (
            struct.unpack("<BBHIIIQQQ", head)
        )
        self.kind, self.at = chr(kind), at
        self.meta = data[at + 40 : at + 40 + meta_bytes]
        assert reserved == 0
        assert xxh3(head[:12] + bytes(4) + head[16:] + self.meta) & 0xFFFFFFFF == check
        payload = data[at + 40 + meta_bytes : at + 40 + meta_bytes + stored]
        frames = [payload] if codec == 1 else []
        if codec == 2 and kind < ord("a"):
            (count,) = struct.unpack_from("<Q", payload)
            assert 2 <= count <= 8
            table, frames_data = payload[: 8 + 16 * count], payload[8 + 16 * count :]
            assert xxh3(table) == payload_check
            sizes, checks = zip(*struct.iter_unpack("<QQ", table[8:]), strict=True)
            frames = list(pieces(frames_data, list(sizes)))
            assert list(map(xxh3, frames)) == list(checks)
            assert sum(sizes) == len(frames_data)
        else:
            assert xxh3(payload) == payload_check
        if kind < ord("a"):
            self.raw = b"".join(map(zstandard.decompress, frames)) if frames else payload
            assert len(self.raw) == raw
        self.end = at + 40 + meta_bytes + stored


def after_ancillary(data: bytes, at: int) -> Block:
    """The next block that is not one to be skipped."""
    block = Block(data, at)
    while "a" <= block.kind <= "z":
        block = Block(data, block.end)
    return block


class Fragment:
    """All rows of a fragment as lists by column name; integers for temporal types."""

    def __init__(self, data: bytes) -> None:
        assert data[:8] == b"\x89LSMF\r\n\x1a"
        self.version, reserved, check = struct.unpack("<HHI", data[8:16])
        assert self.version == 1
        assert (reserved, check) == (0, xxh3(data[:12]) & 0xFFFFFFFF)
        header = Block(data, 16)
        assert header.kind == "H"
        self.header = json.loads(header.raw)
        assert self.header["required_features"] == []
        types = {f["name"]: storage(f["type"]) for f in self.header["schema"]["fields"]}
        sort = [column["column"] for column in self.header["sort"]]
        self.columns: dict[str, list[Any]] = {name: [] for name in types}
        groups: list[int] = []
        block = after_ancillary(data, header.end)
        while block.kind == "K":
            for name in sort:
                self.columns[name] += decode(block, types[name])
                rows, block = block.rows, Block(data, block.end)
            groups.append(rows)
        block = after_ancillary(data, block.at)
        while block.kind == "C":
            name = block.raw.decode()
            for rows in groups:
                block = Block(data, block.end)
                assert (block.kind, block.rows) == ("D", rows)
                self.columns[name] += decode(block, types[name])
            block = after_ancillary(data, block.end)
        pages = []
        while block.kind == "S":
            pages.append(block.raw)
            block = Block(data, block.end)
        assert block.kind == "F"
        self.footer = read_footer(pages, block.raw)
        trailer = data[block.end :]
        assert len(trailer) == 28
        directory, total, version, reserved, check = struct.unpack("<QQHHI", trailer[:24])
        assert trailer[24:] == b"LSMF"
        assert check == xxh3(trailer[:20]) & 0xFFFFFFFF
        assert (directory, total, version, reserved) == (block.at, len(data), 1, 0)
        self.rows = sum(groups)
        for name, values in self.columns.items():
            if not values:
                self.columns[name] = [None] * self.rows
        self.types = types

    def row_hash(self) -> int:
        total = 0
        for row in range(self.rows):
            number = 0
            for name, values in self.columns.items():
                if values[row] is not None:
                    number += mix(hash_value(values[row], self.types[name]) ^ xxh3(name.encode()))
            total += mix(number & MASK)
        return total & MASK


def storage(dtype: dict[str, Any]) -> dict[str, Any]:
    if dtype["kind"] == "dictionary":
        return storage(dtype["value"])
    if dtype["kind"] == "extension":
        return storage(dtype["storage"])
    return {**dtype, "kind": STORED_AS.get(dtype["kind"], dtype["kind"])}


class Cursor:
    def __init__(self, block: Block) -> None:
        self.nodes = list(struct.iter_unpack("<BBBBIQQq", block.meta))
        self.raw, self.at = block.raw, 0

    def node(self) -> tuple[int, int, int, int, int, int]:
        encoding, flags, width, reserved, children, length, nulls, param = self.nodes.pop(0)
        assert reserved == 0
        assert children == CHILDREN.get(encoding, children)
        assert width == 0 or encoding in (3, 13)
        assert param == 0 or encoding in (1, 2, 3, 6, 10, 11, 12, 13, 14)
        return encoding, flags, width, length, nulls, param

    def buffer(self, size: int) -> bytes:
        data = self.raw[self.at : self.at + size]
        assert len(data) == size
        self.at += size + -size % 8
        return data


def decode(block: Block, dtype: dict[str, Any]) -> list[Any]:
    cursor = Cursor(block)
    values = node_values(cursor, dtype)
    assert cursor.at == len(block.raw)
    assert not cursor.nodes
    assert len(values) == block.rows
    return values


def bits(data: bytes, length: int) -> list[bool]:
    return [bool(data[i // 8] >> (i % 8) & 1) for i in range(length)]


def bit_fields(data: bytes, count: int, width: int) -> list[int]:
    everything = int.from_bytes(data, "little")
    return [everything >> index * width & (1 << width) - 1 for index in range(count)]


def integers(cursor: Cursor) -> list[int]:
    encoding, flags, width, length, _, param = cursor.node()
    assert flags == 0
    return signed_list(int_body(cursor, encoding, width, length, param))


def signed_list(values: list[int]) -> list[int]:
    return [v - (1 << 64) if v >> 63 else v for v in values]


def int_body(cursor: Cursor, encoding: int, width: int, length: int, param: int) -> list[int]:
    """Reads 64-bit patterns."""
    if encoding == 2:
        return [param & MASK] * length
    if encoding == 3:
        return unpacked(cursor, width, length, param)
    if encoding == 11:
        return [value * param & MASK for value in integers(cursor)]
    assert encoding == 4
    lengths, values = integers(cursor), integers(cursor)
    assert all(n >= 1 for n in lengths)
    return [value & MASK for n, value in zip(lengths, values, strict=True) for _ in range(n)]


def unpacked(cursor: Cursor, min_width: int, length: int, size: int) -> list[int]:
    entries = cursor.buffer(16 * -(-length // 1024))
    data = cursor.buffer(size)
    values: list[int] = []
    for at in range(0, len(entries), 16):
        count = min(1024, length - len(values))
        block, data = unpacked_block(entries[at : at + 16], data, min_width, count)
        values += block
    assert data == b""
    return values


def unpacked_block(
    entry: bytes, data: bytes, min_width: int, count: int
) -> tuple[list[int], bytes]:
    """Reads a block of packed integers. Returns what follows it, too."""
    base, width, kind, patches, patch_width, *reserved = struct.unpack("<QBBHB3B", entry)
    assert reserved == [0, 0, 0]
    assert min_width <= width
    block: list[int] = []
    if kind == 1:
        block.append(int.from_bytes(data[:8], "little"))
        data, count = data[8:], count - 1
    bits_size, patch_size = -(-count * width // 8), -(-patches * patch_width // 8)
    numbers = bit_fields(data[:bits_size], count, width)
    data = data[bits_size:]
    rows = struct.unpack(f"<{patches}H", data[: 2 * patches])
    data = data[2 * patches :]
    for row, upper in zip(rows, bit_fields(data[:patch_size], patches, patch_width), strict=True):
        numbers[row] += upper << width
    for number in numbers:
        block.append((block[-1] if kind == 1 else 0) + base + number & MASK)
    return block, data[patch_size:]


def node_values(cursor: Cursor, dtype: dict[str, Any]) -> list[Any]:
    encoding, flags, width, length, nulls, param = cursor.node()
    if encoding == 0:
        assert nulls == length
        return [None] * length
    valid = bits(cursor.buffer((length + 7) // 8), length) if flags & 1 else [True] * length
    assert valid.count(False) == nulls
    kind = dtype["kind"]
    if encoding == 5:
        codes, entries = integers(cursor), node_values(cursor, dtype)
        values = [entries[code] if ok else None for code, ok in zip(codes, valid, strict=True)]
    elif encoding == 10:
        digits, others = param & 255, param >> 8
        assert (kind, digits <= 15) == ("float64", True)
        rows = struct.unpack(f"<{others}I", cursor.buffer(4 * others))
        exact = struct.unpack(f"<{others}d", cursor.buffer(8 * others))
        values = [value / 10.0**digits for value in integers(cursor)]
        for row, value in zip(rows, exact, strict=True):
            values[row] = value
    elif encoding in (2, 3, 4, 11):
        values = [from_pattern(v, dtype) for v in int_body(cursor, encoding, width, length, param)]
    elif encoding == 1:
        values = plain(cursor, kind, dtype, length, param)
    elif encoding == 6:
        data, lengths = cursor.buffer(param), integers(cursor)
        values = texts(pieces(data, lengths), kind, valid)
    elif encoding == 7:
        counts = integers(cursor)
        fields = [dtype["key"], dtype["value"]] if kind == "map" else None
        entry = {"kind": "struct", "fields": fields} if fields else storage(dtype["item"]["type"])
        values = list(pieces(node_values(cursor, entry), counts))
    elif encoding == 8:
        items = node_values(cursor, storage(dtype["item"]["type"]))
        values = list(pieces(items, [dtype["size"]] * length))
    elif encoding == 12:
        assert kind in ("string", "large_string")
        values = list(templated(cursor, dtype, valid, param))
    elif encoding == 13:
        data, lengths = by_letters(cursor, kind, width, param), integers(cursor)
        values = texts(pieces(data, lengths), kind, valid)
    elif encoding == 14:
        values = texts(by_vocabulary(cursor, param), kind, valid)
    else:
        assert encoding == 9
        columns = [node_values(cursor, storage(f["type"])) for f in dtype["fields"]]
        values = [tuple(row) for row in zip(*columns, strict=True)]
    return [value if ok else None for value, ok in zip(values, valid, strict=True)]


def by_letters(cursor: Cursor, kind: str, width: int, count: int) -> bytes:
    assert 1 <= width <= 6
    assert count >= 0
    data, alphabet = cursor.buffer(-(-count * width // 8)), cursor.buffer(2**width)
    alphabet = alphabet[:1] + alphabet[1:].rstrip(b"\0")
    assert list(alphabet) == sorted(set(alphabet))
    groups = (bit_fields(data[at : at + width], 8, width) for at in range(0, len(data), width))
    places = [place for group in groups for place in group]
    assert not any(places[count:])
    letters = iter([alphabet[place : place + 1] for place in places[:count]])
    encoding, *_, size = cursor.nodes[0]
    assert (encoding, size) == (1, 1)
    frame = node_values(cursor, {"kind": "fixed_size_binary", "byte_width": 1})
    if kind in ("string", "large_string"):
        assert b"".join([alphabet, *filter(None, frame)]).isascii()
    if not frame:
        return b"".join(letters)
    assert len(frame) <= 1024
    assert None in frame
    rows, left = divmod(count, frame.count(None))
    assert left == 0
    return b"".join(next(letters) if byte is None else byte for byte in frame * rows)


def by_vocabulary(cursor: Cursor, count: int) -> Iterator[bytes]:
    assert count >= 0
    numbers = struct.unpack(f"<{count}H", cursor.buffer(2 * count))
    encoding, *_, size = cursor.nodes[0]
    assert encoding == 6
    assert size <= 60_436
    words = node_values(cursor, {"kind": "binary"})
    assert all(word is not None and 1 <= len(word) <= 16 for word in words)
    symbols = dict(enumerate([*(bytes([byte]) for byte in range(256)), *words]))
    symbols |= {60_692 + n: b"%03d" % n for n in range(1000)}
    pairs = product([c.encode() for c in digits + ascii_uppercase + ascii_lowercase], repeat=2)
    symbols |= {61_692 + n: b"".join(pair) for n, pair in enumerate(pairs)}
    return (b"".join(symbols[n] for n in row) for row in pieces(numbers, integers(cursor)))


def templated(
    cursor: Cursor, dtype: dict[str, Any], valid: list[bool], size: int
) -> Iterator[str | None]:
    before = cursor.at - (-(-len(valid) // 64) * 8 if not all(valid) else 0)
    templates, codes = node_values(cursor, dtype), integers(cursor)
    alphabets = integers(cursor)
    assert cursor.at - before == size
    numbers, texts = (
        b"".join(node_values(cursor, {"kind": "fixed_size_binary", "byte_width": 1}))
        for _ in range(2)
    )
    for code, ok in zip(codes, valid, strict=True):
        if not ok:
            yield None
            continue
        value = ""
        for letter in templates[code]:
            if letter == "\x11":
                number, numbers = varint(numbers)
                letter = digits_of(number)
            elif letter in "\x12\x13":
                size, texts = varint(texts)
                assert size <= len(texts)
                letter, texts = texts[:size].decode(), texts[size:]
            value += letter
        yield value
    assert numbers == texts == b""
    assert len(alphabets) == sum(
        template.count("\x12") + template.count("\x13") for template in templates
    )


def varint(data: bytes) -> tuple[int, bytes]:
    """Reads a number of seven bits a byte. Returns what follows it, too."""
    size = next(n for n, byte in enumerate(data) if byte < 0x80) + 1
    return sum((byte & 0x7F) << 7 * n for n, byte in enumerate(data[:size])), data[size:]


def digits_of(number: int) -> str:
    length = max(n for n in range(1, 21) if number >= (10**n - 10) // 9)
    assert length <= 19
    return f"{number - (10**length - 10) // 9:0{length}d}"


def pieces(data: Any, lengths: list[int]) -> Any:
    at = 0
    for length in lengths:
        yield data[at : at + length]
        at += length
    assert at == len(data)


def texts(found: Iterator[bytes], kind: str, valid: list[bool]) -> list[str | bytes | None]:
    """Bytes in null places may be anything."""
    is_text = kind in ("string", "large_string")
    rows = zip(found, valid, strict=True)
    return [(data.decode() if is_text else data) if ok else None for data, ok in rows]


def from_pattern(pattern: int, dtype: dict[str, Any]) -> Any:
    kind = dtype["kind"]
    if kind == "decimal128":
        return scaled(pattern - (1 << 64) if pattern >> 63 else pattern, dtype)
    if kind in FLOATS:
        size = struct.calcsize(FLOATS[kind])
        low = pattern & (1 << 8 * size) - 1
        if low >> 8 * size - 1:
            low ^= (1 << 8 * size - 1) - 1
        return struct.unpack(FLOATS[kind], low.to_bytes(size, "little"))[0]
    width, is_signed = INT_KINDS[kind]
    value = pattern & ((1 << width) - 1)
    value = value - (1 << width) if is_signed and value >> (width - 1) else value
    return scaled(value, dtype) if kind.startswith("decimal") else value


def scaled(unscaled: int, dtype: dict[str, Any]) -> decimal.Decimal:
    return decimal.Decimal(unscaled).scaleb(-dtype["scale"], decimal.Context(prec=100))


def plain(cursor: Cursor, kind: str, dtype: dict[str, Any], length: int, width: int) -> list[Any]:
    if kind == "bool":
        assert width == 0
        return list(bits(cursor.buffer((length + 7) // 8), length))
    if width == 0:
        return [b""] * length
    data = cursor.buffer(length * width)
    stored = [data[at : at + width] for at in range(0, length * width, width)]
    if kind in FLOATS:
        return [struct.unpack(FLOATS[kind], value)[0] for value in stored]
    if kind in INT_KINDS and not kind.startswith("decimal"):
        return [int.from_bytes(value, "little", signed=INT_KINDS[kind][1]) for value in stored]
    if kind.startswith("decimal"):
        return [scaled(int.from_bytes(value, "little", signed=True), dtype) for value in stored]
    return list(stored)


def mix(x: int) -> int:
    for _ in range(2):
        x ^= x >> 32
        x = x * 0xD6E8FEB86659FD93 & MASK
    return x ^ x >> 32


def hash_value(value: Any, dtype: dict[str, Any]) -> int:
    kind = dtype["kind"]
    if value is None:
        return 0
    if kind in ("list", "large_list", "fixed_size_list", "map"):
        item = (
            {
                "kind": "struct",
                "fields": [{**dtype["key"], "name": "key"}, {**dtype["value"], "name": "value"}],
            }
            if kind == "map"
            else storage(dtype["item"]["type"])
        )
        total = len(value) * 0x9E3779B97F4A7C15
        for j, element in enumerate(value):
            if element is not None:
                place = (j + 1) * 0xC2B2AE3D27D4EB4F
                total += mix((hash_value(element, item) + place) & MASK)
        return total & MASK
    if kind == "struct":
        total = 1
        for field, element in zip(dtype["fields"], value, strict=True):
            if element is not None:
                total += mix(
                    hash_value(element, storage(field["type"])) ^ xxh3(field["name"].encode())
                )
        return total & MASK
    if isinstance(value, float):
        if value != value:
            return 0x7FF8000000000000
        return int(struct.unpack("<Q", struct.pack("<d", value))[0])
    if isinstance(value, decimal.Decimal):
        unscaled = int(value.scaleb(dtype["scale"], decimal.Context(prec=100)))
        return xxh3(unscaled.to_bytes(32, "little", signed=True))
    if isinstance(value, str | bytes):
        return xxh3(value.encode() if isinstance(value, str) else value)
    return int(value) & MASK

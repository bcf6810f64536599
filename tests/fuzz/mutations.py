"""What is done to a file: to its bytes as they lie, or to its parts with checksums made anew.

Every mutation is a function of a random number generator and of what it changes, so that a seed and a number
give the same input anywhere.
"""

from __future__ import annotations

import contextlib
import copy
import json
import random
import struct
from collections.abc import Callable, Sequence
from typing import Any

import zstandard
from msgspec.structs import replace

from lsm_fragment.encodings.node import Encoding
from tests.fuzz.anatomy import NODE, Anatomy, RawBlock, parts_of, payload_of, table_bytes

NUMBERS: Sequence[int] = (
    0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 63, 64, 127, 128, 255, 256, 257, 1000, 4096, 65535, 65536,
    2**20, 2**24, 2**26, 2**27, 2**27 + 1, 2**28, 2**30, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**33, 2**40,
    2**53, 2**53 + 1, 2**61, 2**63 - 1, 2**63, 2**64 - 1, 2**64 - 8,
)  # fmt: skip
KINDS = b"HKCDSF"


# --- bytes as they lie ----------------------------------------------------------------------


def damaged(rng: random.Random, data: bytes) -> bytes:
    """A file with one to a few faults of storage or transfer: nothing is made to match."""
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        data = rng.choice(DAMAGES)(rng, data)
    return data


def _truncated(rng: random.Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _flipped(rng: random.Random, data: bytes) -> bytes:
    if not data:
        return data
    changed = bytearray(data)
    changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _substituted(rng: random.Random, data: bytes) -> bytes:
    if not data:
        return data
    changed = bytearray(data)
    changed[rng.randrange(len(data))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    return bytes(changed)


def _overwritten(rng: random.Random, data: bytes) -> bytes:
    """A number where a length may be."""
    if len(data) < 8:
        return data
    at, width = rng.randrange(len(data) - 7), rng.choice((2, 4, 8))
    number = rng.choice(NUMBERS) & ((1 << (8 * width)) - 1)
    return data[:at] + number.to_bytes(width, "little") + data[at + width :]


def _zeroed(rng: random.Random, data: bytes) -> bytes:
    start, stop = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    return data[:start] + bytes(stop - start) + data[stop:]


def _cut_out(rng: random.Random, data: bytes) -> bytes:
    start, stop = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    return data[:start] + data[stop:]


def _doubled(rng: random.Random, data: bytes) -> bytes:
    start, stop = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    return data[:stop] + data[start:]


def _lengthened(rng: random.Random, data: bytes) -> bytes:
    return data + rng.choice((b"\0", bytes(24), bytes(4096), data, data[-24:]))


DAMAGES: Sequence[Callable[[random.Random, bytes], bytes]] = (
    _truncated, _flipped, _flipped, _flipped, _substituted, _substituted, _overwritten, _zeroed, _cut_out,
    _doubled, _lengthened,
)  # fmt: skip


# --- fragments with checksums that match ------------------------------------------------------


def forged(rng: random.Random, data: bytes) -> bytes:
    """A fragment that lies: some of its parts changed, all checksums true."""
    anatomy = Anatomy.of(data)
    anatomy.is_linked = rng.random() < 0.8
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        # What an earlier one has made unreadable may be too odd for the next.
        with contextlib.suppress(ValueError, OverflowError, RecursionError):
            rng.choice(FORGERIES)(rng, anatomy)
    return anatomy.to_bytes()


def _pick(rng: random.Random, anatomy: Anatomy, kinds: bytes = KINDS) -> int | None:
    places = [at for at, block in enumerate(anatomy.blocks) if block.kind in kinds]
    return rng.choice(places) if places else None


def number(rng: random.Random, old: int) -> int:
    """Another number, often near the old one."""
    if rng.random() < 0.5:
        return max(0, old + rng.choice((-8, -2, -1, 1, 2, 8)))
    return rng.choice(
        (*NUMBERS, 2 * old, old // 2, old + 1, rng.randrange(1 << rng.randrange(1, 64)))
    )


def _lie_in_head(rng: random.Random, anatomy: Anatomy) -> None:
    at = _pick(rng, anatomy)
    if at is None:
        return
    block = anatomy.blocks[at]
    match rng.randrange(7):
        case 0:
            block = replace(block, kind=rng.choice((*KINDS, 0, 255)))
        case 1:
            block = replace(block, codec=rng.choice((0, 1, 2)))
        case 2:
            block = replace(block, rows=number(rng, block.rows) & 0xFFFFFFFF)
        case 3:
            block = replace(block, raw_bytes=number(rng, block.raw_bytes) & (2**64 - 1))
        case 4:
            block = replace(block, stored_bytes=number(rng, len(block.stored)) & (2**64 - 1))
        case 5:
            block = replace(block, meta_bytes=number(rng, len(block.meta)) & 0xFFFFFFFF)
        case _:
            block = replace(block, reserved=rng.randrange(1, 65536))
    anatomy.blocks[at] = block


def _lie_in_node(rng: random.Random, anatomy: Anatomy) -> None:
    at = _pick(rng, anatomy, b"KD")
    if at is not None and anatomy.blocks[at].meta:
        anatomy.blocks[at] = lying_node(rng, anatomy.blocks[at])


def lying_node(rng: random.Random, block: RawBlock) -> RawBlock:
    """A chunk of which a node of the encoding tree is changed."""
    nodes = [list(node) for node in NODE.iter_unpack(block.meta)]
    for _ in range(rng.choice((1, 1, 2, 3))):
        node = rng.choice(nodes)
        match rng.randrange(10):
            case 0:
                node[0] = rng.randrange(len(Encoding))
            case 1:
                node[1] ^= 1 << rng.randrange(3)
            case 2:
                node[2] = rng.choice((0, 1, 2, 3, 4, 8, 16, 255))
            case 3:
                node[3] = rng.randrange(256)
            case 4:
                node[4] = rng.choice((0, 1, 2, 3, 2**32 - 1))
            case 5 | 6:
                node[5] = number(rng, node[5]) & (2**64 - 1)
            case 7:
                node[6] = number(rng, node[6]) & (2**64 - 1)
            case _:
                node[7] = _signed(number(rng, node[7] & (2**64 - 1)))
    return replace(block, meta=b"".join(NODE.pack(*node) for node in nodes))


def _signed(value: int) -> int:
    value &= 2**64 - 1
    return value - 2**64 if value >> 63 else value


def _rearrange_nodes(rng: random.Random, anatomy: Anatomy) -> None:
    at = _pick(rng, anatomy, b"KD")
    if at is None or not anatomy.blocks[at].meta:
        return
    block = anatomy.blocks[at]
    nodes = [block.meta[i : i + NODE.size] for i in range(0, len(block.meta), NODE.size)]
    match rng.randrange(3):
        case 0:
            nodes.insert(rng.randrange(len(nodes) + 1), rng.choice(nodes))
        case 1:
            nodes.pop(rng.randrange(len(nodes)))
        case _:
            rng.shuffle(nodes)
    anatomy.blocks[at] = replace(block, meta=b"".join(nodes))


def _another_tree(rng: random.Random, anatomy: Anatomy) -> None:
    """A chunk that is made up: any encodings, lengths that agree or nearly do, any bytes."""
    at = _pick(rng, anatomy, b"KD")
    if at is None:
        return
    block = anatomy.blocks[at]
    rows = rng.choice((block.rows, block.rows, block.rows, 65536))
    meta, raw = made_up_tree(rng, rows, 0)
    padded = raw[: rng.choice((len(raw), len(raw), 8))]
    anatomy.blocks[at] = replace(block, meta=meta, codec=0).with_raw(padded)


def made_up_tree(rng: random.Random, length: int, depth: int) -> tuple[bytes, bytes]:
    """Returns nodes and buffers of a chunk with `length` values."""
    encoding = rng.choice(
        (0, 1, 2, 2, 3, 4, 5, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14) if depth < 3 else (0, 1, 2)
    )
    small = min(length, 64)
    nulls, flags, width, children, param = 0, 0, 0, 0, 0
    buffers, parts = b"", []
    if encoding == 0:
        nulls = length
    elif encoding in (1, 2, 5, 6, 7, 8, 9, 12, 13, 14) and rng.random() < 0.3:
        bitmap = _random_bytes(rng, -(-small // 8))
        flags, nulls = 1, rng.choice((1, 2, length - _ones(bitmap, small)))
        buffers += bitmap + bytes(-len(bitmap) % 8)
    match encoding:
        case 1:
            param = rng.choice((0, 1, 2, 4, 8, 16))
            flags |= 2 * (rng.random() < 0.2)
            buffers += _random_bytes(rng, small * param or -(-small // 8))
        case 2:
            width, param = rng.choice((0, 0, 1, 2, 4, 8)), rng.choice((0, 0, 1, -1, 2**20, 2**40))
            buffers += _random_bytes(rng, small * width)
        case 3:
            parts = [made_up_tree(rng, max(0, length - 1), depth + 2)]
        case 4:
            runs = rng.choice((1, 1, 2, length))
            parts = [_ints(rng, runs, length), made_up_tree(rng, runs, depth + 2)]
        case 5:
            values = rng.choice((1, 1, 2, length))
            parts = [_ints(rng, length, 0), made_up_tree(rng, values, depth + 1)]
        case 6:
            param = rng.choice((length, 8 * length, 3))
            buffers += _random_bytes(rng, min(param, 512))
            parts = [_ints(rng, length, rng.choice((1, 8, 0)))]
        case 7:
            items = rng.choice((0, 1, 3, 2**16, 2**20, 2**24, 2**27))
            parts = [_ints(rng, length, items), made_up_tree(rng, items * length, depth + 1)]
        case 8:
            parts = [made_up_tree(rng, length * rng.choice((1, 2)), depth + 1)]
        case 9:
            parts = [made_up_tree(rng, length, depth + 1) for _ in range(rng.choice((1, 2)))]
        case 10:
            param = rng.randrange(17)
            parts = [made_up_tree(rng, length, depth + 2)]
        case 11:
            param = rng.choice((1, 3, -1, 2**40, 2**63 - 1))
            parts = [_ints(rng, length, rng.choice((0, 1, 2**40)))]
        case 12:
            slots = rng.randrange(4)
            head = [
                _texts(rng, [b"a\x11b", b"\x12", b"\x13 a", b"", b"\x11\x12"][: slots + 1]),
                _ints(rng, length, rng.choice((0, 0, slots, 2**20))),
                _ints(
                    rng, rng.choice((slots // 2, 0, 1, 2**20)), rng.choice((0, 1 << 51, 2**64 - 1))
                ),
            ]
            param = len(buffers) + sum(len(raw) for _, raw in head) + rng.choice((0, 0, 0, 8, -1))
            parts = [
                *head,
                _variables(rng, rng.choice((b"\x07", b"\xff\x01", b"\xff" * 9 + b"\x01")), length),
                _variables(
                    rng, rng.choice((b"\x02a1", b"\x00", b"\x81\x01", b"\x02\xc3\xa9")), length
                ),
            ]
        case 13:
            param, width = (
                rng.choice((length, 8 * length, 3)),
                rng.choice((1, 4, 5, 6, 6, 0, 7, 255)),
            )
            codes = _random_bytes(rng, min(-(-param * width // 8), 512))
            alphabet = rng.choice((bytes(range(32, 96)), b"\0\1\2\3", b"\0\xff", b"ba", b"a\0b"))
            size = 1 << min(width, 6)
            buffers += codes + bytes(-len(codes) % 8)
            buffers += alphabet[:size].ljust(size, b"\0")
            parts = [_frame(rng), _ints(rng, length, rng.choice((1, 8, 0)))]
        case 14:
            words = [b"of ", b"\xc3\xa9t\xc3\xa9 ", b"x" * 16, b"\xc3"][: rng.randrange(5)]
            each = rng.choice((0, 1, 1, 2))
            param = rng.choice((each * length, each * length, 3))
            symbols = (97, 0xA9, 60_692, 65_535, *range(256, 256 + len(words)))
            numbers = rng.choices(symbols, k=min(param, 256))
            if numbers and rng.random() < 0.2:
                numbers[-1] = rng.choice((256 + len(words), 60_691, rng.randrange(65_536)))
            buffers += struct.pack(f"<{len(numbers)}H", *numbers)
            parts = [_texts(rng, words), _ints(rng, length, each)]
    children = len(parts)
    node = NODE.pack(
        encoding, flags, width, 0, children, length % 2**64, nulls % 2**64, _signed(param)
    )
    buffers += bytes(-len(buffers) % 8)
    return node + b"".join(m for m, _ in parts), buffers + b"".join(r for _, r in parts)


def _variables(rng: random.Random, value: bytes, length: int) -> tuple[bytes, bytes]:
    """The same variable for each row, or for some, or any bytes."""
    data = value * rng.choice((min(length, 512), rng.randrange(9)))
    if rng.random() < 0.2:
        data = _random_bytes(rng, 24)
    node = NODE.pack(1, 0, 0, 0, 0, len(data), 0, rng.choice((1, 1, 1, 2)))
    return node, data + bytes(-len(data) % 8)


def _frame(rng: random.Random) -> tuple[bytes, bytes]:
    """No frame, or one of any bytes and some or other letters."""
    size = rng.choice((0, 0, 1, 8, 9, 1024, 1025))
    bitmap = _random_bytes(rng, -(-size // 8))
    nulls = size - _ones(bitmap, size)
    node = NODE.pack(1, nulls > 0, 0, 0, 0, size, nulls, 1)
    parts = [bitmap] * (nulls > 0) + [_random_bytes(rng, size)]
    return node, b"".join(part + bytes(-len(part) % 8) for part in parts)


def _ones(bitmap: bytes, size: int) -> int:
    return sum(bitmap[place // 8] >> place % 8 & 1 for place in range(size))


def _texts(rng: random.Random, values: list[bytes]) -> tuple[bytes, bytes]:
    """Strings of any bytes, or of those that are given."""
    data = b"".join(values) if rng.random() < 0.8 else _random_bytes(rng, 24)
    lengths = NODE.pack(3, 0, 0, 0, 0, len(values), 0, len(values))
    node = NODE.pack(6, 0, 0, 0, 1, len(values), 0, len(data))
    entry = struct.pack("<QBBHB3x", 0, 8, 0, 0, 0)
    packed = bytes(min(len(value), 255) for value in values)
    buffers = b"".join(part + bytes(-len(part) % 8) for part in (data, entry, packed))
    return node + lengths, buffers


def _ints(rng: random.Random, length: int, value: int) -> tuple[bytes, bytes]:
    return NODE.pack(2, 0, 0, 0, 0, length % 2**64, 0, _signed(value)), b""


def _random_bytes(rng: random.Random, size: int) -> bytes:
    match rng.randrange(3):
        case 0:
            return bytes(size)
        case 1:
            return bytes(rng.choice((1, 2, 3)) for _ in range(size))
        case _:
            return rng.randbytes(size)


def _change_payload(rng: random.Random, anatomy: Anatomy) -> None:
    at = _pick(rng, anatomy)
    if at is not None:
        block = anatomy.blocks[at]
        anatomy.blocks[at] = block.with_raw(damaged(rng, block.raw()))


def _lie_in_parts(rng: random.Random, anatomy: Anatomy) -> None:
    """Tables of parts that lie about their number, lengths or checksums, and parts that are not theirs."""
    places = [at for at, block in enumerate(anatomy.blocks) if block.codec == 2]
    if not places:
        return
    at = rng.choice(places)
    block = anatomy.blocks[at]
    stored, parts = bytearray(block.stored), parts_of(block.stored)
    match rng.randrange(4):
        case 0:
            place = 8 * rng.randrange(table_bytes(block.stored) // 8)
            old = int.from_bytes(stored[place : place + 8], "little")
            stored[place : place + 8] = (number(rng, old) & (2**64 - 1)).to_bytes(8, "little")
        case 1:
            stored[rng.randrange(table_bytes(block.stored), len(stored))] ^= 1 << rng.randrange(8)
        case 2:
            rng.shuffle(parts)
            stored[:] = payload_of(parts)
        case _:
            cut = rng.randrange(len(parts[0]))
            stored[:] = payload_of([parts[0][:cut], parts[0][cut:], *parts[1:]])
    anatomy.blocks[at] = replace(block, stored=bytes(stored))


def _forge_frame(rng: random.Random, anatomy: Anatomy) -> None:
    """zstd frames that lie about their content, hold none, two, or far more than there is."""
    at = _pick(rng, anatomy)
    if at is None:
        return
    anatomy.blocks[at] = lying_frame(rng, anatomy.blocks[at])


def lying_frame(rng: random.Random, block: RawBlock) -> RawBlock:
    raw = block.raw()
    plain = zstandard.ZstdCompressor(write_content_size=False).compress(raw)
    match rng.randrange(6):
        case 0:
            stored = plain
        case 1:
            stored = zstandard.compress(raw) * 2
        case 2:
            stored = damaged(rng, zstandard.compress(raw))
        case 3:
            size = rng.choice((1 << 20, 17 << 20, 300 << 20))
            return replace(block, codec=1, stored=_bomb(size), raw_bytes=size)
        case 4:
            size = rng.choice((1 << 20, 17 << 20))
            return replace(
                block, codec=1, stored=_bomb(size), raw_bytes=rng.choice((len(raw), 2**40))
            )
        case _:
            stored = b"\x50\x2a\x4d\x18" + struct.pack("<I", 8) + bytes(8) + zstandard.compress(raw)
    return replace(block, codec=1, stored=stored)


_bombs: dict[int, bytes] = {}


def _bomb(size: int) -> bytes:
    if size not in _bombs:
        compressor = zstandard.ZstdCompressor(level=1)
        parts = compressor.compressobj(size=size)
        step = bytes(1 << 20)
        pieces = [parts.compress(step) for _ in range(size >> 20)]
        _bombs[size] = b"".join([*pieces, parts.flush()])
    return _bombs[size]


def _shuffle_blocks(rng: random.Random, anatomy: Anatomy) -> None:
    blocks = anatomy.blocks
    if not blocks:
        return
    a, b = rng.randrange(len(blocks)), rng.randrange(len(blocks))
    match rng.randrange(4):
        case 0:
            blocks[a], blocks[b] = blocks[b], blocks[a]
        case 1:
            blocks.insert(b, blocks[a])
        case 2:
            blocks.pop(a)
        case _:
            # Only the payloads change places: kinds and rows stay where they belong.
            one, other = blocks[a], blocks[b]
            blocks[a] = replace(other, kind=one.kind, rows=one.rows)
            blocks[b] = replace(one, kind=other.kind, rows=other.rows)


def _edit_header(rng: random.Random, anatomy: Anatomy) -> None:
    _edit_json(rng, anatomy, b"H")


def narrow_decimals(rng: random.Random, anatomy: Anatomy) -> None:
    """The header gives decimals fewer digits than their values have, or another scale."""
    at = _pick(rng, anatomy, b"H")
    if at is None:
        return
    block = anatomy.blocks[at]
    document = json.loads(block.raw())
    places = [(holder, key) for holder, key in _places(document) if key in ("precision", "scale")]
    for holder, key in places:
        holder[key] = rng.choice((1, 2)) if key == "precision" else rng.choice((-3, 0, 2, 50))
    anatomy.blocks[at] = block.with_raw(json.dumps(document).encode())


def _edit_footer(rng: random.Random, anatomy: Anatomy) -> None:
    seed = rng.randrange(2**32)
    anatomy.edit_footer.append(lambda footer: _edit_value(random.Random(seed), footer))


def _change_footer(rng: random.Random, anatomy: Anatomy) -> None:
    """Bytes of pages or the directory, in which one number after the other counts something."""
    at = _pick(rng, anatomy, b"SF")
    if at is not None:
        anatomy.is_linked = False
        block = anatomy.blocks[at]
        change = rng.choice((_flipped, _substituted, _overwritten, damaged))
        anatomy.blocks[at] = block.with_raw(change(rng, block.raw()))


def _add_ancillary(rng: random.Random, anatomy: Anatomy) -> None:
    """A block that readers skip where it may be, and refuse elsewhere."""
    kind = rng.choice((*b"az", *b"AZ", 0x60, 0x7B))
    data = rng.randbytes(rng.choice((0, 1, 100)))
    block = RawBlock(
        kind=kind,
        codec=rng.choice((0, 1, 7)),
        rows=rng.choice((0, 3)),
        meta=b"",
        stored=data,
        raw_bytes=len(data),
    )
    anatomy.blocks.insert(rng.randrange(len(anatomy.blocks) + 1), block)


def _edit_json(rng: random.Random, anatomy: Anatomy, kind: bytes) -> None:
    at = _pick(rng, anatomy, kind)
    if at is None:
        return
    block = anatomy.blocks[at]
    anatomy.blocks[at] = block.with_raw(forged_json(rng, block.raw()))


def _lie_in_trailer(rng: random.Random, anatomy: Anatomy) -> None:
    match rng.randrange(5):
        case 0:
            anatomy.footer_offset = rng.choice(NUMBERS)
        case 1:
            anatomy.total_bytes = rng.choice(NUMBERS)
        case 2:
            anatomy.tail = rng.choice((b"\0", bytes(24), b"LSMF"))
        case 3:
            anatomy.version = rng.choice((0, 1, 2, 3, 65535))
        case _:
            anatomy.tail_version = rng.choice((0, 2, 65535))


FORGERIES: Sequence[Callable[[random.Random, Anatomy], None]] = (
    _lie_in_head, _lie_in_node, _lie_in_node, _lie_in_node, _rearrange_nodes, _another_tree, _another_tree,
    _change_payload, _change_payload, _forge_frame, _lie_in_parts, _shuffle_blocks, narrow_decimals,
    _edit_header, _edit_header, _edit_footer, _edit_footer, _change_footer, _change_footer, _add_ancillary,
    _lie_in_trailer,
)  # fmt: skip


# --- JSON -------------------------------------------------------------------------------------

_ITEM = {"name": "i", "type": {"kind": "int64"}, "nullable": True}
TYPES: Sequence[Any] = (
    {"kind": "int64"}, {"kind": "string"}, {"kind": "null"}, {"kind": "bool"}, {"kind": "binary"},
    {"kind": "float64"}, {"kind": "float16"}, {"kind": "decimal128", "precision": 38, "scale": 2},
    {"kind": "decimal128", "precision": 99, "scale": 2}, {"kind": "decimal256", "precision": 76, "scale": -5},
    {"kind": "fixed_size_binary", "byte_width": 2**31 - 1}, {"kind": "fixed_size_binary", "byte_width": -1},
    {"kind": "fixed_size_binary", "byte_width": 2**40}, {"kind": "fixed_size_binary", "byte_width": 0},
    *({"kind": "fixed_size_list", "item": _ITEM, "size": size} for size in (2**31 - 1, 0, -1)),
    {"kind": "list", "item": {"name": "i", "type": {"kind": "string"}, "nullable": True}},
    {"kind": "map", "key": {"name": "key", "type": {"kind": "string"}, "nullable": False},
     "value": {"name": "value", "type": {"kind": "int64"}, "nullable": True}, "keys_sorted": False},
    {"kind": "map", "key": {"name": "key", "type": {"kind": "string"}, "nullable": True},
     "value": {"name": "value", "type": {"kind": "int64"}, "nullable": True}, "keys_sorted": 7},
    {"kind": "struct", "fields": []}, {"kind": "timestamp", "unit": "ns", "timezone": "No/Where"},
    {"kind": "timestamp", "unit": "years", "timezone": None}, {"kind": "time32", "unit": "ns"},
    {"kind": "dictionary", "index": {"kind": "int8"}, "value": {"kind": "string"}, "ordered": False},
    {"kind": "dictionary", "index": {"kind": "float64"}, "value": {"kind": "string"}, "ordered": False},
    {"kind": "dictionary", "index": {"kind": "int8"}, "ordered": None, "value": {"kind": "dictionary",
     "index": {"kind": "int8"}, "value": {"kind": "string"}, "ordered": True}},
    {"kind": "extension", "name": "arrow.json", "serialized": "", "storage": {"kind": "int8"}},
    {"kind": "extension", "name": "arrow.uuid", "serialized": "AA==",
     "storage": {"kind": "fixed_size_binary", "byte_width": 16}},
    {"kind": "extension", "name": "arrow.fixed_shape_tensor", "serialized": "e30=",
     "storage": {"kind": "int8"}},
    {"kind": "extension", "name": "\u0000", "serialized": "!", "storage": {"kind": "null"}},
    {"kind": "month_day_nano_interval"}, {"kind": "string_view"}, {"kind": []}, {"kind": "union"},
    {"kind": "large_list_view", "item": {"name": "", "type": {"kind": "binary_view"}, "nullable": False}},
)  # fmt: skip
_ODD: Sequence[Any] = (
    None, True, False, 0, 1, -1, 2**31, 2**53 + 1, 2**63, 2**64, -(2**70), 10**400, 0.5, 1e308, float("nan"),
    float("inf"), "", "0", "ffff", "ffffffffffffffff", "g" * 16, "NaN", "asc", "none", "\x00", "\ud800",
    "🦆", "a" * 300, [], [[]], {}, {"kind": "int64"}, [0, 0], [None],
)  # fmt: skip


def forged_json(rng: random.Random, raw: bytes) -> bytes:
    """A JSON text with values changed, or one that is hardly JSON."""
    match rng.randrange(12):
        case 0:
            return damaged(rng, raw)
        case 1:
            depth = rng.choice((50, 500, 5000, 100_000))
            opening, closing = rng.choice(((b"[", b"]"), (b'{"a":', b"}")))
            return opening * depth + b"1" + closing * (depth if rng.random() < 0.5 else 0)
        case 2:
            return _doubled_member(rng, raw)
        case 3:
            return _nested_type(rng, raw)
        case _:
            document = json.loads(raw)
            for _ in range(rng.choice((1, 1, 2, 4))):
                _edit_value(rng, document)
            return json.dumps(document, ensure_ascii=rng.random() < 0.5).encode(
                errors="surrogatepass"
            )


HUGE: Sequence[Any] = (
    65, 10**6, 10**9, 2**31, 2**32, 2**40, 2**50, 2**53, 2**62, 2**63 - 1, 2**63, 2**64, 10**25, 10**30,
    10**300, -1, -(2**63), -(10**30), 1e308,
)  # fmt: skip


def huge_numbers(rng: random.Random, raw: bytes) -> bytes:
    """A JSON text in which one number is, or some are, far from what they were."""
    document = json.loads(raw)
    places = [
        (holder, key) for holder, key in _places(document)
        if isinstance(holder[key], int | float) and not isinstance(holder[key], bool)
    ]  # fmt: skip
    for holder, key in rng.sample(places, min(len(places), rng.choice((1, 1, 2, 4)))):
        holder[key] = rng.choice(HUGE)
    return json.dumps(document).encode()


def _doubled_member(rng: random.Random, raw: bytes) -> bytes:
    places = [at for at in range(len(raw)) if raw[at : at + 1] == b"{"]
    if not places:
        return raw
    at = rng.choice(places) + 1
    name = rng.choice(
        (b"rows", b"name", b"type", b"kind", b"offset", b"schema", b"key", b"protocol")
    )
    value = rng.choice((b"0", b"null", b'"x"', b"[]", b"{}", b"1e400", b"-0", b"9" * 5000))
    return raw[:at] + b'"' + name + b'":' + value + b"," + raw[at:]


def _nested_type(rng: random.Random, raw: bytes) -> bytes:
    dtype: Any = {"kind": "int8"}
    depth = rng.choice((5, 40, 100, 300))
    for _ in range(depth):
        dtype = {"kind": "list", "item": {"name": "i", "type": dtype, "nullable": True}}
    document = json.loads(raw)
    places = [(holder, key) for holder, key in _places(document) if key == "type"]
    if not places:
        return raw
    holder, key = rng.choice(places)
    holder[key] = dtype
    return json.dumps(document).encode()


def _places(document: Any) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    todo = [document]
    while todo:
        value = todo.pop()
        keys: Any = ()
        if isinstance(value, dict):
            keys = list(value)
        elif isinstance(value, list):
            keys = range(len(value))
        found += [(value, key) for key in keys]
        todo += [value[key] for key in keys]
    return found


def _edit_value(rng: random.Random, document: Any) -> None:
    places = _places(document)
    if not places:
        return
    holder, key = rng.choice(places)
    old = holder[key]
    match rng.randrange(6):
        case 0:
            del holder[key]
        case 1:
            holder[key] = copy.deepcopy(rng.choice(_ODD))
        case 2 if key == "type":
            holder[key] = json.loads(json.dumps(rng.choice(TYPES)))
        case 2 | 3 if isinstance(old, int) and not isinstance(old, bool):
            holder[key] = number(rng, old)
        case 3 if isinstance(old, list) and old:
            old.append(old[0])
        case 4:
            other, place = rng.choice(places)
            if place in other if isinstance(other, dict) else place < len(other):
                holder[key] = json.loads(json.dumps(other[place]))
        case _:
            if isinstance(old, str):
                holder[key] = old[:-1] + rng.choice("aé0f=\ud800\x00")
            else:
                holder[key] = copy.deepcopy(rng.choice(_ODD))

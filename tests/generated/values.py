"""Random values of a type, as `tests.generated.bits` writes them: extremes, duplicates, common prefixes."""

from __future__ import annotations

import decimal
import random
from typing import Final

import pyarrow as pa
from pyarrow import types as pt

from tests.generated.bits import DAY, EXACT, NANOSECONDS, Value, float_of_bits

_FLOAT_BITS: Final = {
    16: (0, 0x8000, 0x3C00, 0x4000, 0x7C00, 0xFC00, 0x7E00, 0x7E01, 0xFE00, 1, 0x7BFF),
    32: (0, 1 << 31, 0x3F800000, 0x40000000, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7FC00001, 1, 0x7F7FFFFF),
    64: (0, 1 << 63, 0x3FF << 52, 1 << 62, 0x7FF << 52, 0xFFF << 52, 0x7FF8 << 48, (0x7FF8 << 48) + 1, 1),
}  # fmt: skip
_SENTINELS: Final = (
    -62_135_596_800, 253_402_214_400, 253_402_300_799, 253_402_300_800, -62_167_219_200, -62_167_219_201,
)  # fmt: skip
"""The first of year 1, the last of year 9999, and seconds around the years 0000 and 10000."""
_TEXTS: Final = (
    "", "", "a", "b", "ab", "ß", "日本", "\U0010ffff", "\x00", "true", "12", "1e400", "2024-01-01", " x ",
    '"', "a,b", "line\nbreak", "NaN", "null", "longer than twelve bytes", "\\", "%",
)  # fmt: skip
_BINARIES: Final = (
    b"",
    b"\x00",
    b"\x00\x00",
    b"\xff",
    b"\xff\xff",
    b"a",
    b"\xc3\x28",
    b"longer than twelve",
)


class Values:
    """Values of one column: few distinct ones, so that keys collide and dictionaries are worth something."""

    def __init__(
        self,
        rng: random.Random,
        *,
        null_share: float,
        extremes: float,
        distinct: int,
        prefix_seed: str = "",
        breaks_not_null: bool = False,
    ) -> None:
        """extremes: share of values at the ends of their type. prefix_seed: of what texts begin with.
        breaks_not_null: whether fields that say that they are never null are so all the same."""
        self._rng = rng
        self._null_share = null_share
        self._extremes = extremes
        self._distinct = distinct
        self._breaks = breaks_not_null
        start = random.Random(f"prefix {prefix_seed}")
        letters = start.choice((b"http://a.b/", b"x", b"\xff", b"\xff"))
        self._prefix = letters * start.choice((0, 0, 1, 6, 62, 63, 64, 65, 70, 130))

    def column(self, dtype: pa.DataType, rows: int, *, nullable: bool = True) -> list[Value]:
        """Returns values of a column."""
        pool = [self.value(dtype) for _ in range(min(rows, self._distinct))]
        share = self._null_share if nullable else 0.0
        return [None if self._rng.random() < share else self._rng.choice(pool) for _ in range(rows)]

    def value(self, dtype: pa.DataType, *, nullable: bool = False) -> Value:
        """Returns one value; null only of nullable fields, and of the null type."""
        rng = self._rng
        if pt.is_null(dtype) or (nullable and rng.random() < max(0.1, self._null_share)):
            return None
        if isinstance(dtype, pa.BaseExtensionType):
            if isinstance(dtype, pa.JsonType):
                return rng.choice((b"{}", b'{"a": [1, null]}', b'"text"', b"null", b"-0.0", b"[]"))
            return self.value(dtype.storage_type)
        if pt.is_dictionary(dtype):
            return self.value(dtype.value_type)
        if not pt.is_nested(dtype):
            return self._leaf(dtype)
        if pt.is_struct(dtype):
            return tuple(
                (f.name, self.value(f.type, nullable=f.nullable or self._breaks)) for f in dtype
            )
        if pt.is_map(dtype):
            keys = {self.value(dtype.key_type): None for _ in range(rng.choice((0, 1, 2, 3)))}
            item = dtype.item_field
            return tuple(
                (k, self.value(item.type, nullable=item.nullable or self._breaks)) for k in keys
            )
        is_fixed = pt.is_fixed_size_list(dtype)
        size = dtype.list_size if is_fixed else rng.choice((0, 0, 1, 2, 3, 5))
        item = dtype.value_field
        return tuple(
            self.value(item.type, nullable=item.nullable or self._breaks) for _ in range(size)
        )

    def _leaf(self, dtype: pa.DataType) -> Value:
        rng = self._rng
        if pt.is_boolean(dtype):
            return rng.random() < 0.5
        if pt.is_integer(dtype):
            bits, signed = dtype.bit_width, pt.is_signed_integer(dtype)
            return self._integer(-(1 << bits - 1) if signed else 0, (1 << bits - signed) - 1)
        if pt.is_floating(dtype):
            width = dtype.bit_width
            if rng.random() < 0.5:
                return float_of_bits(rng.choice(_FLOAT_BITS[width]), width)
            return float(rng.randint(-20, 20) / rng.choice((1, 2, 4))).hex()
        if pt.is_decimal(dtype):
            most = 10**dtype.precision - 1
            return decimal.Decimal(self._integer(-most, most)).scaleb(-dtype.scale, EXACT)
        if pt.is_interval(dtype):
            return (rng.randint(-3, 20), rng.randint(-3, 40), self._integer(-(2**63), 2**63 - 1))
        if pt.is_duration(dtype):
            return self._integer(-(2**63), 2**63 - 1)
        if pt.is_temporal(dtype):
            return self._time(dtype)
        if pt.is_fixed_size_binary(dtype):
            width = dtype.byte_width
            return rng.choice((bytes(width), b"\xff" * width, rng.randbytes(width), b"ab" * width))[
                :width
            ]
        if pt.is_string(dtype) or pt.is_large_string(dtype) or pt.is_string_view(dtype):
            return self._text()
        return self._prefix + rng.choice(_BINARIES) if rng.random() < 0.8 else rng.choice(_BINARIES)

    def _text(self) -> bytes:
        rng = self._rng
        prefix = self._prefix.replace(b"\xff", "\U0010ffff".encode()) if rng.random() < 0.8 else b""
        return prefix + rng.choice(_TEXTS).encode()

    def _integer(self, least: int, most: int) -> int:
        rng = self._rng
        if rng.random() < self._extremes:
            return rng.choice((least, most, max(least, most // 2), rng.randint(least, most)))
        return rng.randint(max(least, -9), min(most, 20))

    def _time(self, dtype: pa.DataType) -> int:
        rng = self._rng
        if pt.is_date32(dtype):
            return self._integer(-(2**31), 2**31 - 1) * DAY
        if pt.is_date64(dtype):
            return self._integer(-(2**63) // 86_400_000 + 1, 2**63 // 86_400_000 - 1) * DAY
        unit = NANOSECONDS[dtype.unit]
        if pt.is_time(dtype):
            return rng.choice((0, DAY // unit - 1, rng.randrange(DAY // unit))) * unit
        if dtype.unit != "ns" and rng.random() < self._extremes:
            return rng.choice(_SENTINELS) * 10**9 + rng.choice((0, 0, 10**9 - unit))
        near = 1_700_000_000 * 10**9 // unit
        around = near + rng.choice((0, 1, rng.randint(-9, 9), rng.randint(-near // 9, near // 9)))
        return (
            self._integer(-(2**63), 2**63 - 1) if rng.random() < self._extremes else around
        ) * unit

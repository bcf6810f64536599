"""Maps SQL type names to Arrow types."""

from __future__ import annotations

import re
from typing import Final

import pyarrow as pa

TYPES: Final = {
    "TINYINT": pa.int8(), "SMALLINT": pa.int16(), "INT": pa.int32(), "INTEGER": pa.int32(),
    "BIGINT": pa.int64(), "FLOAT": pa.float32(), "REAL": pa.float32(), "DOUBLE": pa.float64(),
    "TEXT": pa.string(), "VARCHAR": pa.string(), "STRING": pa.string(), "BOOLEAN": pa.bool_(),
    "DATE": pa.date32(), "TIME": pa.time64("us"), "TIMESTAMP": pa.timestamp("us"),
    "TIMESTAMPTZ": pa.timestamp("us", "UTC"), "TIMESTAMP WITH TIME ZONE": pa.timestamp("us", "UTC"),
}  # fmt: skip
_DECIMAL: Final = re.compile(r"(?:DECIMAL|NUMERIC)(?: *\( *(\d{1,3}) *(?:, *(\d{1,3}) *)?\))?")
_DEFAULT_DIGITS: Final = (18, 3)
_NARROW_DIGITS: Final = 38
_MAX_DIGITS: Final = 76


def sql_type(name: str) -> pa.DataType:
    """Returns the type that SQL calls `name`. Raises `ValueError` if there is none."""
    upper = " ".join(name.upper().split())
    if (found := TYPES.get(upper)) is not None:
        return found
    decimal = _DECIMAL.fullmatch(upper)
    if decimal is None:
        raise ValueError(f"no type {name}; types are: {', '.join(TYPES)}, DECIMAL(p, s)")
    digits = _DEFAULT_DIGITS
    if decimal[1] is not None:
        digits = int(decimal[1]), int(decimal[2] or 0)
    precision, scale = digits
    if not 1 <= precision <= _MAX_DIGITS or scale > precision:
        raise ValueError(
            f"no type {name}: a DECIMAL has 1 to {_MAX_DIGITS} digits, and not more after the point"
        )
    make = pa.decimal128 if precision <= _NARROW_DIGITS else pa.decimal256
    return make(precision, scale)

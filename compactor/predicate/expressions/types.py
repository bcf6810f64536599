"""Maps SQL type names to Arrow types."""

from __future__ import annotations

import re
from typing import Final

import pyarrow as pa

from lsm_fragment.arrays.decimals import MOST_DIGITS, decimal_type

TYPES: Final = {
    "TINYINT": pa.int8(), "SMALLINT": pa.int16(), "INT": pa.int32(), "INTEGER": pa.int32(),
    "BIGINT": pa.int64(), "FLOAT": pa.float32(), "REAL": pa.float32(), "DOUBLE": pa.float64(),
    "TEXT": pa.string(), "VARCHAR": pa.string(), "STRING": pa.string(), "BOOLEAN": pa.bool_(),
    "DATE": pa.date32(), "TIME": pa.time64("us"), "TIMESTAMP": pa.timestamp("us"),
    "TIMESTAMPTZ": pa.timestamp("us", "UTC"), "TIMESTAMP WITH TIME ZONE": pa.timestamp("us", "UTC"),
}  # fmt: skip
_DECIMAL: Final = re.compile(r"(?:DECIMAL|NUMERIC)(?: *\( *(\d{1,3}) *(?:, *(\d{1,3}) *)?\))?")
_DEFAULT_DIGITS: Final = (18, 3)


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
    if not 1 <= precision <= MOST_DIGITS or scale > precision:
        raise ValueError(
            f"no type {name}: a DECIMAL has 1 to {MOST_DIGITS} digits, and not more after the point"
        )
    return decimal_type(precision, scale)

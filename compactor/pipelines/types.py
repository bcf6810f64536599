"""Maps SQL type names to Arrow types."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

TYPES: Final = {
    "INT": pa.int32(), "BIGINT": pa.int64(), "SMALLINT": pa.int16(), "TINYINT": pa.int8(),
    "FLOAT": pa.float32(), "DOUBLE": pa.float64(), "TEXT": pa.string(), "VARCHAR": pa.string(),
    "BOOLEAN": pa.bool_(), "DATE": pa.date32(), "TIMESTAMP": pa.timestamp("us"),
}  # fmt: skip

"""Names the errors that Arrow raises for values."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

OF_VALUES: Final = (
    pa.ArrowInvalid,
    pa.ArrowNotImplementedError,
    pa.ArrowCapacityError,
    pa.ArrowIndexError,
    pa.ArrowKeyError,
    pa.ArrowTypeError,
    pa.ArrowSerializationError,
)
"""Arrow's errors about values.

Their base, `pa.ArrowException`, is also raised for threads and memory that the machine does not give.
"""

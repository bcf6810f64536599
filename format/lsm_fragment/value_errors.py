"""The errors that Arrow raises for invalid values."""

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

Their base, `pa.ArrowException`, also covers failures to get threads or memory.
"""


def first_line(error: BaseException) -> str:
    """Returns the first line of an error's message: Arrow adds others about its own code."""
    return str(error).splitlines()[0]

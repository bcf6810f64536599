"""Turns a library's error into one line for the user, and finds the failing row of a failing block."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Final

import pyarrow as pa

from compactor.common.foreign import shown_path
from compactor.common.system_errors import cause_and_advice
from compactor.errors import InputError, MachineError
from lsm_fragment.errors import FormatError
from lsm_fragment.value_errors import OF_VALUES

PROBLEMS: Final = (ValueError, NotImplementedError, *OF_VALUES, FormatError)
"""Errors of parsing and converting that are caused by the values, rather than the code or the machine."""


class UnknownColumnsError(InputError):
    """A text file has no rows that tell its columns or their types."""


class ColumnError(ValueError):
    """A value of the column cannot be converted to `dtype`."""

    def __init__(self, column: str, dtype: pa.DataType, cause: str) -> None:
        super().__init__(f"column {column!r}: a value can't be read as {dtype} ({cause})")
        self.column = column
        self.dtype = dtype
        self.cause = cause


def one_line(error: BaseException) -> str:
    """Returns the first line of the error's message, without a final full stop."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(". ")


def first_failing(count: int, attempt: Callable[[int], object]) -> tuple[int, Exception]:
    """Returns the smallest n for which `attempt(n)` raises one of `PROBLEMS`, and the error.

    `attempt(count)` must raise, and failures must be monotonic in n. Takes log2(count) attempts.
    """
    low, high, found = 0, count, None
    while found is None or high - low > 1:
        middle = (low + high) // 2 if found is not None else high
        try:
            attempt(middle)
            low = middle
        except PROBLEMS as error:
            high, found = middle, error
    return high, found


@contextlib.contextmanager
def reading(
    path: str, advice: str = "it is damaged, or not what its ending says"
) -> Iterator[None]:
    """Turns errors of the system and of Arrow about a bad path or a damaged file into `InputError`."""
    try:
        yield
    except FileNotFoundError:
        raise InputError(f"{shown_path(path)}: no such file: check the path") from None
    except IsADirectoryError:
        raise InputError(f"{path}: is a folder: name the files in it") from None
    except PermissionError:
        raise InputError(f"{path}: permission denied: check its owner and mode") from None
    except OSError as error:
        if error.errno is None:  # raised by Arrow for the file's content
            raise _unreadable(path, error, advice) from error
        raise InputError(f"{path}: cannot be read: {cause_and_advice(error)}") from error
    except MemoryError as error:
        raise MachineError(
            f"{path}: there is not enough memory to read it ({one_line(error)}): give the process more, or "
            "write the file in smaller row groups, pages or batches"
        ) from error
    except PROBLEMS as error:
        raise _unreadable(path, error, advice) from error


def _unreadable(path: str, error: Exception, advice: str) -> InputError:
    cause = one_line(error)
    if "decrypt" in cause.lower():
        advice = "it is encrypted; decrypt it first"
    elif isinstance(error, pa.ArrowNotImplementedError):
        advice = "Arrow lacks a reader for it; write the file again with other types or compression"
    return InputError(f"{path}: cannot be read: {cause}: {advice}")

"""Errors of the fragment format.

FormatError
├── NotAFragmentError        the bytes do not begin or end like a fragment
├── UnsupportedVersionError  written by a newer version of the format
├── CorruptFragmentError     truncated, flipped or inconsistent bytes; names object, offset, column
├── SchemaError              unsupported type, unknown or duplicate column, bad sort schema
├── LimitError               values that would take more memory than a reader is allowed
└── OrderError               rows given to a writer, or found by a reader, are not sorted
"""

from __future__ import annotations


def cause_of(error: Exception) -> str:
    """Explains why stored JSON could not be parsed; Python's own message names no cause."""
    match error:
        case KeyError():
            return f"it has no {error.args[0]!r}" if error.args else "something is missing"
        case IndexError():
            return "a list in it ends early"
        case TypeError() | AttributeError():
            return "a value in it is of another type than it has to be"
        case RecursionError():
            return "it is nested too deeply"
    return str(error)


class FormatError(Exception):
    """Base of all errors of the fragment format.

    `name` is the object whose bytes are at fault; it is empty if none is.
    """

    def __init__(self, message: str = "", *, name: str = "") -> None:
        super().__init__(message)
        self.name = name


class NotAFragmentError(FormatError):
    """The bytes are not a fragment at all."""


class UnsupportedVersionError(FormatError):
    """The fragment needs a newer reader."""


class CorruptFragmentError(FormatError):
    """The fragment is damaged.

    `place` says where: the object's name, the byte offset of the block and the column, as far as known.
    """

    def __init__(
        self, cause: str, *, name: str, offset: int | None = None, column: str | None = None
    ) -> None:
        self.cause = cause
        self.offset = offset
        self.column = column
        place = name
        if column is not None:
            place += f", column {column!r}"
        if offset is not None:
            place += f", byte {offset}"
        super().__init__(f"{place}: {cause}", name=name)

    def __reduce__(self) -> tuple[object, ...]:
        # Default pickling of exceptions (in Spark tasks) drops keyword-only arguments.
        # `args` hold the message, to which readers of a table add what to do.
        return _rebuild, (self.cause, self.name, self.offset, self.column), {"args": self.args}


def _rebuild(cause: str, name: str, offset: int | None, column: str | None) -> CorruptFragmentError:
    return CorruptFragmentError(cause, name=name, offset=offset, column=column)


class SchemaError(FormatError):
    """A schema, type or sort schema that the format cannot hold."""


class LimitError(FormatError):
    """Values cannot be written, because readers would refuse them (`lsm_fragment.limits`)."""


class OrderError(FormatError):
    """Rows are not in the order of the sort schema."""

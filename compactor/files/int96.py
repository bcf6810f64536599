"""Finds the units of INT96 timestamps, in which Spark, Impala and Hive write times to Parquet.

INT96 counts days, over millions of years, and nanoseconds of a day. No Arrow type holds that range, and
values that do not fit wrap silently. So a first pass over the values chooses the unit: nanoseconds for a
column that uses them, microseconds for all others. Whole seconds never wrap; combined with them, nanoseconds
give the digits after the seconds even if they wrapped. (Arrow maps day 0, in the year -4713, to 1970; old
writers use that day for missing times.)

Arrow reads both counts as unsigned. Spark writes days before the year -4713, and those after 287396, where
its own count wraps, as negative numbers, with negative nanoseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types as pt

from compactor.errors import InputError
from compactor.files.problems import first_failing
from lsm_fragment import compute as pc
from lsm_fragment.arrays.cast import cast_exactly, cast_storage, leaves
from lsm_fragment.arrays.storage import to_logical, to_storage
from lsm_fragment.arrays.types import storage_type

if TYPE_CHECKING:
    import pyarrow.parquet as pq

Unit = Literal["s", "us", "ns"]
_PER_SECOND: Final = {"us": 10**6, "ns": 10**9}
_MAX_INT64: Final = 2**63 - 1
_SPARK_VERSION: Final = b"org.apache.spark.version"
_NEGATIVE_DAYS: Final = (2**31 - 2_440_588) * 86_400
"""First second whose day is a negative number read as unsigned."""


def _wrapped(number: int) -> np.int64:
    """Wraps a number to a signed 64-bit integer."""
    return np.int64((number + 2**63) % 2**64 - 2**63)


_DAYS_SIGN: Final = _wrapped(2**32 * 86_400 * 10**6)
_NANOSECONDS_SIGN: Final = _wrapped(2**64 // 1000)
"""Excess microseconds of negative days, and of negative nanoseconds, when read as unsigned."""

Flags = npt.NDArray[np.bool_]


class _Place(NamedTuple):
    row: int
    group: int

    def __str__(self) -> str:
        return f"row {self.row} of row group {self.group}"


class Int96Units:
    """The units that a file's INT96 columns need, determined row group by row group."""

    def __init__(self, path: str, metadata: pq.FileMetaData) -> None:
        self._path = path
        self._is_of_spark = _SPARK_VERSION in (metadata.metadata or {})
        self._fine: dict[str, _Place] = {}
        """Place of the first time by column that is not a whole number of microseconds."""
        self._far: dict[str, _Place] = {}
        """Place of the first time by column that nanoseconds cannot hold."""
        self.signed: set[str] = set()
        """Columns with negative days, which Arrow reads as unsigned."""

    def look(self, seconds: pa.RecordBatch, nanoseconds: pa.RecordBatch, place: _Place) -> None:
        """Examines rows that were read in both units. place: of the first row.

        Raises `InputError` for a time that microseconds cannot hold, and for a column whose times fit no
        common unit.
        """
        for name, whole, exact in zip(
            seconds.schema.names, seconds.columns, nanoseconds.columns, strict=True
        ):
            if (row := _first(self._is_lost, whole, exact)) is not None:
                raise self._lost(name, place._replace(row=place.row + row))
            if self._is_of_spark and _any(_is_negative, whole, exact):
                self.signed.add(name)
            for found, is_so in ((self._fine, _is_fine), (self._far, _is_far)):
                if name not in found and (row := _first(is_so, whole, exact)) is not None:
                    found[name] = place._replace(row=place.row + row)
            if name in self._fine and name in self._far:
                raise InputError(
                    f"{self._path}: column {name!r} has INT96 timestamps that no unit holds together: "
                    f"{self._fine[name]} has nanoseconds, {self._far[name]} a time outside the years 1677 to "
                    "2262: round the one, correct the other, or divide the file"
                )

    @property
    def in_nanoseconds(self) -> frozenset[str]:
        """The columns that use nanoseconds."""
        return frozenset(self._fine)

    def _is_lost(self, seconds: npt.NDArray[np.int64], after: npt.NDArray[np.int64]) -> Flags:
        is_lost = _is_outside("us", seconds, after // 1000)
        return is_lost & ~_is_negative(seconds, after) if self._is_of_spark else is_lost

    def _lost(self, name: str, place: _Place) -> InputError:
        return InputError(
            f"{self._path}: column {name!r}: {place} has an INT96 timestamp outside the years -4712 to "
            "294246, which microseconds can't hold: correct the value, or leave the column out"
        )


def int96_leaves(metadata: pq.FileMetaData) -> list[int]:
    """Returns the leaf numbers of all INT96 columns, nested ones included."""
    schema = metadata.schema
    return [place for place in range(len(schema)) if schema.column(place).physical_type == "INT96"]


def look_at_group(
    units: Int96Units, files: Sequence[pq.ParquetFile], group: int, rows: int
) -> None:
    """Examines the INT96 columns of a row group in slices of `rows` rows.

    files: the file opened in seconds and in nanoseconds. Raises what `Int96Units.look` and reading raise.
    """
    done = 0
    for seconds, nanoseconds in zip(*(_batches(file, group, rows) for file in files), strict=True):
        units.look(seconds, nanoseconds, _Place(done, group))
        done += seconds.num_rows


def _batches(file: pq.ParquetFile, group: int, rows: int) -> Iterator[pa.RecordBatch]:
    columns = int96_leaves(file.metadata)
    batches: Iterator[pa.RecordBatch] = file.reader.iter_batches(
        rows, [group], column_indices=columns, use_threads=False
    )
    return batches


Test = Callable[[npt.NDArray[np.int64], npt.NDArray[np.int64]], Flags]
"""A predicate on times, given as whole seconds and the nanoseconds after them; returns a mask."""


def _is_negative(seconds: npt.NDArray[np.int64], _after: npt.NDArray[np.int64]) -> Flags:
    """Returns the mask of times with negative days."""
    return seconds >= _NEGATIVE_DAYS


def _is_fine(seconds: npt.NDArray[np.int64], after: npt.NDArray[np.int64]) -> Flags:
    uses: Flags = (after % 1000 != 0) & (seconds < _NEGATIVE_DAYS)
    return uses


def _is_far(seconds: npt.NDArray[np.int64], after: npt.NDArray[np.int64]) -> Flags:
    return _is_outside("ns", seconds, after)


def _is_outside(unit: str, seconds: npt.NDArray[np.int64], after: npt.NDArray[np.int64]) -> Flags:
    """Returns the mask of times that overflow int64 in the unit. after: units after the seconds."""
    last, last_after = divmod(_MAX_INT64, _PER_SECOND[unit])
    first, first_after = divmod(-_MAX_INT64 - 1, _PER_SECOND[unit])
    above: Flags = (seconds > last) | ((seconds == last) & (after > last_after))
    below: Flags = (seconds < first) | ((seconds == first) & (after < first_after))
    return above | below


def _first(is_so: Test, seconds: pa.Array, nanoseconds: pa.Array) -> int | None:
    """Returns the first row with a matching time at any level; None if there is none."""
    if not _any(is_so, seconds, nanoseconds):
        return None

    def attempt(count: int) -> None:
        if _any(is_so, seconds.slice(0, count), nanoseconds.slice(0, count)):
            raise ValueError

    return first_failing(len(seconds), attempt)[0] - 1


def _any(is_so: Test, seconds: pa.Array, nanoseconds: pa.Array) -> bool:
    pairs = zip(leaves(to_storage(seconds)), leaves(to_storage(nanoseconds)), strict=True)
    for whole, exact in ((_numbers(a), _numbers(b)) for a, b in pairs):
        # Both operands wrap in the same way, so the difference is right.
        if is_so(whole, exact - whole * np.int64(10**9)).any():
            return True
    return False


def _numbers(times: pa.Array) -> npt.NDArray[np.int64]:
    numbers: npt.NDArray[np.int64] = pc.fill_null(times.view(pa.int64()), 0).to_numpy()
    return numbers


def with_signs(seconds: pa.Array, nanoseconds: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Converts a Spark column to microseconds, with the signs of days and nanoseconds restored.

    seconds, nanoseconds: the column as read in these units. dtype: its type in microseconds.
    """
    wholes = (leaf for leaf in leaves(to_storage(seconds)) if pt.is_timestamp(leaf.type))

    def signed(exact: pa.Array, leaf_type: pa.DataType) -> pa.Array:
        whole = next(wholes) if pt.is_timestamp(leaf_type) else exact
        if whole.type == exact.type:  # not INT96
            return cast_exactly(exact, leaf_type)
        count = _numbers(whole)
        after = _numbers(exact) - count * np.int64(10**9)
        is_negative = _is_negative(count, after)
        # Spark writes whole microseconds. Negative nanoseconds read as unsigned are 2^64 too large, and so no
        # multiple of 1000.
        below_zero = is_negative & (after % 1000 != 0)
        micros = count * np.int64(10**6) + after // 1000
        micros -= is_negative * _DAYS_SIGN + below_zero * _NANOSECONDS_SIGN
        is_null = exact.is_null().to_numpy(zero_copy_only=False)
        return pa.array(micros, mask=is_null).view(leaf_type)

    return to_logical(cast_storage(to_storage(nanoseconds), storage_type(dtype), signed), dtype)

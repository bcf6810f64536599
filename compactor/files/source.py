"""The one shape that files of every format take once open: a schema and a stream of batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from compactor.files.problems import null_where_failing, reading
from format.schema import SortSchema

Ordinals = npt.NDArray[np.int64]


class BadRow(NamedTuple):
    """A row that no batch has."""

    ordinal: int
    """Among the rows of the file, from 0, bad ones included."""
    reason: str
    """Naming the file and the line."""


class FileBatches(ABC):
    """An open file of rows: a context manager, iterable once, memory bounded by `batch_bytes`.

    Iterating raises `InputError`, of one line naming the file, the place and the cause.
    """

    schema: pa.Schema
    """Of every batch."""
    sort: SortSchema | None = None
    """How the rows are sorted, if the file says so: a hint, which is not checked."""

    def __init__(self, path: str, batch_bytes: int) -> None:
        """Raises `InputError` if the file is not there."""
        self.path = path
        self._batch_bytes = batch_bytes
        self.bad_rows: list[BadRow] = []
        """Of a text file that was opened to leave them out: by their place among all rows."""
        self._kept: dict[int, str] = {}
        """Text of the column asked for, by the place of a bad row, where it can be told."""
        with reading(path):
            self.bytes_total = Path(path).stat().st_size
            """Size of the file as stored."""

    def kept_of_bad_rows(self, dtype: pa.DataType) -> pa.Array:
        """Of `bad_rows`, the values of the column that was asked for, null where unknown."""
        texts = pa.array([self._kept.get(row.ordinal) for row in self.bad_rows], pa.string())
        return null_where_failing(texts, lambda some: self._values_of(some, dtype))

    def _values_of(self, texts: pa.Array, dtype: pa.DataType) -> pa.Array:
        """Texts as a file of this format has them, as values. Raises one of `PROBLEMS`."""
        return texts.cast(dtype)

    @property
    @abstractmethod
    def bytes_consumed(self) -> int:
        """How far iteration has come, in bytes of the file as stored, at most `bytes_total`."""

    @abstractmethod
    def close(self) -> None:
        """Releases the file. May be called twice."""

    @abstractmethod
    def _batches(self) -> Iterator[pa.RecordBatch]:
        """Batches of `schema` of any size."""

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        with self._reading():
            for batch in self._batches():
                yield from sliced(batch, self._batch_bytes)

    def _reading(self) -> AbstractContextManager[None]:
        """Around all that may find the rows unreadable."""
        return reading(self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class Places:
    """Of the rows that are left, among all."""

    def __init__(self, bad: Sequence[int] | Ordinals = ()) -> None:
        """bad: places of those left out, ascending."""
        self.left_out = len(bad)
        self._good_before = np.asarray(bad, dtype=np.int64) - np.arange(len(bad))

    def of(self, start: int, count: int) -> Ordinals:
        """Of `count` rows from the good row number `start` on. Shape (count,)."""
        rows = np.arange(start, start + count)
        return rows + np.searchsorted(self._good_before, rows, side="right")


def sliced(batch: pa.RecordBatch, batch_bytes: int) -> Iterator[pa.RecordBatch]:
    """Slices of even row counts, of about `batch_bytes` or less if rows are of similar size."""
    rows = max(1, batch.num_rows * batch_bytes // max(1, batch.nbytes))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)

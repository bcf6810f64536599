"""Reads the rows of datasets, some at a time: lines of JSON, or batches of Arrow.

Rows have hashes as they stand in their input, before they are parsed. By them a later run knows the rows that
it has read before.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from itertools import chain
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
from pyarrow import types as pt

from compactor.entities.datasets import Located, has_texts
from compactor.entities.entities import FLAGS, RESERVED, U64, flags_of_texts, row_number
from compactor.entities.expressions import ID
from compactor.entities.properties import Sparse, is_rare
from compactor.entities.row_ids import with_ids
from compactor.entities.texts import I64, canonical, from_arrow, texts_of
from compactor.errors import InputError
from compactor.files.columnar import ParquetBatches
from compactor.files.json_items import ItemBytes
from compactor.files.names import FileFormat, FileKind, kind_of
from compactor.files.ndjson import LineBlock, line_blocks
from compactor.files.places import place_of
from compactor.files.problems import PROBLEMS, first_failing, one_line, reading
from compactor.files.read import open_table_file
from compactor.files.text_options import PlainTextOnly
from compactor.predicate.expressions.types import sql_type
from compactor.read.scan import scan
from compactor.stores.open import open_store
from compactor.table.commit_log import CommitLog
from compactor.table.snapshot import Snapshot
from lsm_fragment.arrays.batches import take_rows
from lsm_fragment.arrays.hashing import add_column, mix, value_hashes
from lsm_fragment.arrays.storage import to_storage

_BLOCK_BYTES: Final = 8 << 20
_BLANKS: Final = (9, 10, 11, 12, 13, 32)
"""The bytes that `bytes.strip` takes away."""
RowColumns = dict[str, Any]
"""Arrays, and `Sparse` properties that few rows have."""
_rows = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Rows(ABC):
    """Consecutive rows of an input, not parsed yet."""

    count: int
    nbytes: int

    @abstractmethod
    def columns(self) -> RowColumns:
        """Returns the columns as canonical texts. Raises `InputError` naming the place."""

    @abstractmethod
    def hashes(self) -> U64:
        """Hashes each row as it stands in the input. Shape (count,)."""

    @abstractmethod
    def take(self, rows: I64) -> Rows:
        """Returns some of the rows."""


class LineRows(Rows):
    """Lines of JSON objects."""

    def __init__(self, path: str, block: LineBlock, *, is_array: bool) -> None:
        """is_array: whether the lines are items of an array."""
        self._path, self._block, self._is_array = path, block, is_array
        self.nbytes = len(block.data)
        self._starts, self._ends = _bounds_of_lines(block.data)
        self.count = len(self._starts)

    def columns(self) -> RowColumns:
        try:
            return _columns(self._block.data)
        except (*PROBLEMS, RecursionError):
            raise _located(self._path, self._block, is_array=self._is_array) from None

    def hashes(self) -> U64:
        data = pa.py_buffer(self._block.data)
        bounds = np.stack([self._starts, self._ends], axis=1).reshape(-1)
        # Every other value is a line; those between are line breaks and blank lines.
        offsets = pa.py_buffer(np.append(bounds, bounds[-1:]))
        values = pa.Array.from_buffers(pa.large_binary(), len(bounds), [None, offsets, data])
        return value_hashes(values)[::2].copy()

    def take(self, rows: I64) -> LineRows:
        data = self._block.data
        bounds = zip(self._starts[rows].tolist(), self._ends[rows].tolist(), strict=True)
        lines = b"\n".join([data[start:end] for start, end in bounds])
        return LineRows(self._path, LineBlock(lines, 1), is_array=self._is_array)


class BatchRows(Rows):
    """Rows of a record batch, where null means that a property is missing."""

    def __init__(self, batch: pa.RecordBatch, name: str, *, are_texts: bool = False) -> None:
        """name: the dataset's, for errors. are_texts: whether the file has no booleans for flags."""
        self._batch, self._name, self._are_texts = batch, name, are_texts
        self.count = batch.num_rows
        self.nbytes = batch.nbytes

    def columns(self) -> RowColumns:
        columns = _texts_of_batch(self._batch, self._name)
        for name in FLAGS if self._are_texts else ():
            if name in columns:
                columns[name] = flags_of_texts(columns[name])
        return columns

    def hashes(self) -> U64:
        total = np.zeros(self.count, np.uint64)
        for field, array in zip(self._batch.schema, self._batch.columns, strict=True):
            add_column(f"{field.name} {field.type}", to_storage(array), total)
        return mix(total)

    def take(self, rows: I64) -> BatchRows:
        batch = take_rows(self._batch, rows)
        return BatchRows(batch, self._name, are_texts=self._are_texts)


def rows_in(
    part: Located, snapshot: Snapshot | None = None, groups: Sequence[int] | None = None
) -> Iterator[Rows]:
    """Yields the rows of a file or table in input order. Raises `InputError` naming the place.

    snapshot: snapshot of a table, or a part of it; None for the latest. groups: the row groups of a Parquet
    file to read; None for all.
    """
    if not part.is_file:
        store = open_store(part.place)
        batches = scan(store, snapshot or CommitLog(store).current())
        yield from batch_rows(batches, part.shown)
        return
    kind = kind_of(part.place)
    if kind is not None and kind.format is FileFormat.NDJSON:
        with closing(_opened(part.place, kind)) as source:
            for block in _blocks(part.place, source):
                yield LineRows(part.place, block, is_array=source.is_array)
        return
    known = pa.schema([(column, _wide(sql_type(dtype))) for column, dtype in part.types])
    with open_table_file(
        part.place, known, options=PlainTextOnly(), in_one_pass=True, infers_types=False
    ) as file:
        if groups is not None:
            assert isinstance(file, ParquetBatches), "only Parquet has row groups"
            file.read_only(groups)
        ids = part.id_columns or (ID,)
        are_texts = has_texts(part.place)
        for column in (*ids, *known.names) if are_texts else ():
            if column not in file.schema.names:
                instead = (
                    "name the columns of the id in `id`"
                    if column in ids
                    else "leave it out of `types`"
                )
                raise InputError(
                    f"dataset {part.shown}: has no column {column!r}: add it, or {instead}"
                )
        yield from batch_rows(file, part.shown, are_texts=are_texts)


def batch_rows(
    batches: Iterable[pa.RecordBatch], name: str, *, are_texts: bool = False
) -> Iterator[Rows]:
    """Yields the rows of batches. name, are_texts: as of `BatchRows`."""
    for batch in batches:
        yield BatchRows(batch, name, are_texts=are_texts)


def columns_in(
    located: Located, snapshot: Snapshot | None = None
) -> Iterator[tuple[RowColumns, int]]:
    """Yields the rows of a dataset in input order: columns, including `_id`, and the row count.

    snapshot: snapshot of a table, or a part of it; None for the latest. Raises `InputError` naming the place.
    """
    for part in located.whole:
        for rows in rows_in(part, snapshot):
            yield with_ids(rows.columns(), rows.count, located.id_columns), rows.count


def _bounds_of_lines(data: bytes) -> tuple[I64, I64]:
    """Returns the first byte of each line that is not blank, and the one after its last."""
    letters = np.frombuffer(data, np.uint8)
    breaks = np.flatnonzero(letters == ord("\n"))
    starts, ends = np.append(0, breaks + 1), np.append(breaks, len(data))
    is_line = ends > starts
    # Few lines begin with a blank, and only these may be nothing else.
    for number in np.flatnonzero(is_line)[np.isin(letters[starts[is_line]], _BLANKS)].tolist():
        is_line[number] = bool(data[starts[number] : ends[number]].strip())
    return starts[is_line], ends[is_line]


def _wide(dtype: pa.DataType) -> pa.DataType:
    """Returns int64 for any integer type, because integers have one type here."""
    return pa.int64() if pt.is_integer(dtype) else dtype


def place_in(located: Located, row: int) -> str:
    """Returns the line or row of a dataset that has its row `row`, from 0; of several, with the file."""
    if located.parts:
        for part in located.parts:
            rows = sum(each.count for each in rows_in(part))
            if row < rows:
                return f"{part.place}, {place_in(part, row)}"
            row -= rows
    kind = kind_of(located.place) if located.is_file else None
    if kind is not None and kind.format is FileFormat.NDJSON:
        return _line_of(located.place, kind, row)
    return row_number(row)


def _line_of(path: str, kind: FileKind, row: int) -> str:
    with closing(_opened(path, kind)) as source:
        for block in _blocks(path, source):
            for number, line in enumerate(block.data.split(b"\n"), block.first_line):
                row -= bool(line.strip())
                if row < 0:
                    return _line(number, is_array=source.is_array)
    raise AssertionError("the file has become shorter")


def _texts_of_batch(batch: pa.RecordBatch, name: str) -> RowColumns:
    texts = {}
    for column, array in zip(batch.schema.names, batch.columns, strict=True):
        if array.null_count == len(array) and column not in RESERVED:
            continue
        try:
            texts[column] = from_arrow(array)
        except (*PROBLEMS, RecursionError) as error:
            cause = "nested too deep" if isinstance(error, RecursionError) else one_line(error)
            raise InputError(
                f"dataset {name}: column {column!r}: {cause}: leave the column out"
            ) from error
    return texts


def _opened(path: str, kind: FileKind) -> ItemBytes:
    with reading(path):
        return ItemBytes(path, place_of(path), kind.compression)


def _blocks(path: str, source: ItemBytes) -> Iterator[LineBlock]:
    """Yields the lines of a file, or the items of its array."""
    for block in line_blocks(path, source, _BLOCK_BYTES):
        lines, _, last = block.data.rpartition(b"\n")
        # A comma behind the last item is no item.
        is_over = source.is_array and last.strip() == b","
        yield LineBlock(lines, block.first_line) if is_over else block


def _line(number: int, *, is_array: bool) -> str:
    return f"{'item' if is_array else 'line'} {number:,}"


def _columns(lines: bytes) -> RowColumns:
    """Returns the columns of NDJSON lines."""
    lines.decode()
    rows = _rows.decode_lines(lines)
    _check_one_a_line(lines, len(rows))
    counts = Counter(chain.from_iterable(rows))
    rare = {n for n, count in counts.items() if is_rare(count, len(rows)) and n not in RESERVED}
    texts: RowColumns = _rare_columns(rows, rare) if rare else {}
    for name in counts.keys() - rare:
        texts[name] = canonical(texts_of([row.get(name) for row in rows]))
    texts.setdefault(ID, pa.nulls(len(rows), pa.large_string()))
    return {name: texts[name] for name in sorted(texts)}


def _rare_columns(rows: Sequence[dict[str, msgspec.Raw]], names: set[str]) -> RowColumns:
    """Returns the columns of properties that few rows have, in time linear in their values."""
    found: dict[str, tuple[list[int], list[msgspec.Raw]]] = {name: ([], []) for name in names}
    for number, row in enumerate(rows):
        for name in row.keys() & names:
            places, raws = found[name]
            places.append(number)
            raws.append(row[name])
    texts = canonical(texts_of([raw for _, raws in found.values() for raw in raws]))
    columns, start = {}, 0
    for name, (places, raws) in found.items():
        columns[name] = Sparse(np.array(places), texts.slice(start, len(raws)), len(rows))
        start += len(raws)
    return columns


def _check_one_a_line(lines: bytes, rows: int) -> None:
    """Raises `ValueError` unless each line is one object. rows: number of objects.

    Relies on `}`, line break, `{` occurring only between two objects.
    """
    if lines.count(b"}\n{") + 1 == rows and lines.count(b"\n") - lines.endswith(b"\n") + 1 == rows:
        return
    texts = [text for line in lines.split(b"\n") if (text := line.strip())]
    if len(texts) != rows or not all(t.startswith(b"{") and t.endswith(b"}") for t in texts):
        raise ValueError("is not one JSON object per line")


def _located(path: str, block: LineBlock, *, is_array: bool) -> InputError:
    """Returns the error naming the first unreadable line."""
    lines = block.data.split(b"\n")

    def attempt(count: int) -> None:
        start = b"\n".join(lines[:count])
        if start.strip():
            try:
                _columns(start)
            except RecursionError as error:
                raise ValueError("it is nested too deep") from error

    count, error = first_failing(len(lines), attempt)
    line = f"{path}, {_line(block.first_line + count - 1, is_array=is_array)}"
    if isinstance(error, UnicodeDecodeError):
        return InputError(f"{line}: is not valid UTF-8: save the file as UTF-8")
    if _has_half_a_character(lines[count - 1]):
        return InputError(
            f"{line}: has half of a surrogate pair, such as \\ud83d, which is no character: write both "
            "halves, or leave it out"
        )
    return InputError(f"{line}: is not a readable JSON object ({one_line(error)}): correct it")


def _has_half_a_character(line: bytes) -> bool:
    """Returns whether a line is JSON but for an escaped surrogate without its other half."""
    try:
        json.dumps(json.loads(line), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    except (ValueError, RecursionError):
        return False
    return False

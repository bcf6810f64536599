"""A version of a table as a PyArrow dataset, for engines that read those, such as DuckDB."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.dataset as ds

from compactor.api.row_stream import RowStream
from compactor.api.scan import Scan
from compactor.api.view import TableView
from compactor.errors import UsageError
from compactor.predicate.foreign import arrow_filter
from compactor.read.read_reports import ScanReport
from lsm_fragment import compute as pc
from lsm_fragment.arrays.batches import keep_rows, no_rows, one_batch


def _refused(method: str, instead: str) -> Callable[..., NoReturn]:
    """Takes the place of a method of PyArrow that would work on files of its own, and find none."""

    def refuse(*_arguments: Any, **_options: Any) -> NoReturn:
        raise NotImplementedError(f"{method}: a table is no dataset of files; {instead}")

    return refuse


class TableDataset(ds.Dataset):  # type: ignore[misc]
    """The rows of a version, read lazily and in bounded memory.

    Columns that an engine does not ask for are not read. Of a filter, comparisons of a column with a value of
    its kind, `is_in`, `is_null`, `starts_with`, and their combinations are evaluated by the scan, which skips
    row groups by them; PyArrow applies the whole filter to the rows that are left. Rows come in sort order.
    It can be pickled, and is then opened again by its address and version. Scan it by `scanner`: PyArrow's
    own `Scanner.from_dataset` looks for a dataset in C++, and ends the process where there is none.
    """

    def __init__(self, view: TableView) -> None:
        """Use `Table.dataset`. view: stays at its version."""
        self._view = view

    @property
    def schema(self) -> pa.Schema:
        return self._view.schema

    def scanner(
        self,
        columns: Sequence[str] | Mapping[str, Any] | None = None,
        filter: Any = None,
        batch_size: int | None = None,
        use_threads: bool = True,
        **_others: Any,
    ) -> TableScanner:
        """Returns a lazy reading.

        columns: names, or expressions of PyArrow by name; None means all.
        filter: an expression of PyArrow.
        batch_size: maximum number of rows of a batch.
        Other arguments of PyArrow's scanners, such as numbers of batches to read ahead, change nothing.
        """
        return TableScanner(self._view, columns, filter, batch_size, 1 if not use_threads else None)

    def to_batches(self, **options: Any) -> Iterator[pa.RecordBatch]:
        """Reads batches. options: those of `scanner`."""
        return self.scanner(**options).to_batches()

    def to_table(self, **options: Any) -> pa.Table:
        """Reads all rows into memory. options: those of `scanner`."""
        return self.scanner(**options).to_table()

    def head(self, num_rows: int, **options: Any) -> pa.Table:
        """Reads the first rows. options: those of `scanner`."""
        return self.scanner(**options).head(num_rows)

    def count_rows(self, **options: Any) -> int:
        """Counts rows. options: those of `scanner`."""
        return self.scanner(**{"columns": [], **options}).count_rows()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.scanner().__arrow_c_stream__(requested_schema)

    filter = _refused("filter", "give the filter to scanner, to_table or to_batches")
    sort_by = _refused("sort_by", "sort the table that to_table returns")
    join = _refused("join", "join the table that to_table returns")
    join_asof = _refused("join_asof", "join the table that to_table returns")
    take = _refused("take", "read rows by a filter")
    replace_schema = _refused("replace_schema", "cast the table that to_table returns")
    get_fragments = _refused("get_fragments", "Table.fragments lists those of the table")
    partition_expression = property(
        _refused("partition_expression", "Table.fragments has the key ranges of the table")
    )

    def __reduce__(self) -> tuple[Any, ...]:
        return _opened, (self._view.url, self._view.version)

    def __repr__(self) -> str:
        return f"<TableDataset {self._view.url} version {self._view.version}>"


class TableScanner(RowStream):
    """Columns and rows of a version of a table, as `pyarrow.dataset.Scanner` would return them.

    PyArrow's own scanner reads ahead without bounds from rows that are made by Python.
    """

    def __init__(
        self,
        view: TableView,
        columns: Sequence[str] | Mapping[str, Any] | None,
        filter: Any,
        batch_size: int | None,
        threads: int | None,
    ) -> None:
        """Use `TableDataset.scanner`. Raises `UsageError` for an unknown column or empty batches."""
        if batch_size is not None and batch_size < 1:
            raise UsageError(f"batch_size: must be at least 1, not {batch_size}")
        self._columns = columns if columns is None or isinstance(columns, Mapping) else [*columns]
        self._filter = filter
        self._batch_size = batch_size
        self._scan = _scan(view, _names(view.schema, self._columns, filter), filter, threads)
        self.schema = self._projected(no_rows(self._scan.schema)).schema
        self.dataset_schema = view.schema

    @property
    def report(self) -> ScanReport:
        """The counts of the last reading so far."""
        return self._scan.report

    @property
    def projected_schema(self) -> pa.Schema:
        return self.schema

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for whole in self._scan:
            batch = self._projected(self._filtered(whole))
            size = self._batch_size or max(1, batch.num_rows)
            for start in range(0, batch.num_rows, size):
                yield batch.slice(start, size)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        return iter(self)

    def scan_batches(self) -> Iterator[pa.RecordBatch]:
        return iter(self)

    def head(self, num_rows: int) -> pa.Table:
        """Reads the first rows."""

        def first() -> Iterator[pa.RecordBatch]:
            left = num_rows
            for batch in self:
                yield batch.slice(0, left)
                left -= batch.num_rows
                if left <= 0:
                    return

        batches = first() if num_rows > 0 else iter(())
        return pa.Table.from_batches(batches, self.schema)

    def count_rows(self) -> int:
        """Reads only the columns of the filter, if no others were chosen."""
        return sum(self._filtered(batch).num_rows for batch in self._scan)

    def _filtered(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return filtered(batch, self._filter)

    def _projected(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self._columns is None:
            return batch
        if isinstance(self._columns, Mapping):
            return _computed(batch, self._columns)
        return batch.select(self._columns)


def filtered(batch: pa.RecordBatch, filter: Any) -> pa.RecordBatch:
    """Returns the rows that satisfy a filter: an expression of PyArrow, or None."""
    if filter is None:
        return batch
    (mask,) = _computed(batch, {"": filter}).columns
    return keep_rows(batch, pc.fill_null(mask, False))


def _computed(batch: pa.RecordBatch, columns: Mapping[str, Any]) -> pa.RecordBatch:
    """Returns the values of PyArrow's expressions."""
    rows = ds.Scanner.from_batches(
        [batch],
        schema=batch.schema,
        columns=dict(columns),
        batch_size=max(1, batch.num_rows),
        use_threads=False,
    )
    return one_batch(rows.to_table())


def _scan(view: TableView, names: Sequence[str] | None, filter: Any, threads: int | None) -> Scan:
    """Returns a scan of the columns that leaves out rows by as much of the filter as it understands."""
    where = None if filter is None else arrow_filter.condition_of(filter, view.schema)
    return pushed(view, names, where, threads=threads)


def pushed(
    view: TableView, names: Sequence[str] | None, where: str | None, *, threads: int | None = None
) -> Scan:
    """Returns a scan for another engine; one without a condition if ours does not take it. Raises
    `UsageError` for an unknown column."""
    try:
        return view.scan(names, where, threads=threads)
    except UsageError:
        return view.scan(names, threads=threads)


def _names(
    schema: pa.Schema, columns: Sequence[str] | Mapping[str, Any] | None, filter: Any
) -> list[str] | None:
    """Returns the columns to read, those of expressions included; None for all."""
    if columns is None:
        return None
    asked = [*columns.values(), filter] if isinstance(columns, Mapping) else [filter]
    names = [] if isinstance(columns, Mapping) else [*columns]
    for expression in asked:
        found = set() if expression is None else arrow_filter.columns_of(expression)
        if found is None:
            return None
        names += sorted(found)
    # Without any, rows are counted by a column, which is cheapest if it is fixed in size.
    return list(dict.fromkeys(names)) or schema.names[:1]


def _opened(url: str, version: int) -> TableDataset:
    return TableView.open(url, version=version).dataset()

"""One case: a table, conditions on it, and what is wrong with what becomes of them."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from random import Random
from typing import Any, Final

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace

from compactor.errors import UsageError
from compactor.predicate.prune import BoundsOf, may_match
from compactor.predicate.skipping.spec import SkipKind, SkipSpec, can_index
from compactor.predicate.tree import And, IsNull, Predicate, matching
from compactor.read.fragment_columns import open_fragment, read_columns
from compactor.read.pruning import (
    bounds_by_keys,
    bounds_by_skip_index,
    bounds_by_statistics,
    skip_index_of,
)
from compactor.read.read_reports import ScanReport
from compactor.read.scan import scan
from compactor.read.scan_tasks import read_parts, tasks_of
from compactor.read.wanted import scan_schema
from compactor.rows.policy import RowKind, RowPolicy
from compactor.settings.compaction import CompactionSettings, Strategy
from compactor.table.commit_log import CommitLog
from compactor.table.conditions import condition_on
from compactor.table.deletions import read_deletion
from compactor.table.snapshot import Snapshot
from compactor.write.alter import Alteration, alter_table
from compactor.write.delete import delete_rows
from compactor.write.file_schema import OnConflict
from compactor.write.ingest import IngestOptions
from lsm_fragment.arrays.storage import plain, to_storage
from lsm_fragment.arrays.types import storage_type
from lsm_fragment.arrays.widening import widens_to
from lsm_fragment.keys.sort_schema import Nulls, Order, SortColumn, SortSchema, sort_text
from tests.generated import pool
from tests.generated.condition_columns import Column, array_of, for_duckdb, some_columns, values_in
from tests.generated.condition_columns import pool as values_of
from tests.generated.condition_trees import Tree, columns_in, smaller, some_tree
from tests.support.memory_store import MemoryStore
from tests.support.tables import append_table, compact_table

CONDITIONS: Final = 300
"""Of one case."""
_WHOLE_EVERY: Final = 50
"""Scan for and delete by one condition in 50."""
_MAX_REPORTED: Final = 3
CASES: Final = 1 << 32
"""Of one seed."""
_ID: Final = "id of row"

Bools = npt.NDArray[np.bool_]


def check(number: int) -> str | None:
    """What is wrong with a case: `seed * 2**32 + case`. For `tests.generated.pool`."""
    return _Case(number).run()


class _Group(Struct, frozen=True):
    """One row group, and what is known of it."""

    arrays: Mapping[str, pa.Array]
    bounds: Mapping[str, BoundsOf]
    """By what they go by, for the finding."""
    start: int
    """Its first row among all rows."""
    rows: int
    deleted: pa.Array | None


class _Wrong(Exception):  # noqa: N818 - what is found is no error of ours
    """Says what kind of thing is wrong, and how."""


class _Case:
    """One table and the conditions on it."""

    def __init__(self, number: int) -> None:
        self._rng = Random(number)
        self._table = made = _some_table(self._rng)
        self._snapshot = CommitLog(made.store).current()
        self._groups = [] if made.is_merged else list(_row_groups(made.store, self._snapshot))
        self._rows = _Rows(made, self._groups, self._snapshot)
        self._oracle = _Oracle(self._rows)

    def run(self) -> str | None:
        made, rng = self._table, self._rng
        conditions = CONDITIONS // 10 if made.is_merged else CONDITIONS
        values = {
            c.name: values_in(self._rows.columns[c.name]) + values_of(rng, c.dtype, 2)
            for c in made.columns
        }
        trees = [some_tree(rng, made.columns, values) for _ in range(conditions)]
        pool.count("conditions", len(trees))
        expected = self._oracle.rows_of(trees)
        found: dict[str, str] = {}
        for place, (tree, rows) in enumerate(zip(trees, expected, strict=True)):
            is_whole = made.is_merged or place % _WHOLE_EVERY == 0
            wrong = self._wrong(tree, rows, is_whole=is_whole)
            if wrong is None:
                continue
            kind = wrong.splitlines()[0]
            pool.count("wrong")
            if kind not in found and len(found) < _MAX_REPORTED:
                found[kind] = self._smallest(tree, kind, is_whole=is_whole)
        return "\n".join([self._table.description, *found.values()]) if found else None

    def _smallest(self, tree: Tree, kind: str, *, is_whole: bool) -> str:
        """The finding of the smallest part of a condition that is found wrong in the same way."""
        while True:
            for less in smaller(tree):
                try:
                    wrong = self._wrong(less, self._oracle.rows_of([less])[0], is_whole=is_whole)
                except duckdb.Error:
                    continue
                if wrong is not None and wrong.splitlines()[0] == kind:
                    tree = less
                    break
            else:
                break
        text = self._wrong(tree, self._oracle.rows_of([tree])[0], is_whole=is_whole) or "not twice"
        types = ", ".join(f"{c.name!r}: {c.dtype}" for c in columns_in(tree).values())
        return f"* {text}\n  condition: {tree.ours()}\n  columns: {types}"

    def _wrong(self, tree: Tree, rows: Bools, *, is_whole: bool) -> str | None:
        """A line that says of what kind it is, and lines with the rows."""
        text = tree.ours()
        try:
            predicate = condition_on(self._snapshot.table, text)
            self._check_row_groups(predicate, rows, tree)
            if is_whole:
                self._check_scans(predicate, rows)
                self._check_deletion(text, rows)
        except _Wrong as wrong:
            return str(wrong)
        except UsageError as error:
            return f"refused\n  {error}"
        except Exception as error:  # noqa: BLE001 - each is a finding
            said = "".join(traceback.format_exception(error)[-4:])
            return f"{type(error).__name__}\n{said}"
        return None

    def _check_row_groups(self, predicate: Predicate, expected: Bools, tree: Tree) -> None:
        for group in self._groups:
            wanted = expected[group.start : group.start + group.rows]
            holds = pc.fill_null(matching(predicate, group.arrays, group.rows), False)
            found = holds.to_numpy(zero_copy_only=False)
            if not np.array_equal(found, wanted):
                self._differs("evaluation", tree, group.start, found, wanted)
            if not wanted.any():
                continue
            for by, bounds in group.bounds.items():
                if not may_match(predicate, bounds):
                    self._differs(f"pruned by {by}", tree, group.start, ~wanted & wanted, wanted)

    def _differs(self, kind: str, tree: Tree, start: int, found: Bools, wanted: Bools) -> None:
        lines = [kind]
        for row in np.flatnonzero(found != wanted)[:3]:
            values = {
                name: self._rows.columns[name][start + int(row)].as_py()
                for name in columns_in(tree)
            }
            lines.append(f"  row {start + row}: {'found' if found[row] else 'missing'}, {values}")
        raise _Wrong("\n".join(lines))

    def _check_scans(self, predicate: Predicate, expected: Bools) -> None:
        wanted = self._rows.ids[expected & self._rows.is_alive]
        without = replace(self._snapshot, metadata=replace(self._snapshot.table, skips=SkipSpec()))
        for how, snapshot in (("scan", self._snapshot), ("scan without indexes", without)):
            for threads in (1, 3):
                found = _scanned(self._table.store, snapshot, predicate, threads=threads)
                self._compare_ids(how, found, wanted)
        store, table, report = self._table.store, self._snapshot.table, ScanReport()
        batches = [
            batch
            for parts in tasks_of(self._snapshot, predicate, 1, report)
            for batch in read_parts(store, table, parts, [_ID], predicate, report, threads=2)
        ]
        parts = pa.Table.from_batches(batches, scan_schema(table, [_ID]))
        self._compare_ids("parts", parts, wanted)

    def _compare_ids(self, how: str, rows: pa.Table, wanted: npt.NDArray[np.int64]) -> None:
        found = sorted(rows[_ID].to_pylist())
        if found != sorted(wanted.tolist()):
            missing, more = set(wanted.tolist()) - set(found), set(found) - set(wanted.tolist())
            raise _Wrong(f"{how}\n  missing ids {sorted(missing)[:9]}, more {sorted(more)[:9]}")

    def _check_deletion(self, where: str, expected: Bools) -> None:
        copy = MemoryStore(dict(self._table.store.objects))
        log = CommitLog(copy)
        report = delete_rows(copy, log, where, threads=2)
        deleted = int((expected & self._rows.is_alive).sum())
        if not self._table.is_merged and report.rows != deleted:
            raise _Wrong(f"deletion\n  {report.rows} rows, not {deleted}")
        left = _scanned(copy, log.refresh(), None)
        self._compare_ids(
            "rows left by a deletion", left, self._rows.ids[~expected & self._rows.is_alive]
        )


# Tables


class _Table(Struct, frozen=True):
    store: MemoryStore
    columns: list[Column]
    """With the types that the table has at last."""
    is_merged: bool
    description: str


def _some_table(rng: Random) -> _Table:
    columns = some_columns(rng)
    is_merged = rng.random() < 0.1
    sort = _some_sort(rng, columns)
    keys = {key.column for key in sort}
    columns = [_as_key(c) if c.name in keys else c for c in columns]
    values = {c.name: values_of(rng, c.narrow or c.dtype) for c in columns}
    skips = _some_skips(rng, [c for c in columns if c.name not in keys])
    options = IngestOptions(
        rows_per_fragment=rng.choice([12, 30, 100]),
        skips=skips,
        rows=RowPolicy(RowKind.LAST) if is_merged else None,
        on_conflict=OnConflict.STRING,
    )
    max_rows = rng.randint(2, 7)
    store, first_id, has_gaps = MemoryStore(), 0, rng.random() < 0.3
    commits = rng.choice([1, 2, 2, 3])
    for commit in range(commits):
        rows, is_last = rng.randint(5, 30), commit == commits - 1
        arrays = {_ID: pa.array(range(first_id, first_id + rows), pa.int64())}
        for column in columns:
            if has_gaps and commit and column.name not in keys and rng.random() < 0.3:
                continue
            if column.narrow is not None and is_last and commit:
                array = _some_array(rng, values_of(rng, column.dtype), column.dtype, rows)
            else:
                dtype = column.narrow or column.dtype
                array = _some_array(rng, values[column.name], dtype, rows)
            arrays[column.name] = array
        append_table(store, pa.table(arrays), sort_text(sort), options, max_rows=max_rows)
        first_id += rows
    if rng.random() < 0.3:
        settings = CompactionSettings(max_rows_per_row_group=max_rows)
        strategy = rng.choice([Strategy.FULL, Strategy.OVERLAPPING])
        report = compact_table(store, settings, strategy=strategy)
        assert not report.failed, report
    log = CommitLog(store)
    if rng.random() < 0.2:
        delete_rows(store, log, f'"{_ID}" IN (1, 3, 4, 5, 9)')
    if rng.random() < 0.2:
        renames = {c.name: f"r{n}" for n, c in enumerate(columns) if rng.random() < 0.5}
        if renames:
            alter_table(log, Alteration(renames=renames))
        columns = [replace(c, shown=renames.get(c.name)) for c in columns]
    schema = log.refresh().table.schema
    columns = [replace(c, dtype=schema.field(c.name).type) for c in columns]
    description = f"sorted by {sort_text(sort)}; skip indexes: {dict(skips.columns) or 'none'}"
    description += "; the newest row of a key stays" if is_merged else ""
    return _Table(store, columns, is_merged, description)


def _as_key(column: Column) -> Column:
    """Columns that are sorted by take wider values, but no others."""
    if column.narrow is None or widens_to(storage_type(column.narrow), column.storage):
        return column
    return replace(column, narrow=None)


def _some_sort(rng: Random, columns: Sequence[Column]) -> SortSchema:
    able = [
        c.name for c in columns if c.is_comparable and not isinstance(c.dtype, pa.BaseExtensionType)
    ]
    names = rng.sample([*able, _ID], rng.randint(1, min(2, len(able) + 1)))
    return tuple(
        SortColumn(name, rng.choice([Order.ASC, Order.DESC]), rng.choice(list(Nulls)))
        for name in names
    )


def _some_skips(rng: Random, columns: Sequence[Column]) -> SkipSpec:
    if rng.random() < 0.2:
        return SkipSpec()
    chosen = []
    for column in columns:
        first = storage_type(column.narrow or column.dtype)
        kinds = [kind for kind in SkipKind if can_index(kind, first)]
        if kinds and rng.random() < 0.8:
            chosen.append((column.name, rng.choice(kinds)))
    return SkipSpec(tuple(chosen), rng.choice([64, 100, 200, 1000, 64 << 10]))


def _some_array(rng: Random, values: Sequence[Any], dtype: pa.DataType, rows: int) -> pa.Array:
    nulls = rng.choice([0.0, 0.1, 0.1, 0.5, 1.0] if rng.random() < 0.5 else [0.1])
    few = rng.sample(values, min(len(values), rng.choice([1, 3, 12])))
    chosen = [None if rng.random() < nulls else rng.choice(few) for _ in range(rows)]
    return array_of(chosen, dtype)


# What the table has


def _row_groups(store: MemoryStore, snapshot: Snapshot) -> Iterator[_Group]:
    table, start = snapshot.table, 0
    for entry in snapshot.fragments.all():
        reader = open_fragment(store, entry.key, entry.size_bytes)
        columns = [f.name for f in table.schema]
        everything = And(tuple(IsNull(name) for name in columns))
        skips = skip_index_of(store, entry, table, everything)
        by_keys = bounds_by_keys(entry, table)
        of_fragment = {
            "keys": by_keys,
            "skip indexes of a fragment": bounds_by_skip_index(skips, by_keys),
        }
        deleted = read_deletion(store, entry)
        first = 0
        for group, stats in enumerate(reader.footer.row_groups):
            bounds = {
                **of_fragment,
                "statistics": bounds_by_statistics(reader, group, table.schema),
                "statistics and skip indexes": bounds_by_statistics(
                    reader, group, table.schema, skips
                ),
            }
            yield _Group(
                read_columns(reader, group, columns, table.schema),
                {by: lru_cache(of) for by, of in bounds.items()},
                start,
                stats.rows,
                None if deleted is None else deleted.slice(first, stats.rows),
            )
            start += stats.rows
            first += stats.rows


class _Rows:
    """All rows, in the order of the row groups; where rows are merged, as a scan has them."""

    def __init__(self, made: _Table, groups: Sequence[_Group], snapshot: Snapshot) -> None:
        names = [_ID, *(column.name for column in made.columns)]
        if made.is_merged:
            shown = [_ID, *(column.shown or column.name for column in made.columns)]
            scanned = _scanned(made.store, snapshot, None, shown)
            whole = [to_storage(_whole(column)) for column in scanned.columns]
            self.columns = dict(zip(names, whole, strict=True))
            self.is_alive = np.ones(scanned.num_rows, dtype=np.bool_)
        else:
            self.columns = {
                name: pa.concat_arrays([plain(group.arrays[name]) for group in groups])
                for name in names
            }
            gone = [
                np.zeros(g.rows, np.bool_) if g.deleted is None else _bools(g.deleted)
                for g in groups
            ]
            self.is_alive = ~np.concatenate(gone)
        self.ids: npt.NDArray[np.int64] = plain(self.columns[_ID]).to_numpy(zero_copy_only=False)


class _Oracle:
    """DuckDB over all rows."""

    def __init__(self, rows: _Rows) -> None:
        self._connection = duckdb.connect(config={"threads": 1})
        self._connection.execute("SET TimeZone = 'UTC'")
        self._names: dict[str, str] = {}
        arrays = {}
        for place, (name, array) in enumerate(rows.columns.items()):
            native, texts = for_duckdb(array)
            self._names |= {name: f"c{place}", f"{name}$": f"s{place}"}
            arrays[f"c{place}"] = native
            if texts is not None:
                arrays[f"s{place}"] = texts
        self._connection.register("rows", pa.table(arrays))

    def rows_of(self, trees: Sequence[Tree]) -> list[Bools]:
        """The rows of which each condition holds."""
        asked = ", ".join(
            f"{tree.duckdb(self._names)} AS k{place}" for place, tree in enumerate(trees)
        )
        found = self._connection.sql(f"SELECT {asked} FROM rows").to_arrow_table()
        return [_bools(_whole(column).fill_null(False)) for column in found.columns]


def _scanned(
    store: MemoryStore,
    snapshot: Snapshot,
    where: Predicate | None,
    columns: Sequence[str] = (_ID,),
    *,
    threads: int = 1,
) -> pa.Table:
    schema = scan_schema(snapshot.table, columns)
    return pa.Table.from_batches(scan(store, snapshot, columns, where, threads=threads), schema)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _shown(value: pa.Scalar) -> str:
    try:
        return repr(value.as_py())
    except (OverflowError, ValueError):  # times beyond those of Python
        return str(value.value)


def _bools(array: pa.Array) -> Bools:
    found: Bools = array.to_numpy(zero_copy_only=False)
    return found

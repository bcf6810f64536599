"""Calls of the public interface with what was not meant: each is one clear line, and changes nothing."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from compactor import (
    CompactionSettings,
    IngestOptions,
    OnConflict,
    Policy,
    RowFunction,
    RowKind,
    RowPolicy,
    Scan,
    SkipKind,
    SkipSpec,
    Strategy,
    Table,
    TimeWindows,
    Ttl,
    WriterOptions,
)
from compactor.api.view import TableView
from compactor.errors import ConfigError, InputError, UsageError, VersionNotFoundError
from compactor.stores.open import open_store
from compactor.table.commit_log import CommitLog
from format import open_fragment

ROWS = pa.table({"k": [2, 1], "t": ["x", "y"]})
Untyped: Any = Table
Call = Callable[[Any, Path], object]

INTEGER = "input should be a valid integer"
NUMBER = "input should be a valid number"
FINITE = "input should be a finite number"
POSITIVE = "is too small: more than 0"
NATURAL = "is too small: 0 at least"
TEXT = "input should be a valid string"
MOMENT = "input should be a valid datetime"
BOOLEAN = "is neither true nor false"
INSTANCE = "input should be an instance of"
SETTINGS = "input should be a valid dictionary or instance of"


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table.create(tmp_path / "t", ROWS, "k")


def untyped(kind: type) -> Any:
    return kind


def created(**options: Any) -> Call:
    return lambda _, new: Table.create(new, ROWS, "k", IngestOptions(**options))


WRONG: list[tuple[Call, str]] = [
    (lambda t, _: Untyped.open(5), "url: expected str | PathLike[str], got 5"),
    (lambda t, _: Untyped.open(b"t"), "url: expected str | PathLike[str], got b't'"),
    (lambda t, _: Untyped.open(t.url, version="1"), f"version: {INTEGER}, got '1'"),
    (lambda t, _: Untyped.open(t.url, version=1.0), f"version: {INTEGER}, got 1.0"),
    (lambda t, _: Untyped.open(t.url, version=True), f"version: {INTEGER}, got True"),
    (lambda t, _: Untyped.open(t.url, as_of="2026-01-01"), f"as_of: {MOMENT}, got '2026"),
    (lambda t, _: Untyped.open(t.url, as_of=date(2026, 1, 1)), f"as_of: {MOMENT}"),
    (lambda t, _: Untyped.open(t.url, as_of=1_700_000_000), f"as_of: {MOMENT}"),
    (lambda t, _: Untyped.exists(None), "url: expected str | PathLike[str], got None"),
    (lambda t, new: Untyped.create(new, ROWS, sort_by=5), f"sort_by: {TEXT}, got 5"),
    (lambda t, new: Untyped.create(new, ROWS, ["k"]), f"sort_by: {TEXT}, got ['k']"),
    (lambda t, new: Untyped.create(new, ROWS, "k", {"writer": 5}), f"options: {INSTANCE} IngestOptions"),
    (created(rows_per_fragment="many"), f"options.rows_per_fragment: {INTEGER}, got 'many'"),
    (created(rows_per_fragment=0), f"options.rows_per_fragment: 0 {POSITIVE}"),
    (created(buffer_bytes=-1), f"options.buffer_bytes: -1 {POSITIVE}"),
    (created(writer=5), f"options.writer: {INSTANCE} WriterOptions, got 5"),
    (created(windows="k"), f"options.windows: {INSTANCE} TimeWindows, got 'k'"),
    (created(windows=TimeWindows("k", 0)), f"options.windows.window_seconds: 0 {POSITIVE}"),
    (created(windows=TimeWindows("k", 60, -1)), f"options.windows.retention_seconds: -1 {NATURAL}"),
    (created(rows=untyped(RowPolicy)("newest")), "options.rows.kind: 'newest' is none of: append, last"),
    (created(rows=RowPolicy), f"options.rows: {INSTANCE} RowPolicy"),
    (created(rows=RowKind.LAST), f"options.rows: {INSTANCE} RowPolicy"),
    (created(rows=untyped(RowPolicy)(RowKind.AGGREGATE, aggregates=(("t", "mean"),))),
     "options.rows.aggregates.0.1: 'mean' is none of: last, first, sum"),
    (created(ttl=untyped(Ttl)("k", "1h")), f"options.ttl.seconds: {INTEGER}, got '1h'"),
    (created(skips=untyped(SkipSpec)((("k", "tree"),))), "options.skips.columns.0.1: 'tree' is none of"),
    (created(on_conflict="divide"), "options.on_conflict: 'divide' is none of: error, "),
    (created(rows_per_fragment=np.int64(0)), f"options.rows_per_fragment: 0 {POSITIVE}"),
    (created(rows_per_fragment=np.float64(2)), f"options.rows_per_fragment: {INTEGER}, got 2.0"),
    (created(promotes="t"), "options.promotes: input should be a valid tuple, got 't'"),
    (created(promotes=("t",)), "options.promotes: works for files only"),
    (lambda t, _: t.append(ROWS, 5), f"options: {INSTANCE} IngestOptions, got 5"),
    (lambda t, _: t.scan(5), "columns: expected a list of names, got 5"),
    (lambda t, _: t.scan("t"), "columns: 't' is a single text; give a list, such as ['t']"),
    (lambda t, _: t.scan(["t", 5]), f"columns.1: {TEXT}, got 5"),
    (lambda t, _: t.scan(b"t"), "columns: b't' is a single text"),
    (lambda t, _: t.scan(c for c in (5,)), f"columns.0: {TEXT}, got 5"),
    (lambda t, _: t.scan({"t", 5}), f"columns.0: {TEXT}, got 5"),
    (lambda t, _: t.scan(["t"], 5), f"where: {TEXT}, got 5"),
    (lambda t, _: t.scan(where="\ud800 = 1"), "where: '\\ud800 = 1' is not Unicode text"),
    (lambda t, _: t.scan().to_file(5), "path: expected str | PathLike[str], got 5"),
    (lambda t, _: t.delete(None), f"where: {TEXT}, got None"),
    (lambda t, _: t.delete(True), f"where: {TEXT}, got True"),
    (lambda t, _: t.alter(renames={"t": 5}), f"renames.t: {TEXT}, got 5"),
    (lambda t, _: t.alter(renames=[("t", "u")]), "renames: input should be a valid dictionary"),
    (lambda t, _: t.alter(drops="t"), "drops: 't' is a single text; give a list, such as ['t']"),
    (lambda t, _: t.alter(redacts="t"), "redacts: 't' is a single text"),
    (lambda t, _: t.alter(order=[None]), f"order.0: {TEXT}, got None"),
    (lambda t, _: t.alter(skips={"t": "tree"}), "skips.t: 'tree' is none of: bloom, values"),
    (lambda t, _: t.alter(skip_bytes=0), f"skip_bytes: 0 {POSITIVE}"),
    (lambda t, _: t.verify(on_progress=5), "on_progress: input should be callable, got 5"),
    (lambda t, _: t.plan(take_over="no"), f"take_over: 'no' {BOOLEAN}"),
    (lambda t, _: t.release("data/1.frag"), "fragments: 'data/1.frag' is a single text"),
    (lambda t, _: t.compact(full="no"), f"full: 'no' {BOOLEAN}"),
    (lambda t, _: t.compact(policy="leveled"), f"policy: {SETTINGS} Policy"),
    (lambda t, _: t.compact(policy=Strategy.FULL), "policy: input should be"),
    (lambda t, _: t.compact(settings=5), f"settings: {SETTINGS} CompactionSettings"),
    (lambda t, _: t.compact(spark="local[2]"), "spark: 'local[2]' is not a SparkSession"),
    (lambda t, _: t.compact(max_tasks=0), f"max_tasks: 0 {POSITIVE}"),
    (lambda t, _: t.vacuum(grace_seconds="1h"), f"grace_seconds: {NUMBER}, got '1h'"),
    (lambda t, _: t.vacuum(grace_seconds=-1), f"grace_seconds: -1 {NATURAL}"),
    (lambda t, _: t.vacuum(retain_seconds=-0.5), f"retain_seconds: -0.5 {NATURAL}"),
    (lambda t, _: t.vacuum(retain_seconds=float("nan")), f"retain_seconds: {FINITE}, got nan"),
    (lambda t, _: t.vacuum(grace_seconds=float("inf")), f"grace_seconds: {FINITE}, got inf"),
    (lambda t, _: t.vacuum(dry_run=1), f"dry_run: 1 {BOOLEAN}"),
    (lambda t, _: t.vacuum(allow_shrinking=1), f"allow_shrinking: 1 {BOOLEAN}"),
    (lambda t, _: t.history("5"), f"limit: {INTEGER}, got '5'"),
    (lambda t, _: t.history(-1), f"limit: -1 {NATURAL}"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), WRONG, ids=[message for _, message in WRONG])
def test_a_wrong_argument_is_named_with_what_was_given(
    table: Table, tmp_path: Path, call: Call, message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        call(table, tmp_path / "new")
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "new").exists()
    assert Table.open(table.url).version == table.version == 1


def test_the_table_of_wrong_calls_has_every_parameter() -> None:
    """`rows` may be anything: what has no stream of rows is an `InputError`."""
    said = {message.split(":")[0].split(".")[0] for _, message in WRONG}
    for kind in (Table, TableView, Scan):
        for name, member in vars(kind).items():
            function = getattr(member, "__func__", member)
            if not name.startswith("_") and inspect.isfunction(function):
                taken = set(inspect.signature(function).parameters) - {"self", "cls", "rows"}
                assert taken <= said, name


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: untyped(Policy)(strategy="eager"), "strategy: 'eager' is none of: leveled, tiered"),
        (lambda: untyped(Policy)(push_ratio="much"), f"push_ratio: {NUMBER}"),
        (lambda: untyped(Policy)(level0_triggers=5), "no setting 'level0_triggers'; there are: strategy, "),
        (lambda: untyped(CompactionSettings)(memory_limit_bytes=5),
         "memory_limit_bytes: 5 is too small: 16MiB"),
    ],
)  # fmt: skip
def test_settings_that_make_no_sense_are_refused_when_they_are_made(
    made: Callable[[], object], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        made()
    assert str(caught.value).startswith(message)


def test_arguments_that_are_missing_or_unknown_are_pythons_own_errors(table: Table) -> None:
    with pytest.raises(TypeError, match="missing a required argument: 'rows'"):
        table.append()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'wher'"):
        table.scan(wher="k = 1")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="is not a path"):
        open_fragment(5)  # type: ignore[arg-type]


def test_what_stands_for_a_plain_value_is_taken_for_it(table: Any, tmp_path: Path) -> None:
    assert Untyped.open(table.url, version=np.int64(1)).version == 1
    assert Untyped.open(Path(table.url.removeprefix("file://"))).version == 1
    assert table.history(np.uint8(1)).num_rows == 1
    assert table.scan(("t",)).schema.names == ["t"]
    assert table.vacuum(grace_seconds=np.float32(0.5), dry_run=np.bool_(True)).dry_run
    later = datetime.now(UTC).replace(year=2999)
    assert Untyped.open(table.url, as_of=later).version == 1
    with pytest.raises(VersionNotFoundError):
        Untyped.open(table.url, as_of=datetime.min)
    for number in (0, -1, 10**30):
        with pytest.raises(VersionNotFoundError):
            Untyped.open(table.url, version=number)


def test_options_take_lists_for_tuples_texts_for_kinds_and_scalars_of_numpy(tmp_path: Path) -> None:
    options = untyped(IngestOptions)(
        rows_per_fragment=np.int64(1),
        rows=untyped(RowPolicy)("aggregate", aggregates=[["t", "max"]]),
        ttl=untyped(Ttl)("at", np.int64(10**9)),
        skips=untyped(SkipSpec)([("t", "bloom")], np.uint16(64)),
        on_conflict="string",
        promotes=[],
    )
    rows = pa.table(
        {"at": [datetime.now(UTC)] * 3, "k": [1, 2, 3], "t": ["x", "y", "z"], "u": [4, 5, 6]}
    )
    table = Table.create(tmp_path / "t", rows, "k,at", options)
    made = CommitLog(open_store(table.url)).current().table
    assert made.rows == RowPolicy(RowKind.AGGREGATE, aggregates=(("t", RowFunction.MAX),))
    assert made.skips == SkipSpec((("t", SkipKind.BLOOM),), 64)
    assert made.ttl == Ttl("at", 10**9)
    assert len(table.fragments()) == 3
    table.append(pa.table({"at": [datetime.now(UTC)], "k": [4], "u": ["seven"]}), options)
    assert table.scan(["u"]).to_table()["u"].to_pylist() == ["4", "5", "6", "seven"]


def test_rows_that_are_a_dataclass_are_left_as_they_are(tmp_path: Path) -> None:
    @dataclass
    class Rows:
        batches: list[pa.RecordBatch]

        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            assert isinstance(self.batches, list)
            return pa.Table.from_batches(self.batches).__arrow_c_stream__(requested_schema)

    assert len(Table.create(tmp_path / "t", Rows(ROWS.to_batches()), "k")) == 2


def test_options_arrive_as_they_were_given(tmp_path: Path) -> None:
    options = IngestOptions(
        rows_per_fragment=1,
        writer=WriterOptions(max_rows=7),
        on_conflict=OnConflict.SPLIT,
        skips=SkipSpec((("t", SkipKind.VALUES),)),
        rows=RowPolicy(RowKind.LAST),
    )
    table = Table.create(tmp_path / "t", ROWS, "k", options)
    assert len(table.fragments()) == 2
    assert table.row_policy == RowPolicy(RowKind.LAST)


def test_what_is_printed_says_what_it_is(table: Table) -> None:
    assert repr(table.scan(["t"], "k = 1")) == f"<Scan {table.url} version 1: t, some rows>"
    table.append(ROWS)
    report = table.compact(full=True)
    assert f"{report.version}: 1 compactions done, 0 void, 0 attempts failed" in str(report)
    assert len(repr(report)) < 100


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (pl.LazyFrame({"k": [1]}), r"LazyFrame has no Arrow stream .*of a lazy one: collect\(\)"),
        (ds.dataset(ROWS), r"InMemoryDataset has no Arrow stream .*scanner\(\)\.to_reader\(\)"),
        (pl.DataFrame({"k": [1]}, schema={"k": pl.Int128}), "rows: cannot be read: .*cast the column"),
        (pa.table({"k": [1], "d": pa.array([1], pa.date64())}), "whole number of days: cast the column"),
        ([{"k": 1}], "list has no Arrow stream"),
    ],
)  # fmt: skip
def test_what_has_no_rows_that_arrow_can_read_says_what_to_give(
    table: Table, rows: Any, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        table.append(rows)
    assert Table.open(table.url).version == 1


NAMES: list[Callable[[list[str]], Any]] = [
    tuple, iter, pd.Index, np.array, dict.fromkeys,
    lambda names: (name for name in names),
    lambda names: dict.fromkeys(names).keys(),
    lambda names: pd.DataFrame(columns=names),
]  # fmt: skip


@pytest.mark.parametrize("kind", NAMES)
def test_names_come_from_anything_that_has_them(
    table: Table, kind: Callable[[list[str]], Any]
) -> None:
    scan = table.scan(kind(["t", "k"]))
    assert scan.to_table().schema.names == scan.to_table().schema.names == ["t", "k"]
    table.alter(order=kind(["t", "k"]), drops=kind([]), redacts=kind([]))
    assert table.schema.names == ["t", "k"]
    table.alter(redacts=kind(["t"]))
    assert table.scan().to_table()["t"].to_pylist() == [None, None]
    table.alter(drops=kind(["t"]))
    assert table.schema.names == ["k"]


def test_names_of_a_set_come_in_alphabetical_order(table: Table) -> None:
    table.append(pa.table({"k": [3], **{name: [1] for name in "zyxabc"}}))
    assert table.scan(set("zyxabc")).schema.names == list("abcxyz")
    table.alter(drops=frozenset("xyz"), order=set("cb"))
    assert table.schema.names == ["b", "c", "k", "t", "a"]


def test_a_scan_keeps_the_columns_it_was_asked_for(table: Table) -> None:
    columns = ["t"]
    scan = table.scan(columns)
    columns.append("k")
    assert scan.to_table().schema.names == ["t"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t, _: t.append(pa.table({"k": ["x"]})), "say options.on_conflict split or string"),
        (lambda t, _: t.append(ROWS, IngestOptions(rows=RowPolicy(RowKind.LAST))), "options.rows.kind: the"),
        (lambda t, _: t.append(ROWS, IngestOptions(ttl=Ttl("k", 5))), "options.ttl: the table has none"),
        (lambda t, _: t.append(ROWS, IngestOptions(windows=TimeWindows("k", 5))), "options.windows: the"),
        (lambda t, _: t.alter(order=["t", "t"]), "order names a column twice"),
        (lambda _, new: Table.create(new, ROWS, "k,k"), "sort_by: "),
        (lambda _, new: Table.create(new, ROWS, "k", IngestOptions(ttl=Ttl("t", 5))),
         "options.ttl.column: column 't' is string"),
        (lambda _, new: Table.create(new, ROWS, "k", IngestOptions(rows=RowPolicy(sequence="t"))),
         "options.rows.sequence"),
        (created(skips=SkipSpec((("k", SkipKind.BLOOM),))), "options.skips: 'k' is a sort column"),
    ],
)  # fmt: skip
def test_messages_name_arguments_and_no_flags(
    table: Table, tmp_path: Path, call: Call, message: str
) -> None:
    with pytest.raises((UsageError, InputError)) as caught:
        call(table, tmp_path / "new")
    assert message in str(caught.value)
    assert "--" not in str(caught.value)

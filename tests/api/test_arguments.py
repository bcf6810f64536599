"""Calls of the public interface with what was not meant: each is one clear line, and changes nothing."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import duckdb
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
from lsm_fragment import open_fragment
from tests.support.wording import refuses

ROWS = pa.table({"k": [2, 1], "t": ["x", "y"]})
Untyped: Any = Table
Call = Callable[[Any, Path], object]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table.create(tmp_path / "t", ROWS, "k")


def untyped(kind: type) -> Any:
    return kind


def created(**options: Any) -> Call:
    return lambda _, new: Table.create(new, ROWS, "k", IngestOptions(**options))


WRONG: list[tuple[Call, str]] = [
    (lambda t, _: Untyped.open(5), "url"),
    (lambda t, _: Untyped.open(b"t"), "url"),
    (lambda t, _: Untyped.open(t.url, version="1"), "version"),
    (lambda t, _: Untyped.open(t.url, version=1.0), "version"),
    (lambda t, _: Untyped.open(t.url, version=True), "version"),
    (lambda t, _: Untyped.open(t.url, as_of="soon"), "as_of"),
    (lambda t, _: Untyped.update(t, "n = 1", "n = 2"), "set"),
    (lambda t, _: Untyped.scan(t, limit=-1), "limit"),
    (lambda t, _: Untyped.open(t.url, as_of=date(2026, 1, 1)), "as_of"),
    (lambda t, _: Untyped.open(t.url, as_of=1_700_000_000), "as_of"),
    (lambda t, _: Untyped.open(t.url, tag=5), "tag"),
    (lambda t, _: Untyped.exists(None), "url"),
    (lambda t, new: Untyped.create(new, ROWS, sort_by=5), "sort_by"),
    (lambda t, new: Untyped.create(new, ROWS, ["k"]), "sort_by"),
    (lambda t, new: Untyped.create(new, ROWS, "k", {"writer": 5}), "options"),
    (created(rows_per_fragment="many"), "options.rows_per_fragment"),
    (created(rows_per_fragment=0), "options.rows_per_fragment"),
    (created(buffer_bytes=-1), "options.buffer_bytes"),
    (created(writer=5), "options.writer"),
    (created(windows="k"), "options.windows"),
    (created(windows=TimeWindows("k", 0)), "options.windows.window_seconds"),
    (created(windows=TimeWindows("k", 60, -1)), "options.windows.retention_seconds"),
    (created(rows=untyped(RowPolicy)("newest")), "options.rows.kind"),
    (created(rows=RowPolicy), "options.rows"),
    (created(rows=RowKind.LAST), "options.rows"),
    (created(rows=untyped(RowPolicy)(RowKind.AGGREGATE, aggregates=(("t", "mean"),))),
     "options.rows.aggregates.0.1"),
    (created(ttl=untyped(Ttl)("k", "1h")), "options.ttl.seconds"),
    (created(skips=untyped(SkipSpec)((("k", "tree"),))), "options.skips.columns.0.1"),
    (created(on_conflict="divide"), "options.on_conflict"),
    (created(back_pressure="panic"), "options.back_pressure"),
    (created(rows_per_fragment=np.int64(0)), "options.rows_per_fragment"),
    (created(rows_per_fragment=np.float64(2)), "options.rows_per_fragment"),
    (created(promotes="t"), "options.promotes"),
    (created(properties=5), "options.properties"),
    (lambda t, new: Untyped.create(new, ROWS, "k", properties=["stop_runs"]), "properties"),
    (created(promotes=("t",)), "options.promotes"),
    (lambda t, _: t.append(ROWS, 5), "options"),
    (lambda t, _: t.scan(5), "columns"),
    (lambda t, _: t.scan("t"), "columns"),
    (lambda t, _: t.scan(["t", 5]), "columns.1"),
    (lambda t, _: t.scan(b"t"), "columns"),
    (lambda t, _: t.scan(c for c in (5,)), "columns.0"),
    (lambda t, _: t.scan({"t", 5}), "columns.0"),
    (lambda t, _: t.scan(["t"], 5), "where"),
    (lambda t, _: t.scan(where="\ud800 = 1"), "where"),
    (lambda t, _: t.scan().to_file(5), "path"),
    (lambda t, _: t.scan(threads=0), "threads"),
    (lambda t, _: t.scan(threads=2.5), "threads"),
    (lambda t, _: t.templates(5), "column"),
    (lambda t, _: t.templates("t", 5), "where"),
    (lambda t, _: t.templates("t", threads=0), "threads"),
    (lambda t, _: t.templates("t", on_progress=5), "on_progress"),
    (lambda t, _: t.verify(threads="2"), "threads"),
    (lambda t, _: t.verify(threads=2000), "threads"),
    (lambda t, _: t.verify(against=1.5), "against"),
    (lambda t, _: t.changes(1.5), "since"),
    (lambda t, _: t.changes(1, 1.5), "until"),
    (lambda t, _: t.changes(1, columns=[1]), "columns.0"),
    (lambda t, _: t.changes(1, where=1), "where"),
    (lambda t, _: t.changes(1, threads=0), "threads"),
    (lambda t, _: t.tag("x", keep_later="yes"), "keep_later"),
    (lambda t, _: t.delete(None), "where"),
    (lambda t, _: t.delete("k = 1", threads=-1), "threads"),
    (lambda t, _: t.delete(True), "where"),
    (lambda t, _: t.alter(renames={"t": 5}), "renames.t"),
    (lambda t, _: t.alter(renames=[("t", "u")]), "renames"),
    (lambda t, _: t.alter(drops="t"), "drops"),
    (lambda t, _: t.alter(redacts="t"), "redacts"),
    (lambda t, _: t.alter(order=[None]), "order.0"),
    (lambda t, _: t.alter(skips={"t": "tree"}), "skips.t"),
    (lambda t, _: t.alter(skip_bytes=0), "skip_bytes"),
    (lambda t, _: t.alter(properties=["stop_runs"]), "properties"),
    (lambda t, _: t.verify(on_progress=5), "on_progress"),
    (lambda t, _: t.restore(version="1"), "version"),
    (lambda t, _: t.restore(version=1, dry_run=1), "dry_run"),
    (lambda t, _: t.tag(5), "name"),
    (lambda t, _: t.tag("a", keep_seconds=-1), "keep_seconds"),
    (lambda t, _: t.tag("a", move=1), "move"),
    (lambda t, _: t.untag(5), "name"),
    (lambda t, _: t.publish(5, "parquet"), "destination"),
    (lambda t, new: t.publish(new, "csv"), "kind"),
    (lambda t, new: t.publish(new, "iceberg", catalog=5), "catalog"),
    (lambda t, new: t.publish(new, "iceberg", name=5), "name"),
    (lambda t, new: t.publish(new, "parquet", min_level=-1), "min_level"),
    (lambda t, _: t.undo(5), "compaction"),
    (lambda t, _: t.plan(take_over="no"), "take_over"),
    (lambda t, _: t.release("data/1.frag"), "fragments"),
    (lambda t, _: t.quarantine("data/1.frag"), "fragments"),
    (lambda t, _: t.drop_fragment(1, lose_rows=True), "fragment"),
    (lambda t, _: t.drop_fragment("data/1.frag", lose_rows="yes"), "lose_rows"),
    (lambda t, _: t.scan(skip_missing=1), "skip_missing"),
    (lambda t, _: t.templates("t", skip_missing=1), "skip_missing"),
    (lambda t, _: t.delete("k = 1", skip_missing=1), "skip_missing"),
    (lambda t, _: t.compact(policy="leveled"), "policy"),
    (lambda t, _: t.compact(policy=Strategy.FULL), "policy"),
    (lambda t, _: t.compact(settings=5), "settings"),
    (lambda t, _: t.compact(spark="local[2]"), "spark"),
    (lambda t, _: t.compact(max_tasks=0), "max_tasks"),
    (lambda t, _: t.vacuum(grace_seconds="1h"), "grace_seconds"),
    (lambda t, _: t.vacuum(grace_seconds=-1), "grace_seconds"),
    (lambda t, _: t.vacuum(retain_seconds=-0.5), "retain_seconds"),
    (lambda t, _: t.vacuum(retain_seconds=float("nan")), "retain_seconds"),
    (lambda t, _: t.vacuum(grace_seconds=float("inf")), "grace_seconds"),
    (lambda t, _: t.vacuum(dry_run=1), "dry_run"),
    (lambda t, _: t.vacuum(allow_shrinking=1), "allow_shrinking"),
    (lambda t, _: t.history("5"), "limit"),
    (lambda t, _: t.to_duckdb("memory", "t"), "connection"),
    (lambda t, _: t.to_duckdb(duckdb.connect(), 5), "name"),
    (lambda t, _: t.history(-1), "limit"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "argument"), WRONG, ids=[argument for _, argument in WRONG])
def test_a_wrong_argument_is_named_with_what_was_given(
    table: Table, tmp_path: Path, call: Call, argument: str
) -> None:
    with refuses(UsageError, f"{argument}: "):
        call(table, tmp_path / "new")
    assert not (tmp_path / "new").exists()
    assert Table.open(table.url).version == table.version == 1


def test_the_table_of_wrong_calls_has_every_parameter() -> None:
    """`rows` may be anything: what has no stream of rows is an `InputError`."""
    said = {argument.split(".")[0] for _, argument in WRONG}
    for kind in (Table, TableView, Scan):
        for name, member in vars(kind).items():
            function = getattr(member, "__func__", member)
            if not name.startswith("_") and inspect.isfunction(function):
                taken = set(inspect.signature(function).parameters) - {"self", "cls", "rows"}
                assert taken <= said, name


@pytest.mark.parametrize(
    "made",
    [
        lambda: untyped(Policy)(strategy="eager"),
        lambda: untyped(Policy)(push_ratio="much"),
        lambda: untyped(Policy)(level0_triggers=5),
        lambda: untyped(CompactionSettings)(memory_limit_bytes=5),
    ],
)  # fmt: skip
def test_settings_that_make_no_sense_are_refused_when_they_are_made(
    made: Callable[[], object],
) -> None:
    with refuses(ConfigError):
        made()


def test_arguments_that_are_missing_or_unknown_are_pythons_own_errors(table: Table) -> None:
    with pytest.raises(TypeError, match="missing a required argument: 'rows'"):
        table.append()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'wher'"):
        table.scan(wher="k = 1")  # type: ignore[call-arg]
    with refuses(TypeError):
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
    report = table.compact(policy=Policy(strategy=Strategy.FULL))
    assert f"{report.version}: 1 compaction done, 0 void, 0 attempts failed" in str(report)
    assert len(repr(report)) < 100


@pytest.mark.parametrize(
    "rows",
    [
        pl.LazyFrame({"k": [1]}),
        ds.dataset(ROWS),
        pl.DataFrame({"k": [1]}, schema={"k": pl.Int128}),
        pa.table({"k": [1], "d": pa.array([1], pa.date64())}),
        [{"k": 1}],
    ],
)  # fmt: skip
def test_what_has_no_rows_that_arrow_can_read_says_what_to_give(table: Table, rows: Any) -> None:
    with refuses(InputError):
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
    "call",
    [
        lambda t, _: t.append(pa.table({"k": ["x"]})),
        lambda t, _: t.append(ROWS, IngestOptions(rows=RowPolicy(RowKind.LAST))),
        lambda t, _: t.append(ROWS, IngestOptions(ttl=Ttl("k", 5))),
        lambda t, _: t.append(ROWS, IngestOptions(windows=TimeWindows("k", 5))),
        lambda t, _: t.alter(order=["t", "t"]),
        lambda _, new: Table.create(new, ROWS, "k,k"),
        lambda _, new: Table.create(new, ROWS, "k", IngestOptions(ttl=Ttl("t", 5))),
        lambda _, new: Table.create(new, ROWS, "k", IngestOptions(rows=RowPolicy(sequence="t"))),
        created(skips=SkipSpec((("k", SkipKind.BLOOM),))),
    ],
)  # fmt: skip
def test_messages_name_arguments_and_no_flags(table: Table, tmp_path: Path, call: Call) -> None:
    with refuses((UsageError, InputError)) as caught:
        call(table, tmp_path / "new")
    assert "--" not in str(caught.value)

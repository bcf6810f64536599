"""Where a column was asked to be `not null`, at any depth, it is held; and where it was not, nothing is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from compactor import Table
from compactor.errors import InputError, TableExistsError, UsageError
from compactor.files.stream import StreamBatches
from compactor.read.verify import verify
from compactor.rows.policy import RowKind, RowPolicy
from compactor.settings.compaction import Strategy
from compactor.stores.local import LocalStore
from compactor.table.commit_log import CommitLog
from compactor.table.not_null import not_null_paths, null_place, with_not_null
from compactor.write.ingest import IngestOptions, commit_fragments, plan_ingest, write_fragments
from compactor.write.ingest.settings import IngestSettings
from lsm_fragment.keys.sort_schema import parse_sort_schema
from tests.support.tables import compact_table
from tests.support.wording import refuses

TYPES = pa.schema(
    {
        "k": pa.int64(),
        "s": pa.struct({"a": pa.int32(), "b.c": pa.list_(pa.string())}),
        "l": pa.large_list(pa.struct({"x": pa.float64()})),
        "v": pa.list_view(pa.string_view()),
        "f": pa.list_(pa.int8(), 2),
        "m": pa.map_(pa.string(), pa.list_(pa.int64())),
        "d": pa.dictionary(pa.int32(), pa.string()),
        "s.a": pa.int64(),
    }
)
GOOD: dict[str, Any] = {
    "k": 1, "s": {"a": 1, "b.c": ["x"]}, "l": [{"x": 0.5}], "v": ["a"], "f": [1, 2], "m": [("k", [1])],
    "d": "w", "s.a": 1,
}  # fmt: skip
BAD: dict[str, dict[str, Any]] = {
    "k": {"k": None},
    "s": {"s": None},
    "s.b.c.element": {"s": {"a": None, "b.c": [None]}},
    "l.element": {"l": [{"x": 1.0}, None]},
    "l.element.x": {"l": [{"x": None}]},
    "v.element": {"v": [None]},
    "f.element": {"f": [1, None]},
    "m.value": {"m": [("k", None)]},
    "m.value.element": {"m": [("k", [2, None])]},
    "d": {"d": None},
    "s.a": {"s.a": None},
}
HIDDEN: dict[str, dict[str, Any]] = {
    "s.b.c.element": {"s": None},
    "l.element.x": {"l": [None]},
    "f.element": {"f": None},
    "m.value.element": {"m": [("k", None)]},
}
"""Nulls around the place, which there may be."""


def rows(*changes: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist([{**GOOD, **change} for change in changes], TYPES)


@pytest.mark.parametrize("path", BAD)
def test_a_null_is_refused_where_the_user_asked_for_none_and_nowhere_else(
    tmp_path: Path, path: str
) -> None:
    options = IngestOptions(not_null=(path,))
    with refuses(InputError, path):
        Table.create(tmp_path / "t", rows({}, BAD[path]), "k", options)
    table = Table.create(tmp_path / "t", rows({}), "k", options)
    assert not_null_paths(table.schema) == (path,)
    with refuses(InputError, path):
        table.append(rows(BAD[path], {}))
    others = [bad for other, bad in BAD.items() if set(bad) != set(BAD[path])]
    table.append(rows(*others, HIDDEN.get(path, {}), {}))
    store = LocalStore(tmp_path / "t")
    assert not compact_table(store, strategy=Strategy.FULL).failed
    assert verify(store, CommitLog(store).current()).faults == []
    found = Table.open(tmp_path / "t").scan()
    assert found.schema == with_not_null(TYPES, [path])
    for ending in ("parquet", "arrow", "frag"):
        found.to_file(tmp_path / f"f.{ending}")
        again = Table.create(tmp_path / ending, tmp_path / f"f.{ending}")
        assert not_null_paths(again.schema) == ()
        assert again.scan().to_table().to_pylist() == found.to_table().to_pylist()
        again.append(rows(BAD[path]))
    said = pq.read_schema(tmp_path / "f.parquet")
    assert not_null_paths(said) == (path,)


def test_all_places_may_be_asked_for_at_once() -> None:
    schema = with_not_null(TYPES, BAD)
    assert set(not_null_paths(schema)) == set(BAD)
    for field in schema:
        column = rows(GOOD)[field.name].combine_chunks()
        assert null_place(column, field) is None
        assert null_place(column.slice(0, 0), field) is None
    assert null_place(rows({}, {"s": None})["s"].combine_chunks(), schema.field("s")) == "s"


def test_a_file_without_a_column_that_is_not_null_is_refused(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", rows({}), "k", IngestOptions(not_null=("d",)))
    with refuses(InputError):
        table.append(rows({}).drop_columns(["d"]))
    table.alter(renames={"d": "e"})
    with refuses(InputError):
        table.append(rows({}).drop_columns(["d"]))
    with refuses(InputError):
        table.append(rows(BAD["d"]).rename_columns({"d": "e"}))


def test_a_delete_marker_that_is_not_null_has_to_be_there(tmp_path: Path) -> None:
    policy = RowPolicy(RowKind.LAST, delete_marker="gone")
    options = IngestOptions(rows=policy, not_null=("gone",))
    with refuses(InputError):
        Table.create(tmp_path / "t", rows({}), "k", options)


@pytest.mark.parametrize("path", ["n", "o.n"])
def test_a_column_of_unknown_type_is_not_asked_to_be_not_null(tmp_path: Path, path: str) -> None:
    fields = {"k": pa.int64(), "n": pa.null(), "o": pa.struct({"n": pa.null()})}
    empty = pa.schema(fields).empty_table()
    with refuses(UsageError, f"{path!r}"):
        Table.create(tmp_path / "t", empty, "k", IngestOptions(not_null=(path,)))


def test_a_column_that_is_redacted_may_be_null_from_then_on(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", rows({}), "k", IngestOptions(not_null=("d", "m.value")))
    table.alter(redacts=["d", "m"])
    assert not_null_paths(Table.open(table.url).schema) == ()
    table.append(rows(BAD["d"], BAD["m.value"]))
    store = LocalStore(tmp_path / "t")
    assert not compact_table(store, strategy=Strategy.FULL).failed
    assert verify(store, CommitLog(store).current()).faults == []
    assert Table.open(table.url).scan().to_table()["m"].null_count == 1


def test_what_is_not_null_is_settled_when_a_table_is_created(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", rows({}), "k", IngestOptions(not_null=("d", "k")))
    table.append(rows({}), IngestOptions(not_null=("k", "d")))
    with refuses(UsageError):
        table.append(rows({}), IngestOptions(not_null=("k",)))
    store = LocalStore(tmp_path / "other")
    log = CommitLog(store)
    snapshot, sort = log.refresh(), parse_sort_schema("k")
    with StreamBatches(rows(BAD["d"]), 1 << 20) as batches:
        plan = plan_ingest(
            CommitLog(store), snapshot, batches.schema, batches.path, sort, IngestOptions()
        )
        written = write_fragments(store, plan, batches, "a" * 32)
    Table.create(tmp_path / "other", rows({}), "k", IngestOptions(not_null=("d",)))
    with pytest.raises(TableExistsError):
        commit_fragments(log, snapshot, plan, written.entries)


@pytest.mark.parametrize(
    "path",
    [
        "nothing",
        "s.z",
        "k.element",
        "m.key",
    ],
)
def test_a_path_that_leads_nowhere_is_refused(tmp_path: Path, path: str) -> None:
    with refuses(UsageError):
        Table.create(tmp_path / "t", rows({}), "k", IngestOptions(not_null=(path,)))
    assert not Table.exists(tmp_path / "t")


def test_verify_tells_of_a_null_that_should_not_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = IngestOptions(not_null=("l.element.x",))
    with monkeypatch.context() as patched:
        patched.setattr("compactor.write.file_schema.null_place", lambda *_: None)
        Table.create(tmp_path / "t", rows(BAD["l.element.x"]), "k", options)
    store = LocalStore(tmp_path / "t")
    (fault,) = verify(store, CommitLog(store).current()).faults
    assert "'l.element.x' has a null, which the table does not allow" in fault


def test_settings_take_paths_apart_by_commas() -> None:
    for given, paths in (("a, b.element", ("a", "b.element")), (('"a,b"', "c"), ("a,b", "c"))):
        assert IngestSettings.model_validate({"not_null": given}).options.not_null == paths

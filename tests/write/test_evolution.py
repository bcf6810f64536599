"""Schemas that change: columns renamed, dropped, redacted, reordered, added and widened."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from compactor import Table
from compactor.errors import InputError, UsageError
from compactor.files.stream import StreamBatches
from compactor.merge.inputs.changed_rows import ConvertedRows
from compactor.predicate.skipping.spec import SkipKind, SkipSpec
from compactor.read.scan import scan
from compactor.read.verify import verify
from compactor.rows.policy import RowFunction, RowKind, RowPolicy
from compactor.settings.compaction import CompactionSettings, Policy, Strategy
from compactor.stores.base import Store
from compactor.stores.local import LocalStore
from compactor.table.commit_log import CommitLog
from compactor.table.conditions import condition_on
from compactor.table.snapshot import Snapshot
from compactor.write.alter import Alteration, alter_table
from compactor.write.delete import delete_rows
from compactor.write.file_schema import OnConflict
from compactor.write.ingest import IngestOptions, ingest_batches, ingest_file
from lsm_fragment.container.reader import FragmentReader
from lsm_fragment.keys.sort_schema import parse_sort_schema
from tests.support.memory_store import MemoryStore
from tests.support.tables import append_table, compact_table
from tests.support.wording import refuses

Row = dict[str, Any]
NAMES = ["a", "b", "c", "d", "e"]


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def add(store: Store, table: pa.Table, max_rows: int = 5, **options: Any) -> CommitLog:
    return append_table(store, table, "k", IngestOptions(**options), max_rows=max_rows)


def rows_at(store: Store, snapshot: Snapshot, where: str | None = None) -> list[Row]:
    condition = None if where is None else condition_on(snapshot.table, where)
    return [row for batch in scan(store, snapshot, None, condition) for row in batch.to_pylist()]


class Model:
    """Rows as dictionaries; what a column is called is a key of theirs."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.names = ["k"]

    def append(self, table: pa.Table) -> None:
        self.names += [name for name in table.column_names if name not in self.names]
        self.rows += table.to_pylist()

    def alter(self, change: Alteration) -> None:
        def name(old: str) -> str:
            return change.renames.get(old, old)

        gone = {*change.drops, *change.redacts}
        self.rows = [{name(n): v for n, v in row.items() if n not in gone} for row in self.rows]
        names = [name(n) for n in self.names if n not in change.drops]
        self.names = [*change.order, *(n for n in names if n not in change.order)]

    def shown(self) -> list[Row]:
        rows = [{name: row.get(name) for name in self.names} for row in self.rows]
        return sorted(rows, key=lambda row: row[self.key])

    key = "k"


VALUES: dict[str, Any] = {
    "int8": (pa.int8(), lambda rng: rng.randrange(-100, 100)),
    "int32": (pa.int32(), lambda rng: rng.randrange(-(10**6), 10**6)),
    "double": (pa.float64(), lambda rng: rng.randrange(-100, 100) / 4),
    "s": (pa.timestamp("s"), lambda rng: datetime(2026, 1, 1) + timedelta(seconds=rng.randrange(99))),
    "ms": (pa.timestamp("ms"), lambda rng: datetime(2026, 1, 1, 0, 0, 0, 5000 * rng.randrange(99))),
    "text": (pa.string(), lambda rng: rng.choice(["x", "y", "zz" * 30])),
    "list": (pa.list_(pa.int64()), lambda rng: [rng.randrange(3)] * rng.randrange(3)),
}  # fmt: skip
GROUPS = [["int8", "int32", "double"], ["s", "ms"], ["text"], ["list"]]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(25))
def test_every_version_shows_its_own_columns_whatever_is_compacted_when(
    seed: int, tmp_path: Path
) -> None:
    rng = random.Random(seed)
    store, model = LocalStore(tmp_path / "t"), Model()
    kinds: dict[str, list[str]] = {}
    seen: dict[int, list[Row]] = {}
    next_k = 0

    def append() -> CommitLog:
        nonlocal next_k
        count = rng.randrange(1, 30)
        columns = {model.key: pa.array(rng.sample(range(next_k, next_k + count), count))}
        next_k += count
        for name in rng.sample(NAMES, rng.randrange(4)):
            dtype, value = VALUES[rng.choice(kinds.setdefault(name, rng.choice(GROUPS)))]
            columns[name] = pa.array(
                [value(rng) if rng.random() < 0.7 else None for _ in range(count)], dtype
            )
        table = pa.table(columns)
        log = add(store, table)
        model.append(table)
        return log

    def alter() -> None:
        others = [name for name in model.names if name != model.key]
        rng.shuffle(others)
        free = [name for name in NAMES if name not in model.names]
        change = Alteration(
            renames={others[0]: free[0]} if others and free and rng.random() < 0.5 else {},
            drops=others[1:2] if rng.random() < 0.4 else (),
            redacts=others[2:3] if rng.random() < 0.4 else (),
        )
        names = [change.renames.get(n, n) for n in model.names if n not in change.drops]
        if rng.random() < 0.5:
            change = Alteration(
                renames=change.renames,
                drops=change.drops,
                redacts=change.redacts,
                order=rng.sample(names, 1),
            )
        if not (change.renames or change.drops or change.redacts or change.order):
            return
        alter_table(CommitLog(store), change)
        model.alter(change)
        for name in (*change.renames, *change.drops):
            kinds.pop(name, None)
        for old, new in change.renames.items():
            # Types stay with the column; a free name may have been of another.
            field = CommitLog(store).refresh().table.shown_schema.field(new)
            kinds[new] = [k for group in GROUPS for k in group if VALUES[k][0] == field.type]
            assert kinds[new], old

    append()
    for _ in range(14):
        step = rng.choice([append, append, alter, alter, "compact"])
        if step == "compact":
            settings = CompactionSettings(
                max_rows_per_row_group=rng.choice([4, 1000]),
                target_fragment_bytes=rng.choice([3_000, 1 << 29]),
            )
            policy = Policy(strategy=rng.choice(list(Strategy)), level0_trigger_runs=2)
            assert not compact_table(store, settings, policy=policy).failed
        else:
            step()  # type: ignore[operator]
        seen[CommitLog(store).refresh().version] = model.shown()
    log = CommitLog(store)
    for version, rows in seen.items():
        assert rows_at(store, log.at(version)) == rows
    compact_table(store, strategy=Strategy.FULL)
    assert rows_at(store, log.current()) == model.shown()
    assert verify(store, log.current()).faults == []
    retired = set(log.latest.table.retired)
    assert all(retired.isdisjoint(entry.columns) for entry in log.latest.fragments.all())


def three(store: Store) -> CommitLog:
    add(store, pa.table({"k": [1, 2], "email": ["a@x", "b@x"], "n": [1, 2]}))
    return add(store, pa.table({"k": [3], "email": ["c@x"], "n": [3]}))


def test_a_dropped_columns_values_do_not_come_back_under_its_name(store: MemoryStore) -> None:
    log = three(store)
    alter_table(log, Alteration(drops=["email"]))
    add(store, pa.table({"k": [4], "email": [17]}))
    expected = [
        {"k": k, "n": k if k < 4 else None, "email": 17 if k == 4 else None} for k in (1, 2, 3, 4)
    ]
    assert rows_at(store, log.current()) == expected
    compact_table(store, strategy=Strategy.FULL)
    assert rows_at(store, log.current()) == expected
    assert rows_at(store, log.current(), "email = 17") == expected[3:]
    assert rows_at(store, log.at(2))[0] == {"k": 1, "email": "a@x", "n": 1}


def test_what_was_redacted_is_in_no_object_after_compaction_and_vacuum(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "t")
    secret = "secret-9f7a"
    add(store, pa.table({"k": [1, 2], "email": [secret, secret], "n": [1, 2]}))
    log = CommitLog(store)
    alter_table(log, Alteration(redacts=["email"]))
    assert rows_at(store, log.current())[0] == {"k": 1, "email": None, "n": 1}
    add(store, pa.table({"k": [2, 3], "email": ["new", None], "n": [5, 6]}))
    compact_table(store, strategy=Strategy.FULL)
    values = [row["email"] for row in rows_at(store, log.current())]
    assert values == [None, None, "new", None]
    live = {entry.key for entry in log.latest.fragments.all()}
    for key in live:
        data = store.read(key)
        assert FragmentReader(_Bytes(data), len(data), key).schema.names.count("email") == 0


class _Bytes:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def read_range(self, start: int, length: int) -> bytes:
        return self._data[start : start + length]


def test_conditions_and_columns_are_of_the_names_that_are_shown(store: MemoryStore) -> None:
    log = three(store)
    after = alter_table(log, Alteration(renames={"n": "email", "email": "n"}, order=["email"]))
    assert after.table.shown_schema.names == ["email", "k", "n"]
    assert rows_at(store, after, "email >= 2 AND n LIKE '%@x'") == [
        {"email": 2, "k": 2, "n": "b@x"},
        {"email": 3, "k": 3, "n": "c@x"},
    ]
    with refuses(UsageError, "'n'"):
        condition_on(after.table, "n > 1")


def test_the_python_api_shows_columns_by_their_names(tmp_path: Path) -> None:
    url = tmp_path / "t"
    table = Table.create(url, pa.table({"k": [2, 1], "n": [5, 6]}), "k")
    alter_table(CommitLog(LocalStore(url)), Alteration(renames={"k": "key", "n": "value"}))
    table.refresh()
    table.append(pa.table({"key": [3], "value": [7]}))
    assert table.schema.names == ["key", "value"]
    assert table.scan(["value"], where="key > 1").to_table().to_pydict() == {"value": [5, 7]}
    assert table.delete("value = 5").rows == 1
    assert table.scan().to_table().to_pylist() == [{"key": 1, "value": 6}, {"key": 3, "value": 7}]
    for value in ("x", b"x", {"n": 5}):
        with refuses(InputError, "column 'value'"):
            table.append(pa.table({"key": [4], "value": [value]}))


def test_a_merge_notices_rows_that_are_not_the_footers_before_they_are_converted(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = three(store)
    alter_table(log, Alteration(drops=["email"]))
    note = ConvertedRows.note

    def lossy(
        self: ConvertedRows, group: int, name: str, stored: pa.Array, written: pa.Array | None
    ) -> None:
        note(
            self,
            group,
            name,
            pa.nulls(len(stored), stored.type) if name == "email" else stored,
            written,
        )

    monkeypatch.setattr(ConvertedRows, "note", lossy)
    report = compact_table(store, strategy=Strategy.FULL)
    assert "as they were read" in str(report.to_json()["failures"])
    assert len(log.current().fragments) == 2


def test_statistics_of_a_coarser_unit_rule_out_the_right_fragments(store: MemoryStore) -> None:
    start = datetime(2026, 1, 1)
    seconds = pa.array([start + timedelta(seconds=n) for n in range(20)], pa.timestamp("s"))
    add(store, pa.table({"k": range(20), "t": seconds}))
    millis = pa.array([start + timedelta(milliseconds=1500)], pa.timestamp("ms"))
    log = add(store, pa.table({"k": [20], "t": millis}))
    assert log.current().table.schema.field("t").type == pa.timestamp("ms")
    found = rows_at(store, log.latest, "t >= '2026-01-01 00:00:01' AND t < '2026-01-01 00:00:03'")
    assert [row["k"] for row in found] == [1, 2, 20]
    compact_table(store, strategy=Strategy.FULL)
    assert rows_at(store, log.current(), "t = '2026-01-01 00:00:01.500'")[0]["k"] == 20


def test_times_and_numbers_become_finer_only_where_no_value_can_be_lost(store: MemoryStore) -> None:
    add(store, pa.table({"k": [1], "t": pa.array([1], pa.timestamp("ms")), "n": pa.array([2**40])}))
    with refuses(InputError):
        add(store, pa.table({"k": [2], "t": pa.array([1], pa.timestamp("ns"))}))
    with refuses(InputError):
        add(store, pa.table({"k": [2], "n": [0.5]}))
    with refuses(InputError):
        add(store, pa.table({"k": pa.array([0.5])}))


@pytest.mark.parametrize(
    "change",
    [
        Alteration(),
        Alteration(renames={"x": "y"}),
        Alteration(renames={"n": "email"}),
        Alteration(renames={"n": ""}),
        Alteration(drops=["k"]),
        Alteration(redacts=["k"]),
        Alteration(renames={"email": "mail"}, drops=["email"]),
        Alteration(drops=["n"], redacts=["n"]),
        Alteration(order=["n", "n"]),
        Alteration(drops=["n"], order=["n"]),
    ],
)
def test_what_cannot_be_altered_is_refused(store: MemoryStore, change: Alteration) -> None:
    log = three(store)
    with refuses(UsageError):
        alter_table(log, change)
    assert log.current().version == 2


def test_an_aggregated_column_cannot_be_dropped(store: MemoryStore) -> None:
    policy = RowPolicy(RowKind.AGGREGATE, aggregates=(("n", RowFunction.SUM),))
    log = add(store, pa.table({"k": [1], "n": [1], "x": [1]}), rows=policy)
    with refuses(UsageError):
        alter_table(log, Alteration(drops=["n"]))
    alter_table(log, Alteration(drops=["x"], renames={"n": "sum"}))
    add(store, pa.table({"k": [1], "sum": [5]}))
    assert rows_at(store, log.current()) == [{"k": 1, "sum": 6}]


def test_a_drop_while_rows_are_written_holds_of_those_too(store: MemoryStore) -> None:
    three(store)
    log = CommitLog(store)
    planned = log.refresh()
    alter_table(CommitLog(store), Alteration(drops=["email"]))
    with StreamBatches(pa.table({"k": [9], "email": ["late"], "n": [9]}), 1 << 20) as batches:
        ingest_batches(store, log, planned, batches, None, IngestOptions())
    assert rows_at(store, log.current())[-1] == {"k": 9, "n": 9}
    compact_table(store, strategy=Strategy.FULL)
    assert rows_at(store, log.current())[-1] == {"k": 9, "n": 9}


def test_a_column_that_gets_a_name_meanwhile_is_not_mixed_up_with_another(
    store: MemoryStore,
) -> None:
    three(store)
    log = CommitLog(store)
    planned = log.refresh()
    alter_table(CommitLog(store), Alteration(renames={"email": "extra"}))
    with (
        StreamBatches(pa.table({"k": [9], "extra": ["x"], "n": [9]}), 1 << 20) as batches,
        refuses(InputError),
    ):
        ingest_batches(store, log, planned, batches, None, IngestOptions())


CONFLICTS = {
    "k": pa.array([1, 2]),
    "i": pa.array([5, None]),
    "f": pa.array([0.5, 2.0]),
    "t": pa.array([datetime(2026, 1, 2), None], pa.timestamp("ms")),
    "b": pa.array([True, False]),
}


@pytest.mark.parametrize("compacts", [False, True])
def test_a_column_may_become_text_where_its_values_conflict(
    store: MemoryStore, compacts: bool
) -> None:
    log = add(store, pa.table(CONFLICTS), skips=SkipSpec((("i", SkipKind.BLOOM),)))
    texts = pa.table({"k": [3], **{name: ["x"] for name in "iftb"}})
    with refuses(InputError):
        add(store, texts)
    add(store, texts, on_conflict=OnConflict.STRING)
    add(store, pa.table({"k": [4], "i": [77]}), on_conflict=OnConflict.STRING)
    if compacts:
        assert not compact_table(store, strategy=Strategy.FULL).failed
        assert verify(store, log.current()).faults == []
    rows = rows_at(store, log.current())
    assert rows[0] == {"k": 1, "i": "5", "f": "0.5", "t": "2026-01-02T00:00:00.000", "b": "true"}
    assert [row["i"] for row in rows] == ["5", None, "x", "77"]
    assert [row["k"] for row in rows_at(store, log.latest, "i = '5' OR i = '77'")] == [1, 4]
    assert [row["k"] for row in rows_at(store, log.latest, "f >= '2' OR t < '2026-01-03'")] == [
        1,
        2,
        3,
    ]
    assert log.at(1).table.schema.field("i").type == pa.int64()


@pytest.mark.parametrize("compacts", [False, True])
@pytest.mark.parametrize("is_first", [False, True])
@pytest.mark.parametrize(
    "dtype",
    [
        pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string()),
        pa.dictionary(pa.int32(), pa.large_string()),
    ],
    ids=str,
)  # fmt: skip
def test_a_column_that_becomes_text_holds_texts_of_all_types(
    store: MemoryStore, dtype: pa.DataType, is_first: bool, compacts: bool
) -> None:
    """Polars' texts are large strings."""
    texts = pa.table({"k": [1], "v": pa.array(["a"]).cast(dtype)})
    numbers = pa.table({"k": [2], "v": [5]})
    for rows in (texts, numbers) if is_first else (numbers, texts):
        log = add(store, rows, on_conflict=OnConflict.STRING)
    if compacts:
        assert not compact_table(store, strategy=Strategy.FULL).failed
    assert verify(store, log.current()).faults == []
    assert rows_at(store, log.current()) == [{"k": 1, "v": "a"}, {"k": 2, "v": "5"}]


def test_values_that_conflict_may_go_to_a_column_of_their_own(
    store: MemoryStore, tmp_path: Path
) -> None:
    log = add(store, pa.table(CONFLICTS))
    for name, text in (("a", '{"k":3,"i":"x","f":[1]}'), ("b", '{"k":4,"i":"y","f":7}')):
        path = tmp_path / f"{name}.ndjson"
        path.write_text(text)
        ingest_file(store, log, str(path), None, IngestOptions(on_conflict=OnConflict.SPLIT))
    compact_table(store, strategy=Strategy.FULL)
    rows = rows_at(store, log.current())
    assert [row["i"] for row in rows] == [5, None, None, None]
    assert [row["i_text"] for row in rows] == [None, None, "x", "y"]
    assert [(row["f"], row["f_list"]) for row in rows[2:]] == [(None, [1]), (7.0, None)]


def test_values_of_nested_types_go_to_columns_named_after_their_kind(store: MemoryStore) -> None:
    log = add(store, pa.table({"k": [1], "v": ["x"]}))
    for value in (
        pa.array([{"a": 1}]),
        pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
        pa.array([[1]]),
    ):
        rows = pa.table({"k": pa.array([2]), "v": value})
        add(store, rows, on_conflict=OnConflict.SPLIT)
    names = log.refresh().table.shown_schema.names
    assert names == ["k", "v", "v_struct", "v_map", "v_list"]


def test_a_sort_column_of_another_type_is_named_with_both_types_when_others_are_split(
    store: MemoryStore,
) -> None:
    add(store, pa.table({"k": [1], "v": [1]}))
    with refuses(InputError, "sort column 'k' is string, the table's is int64", "does not change"):
        add(store, pa.table({"k": ["x"], "v": [1]}), on_conflict=OnConflict.SPLIT)


def test_what_orders_or_adds_up_rows_is_never_made_text(store: MemoryStore) -> None:
    policy = RowPolicy(RowKind.AGGREGATE, aggregates=(("n", RowFunction.SUM),))
    log = add(store, pa.table({"k": [1], "n": [1], "l": [[1]]}), rows=policy)
    for name in ("k", "n", "l"):
        columns = {"k": [1], "n": [1]} | {name: ["x"]}
        kind = {"k": "sort column", "n": "aggregated column"}.get(name, "column")
        with refuses(InputError, f": {kind} {name!r} is"):
            add(store, pa.table(columns), on_conflict=OnConflict.STRING)
    assert log.current().version == 1


def test_a_deletion_by_a_column_that_goes_meanwhile_says_so(store: MemoryStore) -> None:
    log = three(store)
    alter_table(CommitLog(store), Alteration(drops=["n"]))
    with refuses(UsageError):
        delete_rows(store, log, "n = 1")


def test_stored_names_are_never_given_twice(store: MemoryStore) -> None:
    log = three(store)
    alter_table(log, Alteration(renames={"email": "b"}))
    add(store, pa.table({"k": [9], "email": ["x"], "email#2": ["y"], "n": [1]}))
    assert rows_at(store, log.current())[-1] == {
        "k": 9,
        "b": None,
        "n": 1,
        "email": "x",
        "email#2": "y",
    }
    alter_table(log, Alteration(redacts=["email", "email#2"]))
    assert len(set(log.latest.table.schema.names)) == 5
    assert rows_at(store, log.current())[-1] == {
        "k": 9,
        "b": None,
        "n": 1,
        "email": None,
        "email#2": None,
    }


def test_a_column_without_a_name_is_the_same_one_after_an_alteration(store: MemoryStore) -> None:
    rows = pa.table({"k": [1], "": ["x"], "b": [2]})
    log = append_table(store, rows, "k")
    alter_table(log, Alteration(skips={"": SkipKind.BLOOM}))
    alter_table(log, Alteration(redacts=["b"]))
    append_table(store, rows, None)
    table = log.current().table
    assert table.shown_schema.names == ["k", "", "b"]
    assert table.skips.columns == (("", SkipKind.BLOOM),)
    assert [row[""] for row in rows_at(store, log.current())] == ["x", "x"]


def test_a_column_that_was_added_again_is_refused_by_the_name_that_users_see(
    store: MemoryStore,
) -> None:
    log = append_table(store, pa.table({"k": [1], "f": [1.5]}), "k")
    alter_table(log, Alteration(redacts=["f"]))
    with refuses(UsageError, "column 'f' is double"):
        alter_table(log, Alteration(skips={"f": SkipKind.BLOOM}))


@pytest.mark.parametrize("on_conflict", [OnConflict.STRING, OnConflict.SPLIT])
def test_a_field_of_several_kinds_in_one_file_becomes_text(
    tmp_path: Path, on_conflict: OnConflict
) -> None:
    files = {
        "new.ndjson": '{"k":1,"v":1}\n{"k":2,"v":"a"}\n',
        "numbers.ndjson": '{"k":3,"v":7}\n',
        "later.ndjson": '{"k":4,"v":{"a": 1}}\n{"k":5,"v":"b"}\n',
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    store, log = LocalStore(tmp_path / "t"), CommitLog(LocalStore(tmp_path / "t"))
    with refuses(InputError, "new.ndjson, line 2: field 'v' is a string here"):
        ingest_file(
            store, log, str(tmp_path / "new.ndjson"), parse_sort_schema("k"), IngestOptions()
        )
    for name in files:
        options = IngestOptions(on_conflict=on_conflict)
        ingest_file(store, log, str(tmp_path / name), parse_sort_schema("k"), options)
    rows = rows_at(store, log.current())
    is_split = on_conflict is OnConflict.SPLIT
    assert [row["v"] for row in rows] == ["1", "a", None if is_split else "7", '{"a": 1}', "b"]
    assert [row.get("v_int") for row in rows] == [None, None, 7 if is_split else None, None, None]


@pytest.mark.parametrize("end", [".ndjson", ".csv"])
@pytest.mark.parametrize("value", ["2026-01-01T00:00:00Z", "2026-01-01", "01.50"])
def test_a_text_file_is_stored_as_it_is_where_its_column_becomes_text(
    tmp_path: Path, end: str, value: str
) -> None:
    store = LocalStore(tmp_path / "t")
    add(store, pa.table({"k": [1], "c": [True]}))
    for k in (2, 3):  # the column becomes text, and is text
        path = tmp_path / f"{k}{end}"
        path.write_text(f"k,c\n{k},{value}\n" if end == ".csv" else f'{{"k":{k},"c":"{value}"}}\n')
        options = IngestOptions(on_conflict=OnConflict.STRING)
        ingest_file(store, CommitLog(store), str(path), None, options)
    rows = rows_at(store, CommitLog(store).current())
    assert [row["c"] for row in rows] == ["true", value, value]


@pytest.mark.parametrize("on_conflict", [OnConflict.STRING, OnConflict.SPLIT])
def test_a_number_column_and_a_file_of_several_kinds_follow_what_was_asked_for(
    tmp_path: Path, on_conflict: OnConflict
) -> None:
    store = LocalStore(tmp_path / "t")
    add(store, pa.table({"k": [1], "v": [5], "t": ["a"]}))
    path = tmp_path / "a.ndjson"
    path.write_text('{"k":2,"v":6,"t":1}\n{"k":3,"v":"x","t":"b"}\n')
    log = CommitLog(store)
    ingest_file(store, log, str(path), None, IngestOptions(on_conflict=on_conflict))
    rows = rows_at(store, log.current())
    column = "v_text" if on_conflict is OnConflict.SPLIT else "v"
    assert [row[column] for row in rows][1:] == ["6", "x"]
    assert [row["t"] for row in rows] == ["a", "1", "b"]
    assert rows[0]["v"] == (5 if on_conflict is OnConflict.SPLIT else "5")

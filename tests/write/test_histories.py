"""Random histories of appends, overwrites, updates, deletions and compactions, beside a model of dicts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compactor.api.table import Table
from compactor.read.verify import verify
from compactor.rows.policy import RowFunction, RowKind, RowPolicy
from compactor.settings.compaction import Strategy
from compactor.table.commit_log import CommitLog
from compactor.write.ingest import IngestOptions
from lsm_fragment.container.writer import WriterOptions
from tests.support.memory_store import MemoryStore
from tests.support.tables import compact_table, table_rows

Row = dict[str, Any]
SCHEMA: Final = pa.schema([("k", pa.int64()), ("n", pa.int64()), ("word", pa.string())])
POLICIES: Final = {
    "append": RowPolicy(),
    "last": RowPolicy(RowKind.LAST),
    "first": RowPolicy(RowKind.FIRST),
    "partial-update": RowPolicy(RowKind.PARTIAL_UPDATE),
    "aggregate": RowPolicy(RowKind.AGGREGATE, aggregates=(("n", RowFunction.SUM),)),
}
CONDITIONS: Final[dict[str, Callable[[Row], bool]]] = {
    "true": lambda _row: True,
    "k < 3": lambda row: row["k"] < 3,
    "n % 2 = 0": lambda row: row["n"] is not None and row["n"] % 2 == 0,
    "word IS NULL OR k = 5": lambda row: row["word"] is None or row["k"] == 5,
    "word = 'b' AND n > 3": lambda row: row["word"] == "b" and (row["n"] or 0) > 3,
}
ASSIGNMENTS: Final[Sequence[tuple[dict[str, Any], dict[str, Callable[[Row], Any]]]]] = (
    ({"n": "n + 1"}, {"n": lambda row: None if row["n"] is None else row["n"] + 1}),
    ({"word": None, "n": 6}, {"word": lambda _row: None, "n": lambda _row: 6}),
    (
        {"word": "CASE WHEN word = 'a' THEN 'b' END", "n": "k"},
        {"word": lambda row: "b" if row["word"] == "a" else None, "n": lambda row: row["k"]},
    ),
)
ROW: Final = st.fixed_dictionaries(
    {
        "k": st.integers(0, 6),
        "n": st.none() | st.integers(0, 9),
        "word": st.sampled_from(["a", "b", None]),
    }
)
STEPS: Final = st.one_of(
    st.tuples(st.just("append"), st.lists(ROW, min_size=1, max_size=8)),
    st.tuples(st.just("overwrite"), st.none() | st.sampled_from(sorted(CONDITIONS)), st.lists(ROW)),
    st.tuples(st.just("update"), st.sampled_from(sorted(CONDITIONS)), st.sampled_from(ASSIGNMENTS)),
    st.tuples(st.just("delete"), st.sampled_from(sorted(CONDITIONS))),
    st.tuples(st.just("compact"), st.sampled_from(["full", "overlapping"])),
)


class Model:
    """The rows of a table by its policy, in plain Python."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.rows: list[Row] = []

    def append(self, rows: Sequence[Row]) -> None:
        for row in rows:
            older = next((known for known in self.rows if known["k"] == row["k"]), None)
            if self.kind == "append" or older is None:
                self.rows.append(dict(row))
            elif self.kind == "last":
                older.update(row)
            elif self.kind != "first":
                newer = {name: value for name, value in row.items() if value is not None}
                if self.kind == "aggregate" and None not in (row["n"], older["n"]):
                    newer["n"] = row["n"] + older["n"]
                older.update(newer)

    def delete(self, condition: str) -> None:
        self.rows = [row for row in self.rows if not CONDITIONS[condition](row)]

    def update(self, condition: str, new: dict[str, Callable[[Row], Any]]) -> int:
        matching = [row for row in self.rows if CONDITIONS[condition](row)]
        for row in matching:
            row.update({name: value(row) for name, value in new.items()})
        return len(matching)


def in_order(rows: Sequence[Row]) -> list[str]:
    return sorted(repr((row["k"], row["n"], row["word"])) for row in rows)


@pytest.mark.parametrize("kind", POLICIES)
@settings(max_examples=15, deadline=None)
@given(steps=st.lists(STEPS, min_size=1, max_size=7))
def test_any_history_leaves_the_rows_that_a_model_has(
    kind: str, steps: Sequence[tuple[Any, ...]]
) -> None:
    store, model = MemoryStore(), Model(kind)
    log = CommitLog(store)
    table = Table(log, log.refresh())
    first = [{"k": key % 4, "n": key, "word": "ab"[key % 2]} for key in range(6)]
    writer = WriterOptions(3)
    options = IngestOptions(rows=POLICIES[kind], rows_per_fragment=5, writer=writer)
    table._ingest(pa.Table.from_pylist(first, SCHEMA), "k", options)
    model.append(first)
    for step in steps:
        match step:
            case ("append", rows):
                table.append(pa.Table.from_pylist(rows, SCHEMA), options)
                model.append(rows)
            case ("overwrite", condition, rows):
                rows = [row for row in rows if condition is None or CONDITIONS[condition](row)]
                table.overwrite(pa.Table.from_pylist(rows, SCHEMA), condition, options)
                model.delete(condition or "true")
                model.append(rows)
            case ("update", condition, (assigned, new)):
                report = table.update(condition, assigned)
                assert report.rows == model.update(condition, new)
            case ("delete", condition):
                table.delete(condition)
                model.delete(condition)
            case ("compact", strategy):
                compact_table(store, strategy=Strategy(strategy))
        assert in_order(table_rows(store)) == in_order(model.rows)
    assert verify(store, CommitLog(store).current()).faults == []

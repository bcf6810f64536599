"""Random small datasets and random changes of them, against a merge in plain Python."""

from __future__ import annotations

import itertools
import json
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compactor.entities.column_types import typed
from compactor.entities.entity_merge import merged_batches
from compactor.settings.compaction import Strategy as Compaction
from tests.entities.model import Model, after_run, columns_after
from tests.entities.support import by_id, entities_in, rows, run, spec, types, write
from tests.support.memory_store import MemoryStore
from tests.support.tables import compact_table

ONE_TYPE = {
    "k": st.integers(-2, 2) | st.lists(st.integers(0, 2), max_size=2),
    "l": st.sampled_from(["1", "a", "A", ""]),
    "p": st.sampled_from([1.0, -0.0, 1e16]) | st.none(),
    'é."\n': st.lists(st.booleans() | st.none(), max_size=2),
}
"""Values of properties that often have columns of one type."""
SCALARS = st.sampled_from(
    [0, 1, 2, "1", "a", "A", "\n\"\\'é", "", " \t\u00a0", "é", None,
     True, 1.0, 1.5, [], [1], {"n": 1}, {"n": ["a"], "m": 2}]
)  # fmt: skip
VALUES = SCALARS | st.lists(SCALARS, max_size=3)
FEW = st.sampled_from(["1", "2", "3"])


MIXED = dict.fromkeys(ONE_TYPE, VALUES)


def entities(prefix: str, values: Any = None) -> Any:
    if values is None:
        return entities(prefix, MIXED) | entities(prefix, ONE_TYPE)
    entity = st.fixed_dictionaries(
        {"_id": FEW.map(lambda n: prefix + n)},
        optional={
            **values,
            "$ids": st.sampled_from([None, [], "q1", ["q1"], ["q2", "q1"]]),
            "_deleted": st.sampled_from([True, False, None]),
        },
    )
    return st.lists(entity, max_size=4)


DATASETS = st.tuples(entities("a"), entities("b"), entities("")) | st.tuples(
    *(entities(prefix, ONE_TYPE) for prefix in ("a", "b", ""))
)
EDITS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.integers(0, 3),
        st.sampled_from(["k", "l", "p", "_deleted", "gone"]),
        st.sampled_from([1, 2, "a", [1, 2], None, True, [], 0.5, ["é"]]),
    ),
    min_size=1,
    max_size=3,
)
"""Which dataset, which of its entities, what of it, and its new value; null takes a property away."""


def edited(datasets: Any, edits: Any) -> Any:
    result = [[dict(e) for e in dataset] for dataset in datasets]
    for dataset, number, name, value in edits:
        if number >= len(result[dataset]):
            continue
        if name == "gone":
            del result[dataset][number]
        elif name == "_deleted" and value not in (1, None):
            result[dataset][number][name] = True
        elif value is None or name == "_deleted":
            result[dataset][number].pop(name, None)
        else:
            result[dataset][number][name] = value
    return result


RULES_OF_MODEL: list[tuple[Any, Any]] = [
    ("a.k", "b.k"),
    ("a.k", "b.l"),
    ("b.l", "c.k"),
    (["lower", "a.k"], "c.l"),
    ("a.k.n", "b.k"),
    ("a.l.n", ["lower", "c.k.n"]),
    ("a.$ids", "b.$ids"),
    ("b._id", "c.k"),
    ("a.nothing", "b.k"),
    (["and", "a.k", "a.l"], ["and", "b.k", "b.l"]),
    (["except", ["literal", "x"], "a.k"], ["replace", "a", "x", "b.k"]),
    (["except", "a.k", "a.l"], "c.k"),
    (["if", ["matches", "?", "a.k"], "a.l"], "b.k"),
    (["if", ["and", "a.k", ["matches", "*1*", "a.l"]], "a.k", ["upper", "a.l"]], "c.l"),
    (["if", "b.l", "b.k", "b.p"], "c.k"),
    (["substring", -1, 3, "a.k"], ["regex", "[0-9aAé]", "c.k"]),
    (["strip", "1", "a.k"], ["unaccent", "b.k"]),
    (
        ["concat", "a.k", ["literal", "-", ""], "a.l"],
        ["concat", "b.k", ["literal", "-"], "b.l"],
    ),
    ("a.k", "a.k"),
    ("b.k", "b.l"),
    ("c.k.n", ["lower", "c.l"]),
]
RULES = st.lists(st.sampled_from(RULES_OF_MODEL), max_size=3)
SURVIVORS = st.dictionaries(
    st.sampled_from(["k", "p", 'é."\n', "none"]),
    st.sampled_from(
        ["first", "longest", "most_frequent", "list", {"newest": "l"}, {"newest": "k"}]
    ),
    max_size=2,
)
NAMES = ("A a", "B b", "C c")
STRATEGIES = st.sampled_from(["default", "compact", "list"])


def strict(value: Any) -> str:
    """Of which 1, 1.0 and true are three."""
    return json.dumps(value, sort_keys=True)


def result_of(
    datasets: Any, rules: Any, strategy: str, identity: str = "composite", **settings: Any
) -> Any:
    named = list(zip("abc", datasets, strict=True))
    return Model(named, rules, strategy, identity, **settings).result()


@pytest.mark.long
@settings(max_examples=150, deadline=None)
@given(DATASETS, RULES, STRATEGIES, st.booleans(), SURVIVORS)
def test_a_first_run_is_what_the_model_says(
    datasets: Any, rules: Any, strategy: str, blanks: bool, survivors: Any
) -> None:
    chosen = spec(
        *NAMES,
        equality=[["eq", *rule] for rule in rules],
        strategy=strategy,
        link_blanks=blanks,
        survivors=survivors,
    )
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), dict(zip("ABC", datasets, strict=True)))
        store = MemoryStore()
        report = run(chosen, store, Path(folder))
        expected = result_of(datasets, rules, strategy, blanks=blanks, survivors=survivors)
        found = rows(store)
        assert strict(by_id(found)) == strict(expected)
        assert types(store) == columns_after({}, list(expected.values()))
        # In the order of their ids, numbered in that order.
        assert [e["_id"] for e in found] == sorted(expected)
        assert [e["_updated"] for e in found] == list(range(len(expected)))
        assert (report.new, report.changed, report.replaced) == (len(expected), 0, 0)


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(DATASETS, st.lists(EDITS, min_size=1, max_size=4), RULES, STRATEGIES, st.booleans())
def test_runs_after_changes_write_what_changed_and_nothing_else(
    first: Any, changes: Any, rules: Any, strategy: str, compacts: bool
) -> None:
    steps = list(itertools.accumulate(changes, edited, initial=first))
    chosen = spec(*NAMES, equality=[["eq", *rule] for rule in rules], strategy=strategy)
    store = MemoryStore()
    before: dict[str, Any] = {}
    numbers: dict[str, int] = {}
    columns: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        for datasets in steps:
            write(Path(folder), dict(zip("ABC", datasets, strict=True)))
            last = max(numbers.values(), default=-1)
            run(chosen, store, Path(folder))
            now = after_run(before, result_of(datasets, rules, strategy))
            found = rows(store)
            assert strict(by_id(found)) == strict(dict(sorted(now.items())))
            written = {i for i, e in now.items() if strict(e) != strict(before.get(i))}
            numbers = {e["_id"]: e["_updated"] for e in found}
            newer = {i for i, number in numbers.items() if number > last}
            columns = columns_after(columns, [now[i] for i in newer])
            assert types(store) == columns
            # What reads alike may have come of others: `p: [1]` of one that has a list and of two.
            assert newer >= written
            assert {e["_id"] for e in rows(store, since=last)} == newer
            assert len(set(numbers.values())) == len(numbers)
            objects = dict(store.objects)
            again = run(chosen, store, Path(folder))
            assert store.objects == objects
            assert (again.new, again.changed, again.replaced) == (0, 0, 0)
            before = now
            if compacts and found:
                compact_table(store, strategy=Compaction.FULL)
                assert rows(store) == found
                objects = dict(store.objects)
                run(chosen, store, Path(folder))
                assert store.objects == objects


@settings(max_examples=60, deadline=None)
@given(DATASETS, EDITS, RULES, st.permutations(range(3)))
def test_a_full_run_with_datasets_in_any_order_leaves_what_a_fresh_one_writes(
    first: Any, edits: Any, rules: Any, order: list[int]
) -> None:
    equality = [["eq", *rule] for rule in rules]
    store, fresh = MemoryStore(), MemoryStore()
    with tempfile.TemporaryDirectory() as folder:
        for datasets in (first, edited(first, edits)):
            write(Path(folder), dict(zip("ABC", datasets, strict=True)))
            run(spec(*NAMES, equality=equality), store, Path(folder))
        chosen = spec(*(NAMES[n] for n in order), equality=equality)
        run(chosen, store, Path(folder), full=True)
        run(chosen, fresh, Path(folder))
    left = {i: e for i, e in by_id(rows(store)).items() if "$replaced" not in e}
    assert strict(left) == strict(by_id(rows(fresh)))


@settings(max_examples=60, deadline=None)
@given(DATASETS, STRATEGIES)
def test_the_first_id_is_that_of_all_where_equal_ids_are_equal_entities(
    datasets: Any, strategy: str
) -> None:
    a, b, c = ([{**e, "_id": e["_id"][-1]} for e in dataset] for dataset in datasets)
    for entity in (*a, *b, *c):
        entity.pop("$ids", None)
    rules = [("a._id", "b._id"), ("b._id", "c._id"), ("a._id", "c._id")]
    chosen = spec(
        *NAMES,
        equality_sets=[["a._id", "b._id", "c._id"]],
        all_pairs=True,
        identity="first",
        strategy=strategy,
    )
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), {"A": a, "B": b, "C": c})
        store = MemoryStore()
        run(chosen, store, Path(folder))
        expected = result_of((a, b, c), rules, strategy, "first")
        assert strict(by_id(rows(store))) == strict(dict(sorted(expected.items())))


@settings(max_examples=60, deadline=None)
@given(DATASETS, RULES, STRATEGIES)
def test_entities_folded_a_few_at_a_time_are_the_same(
    datasets: Any, rules: Any, strategy: str
) -> None:
    chosen = spec(*NAMES, equality=[["eq", *rule] for rule in rules], strategy=strategy)
    inputs = [
        [pa.RecordBatch.from_pylist(part, schema=JSON)] if (part := _as_json(d)) else []
        for d in datasets
    ]
    whole = [e for batch in merged_batches(chosen, inputs) for e in entities_in(batch)]
    with patch("compactor.entities.output._BATCH_ENTITIES", 2):
        batches = list(merged_batches(chosen, inputs))
    assert [e for batch in batches for e in entities_in(batch)] == whole
    assert len(batches) >= len(whole) // 2


def test_a_rare_property_is_folded_once_for_many_batches() -> None:
    chosen, names = spec("A a"), [f"p{n}" for n in range(20)]
    schema = pa.schema([("_id", pa.string()), *((name, pa.int64()) for name in names)])
    values = [{"_id": f"a{n:03}", names[n % 20]: n} for n in range(200)]
    batch = pa.RecordBatch.from_pylist(values, schema)
    [whole] = merged_batches(chosen, [[batch]])
    with (
        patch("compactor.entities.output._WRITTEN_CELL_BYTES", 1 << 20),
        patch("compactor.entities.output.typed", wraps=typed) as typing,
    ):
        batches = list(merged_batches(chosen, [[batch]]))
    assert len(batches) > 50
    assert typing.call_count == len(names)
    assert pa.Table.from_batches(batches).equals(pa.Table.from_batches([whole]))


PARTS = st.fixed_dictionaries(
    {"x": st.sampled_from([1, "1", "a:", "a", "\\"]), "y": st.sampled_from([2, ":b", "b", "\\:"])},
    optional={"k": VALUES, "_deleted": st.booleans(), "$ids": st.sampled_from([[], ["q"]])},
)
ROWS = st.lists(PARTS, max_size=4)


@settings(max_examples=60, deadline=None)
@given(st.tuples(ROWS, ROWS, ROWS), RULES, st.booleans(), st.booleans())
def test_ids_of_columns_are_what_the_model_says(
    datasets: Any, rules: Any, in_arrays: bool, both: bool
) -> None:
    columns = ["x", "y"] if both else ["x"]

    def id_of(row: Any) -> str:
        texts = [str(row[name]) for name in columns]
        return (
            ":".join(t.replace("\\", "\\\\").replace(":", "\\:") for t in texts)
            if both
            else texts[0]
        )

    equality = [["eq", *rule] for rule in rules]
    with tempfile.TemporaryDirectory() as folder:
        if in_arrays:
            for name, rows_of in zip("ABC", datasets, strict=True):
                Path(folder, f"{name}.json").write_text(json.dumps(rows_of, indent=1))
        else:
            write(Path(folder), dict(zip("ABC", datasets, strict=True)))
        store = MemoryStore()
        run(spec(*NAMES, equality=equality, id=columns), store, Path(folder))
    named = [[{**row, "_id": id_of(row)} for row in dataset] for dataset in datasets]
    expected = result_of(named, rules, "default")
    assert strict(by_id(rows(store))) == strict(dict(sorted(expected.items())))


@settings(max_examples=60, deadline=None)
@given(DATASETS, RULES)
def test_rows_that_others_have_read_are_merged_alike(datasets: Any, rules: Any) -> None:
    chosen = spec(*NAMES, equality=[["eq", *rule] for rule in rules])
    inputs = [
        [pa.RecordBatch.from_pylist(part, schema=JSON)] if (part := _as_json(d)) else []
        for d in datasets
    ]
    found = [e for batch in merged_batches(chosen, inputs) for e in entities_in(batch)]
    expected = result_of(datasets, rules, "default")
    assert strict(by_id(found)) == strict(dict(sorted(expected.items())))


COLUMNS = ("k", "l", "p", 'é."\n', "$ids", "_deleted")
JSON = pa.schema([("_id", pa.string()), *((name, pa.json_()) for name in COLUMNS)])


def _as_json(dataset: Any) -> list[Any]:
    return [
        {"_id": e["_id"], **{k: json.dumps(v, indent=1) for k, v in e.items() if k != "_id"}}
        for e in dataset
    ]

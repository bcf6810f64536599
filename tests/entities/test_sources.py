"""Where entities and their ids come from: arrays, patterns, stores, and other columns than `_id`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from compactor.cli.main import run as command
from compactor.entities.dataset_rows import place_in
from compactor.entities.datasets import locate
from compactor.entities.entities import Entities
from compactor.entities.entity_merge import merged_batches
from compactor.entities.reading import read_dataset
from compactor.entities.spec import EntityMergeSpec
from compactor.errors import ConfigError, InputError, UsageError
from compactor.stores.open import open_store
from tests.entities.support import by_id, entities_in, rows, run, spec, write
from tests.support.memory_store import MemoryStore
from tests.support.tables import append_table
from tests.support.wording import refuses


def read(chosen: EntityMergeSpec, folder: Path) -> Entities:
    [at] = locate(chosen, str(folder))
    return read_dataset(at, chosen.datasets[0].name)


def ids(chosen: EntityMergeSpec, folder: Path) -> list[str]:
    found: list[str] = read(chosen, folder).ids.to_pylist()
    return found


class TestArrays:
    @pytest.mark.parametrize(
        "text",
        [
            '[{"_id":"a","k":1},{"_id":"b"}]',
            '\n [\n  {"_id":\n "a", "k": 1}\n ,{"_id": "b"},\n]\n',
            '\ufeff[{"_id": "b"}, {"_id": "a", "k": 1},]',
        ],
    )
    def test_an_array_of_entities_is_a_dataset(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "A.json").write_text(text, encoding="utf-8")
        found = read(spec("A a"), tmp_path)
        assert found.ids.to_pylist() == ["a", "b"]
        assert found.properties["k"].to_pylist() == ["1", None]

    def test_an_empty_array_is_an_empty_dataset(self, tmp_path: Path) -> None:
        (tmp_path / "A.json").write_text(" [ ]\n")
        assert ids(spec("A a"), tmp_path) == []

    @pytest.mark.parametrize(
        "text",
        ['[{"_id":"a"}', '[{"_id":"a"},\n{"_id": 1.5}]', '[{"_id":"a"}, 7]', '[{"_id":"a"}] x'],
    )
    def test_a_mistake_in_an_array_is_named_with_its_item(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "A.json").write_text(text)
        with refuses(InputError):
            read(spec("A a"), tmp_path)


class TestIds:
    def test_integers_are_ids_by_their_text(self, tmp_path: Path) -> None:
        write(tmp_path, {"A": [{"_id": 7}, {"_id": "x"}, {"_id": -(10**30)}, {"_id": "7", "k": 1}]})
        assert ids(spec("A a"), tmp_path) == ["-1" + "0" * 30, "7", "x"]
        pq.write_table(pa.table({"_id": pa.array([3, 1], pa.uint64())}), tmp_path / "B.parquet")
        assert ids(spec("B b"), tmp_path) == ["1", "3"]

    def test_another_column_may_have_the_id_and_stays_a_property(self, tmp_path: Path) -> None:
        (tmp_path / "A.csv").write_text("customer_id,_id,x\n007,u,1\n8,v,2\n")
        write(tmp_path, {"B": [{"customer_id": 8, "x": "2"}]})
        store = MemoryStore()
        chosen = spec("A a", "B b", id="customer_id", equality=[["eq", "a._id", "b._id"]])
        run(chosen, store, tmp_path)
        assert by_id(rows(store)) == {
            "0|007": {"_id": "0|007", "$ids": ["007"], "customer_id": "007", "x": "1"},
            "0|8|1|8": {"_id": "0|8|1|8", "$ids": ["8"], "customer_id": ["8", 8], "x": ["2", "2"]},
        }

    def test_ids_of_several_columns_are_as_distinct_as_their_values(self, tmp_path: Path) -> None:
        values = [("a:", "b"), ("a", ":b"), ("a\\", "b"), ("a", "\\b"), ("a", 1), ("a", "1")]
        write(tmp_path, {"A": [{"s": s, "n": n} for s, n in values]})
        assert ids(spec("A a", id=["s", "n"]), tmp_path) == sorted(
            ["a\\::b", "a:\\:b", "a\\\\:b", "a:\\\\b", "a:1"]
        )

    def test_each_dataset_may_have_columns_of_its_own(self, tmp_path: Path) -> None:
        write(tmp_path, {"A": [{"_id": "a"}], "B": [{"x": "b", "y": 2}]})
        store = MemoryStore()
        run(spec("A a", "B b", id={"B": ["y", "x"]}), store, tmp_path)
        assert list(by_id(rows(store))) == ["0|a", "1|2:b"]

    def test_rows_that_others_have_read_have_ids_of_columns_too(self) -> None:
        batch = pa.record_batch({"n": [2, 1], "x": ["b", "a"]})
        batches = merged_batches(spec("A a", id="n"), [[batch]])
        assert [e["_id"] for b in batches for e in entities_in(b)] == ["0|1", "0|2"]

    @pytest.mark.parametrize(
        "entity", [{"x": 1}, {"n": ""}, {"n": 1.5}, {"n": True}, {"n": None}, {"n": [1]}]
    )
    @pytest.mark.parametrize("columns", ["n", ["n", "x"]])
    def test_what_can_be_no_id_is_named(
        self, tmp_path: Path, entity: dict[str, Any], columns: Any
    ) -> None:
        write(tmp_path, {"A": [{"n": 1, "x": 2}, {"x": 1, **entity}]})
        with refuses(InputError, "line 2"):
            read(spec("A a", id=columns), tmp_path)

    def test_a_file_without_the_column_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "A.csv").write_text("_id\n1\n")
        with refuses(InputError):
            read(spec("A a", id="customer_id"), tmp_path)
        (tmp_path / "A.csv").write_text("customer_id\n1\n")
        with refuses(InputError):
            read(spec("A a"), tmp_path)

    @pytest.mark.parametrize(
        "said", [5, [], ["n", "n"], "", "_deleted", {"B": "n"}, {1: "n"}, {"A": {}}, [["n"]]]
    )
    def test_a_mistake_in_the_setting_is_named(self, said: Any) -> None:
        with refuses(ConfigError):
            spec("A a", id=said)


class TestPatterns:
    def test_files_of_a_pattern_are_one_dataset_in_the_order_of_their_names(
        self, tmp_path: Path
    ) -> None:
        (tmp_path / "crm-2.csv").write_text("_id,k\nx,2\n")
        write(tmp_path, {"crm-1": [{"_id": "x", "k": 1}, {"_id": "y"}], "other": [{"_id": "z"}]})
        chosen = spec("A a", sources={"A": f"{tmp_path}/crm-*"})
        found = read(chosen, tmp_path)
        assert found.ids.to_pylist() == ["x", "y"]
        assert found.properties["k"].to_pylist() == ['"2"', None]

    def test_tables_match_a_pattern_too(self, tmp_path: Path) -> None:
        for n in (1, 2):
            table = pa.table({"_id": [f"t{n}"], "k": [n]})
            append_table(open_store(str(tmp_path / f"orders-{n}")), table, "_id")
        write(tmp_path, {"orders-0": [{"_id": "t0"}]})
        chosen = spec("A a", sources={"A": f"file://{tmp_path}/orders-?*"})
        assert ids(chosen, tmp_path) == ["t0", "t1", "t2"]

    def test_a_pattern_without_a_match_is_not_there(self, tmp_path: Path) -> None:
        assert locate(spec("A a", sources={"A": f"{tmp_path}/*.csv"}), str(tmp_path)) == [None]

    def test_a_name_with_the_marks_of_a_pattern_is_found(self, tmp_path: Path) -> None:
        write(tmp_path, {"a[1]": [{"_id": "x"}], "a1": [{"_id": "y"}]})
        assert ids(spec("A a", sources={"A": f"{tmp_path}/a[1].ndjson"}), tmp_path) == ["x"]

    def test_what_matches_and_can_be_no_dataset_is_named(self, tmp_path: Path) -> None:
        write(tmp_path, {"a1": [{"_id": "x"}]})
        (tmp_path / "a2.txt").write_text("x")
        with refuses(InputError):
            locate(spec("A a", sources={"A": f"{tmp_path}/a*"}), str(tmp_path))

    def test_a_mistake_is_named_with_its_file(self, tmp_path: Path) -> None:
        write(tmp_path, {"a1": [{"_id": "x"}], "a2": [{"_id": "y"}, {"_id": ""}]})
        with refuses(InputError, "a2.ndjson, line 2"):
            read(spec("A a", sources={"A": f"{tmp_path}/a*"}), tmp_path)
        (tmp_path / "a2.ndjson").write_text('{"_id": "y"}\n{\n')
        with refuses(InputError):
            read(spec("A a", sources={"A": f"{tmp_path}/a*"}), tmp_path)

    def test_types_hold_for_all_files(self, tmp_path: Path) -> None:
        for n in (1, 2):
            (tmp_path / f"a{n}.csv").write_text(f"_id,k\nx{n},{n}\n")
        places = {"A": f"{tmp_path}/a*"}
        found = read(spec("A a", sources=places, types={"A": {"k": "integer"}}), tmp_path)
        assert found.properties["k"].to_pylist() == ["1", "2"]
        write(tmp_path, {"a3": [{"_id": "x3"}]})
        with refuses(InputError):
            read(spec("A a", sources=places, types={"A": {"k": "integer"}}), tmp_path)

    def test_lines_do_not_go_over_a_file_of_a_pattern(self, tmp_path: Path) -> None:
        write(tmp_path, {"a1": [{"_id": "x"}]})
        (tmp_path / "s.json").write_text(
            json.dumps({"version": 2, "datasets": ["A a"], "sources": {"A": f"{tmp_path}/a*"}})
        )
        target = ["--dry-run", "--ndjson", str(tmp_path / "a1.ndjson")]
        assert command(["entity-merge", str(tmp_path / "s.json"), *target]) == 2

    def test_places_of_rows_go_through_the_files(self, tmp_path: Path) -> None:
        write(tmp_path, {"a1": [{"_id": "x"}], "a2": [{"_id": "y"}, {"_id": "z"}]})
        [at] = locate(spec("A a", sources={"A": f"{tmp_path}/a*"}), str(tmp_path))
        assert at is not None
        assert [place_in(at, n).rsplit("/", 1)[-1] for n in range(3)] == [
            "a1.ndjson, line 1", "a2.ndjson, line 1", "a2.ndjson, line 2",
        ]  # fmt: skip


class TestEmpty:
    def test_a_header_without_rows_is_an_empty_dataset(self, tmp_path: Path) -> None:
        (tmp_path / "A.csv").write_text("_id,k\n")
        store = MemoryStore()
        report = run(spec("A a", types={"A": {"k": "integer"}}), store, tmp_path)
        assert (report.entities_read, report.missing_datasets) == (0, ())


class TestObjects:
    @pytest.fixture
    def place(self, s3_bucket: str) -> str:
        store = open_store(f"s3://{s3_bucket}")
        store.create("crm/a-1.csv", b"_id,k\nx,1\n")
        store.create("crm/a-2.ndjson", b'{"_id": "y", "k": "2"}\n{"_id": 3}\n')
        store.create("crm/B.json", b'[{"_id": "b", "k": "1"}]')
        append_table(open_store(f"s3://{s3_bucket}/crm/T"), pa.table({"_id": ["t"]}), "_id")
        return f"s3://{s3_bucket}/crm"

    def test_files_and_tables_of_a_store_are_datasets(self, place: str) -> None:
        chosen = spec(
            "A a", "B b", "C c", "T t",
            sources={"A": f"{place}/a-*", "C": f"{place}/a-2.ndjson"},
        )  # fmt: skip
        located = locate(chosen, place)
        assert [at is not None and at.is_file for at in located] == [True, True, True, False]
        found = [read_dataset(at, "x").ids.to_pylist() for at in located]
        assert found == [["3", "x", "y"], ["b"], ["3", "y"], ["t"]]

    def test_what_a_store_lacks_is_not_there(self, place: str) -> None:
        sources = {"A": f"{place}/no-*", "B": f"{place}/no.csv"}
        assert locate(spec("A a", "B b", "C c", sources=sources), place) == [None] * 3

    def test_two_objects_of_one_name_are_refused(self, place: str, s3_bucket: str) -> None:
        open_store(f"s3://{s3_bucket}").create("crm/B.csv", b"_id\nb\n")
        with refuses(UsageError):
            locate(spec("B b"), place)

"""Calls of entity merges from Python with what was not meant: each is one clear line, and writes nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from compactor.entities.entity_merge import EntityMerge, merged_batches
from compactor.entities.on_spark import SparkEntityMerge
from compactor.entities.run import EntityRun
from compactor.errors import UsageError
from compactor.spark.session import SparkOptions
from tests.entities.support import spec, write
from tests.support.memory_store import MemoryStore
from tests.support.wording import refuses

CHOSEN = spec("A a", "B b", version=2)
A, B = ([pa.record_batch({"_id": [name]})] for name in ("a1", "b1"))
Untyped: Any = EntityRun
Call = Callable[[MemoryStore], object]


class BytesPath:
    """A path as `os.scandir` gives it for a folder of bytes."""

    def __fspath__(self) -> bytes:
        return b"."

    def __repr__(self) -> str:
        return "a path of bytes"


def asked(**more: Any) -> Any:
    return Untyped(**{"spec": CHOSEN, "store": None, **more})


def running(**wrong: Any) -> Call:
    return lambda store: EntityMerge(asked(**{"store": store, **wrong})).run()


def merging(**wrong: Any) -> Call:
    def call(_store: MemoryStore) -> object:
        merge: Any = merged_batches
        return list(merge(**{"spec": CHOSEN, "inputs": [A, B], **wrong}))

    return call


def untyped(kind: type, *given: Any, **more: Any) -> Any:
    return kind(*given, **more)


WRONG: list[tuple[Call, str]] = [
    (running(spec="s.yaml"), "run.spec"),
    (running(store="./x"), "run.store"),
    (running(folder=5), "run.folder"),
    (running(folder=BytesPath()), "run.folder"),
    (running(full="yes"), "run.full"),
    (running(allow_changes=1), "run.allow_changes"),
    (running(tombstone_retention_seconds="30d"), "run.tombstone_retention_seconds"),
    (running(memory_limit_bytes=0), "run.memory_limit_bytes"),
    (running(memory_limit_bytes="1GiB"), "run.memory_limit_bytes"),
    (running(on_progress="bar"), "run.on_progress"),
    (running(store=None), "store"),
    (lambda _: untyped(EntityMerge, CHOSEN), "run"),
    (lambda _: untyped(EntityMerge, None), "run"),
    (lambda _: untyped(EntityMerge, asked(), connect=5), "connect"),
    (lambda _: untyped(EntityMerge, asked(), clock=5), "clock"),
    (lambda _: untyped(EntityMerge, asked(), max_looked_at="all"), "max_looked_at"),
    (lambda _: untyped(EntityMerge, asked()).explain("a1"), "asked"),
    (lambda _: untyped(EntityMerge, asked()).explain([5]), "asked.0"),
    (lambda _: untyped(EntityMerge, asked()).explain([]), "asked"),
    (lambda _: untyped(EntityMerge, asked()).explain(["a1", "b1", "c1"]), "asked"),
    (merging(spec="s.yaml"), "spec"),
    (merging(inputs=A[0]), "inputs"),
    (merging(inputs=[A]), "inputs"),
    (merging(inputs=[A, B, B]), "inputs"),
    (merging(inputs=[A, B[0]]), "inputs.1"),
    (merging(inputs=[A, pa.Table.from_batches(B)]), "inputs.1"),
    (merging(inputs=[[{"_id": "a1"}], B]), "inputs.0"),
    (merging(inputs=[5, B]), "inputs.0"),
    (merging(connect=5), "connect"),
    (merging(charge=5), "charge"),
    (lambda _: untyped(SparkEntityMerge, asked(store="./x")), "run.store"),
    (lambda _: untyped(SparkEntityMerge, asked(), connector=5), "connector"),
    (lambda _: untyped(SparkEntityMerge, asked(), one_task_bytes=-1), "one_task_bytes"),
    (lambda _: untyped(SparkEntityMerge, asked()).run("local[2]"), "store"),
    (lambda s: untyped(SparkEntityMerge, asked(store=s)).run("local[2]"), "spark"),
    (lambda s: untyped(SparkEntityMerge, asked(store=s)).run("", {"staging": "x"}), "options"),
    (lambda _: untyped(SparkEntityMerge, asked()).run("", SparkOptions(), dry_run=1), "dry_run"),
    (lambda _: untyped(SparkEntityMerge, asked()).explain("a1", "local[2]"), "asked"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "argument"), WRONG, ids=[argument for _, argument in WRONG])
def test_a_wrong_argument_is_named_with_what_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Call, argument: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, {"A": [{"_id": "a1"}], "B": [{"_id": "b1"}]})
    store = MemoryStore()
    with refuses(UsageError, f"{argument}: "):
        call(store)
    assert not store.objects
    assert {path.name for path in tmp_path.iterdir()} == {"A.ndjson", "B.ndjson"}


def test_what_stands_for_a_plain_value_is_taken_for_it(tmp_path: Path) -> None:
    write(tmp_path, {"A": [{"_id": "a1"}], "B": [{"_id": "b1"}]})
    run = asked(
        store=MemoryStore(),
        folder=tmp_path,
        full=np.bool_(True),
        tombstone_retention_seconds=np.int64(5),
        memory_limit_bytes=np.uint32(1 << 30),
    )
    assert EntityMerge(run).run().new == 2
    [batch] = merged_batches(CHOSEN, (iter(A), (batch for batch in B)))
    assert batch.column("_id").to_pylist() == ["0|a1", "1|b1"]

"""Pipelines whose files are objects of S3."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from compactor.errors import CompactorError, InputError
from compactor.files.places import matching_paths, place_of
from compactor.files.read import open_table_file
from compactor.pipelines.config import parse_pipeline
from compactor.pipelines.phases import check_pipeline, run_pipeline
from compactor.pipelines.run_report import RunReport
from compactor.stores.open import open_store
from tests.faults import Drop, calls
from tests.support.s3_server import S3Server
from tests.support.wording import refuses


def run(nodes: dict[str, Any], **settings: Any) -> RunReport:
    text = json.dumps({"nodes": nodes, **settings})
    return run_pipeline(parse_pipeline(text, "p.yaml"))


def put(bucket: str, key: str, data: bytes) -> None:
    open_store(f"s3://{bucket}").create(key, data)


def keys_of(bucket: str) -> list[str]:
    return [info.key for info in open_store(f"s3://{bucket}").list("")]


def rows_of(bucket: str, key: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in open_store(f"s3://{bucket}").read(key).splitlines()]


def parquet(table: pa.Table) -> bytes:
    pq.write_table(table, file := io.BytesIO())
    return file.getvalue()


def arrow(table: pa.Table) -> bytes:
    file = io.BytesIO()
    with pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    return file.getvalue()


def table(first: int, count: int = 2) -> pa.Table:
    return pa.table({"n": range(first, first + count)})


def test_sources_outputs_and_dead_letters_may_be_objects(
    s3_server: S3Server, s3_bucket: str
) -> None:
    put(s3_bucket, "in/a-1.csv.gz", gzip.compress(b"n\n1\n2\n"))
    put(s3_bucket, "in/a-2.csv", b"n\n3\n0\n")
    put(s3_bucket, "in/deeper/a-3.csv", b"n\n9\n")
    put(s3_bucket, "in/b.ndjson", b'{"n": 5}\nno\n')
    put(s3_bucket, "in/c.parquet", parquet(table(6)))
    put(s3_bucket, "in/d.arrow", arrow(table(8)))
    s3_server.reset()
    at = f"s3://{s3_bucket}"
    kinds = {"a": "a-?.csv*", "b": "[b]*.ndjson", "c": "c.parquet", "d": "d.arrow"}
    nodes = {
        **{name: {"source": {"path": f"{at}/in/{path}"}} for name, path in kinds.items()},
        "m": {"merge": {"inputs": list(kinds)}},
        "t": {"transform": {"input": "m", "columns": {"n": "n", "part": "6 / n"}}},
        "o": {"output": {"input": "t", "path": f"{at}/out/o.ndjson"}},
        "p": {"output": {"input": "t", "path": f"{at}/out/p.parquet"}},
        "s": {"output": {"input": "c", "path": f"{at}/out/s-{{}}.csv.gz", "split": {"rows": 1}}},
    }
    report = run(nodes, on_error="continue", dead_letter=f"{at}/bad.ndjson")
    assert [row["n"] for row in rows_of(s3_bucket, "out/o.ndjson")] == [1, 2, 3, 5, 6, 7, 8, 9]
    store = open_store(at)
    assert pq.read_table(io.BytesIO(store.read("out/p.parquet"))).num_rows == 8
    assert gzip.decompress(store.read("out/s-00001.csv.gz")) == b'"n"\n7\n'
    assert [(r["source"], r["row"]) for r in rows_of(s3_bucket, "bad.ndjson")] == [
        ("b", 2),
        ("a", 4),
    ] and report.dlq_count == 2
    read = [r.key for r in s3_server.requests("GET", prefix="in/")]
    assert sorted(read) == sorted(set(read)) and len(read) == 5
    assert sorted(r.key for r in s3_server.requests("HEAD", prefix="in/")) == sorted(read)
    written = [r.key for r in s3_server.requests("PUT")]
    assert sorted(written) == [
        "bad.ndjson", "out/o.ndjson", "out/p.parquet", "out/s-00000.csv.gz", "out/s-00001.csv.gz",
    ]  # fmt: skip


def test_an_object_that_is_named_like_a_pattern_is_read_by_its_name(s3_bucket: str) -> None:
    put(s3_bucket, "in/a1.csv", b"n\n1\n")
    at = f"s3://{s3_bucket}/in/a[1].csv"
    assert matching_paths(at) == [f"s3://{s3_bucket}/in/a1.csv"]
    put(s3_bucket, "in/a[1].csv", b"n\n2\n")
    assert matching_paths(at) == [at]


def test_large_objects_are_uploads_of_several_parts_and_a_failure_leaves_none(
    s3_server: S3Server, s3_bucket: str, tmp_path: Path
) -> None:
    rows = 400_000
    pq.write_table(pa.table({"n": range(rows), "x": ["y" * 30] * rows}), tmp_path / "in.parquet")
    out = f"s3://{s3_bucket}/out.ndjson"
    nodes: dict[str, Any] = {
        "a": {"source": {"path": str(tmp_path / "in.parquet")}},
        "t": {"transform": {"input": "a", "columns": {"n": f"1 / (n - {rows - 1})", "x": "x"}}},
        "o": {"output": {"input": "t", "path": out}},
    }
    with pytest.raises(CompactorError):
        run(nodes)
    assert s3_server.requests("POST") and keys_of(s3_bucket) == []
    assert not list(open_store(f"s3://{s3_bucket}").list_unfinished())
    nodes["t"]["transform"]["columns"]["n"] = "n"
    run(nodes)
    assert len(rows_of(s3_bucket, "out.ndjson")) == rows


def test_a_connection_that_breaks_is_resumed(s3_server: S3Server, s3_bucket: str) -> None:
    lines = [json.dumps({"n": n}) for n in range(200_000)]
    put(s3_bucket, "in.ndjson", "\n".join(lines).encode())
    s3_server.faults.add(Drop(after_bytes=500_000), at=calls("GET", prefix="in").first())
    at = f"s3://{s3_bucket}"
    nodes = {
        "a": {"source": {"path": f"{at}/in.ndjson"}},
        "o": {"output": {"input": "a", "path": f"{at}/out.ndjson"}},
    }
    assert run(nodes).outputs["o"].records_written == 200_000
    assert rows_of(s3_bucket, "out.ndjson")[-1] == {"n": 199_999}


@pytest.mark.parametrize(
    "source", ["none.csv", "none-*.csv", "folder/", "", "in.txt", "damaged.parquet"]
)
def test_objects_that_are_not_there_or_not_readable_are_named(s3_bucket: str, source: str) -> None:
    put(s3_bucket, "in.txt", b"n\n1\n")
    put(s3_bucket, "damaged.parquet", b"PAR1")
    nodes = {
        "a": {"source": {"path": f"s3://{s3_bucket}/{source}"}},
        "o": {"output": {"input": "a", "path": f"s3://{s3_bucket}/o.csv"}},
    }
    with refuses(CompactorError, "p.yaml, line 1: node 'a'"):
        check_pipeline(parse_pipeline(json.dumps({"nodes": nodes}), "p.yaml"))


@pytest.mark.parametrize("output", ["", "folder/", "o", "in.csv", "a//b.csv"])
def test_outputs_that_no_object_can_be_are_named(s3_bucket: str, output: str) -> None:
    put(s3_bucket, "in.csv", b"n\n1\n")
    nodes = {
        "a": {"source": {"path": f"s3://{s3_bucket}/in.csv"}},
        "o": {"output": {"input": "a", "path": f"s3://{s3_bucket}/{output}"}},
    }
    with refuses(CompactorError, "p.yaml, line 1: node 'o'"):
        check_pipeline(parse_pipeline(json.dumps({"nodes": nodes}), "p.yaml"))


def test_a_replaced_object_is_refused_rather_than_mixed(s3_bucket: str) -> None:
    put(s3_bucket, "in.csv", b"n\n1\n")
    place = place_of(f"s3://{s3_bucket}/in.csv")
    open_store(f"s3://{s3_bucket}").delete("in.csv")
    put(s3_bucket, "in.csv", b"n\n1\n2\n")
    with refuses(InputError, "in.csv"):
        place.open().read(1)


def test_an_object_replaced_between_two_passes_is_refused(s3_bucket: str) -> None:
    put(s3_bucket, "in.csv", b"n\n1\n2\n")
    address = f"s3://{s3_bucket}/in.csv"
    with open_table_file(address, held_bytes=0) as file:
        open_store(f"s3://{s3_bucket}").delete("in.csv")
        put(s3_bucket, "in.csv", b"n\n3\n4\n")
        with refuses(InputError, f"{address}: was replaced"):
            list(file)


def test_an_unknown_bucket_is_named(s3_bucket: str) -> None:
    nodes = {
        "a": {"source": {"path": f"s3://{s3_bucket}-not/*.csv"}},
        "o": {"output": {"input": "a", "path": "o.csv"}},
    }
    with pytest.raises(CompactorError, match=f"node 'a': .*{s3_bucket}-not"):
        check_pipeline(parse_pipeline(json.dumps({"nodes": nodes}), "p.yaml"))

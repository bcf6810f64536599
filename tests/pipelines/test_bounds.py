"""Bounds that docs/reference/pipelines.md promises, with files that reach them."""

from __future__ import annotations

import io
import json
import os
import threading
import time
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import compactor.pipelines  # noqa: F401 - serves s3://
from compactor.errors import ConfigError, DataError
from compactor.files.arriving import ArrivingBytes
from compactor.files.read import open_table_file
from compactor.pipelines.config import parse_pipeline
from compactor.pipelines.guesses import run_by_guesses
from compactor.pipelines.nodes.source import open_source
from compactor.pipelines.pipeline_run import PipelineRun
from compactor.pipelines.writers import RowsWriter
from compactor.stores.open import open_store
from tests.pipelines.support import MIB, lines_of, run_of, sources
from tests.support.s3_server import S3Server
from tests.support.wording import refuses


def csv_of(path: Path, rows: int, row_bytes: int, *, odd_row: int = -1) -> None:
    """Writes a file of an integer and a text; in the odd row the first is a text, too."""
    text = "x" * (row_bytes - 10)
    with path.open("w") as file:
        file.write("n,s\n")
        file.writelines(
            f"{'odd' if row == odd_row else 1_000_000 + row},{text}\n" for row in range(rows)
        )


def pipeline_of(folder: Path, **paths: str) -> Any:
    nodes: dict[str, Any] = {
        name: {"source": {"path": str(folder / path)}} for name, path in paths.items()
    }
    nodes["m"] = {"merge": {"inputs": list(paths)}}
    nodes["o"] = {"output": {"input": "m", "path": str(folder / "o.arrow")}}
    return parse_pipeline(json.dumps({"nodes": nodes}), "p.yaml")


def test_all_sources_together_keep_64_mib_of_the_rows_that_tell_their_types(tmp_path: Path) -> None:
    for name in "ab":
        csv_of(tmp_path / f"{name}.csv", 45_000, 1000)
    opened = []

    def noted(*given: Any) -> Any:
        opened.append(open_source(*given))
        return opened[-1]

    PipelineRun(pipeline_of(tmp_path, a="a.csv", b="b.csv"), noted).close()
    held = [sum(file.held_bytes for file in reader.files) for reader in opened]
    assert len(held) == 2 and min(held) > 20 * MIB and sum(held) <= 64 * MIB


@pytest.mark.parametrize(
    ("row_bytes", "rows", "odd_row", "restarts"),
    [
        (50, 300_000, 99_000, 0),
        (50, 300_000, 280_000, 1),
        (1000, 27_000, 15_500, 0),
        (1000, 27_000, 26_500, 1),
    ],
)
def test_types_are_guessed_from_100_000_rows_or_16_mib(
    tmp_path: Path, row_bytes: int, rows: int, odd_row: int, restarts: int
) -> None:
    csv_of(tmp_path / "a.csv", rows, row_bytes, odd_row=odd_row)
    report = run_by_guesses(pipeline_of(tmp_path, a="a.csv"))
    assert (report.restarts, report.records_read) == (restarts, {"a": rows})


def test_types_of_sixteen_large_files_of_a_pattern_are_guessed(tmp_path: Path) -> None:
    csv_of(tmp_path / "0.csv", 5_500, 1000)
    for number in range(1, 18):
        os.link(tmp_path / "0.csv", tmp_path / f"{number}.csv")
    guessed: list[bool] = []

    def noted(*given: Any) -> Any:
        reader = open_source(*given, guesses=True)
        guessed.extend(file.is_guess for file in reader.files)
        return reader

    PipelineRun(pipeline_of(tmp_path, a="*.csv"), noted).close()
    assert guessed == [True] * 16 + [False] * 2


@pytest.mark.parametrize(("mib", "is_copied"), [(3.9, True), (4.1, False)])
def test_parquet_from_4_mib_on_is_read_by_the_ranges_of_its_columns(
    s3_server: S3Server, s3_bucket: str, mib: float, is_copied: bool
) -> None:
    heavy = np.random.default_rng(7).integers(0, 1 << 62, int(mib * MIB) // 8)
    table = pa.table({"heavy": heavy, "few": np.arange(len(heavy)) % 7 == 0})
    pq.write_table(table, file := io.BytesIO(), use_dictionary=False, compression="none")
    data = file.getvalue()
    assert (len(data) < 4 * MIB) == is_copied
    open_store(f"s3://{s3_bucket}").create("a.parquet", data)
    s3_server.reset()
    with open_table_file(f"s3://{s3_bucket}/a.parquet", columns={"few"}) as rows:
        assert sum(batch.num_rows for batch in rows) == len(heavy)
    assert [request.range is None for request in s3_server.requests("GET")].count(True) == is_copied


def test_a_read_of_a_stream_returns_what_comes_within_a_tenth_of_a_second(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    is_read = threading.Event()

    def write() -> None:
        with (tmp_path / "pipe").open("wb", buffering=0) as file:
            while not is_read.wait(0.005):
                file.write(b"x" * 100)

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    source = ArrivingBytes(tmp_path / "pipe")
    began = time.monotonic()
    data = source.read(MIB)
    seconds = time.monotonic() - began
    is_read.set()
    writer.join(20)
    source.close()
    assert len(data) > 100 and 0.1 <= seconds < 1


def test_a_group_has_at_most_10_000_rows_unless_the_pipeline_says_otherwise(tmp_path: Path) -> None:
    table = pa.table({"k": ["fits"] * 10_000 + ["big"] * 10_001})
    nodes = {
        "a": {"source": {"path": "a", "correlation_key": "k"}},
        "o": {"output": {"input": "a", "path": str(tmp_path / "o.ndjson")}},
    }
    letters = str(tmp_path / "bad.ndjson")
    report = run_of(nodes, {"a": table}, on_error="continue", dead_letter=letters).run()
    assert report.dlq_count == 10_001
    assert {row["k"] for row in lines_of(tmp_path / "o.ndjson")} == {"fits"}


def test_an_output_is_split_into_at_most_10_000_files() -> None:
    """Without a disk, which would sync each file."""
    opened: list[str] = []
    sink = Mock()

    def open_sink(path: str) -> Any:
        opened.append(path)
        return sink

    writer = RowsWriter("{}.csv", open_sink, 1)
    with refuses(DataError, "{}.csv: more than 10,000 files"):
        writer.write(pa.record_batch({"n": range(10_001)}))
    assert len(opened) == 10_000


@pytest.mark.parametrize(("size", "is_taken"), [("10000s", True), ("10001s", False)])
def test_a_row_is_in_at_most_10_000_windows_of_time(
    tmp_path: Path, size: str, is_taken: bool
) -> None:
    window = {"column": "t", "size": size, "slide": "1s"}
    nodes = {
        **sources("a"),
        "g": {"aggregate": {"input": "a", "window": window, "columns": {"c": "count"}}},
        "o": {"output": {"input": "g", "path": str(tmp_path / "o.arrow")}},
    }
    tables = {"a": pa.table({"t": pa.array([10**12], pa.timestamp("us"))})}
    if is_taken:
        assert run_of(nodes, tables).run().outputs["o"].records_written == 10_000
        return
    with refuses(ConfigError, "10,000"):
        run_of(nodes, tables)


@pytest.mark.parametrize("length", [1000, 1001])
def test_a_separator_has_at_most_1_000_characters(tmp_path: Path, length: int) -> None:
    nodes = {
        **sources("a"),
        "g": {"aggregate": {"input": "a", "columns": {"c": f"string_agg(s, '{'-' * length}')"}}},
        "o": {"output": {"input": "g", "path": str(tmp_path / "o.ndjson")}},
    }
    tables = {"a": pa.table({"s": ["a", "b"]})}
    if length == 1000:
        run_of(nodes, tables).run()
        assert lines_of(tmp_path / "o.ndjson") == [{"c": f"a{'-' * 1000}b"}]
        return
    with refuses(ConfigError, "1,000 characters"):
        run_of(nodes, tables)

"""Outputs of the init phase are there before anything else begins."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from compactor.errors import CompactorError, ConfigError, DataError
from compactor.pipelines.config import parse_pipeline
from compactor.pipelines.phases import phases_of, run_pipeline
from tests.pipelines.support import lines_of
from tests.pipelines.test_documents import write_lines
from tests.support.wording import refuses


def pipeline_of(tmp_path: Path, **more: Any) -> Any:
    nodes = {
        "raw": {"source": {"path": str(tmp_path / "raw.ndjson")}},
        "sizes": {"aggregate": {"input": "raw", "group_by": ["n"], "columns": {"count": "count"}}},
        "lookup": {"output": {"input": "sizes", "path": str(tmp_path / "lookup.parquet")}},
        "known": {"source": {"path": str(tmp_path / "lookup.parquet")}},
        "joined": {"combine": {"probe": "raw", "build": "known", "on": ["n"]}},
        "out": {"output": {"input": "joined", "path": str(tmp_path / "out.ndjson")}},
    }
    nodes |= more.pop("nodes", {})
    return parse_pipeline(json.dumps({"nodes": nodes, "init": ["lookup"], **more}), "t.yaml")


def test_later_sources_read_what_the_init_phase_wrote(tmp_path: Path) -> None:
    write_lines(tmp_path / "raw.ndjson", 20)
    report = run_pipeline(pipeline_of(tmp_path))
    assert lines_of(tmp_path / "out.ndjson") == [{"n": n, "count": 1} for n in range(20)]
    assert set(report.outputs) == {"lookup", "out"}
    assert report.records_read == {"raw": 40, "known": 20}


def test_both_phases_share_the_dead_letters(tmp_path: Path) -> None:
    write_lines(tmp_path / "raw.ndjson", 5)
    nodes = {
        "one": {"transform": {"input": "raw", "columns": {"n": "n / (n - 1)"}}},
        "first": {"output": {"input": "one", "path": str(tmp_path / "one.csv")}},
        "two": {"transform": {"input": "raw", "columns": {"n": "n / (n - 2)"}}},
        "second": {"output": {"input": "two", "path": str(tmp_path / "two.csv")}},
        "raw": {"source": {"path": str(tmp_path / "raw.ndjson")}},
    }
    text = {"nodes": nodes, "init": ["first"], "on_error": "continue",
            "dead_letter": str(tmp_path / "bad.ndjson")}  # fmt: skip
    report = run_pipeline(parse_pipeline(json.dumps(text), "t.yaml"))
    letters = [(letter["node"], letter["row"]) for letter in lines_of(tmp_path / "bad.ndjson")]
    assert letters == [("one", 2), ("two", 3)]
    assert report.dlq_count == 2


def test_an_error_of_the_later_phase_is_found_before_the_first_if_it_can_be(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    write_lines(tmp_path / "in/raw.ndjson", 5)
    nodes = {
        "raw": {"source": {"path": str(tmp_path / "in/raw.ndjson")}},
        "known": {"source": {"path": str(tmp_path / "in/missing.ndjson")}},
    }
    with refuses(CompactorError, "missing.ndjson"):
        run_pipeline(pipeline_of(tmp_path, nodes=nodes))
    assert not (tmp_path / "lookup.parquet").exists()


def test_what_the_first_phase_wrote_stays_when_the_second_fails(tmp_path: Path) -> None:
    write_lines(tmp_path / "raw.ndjson", 5)
    nodes = {
        "t": {"transform": {"input": "joined", "columns": {"n": "1 / n"}}},
        "out": {"output": {"input": "t", "path": str(tmp_path / "out.ndjson")}},
    }
    with pytest.raises(DataError):
        run_pipeline(pipeline_of(tmp_path, nodes=nodes))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["lookup.parquet", "raw.ndjson"]


def test_phases_share_nodes_and_divide_outputs(tmp_path: Path) -> None:
    first, rest = phases_of(pipeline_of(tmp_path))
    assert list(first.nodes) == ["raw", "sizes", "lookup"]
    assert list(rest.nodes) == ["raw", "known", "joined", "out"]


def test_only_outputs_can_be_of_the_init_phase(tmp_path: Path) -> None:
    with refuses(ConfigError):
        pipeline_of(tmp_path, init=["raw"])


def test_a_later_phase_aggregates_the_sound_groups_of_the_init_phase(tmp_path: Path) -> None:
    rows = [{"k": "a", "n": 1}, {"k": "b", "n": 0}, {"k": "a", "n": 2}, {"k": "b", "n": 5}]
    (tmp_path / "in.ndjson").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    nodes = {
        "in": {"source": {"path": str(tmp_path / "in.ndjson"), "correlation_key": "k"}},
        "part": {"transform": {"input": "in", "columns": {"k": "k", "part": "10 / n"}}},
        "sound": {"output": {"input": "part", "path": str(tmp_path / "sound.parquet")}},
        "again": {"source": {"path": str(tmp_path / "sound.parquet")}},
        "sums": {"aggregate": {"input": "again", "group_by": ["k"], "columns": {"s": "sum(part)"}}},
        "out": {"output": {"input": "sums", "path": str(tmp_path / "out.ndjson")}},
    }
    text = {"nodes": nodes, "init": ["sound"], "on_error": "continue",
            "dead_letter": str(tmp_path / "bad.ndjson")}  # fmt: skip
    report = run_pipeline(parse_pipeline(json.dumps(text), "t.yaml"))
    assert lines_of(tmp_path / "out.ndjson") == [{"k": "a", "s": 15}]
    assert report.dlq_count == 2

"""The synthetic workload is reproducible, typed as it says, and overlaps as many agents would."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
import pyarrow.parquet as pq
import pytest

from bench.fleet import fleet
from bench.log_files import write_log_file
from bench.log_messages import templates
from bench.log_parameters import known_parameters
from bench.string_kinds import KINDS
from bench.workload import (
    SCHEMA,
    SORT_COLUMNS,
    SortOrder,
    make_batch,
    make_overlapping_inputs,
    sort_rows,
)

ROWS = 20_000


@pytest.fixture(scope="module")
def batch() -> pa.Table:
    return make_batch(ROWS, seed=7)


def test_same_seed_gives_the_same_rows(batch: pa.Table) -> None:
    assert make_batch(ROWS, seed=7).equals(batch)


def test_another_seed_gives_other_rows(batch: pa.Table) -> None:
    assert not make_batch(ROWS, seed=8)["message"].equals(batch["message"])


@pytest.mark.parametrize("rows", [1, 2, 4_097])
def test_gives_exactly_the_rows_asked_for_in_the_schema(rows: int) -> None:
    table = make_batch(rows, seed=1)
    table.validate(full=True)
    assert table.num_rows == rows
    assert table.schema.equals(SCHEMA)


def test_refuses_zero_rows_and_more_inputs_than_rows() -> None:
    with pytest.raises(ValueError, match="rows must be at least 1"):
        make_batch(0, seed=1)
    with pytest.raises(ValueError, match="inputs must be between 1 and 3"):
        list(make_overlapping_inputs(3, 4, seed=1))


def test_null_rates_are_those_of_mixed_services(batch: pa.Table) -> None:
    share = {name: batch[name].null_count / ROWS for name in batch.column_names}
    assert 0.5 < share["status"] < 0.8
    assert 0.3 < share["trace_id"] < 0.6
    assert 0.08 < share["tags"] < 0.16
    assert {name for name, nulls in share.items() if nulls} == {"status", "trace_id", "tags"}


def test_only_http_messages_have_a_status_and_they_show_it(batch: pa.Table) -> None:
    with_status = batch.filter(pc.is_valid(batch["status"]))
    shown = [
        str(status) in message
        for status, message in zip(
            with_status["status"].to_pylist(), with_status["message"].to_pylist(), strict=True
        )
    ]
    assert all(shown)


def test_timestamps_lie_in_the_window_and_mostly_increase() -> None:
    start = datetime(2026, 1, 2, tzinfo=UTC)
    table = make_batch(ROWS, seed=3, start=start, hours=2)
    event_us = table["timestamp"].cast(pa.int64()).to_numpy() - int(start.timestamp() * 1e6)
    assert event_us.max() < 2 * 3_600_000_000
    assert event_us.min() > -120_000_000  # delays reach back before the window, by seconds
    increasing = float((np.diff(event_us) >= 0).mean())
    assert 0.9 < increasing < 1.0


def test_messages_repeat_as_logs_do_with_a_heavy_tail(batch: pa.Table) -> None:
    lengths = pc.binary_length(batch["message"]).to_numpy()
    text = sort_rows(batch)["message"].combine_chunks().buffers()[2]
    ratio = text.size / len(pa.compress(text, codec="zstd", asbytes=True))
    assert 4.5 < ratio < 12
    assert 80 < np.median(lengths) < 200
    assert lengths.max() > 3_000


def test_trace_ids_are_shared_by_several_rows(batch: pa.Table) -> None:
    traced = batch["trace_id"].drop_null()
    assert pc.min_max(pc.binary_length(traced)).as_py() == {"min": 32, "max": 32}
    assert 2 < len(traced) / pc.count_distinct(traced).as_py() < 12


@pytest.mark.parametrize(
    "sort_by",
    [
        SORT_COLUMNS,
        [("timestamp", "ascending")],
        [("status", "ascending"), ("cpu_ratio", "descending"), ("trace_id", "ascending")],
    ],
)
def test_sort_by_sorts_the_very_same_rows(sort_by: SortOrder) -> None:
    plain = list(make_overlapping_inputs(6_000, 3, seed=5))
    ordered = list(make_overlapping_inputs(6_000, 3, seed=5, sort_by=sort_by))
    for arrived, table in zip(plain, ordered, strict=True):
        keys = table.select([name for name, _ in sort_by])
        assert keys.equals(keys.sort_by(list(sort_by)))
        assert not arrived.equals(table)
        by_all = [(name, "ascending") for name in ("timestamp", "message", "duration_us")]
        assert arrived.sort_by(by_all).equals(table.sort_by(by_all))


def test_inputs_overlap_pairwise_in_time_and_share_services() -> None:
    tables = list(make_overlapping_inputs(8_000, 4, seed=9))
    spans = [pc.min_max(table["timestamp"]).as_py() for table in tables]
    services = [set(table["service"].to_pylist()) for table in tables]
    assert sum(table.num_rows for table in tables) == 8_000
    assert max(span["min"] for span in spans) < min(span["max"] for span in spans)
    assert len(set.intersection(*services)) >= 10
    assert len({table.num_rows for table in tables}) > 1


def test_hosts_mask_restricts_the_rows() -> None:
    mask = np.zeros(len(fleet().hosts), np.bool_)
    mask[[3, 50]] = True
    table = make_batch(500, seed=2, hosts=mask)
    assert set(table["host"].to_pylist()) <= {fleet().hosts[3].as_py(), fleet().hosts[50].as_py()}


def test_templates_use_known_parameters_of_known_families() -> None:
    used = {name for template in templates() for name in template.parameters}
    assert used <= known_parameters()
    assert {template.family for template in templates()} == set(fleet().families)
    assert len(templates()) >= 120


def test_files_hold_the_rows_in_every_format(tmp_path: Path, batch: pa.Table) -> None:
    table = batch.slice(0, 3_000)
    parquet, ndjson, arrow = (
        tmp_path / f"a.{ending}" for ending in ("parquet", "ndjson.zst", "arrow")
    )
    for path in (parquet, ndjson, arrow):
        write_log_file(table, path)
    assert pq.read_table(parquet).equals(table)
    assert pa.ipc.open_file(arrow).read_all().equals(table)
    with pa.input_stream(ndjson, compression="zstd") as lines:
        options = pj.ParseOptions(explicit_schema=SCHEMA)
        assert pj.read_json(lines, parse_options=options).equals(table)


def test_unknown_file_ending_is_refused(tmp_path: Path, batch: pa.Table) -> None:
    with pytest.raises(ValueError, match="the name must end with"):
        write_log_file(batch, tmp_path / "a.csv")


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_each_kind_follow_from_the_seed(kind: str) -> None:
    one, again, other = (KINDS[kind](np.random.default_rng(seed), 500) for seed in (1, 1, 2))
    assert one.num_rows == 500
    assert one.equals(again)
    assert not one.equals(other)
    assert one.schema.names[0] == "time"


def test_kinds_of_strings_are_what_they_are_called() -> None:
    rng = np.random.default_rng(3)
    found = {
        name: make(rng, 2000)["value"].to_pylist()
        for name, make in KINDS.items()
        if name != "counters"
    }
    assert all(json.loads(text)["number"] < 977 for text in found["documents"])
    assert all(re.fullmatch(r"[A-Za-z0-9]{40}", text) for text in found["random-letters"])
    assert all(re.fullmatch(r"(/[a-z]+)+-\d+\.[a-z.]+", text) for text in found["paths"])
    assert all(re.fullmatch(r"[A-Z][a-z]+ [A-Z][a-z]+", text) for text in found["names"])
    assert all("\n\tat " in text for text in found["stack-traces"])
    shapes = {re.sub(r"[0-9a-f]*[0-9][0-9a-f]*", "#", text) for text in found["templates"]}
    assert 500 < len(shapes) < 2000
    assert (
        len({word for text in found["prose"] for word in text.lower().rstrip(".").split()}) > 3000
    )

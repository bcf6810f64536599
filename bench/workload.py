"""Realistic log data, seeded and vectorised: the input of the demo, the tests and the benchmarks.

Ten columns, as an agent would ship them. Rows are in order of arrival, so `timestamp` mostly increases, with
jitter, bursts and a daily rhythm. Deterministic.

    python -m bench.workload --rows 1000000 --files 16 --out logs --format ndjson.zst
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bench import log_messages
from bench.fleet import HOST_COUNT, TAG_VARIANTS, Fleet, fleet
from bench.log_files import FORMATS, write_log_file
from bench.log_parameters import random_hex
from compactor.common.counts import counted

SCHEMA: Final = pa.schema(
    [
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("service", pa.string()),
        pa.field("host", pa.string()),
        pa.field("level", pa.string()),
        pa.field("status", pa.int64()),
        pa.field("duration_us", pa.int64()),
        pa.field("trace_id", pa.string()),
        pa.field("message", pa.string()),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("cpu_ratio", pa.float64()),
    ]
)
SortOrder = Sequence[tuple[str, Literal["ascending", "descending"]]]
"""Columns with directions, most significant first."""

SORT_COLUMNS: Final[SortOrder] = (
    ("service", "ascending"),
    ("host", "ascending"),
    ("timestamp", "descending"),
)
DEFAULT_START: Final = datetime(2026, 11, 16, 6, tzinfo=UTC)

_BLOCK_ROWS: Final = 1 << 19
"""Rows rendered at once: bounds working memory and keeps a block's text far below 2 GiB."""
_TAGS_NULL_FRACTION: Final = 0.12
_TAGS_EMPTY_FRACTION: Final = 0.02
_ROWS_PER_TRACE: Final = 6
_SAME_TRACE_FRACTION: Final = 0.6
_HOST_FRACTION_PER_AGENT: Final = 0.25


def make_batch(
    rows: int,
    *,
    seed: int,
    start: datetime = DEFAULT_START,
    hours: float = 6.0,
    hosts: npt.NDArray[np.bool_] | None = None,
) -> pa.Table:
    """Returns `rows` log rows of the fleet between `start` and `hours` later, in order of arrival.

    `hosts` restricts the rows to some hosts: a mask over `fleet().hosts`.
    """
    if rows < 1:
        raise ValueError(f"rows must be at least 1, not {rows}")
    arrivals_us = _arrivals_us(rows, start, hours, np.random.default_rng([seed, 0]))
    blocks = [
        _make_block(
            arrivals_us[low : low + _BLOCK_ROWS], np.random.default_rng([seed, 1, low]), hosts
        )
        for low in range(0, rows, _BLOCK_ROWS)
    ]
    return pa.Table.from_batches(blocks, SCHEMA)


def make_overlapping_inputs(
    rows: int,
    inputs: int,
    *,
    seed: int,
    sort_by: SortOrder | None = None,
    start: datetime = DEFAULT_START,
    hours: float = 6.0,
) -> Iterator[pa.Table]:
    """Yields `inputs` tables, `rows` rows in all, that overlap in time and keys.

    Simulates many agents that write at once: each table covers a random quarter of the hosts and three
    quarters of the period, and has its own part of the rows. Tables are sorted by `sort_by`, or in order of
    arrival if that is None.
    """
    if not 1 <= inputs <= rows:
        raise ValueError(f"inputs must be between 1 and {rows} (the rows), not {inputs}")
    rng = np.random.default_rng([seed, 2])
    covered_hours = hours * 0.75
    for number, count in enumerate(_uneven_shares(rows, inputs, rng)):
        shift = timedelta(hours=float(rng.random()) * (hours - covered_hours))
        hosts = np.zeros(HOST_COUNT, np.bool_)
        hosts[rng.choice(HOST_COUNT, int(HOST_COUNT * _HOST_FRACTION_PER_AGENT), replace=False)] = (
            True
        )
        table = make_batch(
            int(count),
            seed=seed * 1_000_003 + number + 1,
            start=start + shift,
            hours=covered_hours,
            hosts=hosts,
        )
        yield table if sort_by is None else sort_rows(table, sort_by)


def sort_rows(table: pa.Table, sort_by: SortOrder = SORT_COLUMNS) -> pa.Table:
    """Sorts the rows of a generated table; ties keep the order of arrival, nulls are greatest."""
    keys = [_sort_key(table[name]) * (-1 if way == "descending" else 1) for name, way in sort_by]
    return table.take(pa.array(np.lexsort(keys[::-1])))


def _sort_key(column: pa.ChunkedArray) -> npt.NDArray[np.generic]:
    """Returns numbers that sort like the values of `column`."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    if not column.null_count and not pa.types.is_string(column.type):
        return np.asarray(column.to_numpy())
    distinct = column.unique()
    ascending = distinct.take(pc.sort_indices(distinct))
    return np.asarray(pc.index_in(column, ascending).to_numpy().astype(np.int64))


def _uneven_shares(rows: int, inputs: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Splits `rows` into `inputs` parts of at least one row, which vary by about ten percent."""
    weights = rng.lognormal(0.0, 0.15, inputs)
    shares = 1 + np.floor(weights / weights.sum() * (rows - inputs)).astype(np.int64)
    shares[0] += rows - shares.sum()
    return np.asarray(shares)


def _arrivals_us(
    rows: int, start: datetime, hours: float, rng: np.random.Generator
) -> npt.NDArray[np.int64]:
    """Returns ascending arrival times in microseconds since the epoch, at a rate that varies by the
    second."""
    seconds = max(1, round(hours * 3600))
    clock = np.arange(seconds) + start.timestamp()
    rate = 1.0 + 0.6 * np.sin((clock / 86_400 - 0.375) * 2 * np.pi)
    for _ in range(1 + int(hours * 4)):
        low = int(rng.integers(seconds))
        rate[low : low + int(rng.integers(2, 90))] *= rng.uniform(3, 15)
    cumulative = np.concatenate([[0.0], np.cumsum(rate)])
    drawn = np.sort(rng.random(rows)) * cumulative[-1]
    offsets_s = np.interp(drawn, cumulative, np.arange(seconds + 1))
    return np.asarray((offsets_s * 1e6).astype(np.int64) + int(start.timestamp() * 1e6))


def _make_block(
    arrivals_us: npt.NDArray[np.int64],
    rng: np.random.Generator,
    hosts: npt.NDArray[np.bool_] | None,
) -> pa.RecordBatch:
    world, rows = fleet(), len(arrivals_us)
    placement = world.draw_placements(rows, rng, hosts=hosts)
    service, host = world.placement_service[placement], world.placement_host[placement]
    chosen = log_messages.choose(world.service_family[service], world.families, rng)
    level = log_messages.traits().level[chosen]
    duration_us = _durations_us(world.median_duration_us[service], rng)
    status = _statuses(level, log_messages.traits().is_http[chosen], rng)
    hostnames = world.hosts.take(pa.array(host))
    row_values = {
        "host": hostnames,
        "status": status.cast(pa.string()),
        "ms": pa.array(duration_us // 1000).cast(pa.string()),
    }
    columns = [
        _timestamps(arrivals_us, world.millisecond_clock[service], rng),
        world.services.take(pa.array(service)),
        hostnames,
        pa.array(log_messages.LEVELS).take(pa.array(level)),
        status,
        pa.array(duration_us),
        _trace_ids(placement, world.traced_share[service], rng),
        log_messages.render(chosen, placement, row_values, rng),
        _tags(world, placement, rng),
        pa.array(_cpu_ratios(host, rng)),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _timestamps(
    arrivals_us: npt.NDArray[np.int64],
    millisecond_clock: npt.NDArray[np.bool_],
    rng: np.random.Generator,
) -> pa.TimestampArray:
    """Returns event times: the arrival less milliseconds of delay, or many seconds for one row in 200."""
    rows = len(arrivals_us)
    scale_us = np.where(rng.random(rows) < 0.005, 5e6, 2e3)
    event_us = arrivals_us - rng.exponential(scale_us).astype(np.int64)
    event_us -= np.where(millisecond_clock, event_us % 1000, 0)
    return pa.array(event_us).cast(SCHEMA.field("timestamp").type)


def _durations_us(
    median_us: npt.NDArray[np.int64], rng: np.random.Generator
) -> npt.NDArray[np.int64]:
    """Returns log-normal durations around the service's median; the 99th percentile is 16 times the
    median."""
    return np.asarray((median_us * rng.lognormal(0.0, 1.2, len(median_us))).astype(np.int64))


def _statuses(
    level: npt.NDArray[np.int64], is_http: npt.NDArray[np.bool_], rng: np.random.Generator
) -> pa.Int64Array:
    """Returns HTTP codes that fit the row's level; null for rows not from HTTP."""
    usual = rng.choice(
        [200, 201, 204, 301, 302, 304], len(level), p=[0.8, 0.05, 0.04, 0.01, 0.02, 0.08]
    )
    refused = rng.choice([400, 401, 403, 404, 429], len(level), p=[0.1, 0.15, 0.1, 0.55, 0.1])
    failed = rng.choice([500, 502, 503, 504], len(level), p=[0.4, 0.2, 0.25, 0.15])
    code = np.select([level <= 1, level == 2], [usual, refused], failed)
    return pa.array(code, pa.int64(), mask=~is_http)


def _trace_ids(
    placement: npt.NDArray[np.int64],
    traced_share: npt.NDArray[np.float64],
    rng: np.random.Generator,
) -> pa.StringArray:
    """Returns 16-byte trace ids as 32 hex digits: often that of the process's previous row, else a recent
    one.

    So a trace appears in runs of a few rows in one process, and in several processes.
    """
    rows = len(placement)
    births = random_hex(rng, rows // _ROWS_PER_TRACE + 1, 16)
    recent = np.maximum(np.arange(rows) - rng.exponential(120.0, rows).astype(np.int64), 0)
    by_process = np.argsort(placement, kind="stable")
    begins = rng.random(rows) >= _SAME_TRACE_FRACTION
    begins |= np.diff(placement[by_process], prepend=-1) != 0
    latest = np.maximum.accumulate(np.where(begins, np.arange(rows), 0))
    origin = np.empty_like(recent)
    origin[by_process] = recent[by_process][latest]
    untraced = rng.random(rows) >= traced_share
    return births.take(pa.array(origin // _ROWS_PER_TRACE, mask=untraced))


def _tags(world: Fleet, placement: npt.NDArray[np.int64], rng: np.random.Generator) -> pa.ListArray:
    """Returns the placement's tag lists; some rows have null, a few an empty list."""
    rows = len(placement)
    kind = rng.random(rows)
    variant = placement * TAG_VARIANTS + rng.integers(0, TAG_VARIANTS, rows)
    lists = pa.concat_arrays([world.tags, pa.array([[]], world.tags.type)])
    is_empty = (kind >= _TAGS_NULL_FRACTION) & (kind < _TAGS_NULL_FRACTION + _TAGS_EMPTY_FRACTION)
    index = np.where(is_empty, len(lists) - 1, variant)
    return lists.take(pa.array(index, mask=kind < _TAGS_NULL_FRACTION))


def _cpu_ratios(host: npt.NDArray[np.int64], rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """Returns the host's CPU use, 0 to 1, with an agent's four decimals."""
    base = 0.1 + 0.6 * ((host * 2_654_435_761) % 1_000) / 1_000
    return np.asarray(np.round(np.clip(rng.normal(base, 0.08), 0.0, 1.0), 4))


def main() -> None:
    """Writes a workload to files."""
    parser = argparse.ArgumentParser(description="Write realistic log files that overlap.")
    parser.add_argument("--rows", type=int, default=200_000, help="rows over all files")
    parser.add_argument("--files", type=int, default=16)
    parser.add_argument("--out", type=Path, required=True, help="folder, made if missing")
    parser.add_argument("--format", choices=FORMATS, default="ndjson.zst")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sorted", action="store_true", help="sort each file by the sort columns")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    tables = make_overlapping_inputs(
        options.rows,
        options.files,
        seed=options.seed,
        sort_by=SORT_COLUMNS if options.sorted else None,
    )
    for number, table in enumerate(tables):
        path = options.out / f"agent-{number:03d}.{options.format}"
        write_log_file(table, path)
        print(f"{path}  {counted(table.num_rows, 'row')}  {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()

"""The jobs of the pipeline benchmark, for each engine: rows of CSV, NDJSON or Parquet to CSV.

    python -m bench.pipeline_jobs ENGINE JOB FOLDER OUT        runs a job of DuckDB or Polars in this process

`bench.bench_pipeline` makes the files in FOLDER. OUT is a file, for `split` a folder. Engines are imported by
their jobs, so that a process starts what it measures and nothing else.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, Final

LIMIT_MIB: Final = 512
_KEEP: Final = "level IN ('ERROR', 'WARN') AND amount > 90"
_SQL: Final = {
    "filter": f"SELECT id, level, upper(name) AS name, amount * qty AS total FROM {{rows}} WHERE {_KEEP}",
    "group": "SELECT key, count(*) AS n, sum(qty) AS q, sum(amount) AS a, min(ts) AS lo, max(ts) AS hi "
    "FROM {rows} GROUP BY key ORDER BY key",
    "ndjson": f"SELECT id, level, amount FROM {{rows}} WHERE {_KEEP}",
    "parquet": f"SELECT id, level, amount FROM {{rows}} WHERE {_KEEP}",
    "join": "SELECT r.id, r.key, r.level, d.city, d.weight FROM (SELECT *, row_number() OVER () AS place "
    "FROM {rows}) r JOIN {others} d ON r.key = d.key ORDER BY place",
    "sort": "SELECT * FROM {rows} ORDER BY key, ts DESC, id",
    "window": "SELECT id, key, ts, amount - lag(amount) OVER (PARTITION BY key ORDER BY ts, id) AS rise "
    "FROM {rows} ORDER BY key, ts, id",
    "split": "SELECT * FROM {rows}",
}
JOBS: Final = tuple(_SQL)
"""Sources are CSV, apart from those that a job is named for."""


def pipeline(job: str, folder: Path, out: Path) -> str:
    """Returns our pipeline, as the text of its file."""
    source = {"source": {"path": str(folder / f"rows.{_kind(job)}")}}
    nodes: dict[str, Any] = {"rows": source, **_between(job, folder)}
    last = list(nodes)[-1]
    if job == "split":
        nodes["out"] = {
            "output": {"input": last, "path": str(out / "{}.csv"), "split": {"by": "level"}}
        }
    else:
        nodes["out"] = {"output": {"input": last, "path": str(out)}}
    return json.dumps({"memory": {"limit": f"{LIMIT_MIB}MiB"}, "nodes": nodes})


def _between(job: str, folder: Path) -> dict[str, Any]:
    match job:
        case "filter":
            columns = {
                "id": "id",
                "level": "level",
                "name": "upper(name)",
                "total": "amount * qty",
            }
            return {"kept": {"transform": {"input": "rows", "filter": _KEEP, "columns": columns}}}
        case "ndjson" | "parquet":
            columns = {name: name for name in ("id", "level", "amount")}
            return {"kept": {"transform": {"input": "rows", "filter": _KEEP, "columns": columns}}}
        case "group":
            columns = {"n": "count", "q": "sum(qty)", "a": "sum(amount)"}
            columns |= {"lo": "min(ts)", "hi": "max(ts)"}
            return {
                "groups": {"aggregate": {"input": "rows", "group_by": ["key"], "columns": columns}}
            }
        case "join":
            chosen = {name: name for name in ("id", "key", "level", "city", "weight")}
            return {
                "others": {"source": {"path": str(folder / "others.csv")}},
                "joined": {"combine": {"probe": "rows", "build": "others", "on": ["key"]}},
                "chosen": {"transform": {"input": "joined", "columns": chosen}},
            }
        case "sort":
            return {"sorted": {"sort": {"input": "rows", "by": "key,ts:desc,id"}}}
        case "window":
            columns = {"id": "id", "key": "key", "ts": "ts", "rise": "amount - lag(amount)"}
            window = {"partition_by": ["key"], "order_by": "ts,id"}
            return {"rises": {"transform": {"input": "rows", "window": window, "columns": columns}}}
        case _:
            return {}


def with_duckdb(job: str, folder: Path, out: Path, threads: int) -> None:
    import duckdb

    settings: dict[str, Any] = {"threads": threads, "memory_limit": f"{LIMIT_MIB}MiB"}
    with duckdb.connect(config=settings) as connection:
        kind = _kind(job)
        reader = {"csv": "read_csv", "ndjson": "read_json", "parquet": "read_parquet"}[kind]
        sql = _SQL[job].format(
            rows=f"{reader}('{folder}/rows.{kind}')", others=f"read_csv('{folder}/others.csv')"
        )
        how = ", PARTITION_BY (level), WRITE_PARTITION_COLUMNS true" if job == "split" else ""
        connection.execute(f"COPY ({sql}) TO '{out}' (FORMAT csv, HEADER{how})")


def with_polars(job: str, folder: Path, out: Path, threads: int) -> None:
    os.environ["POLARS_MAX_THREADS"] = str(threads)
    import polars as pl

    path, column = folder / f"rows.{_kind(job)}", pl.col
    match _kind(job):
        case "csv":
            rows = pl.scan_csv(path, try_parse_dates=True)
        case "ndjson":
            rows = pl.scan_ndjson(path)
        case _:
            rows = pl.scan_parquet(path)
    kept = rows.filter(column("level").is_in(["ERROR", "WARN"]) & (column("amount") > 90))
    match job:
        case "filter":
            name, total = column("name").str.to_uppercase(), column("amount") * column("qty")
            plan = kept.select("id", "level", name=name, total=total)
        case "ndjson" | "parquet":
            plan = kept.select("id", "level", "amount")
        case "group":
            plan = rows.group_by("key").agg(
                n=pl.len(), q=column("qty").sum(), a=column("amount").sum(),
                lo=column("ts").min(), hi=column("ts").max(),
            ).sort("key")  # fmt: skip
        case "join":
            others = pl.scan_csv(folder / "others.csv")
            plan = rows.join(others, on="key", maintain_order="left").select(
                "id", "key", "level", "city", "weight"
            )
        case "sort":
            plan = rows.sort("key", "ts", "id", descending=[False, True, False])
        case "window":
            rise = column("amount") - column("amount").shift(1).over("key")
            plan = rows.sort("key", "ts", "id").select("id", "key", "ts", rise=rise)
        case _:
            rows.sink_csv(pl.PartitionBy(out, key="level", include_key=True), mkdir=True)
            return
    plan.sink_csv(out)


def _kind(job: str) -> str:
    return job if job in ("ndjson", "parquet") else "csv"


def main(arguments: list[str]) -> None:
    engine, job, folder, out = arguments
    run = {"duckdb": with_duckdb, "polars": with_polars}[engine]
    run(job, Path(folder), Path(out), len(os.sched_getaffinity(0)))


if __name__ == "__main__":
    main(sys.argv[1:])

"""Commands that the system refuses more threads or memory, and what they then say and leave behind.

`python -m tests.generated.shortages --count 200 --processes 2`; `--seed 47` tries one again.
"""

from __future__ import annotations

import functools
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq

from compactor.api.table import Table
from tests.generated import pool
from tests.support.thread_limit import build_thread_limit, thread_limit

ROWS: Final = 6_000
DONE, REFUSED = 0, 6
TIMEOUT_S: Final = 60
MIN_KIB, MAX_KIB = 150_000, 600_000
COMMANDS: Final = (
    "ingest t rows.csv",
    "ingest t rows.ndjson rows.csv.gz",
    "ingest t rows.parquet rows.arrow",
    "ingest t rows.ndjson.zst",
    "ingest new rows.parquet --sort-by id --max-rows-per-row-group 1000",
    "compact t --strategy full --master in-process",
    "compact t --strategy full --master in-process --threads 4",
    "query t --where id<50",
    "query t --where id>5990 --threads 4",
    "head t",
    "verify t",
    "inspect t",
    "report t -o page.html",
    "export t out.parquet",
    "export t out.arrow",
    "export t out.ndjson.gz",
    "export t out.frag",
    "delete t --where id=7",
    "alter t --rename value:amount",
    "vacuum t --dry-run",
    "templates t name",
    "repair t",
    "run one.yaml",
    "run many.yaml",
    "entity-merge entities.yaml --output merged --ndjson out.ndjson",
    "simulate --duration 1h",
)
_ONE: Final = """
on_error: continue
dead_letter: bad.ndjson
nodes:
  a: {source: {path: rows.ndjson, fields: {id: BIGINT, name: TEXT, value: DOUBLE}}}
  b: {source: {path: rows.csv}}
  t: {transform: {input: a, columns: {id: id, name: "upper(name)", value: "value / 2"}}}
  m: {merge: {inputs: [t, b], mode: interleave}}
  o: {output: {input: m, path: out.csv}}
"""
_MANY: Final = """
on_error: continue
dead_letter: bad.ndjson
nodes:
  a: {source: {path: rows.parquet}}
  b: {source: {table: t}}
  c: {transform: {input: b, columns: {id: id, other: name}}}
  j: {combine: {probe: a, build: c, on: [id]}}
  g: {aggregate: {input: a, group_by: [name], columns: {n: count, most: "max(value)"}}}
  s: {sort: {input: a, by: "name,id"}}
  o: {output: {input: s, path: out.parquet}}
  p: {output: {input: g, path: groups.arrow}}
  q: {output: {input: j, path: joined.ndjson}}
"""
_ENTITIES: Final = """
version: 2
datasets: [left l, right r]
equality:
  - [eq, [lower, l.name], r.name]
"""


def check(seed: int) -> str | None:
    """Returns what is wrong with what a command does under a limit."""
    r = random.Random(seed)
    command = COMMANDS[seed % len(COMMANDS)]
    limits: dict[str, int] = {}
    if r.random() < 0.5:
        limits["threads"] = r.randint(0, 12)
    else:
        limits["kib"] = r.randint(MIN_KIB, MAX_KIB)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(template(), folder, dirs_exist_ok=True)
        return _check_run(folder, command, **limits)


def _check_run(
    folder: Path, command: str, *, threads: int | None = None, kib: int | None = None
) -> str | None:
    place = f"{command!r} with {f'{threads} threads' if kib is None else f'{kib:,} KiB'}"
    try:
        run = limited(folder, command.split(), threads=threads, kib=kib)
    except subprocess.TimeoutExpired as late:
        return f"{place}: no end within {TIMEOUT_S} s: {late.stderr!r}"
    pool.count(f"exit code {run.returncode}")
    wrong = _wrong_outcome(run, may_be_refused=kib is not None) or _wrong_files(folder)
    return None if wrong is None else f"{place}: {wrong}"


def limited(
    folder: Path, arguments: Sequence[str], *, threads: int | None = None, kib: int | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a command that can start no more than some threads, or has no more than some address space."""
    environment = {**os.environ, "PYTHONFAULTHANDLER": "1"}
    if threads is not None:
        environment |= thread_limit(_library(), threads)
    limit = "" if kib is None else f"ulimit -v {kib}; "
    call = [sys.executable, "-m", "compactor", *arguments]
    return subprocess.run(
        ["/bin/sh", "-c", f'{limit}exec "$@"', "sh", *call],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def _wrong_outcome(run: subprocess.CompletedProcess[str], *, may_be_refused: bool) -> str | None:
    lines = [line for line in run.stderr.splitlines() if line]
    if run.returncode == REFUSED and may_be_refused:
        is_said = len(lines) == 1 and lines[0].startswith("compactor: error: ")
        return None if is_said else f"refused, and said {run.stderr!r}"
    if run.returncode != DONE:
        return f"exit code {run.returncode}: {run.stderr!r}"
    is_wrong = len(lines) > 1 or any("error" in line or "warning" in line for line in lines)
    return f"done, and said {run.stderr!r}" if is_wrong else None


def _wrong_files(folder: Path) -> str | None:
    """Returns what is wrong with what a command has left, done or not."""
    if left := [path.name for path in folder.iterdir() if path.name.endswith((".part", ".whole"))]:
        return f"left {left}"
    bad = folder / "bad.ndjson"
    if bad.exists() and bad.read_text():
        return f"good rows were put aside: {bad.read_text().splitlines()[0]}"
    for name in ("t", "new", "merged"):
        if (folder / name / "_log").exists():
            report = Table.open(str(folder / name)).verify()
            if report.faults:
                return f"table {name} does not verify: {report}"
    return _wrong_rows(folder)


def _wrong_rows(folder: Path) -> str | None:
    """Outputs have all rows, and the table a whole number of files more."""
    counts = {
        "out.parquet": lambda path: pq.read_metadata(path).num_rows,
        "out.csv": lambda path: pcsv.read_csv(path).num_rows,
    }
    for name, count in counts.items():
        if (folder / name).exists() and count(folder / name) % ROWS:
            return f"{name} has {count(folder / name):,} rows"
    rows = Table.open(str(folder / "t")).rows
    return None if rows % ROWS in (0, ROWS - 1, ROWS - 3) else f"the table has {rows:,} rows"


@functools.cache
def _library() -> Path:
    return build_thread_limit(_folder())


@functools.cache
def template() -> Path:
    """Makes a folder that has all that commands read, which is there until the process ends."""
    folder = _folder()
    rows = rows_of(ROWS)
    pq.write_table(rows, folder / "rows.parquet", row_group_size=1_000)
    pcsv.write_csv(rows, folder / "rows.csv")
    with pa.ipc.new_file(
        folder / "rows.arrow", rows.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")
    ) as file:
        file.write_table(rows, 1_000)
    text = "".join(json.dumps(row) + "\n" for row in rows.to_pylist())
    (folder / "rows.ndjson").write_text(text)
    (folder / "rows.ndjson.zst").write_bytes(pa.compress(text.encode(), "zstd", asbytes=True))
    with pa.CompressedOutputStream(str(folder / "rows.csv.gz"), "gzip") as packed:
        packed.write((folder / "rows.csv").read_bytes())
    table = Table.create(str(folder / "t"), rows.slice(0, ROWS), "id")
    table.append(rows)
    table.append(rows)
    (folder / "one.yaml").write_text(_ONE)
    (folder / "many.yaml").write_text(_MANY)
    (folder / "entities.yaml").write_text(_ENTITIES)
    for name in ("left", "right"):
        entities = [{"_id": f"{name}{n}", "name": f"text {n}"} for n in range(300)]
        (folder / f"{name}.ndjson").write_text("".join(json.dumps(e) + "\n" for e in entities))
    return folder


_kept: list[tempfile.TemporaryDirectory[str]] = []


def _folder() -> Path:
    """Makes a folder that is there until the process ends."""
    _kept.append(tempfile.TemporaryDirectory())
    return Path(_kept[-1].name)


def rows_of(count: int) -> pa.Table:
    """Rows in no order, of numbers and texts."""
    order = [n * 4_001 % count for n in range(count)]
    return pa.table(
        {
            "id": pa.array(order, pa.int64()),
            "name": [f"text {n % 97}" for n in order],
            "value": [n / 4 for n in order],
        }
    )


if __name__ == "__main__":
    sys.exit(pool.main(check, __doc__, "tests.generated.shortages", 3 * TIMEOUT_S, noun="runs"))

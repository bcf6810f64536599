"""Compares `compactor run` with DuckDB and Polars on eight jobs: each reads a file, and writes CSV.

    python -m bench.bench_pipeline                            2 million rows, one core, two rounds
    python -m bench.bench_pipeline --rows 5000000 --jobs group,join --cores 1,2
    make peers PEERS="--measures pipelines"                   the same

Each run is a process of its own on its cores, start-up included; engines alternate, and the lowest figures of
all rounds count. All have a limit of 512 MiB, but Polars, which knows none. The jobs are:

    filter            a condition, two computed columns
    group             a group for ten rows
    ndjson, parquet   a condition, three of seven columns
    join              with a row for each key, in the order of the rows
    sort              by three columns
    window            the change of a column within its key, in order
    split             a file for each of four values

DuckDB and Polars are left out if they are not installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.pipeline_jobs import JOBS, pipeline
from bench.results import RESULTS, ROOT, write_results
from compactor.common.counts import counted

OURS: Final = "compactor run"
PEERS: Final = {"DuckDB": "duckdb", "Polars": "polars"}


class Run(NamedTuple):
    cpu_seconds: float
    wall_seconds: float
    peak_rss_mb: float
    rows: int
    """Rows of the output."""


def measure(
    rows: int, jobs: Sequence[str], cores: Sequence[int], rounds: int, folder: Path
) -> list[dict[str, Any]]:
    """Returns a case for each job, number of cores and engine, ours first. Raises `RuntimeError` if a run
    fails, or if engines write different numbers of rows."""
    # As an installation does: otherwise each run may compile our modules.
    subprocess.run(
        [sys.executable, "-m", "compileall", "-q", "compactor", "format"], cwd=ROOT, check=True
    )
    # In a process of its own: a child's peak counts from that of the process that started it.
    inputs = [sys.executable, "-m", "bench.pipeline_inputs", str(folder), str(rows)]
    subprocess.run(inputs, cwd=ROOT, check=True)
    engines = [OURS, *(name for name, module in PEERS.items() if importlib.util.find_spec(module))]
    cases = []
    for job in jobs:
        for count in cores:
            runs: dict[str, list[Run]] = {engine: [] for engine in engines}
            for _ in range(rounds):
                for engine in engines:
                    runs[engine].append(_run(engine, job, count, folder))
            written = {engine: found[0].rows for engine, found in runs.items()}
            if len(set(written.values())) > 1:
                raise RuntimeError(f"{job}: the engines wrote other rows: {written}")
            cases += [_case(job, count, engine, found) for engine, found in runs.items()]
    return cases


def _case(job: str, cores: int, engine: str, runs: Sequence[Run]) -> dict[str, Any]:
    return {
        "job": job,
        "cores": cores,
        "engine": engine,
        "cpu_seconds": round(min(run.cpu_seconds for run in runs), 3),
        "seconds": round(min(run.wall_seconds for run in runs), 3),
        "peak_rss_mb": round(min(run.peak_rss_mb for run in runs)),
        "rows_out": runs[0].rows,
    }


def _run(engine: str, job: str, cores: int, folder: Path) -> Run:
    out = folder / "out" / ("split" if job == "split" else "out.csv")
    shutil.rmtree(out.parent, ignore_errors=True)
    (out if job == "split" and engine == OURS else out.parent).mkdir(parents=True)
    if engine == OURS:
        file = folder / "pipeline.json"
        file.write_text(pipeline(job, folder, out), encoding="utf-8")
        return _measured(["-m", "compactor", "run", str(file)], cores, out)
    places = [str(folder), str(out)]
    return _measured(["-m", "bench.pipeline_jobs", PEERS[engine], job, *places], cores, out)


def _measured(arguments: Sequence[str], cores: int, out: Path) -> Run:
    cpus = sorted(os.sched_getaffinity(0))[-cores:]
    with tempfile.TemporaryFile() as log:
        started = time.perf_counter()
        child = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=ROOT,
            stdout=log,
            stderr=log,
            preexec_fn=lambda: os.sched_setaffinity(0, cpus),
        )
        _, status, used = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - started
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            log.seek(0)
            message = log.read().decode(errors="replace")[-2000:]
            raise RuntimeError(f"{' '.join(arguments)}: {message}")
    return Run(used.ru_utime + used.ru_stime, seconds, used.ru_maxrss / 1024, _rows(out))


def _rows(out: Path) -> int:
    """Counts the rows below the headers."""
    files = [path for path in out.rglob("*") if path.is_file()] if out.is_dir() else [out]
    return sum(file.read_bytes().count(b"\n") - 1 for file in files)


def as_text(cases: Sequence[dict[str, Any]]) -> str:
    """Returns a table with the CPU of each engine for one of ours."""
    header = f"{'job':<10}{'cores':>6}  {'engine':<16}{'CPU':>9}{'wall':>9}{'peak RSS':>11}"
    lines = [f"{header}{'x CPU':>8}"]
    for _, same in groupby(cases, itemgetter("job", "cores")):
        ours, *_ = runs = list(same)
        lines += [
            f"{case['job']:<10}{case['cores']:>6}  {case['engine']:<16}{case['cpu_seconds']:>7.2f} s"
            f"{case['seconds']:>7.2f} s{case['peak_rss_mb']:>8,.0f} MB"
            f"{case['cpu_seconds'] / ours['cpu_seconds']:>7.2f}x"
            for case in runs
        ]
    return "\n".join([*lines, "x CPU: seconds of that engine for one of ours"])


def report(
    rows: int, jobs: Sequence[str], cores: Sequence[int], rounds: int, results: Path
) -> None:
    """Measures, writes the result file, and prints the table."""
    with tempfile.TemporaryDirectory(prefix="bench-pipeline-") as work:
        cases = measure(rows, jobs, cores, rounds, Path(work))
    print(f"{counted(rows, 'row')}, lowest of {counted(rounds, 'round')}")
    print(as_text(cases))
    write_results(results, {"rows": rows, "rounds": rounds}, cases)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--jobs", default=",".join(JOBS))
    parser.add_argument("--cores", default="1", help="how many, such as 1 or 1,2")
    parser.add_argument("--results", type=Path, default=RESULTS / "pipeline.json")
    options = parser.parse_args()
    jobs, cores = options.jobs.split(","), [int(count) for count in options.cores.split(",")]
    if unknown := [job for job in jobs if job not in JOBS]:
        parser.error(f"--jobs: there is no {unknown[0]!r}; there are {', '.join(JOBS)}")
    report(options.rows, jobs, cores, options.rounds, options.results)


if __name__ == "__main__":
    main()

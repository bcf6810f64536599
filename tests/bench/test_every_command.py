"""Every command of `bench/`, and every target of `make` that measures, runs at a tiny size."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
_PYTHON: Final = ".venv/bin/python"
_LOG_LINES: Final = "GET /a/17 in 3 ms\nGET /b in 25 ms\nslow query 99 of user 7\n"

COMMANDS: Final = {
    "bench_carrying": "--rows 2000",
    "bench_compaction": "--rows 2000 --inputs 2 --runs 1 --master in-process",
    "bench_components": "--records 2000 --engines union-find --results {out}",
    "bench_customers": "--records 2000 --results {out}",
    "bench_memory": "--fewer 1000 --cases heavy cpu",
    "bench_pipeline": "--rows 2000 --rounds 1 --results {out}",
    "bench_predictions": "--fewer 1000 --cases logs --results {out}",
    "bench_scaling": "--rows 2000 --runs 1 --cases sparse --results {out}",
    "bench_size": "--rows 2000 --inputs 2 --results {out}",
    "bench_small_jobs": "--compactions 3 --rows-each 20 --profile",
    "bench_spark_read": "--rows 2000 --rounds 1 --cores 1 --results {out}",
    "bench_startup": "--repeat 1 --rows 200 --inputs 2 --results {out}",
    "figures": "--lines {lines} --rows 2000 --rounds 1 --only fan-in,size,pipelines,entities "
    "--out {tmp}/f.csv",
    "vs_peers": "--rows 2000 --inputs 2 --rounds 1 --cores 1 --workloads grouped --timeout 120 "
    "--engines floor,ours,clickhouse,datafusion,duckdb,polars-sort,polars-merge,pyarrow,vortex --out {out}",
    "workload": "--rows 900 --files 2 --out {tmp}/logs",
}
"""Arguments by module; most of those of Spark are tried through `make`."""
INTERNAL: Final = {"peers/run", "pipeline_inputs", "pipeline_jobs"}
"""Modules that others run in processes of their own."""

TARGETS: Final = {
    "bench": ("BENCH", "--rows 2000 --inputs 2 --runs 1"),
    "figures": ("FIGURES", "--lines {lines} --rows 2000 --rounds 1 --only ingest --out {tmp}/f.csv"),
    "peers": ("PEERS", "--rows 2000 --inputs 2 --rounds 1 --cores 1 --workloads grouped --measures merge "
              "--engines ours,spark --out {out}"),
    "scaling": ("SCALING", "--rows 2000 --runs 1 --cases columns --results {out}"),
    "sizes": ("SIZES", "--rows 2000 --inputs 2 --results {out}"),
    "small-jobs": ("SMALL_JOBS", "--compactions 3 --rows-each 20 --rows 2000 --inputs 2 --masters local[1] "
                   "--results {out}"),
    "startup": ("STARTUP", "--repeat 1 --rows 200 --inputs 2 --results {out}"),
    "micro": ("MICRO", "--benchmark-disable -p no:cacheprovider"),
    "workload": ("WORKLOAD", "--rows 900 --files 2 --out {tmp}/logs"),
}  # fmt: skip
"""The variable of each target that takes arguments, and arguments of a tiny size."""
OF_SPARK: Final = {"bench", "peers", "small-jobs"}


def _filled(arguments: str, tmp_path: Path) -> str:
    (tmp_path / "lines").mkdir(exist_ok=True)
    (tmp_path / "lines/Web.log").write_text(_LOG_LINES)
    places = {"tmp": tmp_path, "out": tmp_path / "out.json", "lines": tmp_path / "lines"}
    return arguments.format(**places)


def _run(command: list[str], results: Path) -> str:
    done = subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        env=os.environ | {"RESULTS": str(results)},
    )
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout}\n{done.stderr}"
    assert "FAILED" not in done.stdout
    return done.stdout


@pytest.mark.long
@pytest.mark.parametrize("module", COMMANDS)
def test_a_command_of_the_benches_runs(module: str, tmp_path: Path) -> None:
    arguments = shlex.split(_filled(COMMANDS[module], tmp_path))
    printed = _run([sys.executable, "-m", f"bench.{module}", *arguments], tmp_path)
    assert printed.strip()
    assert "refused" not in printed


def _recipe(target: str, variable: str, arguments: str, results: Path) -> list[str]:
    """Returns the command of a target that runs a bench."""
    printed = subprocess.run(
        ["make", "--dry-run", f"RESULTS={results}", f"{variable}={arguments}", target],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    [line] = [line for line in printed.splitlines() if " bench" in line]
    command = shlex.split(line)
    assert command[0] == _PYTHON, line
    return [sys.executable, *command[1:]]


@pytest.mark.long
@pytest.mark.parametrize(
    "target",
    [pytest.param(t, marks=[pytest.mark.spark] if t in OF_SPARK else []) for t in TARGETS],
)
def test_a_target_that_measures_runs(target: str, tmp_path: Path) -> None:
    variable, arguments = TARGETS[target]
    command = _recipe(target, variable, _filled(arguments, tmp_path), tmp_path)
    _run(command, tmp_path)


def test_no_command_and_no_target_is_left_out() -> None:
    found = {
        path.relative_to(ROOT / "bench").with_suffix("").as_posix()
        for path in (ROOT / "bench").rglob("*.py")
        if '__name__ == "__main__"' in path.read_text()
    }
    assert found == {*COMMANDS, *INTERNAL}
    rules, target = set(), ""
    for line in (ROOT / "Makefile").read_text().splitlines():
        if line and not line.startswith(("\t", "#", ".")):
            target = line.partition(":")[0]
        elif "$(BIN)/python -m bench." in line or "$(BIN)/python -m pytest bench/" in line:
            rules.add(target)
    assert rules == TARGETS.keys()

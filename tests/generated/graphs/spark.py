"""Graphs that run in this process and in Spark stages; both must agree with DuckDB."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from compactor.pipelines.config import Pipeline
from compactor.pipelines.on_spark import SparkRun
from compactor.pipelines.phases import run_pipeline
from compactor.pipelines.run_report import RunReport
from compactor.spark.session import SparkOptions, open_session
from tests.generated.graphs.check import check_runs

_PARTS: Final = (None, 1, 3)


def check_on(session: Any, seed: int) -> str | None:
    """Returns what is wrong with the graph of a seed, here or in the stages of a session."""
    options = SparkOptions(shuffle_partitions=_PARTS[seed % len(_PARTS)])

    def in_stages(pipeline: Pipeline) -> RunReport:
        return SparkRun(pipeline).run(session, options)

    return check_runs(seed, {"here": run_pipeline, "stages": in_stages}, in_stages=True)


def run(seeds: Iterable[int]) -> int:
    """Runs graphs on Spark and prints findings; returns the exit code."""
    session = open_session("local[2]")
    findings = done = 0
    try:
        for seed in seeds:
            fault = check_on(session, seed)
            done += 1
            if fault is not None:
                findings += 1
                print(
                    f"FOUND python -m tests.generated.graphs --spark 1 --start {seed}\n{fault}",
                    flush=True,
                )
    finally:
        session.stop()
    print(f"{done:,} graphs on Spark, {findings} findings")
    return 1 if findings else 0

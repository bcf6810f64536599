"""Claim: on the second compaction of a table, seconds are predicted within 25%, resident memory within 15%,
GETs, PUTs and bytes within 2%.

    python -m bench.bench_predictions                          all tables, some minutes
    python -m bench.bench_predictions --cases wide logs        some
    python -m bench.bench_predictions --fewer 100              to try the bench

Each compaction runs in a process of its own, as `compactor compact` does, without Spark. A cell has what was
predicted and what was used. Seconds are noisy on a machine that does other work; CPU seconds are less so.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from bench.prediction_tables import Case, cases
from bench.results import RESULTS, write_results
from bench.tables import ingest_table
from compactor.cli.spark_options import IN_PROCESS
from compactor.stores.open import open_store
from compactor.table.commit_log import CommitLog

_FIGURES: Final = {
    "task_seconds": ("seconds", 0.25),
    "cpu_seconds": ("CPU seconds", 0.25),
    "resident_bytes": ("resident", 0.15),
    "gets": ("GETs", 0.02),
    "puts": ("PUTs", 0.02),
    "bytes_in": ("bytes in", 0.02),
    "bytes_out": ("bytes out", 0.02),
}
_ACTUAL: Final = {"resident_bytes": "peak_rss_bytes"}


@contextmanager
def address(case: Case, work: Path) -> Iterator[str]:
    """Yields the address of the table; on S3, of a local server that stands in for it."""
    name = case.name.replace(" ", "-").replace(",", "")
    if not case.on_s3:
        yield str(work / name)
        return
    import boto3
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    os.environ |= {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "none",
        "AWS_SECRET_ACCESS_KEY": "none",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    try:
        boto3.client("s3").create_bucket(Bucket="bench")
        yield f"s3://bench/{name}"
    finally:
        server.stop()


def compact_twice(case: Case, work: Path) -> Iterator[dict[str, Any]]:
    """Yields the report of each compaction."""
    with address(case, work) as url:
        parts = case.parts()
        for count in (case.first, None):
            for number, part in enumerate(parts, 1):
                ingest_table(
                    CommitLog(open_store(url)), part, work / "part.arrow", case.sort, case.options
                )
                if number == count:
                    break
            if case.delete:
                run("delete", url, "--where", case.delete)
            yield json.loads(
                run("compact", url, "--master", IN_PROCESS, "--strategy", case.strategy, "--json")
            )


def run(*arguments: str) -> str:
    command = [sys.executable, "-m", "compactor.cli.main", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)}: {done.stderr}")
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    names = [case.name for case in cases()]
    parser.add_argument("--cases", nargs="*", choices=names, default=names)
    parser.add_argument("--fewer", type=int, default=1, help="divide the rows by this")
    parser.add_argument("--work", type=Path, help="a folder for the tables, which stay there")
    parser.add_argument("--results", type=Path, default=RESULTS / "predictions.json")
    arguments = parser.parse_args()
    print(f"{'table':<22}{'':<3}" + "".join(f"{title:>22}" for title, _ in _FIGURES.values()))
    with tempfile.TemporaryDirectory(prefix="predictions-") as temporary:
        work = arguments.work or Path(temporary)
        work.mkdir(exist_ok=True)
        found = []
        for case in (c for c in cases(arguments.fewer) if c.name in arguments.cases):
            for number, report in enumerate(compact_twice(case, work), 1):
                found.append({"case": case.name, "compaction": number, "report": report})
                cells = [_cell(report, name) for name in _FIGURES]
                print(
                    f"{case.name:<22}{number:<3}" + "".join(f"{c:>22}" for c in cells), flush=True
                )
    write_results(arguments.results, {"fewer": arguments.fewer}, found)


def _cell(report: dict[str, Any], name: str) -> str:
    predicted, actual = report["predicted"][name], report[_ACTUAL.get(name, name)]
    predicted = predicted["likely"] if isinstance(predicted, dict) else predicted
    off = predicted / actual - 1 if actual else 0.0
    if name.endswith("bytes") or name.startswith("bytes"):
        predicted, actual = predicted / 1e6, actual / 1e6
        return f"{predicted:.1f}/{actual:.1f} {off:+.0%}"
    return f"{predicted:.4g}/{actual:.4g} {off:+.0%}"


if __name__ == "__main__":
    main()

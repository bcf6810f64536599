"""A half-minute tour: ingest, inspect, compact, verify, read.

Starts a local S3 server, writes realistic log files, and runs the `compactor` command on them as a user
would, printing each command. Ends with a before-and-after summary; fails if a step fails or the summary does
not hold.

    make demo
    python -m deploy.demo.demo --rows 1000000 --files 32
    make setup demo DEMO="--master local[2]"        compacts on Spark
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import boto3
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from bench.log_files import write_log_file
from bench.workload import make_overlapping_inputs
from compactor.common.counts import counted
from deploy.demo.local_s3 import ServerError, local_s3
from deploy.demo.shell import Shell, StepError, console, show_command

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

BUCKET: Final = "demo"
TABLE: Final = f"s3://{BUCKET}/logs"
SORT_BY: Final = "service,host,timestamp:desc"


def run_demo(folder: Path, endpoint: str, options: argparse.Namespace) -> None:
    """Runs all steps in `folder`, against the S3 server at `endpoint`."""
    settings = {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "demo",
        "AWS_SECRET_ACCESS_KEY": "demo",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    shell = Shell(folder, _environment(settings))
    _heading("An S3 server on this machine")
    for name, value in settings.items():
        show_command(f"export {name}={value}")
    _client(settings).create_bucket(Bucket=BUCKET)
    console.print(f"bucket {BUCKET} made")

    _heading("Log files of many agents")
    _write_logs(folder / "logs", rows=options.rows, files=options.files, seed=options.seed)

    _heading("Ingest: files become sorted level-0 fragments; small ones share them, and a commit")
    shell.compactor("ingest", TABLE, "logs/*.ndjson.zst", "--sort-by", SORT_BY)
    if options.files > 1:
        shell.compactor("ingest", TABLE, "logs/*.parquet")

    _heading("Before: the fragments overlap")
    shell.compactor("inspect", TABLE)
    before = json.loads(shell.compactor("inspect", TABLE, "--json", save="before.json", show=False))

    _heading("Compact: one task per group, every input read by one GET")
    size = f"--target-fragment-bytes={options.target_fragment_bytes}"
    arguments = ("compact", TABLE, "--strategy", "full", "--master", options.master, size, "--json")
    compaction = json.loads(shell.compactor(*arguments, save="compaction.json"))

    _heading("Verify: read everything back")
    shell.compactor("verify", TABLE)

    _heading("After: one sorted run")
    shell.compactor("inspect", TABLE)
    after = json.loads(shell.compactor("inspect", TABLE, "--json", save="after.json", show=False))
    shell.compactor("head", TABLE, "-n", "5", "--columns", "service,host,timestamp,level,message")

    _heading("Summary")
    _print_summary(before, after, compaction)
    _check_summary(before, after, compaction)
    if options.keep:
        _copy_table(settings, folder / "table")


def _environment(settings: dict[str, str]) -> dict[str, str]:
    """Returns the environment without the user's AWS settings, so that nothing leaves this machine."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    isolation = {
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
    }
    return {**ours, **isolation, **settings}


def _client(settings: Mapping[str, str]) -> S3Client:
    return boto3.client(
        "s3",
        endpoint_url=settings["AWS_ENDPOINT_URL"],
        aws_access_key_id=settings["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=settings["AWS_SECRET_ACCESS_KEY"],
        region_name=settings["AWS_DEFAULT_REGION"],
    )


def _copy_table(settings: Mapping[str, str], folder: Path) -> None:
    """Copies the bucket's objects to disk, because the server keeps them only in memory."""
    client = _client(settings)
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET):
        for found in page.get("Contents", []):
            path = folder / found["Key"]
            path.parent.mkdir(parents=True, exist_ok=True)
            client.download_file(BUCKET, found["Key"], str(path))


def _write_logs(folder: Path, *, rows: int, files: int, seed: int) -> None:
    """Writes files of overlapping hosts and hours, alternating zstd NDJSON and Parquet."""
    folder.mkdir()
    started = time.monotonic()
    for number, table in enumerate(make_overlapping_inputs(rows, files, seed=seed)):
        ending = "parquet" if number % 2 else "ndjson.zst"
        write_log_file(table, folder / f"agent-{number:03d}.{ending}")
    seconds = time.monotonic() - started
    size = sum(path.stat().st_size for path in folder.iterdir())
    console.print(
        f"{counted(rows, 'row')} in {counted(files, 'file')} ({files - files // 2} NDJSON, "
        f"{files // 2} Parquet), "
        f"{decimal(size)}, written in {seconds:.1f} s"
    )


def _heading(text: str) -> None:
    console.print()
    console.print(Text(f"== {text}", style="bold"))


def _print_summary(
    before: Mapping[str, Any], after: Mapping[str, Any], compaction: Mapping[str, Any]
) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("", "before", "after"):
        table.add_column(name, justify="right" if name else "left")
    shown = [(before[k], after[k]) for k in ("rows", "overlapping_pairs")]
    table.add_row("fragments", str(len(before["fragments"])), str(len(after["fragments"])))
    table.add_row("overlapping pairs", *(f"{pairs:,}" for pairs in shown[1]))
    table.add_row("rows", *(f"{rows:,}" for rows in shown[0]))
    table.add_row("bytes", decimal(before["size_bytes"]), decimal(after["size_bytes"]))
    console.print(table)
    if not compaction["input_fragments"]:
        console.print("\nnothing to merge, so nothing was read")
        return
    console.print(
        f"\n{counted(compaction['gets'], 'GET')} for {counted(compaction['input_fragments'], 'input')} "
        f"({compaction['gets'] / compaction['input_fragments']:.2f} per input, "
        f"{compaction['resumed_gets']} resumed), {counted(compaction['tasks'], 'task')}, "
        f"{compaction['seconds']:.1f} s"
    )


def _check_summary(
    before: Mapping[str, Any], after: Mapping[str, Any], compaction: Mapping[str, Any]
) -> None:
    claims = {
        "no row is lost or made up": before["rows"] == after["rows"],
        "no fragments overlap any more": after["overlapping_pairs"] == 0,
        "one GET per input": compaction["gets"] == compaction["input_fragments"],
    }
    broken = [claim for claim, holds in claims.items() if not holds]
    if broken:
        raise StepError(f"this does not hold: {'; '.join(broken)}")
    console.print(f"checked: {', '.join(claims)}")


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m deploy.demo.demo", description="The compactor, end to end, on this machine."
    )
    parser.add_argument("--rows", type=int, default=200_000, help="over all files (%(default)s)")
    parser.add_argument("--files", type=int, default=16, help="(%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the log data (%(default)s)")
    parser.add_argument(
        "--master", default="in-process", help="in-process, or a Spark master (%(default)s)"
    )
    parser.add_argument(
        "--target-fragment-bytes", type=int, default=3_000_000, help="of outputs (%(default)s)"
    )
    parser.add_argument(
        "--keep", action="store_true", help="keep the log files and a copy of the table"
    )
    options = parser.parse_args()
    if not 1 <= options.files <= options.rows:
        parser.error("--files must be at least 1, and at most --rows")
    return options


def _stop_on_terminate(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main() -> int:
    """Runs the demo. Returns 0 if every step succeeded, 130 if interrupted."""
    options = _parse_options()
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # as under nohup
            signal.signal(number, _stop_on_terminate)
    folder = Path(tempfile.mkdtemp(prefix="compactor-demo-"))
    started = time.monotonic()
    try:
        with local_s3(folder / "s3-server.log") as endpoint:
            run_demo(folder, endpoint, options)
        console.print(f"demo done in {time.monotonic() - started:.0f} s", style="bold green")
    except (StepError, ServerError) as error:
        console.print(Text(f"demo failed: {error}", style="bold red"))
        return 1
    except KeyboardInterrupt:
        console.print(Text("demo interrupted", style="bold red"))
        return 130
    finally:
        if options.keep:
            console.print(f"kept: {folder}; the table is a folder now: {folder / 'table/logs'}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Writes logs of two services to a table and a summary: a graph of nodes in YAML, run in bounded memory.

python pipeline.py        leaves app.ndjson, web.csv, logs.yaml, ./errors and summary.csv;
                          needs lsm-compactor[pipelines]
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from compactor import Table

try:
    import duckdb  # noqa: F401 - computes the summary
except ModuleNotFoundError as missing:
    raise SystemExit(
        f"{missing.name} is not installed: pip install 'lsm-compactor[pipelines]'"
    ) from None

START = datetime(2026, 11, 21, tzinfo=UTC)
PIPELINE = """\
memory: {limit: 64MiB}        # covers all buffered rows; what does not fit spills to local disk
nodes:
  app:  {source: {path: app.ndjson}}
  web:  {source: {path: web.csv}}
  # Reads both as they arrive: neither waits for the other.
  both: {merge: {inputs: [app, web], mode: interleave}}
  bad:
    transform:
      input: both
      filter: "level IN ('ERROR', 'FATAL')"
      columns: {at: at, service: service, level: level, message: trim(message), length: length(message)}
  # The same rows go two ways: to a sorted table, in one commit ...
  kept: {output: {input: bad, table: ./errors, sort_by: "service,at"}}
  # ... and to counts per hour.
  hours:
    aggregate:
      input: bad
      window: {column: at, size: 1h}
      group_by: [service]
      columns: {errors: count, longest: max(length)}
  summary: {output: {input: hours, path: summary.csv}}
"""


def write_logs() -> None:
    """Writes an NDJSON and a CSV file with the same columns, as two collectors would."""
    random = np.random.default_rng(7)
    messages = {
        "INFO": " served ",
        "WARN": " slow answer of the store ",
        "ERROR": " connection reset ",
    }

    def line(service: str) -> dict[str, str]:
        at = START + timedelta(seconds=int(random.integers(0, 3 * 3600)))
        level = str(random.choice(["INFO", "WARN", "ERROR"], p=[0.9, 0.07, 0.03]))
        return {
            "at": at.isoformat(),
            "service": service,
            "level": level,
            "message": messages[level],
        }

    with Path("app.ndjson").open("w") as app:
        app.writelines(json.dumps(line("app")) + "\n" for _ in range(4_000))
    with Path("web.csv").open("w", newline="") as web:
        writer = csv.DictWriter(web, ["at", "service", "level", "message"])
        writer.writeheader()
        writer.writerows(line("web") for _ in range(4_000))


def compactor(*arguments: str) -> None:
    """Runs the command line in this interpreter."""
    subprocess.run([sys.executable, "-m", "compactor", *arguments], check=True)


def main() -> None:
    write_logs()
    Path("logs.yaml").write_text(PIPELINE)

    # Explains how each node will hold its rows, and why; reads nothing yet.
    compactor("run", "logs.yaml", "--explain")
    print(flush=True)
    compactor("run", "logs.yaml")

    errors = Table.open("errors")
    print(f"\nerrors: {len(errors)} rows, sorted by {errors.sort_by}, in version {errors.version}")
    print(Path("summary.csv").read_text(), end="")


if __name__ == "__main__":
    main()

"""A table of web requests: writers add small batches, readers see one sorted table, compaction merges.

python quickstart.py        leaves ./requests
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa

from compactor import Policy, Strategy, Table

START = datetime(2026, 11, 21, 8, tzinfo=UTC)
SERVICES = ["checkout", "login", "search"]
PATHS = {"checkout": "/api/pay", "login": "/api/session", "search": "/api/find"}


def minute_of_requests(minute: int, rows: int = 2_000) -> pa.Table:
    """Returns what a collector would send once a minute: unsorted rows of all services."""
    random = np.random.default_rng(minute)
    services = random.choice(SERVICES, rows, p=[0.2, 0.1, 0.7])
    offsets = random.integers(0, 60_000, rows)
    times = [START + timedelta(minutes=minute, milliseconds=int(ms)) for ms in offsets]
    return pa.table(
        {
            "service": services,
            "at": pa.array(times, pa.timestamp("ms", "UTC")),
            "status": random.choice([200, 200, 200, 404, 500], rows),
            "path": [PATHS[service] for service in services],
            "milliseconds": random.gamma(2.0, 30.0, rows).round(1),
        }
    )


def main() -> None:
    # The sort schema defines the layout: rows of a service are adjacent, newest first.
    table = Table.create("requests", minute_of_requests(0), sort_by="service,at:desc")
    for minute in range(1, 8):
        table.append(minute_of_requests(minute))  # one commit each: all its rows appear, or none
    print(f"{len(table):,} rows in {len(table.fragments())} fragments, version {table.version}")

    # Every fragment contains all services, so a scan must merge all of them to return sorted rows.
    slow = table.scan(["service", "at", "milliseconds"], where="service = 'login'")
    newest = slow.to_table().slice(0, 3)
    for row in newest.to_pylist():
        print(f"  {row['service']} {row['at']:%H:%M:%S} {row['milliseconds']} ms")
    print(f"before compaction: {slow.report}")

    # Merges everything to one sorted run: one fragment here, disjoint ones of 512 MiB in a large table.
    report = table.compact(policy=Policy(strategy=Strategy.FULL))
    figures = report.to_json()
    print(
        f"compacted {figures['input_fragments']} fragments into {figures['output_fragments']} "
        f"by {figures['gets']} GETs; no row is lost: {figures['rows_in']:,} in, {figures['rows_out']:,} out"
    )
    assert slow.to_table().num_rows == table.scan([], "service = 'login'").to_table().num_rows

    # Checks all checksums, sort order, counts and row hashes.
    verified = table.verify()
    print(f"verified {verified.rows:,} rows, {len(verified.faults)} faults")

    # Old versions stay readable until a vacuum removes them.
    first = Table.open("requests", version=1)
    print(
        f"version 1 had {len(first):,} rows; the table has been through {table.version} versions:"
    )
    for row in table.history(3).to_pylist():
        print(f"  {row['version']}: {row['operation']}, {row['fragments_added']} fragments added")

    # Zero is safe only without concurrent readers and writers; by default a vacuum keeps a day of versions.
    removed = table.vacuum(grace_seconds=0, retain_seconds=0)
    print(f"vacuum removed {removed.fragments} fragments that no version needs any more")


if __name__ == "__main__":
    main()

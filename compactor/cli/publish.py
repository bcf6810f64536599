"""Implements `publish`."""

from __future__ import annotations

import click

from compactor.cli.display import progress
from compactor.cli.lake_options import LakeChoice, lake_options
from compactor.cli.output import echo_json, echo_line, human_bytes
from compactor.cli.shared_options import threads_option
from compactor.common.counts import counted
from compactor.common.plain_values import plain_dict
from compactor.resources.cores import usable_cores

_EPILOG = """\b
Examples:
  compactor publish ./logs ./lake/logs --as delta
  compactor publish s3://bucket/logs s3://lake/logs --as parquet --levels 1+
  compactor publish s3://bucket/logs s3://lake/logs --as iceberg --catalog prod --name web.logs

A second run writes only the files whose fragment or deleted rows have changed, or whose columns have. A run
that is killed is continued by the next. Readers of Delta and Iceberg tables see one version or the next, and
compactions are commits that their streams need not look at. Readers of a folder of Parquet files see one
version if they read the files that the newest list in _published/ names; a run that ends has left no others.
If the table merges rows of one key, fragments that overlap are published as one file of merged rows."""


@click.command("publish", epilog=_EPILOG)
@click.argument("table")
@click.argument("destination")
@lake_options(required=True)
@threads_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def publish_command(
    table: str,
    destination: str,
    lake: LakeChoice,
    threads: int | None,
    as_json: bool,
) -> None:
    """Keep a copy of TABLE up to date at DESTINATION that other engines read.

    DESTINATION is a folder or s3://bucket/prefix of its own. The copy has one sorted Parquet file for each
    fragment, with statistics of its pages, and Bloom filters where the table has skip indexes.
    """
    with progress(f"publish {destination}", None) as advance:
        publisher = lake.publisher(
            table, destination, threads=threads or usable_cores(), on_progress=advance
        )
        done = publisher.publish()
    if as_json:
        echo_json({"destination": destination, "as": lake.kind, **plain_dict(done)})
        return
    echo_line(
        f"{destination}: version {done.version}, {counted(done.rows, 'row')} in "
        f"{counted(done.files, 'file')}; {done.added:,} added "
        f"({human_bytes(done.bytes_added)}), {done.removed:,} removed"
    )

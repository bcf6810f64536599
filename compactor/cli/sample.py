"""Implements `sample`."""

from __future__ import annotations

from pathlib import Path

import click

from compactor.cli.output import echo_line
from compactor.cli.sample_files import sample_files
from compactor.errors import UsageError
from compactor.files.whole import check_target, write_whole


@click.command(
    "sample",
    epilog="""\b
Examples:
  compactor sample .
  compactor sample try && cd try && compactor ingest ./logs day1.ndjson --sort-by host,time:desc""",
)
@click.argument("folder")
def sample_command(folder: str) -> None:
    """Write the files with which README and tutorials begin into FOLDER, which is created if needed.

    Replaces no file: one of that name with other contents is an error, and then nothing is written.
    """
    place = Path(folder)
    try:
        place.mkdir(exist_ok=True)
    except OSError as error:
        cause = error.strerror or "it can't be created"
        raise UsageError(f"{folder}: {cause}: name another folder") from None
    files = {str(place / name): text.encode() for name, text in sample_files().items()}
    for path, data in files.items():
        check_target(path)
        if Path(path).exists() and Path(path).read_bytes() != data:
            raise UsageError(f"{path}: is there already, with other contents: name another folder")
    for path, data in files.items():
        write_whole(path, data)
    echo_line(f"{folder}: {', '.join(Path(path).name for path in files)}")

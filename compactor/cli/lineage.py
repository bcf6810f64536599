"""Implements `restore`, `undo`, `tag`, `tags` and `untag`."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from compactor.cli.output import echo_json, echo_line
from compactor.cli.shared_options import duration_seconds, moment_unix_ms, snapshot_options
from compactor.cli.tables import open_log
from compactor.cli.telemetry import log_options
from compactor.common.counts import counted
from compactor.common.plain_values import plain_dict
from compactor.errors import UsageError
from compactor.table.tags import Moment, Tag
from compactor.write.restore import RestoreReport, restore_version
from compactor.write.tags import end_tag, set_tag
from compactor.write.undo import undo_compaction

_RESTORE_EPILOG = """\b
Examples:
  compactor restore ./logs --version 41 --dry-run
  compactor restore ./logs --version 41
  compactor restore s3://bucket/logs --as-of 15m      as it was a quarter of an hour ago
  compactor restore ./logs --tag before-cleanup

Nothing is rewritten, and the versions in between stay readable: to undo a restore, restore the version before
it. A version is refused if one of its columns was redacted since, or if objects of it are gone. Versions that
a vacuum has given up can't be restored."""


@click.command("restore", epilog=_RESTORE_EPILOG)
@click.argument("table")
@snapshot_options
@click.option("--dry-run", is_flag=True, help="Say what would change, and commit nothing.")
@log_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def restore_command(table: str, moment: Moment, dry_run: bool, as_json: bool) -> None:
    """Make TABLE what it was at an earlier version, in one commit.

    Rows, deleted rows and columns are those of that version again; properties and retention stay. If others
    add, delete or alter meanwhile, nothing is changed. Compactions that run are void.
    """
    if moment.is_newest:
        raise UsageError("name the version to restore by --version, --as-of or --tag")
    log = open_log(table)
    report = restore_version(log, log.at(*moment), dry_run=dry_run)
    if as_json:
        echo_json({**plain_dict(report), "dry_run": dry_run})
    else:
        _print_restore(report, dry_run=dry_run)


def _print_restore(report: RestoreReport, *, dry_run: bool) -> None:
    if not (report.fragments_added or report.fragments_removed or report.columns_changed):
        echo_line(f"version {report.version} is what version {report.restored} was")
        return
    done = "would be restored" if dry_run else "restored"
    echo_line(
        f"version {report.restored} {done}: {counted(report.rows_before, 'row')} before, "
        f"{counted(report.rows, 'row')} after; {counted(report.fragments_added, 'fragment')} added, "
        f"{report.fragments_removed:,} removed; version {report.version}"
    )


@click.command(
    "undo",
    epilog="""\b
Examples:
  compactor undo ./logs 5f0c2a9e-0 --dry-run          by a fragment that it wrote, as inspect shows it
  compactor undo ./logs 5f0c2a9e

The inputs must be kept still, the outputs live, and what overlaps the inputs must be as it was, or ingested
since. Rows deleted since stay deleted. Stop workers first, or their next plan compacts the inputs again.""",
)
@click.argument("table")
@click.argument("compaction")
@click.option("--dry-run", is_flag=True, help="Say what would change, and commit nothing.")
@log_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def undo_command(table: str, compaction: str, dry_run: bool, as_json: bool) -> None:
    """Undo one COMPACTION of TABLE: its inputs take the place of its outputs.

    Rows that came in since stay. Running compactions are void.
    """
    report = undo_compaction(open_log(table), compaction, dry_run=dry_run)
    if as_json:
        echo_json({**plain_dict(report), "dry_run": dry_run})
        return
    done = "would come back" if dry_run else "came back"
    rows = report.rows_deleted
    deleted = f", {counted(rows, 'row')} deleted since stay deleted" if rows else ""
    echo_line(
        f"compaction of version {report.compacted}: {counted(report.fragments_added, 'input')} {done} for "
        f"{counted(report.fragments_removed, 'output')}{deleted}; version {report.version}"
    )


_TAG_EPILOG = """\b
Examples:
  compactor tag ./logs before-cleanup
  compactor tag ./logs q3-report --version 41 --keep 90d
  compactor tag s3://bucket/logs good --as-of 1h --move

A vacuum keeps what tags name, and the log from the oldest of these versions on. After --keep it ends the tag;
until then the version can be read by --tag and restored. `compactor untag` ends a tag at once."""


@click.command("tag", epilog=_TAG_EPILOG)
@click.argument("table")
@click.argument("name")
@click.option(
    "--version", "version", type=click.IntRange(min=1), help="Tag this version.  [default: newest]"
)
@click.option("--as-of", "as_of", type=moment_unix_ms, metavar="TIME",
              help="Tag the version of this time (15m: 15 minutes ago).")  # fmt: skip
@click.option("--keep", "keep_seconds", type=duration_seconds, metavar="DURATION",
              help="Let a vacuum end the tag after this time.  [default: keep it]")  # fmt: skip
@click.option("--move", is_flag=True, help="Take the name from the version that has it.")
@log_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def tag_command(
    table: str,
    name: str,
    version: int | None,
    as_of: int | None,
    keep_seconds: float | None,
    move: bool,
    as_json: bool,
) -> None:
    """Give a version of TABLE the NAME, so that vacuums keep it.

    NAME has up to 100 letters, digits, dots, hyphens and underscores; it begins with a letter or digit, and
    has not digits alone.
    """
    moment = Moment(version, as_of)
    if moment.is_ambiguous:
        raise UsageError("--version and --as-of: give one of the two")
    log = open_log(table)
    tag = set_tag(log, name, log.at(*moment), keep_seconds=keep_seconds, move=move)
    echo_json(_tag_json(tag)) if as_json else echo_line(_tag_line(tag))


@click.command(
    "tags",
    epilog="""\b
Examples:
  compactor tags ./logs
  compactor tags s3://bucket/logs --json""",
)
@click.argument("table")
@log_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def tags_command(table: str, as_json: bool) -> None:
    """Show the tags of TABLE by name, with their versions and when they expire."""
    snapshot = open_log(table).current()
    if as_json:
        echo_json({"version": snapshot.version, "tags": [_tag_json(tag) for tag in snapshot.tags]})
    elif not snapshot.tags:
        click.echo(f"no tags at version {snapshot.version}")
    for tag in () if as_json else snapshot.tags:
        echo_line(_tag_line(tag))


@click.command(
    "untag",
    epilog="""\b
Example:
  compactor untag ./logs before-cleanup""",
)
@click.argument("table")
@click.argument("name")
@log_options
def untag_command(table: str, name: str) -> None:
    """End the tag NAME of TABLE. A vacuum may then remove its version."""
    version = end_tag(open_log(table), name)
    echo_line(f"{name}: no longer a tag of version {version}")


def _tag_json(tag: Tag) -> dict[str, str | int | bool | None]:
    return {
        "name": tag.name,
        "version": tag.version,
        "tagged_at": _when(tag.tagged_unix_ms),
        "expires_at": None if tag.expires_unix_ms is None else _when(tag.expires_unix_ms),
        "keeps_later": tag.keeps_later,
    }


def _tag_line(tag: Tag) -> str:
    until = "" if tag.expires_unix_ms is None else f", until {_when(tag.expires_unix_ms)}"
    later = ", keeps later versions for a reader" if tag.keeps_later else ""
    return f"{tag.name}: version {tag.version}, tagged {_when(tag.tagged_unix_ms)}{until}{later}"


def _when(unix_ms: int) -> str:
    return datetime.fromtimestamp(unix_ms / 1000, UTC).isoformat(timespec="seconds")

"""Implements `repair`, `quarantine`, `release` and `drop-fragment`."""

from __future__ import annotations

import click

from compactor.cli.output import echo_json, echo_line
from compactor.cli.tables import open_log, open_table
from compactor.cli.telemetry import log_options
from compactor.common.counts import counted
from compactor.common.plain_values import plain_dict
from compactor.errors import UsageError
from compactor.table.repair import Meaning, RepairReport, repair
from compactor.table.version import SEE_REPAIR

_REPAIR_EPILOG = """\b
Examples:
  compactor repair ./logs                     shows the log's faults, and the table before and after a repair
  compactor repair ./logs --apply             puts the wrong files aside, under ./logs/_aside/
  compactor repair ./logs --end-at 41 --apply     gives up the versions after 41, if log files are lost

Nothing is deleted: files that are put aside can be copied back. Some faults may mean lost rows: a log file
that can't be read or is another version than its name says, files of this table after a gap, and a fragment
that was written at a version that the log does not have. Restore missing files from a backup; if there is
none, --end-at ends the log before the fault. Stop all writers first."""


@click.command("repair", epilog=_REPAIR_EPILOG)
@click.argument("table")
@click.option(
    "--apply", is_flag=True, help="Put the wrong files aside; without it, only report them."
)
@click.option("--end-at", type=click.IntRange(min=1), metavar="VERSION",
              help="End the log with this version, and put later files aside.")  # fmt: skip
@log_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def repair_command(table: str, apply: bool, end_at: int | None, as_json: bool) -> None:
    """Find faults in the log of TABLE, and put strays and damaged checkpoints aside.

    Reads the whole log. Exits with 1 if a fault needs a backup or --end-at.
    """
    report = repair(open_log(table).store, end_at=end_at, apply=apply)
    if as_json:
        echo_json(report.to_json())
    else:
        _print_repair(report)
    if any(not finding.goes_aside for finding in report.findings):
        raise click.exceptions.Exit(1)


def _print_repair(report: RepairReport) -> None:
    done = "put aside" if report.aside else "would be put aside"
    for finding in report.findings:
        what = done if finding.goes_aside else "stays"
        echo_line(f"{finding.key}: {_here(finding.reason)}; {what}")
    if report.given_up:
        given_up = "given up" if report.aside else "would be given up"
        echo_line(
            f"what followed version {report.end}, up to version {report.given_up}: {given_up}"
        )
    if report.unnamed_objects:
        echo_line(
            f"{counted(report.unnamed_objects, 'object')} of base version {report.end} that no version "
            f"names: a writer is at work or was killed, or version {report.end + 1} was committed and its "
            "log file has gone"
        )
    if not report.findings and not report.given_up:
        click.echo(f"nothing is wrong with the log: {_meaning(report.now)}")
        return
    echo_line(f"now:   {_meaning(report.now)}")
    echo_line(f"after: {_meaning(report.after)}")
    if report.floor:
        echo_line(f"the log then begins with version {report.floor}, which no older version proves")
    if report.aside:
        click.echo(f"put aside under {report.aside}")
    elif report.aside_keys or report.given_up:
        click.echo("nothing was changed; --apply puts the wrong files aside")
    if any(not finding.goes_aside for finding in report.findings):
        give_up = f", or give up the rest by --end-at {report.end}" if report.end else ""
        click.echo(
            f"the log is complete up to version {report.end}: restore what is missing from a "
            f"backup{give_up}"
        )


def _here(message: str) -> str:
    """Leaves out the advice to do what was just done."""
    return message.replace(SEE_REPAIR, "")


def _meaning(meaning: Meaning) -> str:
    if meaning.error:
        return f"can't be read: {_here(meaning.error)}"
    return (
        f"version {meaning.version}, {counted(meaning.fragments, 'fragment')}, "
        f"{counted(meaning.rows, 'row')}"
    )


@click.command(
    "quarantine",
    epilog="""\b
Example:
  compactor quarantine ./logs 62563f83-0""",
)
@click.argument("table")
@click.argument("fragments", nargs=-1, required=True, metavar="FRAGMENT...")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def quarantine_command(table: str, fragments: tuple[str, ...], as_json: bool) -> None:
    """Put FRAGMENTs of TABLE that are damaged or gone in quarantine: keys, or the short ids of `inspect`.

    Compactions leave them out, and so do readers with --skip-missing. Compactions themselves quarantine a
    fragment that they find damaged or gone three times; use this command for one that no compaction reads.
    Each fragment is read and checked first, and refused if it is intact.
    """
    opened = open_table(table)
    held = opened.quarantine(fragments)
    if as_json:
        echo_json({"version": opened.version, "quarantined": held})
        return
    click.echo(f"{counted(len(held), 'fragment')} put in quarantine, version {opened.version}")


@click.command(
    "drop-fragment",
    epilog="""\b
Examples:
  compactor drop-fragment ./logs 62563f83-0               says how many rows would be lost
  compactor drop-fragment ./logs 62563f83-0 --lose-rows""",
)
@click.argument("table")
@click.argument("fragment")
@click.option("--lose-rows", is_flag=True, help="Confirm the loss of the fragment's rows.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def drop_fragment_command(table: str, fragment: str, lose_rows: bool, as_json: bool) -> None:
    """Drop a FRAGMENT of TABLE that is in quarantine, damaged or gone, with all its rows.

    If there is a backup, restore the fragment and `release` it instead. An intact fragment is refused, unless
    it is in quarantine. Earlier versions keep the fragment until they are vacuumed.
    """
    report = open_table(table).drop_fragment(fragment, lose_rows=lose_rows)
    if as_json:
        echo_json(plain_dict(report))
        return
    echo_line(
        f"{report.fragment}: {counted(report.rows, 'row')} lost, from {report.first_key} to "
        f"{report.last_key}; version {report.version}"
    )
    if report.may_revive:
        tombstones = counted(report.tombstones, "tombstone")
        also = f", and rows that its {tombstones} had removed" if report.tombstones else ""
        click.echo(f"older rows of the same keys in other fragments may show again{also}")


@click.command(
    "release",
    epilog="""\b
Examples:
  compactor release ./logs 62563f83-0
  compactor release s3://bucket/logs --all""",
)
@click.argument("table")
@click.argument("fragments", nargs=-1, metavar="FRAGMENT...")
@click.option("--all", "release_all", is_flag=True, help="Release all fragments in quarantine.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def release_command(
    table: str, fragments: tuple[str, ...], release_all: bool, as_json: bool
) -> None:
    """Release FRAGMENTs of TABLE from quarantine, so that compactions try them again.

    `inspect` shows the fragments in quarantine, with reasons. Restore a damaged fragment from a backup first.
    The count of workers that died over a fragment is reset.
    """
    if bool(fragments) == release_all:
        raise UsageError("name the fragments to release, or give --all")
    opened = open_table(table)
    released = opened.release(fragments or None)
    if as_json:
        echo_json({"version": opened.version, "released": released})
        return
    if not released:
        click.echo(f"nothing is in quarantine at version {opened.version}")
        return
    click.echo(f"{counted(len(released), 'fragment')} released, version {opened.version}")

"""`vacuum` and `release`."""

from __future__ import annotations

import click

from compactor.cli.options import duration_seconds
from compactor.cli.output import echo_json, human_bytes
from compactor.cli.telemetry import MetricsTargets, log_options, metrics_options, telemetry
from compactor.errors import UsageError
from compactor.metrics import mapping
from compactor.stores.open import open_store
from compactor.table.commit_log import CommitLog
from compactor.table.snapshot import Snapshot
from compactor.table.vacuum import VacuumReport, VacuumSettings, vacuum
from compactor.table.version import Changes, Operation

_VACUUM_EPILOG = """\b
Examples:
  compactor vacuum ./logs --dry-run
  compactor vacuum s3://bucket/logs --retain 7d
  compactor vacuum ./logs --grace 0 --retain 0        nobody else is at work, no way back

An ingest or a compaction that began longer ago than --grace can't commit any more: it is told so, and
loses nothing but its work. Safe to run beside everything, at any time, twice."""


@click.command("vacuum", epilog=_VACUUM_EPILOG)
@click.argument("table")
@click.option("--grace", type=duration_seconds, metavar="DURATION", default="24h", show_default=True,
              help="What began longer ago and is not committed is taken for dead.")  # fmt: skip
@click.option("--retain", type=duration_seconds, metavar="DURATION", default="24h", show_default=True,
              help="Versions that were current within that time stay readable.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Count, and remove nothing.")
@log_options
@metrics_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def vacuum_command(
    table: str, grace: float, retain: float, dry_run: bool, as_json: bool, targets: MetricsTargets
) -> None:
    """Remove what no retained version of TABLE needs.

    Fragments that were compacted away or never committed, unfinished uploads, and log files that a
    checkpoint has made superfluous.
    """
    with telemetry("vacuum", open_store(table).url, targets) as told:
        log = told.log_of(told.open_store(table))
        report = vacuum(log, VacuumSettings(grace, retain, dry_run))
        told.record(lambda label: mapping.of_vacuum(label, report), log.store.url)
    if as_json:
        echo_json(report.to_json())
        return
    _print_vacuum(report)


def _print_vacuum(report: VacuumReport) -> None:
    done = "would be removed" if report.dry_run else "removed"
    click.echo(
        f"{report.fragments} fragments of {human_bytes(report.fragment_bytes)}, {report.log_files} log "
        f"files, {report.checkpoints} checkpoints, {report.unfinished_uploads} unfinished uploads {done}; "
        f"versions from {report.oldest_version} to {report.version} can be read"
    )
    if report.waiting_fragments:
        click.echo(
            f"{report.waiting_fragments} fragments belong to no version, but are younger than --grace: "
            "they may be about to be committed"
        )


@click.command(
    "release",
    epilog="""\b
Examples:
  compactor release ./logs data/0000...-00000.frag
  compactor release s3://bucket/logs --all""",
)
@click.argument("table")
@click.argument("fragments", nargs=-1, metavar="FRAGMENT...")
@click.option("--all", "release_all", is_flag=True, help="All fragments in quarantine.")
def release_command(table: str, fragments: tuple[str, ...], release_all: bool) -> None:
    """Let FRAGMENTs of TABLE out of quarantine, for compactions to try again, and forget who ended over them.

    `inspect` shows what is in quarantine and why. Restore a damaged fragment from a backup first.
    """
    if bool(fragments) == release_all:
        raise UsageError("name the fragments to release, or give --all")
    log = CommitLog(open_store(table))
    snapshot = log.current()
    held = {**snapshot.quarantine, **snapshot.suspects}
    unknown = [key for key in fragments if key not in held]
    if unknown:
        raise UsageError(f"{unknown[0]} is not in quarantine; `compactor inspect` shows what is")
    keys = fragments or tuple(held)
    if not keys:
        click.echo(f"nothing is in quarantine at version {log.latest.version}")
        return

    def prepare(_: Snapshot) -> Changes:
        return Changes(Operation.QUARANTINE, pardons=keys)

    after = log.commit(prepare)
    click.echo(f"{len(keys)} fragments released, version {after.version}")

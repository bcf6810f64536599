"""Implements `vacuum`."""

from __future__ import annotations

import random
import time
from functools import partial
from typing import Any

import click

from compactor.cli.output import echo_json, echo_line, human_bytes, warn
from compactor.cli.properties import say_overrides
from compactor.cli.setting_options import chosen, setting_options
from compactor.cli.tables import address_of
from compactor.cli.telemetry import (
    MetricsTargets,
    Telemetry,
    log_options,
    metrics_options,
    telemetry,
)
from compactor.common.counts import counted
from compactor.errors import CompactorError, JobError, UsageError, message_of
from compactor.settings.names import as_flag
from compactor.settings.vacuum import VacuumSettings
from compactor.table.vacuum import VacuumReport, vacuum
from compactor.telemetry.metrics import mapping
from lsm_fragment.errors import FormatError

_VACUUM_EPILOG = """\b
Examples:
  compactor vacuum ./logs --dry-run
  compactor vacuum s3://bucket/logs --retain 7d
  compactor vacuum --config fleet.yaml                all tables of a fleet, one after the other
  compactor vacuum ./logs --grace 0 --retain 0        only without other programs at work; irrevocable

Before it removes anything, vacuum reads the whole log and compares it with the checkpoints. If they differ,
or a log file is missing, it removes nothing; `compactor repair` shows the reason.

An ingest or compaction that began longer ago than --grace can no longer commit: it fails with an error and
loses only its work. Vacuum is safe beside all other work, at any time, and can be repeated."""


@click.command("vacuum", epilog=_VACUUM_EPILOG)
@click.argument("table", required=False, metavar="[TABLE]")
@click.option("--config", metavar="FILE",
              help="Vacuum all tables that this file of `watch --config` names, each by its settings there. "
              "A table that can't be vacuumed keeps no other from it.")  # fmt: skip
@setting_options(VacuumSettings)
@log_options
@metrics_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def vacuum_command(
    table: str | None, config: str | None, as_json: bool, targets: MetricsTargets, **options: Any
) -> None:
    """Remove objects that no retained version of TABLE needs.

    These are fragments that were compacted or never committed, unfinished uploads, and log files that a
    checkpoint replaces.

    Options override the properties of TABLE, which override the defaults below (`compactor alter --set`).
    """
    settings = chosen(VacuumSettings, options)
    if config is not None:
        _check_fleet_options(table, settings)
        _vacuum_fleet(config, settings, targets, as_json=as_json)
        return
    if table is None:
        raise UsageError("name a TABLE, or a file of tables by --config")
    with telemetry("vacuum", address_of(table), targets) as told:
        log = told.open_log(table)
        report = vacuum(log, settings)
        say_overrides(log.latest.properties, settings)
        told.record(lambda label: mapping.of_vacuum(label, report), log.store.url)
    if as_json:
        echo_json(report.to_json())
        return
    for line in _lines(report):
        echo_line(line)


def _check_fleet_options(table: str | None, settings: VacuumSettings) -> None:
    """Raises `UsageError` for a table, or settings, beside the file that names them."""
    if table is not None:
        raise UsageError("--config: name tables in the file, or a TABLE, not both")
    for name in VacuumSettings.model_fields:
        if name in settings.model_fields_set and name not in settings.of_run:
            raise UsageError(
                f"{as_flag(name)}: `settings` in the file of --config say it for its tables: leave it out"
            )


def _vacuum_fleet(
    config: str, settings: VacuumSettings, targets: MetricsTargets, *, as_json: bool
) -> None:
    """Vacuums the tables of a fleet, one after the other.

    Raises `ConfigError` for the file, and in the end `JobError` if a table or an entry could not be done.
    """
    # Imported here, since the vacuum of one table needs no fleets.
    from compactor.fleet.config import load_fleet
    from compactor.fleet.finding import found, has_table, patterns_of
    from compactor.settings.properties import tuned

    places, unanswered = found(patterns_of(load_fleet(config)))
    failures: list[tuple[str, str]] = []
    done: list[dict[str, Any]] = []

    def failed(subject: str, error: CompactorError | FormatError) -> None:
        failures.append((subject, str(error)))
        warn(message_of(error))

    with telemetry("vacuum", config, targets, is_fleet=True) as told:
        for pattern, error in unanswered:
            failed(pattern.entry.at, error)
        # Each run begins at another table: one that is ended early must not always leave out the same.
        tables = sorted(places.items())
        first = random.randrange(len(tables)) if tables else 0
        for url, (place, entry) in (*tables[first:], *tables[:first]):
            started = time.monotonic()
            try:
                if not has_table(place):
                    continue
                log = told.log_of(place.root.within(place.path))
                report = vacuum(log, tuned(settings, entry.properties))
            except (CompactorError, FormatError) as error:
                failed(url, error)
                _record(told, url, None, started)
                continue
            _record(told, url, report, started)
            done.append({"table": url, **report.to_json()})
            if not as_json:
                for line in _lines(report):
                    echo_line(f"{url}: {line}")
        if as_json:
            done.sort(key=lambda report: str(report["table"]))
            errors = [{"subject": subject, "error": text} for subject, text in failures]
            echo_json({"tables": done, "failures": errors})
        elif not done and not failures:
            echo_line(f"{config}: no table yet")
        if failures:
            raise JobError(
                f"{counted(len(failures), 'vacuum')} of {len(done) + len(failures):,} failed, for the "
                f"reasons above: {', '.join(subject for subject, _ in failures[:3])}"
                f"{', ...' if len(failures) > 3 else ''}"
            )


def _record(told: Telemetry, url: str, report: VacuumReport | None, started: float) -> None:
    """Records one table's vacuum. report: None if it failed."""
    made = partial(
        mapping.of_chore,
        command="vacuum",
        succeeded=report is not None,
        seconds=round(time.monotonic() - started, 3),
        now_unix_seconds=time.time(),
    )
    told.record(made, url)
    if report is not None:
        told.record(partial(mapping.of_vacuum, report=report), url)


def _tagged(report: VacuumReport) -> str:
    tagged = report.tagged_versions.items()
    return "".join(f", and version {version} by tag {name!r}" for name, version in tagged)


def _lines(report: VacuumReport) -> list[str]:
    done = "would be removed" if report.dry_run else "removed"
    lines = [
        f"{counted(report.fragments, 'fragment')} of {human_bytes(report.fragment_bytes)}, "
        f"{counted(report.log_files, 'log file')}, {counted(report.checkpoints, 'checkpoint')}, "
        f"{counted(report.unfinished_uploads, 'unfinished upload')} {done}; "
        f"versions from {report.oldest_version} to {report.version} can be read{_tagged(report)}"
    ]
    if report.waiting_fragments:
        lines.append(
            f"{counted(report.waiting_fragments, 'fragment')} of no version stayed, being younger "
            "than --grace: attempts may still commit them"
        )
    if report.damaged_checkpoints:
        lines.append(
            f"{counted(report.damaged_checkpoints, 'checkpoint is', 'checkpoints are')} damaged; "
            "an older one and the log after it were kept: `compactor repair` puts them aside"
        )
    if report.strays:
        lines.append(
            f"{counted(report.strays, 'log file does', 'log files do')} not belong to the table: "
            "`compactor repair` puts them aside"
        )
    return lines

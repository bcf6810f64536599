"""Implements `alter`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import click

from compactor.cli.output import echo_json, echo_line
from compactor.cli.setting_options import chosen, setting_option
from compactor.cli.shared_options import column_name
from compactor.cli.tables import open_table
from compactor.common.counts import counted
from compactor.common.plain_values import plain_dict
from compactor.errors import UsageError
from compactor.predicate.skipping.spec import SkipKind
from compactor.settings.column_kinds import column_kinds, renaming
from compactor.settings.fields import listed
from compactor.settings.properties import pairs, properties_text
from compactor.settings.units import exact_duration_text
from compactor.write.ingest.settings import IngestSettings
from lsm_fragment.names import parse_names, quoted

_Parsed = TypeVar("_Parsed")

_EPILOG = """\b
Examples:
  compactor alter ./logs --rename msg:message
  compactor alter ./logs --rename '"took: ms":took_ms'
  compactor alter ./logs --drop trace_id --drop span_id
  compactor alter ./users --redact email
  compactor alter ./logs --order timestamp,service,message
  compactor alter ./logs --skip-index trace_id:bloom --skip-index level:values
  compactor alter ./logs --set level0_trigger_runs=8 --set memory_limit_bytes=1GiB --unset retain_seconds
  compactor alter ./logs --set level0_compression_level=1 --set compression_level=9 --set retention=90d

\b
One commit changes all of it; no fragment is rewritten, and earlier versions keep their columns. Compactions
remove dropped and redacted values (`compactor compact --strategy full` does so at once); they are gone for
good once the old fragments are vacuumed. A column added later under a dropped name starts empty."""


@click.command("alter", epilog=_EPILOG)
@click.argument("table")
@click.option("--rename", "renames", multiple=True, metavar="OLD:NEW", help="Rename a column.")
@click.option(
    "--drop", "drops", multiple=True, type=column_name, metavar="COLUMN", help="Drop a column."
)
@click.option("--redact", "redacts", multiple=True, type=column_name, metavar="COLUMN",
              help="Set all current values of a column to null.")  # fmt: skip
@click.option("--order", metavar="COLUMN,...", help="Put these columns first, by their new names.")
@click.option("--skip-index", "skips", multiple=True, metavar="COLUMN:KIND",
              help="Set a column's skip index (bloom, values, none) for new fragments.")  # fmt: skip
@setting_option(IngestSettings, "skip_index_bytes", shows_default=False)
@click.option(
    "--set",
    "sets",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set a property of the table, or the retention of its time windows.",
)
@click.option("--unset", "unsets", multiple=True, metavar="NAME",
              help="Let a property follow the program's default again.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def alter_command(
    table: str,
    renames: tuple[str, ...],
    drops: tuple[str, ...],
    redacts: tuple[str, ...],
    order: str | None,
    skips: tuple[str, ...],
    skip_index_bytes: str | None,
    sets: tuple[str, ...],
    unsets: tuple[str, ...],
    as_json: bool,
) -> None:
    """Rename, drop, redact, reorder or index columns of TABLE, or set its properties, in one commit."""
    new_names = dict(_parsed_option("--rename", lambda: [renaming(text) for text in renames]))
    if len(new_names) < len(renames):
        raise UsageError("--rename: a column is named twice; name each once")
    first = _parsed_option("--order", lambda: parse_names(order)) if order else ()
    given = dict(_parsed_option("--set", lambda: pairs(sets)))
    if twice := sorted({*unsets}.intersection(given)):
        raise UsageError(f"--set and --unset: {twice[0]!r} is in both; name it once")
    report = open_table(table).alter(
        renames=new_names,
        drops=drops,
        redacts=redacts,
        order=first,
        skips=_skip_kinds(skips),
        skip_bytes=_index_bytes(skip_index_bytes),
        properties={**dict.fromkeys(unsets), **given},
    )
    if as_json:
        echo_json(plain_dict(report))
        return
    echo_line(f"columns: {', '.join(map(quoted, report.columns))}; version {report.version}")
    if given or unsets:
        text = properties_text(tuple(report.properties.items()))
        echo_line(f"properties: {text or 'none is set'}")
    if "retention" in (*given, *unsets):
        kept = report.retention_seconds
        text = "all time windows are kept" if kept is None else exact_duration_text(kept)
        echo_line(f"retention: {text}")
    if report.waiting:
        click.echo(
            f"{counted(len(report.waiting), 'fragment holds', 'fragments hold')} dropped columns "
            "until compacted "
            "(`compactor compact --strategy full` does it at once) and vacuumed"
        )


def _parsed_option(flag: str, parse: Callable[[], _Parsed]) -> _Parsed:
    """Calls a parser. Raises its error as a `UsageError` with the option."""
    try:
        return parse()
    except ValueError as error:
        raise UsageError(f"{flag}: {error}") from None


def _index_bytes(text: str | None) -> int | None:
    given = {"skip_index_bytes": text}
    return None if text is None else chosen(IngestSettings, given).skip_index_bytes


def _skip_kinds(texts: Sequence[str]) -> dict[str, SkipKind | None]:
    """Parses `--skip-index COLUMN:KIND`; the kind `none` becomes None. Raises `UsageError`."""
    kinds = {**{str(kind): kind for kind in SkipKind}, "none": None}
    return _parsed_option("--skip-index", lambda: column_kinds(listed(texts), kinds))

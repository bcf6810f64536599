"""Implements `inspect` and `verify`."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click
from msgspec.structs import replace

from compactor.cli.backlog_text import backlog_lines
from compactor.cli.display import print_table, progress
from compactor.cli.output import echo_json, echo_line, human_bytes
from compactor.cli.shared_options import (
    column_name,
    snapshot_options,
    threads_option,
    version_or_tag,
)
from compactor.cli.tables import open_fragment_at, open_log, open_view
from compactor.cli.telemetry import log_options
from compactor.cli.templates import print_stored_templates
from compactor.common.counts import counted
from compactor.common.escaping import one_line
from compactor.common.plain_values import plain_dict
from compactor.common.sampling import evenly
from compactor.compaction.backlog import Backlog, backlog_of
from compactor.compaction.driver import Driver, DriverSettings
from compactor.errors import ObjectNotFoundError, TableNotFoundError, UsageError
from compactor.planner.debt import Pressure, debt_of
from compactor.planner.tree import forest, overlapping_pairs
from compactor.read.fragment_columns import open_logged_fragment
from compactor.read.read_reports import StoredTemplates
from compactor.read.stored_templates import stored_templates
from compactor.read.wanted import scan_schema, stored_schema
from compactor.settings.compaction import Policy
from compactor.settings.properties import properties_text, with_sources
from compactor.settings.units import exact_duration_text
from compactor.table.commit_log import CommitLog
from compactor.table.entry import FragmentEntry, key_range
from compactor.table.fragment_ids import key_of, short_ids
from compactor.table.key_text import cut, key_text, key_types
from compactor.table.snapshot import Snapshot
from compactor.table.tags import Moment
from lsm_fragment.container.header import FragmentHeader
from lsm_fragment.container.reader import FragmentReader
from lsm_fragment.names import quoted

_MAX_FRAGMENTS: Final = 40
_MAX_CHUNKS: Final = 32
_WIDTH: Final = 80
_MIN_TEXT: Final = 12
_COLORS: Final = {Pressure.HEALTHY: "green", Pressure.SLOW: "yellow", Pressure.STOP: "red"}
_SHOWN: Final = 20
"""Show at most this many templates."""


@click.command(
    "inspect",
    epilog="""\b
Examples:
  compactor inspect ./logs
  compactor inspect s3://bucket/logs --json
  compactor inspect ./logs --level 0 --wide
  compactor inspect ./logs 62563f83-0                 one fragment, by its short id
  compactor inspect ./logs --column message
  compactor inspect ./logs/data/5f0c...-00000.frag""",
)
@click.argument("target", metavar="TABLE|FRAGMENT")
@click.argument("fragment", required=False, metavar="[ID]")
@click.option("--level", type=click.IntRange(min=0), help="List only the fragments of this level.")
@click.option(
    "--wide",
    is_flag=True,
    help="List keys of objects, whole sort keys, names and types, in more than 80 columns.",
)
@click.option(
    "--all",
    "show_all",
    is_flag=True,
    help=f"Show all fragments, or all chunks of templates, instead of the first {_MAX_FRAGMENTS}.",
)
@click.option(
    "--column",
    type=column_name,
    metavar="COLUMN",
    help="Show the most frequent templates of this column, if it is stored as templates.",
)
@snapshot_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def inspect_command(
    target: str,
    fragment: str | None,
    level: int | None,
    wide: bool,
    show_all: bool,
    column: str | None,
    moment: Moment,
    as_json: bool,
) -> None:
    """Show a TABLE (levels, debt, fragments, key ranges, quarantine) or one FRAGMENT.

    A fragment of a table is named by its short ID, as this command prints it, or by its key.

    For a column that a fragment stores as templates, it shows their number and size. With --column it shows
    the templates instead, counted in an even sample of up to 32 row groups; of a table, in up to 32
    fragments.
    """
    found = _open(target, moment)
    if fragment is not None:
        found = _fragment_of(found, target, fragment)
    if column is not None:
        templates = _templates(found, column)
        echo_json(plain_dict(templates)) if as_json else print_stored_templates(templates)
    elif isinstance(found, FragmentReader):
        document = _fragment_json(found, max_chunks=None if show_all else _MAX_FRAGMENTS)
        echo_json(document) if as_json else _print_fragment(document, found.header)
    elif as_json:
        echo_json(_table_json(*found, _backlog(*found, moment)))
    else:
        backlog = _backlog(*found, moment)
        _print_snapshot(*found, level, backlog, show_all=show_all, wide=wide)


def _backlog(log: CommitLog, snapshot: Snapshot, moment: Moment) -> Backlog | None:
    """Returns what is left to be compacted; None for an earlier version."""
    if not moment.is_newest:
        return None
    return backlog_of(Driver(log, DriverSettings()), snapshot)


def _templates(found: FragmentReader | tuple[CommitLog, Snapshot], column: str) -> StoredTemplates:
    if isinstance(found, FragmentReader):
        found.project([column])
        return stored_templates(column, column, [found], max_chunks=_MAX_CHUNKS, shown=_SHOWN)
    log, snapshot = found
    [name] = stored_schema(snapshot.table, scan_schema(snapshot.table, [column])).names
    readers = [
        open_logged_fragment(log.store, entry) for entry in evenly(snapshot.by_age(), _MAX_CHUNKS)
    ]
    return stored_templates(column, name, readers, max_chunks=_MAX_CHUNKS, shown=_SHOWN)


def _open(target: str, moment: Moment) -> FragmentReader | tuple[CommitLog, Snapshot]:
    """Opens the table or the fragment at this address. Raises `TableNotFoundError` if there is neither."""
    is_local = "://" not in target
    if not is_local or Path(target).is_dir():
        log = open_log(target)
        try:
            return log, log.at(*moment)
        except TableNotFoundError:
            if is_local:
                raise
    try:
        return open_fragment_at(target)
    except ObjectNotFoundError:
        raise TableNotFoundError(f"{target}: neither a table nor a fragment") from None


def _fragment_of(
    found: FragmentReader | tuple[CommitLog, Snapshot], target: str, name: str
) -> FragmentReader:
    """Opens a fragment of a table. Raises `UsageError` if there is none of this name."""
    if isinstance(found, FragmentReader):
        raise UsageError(f"{target} is a fragment; an id names one of a table")
    log, snapshot = found
    store = log.store
    entry = snapshot.fragments.get(key_of(snapshot.fragments, name))
    if entry is None:
        raise UsageError(f"{store.url}: {name!r} is no fragment of version {snapshot.version}")
    return open_logged_fragment(store, entry)


def _table_json(log: CommitLog, snapshot: Snapshot, backlog: Backlog | None) -> dict[str, Any]:
    entries = snapshot.by_age()
    return {
        "table": log.store.url,
        "version": snapshot.version,
        "oldest_version": snapshot.oldest,
        **snapshot.table.to_json(),
        "properties": with_sources(snapshot.table.properties),
        "debt": debt_of(snapshot, Policy()).to_json(),
        "backlog": None if backlog is None else backlog.to_json(),
        "write_amplification": round(snapshot.totals.write_amplification, 3),
        "totals": plain_dict(snapshot.totals),
        "quarantine": [plain_dict(item) for item in snapshot.quarantine.values()],
        "compacting": [plain_dict(lease) for lease in snapshot.leases.values()],
        "rows": sum(entry.live_rows for entry in entries),
        "deleted_rows": sum(entry.deleted_rows for entry in entries),
        "size_bytes": sum(entry.size_bytes for entry in entries),
        "overlapping_pairs": overlapping_pairs(forest(snapshot).values()),
        "fragments": [entry.to_json() for entry in entries],
    }


def _print_snapshot(
    log: CommitLog,
    snapshot: Snapshot,
    level: int | None,
    backlog: Backlog | None,
    *,
    show_all: bool,
    wide: bool,
) -> None:
    entries, table = snapshot.by_age(), snapshot.table
    raw = sum(column.raw for entry in entries for column in entry.columns.values())
    stored = sum(entry.size_bytes for entry in entries)
    echo_line(f"{log.store.url}, version {snapshot.version}")
    shown_sort = [replace(c, column=table.shown_name(c.column)) for c in table.sort]
    echo_line(f"sorted by {', '.join(map(str, shown_sort))}")
    if table.rows.merges:
        tombstones = sum(entry.tombstones for entry in entries)
        held = counted(tombstones, "tombstone")
        echo_line(f"row policy {table.shown_rows}{f'; {held}' if tombstones else ''}")
    if (windows := table.windows) is not None:
        kept = windows.retention_seconds
        ends = "kept for good" if kept is None else f"dropped after {exact_duration_text(kept)}"
        length = exact_duration_text(windows.window_seconds)
        echo_line(f"time windows of {length} by {table.shown_name(windows.column)}, {ends}")
    if table.ttl is not None:
        shown_ttl = dataclasses.replace(table.ttl, column=table.shown_name(table.ttl.column))
        echo_line(f"time to live {shown_ttl}")
    if table.properties:
        echo_line(f"properties {properties_text(table.properties)}")
    deleted = sum(entry.deleted_rows for entry in entries)
    also = f" and {counted(deleted, 'deleted one')}" if deleted else ""
    pairs = overlapping_pairs(forest(snapshot).values())
    _echo_folded(
        f"{counted(len(entries), 'fragment')}, {counted(sum(e.live_rows for e in entries), 'row')}{also}, "
        f"{human_bytes(stored)} ({human_bytes(raw)} raw), {counted(pairs, 'overlapping pair')}"
    )
    ids = short_ids(snapshot.fragments)
    _print_state(log.store.url, snapshot, ids, backlog)
    click.echo("")
    columns = [("name", False), ("type", False), ("stored", True), ("raw", True)]
    rows = [
        [
            quoted(table.shown_name(field.name)),
            str(field.type),
            human_bytes(
                sum(e.columns[field.name].stored for e in entries if field.name in e.columns)
            ),
            human_bytes(sum(e.columns[field.name].raw for e in entries if field.name in e.columns)),
        ]
        for field in table.schema
    ]
    print_table("columns", columns, rows if wide else _fitted(columns, rows, 0, 1))
    click.echo("")
    compare = table.comparator()
    listed = [entry for entry in entries if level in (None, entry.level)]
    ordered = sorted(listed, key=lambda e: (e.level, key_range(e, compare)[0], e.sequence))
    shown = ordered if show_all else ordered[:_MAX_FRAGMENTS]
    _print_fragments(shown, snapshot, None if wide else ids)
    if len(shown) < len(ordered):
        click.echo(f"... and {len(ordered) - len(shown)} more (--all shows them)")
    if level is not None and not listed:
        echo_line(f"no fragment is at level {level}")


def _print_fragments(
    shown: Sequence[FragmentEntry], snapshot: Snapshot, ids: Mapping[str, str] | None
) -> None:
    """Lists fragments by their short ids, with keys cut so that lines fit 80 columns; without ids, by their
    whole keys in wider lines."""
    types = key_types(snapshot.table.schema, snapshot.table.sort)
    columns = [("level", True), ("rows", True), ("bytes", True), ("row groups", True),
               ("fragment", False), ("first key", False), ("last key", False)]  # fmt: skip
    rows = [
        [
            str(entry.level),
            f"{entry.live_rows:,}",
            human_bytes(entry.size_bytes),
            str(entry.row_groups),
            entry.key if ids is None else ids[entry.key],
            key_text(entry.first_key, types),
            key_text(entry.last_key, types),
        ]
        for entry in shown
    ]
    if ids is not None:
        columns[3] = ("groups", True)
        rows = _fitted(columns, rows, 5, 6)
    print_table("fragments", columns, rows)


def _fitted(
    columns: Sequence[tuple[str, bool]], rows: Sequence[list[str]], first: int, second: int
) -> list[list[str]]:
    """Returns the rows with the texts of two columns cut so that lines fit 80 columns, if they can."""
    from rich.cells import cell_len

    rows = [list(map(one_line, row)) for row in rows]
    widths = [
        max([len(name), *(cell_len(row[place]) for row in rows)])
        for place, (name, _) in enumerate(columns)
    ]
    room = _WIDTH - 2 * (len(columns) - 1) - sum(widths) + widths[first] + widths[second]
    # What a short column leaves belongs to the other.
    most = max(_MIN_TEXT, room // 2, room - min(widths[first], widths[second]))
    return [
        [
            _cut_to_cells(text, most) if place in (first, second) else text
            for place, text in enumerate(row)
        ]
        for row in rows
    ]


def _cut_to_cells(text: str, cells: int) -> str:
    """Returns a text, or its beginning and its end if it takes more cells of a terminal: wide characters
    take two."""
    from rich.cells import cell_len

    if cell_len(text) <= cells:
        return text
    cuts = (cut(text, characters) for characters in range(cells, 1, -1))
    return next(shown for shown in cuts if cell_len(shown) <= cells)


def _print_state(
    url: str, snapshot: Snapshot, ids: Mapping[str, str], backlog: Backlog | None
) -> None:
    """ids: the short id of each fragment."""
    debt = debt_of(snapshot, Policy())
    pressure = click.style(debt.pressure, fg=_COLORS[debt.pressure])
    click.echo(
        f"compaction debt {debt.score:.2f} ({pressure}), "
        f"{counted(debt.level0_runs, 'sorted run')} at level 0\n"
        f"write amplification {snapshot.totals.write_amplification:.2f}"
    )
    if backlog is not None:
        for line in backlog_lines(backlog):
            _echo_folded(line)
    if snapshot.totals.lost_rows:
        click.echo(f"{counted(snapshot.totals.lost_rows, 'row')} lost with dropped fragments")
    for item in snapshot.quarantine.values():
        name = ids.get(item.key, item.key)
        reason = item.reason.replace(f"{url}/{item.key}: ", "")
        _echo_folded(f"in quarantine: {name}: {reason}", red="in quarantine")
    for suspect in snapshot.suspects.values():
        if suspect.key not in snapshot.quarantine:
            echo_line(
                f"abandoned {counted(suspect.abandoned, 'time')} by workers that ended: "
                f"{ids.get(suspect.key, suspect.key)}"
            )


def _echo_folded(text: str, red: str = "") -> None:
    """Prints a sentence in lines of 80 columns. red: its first words, if they are to be red."""
    indent = " " * (len(text) - len(text.lstrip()) + 2)
    lines = textwrap.wrap(
        one_line(text),
        _WIDTH,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    lines[0] = click.style(red, fg="red") + lines[0].removeprefix(red) if red else lines[0]
    click.echo("\n".join(lines))


def _fragment_json(reader: FragmentReader, *, max_chunks: int | None) -> dict[str, Any]:
    footer, header = reader.footer, reader.header
    templated = [
        (name, group) for name in footer.columns for group in reader.templated_groups(name)
    ]
    return {
        "fragment": reader.name,
        "size_bytes": reader.size_bytes,
        "rows": footer.rows,
        "row_hash": f"{footer.row_hash:016x}",
        "max_rows": header.max_rows,
        "sort": [column.to_json() for column in footer.sort],
        "writer": header.writer,
        "sources": list(header.sources),
        "row_groups": [
            {"rows": g.rows, "first_key": list(g.first_key), "last_key": list(g.last_key)}
            for g in footer.row_groups
        ],
        "columns": [
            {
                "name": name,
                "type": str(header.schema.field(name).type),
                "stored_bytes": sum(chunk.stored_bytes for chunk in chunks),
                "raw_bytes": sum(chunk.raw_bytes for chunk in chunks),
                "null_count": sum(chunk.null_count for chunk in chunks),
                "encodings": sorted({chunk.encoding for chunk in chunks}),
            }
            for name, chunks in footer.columns.items()
        ],
        "chunks_of_templates": len(templated),
        "templates": [
            {"column": name, "row_group": group, **reader.template_sizes(name, group)._asdict()}
            for name, group in templated[:max_chunks]
        ],
    }


def _print_fragment(document: dict[str, Any], header: FragmentHeader) -> None:
    types = key_types(header.schema, header.sort)
    sort = ", ".join(
        f"{quoted(c['column'])} {c['order']} nulls {c['nulls']}" for c in document["sort"]
    )
    echo_line(f"{document['fragment']}, {human_bytes(document['size_bytes'])}")
    echo_line(
        f"{counted(document['rows'], 'row')} in {counted(len(document['row_groups']), 'row group')}, "
        f"sorted by {sort}"
    )
    click.echo(
        f"row hash {document['row_hash']}, merged from {counted(len(document['sources']), 'fragment')}\n"
    )
    columns = [("column", False), ("type", False), ("stored", True), ("raw", True), ("nulls", True),
               ("encodings", False)]  # fmt: skip
    print_table("columns, in file order", columns, [
        [quoted(c["name"]), c["type"], human_bytes(c["stored_bytes"]), human_bytes(c["raw_bytes"]),
         f"{c['null_count']:,}", " ".join(c["encodings"])]
        for c in document["columns"]
    ])  # fmt: skip
    if document["templates"]:
        _print_template_sizes(document)
    groups = document["row_groups"]
    click.echo("")
    columns = [("row group", True), ("rows", True), ("first key", False), ("last key", False)]
    print_table(None, columns, [
        [str(index), f"{g['rows']:,}", key_text(g["first_key"], types), key_text(g["last_key"], types)]
        for index, g in enumerate(groups[:_MAX_FRAGMENTS])
    ])  # fmt: skip
    if len(groups) > _MAX_FRAGMENTS:
        click.echo(f"... and {len(groups) - _MAX_FRAGMENTS} more (--json shows them)")


def _print_template_sizes(document: dict[str, Any]) -> None:
    click.echo("")
    columns = [("column", False), ("row group", True), ("rows", True), ("templates", True),
               ("bytes of templates", True), ("of variables", True)]  # fmt: skip
    print_table("templates, by chunk", columns, [
        [quoted(c["column"]), str(c["row_group"]), f"{c['rows']:,}", f"{c['templates']:,}",
         human_bytes(c["head_bytes"]), human_bytes(c["variables_bytes"])]
        for c in document["templates"]
    ])  # fmt: skip
    left = document["chunks_of_templates"] - len(document["templates"])
    if left:
        click.echo(f"... and {left} more (--all shows them)")


@click.command(
    "verify",
    epilog="""\b
Examples:
  compactor verify ./logs
  compactor verify s3://bucket/logs --json
  compactor verify ./logs --against before-cleanup""",
)
@click.argument("table")
@click.option("--against", type=version_or_tag, metavar="VERSION|TAG",
              help="Say what happened to rows since then, and whether compactions kept them.")  # fmt: skip
@threads_option
@snapshot_options
@log_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def verify_command(
    table: str, against: int | str | None, threads: int | None, moment: Moment, as_json: bool
) -> None:
    """Read all of TABLE and check checksums, order, statistics, counts and disjointness.

    Prints the place of each fault, and exits with 1 if there are any.
    """
    view = open_view(table, moment)
    with progress("verify", view.fragments().num_rows) as advance:
        report = view.verify(threads=threads, against=against, on_progress=advance)
    if as_json:
        echo_json(report.to_json())
    else:
        for fault in report.faults:
            echo_line(fault)
        verdict = counted(len(report.faults), "FAULT", "FAULTS") if report.faults else "ok"
        click.echo(
            f"{verdict}: {counted(report.fragments, 'fragment')}, {counted(report.rows, 'row')}, "
            f"{human_bytes(report.bytes_read)} read at version {report.version}"
        )
        if report.against is not None:
            echo_line(str(report.against))
    if report.faults:
        raise click.exceptions.Exit(1)

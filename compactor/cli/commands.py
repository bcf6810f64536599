"""The commands by name. `--help` lists them without imports; calling a command imports its module.

A new command is a line in `COMMANDS` and a function `NAME_command` in the named module.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from importlib import import_module
from typing import Any, Final, NamedTuple

import click
from click.shell_completion import CompletionItem

from compactor.cli.frugal import frugal_imports
from compactor.common.heap import set_up_heap
from compactor.errors import JobError


class Place(NamedTuple):
    """The module of a command, and its summary in the list of commands."""

    module: str
    summary: str


COMMANDS: Final = {
    "alter": Place("alter", "Rename, drop, redact, reorder or index columns of a table."),
    "changes": Place("changes", "Print the rows that came, went and changed between versions."),
    "compact": Place("compact", "Merge fragments into larger, disjoint, sorted ones."),
    "delete": Place("delete", "Delete the rows that match a condition."),
    "drop-fragment": Place("maintain", "Drop a damaged or lost fragment with its rows."),
    "entity-merge": Place("entity", "Find the same entities in several datasets and merge them."),
    "export": Place("export", "Write the rows of a table to a file, in sort order."),
    "head": Place("read", "Print the first rows of a table, in sort order."),
    "ingest": Place("write", "Add files to a table as sorted fragments."),
    "inspect": Place("look", "Show what is in a table or in one fragment."),
    "publish": Place("publish", "Keep a copy of a table that other engines read."),
    "quarantine": Place("maintain", "Exclude damaged or lost fragments from compactions."),
    "query": Place("read", "Print the rows that match a condition, in sort order."),
    "release": Place("maintain", "Release fragments from quarantine."),
    "repair": Place("maintain", "Find faults in a commit log, and repair them."),
    "report": Place("report", "Write one HTML page about a table."),
    "restore": Place("lineage", "Make a table what it was at an earlier version."),
    "run": Place("run", "Run the pipeline of a YAML file."),
    "sample": Place("sample", "Write the files with which README and tutorials begin."),
    "simulate": Place("simulate", "Try a policy: the real planner, weeks of ingest in minutes."),
    "tag": Place("lineage", "Name a version, so that vacuums keep it."),
    "tags": Place("lineage", "Show the tags of a table."),
    "templates": Place(
        "templates", "Count the patterns of a column's texts, such as log messages."
    ),
    "undo": Place("lineage", "Put the inputs of a compaction in the place of its outputs."),
    "untag": Place("lineage", "End a tag."),
    "update": Place("update", "Give columns of the rows that match a condition new values."),
    "vacuum": Place("vacuum", "Remove the files that no retained version needs."),
    "verify": Place("look", "Read all of a table and check it."),
    "wait": Place("wait", "Wait until what came in is compacted."),
    "watch": Place("watch", "Keep tables compacted until stopped."),
}


class LazyCommands(MutableMapping[str, click.Command]):
    """Maps names to commands, which are imported on first access."""

    def __init__(self) -> None:
        self._commands: dict[str, click.Command | None] = dict.fromkeys(COMMANDS)

    def __getitem__(self, name: str) -> click.Command:
        command = self._commands[name]
        if command is None:
            command = self._commands[name] = _imported(name)
        return command

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._commands[name] = command

    def __delitem__(self, name: str) -> None:
        del self._commands[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._commands)

    def __len__(self) -> int:
        return len(self._commands)


class Commands(click.Group):
    """The group of all commands. Its help imports none of them."""

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command. Raises `JobError` for a broken pipe, at which click would exit silently."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise JobError("a connection was closed at its other end: try again") from error

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Returns what completes a word: commands, or options of the group. Imports no command."""
        commands = [
            CompletionItem(name, help=place.summary)
            for name, place in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return [*commands, *super(click.Group, self).shell_complete(ctx, incomplete)]

    def format_commands(self, _: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the summaries of all commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, place.summary) for name, place in COMMANDS.items()])


def _imported(name: str) -> click.Command:
    set_up_heap()
    with frugal_imports():
        module = import_module(f"compactor.cli.{COMMANDS[name].module}")
    command = getattr(module, f"{name.replace('-', '_')}_command")
    assert isinstance(command, click.Command)
    return command

"""Writes the reference of the command line from the commands themselves.

python -m docs.tools.cli_reference docs/reference/cli.md
"""

from __future__ import annotations

import inspect
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from compactor import errors
from compactor.cli.commands import COMMANDS
from compactor.cli.main import cli

EXIT_CODES: Final = {
    0: "Done.",
    1: "`verify` found faults, a compaction failed for good (the others are committed), fragments are in "
    "quarantine, `entity-merge` would unite too many or what must not be one, or Spark has ended.",
    2: "The call is wrong, or `run` put bad records aside.",
    3: "A file can't be read or does not fit the table, or stored data is damaged.",
    4: "The store can't be reached, refuses, or has no such bucket.",
    5: "There is no such table or version, others changed it meanwhile, writers should wait, or this "
    "machine's clock is wrong.",
    6: "This machine, or a limit of the process, has no memory or no thread left.",
    7: "`entity-merge` did nothing, because it waits for datasets that its spec requires.",
    130: "Interrupted by Ctrl-C or SIGTERM. `watch` ends with 0 then.",
}
_MISTAKES: Final = {
    "No table is at an address. `inspect` also looks for a fragment there; `ingest` creates the table, and "
    "`watch` waits for it.": 5,
    "A file with rows is missing or can't be read: a file of `ingest`, or a source of `run`.": 3,
    "The YAML file of `run` or `entity-merge` is missing or wrong.": 2,
    "A file can't be written because its folder is missing or its ending stands for no format.": 2,
    "An option, a condition or a YAML file names a column that is not there.": 2,
    "A file of `ingest` lacks a sort column of the table. It may lack any other column; a warning says if "
    "that is one of `--promote`, and a `--delete-marker` that it lacks is added.": 3,
    "`delete`, `export`, `head`, `ingest`, `inspect FRAGMENT`, `query` or `run` reads a damaged place of a "
    "fragment.": 3,
    "One of these commands reads an object that the log names and that is missing.": 4,
    "`compact` or `verify` meets a damaged or missing fragment. They name it, and finish the rest.": 1,
    "The log is damaged, or a file of it is missing. `watch` reports that and tries again.": 3,
    "`repair` finds something that it can't mend by itself.": 1,
}
_LIMITS: Final = re.compile(
    r"(?:^|\s+)\[((?:default|required|(?:[-\d.]+<=?)?x[<>])(?:[^\[\]]|\[[^\]]*\])*)\]"
)
"""What help texts say in brackets of defaults and bounds."""
_BOTH_BOUNDS: Final = re.compile(r"(-?\d+)<=x(<=?)(\d+)")
_LOWER_BOUND: Final = re.compile(r"\bx>(=?)(?=\w)")
_LARGEST: Final = 2**31 - 1
"""A bound from here on is one of the machine's integers, of which nobody needs to read."""
_HEAD: Final = """# Command line

This page is made from the commands themselves by `make docs`; a test compares the two.

`TABLE` is a folder, `s3://bucket/prefix` or in another [store](stores.md). Credentials, region and
`AWS_ENDPOINT_URL` are those of every AWS tool. Results go to stdout, everything else to stderr. An error is
one line that begins with `compactor: error: `. With `COMPACTOR_DEBUG=1` a traceback follows an internal
error. `compactor --version` prints the versions of the package, the fragment format and the table protocol.
"""


def reference() -> str:
    """Returns the page."""
    parts = [_HEAD, _list_of_commands(), _exit_codes()]
    parts += [_section(name, command) for name, command in cli.commands.items()]
    return "\n".join(parts)


def _list_of_commands() -> str:
    rows = [f"| [`{name}`](#{name}) | {_cell(place.summary)} |" for name, place in COMMANDS.items()]
    return "\n".join(["| command | what it does |", "|---|---|", *rows, ""])


def _exit_codes() -> str:
    classes = defaultdict(list)
    for name, error in inspect.getmembers(errors, inspect.isclass):
        if issubclass(error, errors.CompactorError):
            classes[error.exit_code].append(f"`{name}`")
    rows = [
        f"| {code} | {meaning} | {', '.join(classes.pop(code, []))} |"
        for code, meaning in EXIT_CODES.items()
    ]
    assert not classes, f"exit codes that EXIT_CODES does not explain: {classes}"
    link = "[The runbook](../how-to/operations.md#runbook) says what to do about each error."
    lines = [
        "## Exit codes",
        "",
        "| code | meaning | errors |",
        "|---|---|---|",
        *rows,
        "",
        link,
        "",
        "The same mistake gives the same code in every command:",
        "",
        "| mistake | code |",
        "|---|---|",
        *(f"| {mistake} | {code} |" for mistake, code in _MISTAKES.items()),
        "",
        "`alter`, `compact --dry-run`, `inspect TABLE`, `release`, `report` and `vacuum` read no fragments, "
        "so a damaged one does not fail them.",
        "",
        "A reader of the output that leaves, as in `compactor query TABLE | head -1`, is no error: `query` "
        "and `head` stop with code 0, other commands finish their work and end with its code.",
        "",
    ]
    return "\n".join(lines)


def _section(name: str, command: click.Command) -> str:
    context = click.Context(command, info_name=f"compactor {name}")
    usage = " ".join(["compactor", name, *command.collect_usage_pieces(context)])
    options = [
        _option(parameter, context)
        for parameter in command.get_params(context)
        if isinstance(parameter, click.Option) and "--help" not in parameter.opts
    ]
    table = ["| option | what it says | default and bounds |", "|---|---|---|", *options, ""]
    text = inspect.cleandoc(command.help or "")
    notes = [note for part in _paragraphs(command.epilog or "") for note in (part, "")]
    head = [f"## {name}", "", "```text", usage, "```", ""]
    return "\n".join([*head, text, "", *table, *notes]).rstrip() + "\n"


def _option(option: click.Option, context: click.Context) -> str:
    record = option.get_help_record(context)
    assert record is not None, f"{option.name} is hidden"
    names, text = record
    limits = "; ".join(
        _LOWER_BOUND.sub(
            lambda bound: "at least " if bound[1] else "above ",
            _BOTH_BOUNDS.sub(_bounds, found.removeprefix("default").removeprefix(": ").strip()),
        )
        for found in _LIMITS.findall(text)
    )
    return f"| `{_cell(names)}` | {_cell(_LIMITS.sub('', text))} | {_cell(limits)} |"


def _bounds(found: re.Match[str]) -> str:
    least, sign, most = found.groups()
    if sign == "<":
        return f"at least {least}, below {most}"
    if int(most) < _LARGEST:
        return f"{least} to {most}"
    return "" if int(least) < 0 else f"at least {least}"


def _cell(text: str) -> str:
    """Returns a text as a cell of a Markdown table."""
    return " ".join(text.split()).replace("|", "\\|")


def _paragraphs(epilog: str) -> Iterator[str]:
    """Yields the paragraphs of an epilog: those that click leaves as they are become blocks of code."""
    for paragraph in inspect.cleandoc(epilog).split("\n\n"):
        kept = paragraph.removeprefix("\b\n")
        if kept == paragraph:
            yield paragraph
        elif kept.startswith("Examples:\n"):
            yield f"```sh\n{inspect.cleandoc(kept.removeprefix('Examples:'))}\n```"
        else:
            yield f"```text\n{kept}\n```"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(reference())
    print(sys.argv[1])

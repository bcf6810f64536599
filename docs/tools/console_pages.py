"""Runs the commands that pages of the documentation show, and writes what they print into the pages.

    python -m docs.tools.console_pages README.md docs/tutorial/*.md

A block of `sh` that begins with `cat >` makes a file. In a block of `console`, lines that begin with `$ `
are commands, and what follows one is what it prints. All commands of a page run in one empty folder.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from compactor.cli.main import run

_BLOCK: Final = re.compile(r"^```(sh|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PROMPT: Final = "$ "
_VARYING: Final = (
    re.compile(r"(?<=-)[0-9a-f]{32}(?:-[0-9a-f]{8})?(-\d{5}\.frag)"),  # ids of attempts
    re.compile(r"(?<![\w-])[0-9a-f]{8}(-\d+)(?![\w-])"),  # short ids of fragments
    re.compile(r"(?:(?<=\S)  +|(?<![\w.]))(?:[\d.,]+(?: MB)? to )?[\d.,]+ [MG]B\b()"),  # memory
    re.compile(r"(?<![\w.])\d+\.\d( s)\b"),
    re.compile(r"(?<![\w.])[\d,]+(/s)\b"),
    re.compile(r"(?<=task seconds)[^\n]+()"),
    re.compile(r"(?<=CPU seconds)[^\n]+()"),
)
"""What differs from run to run; the group behind it stays."""


def page_as_run(text: str) -> str:
    """Returns a page with what its commands print now, in place of what it showed."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        return _BLOCK.sub(_block_as_run, text)


def _block_as_run(block: re.Match[str]) -> str:
    language, body = block.groups()
    if language == "console":
        commands = [line for line in body.splitlines() if line.startswith(_PROMPT)]
        shown = [f"{command}\n{_printed(command.removeprefix(_PROMPT))}" for command in commands]
        return f"```console\n{''.join(shown)}```"
    if body.startswith("cat >"):
        subprocess.run(["sh", "-eu", "-c", body], check=True)
    return block[0]


def _printed(command: str) -> str:
    """Runs a command and returns what a terminal would show, with `...` for what varies."""
    program, *arguments = shlex.split(command)
    if program == "compactor":
        text = _compactor_printed(arguments)
    else:
        text = subprocess.run(
            command,
            shell=True,
            check=True,
            capture_output=True,
            text=True,
            env=os.environ
            | {"LC_ALL": "C", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        ).stdout
    text = text.replace(str(Path.cwd()), "...")
    for pattern in _VARYING:
        text = pattern.sub(_elided, text)
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def _elided(found: re.Match[str]) -> str:
    """Returns `...` for what was found, and keeps the columns of tables in line."""
    if found[0].startswith("  "):
        return f"...{found[1]}".rjust(len(found[0]))
    return f"...{found[1]}".ljust(len(found[0]) if found[1].startswith("-") else 0)


def _compactor_printed(arguments: list[str]) -> str:
    """Runs `compactor` in this process, which saves a second of imports for each command."""
    raw = io.BytesIO()
    shown = io.TextIOWrapper(raw, encoding="utf-8", write_through=True)
    with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
        run(arguments)
    return raw.getvalue().decode()


if __name__ == "__main__":
    for name in sys.argv[1:]:
        page = Path(name)
        page.write_text(page_as_run(page.read_text()))
        print(name)

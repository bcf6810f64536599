"""Runs `compactor` commands as a user would type them, printing each first."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

_INTERRUPT_SECONDS: Final = 15.0

console = Console(highlight=False, soft_wrap=True)


class StepError(Exception):
    """A step of the demo failed."""


def show_command(command: str) -> None:
    """Prints a command line as a user would type it."""
    console.print(Text(f"$ {command}", style="bold cyan"))


@dataclass(frozen=True)
class Shell:
    """Runs `compactor` in a folder and environment, and prints each command."""

    folder: Path
    environment: Mapping[str, str]

    def compactor(self, *arguments: str, save: str | None = None, show: bool = True) -> str:
        """Runs one command; prints its standard output, saves it to the file `save`, or both.

        Expands `*` in arguments within the folder, as a shell does. Returns the saved output.
        """
        redirect = "" if save is None else f" | tee {save}" if show else f" > {save}"
        show_command(f"{_typed(arguments)}{redirect}")
        if save is None:
            self._run(arguments, None)
            return ""
        path = self.folder / save
        with path.open("wb") as out:
            self._run(arguments, out.fileno())
        output = path.read_text(encoding="utf-8")
        if show:
            console.out(output, end="", highlight=False)
        return output

    def _run(self, arguments: Sequence[str], stdout: int | None) -> None:
        sys.stdout.flush()
        child = subprocess.Popen(
            [_compactor_path(), *self._expanded(arguments)],
            cwd=self.folder,
            env=dict(self.environment),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            process_group=0,
        )
        try:
            code = child.wait()
        except BaseException:
            _interrupt(child)
            raise
        if code != 0:
            raise StepError(f"`{_typed(arguments)}` ended with exit code {code}")

    def _expanded(self, arguments: Sequence[str]) -> list[str]:
        expanded: list[str] = []
        for argument in arguments:
            if "*" in argument:
                found = sorted(self.folder.glob(argument))
                expanded += [str(path.relative_to(self.folder)) for path in found]
            else:
                expanded.append(argument)
        return expanded


def _typed(arguments: Sequence[str]) -> str:
    return " ".join(["compactor", *(a if "*" in a else shlex.quote(a) for a in arguments)])


def _compactor_path() -> str:
    """Returns the command in this interpreter's environment, else the one on PATH."""
    beside = Path(sys.executable).with_name("compactor")
    found = str(beside) if beside.exists() else shutil.which("compactor")
    if found is None:
        raise StepError("the compactor command is not installed; `make setup` installs it")
    return found


def _interrupt(child: subprocess.Popen[bytes]) -> None:
    """Interrupts a command so that it can clean up; kills it after a while.

    The command leads its own process group, so Ctrl-C reaches it exactly once, from here. The rest of the
    group is killed
    too: a JVM that Spark is still starting survives its parent.
    """
    with suppress(ProcessLookupError):
        child.send_signal(signal.SIGINT)
    with suppress(subprocess.TimeoutExpired):
        child.wait(_INTERRUPT_SECONDS)
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()

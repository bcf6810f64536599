"""Files that appear whole or not at all: checks of the target, writing a small file, errors; and lines that
are added to a file."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from compactor.common.system_errors import cause_and_advice
from compactor.common.table_folder import table_around
from compactor.errors import JobError, UsageError
from compactor.files.problems import one_line
from compactor.files.staging import Staging


def check_target(path: str) -> None:
    """Raises `UsageError` for a path that cannot be a file."""
    checked_target(path)


def checked_target(path: str) -> Path:
    """Resolves links, so that a link's target is replaced instead of the link."""
    try:
        target = Path(path).resolve()
        if target.exists() and not target.is_file():
            raise UsageError(f"{path}: is not a file: name a file to create or replace")
        if not target.parent.is_dir():
            raise UsageError(f"{path}: its folder does not exist: create it first")
        if (table := table_around(target)) is not None:
            raise UsageError(f"{path}: is inside the table at {table}: name a file outside of it")
    except (OSError, RuntimeError) as error:  # the latter for links that go round in circles
        cause = one_line(error)
        if isinstance(error, OSError):
            cause = cause_and_advice(error, "choose another place")
        raise UsageError(f"{path}: can't be written: {cause}") from None
    return target


def write_whole(path: str, data: bytes) -> None:
    """Writes a file at `path`, replacing any earlier one; an exception leaves everything unchanged.

    Raises `UsageError` for a path that cannot be written, `JobError` if writing fails half way.
    """
    target = checked_target(path)
    with contextlib.closing(Staging(target)) as staging:
        with creating(path):
            staged = staging.create()
        with contextlib.closing(staged), writing(path):
            staged.file.write(data)
            staged.seal()
            staged.publish(target)


def append_lines(path: str, lines: bytes) -> None:
    """Adds lines to a file, which is created if there is none, and syncs them; what it has stays.

    Raises `UsageError` for a path that cannot be written, `JobError` if writing fails half way.
    """
    with contextlib.ExitStack() as opened:
        with creating(path):
            file = opened.enter_context(Path(path).open("ab+"))
        opened.enter_context(writing(path))
        size = file.seek(0, os.SEEK_END)
        if size and lines:
            file.seek(-1, os.SEEK_END)
            lines = lines if file.read(1) == b"\n" else b"\n" + lines
        try:
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())
        except OSError:
            os.truncate(path, size)
            raise


@contextlib.contextmanager
def creating(path: str) -> Iterator[None]:
    """Turns an `OSError` while the file is created into a `UsageError`."""
    try:
        yield
    except OSError as error:
        raise UsageError(
            f"{path}: can't be written: {cause_and_advice(error, 'choose another place')}"
        ) from None


@contextlib.contextmanager
def writing(path: str) -> Iterator[None]:
    """Turns an `OSError` while the file is written into a `JobError`."""
    try:
        yield
    except OSError as error:
        raise JobError(
            f"{path}: writing failed, and nothing was left behind: {cause_and_advice(error)}"
        ) from error

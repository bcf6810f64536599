"""Files that appear whole or not at all: checks of the target, writing a small file, errors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from compactor.common.system_errors import cause_and_advice
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
    except OSError as error:
        raise UsageError(f"{path}: can't be written: {error.strerror or one_line(error)}") from None
    return target


def write_whole(path: str, data: bytes) -> None:
    """Writes a file at `path` (`write_pieces`)."""
    write_pieces(path, [data])


def write_pieces(path: str, pieces: Iterable[bytes]) -> None:
    """Writes a file at `path`, replacing any earlier one; an exception leaves everything unchanged.

    pieces: may come from the earlier file. Raises `UsageError` for a path that cannot be written, `JobError`
    if writing fails half way.
    """
    target = checked_target(path)
    with contextlib.closing(Staging(target)) as staging:
        with creating(path):
            staged = staging.create()
        with contextlib.closing(staged), writing(path):
            staged.file.writelines(pieces)
            staged.seal()
            staged.publish(target)


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

"""Begins files that appear when they are published: beside their place, in a store, on standard output."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
from pathlib import Path
from typing import IO

from compactor.errors import UsageError
from compactor.files.places import STREAM, Unfinished, addresses_of, check_local
from compactor.files.staging import StagedFile, Staging
from compactor.files.whole import check_target, checked_target


def check_place(path: str) -> None:
    """Raises `UsageError` for a path or an address that cannot be a file, and a closed standard output."""
    if (served := addresses_of(path)) is not None:
        served.check_target(path)
    elif path != STREAM:
        check_local(path)
        check_target(path)
    elif getattr(sys.stdout, "buffer", None) is None:  # or programs put one for text alone there
        raise UsageError(
            "standard output is closed, or takes no bytes: name a file in place of `-`"
        )


def begin(path: str, staging: Staging | None = None) -> Unfinished:
    """Begins a file. staging: shared by the files of an output; the caller closes it.

    Raises `UsageError`, `StoreError` and `OSError`.
    """
    if path == STREAM:
        return _Printed()
    if (served := addresses_of(path)) is not None:
        return served.create(path)
    return _LocalUnfinished(checked_target(path), staging)


class _LocalUnfinished(Unfinished):
    """An unfinished file beside its place."""

    def __init__(self, target: Path, staging: Staging | None) -> None:
        self._target = target
        with contextlib.ExitStack() as opened:
            if staging is None or staging.folder != target.parent:
                staging = opened.enter_context(contextlib.closing(Staging(target)))
            self._staged: StagedFile = opened.enter_context(contextlib.closing(staging.create()))
            self._opened = opened.pop_all()
        self.file = self._staged.file

    def seal(self) -> None:
        self._staged.seal()

    def publish(self) -> None:
        self._staged.publish(self._target)

    def close(self) -> None:
        self._opened.close()


class _Printed(Unfinished):
    """Rows for standard output, which wait on local disk: what is printed cannot be taken back."""

    def __init__(self) -> None:
        self.file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()

    def seal(self) -> None:
        self.file.flush()

    def publish(self) -> None:
        self.file.seek(0)
        sys.stdout.flush()
        shutil.copyfileobj(self.file, sys.stdout.buffer)
        sys.stdout.buffer.flush()

    def close(self) -> None:
        self.file.close()

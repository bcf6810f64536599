"""Reads Parquet, Arrow files and fragments of a store: from a copy on local disk, which one GET fills, or
ranges.

Their readers need a file to seek in, and Arrow's threads must not hold objects of Python. The copy has no
name, so that it goes with the process, and holes for what is not read of it.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
from typing import IO, Final

import pyarrow as pa

from compactor.errors import InputError
from compactor.files.places import Place
from compactor.files.source import BatchesOf, FileBatches

_COPIED_BYTES: Final = 1 << 20


class FetchedBatches(BatchesOf):
    """An open columnar file of a store, with its copy."""

    def __init__(
        self,
        path: str,
        place: Place,
        opened: Callable[[str], FileBatches],
        copy_part: Callable[[IO[bytes], str], bool] | None = None,
    ) -> None:
        """opened: opens the copy. copy_part: fills the copy as far as it is read; returns whether it could.

        Raises `CompactorError`.
        """
        with contextlib.ExitStack() as stack:
            self._copy: IO[bytes] = stack.enter_context(tempfile.TemporaryFile())
            self._local = f"/dev/fd/{self._copy.fileno()}"
            if copy_part is None or not copy_part(self._copy, self._local):
                with contextlib.closing(place.open()) as source:
                    shutil.copyfileobj(source, self._copy, _COPIED_BYTES)
                self._copy.flush()
            with self._named(path):
                super().__init__(opened(self._local))
            self.is_checked = self._file.is_checked
            self.bad_rows = []
            self.path = path
            stack.pop_all()

    def close(self) -> None:
        super().close()
        self._copy.close()

    def _batches(self) -> Iterator[pa.RecordBatch]:
        with self._named(self.path):
            yield from self._file

    @contextlib.contextmanager
    def _named(self, path: str) -> Iterator[None]:
        """Makes errors name the file of the store."""
        try:
            yield
        except InputError as error:
            raise InputError(str(error).replace(self._local, path)) from error

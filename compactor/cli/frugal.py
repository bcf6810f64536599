"""Skips parts of heavy libraries that no command needs, so that commands start fast."""

from __future__ import annotations

import atexit
import gc
import mmap
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Final

from compactor.common.garbage import leave_alone_for_good

_ROOM_BYTES: Final = 224 << 20
"""Address space that the libraries take."""
_NO_THREADS: Final = {
    "OPENBLAS_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}


@contextmanager
def frugal_imports() -> Iterator[None]:
    """Saves half of the CPU seconds that a block takes to import NumPy and PyArrow.

    Raises MemoryError if there is no memory for them.
    """
    _check_room()
    with _no_idle_threads(), _few_arrow_threads(), _no_pandas_for_arrow(), _nothing_collected():
        yield


def _check_room() -> None:
    """Raises MemoryError if the libraries would not fit: NumPy's linear algebra ends the process then."""
    try:
        mmap.mmap(-1, _ROOM_BYTES, prot=mmap.PROT_READ).close()
    except OSError as error:
        raise MemoryError from error


@contextmanager
def _nothing_collected() -> Iterator[None]:
    """Modules stay until the process ends, so that the garbage collector need not look at them before that,
    neither while they are imported nor after."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        leave_alone_for_good()
        atexit.register(gc.unfreeze)  # libraries tell of what they find left over
        if was_on:
            gc.enable()


@contextmanager
def _no_idle_threads() -> Iterator[None]:
    """NumPy's linear algebra, which nothing here uses, starts a thread for each core, and interrupts the
    process if it can't; one of Arrow's allocators starts one. The environment is put back, so that processes
    started later are not told."""
    before = {name: os.environ.get(name) for name in _NO_THREADS}
    os.environ.update(_NO_THREADS)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _few_arrow_threads() -> Iterator[None]:
    """Keeps Arrow to one thread for reading: blocks are in memory, and more might not start."""
    yield
    if (pyarrow := sys.modules.get("pyarrow")) is not None:
        pyarrow.set_io_thread_count(1)
        pyarrow.enable_signal_handlers(False)


@contextmanager
def _no_pandas_for_arrow() -> Iterator[None]:
    """PyArrow imports pandas, where it is installed, to make its first array, and no command gives it a data
    frame. It looks for pandas once, and once more when it is asked for a data frame, so that Spark finds it.
    """
    hiding = _PandasHidden()
    sys.meta_path.insert(0, hiding)
    try:
        yield
        if (pyarrow := sys.modules.get("pyarrow")) is not None:
            pyarrow.scalar(0)
    finally:
        sys.meta_path.remove(hiding)


class _PandasHidden:
    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is hidden while a command is imported", name=fullname)

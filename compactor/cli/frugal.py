"""Skips parts of heavy libraries that no command needs, so that commands start fast."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Final

from compactor.common.garbage import leave_alone_for_good
from compactor.common.shortage import check_room

_ROOM_BYTES: Final = 224 << 20
"""Address space that the libraries take."""
_NO_THREADS: Final = {
    "OPENBLAS_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
"""Keeps libraries from starting threads as they are loaded, here and in processes started later. Nothing
needs them, and the linear algebra of NumPy and SciPy interrupts a process where it can't start any."""


@contextmanager
def frugal_imports() -> Iterator[None]:
    """Saves half of the CPU seconds that a block takes to import NumPy and PyArrow.

    Raises MemoryError if there is no memory for them.
    """
    check_room(_ROOM_BYTES)
    os.environ.update(_NO_THREADS)
    with _few_arrow_threads(), _no_pandas_for_arrow(), _nothing_collected():
        yield


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

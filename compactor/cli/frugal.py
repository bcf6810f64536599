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

_BLAS_THREADS: Final = "OPENBLAS_NUM_THREADS"


@contextmanager
def frugal_imports() -> Iterator[None]:
    """Saves half of the CPU seconds that a block takes to import NumPy and PyArrow."""
    with _one_blas_thread(), _few_arrow_threads(), _no_pandas_for_arrow(), _nothing_collected():
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
def _one_blas_thread() -> Iterator[None]:
    """NumPy's linear algebra, which nothing here uses, starts a thread for each core, and they begin by
    spinning. The environment is put back, so that processes started later are not told."""
    if _BLAS_THREADS in os.environ:
        yield
        return
    os.environ[_BLAS_THREADS] = "1"
    try:
        yield
    finally:
        del os.environ[_BLAS_THREADS]


@contextmanager
def _few_arrow_threads() -> Iterator[None]:
    """Arrow reads only blocks that are in memory, and Python sees to signals: each thread for them would be
    one more that may not start."""
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

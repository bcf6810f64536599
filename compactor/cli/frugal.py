"""Skips unneeded parts of heavy libraries, so that commands start fast."""

from __future__ import annotations

import atexit
import gc
import inspect
import os
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from types import MappingProxyType, ModuleType
from typing import Final

from compactor.common.garbage import freeze_for_good
from compactor.common.shortage import check_room

_ROOM_BYTES: Final = 224 << 20
"""Require this much free address space for the libraries."""
_ENVIRONMENT: Final = {
    "OPENBLAS_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
    "PYDANTIC_DISABLE_PLUGINS": "__all__",
}
"""Keeps libraries from starting threads on import, and Pydantic from looking for plug-ins in every installed
package, here and in child processes. No command needs either, and the linear algebra of NumPy
interrupts a process that cannot start a thread."""


@contextmanager
def frugal_imports() -> Iterator[None]:
    """Halves the CPU time that a block takes to import NumPy and PyArrow.

    Raises MemoryError if there is no memory for them.
    """
    check_room(_ROOM_BYTES)
    os.environ.update(_ENVIRONMENT)
    for name, content in _UNUSED.items():
        sys.modules.setdefault(name, _Unused(name, content))
    with _few_arrow_threads(), _no_pandas_for_arrow(), _nothing_collected():
        yield


@contextmanager
def _nothing_collected() -> Iterator[None]:
    """Keeps the garbage collector from scanning modules, which live until the process ends, during the import
    and afterwards."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        freeze_for_good()
        atexit.register(gc.unfreeze)  # some libraries report leftovers
        if was_on:
            gc.enable()


@contextmanager
def _few_arrow_threads() -> Iterator[None]:
    """Limits Arrow to one thread for reading: blocks are in memory, and more threads might not start."""
    yield
    if (pyarrow := sys.modules.get("pyarrow")) is not None:
        pyarrow.set_io_thread_count(1)
        pyarrow.enable_signal_handlers(False)


@contextmanager
def _no_pandas_for_arrow() -> Iterator[None]:
    """Hides pandas while PyArrow makes its first array, for which it would import pandas, if installed.

    No command needs data frames. PyArrow looks for pandas again when asked for a data frame, so that Spark
    finds it.
    """
    hiding = _PandasHidden()
    sys.meta_path.insert(0, hiding)
    try:
        yield
        if (pyarrow := sys.modules.get("pyarrow")) is not None:
            pyarrow.scalar(0)
    finally:
        sys.meta_path.remove(hiding)


class _Unused(ModuleType):
    """Stands in for a module that a library imports and no command uses."""

    def __init__(self, name: str, content: Mapping[str, object]) -> None:
        super().__init__(name)
        vars(self).update(content)


class _NoDocumentation:
    def __init__(self, _text: str) -> None:
        return

    def __getitem__(self, _section: str) -> list[object]:
        return []


_UNUSED: Final[Mapping[str, Mapping[str, object]]] = {
    "numpy._core._add_newdocs": {},
    "numpy._core._add_newdocs_scalars": {},
    "pydantic.plugin._loader": {"get_plugins": tuple},
    "pyarrow.vendored.docscrape": {"NumpyDocString": _NoDocumentation},
    "sqlglot.diff": {"diff": None},
}
"""Takes the place of what no command uses: the documentation of NumPy's functions, the search for Pydantic's
plug-ins, the parser by which PyArrow documents compute functions while they are imported, half of the time
that this takes, and the comparison of two queries."""


def import_functions() -> None:
    """Imports PyArrow's compute functions without their documentation and signatures, which would take over
    half of the time."""
    if "pyarrow.compute" in sys.modules:
        return
    replaced = {
        (textwrap, "dedent"): str,
        (inspect, "signature"): _NoSignature,
        (inspect, "Signature"): _no_signature,
    }
    own = {place: getattr(*place) for place in replaced}
    try:
        for (module, name), other in replaced.items():
            setattr(module, name, other)
        import_module("pyarrow.compute")
    finally:
        for (module, name), function in own.items():
            setattr(module, name, function)


class _NoSignature:
    parameters: Mapping[str, object] = MappingProxyType({})

    def __init__(self, _function: object) -> None:
        return


def _no_signature(_parameters: object) -> None:
    return


class _PandasHidden:
    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is hidden while a command is imported", name=fullname)

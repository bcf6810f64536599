"""Options of Arrow IPC: no thread of Arrow's takes part, so that none is needed, or holds bytes of Python."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

READING: Final = pa.ipc.IpcReadOptions(use_threads=False)


def writing(compression: str | None = None) -> pa.ipc.IpcWriteOptions:
    """Returns the options of a writer."""
    return pa.ipc.IpcWriteOptions(compression=compression, use_threads=False)

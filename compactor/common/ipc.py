"""Options of Arrow IPC without Arrow's own threads, which may fail to start or keep Python bytes alive."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

READING: Final = pa.ipc.IpcReadOptions(use_threads=False)


def writing(compression: str | None = None) -> pa.ipc.IpcWriteOptions:
    """Returns write options with this compression of buffers."""
    return pa.ipc.IpcWriteOptions(compression=compression, use_threads=False)

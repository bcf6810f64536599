"""Tells how much memory this process has resident, and had at most."""

from __future__ import annotations

import contextlib
import os
import resource
from pathlib import Path
from typing import Final

_STATM: Final = Path("/proc/self/statm")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_STATUS: Final = Path("/proc/self/status")
_CLEAR_REFS: Final = Path("/proc/self/clear_refs")
_RESET_PEAK: Final = "5"


def resident_bytes() -> int:
    """Returns the resident memory of this process in bytes; 0 where there is no /proc."""
    try:
        return int(_STATM.read_text().split()[1]) * _PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return 0


def reset_peak() -> None:
    """Lets `peak_resident_bytes` begin anew, where the system allows it (Linux)."""
    with contextlib.suppress(OSError):
        _CLEAR_REFS.write_text(_RESET_PEAK)


def peak_resident_bytes() -> int:
    """Returns the largest resident set of this process since the peak was reset, or else since it began."""
    with contextlib.suppress(OSError):
        for line in _STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    # The figure of `getrusage` may be that of the process that this one was forked from.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak if os.uname().sysname == "Darwin" else peak * 1024)

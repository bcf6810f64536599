"""Peak memory and open files of the process that runs attempts."""

from __future__ import annotations

import os
import resource


def peak_rss_bytes() -> int:
    """Returns the largest resident set of this process so far (Linux counts in KiB, macOS in bytes)."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak if os.uname().sysname == "Darwin" else peak * 1024)


def allow_open_files(count: int) -> None:
    """Raises the soft limit of open files as far as needed and allowed; each input takes a connection."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))

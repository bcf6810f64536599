"""Explains errors of the system about full disks and too many open files, with what to do."""

from __future__ import annotations

import errno
from typing import Final

_ADVICE: Final = {
    errno.ENOSPC: "no space left on the device: free some, and try again",
    errno.EDQUOT: "the disk quota is used up: free some space or raise the quota, and try again",
    errno.EFBIG: "a file would be larger than the process or the file system allows: raise the limit "
    "(`ulimit -f`), or use a file system that takes larger files",
    errno.EMFILE: "too many files are open in this process: raise the limit (`ulimit -n`), and try again",
    errno.ENFILE: "too many files are open on this machine: close some or raise fs.file-max, and try again",
}


def cause_and_advice(error: OSError, otherwise: str = "") -> str:
    """Returns the cause of an error and the advice. otherwise: the advice for errors not listed here."""
    advice = _ADVICE.get(error.errno or 0)
    if advice is not None:
        return advice
    return (error.strerror or str(error) or type(error).__name__) + (otherwise and f": {otherwise}")

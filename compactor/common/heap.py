"""Makes glibc's heap the only one of a command, whose resident set follows the memory in use.

Arrow has an allocator of its own. What it frees no other part of the process takes, and the first touch of a
page costs a fault and the time in which the kernel clears it, up to a third of the CPU time of a merge. So
Arrow takes its memory from glibc, too, and the heap grows in huge pages where the system grants them
(decision 12).

A program that has loaded PyArrow before keeps its allocator, and its threads may have heaps of their own, of
which glibc returns little: there less memory is spared.

glibc maps large allocations and unmaps them when freed, but raises the threshold for that by itself, up to 32
MiB; chunks of a few MiB then fragment the heap. So the threshold is fixed. Free memory between smaller chunks
is trimmed.
"""

from __future__ import annotations

import functools
import mmap
import os
import sys
from typing import TYPE_CHECKING, Final, NamedTuple

from compactor.common.c_library import c_library

if TYPE_CHECKING:
    import ctypes

_FUNCTIONS: Final = ("mallopt", "malloc_trim", "malloc", "free", "sbrk", "madvise")
_M_TRIM_THRESHOLD: Final = -1
_M_TOP_PAD: Final = -2
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8


class _Thresholds(NamedTuple):
    mapped_bytes: int
    """Map allocations from this size on."""
    pad_bytes: int
    """Keep this much address space free at the end of the heap: what was touched of it is not returned and
    faulted in per chunk, and all may be huge pages. glibc has no call for huge pages within a process."""


_OF_COMMANDS: Final = _Thresholds(32 << 20, 128 << 20)
_OF_PROGRAMS: Final = _Thresholds(4 << 20, 64 << 20)
_OF_LIMITED: Final = _Thresholds(4 << 20, 16 << 20)
"""Where address space is limited: libraries and threads need some that is not the heap's."""
_PROBE_BYTES: Final = 2 << 20
"""Allocate this much to make the heap grow."""
_TRIMMED_BYTES: Final = 16 << 20
"""Return the end of the heap if this much more is free."""
_HEAPS: Final = 1
"""Share one heap among all threads: one thread often frees what another allocated, and separate arenas would
each return such pages and fault in new ones."""
_ARROW_POOL: Final = "ARROW_DEFAULT_MEMORY_POOL"
"""The environment variable by which Arrow chooses its allocator when it is loaded."""


@functools.cache
def set_up_heap() -> None:
    """Fixes glibc's thresholds for the whole process, and lets Arrow use its heap, unless PyArrow is loaded
    or the environment names another one. Does nothing with another C library.

    Call it before threads start: arenas that exist already stay.
    """
    if (libc := c_library(*_FUNCTIONS)) is not None:
        thresholds = _thresholds()
        libc.mallopt(_M_MMAP_THRESHOLD, thresholds.mapped_bytes)
        libc.mallopt(_M_TRIM_THRESHOLD, thresholds.pad_bytes + _TRIMMED_BYTES)
        libc.mallopt(_M_TOP_PAD, thresholds.pad_bytes)
        libc.mallopt(_M_ARENA_MAX, _HEAPS)
        _extend_by_huge_pages(libc)


def _thresholds() -> _Thresholds:
    """Chooses thresholds, and Arrow's allocator where that is open."""
    import resource

    is_open = "pyarrow" not in sys.modules
    if is_open:
        os.environ.setdefault(_ARROW_POOL, "system")
    if resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
        return _OF_LIMITED
    return _OF_COMMANDS if is_open else _OF_PROGRAMS


def give_free_pages_back() -> None:
    """Returns unused pages to the system."""
    if (libc := c_library(*_FUNCTIONS)) is not None:
        libc.malloc_trim(0)
        _extend_by_huge_pages(libc)


def _extend_by_huge_pages(libc: ctypes.CDLL) -> None:
    """Lets the heap grow by its pad of address space, and asks for huge pages there."""
    import ctypes

    libc.malloc.argtypes = libc.sbrk.argtypes = (ctypes.c_size_t,)
    libc.malloc.restype = libc.sbrk.restype = ctypes.c_void_p
    libc.free.argtypes = (ctypes.c_void_p,)
    libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    if (address := libc.malloc(_PROBE_BYTES)) is None:
        return
    first = address & -mmap.PAGESIZE
    # Negative in a thread that has a heap of its own, above this one.
    if (size := libc.sbrk(0) - first) > 0:
        libc.madvise(first, size, mmap.MADV_HUGEPAGE)
    libc.free(address)

"""The heap of a process asks for huge pages, before and after it was trimmed, and Arrow uses it."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

RUN = """
import resource, sys
from compactor.common.heap import give_free_pages_back, set_up_heap

def advised_bytes():
    size = 0
    for line in open("/proc/self/smaps"):
        words = line.split()
        if not words[0].endswith(":"):
            is_heap = words[-1] == "[heap]"
            first, end = (int(address, 16) for address in words[0].split("-"))
        elif words[0] == "VmFlags:" and is_heap and "hg" in words:
            size += end - first
    return size

if "limited" in sys.argv:
    resource.setrlimit(resource.RLIMIT_AS, (1 << 34, resource.RLIM_INFINITY))
if "loaded" in sys.argv:
    import pyarrow
print(advised_bytes())
set_up_heap()
print(advised_bytes())
blocks = [bytes(1 << 20) for _ in range(200)]
del blocks
give_free_pages_back()
print(advised_bytes())
"""


@pytest.mark.skipif(
    not Path("/sys/kernel/mm/transparent_hugepage").exists(), reason="the kernel has no huge pages"
)
@pytest.mark.parametrize(("case", "pad_mib"), [("", 128), ("loaded", 64), ("limited", 16)])
def test_the_heap_asks_for_huge_pages_and_once_more_after_it_gave_its_end_back(
    case: str, pad_mib: int
) -> None:
    """It takes less where a program has loaded PyArrow, and where address space is limited."""
    command = [sys.executable, "-c", RUN, case]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    before, set_up, trimmed = map(int, done.stdout.split())
    assert before == 0
    assert pad_mib << 20 <= set_up < 2 * pad_mib << 20
    assert pad_mib << 20 <= trimmed < 2 * pad_mib << 20


POOLS = """
import sys
from compactor.common.heap import set_up_heap

if "early" in sys.argv:
    import pyarrow
    pyarrow.set_memory_pool(pyarrow.jemalloc_memory_pool())
set_up_heap()
import pyarrow as pa

print(pa.default_memory_pool().backend_name)
"""


def backend(*order: str, **environment: str) -> str:
    """Returns the allocator that Arrow uses in a new process whose heap was set up."""
    named = {name: text for name, text in os.environ.items() if name != "ARROW_DEFAULT_MEMORY_POOL"}
    done = subprocess.run(
        [sys.executable, "-c", POOLS, *order],
        env=named | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no such heap")
def test_arrow_takes_its_memory_from_the_heap_of_a_command() -> None:
    assert backend() == "system"


def test_arrow_keeps_the_allocator_that_a_program_or_the_environment_chose() -> None:
    assert backend("early") == "jemalloc"
    assert backend(ARROW_DEFAULT_MEMORY_POOL="jemalloc") == "jemalloc"

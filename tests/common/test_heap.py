"""The heap of a process asks for huge pages, before and after it was trimmed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

RUN = """
import sys
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
def test_the_heap_asks_for_huge_pages_and_once_more_after_it_gave_its_end_back() -> None:
    done = subprocess.run([sys.executable, "-c", RUN], capture_output=True, text=True, check=True)
    before, set_up, trimmed = map(int, done.stdout.split())
    assert before == 0
    assert set_up >= 64 << 20
    assert trimmed >= 64 << 20

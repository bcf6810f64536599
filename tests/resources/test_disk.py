"""Local disk for what memory does not hold."""

from __future__ import annotations

import errno
import os
import random
import threading
from pathlib import Path

import numpy as np
import pytest

from compactor.resources.budget import MemoryBudget
from compactor.resources.disk import LocalDisk
from compactor.resources.errors import LocalDiskError
from compactor.resources.merge_stages import ROW_HASHES
from compactor.resources.record_buffer import NumberArrays, RecordBuffer
from compactor.resources.stage import Buffer, MemoryStage, StagePlan
from tests.support.open_files import open_files_in
from tests.support.wording import refuses


def budget(stage: str) -> MemoryBudget:
    stages = (
        MemoryStage(
            name=stage, holds="", buffer=Buffer.MATERIALIZED, memory_bytes=0, spill_priority=0
        ),
    )
    return MemoryBudget(StagePlan(1 << 20, 0, stages))


def test_regions_keep_what_was_written_and_are_used_again() -> None:
    disk, rng = LocalDisk(), random.Random(1)
    live = []
    for number in range(300):
        region = disk.allocate(size := rng.choice([1, 100, 5000, 70_000]))
        content = bytes([number % 256]) * size
        disk.write(region, content)
        live.append((region, content))
        if rng.random() < 0.5:
            old, _ = live.pop(rng.randrange(len(live)))
            disk.release(old)
    for region, content in live:
        assert disk.read(region) == content
    offsets = [region.offset for region, _ in live]
    assert len(set(offsets)) == len(offsets)
    assert disk._end < 200 * (128 << 10)
    disk.close()


def test_nothing_is_left_in_the_folder_and_no_file_stays_open(tmp_path: Path) -> None:
    disk = LocalDisk(str(tmp_path))
    region = disk.allocate(10)
    disk.write(region, b"0123456789")
    assert disk.read(region, 2, 3) == b"234"
    assert list(tmp_path.iterdir()) == []
    assert len(open_files_in(tmp_path)) == 1
    disk.close()
    disk.close()
    assert open_files_in(tmp_path) == []


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    disk = LocalDisk(str(tmp_path / "none"))
    with refuses(LocalDiskError):
        disk.write(disk.allocate(1), b"x")


def test_a_full_disk_says_how_much_and_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = LocalDisk(str(tmp_path))
    region = disk.allocate(8)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with refuses(LocalDiskError, tmp_path):
            disk.write(region, b"12345678")
    disk.write(region, b"12345678")
    assert disk.read(region) == b"12345678"
    disk.close()


def test_who_comes_after_the_end_gets_an_error_and_touches_no_other_file(tmp_path: Path) -> None:
    disk = LocalDisk()
    region = disk.allocate(4)
    disk.write(region, b"abcd")
    disk.close()
    with (tmp_path / "other").open("wb+") as other:
        for use in (lambda: disk.write(region, b"efgh"), lambda: disk.read(region)):
            with refuses(LocalDiskError):
                use()
        assert os.fstat(other.fileno()).st_size == 0


def test_threads_write_and_read_side_by_side_while_it_is_closed() -> None:
    disk, wrong = LocalDisk(), []

    def work(number: int) -> None:
        content = bytes([number]) * 50_000
        region = disk.allocate(len(content))
        try:
            for _ in range(200):
                disk.write(region, content)
                if disk.read(region) != content:
                    wrong.append(number)
        except LocalDiskError:
            pass

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    threading.Event().wait(0.05)
    disk.close()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    assert wrong == []


def test_a_record_buffer_gives_its_records_in_order_however_often_it_is_spilled() -> None:
    disk, rng, memory = LocalDisk(), random.Random(2), budget("s")
    records, expected = RecordBuffer(memory, "s", disk), []
    for number in range(400):
        expected.append(bytes([number % 256]) * rng.choice([0, 1, 300, 5000]))
        records.append(expected[-1])
        if rng.random() < 0.02:
            held = memory.used_bytes
            assert records.spill() == held
            assert memory.used_bytes == 0
        if rng.random() < 0.02:
            assert list(records) == expected
    assert list(records) == list(records) == expected
    assert records.size_bytes == sum(map(len, expected))
    records.close()
    assert memory.used_bytes == 0
    disk.close()


def test_a_record_buffer_that_is_spilled_while_it_is_read_goes_on() -> None:
    disk, memory = LocalDisk(), budget("s")
    records = RecordBuffer(memory, "s", disk)
    expected = [bytes([n]) * 100 for n in range(200)]
    for record in expected:
        records.append(record)
    read = []
    for number, record in enumerate(records):
        read.append(record)
        if number == 50:
            records.spill()
    assert read == expected
    records.close()
    disk.close()


def test_pages_are_overwritten_in_place_in_memory_and_on_disk() -> None:
    disk, memory = LocalDisk(), budget(ROW_HASHES)
    arrays = NumberArrays(memory, disk)
    for number in range(20):
        arrays.append(np.full(100 + number, number, dtype=np.uint64))
        if number == 10:
            assert arrays.spill() > 0
    for number in range(20):
        arrays.put(number, arrays.get(number) + np.uint64(1000))
    assert [int(arrays.get(n).sum()) for n in range(20)] == [
        (n + 1000) * (100 + n) for n in range(20)
    ]
    arrays.close()
    assert memory.used_bytes == 0
    disk.close()

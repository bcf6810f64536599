"""Parts: how large, how many at once, and what becomes of one that fails."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from compactor.errors import StoreError, StoreUnreachableError
from compactor.resources.disk import LocalDisk
from compactor.resources.upload_memory import BudgetedUploads
from compactor.stores import s3_upload, upload_parts
from compactor.stores.upload_parts import PART_BYTES
from tests.resources.test_budget import budget_of
from tests.support.uploads import upload_to
from tests.support.wording import refuses


class PartsClient:
    """Takes parts as S3 does; holds each until it is let go, if told to."""

    def __init__(self) -> None:
        self.parts: dict[int, bytes] = {}
        self.whole = b""
        self.fail_part = 0
        self.go_on = threading.Event()
        self.go_on.set()
        self.under_way: set[int] = set()
        self.max_under_way = 0
        self.aborted = False
        self._lock = threading.Lock()

    def create_multipart_upload(self, **_: Any) -> dict[str, str]:
        return {"UploadId": "u"}

    def upload_part(self, *, PartNumber: int, Body: Any, **_: Any) -> dict[str, str]:  # noqa: N803
        with self._lock:
            self.under_way.add(PartNumber)
            self.max_under_way = max(self.max_under_way, len(self.under_way))
        self.go_on.wait(30)
        with self._lock:
            self.under_way.remove(PartNumber)
        if PartNumber == self.fail_part:
            raise StoreUnreachableError("reset by peer")
        self.parts[PartNumber] = bytes(Body)
        return {"ETag": f"e{PartNumber}"}

    def put_object(self, *, Body: Any, **_: Any) -> dict[str, Any]:  # noqa: N803
        self.whole = bytes(Body)
        return {"ETag": "whole", "ResponseMetadata": {"HTTPHeaders": {}}}

    def complete_multipart_upload(self, *, MultipartUpload: Any, **_: Any) -> dict[str, Any]:  # noqa: N803
        numbers = [part["PartNumber"] for part in MultipartUpload["Parts"]]
        assert numbers == sorted(self.parts)
        assert [part["ETag"] for part in MultipartUpload["Parts"]] == [f"e{n}" for n in numbers]
        return {"ETag": "whole", "ResponseMetadata": {"HTTPHeaders": {}}}

    def abort_multipart_upload(self, **_: Any) -> None:
        assert not self.under_way
        self.aborted = True

    def sizes(self) -> list[int]:
        return [len(self.parts[number]) for number in sorted(self.parts)]


def test_parts_grow_in_steps_and_stop_growing_at_the_largest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(s3_upload, "_GROW_EVERY_PARTS", 3)
    monkeypatch.setattr(s3_upload, "_MAX_PART_BYTES", 40)
    client = PartsClient()
    bounds = []
    with upload_to(client, 10) as upload:
        for _ in range(37):
            upload.write(bytes(7))
            bounds.append(upload.max_buffered_bytes)
        info = upload.complete()
    assert client.sizes() == [10, 10, 10, 20, 20, 20, 40, 40, 40, 40, 9]
    assert (info.size_bytes, info.etag) == (259, "whole")
    assert sorted(set(bounds)) == [30, 60, 120]


def test_the_parts_of_one_upload_hold_what_is_documented() -> None:
    total, part = 0, PART_BYTES
    for number in range(1, upload_parts.MAX_PARTS + 1):
        total += part
        if number == 4 * s3_upload._GROW_EVERY_PARTS:
            assert total > 100 << 30
            assert part == 64 << 20
        if number % s3_upload._GROW_EVERY_PARTS == 0:
            part = min(2 * part, s3_upload._MAX_PART_BYTES)
    assert total / (1 << 40) == pytest.approx(2.43, abs=0.01)


def test_an_object_of_too_many_parts_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload_parts, "MAX_PARTS", 3)
    client = PartsClient()
    with refuses(StoreError), upload_to(client, 10) as upload:
        upload.write(bytes(41))
    assert client.sizes() == [10, 10, 10]
    assert client.aborted


def test_writing_waits_while_two_parts_are_under_way() -> None:
    client = PartsClient()
    client.go_on.clear()
    upload = upload_to(client, 10)
    upload.write(bytes(30))
    blocked = threading.Thread(target=upload.write, args=(bytes(11),))
    blocked.start()
    blocked.join(0.2)
    assert blocked.is_alive()
    client.go_on.set()
    blocked.join(30)
    upload.complete()
    assert client.max_under_way == 2
    assert client.sizes() == [10, 10, 10, 10, 1]


def test_an_upload_with_a_lost_part_never_completes() -> None:
    client = PartsClient()
    client.fail_part = 2
    upload = upload_to(client, 10)
    with pytest.raises(StoreUnreachableError):
        upload.write(bytes(100))
    for _ in range(2):
        with pytest.raises(StoreUnreachableError):
            upload.complete()
    upload.abort()
    assert client.aborted


@pytest.mark.parametrize("spill_every", [0, 1, 3])
@pytest.mark.parametrize("size", [0, 7, 25, 26, 100, 333])
def test_a_part_that_was_spilled_is_sent_whole_and_memory_adds_up(
    size: int, spill_every: int
) -> None:
    data = bytes(n % 251 for n in range(size))
    client, disk, budget = PartsClient(), LocalDisk(), budget_of(parts=None, upload=None)
    with upload_to(client, 25, BudgetedUploads(budget, 50)) as upload:
        for number, start in enumerate(range(0, size, 11)):
            upload.write(data[start : start + 11])
            if spill_every and number % spill_every == 0:
                upload.spill(disk)
        upload.complete()
    stored = (
        client.whole
        if not client.parts
        else b"".join(client.parts[number] for number in sorted(client.parts))
    )
    assert stored == data
    assert budget.used_bytes == 0
    assert budget.peaks["upload"] <= 50
    if spill_every == 1 and size > 25:
        assert budget.peaks["parts"] <= 25 + 11
    disk.close()


def test_an_aborted_upload_gives_its_memory_back() -> None:
    client, budget = PartsClient(), budget_of(parts=None, upload=None)
    upload = upload_to(client, 25, BudgetedUploads(budget, 50))
    upload.write(b"x" * 60)
    upload.abort()
    upload.abort()
    assert budget.used_bytes == 0

"""A growing file is written back as it grows, and holds the same bytes."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from compactor.stores import local
from compactor.stores.local import LocalStore


class _Calls:
    def __init__(self) -> None:
        self.ranges: list[tuple[int, int]] = []

    def sync_file_range(
        self, _file: int, start: ctypes.c_int64, size: ctypes.c_int64, _flags: ctypes.c_uint
    ) -> int:
        self.ranges.append((start.value, size.value))
        return -1


@pytest.mark.parametrize("has_call", [True, False])
def test_each_byte_of_an_upload_is_written_back_once_and_the_rest_is_left_to_the_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_call: bool
) -> None:
    calls = _Calls()
    monkeypatch.setattr(local, "c_library", lambda _: calls if has_call else None)
    store = LocalStore(tmp_path)
    upload = store.start_upload("data/a")
    pieces = [bytes([n]) * (3 << 20) for n in range(7)]
    for piece in pieces:
        upload.write(memoryview(piece).cast("I"))
    upload.complete()
    assert (tmp_path / "data" / "a").read_bytes() == b"".join(pieces)
    assert calls.ranges == ([(0, 9 << 20), (9 << 20, 9 << 20)] if has_call else [])

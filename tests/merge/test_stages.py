"""A run against its plan: what each stage was charged, and what waits for what."""

from __future__ import annotations

import random
import threading
import time
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from msgspec.structs import replace

from compactor.errors import StoreError
from compactor.merge.merge_pass import merge_fragments
from compactor.resources.budget import MemoryBudget
from compactor.resources.disk import LocalDisk
from compactor.resources.errors import MemoryLimitError
from compactor.resources.merge_plan import KeyGroups, MergeShape, plan_merge
from compactor.resources.stage import Buffer
from compactor.resources.upload_memory import UploadMemory
from compactor.settings.compaction import CompactionSettings
from compactor.stores.s3_upload import S3Upload
from lsm_fragment.container.writer import WriterOptions
from tests.merge.test_memory import overshooting, run, run_spilling
from tests.merge.test_oracle import Merged
from tests.support.fragments import read_random, rows_of, sort_schema, write_fragment
from tests.support.uploads import upload_to
from tests.support.wording import refuses

MIB = 1 << 20


def shape(**changes: Any) -> MergeShape:
    known = MergeShape(
        inputs=16,
        rows=4_000_000,
        stored_bytes=300 * MIB,
        peak_chunk_bytes=4 * MIB,
        run_chunk_bytes=64 * MIB,
        heaviest_column_bytes=600 * MIB,
        sort_columns=2,
        key_row_bytes=20,
        key_groups=KeyGroups(65_536 * 20, 65_536 * 20, 65_536),
        columns=10,
    )
    return replace(known, **changes)


def plan_of(limit_bytes: int = 512 * MIB, **changes: Any):
    memory = replace(CompactionSettings().memory(), memory_limit_bytes=limit_bytes)
    return plan_merge(
        shape(**changes),
        memory,
        target_row_group_bytes=4 * MIB,
        target_fragment_bytes=512 * MIB,
        max_rows_per_row_group=65_536,
    )


# name: (buffer, spill priority, whether it can apply back-pressure)
TRUTH = {
    "fetch": (Buffer.STREAMING, None, True),
    "spool": (Buffer.MATERIALIZED, None, False),
    "decode": (Buffer.STREAMING, None, False),
    "chunks": (Buffer.STREAMING, 3, True),
    "order": (Buffer.STREAMING, None, False),
    "row order": (Buffer.MATERIALIZED, 0, False),
    "row hashes": (Buffer.MATERIALIZED, 1, False),
    "encode": (Buffer.STREAMING, None, True),
    "footer": (Buffer.MATERIALIZED, 2, False),
    "parts": (Buffer.STREAMING, 4, False),
    "upload": (Buffer.STREAMING, None, True),
}


def test_every_stage_is_classified() -> None:
    stages = {
        s.name: (s.buffer, s.spill_priority, s.applies_back_pressure) for s in plan_of().stages
    }
    assert stages == TRUTH


def test_streaming_stages_do_not_grow_with_rows_and_materialized_ones_go_to_disk() -> None:
    small = plan_of()
    large = plan_of(rows=400_000_000, stored_bytes=300 * MIB, heaviest_column_bytes=60_000 * MIB)
    for stage in small.stages:
        other = large.stages[stage.name]
        if stage.buffer is Buffer.STREAMING:
            assert other.memory_bytes == stage.memory_bytes, stage.name
        elif stage.name != "spool":
            assert other.memory_bytes <= large.stages.limit_bytes
            assert other.disk_bytes > 50 * stage.disk_bytes, stage.name
            assert stage.spill_priority is not None
    assert large.stages.need_bytes == small.stages.need_bytes


def test_the_need_grows_with_inputs_outputs_and_heavy_chunks_and_with_nothing_else() -> None:
    need = plan_of().stages.need_bytes
    assert plan_of(rows=1 << 40, columns=10_000).stages.need_bytes == need
    assert plan_of(stored_bytes=101 * 512 * MIB).stages.need_bytes == need + 100 * (96 << 10)
    assert plan_of(inputs=1_016).stages.need_bytes == need + 1_000 * (96 << 10)
    assert plan_of(peak_chunk_bytes=1 << 30).stages.need_bytes >= 4 << 30
    assert plan_of(key_groups=KeyGroups(1 << 30, 0, 0)).stages.need_bytes >= 3 << 30
    assert plan_of(key_groups=KeyGroups(0, 1 << 30, 0)).stages.need_bytes >= 4 << 30


def test_read_ahead_buffers_share_the_limit_whatever_the_fan_in() -> None:
    for inputs in (1, 4, 64, 512, 2_000):
        plan = plan_of(inputs=inputs)
        assert plan.stages["fetch"].memory_bytes <= 512 * MIB // 3
        assert plan.ahead_bytes >= 2 * plan.piece_bytes


def log_like(rows: int, inputs: int, seed: int = 0) -> list[pa.Table]:
    rng = np.random.default_rng(seed)
    parts = []
    for _ in range(inputs):
        count = rows // inputs
        part = pa.table({
            "host": pa.array(np.char.add("host-", rng.integers(0, 50, count).astype(str))),
            "ts": np.sort(rng.integers(0, 1 << 40, count)),
            "message": pa.array([f"message {n} " * int(n % 9) for n in rng.integers(0, 1 << 30, count)]),
            "flag": rng.integers(0, 2, count).astype(bool),
            "small": rng.integers(0, 3, count),
        })  # fmt: skip
        parts.append(part.sort_by([("host", "ascending"), ("ts", "ascending")]))
    return parts


@pytest.mark.parametrize(
    ("inputs", "rows", "spills"), [(2, 40_000, False), (9, 40_000, True), (40, 20_000, False)]
)
def test_no_stage_is_charged_more_than_the_plan_says(inputs: int, rows: int, spills: bool) -> None:
    parts = log_like(rows, inputs)
    sort = sort_schema("host,ts")
    fragments = [write_fragment(p, sort, WriterOptions(8192, 256 << 10)) for p in parts]
    merged = Merged(fragments, parts[0].schema, sort, max_rows=8192,
                    target_row_group_bytes=256 << 10, target_fragment_bytes=1 << 20)  # fmt: skip
    _, result = run_spilling(merged, 16 << 10) if spills else run(merged)
    assert result.rows_out == rows // inputs * inputs
    for stage in merged.plan.stages:
        assert result.stage_peak_bytes[stage.name] <= stage.memory_bytes, stage.name
    used = {name for name, peak in result.stage_peak_bytes.items() if peak}
    assert used >= {"fetch", "decode", "chunks", "order", "row order", "row hashes", "encode",
                    "footer"}  # fmt: skip
    assert result.peak_bytes <= merged.plan.stages.limit_bytes


def test_a_second_pass_stays_within_the_plan_too() -> None:
    merged, _ = overshooting()
    _, result = run(merged)
    assert result.restarts == 1
    for stage in merged.plan.stages:
        assert result.stage_peak_bytes[stage.name] <= stage.memory_bytes, stage.name


# --- back-pressure from the upload to the connections ---


# ruff: noqa: N803 - boto3's arguments


class GatedClient:
    """Parts that end when they are let go, in whatever order."""

    def __init__(self) -> None:
        self.parts: dict[int, bytes] = {}
        self.waiting: dict[int, threading.Event] = {}
        self.body = b""
        self.lock = threading.Lock()
        self.is_open = False

    def create_multipart_upload(self, **_: Any) -> dict[str, str]:
        return {"UploadId": "u"}

    def upload_part(self, *, PartNumber: int, Body: bytes, **_: Any) -> dict[str, str]:
        gate = threading.Event()
        with self.lock:
            self.parts[PartNumber] = bytes(Body)
            self.waiting[PartNumber] = gate
            if self.is_open:
                gate.set()
        assert gate.wait(60)
        return {"ETag": str(PartNumber)}

    def put_object(self, *, Body: bytes, **_: Any) -> dict[str, Any]:
        self.body = bytes(Body)
        return {"ETag": "e", "ResponseMetadata": {"HTTPHeaders": {}}}

    def complete_multipart_upload(self, **_: Any) -> dict[str, Any]:
        self.body = b"".join(self.parts[number] for number in sorted(self.parts))
        return {"ETag": "e", "ResponseMetadata": {"HTTPHeaders": {}}}

    def abort_multipart_upload(self, **_: Any) -> None: ...

    def let_go(self, rng: random.Random, count: int = 1) -> None:
        with self.lock:
            closed = [number for number, gate in self.waiting.items() if not gate.is_set()]
            for number in rng.sample(closed, min(count, len(closed))):
                self.waiting[number].set()

    def open(self) -> None:
        with self.lock:
            self.is_open = True
            for gate in self.waiting.values():
                gate.set()


class Uploads:
    """Outputs of a merge as S3 uploads of small parts."""

    def __init__(self, part_bytes: int) -> None:
        self.clients: list[GatedClient] = []
        self._part_bytes = part_bytes

    def __call__(self, memory: UploadMemory) -> S3Upload:
        client: Any = GatedClient()
        self.clients.append(client)
        return upload_to(client, self._part_bytes, memory)


def incompressible(rows: int, inputs: int) -> list[pa.Table]:
    rng = np.random.default_rng(5)
    parts = []
    for _ in range(inputs):
        keys = np.sort(rng.integers(0, 1 << 40, rows))
        text = pa.array([rng.bytes(100).hex() for _ in range(rows)])
        parts.append(pa.table({"k": keys, "a": text, "b": text, "z": rng.random(rows)}))
    return parts


def gated_merge(parts: list[pa.Table], **knobs: Any) -> tuple[Merged, list[list[int]]]:
    """The merge, and what was read of each input so far."""
    fragments = [write_fragment(p, "k", WriterOptions(500, 64 << 10)) for p in parts]
    merged = Merged(fragments, parts[0].schema, sort_schema("k"), max_rows=500,
                    target_row_group_bytes=64 << 10, **knobs)  # fmt: skip
    merged.plan = replace(
        merged.plan, ahead_bytes=16 << 10, piece_bytes=4 << 10, upload_bytes=64 << 10
    )
    counts: list[list[int]] = [[0] for _ in merged.inputs]

    def counted(open_source: Any, count: list[int]) -> Any:
        def opened() -> Any:
            source = open_source()
            honest = source.read

            def read(size: int) -> bytes:
                data: bytes = honest(size)
                count[0] += len(data)
                return data

            source.read = read
            return source

        return opened

    merged.inputs = [
        replace(fragment, open_source=counted(fragment.open_source, count))
        for fragment, count in zip(merged.inputs, counts, strict=True)
    ]
    return merged, counts


def rested(counts: list[list[int]]) -> int:
    """Bytes fetched, once that does not change any more."""
    last = -1
    while (now := sum(count[0] for count in counts)) != last:
        last = now
        time.sleep(0.15)
    return now


def test_a_stuck_upload_stops_the_connections_within_the_stated_bound() -> None:
    parts = incompressible(6_000, 4)
    merged, counts = gated_merge(parts, spool_after_seconds=1e9, spool_limit_bytes=0)
    uploads = Uploads(32 << 10)
    failed: list[BaseException] = []

    def work() -> None:
        try:
            merge_fragments(merged.inputs, merged.settings, merged.plan, uploads)
        except BaseException as error:  # noqa: BLE001
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    total = sum(fragment.size_bytes for fragment in merged.inputs)
    rng = random.Random(3)
    window = len(parts) * (16 << 10) + len(parts) * (4 << 10)
    # Keys in order wait at most as row order; a chunk for each input, decoded; one output row group; parts.
    bound = window + len(parts) * 2 * (64 << 10) + 4 * (64 << 10) + (64 << 10) + (32 << 10)
    for _ in range(5):
        fetched = rested(counts)
        sent = sum(
            len(p) for c in uploads.clients for n, p in c.parts.items() if c.waiting[n].is_set()
        )
        assert fetched - sent <= bound, (fetched, sent, total)
        assert fetched < total
        for client in uploads.clients:
            client.let_go(rng)
    for client in uploads.clients:
        client.open()
    while thread.is_alive():
        for client in uploads.clients:
            client.open()
        thread.join(0.05)
    assert not failed
    expected = sorted(rows_of(pa.concat_tables(parts)), key=lambda row: row["k"])  # type: ignore[arg-type,return-value]
    assert [row["k"] for c in uploads.clients for row in rows_of(read_random(c.body))] == [
        row["k"] for row in expected
    ]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
def test_parts_and_inputs_may_end_in_any_order(seed: int) -> None:
    """Inputs deliver at random moments, parts end in random order, memory is short: nothing hangs."""
    rng = random.Random(seed)
    parts = incompressible(1_500, 5)
    expected, _ = run(gated_merge(parts, target_fragment_bytes=150_000)[0])
    merged, _ = gated_merge(
        parts, target_fragment_bytes=150_000, spool_after_seconds=rng.choice([0, 1e9])
    )

    def hesitant(open_source: Any) -> Any:
        def opened() -> Any:
            time.sleep(rng.random() * 0.02)
            source = open_source()
            honest = source.read

            def read(size: int) -> bytes:
                if rng.random() < 0.02:
                    time.sleep(rng.random() * 0.01)
                data: bytes = honest(rng.randint(1, size))
                return data

            source.read = read
            return source

        return opened

    merged.inputs = [replace(i, open_source=hesitant(i.open_source)) for i in merged.inputs]
    uploads = Uploads(16 << 10)
    results: list[Any] = []
    thread = threading.Thread(
        target=lambda: results.append(
            run_spilling_to(merged, uploads) if seed % 2 else run_to(merged, uploads)
        )
    )
    thread.start()
    deadline = time.monotonic() + 60
    while thread.is_alive() and time.monotonic() < deadline:
        for client in list(uploads.clients):
            client.let_go(rng, rng.randint(0, 2))
        thread.join(0.002)
    assert not thread.is_alive()
    assert results
    assert [client.body for client in uploads.clients] == expected


def run_to(merged: Merged, uploads: Uploads) -> Any:
    return merge_fragments(merged.inputs, merged.settings, merged.plan, uploads)


def run_spilling_to(merged: Merged, uploads: Uploads) -> Any:
    from compactor.resources import budget

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(budget, "SOFT_RATIO", 0.0)
        merged.plan = replace(merged.plan, slice_bytes=2_000)
        return run_to(merged, uploads)


def test_a_sink_that_fails_ends_the_merge_and_leaves_no_thread() -> None:
    parts = incompressible(2_000, 3)
    merged, _ = gated_merge(parts)
    before = set(threading.enumerate())

    class Failing:
        aborted = 0

        def write(self, data: bytes) -> None:
            if len(data) > 5_000:
                raise OSError("no more")

        def spill(self, disk: LocalDisk) -> None: ...

        def complete(self) -> None: ...

        def abort(self) -> None:
            Failing.aborted += 1

    with pytest.raises(OSError, match="no more"):
        merge_fragments(merged.inputs, merged.settings, merged.plan, lambda _: Failing())
    assert Failing.aborted == 1
    assert set(threading.enumerate()) <= before


def test_an_abort_that_fails_does_not_hide_what_went_wrong() -> None:
    merged, _ = gated_merge(incompressible(500, 2))

    class Stubborn:
        def write(self, data: bytes) -> None:
            if len(data) > 5_000:
                raise StoreError("the disk is full")

        def spill(self, disk: LocalDisk) -> None: ...

        def complete(self) -> None: ...

        def abort(self) -> None:
            raise StoreError("no answer")

    with refuses(StoreError):
        merge_fragments(merged.inputs, merged.settings, merged.plan, lambda _: Stubborn())


@pytest.mark.parametrize("room", range(2_000, 60_000, 2_900))
def test_wherever_memory_runs_out_the_error_says_so_and_all_is_given_back(
    room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Limits far below the need, past the check: charges fail in one stage after the other."""
    parts = incompressible(400, 3)
    fragments = [write_fragment(p, "k", WriterOptions(100, 1 << 20)) for p in parts]
    merged = Merged(fragments, parts[0].schema, sort_schema("k"), max_rows=100)
    low = replace(merged.plan.stages, limit_bytes=room, need_bytes=0)
    merged.plan = replace(
        merged.plan, stages=low, ahead_bytes=1, piece_bytes=500, slice_bytes=500, order_bytes=0
    )
    budgets: list[MemoryBudget] = []
    honest = MemoryBudget.__init__

    def noted(self: MemoryBudget, plan: Any) -> None:
        honest(self, plan)
        budgets.append(self)

    monkeypatch.setattr(MemoryBudget, "__init__", noted)
    try:
        merged.run()
    except MemoryLimitError as error:
        assert "memory_limit_bytes" in str(error)
        assert {output.state for output in merged.outputs} <= {"aborted"}
    else:
        assert room > 20_000
        assert merged.rows()
    assert budgets[0].peak_bytes <= room
    assert budgets[0].held_bytes("fetch") == budgets[0].held_bytes("chunks") == 0
    assert budgets[0].held_bytes("decode") == budgets[0].held_bytes("encode") == 0

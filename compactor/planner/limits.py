"""Limits of what one task may merge; too many or too large runs are merged in rounds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from msgspec import Struct

from compactor.common.message import Message
from compactor.common.setting_keys import MEMORY_LIMIT_BYTES, TARGET_FRAGMENT_BYTES
from compactor.planner.shape import key_groups
from compactor.planner.tree import SortedRun
from compactor.resources.merge_plan import (
    MAX_INPUTS,
    KeyGroups,
    heaviest_chunk_bytes,
    need_bytes,
    output_count,
)
from compactor.settings.compaction import CompactionSettings

_MIB: Final = 1 << 20


class Limits(Struct, frozen=True, kw_only=True):
    """Bounds on the inputs of one merge."""

    target_fragment_bytes: int
    target_row_group_bytes: int
    max_rows_per_row_group: int
    max_fan_in: int
    """Limit on the sorted runs of one merge."""
    memory_limit_bytes: int
    key_widths: Mapping[str, int | None]
    """From `compactor.planner.shape.key_widths`."""

    @classmethod
    def of(cls, settings: CompactionSettings, key_widths: Mapping[str, int | None]) -> Limits:
        return cls(
            target_fragment_bytes=settings.target_fragment_bytes,
            target_row_group_bytes=settings.row_group_bytes,
            max_rows_per_row_group=settings.max_rows_per_row_group,
            max_fan_in=settings.max_fan_in,
            memory_limit_bytes=settings.memory_limit_bytes,
            key_widths=key_widths,
        )

    def fits(self, runs: Iterable[SortedRun]) -> bool:
        """Says whether one task may merge these; two runs always may, or rounds would never end."""
        runs = list(runs)
        return len(runs) <= 2 or (
            len(runs) <= self.max_fan_in
            and sum(len(run.items) for run in runs) <= MAX_INPUTS
            and self.need_bytes(runs) <= self.memory_limit_bytes
        )

    def need_bytes(self, runs: Iterable[SortedRun]) -> int:
        """Returns the least memory limit under which one task can merge these; more, if that is within the
        limit too."""
        runs = list(runs)
        heaviest = heaviest_chunk_bytes(
            max(run.peak_chunk_bytes for run in runs),
            sum(run.column_bytes for run in runs),
            self.target_row_group_bytes,
        )
        entries = [item.entry for run in runs for item in run.items]
        outputs = output_count(
            sum(entry.rows for entry in entries),
            sum(entry.size_bytes for entry in entries),
            self.target_fragment_bytes,
        )
        is_open, deleted_bytes = len(entries) + outputs, sum(run.deleted_bytes for run in runs)
        all_keys = len(self.key_widths) * heaviest
        most_keys = KeyGroups(all_keys, all_keys, self.max_rows_per_row_group)
        most = need_bytes(is_open, heaviest, most_keys) + deleted_bytes
        if most <= self.memory_limit_bytes:
            return most  # without the bytes of columns, which have to be parsed for each entry
        keys = key_groups(
            runs, self.key_widths, self.target_row_group_bytes, self.max_rows_per_row_group
        )
        return need_bytes(is_open, heaviest, keys) + deleted_bytes

    def refusal(self, runs: Iterable[SortedRun]) -> Message | None:
        """Returns why a merge of these can't be done within the memory limit; None if it can."""
        runs = list(runs)
        if sum(len(run.items) for run in runs) > MAX_INPUTS:
            return Message(
                f"one task merges {MAX_INPUTS:,} fragments at most: raise ", TARGET_FRAGMENT_BYTES
            )
        need = self.need_bytes(runs)
        if need <= self.memory_limit_bytes:
            return None
        return Message(
            f"it needs {-(-need // _MIB):,} MiB of memory, the limit is {self.memory_limit_bytes // _MIB:,} "
            "MiB: raise ",
            MEMORY_LIMIT_BYTES,
            f" to {-(-need // _MIB):,}MiB",
        )

    def chunks(self, runs: Iterable[SortedRun], max_runs: int) -> Iterator[list[SortedRun]]:
        """Yields parts of neighbouring runs that fit into one task, each of at least two runs if possible."""
        part: list[SortedRun] = []
        for run in runs:
            if len(part) >= 2 and (len(part) >= max_runs or not self.fits([*part, run])):
                yield part
                part = []
            part.append(run)
        if part:
            yield part

"""Opens the inputs of a pass: by one GET each, as local files, or from what an earlier pass has kept."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from compactor.merge.inputs.input_fragment import InputFragment
from compactor.merge.outputs.contract import MergeSettings
from compactor.resources.budget import MemoryBudget
from compactor.resources.disk import LocalDisk
from compactor.resources.fetch import ClosableSource, FetchedSource, FetchSettings
from compactor.resources.merge_plan import MergePlan
from compactor.resources.near_source import NearSource

_CLOSE_SECONDS: Final = 5.0
"""Abandon connections that have not ended after this many seconds."""


class InputSources:
    """The sources of all inputs. What is not at hand is opened at once and fetched ahead of the merge."""

    def __init__(
        self,
        inputs: Sequence[InputFragment],
        settings: MergeSettings,
        plan: MergePlan,
        budget: MemoryBudget,
        disk: LocalDisk,
        before: InputSources | None,
    ) -> None:
        """before: the sources of the first pass, for a second one."""
        self._before = before
        replays = before.replays(inputs) if before else [None] * len(inputs)
        self.replayed = sum(replay is not None for replay in replays)
        size_bytes = sum(fragment.size_bytes for fragment in inputs)
        fetch = FetchSettings(
            plan.ahead_bytes,
            plan.piece_bytes,
            settings.memory.spool_after_seconds,
            keeps_all=plan.keeps_inputs and before is None and disk.free_bytes() > 2 * size_bytes,
        )
        self.all: list[ClosableSource] = []
        try:
            for fragment, replay in zip(inputs, replays, strict=True):
                self.all.append(replay or _opened(fragment, fetch, budget, disk))
        except BaseException:  # for example, one of a thousand threads cannot be started
            for source in self.all:
                source.close()
            raise

    def replays(self, inputs: Sequence[InputFragment]) -> list[ClosableSource | None]:
        """Returns for every input a source that can be read again without a GET, or None."""
        return [
            fragment.read_again()
            if fragment.read_again is not None
            else (source.replay() if isinstance(source, FetchedSource) else None)
            for fragment, source in zip(inputs, self.all, strict=True)
        ]

    @property
    def wait_seconds(self) -> float:
        """Seconds that the merge has waited for bytes, including earlier passes."""
        own = sum(source.wait_seconds for source in self._fetched)
        own += sum(source.wait_seconds for source in self._near)
        return own + (self._before.wait_seconds if self._before else 0.0)

    def close(self) -> None:
        """Ends all connections; waits `_CLOSE_SECONDS` at most for one that hangs."""
        for source in self._fetched:
            source.stop()
        deadline = time.monotonic() + _CLOSE_SECONDS
        for source in self._fetched:
            source.close(max(0.0, deadline - time.monotonic()))
        for near in self._near:
            near.close()

    @property
    def _fetched(self) -> list[FetchedSource]:
        return [source for source in self.all if isinstance(source, FetchedSource)]

    @property
    def _near(self) -> list[NearSource]:
        return [source for source in self.all if isinstance(source, NearSource)]


def _opened(
    fragment: InputFragment, settings: FetchSettings, budget: MemoryBudget, disk: LocalDisk
) -> ClosableSource:
    """Returns the source of an input that no earlier pass has read."""
    if fragment.read_again is not None:
        return NearSource(fragment.open_source, settings.piece_bytes, budget)
    return FetchedSource(fragment.open_source, settings, budget, disk, fragment.size_bytes)

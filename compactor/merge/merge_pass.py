"""Runs one pass through all inputs of a merge: keys, columns, checks, completion."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Sequence

from compactor.common.counts import counted
from compactor.common.setting_keys import MEMORY_LIMIT_BYTES
from compactor.errors import CompactorError
from compactor.merge.checks import check_rows, row_hashes_of
from compactor.merge.column_phase import ColumnPhase
from compactor.merge.completion import completed, write_skips
from compactor.merge.context import MergeContext
from compactor.merge.errors import MergeCheckError
from compactor.merge.groups.splits import Splits
from compactor.merge.inputs.input import MergeInput
from compactor.merge.inputs.input_fragment import InputFragment
from compactor.merge.inputs.schemas import InputSchemas
from compactor.merge.inputs.sources import InputSources
from compactor.merge.key_phase import KeyPhase
from compactor.merge.merge_inputs import make_inputs, max_rows_of_group
from compactor.merge.outputs.contract import MergeResult, MergeSettings
from compactor.merge.outputs.sinks import OpenOutput, OutputFragment
from compactor.resources.budget import MemoryBudget
from compactor.resources.disk import LocalDisk
from compactor.resources.errors import MemoryLimitError
from compactor.resources.merge_plan import MergePlan
from compactor.resources.merge_stages import FOOTER
from compactor.resources.reservation import Reservation
from compactor.resources.stopwatch import STAGES, Stopwatch
from compactor.rows.flags import DELETED


class MergePass:
    """One pass through all inputs. A second pass uses the inputs and the measurements of the first."""

    def __init__(
        self,
        inputs: Sequence[InputFragment],
        settings: MergeSettings,
        plan: MergePlan,
        open_output: OpenOutput,
        budget: MemoryBudget,
        disk: LocalDisk,
        before: MergePass | None = None,
    ) -> None:
        self._before = before
        watch = before._context.watch if before else Stopwatch()
        context = MergeContext(settings, plan, budget, disk, watch)
        self._context: MergeContext = context
        self._sources: InputSources = InputSources(
            inputs, settings, plan, budget, disk, before._sources if before else None
        )
        context.inputs = make_inputs(context, inputs, self._sources)
        splits = before.splits if before else Splits()
        self._schemas = InputSchemas(settings.schema)
        self._keys = KeyPhase(
            context, self._schemas, open_output, splits, max_rows_of_group(settings)
        )
        self._columns = ColumnPhase(context)
        self._footers = Reservation(budget, FOOTER)
        """The memory of what the inputs' footers say of copied row groups."""

    @property
    def splits(self) -> Splits:
        """Splits of row groups that were too heavy; once there are any, the rest of the pass only
        measures."""
        return self._columns.splits

    def run(self) -> MergeResult | None:
        """Runs the pass. Returns None if row groups were too heavy: then `splits` has them, and the outputs
        are aborted."""
        try:
            result = self._run()
            if result is None:
                self._abort(self._context.outputs)
            return result
        except BaseException:
            self._abort(self._context.outputs)
            raise
        finally:
            self._close()

    def _run(self) -> MergeResult | None:
        context = self._context
        for source in context.inputs:
            source.open(context.settings.sort, self._schemas)
        with context.watch.on("order"):
            self._keys.run()
        self._columns.run()
        busy = self._busy_ratio()
        ends = [self._finish(index, source) for index, source in enumerate(context.inputs)]
        if self.splits:
            return None
        row_hashes = row_hashes_of(context)
        check_rows(context, ends, row_hashes)
        places = write_skips(context)
        fragments = [
            completed(context, output, hashes, place)
            for output, hashes, place in zip(context.outputs, row_hashes, places, strict=True)
            if output.groups
        ]
        self._abort(output for output in context.outputs if not output.groups)
        deleted = sum(source.dropped_rows for source in context.inputs)
        return MergeResult(
            outputs=fragments,
            rows_in=sum(rows for rows, _ in ends) + deleted,
            rows_out=sum(fragment.summary.rows for fragment in fragments),
            restarts=1 if self._before else 0,
            replayed_inputs=self._sources.replayed,
            spilled_bytes=context.disk.written_bytes,
            fetch_wait_seconds=self._sources.wait_seconds,
            cpu_busy_ratio=busy,
            peak_bytes=context.budget.peak_bytes,
            stage_peak_bytes=context.budget.peaks,
            copied_rows=context.order.copied_rows,
            dropped=context.order.dropped | ({DELETED: deleted} if deleted else {}),
            stage_seconds=self._stage_seconds(),
        )

    def _finish(self, index: int, source: MergeInput) -> tuple[int, int]:
        """Reads the input's footer. Returns its number of rows and their hash."""
        copied = self._context.copied.get(index)
        end = source.finish(copied)
        if copied is not None:
            self._footers.grow(copied.nbytes)
        return end

    def _stage_seconds(self) -> dict[str, float]:
        watch = self._context.watch
        watch.move(self._sources.wait_seconds, "decode", "fetch wait")
        return {stage: watch.seconds.get(stage, 0.0) for stage in STAGES}

    def _busy_ratio(self) -> float:
        if self._keys.began is None:
            return 0.0
        clock, cpu = self._keys.began
        busy = time.thread_time() - cpu + self._context.tasks.wait_seconds
        return busy / max(1e-9, time.perf_counter() - clock)

    def _abort(self, outputs: Iterable[OutputFragment]) -> None:
        for output in outputs:
            # A vacuum removes what cannot be aborted now; the caller must see the original error.
            with contextlib.suppress(CompactorError):
                output.sink.abort()

    def _close(self) -> None:
        self._context.tasks.close()
        self._sources.close()
        for decoded in self._context.inputs:
            decoded.close()
        self._keys.close()
        self._footers.free()
        self._context.close()


def merge_fragments(
    inputs: Sequence[InputFragment],
    settings: MergeSettings,
    plan: MergePlan,
    open_output: OpenOutput,
) -> MergeResult:
    """Merges sorted fragments into disjoint sorted ones; `open_output` opens the sink of each.

    Rows of equal keys keep the order of `inputs`, then of position. `open_source` is called once for each
    input, and a second time only if a second pass needs an input that is not on local disk.
    Raises `FormatError` for damaged inputs, `InputMismatchError`, `MergeCheckError`, `MemoryLimitError`,
    `LocalDiskError`. On any error all outputs are aborted.
    """
    if plan.stages.need_bytes > plan.stages.limit_bytes:
        raise MemoryLimitError(
            f"a merge of {counted(len(inputs), 'fragment')} needs {plan.stages.need_bytes / 2**20:.0f} MiB, "
            f"the memory limit is {plan.stages.limit_bytes / 2**20:.0f} MiB: raise ",
            MEMORY_LIMIT_BYTES,
            f" to {-(-plan.stages.need_bytes // 2**20)} MiB or more",
        )
    budget = MemoryBudget(plan.stages)
    disk = LocalDisk(settings.memory.spool_directory)
    try:
        first = MergePass(inputs, settings, plan, open_output, budget, disk)
        result = first.run()
        if result is not None:
            return result
        second = MergePass(inputs, settings, plan, open_output, budget, disk, before=first)
        result = second.run()
        if result is None:
            raise MergeCheckError(
                "row groups were too heavy again although all were measured: this is a defect; the "
                "inputs are untouched"
            )
        return result
    finally:
        disk.close()

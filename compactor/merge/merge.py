"""The streaming k-way merge, column at a time (the model is Datadog's Husky).

1. Keys: the sort columns of all inputs are merged row group by row group into the row order, and the
   outputs' key sections are written on the way.
2. Columns, in lexicographic order: each is gathered by the row order one output row group at a time,
   encoded and appended to its output; inputs only ever move forward.
3. Checks: rows and commutative row hashes in equal those out, before any output is completed.

Every output is open from its first row group to the end, since column c of all outputs comes
before column c + 1 of any.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compactor.merge.errors import MergeCheckError, RowGroupOvershootError
from compactor.merge.key_merge import merge_keys
from compactor.merge.merge_input import InputFragment, MergeInput
from compactor.merge.row_groups import CutRule, OutputGroup, cut_row_groups
from compactor.merge.row_order import GroupOrder, RowOrder
from compactor.merge.scratch import Handle, Scratch
from format.arrays import concat_storage
from format.blocks import ByteSink, Chunk, make_chunk
from format.emitter import FragmentEmitter
from format.errors import OrderError
from format.footer import Footer
from format.hashing import column_contributions, combine, fold_rows
from format.keys import Bound, KeyComparator, key_at, lower_bound, upper_bound
from format.schema import FragmentHeader, SortSchema, column_order
from format.types import storage_type
from format.writer import WriterOptions

OVERSHOOT_FACTOR: Final = 4
"""A chunk heavier than this many targets restarts the attempt with fewer rows per row group."""


class OutputSink(ByteSink, Protocol):
    """Where one output goes; not visible to anybody before `complete`."""

    def complete(self) -> object: ...

    def abort(self) -> None: ...


@dataclass(frozen=True, slots=True)
class MergeSettings:
    """What a merge needs to know beyond its inputs."""

    schema: pa.Schema
    sort: SortSchema
    options: WriterOptions
    """`max_rows` is the number of rows of every output row group but the last."""
    target_fragment_bytes: int
    cut_keys: Sequence[Bound] = ()
    """Lower bounds, ascending, before which outputs end if they are large enough."""
    prefetch_bytes: int = 64 << 20
    """Fetched ahead, all inputs together."""
    scratch_bytes: int = 64 << 20
    """Row order and row hashes held in memory; more goes to disk."""
    scratch_directory: str | None = None


@dataclass(frozen=True, slots=True)
class MergedFragment:
    """A completed output."""

    schema: pa.Schema
    size_bytes: int
    footer: Footer


@dataclass(frozen=True, slots=True)
class MergeResult:
    outputs: list[MergedFragment]
    rows_in: int
    rows_out: int
    spilled_bytes: int
    fetch_wait_seconds: float


def merge_fragments(
    inputs: Sequence[InputFragment],
    settings: MergeSettings,
    open_output: Callable[[], OutputSink],
) -> MergeResult:
    """Merges sorted fragments into disjoint sorted ones; `open_output` gives each next one a sink.

    Equal keys keep the order of `inputs`, then of position. One `open_source` call an input.
    Raises `FormatError` for damaged inputs, `InputMismatchError`, `MergeCheckError`, and
    `RowGroupOvershootError` for a fresh start with fewer rows. On any error all outputs are aborted.
    """
    merge = _Merge(inputs, settings, open_output)
    try:
        return merge.run()
    except BaseException:
        merge.abort()
        raise
    finally:
        merge.close()


@dataclass(slots=True)
class _Output:
    emitter: FragmentEmitter
    sink: OutputSink
    row_numbers: list[Handle] = field(default_factory=list)
    """One array a row group: the sums behind the row hash so far."""


class _Merge:
    def __init__(
        self,
        inputs: Sequence[InputFragment],
        settings: MergeSettings,
        open_output: Callable[[], OutputSink],
    ) -> None:
        self._settings = settings
        self._open_output = open_output
        self._compare = KeyComparator(settings.schema, settings.sort)
        self._scratch = Scratch(settings.scratch_bytes, settings.scratch_directory)
        self._order = RowOrder(self._scratch)
        self._outputs: list[_Output] = []
        window_bytes = settings.prefetch_bytes // max(1, len(inputs))
        self._inputs = [MergeInput(fragment, window_bytes) for fragment in inputs]

    def run(self) -> MergeResult:
        for source in self._inputs:
            source.open(self._settings.schema, self._settings.sort)
        self._merge_keys()
        for name in column_order(self._settings.schema, self._settings.sort):
            if any(source.has_column(name) for source in self._inputs):
                self._merge_column(name)
        footers = [source.finish() for source in self._inputs]
        row_hashes = [self._row_hashes(output) for output in self._outputs]
        self._check(footers, row_hashes)
        outputs = [
            self._complete(output, hashes)
            for output, hashes in zip(self._outputs, row_hashes, strict=True)
        ]
        rows = sum(footer.rows for footer in footers)
        waited = sum(source.fetch_wait_seconds for source in self._inputs)
        return MergeResult(outputs, rows, rows, self._scratch.spilled_bytes, waited)

    def abort(self) -> None:
        for output in self._outputs:
            output.sink.abort()

    def close(self) -> None:
        for source in self._inputs:
            source.close()
        self._scratch.close()

    # --- keys ---

    def _merge_keys(self) -> None:
        windows = merge_keys(self._inputs, self._compare, self._settings.sort)
        for group in cut_row_groups(windows, self._cut_rule()):
            if group.starts_fragment:
                self._outputs.append(self._start_output())
            self._write_key_group(self._outputs[-1], group)

    def _cut_rule(self) -> CutRule:
        sizes = np.array([s.fragment.size_bytes for s in self._inputs], dtype=np.float64)
        rows = np.array([s.fragment.rows for s in self._inputs], dtype=np.float64)
        # Outputs of equal size rather than full ones and a small rest.
        fragments = max(1, round(sizes.sum() / self._settings.target_fragment_bytes))
        return CutRule(
            self._settings.options.max_rows,
            float(sizes.sum()) / fragments,
            sizes / np.maximum(rows, 1),
            [self._compare.key(bound) for bound in self._settings.cut_keys],
            lambda window, row: self._compare.key(key_at(window.keys, row)),
        )

    def _start_output(self) -> _Output:
        sink = self._open_output()
        present = {n for source in self._inputs for n in source.stream.header.schema.names}
        schema = pa.schema(
            [column for column in self._settings.schema if column.name in present],
            metadata=self._settings.schema.metadata,
        )
        options = self._settings.options
        header = FragmentHeader(
            schema,
            self._settings.sort,
            options.max_rows,
            options.writer_json(),
            tuple(source.fragment.source_id for source in self._inputs),
        )
        return _Output(FragmentEmitter(sink, header), sink)

    def _write_key_group(self, output: _Output, group: OutputGroup) -> None:
        schema, sort = self._settings.schema, self._settings.sort
        output.emitter.key_group(
            [self._chunk(array) for array in group.keys],
            lower_bound(key_at(group.keys, 0), schema, sort),
            upper_bound(key_at(group.keys, len(group.origins) - 1), schema, sort),
        )
        numbers = np.zeros(len(group.origins), dtype=np.uint64)
        for column, array in zip(sort, group.keys, strict=True):
            numbers += column_contributions(column.column, array)
        output.row_numbers.append(self._scratch.add(numbers))
        self._order.append(group.origins)

    # --- columns ---

    def _merge_column(self, name: str) -> None:
        dtype = storage_type(self._settings.schema.field(name).type)
        orders = self._order.groups()
        for output in self._outputs:
            output.emitter.begin_column(name)
            for handle in output.row_numbers:
                array = self._gather(name, dtype, next(orders))
                numbers = self._scratch.get(handle)
                numbers += column_contributions(name, array)
                self._scratch.replace(handle, numbers)
                output.emitter.chunk(self._chunk(array))
        for source in self._inputs:
            source.end_column(name)

    def _gather(self, name: str, dtype: pa.DataType, order: GroupOrder) -> pa.Array:
        pieces = [
            piece
            for index, count in zip(order.inputs, order.counts, strict=True)
            for piece in self._inputs[index].take(name, dtype, int(count))
        ]
        try:
            array = concat_storage(pieces)
            if order.positions is None:
                return array
            return pc.take(array, pa.array(order.positions), boundscheck=False)
        except (pa.ArrowInvalid, pa.ArrowCapacityError) as error:
            # 32-bit offsets do not reach: far beyond any target.
            raise RowGroupOvershootError(int(order.counts.sum()), 1 << 31) from error

    def _chunk(self, array: pa.Array) -> Chunk:
        options = self._settings.options
        chunk = make_chunk(array, level=options.compression_level)
        if chunk.rows > 1 and chunk.raw_bytes > OVERSHOOT_FACTOR * options.target_row_group_bytes:
            raise RowGroupOvershootError(chunk.rows, chunk.raw_bytes)
        return chunk

    # --- checks ---

    def _row_hashes(self, output: _Output) -> list[int]:
        return [fold_rows(self._scratch.get(handle)) for handle in output.row_numbers]

    def _check(self, footers: Sequence[Footer], row_hashes: Sequence[Sequence[int]]) -> None:
        rows_in = sum(footer.rows for footer in footers)
        rows_out = sum(output.emitter.rows for output in self._outputs)
        hash_in = combine(*(footer.row_hash for footer in footers))
        hash_out = combine(*(value for hashes in row_hashes for value in hashes))
        if (rows_in, hash_in) != (rows_out, hash_out):
            raise MergeCheckError(
                f"the merge of {len(footers)} fragments took {rows_in} rows of hash {hash_in:016x} "
                f"and gave {rows_out} rows of hash {hash_out:016x}; its outputs were dropped, the "
                "inputs are untouched"
            )

    def _complete(self, output: _Output, row_hashes: Sequence[int]) -> MergedFragment:
        footer = output.emitter.finish(row_hashes)
        output.sink.complete()
        return MergedFragment(output.emitter.header.schema, output.emitter.bytes_written, footer)


__all__ = [
    "OVERSHOOT_FACTOR",
    "InputFragment",
    "MergeResult",
    "MergeSettings",
    "MergedFragment",
    "OrderError",
    "OutputSink",
    "merge_fragments",
]

"""Completes the outputs of a merge: skip indexes, footers, uploads. Only a commit makes them visible."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Final

from compactor.errors import CompactorError
from compactor.merge.context import MergeContext
from compactor.merge.outputs.contract import MergedFragment
from compactor.merge.outputs.sinks import OutputFragment
from compactor.predicate.skipping.packed import NO_BLOCK, BlockPlace
from compactor.resources.merge_stages import ENCODE
from compactor.resources.reservation import Reservation
from lsm_fragment.container.emitter import KnownValues
from lsm_fragment.container.footer import ValueStats
from lsm_fragment.container.pages import PAGE_BYTES

_RECORD_OBJECTS: Final = 8
"""Memory of a statistics record as Python objects, as a multiple of its packed size."""
_PAGE_ENTRY_BYTES: Final = 128
"""Memory of one page's entry in the directory."""


def _copied_values(context: MergeContext, output: OutputFragment) -> KnownValues | None:
    """Returns a function that looks up the statistics of copied chunks' values, which only the inputs'
    footers have; None if no chunk was copied."""
    if None not in output.row_groups:
        return None

    def known(column: str, group: int) -> ValueStats | None:
        origin = output.copied_from.get(group)
        return None if origin is None else context.copied[origin[0]].values(column, origin[1])

    return known


def write_skips(context: MergeContext) -> list[dict[str, BlockPlace]]:
    """Writes the skip indexes of all outputs into one object; returns their places by column."""
    open_sink = context.settings.open_skips
    if open_sink is None or not context.settings.skips.columns:
        return [{} for _ in context.outputs]
    sink, offset, places = open_sink(context.uploads), 0, []
    try:
        for output in context.outputs:
            columns = dict.fromkeys(output.skips.columns, NO_BLOCK)
            for name, block in output.skips.blocks():
                sink.write(block)
                columns[name] = BlockPlace.of(block, offset)
                offset += len(block)
            places.append(columns)
        if offset:
            sink.complete()
        else:
            sink.abort()
    except BaseException:
        with contextlib.suppress(CompactorError):
            sink.abort()
        raise
    return places


def _footer_bytes(output: OutputFragment) -> int:
    """Returns the memory that writing the footer takes: a page as it is made and compressed, the directory
    with the sort columns' records and an entry for each page, and one record as objects."""
    records = len(output.emitter.header.sort) + _RECORD_OBJECTS
    return (
        4 * PAGE_BYTES
        + records * output.footer_records.largest_bytes
        + _PAGE_ENTRY_BYTES * len(output.footer_records)
    )


def completed(
    context: MergeContext,
    output: OutputFragment,
    row_hashes: Sequence[int],
    skips: dict[str, BlockPlace],
) -> MergedFragment:
    """Writes the footer and completes the upload."""
    with (
        context.watch.on("encode"),
        Reservation(context.budget, ENCODE, _footer_bytes(output)),
    ):
        summary = output.emitter.finish(row_hashes, _copied_values(context, output))
    with context.watch.on("upload wait"):
        output.sink.complete()
    emitter = output.emitter
    return MergedFragment(
        sink=output.sink,
        schema=emitter.header.schema,
        size_bytes=emitter.bytes_written,
        summary=summary,
        row_statistics=output.row_statistics,
        skips=skips,
    )

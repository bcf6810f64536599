"""Reads EDIFACT, X12 and HL7 v2 as one row per segment."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

import pyarrow as pa

from compactor.errors import InputError
from compactor.files.segments import Elements, Segment, SegmentCutter, elements_of
from compactor.files.source import BadRow, Piece, TextBatches

_BLOCK_SEGMENTS: Final = 1024
_COMPONENTS: Final = pa.list_(pa.string())
SEGMENT_SCHEMA: Final = pa.schema(
    {
        "message": pa.int64(),
        "segment": pa.int64(),
        "tag": pa.string(),
        "elements": pa.list_(_COMPONENTS),
        "repeats": pa.list_(pa.struct({"element": pa.int32(), "components": _COMPONENTS})),
    }
)
"""`repeats` has the further occurrences of elements; null if there are none."""


class SegmentBatches(TextBatches[list[Segment]]):
    """An open file of segments, whose columns are always the same; see `compactor.files.read`."""

    reads_ahead = False

    def _begin(self, _known: pa.Schema | None, /) -> None:
        return

    def _blocks(self) -> Iterator[list[Segment]]:
        segments = SegmentCutter(self.path, self._source).segments()
        while block := list(islice(_sized(segments), _BLOCK_SEGMENTS)):
            yield block

    def _learned(self, block: list[Segment]) -> Iterator[Piece]:
        yield self._piece(block, notes_bad=True)

    def _parsed(self, block: list[Segment]) -> Iterator[Piece]:
        yield self._piece(block, notes_bad=False)

    def _bad_rows(self) -> list[BadRow]:
        return self.bad_rows

    def _learned_schema(self) -> pa.Schema:
        return SEGMENT_SCHEMA

    def _fitted(self, piece: Piece) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict(piece.columns, schema=SEGMENT_SCHEMA)

    def _piece(self, block: list[Segment], *, notes_bad: bool) -> Piece:
        good, found = list[Segment](), list[Elements]()
        for segment in block:
            try:
                found.append(elements_of(segment))
                good.append(segment)
            except ValueError as error:
                if notes_bad:
                    self._note(segment, error)
        columns = [
            [segment.message for segment in good],
            [segment.number for segment in good],
            [segment.tag.decode() for segment in good],
            [elements.elements for elements in found],
            [_repeats(elements) for elements in found],
        ]
        arrays = [
            pa.array(values, field.type)
            for values, field in zip(columns, SEGMENT_SCHEMA, strict=True)
        ]
        return Piece(len(good), dict(zip(SEGMENT_SCHEMA.names, arrays, strict=True)))

    def _note(self, segment: Segment, error: ValueError) -> None:
        cause = error
        if isinstance(error, UnicodeDecodeError):
            cause = ValueError(
                f"is not {segment.by.charset} text: state its character set in the header"
            )
        reason = f"{self.path}, segment {segment.number:,} at byte {segment.offset:,}: {cause}"
        if not self._leaves_out:
            raise InputError(reason)
        self.bad_rows.append(BadRow(segment.number - 1, reason))


def _sized(segments: Iterator[Segment]) -> Iterator[Segment]:
    """Yields segments up to about a MiB."""
    size = 0
    for segment in segments:
        yield segment
        size += len(segment.raw)
        if size > 1 << 20:
            return


def _repeats(found: Elements) -> list[dict[str, object]] | None:
    pairs = [{"element": number, "components": again} for number, again in found.repeats]
    return pairs or None

"""Publishes a Spark pipeline's outputs from the parts and fragments that its tasks wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing

import pyarrow as pa

from compactor.common import interrupts
from compactor.files.write import StagedSink
from compactor.pipelines.config import Output, Pipeline
from compactor.pipelines.dead_letters import opened_dead_letters
from compactor.pipelines.located import publishing
from compactor.pipelines.nodes.output import open_sink, written_schema
from compactor.pipelines.nodes.table_output import OutputTable
from compactor.pipelines.stage_results import StageResults
from compactor.pipelines.stages import Feed
from compactor.stores.base import Store
from compactor.stores.parts import part_rows
from compactor.table.entry import FragmentEntry
from compactor.write.ingest import commit_fragments


def write_outputs(
    pipeline: Pipeline,
    schemas: Mapping[str, pa.Schema],
    feeds: Mapping[str, Sequence[Feed]],
    tables: Mapping[str, OutputTable],
    results: StageResults,
    staging: Store | None,
) -> None:
    """Writes the files and commits the tables, then moves the files to their places.

    schemas: by edge. feeds: by output, in row order. staging: store of the parts; None if there are none.
    Raises `CompactorError`.
    """
    written: dict[str, StagedSink] = {}
    published: list[str] = []
    with ExitStack() as whole, ExitStack() as files:
        letters = files.enter_context(opened_dead_letters(pipeline))
        if letters is not None:
            for key in results.dead_letters():
                assert staging is not None
                for batch in part_rows(staging, key):
                    letters.write(results.with_whole_numbers(batch))
        for name, node in pipeline.nodes.items():
            if not isinstance(node, Output) or node.path is None:
                continue
            schema = written_schema(node, schemas[node.input])
            file = files.enter_context(closing(open_sink(node.path, schema, node)))
            for feed in feeds[name]:
                for rows in results.written(feed):
                    if rows.part is not None:
                        assert staging is not None
                        for batch in part_rows(staging, rows.part):
                            file.write(batch)
            file.finish()
            written[name] = file
        whole.enter_context(interrupts.deferred())  # the dead letters appear last
        for name, table in tables.items():
            entries = [
                FragmentEntry.from_json(entry)
                for feed in feeds[name]
                for rows in results.written(feed)
                for entry in rows.entries
            ]
            with publishing(name, published):
                commit_fragments(table.log, table.snapshot, table.plan, entries)
        for name, file in written.items():
            with publishing(name, published):
                file.publish()

"""Folds changed clusters in Spark tasks, and commits their rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
from msgspec import Struct, field

from compactor.entities.column_types import JSON, NO_KINDS, Kinds
from compactor.entities.entities import REPLACED, SINCE
from compactor.entities.expressions import ID
from compactor.entities.output import property_columns, written_schema
from compactor.entities.spark_flows import TO_HOMES
from compactor.entities.spark_labels import Labels
from compactor.entities.state import State
from compactor.entities.target import OPTIONS, SORT, Target
from compactor.entities.tasks import differing, folding
from compactor.entities.tasks.context import BY_ID, NODE, TARGET, Context, Partition
from compactor.entities.texts import I64, TEXT
from compactor.spark.session import as_job_error
from compactor.spark.shuffle.exchange import ByNumber, ByRange, splitters
from compactor.spark.shuffle.jobs import Done, Flow, Jobs
from compactor.spark.shuffle.packets import Batches, Packet, placed_rows
from compactor.spark.shuffle.task import TaskInput, TaskOutput
from compactor.table.entry import FragmentEntry
from compactor.write.ingest import commit_fragments, plan_ingest
from lsm_fragment import compute as pc


class FoundClusters(Struct, frozen=True, kw_only=True):
    """The changes, and the homes of their entities."""

    homes: Mapping[int, Partition]
    labels: Labels | None
    """Of connected entities."""
    changes: Done = field(default_factory=Done)
    """The job that ran `differing.differ`."""
    rows: int = 0


def write_clusters(
    jobs: Jobs,
    context: Context,
    target: Target,
    found: FoundClusters,
    after: State,
    now_unix_ms: int,
    on_progress: Callable[[str], None],
) -> int:
    """Returns the version of the commit. now_unix_ms: when ids are replaced. On `CompactorError` nothing is
    written."""
    assert target.store is not None
    assert target.log is not None
    on_progress("taking what changed")
    homes, changes, members = found.homes, found.changes, found.changes.total("members")
    rows_at_home = sum(sum(home.rows) for home in homes.values())
    bytes_at_home = sum(home.bytes for home in homes.values())
    size = changes.bytes + bytes_at_home * members // max(1, rows_at_home)
    parts = jobs.parts(size)
    ranges = ByRange(splitters(changes.feeds[0].samples, BY_ID, parts), BY_ID)
    to_target = ByNumber(TARGET)
    heads = partial(_heads, ranges, parts)
    flows = [changes.flow(folding.HEADS, to_target, prepare=heads)]
    counts = _counted(jobs, flows[0], parts)
    names: list[str] = []
    if members:
        asked = partial(_members, ranges, parts)
        taken = jobs.run(
            [changes.flow(0, TO_HOMES, prepare=asked)],
            max(homes) + 1,
            lambda part, given: folding.take(context, homes[part], given),
        )
        found_names = {name for said in taken.summaries.values() for name in said["names"]}
        names = property_columns(context.spec, found_names)
        flows.append(taken.flow(folding.MEMBERS, to_target))
    on_progress("writing")
    options = replace(OPTIONS, threads=1)
    # Until the tasks have seen the values, properties are JSON.
    schema = written_schema(dict.fromkeys(names, JSON), has_lineage=bool(context.numbers))
    plan = plan_ingest(target.log, target.snapshot, schema, "merged entities", SORT, options)
    firsts = (target.first_updated + np.cumsum(counts) - counts).tolist()
    url, known = target.store.url, target.columns

    def fold(part: int, given: TaskInput) -> TaskOutput:
        return folding.fold(
            context,
            given,
            table=url,
            plan=plan,
            known=known,
            names=names,
            first_updated=firsts[part],
            now_unix_ms=now_unix_ms,
        )

    folded = jobs.run(flows, parts, fold)
    kinds: dict[str, Kinds] = {}
    for said in folded.summaries.values():
        for name, some in said["kinds"].items():
            kinds[name] = kinds.get(name, NO_KINDS) | Kinds(some)
    final = folding.with_types(plan, known, kinds)
    entries = [
        FragmentEntry.from_json(entry)
        for said in folded.summaries.values()
        for entry in said["entries"]
    ]
    return commit_fragments(
        target.log, target.snapshot, final, entries, amend=target.amending(after, schema.names)
    ).version


def _counted(jobs: Jobs, flow: Flow, parts: int) -> I64:
    """Counts the rows of each part. Shape (parts,)."""

    def count(part: int, given: TaskInput) -> Batches:
        rows = sum(batch.num_rows for _, batch in given)
        yield pa.RecordBatch.from_pydict({"part": [part], "rows": [rows]})

    with as_job_error("the task"):
        found = jobs.mapped([flow], parts, count, "part bigint, rows bigint").toArrow()
    counts = np.zeros(parts, np.int64)
    counts[np.asarray(found.column("part"))] = np.asarray(found.column("rows"))
    return counts


def _changes(
    ranges: ByRange, parts: int, batches: Batches
) -> Iterator[tuple[int, pa.RecordBatch, I64]]:
    """Yields changes with their row numbers and the parts that write them."""
    part_of = ranges.part_of(parts)
    for place, batch in placed_rows(batches):
        yield place, batch, part_of(batch).astype(np.int64)


def _heads(ranges: ByRange, parts: int, batches: Batches) -> Iterator[Packet]:
    for place, batch, targets in _changes(ranges, parts, batches):
        heads = batch.drop_columns([NODE])
        if SINCE in heads.schema.names:
            heads = heads.drop_columns([SINCE])
        else:
            gone = pc.if_else(batch.column(REPLACED), batch.column(ID), pa.scalar(None, TEXT))
            heads = heads.set_column(heads.schema.get_field_index(ID), ID, gone)
        heads = heads.append_column(TARGET, pa.array(targets))
        yield Packet.of_rows(place, heads)


def _members(ranges: ByRange, parts: int, batches: Batches) -> Iterator[Packet]:
    for place, batch, targets in _changes(ranges, parts, batches):
        members = differing.members_of(batch, targets)
        if members.num_rows:
            yield Packet.of_rows(place, members)

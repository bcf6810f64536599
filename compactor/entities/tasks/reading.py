"""Reads datasets, and stores numbered entities at their homes."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Final

import numpy as np
import pyarrow as pa

from compactor.entities.dataset_rows import columns_in
from compactor.entities.entities import SIGNATURE, UPDATED, RowSource, entities_of, first_mistake
from compactor.entities.expressions import ID
from compactor.entities.matching import groups_of_rule, values_of_rules
from compactor.entities.pairs import names_in
from compactor.entities.properties import Properties
from compactor.entities.rule_figures import counts_of
from compactor.entities.tasks.context import (
    GROUP,
    NODE,
    RULE,
    TEXT_OF_VALUE,
    Context,
    DatasetPart,
    Partition,
)
from compactor.entities.tasks.lines import (
    as_batch,
    lines_of,
    new_part,
    number_of,
    pieces_of,
    staged,
)
from compactor.spark.shuffle.task import PLACE_BITS, TaskInput, TaskOutput, TaskRows, TaskSummary

SAMPLED_CHARACTERS: Final = 128
"""Sample only the start of an id: it bounds ranges just as well."""


NOT_READ: Final = (UPDATED, SIGNATURE)


def read_piece(piece: DatasetPart) -> TaskOutput:
    """Reads rows as canonical texts. Sends each to the home of its `_id`."""
    rows = 0
    for columns, count in columns_in(piece.located, piece.snapshot):
        if (mistake := first_mistake(columns, count, piece.located.id_columns)) is not None:
            bad = {"rows": rows, "bad_row": rows + mistake[0], "why": mistake[1]}
            yield TaskSummary(bad, has_failed=True)
            return
        kept = {
            name: column for name, column in Properties(columns).items() if name not in NOT_READ
        }
        yield TaskRows(pa.RecordBatch.from_pydict(kept), piece.dataset)
        rows += count
    yield TaskSummary({"rows": rows})


def settle(context: Context, part: int, given: TaskInput) -> TaskOutput:
    """Numbers and stores the entities of a home. Sends a row per rule and value to the matching parts."""
    charge = context.memory()
    columns: list[list[dict[str, pa.Array]]] = [[] for _ in context.names]
    for dataset, batch in given:
        charge(batch.nbytes)
        columns[dataset].append(dict(zip(batch.schema.names, batch.columns, strict=True)))
    datasets = [
        entities_of(some, [len(batch[ID]) for batch in some], RowSource(name))
        for some, name in zip(columns, context.names, strict=True)
    ]
    columns.clear()
    if not any(d.rows for d in datasets):
        yield TaskSummary({})
        return
    members = staged(context, part, lines_of(datasets))
    assert members is not None
    entities = tuple(staged(context, part, as_batch(d)) for d in datasets)
    with ExitStack() as stack:
        groups = new_part(context, part, stack)
        count = 0
        rules = []
        for rule, sides in enumerate(values_of_rules(context.spec, datasets, charge)):
            rules.append(counts_of(sides))
            found = groups_of_rule(*sides)
            if not len(found.firsts):
                continue
            charge(found.texts.nbytes + found.nodes.nbytes)
            numbers = number_of(part, count + np.arange(len(found.firsts)))
            yield TaskRows(
                pa.RecordBatch.from_pydict(
                    {
                        RULE: pa.array(np.full(len(numbers), rule, np.int32)),
                        TEXT_OF_VALUE: found.texts,
                        GROUP: numbers,
                        NODE: number_of(part, found.firsts),
                        "on_left": pa.array(found.on_left),
                        "on_right": pa.array(found.on_right),
                        "entities": pa.array(found.entities()),
                    }
                )
            )
            batch = pa.RecordBatch.from_pydict(
                {GROUP: count + found.of, NODE: number_of(part, found.nodes)}
            )
            for piece in pieces_of(batch):
                groups.write(piece)
            count += len(numbers)
    home = Partition(
        members,
        entities,
        tuple(d.rows for d in datasets),
        groups.key,
        sum(d.nbytes for d in datasets),
    )
    names = {
        text: [each._replace(number=each.number + (part << PLACE_BITS)) for each in some]
        for text, some in names_in(context.spec, datasets, context.texts).items()
        if some
    }
    yield TaskSummary({"home": home.to_json(), "rules": rules, "names": names})

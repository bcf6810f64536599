"""Entity merges of entities that are written out in tests."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from compactor.entities.entities import RESERVED
from compactor.entities.entity_json import entity_lines
from compactor.entities.entity_merge import EntityMerge
from compactor.entities.entity_report import EntityMergeReport
from compactor.entities.output import changes_since
from compactor.entities.run import EntityRun
from compactor.entities.spec import EntityMergeSpec, spec_of
from compactor.settings.document import Document
from compactor.stores.base import Store
from compactor.table.commit_log import CommitLog

Entity = dict[str, Any]


def spec(*datasets: str, equality: Sequence[Any] = (), **settings: Any) -> EntityMergeSpec:
    document = {"datasets": datasets, "equality": equality, **settings}
    return spec_of(Document.parse(json.dumps(document), "spec.json"))


def write(folder: Path, datasets: Mapping[str, Sequence[Entity]]) -> None:
    folder.mkdir(exist_ok=True)
    for name, entities in datasets.items():
        lines = "".join(f"{json.dumps(entity, ensure_ascii=False)}\n" for entity in entities)
        (folder / f"{name}.ndjson").write_text(lines, encoding="utf-8")


def run(
    chosen: EntityMergeSpec,
    store: Store,
    folder: Path,
    *,
    full: bool = False,
    allow_changes: bool = True,
    tombstone_retention_seconds: float | None = None,
    **settings: Any,
) -> EntityMergeReport:
    """settings: of `EntityMerge`."""
    asked = EntityRun(
        spec=chosen,
        store=store,
        folder=str(folder),
        full=full,
        allow_changes=allow_changes,
        tombstone_retention_seconds=tombstone_retention_seconds,
    )
    return EntityMerge(asked, **settings).run()


def rows(store: Store, since: int | None = None) -> list[Entity]:
    """As a reader sees the table."""
    log = CommitLog(store)
    if log.refresh().version == 0:
        return []
    batches = changes_since(store, log.current(), since)
    return [entity for batch in batches for entity in entities_in(batch)]


def types(store: Store) -> dict[str, str]:
    """The types of the properties' columns; none where a column never had a value."""
    log = CommitLog(store)
    if log.refresh().version == 0:
        return {}
    fields = [f for f in log.current().table.shown_schema if f.name not in RESERVED]
    return {
        f.name: "json" if f.type == pa.json_() else re.sub(r"<\w+: ", "<", str(f.type))
        for f in fields
        if f.type != pa.null()
    }


def entities_in(batch: pa.RecordBatch) -> list[Entity]:
    return [json.loads(line) for line in entity_lines(batch).splitlines()]


def by_id(entities: Sequence[Entity]) -> dict[str, Entity]:
    """Without `_updated`."""
    assert len({e["_id"] for e in entities}) == len(entities)
    return {e["_id"]: {k: v for k, v in e.items() if k != "_updated"} for e in entities}

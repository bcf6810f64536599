"""Upserts: rows that are new, or take the place of those of their key by the table's row policy."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from compactor.common.setting_keys import ROW_POLICY
from compactor.errors import InputError, TableNotFoundError, UsageError
from compactor.rows.policy import RowKind
from compactor.table.commit_log import CommitLog
from compactor.table.snapshot import Snapshot
from compactor.write.ingest import Adding, IngestPlan
from lsm_fragment.names import names_text

_UPSERTS = (RowKind.LAST, RowKind.PARTIAL_UPDATE)


class Upsert(Adding):
    """Appends rows to a table whose row policy lets the newer row of a key take the place of the older."""

    def begin(self, log: CommitLog, latest: Snapshot) -> None:
        """Raises `UsageError` that names a policy, if the table has another one."""
        if latest.metadata is None:
            raise TableNotFoundError(
                f"{log.store.url}: no table here yet, and an upsert creates none: ingest some rows first, "
                "with a row policy such as last"
            )
        table = latest.metadata
        if table.rows.kind in _UPSERTS:
            return
        kind = table.rows.kind
        does = {
            RowKind.APPEND: "keeps all rows of a key",
            RowKind.FIRST: "keeps the oldest row of a key",
            RowKind.AGGREGATE: "combines the rows of a key, as an append does",
        }[kind]
        key = names_text([table.shown_name(c.column) for c in table.rows.key_columns(table.sort)])
        raise UsageError(
            ROW_POLICY,
            f": the table's is {kind}, which {does}, so no row takes the place of another; create a table "
            f"sorted by its key ({key} here) with row policy last, which keeps the newest row of a key, or "
            "partial-update, which keeps the newest value of each column that is not null",
        )

    def _check(self, plan: IngestPlan, path: str, batch: pa.RecordBatch, rows_before: int) -> None:
        """Raises `InputError` for a row without a sequence, which would be the oldest of its key."""
        sequence = plan.metadata.rows.sequence
        if sequence is None:
            return
        values = batch.column(sequence)
        if values.null_count:
            row = rows_before + int(np.flatnonzero(np.asarray(values.is_null()))[0])
            raise InputError(
                f"{path}, row {row + 1:,}: {plan.metadata.shown_name(sequence)!r} is null, which makes "
                "it the oldest row of its key; nothing was changed: give it a value, or append the rows"
            )

"""A table whose names and values all try to be markup."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pyarrow as pa

from compactor.compaction.attempt import run_compaction
from compactor.compaction.compaction import Compaction, Outcome
from compactor.compaction.engine import InProcessEngine
from tests.report.support import EAGER
from tests.support.memory_store import MemoryStore
from tests.support.tables import append_table, compact_table

ATTACK: Final = "</script><img src=x onerror=\"window.hacked='{}'\"><b>&amp;"
SORT_COLUMN: Final = "k</style></script><script>window.hacked='k'</script>"
TEMPLATES: Final = (
    '{{ 7 * 7 }} {% raw %} ${7*7} %{y} $x$ \u2028 <!-- ]]> <a href="javascript:alert(1)">x</a>'
)


def hostile_table(folder: Path) -> MemoryStore:
    """Three fragments, of which one is in quarantine for a hostile reason, and a failed compaction."""
    del folder
    store = MemoryStore()
    for n in range(4):
        keys = [ATTACK.format(n), TEMPLATES, "a" * 500 + ATTACK.format("long"), f"{n}"]
        table = pa.table(
            {
                SORT_COLUMN: keys,
                ATTACK.format("column"): keys,
                TEMPLATES: [1, 2, 3, n],
                "control\x01": keys,
            }
        )
        append_table(store, table, f"{SORT_COLUMN}" if n == 0 else None)
    return store


def fail_once(store: MemoryStore) -> None:
    """Puts a fragment in quarantine, and merges the others."""
    failures = [ATTACK.format("reason")]

    def run(compaction: Compaction) -> Outcome:
        if failures:
            key = compaction.spec.inputs[0].key
            return Outcome(
                compaction_id=compaction.compaction_id,
                failure=failures.pop(),
                culprit=key,
                is_damage=True,
            )
        return run_compaction(compaction, store)

    compact_table(store, engine=InProcessEngine(run), policy=EAGER, max_attempts=1)

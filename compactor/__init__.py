"""LSM compaction for columnar fragments on object storage. The public interface is what this module names.

    from compactor import Table

    table = Table.create("./logs", rows, "service,timestamp:desc")
    table.append(more_rows)
    table.compact()
    errors = table.scan(["timestamp", "message"], where="level = 'ERROR'")

`Table` and `Scan` do the work; the other names are options, reports and errors. Other modules
may change in any version.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lsm_fragment import __version__ as __version__

if TYPE_CHECKING:
    from compactor import errors as errors
    from compactor.api.changes import Changes as Changes
    from compactor.api.scan import Scan as Scan
    from compactor.api.table import Table as Table
    from compactor.api.view import TableView as TableView
    from compactor.compaction.backlog import Backlog as Backlog
    from compactor.compaction.backlog import RunningCompaction as RunningCompaction
    from compactor.compaction.compact_report import CompactReport as CompactReport
    from compactor.compaction.plan_report import PlannedCompaction as PlannedCompaction
    from compactor.compaction.plan_report import PlannedMove as PlannedMove
    from compactor.compaction.plan_report import PlanReport as PlanReport
    from compactor.errors import CompactorError as CompactorError
    from compactor.lakes.lake import LakeKind as LakeKind
    from compactor.lakes.publish_report import PublishReport as PublishReport
    from compactor.planner.debt import Debt as Debt
    from compactor.planner.estimate import Estimate as Estimate
    from compactor.planner.spread import Spread as Spread
    from compactor.predicate.skipping.spec import SkipKind as SkipKind
    from compactor.predicate.skipping.spec import SkipSpec as SkipSpec
    from compactor.read.read_reports import ExportReport as ExportReport
    from compactor.read.read_reports import ScanReport as ScanReport
    from compactor.read.read_reports import TemplateCount as TemplateCount
    from compactor.read.read_reports import TemplatesReport as TemplatesReport
    from compactor.read.read_reports import VerifyReport as VerifyReport
    from compactor.rows.policy import RowFunction as RowFunction
    from compactor.rows.policy import RowKind as RowKind
    from compactor.rows.policy import RowPolicy as RowPolicy
    from compactor.rows.policy import Ttl as Ttl
    from compactor.settings.compaction import CompactionSettings as CompactionSettings
    from compactor.settings.compaction import Policy as Policy
    from compactor.settings.compaction import Strategy as Strategy
    from compactor.settings.writers import Reaction as Reaction
    from compactor.table.metadata import TimeWindows as TimeWindows
    from compactor.table.vacuum import VacuumReport as VacuumReport
    from compactor.write.alter import AlterReport as AlterReport
    from compactor.write.delete import DeleteReport as DeleteReport
    from compactor.write.file_schema import OnConflict as OnConflict
    from compactor.write.ingest import IngestOptions as IngestOptions
    from compactor.write.ingest import IngestReport as IngestReport
    from compactor.write.lost_fragments import DropReport as DropReport
    from compactor.write.restore import RestoreReport as RestoreReport
    from compactor.write.undo import UndoReport as UndoReport
    from compactor.write.update import UpdateReport as UpdateReport
    from lsm_fragment.container.writer import WriterOptions as WriterOptions

_PLACES = {
    "AlterReport": "compactor.write.alter",
    "Backlog": "compactor.compaction.backlog",
    "Changes": "compactor.api.changes",
    "CompactReport": "compactor.compaction.compact_report",
    "CompactionSettings": "compactor.settings.compaction",
    "CompactorError": "compactor.errors",
    "Debt": "compactor.planner.debt",
    "DeleteReport": "compactor.write.delete",
    "DropReport": "compactor.write.lost_fragments",
    "Estimate": "compactor.planner.estimate",
    "Spread": "compactor.planner.spread",
    "ExportReport": "compactor.read.read_reports",
    "IngestOptions": "compactor.write.ingest",
    "IngestReport": "compactor.write.ingest",
    "LakeKind": "compactor.lakes.lake",
    "OnConflict": "compactor.write.file_schema",
    "PlanReport": "compactor.compaction.plan_report",
    "PlannedCompaction": "compactor.compaction.plan_report",
    "PlannedMove": "compactor.compaction.plan_report",
    "Policy": "compactor.settings.compaction",
    "PublishReport": "compactor.lakes.publish_report",
    "Reaction": "compactor.settings.writers",
    "RestoreReport": "compactor.write.restore",
    "RowFunction": "compactor.rows.policy",
    "RowKind": "compactor.rows.policy",
    "RowPolicy": "compactor.rows.policy",
    "RunningCompaction": "compactor.compaction.backlog",
    "Scan": "compactor.api.scan",
    "ScanReport": "compactor.read.read_reports",
    "SkipKind": "compactor.predicate.skipping.spec",
    "SkipSpec": "compactor.predicate.skipping.spec",
    "Strategy": "compactor.settings.compaction",
    "Table": "compactor.api.table",
    "TableView": "compactor.api.view",
    "TemplateCount": "compactor.read.read_reports",
    "TemplatesReport": "compactor.read.read_reports",
    "TimeWindows": "compactor.table.metadata",
    "Ttl": "compactor.rows.policy",
    "UndoReport": "compactor.write.undo",
    "UpdateReport": "compactor.write.update",
    "VacuumReport": "compactor.table.vacuum",
    "VerifyReport": "compactor.read.read_reports",
    "WriterOptions": "lsm_fragment.container.writer",
}

__all__ = [
    "AlterReport",
    "Backlog",
    "Changes",
    "CompactReport",
    "CompactionSettings",
    "CompactorError",
    "Debt",
    "DeleteReport",
    "DropReport",
    "Estimate",
    "ExportReport",
    "IngestOptions",
    "IngestReport",
    "LakeKind",
    "OnConflict",
    "PlanReport",
    "PlannedCompaction",
    "PlannedMove",
    "Policy",
    "PublishReport",
    "Reaction",
    "RestoreReport",
    "RowFunction",
    "RowKind",
    "RowPolicy",
    "RunningCompaction",
    "Scan",
    "ScanReport",
    "SkipKind",
    "SkipSpec",
    "Strategy",
    "Table",
    "TableView",
    "TemplateCount",
    "TemplatesReport",
    "TimeWindows",
    "Ttl",
    "UndoReport",
    "UpdateReport",
    "VacuumReport",
    "VerifyReport",
    "WriterOptions",
    "__version__",
    "errors",
]


def __getattr__(name: str) -> Any:
    """Imports a public name on first use, since not every process needs stores and Arrow."""
    if name == "errors":
        return import_module("compactor.errors")
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value = getattr(import_module(_PLACES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

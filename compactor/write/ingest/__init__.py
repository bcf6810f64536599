"""Ingests rows as level-0 fragments: plan, write, commit. Small files share fragments and commits.

An `IngestPlan` (`plan`) fixes metadata and schema before any row is read; `fragments` writes the rows by it;
`commit` adds the fragments to the newest snapshot, or fails if the table has changed incompatibly.

files      the whole way for files, one after the other; ahead reads the next rows meanwhile;
           next_commit has what will be visible together
adding     says how rows join the table: appended, by default
columns    maps columns of a file to stored names; fitting checks stored values against wider types
conformed  yields the rows of a file under stored names, in the table's types, checked
incoming   rows with their contributions to the row hash; sorting orders and merges them
options    options as values; settings defines how users write them
"""

from compactor.write.ingest.adding import Adding
from compactor.write.ingest.commit import Amend, commit_fragments
from compactor.write.ingest.files import (
    FilesIngest,
    OnFile,
    ingest_batches,
    ingest_file,
)
from compactor.write.ingest.fragments import ByteProgress, WrittenFragments, write_fragments
from compactor.write.ingest.next_commit import IngestReport
from compactor.write.ingest.options import BUFFER_BYTES, IngestOptions
from compactor.write.ingest.plan import IngestPlan, plan_ingest

__all__ = [
    "BUFFER_BYTES",
    "Adding",
    "Amend",
    "ByteProgress",
    "FilesIngest",
    "IngestOptions",
    "IngestPlan",
    "IngestReport",
    "OnFile",
    "WrittenFragments",
    "commit_fragments",
    "ingest_batches",
    "ingest_file",
    "plan_ingest",
    "write_fragments",
]

"""Ingests rows as level-0 fragments: plan, write, commit. Each file is one commit."""

from compactor.write.ingest.commit import Amend, commit_fragments
from compactor.write.ingest.files import FilesIngest, IngestReport, ingest_batches, ingest_file
from compactor.write.ingest.fragments import ByteProgress, WrittenFragments, write_fragments
from compactor.write.ingest.options import BUFFER_BYTES, IngestOptions
from compactor.write.ingest.plan import IngestPlan, plan_ingest

__all__ = [
    "BUFFER_BYTES",
    "Amend",
    "ByteProgress",
    "FilesIngest",
    "IngestOptions",
    "IngestPlan",
    "IngestReport",
    "WrittenFragments",
    "commit_fragments",
    "ingest_batches",
    "ingest_file",
    "plan_ingest",
    "write_fragments",
]

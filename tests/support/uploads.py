"""Uploads to S3 by a client of the test."""

from __future__ import annotations

import contextlib
from typing import Any

from compactor.resources.upload_memory import Unaccounted, UploadMemory
from compactor.stores.s3_upload import S3Upload, UploadTarget


def upload_to(client: Any, part_bytes: int, memory: UploadMemory | None = None) -> S3Upload:
    """Returns an upload of the object `k` that begins. memory: None for no accounting."""
    target = UploadTarget(
        key="k",
        address="s3://b/k",
        client=client,
        object={},
        created_with={},
        explained=contextlib.nullcontext,
    )
    return S3Upload(target, part_bytes, Unaccounted() if memory is None else memory)

"""Counts the templates of a column that is stored as templates, without reading its variables.

It reads an even sample of the row groups, and only their templates and codes. It decodes variables only for
examples of the most frequent templates, in row groups that are read anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from compactor.common.sampling import evenly
from compactor.read.read_reports import StoredTemplates
from compactor.read.template_tally import EXAMPLE_CHARACTERS, TemplateTally
from lsm_fragment.arrays.buffers import fixed_width_view
from lsm_fragment.container.reader import FragmentReader
from lsm_fragment.container.template_chunk import TemplateChunk

_MAX_STORED_BYTES: Final = 64 << 20
_EXAMPLES_PER_SHOWN: Final = 2
"""Decode examples for this multiple of the templates to show, per row group."""


def stored_templates(
    column: str, name: str, readers: Sequence[FragmentReader], *, max_chunks: int, shown: int
) -> StoredTemplates:
    """Counts the templates of a sample of row groups.

    column, name: as shown and as stored. max_chunks: maximum row groups to read, up to 64 MiB as stored.
    shown: number of templates to return. Raises `FormatError`, `StoreError`.
    """
    chunks = [(reader, group) for reader in readers for group in reader.templated_groups(name)]
    tally, rows, left, read = TemplateTally(), 0, _MAX_STORED_BYTES, 0
    for reader, group in evenly(chunks, max_chunks):
        left -= reader.footer.chunks(name)[group].stored_bytes
        if left < 0 and read:
            break
        chunk = reader.read_lazily(name, group)
        if isinstance(chunk, TemplateChunk):
            rows += _add(tally, chunk, _EXAMPLES_PER_SHOWN * shown)
        read += 1
    found = tally.sorted(rows)
    return StoredTemplates(
        column=column,
        chunks=len(chunks),
        chunks_read=read,
        rows=rows,
        all=len(found),
        templates=found[:shown],
    )


def _add(tally: TemplateTally, chunk: TemplateChunk, max_examples: int) -> int:
    """Counts the rows of one row group. Returns the number of non-null ones."""
    head = chunk.head
    codes = fixed_width_view(chunk.codes, np.int32)
    valid = chunk.codes.is_valid().to_numpy(zero_copy_only=False)
    by_template = np.bincount(codes[valid], minlength=len(head.templates))
    used = np.flatnonzero(by_template)
    used = used[np.argsort(-by_template[used], kind="stable")]
    names = head.templates.take(pa.array(used)).to_pylist()
    lacking = {
        int(np.argmax(valid & (codes == template))): name
        for template, name in zip(used[:max_examples].tolist(), names, strict=False)
        if not tally.has_example(name)
    }
    examples: dict[str, str] = {}
    if lacking:
        chosen = np.zeros(chunk.rows, dtype=np.bool_)
        chosen[list(lacking)] = True
        in_order = (lacking[row] for row in sorted(lacking))
        examples = dict(zip(in_order, chunk.texts(chosen).to_pylist(), strict=True))
    tally.add(
        {
            name: (rows, examples.get(name, "")[:EXAMPLE_CHARACTERS])
            for name, rows in zip(names, by_template[used].tolist(), strict=True)
        }
    )
    return int(np.count_nonzero(valid))

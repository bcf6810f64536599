"""What the tests of reading share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from compactor.errors import InputError
from compactor.files.read import open_table_file
from tests.support.wording import refuses


def put(folder: Path, name: str, content: str | bytes) -> str:
    """The path of a new file."""
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


def table_of(path: str, known: pa.Schema | None = None, **options: Any) -> pa.Table:
    with open_table_file(path, known_schema=known, **options) as file:
        return pa.Table.from_batches(file, schema=file.schema)


def refusal(path: str, known: pa.Schema | None = None, **options: Any) -> str:
    """Asserts that a file is refused in one line that begins with its path; returns it without the folder."""
    with refuses(InputError) as caught:
        table_of(path, known, **options)
    message = str(caught.value)
    assert message.startswith(path)
    assert "\n" not in message
    return message.removeprefix(str(Path(path).parent) + "/")


def schema(**types: pa.DataType) -> pa.Schema:
    return pa.schema(list(types.items()))

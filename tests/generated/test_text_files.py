"""Text files of fixed seeds are read as plain Python reads them."""

from __future__ import annotations

from tests.generated import pool
from tests.generated.text_files import check


def test_text_files_are_read_as_plain_python_reads_them() -> None:
    assert pool.run(check, range(200), processes=2, timeout_s=60) == []

"""Binaries of length 0: values without a byte, which may still be null."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.support.fragments import read_random, write_fragment


@pytest.mark.parametrize("values", [[b""] * 5, [b"", None, b"", b""], [b""]])
def test_binaries_of_length_0_are_written_and_read(values: list[bytes | None]) -> None:
    table = pa.table({"k": range(len(values)), "v": pa.array(values, pa.binary(0))})
    assert read_random(write_fragment(table, "k")).column("v").to_pylist() == values

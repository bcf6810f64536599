"""Ways around copies of heavy values give what the plain way gives."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from format import compression, keys
from format.compression import compress, decompress
from format.keys import min_max
from tests.support.wording import refuses

TEXT = st.one_of(
    st.none(),
    st.text(max_size=8),
    st.builds(
        lambda start, tail, count: start + tail * count,
        st.text(max_size=70),
        st.sampled_from(["a", "é", "\U0010ffff", "\ud7ff"]),
        st.integers(0, 3000),
    ),
)
TYPES = [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()]


def array_of(values: list[str | None], dtype: pa.DataType) -> pa.Array:
    is_text = dtype in (pa.string(), pa.large_string())
    return pa.array([v if v is None or is_text else v.encode() for v in values], dtype)


@settings(max_examples=100, deadline=None)
@given(st.lists(TEXT, min_size=1, max_size=8), st.sampled_from(TYPES))
def test_cutting_values_before_comparing_gives_the_same_bounds(values, dtype) -> None:
    array = array_of(values, dtype)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keys, "_MANY_BYTES", 1 << 60)
        plain = min_max(array)
        patch.setattr(keys, "_MANY_BYTES", 0)
        assert min_max(array) == plain


def test_large_payloads_are_decompressed_as_small_ones_are(monkeypatch) -> None:
    raw = bytes(range(256)) * 1000
    codec, stored = compress(raw, 1)
    monkeypatch.setattr(compression, "_TRUST_BYTES", 10)
    monkeypatch.setattr(compression, "_STEP_BYTES", 1000)
    assert decompress(codec, stored, len(raw)) == raw
    for wrong in (len(raw) - 1, len(raw) + 1):
        with refuses(ValueError):
            decompress(codec, stored, wrong)

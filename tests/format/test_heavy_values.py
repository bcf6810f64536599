"""Ways around copies of heavy values give what the plain way gives."""

from __future__ import annotations

from format import compression
from format.compression import compress, decompress
from tests.support.wording import refuses


def test_large_payloads_are_decompressed_as_small_ones_are(monkeypatch) -> None:
    raw = bytes(range(256)) * 1000
    codec, stored = compress(raw, 1)
    monkeypatch.setattr(compression, "_TRUST_BYTES", 10)
    monkeypatch.setattr(compression, "_STEP_BYTES", 1000)
    assert decompress(codec, stored, len(raw)) == raw
    for wrong in (len(raw) - 1, len(raw) + 1):
        with refuses(ValueError):
            decompress(codec, stored, wrong)

"""Sizes as people write them mean the same on every front."""

from __future__ import annotations

from typing import Final

import pytest

from compactor.cli.shared_options import size_bytes as on_the_command_line
from compactor.errors import ConfigError
from compactor.pipelines.config import parse_pipeline
from compactor.settings.compaction import CompactionSettings
from compactor.settings.units import size_bytes, size_text
from compactor.simulate.settings import SimulationSettings
from compactor.spark.source.source_options import CallOptions
from compactor.write.ingest.settings import IngestSettings
from tests.support.wording import refuses

SIZES: Final = {
    "0": 0,
    "4096": 4096,
    "100b": 100,
    "512k": 512_000,
    "512K": 512_000,
    "512KB": 512_000,
    "512Ki": 512 << 10,
    "512KiB": 512 << 10,
    "512M": 512_000_000,
    "512MB": 512_000_000,
    "512Mi": 512 << 20,
    "512MiB": 512 << 20,
    "512 mib": 512 << 20,
    "1.5GB": 1_500_000_000,
    "1.5GiB": 3 << 29,
    "0.1GB": 100_000_000,
    "2T": 2 * 10**12,
    "2TiB": 2 << 40,
    "123456789012345678": 123_456_789_012_345_678,
}
"""By what is written: bytes. With an i powers of 1024, without one powers of 1000."""


@pytest.mark.parametrize(("text", "wanted"), SIZES.items())
def test_a_unit_with_an_i_is_a_power_of_1024_and_one_without_of_1000(
    text: str, wanted: int
) -> None:
    assert size_bytes(text) == wanted


@pytest.mark.parametrize(
    "text", ["", "M", "-1M", "1e6", "5 fortnights", "1PB", "1Mib/s", "²M", "1\u212a"]
)
def test_what_is_not_a_size_is_refused(text: str) -> None:
    with refuses(ValueError):
        size_bytes(text)


@pytest.mark.parametrize("text", ["512M", "512MB", "512Mi", "512MiB", "0.5GiB"])
def test_every_front_reads_a_size_alike(text: str) -> None:
    wanted = size_bytes(text)
    pipeline = f"""
memory: {{limit: {text}}}
nodes:
  a: {{source: {{path: a.ndjson}}}}
  b: {{output: {{input: a, path: b.ndjson}}}}
"""
    assert on_the_command_line(text) == wanted
    assert SimulationSettings.model_validate({"flush_bytes": text}).flush_bytes == wanted
    assert (
        CompactionSettings.model_validate({"spool_limit_bytes": text}).spool_limit_bytes == wanted
    )
    assert parse_pipeline(pipeline, "p.yaml").memory.limit == wanted
    assert CallOptions({"memory_limit": text}).write().memory_limit == wanted
    assert CallOptions({"task_bytes": text}).read().task_bytes == wanted
    assert IngestSettings.model_validate({"skip_index_bytes": text}).skip_index_bytes == wanted


def test_a_rate_is_a_size_a_second() -> None:
    settings = SimulationSettings.model_validate({"ingest_bytes_per_second": "20MB/s"})
    assert settings.ingest_bytes_per_second == 20_000_000
    with pytest.raises(ConfigError, match="'20 parsecs/s' is not a rate"):
        SimulationSettings.model_validate({"ingest_bytes_per_second": "20 parsecs/s"})


@pytest.mark.parametrize("text", ["0", "1000", "64KiB", "512MiB", "1536MiB", "16GiB", "3TiB"])
def test_a_default_is_shown_as_it_is_written(text: str) -> None:
    assert size_text(size_bytes(text)) == text

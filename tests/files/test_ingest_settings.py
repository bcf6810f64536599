"""Settings of an ingest: texts and values alike, the same from the command line as from Spark."""

from __future__ import annotations

from typing import Any

import click
import pytest
from click.testing import CliRunner

from compactor.cli.setting_options import chosen, setting_options
from compactor.errors import UsageError
from compactor.rows.policy import RowFunction, RowKind
from compactor.settings.names import as_flag, settings_named
from compactor.spark.source.source_options import CallOptions
from compactor.table.metadata import TimeWindows
from compactor.write.ingest import IngestOptions
from compactor.write.ingest.settings import IngestSettings
from tests.support.wording import refuses


def test_settings_that_are_left_out_are_those_of_an_ingest_that_is_asked_for_nothing() -> None:
    assert IngestSettings.model_validate({}).options == IngestOptions()


def by_command_line(*words: str) -> IngestSettings:
    found: list[IngestSettings] = []

    @click.command
    @setting_options(IngestSettings)
    def command(**given: Any) -> None:
        found.append(chosen(IngestSettings, given))

    CliRunner().invoke(command, words, catch_exceptions=False)
    return found[0]


def test_what_is_written_as_flags_and_as_options_of_spark_is_the_same() -> None:
    given = {
        "sort_by": "k,t",
        "rows_per_fragment": "7",
        "max_rows_per_row_group": "5",
        "row_policy": "aggregate",
        "aggregate": "a:sum,b:max",
        "time_column": "t",
        "time_window": "6h",
        "retention": "2w",
        "ttl": "90d",
        "ttl_column": "t",
        "on_conflict": "split",
        "skip_index": "c:bloom",
        "skip_index_bytes": "1KiB",
        "keep_tombstones": "true",
    }
    words = [w for n, text in given.items() for w in ("--" + n.replace("_", "-"), text)][:-1]
    place = words.index("--aggregate")
    words[place : place + 2] = ["--aggregate", "a:sum", "--aggregate", "b:max"]
    settings = by_command_line(*words)
    spark = CallOptions(given).write()
    assert settings.model_dump() == {
        name: getattr(spark, name) for name in IngestSettings.model_fields
    }
    assert settings.options.windows == TimeWindows("t", 6 * 3600, 14 * 86_400)
    rows = settings.options.rows
    assert rows is not None
    assert (rows.kind, rows.keeps_tombstones) == (RowKind.AGGREGATE, True)
    assert rows.aggregates == (("a", RowFunction.SUM), ("b", RowFunction.MAX))


def test_a_column_with_a_comma_stands_in_quotes() -> None:
    settings = by_command_line("--row-policy", "aggregate", "--aggregate", '"a,b":sum,c:d:max')
    assert settings.aggregate == (("a,b", RowFunction.SUM), ("c:d", RowFunction.MAX))


@pytest.mark.parametrize(
    "given",
    [
        {"ttl": "soon"},
        {"ttl": "0"},
        {"ttl": "0.5s"},
        {"time_window": "0.5s"},
        {"retention": "0.5s"},
        {"retention": "1d"},
        {"skip_index": ("c:tree",)},
        {"skip_index": ("c",)},
        {"skip_index_bytes": "16"},
        {"sort_by": 5},
        {"skip_index_bytes": "many"},
    ],
)
def test_what_is_wrong_is_told_by_the_flag(given: dict[str, Any]) -> None:
    with refuses(UsageError), settings_named(as_flag):
        chosen(IngestSettings, given)

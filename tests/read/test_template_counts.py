"""Counts of templates, against a count of the texts by plain Python."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from compactor import IngestOptions, RowKind, RowPolicy, Table
from compactor.errors import UsageError
from compactor.read import template_tally
from tests.format.test_templates import template_of
from tests.read.test_templates import ROWS, expected, rows_of_logs
from tests.support.wording import refuses


def counted(texts: list[str | None]) -> dict[str, int]:
    shown = [
        template_of(text).replace("\x11", "<n>").replace("\x12", "<*>")
        for text in texts
        if text is not None
    ]
    return dict(Counter(shown))


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = Table.create(tmp_path / "t", rows_of_logs()[:2000], "k")
    table.append(rows_of_logs()[2000:])
    return table


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("where", [None, "k < 700", "message LIKE '%u9%'", "message LIKE '%nil%'"])
def test_templates_are_counted_as_the_texts_say(
    table: Table, where: str | None, threads: int
) -> None:
    rows = rows_of_logs() if where is None else expected(where)
    texts = rows["message"].to_pylist()
    seen: list[int] = []
    report = table.templates("message", where, threads=threads, on_progress=seen.append)
    assert {found.template: found.rows for found in report.templates} == counted(texts)
    counts = [found.rows for found in report.templates]
    assert counts == sorted(counts, reverse=True)
    assert (report.rows, report.nulls) == (len(texts) - texts.count(None), texts.count(None))
    assert report.other_rows == 0
    assert sum(found.share for found in report.templates) == pytest.approx(1 if counts else 0)
    for found in report.templates:
        assert found.example in texts
        assert counted([found.example]) == {found.template: 1}
    assert seen[-1:] == ([len(texts)] if texts else [])


def test_columns_that_are_stored_otherwise_have_templates_too(tmp_path: Path) -> None:
    columns = {
        "k": range(ROWS),
        "coded": [None if n % 9 == 0 else f"w{n % 50} of {n % 3}" for n in range(ROWS)],
        "free": ["a" * (n % 400) for n in range(ROWS)],
        "nulls": pa.nulls(ROWS, pa.string()),
        "dictionary": pa.array([f"x{n % 4}" for n in range(ROWS)]).dictionary_encode(),
        "view": pa.array([f"{n} y" for n in range(ROWS)], pa.string_view()),
    }
    rows = pa.table(columns)
    table = Table.create(tmp_path / "t", rows, "k")
    for name in rows.schema.names[1:]:
        report = table.templates(name)
        texts = rows[name].to_pylist()
        assert {found.template: found.rows for found in report.templates} == counted(texts)
        assert report.nulls == texts.count(None)


def test_deleted_rows_and_older_versions(table: Table, tmp_path: Path) -> None:
    table.delete("message LIKE '%ERROR%'")
    assert "ERROR of disk" not in {found.template for found in table.templates("message").templates}
    before = Table.open(tmp_path / "t", version=2)
    assert "ERROR of disk" in {found.template for found in before.templates("message").templates}


def test_rows_of_one_key_count_once(tmp_path: Path) -> None:
    options = IngestOptions(rows=RowPolicy(RowKind.LAST))
    old = pa.table({"k": [1, 2, 3], "m": ["old 1", "old 2", None]})
    table = Table.create(tmp_path / "t", old, "k", options)
    table.append(pa.table({"k": [2], "m": ["new x2"]}))
    report = table.templates("m")
    assert {found.template: found.rows for found in report.templates} == {
        "old <n>": 1,
        "new <*>": 1,
    }
    assert report.nulls == 1


def test_rare_templates_are_counted_together(table: Table, monkeypatch) -> None:
    whole = table.templates("message")
    monkeypatch.setattr(template_tally, "_MAX_TEMPLATES", 2)
    report = table.templates("message")
    assert len(report.templates) <= 2
    assert report.rows == whole.rows
    assert sum(found.rows for found in report.templates) + report.other_rows == whole.rows
    assert report.templates[0].template == whole.templates[0].template


def test_texts_that_look_like_variables_have_a_backslash(tmp_path: Path) -> None:
    texts = ["a <n> b", "a 5 b", "a <*> 7", r"a \<n> b", r"a \5 b", r"a \\<*>", "a <m>", r"a \x"]
    table = Table.create(tmp_path / "t", pa.table({"k": range(len(texts)), "m": texts}), "k")
    found = {found.example: found.template for found in table.templates("m").templates}
    assert found == {
        "a <n> b": r"a \<n> b",
        "a 5 b": "a <n> b",
        "a <*> 7": r"a \<*> <n>",
        r"a \<n> b": r"a \\\<n> b",
        r"a \5 b": r"a \\<n> b",
        r"a \\<*>": r"a \\\\\<*>",
        "a <m>": "a <m>",
        r"a \x": r"a \x",
    }


def test_only_columns_of_strings_have_templates(table: Table) -> None:
    with refuses(UsageError, "'k'", "int64"):
        table.templates("k")
    with refuses(UsageError, "'nothing'"):
        table.templates("nothing")

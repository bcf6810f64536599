"""The file: whole or not there, needing nothing from elsewhere, holding what the report holds."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import random
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec import structs

from compactor.cli.main import run
from compactor.report.page import MAX_COLUMNS, page, shown_columns
from compactor.report.text import bytes_text, when_text
from compactor.stores.local import LocalStore
from compactor.table.entry import FragmentEntry
from compactor.table.metadata import TableMetadata
from compactor.table.object_names import fragment_key
from compactor.table.version import Operation
from tests.report.hostile import fail_once, hostile_table
from tests.report.support import METADATA, MadeUp, compacted, report_of
from tests.support.fragments import sort_schema
from tests.support.memory_store import MemoryStore
from tests.support.tables import append_table, compact_table, ingest_tables, log_rows
from tests.support.wording import says


class Elements(HTMLParser):
    """All start tags with their attributes, and the text of scripts."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self._in_script = False
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._in_script = tag == "script"

    def handle_endtag(self, tag: str) -> None:
        self._in_script = False

    def handle_data(self, data: str) -> None:
        if self._in_script:
            self.scripts.append(data)


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> str:
    return page(report_of(compacted(tmp_path_factory.mktemp("t"))))


def unpacked(packed: str) -> str:
    """As the page does it, see page.js."""
    data = base64.b85decode(packed[1:].replace(",", "<"))
    return gzip.decompress(data[int(packed[0]) :]).decode()


def test_nothing_in_the_page_points_elsewhere(html: str) -> None:
    elements = Elements(html)
    assert {tag for tag, _ in elements.tags}.isdisjoint(
        {"img", "iframe", "object", "embed", "base"}
    )
    addresses = [
        value
        for _, attributes in elements.tags
        for name, value in attributes.items()
        if name in ("src", "href", "action", "data", "srcset")
    ]
    assert addresses == ["data:,"]
    assert "url(" not in re.sub(r"<script>.*?</script>", "", html, flags=re.S)


def test_only_the_scripts_whose_hashes_the_policy_names_may_run(html: str) -> None:
    elements = Elements(html)
    (policy,) = [a["content"] for t, a in elements.tags if a.get("http-equiv")]
    assert policy is not None
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-eval" not in policy
    data, packed, script = elements.scripts
    assert json.loads(unpacked(data))
    plotly = unpacked(packed)
    assert "plotly.js v" in plotly[:200]
    for text in (plotly, script):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy


def test_hostile_names_and_values_make_no_element_and_no_attribute(
    html: str, tmp_path: Path
) -> None:
    store = hostile_table(tmp_path)
    fail_once(store)
    report = report_of(store)
    assert report.pending.quarantine
    hostile = Elements(page(report))
    known = {(tag, name) for tag, attributes in Elements(html).tags for name in attributes}
    more = {("tr", "class"), ("td", "colspan"), ("td", "title"), ("span", "class"), ("i", "style")}
    for tag, attributes in hostile.tags:
        assert {(tag, name) for name in attributes} <= known | more, (tag, attributes)
    assert len(hostile.scripts) == 3
    assert hostile.scripts[1:] == Elements(html).scripts[1:]
    assert "onerror" in json.dumps(report.to_json())


def test_hostile_templates_are_text(html: str) -> None:
    attack = "<img src=x onerror=alert(%d)>{{ 7 * 7 }} <b>%d"
    rng = random.Random(1)
    messages = [attack % (rng.randrange(99), rng.randrange(99)) for _ in range(2000)]
    table = pa.table({"k": range(2000), "m": messages})
    store = MemoryStore()
    append_table(store, table, "k", max_rows=1000)
    report = report_of(store)
    [found] = report.templates
    assert found.templates[0].template == "<img src=x onerror=alert(<n>)>{{ <n> * <n> }} <b><n>"
    hostile = page(report)
    assert "&lt;img src=x onerror=alert(&lt;n&gt;)&gt;{{ &lt;n&gt; * &lt;n&gt; }}" in hostile
    tags = {tag for tag, _ in Elements(hostile).tags}
    assert tags <= {tag for tag, _ in Elements(html).tags} | {"br"}
    assert len(Elements(hostile).scripts) == 3


def test_numbers_of_the_page_are_those_of_the_report(tmp_path: Path) -> None:
    report = report_of(compacted(tmp_path))
    html = page(report)
    assert '<p class="figure" id="figure-rows">900</p>' in html
    assert bytes_text(report.headline.size_bytes) in html
    for row in report.columns.rows:
        assert f'<td class="n">{bytes_text(row.stored_bytes)}</td>' in html
    figures = json.loads(unpacked(Elements(html).scripts[0]))
    bars = [t for t in figures["fragments"]["data"] if t["type"] == "bar"]
    assert report.key_space.before is not None
    drawn = len(report.key_space.before.bars) + len(report.key_space.now.bars)
    assert sum(len(trace["hovertext"]) for trace in bars) == drawn


def test_what_is_due_next_obeys_the_properties_of_the_table_and_the_page_says_so() -> None:
    said = {}
    for runs in (2, 10):
        made = MadeUp(structs.replace(METADATA, properties=(("level0_trigger_runs", runs),)))
        made.ingest((0, 5))
        made.ingest((0, 5))
        said[runs] = page(made.report())
    assert "<p>Nothing is due.</p>" not in said[2]
    assert "--dry-run</code> shows with the table's properties" in said[2]
    assert "<p>Nothing is due.</p>" in said[10]


def test_of_thousands_of_columns_the_largest_are_shown_and_it_says_so(tmp_path: Path) -> None:
    names = [f"c{n}" for n in range(MAX_COLUMNS + 30)]
    table = pa.table(
        {name: ["x" * 40 * (name == names[-1]), str(n)] for n, name in enumerate(names)}
    )
    store = MemoryStore()
    append_table(store, table, "c0")
    report = report_of(store)
    assert shown_columns(report)[0].name == names[-1]
    assert f"The {MAX_COLUMNS} largest of {MAX_COLUMNS + 30} columns." in page(report)


def test_a_page_of_thousands_of_fragments_columns_and_versions_stays_under_2_mb() -> None:
    values = [(f"measured_value_{n}", pa.float64()) for n in range(1000)]
    schema = pa.schema([("host", pa.string()), ("request", pa.string()), *values])
    made = MadeUp(TableMetadata(schema=schema, sort=sort_schema("host,request")))
    rng = random.Random(1)

    def key() -> tuple[str, str]:
        return f"host-{rng.randrange(1000)}", f"{rng.getrandbits(64):016x}"

    def entry(first: tuple[str, str], last: tuple[str, str], level: int) -> FragmentEntry:
        name = fragment_key(made.log.latest.version, f"{rng.getrandbits(64):016x}", 0)
        rows = rng.randrange(1, 100_000)
        found = made.entry(0, 0, level=level, rows=rows)
        return structs.replace(found, key=name, first_key=first, last_key=last)

    keys = sorted(key() for _ in range(4000))
    apart = [entry(*ends, 2) for ends in zip(keys[::2], keys[1::2], strict=True)]
    made.commit(Operation.COMPACT, apart)
    for _ in range(450):
        first, last = sorted((key(), key()))
        made.commit(Operation.INGEST, [entry(first, last, 0)])
    made.commit(Operation.COMPACT, [entry(keys[0], keys[-1], 1)])
    assert len(page(made.report())) < 2_000_000


@pytest.mark.parametrize("fragments", [0, 1])
def test_the_smallest_tables_have_a_page(fragments: int) -> None:
    made = MadeUp()
    made.ingest(*[(0, 5)] * fragments)
    html = page(made.report())
    assert ("the table is empty" in html) == (fragments == 0)
    assert ('data-chart="fragments"' in html) == (fragments == 1)
    assert "No compaction in the versions read." in html
    assert "No fragment is in quarantine." in html


def test_times_that_are_none_are_shown_as_they_are() -> None:
    assert when_text(0) == "1970-01-01 00:00:00 UTC"
    assert when_text(10**18) == f"{10**18} ms since 1970"


# --- the command ---


def make_table(url: str, folder: Path) -> None:
    for n in range(3):
        pq.write_table(log_rows(100, n), folder / f"{n}.parquet")
    files = [str(folder / f"{n}.parquet") for n in range(3)]
    apart = ["--rows-per-fragment", "100"]  # as many as a file has
    assert run(["ingest", url, *files, "--sort-by", "service,ts:desc", *apart]) == 0
    assert run(["compact", url, "--strategy", "full", "--master", "in-process"]) == 0


def test_the_command_writes_a_page_for_tables_on_every_store(
    table_url: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    make_table(table_url, tmp_path)
    out = tmp_path / "report.html"
    out.write_text("an older page")
    capfd.readouterr()
    assert run(["report", table_url, "-o", str(out)]) == 0
    printed = capfd.readouterr()
    assert printed.out.startswith(f"{out}: 1.")
    assert out.stat().st_size < 2_000_000
    assert printed.err == ""
    assert out.read_text().startswith("<!doctype html>")
    assert run(["report", table_url, "-o", "-"]) == 0
    assert capfd.readouterr().out.startswith("<!doctype html>")
    assert run(["report", table_url, "--json", "--since", "2"]) == 0
    document = json.loads(capfd.readouterr().out)
    assert document["headline"]["rows"] == 300
    assert document["key_space"]["before"]["version"] == 2


@pytest.fixture
def table(tmp_path: Path) -> str:
    store = LocalStore(str(tmp_path / "t"))
    ingest_tables(store, [log_rows(20, n) for n in range(2)], tmp_path)
    compact_table(store)
    return str(tmp_path / "t")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ([], 2),
        (["-o", "x.html", "--json"], 2),
        (["-o", "no/such/folder/x.html"], 2),
        (["-o", "-", "--version", "1", "--as-of", "1d"], 2),
        (["-o", "-", "--since", "99"], 2),
        (["-o", "-", "--version", "99"], 5),
    ],
)
def test_wrong_calls_are_one_line(
    table: str, arguments: list[str], code: int, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["report", table, *arguments]) == code
    printed = capfd.readouterr()
    assert printed.out == ""
    says(printed.err)
    assert len(printed.err.splitlines()) == 1


def test_without_plotly_it_says_what_to_install_and_json_works_all_the_same(
    table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "plotly", None)
    assert run(["report", table, "-o", str(tmp_path / "r.html")]) == 2
    says(capfd.readouterr().err)
    assert not (tmp_path / "r.html").exists()
    assert run(["report", table, "--json"]) == 0


def test_a_page_that_cannot_be_written_leaves_what_was_there(
    table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "pages" / "r.html"
    out.parent.mkdir()
    out.write_text("older")

    def full(_file: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("compactor.files.staging.os.fsync", full)
        assert run(["report", table, "-o", str(out)]) == 1
    says(capfd.readouterr().err)
    assert out.read_text() == "older"
    assert [path.name for path in out.parent.iterdir()] == ["r.html"]

"""`restore`, `tag`, `tags`, `untag` and `verify --against` as a user meets them."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from compactor import Table
from tests.cli.test_cli import Cli, cli

__all__ = ["cli"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A table of three versions with two rows each."""
    rows = [pa.table({"k": [n, n + 1], "v": [f"{n}", f"{n + 1}"]}) for n in (0, 2, 4)]
    table = Table.create(tmp_path / "t", rows[0], "k")
    for more in rows[1:]:
        table.append(more)
    return tmp_path / "t"


def test_a_restore_says_what_it_changes_and_how_to_go_back(cli: Cli, path: Path) -> None:
    out = cli("restore", path, "--version", 2, "--dry-run")
    assert out == (
        "version 2 would be restored: 6 rows before, 4 rows after; 0 fragments added, 1 removed; version 3\n"
    )
    out = cli("restore", path, "--version", 2)
    assert out == (
        "version 2 restored: 6 rows before, 4 rows after; 0 fragments added, 1 removed; version 4\n"
    )
    assert cli("query", path, "--count") == "4\n"
    assert cli("restore", path, "--version", 2) == "version 4 is what version 2 was\n"
    report = json.loads(cli("restore", path, "--version", 3, "--json"))
    assert (report["version"], report["restored"], report["rows"]) == (5, 3, 6)
    assert report["dry_run"] is False
    assert cli("query", path, "--count") == "6\n"


def test_a_restore_goes_by_time_too(cli: Cli, path: Path) -> None:
    assert cli("restore", path, "--as-of", "0s") == "version 3 is what version 3 was\n"
    cli.fails(5, "restore", path, "--as-of", "2020-01-01")


def test_what_cannot_be_restored_is_said_in_one_line(cli: Cli, path: Path) -> None:
    cli.fails(2, "restore", path)
    cli.fails(2, "restore", path, "--version", 1, "--as-of", "1h")
    cli.fails(5, "restore", path, "--version", 9)
    cli.fails(5, "restore", path.parent / "none", "--version", 1)
    cli("alter", path, "--redact", "v")
    cli.fails(5, "restore", path, "--version", 3)
    cli("alter", path, "--rename", "v:w")
    [first, *_] = Table.open(path).fragments()["key"].to_pylist()
    (path / first).unlink()
    assert "no later version" in cli.fails(5, "restore", path, "--version", 4)


def test_a_tag_is_set_shown_read_moved_and_ended(cli: Cli, path: Path) -> None:
    assert cli("tags", path) == "no tags at version 3\n"
    assert cli("tag", path, "two", "--version", 2, "--keep", "90d").startswith(
        "two: version 2, tagged "
    )
    tag = json.loads(cli("tag", path, "newest", "--json"))
    assert (tag["name"], tag["version"], tag["expires_at"]) == ("newest", 4, None)
    lines = cli("tags", path).splitlines()
    assert [line.split(",")[0] for line in lines] == ["newest: version 4", "two: version 2"]
    assert "until " in lines[1]
    shown = json.loads(cli("tags", path, "--json"))
    assert [tag["name"] for tag in shown["tags"]] == ["newest", "two"]
    assert cli("tag", path, "newest", "--as-of", "0s", "--move").startswith("newest: version 5")
    assert cli("untag", path, "newest") == "newest: no longer a tag of version 5\n"
    assert len(cli("tags", path).splitlines()) == 1


def test_every_reader_takes_a_tag_and_a_vacuum_keeps_it(
    cli: Cli, path: Path, tmp_path: Path
) -> None:
    cli("tag", path, "two", "--version", 2)
    cli("compact", path, "--strategy", "full", "--master", "in-process")
    cli("vacuum", path, "--grace", 0, "--retain", 0)
    assert cli("query", path, "--count", "--tag", "two") == "4\n"
    assert len(cli("head", path, "--tag", "two").splitlines()) == 4
    assert "version 2" in cli("export", path, tmp_path / "x.parquet", "--tag", "two")
    assert json.loads(cli("inspect", path, "--json", "--tag", "two"))["rows"] == 4
    assert "4 rows" in cli("verify", path, "--tag", "two")
    assert cli("templates", path, "v", "--tag", "two")
    assert json.loads(cli("report", path, "--json", "--tag", "two"))["headline"]["version"] == 2
    cli.fails(5, "query", path, "--version", 1)
    assert cli("restore", path, "--tag", "two").startswith("version 2 restored")
    assert cli("query", path, "--count") == "4\n"


def test_wrong_tags_are_said_in_one_line(cli: Cli, path: Path) -> None:
    cli.fails(2, "tag", path, "a/b")
    cli.fails(2, "tag", path, "a", "--version", 1, "--as-of", "1h")
    cli.fails(5, "tag", path, "a", "--version", 9)
    cli.fails(2, "tag", path, "a", "--keep", "soon")
    cli.fails(2, "tag", path, "a", "--keep", "0s")
    cli("tag", path, "a")
    cli.fails(2, "tag", path, "a")
    cli.fails(5, "untag", path, "b")
    cli.fails(5, "query", path, "--tag", "b")
    cli.fails(2, "query", path, "--tag", "a", "--version", 1)
    cli.fails(5, "tags", path.parent / "none")


def test_verify_says_what_happened_since_a_version_or_a_tag(cli: Cli, path: Path) -> None:
    cli("tag", path, "start")
    cli("delete", path, "--where", "k = 1")
    cli("compact", path, "--strategy", "full", "--master", "in-process")
    expected = (
        "since version 3: 6 rows then, 5 now, 0 appended, 1 deleted, 0 left out by the row policy or "
        "the time to live; compactions kept all rows 0 times by their hash, 1 by their number"
    )
    for named in (3, "start"):
        ok, since = cli("verify", path, "--against", named).splitlines()
        assert ok.startswith("ok: 1 fragment, ")
        assert since == expected
    document = json.loads(cli("verify", path, "--against", "start", "--json"))
    assert (document["ok"], document["against"]["deleted"]) == (True, 1)
    cli.fails(5, "verify", path, "--against", "none")
    cli.fails(5, "verify", path, "--against", 99)
    cli.fails(2, "verify", path, "--version", 1, "--against", 2)


def test_a_compaction_is_undone_by_its_id_or_a_short_one(cli: Cli, path: Path) -> None:
    cli("compact", path, "--strategy", "full", "--master", "in-process")
    [fragment] = json.loads(cli("inspect", path, "--json"))["fragments"]
    short = f"{fragment['run'][:8]}-0"
    assert short in cli("inspect", path)
    for name in (fragment["run"], fragment["run"][:8], short):
        assert cli("undo", path, name, "--dry-run").startswith(
            "compaction of version 5: 3 inputs would come back for 1 output; version 5"
        )
    cli.fails(2, "undo", path, "data")
    report = json.loads(cli("undo", path, fragment["run"], "--json"))
    assert (report["version"], report["fragments_added"], report["dry_run"]) == (6, 3, False)
    assert cli("query", path, "--count") == "6\n"
    assert cli("verify", path, "--against", 3).startswith("ok")
    cli.fails(5, "undo", path, fragment["run"])
    for name in (fragment["run"][:8], short):
        cli.fails(5, "undo", path, name)
    cli.fails(2, "undo", path, "nothing")

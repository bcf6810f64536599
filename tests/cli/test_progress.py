"""Progress bars show all that is to be done: files of an ingest, compactions that were begun, rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from compactor import Table
from compactor.cli.main import run
from compactor.lakes.publish import Publisher

Advances = list[tuple[int, int | None]]


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Advances:
    """Returns what all bars were told: done, and the total."""
    advances: Advances = []

    @contextmanager
    def progress(_name: str, total: int | None, begun: int = 0) -> Iterator[Callable[..., None]]:
        advances.append((begun, total))
        yield lambda to, now=None, _name=None: advances.append((to, now or total))

    for command in ("write", "compact", "publish", "update"):
        monkeypatch.setattr(f"compactor.cli.{command}.progress", progress)
    return advances


def test_an_ingest_shows_the_bytes_of_all_its_files(tmp_path: Path, shown: Advances) -> None:
    files = [tmp_path / f"{number}.ndjson" for number in range(3)]
    for number, file in enumerate(files):
        file.write_text('{"k": 1}\n' * (number + 1))
    assert run(["ingest", str(tmp_path / "t"), *map(str, files), "--sort-by", "k"]) == 0
    whole = sum(file.stat().st_size for file in files)
    assert shown[0] == (0, whole)
    assert shown[-1] == (whole, whole)
    assert [done for done, _ in shown] == sorted(done for done, _ in shown)


def test_a_compact_shows_the_bytes_of_all_its_compactions(tmp_path: Path, shown: Advances) -> None:
    url = str(tmp_path / "t")
    assert run(["ingest", url, *_windows(tmp_path), "--sort-by", "at", "--time-column", "at"]) == 0
    assert run(["ingest", url, *_windows(tmp_path)]) == 0
    shown.clear()
    whole = sum(Table.open(url).fragments()["size_bytes"].to_pylist())
    assert run(["compact", url, "--strategy", "full"]) == 0
    (_, first), *_, (done, total) = shown[1:]
    assert (first, done, total) == (whole, whole, whole)
    advances = [to for to, _ in shown]
    assert advances == sorted(advances)
    assert len({*advances}) >= 5  # none, and after each of two inputs of two compactions


def test_a_single_compaction_shows_what_it_has_read(tmp_path: Path, shown: Advances) -> None:
    url = _of_two_ingests(tmp_path)
    shown.clear()
    sizes = Table.open(url).fragments()["size_bytes"].to_pylist()
    assert run(["compact", url, "--strategy", "full", "--master", "in-process"]) == 0
    assert {(size, sum(sizes)) for size in sizes} & {*shown}


def test_an_update_shows_the_fragments_to_search_and_then_the_rows_to_change(
    tmp_path: Path, shown: Advances
) -> None:
    url = _of_two_ingests(tmp_path)
    shown.clear()
    assert run(["update", url, "--where", "k > 1", "--set", "k = k + 10"]) == 0
    assert set(shown[1:]) == {(0, 2), (1, 2), (2, 2), (4, 4)}
    assert shown.index((2, 2)) < shown.index((4, 4))


@pytest.mark.parametrize("policy", ["append", "last"])
def test_a_publication_shows_the_rows_that_it_has_to_write(
    policy: str, tmp_path: Path, shown: Advances, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of a key that are merged, and files that a killed run has left, are not waited for."""
    url = _of_two_ingests(tmp_path, "--row-policy", policy)
    publish = ["publish", url, str(tmp_path / "lake"), "--as", "parquet"]
    shown.clear()
    with monkeypatch.context() as killed:
        killed.setattr(Publisher, "_commit", None)
        assert run(publish) == 1
    assert shown[1] == (3, 6)
    assert shown[-1] == ((6, 6) if policy == "append" else (3, 3))
    assert run(["ingest", url, str(tmp_path / "k.ndjson")]) == 0
    shown.clear()
    assert run(publish) == 0
    assert shown[-1] == (3, 3)


def _of_two_ingests(folder: Path, *options: str) -> str:
    (folder / "k.ndjson").write_text('{"k": 1}\n{"k": 2}\n{"k": 3}\n')
    url = str(folder / "t")
    for more in (["--sort-by", "k", *options], []):
        assert run(["ingest", url, str(folder / "k.ndjson"), *more]) == 0
    return url


def _windows(folder: Path) -> list[str]:
    """Makes a file with rows of two days."""
    (folder / "a.ndjson").write_text(
        '{"at": "2026-01-01T00:00:00Z"}\n{"at": "2026-01-03T00:00:00Z"}\n'
    )
    return [str(folder / "a.ndjson")]

"""Progress bars show all that is to be done: all files of an ingest, all compactions that were begun."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from compactor import Table
from compactor.cli.main import run

Advances = list[tuple[int, int | None]]


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Advances:
    """Returns what all bars were told: done, and the total."""
    advances: Advances = []

    @contextmanager
    def progress(_name: str, total: int | None, begun: int = 0) -> Iterator[Callable[..., None]]:
        advances.append((begun, total))
        yield lambda to, now=None: advances.append((to, total if now is None else now))

    for command in ("write", "compact"):
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
    assert len({to for to, _ in shown}) == 3  # none, one and both of the compactions


def _windows(folder: Path) -> list[str]:
    """Makes a file with rows of two days."""
    (folder / "a.ndjson").write_text(
        '{"at": "2026-01-01T00:00:00Z"}\n{"at": "2026-01-03T00:00:00Z"}\n'
    )
    return [str(folder / "a.ndjson")]

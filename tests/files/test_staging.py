"""Unfinished files: none outlives its writer, wherever that is killed, and no living writer loses one."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from compactor.cli.main import run
from compactor.files import staging
from compactor.files.staging import Staging
from compactor.files.whole import write_whole
from compactor.files.write import StagedSink
from tests.support.open_files import open_files_in
from tests.support.tables import log_rows

_STEPS: Final = ("create", "write", "seal", "link", "replace", "published")
_KILLED: Final = """
import os, signal, sys
from pathlib import Path
from compactor.files import staging, write
from compactor.files.staging import StagedFile, Staging

step, unnamed, *arguments = sys.argv[1:]

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

def dies_after(kind, name):
    before = getattr(kind, name)
    setattr(kind, name, lambda *a, **k: (before(*a, **k), die()))

if not int(unnamed):
    del os.O_TMPFILE
staging.MAX_UNNAMED = int(unnamed)
match step:
    case "create": dies_after(Staging, "create")
    case "write": dies_after(write.StagedSink, "write")
    case "seal": dies_after(StagedFile, "seal")
    case "link": dies_after(StagedFile, "_get_name")
    case "replace": Path.replace = die
    case "published": dies_after(StagedFile, "publish")

from compactor.cli.main import main
main(arguments)
"""
_PIPELINE: Final = """
nodes:
  rows: {source: {path: rows.parquet}}
  all: {output: {input: rows, path: out/all.csv}}
  some: {output: {input: rows, path: "out/{}.parquet", split: {rows: 100}}}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Makes a current folder with `rows.parquet`, a table `t` of its rows, a pipeline, and `out`."""
    monkeypatch.chdir(tmp_path)
    pq.write_table(log_rows(500, 0), "rows.parquet")
    assert run(["ingest", "t", "rows.parquet", "--sort-by", "service,ts"]) == 0
    Path("p.yaml").write_text(_PIPELINE)
    Path("out").mkdir()
    return tmp_path / "out"


@pytest.fixture(params=["unnamed", "named"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Sets up a system with unnamed files, and one without."""
    if request.param == "named":
        monkeypatch.delattr(os, "O_TMPFILE")
    return str(request.param)


def killed(step: str, unnamed: int, *arguments: str) -> bool:
    """Runs a command that dies at a step. Returns False if it ended before that."""
    call = [sys.executable, "-c", _KILLED, step, str(unnamed), *arguments]
    code = subprocess.run(call, capture_output=True, timeout=120, check=False).returncode
    assert code in (0, -signal.SIGKILL)
    return code != 0


def names(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir()}


def hidden(folder: Path) -> set[str]:
    return {name for name in names(folder) if name.startswith(".")}


@pytest.mark.parametrize("step", ["create", "write", "seal"])
@pytest.mark.parametrize("call", [("export", "t", "out/all.parquet"), ("run", "p.yaml")])
def test_a_killed_command_leaves_nothing_beside_its_output(
    folder: Path, call: tuple[str, ...], step: str
) -> None:
    (folder / "all.parquet").write_bytes(b"old")
    assert killed(step, 64, *call)
    assert names(folder) == {"all.parquet"}
    assert (folder / "all.parquet").read_bytes() == b"old"
    assert run([*call]) == 0
    assert not hidden(folder)


@pytest.mark.parametrize(
    ("unnamed", "call"),
    [(64, ("export", "t", "out/all.csv")), (0, ("run", "p.yaml")), (1, ("run", "p.yaml"))],
)
@pytest.mark.parametrize("step", _STEPS)
def test_the_next_run_removes_what_a_killed_one_had_to_name(
    folder: Path, call: tuple[str, ...], step: str, unnamed: int
) -> None:
    """unnamed: how many files of an output may have no name."""
    (folder / "all.csv").write_bytes(b"old")
    assert killed(step, unnamed, *call) == (unnamed > 0 or step != "link")
    if step in ("create", "write", "seal"):
        assert (folder / "all.csv").read_bytes() == b"old"
    assert run([*call]) == 0
    assert not hidden(folder)
    assert (folder / "all.csv").read_bytes().count(b"\n") == 501


def test_a_writer_removes_nothing_of_a_living_one_of_the_same_output(
    folder: Path, kind: str
) -> None:
    path, schema = folder / "a.csv", pa.schema([("a", pa.int64())])
    with contextlib.ExitStack() as stack:
        sinks = [
            stack.enter_context(contextlib.closing(StagedSink(str(path), schema))) for _ in range(3)
        ]
        assert len(names(folder)) == (3 if kind == "named" else 0)
        for number, sink in enumerate(sinks):
            sink.write(pa.record_batch({"a": [number]}))
            sink.finish()
        for number, sink in enumerate(sinks):
            sink.publish()
            assert path.read_bytes() == f'"a"\n{number}\n'.encode()
    assert names(folder) == {"a.csv"}


def test_finished_files_of_one_output_keep_few_descriptors(
    folder: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "MAX_UNNAMED", 3)
    with contextlib.closing(Staging(folder / "{}.txt")) as place, contextlib.ExitStack() as stack:
        files = []
        for number in range(20):
            file = stack.enter_context(contextlib.closing(place.create()))
            file.file.write(str(number).encode())
            file.seal()
            files.append(file)
        assert 1 <= len(open_files_in(folder)) <= 4
        assert len(hidden(folder)) == 1
        for number, file in enumerate(files):
            file.publish(folder / f"{number}.txt")
    assert names(folder) == {f"{number}.txt" for number in range(20)}
    assert all((folder / f"{number}.txt").read_text() == str(number) for number in range(20))
    assert open_files_in(folder) == []


@pytest.mark.parametrize("replaces", [False, True])
def test_a_file_gets_the_rights_that_any_new_file_gets(
    folder: Path, kind: str, *, replaces: bool
) -> None:
    usual = folder / "usual"
    usual.touch()
    if replaces:
        (folder / "a").touch()
    write_whole(str(folder / "a"), b"x")
    assert (folder / "a").stat().st_mode == usual.stat().st_mode


@pytest.mark.parametrize("name", ["a" * 255, "é" * 127, "line\nbreak.csv", "not-utf8-\udcff"])
def test_any_name_that_a_file_can_have_is_written_and_replaced(
    folder: Path, kind: str, name: str
) -> None:
    for data in (b"first", b"second"):
        write_whole(str(folder / name), data)
        assert (folder / name).read_bytes() == data
    assert names(folder) == {name}


def _left(folder: Path, name: str) -> Path:
    left = folder / name
    left.mkdir()
    (left / "lock").touch()
    (left / "1").write_text("half")
    return left


def test_only_what_dead_writers_of_this_output_left_goes(folder: Path) -> None:
    dead = _left(folder, ".a.csv.0123456789ab.part")
    unlocked = folder / ".a.csv.aaaaaaaaaaaa.part"
    unlocked.mkdir()
    kept = [
        _left(folder, ".b.csv.0123456789ab.part"),
        _left(folder, ".a.csv.backup.part"),
        _left(folder, ".a.csv.old.csv.0123456789ab.part"),
        _left(folder, "elsewhere"),
    ]
    link = folder / ".a.csv.bbbbbbbbbbbb.part"
    link.symlink_to(folder / "elsewhere")
    strange = folder / ".a.csv.cccccccccccc.part"
    strange.write_text("a file")
    write_whole(str(folder / "a.csv"), b"")
    assert not dead.exists()
    assert not unlocked.exists()
    assert all((left / "1").exists() for left in kept)
    assert link.is_symlink()
    assert strange.exists()


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Path]]:
    """Lets another writer clean up between the two steps in which a folder is made and locked."""
    seen: list[Path] = []
    lock = staging._own_lock

    def after_another(path: Path) -> int | None:
        seen.append(path)
        if len(seen) == 1:
            Staging(path.parent.parent / "a.csv").close()
        return lock(path)

    monkeypatch.setattr(staging, "_own_lock", after_another)
    yield seen


def test_a_folder_that_another_writer_took_for_a_dead_ones_is_made_again(
    folder: Path, taken: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "O_TMPFILE")
    write_whole(str(folder / "a.csv"), b"x")
    assert len(taken) == 2
    assert names(folder) == {"a.csv"}


def test_without_locks_files_are_written_and_nothing_is_taken_for_dead(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.delattr(os, "O_TMPFILE")
    monkeypatch.setattr(fcntl, "flock", no_locks)
    left = _left(folder, ".a.csv.0123456789ab.part")
    write_whole(str(folder / "a.csv"), b"x")
    assert names(folder) == {"a.csv", left.name}


def test_without_proc_files_are_named_from_the_start(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "_place", lambda descriptor: f"/no/proc/self/fd/{descriptor}")
    write_whole(str(folder / "a.csv"), b"x")
    assert (folder / "a.csv").read_bytes() == b"x"
    assert names(folder) == {"a.csv"}

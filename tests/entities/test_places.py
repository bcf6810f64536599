"""Where datasets are looked for: what is there and can be none is named, and never taken for nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pytest

from compactor.cli.main import run as command
from compactor.entities.datasets import locate
from compactor.errors import InputError, UsageError
from compactor.stores.open import open_store
from tests.entities.support import spec, write
from tests.support.tables import append_table
from tests.support.wording import refuses, says

A = [{"_id": "a"}]


def make(folder: Path, what: str) -> Path:
    """Something named `what` that can be no dataset."""
    place = folder / what
    if what == "fifo.ndjson":
        os.mkfifo(place)
    elif what == "link.ndjson":
        place.symlink_to(folder / "nowhere")
    elif "." in what:
        place.write_text("_id\na\n")
    else:
        place.mkdir()
        write(place, {"part-0": A})
    return place


@pytest.mark.parametrize(
    "what",
    [
        "loose",
        "fifo.ndjson",
        "link.ndjson",
        "x.xlsx",
        "x.txt",
    ],
)
def test_what_is_there_and_can_be_no_dataset_is_named(tmp_path: Path, what: str) -> None:
    place = make(tmp_path, what)
    with refuses(InputError):
        locate(spec("A a", sources={"A": str(place)}), str(tmp_path))
    name = place.name.split(".")[0]
    with refuses(InputError, name):
        locate(spec(f"{name} a"), str(tmp_path))
    write(tmp_path, {f"{name}-b": A})
    assert locate(spec(f"{name}-b b"), str(tmp_path)) != [None]


@pytest.mark.parametrize(
    "place",
    [
        "/dev/null",
        "~/orders.ndjson",
        "x" * 300,
        "A.ndjson/b",
    ],
)
def test_other_places_that_can_be_none_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, {"A": A})
    with refuses(InputError):
        locate(spec("A a", sources={"A": place}), ".")


def test_nothing_at_its_place_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "A.yaml").write_text("datasets: [A a]\n")
    (tmp_path / "A.part").mkdir()
    places = {"B": str(tmp_path / "b.ndjson"), "C": str(tmp_path / "c" / "d")}
    names = "A a", "B b", "C c", f"{'x' * 200} d"
    assert locate(spec(*names, sources=places), str(tmp_path)) == [None] * 4


@pytest.mark.parametrize(
    ("settings", "options"),
    [
        ({"sources": {"A": "loop"}}, []),
        ({"sources": {"A": "loop/a.ndjson"}}, []),
        ({"sources": {"A": "loop/*.ndjson"}}, []),
        ({"sources": {"A": "loop/*.ndjson"}}, ["--ndjson", "out.ndjson"]),
        ({"always": "loop/pairs.csv"}, ["--ndjson", "out.ndjson"]),
        ({}, ["--datasets", "loop"]),
    ],
)
def test_links_that_go_round_in_circles_are_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    settings: dict[str, object],
    options: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, {"A": A})
    Path("loop").symlink_to("back")
    Path("back").symlink_to("loop")
    Path("s.json").write_text(json.dumps({"version": 2, "datasets": ["A a"], **settings}))
    assert command(["entity-merge", "s.json", "--output", "table", *options]) in (2, 3, 4)
    says(capsys.readouterr().err)
    assert not Path("table").exists()


def test_a_folder_of_datasets_has_to_be_there(tmp_path: Path) -> None:
    with refuses(UsageError):
        locate(spec("A a"), str(tmp_path / "nowhere"))


def test_file_addresses_are_paths(tmp_path: Path) -> None:
    write(tmp_path, {"A": A})
    [found] = locate(spec("A a", sources={"A": f"file://{tmp_path}/A.ndjson"}), ".")
    assert found is not None
    assert found.is_file


class TestWhatIsWritten:
    @pytest.fixture
    def call(self, tmp_path: Path) -> list[str]:
        write(tmp_path, {"A": A})
        (tmp_path / "s.json").write_text('{"version": 2, "datasets": ["A a", "T t"]}')
        return ["entity-merge", str(tmp_path / "s.json"), "--datasets", str(tmp_path)]

    @pytest.mark.parametrize("path", ["A.ndjson", "x/../A.ndjson", "link.ndjson", "s.json"])
    def test_lines_do_not_go_over_what_is_read(
        self, call: list[str], tmp_path: Path, path: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "x").mkdir()
        (tmp_path / "link.ndjson").symlink_to(tmp_path / "A.ndjson")
        before = (tmp_path / "A.ndjson").read_text()
        out = ["--output", str(tmp_path / "out"), "--ndjson", str(tmp_path / path)]
        assert command([*call, *out]) == 2
        says(capsys.readouterr().err)
        assert (tmp_path / "A.ndjson").read_text() == before
        assert not (tmp_path / "out").exists()

    @pytest.mark.parametrize("path", ["T.ndjson", "late.ndjson", "part-9.ndjson", "pairs.ndjson"])
    @pytest.mark.parametrize("option", ["--ndjson", "--edges"])
    def test_files_do_not_go_where_the_next_run_reads(
        self, tmp_path: Path, path: str, option: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """A dataset that is not there yet, a file that a pattern would match, and a file of pairs."""
        write(tmp_path, {"A": A})
        (tmp_path / "d").mkdir()
        (tmp_path / "part-1.ndjson").write_text('{"_id": "p1"}\n')
        (tmp_path / "pairs.ndjson").write_text('{"a": "a0", "b": "p1"}\n')
        spec = {
            "version": 2,
            "datasets": ["A a", "T t", "L l", "P p"],
            "sources": {"L": str(tmp_path / "late.ndjson"), "P": f"{tmp_path}/d/../part-*.ndjson"},
            "never": str(tmp_path / "pairs.ndjson"),
        }
        (tmp_path / "s.json").write_text(json.dumps(spec))
        call = ["entity-merge", str(tmp_path / "s.json"), "--datasets", str(tmp_path)]
        out = ["--output", str(tmp_path / "out")]
        assert command([*call, *out, option, str(tmp_path / path)]) == 2
        says(capsys.readouterr().err)
        assert not (tmp_path / "out").exists()
        (tmp_path / "x").mkdir()
        assert command([*call, *out, option, str(tmp_path / "x" / path)]) == 0

    def test_links_and_entities_go_to_two_files(
        self, call: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = str(tmp_path / "o.ndjson")
        out = ["--output", str(tmp_path / "out"), "--ndjson", path, "--edges", path]
        assert command([*call, *out]) == 2
        says(capsys.readouterr().err)
        assert not Path(path).exists()

    @pytest.mark.parametrize("is_there", [True, False])
    def test_a_dataset_is_not_the_output(
        self,
        call: list[str],
        tmp_path: Path,
        is_there: bool,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        if is_there:
            append_table(open_store(str(tmp_path / "T")), pa.Table.from_pylist(A), "_id")
        assert command([*call, "--output", f"{tmp_path}/x/../T/"]) == 2
        says(capsys.readouterr().err)

    @pytest.mark.parametrize("place", ["", "x/..", "T/part"])
    def test_the_output_is_not_among_the_inputs(
        self, call: list[str], tmp_path: Path, place: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        append_table(open_store(str(tmp_path / "T")), pa.Table.from_pylist(A), "_id")
        assert command([*call, "--output", str(tmp_path / place)]) == 2
        says(capsys.readouterr().err)
        assert {path.name for path in tmp_path.iterdir()} == {"A.ndjson", "T", "s.json"}

    def test_the_output_is_not_where_inputs_will_be(
        self, call: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "A.ndjson").unlink()
        assert command([*call, "--output", str(tmp_path)]) == 2
        says(capsys.readouterr().err)

    @pytest.mark.parametrize("name", ["a\0b", "x" * 300])
    def test_an_output_that_cannot_be_is_one_line(
        self, call: list[str], tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert command([*call, "--output", f"{tmp_path}/{name}"]) in (2, 4)
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert "internal" not in error

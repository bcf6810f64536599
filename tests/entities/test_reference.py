"""The reference's example as its page prints it: a pipe, and arrays of entities with commas to spare."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from compactor.cli.main import run as command

DATASETS = {
    "A": """\
   [
       {"_id": "a1", "f1": 1},
       {"_id": "a2", "f1": 2}
   ]
""",
    "B": """\
   [
       {"_id": "b1", "f1": 1, "f2": "x"},
       {"_id": "b2", "f1": 3}
   ]
""",
    "C": """\
   [
       {"_id": "c1", "f3": "X"},
       {"_id": "c2", "_deleted": true, "f3": "Y"},
       {"_id": "c3", "_deleted": true, "f3": "X"},
   ]
""",
}
PIPE = """\
   {
       "_id": "result",
       "source": {
           "type": "merge",
           "datasets": ["A a", "B b", "C c"],
           "equality": [
               ["eq", "a.f1", "b.f1"],
               ["eq", "b.f2", ["lower", "c.f3"]],
           ]
       }
   }
"""
OUTPUT = """\
   [
       {"$ids": ["a1", "b1", "c1"], "_id": "0|a1|1|b1|2|c1", "_updated": 0,
        "f1": [1, 1], "f2": "x", "f3": "X"},
       {"$ids": ["a2"], "_id": "0|a2", "_updated": 1, "f1": 2},
       {"$ids": ["b2"], "_id": "1|b2", "_updated": 2, "f1": 3},
       {"$ids": ["c2"], "_deleted": true, "_id": "2|c2", "_updated": 3, "f3": "Y"},
       {"$ids": ["c3"], "_deleted": true, "_id": "2|c3", "_updated": 4, "f3": "X"}
   ]
"""
FOUR = """\
    {
        "type": "merge",
        "version": 2,
        "datasets": ["A a", "B b", "C c", "D d"],
        "equality_sets": [
            ["a.x", "b.x", "c.y"],
            ["c.z", "d.z"],
        ],
        "supports_signalling": false
    }
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in DATASETS.items():
        (tmp_path / f"{name}.json").write_text(text)
    return tmp_path


def merge(folder: Path, spec: str, *options: str) -> int:
    table = ["--output", str(folder / "out"), "--datasets", str(folder)]
    return command(["entity-merge", str(folder / spec), *table, "--ndjson", "-", *options])


@pytest.mark.parametrize("name", ["pipe.json", "pipe.yaml"])
def test_the_example_of_the_reference_runs_as_printed(
    folder: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / name).write_text(PIPE)
    assert merge(folder, name) == 0
    said = capsys.readouterr()
    assert [json.loads(line) for line in said.out.splitlines()] == json.loads(OUTPUT)
    assert "version is 1, the default of the reference" in said.err


@pytest.mark.parametrize("name", ["prototype.json", "prototype.yaml"])
def test_the_prototype_of_the_reference_runs_as_printed(
    folder: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / name).write_text(FOUR)
    assert merge(folder, name) == 0
    assert "supports_signalling has no effect" in capsys.readouterr().err

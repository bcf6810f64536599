"""The programs in examples/ run as they are, in an empty folder, and print what they are there to show."""

from __future__ import annotations

import os
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
EXAMPLES: Final = ROOT / "examples"
SHOWN: Final = {
    "quickstart.py": [
        "16,000 rows in 8 fragments, version 8",
        "compacted 8 fragments into 1 by 8 GETs; no row is lost: 16,000 in, 16,000 out",
        "verified 16,000 rows, 0 faults",
        "version 1 had 2,000 rows",
        "vacuum removed 8 fragments",
    ],
    "query_engines.py": [
        "busiest hours at the airport, by DuckDB:",
        "skipped 0 of 2 fragments and 33 of 40 row groups",
        "tips in percent of fares, by Polars:",
        "longest trip, by PyArrow:",
        "trips over 20 km, by pandas:",
        "trips.parquet: 40,000 rows; a table made of it is sorted by zone,pickup",
    ],
    "upserts.py": [
        "accounts, of 7 rows that were written:\n  1: ada@example.org, team\n  3: cleo",
        "compaction left out 3 superseded rows; 4 are stored",
        "  Wien: 7 sold, best 35.0, tea, mugs, spoons",
    ],
    "pipeline.py": [
        "app      source                      streaming     fused",
        "summary: 6 records",
        "errors: 236 rows, sorted by service,at, in version 1",
        '"web",43,18',
    ],
    "entity_merge.py": [
        "7 entities read, 4 after merging; 4 new, 0 changed and 0 replaced written",
        '"$ids":["c3","s2","s3"]',
        "1 new, 0 changed and 2 replaced written, 2 as they were; version 2",
        "0 new, 0 changed and 0 replaced written, 3 as they were; version 2",
    ],
    "object_storage.py": [
        "6 objects in readings/_log/",
        "5 fragments merged by 5 GETs",
        "25,000 rows> verified: True",
    ],
    "compact_on_spark.py": ["fragments before: 12", "fragments after: 1, tasks: 1", "  /pay: "],
}
PARAMETERS: Final = [
    pytest.param(name, marks=pytest.mark.spark if "spark" in name else pytest.mark.long, id=name)
    for name in SHOWN
]


NEEDS: Final = {
    "query_engines.py": (["duckdb", "pandas", "polars"], "duckdb polars pandas"),
    "pipeline.py": (["duckdb"], "lsm-compactor[pipelines]"),
    "object_storage.py": (["boto3", "moto"], "lsm-compactor[s3] moto[server]"),
    "compact_on_spark.py": (["pandas", "pyspark"], "lsm-compactor[spark]"),
}
"""The modules that an example needs beside the base, and what pip installs for them."""
HIDING: Final = """\
import sys


class Without:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in {hidden!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name.partition(".")[0])


sys.meta_path.insert(0, Without())
"""


@pytest.mark.parametrize("name", PARAMETERS)
def test_an_example_runs_with_what_it_needs_and_shows_what_it_is_about(
    name: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Nothing is set up but the way to the package: no AWS settings, no Spark session, no other extras."""
    hiding = tmp_path_factory.mktemp("hiding")
    needed, _packages = NEEDS.get(name, ([], ""))
    hidden = {module for modules, _packages in NEEDS.values() for module in modules} - {*needed}
    (hiding / "sitecustomize.py").write_text(HIDING.format(hidden=hidden or {""}))
    environment = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
    done = subprocess.run(
        [sys.executable, "-u", str(EXAMPLES / name)],
        cwd=tmp_path,
        env=environment | {"PYTHONPATH": f"{hiding}{os.pathsep}{ROOT}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    for shown in SHOWN[name]:
        assert shown in done.stdout, done.stdout


@pytest.mark.parametrize(
    ("name", "module"), [(name, module) for name in NEEDS for module in NEEDS[name][0]]
)
def test_an_example_without_its_extra_names_it_in_one_line(
    name: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for known in [known for known in sys.modules if known.split(".")[0] == module]:
        monkeypatch.delitem(sys.modules, known)
    monkeypatch.setattr(sys, "meta_path", [_Without(module), *sys.meta_path])
    with pytest.raises(SystemExit) as left:
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    assert isinstance(left.value.code, str)
    found, packages = left.value.code.split(" is not installed: pip install ")
    assert found == module
    assert shlex.split(packages) == NEEDS[name][1].split()


def test_an_example_for_spark_without_java_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(shutil, "which", lambda _program: None)
    with pytest.raises(SystemExit) as left:
        runpy.run_path(str(EXAMPLES / "compact_on_spark.py"), run_name="__main__")
    assert str(left.value.code).startswith("there is no Java: install 17")


class _Without:
    """A finder that finds a package missing."""

    def __init__(self, name: str) -> None:
        self._name = name

    def find_spec(self, name: str, *_: object) -> None:
        if name.split(".")[0] == self._name:
            raise ModuleNotFoundError(f"No module named {name!r}", name=self._name)


def test_every_example_is_run_and_listed_with_what_it_needs() -> None:
    programs = {path.name for path in EXAMPLES.glob("*.py")}
    assert programs == set(SHOWN)
    lines = (EXAMPLES / "README.md").read_text().splitlines()
    for name in programs:
        (line,) = [line for line in lines if line.startswith(f"| [{name}]({name}) |")]
        needs = line.split("|")[3].strip()
        _modules, packages = NEEDS.get(name, ([], ""))
        assert needs.startswith(f"`{packages}`" if packages else ""), line
        assert bool(needs) == bool(packages), line

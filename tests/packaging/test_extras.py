"""The base does its work without the packages of extras, and what needs one names the extra."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import packages_distributions, requires
from pathlib import Path
from typing import Any, Final

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from compactor.resources.packages import Extra
from tests.support.wording import says

ROOT: Final = Path(__file__).parents[2]
PROJECT: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

_HIDING: Final = """
import contextlib, io, json, sys
hidden = frozenset({hidden!r})
class Hiding:
    def find_spec(self, fullname, path, target=None):
        if fullname.partition(".")[0] in hidden:
            raise ModuleNotFoundError(f"No module named {{fullname!r}}", name=fullname)
sys.meta_path.insert(0, Hiding())
from compactor.cli.main import run
done = []
for command in json.load(sys.stdin):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(command)
    done.append((code, out.getvalue(), err.getvalue()))
json.dump(done, sys.stdout)
"""
"""A program that runs commands, in which some packages cannot be imported."""

Done = tuple[int, str, str]
"""Exit code, stdout and stderr of a command."""

WITHOUT: Final = {
    Extra.AZURE: ["head", "az://container/t"],
    Extra.GCS: ["head", "gs://bucket/t"],
    Extra.PIPELINES: ["run", "sums.json"],
    Extra.PLOT: ["simulate", "--ingest", "1MiB/s", "--duration", "1h", "--plot", "a.png"],
    Extra.PUBLISH: ["publish", "t", "copy", "--as", "delta"],
    Extra.REPORT: ["report", "t", "-o", "r.html"],
    Extra.S3: ["head", "s3://bucket/t"],
    Extra.SPARK: ["compact", "t", "--strategy", "full", "--master", "local[1]"],
    Extra.WORKER: ["watch", "t", "--master", "in-process", "--metrics-port", "0"],
}
"""A command that needs the extra."""


def with_all_they_need(requirements: Iterable[str]) -> set[str]:
    """Names of the distributions that some requirements install."""
    found: set[str] = set()
    waiting = [Requirement(text) for text in requirements]
    while waiting:
        each = waiting.pop()
        name = canonicalize_name(each.name)
        if name in found or (each.marker and not each.marker.evaluate({"extra": ""})):
            continue
        found.add(name)
        waiting += map(Requirement, requires(name) or ())
    return found


def in_the_base(folder: Path, *commands: list[str]) -> list[Done]:
    """Runs commands in a process that can import only the packages of the base."""
    base = with_all_they_need(PROJECT["dependencies"]) | {PROJECT["name"]}
    hidden = sorted(
        module
        for module, distributions in packages_distributions().items()
        if not base & set(map(canonicalize_name, distributions))
    )
    assert {"boto3", "duckdb", "pandas", "prometheus_client", "pyspark", "waitress"} <= {*hidden}
    done = subprocess.run(
        [sys.executable, "-c", _HIDING.format(hidden=hidden)],
        input=json.dumps(commands), cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [(code, out, err) for code, out, err in json.loads(done.stdout)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with rows of two files, and a pipeline that groups some."""
    for number in (1, 2):
        (tmp_path / f"{number}.ndjson").write_text(f'{{"k": {number}, "text": "row {number}"}}\n')
    nodes = {
        "rows": {"source": {"path": "1.ndjson"}},
        "sums": {"aggregate": {"input": "rows", "group_by": ["k"], "columns": {"n": "count(*)"}}},
        "out": {"output": {"input": "sums", "path": "out.ndjson"}},
    }
    (tmp_path / "sums.json").write_text(json.dumps({"nodes": nodes}))
    return tmp_path


INGESTS: Final = [["ingest", "t", f"{number}.ndjson", "--sort-by", "k"] for number in (2, 1)]


def test_the_base_ingests_compacts_and_reads_a_folder(folder: Path) -> None:
    *done, compacted, head, query = in_the_base(
        folder,
        *INGESTS,
        ["compact", "t", "--master", "in-process", "--strategy", "full"],
        ["head", "t"],
        ["query", "t", "--where", "k = 2"],
    )
    assert [code for code, _, _ in done] == [0, 0]
    assert compacted[1].startswith("2 fragments compacted into 1 ")
    rows = ['{"k":1,"text":"row 1"}\n', '{"k":2,"text":"row 2"}\n']
    assert head == (0, "".join(rows), "")
    assert query[:2] == (0, rows[1])


def test_a_missing_extra_is_one_line_that_names_it(folder: Path) -> None:
    _, _, *done = in_the_base(folder, *INGESTS, *WITHOUT.values())
    for extra, (code, out, err) in zip(WITHOUT, done, strict=True):
        assert (code, out) == (2, "")
        says(err)
        assert len(err.splitlines()) == 1
        assert f"pip install 'lsm-compactor[{extra}]'" in err
    assert {*WITHOUT} == {*Extra}
    made = {path.name for path in folder.iterdir()}
    assert made == {"1.ndjson", "2.ndjson", "sums.json", "t"}


def test_extras_that_messages_and_pages_name_are_there() -> None:
    extras = PROJECT["optional-dependencies"]
    assert {*Extra} <= {*extras}
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    for page in pages:
        for named in re.findall(
            r"pip install [^`\n]*?lsm-compactor\[([a-z0-9,]+)\]", page.read_text()
        ):
            assert {*named.split(",")} <= {*extras}, page


def test_the_page_on_installing_lists_every_extra_and_those_of_the_image() -> None:
    page = (ROOT / "docs/how-to/install.md").read_text()
    listed = re.findall(r"^\| `([a-z0-9]+)` \|", page, re.MULTILINE)
    assert sorted(listed) == sorted({*PROJECT["optional-dependencies"]} - {"dev", "peers"})
    script = (ROOT / "deploy/lock/lock.sh").read_text().replace("\\\n", "")
    [image] = re.findall(r"^lock image .*$", script, re.MULTILINE)
    [said] = re.findall(r"pip install '\.\[(.*)\]' .*container image", page)
    assert said.split(",") == re.findall(r"--extra (\w+)", image)
    if "publish" not in said:
        chart = ROOT / "deploy/kubernetes/chart/templates/_helpers.tpl"
        assert "the image lacks the packages for it" in chart.read_text()


def test_no_package_is_in_the_base_and_in_an_extra() -> None:
    base = {Requirement(text).name for text in PROJECT["dependencies"]}
    for extra, packages in PROJECT["optional-dependencies"].items():
        if extra not in ("dev", "peers"):
            assert not base & {Requirement(text).name for text in packages}, extra

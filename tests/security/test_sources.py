"""What the sources do not do: unpickle or run what they read, start shells, parse XML freely, pass by TLS."""

from __future__ import annotations

import ast
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from compactor.files.write import open_table_sink
from compactor.resources.disk import LocalDisk
from compactor.stores.local import LocalStore

ROOT = Path(__file__).parents[2]
SOURCES = sorted([*(ROOT / "format").rglob("*.py"), *(ROOT / "compactor").rglob("*.py")])

_MODULES = {
    "pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve", "code", "torch",
    "subprocess", "pty", "telnetlib", "ftplib", "xml.etree", "xml.dom", "xml.sax",
    "xml.parsers", "lxml",
}  # fmt: skip
_ALLOWED = {
    ("compactor/files/xmltext.py", "xml.sax.saxutils"),
    ("compactor/files/xml_elements.py", "xml.parsers"),
    # Spark's own launcher, which PySpark names.
    ("compactor/spark/starting.py", "subprocess"),
}
"""Escape text that is written, and parse files by expat, which refuses every DTD there. Other XML is not read
but S3's answers, by botocore and expat, which has its own guard against entities that stand for others."""
_CALLS = {"eval", "exec", "compile", "__import__", "breakpoint"}
_METHODS = {
    "os": {"system", "popen", "spawnl", "spawnv", "execv", "execvp", "umask", "chmod"},
    "yaml": {"load_all", "unsafe_load", "full_load", "unsafe_load_all", "full_load_all"},
    "tempfile": {"mktemp"},
}
_KEYWORDS = {"allow_pickle": True, "shell": True, "verify": False}


def faults(tree: ast.AST, path: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            names = []
        for name in names:
            banned = any(name == m or name.startswith(f"{m}.") for m in _MODULES)
            if banned and not any(path == p and name.startswith(a) for p, a in _ALLOWED):
                yield f"imports {name}"
        if isinstance(node, ast.Call):
            yield from _faults_of_call(node)


def _faults_of_call(node: ast.Call) -> Iterator[str]:
    function = node.func
    if isinstance(function, ast.Name) and function.id in _CALLS:
        yield f"calls {function.id}"
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        owner, name = function.value.id, function.attr
        if name in _METHODS.get(owner, ()):
            yield f"calls {owner}.{name}"
        if (owner, name) == ("yaml", "load") or (owner, name) == ("yaml", "compose"):
            loader = {k.arg: ast.unparse(k.value) for k in node.keywords}.get("Loader")
            if loader not in ("_Loader", "yaml.SafeLoader"):
                yield f"yaml.{name} by {loader}"
    for keyword in node.keywords:
        value = keyword.value.value if isinstance(keyword.value, ast.Constant) else None
        if keyword.arg in _KEYWORDS and value is _KEYWORDS[keyword.arg]:
            yield f"{keyword.arg}={value}"


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from marshal import loads",
        "from cloudpickle import loads",
        "eval(text)",
        "yaml.load(text)",
        "yaml.load(text, Loader=yaml.Loader)",
        "yaml.unsafe_load(text)",
        "np.load(file, allow_pickle=True)",
        "run(command, shell=True)",
        "os.system('ls')",
        "session.client('s3', verify=False)",
        "tempfile.mktemp()",
        "import xml.etree.ElementTree as ET",
    ],
)
def test_what_is_looked_for_is_found(text: str) -> None:
    assert list(faults(ast.parse(text), "compactor/x.py"))


def test_the_sources_run_nothing_that_they_read() -> None:
    assert len(SOURCES) > 150
    found = {
        f"{path.relative_to(ROOT)}: {fault}"
        for path in SOURCES
        for fault in faults(ast.parse(path.read_text()), path.relative_to(ROOT).as_posix())
    }
    assert found == set()


def test_pickling_is_that_of_spark_only() -> None:
    """Functions and what they hold go from the driver to executors by Spark's own pickling; rows, staging and
    tables hold JSON, Arrow and fragments. Classes say how they are pickled (`__reduce__`): none unpickles."""
    for path in SOURCES:
        text = path.read_text()
        owners = {
            ast.unparse(node.func.value)
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("load", "loads", "Unpickler", "read_pickle", "deserialize")
        }
        # An installed package's entry point, as for any plugin; the keys of a merge's input; Spark's reader
        # of tables.
        assert owners <= {"json", "yaml", "entry_point", "self._open.keys", "spark_reader"}, path


@pytest.fixture
def umask() -> Iterator[None]:
    """One that lets nobody else write; it is of the whole process."""
    before = os.umask(0o027)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.usefixtures("umask")
def test_files_have_the_modes_that_the_umask_leaves(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "t")
    store.create("_log/a", b"x")
    with store.start_upload("data/b") as upload:
        upload.write(b"x")
        assert {mode(p) for p in (tmp_path / "t" / ".tmp").iterdir()} == {0o640}
        upload.complete()
    with open_table_sink(str(tmp_path / "o.csv"), pa.schema([("a", pa.int64())])):
        pass
    assert {mode(tmp_path / p) for p in ("t/_log/a", "t/data/b", "o.csv")} == {0o640}
    assert {mode(tmp_path / p) for p in ("t", "t/data", "t/.tmp")} == {0o750}


def test_what_is_spilled_has_no_name_and_is_for_nobody_else(tmp_path: Path) -> None:
    disk = LocalDisk(str(tmp_path))
    try:
        region = disk.allocate(10)
        disk.write(region, b"0123456789")
        assert disk.read(region) == b"0123456789"
        assert list(tmp_path.iterdir()) == []
        assert disk._file is not None
        status = os.fstat(disk._file)
        assert status.st_nlink == 0
        assert stat.S_IMODE(status.st_mode) == 0o600
    finally:
        disk.close()


def test_links_planted_in_a_spool_folder_are_not_followed(tmp_path: Path) -> None:
    """A folder that others can write to, as /tmp is: no name can be foreseen, and none is opened twice."""
    victim = tmp_path / "victim"
    victim.write_bytes(b"of somebody else")
    spool = tmp_path / "spool"
    spool.mkdir()
    done = threading.Event()

    def plant() -> None:
        for n in range(200):
            (spool / f"tmp{n:08}").symlink_to(victim)
        done.set()

    thread = threading.Thread(target=plant)
    thread.start()
    for _ in range(20):
        disk = LocalDisk(str(spool))
        disk.write(disk.allocate(5), b"xxxxx")
        disk.close()
    thread.join()
    assert done.is_set()
    assert victim.read_bytes() == b"of somebody else"

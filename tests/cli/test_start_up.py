"""What a command imports: one that imports every library takes a second to say a line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

from compactor import Table
from compactor.cli.commands import COMMANDS
from compactor.cli.main import cli, run

HEAVY: Final = {
    "boto3",
    "botocore",
    "duckdb",
    "matplotlib",
    "opentelemetry",
    "pandas",
    "plotly",
    "prometheus_client",
    "pyarrow.acero",
    "pyarrow.dataset",
    "pyspark",
    "sqlglot",
    "waitress",
    "yaml",
}
"""What neither help nor a look at a local table needs."""
_IMPORTED: Final = """
import sys
from compactor.cli.main import run
code = run(sys.argv[1:])
print(code, *sys.modules, file=sys.stderr)
"""


def imported_by(*arguments: str) -> set[str]:
    """Runs a command in a process of its own. Returns the names of the modules that it has imported."""
    done = subprocess.run(
        [sys.executable, "-c", _IMPORTED, *arguments], capture_output=True, text=True, check=True
    )
    code, *modules = done.stderr.split()
    assert code == "0"
    return set(modules)


def test_help_imports_no_command_and_no_library_of_one() -> None:
    modules = imported_by("--help")
    assert not modules & (HEAVY | {"numpy", "pyarrow", "pydantic", "rich.console", "msgspec"})
    assert not [name for name in modules if name.startswith(("compactor.table", "compactor.read"))]


def completed(words: str) -> tuple[str, set[str]]:
    """Completes the last of some words, as Bash asks for it. Returns the answer, and the imported modules."""
    program = "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr)); "
    program += "from compactor.cli.main import main; main([])"
    asked = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **asked, "_COMPACTOR_COMPLETE": "bash_complete"},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout, set(done.stderr.split())


def test_names_of_commands_are_completed_without_importing_one() -> None:
    answer, modules = completed("compactor ta")
    assert answer == "plain,tag\nplain,tags\n"
    assert "compactor.cli.commands" in modules
    assert not modules & (HEAVY | {"numpy", "pyarrow", "pydantic", "msgspec", "rich.console"})


def test_options_of_a_command_are_completed_without_reading_a_table() -> None:
    answer, modules = completed("compactor head ./missing --col")
    assert answer == "plain,--columns\n"
    assert not modules & HEAVY


def test_head_imports_what_reading_takes(tmp_path: Path) -> None:
    Table.create(str(tmp_path / "t"), pa.table({"k": [2, 1], "v": ["a", "b"]}), "k")
    modules = imported_by("head", str(tmp_path / "t"))
    assert "compactor.read.scan" in modules
    assert not modules & (HEAVY | {"rich.console", "importlib.metadata", "pyarrow.compute"})
    rooms = {name.split(".")[1] for name in modules if name.startswith("compactor.")}
    assert not rooms & {
        "entities",
        "pipelines",
        "report",
        "simulate",
        "spark",
        "telemetry",
        "write",
    }


def test_the_version_imports_neither_arrow_nor_the_log() -> None:
    modules = imported_by("--version")
    assert not modules & (HEAVY | {"numpy", "pyarrow", "pydantic", "msgspec"})


def test_a_look_at_a_table_imports_no_compute_functions(tmp_path: Path) -> None:
    Table.create(str(tmp_path / "t"), pa.table({"k": [2, 1], "v": ["a", "b"]}), "k")
    assert not imported_by("inspect", str(tmp_path / "t")) & (HEAVY | {"pyarrow.compute"})


def test_a_compaction_in_process_imports_what_merging_takes(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), pa.table({"k": [2, 1], "v": ["a", "b"]}), "k")
    table.append(pa.table({"k": [3, 1], "v": ["c", "d"]}))
    modules = imported_by(
        "compact", str(tmp_path / "t"), "--master", "in-process", "--strategy", "full"
    )
    assert "compactor.merge.column_phase" in modules
    unneeded = {"pyarrow.compute", "pyarrow.parquet", "rich.progress", "numpy.ma"}
    assert not modules & (HEAVY | unneeded)


def test_a_pipeline_in_process_imports_what_its_nodes_take(tmp_path: Path) -> None:
    (tmp_path / "in.ndjson").write_text('{"k": 1}\n')
    nodes = {
        "rows": {"source": {"path": str(tmp_path / "in.ndjson")}},
        "out": {"output": {"input": "rows", "path": str(tmp_path / "out.ndjson")}},
    }
    (tmp_path / "p.yaml").write_text(json.dumps({"nodes": nodes}))
    modules = imported_by("run", str(tmp_path / "p.yaml"))
    unneeded = {"pyarrow.parquet", "rich.console", "compactor.files.csv", "xml.sax", "numpy.ma"}
    assert not modules & (HEAVY - {"sqlglot", "yaml"} | unneeded)
    rooms = {name.split(".")[1] for name in modules if name.startswith("compactor.")}
    assert not rooms & {"api", "entities", "merge", "planner", "read", "rows", "table", "write"}
    assert not {f"compactor.pipelines.{name}" for name in ("aggregating", "sorting")} & modules


def test_ingest_imports_nothing_that_reads_or_compacts(tmp_path: Path) -> None:
    path = tmp_path / "x.ndjson"
    path.write_text('{"k": 1}\n')
    modules = imported_by("ingest", str(tmp_path / "t"), str(path), "--sort-by", "k")
    assert "compactor.write.ingest.files" in modules
    other_files = {"compactor.files.columnar", "compactor.files.csv", "pyarrow.parquet"}
    of_readers = {"compactor.read.scan", "compactor.compaction.driver"}
    assert not modules & (HEAVY | other_files | of_readers | {"rich.console"})
    rooms = {name.split(".")[1] for name in modules if name.startswith("compactor.")}
    assert not rooms & {"api", "entities", "merge", "pipelines", "report", "simulate", "spark"}


@pytest.mark.parametrize("is_on", [True, False])
def test_modules_of_a_command_are_not_looked_at_for_garbage(is_on: bool) -> None:
    program = f"""
import gc, json
from compactor.cli.frugal import frugal_imports
{"" if is_on else "gc.disable()"}
with frugal_imports():
    before = [each["collections"] for each in gc.get_stats()]
    import compactor.cli.write
    after = [each["collections"] for each in gc.get_stats()]
print(json.dumps([before == after, gc.isenabled(), gc.get_freeze_count() > 10_000]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert json.loads(done.stdout) == [True, is_on, True]


def test_data_frames_are_there_when_asked_for_and_idle_threads_are_not() -> None:
    program = """
import json, os
from compactor.cli.main import cli
cli.commands["head"]
import pyarrow as pa
frame = pa.table({"a": [1, None]}).to_pandas()
back = pa.Table.from_pandas(frame)
print(json.dumps([str(type(frame)), back["a"].null_count, os.environ.get("OPENBLAS_NUM_THREADS")]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    kind, nulls, threads = json.loads(done.stdout)
    assert "DataFrame" in kind and nulls == 1 and threads == "1"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_of_the_list_is_there(name: str) -> None:
    command = cli.commands[name]
    assert command.name == name
    assert len(f"  {max(COMMANDS, key=len)}  {COMMANDS[name].summary}") <= 78


def test_without_a_command_the_list_of_commands_is_shown_in_lines(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run([]) == 2
    shown = capsys.readouterr().err
    assert "\\n" not in shown
    assert "\n  compact " in shown


def test_compute_functions_work_without_signatures_and_nothing_else_loses_its_own() -> None:
    program = """
import inspect, json, textwrap
from compactor.cli.frugal import import_functions
own = [inspect.signature, inspect.Signature, textwrap.dedent]
import_functions()
import pyarrow as pa, pyarrow.compute as pc
counted = pc.count(pa.array([1, None]), mode="only_null").as_py()
print(json.dumps([own == [inspect.signature, inspect.Signature, textwrap.dedent], counted]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert json.loads(done.stdout) == [True, 1]

"""Many threads read a log: msgspec looks at types when modules are imported, not when they first convert."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import compactor
from compactor.table import stored
from compactor.table.stored import Converted, Keyed
from compactor.table.version import Lease, Quarantine

_FOLDER = Path(compactor.__file__).parent


def converted_types() -> set[str]:
    """Returns the names of the project's types that JSON values are converted to, as the code has them."""
    names: set[str] = set()
    for path in _FOLDER.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "msgspec.convert":
                names |= {n.id for n in ast.walk(node.args[1]) if isinstance(n, ast.Name)}
    # Values are booleans, numbers and texts, which have no class of ours.
    return {name for name in names if name[0].isupper()} - {"None", "Value"}


def test_every_type_that_values_are_converted_to_is_looked_at_by_the_thread_that_imports_it() -> (
    None
):
    assert {"CompactionRecord", "Ttl", "TimeWindows"} <= converted_types()
    text = "".join(path.read_text() for path in _FOLDER.rglob("*.py"))
    for name in converted_types():
        assert any(
            f"@convertible\n{kind}class {name}(" in text
            or f"@convertible\n{kind}class {name}:" in text
            for kind in ("", "@dataclass(frozen=True, slots=True)\n")
        ), name


def test_a_form_looks_at_its_type_when_it_is_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []
    monkeypatch.setattr(stored, "convertible", seen.append)
    Converted(tuple[Lease, ...])
    Keyed(Quarantine, "key")
    assert seen == [tuple[Lease, ...], list[Quarantine]]


_RACE = """
import sys, threading
sys.setswitchinterval(1e-6)
import msgspec
from compactor.table.version import Lease, Quarantine

values = [
    (
        Lease,
        dict(
            compaction_id="a",
            owner="o",
            inputs=["x"],
            output_level=1,
            expires_unix_ms=1,
            began_unix_ms=1,
        ),
    ),
    (Quarantine, dict(key="k", reason="r", since_unix_ms=1)),
]
barrier = threading.Barrier(16)

def convert():
    barrier.wait()
    for kind, value in values:
        msgspec.convert(value, kind)

threads = [threading.Thread(target=convert) for _ in range(16)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


@pytest.mark.timeout(120)
def test_first_conversions_in_many_threads_do_not_end_the_process() -> None:
    for _ in range(5):
        subprocess.run([sys.executable, "-c", _RACE], check=True, cwd=_FOLDER.parent)

"""What is built is what is needed: an sdist that builds, a wheel that works away from the sources."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path, PurePath
from typing import Final

import pytest
from msgspec import Struct

import lsm_fragment

pytestmark = [pytest.mark.program, pytest.mark.timeout(1800)]

ROOT: Final = Path(__file__).parents[2]
NEEDED: Final = {
    "compactor/py.typed",
    "lsm_fragment/py.typed",
    "lsm_fragment/SPEC.md",
    "compactor/spark/conf/log4j2.properties",
    "compactor/__main__.py",
}
_TIMEOUT_SECONDS: Final = 1500


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """stdout and stderr; the command must do well."""
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "MYPYPATH")}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=clean | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout


def build(sources: Path, out: Path, *arguments: str, **environment: str) -> str:
    """By what is installed here: building in isolation would fetch the same from a package index."""
    start = (sys.executable, "-m", "build", "--no-isolation", "--outdir", out)
    return run(*start, *arguments, sources, cwd=out.parent, **environment)


class Built(Struct, frozen=True):
    sdist: Path
    wheel: Path

    @property
    def wheel_names(self) -> set[str]:
        with zipfile.ZipFile(self.wheel) as archive:
            return set(archive.namelist())


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Of a copy of the sources as a clone has them: nothing compiled. The wheel is made from the sdist."""
    folder = tmp_path_factory.mktemp("built")
    copy, out = folder / "copy", folder / "dist"
    ignored = shutil.ignore_patterns("__pycache__", "*.so", "*.c", "*.egg-info")
    for name in ("compactor", "format", "bench", "examples", "deploy", "tests/support"):
        shutil.copytree(ROOT / name, copy / name, ignore=ignored)
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "CHANGELOG.md"):
        shutil.copy(ROOT / name, copy)
    build(copy, out)
    (sdist,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    return Built(sdist, wheel)


@pytest.fixture(scope="module")
def python(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a fresh environment with the wheel; its dependencies are those of this one."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    interpreter = folder / "bin/python"
    run(
        sys.executable, "-m", "pip", "--python", interpreter, "install", "--quiet", "--no-deps",
        "--no-index", "--disable-pip-version-check", built.wheel, cwd=folder,
    )  # fmt: skip
    (packages,) = folder.glob("lib/python*/site-packages")
    # After its own packages, and so that an editable install of this project there is not followed.
    (packages / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return interpreter


def test_the_sdist_and_the_wheel_have_what_is_needed_and_nothing_else(built: Built) -> None:
    version = lsm_fragment.__version__
    assert built.sdist.name == f"lsm_compactor-{version}.tar.gz"
    names = built.wheel_names
    assert names >= NEEDED
    native = (ROOT / "format/lsm_fragment/native").rglob("*.pyx")
    modules = {"_cython", *(path.stem for path in native)}
    compiled = {PurePath(name).name.partition(".")[0] for name in names if name.endswith(".so")}
    assert compiled == modules
    tops = {name.partition("/")[0] for name in names}
    assert tops == {"compactor", "lsm_fragment", f"lsm_compactor-{version}.dist-info"}
    assert {f"{p.relative_to(ROOT)}" for p in (ROOT / "compactor").rglob("*.py")} <= names
    with tarfile.open(built.sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert not [name for name in inside if name.endswith((".c", ".so"))]
    loops = ROOT / "format/lsm_fragment/native"
    sources = [
        path for ending in ("py", "pyi", "pyx", "pxd") for path in loops.rglob(f"*.{ending}")
    ]
    for path in (*sources, ROOT / "setup.py"):
        assert path.relative_to(ROOT).as_posix() in inside
    in_sdist = {name.replace("lsm_fragment/", "format/lsm_fragment/") for name in NEEDED}
    in_sdist -= {"format/lsm_fragment/SPEC.md"}
    assert {*in_sdist, "format/SPEC.md", "pyproject.toml", "README.md"} <= inside
    assert not any(name.startswith(("bench", "deploy", "examples")) for name in inside)
    assert not any(name.endswith((".so", ".pyc")) for name in inside)


def test_the_wheel_works_away_from_the_sources(python: Path, tmp_path: Path) -> None:
    place = "import compactor, lsm_fragment.native.arrays.strings as c; print(compactor.__file__, c.__file__)"
    for file in run(python, "-c", place, cwd=tmp_path).split():
        assert Path(file).is_relative_to(python.parents[1])
    compactor = python.with_name("compactor")
    said = run(compactor, "--version", cwd=tmp_path)
    assert said.startswith(f"compactor {lsm_fragment.__version__} (")
    assert run(python, "-m", "compactor", "--version", cwd=tmp_path) == said
    for number in (2, 1):
        (tmp_path / f"{number}.ndjson").write_text(f'{{"id": {number}, "text": "row {number}"}}\n')
        run(compactor, "ingest", "t", f"{number}.ndjson", "--sort-by", "id", cwd=tmp_path)
    run(compactor, "compact", "t", "--strategy", "full", "--master", "in-process", cwd=tmp_path)
    run(compactor, "export", "t", "out.ndjson", cwd=tmp_path)
    rows = (tmp_path / "out.ndjson").read_text()
    assert rows == '{"id":1,"text":"row 1"}\n{"id":2,"text":"row 2"}\n'


def test_a_user_may_have_a_format_module_beside_a_script(python: Path, tmp_path: Path) -> None:
    (tmp_path / "format.py").write_text("def format(text: str) -> str:\n    return text\n")
    script = tmp_path / "script.py"
    script.write_text(
        "from compactor import Table\nimport format\nprint(Table.__name__, format.__file__)\n"
    )
    assert run(python, script, cwd=tmp_path).split() == ["Table", f"{tmp_path / 'format.py'}"]


def test_from_the_root_of_a_clone_that_is_not_compiled_the_installed_package_is_found(
    python: Path, tmp_path: Path
) -> None:
    ignored = shutil.ignore_patterns("__pycache__", "*.so", "*.c")
    for name in ("compactor", "format", "deploy"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
    code = "from compactor import Table; import lsm_fragment; print(lsm_fragment.__file__)"
    assert Path(run(python, "-c", code, cwd=tmp_path).strip()).is_relative_to(python.parents[1])
    run(python, "-m", "deploy.kubernetes.resources", "--help", cwd=tmp_path)


def test_without_a_compiler_the_build_fails_and_says_what_it_needs(
    built: Built, tmp_path: Path
) -> None:
    with tarfile.open(built.sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (sources,) = (path for path in tmp_path.iterdir() if path.is_dir())
    command = (sys.executable, "-m", "build", "--no-isolation", "--wheel", sources)
    done = subprocess.run(
        command,
        env=os.environ | {"CC": "no-such-compiler"},
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode != 0
    said = done.stdout + done.stderr
    assert "could not be compiled" in said and "The build needs a C compiler" in said, said[-4000:]


def test_a_program_of_a_user_type_checks_strictly_against_the_wheel(
    python: Path, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(Path(__file__).with_name("user_program.py.txt").read_text())
    said = run(
        sys.executable, "-m", "mypy", "--strict",
        "--python-executable", python, "--cache-dir", tmp_path / "cache", program, cwd=tmp_path,
    )  # fmt: skip
    assert "Success: no issues found" in said, said

"""The lock files and pyproject.toml say the same; what is tested is what is shipped."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT: Final = Path(__file__).parents[2]
LOCKS: Final = ROOT / "deploy/lock"
PYPROJECT: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT: Final = PYPROJECT["project"]
RENEW: Final = "run make lock"

_PIN: Final = re.compile(r"([A-Za-z0-9._-]+)==([^\s;]+)(.*)")
_VIA_PROJECT: Final = re.compile(
    r"#.*(?:lsm-compactor \(pyproject\.toml\)|-r deploy/lock/(?:build|demo)\.in)"
)


def extras(*names: str) -> list[Requirement]:
    """Of the project with these extras, those of extras within them among them."""
    found = [Requirement(text) for text in PROJECT["dependencies"]]
    for name in names:
        for text in PROJECT["optional-dependencies"][name]:
            requirement = Requirement(text)
            own = canonicalize_name(requirement.name) == PROJECT["name"]
            found += extras(*requirement.extras) if own else [requirement]
    return found


WANTED: Final = {
    "dev": extras("dev"),
    "build": [Requirement(text) for text in PYPROJECT["build-system"]["requires"]],
    "image": extras("s3", "spark", "worker", "pipelines", "gcs", "azure"),
    "peers": extras("peers"),
    "demo": [
        *extras("s3"),
        *map(Requirement, re.findall(r"^[^#\n].*", (LOCKS / "demo.in").read_text(), re.MULTILINE)),
    ],
}


def pins(text: str) -> dict[str, tuple[str, str]]:
    """Version and what else is said of a package, by its name."""
    joined = text.replace("\\\n", " ")
    found = [_PIN.match(line) for line in joined.splitlines()]
    return {canonicalize_name(m[1]): (m[2], m[3]) for m in found if m}


def locked(name: str) -> dict[str, tuple[str, str]]:
    return pins((LOCKS / f"{name}.lock").read_text())


def asked_for(name: str) -> set[str]:
    """Packages that the lock file says the project itself asks for."""
    found, package = set(), ""
    for line in (LOCKS / f"{name}.lock").read_text().splitlines():
        if match := _PIN.match(line):
            package = canonicalize_name(match[1])
        elif _VIA_PROJECT.search(line):
            found.add(package)
    return found


@pytest.mark.parametrize("lock", WANTED)
def test_a_lock_has_what_the_project_asks_for_and_asks_for_nothing_else(lock: str) -> None:
    versions = locked(lock)
    for requirement in WANTED[lock]:
        name = canonicalize_name(requirement.name)
        assert name in versions, f"{name} is not in {lock}.lock: {RENEW}"
        assert versions[name][0] in requirement.specifier, f"{requirement}: {RENEW}"
    wanted = {canonicalize_name(requirement.name) for requirement in WANTED[lock]}
    assert asked_for(lock) == wanted, RENEW


@pytest.mark.parametrize("lock", [*WANTED, "compiler"])
def test_every_file_of_a_lock_has_a_hash(lock: str) -> None:
    for name, (_, rest) in locked(lock).items():
        assert "--hash=sha256:" in rest, f"{lock}.lock: {name}"
    assert not re.search(r"^(?!#)\S.*(?<!\\)$", (LOCKS / f"{lock}.lock").read_text(), re.MULTILINE)


@pytest.mark.parametrize("lock", ["build", "demo", "image", "peers"])
def test_what_is_tested_is_what_is_shipped_and_measured(lock: str) -> None:
    tested = locked("dev")
    for name, (version, _) in locked(lock).items():
        assert tested.get(name, (version, ""))[0] == version, f"{lock}.lock: {name}: {RENEW}"


def test_the_image_has_no_package_that_only_developers_need() -> None:
    assert not {"pytest", "moto", "mypy", "ruff", "polars"} & set(locked("image"))


def test_all_that_the_image_has_is_audited() -> None:
    assert set(locked("image")) <= set(locked("dev"))


@pytest.mark.parametrize("lock", ["dev", "build", "compiler", "demo"])
def test_a_lock_is_for_every_python_that_the_project_supports(lock: str) -> None:
    assert PROJECT["requires-python"] == ">=3.11"
    command = (LOCKS / "lock.sh").read_text()
    assert "--python-version 3.11" in command
    assert re.search(rf"^lock {lock} --universal ", command, re.MULTILINE)
    for name, (_, rest) in locked(lock).items():
        assert "python_version" not in rest.partition("--hash")[0], f"{name}: not for all of them"


def test_setup_and_image_install_nothing_without_a_hash() -> None:
    setup = (ROOT / "deploy/setup/python.sh").read_text()
    for lock in ("build", "compiler"):
        assert f"install --require-hashes -r deploy/lock/{lock}.lock" in setup
    assert 'install --require-hashes -r "deploy/lock/$set.lock"' in setup
    for lock in ("build", "demo", "dev"):
        assert f'"deploy/lock/{lock}.lock"' in setup, "a changed lock is installed"
    dockerfile = (ROOT / "deploy/docker/Dockerfile").read_text()
    steps = re.split(r"\n|&&", dockerfile.replace("\\\n", " "))
    commands = [step for step in steps if re.search(r"/pip (install|wheel) ", step)]
    assert len(commands) == 5
    for command in commands:
        is_from_here = "--no-index" in command or "--wheel-dir /tmp/wheels . " in command
        assert is_from_here or "--require-hashes -r deploy/lock/" in command, command

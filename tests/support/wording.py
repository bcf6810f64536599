"""Holds what errors say: `tests/wording/` has one file for each front, which `make wording` writes.

`with refuses(UsageError, "'kk'"): ...` asserts the type of the error, that its message names 'kk', and that
it is the next message that the file has for this test. What varies from run to run is written as `<tmp>`,
`<bucket>` and the like, and what is quoted from an error of Arrow as `<ArrowInvalid>`. A message that repeats
the one before is written once.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import linecache
import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TypeVar

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests" / "wording"
COMMAND = "make wording"

# The front of each folder of tests; every other folder tests what Python callers meet.
FRONTS = {
    "cli": "command line", "deploy": "command line", "report": "command line",
    "simulate": "command line", "telemetry": "command line",
    "entities": "entities", "files": "files", "format": "format", "fuzz": "format",
    "pipelines": "pipelines", "spark": "spark", "stores": "stores",
}  # fmt: skip

Tests = dict[str, list[str]]
"""What each test heard, by its node id: messages as they stand in the file, in the order of the test."""

E = TypeVar("E", bound=BaseException)


@contextmanager
def refuses(
    error: type[E] | tuple[type[E], ...], *names: object
) -> Iterator[pytest.ExceptionInfo[E]]:
    """Asserts that the block raises an error of this type, which names `names` and has the known wording."""
    __tracebackhide__ = True
    with pytest.raises(error) as caught:
        yield caught
    public = next(c for c in caught.type.__mro__ if not c.__name__.startswith("_"))
    text = str(caught.value)
    for name in names:
        assert str(name) in text, f"{text!r} does not name {name!r}"
    says(f"{public.__name__}: {_without_words_of_others(caught.value)}")


def says(text: str) -> None:
    """Asserts that a message has the known wording."""
    __tracebackhide__ = True
    assert _current is not None, "wording is compared in the process of the test"
    _current.says(text)


class _Test:
    """The test that runs: what it is known to say, and what it has said so far."""

    def __init__(self, node_id: str, base: Path, writes: bool) -> None:
        self.name = _short(node_id)
        self.heard: list[str] = []
        self._base = base
        self._writes = writes
        self._place = 0

    def says(self, text: str) -> None:
        __tracebackhide__ = True
        message = _without_what_varies(text, self._base)
        if self.heard and message == self.heard[-1]:
            return
        self.heard.append(message)
        if self._writes:
            return
        front = _front(self.name)
        known = _read(front).get(self.name, [])
        # Parts of a test may not run on some platform, so messages may be skipped.
        if message not in known[self._place :]:
            expected = known[self._place] if self._place < len(known) else "nothing more"
            pytest.fail(
                f"the wording is not that of {_path(front).relative_to(ROOT)}\n"
                f"  said:     {message}\n  expected: {expected}\n"
                f"If the new wording is better, run `{COMMAND} TESTS={self.name.split('::')[0]}` "
                "and review the difference."
            )
        self._place = known.index(message, self._place) + 1


_current: _Test | None = None


class Wording:
    """The plugin of pytest: knows which test runs, and writes the files when it is asked to."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._writes = bool(config.getoption("--write-wording"))
        self._heard: Tests = {}
        self._collected: set[str] = set()
        if self._writes and getattr(config.option, "numprocesses", None):
            raise pytest.UsageError("--write-wording writes from one process: leave -n out")

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        self._collected = {_short(item.nodeid) for item in items}
        if self._writes and self._config.args_source is pytest.Config.ArgsSource.TESTPATHS:
            # Without arguments only those are asked again that have said something before.
            known = {name.partition("[")[0] for front in _fronts() for name in _read(front)}
            items[:] = [item for item in items if item.nodeid.partition("[")[0] in known]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        global _current
        base = item.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        _current = _Test(item.nodeid, base, self._writes)
        return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed and _current is not None:
            self._heard[_short(report.nodeid)] = _current.heard

    def pytest_sessionfinish(self) -> None:
        if not self._writes:
            return
        whole_files = not any("::" in str(argument) for argument in self._config.args)
        for front in _fronts():
            known = _read(front)
            kept = {name: said for name, said in known.items() if self._exists(name, whole_files)}
            new = {name: said for name, said in self._heard.items() if _front(name) == front}
            _write(front, kept | new)

    def _exists(self, node_id: str, whole_files: bool) -> bool:
        file = node_id.split("::")[0]
        collected = {name.split("::")[0] for name in self._collected}
        if whole_files and file in collected:
            return node_id in self._collected
        return (ROOT / file).exists()


def _short(node_id: str) -> str:
    """Returns a node id whose parameters are no longer than a line."""
    test, bracket, parameters = node_id.partition("[")
    if len(parameters) > 100:
        digest = hashlib.sha256(parameters.encode()).hexdigest()[:8]
        parameters = f"{parameters[:80]} {digest}]"
    return test + bracket + parameters


def _fronts() -> list[str]:
    return sorted({"python", *FRONTS.values()})


def _front(node_id: str) -> str:
    return FRONTS.get(node_id.split("/")[1], "python")


def _path(front: str) -> Path:
    return FOLDER / f"{front.replace(' ', '_')}.txt"


def _without_what_varies(text: str, base: Path) -> str:
    """Returns a message in the form that the files have, without what differs from run to run."""
    today = dt.datetime.now(dt.UTC).date()
    # An hour ago may have been yesterday.
    near = "|".join(str(today + dt.timedelta(days)) for days in (-1, 0, 1))
    for pattern, name in (
        (rf"(?:/private)?{re.escape(str(base))}/[^/\s'\",:;]+", "<tmp>"),
        (re.escape(str(ROOT)), "<root>"),
        (r"(?:127\.0\.0\.1|localhost|\[::1\]):\d+", "<server>"),
        (r"(?<=port )\d{4,5}\b", "<port>"),
        (r"\bbucket-\d+", "<bucket>"),
        (
            r"\b[0-9a-f]{32}(?:-[0-9a-f]{8})?\b|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b",
            "<id>",
        ),
        (r"\b0x[0-9a-f]{6,}", "<address>"),
        (rf"\b(?:{near})[T ][\d:.]+(?:Z|\+00:00)?", "<now>"),
    ):
        text = re.sub(pattern, name, text)
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text.rstrip("\n"))


def _without_words_of_others(error: BaseException) -> str:
    """Returns the message of an error, with the type for what it quotes from errors that others raised."""
    text = str(error)
    seen = {id(error)}
    cause = error.__cause__ or error.__context__
    while cause is not None and id(cause) not in seen:
        if _is_of_others(cause):
            words = [str(cause), *str(cause).splitlines(), getattr(cause, "strerror", None) or ""]
            quotable = {word.rstrip(".") for word in words if " " in word}
            for quoted in sorted(quotable, key=len, reverse=True):
                text = text.replace(quoted, f"<{type(cause).__name__}>")
        seen.add(id(cause))
        cause = cause.__cause__ or cause.__context__
    return text


def _is_of_others(error: BaseException) -> bool:
    """Returns whether the words of an error are not chosen where this repository raises it."""
    frames = list(traceback.walk_tb(error.__traceback__))
    if not frames or (isinstance(error, OSError) and error.errno):
        return True
    frame, line = frames[-1]
    file = ROOT / frame.f_code.co_filename  # compiled modules have names that are relative to it
    is_ours = any(file.is_relative_to(ROOT / room) for room in ("compactor", "format", "tests"))
    return not (is_ours and linecache.getline(str(file), line).lstrip().startswith("raise "))


@cache
def _read(front: str) -> Tests:
    tests: Tests = {}
    said: list[str] = []
    file = ""
    path = _path(front)
    for line in path.read_text().splitlines() if path.exists() else ():
        if line.startswith("    "):
            said.append(line[4:])
        elif line.startswith("  "):
            said = [] if said else said
            tests[f"{file}::{line[2:]}"] = said
        elif line:
            file = line
    return tests


def _write(front: str, tests: Tests) -> None:
    """Writes tests in the order of their names; those that say the same stand above it together."""
    lines: list[str] = []
    spoken = sorted(name.split("::", 1) for name in tests if tests[name])
    for file, named in groupby(spoken, key=itemgetter(0)):
        lines += ["", file] if lines else [file]
        for said, group in groupby(named, key=lambda name: tests["::".join(name)]):
            lines += [f"  {test}" for _, test in group]
            lines += [f"    {message}" for message in said]
    path = _path(front)
    path.unlink(missing_ok=True)
    if lines:
        FOLDER.mkdir(exist_ok=True)
        path.write_text("\n".join(lines) + "\n")

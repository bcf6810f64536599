"""Cases in worker processes: one that dies, hangs or raises is a finding, and a new process replaces it."""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import importlib
import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import IO, Any

from msgspec import Struct, field

Check = Callable[[int], "str | None"]
"""Takes a seed; returns what is wrong, or None. Must be a function of a module, found there by its name."""

MAX_FINDING_CHARACTERS = 4_000
MAX_WORKER_BYTES = 6 << 30
"""Memory that a worker may ask for, so that a runaway case is a finding and not the end of the machine."""

_counts: Counter[str] = Counter()


def count(name: str, by: int = 1) -> None:
    """Adds to a figure of the run, from within a case; the sums are in `Progress.counts`."""
    _counts[name] += by


class Finding(Struct, frozen=True):
    """One seed and what is wrong with it."""

    seed: int
    text: str


class Progress(Struct):
    """How far a run is."""

    done: int = 0
    findings: list[Finding] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0


class Shown:
    """Prints findings as they come, and how far the run is every twenty seconds."""

    def __init__(self, summary: Callable[[Progress], str], again: Callable[[int], str]) -> None:
        """Takes what to say of a run, and the command that tries a seed again."""
        self._summary, self._again = summary, again
        self._at, self._shown = 0.0, 0
        self.progress = Progress()

    def __call__(self, progress: Progress) -> None:
        self.progress = progress
        for finding in progress.findings[self._shown :]:
            print(f"FOUND {self._again(finding.seed)}\n{finding.text}", flush=True)
        self._shown = len(progress.findings)
        if progress.seconds - self._at > 20:
            self._at = progress.seconds
            print(self.summary(), flush=True)

    def summary(self) -> str:
        """Returns what there is to say of the run so far."""
        return self._summary(self.progress)


def run(
    check: Check,
    seeds: Iterable[int],
    *,
    processes: int,
    timeout_s: float,
    on_progress: Callable[[Progress], None] = lambda _progress: None,
    start_method: str = "forkserver",
) -> list[Finding]:
    """Returns the findings of all seeds, in the order in which they were made.

    on_progress: called in this process after every case, and so should be quick. start_method: "fork" for
    workers that have what this process has changed, such as a module that a test has patched.
    """
    began = time.monotonic()
    module, name = _address(check)
    context = multiprocessing.get_context(start_method)
    if start_method == "forkserver":
        context.set_forkserver_preload([module])
    progress = Progress()
    todo = iter(seeds)
    with contextlib.ExitStack() as stack:
        idle = [
            stack.enter_context(contextlib.closing(_Worker(context, module, name)))
            for _ in range(processes)
        ]
        busy: list[_Worker] = []
        while True:
            while idle and (seed := next(todo, None)) is not None:
                worker = idle.pop()
                worker.start(seed)
                busy.append(worker)
            if not busy:
                return progress.findings
            for worker in _finished(busy, timeout_s):
                finding = worker.finish(progress.counts, timeout_s)
                busy.remove(worker)
                idle.append(worker)
                progress.done += 1
                progress.seconds = time.monotonic() - began
                if finding is not None:
                    progress.findings.append(finding)
                on_progress(progress)


def _finished(busy: list[_Worker], timeout_s: float) -> Iterator[_Worker]:
    """Yields workers that have answered, died or hung for too long; waits for the first."""
    left_s = min(worker.began for worker in busy) + timeout_s - time.monotonic()
    answered = set(wait([worker.pipe for worker in busy], max(0.0, left_s)))
    now = time.monotonic()
    for worker in list(busy):
        if worker.pipe in answered or now - worker.began >= timeout_s:
            yield worker


class _Worker:
    """One process that takes a seed at a time; a new process after each that was lost."""

    def __init__(self, context: Any, module: str, name: str) -> None:
        self._context, self._module, self._name = context, module, name
        self._seed = 0
        self.began = 0.0
        self._launch()

    def start(self, seed: int) -> None:
        """Hands over a seed, so that this process knows of it whatever becomes of the worker."""
        self._seed, self.began = seed, time.monotonic()
        try:
            self.pipe.send(seed)
        except OSError:  # it ended between two cases
            self._end()
            self._launch()
            self.pipe.send(seed)

    def finish(self, counts: Counter[str], timeout_s: float) -> Finding | None:
        """Returns what came of the seed; replaces the process where that is lost."""
        if self.pipe.poll():
            with contextlib.suppress(EOFError, OSError):
                text, case_counts = self.pipe.recv()
                counts.update(case_counts)
                return None if text is None else Finding(self._seed, _shortened(text))
            cause = "the process died"
        else:
            # The handler of this signal writes where Python is.
            cause = f"no answer within {timeout_s:g} s"
            with contextlib.suppress(OSError):
                os.kill(self._process.pid or 0, signal.SIGABRT)
        self._process.join(5)
        code = self._process.exitcode
        if cause == "the process died" and code is not None and code < 0:
            cause += f" of {signal.Signals(-code).name}"
        elif cause == "the process died":
            cause += f" with exit code {code}"
        said = Path(self._errors.name).read_text(encoding="utf-8", errors="replace")
        self._end()
        self._launch()
        return Finding(self._seed, _shortened(f"{cause}\n{said}".rstrip()))

    def close(self) -> None:
        """Ends the process."""
        self._end()

    def _launch(self) -> None:
        self._errors: IO[bytes] = tempfile.NamedTemporaryFile(prefix="generated-")  # noqa: SIM115
        self.pipe, theirs = self._context.Pipe()
        self._process = self._context.Process(
            target=_work, args=(theirs, self._module, self._name, self._errors.name), daemon=True
        )
        self._process.start()
        theirs.close()

    def _end(self) -> None:
        self._process.kill()
        self._process.join()
        self.pipe.close()
        self._errors.close()


def _work(pipe: Connection, module: str, name: str, errors: str) -> None:
    """Runs in a worker: answers each seed with what is wrong and what was counted."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (MAX_WORKER_BYTES, MAX_WORKER_BYTES))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # What Arrow says before it aborts comes here, and where Python was at that time.
    written = os.open(errors, os.O_WRONLY | os.O_APPEND)
    os.dup2(written, 2)
    faulthandler.enable(2, all_threads=False)
    check: Check = getattr(importlib.import_module(module), name)
    while True:
        try:
            seed = pipe.recv()
        except EOFError:
            return
        os.ftruncate(written, 0)
        _counts.clear()
        try:
            text = check(seed)
        except BaseException as error:  # noqa: BLE001
            text = "".join(traceback.format_exception(error))
        pipe.send((text, dict(_counts)))


def _address(check: Check) -> tuple[str, str]:
    """Returns the module and the name of a function; those of a program's main module by its real name."""
    module = check.__module__
    spec = getattr(sys.modules[module], "__spec__", None)
    return spec.name if module == "__main__" and spec is not None else module, check.__qualname__


def _shortened(text: str) -> str:
    """Returns the beginning and the end of a long text."""
    half = MAX_FINDING_CHARACTERS // 2
    return text if len(text) <= 2 * half else f"{text[:half]}\n...\n{text[-half:]}"


def main(check: Check, what: str, module: str, timeout_s: float, *, noun: str = "tables") -> int:
    """Runs cases by their seeds, or one of them, as the command line says; returns the exit code.

    noun: what the cases are called.
    """
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, help="this one only")
    options = parser.parse_args()
    if options.seed is not None:
        fault = check(options.seed)
        print(fault or "nothing found")
        return 1 if fault else 0
    shown = Shown(
        lambda progress: f"{progress.done:,} of {options.count:,} {noun}",
        lambda seed: f"python -m {module} --seed {seed}",
    )
    seeds = range(options.start, options.start + options.count)
    findings = run(
        check, seeds, processes=options.processes, timeout_s=timeout_s, on_progress=shown
    )
    counts = "".join(f", {name}: {n:,}" for name, n in sorted(shown.progress.counts.items()))
    print(f"{options.count:,} {noun}, {len(findings)} findings{counts}")
    return 1 if findings else 0

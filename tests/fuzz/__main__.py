"""Many inputs: `python -m tests.fuzz --inputs 100000 --seed 1 [--seconds 600]`; one: `--seed 1 --input 77`.

A child process reads them, with a limit on its address space, and dies in place of this one. What is found
is printed with the command that makes it again. A finding is: an error that is not one of the project's, rows
that must not be, a crash, more than `--cpu-seconds` for one input, or more than `--memory-mib` for one.
"""

from __future__ import annotations

import argparse
import logging
import mmap
import os
import resource
import signal
import struct
import sys
import time
import traceback

import pyarrow as pa

from tests.fuzz.seeds import fragments, tables
from tests.fuzz.targets import one

_WARM_UP_INPUTS = 300


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--input", type=int)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--cpu-seconds", type=float, default=5)
    parser.add_argument("--memory-mib", type=int, default=512)
    options = parser.parse_args()
    logging.getLogger("compactor").setLevel(logging.CRITICAL)
    # The search holds all rows that a forged fragment has.
    os.environ.setdefault("COMPACTOR_MAX_CHUNK_BYTES", str(16 << 20))
    if options.input is not None:
        one(options.seed, options.input)
        print("nothing found")
        return 0
    return Search(options).run()


class Search:
    """Inputs one after the other in a child, and in another one where that died."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._place = mmap.mmap(-1, 16)
        self._began = time.monotonic()
        self._findings = 0

    def run(self) -> int:
        fragments(), tables()
        stop = self._options.first + self._options.inputs
        at = self._options.first
        while at < stop and not self._is_over():
            self._note(at, 0)
            child = os.fork()
            if child == 0:
                self._read(at, stop)
            _, status = os.waitpid(child, 0)
            number, findings = struct.unpack("<QQ", self._place[:])
            self._findings += findings
            at = number + 1
            if status == 0:
                at = number
                continue
            if os.WIFSIGNALED(status):
                self._findings += 1
                name = signal.Signals(os.WTERMSIG(status)).name
                self._say(number, f"the process died of {name}")
        seconds = time.monotonic() - self._began
        tried = at - self._options.first
        print(
            f"{tried:,} inputs of seed {self._options.seed}: {self._findings} findings, {seconds:.0f} s"
        )
        return 1 if self._findings else 0

    def _read(self, start: int, stop: int) -> None:
        """In the child: inputs until there is a finding that memory does not get over."""
        # The CPU's time, since other processes may have the machine.
        signal.signal(signal.SIGPROF, _too_slow)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        findings, limit_bytes = 0, self._options.memory_mib << 20
        for number in range(start, stop):
            if number == start + _WARM_UP_INPUTS:
                limit_bytes += _peak_bytes()
                space = _address_bytes() + (self._options.memory_mib << 21)
                resource.setrlimit(resource.RLIMIT_AS, (space, space))
            self._note(number, findings)
            signal.setitimer(signal.ITIMER_PROF, self._options.cpu_seconds)
            try:
                one(self._options.seed, number)
            except BaseException as error:  # noqa: BLE001
                signal.setitimer(signal.ITIMER_PROF, 0)
                findings += 1
                self._say(number, "".join(traceback.format_exception(error)[-8:]))
            signal.setitimer(signal.ITIMER_PROF, 0)
            if number > start + _WARM_UP_INPUTS and _peak_bytes() > limit_bytes:
                self._say(number, f"{_peak_bytes() >> 20} MiB held at the peak")
                self._note(number, findings + 1)
                os._exit(1)
            if self._is_over():
                self._note(number + 1, findings)
                os._exit(0)
            if number % 10_000 == 9_999:
                rate = (number + 1 - self._options.first) / (time.monotonic() - self._began)
                print(f"{number + 1:,} inputs, {rate:.0f}/s", flush=True)
        self._note(stop, findings)
        os._exit(0)

    def _note(self, number: int, findings: int) -> None:
        self._place[:] = struct.pack("<QQ", number, findings)

    def _is_over(self) -> bool:
        return bool(time.monotonic() - self._began > self._options.seconds)

    def _say(self, number: int, cause: str) -> None:
        again = f"python -m tests.fuzz --seed {self._options.seed} --input {number}"
        print(f"FOUND {cause.rstrip()}\n  {again}", flush=True)


def _too_slow(_signal: int, _frame: object) -> None:
    raise TimeoutError("too much time for one input")


def _peak_bytes() -> int:
    """The most that was resident so far, or that Arrow had asked for."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    return max(peak, pa.default_memory_pool().max_memory() or 0)


def _address_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as statm:  # noqa: PTH123
        return int(statm.read().split()[0]) * mmap.PAGESIZE


if __name__ == "__main__":
    sys.exit(main())

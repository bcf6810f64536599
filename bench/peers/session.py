"""Prepares inputs once, then runs engines in rounds, each run in a new process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from bench.peers.contract import Measure
from bench.peers.engines import ENGINES, OURS, PREPARED_BY, SOURCES, Engine
from bench.peers.measurements import EngineFacts, Halves, Result, Run, facts_key
from bench.peers.run import Order
from bench.peers.workloads import Facts, Workload, facts_of, make_sources
from compactor.common.counts import counted

ROOT: Final = Path(__file__).parents[2]
_ALWAYS_ANEW: Final = ("fragments", "sorted-run")
"""Formats that this checkout writes: never reuse files from an older checkout."""

_HALVES = tuple(
    Engine(
        name=name,
        label=label,
        target=f"bench.peers.with_ours:{name}",
        form="fragments",
        family=OURS,
    )
    for name, label in (
        ("OursHalves", "both halves in turn"),
        ("OursFirstHalf", "first half"),
        ("OursSecondHalf", "second half"),
    )
)


class EngineFailedError(Exception):
    """An engine failed; the message is one line."""


class Plan(Struct, frozen=True, kw_only=True):
    workloads: Sequence[Workload]
    measures: Sequence[Measure]
    engines: Sequence[Engine]
    cores: Sequence[int]
    rounds: int
    rows: int
    inputs: int
    first_cpu: int
    """The CPU for runs on one core."""
    work: Path
    timeout_seconds: float


class Session:
    def __init__(self, plan: Plan, result: Result, tell: Callable[[str], None]) -> None:
        self._plan = plan
        self._result = result
        self._tell = tell
        self._facts: dict[str, Facts] = {}

    def prepare(self) -> None:
        """Prepares all inputs. Raises `EngineFailedError`."""
        plan = self._plan
        for workload in plan.workloads:
            make_sources(workload, plan.rows, plan.inputs, self._folder(workload), self._tell)
            facts = facts_of(workload, self._folder(workload))
            self._facts[workload.name] = self._result.workloads[workload.name] = facts
            kinds = self._kinds(workload)
            for form in dict.fromkeys(engine.form for engine, _ in kinds if engine.form != SOURCES):
                self._prepare_form(workload, form)
        os.sync()

    def steps(self) -> int:
        """Returns the number of runs."""
        plan = self._plan
        return plan.rounds * sum(
            len(self._kinds(workload)) * len(plan.cores) + self._has_halves(workload)
            for workload in plan.workloads
        )

    def _kinds(self, workload: Workload) -> list[tuple[Engine, Measure]]:
        """Returns the pairs of engine and measure, by measure."""
        columns = self._facts[workload.name].columns
        return [
            (engine, measure)
            for measure in self._plan.measures
            for engine in self._plan.engines
            if measure in engine.measures and (not measure.needs_columns or measure in columns)
        ]

    def run(self, on_step: Callable[[], None]) -> None:
        """Alternates engines, with rounds outermost: drift affects all of them alike."""
        plan = self._plan
        for number in range(plan.rounds):
            for workload in plan.workloads:
                for cores in plan.cores:
                    for engine, measure in self._kinds(workload):
                        run = self._measure(engine, workload, measure, cores, number)
                        self._result.runs.append(run)
                        on_step()
                if self._has_halves(workload):
                    self._result.halves.append(self._measure_halves(workload, number))
                    on_step()

    def _has_halves(self, workload: Workload) -> bool:
        plan = self._plan
        return (
            2 in plan.cores
            and Measure.MERGE in plan.measures
            and self._facts[workload.name].inputs > 1
            and OURS in [e.name for e in plan.engines]
        )

    def _measure(
        self, engine: Engine, workload: Workload, measure: Measure, cores: int, number: int
    ) -> Run:
        self._tell(f"round {number + 1}: {workload.name}, {measure}, {engine.label}, {cores} cores")
        run = partial(
            Run,
            workload=workload.name,
            measure=str(measure),
            cores=cores,
            engine=engine.name,
            round=number,
        )
        try:
            [found] = self._run_at_once(workload, measure, [(engine, self._cpus(cores))])
        except EngineFailedError as error:
            return run(failure=str(error))
        key = facts_key(engine.name, measure)
        self._result.engines[key] = EngineFacts(
            engine.label, engine.family, found["version"], found["settings"]
        )
        return run(
            wall_seconds=round(found["wall_seconds"], 4),
            cpu_seconds=round(found["cpu_seconds"], 4),
            peak_rss_bytes=found["peak_rss_bytes"],
            output_bytes=found["output_bytes"],
            output_rows=found["output_rows"],
            failure=_fault(found, self._facts[workload.name].rows),
        )

    def _measure_halves(self, workload: Workload, number: int) -> Halves:
        self._tell(f"round {number + 1}: {workload.name}, two tasks on two cores")
        both, first, second = _HALVES
        one, other = self._cpus(2)
        try:
            [turn] = self._run_at_once(workload, Measure.MERGE, [(both, self._cpus(1))])
            pair = self._run_at_once(workload, Measure.MERGE, [(first, [one]), (second, [other])])
        except EngineFailedError as error:
            return Halves(workload.name, number, failure=str(error))
        rows = {turn["output_rows"], sum(found["output_rows"] for found in pair)}
        wanted = self._facts[workload.name].rows
        together = max(p["ended"] for p in pair) - min(p["started"] for p in pair)
        return Halves(
            workload.name,
            number,
            round(together, 4),
            round(turn["wall_seconds"], 4),
            None if rows == {wanted} else f"rows: {rows} instead of {wanted}",
        )

    def _run_at_once(
        self,
        workload: Workload,
        measure: Measure,
        wanted: Sequence[tuple[Engine, Sequence[int]]],
    ) -> list[dict[str, Any]]:
        """Runs all simultaneously: they start when the last one is ready."""
        waits = len(wanted) > 1
        with ExitStack() as stack:
            children = [
                stack.enter_context(
                    _Child(
                        self._order(engine, workload, measure, cpus, waits),
                        self._plan.timeout_seconds,
                    )
                )
                for engine, cpus in wanted
            ]
            if waits:
                for child in children:
                    child.wait_until_ready()
            for child in children:
                child.go()
            return [child.finish() for child in children]

    def _order(
        self,
        engine: Engine,
        workload: Workload,
        measure: Measure,
        cpus: Sequence[int],
        waits: bool = False,
    ) -> Order:
        return Order(
            target=engine.target,
            action=str(measure),
            sources=[str(path) for path in workload.sources(self._folder(workload))],
            sort=workload.sort,
            prepared=str(self._folder(workload) / engine.form),
            folder=str(self._folder(workload) / "runs" / engine.name.replace(":", "-")),
            cpus=cpus,
            waits=waits,
            columns=self._facts[workload.name].columns.get(measure, ()),
        )

    def _prepare_form(self, workload: Workload, form: str) -> None:
        prepared = self._folder(workload) / form
        done = prepared.with_suffix(".prepared")
        if done.exists() and form not in _ALWAYS_ANEW:
            return
        self._tell(f"preparing {workload.name} as {form}")
        shutil.rmtree(prepared, ignore_errors=True)
        prepared.mkdir(parents=True)
        order = Order(
            target=PREPARED_BY[form],
            action="prepare",
            sources=[str(path) for path in workload.sources(self._folder(workload))],
            sort=workload.sort,
            prepared=str(prepared),
            folder=str(self._folder(workload) / "runs" / f"prepare-{form}"),
            cpus=sorted(os.sched_getaffinity(0)),
        )
        with _Child(order, self._plan.timeout_seconds) as child:
            child.go()
            child.finish()
        done.touch()

    def _folder(self, workload: Workload) -> Path:
        plan = self._plan
        size = "" if workload.files else f"-{plan.rows}-rows-{plan.inputs}-inputs"
        return plan.work / f"{workload.name}{size}"

    def _cpus(self, cores: int) -> list[int]:
        """Returns the chosen CPU, then the others."""
        first = self._plan.first_cpu
        others = [cpu for cpu in range(os.cpu_count() or 1) if cpu != first]
        return [first, *others][:cores]


class _Child:
    """A process that carries out an order in its own folder."""

    def __init__(self, order: Order, timeout_seconds: float) -> None:
        self._folder = Path(order.folder)
        self._order = order
        self._timeout_seconds = timeout_seconds

    def __enter__(self) -> _Child:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        self._errors = (self._folder / "stderr").open("w+")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.peers.run", self._order.to_json()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            cwd=ROOT,
            env=os.environ | {"POLARS_MAX_THREADS": str(len(self._order.cpus))},
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._errors.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def wait_until_ready(self) -> None:
        assert self._process.stdout is not None
        while (line := self._process.stdout.readline()) != "ready\n":
            if not line:
                raise EngineFailedError(self._last_words())

    def go(self) -> None:
        if self._order.waits:
            assert self._process.stdin is not None
            self._process.stdin.write("go\n")
            self._process.stdin.flush()

    def finish(self) -> dict[str, Any]:
        try:
            out, _ = self._process.communicate(timeout=self._timeout_seconds)
        except subprocess.TimeoutExpired:
            raise EngineFailedError(f"not done in {self._timeout_seconds:.0f} s") from None
        if self._process.returncode:
            raise EngineFailedError(self._last_words())
        found: dict[str, Any] = json.loads(out.splitlines()[-1])
        return found

    def _last_words(self) -> str:
        self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().strip().splitlines()
        return lines[-1] if lines else f"exit code {self._process.returncode}"


def _fault(found: dict[str, Any], rows: int) -> str | None:
    if found["output_rows"] != rows:
        return f"{counted(found['output_rows'], 'row')} came out of {rows:,}"
    return None if found["is_sorted"] else "the output is not sorted"


def usable(engines: Iterable[Engine], result: Result) -> list[Engine]:
    """Returns the installed engines; notes the others as skipped."""
    found = []
    for engine in engines:
        if why := engine.missing():
            result.skipped[engine.name] = why
        else:
            for measure in engine.measures:
                key = facts_key(engine.name, measure)
                result.engines[key] = EngineFacts(engine.label, engine.family)
            found.append(engine)
    return found


ALL_NAMES: Final = list(dict.fromkeys(engine.name for engine in ENGINES))

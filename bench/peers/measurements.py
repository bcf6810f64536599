"""Keeps what was measured as the result file has it, and computes medians."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

from msgspec import Struct, field

from bench.peers.contract import Measure
from bench.peers.engines import FLOOR, OURS
from bench.peers.workloads import Facts
from compactor.common.plain_values import plain_dict

Section = tuple[str, str, int]
"""A workload, a measure and how many cores."""


def facts_key(engine: str, measure: str) -> str:
    """Returns the name under which facts are kept: an engine may have other settings for each measure."""
    kind = "scan" if Measure(measure).is_scan else str(measure)
    return f"{engine}, {kind}"


class Run(Struct, frozen=True, kw_only=True):
    """One run of one engine. The figures of a failed one count for nothing."""

    workload: str
    measure: str
    cores: int
    engine: str
    round: int
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_rss_bytes: int = 0
    output_bytes: int = 0
    output_rows: int = 0
    failure: str | None = None


class Halves(Struct, frozen=True):
    """Two compactions of half the inputs each: at one time on two cores, in turn on one."""

    workload: str
    round: int
    together_seconds: float = 0.0
    in_turn_seconds: float = 0.0
    failure: str | None = None


class EngineFacts(Struct, frozen=True):
    label: str
    family: str
    version: str = ""
    settings: str = ""


class Result(Struct, kw_only=True):
    """All of a session, the machine included."""

    machine: dict[str, Any]
    rounds: int
    workloads: dict[str, Facts] = field(default_factory=dict)
    engines: dict[str, EngineFacts] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    halves: list[Halves] = field(default_factory=list)

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(plain_dict(self), indent=1) + "\n")

    @classmethod
    def of(cls, document: dict[str, Any]) -> Self:
        """Returns the result that a result file has as its JSON object."""
        document["engines"] = {n: EngineFacts(**e) for n, e in document["engines"].items()}
        document["workloads"] = {n: Facts(**f) for n, f in document["workloads"].items()}
        document["runs"] = [Run(**run) for run in document["runs"]]
        document["halves"] = [Halves(**halves) for halves in document["halves"]]
        return cls(**document)

    def failures(self) -> list[str]:
        return [
            *(f"{r.engine}, {r.workload}, {r.measure}, {r.cores} cores: {r.failure}"
              for r in self.runs if r.failure),
            *(f"two tasks, {h.workload}: {h.failure}" for h in self.halves if h.failure),
        ]  # fmt: skip

    def sections(self) -> list[Section]:
        """Returns workloads, measures and cores, in the order in which they were run."""
        return list(dict.fromkeys((run.workload, run.measure, run.cores) for run in self.runs))

    def summaries(self, section: Section) -> list[Summary]:
        """Returns the medians of all engines, in the order in which they were run."""
        runs = [run for run in self.runs if (run.workload, run.measure, run.cores) == section]
        return [
            Summary.of([run for run in runs if run.engine == engine])
            for engine in dict.fromkeys(run.engine for run in runs)
        ]

    def facts(self, summary: Summary) -> EngineFacts:
        return self.engines[facts_key(summary.engine, summary.measure)]

    def best_peers(
        self, summaries: Sequence[Summary], figure: Callable[[Summary], float]
    ) -> dict[str, Summary]:
        """Returns the better variant of every peer by the figure, under the peer's name."""
        best: dict[str, Summary] = {}
        for summary in summaries:
            family = self.facts(summary).family
            if family in (OURS, FLOOR) or summary.failure:
                continue
            if family not in best or figure(summary) < figure(best[family]):
                best[family] = summary
        return best


class Summary(Struct, frozen=True, kw_only=True):
    """Medians over the rounds of one engine. One failure is a failure of all."""

    engine: str
    measure: str
    wall_seconds: float
    wall_range: tuple[float, float]
    cpu_seconds: float
    peak_rss_bytes: int
    output_bytes: int
    failure: str | None

    @classmethod
    def of(cls, runs: Sequence[Run]) -> Self:
        wall = [run.wall_seconds for run in runs]
        return cls(
            engine=runs[0].engine,
            measure=runs[0].measure,
            wall_seconds=statistics.median(wall),
            wall_range=(min(wall), max(wall)),
            cpu_seconds=statistics.median(run.cpu_seconds for run in runs),
            peak_rss_bytes=round(statistics.median(run.peak_rss_bytes for run in runs)),
            output_bytes=round(statistics.median(run.output_bytes for run in runs)),
            failure=next((run.failure for run in runs if run.failure), None),
        )

"""Measures all figures of docs/explanation/benchmarks.md from one checkout, and writes the CSV of the page.

    make figures LINES=loghub                      a quarter of an hour on two quiet cores
    make figures LINES=loghub FIGURES="--rows 2000 --rounds 1 --only merge,scan --out some.csv"

Each set is a command of its own (`bench.vs_peers` and others); its result file stays where RESULTS says.
A figure is a row with its commit, date, machine and the engine's version. `docs.tools.benchmark_page` makes
tables and the picture of them. The CSV has only what this run measured, so that a page shows one commit.
"""

from __future__ import annotations

import argparse
import csv
import json
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, cast

from msgspec import Struct
from msgspec.structs import asdict, fields

from bench.bench_pipeline import OURS
from bench.peers.contract import Measure
from bench.peers.measurements import Result
from bench.results import RESULTS, ROOT
from bench.string_kinds import KINDS

CSV: Final = ROOT / "docs/explanation/benchmarks.csv"
OUR_LABEL: Final = "lsm-compactor"
_HARD: Final = "real-logs-grouped,real-logs-interleaved,lines,requests,accounts,trips,samples"
_INGESTED: Final = "real-logs-grouped,real-logs-interleaved,lines"
_MERGERS: Final = "ours,clickhouse,clickhouse-low-cardinality,polars-sort"
_SCANNERS: Final = "ours,pyarrow,vortex,vortex-compact"
_SCANS: Final = {
    Measure.SCAN_ALL: "all columns",
    Measure.SCAN_STRING: "largest strings",
    Measure.SCAN_NUMBERS: "two numbers",
}
_KINDS: Final = ",".join(KINDS)
_FAN_IN: Final = (4, 64, 256)


class Figure(Struct, frozen=True, kw_only=True):
    topic: str
    workload: str
    case: str
    engine: str
    figure: str
    value: float
    rows: int
    version: str
    commit: str
    date: str
    machine: str


class Set(Struct, frozen=True, kw_only=True):
    """A command, and what turns its result file into figures."""

    topic: str
    module: str
    arguments: str
    read: Callable[[str, dict[str, Any]], Iterable[Figure]]
    file: str = ""
    """Of its result, if the topic has several sets."""

    def command(self, options: argparse.Namespace, work: str, out: Path) -> list[str]:
        """Returns its command. work: the folder of inputs that several sets have in common."""
        words = self.arguments.format(
            rows=options.rows, rounds=options.rounds, lines=shlex.quote(str(options.lines.resolve())),
            jobs=max(1, options.rows // 2_000), work=shlex.quote(work),
        )  # fmt: skip
        flag = "--out" if self.module == "vs_peers" else "--results"
        module = f"bench.{self.module}"
        return [sys.executable, "-m", module, *shlex.split(words), flag, str(out)]


def _peers(
    topic: str, measures: str, workloads: str, engines: str, more: str, file: str = ""
) -> Set:
    arguments = (
        f"--lines {{lines}} --rows {{rows}} --measures {measures} --workloads {workloads} "
        f"--engines {engines} {more}"
    )
    return Set(topic=topic, module="vs_peers", arguments=arguments, read=of_peers, file=file)


def sets() -> list[Set]:
    """Returns the sets in the order of the page."""
    alike, once = "--rounds {rounds} --work {work}", "--rounds 1 --cores 1"
    all_engines = "floor,ours,clickhouse,datafusion,duckdb,polars-sort,polars-merge,pyarrow,spark"
    return [
        _peers("merge", "merge", _HARD, _MERGERS, f"{alike} --cores 1,2"),
        _peers("ingest", "ingest", _INGESTED, "ours,clickhouse,polars-sort",
               f"{alike} --cores 1,2"),
        _peers("merge by kind", "merge", _KINDS, "ours,clickhouse,polars-sort",
               "--rounds 1 --cores 1,2 --work {work}"),
        _peers("ingest by kind", "ingest", _KINDS, "ours,clickhouse,polars-sort",
               "--rounds 1 --cores 1,2 --work {work}"),
        *(
            _peers(f"ingest of {name}", f"ingest-{name.lower()}", "lines,prose,trips",
                   "ours,duckdb,polars-sort", "--rounds 1 --cores 1,2 --work {work}", name.lower())
            for name in ("CSV", "NDJSON")
        ),
        _peers("scan", "scan", _HARD, _SCANNERS, f"{alike} --cores 1"),
        _peers("all engines", "merge", "grouped,interleaved,mostly-disjoint", all_engines, once),
        *(
            _peers("fan-in", "merge", "real-logs-grouped", "ours,clickhouse,polars-sort",
                   f"{once} --inputs {inputs}", f"fan-in-{inputs}")
            for inputs in _FAN_IN
        ),
        Set(topic="size", module="bench_size", arguments="--rows {rows}", read=of_sizes),
        Set(topic="pipelines", module="bench_pipeline",
            arguments="--rows {rows} --rounds {rounds} --cores 1,2", read=of_pipelines),
        Set(topic="entities", module="bench_components",
            arguments="--records {rows} --engines union-find,splink", read=of_engines),
        Set(topic="small jobs", module="bench_small_jobs",
            arguments="--compactions {jobs} --rows {rows}", read=of_small_jobs),
    ]  # fmt: skip


def of_peers(topic: str, document: dict[str, Any]) -> Iterator[Figure]:
    result = Result.of(document)
    made = _maker(topic, result.machine)
    for section in result.sections():
        workload, measure, cores = section
        facts = result.workloads[workload]
        for summary in result.summaries(section):
            if summary.failure:
                raise ValueError(f"{summary.engine}, {workload}, {measure}: {summary.failure}")
            engine = result.facts(summary)
            about = {"engine": engine.label, "version": engine.version, "rows": facts.rows}
            if Measure(measure).is_scan:
                case = _SCANS[Measure(measure)]
                yield made(workload, case, "CPU ms", summary.cpu_seconds * 1000, **about)
                continue
            case = "one core" if cores == 1 else f"{cores} cores"
            case = f"{facts.inputs} inputs" if topic == "fan-in" else case
            yield made(workload, case, "seconds", summary.wall_seconds, **about)
            if cores == 1:
                yield made(workload, case, "output MB", summary.output_bytes / 1e6, **about)
            yield made(workload, case, "peak RSS MB", summary.peak_rss_bytes / 1e6, **about)


def of_sizes(topic: str, document: dict[str, Any]) -> Iterator[Figure]:
    made = _maker(topic, document["environment"])
    engines = {OUR_LABEL: "stored_bytes", "Parquet": "parquet_same_groups_bytes"}
    for workload, cases in groupby(document["cases"], itemgetter("sort", "level")):
        columns = list(cases)
        sums = {name: sum(column[name] for column in columns) for name in engines.values()}
        for column in (*columns, columns[0] | sums | {"column": "all columns"}):
            for engine, name in engines.items():
                about = {"engine": engine, "version": "", "rows": column["rows"]}
                kilobytes = column[name] / 1e3
                yield made(
                    f"zstd {workload[1]}, by {workload[0]}",
                    column["column"],
                    "kB",
                    kilobytes,
                    **about,
                )


def of_engines(topic: str, document: dict[str, Any]) -> Iterator[Figure]:
    """Reads a bench that runs each engine once: seconds."""
    made = _maker(topic, document["environment"])
    versions = document["environment"]["versions"]
    arguments = document["arguments"]
    for case in document["cases"]:
        if "seconds" in case:
            ours = case["engine"] == "union-find"
            about = {
                "engine": OUR_LABEL
                if ours
                else case["engine"].capitalize().replace("Duckdb", "DuckDB"),
                "version": versions.get(case["engine"].lower(), ""),
                "rows": arguments.get("rows") or arguments["records"],
            }
            yield made(topic, "", "seconds", case["seconds"], **about)


def of_pipelines(topic: str, document: dict[str, Any]) -> Iterator[Figure]:
    made = _maker(topic, document["environment"])
    versions = document["environment"]["versions"]
    for case in document["cases"]:
        name = case["engine"]
        about = {
            "engine": OUR_LABEL if name == OURS else name,
            "version": versions.get(name.lower(), ""),
            "rows": document["arguments"]["rows"],
        }
        cores = "one core" if case["cores"] == 1 else f"{case['cores']} cores"
        yield made(case["job"], cores, "CPU seconds", case["cpu_seconds"], **about)
        yield made(case["job"], cores, "seconds", case["seconds"], **about)
        yield made(case["job"], cores, "peak RSS MB", case["peak_rss_mb"], **about)


def of_small_jobs(topic: str, document: dict[str, Any]) -> Iterator[Figure]:
    """The second engine is the work itself: the seconds inside attempts."""
    made = _maker(topic, document["environment"])
    for case in document["cases"]:
        workload = f"{case['case']}, {case['compactions']:,} compactions"
        for engine, name in ((OUR_LABEL, "seconds"), ("in attempts alone", "attempt_seconds")):
            about = {"engine": engine, "version": "", "rows": case["rows"]}
            yield made(workload, case["master"], "seconds", case[name], **about)


def _maker(topic: str, machine: dict[str, Any]) -> Callable[..., Figure]:
    """Returns a function that makes figures of one run on one machine."""
    where = f"{machine['cpu']}, {machine['cores']} cores"
    date, commit = machine["date"][:10], machine["commit"]

    def made(workload: str, case: str, figure: str, value: float, **about: Any) -> Figure:
        return Figure(
            topic=topic, workload=workload, case=case, figure=figure, value=float(f"{value:.4g}"),
            date=date, commit=commit, machine=where, **about,
        )  # fmt: skip

    return made


def write(path: Path, figures: Iterable[Figure]) -> None:
    with path.open("w", newline="") as file:
        rows = csv.DictWriter(file, [f.name for f in fields(Figure)], lineterminator="\n")
        rows.writeheader()
        rows.writerows(asdict(figure) for figure in figures)


def read(path: Path) -> list[Figure]:
    with path.open(newline="") as file:
        return [
            Figure(**cast("Any", row) | {"value": float(row["value"]), "rows": int(row["rows"])})
            for row in csv.DictReader(file)
        ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    topics = list(dict.fromkeys(each.topic for each in sets()))
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--lines", type=Path, required=True, help="folder of .log files,\n"
                        "such as samples of https://github.com/logpai/loghub")  # fmt: skip
    parser.add_argument("--only", default=",".join(topics), help="topics: " + ", ".join(topics))
    parser.add_argument("--out", type=Path, default=CSV, help="the CSV")
    options = parser.parse_args(arguments)
    wanted = options.only.split(",")
    if unknown := [topic for topic in wanted if topic not in topics]:
        parser.error(f"--only: there is no {unknown[0]!r}; there are {', '.join(topics)}")
    if not any(options.lines.glob("*.log")):
        parser.error(
            f"--lines {options.lines}: no .log file is there (`make figures LINES=FOLDER`)"
        )
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="figures-") as work:
        for each in (s for s in sets() if s.topic in wanted):
            out = RESULTS.resolve() / "figures" / f"{each.file or each.topic}.json"
            out.unlink(missing_ok=True)
            subprocess.run(each.command(options, work, out), check=True, cwd=ROOT)
            figures += each.read(each.topic, json.loads(out.read_text()))
    write(options.out, figures)
    print(f"{len(figures)} figures in {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

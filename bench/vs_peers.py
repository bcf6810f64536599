"""Measures merges, ingests and scans by us and by other engines, side by side, on one core and on two.

It makes the workloads, writes them in each engine's own form, and runs all engines on them, in rounds in
which the engines alternate. Each run is a process of its own, pinned to its cores. The clock covers only the
work, up to an output that is synced; then the output is checked. docs/explanation/benchmarks.md says what is
measured, and names every setting.

    python -m bench.vs_peers                                       4 million rows, three rounds: some hours
    python -m bench.vs_peers --lines loghub                        with real lines, of a folder of .log files
    python -m bench.vs_peers --files FOLDER --sort-by service,time your own sorted Parquet files
    python -m bench.vs_peers --rows 1000000 --rounds 1 --cores 1   a look
    python -m bench.vs_peers --engines ours,floor,clickhouse --measures merge
    python -m bench.vs_peers --engines ours,duckdb,polars --measures ingest,ingest-csv,ingest-ndjson
    python -m bench.vs_peers --measures pipelines --rows 2000000   as python -m bench.bench_pipeline
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench import bench_pipeline
from bench.peers import engines, workloads
from bench.peers.contract import Measure
from bench.peers.measurements import Result
from bench.peers.session import ALL_NAMES, EngineFailedError, Plan, Session, usable
from bench.peers.tables import as_text
from bench.pipeline_jobs import JOBS
from bench.results import RESULTS, environment
from lsm_fragment.names import parse_names

PIPELINES = "pipelines"
"""A measure of its own: jobs in place of workloads, in the engines that have them."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns exit code 0 if every run was good, 1 if one failed, 2 for a wrong call."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.measures == PIPELINES:
        out = options.out.with_name("pipeline.json")
        bench_pipeline.report(options.rows, JOBS, _cores(options.cores), options.rounds, out)
        return 0
    try:
        chosen = engines.choose(options.engines.split(","))
        loads = _workloads(options)
        measures = _measures(options.measures)
        cores = _cores(options.cores)
    except ValueError as error:
        parser.error(str(error))
    result = Result(machine=environment(), rounds=options.rounds)
    found = usable(chosen, result)
    for name, why in result.skipped.items():
        print(f"skipped {name}: {why}", file=sys.stderr)
    with _folder(options.work) as work, _progress() as progress:
        plan = Plan(
            workloads=loads,
            measures=measures,
            engines=found,
            cores=cores,
            rounds=options.rounds,
            rows=options.rows,
            inputs=options.inputs,
            first_cpu=options.core,
            work=work,
            timeout_seconds=options.timeout,
        )
        session = Session(plan, result, progress.tell)
        try:
            session.prepare()
        except EngineFailedError as error:
            print(f"the inputs could not be prepared: {error}", file=sys.stderr)
            return 1
        progress.expect(session.steps())

        def on_step() -> None:
            progress.step()
            result.write(options.out)  # an hour's figures do not hang on its last minute

        session.run(on_step)
    print(f"figures in {options.out}", file=sys.stderr)
    print(as_text(result))
    return 1 if result.failures() else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.vs_peers",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    last = max(os.sched_getaffinity(0))
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--inputs", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--engines", default=",".join(ALL_NAMES), help=",".join(ALL_NAMES))
    parser.add_argument("--measures", default="all",
                        help=f"all, or some of {','.join(Measure)}; or {PIPELINES}, alone")  # fmt: skip
    parser.add_argument("--workloads", help="names of generated ones, such as grouped,interleaved")
    parser.add_argument(
        "--lines", type=Path, help="folder of .log files: adds workloads of real lines"
    )
    parser.add_argument("--files", type=Path, action="append", default=[],
                        help="folder of sorted Parquet files: a workload; may be repeated")  # fmt: skip
    parser.add_argument("--sort-by", help="the columns that --files are sorted by, ascending")
    parser.add_argument("--cores", default="1,2", help="how many, such as 1 or 1,2")
    parser.add_argument("--core", type=int, default=last, help=f"the one for one core ({last})")
    parser.add_argument("--work", type=Path, help="folder for inputs, kept for the next time")
    parser.add_argument(
        "--out", type=Path, default=RESULTS / "vs_peers.json", help="result file, JSON"
    )
    parser.add_argument("--timeout", type=float, default=900, help="seconds a run may take")
    return parser


def _workloads(options: argparse.Namespace) -> list[workloads.Workload]:
    """Returns your own files if there are any, and the generated workloads that were asked for."""
    if options.files and not options.sort_by:
        raise ValueError("--files: say by --sort-by which columns they are sorted by")
    own = [workloads.of_files(folder, parse_names(options.sort_by)) for folder in options.files]
    if own and options.workloads is None:
        return own
    known = {workload.name: workload for workload in workloads.known_workloads(options.lines)}
    names = list(known) if options.workloads is None else options.workloads.split(",")
    for name in names:
        if name not in known:
            raise ValueError(f"--workloads: there is no {name!r}; there are {', '.join(known)}")
    return [*own, *(known[name] for name in dict.fromkeys(names))]


def _measures(text: str) -> list[Measure]:
    """Returns measures by name; `scan` is all scans."""
    if text == "all":
        return list(Measure)
    found = [
        m
        for name in text.split(",")
        for m in Measure
        if m == name or (m.is_scan and name == "scan")
    ]
    if unknown := [n for n in text.split(",") if n != "scan" and n not in list(Measure)]:
        raise ValueError(
            f"--measures: there is no {unknown[0]!r}; there are {', '.join(Measure)}, scan"
        )
    return list(dict.fromkeys(found))


def _cores(text: str) -> list[int]:
    cores = [int(number) for number in text.split(",")]
    most = os.cpu_count() or 1
    if not all(1 <= number <= most for number in cores):
        raise ValueError(f"--cores {text}: this machine has {most}")
    return list(dict.fromkeys(cores))


@contextmanager
def _folder(work: Path | None) -> Iterator[Path]:
    if work is not None:
        work.mkdir(parents=True, exist_ok=True)
        yield work.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="vs-peers-") as temporary:
        yield Path(temporary)


class _Progress:
    """A line with a bar; the callables do nothing where there is no terminal."""

    def __init__(
        self,
        tell: Callable[[str], None] = lambda _: None,
        expect: Callable[[int], None] = lambda _: None,
        step: Callable[[], None] = lambda: None,
    ) -> None:
        self.tell, self.expect, self.step = tell, expect, step


@contextmanager
def _progress() -> Iterator[_Progress]:
    if not sys.stderr.isatty():
        yield _Progress()
        return
    from rich.console import Console
    from rich.progress import Progress

    # Two looks a second: the engines have the cores.
    with Progress(console=Console(stderr=True), refresh_per_second=2, transient=True) as bar:
        task = bar.add_task("making inputs", total=None)
        yield _Progress(
            lambda text: bar.update(task, description=text),
            lambda steps: bar.update(task, total=steps, completed=0),
            lambda: bar.advance(task),
        )


if __name__ == "__main__":
    sys.exit(main())

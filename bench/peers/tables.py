"""Formats results as text."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from bench.peers.contract import Measure
from bench.peers.engines import FLOOR, OURS
from bench.peers.measurements import Result, Summary
from compactor.common.counts import counted

_OF_COLUMNS = (Measure.SCAN_STRING, Measure.SCAN_NUMBERS)
_HEADER = (
    f"{'':<28}{'wall':>9}{'min..max':>15}{'CPU':>9}{'peak RSS':>11}{'output':>11}"
    f"{'x wall':>9}{'x CPU':>8}{'x output':>10}"
)


def as_text(result: Result) -> str:
    """Returns tables, ratios and settings."""
    lines = []
    for workload, measure, cores in result.sections():
        summaries = result.summaries((workload, measure, cores))
        many = "one core" if cores == 1 else f"{cores} cores"
        facts = result.workloads[workload]
        columns = f" of {' and '.join(facts.columns[measure])}" if measure in _OF_COLUMNS else ""
        lines += [
            f"{workload}, {measure}{columns}, {many}: {counted(facts.rows, 'row')}, "
            f"{counted(facts.inputs, 'input')}; medians of {result.rounds}",
            _HEADER,
            *_rows(result, summaries),
            *_ratios(result, summaries),
            "",
        ]
    lines += _halves(result)
    lines += [
        "x: wall seconds, CPU seconds and output bytes of that engine for one of lsm-compactor's",
        "",
        *(
            f"{found.label} {found.version}: {found.settings}"
            for found in result.engines.values()
            if found.settings
        ),
        *(f"skipped {name}: {why}" for name, why in result.skipped.items()),
        *(f"FAILED {failure}" for failure in result.failures()),
        ", ".join(f"{name} {value}" for name, value in result.machine.items()),
    ]
    return "\n".join(lines)


def _rows(result: Result, summaries: Sequence[Summary]) -> Iterator[str]:
    ours = _find(summaries, OURS)
    for summary in summaries:
        label = result.facts(summary).label
        if summary.failure:
            yield f"{label:<28}   FAILED  {summary.failure}"
            continue
        low, high = summary.wall_range
        line = (
            f"{label:<28}{summary.wall_seconds:>7.2f} s{f'{low:.2f}..{high:.2f}':>15}"
            f"{summary.cpu_seconds:>7.2f} s{summary.peak_rss_bytes / 1e6:>8,.0f} MB"
            f"{summary.output_bytes / 1e6:>8,.1f} MB"
        )
        if ours:
            line += (
                f"{summary.wall_seconds / ours.wall_seconds:>8.2f}x"
                f"{summary.cpu_seconds / ours.cpu_seconds:>7.2f}x"
                f"{summary.output_bytes / ours.output_bytes:>9.2f}x"
            )
        yield line


def _ratios(result: Result, summaries: Sequence[Summary]) -> Iterator[str]:
    """Yields our speed relative to the better variant of each peer, and our size relative to the smallest
    output."""
    ours, floor = _find(summaries, OURS), _find(summaries, FLOOR)
    if ours is None:
        return
    by_wall = result.best_peers(summaries, lambda s: s.wall_seconds)
    by_cpu = result.best_peers(summaries, lambda s: s.cpu_seconds)
    if by_wall:
        ratios = (
            f"{family} {best.wall_seconds / ours.wall_seconds:.2f}x "
            f"({by_cpu[family].cpu_seconds / ours.cpu_seconds:.2f}x)"
            for family, best in by_wall.items()
        )
        yield "faster by wall (by CPU) than the better way of " + ", ".join(ratios)
        all_peers = [s for s in summaries if s.engine not in (OURS, FLOOR) and not s.failure]
        smallest = min(all_peers, key=lambda s: s.output_bytes)
        yield (
            f"output of {ours.output_bytes / smallest.output_bytes:.2f} times the smallest peer's, "
            f"{result.facts(smallest).label}"
        )
    if floor:
        yield (
            f"{ours.wall_seconds / floor.wall_seconds:.2f} times the codec floor by wall, "
            f"{ours.cpu_seconds / floor.cpu_seconds:.2f} times by CPU"
        )


def _halves(result: Result) -> Iterator[str]:
    for workload in dict.fromkeys(halves.workload for halves in result.halves):
        good = [h for h in result.halves if h.workload == workload and not h.failure]
        if not good:
            continue
        in_turn = statistics.median(h.in_turn_seconds for h in good)
        together = statistics.median(h.together_seconds for h in good)
        yield (
            f"{workload}, two tasks of half the inputs each: {in_turn:.2f} s in turn on one core, "
            f"{together:.2f} s at one time on two cores: {in_turn / together:.2f}x"
        )


def _find(summaries: Sequence[Summary], engine: str) -> Summary | None:
    return next((s for s in summaries if s.engine == engine and not s.failure), None)
